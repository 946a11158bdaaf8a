# turn.sh - a turn, step by step as CONTRACT §7 has it.
#
# run_turn user CONTENT ID | run_turn notify. Sets TURN_REASON, TURN_EXIT, TURN_TEXT_FILE (the answer), TURN_ERROR.

MAX_CUT_OFFS=2

run_turn() { # user <content> <id> | notify
  local id=${3:-}
  begin_turn "$@"
  work_turn
  finish_turn "$id"
}

# Step 1: the user line, the event, the count; the flag.
begin_turn() {
  local escaped id
  IN_TURN=1 INTERRUPTED=0 BY_PERSON=0 TURN_ERROR='' TURN_REASON=error TURN_EXIT=1
  ((++RUN_TURNS))
  : >"$RUN/turn.text"
  if [[ $1 == user ]]; then
    json_string escaped "$2"
    id=
    [[ -n $3 ]] && json_string id "$3"
    # Line and id belong together: what a crash leaves half done is finished at the next start.
    [[ -z $id ]] || begin_input "$id"
    append_line "{\"role\":\"user\",\"content\":\"$escaped\"}"
    if [[ -n $id ]]; then
      remember_input "$id"
      rm -f -- "$S/input.journal"
      id=",\"id\":\"$id\""
    fi
    event "{\"type\":\"user_input\",\"content\":\"$escaped\"$id"
    ID_FIELD=$id
  else
    ID_FIELD=
  fi
  update_stats current_turn_count=+1
  printf '%s\n' "$$" >"$S/agent_running.flag"
  printf '1\n' >"$RUN/busy_turn"
  show_title 1
}

begin_input() { # <id, as in a JSON string>
  local size
  size=$(wc -c <"$S/conversation.jsonl")
  printf '{"conversation":%d,"id":"%s"}\n' "$size" "$1" >"$S/input.journal" || storage_error write "$S/input.journal" ''
}

append_line() { # <line of conversation.jsonl>
  CONV_BYTES=$((CONV_BYTES + ${#1} + 1))
  printf '%s\n' "$1" >>"$S/conversation.jsonl" || storage_error write "$S/conversation.jsonl" ''
}

# Step 2: model calls and tools, until the model has nothing more to do.
work_turn() {
  local round cut_offs=0
  for ((round = 0; round < MAX_TURNS; round++)); do
    drain_notices
    start_queued
    limit_reached && end_limited && return 0
    compact_if_due
    ((INTERRUPTED || ENDING)) && end_cancelled && return 0
    # A summary counts too.
    limit_reached && end_limited && return 0
    start_sync
    ask_mending
    # Nobody reads any more: the run ends quietly.
    if ((STDOUT_CLOSED)) && [[ $ANSWER == failed ]]; then ANSWER=interrupted; fi
    case $ANSWER in
    interrupted) end_cancelled && return 0 ;;
    failed)
      event_error "$FAIL_MESSAGE"
      TURN_ERROR=$FAIL_MESSAGE
      end_turn error "$FAIL_EXIT"
      return 0
      ;;
    esac
    [[ -s $RUN/answer/line ]] && append_file "$RUN/answer/line"
    cat "$RUN/answer/text" >"$RUN/turn.text"
    if [[ $ANSWER_STOP == model_context_window_exceeded ]]; then
      # The window was full in mid-answer: compact, then go on (PROVIDERS.md).
      if ((cut_offs < MAX_CUT_OFFS)) && ((++cut_offs)) && make_room; then
        tell_model context-full
        continue
      fi
      ((INTERRUPTED || ENDING)) && end_cancelled && return 0
      TURN_ERROR="Response truncated ($ANSWER_STOP)"
      event_error "$TURN_ERROR"
      end_turn "$ANSWER_STOP" 8
      return 0
    fi
    if ((ANSWER_DROPPED >= 0)); then
      if ((ANSWER_DROPPED > 0 && cut_offs < MAX_CUT_OFFS)); then
        ((++cut_offs))
        tell_model cut-off
        continue
      fi
      TURN_ERROR="Response truncated ($ANSWER_STOP reached)"
      event_error "$TURN_ERROR"
      end_turn "$ANSWER_STOP" 1
      return 0
    fi
    if ((ANSWER_CALLS > 0)); then
      run_tools
      ((INTERRUPTED || ENDING)) && end_cancelled && return 0
      continue
    fi
    [[ $ANSWER_STOP == pause_turn ]] && continue
    drain_notices && continue
    case $ANSWER_STOP in
    refusal | content_filter)
      TURN_ERROR="the model did not answer ($ANSWER_STOP)"
      event_error "$TURN_ERROR"
      end_turn "$ANSWER_STOP" 10
      ;;
    *) end_turn "$ANSWER_STOP" 0 ;;
    esac
    return 0
  done
  TURN_ERROR="Max turns ($MAX_TURNS) reached"
  event_error "$TURN_ERROR"
  : >"$RUN/turn.text"
  end_turn max_turns 9
}

# One model call; a request that was too long is made shorter, and asked once more.
ask_mending() {
  local try
  ask_turn
  is_too_long || return 0
  compact too_long
  case $COMPACTED in
  done) ask_turn ;;
  interrupted)
    ANSWER=interrupted
    return 0
    ;;
  esac
  for ((try = 0; try < 3; try++)); do
    is_too_long && leave_out_results || return 0
    ask_turn
  done
}

