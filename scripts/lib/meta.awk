# meta.awk - session.json -> `key=value` lines; texts stay bodies of JSON strings, members of others come as one `extra`.
{ text = text $0 "\n" }
END {
    n = json_members(text, keys, raws)
    for (i = 1; i <= n; i++) {
        key = keys[i]
        if (key ~ /^(cwd|created|provider|model)$/) print key "=" (json_is_string(raws[i]) ? json_escape(json_string(raws[i])) : "")
        else if (key == "thinking_from" || key == "results_from") print key "=" (raws[i] ~ /^[0-9]+$/ ? raws[i] : 0)
        else if (key !~ /^(runtime|version)$/) extra = extra "," json_quote(key) ":" raws[i]
    }
    gsub(/\n/, " ", extra)
    if (n >= 0) print "extra=" extra
}
