# limits.sh - limits of the user's on a whole run: dollars, tokens, time; they hold for summaries and sub-agents too.
#
# MAX_COST, MAX_TOTAL_TOKENS, MAX_TIME: "" = as much as it wants. What the run has used: RUN_IN, RUN_OUT, RUN_CR, RUN_CC and
# RUN_COSTS; the notify reader writes what sub-agents used into $RUN/children.used, one line each.

CHILDREN_TAKEN=0 MAX_TIME='' DEADLINE_FROM=0

DOLLARS_HELP="give dollars above 0, such as 0.50"

need_dollars() { # <result-var> <text>
  parse_dollars "$1" "$2" || usage_error "'$2' is no amount: $DOLLARS_HELP"
}

parse_dollars() { # <result-var> <text>   an amount above 0; fails for anything else
  local pd_text=${2#\$}
  if [[ $pd_text =~ ^\+?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$ ]]; then
    pd_text=$(LC_ALL=C awk -v n="$pd_text" 'BEGIN {
      if (n + 0 <= 0 || n + 0 > 1e300) exit
      for (d = 0; d <= 17; d++) { s = sprintf("%." d "f", n); if (s + 0 == n + 0) break }
      print s }')
  else
    pd_text=
  fi
  [[ -n $pd_text ]] && printf -v "$1" '%s' "$pd_text"
}

resolve_budget() {
  local text
  MAX_COST='' MAX_TOTAL_TOKENS='' MAX_TIME=''
  first_of text "$OPT_MAX_COST" '' max_cost ''
  [[ -z $text ]] || need_dollars MAX_COST "$text"
  [[ -z $OPT_MAX_TOTAL_TOKENS ]] || need_size MAX_TOTAL_TOKENS "$OPT_MAX_TOTAL_TOKENS"
  first_of text "$OPT_MAX_TIME" '' max_time ''
  [[ -z $text ]] || need_count MAX_TIME "$text" "number of seconds"
}

# The guard wakes this process once a second in a turn: when the time is over the turn ends as by an interrupt. (A signal
# of its own could meet the guard's, and bash loses one of two that come at once.)
on_wake() {
  ((++TRAPS))
  ((IN_TURN && !INTERRUPTED)) && time_over || return 0
  INTERRUPTED=1
  end_group "$MODEL_PID"
}

# What sub-agents have used since the last look.
take_children_usage() {
  local in out cr cc cost number=0
  [[ -s $RUN/children.used ]] || return 0
  while IFS=' ' read -r in out cr cc cost; do
    ((++number > CHILDREN_TAKEN)) || continue
    CHILDREN_TAKEN=$number
    RUN_IN=$((RUN_IN + in)) RUN_OUT=$((RUN_OUT + out)) RUN_CR=$((RUN_CR + cr)) RUN_CC=$((RUN_CC + cc))
    RUN_COSTS="$RUN_COSTS $cost"
  done <"$RUN/children.used"
}

run_cost() { # <result-var> [subtracted from]   dollars of this run
  printf -v "$1" '%s' "$(printf '%s\n' "$RUN_COSTS" | LC_ALL=C awk -v from="${2:-}" '
    { for (i = 1; i <= NF; i++) s += $i }
    END { if (from != "") { s = from - s; if (s < 0.000001) s = 0.000001 } printf "%.6f", s }')"
}

# Whether a limit of the run is reached; looked at before every model call. Sets LIMIT_REASON and LIMIT_TEXT.
limit_reached() {
  local used
  LIMIT_REASON=
  [[ -n $MAX_COST$MAX_TOTAL_TOKENS$MAX_TIME ]] || return 1
  take_children_usage
  if [[ -n $MAX_COST ]]; then
    run_cost used
    if [[ $(LC_ALL=C awk -v used="$used" -v most="$MAX_COST" 'BEGIN { print (used >= most + 0) }') == 1 ]]; then
      LIMIT_REASON=max_cost LIMIT_TEXT="Max cost (\$$MAX_COST) reached: \$$used used"
      return 0
    fi
  fi
  used=$((RUN_IN + RUN_OUT + RUN_CR + RUN_CC))
  if [[ -n $MAX_TOTAL_TOKENS ]] && ((used >= MAX_TOTAL_TOKENS)); then
    LIMIT_REASON=max_tokens_total LIMIT_TEXT="Max tokens ($MAX_TOTAL_TOKENS) reached: $used used"
    return 0
  fi
  time_over
}

time_over() {
  local now=$((SECONDS * 1000))
  [[ -n $MAX_TIME ]] || return 1
  ((HAS_CLOCK)) && now_ms now
  ((now - DEADLINE_FROM >= MAX_TIME * 1000)) || return 1
  LIMIT_REASON=max_time LIMIT_TEXT="Max time ($MAX_TIME s) reached"
}

# What is left for a child that starts now, as flags, one a line. A child of a run that used everything gets the least.
budget_flags() {
  local left now
  take_children_usage
  if [[ -n $MAX_COST ]]; then
    run_cost left "$MAX_COST"
    printf '%s\n' --max-cost "$left"
  fi
  if [[ -n $MAX_TOTAL_TOKENS ]]; then
    left=$((MAX_TOTAL_TOKENS - RUN_IN - RUN_OUT - RUN_CR - RUN_CC))
    printf '%s\n' --max-total-tokens $((left > 0 ? left : 1))
  fi
  if [[ -n $MAX_TIME ]]; then
    now_ms now
    left=$((MAX_TIME - (now - RUN_STARTED) / 1000))
    printf '%s\n' --max-time $((left > 0 ? left : 1))
  fi
  return 0
}

# Ends the turn with the limit's reason; the session can go on.
end_limited() {
  TURN_ERROR=$LIMIT_TEXT
  event_error "$LIMIT_TEXT"
  : >"$RUN/turn.text"
  end_turn "$LIMIT_REASON" 9
}

# The turn was interrupted: by its person, or because its time is over.
end_cancelled() {
  if ((!ENDING && !BY_PERSON)) && time_over; then
    INTERRUPTED=0
    end_turn_children
    end_limited
  else
    end_turn interrupted 130
  fi
}
