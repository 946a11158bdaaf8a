# tools.sh - the model's tools (CONTRACT §11). What they may do is said by policy.sh.
#
# A tool is a function tool_NAME. It reads ARG_* and leaves R_HEAD, R_FILE, R_NOTES, R_SUMMARY, R_ERROR, R_OPTIONS (for
# awk/result.awk); fail TEXT makes an error of it. Results are stored in call order.

TOOL_PID=''
# How long a child that holds the output may still print once the shell is gone, in seconds.
HOLD_GRACE=0.2

reset_result() {
  R_HEAD='' R_FILE='' R_NOTES='' R_SUMMARY='' R_ERROR=0 R_TODO='' R_REFUSED=''
  R_OPTIONS=()
}

fail() { # <text>
  reset_result
  R_HEAD="Error: $1"
  R_ERROR=1
}

# ---- The calls of one response

run_tools() {
  local number=0 id name broken blocks='' line frames=$RUN/answer/frames
  run_awk calls.awk -v dir="$RUN_V/answer" "$RUN/answer/calls" >"$frames"
  while IFS= read -r line; do log_line "$line"; done <"$RUN/answer/tool_calls"
  show_frames <"$frames"
  while IFS=$'\t' read -r id name broken; do
    ((++number))
    unescape_line name "$name"
    run_tool "$number" "$id" "$name" "$broken"
    IFS= read -r line <"$RUN/answer/block"
    blocks=$blocks${blocks:+,}$line
  done <"$RUN/answer/calls"
  append_line "{\"role\":\"user\",\"content\":[$blocks]}"
}

run_tool() { # <number> <id> <name> <1 when its input was no object>
  reset_result
  if ((INTERRUPTED || ENDING)); then
    fail interrupted
  elif [[ $4 == 1 ]]; then
    fail_broken "$3" "$RUN/answer/broken.$1"
  else
    read_arguments "$1"
    case $3 in
    Read | Write | Edit | Bash | Glob | Grep | TodoWrite | Skill | PlanConfirm | PlanClear | SubAgent)
      "tool_$3" "$1"
      ((ASK)) && [[ -n $R_REFUSED ]] && run_if_approved "$1" "$2" "$3"
      ;;
    *) fail "unknown tool: $3" ;;
    esac
  fi
  record_result "$2" "$3"
}

# A refused call, when somebody says that it may run.
run_if_approved() { # <number> <id> <name>
  local given=$MODE_DIGITS wider
  wider_mode wider "$R_REFUSED"
  ask_approval "$1" "$2" "$3" "$R_REFUSED"
  if ((INTERRUPTED || ENDING)); then
    fail interrupted
  elif [[ $APPROVED != false ]]; then
    MODE_DIGITS=$wider
    reset_result
    "tool_$3" "$1"
    [[ $APPROVED == session ]] || MODE_DIGITS=$given
  fi
}

# The event, the block, what a person sees.
record_result() { # <id> <name>
  local line frame=$RUN/answer/frame
  {
    print_secrets
    [[ -z $R_FILE ]] || tr '\000' '\377' <"$R_FILE"
    printf '.\n'
  } | R_ID=$1 R_NAME=$2 R_HEAD=$R_HEAD R_NOTES=$R_NOTES R_SUMMARY=$R_SUMMARY R_TODO=$R_TODO \
    run_awk result.awk -v dir="$RUN_V/answer" -v max="$MAX_RESULT" -v error="$R_ERROR" -v shapes="$MASK" \
    "${R_OPTIONS[@]+"${R_OPTIONS[@]}"}" >"$frame"
  IFS= read -r line <"$RUN/answer/event"
  event "$line"
  show_frames <"$frame"
}

