# compact.sh - compaction (CONTRACT §9): what is kept is chosen by awk/compact_dp.awk; summary first, cut last. Whatever
# fails leaves the session as it was.
#
# compact TRIGGER sets COMPACTED: done, nothing, interrupted or failed. It is asked for by `auto` (before a model call),
# `too_long` (the API refused a request), `plan_confirm`, `plan_clear` and `manual` (the user).

# After a failed summary the next tries wait for this many model calls.
PAUSE_AFTER_FAILURE=5
# How often a summary that is itself too long is asked for again over half as many lines.
HALVINGS=3
# Not before AGENT_CALLS is this: for the automatic compaction, and for leaving out results.
COMPACT_NOT_BEFORE=0 LEAVE_OUT_NOT_BEFORE=0

# The cost model's parameters: what is no number, or out of range, is named and its default used. Sets SUMMARY_TOKENS.
check_costs() {
  local name default highest value number='^[[:blank:]]*[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?[[:blank:]]*$'
  while read -r name default highest; do
    value=${!name:-}
    [[ -n $value ]] || continue
    [[ $value =~ $number ]] && LC_ALL=C awk -v n="$value" -v most="$highest" 'BEGIN { exit !(n + 0 >= 0 && n + 0 <= most) }' && continue
    say_warning "$name=$value is no number from 0 to $highest; using $default"
    unset "$name"
  done <<'END'
DP_P_INPUT 3 1000000000000
DP_P_CACHE 0.3 1000000000000
DP_P_OUT 15 1000000000000
DP_V 5000 1000000000000
DP_S 500 1000000000000
DP_L 0 1000000000000
DP_BASELINE_E 8 1000000000000
DP_E_FIXED 0 1000000000000
DP_R 0.8 1
DP_BETA 0.03 1000000000000
DP_MIN_KEEP_RATIO 0.25 1
DP_QUALITY_PENALTY 0.2 1000000000000
END
  SUMMARY_TOKENS=500
  [[ -z ${DP_S:-} ]] || SUMMARY_TOKENS=$(LC_ALL=C awk -v s="$DP_S" 'BEGIN { printf "%.0f", s < 1 ? 1 : int(s) }')
}

# Before a model call: when it pays, or when the window is nearly full.
compact_if_due() {
  local context
  stat_of context current_context_tokens
  # A small window has nothing to gain: what is dropped must be worth 20 summaries, and a byte is at most a token.
  if ((AGENT_CALLS >= COMPACT_NOT_BEFORE)) && ((CONV_BYTES >= 20 * SUMMARY_TOKENS || context * 10 > MAX_CONTEXT * 9)); then
    compact auto
    ((INTERRUPTED || ENDING)) && return 0
  fi
  leave_out_if_full
}

choose_keep() { # <result-var> <trigger>
  local ck_figures ck_turns ck_compacts ck_requests ck_input ck_context ck_keep ck_trigger=$2
  [[ $2 == too_long ]] && ck_trigger=manual
  ck_figures=$(run_awk stats.awk -v file="$SV/stats.json" \
    -v get='current_turn_count compact_request_count agent_request_count total_input_tokens current_context_tokens' 2>/dev/null)
  IFS=$' \n' read -r -d '' ck_turns ck_compacts ck_requests ck_input ck_context <<<"$ck_figures"
  if has_core; then
    ck_keep=$(run_core compact-choice --turns "$ck_turns" --compactions "$ck_compacts" --requests "$ck_requests" \
      --total-input "$ck_input" --context "$ck_context" --max-context "$MAX_CONTEXT" --trigger "$ck_trigger" -- "$S/conversation.jsonl" 2>/dev/null)
    core_did $? compact-choice && printf -v "$1" '%d' "$ck_keep" && return 0
  fi
  printf -v "$1" '%d' "$(LC_ALL=C "${AWK[@]}" -v t="$ck_turns" -v c="$ck_compacts" -v requests="$ck_requests" \
    -v total_input="$ck_input" -v context="$ck_context" -v M="$MAX_CONTEXT" -v trigger="$ck_trigger" \
    -f "$AWK_DIR/compact_dp.awk" "$S/conversation.jsonl")"
}

