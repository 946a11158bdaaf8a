# schema.awk - tools.json -> the input schema of one tool, as it stands there. -v name=NAME
{ text = text $0 }
END {
    n = json_elements(text, tools)
    for (i = 1; i <= n; i++)
        if (json_string(json_member(tools[i], "name")) == name) printf "%s", json_member(tools[i], "input_schema")
}
