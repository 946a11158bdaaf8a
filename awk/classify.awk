# classify.awk - what a command needs, as far as it can be told before it runs; with scripts/lib/policy.sh, which knows
# where paths lead, the twin of `core classify`.
#
# Run      LC_ALL=C awk -f shell.awk -f programs.awk -v table=programs.tsv -f classify.awk < command
# Input    a command, as `bash -c` would run it.
# Output   a line for each part that needs something, in the order of the command, fields separated by \037:
#            need MODE PART WHY          four octal digits
#            path read|write PATH PART   an absolute path that is read or written (a line feed in it is \036)
#            run DIRECTORY PART WHY      code runs there
# Environment   C_CWD, C_HOME, C_TMP: the working directory, the home ("" = none) and the session's TMPDIR ("" = none);
#          C_RUNTIME: what every program may read, a path a line
# Exit     0; 1 when the table cannot be read.
# What cannot be known counts as execute in the workspace.

BEGIN {
    read_table()
    shell_setup()
    CWD[1] = ENVIRON["C_CWD"]
    HOME = ENVIRON["C_HOME"]
    TMP = ENVIRON["C_TMP"]
    runtimes = split(ENVIRON["C_RUNTIME"], RUNTIME, "\n")
    split("/dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty /dev/stdout /dev/stderr /dev/stdin", free, " ")
    for (i in free) FREE[free[i]] = 1
}
{ text = text (NR > 1 ? "\n" : "") $0 }
END {
    if (failed) exit 1
    command_text(text)
}

