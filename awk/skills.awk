# skills.awk - SKILL.md files -> the skill index, a list, or one skill's text (CONTRACT section 10; src/tools/skills.rs).
#
# Run      LC_ALL=C awk -f json.awk -f protocol.awk -f skills.awk FILE ...
# Input    the SKILL.md files as arguments, in the order of their places (of equal names the first wins); the caller has
#          left out what may not be read. Of each at most the first 16 KiB are looked at.
# Output   `- NAME: DESCRIPTION` lines, by the bytes of the name. NAME is the directory's, DESCRIPTION the front matter's,
#          else the first line of text; on one line.
# -v notes=FILE   sentences for the user about skills without a description of their own are written there, one a line
# -v list=1    NAME TAB DIRECTORY TAB DESCRIPTION instead, line-escaped
# -v body=1 -v as=DIR   the one file's text for the model: `Base directory: DIR`, an empty line, the text without front
#              matter and without empty lines around it, ${BASH_AGENT_SKILL_DIR} replaced

BEGIN {
    for (i = 1; i < ARGC; i++) {
        file = ARGV[i]
        text = read_head(file, body ? 1048576 : 16384)
        if (substr(text, 1, 3) == "\357\273\277") text = substr(text, 4)
        front_matter(text)
        if (body) {
            load_text(as)
            exit
        }
        dir = file
        sub(/\/[^\/]*$/, "", dir)
        name = dir
        sub(/.*\//, "", name)
        if (name in described) continue
        names[++n] = name
        described[name] = describe()
        has_front[name] = DESCRIBED
        place[name] = dir
    }
    sort_names()
    for (i = 1; i <= n; i++) {
        name = names[i]
        if (list) print line_escape(name) "\t" line_escape(place[name]) "\t" line_escape(described[name])
        else {
            print "- " name (described[name] == "" ? "" : ": " described[name])
            if (notes != "" && !has_front[name]) print place[name] "/SKILL.md: no `description:` between two `---` lines; the skill index shows " \
                (described[name] == "" ? "only its name" : "its first line") > notes
        }
    }
}

# By bytes: a letter before the string keeps it from being compared as a number.
function sort_names(   i, j, t) {
    for (i = 2; i <= n; i++) {
        t = names[i]
        for (j = i - 1; j > 0 && "x" names[j] > "x" t; j--) names[j + 1] = names[j]
        names[j + 1] = t
    }
}

function read_head(file, most,   line, p, k, sum) {
    k = sum = 0
    while (sum < most && (getline line < file) > 0) {
        p[++k] = line "\n"
        sum += length(line) + 1
    }
    close(file)
    return json_clean(substr(join_pieces(p, 1, k), 1, most))
}

# Sets FRONT, the lines between two `---` at the beginning, and BODY, what follows; no such lines: all is BODY.
function front_matter(text,   rest, at, line, end) {
    FRONT = ""
    BODY = text
    if (text !~ /^---[ \r]*\n/) return
    rest = substr(text, index(text, "\n") + 1)
    at = 1
    while (at <= length(rest)) {
        end = index(substr(rest, at), "\n")
        line = end ? substr(rest, at, end - 1) : substr(rest, at)
        sub(/[ \t\r]+$/, "", line)
        if (line == "---" || line == "...") {
            FRONT = substr(rest, 1, at - 1)
            BODY = end ? substr(rest, at + end) : ""
            return
        }
        if (!end) return
        at += end
    }
}

function describe(   text, l, n, i, line) {
    text = field("description")
    DESCRIBED = text != ""
    if (DESCRIBED) return text
    n = split(BODY, l, /\n/)
    for (i = 1; i <= n; i++) {
        line = l[i]
        sub(/^#+/, "", line)
        line = one_line(line)
        if (line != "") return line
    }
    return ""
}

# A top-level field of simple YAML: plain, quoted, folded over indented lines, or a block (`>`, `|`).
function field(key,   l, n, i, value, bare) {
    n = split(FRONT, l, /\n/)
    for (i = 1; i <= n; i++) if (l[i] ~ "^" key "[ \t]*:") break
    if (i > n) return ""
    value = substr(l[i], index(l[i], ":") + 1)
    gsub(/^[ \t\r]+|[ \t\r]+$/, "", value)
    bare = value
    sub(/[-+]+$/, "", bare)
    if (bare == ">" || bare == "|") value = ""
    for (i++; i <= n && (l[i] ~ /^[ \t\r]*$/ || l[i] ~ /^[ \t]/); i++) value = value " " l[i]
    gsub(/^[ \t\r]+|[ \t\r]+$/, "", value)
    if (value ~ /^".*"$/ && length(value) > 1) {
        value = substr(value, 2, length(value) - 2)
        gsub(/\\"/, "\"", value)
        gsub(/\\\\/, "\\", value)
    } else if (value ~ /^'.*'$/ && length(value) > 1) {
        value = substr(value, 2, length(value) - 2)
        gsub(/''/, "'", value)
    }
    return one_line(value)
}

function one_line(text) {
    gsub(/[ \t\r\n\013\014]+/, " ", text)
    sub(/^ /, "", text)
    sub(/ $/, "", text)
    return text
}

function load_text(dir,   text, mark, at, n, from) {
    text = BODY
    while (substr(text, 1, 1) == "\n") text = substr(text, 2)
    for (n = length(text); n && substr(text, n, 1) == "\n"; n--) continue
    text = substr(text, 1, n)
    mark = "${BASH_AGENT_SKILL_DIR}"
    printf "Base directory: %s\n\n", dir
    while (at = index(text, mark)) {
        printf "%s%s", substr(text, 1, at - 1), dir
        text = substr(text, at + length(mark))
    }
    printf "%s", text
}
