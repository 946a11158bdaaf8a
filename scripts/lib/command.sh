# command.sh - the Bash tool: a command, its output, its time, and the processes that it started (CONTRACT §11).

TOOL_PID=''
# How long a child that holds the output may still print once the shell is gone, in seconds.
HOLD_GRACE=0.2

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
