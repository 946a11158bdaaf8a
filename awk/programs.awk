# programs.awk - what programs with rules of their own do with their arguments (a library of classify.awk): the twin of
# src/policy/classify/{programs,files,git,network,scripts}.rs, rule by rule.

function file_program(kind, name, args) {
    if (kind == "find" || kind == "fd") return find(kind, name, args)
    if (kind == "dd") return dd(args)
    if (kind == "tar") return tar(name, args)
    parse(args, name)
    if (kind == "copies") copies(name)
    else if (kind == "changes") each_path(has("reference") ? OPERANDS : rest_of(OPERANDS, 1), "write")
    else if (kind == "grep") grep(name)
    else if (kind == "sed") sed()
    else if (kind == "awk") awk()
    else if (kind == "sort") {
        each_path(OPERANDS, "read")
        paths_even_dash(values("o output"), "write")
        if (has("compress-program")) executes("runs another program")
    } else if (kind == "uniq") {
        each_path(nth(OPERANDS, 1), "read")
        each_path(rest_of(OPERANDS, 1), "write")
    } else if (kind == "split") {
        each_path(nth(OPERANDS, 1), "read")
        here("write")
        each_path(rest_of(OPERANDS, 1), "write")
        if (has("filter")) executes("runs another program")
    } else if (kind == "patch") {
        paths_even_dash(values("i input"), "read")
        here("write")
        each_path(OPERANDS, "write")
    } else if (kind == "zip") {
        each_path(nth(OPERANDS, 1), "write")
        each_path(rest_of(OPERANDS, 1), "read")
    } else if (kind == "unzip") {
        each_path(nth(OPERANDS, 1), "read")
        if (has("l p t v z")) return
        if (values("d") != "") path(nth(values("d"), 1), "write")
        else here("write")
    } else executes("runs code")
}

# As each_path, but `-` is a file too.
function paths_even_dash(list, verb,   words, n, i) {
    n = split(list, words, " ")
    for (i = 1; i <= n; i++) path(words[i], verb)
}

function copies(name,   operands, target, symbolic, n) {
    operands = OPERANDS
    if (name == "install" && has("d directory")) return each_path(operands, "write")
    target = nth(values("t target-directory"), 1)
    n = count_of(operands)
    if (target == "" && n > 1) {
        target = nth(operands, n)
        sub(/ [0-9]+$/, "", operands)
    }
    if (target != "") path(target, "write")
    else here("write")
    symbolic = name == "ln" && has("s symbolic")
    if (name == "mv") each_path(operands, "write")
    else if (!symbolic) each_path(operands, "read")
    # A hard link is the file itself: what writes to the one writes to the other.
    if (name == "ln" && !symbolic) each_path(operands, "write")
}

function dd(args,   words, n, i) {
    n = split(args, words, " ")
    for (i = 1; i <= n; i++) {
        if (TXT[words[i]] ~ /^if=/) path(word_from(words[i], 3), "read")
        else if (TXT[words[i]] ~ /^of=/) path(word_from(words[i], 3), "write")
        else if (!KNOWN[words[i]]) unknown("an operand is not known")
    }
}

function grep(name,   operands) {
    paths_even_dash(values("f file"), "read")
    operands = has("e regexp f file files") ? OPERANDS : rest_of(OPERANDS, 1)
    each_path(operands, "read")
    if (operands == "" && (has("r R recursive") || name ~ /^(rg|ag|ack)$/)) here("read")
    if (has("pre hostname-bin")) executes("runs another program")
}

function find(kind, name, args,   words, n, i, k, starts, text, next_one, start_list, count) {
    n = split(args, words, " ")
    starts = ""
    if (kind == "find") {
        for (i = 1; i <= n && TXT[words[i]] !~ /^[-(!)]/; i++) starts = starts " " words[i]
    } else {
        # The first operand is the pattern.
        parse(args, name)
        starts = rest_of(OPERANDS, 1)
    }
    if (starts == "") starts = known_word(".")
    each_path(starts, "read")
    count = split(starts, start_list, " ")
    for (i = 1; i <= n; i++) {
        text = TXT[words[i]]
        next_one = i < n ? words[i + 1] : ""
        if (text == "-delete") each_path(starts, "write")
        else if (text ~ /^-(fprint|fprint0|fprintf|fls)$/) each_path(next_one, "write")
        else if (text ~ /^-(newer|samefile|files0-from)$/) each_path(next_one, "read")
        else if (text ~ /^(-exec|-execdir|-ok|-okdir|-x|-X|--exec|--exec-batch)$/)
            for (k = 1; k <= count; k++) inner(found_command(words, i + 1, n, start_list[k]))
    }
}

