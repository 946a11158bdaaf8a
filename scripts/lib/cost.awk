# cost.awk - session directories (one a line) -> what their `usage` events add up to, one line a kind and model (twin of
# src/cli/control/cost.rs): kind, model, calls, input, output, cache read, cache creation, separated by TAB; and lines of
# the kind "compaction": model, how often the window was compacted, and what that saved, as tokens to be priced.
#
# A compaction that took D tokens out of the window saves D tokens read from the cache in every later call. In the first
# call after it the window was not in the cache as a whole: what its input cost counts against what the old window would
# have cost, read from the cache; and so does the summary call.
{
    dir = $0
    session_model = model_of(dir "/session.json")
    before = dropped = pending = 0
    file = dir "/events.jsonl"
    while ((getline line < file) > 0) {
        if (index(line, "{\"type\":\"usage\"") == 1) usage(line)
        else if (index(line, "{\"type\":\"context_update\"") == 1) pending++
    }
    close(file)
}
END {
    for (key in asked) printf "%s\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\n", key, asked[key], t_in[key], t_out[key], t_read[key], t_write[key]
    for (key in s_read) printf "compaction\t%s\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\n", key, s_calls[key], s_in[key], s_out[key], s_read[key], s_write[key]
}

function model_of(file,   text, l) {
    while ((getline l < file) > 0) text = text l
    close(file)
    return json_string(json_member(text, "model"))
}

function usage(line,   n, keys, raws, i, kind, model, key, in_, out, read, write, all) {
    n = json_members(line, keys, raws)
    kind = "agent"
    model = session_model
    in_ = out = read = write = 0
    for (i = 1; i <= n; i++) {
        if (keys[i] == "input_tokens") in_ = count(raws[i])
        else if (keys[i] == "output_tokens") out = count(raws[i])
        else if (keys[i] == "cache_read_input_tokens") read = count(raws[i])
        else if (keys[i] == "cache_creation_input_tokens") write = count(raws[i])
        else if (keys[i] == "kind" && json_is_string(raws[i])) kind = json_string(raws[i])
        else if (keys[i] == "model" && json_is_string(raws[i])) model = json_string(raws[i])
    }
    if (n < 0) return
    gsub(/[\001-\037\177]/, "", kind)
    gsub(/[\001-\037\177]/, "", model)
    key = kind "\t" model
    asked[key]++; t_in[key] += in_; t_out[key] += out; t_read[key] += read; t_write[key] += write
    if (kind == "compact") saves(model, -in_, -out, -read, -write)
    if (kind != "agent") return
    all = in_ + read + write
    if (pending) {
        if (before > all) dropped += before - all
        saves(model, -in_, 0, all + dropped - read, -write)
        s_calls[model] += pending
        pending = 0
    } else if (dropped) saves(model, 0, 0, dropped, 0)
    before = all + out
}

function saves(model, in_, out, read, write) {
    s_in[model] += in_; s_out[model] += out; s_read[model] += read; s_write[model] += write
}

function count(raw) { return raw ~ /^[0-9]+$/ ? raw + 0 : 0 }
