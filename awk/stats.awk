# stats.awk - reads and updates stats.json (CONTRACT section 6); the twin of `core stats update` and `core stats get`.
#
# Run      LC_ALL=C awk -f json.awk -f protocol.awk -v file=stats.json -v now=20260506-123456 -f stats.awk > stats.json.tmp
#          LC_ALL=C awk -f json.awk -f protocol.awk -v file=stats.json -v get='total_input_tokens last_updated' -f stats.awk
# Input    `key=value` and `key=+n` lines (not read with -v get).
# Output   the new file: one line. The caller holds state.lock around this and the rename. With -v get: one value a line,
#          strings without quotes, an empty line for a key that is not there.
# -v file=FILE   the old file; a missing or broken one counts from 0, which a line on stderr says
# -v now=TIME    YYYYMMDD-HHMMSS, local time, for last_updated
# -v get=KEYS    names separated by blanks
# Exit     2 when an update makes no sense (nothing is written then), 0 otherwise.

BEGIN {
    counters = split("current_turn_count agent_request_count compact_request_count sub_agent_request_count " \
        "total_input_tokens total_output_tokens total_cache_read_tokens total_cache_creation_tokens " \
        "current_context_tokens", order, " ")
    for (i = 1; i <= counters; i++) { is_counter[order[i]] = 1; value[order[i]] = "0" }
    order[counters + 1] = "last_updated"
    order[counters + 2] = "total_cost_usd"
    order[counters + 3] = "last_call_speed_tok_per_sec"
    keys_known = counters + 3
    decimals["total_cost_usd"] = 6
    decimals["last_call_speed_tok_per_sec"] = 1
    value["last_updated"] = "\"\""
    value["total_cost_usd"] = value["last_call_speed_tok_per_sec"] = 0
    keys = keys_known
    load()
    if (get != "") {
        n = split(get, wanted, " ")
        for (i = 1; i <= n; i++) print json_is_string(value[wanted[i]]) ? json_string(value[wanted[i]]) : shown(wanted[i])
        exit
    }
    if (now != "") value["last_updated"] = json_quote(now)
    # Values change only when all updates were read and make sense.
    updates = 0
}
{ if ($0 != "") line[++updates] = $0 }
END {
    if (get != "") exit
    for (i = 1; i <= updates; i++) if (!update(line[i])) exit 2
    out = "{"
    for (i = 1; i <= keys; i++) out = out (i > 1 ? "," : "") json_quote(order[i]) ":" shown(order[i])
    printf "%s}\n", out
}

function load(   text, part, n, got, names, raws, i, key, bad) {
    n = 0
    while ((got = (getline text < file)) > 0) part[++n] = text "\n"
    if (got < 0) {
        note(file " is missing: its counts start from 0")
        return
    }
    close(file)
    if (!n) return
    text = join_pieces(part, 1, n)
    n = json_valid(text) ? json_members(text, names, raws) : -1
    if (n < 0) {
        note(file " is broken: its counts start from 0")
        return
    }
    for (i = 1; i <= n; i++) {
        key = names[i]
        if (key in is_counter) {
            if (raws[i] ~ /^[0-9]+$/ && !too_large(raws[i])) value[key] = plain(raws[i])
            else bad = bad (bad == "" ? "" : ", ") key
        } else if (key in decimals) {
            if (raws[i] ~ /^[0-9]/) value[key] = raws[i] + 0
            else bad = bad (bad == "" ? "" : ", ") key
        } else if (key == "last_updated") value[key] = json_quote(json_string(raws[i]))
        else set_extra(key, raws[i])
    }
    if (bad != "") note(file " holds no usable " bad ": counted from 0")
}

function set_extra(key, raw) {
    if (!(key in is_extra)) order[++keys] = key
    is_extra[key] = 1
    value[key] = raw
}

# The value of a key as JSON: dollars and speeds are rounded only here.
function shown(key) { return key in decimals ? sprintf("%." decimals[key] "f", value[key]) : value[key] }

function note(text) { complain(text) }

function update(text,   at, key, new, adds, kind) {
    at = index(text, "=")
    if (!at) return refuse(text, "it is not KEY=VALUE or KEY=+N")
    key = substr(text, 1, at - 1)
    if (key == "") return refuse(text, "the key is empty")
    new = substr(text, at + 1)
    adds = substr(new, 1, 1) == "+"
    if (adds) new = substr(new, 2)
    kind = kind_of(new)
    if (kind == "" && (adds || key in is_counter || key in decimals)) return refuse(text, "it is not a number that is zero or more")
    if (key in is_counter && kind != "int") return refuse(text, "a counter takes whole numbers")
    if (key == "last_updated") {
        if (adds) return refuse(text, "a time cannot be added to")
        value[key] = json_quote(new)
    } else if (key in is_counter) value[key] = adds ? sum(value[key], new) : plain(new)
    else if (key in decimals) value[key] = adds ? value[key] + new : new + 0
    else if (kind == "") set_extra(key, json_quote(adds ? "+" new : json_clean(new)))
    else if (!adds || kind_of(value[key]) == "") set_extra(key, kind == "int" ? plain(new) : shortest(new))
    else if (kind == "int" && kind_of(value[key]) == "int") set_extra(key, sum(value[key], new))
    else set_extra(key, sprintf("%.6f", value[key] + new))
    return 1
}

function refuse(text, why) {
    note("bad stats update " json_quote(json_clean(text)) ": " why)
    return 0
}

function kind_of(text) {
    if (text ~ /^[0-9]+$/) return too_large(text) ? "" : "int"
    return text ~ /^[0-9]+\.?[0-9]*([eE][+-]?[0-9]+)?$/ ? "float" : ""
}

# ---- Counters are 64-bit; the numbers of awk are exact up to 2^53, so larger ones are added in two parts.

function plain(digits) {
    if (digits ~ /^0/) sub(/^0+/, "", digits)
    return digits == "" ? "0" : digits
}

function too_large(digits) {
    digits = plain(digits)
    return length(digits) > 20 || (length(digits) == 20 && "x" digits > "x18446744073709551615")
}

function sum(a, b,   low, high) {
    a = plain(a); b = plain(b)
    if (length(a) < 15 && length(b) < 15) return sprintf("%.0f", a + b)
    low = tail(a) + tail(b)
    high = head(a) + head(b)
    if (low >= 1000000000000) { low -= 1000000000000; high++ }
    a = sprintf("%.0f%012.0f", high, low)
    return too_large(a) ? "18446744073709551615" : plain(a)
}

function tail(digits) { return length(digits) > 12 ? substr(digits, length(digits) - 11) + 0 : digits + 0 }
function head(digits) { return length(digits) > 12 ? substr(digits, 1, length(digits) - 12) + 0 : 0 }

# A number with as few digits as keep its value.
function shortest(number,   digits, text) {
    for (digits = 1; digits <= 17; digits++) {
        text = sprintf("%." digits "g", number)
        if (text + 0 == number + 0) break
    }
    return text ~ /[eE]/ ? sprintf("%.0f", number) : text
}
