# models.awk - what models.json says of a model, and what its tokens cost (PROVIDERS.md; the twin of src/model/catalog.rs).
#
# Run      LC_ALL=C awk -f json.awk -f protocol.awk -v model=ID -f models.awk models.json [~/.bash-agent/models.json]
# Input    JSON objects `{"<model>": {"context", "max_output", "price": {...}, "thinking", "disable", "vision"}, ...}`; a later file is
#          laid over the earlier ones member by member. A missing file is none.
# Output   one line of words: context max_output thinking_kind disable vision, `-` for what is not known.
#          -v usage='IN OUT CACHE_READ CACHE_CREATION': the price of these tokens in dollars, 0 when it is not known.
#          -v rows=FILE: lines KIND MODEL CALLS IN OUT CACHE_READ CACHE_CREATION, separated by TAB; each gets three more
#          fields: its price, its price without a cache, and 1 when the price is known.
# Exit     1: a file is no such object (stderr names it).
#
# A model is found by its name, without a date, a tag or `-latest` behind it, or without a vendor's prefix (`vendor/...`).

BEGIN {
    failed = 0
    for (i = 1; i < ARGC; i++) {
        text = ""
        while ((getline line < ARGV[i]) > 0) text = text line "\n"
        close(ARGV[i])
        if (text != "") overlay(ARGV[i], text)
    }
    if (failed) exit 1
    if (rows != "") {
        while ((getline line < rows) > 0) priced(line)
        exit
    }
    name = find(model)
    if (usage == "") {
        print word("context") " " word("max_output") " " word("thinking") " " word("disable") " " word("vision")
        exit
    }
    split(usage, count, " ")
    printf "%.12f\n", dollars(count[1], count[2], count[3], count[4])
}

function dollars(in_, out, read, write,   p_read, p_write, p_in) {
    p_read = price("cache_read")
    p_write = price("cache_write")
    p_in = price("input")
    if (p_read == "") p_read = p_in * 0.1
    if (p_write == "") p_write = p_in * 1.25
    return (p_in * in_ + price("output") * out + p_read * read + p_write * write) / 1000000
}

function priced(line,   f) {
    split(line, f, "\t")
    name = find(f[2])
    printf "%s\t%.12f\t%.12f\t%.0f\n", line, dollars(f[4], f[5], f[6], f[7]), dollars(f[4] + f[6] + f[7], f[5], 0, 0), (price("input") != "")
}

function overlay(file, text,   keys, raws, n, i) {
    n = json_members(text, keys, raws)
    if (n < 0) {
        failed = 1
        complain(file ": not a JSON object")
        return
    }
    for (i = 1; i <= n; i++) {
        known[keys[i]] = 1
        members(keys[i], raws[i])
    }
}

function members(model, text,   keys, raws, n, i, parts, values, k, j) {
    n = json_members(text, keys, raws)
    for (i = 1; i <= n; i++) {
        if (keys[i] != "price") value[model, keys[i]] = json_is_string(raws[i]) ? json_string(raws[i]) : raws[i]
        else {
            k = json_members(raws[i], parts, values)
            for (j = 1; j <= k; j++) value[model, "price." parts[j]] = values[j]
        }
    }
}

function find(model,   name, at, suffix) {
    name = model
    for (;;) {
        if (name in known) return name
        if (!match(name, /[-@:][^-@:]*$/)) break
        suffix = substr(name, RSTART)
        if (suffix !~ /^:/ && suffix != "-latest" && suffix != "@latest" && suffix !~ /^[-@][0-9][0-9][0-9][0-9][0-9][0-9]+$/) break
        name = substr(name, 1, RSTART - 1)
    }
    at = index(model, "/")
    return at ? find(substr(model, at + 1)) : ""
}

function word(key) { return (name, key) in value && value[name, key] != "null" ? value[name, key] : "-" }
function price(key) { return (name, "price." key) in value && value[name, "price." key] != "null" ? value[name, "price." key] + 0 : "" }