# The window is full: compacts, else leaves out results. Fails when neither makes room.
make_room() {
  compact too_long
  case $COMPACTED in
  done) return 0 ;;
  interrupted) return 1 ;;
  esac
  leave_out_results
}

ask_turn() {
  ((++AGENT_CALLS))
  ask_model
  count_call
}

is_too_long() {
  [[ $ANSWER == failed && $FAIL_KIND == ContextTooLong ]]
}

append_file() { # <file with one line>
  CONV_BYTES=$((CONV_BYTES + $(wc -c <"$1")))
  cat -- "$1" >>"$S/conversation.jsonl" || storage_error write "$S/conversation.jsonl" ''
}

end_turn() { # <reason> <exit code>
  TURN_REASON=$1 TURN_EXIT=$2
  [[ $1 == interrupted ]] && ((ENDING)) && TURN_EXIT=$ENDING
  [[ $1 == interrupted || $1 == error ]] && : >"$RUN/turn.text"
  [[ $1 == interrupted ]] && end_turn_children
  return 0
}

# What the model is told when its answer was cut off: a text of src/assets/prompt.
tell_model() { # <its name>
  local text
  read_file text "$ASSETS_DIR/prompt/$1.md"
  while [[ $text == *[[:space:]] ]]; do text=${text%?}; done
  json_string text "$text"
  append_line "{\"role\":\"user\",\"content\":\"$text\"}"
}

# Step 3: the `stop` event, the flag.
finish_turn() {
  local reason
  json_string reason "$TURN_REASON"
  # Who hears that the turn has ended may rely on its input being on the disk.
  wait_sync
  # Who waits for the input of this id exits as a one-shot run of the turn would.
  [[ -n $ID_FIELD ]] && ((TURN_EXIT)) && ID_FIELD="$ID_FIELD,\"exit\":$TURN_EXIT"
  # A signal that somebody sends because he saw the turn's end finds an idle agent.
  IN_TURN=0
  event "{\"type\":\"stop\",\"reason\":\"$reason\"$ID_FIELD"
  rm -f -- "$S/agent_running.flag"
  : >"$RUN/busy_turn"
  start_sync
  show_message STOP "$TURN_REASON"
  if [[ $FORMAT == text && -s $RUN/turn.text && $TURN_EXIT == 0 ]]; then show_answer; fi
  show_title 0
}

# The final answer, with a line feed at its end.
show_answer() {
  local text
  read_file text "$RUN/turn.text"
  [[ $text == *$'\n' ]] || text=$text$'\n'
  printf '%s' "$text" 2>/dev/null || stdout_closed
}

# Counts a call that has ended: every try that reported figures, once each.
count_call() {
  LAST_ESTIMATED=1
  local in out cr cc estimated cost updates now seconds_ms
  while IFS=' ' read -r in out cr cc estimated; do
    [[ -n $in ]] || continue
    updates=("total_input_tokens=+$in" "total_output_tokens=+$out" "total_cache_read_tokens=+$cr" "total_cache_creation_tokens=+$cc")
    price_of cost "$in $out $cr $cc"
    updates[4]="total_cost_usd=+$cost"
    RUN_IN=$((RUN_IN + in)) RUN_OUT=$((RUN_OUT + out)) RUN_CR=$((RUN_CR + cr)) RUN_CC=$((RUN_CC + cc))
    RUN_COSTS="$RUN_COSTS $cost"
    LAST_CONTEXT=$((in + out + cr + cc))
    LAST_OUT=$out
    LAST_ESTIMATED=$estimated
    # shellcheck disable=SC2086 # words without blanks or patterns
    [[ -n $PENDING_UPDATES ]] && update_stats $PENDING_UPDATES
    PENDING_UPDATES=${updates[*]}
  done <<<"$ANSWER_USAGES"
  # A token is rarely more than 16 bytes: a server that counts far fewer has cut the front of the prompt away.
  if [[ $ANSWER == complete && $LAST_ESTIMATED == 0 ]] && ((BODY_SIZE > 16384 && LAST_CONTEXT > LAST_OUT && (LAST_CONTEXT - LAST_OUT) * 16 < BODY_SIZE)); then
    say_once "the server says it read $((LAST_CONTEXT - LAST_OUT)) tokens of a request of about $((BODY_SIZE / 4)): its context window is probably too small (num_ctx, --ctx-size) and the start of the conversation was cut off"
  fi
  if [[ $ANSWER == complete ]]; then
    now_ms now
    seconds_ms=$((now - CALL_STARTED))
    ((seconds_ms > 0)) || seconds_ms=1
    PENDING_UPDATES="$PENDING_UPDATES agent_request_count=+1 current_context_tokens=$LAST_CONTEXT"
    PENDING_UPDATES="$PENDING_UPDATES last_call_speed_tok_per_sec=$((LAST_OUT * 1000 / seconds_ms)).$((LAST_OUT * 10000 / seconds_ms % 10))"
  fi
  # shellcheck disable=SC2086 # words without blanks or patterns
  [[ -n $PENDING_UPDATES ]] && update_stats $PENDING_UPDATES
  PENDING_UPDATES=
  show_title 1
}

# Tells the person something once a run.
say_once() { # <text>
  case $'\n'$SAID in
  *$'\n'"$1"$'\n'*) return 0 ;;
  esac
  SAID=$SAID$1$'\n'
  say_warning "$1"
}
