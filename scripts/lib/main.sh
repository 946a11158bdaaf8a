# main.sh - from what was typed to a running agent, and the loop around the turns (DESIGN "One inbox, one loop").

TRAPS=0 INTERRUPTED=0 ENDING=0 IN_TURN=0 TIMER_FIRED=0 STDOUT_CLOSED=0
RUN='' GUARD_PID='' OWNED=0 FINISHED=0 MODEL_PID='' INPUT_PID='' NOTIFY_PID=''
RUN_TURNS=0 RUN_IN=0 RUN_OUT=0 RUN_CR=0 RUN_CC=0 RUN_COSTS='' PENDING_UPDATES='' SAID='' ID_FIELD=''
AGENT_CALLS=0 BY_PERSON=0 CONV_BYTES=0 RECORDS_READ=0 TURN_EXIT=0 TURN_REASON='' TURN_ERROR='' LAST_CONTEXT=0 LAST_OUT=0
BASHPID_NOW=0 COMMANDS_RUN=0 STATS_LINE='' FORMAT=human

main() {
  [[ -n ${LC_ALL+set} ]] && ORIG_LC_ALL=$LC_ALL
  LC_ALL=C
  ORIG_UMASK=$(umask)
  umask 077
  setup_clock
  setup_display
  COMPACTING=0
  if [[ ${1:-} == compact ]]; then
    COMPACTING=1
    shift
    case " $* " in
    *' --help '* | *' -h '*)
      echo "Usage: agent.sh compact [OPTIONS]   (those of agent.sh that choose the session, the model and its limits)"
      exit 0
      ;;
    esac
  elif [[ ${1:-} == core && ${2:-} != --version ]]; then
    usage_error "the filters of \`core\` are the binary's: run \`bash-agent core\`, or the awk programs of awk/"
  elif (($#)) && is_command "$1"; then
    run_command_word "$@"
  fi
  parse_args "$@"
  ((COMPACTING)) && check_compacting
  find_base
  find_cwd
  setup_run
  trap 'on_exit' EXIT
  HAS_EXIT_TRAP=1
  if declare -F unpack_files >/dev/null; then unpack_files "$RUN/parts"; fi
  setup_awk
  if ((OPT_LIST)); then
    find_project
    trap ':' PIPE
    list_sessions
    finish 0
  fi
  setup_core
  resolve_config
  check_costs
  if ((!COMPACTING)); then
    first_input
    check_images
  fi
  setup_lock
  set_traps
  setup_guard
  awk_value RUN_V "$RUN"
  WORK_V=$RUN_V/work
  now_ms RUN_STARTED
  ((HAS_CLOCK)) && DEADLINE_FROM=$RUN_STARTED
  check_access
  setup_model
  find_project
  setup_prompt
  ((COMPACTING)) && find_source S
  open_session
  ((COMPACTING)) || attach_images
  setup_places
  setup_tools
  setup_search
  setup_silence
  CONV_BYTES=$(($(wc -c <"$S/conversation.jsonl")))
  if ((COMPACTING)); then compact_now; fi
  start_log
  setup_inbox
  if ((INTERACTIVE)); then run_repl; fi
  run_loop
}

# ---- Signals. A trap only sets a flag and ends what is waited for.

set_traps() {
  trap 'on_interrupt' INT
  trap 'on_interrupt_message' USR1
  trap '((++TRAPS)); TIMER_FIRED=1' USR2
  trap 'on_end 143' TERM
  trap 'on_end 129' HUP
  trap 'on_wake' CONT
  trap ':' PIPE
}

# A child that a signal meets in the moment of its birth may still have this trap.
on_exit() {
  is_main && finish 1
}

is_main() {
  # (`return` by itself would give the status from before the trap.)
  if [[ -n ${BASHPID:-} ]]; then
    [[ $BASHPID == "$$" ]]
  else
    # shellcheck disable=SC2016 # the inner shell's own word
    [[ $(exec sh -c 'echo $PPID') == "$$" ]]
  fi
}

on_interrupt() {
  ((++TRAPS))
  if ((IN_TURN)); then
    INTERRUPTED=1 BY_PERSON=1
    end_group "$MODEL_PID"
  else
    ENDING=130
  fi
}

# INTERRUPT on input.fifo does nothing when idle.
on_interrupt_message() {
  ((++TRAPS))
  ((IN_TURN)) || return 0
  INTERRUPTED=1
  end_group "$MODEL_PID"
}

on_end() { # <exit code>
  ((++TRAPS))
  ENDING=$1
  end_group "$MODEL_PID"
}

# ---- The first input, and when the run ends

first_input() {
  local word prompt='' has_prompt=0 from_stdin=0 text
  FIRST='' HAS_FIRST=0 UNTIL_END=0 INTERACTIVE=0
  for word in "${PROMPT_WORDS[@]+"${PROMPT_WORDS[@]}"}"; do
    if [[ $word == - ]]; then
      from_stdin=1
    elif ((has_prompt)); then
      usage_error "unexpected argument '$word': quote the whole prompt as one argument"
    else
      prompt=$word
      has_prompt=1
    fi
  done
  if ((OPT_INTERACTIVE)) && [[ ! -t 0 ]]; then
    usage_error "-i needs a terminal on stdin; to feed a waiting agent use --stay and its input.fifo"
  fi
  ((OPT_STAY || OPT_INTERACTIVE)) && UNTIL_END=1
  if ((has_prompt && !from_stdin)); then
    FIRST=$prompt HAS_FIRST=1 INTERACTIVE=$OPT_INTERACTIVE
    return 0
  fi
  if ((!has_prompt && !from_stdin)); then
    ((OPT_INTERACTIVE)) && INTERACTIVE=1 && return 0
    ((OPT_STAY)) && return 0
    [[ -t 0 ]] && INTERACTIVE=1 UNTIL_END=1 && return 0
  fi
  text=$(
    tr '\000' '\377' 2>/dev/null | head -c 67108865
    printf x
  ) || text=x
  text=${text%x}
  ((${#text} <= 67108864)) || usage_error "stdin is over 64 MiB: name the file in the prompt instead"
  while [[ $text == *[$'\n\r'] ]]; do text=${text%?}; done
  if ((has_prompt)); then
    FIRST=$prompt
    [[ -z $text ]] || FIRST=$prompt$'\n\n'$text
  else
    FIRST=$text
  fi
  [[ $FIRST == *[![:space:]]* ]] || usage_error "no prompt: stdin was empty; give a PROMPT or pipe text in"
  HAS_FIRST=1
  INTERACTIVE=$OPT_INTERACTIVE
}

# `session_start` in an empty log; then what was found at opening.
start_log() {
  local name text
  if ((FRESH)); then
    json_string name "$SESSION"
    event "{\"type\":\"session_start\",\"session_id\":\"$name\""
  fi
  for text in "${NOTES[@]+"${NOTES[@]}"}"; do event_error "$text"; done
}

# ---- The loop: what waits is done in order, then the agent waits or ends.

run_loop() {
  local kind id content
  if ((HAS_FIRST)); then
    run_turn user "$FIRST" ''
    after_turn
  fi
  while :; do
    must_leave
    start_queued
    if has_notices; then
      clear_prompt
      run_turn notify
      after_turn
      redraw_prompt
      continue
    fi
    next_work
    case $? in
    1) finish "$TURN_EXIT" ;;
    2) continue ;;
    esac
    ((++RECORDS_READ))
    kind=${RECORD%%$'\t'*}
    case $kind in
    typed) take_typed "$RECORD" ;;
    typed_end) finish 0 ;;
    input | inputf | file)
      clear_prompt
      take_input "$RECORD"
      redraw_prompt
      ;;
    sync)
      # Done is also: on the disk.
      wait_sync
      unescape_line id "${RECORD#*$'\t'}"
      json_string id "$id"
      event "{\"type\":\"sync\",\"id\":\"$id\""
      ;;
    end) end_session "$RECORD" ;;
    esac
  done
}