compact() { # <trigger>
  local keep try word=$1
  COMPACTED=nothing
  limit_reached && return 0
  choose_keep keep "$1"
  ((keep)) || return 0
  [[ $word == too_long ]] && word=auto
  COMPACTED=failed
  for ((try = 0; try < HALVINGS; try++)); do
    ask_summary "$keep"
    case $SUMMARY in
    text)
      cut_window || break
      compacted "$word"
      return 0
      ;;
    interrupted)
      COMPACTED=interrupted
      return 0
      ;;
    too_long)
      drop_half keep "$keep"
      ((keep)) || break
      ;;
    *) break ;;
    esac
  done
  COMPACT_NOT_BEFORE=$((AGENT_CALLS + PAUSE_AFTER_FAILURE))
  event_error "compaction failed, nothing was dropped: $COMPACT_WHY"
}

# About half of the lines that are to be dropped, up to a turn; 0 when that is none.
drop_half() { # <result-var> <lines to keep>
  printf -v "$1" '%d' "$(LC_ALL=C awk -v dropped="$DROPPED_LINES" '
    index($0, "{\"role\":\"user\",\"content\":\"") == 1 && NR > 1 && NR - 1 <= int(dropped / 2) { cut = NR - 1 }
    END { print cut ? NR - cut : 0 }' "$S/conversation.jsonl")"
}

# Asks for a summary of all but the last lines, with the prefix of an ordinary call: into $RUN/summary. Sets SUMMARY: text,
# interrupted, too_long or failed (COMPACT_WHY says why), and DROPPED_LINES.
ask_summary() { # <lines to keep>
  local text
  DROPPED_LINES=$(($(wc -l <"$S/conversation.jsonl") - $1))
  head -n "$DROPPED_LINES" -- "$S/conversation.jsonl" >"$RUN/dropped"
  read_file text "$ASSETS_DIR/prompt/summary-instruction.md"
  printf '%s' "${text//'{{max_tokens}}'/$SUMMARY_TOKENS}" >"$RUN/instruction"
  CONVERSATION=$RUN/dropped
  ask_model "$RUN/instruction" compact
  unset CONVERSATION
  count_compact
  SUMMARY=failed
  case $ANSWER in
  interrupted) SUMMARY=interrupted ;;
  failed)
    COMPACT_WHY=$FAIL_MESSAGE
    [[ $FAIL_KIND == ContextTooLong ]] && SUMMARY=too_long
    ;;
  *)
    case $ANSWER_STOP in
    end_turn | stop | stop_sequence | tool_use | tool_calls | completed)
      run_awk cut_summary.awk -v most="$SUMMARY_TOKENS" "$RUN/summary_answer/text" >"$RUN/summary"
      COMPACT_WHY="the model gave no summary"
      grep -q '[^[:space:]]' "$RUN/summary" && SUMMARY=text
      ;;
    *) COMPACT_WHY="the summary was cut off ($ANSWER_STOP)" ;;
    esac
    ;;
  esac
  return 0
}

# Summary first, cut last. compact.journal says how to undo what a crash or a full disk left unfinished. Over a power cut,
# too: what a step relies on is on the disk before it.
cut_window() {
  local from=$META_FROM results=$META_RESULTS conversation cut archive old
  conversation=$(($(wc -c <"$S/conversation.jsonl")))
  cut=$(($(wc -c <"$RUN/dropped")))
  archive=$(($(wc -c <"$S/conversation-archive.jsonl")))
  old=$({ cat -- "$S/summary.txt" && printf '.'; } | run_awk json_cli.awk -v op=escape -v mark=1)
  META_FROM=$((conversation - cut))
  META_RESULTS=$((results > cut ? results - cut : 0))
  if ! {
    printf '{"conversation":%d,"cut":%d,"archive":%d,"thinking_from":%d,"results_from":%d,"summary":"%s"}\n' \
      "$conversation" "$cut" "$archive" "$from" "$results" "$old" >"$S/compact.journal.new" &&
      cp -- "$RUN/summary" "$S/summary.txt.new" &&
      sync_now "$S/conversation.jsonl" "$S/compact.journal.new" "$S/summary.txt.new" &&
      mv -f -- "$S/compact.journal.new" "$S/compact.journal" &&
      sync_now "$S" &&
      mv -f -- "$S/summary.txt.new" "$S/summary.txt" &&
      cat -- "$RUN/dropped" >>"$S/conversation-archive.jsonl" &&
      write_meta &&
      tail -n "+$((DROPPED_LINES + 1))" -- "$S/conversation.jsonl" >"$S/conversation.jsonl.new" &&
      sync_now "$S/conversation-archive.jsonl" "$S/conversation.jsonl.new" &&
      mv -f -- "$S/conversation.jsonl.new" "$S/conversation.jsonl"
  } 2>"$RUN/cut.err"; then
    COMPACT_WHY=$(tail -n 1 "$RUN/cut.err")
    META_FROM=$from META_RESULTS=$results
    # What cannot be undone now is undone at the next opening.
    [[ -e $S/compact.journal ]] && undo_compaction 2>/dev/null
    rm -f -- "$S/conversation.jsonl.new" "$S/summary.txt.new" "$S/compact.journal.new"
    return 1
  fi
  sync_now "$S"
  rm -f -- "$S/compact.journal"
  CONV_BYTES=$META_FROM
}