function found_command(words, i, n, start,   out, text) {
    out = ""
    for (; i <= n; i++) {
        text = TXT[words[i]]
        if (text == ";" || text == "+") break
        if (text == "{}") out = out " " start
        else if (index(text, "{}")) out = out " " unknown_word()
        else out = out " " words[i]
    }
    return out
}

function tar(name, args,   words, dirs, archive) {
    # The first word may be options without a dash.
    split(args, words, " ")
    if (args != "" && TXT[words[1]] !~ /^-/) args = new_word("-" TXT[words[1]], KNOWN[words[1]], GLOB[words[1]]) rest_of(args, 1)
    parse(args, name)
    archive = values("f file")
    dirs = values("C directory")
    if (has("I use-compress-program to-command checkpoint-action rsh-command info-script F new-volume-script"))
        executes("runs another program")
    if (has("x extract get")) {
        each_path(archive, "read")
        if (has("O to-stdout")) ;
        else if (dirs == "") here("write")
        else each_path(dirs, "write")
        if (has("P absolute-names")) executes("writes wherever the archive says")
    } else if (has("t list")) each_path(archive, "read")
    else {
        each_path(archive, "write")
        each_path(dirs, "read")
        each_path(OPERANDS, "read")
    }
}

# ---- Little languages inside arguments

function sed(   scripts, from_file, operands, words, n, i, in_place) {
    scripts = values("e expression")
    from_file = has("f file")
    operands = OPERANDS
    if (scripts == "" && !from_file) {
        scripts = nth(operands, 1)
        operands = rest_of(operands, 1)
    }
    in_place = 0
    for (i = 1; i <= OPTIONS; i++) if (OPTION[i] == "i" || OPTION[i] ~ /^in-place/) in_place = 1
    n = split(scripts, words, " ")
    for (i = 1; i <= n; i++) {
        SED_READS = SED_WRITES = ""
        SED_RUNS = !KNOWN[words[i]] || !sed_script(TXT[words[i]])
        paths_even_dash(SED_READS, "read")
        paths_even_dash(SED_WRITES, "write")
        if (SED_RUNS) executes("the script can run commands")
    }
    if (from_file) executes("runs a script")
    each_path(operands, "read")
    if (in_place) each_path(operands, "write")
}

# What a sed script reads and writes, as lists of words; fails when it is not understood, or runs commands.
function sed_script(script) {
    SED = script
    while (SED != "") if (!sed_command()) return 0
    return 1
}

function sed_skip(pattern) { sub("^" pattern, "", SED) }

function sed_next(   c) {
    c = substr(SED, 1, 1)
    SED = substr(SED, 2)
    return c
}

function sed_line(   n, line) {
    n = index(SED, "\n")
    line = n ? substr(SED, 1, n - 1) : SED
    SED = n ? substr(SED, n + 1) : ""
    gsub(/^[ \t\r]+|[ \t\r]+$/, "", line)
    return line
}

# Up to the delimiter; a backslash hides the next character.
function sed_until(delimiter,   c) {
    while (SED != "") {
        c = sed_next()
        if (c == "\\") {
            if (sed_next() == "") return 0
        } else if (c == delimiter) return 1
    }
    return 0
}

function sed_address(   c) {
    c = substr(SED, 1, 1)
    if (c == "/" || c == "\\") {
        sed_next()
        if (c == "\\") c = sed_next()
        if (c == "" || !sed_until(c)) return 0
        sed_skip("[IM]*")
    } else sed_skip("[0-9$~+]*")
    return 1
}

function sed_command(   c, delimiter) {
    sed_skip("[ \t\r\n;}]*")
    if (SED == "") return 1
    if (!sed_address()) return 0
    sed_skip(" *")
    if (substr(SED, 1, 1) == ",") {
        sed_next()
        sed_skip(" *")
        if (!sed_address()) return 0
    }
    sed_skip("[ \t\r\n!]*")
    c = sed_next()
    if (c ~ /^[{=dDgGhHnNpPxzF]$/) ;
    else if (c ~ /^[#:btT]$/) {
        while (SED != "" && SED !~ /^[\n;}]/) sed_next()
    } else if (c ~ /^[qQlL]$/) sed_skip("[0-9 ]*")
    # A text goes on after a line that ends in a backslash.
    else if (c ~ /^[aic]$/) {
        while (sed_line() ~ /\\$/) ;
    } else if (c ~ /^[rR]$/) SED_READS = SED_READS " " known_word(sed_line())
    else if (c ~ /^[wW]$/) SED_WRITES = SED_WRITES " " known_word(sed_line())
    else if (c == "y" || c == "s") {
        delimiter = sed_next()
        if (delimiter == "" || !sed_until(delimiter) || !sed_until(delimiter)) return 0
        if (c == "s" && !sed_flags()) return 0
    } else return 0
    return 1
}

function sed_flags() {
    sed_skip("[gpiImM0-9]*")
    if (substr(SED, 1, 1) == "w") {
        sed_next()
        SED_WRITES = SED_WRITES " " known_word(sed_line())
        return 1
    }
    # `e` runs the result.
    return SED ~ /^([ \t\r\n;}]|$)/
}

