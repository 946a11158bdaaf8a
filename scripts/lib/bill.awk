# bill.awk - rows of models.awk (-v rows) -> the bill that `cost` prints: a table, or with -v json=1 one object.
#
# Input    kind, model, calls, input, output, cache read, cache creation, dollars, dollars without a cache, 1 when the price
#          is known; separated by TAB, in the order of kind and model; "compaction" rows: what it saved.
BEGIN { FS = "\t"; rows = compactions = compaction_saved = 0 }
$1 == "compaction" { compactions += $3; compaction_saved += $8; next }
{
    rows++
    kind[rows] = $1; model[rows] = $2
    add(rows, 3)
    add("total", 3)
    known[rows] = $10
}
END {
    if (json) {
        printf "{\"rows\":["
        for (i = 1; i <= rows; i++) {
            printf "%s{\"kind\":%s,\"model\":%s,", (i > 1 ? "," : ""), json_quote(json_clean(kind[i])), json_quote(json_clean(model[i]))
            figures(i)
            printf ",\"price_known\":%s}", (known[i] ? "true" : "false")
        }
        printf "],\"total\":{"
        figures("total")
        printf ",\"compactions\":%.0f,\"saved_by_compaction_usd\":%s}}\n", compactions, money(compaction_saved)
        exit
    }
    print "KIND       MODEL                     CALLS        INPUT     OUTPUT   CACHE READ  CACHE WRITE  HIT %       COST $      SAVED $"
    for (i = 1; i <= rows; i++) row(i, kind[i], model[i])
    row("total", "total", "")
    if (compactions) printf "compactions: %.0f; they saved about $%s on top\n", compactions, money(compaction_saved)
}

function add(i, at) {
    asked[i] += $at; t_in[i] += $(at + 1); t_out[i] += $(at + 2); t_read[i] += $(at + 3); t_write[i] += $(at + 4)
    dollars[i] += $(at + 5)
    saved[i] += $(at + 6) - $(at + 5)
}

function figures(i) {
    printf "\"calls\":%.0f,\"input_tokens\":%.0f,\"output_tokens\":%.0f,\"cache_read_input_tokens\":%.0f,\"cache_creation_input_tokens\":%.0f,\"cache_hit_percent\":%.1f,\"cost_usd\":%s,\"saved_by_cache_usd\":%s", \
        asked[i], t_in[i], t_out[i], t_read[i], t_write[i], rate(i), money(dollars[i]), money(saved[i])
}

function row(i, name, of) {
    printf "%s %s %6.0f %12.0f %10.0f %12.0f %12.0f %6.1f %12s %12s\n", padded(name, 10), padded(of, 24), asked[i], t_in[i], t_out[i], \
        t_read[i], t_write[i], rate(i), money(dollars[i]), money(saved[i])
}

function padded(text, width,   n, plain) {
    plain = text
    n = width - gsub(/[^\200-\277]/, "", plain)
    return text (n > 0 ? sprintf("%" n "s", "") : "")
}

# Percent of all input tokens that were read from the cache.
function rate(i,   all) {
    all = t_in[i] + t_read[i] + t_write[i]
    return all ? 100 * t_read[i] / all : 0
}

function money(amount) { return amount > -0.0000005 && amount < 0.0000005 ? "0.000000" : sprintf("%.6f", amount) }