# The figures, the event, what a person sees.
compacted() { # <trigger>
  local size
  size=$(LC_ALL=C awk '{ n += int((length($0) + 3) / 4) + 1 } END { printf "%.0f", n }' "$S/conversation.jsonl")
  update_stats current_context_tokens="$size"
  event "{\"type\":\"context_update\",\"kind\":\"compact\",\"trigger\":\"$1\""
  show_message CONTEXT_UPDATE compact "$1"
  show_title 1
  COMPACTED="done"
  # One call with the shorter window comes first: without progress there is no second one.
  COMPACT_NOT_BEFORE=$((AGENT_CALLS + 1))
}

# A summary call counts in its own counter; its tokens in the totals.
count_compact() {
  local in out cr cc estimated cost model more
  json_string model "$MODEL"
  while IFS=' ' read -r in out cr cc estimated; do
    [[ -n $in ]] || continue
    price_of cost "$in $out $cr $cc"
    RUN_IN=$((RUN_IN + in)) RUN_OUT=$((RUN_OUT + out)) RUN_CR=$((RUN_CR + cr)) RUN_CC=$((RUN_CC + cc))
    RUN_COSTS="$RUN_COSTS $cost"
    update_stats "total_input_tokens=+$in" "total_output_tokens=+$out" "total_cache_read_tokens=+$cr" \
      "total_cache_creation_tokens=+$cc" "total_cost_usd=+$cost"
    more=
    ((estimated)) && more=',"estimated":true'
    event "{\"type\":\"usage\",\"input_tokens\":$in,\"output_tokens\":$out,\"cache_read_input_tokens\":$cr,\"cache_creation_input_tokens\":$cc,\"kind\":\"compact\",\"model\":\"$model\"$more"
  done <<<"$ANSWER_USAGES"
  [[ $ANSWER == complete ]] && update_stats compact_request_count=+1
  return 0
}

# ---- What is kept does not fit: large tool results are left out of requests, the oldest first (awk/leave_out.awk)

# Before a model call: nearly full, and nothing to drop.
leave_out_if_full() {
  local context
  stat_of context current_context_tokens
  ((context * 10 > MAX_CONTEXT * 9 && AGENT_CALLS >= LEAVE_OUT_NOT_BEFORE)) || return 0
  leave_out_results "$context" || return 0
}

# Leaves out results until the window has half the size that the API refused, or, with a number of tokens that it has
# now, fills half of --max-context. Fails when there is nothing to leave out.
leave_out_results() { # [context tokens]
  local from
  from=$(run_window leave_out.awk -v results_from="$META_RESULTS" -v context="${1:-0}" -v M="$MAX_CONTEXT" "$S/conversation.jsonl")
  is_number "$from" || return 1
  ((from > META_RESULTS)) || return 1
  META_RESULTS=$from
  store_meta
  LEAVE_OUT_NOT_BEFORE=$((AGENT_CALLS + 1))
  say_warning "the window is full: the oldest large tool results are left out of requests (conversation.jsonl keeps them)"
}

# ---- `agent.sh compact`: now, outside a turn

check_compacting() {
  if ((OPT_STAY || OPT_INTERACTIVE || OPT_FORK || ${#PROMPT_WORDS[@]} || ${#OPT_IMAGES[@]})); then
    usage_error "compact takes no prompt, --image, --stay, -i or --fork: give --session NAME or nothing"
  fi
  ((OPT_HAS_SESSION == 2)) || OPT_HAS_SESSION=0 OPT_CONTINUE=1
}

compact_now() {
  local text
  for text in "${NOTES[@]+"${NOTES[@]}"}"; do event_error "$text"; done
  IN_TURN=1
  printf '1\n' >"$RUN/busy_turn"
  compact manual
  IN_TURN=0
  case $COMPACTED in
  nothing) say_warning "there is nothing to compact" ;;
  failed) finish 1 ;;
  interrupted) finish 130 ;;
  esac
  ((ENDING)) && finish "$ENDING"
  finish 0
}
