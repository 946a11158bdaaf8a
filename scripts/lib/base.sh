# base.sh - what every part uses: messages, times, awk, locks, private files, processes.
#
# Globals it sets: RUN (private directory of this process), TOOL_TMP, AWK, AWK_STREAM (the awk and how it is run on a stream),
# COLOR_ERR, HAS_CLOCK, FLOCK. Descriptors: 9 session.lock, 8 state.lock while held, 7 queue, 6 its bell, 5 life (see guard), 4 notify.fifo, 3 input.fifo.

VERSION=0.1.0

# What must not get into a helper, a tool or a child: locks, FIFOs, the queue. For the first line of every subshell.
close_own() {
  exec 9>&- 8>&- 7<&- 6>&- 5>&- 4>&- 3>&-
}

# ---- Messages

# Control bytes of a message never reach a terminal.
say_error() { # <text>   one line on stderr
  local text=$1
  if [[ $text == *[$'\001'-$'\010'$'\013'-$'\037'$'\177']* ]]; then
    text=$(printf '%s' "$text" | tr -d '\001-\010\013-\037\177')
  fi
  if ((${COLOR_ERR:-0})); then
    printf '\033[31mError: %s\033[0m\n' "$text" >&2
  else
    printf 'Error: %s\n' "$text" >&2
  fi
}

say_warning() { # <text>
  printf 'Warning: %s\n' "$1" >&2
}

die() { # <exit code> <text>
  say_error "$2"
  finish "$1"
}

# ---- Times

setup_clock() {
  if ((BASH_VERSINFO[0] > 4 || (BASH_VERSINFO[0] == 4 && BASH_VERSINFO[1] >= 2))); then HAS_CLOCK=1; else HAS_CLOCK=0; fi
}

now_ms() { # <result-var>   milliseconds since 1970, whole seconds where the shell has no finer clock
  local nm_time=${EPOCHREALTIME:-}
  if [[ -n $nm_time ]]; then
    nm_time=${nm_time/[.,]/}
    printf -v "$1" '%s' "${nm_time%???}"
    return 0
  fi
  if ((HAS_CLOCK)); then printf -v nm_time '%(%s)T' -1; else nm_time=$(date +%s); fi
  printf -v "$1" '%s000' "$nm_time"
}

# Days to a date by the civil calendar, so that UTC needs no process and no TZ.
timestamp() { # <result-var>   now, RFC 3339, UTC, ms
  local ms s days era doe yoe doy mp y m d
  now_ms ms
  ((s = ms / 1000, days = s / 86400, s %= 86400, days += 719468, era = days / 146097, doe = days % 146097))
  ((yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365, doy = doe - (365 * yoe + yoe / 4 - yoe / 100)))
  ((mp = (5 * doy + 2) / 153, d = doy - (153 * mp + 2) / 5 + 1, m = mp < 10 ? mp + 3 : mp - 9))
  ((y = yoe + era * 400 + (m <= 2)))
  printf -v "$1" '%04d-%02d-%02dT%02d:%02d:%02d.%03dZ' "$y" "$m" "$d" $((s / 3600)) $((s / 60 % 60)) $((s % 60)) $((ms % 1000))
}

local_time() { # <result-var>   YYYYMMDD-HHMMSS
  if ((HAS_CLOCK)); then printf -v "$1" '%(%Y%m%d-%H%M%S)T' -1; else printf -v "$1" '%s' "$(date +%Y%m%d-%H%M%S)"; fi
}

new_id() { # <result-var>   YYYYMMDD-HHMMSS-xxxx
  local ni_time
  local_time ni_time
  printf -v "$1" '%s-%04x' "$ni_time" $(((RANDOM << 1 ^ RANDOM) & 65535))
}

# ---- awk

setup_awk() {
  local words
  IFS=' ' read -r -a words <<<"${BASH_AGENT_AWK:-awk}"
  command -v "${words[0]}" >/dev/null 2>&1 ||
    die 2 "no ${words[0]} here: install the package mawk or gawk, or set BASH_AGENT_AWK"
  # One of the user's own choice is tried first.
  [[ -z ${BASH_AGENT_AWK:-} || $("${words[@]}" 'BEGIN { print "awk" }' 2>/dev/null </dev/null) == awk ]] ||
    die 2 "BASH_AGENT_AWK: '$BASH_AGENT_AWK' is no awk that works: name one (mawk, gawk, busybox awk), or unset it"
  AWK=("${words[@]}")
  AWK_STREAM=("${words[@]}")
  # Only mawk waits for a full block before it looks at its input.
  case $("${words[@]}" -W version 2>&1 </dev/null) in
  mawk*) AWK_STREAM=("${words[@]}" -W interactive) ;;
  esac
}