# What is to be masked, for awk/result.awk: how many lines, then a secret each. In no environment and no file.
print_secrets() {
  printf '%d\n' "${#SECRETS[@]}"
  ((${#SECRETS[@]} == 0)) || printf '%s\n' "${SECRETS[@]+"${SECRETS[@]}"}"
}

# Tells the model what was wrong with the call it made, and what is right.
fail_broken() { # <name> <file with what it wrote>
  local raw schema
  schema=$(run_awk schema.awk -v name="$1" "$TOOLS_FILE")
  read_file raw "$2"
  fail "the input of $1 was not a valid JSON object, so nothing ran.${schema:+ It must match: $schema}"$'\n'"What was received: ${raw:0:20000}"
}

# ---- Arguments

read_arguments() { # <number>
  local key kind value
  ARG_path='' ARG_offset='' ARG_limit='' ARG_content='' ARG_old_string='' ARG_new_string='' ARG_command='' ARG_timeout=''
  ARG_background='' ARG_pattern='' ARG_glob='' ARG_context='' ARG_name='' ARG_prompt='' ARG_description='' ARG_fork=''
  KINDS=' '
  while IFS=$'\t' read -r key kind value; do
    case $key in
    path | offset | limit | content | old_string | new_string | command | timeout | background | pattern | glob | context | \
      name | prompt | description | fork)
      unescape_line "ARG_$key" "$value"
      KINDS="$KINDS$key:$kind "
      ;;
    esac
  done <"$RUN/answer/args.$1"
}

has_text() { # <key>   fails, with a result, when it is there and no string
  [[ $KINDS == *" $1:"[no]" "* ]] || return 0
  fail "$1 must be a string"
  return 1
}

need_text() { # <key>   fails, with a result, when it is missing or empty
  local value=ARG_$1
  has_text "$1" || return 1
  [[ -n ${!value} ]] && return 0
  fail "no $1 provided"
  return 1
}

whole_number() { # <key>   ARG_<key> as digits, or ""; fails, with a result, when it is something else
  local value=ARG_$1
  value=${!value}
  value=${value#"${value%%[! ]*}"}
  value=${value%"${value##*[! ]}"}
  [[ $value =~ ^([0-9]{1,18})(\.0*)?$ ]] && printf -v "ARG_$1" '%d' $((10#${BASH_REMATCH[1]})) && return 0
  [[ -z $value ]] && printf -v "ARG_$1" '' && return 0
  if [[ $value =~ ^[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$ ]]; then
    value=$(LC_ALL=C awk -v n="$value" 'BEGIN { if (n == int(n) && n < 1e18) printf "%.0f", n }')
    [[ -n $value ]] && printf -v "ARG_$1" '%s' "$value" && return 0
    fail "$1 must be a whole number"
  else
    fail "$1 must be a number that is not negative"
  fi
  return 1
}

# ---- Files

# Fails, with a result, unless REAL is a regular file.
need_regular() { # <path as given>
  local dir kind=
  if [[ ! -e $REAL && ! -L $REAL ]]; then
    dir=${REAL%/*}
    while [[ -n $dir && ! -e $dir ]]; do dir=${dir%/*}; done
    if [[ -n $dir && ! -d $dir ]]; then
      fail "$1: a part of the path is not a directory"
    elif [[ -n $dir && ! -x $dir ]]; then
      fail "permission denied: $1"
    else
      fail "file not found: $1"
    fi
    return 1
  fi
  if [[ -d $REAL ]]; then
    kind="a directory; use Glob to list it"
  elif [[ -p $REAL ]]; then
    kind="a FIFO"
  elif [[ -S $REAL ]]; then
    kind="a socket"
  elif [[ -b $REAL || -c $REAL ]]; then
    kind="a device"
  elif [[ ! -f $REAL ]]; then
    kind="no regular file"
  fi
  [[ -z $kind ]] && return 0
  fail "$1 is $kind"
  return 1
}

# ---- Read, Write, Edit

tool_Read() {
  local size counts lines first last piece=$RUN/read stopped=0
  need_text path && whole_number offset && whole_number limit || return 0
  if [[ $ARG_limit == 0 ]]; then
    fail "limit must be at least 1"
    return 0
  fi
  judge_path "$ARG_path" 4 && need_regular "$ARG_path" || return 0
  if [[ ! -r $REAL ]]; then
    fail "permission denied: $ARG_path"
    return 0
  fi
  size=$(($(wc -c <"$REAL")))
  if (($(head -c 8192 <"$REAL" | tr -d '\000' | wc -c) != (size < 8192 ? size : 8192))); then
    fail "$ARG_path is a binary file of $size bytes; look at it with a command (file, xxd, strings)"
    return 0
  fi
  if ((size > 67108864)) && [[ -z $ARG_limit ]]; then
    fail "$ARG_path is too large to read whole ($size bytes); use offset and limit, or Grep"
    return 0
  fi
  first=${ARG_offset:-1}
  ((first > 0)) || first=1
  if ((size > 67108864)); then stopped=1; fi
  if [[ -z $ARG_limit ]]; then
    if ((first == 1)); then cat <"$REAL" >"$piece"; else tail -n "+$first" <"$REAL" >"$piece"; fi
  else
    last=$((first + ARG_limit - 1))
    LC_ALL=C sed -n -e "${first},${last}p" -e "${last}q" <"$REAL" >"$piece"
  fi
  if ((stopped)); then
    lines='?'
  else
    counts=$(wc -l <"$REAL")
    lines=$((counts))
    # A last line without its line feed is a line too.
    ((size)) && [[ $(tail -c 1 <"$REAL" | od -An -tx1) != *0a* ]] && ((++lines))
  fi
  if ((size == 0)); then
    R_SUMMARY="Read($ARG_path) [0 lines, 0 bytes"
    printf '[%s is empty]' "$ARG_path" >"$piece"
  elif [[ ! -s $piece ]]; then
    fail "offset $first is past the end of $ARG_path ($lines lines)"
    return 0
  else
    R_SUMMARY="Read($ARG_path) [$lines lines, $size bytes"
    # sed ends the last line even when the file does not; one LF at the end is not shown.
  fi
  [[ -n $ARG_offset ]] && R_SUMMARY="$R_SUMMARY, offset=$ARG_offset"
  [[ -n $ARG_limit ]] && R_SUMMARY="$R_SUMMARY, limit=$ARG_limit"
  R_SUMMARY="$R_SUMMARY]"
  R_OPTIONS=(-v one_lf=1 -v utf8_note=1)
  R_FILE=$piece
}

# Puts a file's new content in its place: same mode, owner and link; the old content stays until the new one is whole.
replace_file() { # <path as given> <file with the content>   REAL is where it goes
  local temporary reason
  temporary=${REAL%/*}/.agent-$$-$RANDOM.tmp
  if [[ -e $REAL ]]; then
    if [[ ! -w $REAL ]]; then
      fail "permission denied: $1"
      return 1
    fi
    # A copy with its mode and owner first, then the content over it.
    reason=$(cp -p -- "$REAL" "$temporary" 2>&1 && cat -- "$2" 2>&1 >"$temporary") && cmp -s -- "$2" "$temporary" &&
      reason=$(mv -f -- "$temporary" "$REAL" 2>&1) && return 0
  else
    reason=$( (umask "$ORIG_UMASK" && cat -- "$2" >"$temporary") 2>&1) && cmp -s -- "$2" "$temporary" &&
      reason=$(mv -f -- "$temporary" "$REAL" 2>&1) && return 0
  fi
  rm -f -- "$temporary"
  reason=${reason##*: }
  fail "could not write $1: ${reason:-it failed}; the file is unchanged"
  return 1
}

tool_Write() {
  local dir bytes lines content=$RUN/answer/text.$1 reason
  need_text path || return 0
  if [[ $KINDS != *' content:'* ]]; then
    fail "no content provided"
    return 0
  fi
  has_text content || return 0
  if [[ $ARG_path == */ ]]; then
    fail "$ARG_path is a directory"
    return 0
  fi
  judge_path "$ARG_path" 2 || return 0
  if [[ -e $REAL ]]; then
    need_regular "$ARG_path" || return 0
  else
    dir=${REAL%/*}
    if ! reason=$( (umask "$ORIG_UMASK" && mkdir -p -- "${dir:-/}") 2>&1); then
      case $reason in
      *'Not a directory' | *'File exists') fail "$ARG_path: a part of the path is not a directory" ;;
      *'Permission denied') fail "permission denied: $ARG_path" ;;
      *) fail "$ARG_path: ${reason##*: }" ;;
      esac
      return 0
    fi
  fi
  replace_file "$ARG_path" "$content" || return 0
  bytes=$(($(wc -c <"$content")))
  lines=$(($(wc -l <"$content")))
  ((bytes)) && [[ $(tail -c 1 <"$content" | od -An -tx1) != *0a* ]] && ((++lines))
  R_SUMMARY="Write($ARG_path) [$lines lines, $bytes bytes]"
  R_HEAD="OK: wrote $bytes bytes to $ARG_path"
}

# REAL with old and new exchanged, into $RUN/edited; what is to be said of it into $RUN/reply.
edit_text() { # <file with the frame of old and new>
  local path real code
  if has_core; then
    run_core edit --name="$ARG_path" --reply "$RUN/reply" -- "$REAL" <"$1" >"$RUN/edited"
    code=$?
    # 1 is a refusal, with its reason.
    ((code == 1)) && [[ -s $RUN/reply ]] && return 1
    core_did "$code" edit && return 0
  fi
  awk_value path "$ARG_path"
  awk_value real "$REAL"
  run_awk edit_file.awk -v path="$path" -v file="$real" -v reply="$RUN_V/reply" <"$1" >"$RUN/edited"
}

tool_Edit() {
  local path
  need_text path && has_text old_string && has_text new_string || return 0
  if [[ $KINDS != *' new_string:'* ]]; then
    fail "no new_string provided"
    return 0
  fi
  judge_path "$ARG_path" 4 && judge_path "$ARG_path" 2 || return 0
  if [[ -z $ARG_old_string ]]; then
    fail "old_string is empty; to create or replace a whole file use Write"
    return 0
  fi
  need_regular "$ARG_path" || return 0
  if edit_text "$RUN/answer/edit.$1"; then
    replace_file "$ARG_path" "$RUN/edited" || return 0
    R_OPTIONS=(-v first_line=1)
    R_FILE=$RUN/reply
  else
    read_file path "$RUN/reply"
    fail "${path%$'\n'}"
  fi
}

# ---- Bash

setup_tools() {
  if command -v setsid >/dev/null 2>&1; then
    SETSID=(setsid)
  elif command -v perl >/dev/null 2>&1; then
    SETSID=(perl -MPOSIX -e 'POSIX::setsid(); exec @ARGV or exit 127')
  else
    SETSID=()
  fi
  COMMANDS_RUN=0
  CUT_ABOVE=$((4 * MAX_RESULT + 65536))
  ((CUT_ABOVE > 16777216)) || CUT_ABOVE=16777216
}

# Runs in a group of its own: the command, and what takes its output out of a pipe (a file could not be opened anew as
# /dev/stderr: the sandbox closes it, and it would be emptied). Leaves FILE.pid, FILE.code and FILE.held when something
# that the command started kept the output open beyond the grace; FILE.lost when the output could not be stored.
exec_command() { # <command> <output file> <mark>
  exec 2>/dev/null
  exec 3< <(run_shell "$@")
  collect_output "$2"
}

# The command, its exit code; then HUP for who reads, again and again, when the output is still open after the grace.
run_shell() { # <command> <output file> <mark>
  local tries=0
  (exec_shell "$@")
  # `wait` gives a trap's number in place of this when a signal comes at the same time.
  printf '%s\n' "$?" >"$2.code"
  trap '' HUP
  exec >/dev/null
  sleep "$HOLD_GRACE" 2>/dev/null || sleep 1
  until [[ -e $2.held ]] || ((++tries > 200)); do
    kill -HUP 0
    sleep 0.05 2>/dev/null || sleep 1
  done
}

# In a session of its own, without terminal, keys or our descriptors.
exec_shell() { # <command> <output file> <mark>
  local name
  for name in "${HIDDEN_ENV[@]}"; do unset "$name"; done
  for name in "${KEEP_ENV[@]+"${KEEP_ENV[@]}"}"; do export "${name?}"; done
  if [[ -n ${ORIG_LC_ALL+set} ]]; then export LC_ALL=$ORIG_LC_ALL; else unset LC_ALL; fi
  export EDITOR=false VISUAL=false GIT_EDITOR=false GIT_SEQUENCE_EDITOR=false PAGER=cat GIT_PAGER=cat GIT_TERMINAL_PROMPT=0
  export BASH_AGENT_CALL=$3 PWD=$CWD TMPDIR=$TOOL_TMP
  unset OLDPWD
  umask "$ORIG_UMASK"
  cd "$CWD" || exit 127
  if [[ -n $CAGE_FILTER ]]; then exec 8<"$CAGE_FILTER" || exit 127; fi
  # shellcheck disable=SC2016 # the inner shell's own words
  exec "${SETSID[@]+"${SETSID[@]}"}" sh -c 'echo $$ >"$1"; shift; exec "$@"' sh "$2.pid" "${CAGE[@]+"${CAGE[@]}"}" bash -c "$1" </dev/null 2>&1
}

# Stores what comes out of the pipe until all have closed it or the grace is over; what comes then goes nowhere, so that
# no write of it blocks or fails. The file's size is bounded: head and tail stay, the middle is counted.
collect_output() { # <output file>   descriptor 3 is the pipe
  local held=0 reads line
  trap 'held=1' HUP
  while ((!held)); do
    if ! LC_ALL=C dd bs=16384 count=1024 <&3 >>"$1" 2>"$1.read"; then
      ((held)) && break
      # A full disk: the command goes on.
      : >"$1.lost"
      cat <&3 >/dev/null
      continue
    fi
    # `<full>+<short> records in`; fewer than it was to take: that was the end.
    reads=0
    while ((!reads)) && IFS= read -r line; do
      [[ $line =~ ^([0-9]+)\+([0-9]+) ]] && reads=$((BASH_REMATCH[1] + BASH_REMATCH[2]))
    done <"$1.read"
    ((reads < 1024)) && break
    (($(wc -c <"$1") > CUT_ABOVE)) && cut_output "$1"
  done
  ((held)) || return 0
  # It ends with the last that holds the pipe, or as they do at the agent's end.
  trap '' HUP TERM
  BASH_AGENT_CALL=$$.drain cat <&3 >/dev/null &
  : >"$1.held"
}

# Puts the middle of an output away.
cut_output() { # <output file>
  [[ -e $1.head ]] || head -c $((MAX_RESULT + 8192)) <"$1" >"$1.head"
  tail -c $((MAX_RESULT + 8192)) <"$1" >"$1.tail"
  wc -c <"$1" >>"$1.cut"
  : >"$1"
}

# Fires after the time given.
watch_command() { # <seconds> <pid that waits>
  local left=${1%%.*}
  while ((left-- > 0)); do
    sleep 1
    # A task's `wait` is woken here, the main process's by the guard (`reap_group`).
    if [[ $2 == "$$" ]]; then kill -0 "$2" 2>/dev/null; else kill -CONT "$2" 2>/dev/null; fi || return 1
  done
  [[ $1 != *.* ]] || sleep "0.${1#*.}" 2>/dev/null || sleep 1
  kill -USR2 "$2" 2>/dev/null
}

# Ends a command and all it started, wherever that went: TERM, a grace, KILL.
end_command() { # <session id> <mark> <grace in seconds>
  local pids tries=0 steps
  signal_command TERM "$1" "$2"
  steps=$(($3 * 20 + 2))
  while ((tries++ < steps)); do
    command_alive "$1" "$2" || return 0
    sleep 0.05 2>/dev/null || sleep 1
  done
  signal_command KILL "$1" "$2"
}

signal_command() { # <signal> <session id> <mark>
  local pid
  [[ -n $2 ]] && kill "-$1" -- "-$2" 2>/dev/null
  for pid in $(marked_processes "$3"); do kill "-$1" "$pid" 2>/dev/null; done
}

command_alive() { # <session id> <mark>
  [[ -n $1 ]] && kill -0 -- "-$1" 2>/dev/null && return 0
  [[ -n $(marked_processes "$2") ]]
}

# Processes that carry our mark in their environment, zombies not counted.
marked_processes() { # <mark>
  if [[ -r /proc/self/environ ]]; then
    grep -l -a -z -x -F -s -e "BASH_AGENT_CALL=$1" /proc/[0-9]*/environ 2>/dev/null | cut -d / -f 3
  else
    # shellcheck disable=SC2009 # pgrep does not see the environment
    ps -axEww -o pid= -o command= 2>/dev/null | grep -F "BASH_AGENT_CALL=$1 " | grep -v 'grep -F' | sed 's/^ *//; s/ .*//'
  fi
}

# Runs a command; sets CMD_CODE, CMD_TIMED_OUT, CMD_INTERRUPTED, CMD_SURVIVORS, CMD_LOST.
run_command() { # <command> <seconds> <output file>
  local sid='' mark timer main=${TASK_PID:-$$}
  CMD_CODE=127 CMD_TIMED_OUT=0 CMD_INTERRUPTED=0 CMD_SURVIVORS='' CMD_LOST=0
  mark=$$.$BASHPID_NOW.$((++COMMANDS_RUN))
  forget_output "$3"
  : >"$3"
  TIMER_FIRED=0
  start_group exec_command "$1" "$3" "$mark"
  TOOL_PID=$GROUP_PID
  start_group watch_command "$2" "$main"
  timer=$GROUP_PID
  wait_limited "$TOOL_PID"
  case $? in
  0) [[ ! -s $3.code ]] || IFS= read -r CMD_CODE <"$3.code" ;;
  1) CMD_INTERRUPTED=1 CMD_CODE=130 ;;
  2) CMD_TIMED_OUT=1 CMD_CODE=124 ;;
  esac
  [[ -s $3.pid ]] && IFS= read -r sid <"$3.pid"
  if ((CMD_INTERRUPTED || CMD_TIMED_OUT)); then
    end_command "$sid" "$mark" "$CMD_TIMED_OUT"
    if [[ -z $sid ]]; then
      # A command that was ended before it had begun may leave its group just now.
      stop_group "$TOOL_PID"
      end_command '' "$mark" 0
    else
      # What is still in the pipe; at the latest after the grace that is over.
      while kill -0 "$TOOL_PID" 2>/dev/null; do wait "$TOOL_PID" 2>/dev/null; done
    fi
  elif [[ -e $3.held ]]; then
    CMD_SURVIVORS=$(ps -A -o pid= -o pgid= -o stat= -o comm= 2>/dev/null | awk -v g="$sid" '$2 == g && $3 !~ /Z/ && $4 != "bwrap" { s = s (s == "" ? "" : ", ") $1 } END { print s }')
  fi
  [[ ! -e $3.lost ]] || CMD_LOST=1
  stop_group "$timer"
  stop_group "$TOOL_PID"
  TOOL_PID=
}

# Waits for a job: 0 = it has ended, 1 = the turn or the run is to end, 2 = its time is up. (A trap takes the place of the
# status: what has to be known of a job it writes into a file.)
wait_limited() { # <pid>
  local traps
  while :; do
    ((INTERRUPTED || ENDING)) && return 1
    ((TIMER_FIRED)) && return 2
    traps=$TRAPS
    wait "$1" 2>/dev/null
    ((INTERRUPTED || ENDING)) && return 1
    ((TIMER_FIRED)) && return 2
    ((traps == TRAPS)) && return 0
    kill -0 "$1" 2>/dev/null || return 0
  done
}

# Takes the files of a command's output away.
forget_output() { # <output file>
  rm -f -- "$1" "$1".{head,tail,both,cut,pid,code,held,lost,read}
}

# The command's output as the result's file, with what was dropped told.
gather_output() { # <output file>
  local total line
  if [[ -e $1.cut ]]; then
    total=$(($(wc -c <"$1")))
    while IFS= read -r line; do ((total += line)); done <"$1.cut"
    cat "$1.tail" "$1" | tail -c $((MAX_RESULT + 8192)) >"$1.both"
    mv -f -- "$1.both" "$1.tail"
  else
    total=$(($(wc -c <"$1")))
    ((total > 4 * MAX_RESULT + 65536)) || return 0
    head -c $((MAX_RESULT + 8192)) <"$1" >"$1.head"
    tail -c $((MAX_RESULT + 8192)) <"$1" >"$1.tail"
  fi
  R_OPTIONS=("${R_OPTIONS[@]+"${R_OPTIONS[@]}"}" -v total="$total" -v at=$(($(wc -c <"$1.head"))))
  cat "$1.head" "$1.tail" >"$1.both"
  R_FILE=$1.both
}

# From ARG_timeout, never above the agent's. Fails, with a result, when it is no number.
command_timeout() { # <result-var>
  local ct_value=$ARG_timeout ct_number='^\+?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$'
  printf -v "$1" '%s' "$TOOL_TIMEOUT"
  ct_value=${ct_value#"${ct_value%%[![:space:]]*}"}
  ct_value=${ct_value%"${ct_value##*[![:space:]]}"}
  [[ -n $ct_value ]] || return 0
  if [[ $ct_value =~ ^[0-9]{1,9}$ ]]; then
    ((10#$ct_value > 0 && 10#$ct_value < TOOL_TIMEOUT)) && printf -v "$1" '%d' $((10#$ct_value))
    return 0
  fi
  if [[ ! $ct_value =~ $ct_number || $KINDS == *' timeout:o '* ]]; then
    [[ $ct_value =~ ^-0*\.?0*$ ]] && return 0
    fail "timeout must be a number that is not negative"
    return 1
  fi
  ct_value=$(LC_ALL=C "${AWK[@]}" -v n="$ct_value" -v max="$TOOL_TIMEOUT" 'BEGIN {
    n = n + 0
    if (n > 0 && n < max) { n = sprintf("%.9f", n); sub(/\.?0*$/, "", n); print n }
  }')
  [[ -z $ct_value ]] || printf -v "$1" '%s' "$ct_value"
}

tool_Bash() {
  local seconds output=$RUN/out.$1
  if [[ $ARG_background == true ]]; then
    background_command
    return 0
  fi
  need_text command || return 0
  command_timeout seconds && judge_command "$ARG_command" && prepare_cage || return 0
  run_command "$ARG_command" "$seconds" "$output"
  reset_result
  R_FILE=$output
  R_OPTIONS=(-v controls=1)
  frame_result "$seconds"
  gather_output "$output"
}

# Head and notes around a command's output.
frame_result() { # <timeout in seconds>
  if ((CMD_INTERRUPTED)); then
    R_HEAD="Error: interrupted" R_ERROR=1
  elif ((CMD_TIMED_OUT)); then
    R_HEAD="Error: " R_ERROR=1
    R_OPTIONS=("${R_OPTIONS[@]+"${R_OPTIONS[@]}"}" -v joint=1)
    R_NOTES="[... command timed out after $1 seconds ...]"
  elif ((CMD_CODE)); then
    R_HEAD="Error: exit code $CMD_CODE" R_ERROR=1
  fi
  if [[ -n $CMD_SURVIVORS ]]; then
    R_NOTES=$R_NOTES${R_NOTES:+$'\n'}"[... still running in the background: pid $CMD_SURVIVORS ...]"
  fi
  if ((CMD_LOST)); then
    R_NOTES=$R_NOTES${R_NOTES:+$'\n'}"[... the rest of the output could not be stored in $RUN ...]"
  fi
  return 0
}

# What commands left running ends with the agent.
end_leftovers() {
  local pids=''
  ((COMMANDS_RUN)) || return 0
  [[ -r /proc/self/environ ]] || return 0
  pids=$(grep -l -a -s -e "BASH_AGENT_CALL=$$\\." /proc/[0-9]*/environ 2>/dev/null | cut -d / -f 3)
  # shellcheck disable=SC2086 # pids
  [[ -z $pids ]] || kill -TERM $pids 2>/dev/null
  [[ -z $pids ]] && return 0
  sleep 0.1 2>/dev/null || sleep 1
  pids=$(grep -l -a -s -e "BASH_AGENT_CALL=$$\\." /proc/[0-9]*/environ 2>/dev/null | cut -d / -f 3)
  # shellcheck disable=SC2086
  [[ -z $pids ]] || kill -KILL $pids 2>/dev/null
}

# ---- TodoWrite, Skill, the plan

tool_TodoWrite() {
  local word rest
  IFS=' ' read -r word rest <"$RUN/answer/todo.$1"
  if [[ $word == error ]]; then
    fail "$rest"
    return 0
  fi
  R_TODO=$rest
  tail -n +2 "$RUN/answer/todo.$1" >"$RUN/todo"
  R_FILE=$RUN/todo
}

tool_Skill() {
  need_text name || return 0
  local file
  if ! skill_file file "$ARG_name"; then
    fail "skill not found: $ARG_name"
  elif load_skill "$ARG_name" >"$RUN/skill.text"; then
    R_FILE=$RUN/skill.text
  else
    fail "skill $ARG_name: Permission denied"
  fi
}

# Compacts first, with the prompt as it is: so the summary's request has the prefix of the calls before it.
compact_for_plan() { # <trigger>   fails, with a result, when the turn was interrupted meanwhile
  compact "$1" </dev/null
  [[ $COMPACTED == interrupted ]] || return 0
  fail interrupted
  return 1
}

tool_PlanConfirm() {
  if ! grep -q '[^[:space:]]' "$S/plan.draft" 2>/dev/null; then
    fail "no plan draft found to confirm."
    return 0
  fi
  compact_for_plan plan_confirm || return 0
  {
    cp -- "$S/plan.draft" "$S/plan.md.new" && mv -f -- "$S/plan.md.new" "$S/plan.md" && : >"$S/plan.draft"
  } || storage_error write "$S/plan.md" ''
  R_HEAD="Plan confirmed and locked in."
}

tool_PlanClear() {
  compact_for_plan plan_clear || return 0
  : >"$S/plan.md" || storage_error write "$S/plan.md" ''
  R_HEAD="Plan cleared."
}
