# session.sh - what is kept: the session directory, its lock, its files (CONTRACT §1, §2, §4–§6). The only part that knows file names.
#
# Sets PROJECT_DIR, S (the session directory), SESSION (its name), FRESH (events.jsonl was empty), META_* of session.json.
# A problem found at opening goes into NOTES, for stderr and an `error` event.

NOTES=()

note() { # <text>
  NOTES[${#NOTES[@]}]=$1
}

# ---- Places

find_project() {
  local key number
  key=${CWD#/}
  key=${key//[!A-Za-z0-9._-]/-}
  while [[ $key == *--* ]]; do key=${key//--/-}; done
  key=${key#-}
  key=-${key%-}
  if ((${#key} > 200)); then
    number=$(printf '%s' "$CWD" | cksum)
    key=${key:0:180}-${number%%[ 	]*}
  fi
  PROJECT_DIR=$BASE/projects/$key
}

need_name() { # <session name>
  local why='' shown=$1
  case $1 in
  '') why="it is empty" ;;
  . | ..) why="it is a directory's own name" ;;
  -*) why="it begins with '-'" ;;
  */*) why="it holds '/'" ;;
  *[$'\001'-$'\037'$'\177']*) why="it holds a control character" ;;
  esac
  ((${#1} > 255)) && why="it is too long" && shown=${shown:0:255}
  [[ -z $why ]] ||
    die 2 "bad session name \"$shown\": $why (a name is printable characters without '/', at most 255 bytes, not '.' or '..', and does not begin with '-')"
}

storage_error() { # <verb> <path> <reason as a command printed it>
  local text
  storage_text text "$@"
  die 11 "$text"
}

storage_text() { # <result-var> <verb> <path> <reason as a command printed it>
  local st_reason=${4##*: } advice=
  case $st_reason in
  'No space'* | 'Disk quota'*) advice=" (free some space there and run it again)" ;;
  'Read-only'*) advice=" (set BASH_AGENT_HOME to a directory that can be written)" ;;
  'Permission denied' | 'Operation not permitted') advice=" (look at its owner and mode (ls -ld), or set BASH_AGENT_HOME to another directory)" ;;
  'No such file'* | 'Not a directory') advice=" (a directory on the way is missing: make it again, or set BASH_AGENT_HOME)" ;;
  'No locks available' | 'Operation not supported'* | 'Function not implemented')
    [[ $2 != lock ]] || advice=" (this file system has no locks: set BASH_AGENT_HOME to a directory on a local one)"
    ;;
  'Input/output error') advice=" (the disk reports an error: see the system's log)" ;;
  esac
  printf -v "$1" '%s' "cannot $2 $3: ${st_reason:-it failed}$advice"
}

# Makes a directory, and says why when it cannot.
ensure_dir() { # <path>
  local reason
  [[ -d $1 ]] && return 0
  reason=$(mkdir -m 700 -- "$1" 2>&1) || [[ -d $1 ]] || storage_error create "$1" "$reason"
}

ensure_file() { # <path>
  local reason
  [[ -e $1 && -w $1 ]] && return 0
  reason=$( (: >>"$1") 2>&1) || storage_error write "$1" "$reason"
}

make_project() {
  local home=${BASE%/.bash-agent}
  if [[ ! -d $BASE && ! -d $home ]]; then
    [[ -d ${home%/*} ]] ||
      die 11 "the home directory $home does not exist (create it, or set BASH_AGENT_HOME to another directory)"
    ensure_dir "$home"
  fi
  ensure_dir "$BASE"
  ensure_dir "$BASE/projects"
  ensure_dir "$PROJECT_DIR"
}

# ---- Finding sessions

# Names of this directory's sessions, the newest events.jsonl first, into FOUND; their times into FOUND_TIMES.
find_sessions() {
  local own files line name first
  FOUND=() FOUND_TIMES=()
  [[ -d $PROJECT_DIR ]] || return 0
  json_string own "$CWD"
  files=()
  for name in "$PROJECT_DIR"/*/events.jsonl; do
    [[ -e $name ]] || continue
    name=${name%/events.jsonl}
    name=${name##*/}
    [[ $name == sub_* ]] && continue
    # Two directories can share a key: a session that names another one is not ours.
    first=
    [[ -r $PROJECT_DIR/$name/session.json ]] && IFS= read -r first <"$PROJECT_DIR/$name/session.json"
    [[ $first == *'"cwd":"'* && $first != *"\"cwd\":\"$own\""* && $first != *'"cwd":""'* ]] && continue
    files[${#files[@]}]=$name/events.jsonl
  done
  ((${#files[@]})) || return 0
  while IFS= read -r line; do
    name=${line#* }
    FOUND_TIMES[${#FOUND_TIMES[@]}]=${line%%[. ]*}
    FOUND[${#FOUND[@]}]=${name%/events.jsonl}
  done < <(cd "$PROJECT_DIR" && file_times "${files[@]}" | LC_ALL=C sort -k1,1nr -k2r)
}

# `seconds name` lines; GNU, busybox and BSD differ.
file_times() { # <file>…
  stat -c '%.Y %n' -- "$@" 2>/dev/null || stat -c '%Y %n' -- "$@" 2>/dev/null || stat -f '%Fm %N' -- "$@"
}

list_sessions() {
  local i time preview escaped
  find_sessions
  if ((${#FOUND[@]} == 0)); then
    echo 'No sessions found.'
    return 0
  fi
  for ((i = 0; i < ${#FOUND[@]}; i++)); do
    if ((HAS_CLOCK)); then
      printf -v time '%(%Y-%m-%d %H:%M)T' "${FOUND_TIMES[i]}"
    else
      time=$(date -r "${FOUND_TIMES[i]}" '+%Y-%m-%d %H:%M')
    fi
    preview=
    if [[ -s $PROJECT_DIR/${FOUND[i]}/summary.txt ]]; then
      while IFS= read -r preview || [[ -n $preview ]]; do
        [[ $preview == *[![:space:]]* ]] && break
        preview=
      done <"$PROJECT_DIR/${FOUND[i]}/summary.txt"
    fi
    escape_line escaped "$preview"
    printf '%s\t%s\t%s\n' "${FOUND[i]}" "$time" "$escaped"
  done | run_awk listing.awk
  # A reader that has gone away.
  [[ ${PIPESTATUS[1]} == 0 ]] || finish 141
}

# ---- Opening

open_session() {
  locate_session
  own_session
  sweep_session
  recover_compaction
  make_files
  open_meta
  close_calls
  recover_input
  recover_notices
  FRESH=1
  [[ -s $S/events.jsonl ]] && FRESH=0
  # Who names a new session's files is to be synced once, too.
  ((FRESH)) && SYNC_DIRS=("$S" "$PROJECT_DIR" "$BASE/projects" "$BASE" "${BASE%/*}")
  return 0
}

locate_session() {
  local source
  ((OPT_HAS_SESSION == 2)) && need_name "$OPT_SESSION"
  if ((OPT_FORK)); then
    find_source source
    make_new_session
    fork_session "$source"
  elif ((OPT_HAS_SESSION == 2)); then
    make_project
    SESSION=$OPT_SESSION
    S=$PROJECT_DIR/$SESSION
    ensure_dir "$S"
  elif ((OPT_CONTINUE)); then
    find_source S
    SESSION=${S##*/}
  else
    make_new_session
  fi
  [[ -O $S ]] || die 11 "$S belongs to another user, not to you: run as that user, or set BASH_AGENT_HOME"
  awk_value SV "$S"
}

find_source() { # <result-var>   the directory of the session that --session or --continue means
  if ((OPT_HAS_SESSION == 2)); then
    [[ -d $PROJECT_DIR/$OPT_SESSION ]] || die 3 "no session $OPT_SESSION in $PROJECT_DIR (see --list-sessions)"
    printf -v "$1" '%s' "$PROJECT_DIR/$OPT_SESSION"
  else
    find_sessions
    ((${#FOUND[@]})) || die 3 "no session yet in $PROJECT_DIR (see --list-sessions)"
    printf -v "$1" '%s' "$PROJECT_DIR/${FOUND[0]}"
  fi
}

make_new_session() {
  make_project
  local reason
  while :; do
    new_id SESSION
    S=$PROJECT_DIR/$SESSION
    reason=$(mkdir -m 700 -- "$S" 2>&1) && return 0
    [[ -d $S ]] || storage_error create "$S" "$reason"
  done
}

fork_session() { # <source dir>
  local file image stats=$STATS_LINE own=${SV:-}
  ensure_dir "$S/images"
  for file in conversation.jsonl conversation-archive.jsonl summary.txt plan.md plan.draft; do
    if [[ -f $1/$file ]]; then
      cat -- "$1/$file" >"$S/$file" || storage_error write "$S/$file" ''
    fi
  done
  for image in "$1"/images/*; do
    [[ -f $image ]] && cat -- "$image" >"$S/images/${image##*/}"
  done
  awk_value SV "$S"
  write_stats </dev/null 2>/dev/null
  STATS_LINE=$stats SV=$own
  # The source may be running: its last line may be half written, or have calls that are being run.
  mend_tail conversation.jsonl
  mend_tail conversation-archive.jsonl
  run_tail "$S/conversation.jsonl"
  ((TAIL_CALLS)) && cut_file "$S/conversation.jsonl" "$TAIL_OFFSET"
  if load_meta "$1"; then
    timestamp META_CREATED
    store_meta
  fi
}

# The lock is a kernel lock, so it dies with its owner. A writer that only looks holds it for a moment.
own_session() {
  local tries pid='' reason
  reason=$( (: >>"$S/session.lock") 2>&1) || storage_error write "$S/session.lock" "$reason"
  exec 9>>"$S/session.lock"
  for tries in 1 2 3 4 5; do
    if try_lock_fd 9; then
      printf '%s\n' "$$" >"$S/session.lock"
      OWNED=1
      return 0
    fi
    [[ -z $LOCK_REASON ]] || storage_error lock "$S/session.lock" "$LOCK_REASON"
    sleep 0.05 2>/dev/null || sleep 1
  done
  IFS= read -r pid <"$S/session.lock"
  if is_number "$pid"; then pid="process $pid"; else pid="another process"; fi
  exec 9>&-
  die 4 "session $SESSION is in use by $pid ($S): stop it with \`bash-agent stop --session $SESSION\`, or take a copy with --fork"
}

# What a dead owner left.
sweep_session() {
  local fifo
  for fifo in "$S/input.fifo" "$S/notify.fifo"; do
    if [[ -p $fifo ]]; then
      rm -f -- "$fifo"
    elif [[ -e $fifo || -L $fifo ]]; then
      die 11 "$fifo is not a FIFO: move it away and run it again"
    fi
  done
  [[ -e $S/agent_running.flag ]] && rm -f -- "$S/agent_running.flag"
  : >"$S/active_sub.list"
  printf '0\n' >"$S/active_sub.count"
}

# A compaction that a crash broke off, of either runtime (src/session/archive.rs, cut_window): it is undone, unless its last
# step, the renaming, was done: then the dropped lines are no longer at the start of the conversation.
recover_compaction() {
  local archive=0
  [[ -e $S/compact.journal ]] || return 0
  if ! read_journal; then
    rm -f -- "$S/compact.journal"
    note "compact.journal could not be read and was removed"
    return 0
  fi
  [[ -e $S/conversation-archive.jsonl ]] && archive=$(($(wc -c <"$S/conversation-archive.jsonl")))
  if is_cut "$archive"; then
    rm -f -- "$S/compact.journal"
  elif ((archive > JOURNAL_ARCHIVE + JOURNAL_CUT)); then
    rm -f -- "$S/compact.journal"
    note "a compaction broke off; the archive may hold some lines twice"
  else
    undo_compaction || storage_error write "$S/conversation-archive.jsonl" ''
    note "a compaction that broke off was undone"
  fi
}

read_journal() { # sets JOURNAL_CONVERSATION, _CUT, _ARCHIVE, _FROM, _RESULTS
  local line pattern='^[{]"conversation":([0-9]{1,18}),"cut":([0-9]{1,18}),"archive":([0-9]{1,18}),"thinking_from":([0-9]{1,18}),("results_from":([0-9]{1,18}),)?"summary":"'
  IFS= read -r line <"$S/compact.journal"
  [[ $line =~ $pattern ]] || return 1
  JOURNAL_CONVERSATION=${BASH_REMATCH[1]} JOURNAL_CUT=${BASH_REMATCH[2]} JOURNAL_ARCHIVE=${BASH_REMATCH[3]}
  JOURNAL_FROM=${BASH_REMATCH[4]} JOURNAL_RESULTS=${BASH_REMATCH[6]:-0}
  ((JOURNAL_CUT <= JOURNAL_CONVERSATION)) && run_awk json_cli.awk -v op=valid "$S/compact.journal"
}

is_cut() { # <bytes of the archive>   whether the last step of the compaction in the journal was done
  (($(wc -c <"$S/conversation.jsonl") < JOURNAL_CONVERSATION)) && return 0
  (($1 < JOURNAL_ARCHIVE + JOURNAL_CUT)) && return 1
  ! cmp -s <(head -c "$JOURNAL_CUT" -- "$S/conversation.jsonl") \
    <(tail -c "+$((JOURNAL_ARCHIVE + 1))" -- "$S/conversation-archive.jsonl" | head -c "$JOURNAL_CUT")
}

# Puts back what a compaction had done before its last step.
undo_compaction() {
  read_journal || return 1
  rm -f -- "$S/conversation.jsonl.tmp" "$S/conversation.jsonl.new"
  dd if=/dev/null of="$S/conversation-archive.jsonl" bs=1 seek="$JOURNAL_ARCHIVE" count=0 2>/dev/null || return 1
  run_awk json_cli.awk -v op=get -v key=summary "$S/compact.journal" >"$S/summary.txt.new" &&
    sync_now "$S/conversation-archive.jsonl" "$S/summary.txt.new" && mv -f -- "$S/summary.txt.new" "$S/summary.txt" || return 1
  if load_meta "$S" && [[ $META_FROM != "$JOURNAL_FROM" || $META_RESULTS != "$JOURNAL_RESULTS" ]]; then
    META_FROM=$JOURNAL_FROM META_RESULTS=$JOURNAL_RESULTS
    write_meta || return 1
  fi
  rm -f -- "$S/compact.journal"
}

make_files() {
  local file
  ensure_dir "$S/images"
  for file in state.lock conversation.jsonl conversation-archive.jsonl events.jsonl summary.txt plan.md plan.draft input.ids; do
    ensure_file "$S/$file"
  done
  mend_tail conversation.jsonl
  mend_tail conversation-archive.jsonl
  # A child or task of a dead owner may still be writing its last event.
  if [[ -s $S/events.jsonl ]]; then
    state_lock "$S"
    mend_tail events.jsonl
    # New contents that never took their file's place; who else replaces files here holds the lock.
    rm -f -- "$S"/*.tmp "$S"/.agent-*.tmp "$S"/*.new
    state_unlock
  else
    rm -f -- "$S"/*.tmp "$S"/*.new
  fi
  if [[ ! -e $S/stats.json ]]; then
    [[ -s $S/conversation.jsonl ]] && note "$S/stats.json is missing: its counts start from 0"
    write_stats </dev/null 2>/dev/null
  else
    stats_problem file
    if [[ -n $file ]]; then
      note "$file"
      write_stats </dev/null 2>/dev/null
    fi
  fi
}

# ---- Torn ends

# Looks at the last lines: TAIL_STATE ok|no_lf|torn, TAIL_OFFSET and TAIL_BYTES of the last line, TAIL_CALLS open calls,
# TAIL_RESULTS the line that answers them, TAIL_USER the content of the last user line.
run_tail() { # <file>
  local size line
  TAIL_STATE=ok TAIL_OFFSET=0 TAIL_BYTES=0 TAIL_CALLS=0 TAIL_RESULTS='' TAIL_USER=''
  [[ -s $1 ]] || return 0
  size=$(wc -c <"$1")
  size=$((size))
  {
    IFS=' ' read -r TAIL_STATE TAIL_BYTES TAIL_CALLS
    IFS= read -r TAIL_RESULTS
    IFS= read -r TAIL_USER
  } < <(
    ends=0
    [[ $(tail -c 1 -- "$1" | od -An -tx1) == *0a* ]] && ends=1
    tail -n 50 -- "$1" | tr '\000' '\377' | run_awk tail.awk -v ends_lf="$ends"
  )
  TAIL_OFFSET=$((size - TAIL_BYTES))
}

mend_tail() { # <file name>
  local file=$S/$1
  [[ -s $file ]] || return 0
  run_tail "$file"
  case $TAIL_STATE in
  no_lf) printf '\n' >>"$file" ;;
  torn)
    { tail -c "$TAIL_BYTES" -- "$file" && printf '\n'; } >>"$file.torn" || storage_error write "$file.torn" ''
    cut_file "$file" "$TAIL_OFFSET"
    note "$1: a torn last line ($TAIL_BYTES bytes) was moved to $file.torn"
    ;;
  esac
}

cut_file() { # <file> <bytes that stay>
  dd if=/dev/null of="$1" bs=1 seek="$2" count=0 2>/dev/null || storage_error cut "$1" ''
}

# Calls of a run that died have no result: the model is told that the outcome is not known.
close_calls() {
  TAIL_USER=
  [[ -s $S/conversation.jsonl ]] || return 0
  run_tail "$S/conversation.jsonl"
  ((TAIL_CALLS)) || return 0
  printf '%s\n' "$TAIL_RESULTS" >>"$S/conversation.jsonl"
  if ((TAIL_CALLS == 1)); then
    note "the last run ended while a tool call ran: their outcome is unknown"
  else
    note "the last run ended while $TAIL_CALLS tool calls ran: their outcome is unknown"
  fi
}

# An input whose user line a dead owner wrote, but not its id any more, has its id remembered: a second delivery is not
# run again. Inputs that it never read are not run behind the user's back, but kept under a name that says so.
recover_input() {
  local note size file text
  local pattern='^[{]"conversation":([0-9]+),"id":"(.*)"[}]$'
  if [[ -e $S/input.journal ]]; then
    IFS= read -r note <"$S/input.journal"
    size=$(wc -c <"$S/conversation.jsonl")
    if [[ $note =~ $pattern ]] && ((size > BASH_REMATCH[1])) && ! is_known_input "${BASH_REMATCH[2]}"; then
      remember_input "${BASH_REMATCH[2]}"
    fi
    rm -f -- "$S/input.journal"
  fi
  for file in "$S/input.d"/*; do
    [[ -f $file && ! -L $file && $file != *.unread ]] || continue
    read_file text "$file"
    json_string text "$text"
    if [[ $file == *.tmp || $file == *.new || $text == "$TAIL_USER" ]]; then
      rm -f -- "$file"
    else
      mv -f -- "$file" "$file.unread"
      note "an input that the last agent never read was not run; it is kept in $file.unread"
    fi
  done
}

# Frames that a dead owner was draining go back in front, unless their line was written already.
recover_notices() {
  local content
  [[ -e $S/notify.buf.taken ]] || return 0
  content=$(run_awk drain.awk <"$S/notify.buf.taken")
  if [[ -z $content || $content != "$TAIL_USER" ]]; then
    [[ -e $S/notify.buf ]] && cat -- "$S/notify.buf" >>"$S/notify.buf.taken"
    mv -f -- "$S/notify.buf.taken" "$S/notify.buf"
  else
    rm -f -- "$S/notify.buf.taken"
  fi
}

# ---- session.json

load_meta() { # <session dir>
  local key value
  META_CWD='' META_CREATED='' META_PROVIDER='' META_MODEL='' META_FROM=0 META_RESULTS=0 META_EXTRA=''
  [[ -s $1/session.json ]] || return 1
  while IFS='=' read -r key value; do
    case $key in
    cwd) META_CWD=$value ;;
    created) META_CREATED=$value ;;
    provider) META_PROVIDER=$value ;;
    model) META_MODEL=$value ;;
    thinking_from) META_FROM=$value ;;
    results_from) META_RESULTS=$value ;;
    extra) META_EXTRA=$value ;;
    esac
  done < <(run_awk meta.awk <"$1/session.json")
  [[ -n $META_CREATED$META_CWD ]]
}

# The texts are kept as bodies of JSON strings.
write_meta() {
  local results=''
  ((META_RESULTS)) && results=",\"results_from\":$META_RESULTS"
  printf '{"cwd":"%s","created":"%s","runtime":"bash","version":"%s","provider":"%s","model":"%s","thinking_from":%s%s%s}\n' \
    "$META_CWD" "$META_CREATED" "$VERSION" "$META_PROVIDER" "$META_MODEL" "$META_FROM" "$results" "$META_EXTRA" >"$S/session.json.new" &&
    mv -f -- "$S/session.json.new" "$S/session.json"
}

store_meta() {
  write_meta || storage_error write "$S/session.json" ''
}

open_meta() {
  local own
  json_string own "$CWD"
  if ! load_meta "$S"; then
    META_CWD=$own
    timestamp META_CREATED
    store_meta
  elif [[ -z $META_CWD ]]; then
    META_CWD=$own
    store_meta
  elif [[ $META_CWD != "$own" ]]; then
    note "session $SESSION was made in $META_CWD, not here"
  fi
}

# Thinking is bound to the model that wrote it.
before_call() {
  local model length
  json_string model "$MODEL"
  [[ $META_PROVIDER == "$PROVIDER" && $META_MODEL == "$model" ]] && return 0
  if [[ -n $META_PROVIDER$META_MODEL ]]; then
    length=$(wc -c <"$S/conversation.jsonl")
    META_FROM=$((length))
  fi
  META_PROVIDER=$PROVIDER
  META_MODEL=$model
  store_meta
}

# ---- stats.json

# Updates on stdin, one a line; sets STATS_LINE. A broken file is reported on stderr. The caller holds state.lock.
write_stats() {
  local now line
  local_time now
  line=$(run_awk stats.awk -v file="$SV/stats.json" -v now="$now") || return 1
  {
    printf '%s\n' "$line" >"$S/stats.json.new" && mv -f -- "$S/stats.json.new" "$S/stats.json"
  } || storage_error write "$S/stats.json" ''
  STATS_LINE=$line
}

update_stats() { # <key=value or key=+n>…
  local notes=$RUN/stats.notes problem
  if ! core_stats "$notes" "$@"; then
    state_lock "$S"
    write_stats 2>"$notes" < <(if (($#)); then printf '%s\n' "$@"; fi)
    state_unlock
  fi
  if [[ -s $notes ]]; then
    while IFS= read -r problem; do event_error "$problem"; done <"$notes"
  fi
}

# The same by the core, which takes the lock itself. It replaces the file as the last thing it does: when that has
# happened the update counts, however the core ended.
core_stats() { # <file for problems> <key=value or key=+n>…
  local before='' code notes=$1
  has_core || return 1
  shift
  [[ -s $S/stats.json ]] && IFS= read -r before <"$S/stats.json"
  run_core stats update -- "$S/stats.json" 2>"$notes" < <(if (($#)); then printf '%s\n' "$@"; fi)
  code=$?
  [[ -s $S/stats.json ]] && IFS= read -r STATS_LINE <"$S/stats.json"
  core_did "$code" 'stats update' || [[ $STATS_LINE != "$before" ]]
}

# What is wrong with stats.json, "" when it is whole.
stats_problem() { # <result-var>
  local sp_text
  if has_core; then
    sp_text=$(run_core stats get "$S/stats.json" total_cost_usd 2>&1 >/dev/null)
    core_did $? 'stats get' && printf -v "$1" '%s' "$sp_text" && return 0
  fi
  sp_text=$(run_awk stats.awk -v file="$SV/stats.json" -v get=total_cost_usd 2>&1 >/dev/null </dev/null)
  printf -v "$1" '%s' "$sp_text"
}

stat_of() { # <result-var> <key>   from the last line read or written
  if [[ ${STATS_LINE:-} =~ \"$2\":([0-9.]+) ]]; then
    printf -v "$1" '%s' "${BASH_REMATCH[1]}"
  else
    printf -v "$1" 0
  fi
}

# ---- events.jsonl

# One event: its line without `ts` and the closing brace. Text that is not plain must be escaped already.
event() { # <open line>
  local ts
  timestamp ts
  log_line "$1,\"ts\":\"$ts\"}"
}

log_line() { # <event line>
  # bash writes a line at once when it is short; a long one must not meet one of the notify reader's.
  if ((${#1} > 4000)); then
    state_lock "$S"
    printf '%s\n' "$1" >>"$S/events.jsonl" || storage_failed
    state_unlock
  else
    printf '%s\n' "$1" >>"$S/events.jsonl" || storage_failed
  fi
  [[ $FORMAT == stream-json ]] && print_line "$1"
  return 0
}

storage_failed() {
  local reason
  reason=$( (printf '\n' >>"$S/.probe") 2>&1)
  rm -f -- "$S/.probe"
  storage_error write "$S/events.jsonl" "$reason"
}

event_error() { # <message>   an `error` event, and what a person sees
  local message
  json_string message "$1"
  event "{\"type\":\"error\",\"message\":\"$message\""
  show_error "$1"
}

# ---- The disk: what a turn wrote reaches it while the request is under way (DESIGN "Durability").

SYNC_PID='' SYNC_DIRS=()

sync_now() { # <file or directory>…   returns when they are on the disk
  sync -d -- "$@" 2>/dev/null || sync
}

start_sync() {
  wait_sync
  (
    close_own
    trap - INT TERM HUP USR1 USR2 CONT PIPE EXIT
    sync_now "$S/conversation.jsonl" "$S/input.ids" "$S/events.jsonl" "${SYNC_DIRS[@]+"${SYNC_DIRS[@]}"}"
  ) </dev/null >/dev/null 2>&1 &
  SYNC_PID=$!
  SYNC_DIRS=()
}

# A signal only interrupts the wait.
wait_sync() {
  [[ -n $SYNC_PID ]] || return 0
  while kill -0 "$SYNC_PID" 2>/dev/null; do wait "$SYNC_PID" 2>/dev/null; done
  SYNC_PID=
}

# ---- active_sub.count and .list

close_session() {
  local fifo
  for fifo in "$S/input.fifo" "$S/notify.fifo"; do
    # A file of somebody's in its place was refused at the start and stays.
    [[ ! -p $fifo ]] || rm -f -- "$fifo"
  done
  rm -f -- "$S/agent_running.flag" "$S/active_sub.count" "$S/active_sub.list"
  # What the notify reader was about to put in place when it ended.
  rm -f -- "$S"/*.new
  rmdir -- "$S/input.d" 2>/dev/null
  exec 9>&-
  return 0
}