# A value for awk's -v, which reads backslashes.
awk_value() { # <result-var> <text>
  printf -v "$1" '%s' "${2//\\/\\\\}"
}

run_awk() { # <program> [-v …] [file…]   a program of awk/ or of scripts/lib with the libraries
  local program=$AWK_DIR/$1
  [[ -f $program ]] || program=$LIB_DIR/$1
  shift
  LC_ALL=C "${AWK[@]}" -f "$AWK_DIR/json.awk" -f "$AWK_DIR/protocol.awk" -f "$program" "$@"
}

run_window() { # <program> [-v …] [file…]   the same with window.awk
  local program=$AWK_DIR/$1
  shift
  LC_ALL=C "${AWK[@]}" -f "$AWK_DIR/json.awk" -f "$AWK_DIR/protocol.awk" -f "$AWK_DIR/window.awk" -f "$program" "$@"
}

stream_awk() { # <program> [-v …]   the same for input that someone waits for
  local program=$AWK_DIR/$1
  [[ -f $program ]] || program=$LIB_DIR/$1
  shift
  LC_ALL=C "${AWK_STREAM[@]}" -f "$AWK_DIR/json.awk" -f "$AWK_DIR/protocol.awk" -f "$program" "$@"
}

# ---- Private files

# RUN is this process's own, WORK in it the place for the files of the call that runs, TOOL_TMP beside it the TMPDIR of what the tools run.
setup_run() {
  local dir
  if ! { dir=$(mktemp -d "${TMPDIR:-/tmp}/bash-agent.XXXXXX") && mkdir -m 700 -- "$dir/own" "$dir/own/work" "$dir/tmp"; }; then
    die 11 "cannot make a directory in ${TMPDIR:-/tmp}"
  fi
  RUN=$dir/own WORK=$dir/own/work TOOL_TMP=$dir/tmp
}

# ---- Locks

setup_lock() {
  if command -v flock >/dev/null 2>&1; then
    FLOCK=flock
  elif command -v perl >/dev/null 2>&1; then
    FLOCK=perl
  else
    die 1 "neither flock nor perl is here: install the package util-linux or perl"
  fi
}

lock_fd() { # <fd>   waits for the lock
  if [[ $FLOCK == flock ]]; then
    flock -x "$1"
  else
    perl -e 'open(F, ">&=", $ARGV[0]) && flock(F, 2) or exit 1' "$1"
  fi
}

# Fails at once: 1 = it is taken, 2 = there are no locks here, and LOCK_REASON says why.
try_lock_fd() { # <fd>
  if [[ $FLOCK == flock ]]; then
    flock -n -x "$1" 2>/dev/null && return 0
    # The codes of util-linux and busybox differ; both are silent about a lock that is only taken.
    LOCK_REASON=$(flock -n -x "$1" 2>&1) && return 0
  else
    LOCK_REASON=$(perl -e 'open(F, ">&=", $ARGV[0]) && flock(F, 6) and exit 0; print $! unless $!{EWOULDBLOCK}; exit 1' "$1") && return 0
  fi
  [[ -z $LOCK_REASON ]] || return 2
  return 1
}

lock_within() { # <fd> <seconds>   fails when it is taken for that long, and where there are no locks
  local end=$((SECONDS + $2))
  until try_lock_fd "$1"; do
    [[ -z $LOCK_REASON ]] || return 2
    ((SECONDS > end)) && return 1
    sleep 0.05 2>/dev/null || sleep 1
  done
}

state_lock() { # <session dir>
  exec 8>>"$1/state.lock" || return 1
  lock_fd 8 2>/dev/null || try_lock_fd 8 || storage_error lock "$1/state.lock" "$LOCK_REASON"
}

state_unlock() {
  exec 8>&-
}

# ---- Processes

# A job with a process group of its own, so that all of it can be ended.
start_group() { # <function or command> [args…]   sets GROUP_PID
  # A signal that meets the child in the moment of its birth makes bash run its parent's EXIT trap there, which would take
  # the private files away: so for that moment there is none. (Should this process end just now, the guard tidies up.)
  trap - EXIT
  set -m
  (
    close_own
    trap - INT TERM HUP USR1 USR2 CONT PIPE
    "$@"
  ) &
  GROUP_PID=$!
  set +m
  [[ -z ${HAS_EXIT_TRAP:-} || -n ${TASK_PID:-} ]] || trap 'on_exit' EXIT
  note_group "+$GROUP_PID"
}

# Groups that begin and end, for the guard. One short write each, so that a kill at any moment leaves whole lines.
note_group() { # <+pid or -pid>
  [[ -n ${TASK_PID:-} ]] || printf '%s\n' "$1" >>"$RUN/groups"
}

end_group() { # <pid of its leader>
  [[ -n $1 ]] || return 0
  kill -TERM -- "-$1" 2>/dev/null
  kill -CONT -- "-$1" 2>/dev/null
}

