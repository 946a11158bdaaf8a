# compact_dp.awk - how many lines of a conversation a compaction keeps (CONTRACT section 9); twin of `core compact-choice`.
#
# Run      LC_ALL=C awk -v t=... -f compact_dp.awk conversation.jsonl          (needs no library; may be given them)
# Input    conversation.jsonl.
# Output   one number: the lines to keep, counted from the end; 0 = do not compact.
# -v       t=N current_turn_count (this turn counted), c=N compact_request_count, requests=N agent_request_count,
#          total_input=N, context=N current_context_tokens, M=N --max-context (200000),
#          trigger=auto|plan_confirm|plan_clear|manual (auto),
#          DP_P_INPUT DP_P_CACHE DP_P_OUT DP_V DP_S DP_L DP_BASELINE_E DP_E_FIXED DP_R DP_BETA DP_MIN_KEEP_RATIO
#          DP_QUALITY_PENALTY: by -v, else from the environment, else the defaults of the contract
# Time     one pass over the lines and one over their number.

BEGIN {
    Pi = setting("DP_P_INPUT", DP_P_INPUT, 3.0)
    Pc = setting("DP_P_CACHE", DP_P_CACHE, 0.30)
    Po = setting("DP_P_OUT", DP_P_OUT, 15.0)
    V = setting("DP_V", DP_V, 5000)
    S = setting("DP_S", DP_S, 500)
    L = setting("DP_L", DP_L, 0)
    baseline = setting("DP_BASELINE_E", DP_BASELINE_E, 8)
    E = setting("DP_E_FIXED", DP_E_FIXED, 0)
    decay = setting("DP_R", DP_R, 0.8, 1)
    beta = setting("DP_BETA", DP_BETA, 0.03)
    min_keep = setting("DP_MIN_KEEP_RATIO", DP_MIN_KEEP_RATIO, 0.25, 1)
    Q = setting("DP_QUALITY_PENALTY", DP_QUALITY_PENALTY, 0.2)
    if (M == "") M = 200000
    M += 0; t += 0; c += 0; requests += 0; total_input += 0; context += 0
    if (trigger == "") trigger = "auto"
    n = turns = T = 0
}
{
    n++
    size[n] = int((length($0) + 3) / 4) + 1
    T += size[n]
    # The only places where the window may be cut.
    turn[n] = index($0, "{\"role\":\"user\",\"content\":\"") == 1
    turns += turn[n]
}
END {
    keep = choice()
    if (!keep && (trigger != "auto" || context > 0.9 * M)) keep = last_turns(most(1, int(turns / 4 + 0.5)))
    printf "%.0f\n", keep
}

# A value by -v goes before one of the environment; what is no number, or below 0 or above `highest` (10^12), is no value.
function setting(name, value, fallback, highest) {
    if (highest == "") highest = 1000000000000
    if (good(value, highest)) return value + 0
    return good(ENVIRON[name], highest) ? ENVIRON[name] + 0 : fallback
}

function good(text, highest) {
    return text ~ /^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$/ && text + 0 >= 0 && text + 0 <= highest
}
function most(a, b) { return a > b ? a : b }

# The k of the largest benefit, its cut moved back to a user's turn; 0 when that is not worth it. The arithmetic is that
# of src/agent/compact_choice.rs, in the same order, so that both choose the same line.
function choice(   low, high, k, kept, value, best, best_k) {
    if (E <= 0) E = most(baseline - t, int(baseline / 2))
    if (L <= 0) L = t > 0 && requests > 0 ? most(requests / t, 1) : 5
    R = E * L
    avg = requests > 0 ? total_input / requests : 4000
    quality = most(power(decay, c + 1), 0.37)
    low = most(3, int(n * min_keep + 0.5))
    high = min_keep > 0.5 ? n : int(n * (1 - min_keep))
    kept = best_k = 0
    for (k = 1; k <= high; k++) {
        kept += size[n - k + 1]
        if (k < low) continue
        if (T - kept <= 0) break
        value = benefit(kept)
        if (!best_k || value > best) { best = value; best_k = k }
    }
    if (!best_k) return 0
    for (k = best_k; k <= n && !turn[n - k + 1]; k++) continue
    if (k > high) return 0
    kept = sum_of_last(k)
    return T - kept >= 20 * S && benefit(kept) > 0 ? k : 0
}

# Dollars won by keeping lines of so many tokens, times a million.
function benefit(kept,   gone, value) {
    gone = T - kept
    value = (R - 1) * Pc * gone - (S + kept) * (Pi - Pc) - (Pc * (V + gone) + Pi * 70 + Po * S)
    value -= beta * (1 - quality) * R * avg * Pi
    if (T > 0.3 * M) value += Q * Pi * ((V + T) * (V + T) - (V + kept) * (V + kept)) / M
    return value
}

# By multiplication: busybox awk may have no `^`.
function power(base, times,   value) {
    value = 1
    for (times = times > 10000 ? 10000 : times; times > 0; times--) value *= base
    return value
}

function sum_of_last(k,   i, sum) {
    sum = 0
    for (i = n - k + 1; i <= n; i++) sum += size[i]
    return sum
}

# Lines from the wanted-th last user's turn on; 0 when that would drop nothing.
function last_turns(wanted,   i) {
    for (i = n; i >= 1; i--) if (turn[i] && --wanted == 0) return i == 1 ? 0 : n - i + 1
    return 0
}