function awk(   operands, program_word, words, n, i, files) {
    operands = OPERANDS
    if (has("f file i include E exec l load")) executes("runs a script")
    else if (operands != "") {
        program_word = nth(operands, 1)
        operands = rest_of(operands, 1)
        if (!KNOWN[program_word] || awk_program_runs(TXT[program_word])) executes("the program can write or run commands")
    }
    n = split(operands, words, " ")
    files = ""
    for (i = 1; i <= n; i++) if (!index(TXT[words[i]], "=")) files = files " " words[i]
    each_path(files, "read")
}

# What an awk program writes or runs is not followed.
function awk_program_runs(text,   out, n, statements, i, c) {
    out = ""
    while ((n = index(text, "\""))) {
        out = out substr(text, 1, n) "\""
        text = substr(text, n + 1)
        while (text != "") {
            c = substr(text, 1, 1)
            text = substr(text, c == "\\" ? 3 : 2)
            if (c == "\"") break
        }
    }
    out = out text
    if (out ~ /system|getline|@/) return 1
    n = split(out, statements, /[;{}\n]/)
    for (i = 1; i <= n; i++) if (statements[i] ~ /^[ \t\r]*print.*>/) return 1
    gsub(/\|\|/, "", out)
    return index(out, "|") > 0
}

# ---- git

function git(args,   words, n, i, text, outside) {
    n = split(args, words, " ")
    outside = CWD[L]
    for (i = 1; i <= n && (TXT[words[i]] ~ /^-/ || !KNOWN[words[i]]); i++) {
        text = TXT[words[i]]
        if (text == "-C" && i < n) change_directory(words[++i])
        else if (text ~ /^(-c|--config-env|--git-dir|--work-tree|--exec-path|--namespace)$/) {
            unknown("settings decide what git runs")
            i++
        } else if (text == "--version" || text == "--help") return
        else if (!KNOWN[words[i]] || index(text, "=")) unknown("settings decide what git runs")
    }
    if (i <= n) {
        if (KNOWN[words[i]]) git_command(TXT[words[i]], rest_of(args, i))
        else unknown("the git command is not known")
    }
    CWD[L] = outside
}

# Whether one of the words matches.
function any(args, pattern,   words, n, i) {
    n = split(args, words, " ")
    for (i = 1; i <= n; i++) if (TXT[words[i]] ~ pattern) return 1
    return 0
}

# Whether there are only flags that list: then nothing is changed.
function only_lists(command, args,   words, n, i, flags, text) {
    if (command == "branch") flags = "-a -r -v -vv --list -l --show-current --all"
    else if (command == "tag") flags = "-l --list -n"
    else if (command == "remote") flags = "-v show get-url"
    else flags = "list show -p"
    n = split(args, words, " ")
    if (command == "stash" && n == 0) return 0
    for (i = 1; i <= n; i++) {
        text = TXT[words[i]]
        if (!KNOWN[words[i]] || !(listed(flags, text) || text ~ /^--(sort|format)/)) return 0
    }
    return 1
}

function git_command(command, args,   kind) {
    kind = "git " command
    kind = (kind in KIND) ? KIND[kind] : ""
    if (kind == "git-reads") git_reads(args)
    else if (kind == "git-lists") {
        here("read")
        if (!only_lists(command, args)) here("write")
    } else if (kind == "git-writes") {
        here("read")
        here("write")
    } else if (kind == "git-config") git_config(args)
    else if (kind == "git-clone") git_clone(args)
    else if (kind == "git-fetches" || kind == "git-submodule") {
        need("0040", "fetches")
        here("write")
        if (kind == "git-submodule") executes("runs commands")
    } else if (kind == "git-sends") {
        need_both("sends")
        here("read")
    } else if (kind == "git-init") {
        parse(args, "git init")
        if (OPERANDS == "") here("write")
        each_path(OPERANDS, "write")
    } else if (kind == "git-exports" || kind == "git-places") {
        here("read")
        here("write")
        parse(args, "git " command)
        each_path(values("o output output-directory"), "write")
        if (kind == "git-places") each_path(nth(OPERANDS, 2), "write")
    } else if (kind == "git-rebase" && !any(args, "^(-x|--exec)") && all_known(args)) here("write")
    else executes("runs commands")
}

function all_known(args,   words, n, i) {
    n = split(args, words, " ")
    for (i = 1; i <= n; i++) if (!KNOWN[words[i]]) return 0
    return 1
}