# Ends a job for sure, and collects it. A signal that meets a child in the moment of its birth, before it has put off
# its parent's traps, is lost: so it is sent until it has worked.
stop_group() { # <pid of its leader>
  local tries=0
  [[ -n $1 ]] || return 0
  while kill -TERM -- "-$1" 2>/dev/null; do
    kill -CONT -- "-$1" 2>/dev/null
    kill -0 "$1" 2>/dev/null || break
    if ((++tries > 100)); then
      kill -KILL -- "-$1" 2>/dev/null
      break
    fi
    sleep 0.01 2>/dev/null || sleep 1
  done
  reap_group "$1"
}

# Collects a job that has ended. A trapped signal that comes just as bash collects a child inside `wait` makes bash forget
# that it did: a later `wait` for that child blocks as long as any other lives. So every `wait` here is woken now and then (by
# `guard`, by `watch_command`), and then looks whether there is anything to wait for.
reap_group() { # <pid of its leader>
  [[ -n $1 ]] || return 0
  while :; do
    wait "$1" 2>/dev/null
    if (($? <= 128)) || ! kill -0 "$1" 2>/dev/null; then break; fi
  done
  note_group "-$1"
}

# Waits for a job through signals that only set a flag. Fails at once when the turn or the run is to end.
wait_for() { # <pid>
  local traps
  while :; do
    ((INTERRUPTED || ENDING)) && return 1
    traps=$TRAPS
    wait "$1" 2>/dev/null
    ((INTERRUPTED || ENDING)) && return 1
    ((traps == TRAPS)) && return 0
    # A trap took the place of the status: what has to be known of a job it writes into a file.
    kill -0 "$1" 2>/dev/null || return 0
  done
}

pause() { # <seconds>   interruptible
  start_group sleep "$1"
  local pid=$GROUP_PID
  wait_for "$pid"
  stop_group "$pid"
}

# A process that ends when this one does, however that was: it ends what was left running and takes the private
# files away. Only this process holds the write end of the pipe that it reads.
setup_guard() {
  mkfifo -m 600 "$RUN/life"
  start_group guard "$RUN"
  GUARD_PID=$GROUP_PID
  exec 5>"$RUN/life"
}

# A signal that meets a child in the moment of its birth is lost, and a child may be deaf: what has not ended after 5 s is killed.
kill_leftovers() { # <groups, blanks around each>
  local group left tries=0 own
  own=$(exec sh -c 'echo "$PPID"')
  while :; do
    left=
    for group in ${1/ $own / }; do
      kill -0 -- "-$group" 2>/dev/null && left="$left $group"
    done
    [[ -n $left ]] || return 0
    ((++tries > 50)) && break
    sleep 0.1 2>/dev/null || sleep 1
    for group in $left; do kill -TERM -- "-$group" 2>/dev/null; done
  done
  for group in $left; do kill -KILL -- "-$group" 2>/dev/null; done
}

guard() { # <private directory>
  local groups='' group word
  trap '' INT HUP TERM
  exec </dev/null >/dev/null 2>&1
  exec 4<"$1/life"
  # A signal that comes in the moment before a `wait` begins would be seen only at its end, and a `wait` can miss its job's
  # end (`reap_group`): so the main process is woken once a second to look.
  while :; do
    IFS= read -r -t 1 word <&4
    if (($? <= 128)); then
      # The end of the pipe alone is no proof: the owner's death, or its own word, is.
      [[ $(tail -n 1 "$1/groups") == "done" ]] && return 0
      kill -0 "$$" 2>/dev/null || break
      sleep 0.1 2>/dev/null || sleep 1
    fi
    # (Only where it waits: a trap that comes while bash reads a `$(` of the script can confuse it.)
    [[ ! -s $1/busy_turn ]] || kill -CONT "$$" 2>/dev/null
  done
  exec 4<&-
  groups=' '
  while IFS= read -r word; do
    case $word in
    +*) groups=$groups${word#+}' ' ;;
    -*) groups=${groups/ ${word#-} / } ;;
    *) return 0 ;;
    esac
  done <"$1/groups"
  # A stream that breaks off leaves its line as it is.
  [[ -s $1/model ]] && IFS= read -r word <"$1/model" && [[ -n $word ]] && kill -KILL -- "-$word" 2>/dev/null
  # The guard's own group is among them, and deaf.
  for group in $groups; do kill -TERM -- "-$group" 2>/dev/null; done
  kill_leftovers "$groups"
  COMMANDS_RUN=1
  end_leftovers
  [[ -s $1/tty ]] && IFS= read -r word <"$1/tty" && stty "$word" </dev/tty 2>/dev/null
  rm -rf -- "${1%/own}"
}