after_turn() {
  must_leave
  # A one-shot run that was interrupted ends without its queued input.
  if ((INTERRUPTED)); then
    INTERRUPTED=0
    ((UNTIL_END)) || finish 130
  fi
  return 0
}

must_leave() {
  ((ENDING)) && finish "$ENDING"
  ((STDOUT_CLOSED)) && finish 141
  return 0
}

# The next record; waits for it. 1 = there is nothing and the run ends by itself, 2 = look again.
next_work() {
  local open
  take_record && return 0
  open_count open
  if ((UNTIL_END || open > 0)); then
    next_record 1
    case $? in
    0) return 0 ;;
    *) return 2 ;;
    esac
  fi
  next_record 0
  case $? in
  0) return 0 ;;
  1) has_notices && return 2 || return 1 ;;
  *) return 2 ;;
  esac
}

take_input() { # <record>
  local kind id content file known
  kind=${1%%$'\t'*}
  content=${1#*$'\t'}
  unescape_line id "${content%%$'\t'*}"
  content=${content#*$'\t'}
  case $kind in
  input) unescape_line content "$content" ;;
  inputf)
    file=$content
    read_file content "$file"
    rm -f -- "$file"
    ;;
  file)
    unescape_line file "$content"
    # Its sender may have stored it for an owner that is dead by now.
    [[ ! -e $S/input.d/$file && -e $S/input.d/$file.unread ]] && file=$file.unread
    if ! read_file content "$S/input.d/$file" 2>/dev/null || [[ ! -f $S/input.d/$file || -L $S/input.d/$file ]]; then
      event_error "cannot read $S/input.d/$file: No such file or directory"
      return 0
    fi
    rm -f -- "$S/input.d/$file"
    ;;
  esac
  [[ $content == *[![:space:]]* ]] || return 0
  if [[ -n $id ]]; then
    json_string known "$id"
    is_known_input "$known" && return 0
  fi
  run_turn user "$content" "$id"
  after_turn
}

