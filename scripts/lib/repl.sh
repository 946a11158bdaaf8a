# repl.sh - the interactive mode (CONTRACT §8, §14): replay, then a line editor beside the main loop.
#
# The editor is a process of its own, so that input.fifo works while somebody types: it reads one line each time it is
# asked for one ($RUN/ask), and queues `typed LINE` or `typed_end` like every other writer of the queue.

EDITOR_PID='' PROMPT_OPEN=0

run_repl() {
  # What is typed while something is shown waits for the prompt, and is echoed there.
  TTY_STATE=$(stty -g <&0 2>/dev/null)
  printf '%s\n' "$TTY_STATE" >"$RUN/tty"
  stty -echo <&0 2>/dev/null
  if [[ $FORMAT == human ]]; then
    say_cyan "bash-agent interactive mode (type 'exit' or Ctrl+D to quit)"
    if ((!FRESH)); then
      show_replay
      print_line ''
    fi
  fi
  show_title 0
  start_editor
}

say_cyan() { # <text>
  if ((COLOR)); then print_line $'\033[36m'"$1"$'\033[0m'; else print_line "$1"; fi
}

say_goodbye() {
  [[ $FORMAT == human ]] || return 0
  say_cyan 'Goodbye!'
  if ((COLOR)); then
    print_line $'\033[90m'"Resume with: --session $SESSION  or  --continue"$'\033[0m'
  else
    print_line "Resume with: --session $SESSION  or  --continue"
  fi
}

# ---- Replay: the last ten turns, found from the end of the log.

show_replay() {
  if has_core; then
    run_core replay --last 10 -- "$S/events.jsonl" >"$RUN/replay"
    if core_did $? replay; then
      display <"$RUN/replay"
      return $?
    fi
  fi
  last_turns 10 | run_awk event_replay.awk | display
}

last_turns() { # <number>   their event lines
  local size=262144 total start
  total=$(($(wc -c <"$S/events.jsonl")))
  while ((size < total)); do
    start=$(tail -c "$size" -- "$S/events.jsonl" | turn_start "$1")
    if [[ -n $start ]]; then
      tail -c "$size" -- "$S/events.jsonl" | tail -n "+$start"
      return $?
    fi
    ((size *= 4))
  done
  start=$(turn_start "$1" <"$S/events.jsonl")
  tail -n "+${start:-1}" -- "$S/events.jsonl"
}

# The line that begins the last but N turn; nothing when there are fewer.
turn_start() { # <number>
  LC_ALL=C grep -n -a -e '^{"type":"user_input"' -e '^{"type":"user_message"' | tail -n "$1" |
    awk -F: -v n="$1" 'NR == 1 { first = $1 } END { if (NR == n) print first }'
}

# ---- The line editor

start_editor() {
  mkfifo -m 600 "$RUN/ask"
  # In the terminal's own group, or it could not read; with the terminal as its stdin, which bash would take away.
  (
    close_own
    trap - EXIT TERM HUP USR1 USR2 CONT PIPE
    edit_lines
  ) <&0 &
  EDITOR_PID=$!
  ask_line
}

edit_lines() {
  local what line question prompt='> ' history=$BASE/history HOW
  exec 5<>"$RUN/ask" 6<>"$RUN/bell"
  INBOX_NAME=typed
  ((COLOR && !OPT_PLAIN)) && prompt=$'\001\033[32m\002>\001\033[0m\002 '
  if [[ -n ${ORIG_LC_ALL+set} ]]; then LC_ALL=$ORIG_LC_ALL; else unset LC_ALL; fi
  set -o history
  HISTFILE=
  [[ -s $history ]] && history -r "$history"
  ((OPT_PLAIN)) || setup_keys
  while IFS= read -r what <&5; do
    stty "$TTY_STATE" 2>/dev/null
    HOW=typed
    if ! read_typed line "$prompt"; then
      [[ -n $line ]] || {
        queue_line typed_end
        return 0
      }
    fi
    stty -echo 2>/dev/null
    if [[ $line == *[![:space:]]* ]]; then
      history -s -- "$line"
      printf '%s\n' "$line" >>"$history"
    fi
    # An open question takes the line; a prompt that stood open asks again.
    if [[ -s $RUN/question ]]; then
      IFS= read -r question <"$RUN/question"
      put_answer terminal "$question" "$line"
      [[ $what == answer ]] || printf '%s\n' "$what" >"$RUN/ask" &
      continue
    fi
    if [[ $HOW == steer && $line == *[![:space:]]* ]] && is_busy; then
      steer_turn "$line"
      printf '%s\n' "$what" >&5
      continue
    fi
    [[ $what == answer ]] && continue
    escape_line line "$line"
    queue_line typed$'\t'"$line"
  done
}

# One line of the terminal; with --plain the terminal alone edits it.
read_typed() { # <result-var> <prompt>
  if ((OPT_PLAIN)); then
    printf '%s' "$2"
    IFS= read -r "$1"
  else
    IFS= read -r -e -p "$2" "$1" 2>&1
  fi
}

ask_line() {
  [[ -n $EDITOR_PID ]] && printf 'line\n' >"$RUN/ask" && PROMPT_OPEN=1
  return 0
}

# What was typed, as work for the loop.
take_typed() { # <record>
  local line
  PROMPT_OPEN=0
  unescape_line line "${1#typed$'\t'}"
  toml_trim line "$line"
  case $line in
  '') ;;
  exit | quit) finish 0 ;;
  /*)
    if is_console "$line"; then
      do_console "$line"
    else
      run_turn user "$line" ''
    fi
    after_turn
    ;;
  *)
    run_turn user "$line" ''
    after_turn
    ;;
  esac
  ask_line
}

# The prompt stands open while a turn comes from elsewhere: its line is cleared, and drawn again afterwards.
clear_prompt() {
  [[ -n $EDITOR_PID && $FORMAT == human ]] || return 0
  if ((COLOR && !OPT_PLAIN)); then printf '\r\033[K'; else printf '\n'; fi
}

redraw_prompt() {
  [[ -n $EDITOR_PID ]] || return 0
  if ((!OPT_PLAIN)); then
    kill -WINCH "$EDITOR_PID" 2>/dev/null
  elif ((PROMPT_OPEN)) && [[ $FORMAT == human ]]; then
    printf '> '
  fi
  return 0
}

end_editor() {
  [[ -n $EDITOR_PID ]] || return 0
  kill -TERM "$EDITOR_PID" 2>/dev/null
  kill -0 "$EDITOR_PID" 2>/dev/null && wait "$EDITOR_PID" 2>/dev/null
  EDITOR_PID=
  [[ -z $TTY_STATE ]] || stty "$TTY_STATE" <&0 2>/dev/null
  say_goodbye
}