function read_table(   line, got, field, names, n, i, name, letters) {
    while ((got = (getline line < table)) > 0) {
        if (line == "" || line ~ /^#/) continue
        split(line, field, "\t")
        n = split(field[2], names, " ")
        for (i = 1; i <= n; i++) {
            name = names[i]
            letters = field[3]
            # `:` itself is a program.
            if (length(name) > 1 && index(name, ":")) {
                letters = substr(name, index(name, ":") + 1)
                name = substr(name, 1, index(name, ":") - 1)
            }
            if (field[1] ~ /^git-/) name = "git " name
            KIND[name] = field[1]
            SHORT[name] = letters
            LONG[name] = " " field[4] " "
        }
    }
    if (got < 0) {
        print "cannot read " table | "cat 1>&2"
        failed = 1
        exit 1
    }
}

# ---- What is needed

function need(mode, why) { printf "need\037%s\037%s\037%s\n", mode, printable(PART), why }

# Something that only running it can tell.
function unknown(why) { need("0001", why) }

# Code runs in the working directory.
function executes(why) {
    if (CWD[L] == "") unknown(why)
    else printf "run\037%s\037%s\037%s\n", printable(CWD[L]), printable(PART), why
}

function system_need(why) { need("3000", why) }

function printable(text) {
    gsub(/\n/, "\036", text)
    gsub(/[\001-\006\016-\035\037]/, "?", text)
    return text
}

function known_directory(word,   certain, slash) {
    if (!GLOB[word] && KNOWN[word]) {
        DIRECTORY = TXT[word]
        return 1
    }
    certain = GLOB[word] ? substr(TXT[word], 1, GLOB[word] - 1) : TXT[word]
    slash = last_index(certain, "/")
    if (slash) DIRECTORY = slash == 1 ? "/" : substr(certain, 1, slash - 1)
    # A pattern without a slash stays where it is; an unknown word can lead anywhere.
    else if (KNOWN[word]) DIRECTORY = "."
    else return 0
    return 1
}

function joined(dir, name) {
    if (name !~ /^\//) name = dir "/" name
    while (name ~ /\/\.?\//) {
        gsub(/\/\/+/, "/", name)
        gsub(/\/\.\//, "/", name)
    }
    if (length(name) > 1) sub(/\/\.$/, "", name)
    if (length(name) > 1) sub(/\/$/, "", name)
    return name == "" ? "/" : name
}

# A word that is a path, `read` or written (`write`).
function path(word, verb,   place) {
    if (TXT[word] ~ /^\/dev\/(tcp|udp)\//) return need("0060", "connects")
    if (!known_directory(word)) return need(verb == "read" ? "0005" : "0003", verb "s what is not known")
    if (!KNOWN[word]) unknown(verb "s what is not known")
    if (DIRECTORY ~ /^\//) place = joined("", DIRECTORY)
    else if (CWD[L] != "") place = joined(CWD[L], DIRECTORY)
    else return unknown("the directory is not known")
    if ((place in FREE) || place ~ /^\/dev\/fd(\/|$)/) return
    if (verb == "read" && is_own_process(place)) return
    printf "path\037%s\037%s\037%s\n", verb, printable(place), printable(PART)
}

# /proc/self and what is private in it, but no way through it to elsewhere.
function is_own_process(place) {
    if (place == "/proc/self") return 1
    if (place !~ /^\/proc\/self\// || place ~ /\/\.\.(\/|$)/) return 0
    return place !~ /^\/proc\/self\/(root|cwd|fd|task|map_files|exe|mem)(\/|$)/
}

function each_path(list, verb,   words, n, i) {
    n = split(list, words, " ")
    for (i = 1; i <= n; i++) if (TXT[words[i]] != "-" || !KNOWN[words[i]]) path(words[i], verb)
}

# The working directory itself.
function here(verb) { path(known_word("."), verb) }

# ---- Arguments

function rest_of(list, count,   words, n, i, out) {
    n = split(list, words, " ")
    out = ""
    for (i = count + 1; i <= n; i++) out = out " " words[i]
    return out
}

function nth(list, i,   words) {
    return i <= split(list, words, " ") ? words[i] : ""
}

function count_of(list,   words) { return split(list, words, " ") }

function listed(names, name) { return name != "" && index(" " names " ", " " name " ") > 0 }

# Takes arguments apart as the table says for this program: OPTION[i], VALUE[i] (0 = none) for i = 1…OPTIONS, and OPERANDS.
function parse(list, name) { parse_by(list, SHORT[name], LONG[name]) }

function parse_by(list, short, long,   words, n, i, k, text, letter, at_it) {
    OPTIONS = 0
    OPERANDS = ""
    n = split(list, words, " ")
    for (i = 1; i <= n; i++) {
        text = TXT[words[i]]
        if (text == "--" && KNOWN[words[i]]) {
            while (++i <= n) OPERANDS = OPERANDS " " words[i]
        } else if (text ~ /^--/) {
            at_it = index(text, "=")
            OPTION[++OPTIONS] = at_it ? substr(text, 3, at_it - 3) : substr(text, 3)
            VALUE[OPTIONS] = 0
            if (at_it) VALUE[OPTIONS] = word_from(words[i], at_it)
            else if (listed(long, OPTION[OPTIONS]) && i < n) VALUE[OPTIONS] = words[++i]
        } else if (text ~ /^-./) {
            for (k = 2; k <= length(text); k++) {
                letter = substr(text, k, 1)
                OPTION[++OPTIONS] = letter
                VALUE[OPTIONS] = 0
                if (index(short, letter)) {
                    if (k < length(text) || !KNOWN[words[i]]) VALUE[OPTIONS] = word_from(words[i], k)
                    else if (i < n) VALUE[OPTIONS] = words[++i]
                    break
                }
            }
        } else OPERANDS = OPERANDS " " words[i]
    }
}

function has(names,   i) {
    for (i = 1; i <= OPTIONS; i++) if (listed(names, OPTION[i])) return 1
    return 0
}

function values(names,   i, out) {
    out = ""
    for (i = 1; i <= OPTIONS; i++) if (VALUE[i] && listed(names, OPTION[i])) out = out " " VALUE[i]
    return out
}

# ---- Programs

# Judges one simple command, a list of words.
function judge(list,   words, n, name, place, args) {
    n = split(list, words, " ")
    if (n == 0) return
    name = TXT[words[1]]
    # Where compound commands are not understood, their words stand before those of a command.
    if (n > 1 && name in OPENING) return judge(rest_of(list, 1))
    if (!KNOWN[words[1]] || name == "") return unknown("the program is not known")
    # The body of a function was judged where it was defined.
    if ((L, name) in FUN) return
    args = rest_of(list, 1)
    if (index(name, "/")) {
        place = joined(CWD[L] == "" ? "/" : CWD[L], name)
        if (!is_runtime_place(place)) {
            path(words[1], "read")
            return executes("runs a program of its own")
        }
        name = substr(name, last_index(name, "/") + 1)
    }
    if (n == 2 && KNOWN[words[2]] && TXT[words[2]] ~ /^(--version|--help|-V)$/ && KIND[name] != "shell") return
    program(name, args)
}

# By name only: where links lead is not looked at, and so `..` is not followed.
function is_runtime_place(place,   i) {
    if (place ~ /\/\.\.(\/|$)/) return 0
    for (i = 1; i <= runtimes; i++) if (RUNTIME[i] != "" && (place == RUNTIME[i] || index(place, RUNTIME[i] "/") == 1)) return 1
    return 0
}

function program(name, args,   kind) {
    kind = (name in KIND) && name !~ /^git / ? KIND[name] : ""
    if (kind == "harmless") return
    if (kind == "reads" || kind == "lists" || kind == "jq") reads(name, kind, args)
    else if (kind == "writes" || kind == "packs") {
        parse(args, name)
        each_path(OPERANDS, kind == "packs" && has("c stdout to-stdout") ? "read" : "write")
    } else if (kind == "system" || name ~ /^mkfs\./) system_need("works on the machine")
    else if (kind == "asks") need("0040", "asks the network")
    else if (kind == "talks") need_both("uses the network")
    else if (kind == "listens") listens(args)
    else if (kind ~ /^(shell|cd|eval|trap|alias|source|forgets)$/) shell_part(kind, name, args)
    else if (kind ~ /^(wraps|wraps-one|command|becomes|contains|env|xargs)$/) wrapper(kind, name, args)
    else if (kind == "git") git(args)
    else if (kind == "packages") packages(args)
    else if (kind == "builds") builds(args)
    else if (kind == "curl") curl(name, args)
    else if (kind == "wget") wget(name, args)
    else if (kind == "rsync") rsync(name, args)
    else if (kind == "") executes("runs code")
    else file_program(kind, name, args)
}

function reads(name, kind, args,   operands) {
    parse(args, name)
    operands = kind == "jq" && !has("f from-file") ? rest_of(OPERANDS, 1) : OPERANDS
    each_path(operands, "read")
    if (kind == "lists" && operands == "") here("read")
}

function need_both(why) {
    need("0040", why)
    need("0020", why)
}

function listens(args,   words, n, i, found) {
    n = split(args, words, " ")
    found = 0
    for (i = 1; i <= n; i++) if (TXT[words[i]] ~ /LISTEN|^-.*l/) found = 1
    need_both("uses the network")
    if (found) need("0010", "listens")
}

function inner(list) { judge(list) }

# ---- Parts of the shell

function shell_part(kind, name, args,   words, n, i) {
    if (kind == "cd") return change_directory(args)
    if (kind == "shell") return shell(name, args)
    if (kind == "source") {
        each_path(nth(args, 1), "read")
        return executes("runs a file's commands")
    }
    if (kind != "forgets") return evaluates(kind, args)
    # Variables that get what is read, or printed (`printf -v`).
    n = split(args, words, " ")
    for (i = 1; i <= n; i++) set_variable(TXT[words[i]], 0, "")
}

function change_directory(args,   words, n, i, word, target, certain) {
    n = split(args, words, " ")
    word = 0
    for (i = 1; i <= n && !word; i++) if (!(KNOWN[words[i]] && TXT[words[i]] ~ /^-./)) word = words[i]
    target = ""
    if (!word) target = HOME
    else if (KNOWN[word] && !GLOB[word] && TXT[word] != "-") {
        if (CWD[L] != "") target = joined(CWD[L], TXT[word])
        else if (TXT[word] ~ /^\//) target = joined("", TXT[word])
    }
    # In a branch that may not be taken it is either of two.
    certain = !COND[L] || target == CWD[L]
    CWD[L] = certain ? target : ""
    if (CWD[L] == "") unknown("goes to a directory that is not known")
}

# `eval`, `trap`, `alias`: text that is run as commands, now or later.
function evaluates(kind, args,   words, n, i, texts, text) {
    n = split(args, words, " ")
    if (kind == "trap" && n && KNOWN[words[1]] && TXT[words[1]] == "-") return
    texts = ""
    for (i = 1; i <= n; i++) {
        if (kind == "trap" && (TXT[words[i]] ~ /^-/ || texts != "")) continue
        if (kind == "alias" && !index(TXT[words[i]], "=")) continue
        texts = texts " " words[i]
    }
    n = split(texts, words, " ")
    for (i = 1; i <= n; i++) if (!KNOWN[words[i]]) return unknown("runs what is not known")
    if (kind == "alias") {
        for (i = 1; i <= n; i++) {
            push_state()
            command_text(substr(TXT[words[i]], index(TXT[words[i]], "=") + 1))
            L--
        }
        return
    }
    text = ""
    for (i = 1; i <= n; i++) text = text (i > 1 ? " " : "") TXT[words[i]]
    command_text(text)
}

# `sh -c TEXT` is its text; anything else is a script.
function shell(name, args,   word, names, n, i) {
    parse(args, name)
    word = nth(OPERANDS, 1)
    if (!has("c")) {
        each_path(word, "read")
        return executes("runs a script")
    }
    if (!word || !KNOWN[word]) return unknown("runs what is not known")
    # Variables that were not exported are not there.
    push_state()
    forget_variables()
    n = split(NAMES[L], names, " ")
    for (i = 1; i <= n; i++) delete FUN[L, names[i]]
    command_text(TXT[word])
    L--
}

# A variable that makes programs run other programs.
function dangerous_variable(name) {
    if (name ~ /^(PATH|ENV|IFS|SHELLOPTS|BASHOPTS|PS4|PROMPT_COMMAND|EDITOR|VISUAL|PAGER)$/ || name ~ /^(LD_|GIT_|PYTHON|PERL5|RUBY|NODE_|BASH_|DYLD_|LESS)/)
        unknown(name " decides what programs do")
}

# ---- Programs that run another one

function wrapper(kind, name, args,   words, n, i, text) {
    if (kind == "env") return env_program(args)
    if (kind == "xargs") return xargs(args)
    if (kind == "contains") return executes("runs another program")
    n = split(args, words, " ")
    if (kind == "command") for (i = 1; i <= n; i++) if (TXT[words[i]] ~ /^-[vV]$/) return
    if (kind == "becomes") system_need("acts as another user")
    for (i = 1; i <= n; i++) {
        text = TXT[words[i]]
        if (text !~ /^-./ || !KNOWN[words[i]]) break
        if (text == "--") {
            i++
            break
        }
        if (length(text) == 2 && index(SHORT[name], substr(text, 2))) i++
    }
    if (kind == "wraps-one") i++
    if (i <= n) inner(rest_of(args, i - 1))
}

function env_program(args,   words, n, i, text) {
    n = split(args, words, " ")
    for (i = 1; i <= n; i++) {
        text = TXT[words[i]]
        if (!KNOWN[words[i]] && !index(text, "=")) break
        if (index(text, "=") && text !~ /^-/) dangerous_variable(substr(text, 1, index(text, "=") - 1))
        else if (text ~ /^(-u|-C|--unset|--chdir)$/) {
            i++
            if (text == "-C" || text == "--chdir") unknown("runs elsewhere")
        } else if (text ~ /^(-S|--split-string)/) return unknown("runs what is not known")
        else if (text !~ /^-/) break
    }
    if (i <= n) inner(rest_of(args, i - 1))
}

# The program with operands that nobody knows.
function xargs(args,   words, n, i, text) {
    n = split(args, words, " ")
    for (i = 1; i <= n; i++) {
        text = TXT[words[i]]
        if (text !~ /^-/ || !KNOWN[words[i]]) break
        if (text == "-a" && i < n) path(words[i + 1], "read")
        if (text ~ /^-[nPIdLsaEj]$/) i++
    }
    if (i <= n) inner(rest_of(args, i - 1) " " unknown_word())
}
