# compact.sh - compaction (CONTRACT §9): what is kept is chosen by awk/compact_dp.awk; summary first, cut last.

COMPACT_TRIGGER=''

# Before a model call: a plan's tools ask for it, else the cost model decides.
compact_if_due() { # auto
  local trigger=${COMPACT_TRIGGER:-$1} context keep
  COMPACT_TRIGGER=
  stat_of context current_context_tokens
  # A small window has nothing to gain: what is dropped must be worth 20 summaries.
  if [[ $trigger == auto ]] && ((CONV_BYTES < 80 * ${DP_S:-500} && context * 10 <= MAX_CONTEXT * 9)); then return 0; fi
  choose_keep keep "$trigger" "$context"
  ((keep)) || return 0
  compact "$keep" "$trigger" || return 0
}

choose_keep() { # <result-var> <trigger> <context>
  local ck_turns ck_compacts ck_requests ck_input ck_keep
  stat_of ck_turns current_turn_count
  stat_of ck_compacts compact_request_count
  stat_of ck_requests agent_request_count
  stat_of ck_input total_input_tokens
  if has_core; then
    ck_keep=$(run_core compact-choice --turns "$ck_turns" --compactions "$ck_compacts" --requests "$ck_requests" \
      --total-input "$ck_input" --context "$3" --max-context "$MAX_CONTEXT" --trigger "$2" -- "$S/conversation.jsonl" 2>/dev/null)
    core_did $? compact-choice && printf -v "$1" '%d' "$ck_keep" && return
  fi
  printf -v "$1" '%d' "$(LC_ALL=C "${AWK[@]}" -v t="$ck_turns" -v c="$ck_compacts" -v requests="$ck_requests" \
    -v total_input="$ck_input" -v context="$3" -v M="$MAX_CONTEXT" -v trigger="$2" \
    -f "$AWK_DIR/compact_dp.awk" "$S/conversation.jsonl")"
}

# The window was too long for the server: once more after a cut, or not at all.
compact_for_room() {
  local keep
  ((COMPACTED_FOR_ROOM)) && return 1
  COMPACTED_FOR_ROOM=1
  choose_keep keep manual "$MAX_CONTEXT"
  ((keep)) || return 1
  compact "$keep" auto
}

compact() { # <lines to keep> <trigger>
  local lines drop size
  lines=$(($(wc -l <"$S/conversation.jsonl")))
  drop=$((lines - $1))
  ((drop > 0 && $1 > 0)) || return 1
  head -n "$drop" -- "$S/conversation.jsonl" >"$RUN/dropped"
  tail -n "+$((drop + 1))" -- "$S/conversation.jsonl" >"$S/conversation.jsonl.new" || return 1
  if ! ask_summary; then
    rm -f -- "$S/conversation.jsonl.new"
    return 1
  fi
  # Each step is whole or not at all; the cut is the last one.
  {
    cp -- "$RUN/summary" "$S/summary.txt.new" && mv -f -- "$S/summary.txt.new" "$S/summary.txt" &&
      cat -- "$RUN/dropped" >>"$S/conversation-archive.jsonl" &&
      mv -f -- "$S/conversation.jsonl.new" "$S/conversation.jsonl"
  } || storage_error write "$S/conversation.jsonl" ''
  CONV_BYTES=$(($(wc -c <"$S/conversation.jsonl")))
  META_FROM=$CONV_BYTES
  store_meta
  size=$(LC_ALL=C awk '{ n += int((length($0) + 3) / 4) + 1 } END { printf "%.0f", n }' "$S/conversation.jsonl")
  update_stats current_context_tokens="$size"
  event "{\"type\":\"context_update\",\"kind\":\"compact\",\"trigger\":\"$2\""
  show_message CONTEXT_UPDATE compact "$2"
}

# Asks for a summary of $RUN/dropped into $RUN/summary. A failure leaves everything as it was and says so.
ask_summary() {
  local text limit=${DP_S:-500}
  read_file text "$ASSETS_DIR/prompt/summary-instruction.md"
  printf '%s' "${text//'{{max_tokens}}'/$limit}" >"$RUN/instruction"
  CONVERSATION=$RUN/dropped ask_model "$RUN/instruction" compact
  unset CONVERSATION
  count_compact
  case $ANSWER in
  interrupted) return 1 ;;
  failed)
    event_error "compaction failed: $FAIL_MESSAGE"
    return 1
    ;;
  esac
  LC_ALL=C awk -v limit="$limit" '{ n += int((length($0) + 3) / 4) + 1; if (n > limit && NR > 1) exit; print }' "$RUN/answer/text" >"$RUN/summary"
  grep -q '[^[:space:]]' "$RUN/summary" && return 0
  event_error "compaction failed: the summary was empty"
  return 1
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
