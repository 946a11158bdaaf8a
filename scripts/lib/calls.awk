# calls.awk - the calls of a response (response.awk's files) -> what the tools need, and TOOL_CALL messages.
#
# Input    DIR/calls: id TAB name TAB broken; DIR/input.N.
# Output   TOOL_CALL frames.
# -v dir=DIR       where they are; for call N it writes
#   DIR/args.N     lines KEY TAB KIND TAB VALUE, line-escaped; KIND s string, n number, o anything else
#   DIR/text.N     the member `content` (Write), without an end mark
#   DIR/edit.N     one frame with the members old_string and new_string (Edit)
#   DIR/todo.N     `ok SUMMARY` or `error WORDS`, then the checklist (TodoWrite)
BEGIN { FS = "\t" }
{
    name = line_unescape($2)
    input = ""
    file = dir "/input." NR
    while ((getline line < file) > 0) input = input line
    close(file)
    n = json_members(input, keys, raws)
    emit_tool_call(name, line_unescape($1), input)
    file = dir "/args." NR
    printf "" > file
    had_old = had_new = 0
    for (i = 1; i <= n; i++) {
        if (raws[i] == "null") continue
        is_text = json_is_string(raws[i])
        text = is_text ? json_string(raws[i]) : raws[i]
        kind = is_text ? "s" : raws[i] ~ /^-?[0-9]/ ? "n" : "o"
        if (keys[i] == "content" || keys[i] == "old_string" || keys[i] == "new_string") {
            value[keys[i]] = text
            if (keys[i] == "content" && is_text) { printf "%s", text > (dir "/text." NR); close(dir "/text." NR) }
            # Long and in a file: here only whether it is empty.
            text = text == "" ? "" : "x"
        }
        printf "%s\t%s\t%s\n", line_escape(keys[i]), kind, line_escape(text) > file
    }
    close(file)
    if (name == "Edit") {
        frame[1] = value["old_string"]
        frame[2] = value["new_string"]
        printf "%s", resp_frame(frame, 2) > (dir "/edit." NR)
        close(dir "/edit." NR)
    } else if (name == "TodoWrite") {
        printf "%s", todo(json_member(input, "todos")) > (dir "/todo." NR)
        close(dir "/todo." NR)
    }
    delete value["old_string"]
    delete value["new_string"]
}

function todo(list,   n, items, i, out, done, content, status, bad) {
    bad = "error todos must be a list of objects with content and status\n"
    if (list == "" || list == "null") return "error no todos provided\n"
    # Some models send the list as a string that holds it.
    if (json_is_string(list)) list = json_string(list)
    n = json_elements(list, items)
    if (n < 0) return bad
    for (i = 1; i <= n; i++) {
        content = json_member(items[i], "content")
        if (!json_is_string(content)) return bad
        content = json_string(content)
        gsub(/[ \t\r\n\f\v]+/, " ", content)
        gsub(/^ | $/, "", content)
        status = json_string(json_member(items[i], "status"))
        if (status == "completed") done++
        else if (status != "" && status != "pending" && status != "in_progress")
            return "error unknown status \"" status "\"; use pending, in_progress or completed\n"
        out = out (i > 1 ? "\n" : "") "- [" (status == "completed" ? "x" : " ") "] " content
    }
    return "ok " (done + 0) "/" n "\n" out
}