function git_reads(args,   words, n, i) {
    here("read")
    n = split(args, words, " ")
    for (i = 1; i <= n; i++) if (TXT[words[i]] ~ /^--output=/) each_path(word_from(words[i], 9), "write")
    if (any(args, "^--no-index$")) {
        parse_by(args, "", "")
        each_path(OPERANDS, "read")
    }
    if (any(args, "^(-O|--open-files-in-pager|--ext-diff$)")) executes("runs another program")
}

function git_config(args) {
    if (any(args, "^(-l|--list|--get|--get-all|get|list)$")) here("read")
    else if (any(args, "^--global$")) each_path(HOME == "" ? unknown_word() : known_word(joined(HOME, ".gitconfig")), "write")
    else if (any(args, "^--system$")) system_need("works on the machine")
    else {
        here("write")
        executes("settings decide what git runs")
    }
}

function git_clone(args,   from, to) {
    parse(args, "git clone")
    if (has("c config u upload-pack template")) executes("settings decide what git runs")
    from = nth(OPERANDS, 1)
    if (from != "") {
        if (!KNOWN[from] || (index(TXT[from], ":") && TXT[from] !~ /^file:\/\//)) need("0040", "fetches")
        else path(word_from(from, TXT[from] ~ /^file:\/\// ? 7 : 0), "read")
    }
    to = nth(OPERANDS, 2)
    if (to != "") path(to, "write")
    else here("write")
}

# ---- The network

function curl(name, args,   urls, words, n, i, sends, fetches, verb) {
    parse(args, name)
    urls = OPERANDS values("url")
    n = split(urls, words, " ")
    fetches = 0
    for (i = 1; i <= n; i++) {
        if (TXT[words[i]] ~ /^file:\/\//) path(word_from(words[i], 7), "read")
        else fetches = 1
    }
    if (fetches) need("0040", "fetches")
    sends = "d data data-raw data-binary data-urlencode F form T upload-file json"
    n = split(values("X request"), words, " ")
    verb = 0
    for (i = 1; i <= n; i++) if (TXT[words[i]] !~ /^(GET|HEAD|OPTIONS)$/) verb = 1
    if (verb || has(sends)) need("0020", "sends")
    # `@file`, `name=@file`
    n = split(values(sends), words, " ")
    for (i = 1; i <= n; i++) if (index(TXT[words[i]], "@")) path(word_from(words[i], index(TXT[words[i]], "@")), "read")
    each_path(values("T upload-file K config"), "read")
    each_path(values("o output c cookie-jar D dump-header output-dir"), "write")
    if (has("O remote-name J remote-header-name")) here("write")
}

function wget(name, args) {
    parse(args, name)
    need("0040", "fetches")
    if (has("post-data post-file method body-data body-file")) need("0020", "sends")
    each_path(values("i post-file body-file"), "read")
    each_path(values("o a O output-document P directory-prefix"), "write")
    if (!has("O output-document P directory-prefix spider")) here("write")
}

function rsync(name, args,   words, n, i, local, remote, count) {
    parse(args, name)
    if (has("e rsh")) executes("runs another program")
    n = split(OPERANDS, words, " ")
    local = ""
    remote = 0
    for (i = 1; i <= n; i++) {
        if (index(TXT[words[i]], ":")) remote = 1
        else local = local " " words[i]
    }
    if (remote) need_both("uses the network")
    n = split(local, words, " ")
    if (n == 0) return
    for (i = 1; i < n; i++) each_path(words[i], "read")
    path(words[n], "write")
}

function packages(args,   words, n, i, word) {
    n = split(args, words, " ")
    word = ""
    for (i = 1; i <= n && word == ""; i++) if (TXT[words[i]] !~ /^-/ || length(TXT[words[i]]) == 2) word = words[i]
    if (word != "" && KNOWN[word] && TXT[word] ~ /^(list|search|show|info|policy|depends|-l|-L|-s|-S|-q|-Q|leaves)$/) return
    system_need("changes the machine's packages")
    need("0040", "fetches")
}

function builds(args,   words, n, i, first, second, count) {
    n = split(args, words, " ")
    first = second = ""
    count = 0
    for (i = 1; i <= n; i++) {
        if (TXT[words[i]] ~ /^[-+]/) continue
        if (++count == 1) first = TXT[words[i]]
        else if (count == 2) second = TXT[words[i]]
    }
    if (first ~ /^(install|i|ci|add|update|upgrade|fetch|get|download|search|view|audit|sync|login|require)$/ || (first == "mod" && second == "download"))
        need("0040", "fetches")
    if (first == "publish" || first == "push") need_both("publishes")
    executes("runs code")
}