# input.ids: an id among the last 1,000 is not run again.
is_known_input() { # <id, as in a JSON string>
  tail -n 1000 -- "$S/input.ids" | LC_ALL=C grep -q -x -F -e "$1"
}

remember_input() { # <id, as in a JSON string>
  local id=$1 lines
  lines=$(($(wc -l <"$S/input.ids")))
  if ((lines >= 1000)); then
    { tail -n 999 -- "$S/input.ids" && printf '%s\n' "$id"; } >"$S/input.ids.new" && mv -f -- "$S/input.ids.new" "$S/input.ids"
  else
    printf '%s\n' "$id" >>"$S/input.ids"
  fi
}

end_session() { # <record>
  local code=
  [[ $1 == *$'\t'* ]] && code=${1#*$'\t'}
  if [[ -z $code ]]; then
    code=0
    ((UNTIL_END)) || code=$TURN_EXIT
  fi
  finish "$code"
}

# ---- The end, on every way out

finish() { # <exit code>
  local code=$1
  trap - EXIT
  ((FINISHED)) && exit "$code"
  FINISHED=1
  trap '' INT TERM HUP USR1 USR2
  if [[ -n $RUN ]]; then
    stop_group "$MODEL_PID"
    if ((OWNED)); then
      [[ -n $INPUT_PID ]] && finish_session "$code"
      end_editor
      [[ $FORMAT == json && -n $INPUT_PID ]] && show_json "$code"
      ((STDOUT_CLOSED && code == 0)) && code=141
      end_leftovers
      wait_sync
      close_session
    fi
    # The guard finds nothing left to do.
    printf 'done\n' >>"$RUN/groups"
    exec 5>&-
    [[ -n $GUARD_PID ]] && wait "$GUARD_PID" 2>/dev/null
    rm -rf -- "${RUN%/own}"
  fi
  exit "$code"
}

# A turn that a signal cut short still has its stop event; children and readers end.
finish_session() { # <exit code>
  if ((IN_TURN)); then
    end_turn interrupted "$1"
    finish_turn
  fi
  printf '1\n' >"$RUN/busy_turn"
  end_children
  stop_group "$INPUT_PID"
  # Not between the event of a result and its place in notify.buf.
  state_lock "$S"
  stop_group "$NOTIFY_PID"
  state_unlock
  flush_held
  exec 3>&- 4>&-
}

# `json` output: one object when all is done (CONTRACT §13).
show_json() { # <exit code>
  local now result name reason cost is_error=false
  now_ms now
  read_file result "$RUN/turn.text"
  [[ -z $TURN_ERROR ]] || { ((TURN_EXIT)) && [[ -z $result ]] && result=$TURN_ERROR; }
  json_string result "$result"
  json_string name "$SESSION"
  json_string reason "$TURN_REASON"
  (($1)) && is_error=true
  take_children_usage
  run_cost cost
  print_line "{\"type\":\"result\",\"is_error\":$is_error,\"result\":\"$result\",\"session_id\":\"$name\",\"stop_reason\":\"$reason\",\"usage\":{\"input_tokens\":$RUN_IN,\"output_tokens\":$RUN_OUT,\"cache_read_input_tokens\":$RUN_CR,\"cache_creation_input_tokens\":$RUN_CC},\"total_cost_usd\":$cost,\"num_turns\":$RUN_TURNS,\"duration_ms\":$((now - RUN_STARTED))}"
}
