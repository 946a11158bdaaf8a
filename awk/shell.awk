# shell.awk - a command line taken apart as the shell would: its simple commands, redirections, assignments and substitutions
# (a library of classify.awk, which judges them). The twin of src/policy/classify.rs and classify/words.rs, without a grammar:
# what it does not understand is said to be code that nobody knows, and looked through word by word.
#
# Words    TXT[i], the text as far as it is certain; KNOWN[i], whether that is all of it; GLOB[i], where a pattern that the
#          shell replaces by file names begins (0 = nowhere). Lists of words are their numbers with blanks between.
# State    at level L: CWD[L] ("" = not known), VAL[L, name] with HAS[L, name] (1 known, 2 not), FUN[L, name], COND[L] (in an
#          `if`, a loop, a `case`: what is assigned may not be), LOOPS[L].
# Inside a word being read, control characters stand for what is not known, a blank out of a variable, unquoted * ? [ { , }.

function shell_setup() {
    NEST_MOST = 8
    DEPTH_MOST = 60
    BRACES_MOST = 256
    UNK = "\001"
    BLANK = "\002"
    split("\003 \004 \005 \006 \016 \017", MARKS, " ")
    split("* ? [ { , }", MARKED, " ")
    for (i = 1; i <= 6; i++) MARK[MARKED[i]] = MARKS[i]
    split("if then elif else while until do ! {", words, " ")
    for (i in words) OPENING[words[i]] = 1
    split("then else elif fi do done esac }", words, " ")
    for (i in words) CLOSING[words[i]] = 1
    L = 1
}

# ---- The text: T, its length N, the place P. (A window, because some awks walk a string to reach a place in it.)

function at(p) {
    if (p > N) return ""
    if (p < WIN_AT || p >= WIN_AT + 256) {
        WIN_AT = p
        WIN = substr(T, p, 256)
    }
    return substr(WIN, p - WIN_AT + 1, 1)
}

function ahead(count) { return substr(T, P, count) }

function broken() {
    ERR = 1
    P = N + 1
}

# ---- State

function copy_state(from, to,   names, n, i) {
    n = split(NAMES[to], names, " ")
    for (i = 1; i <= n; i++) {
        delete HAS[to, names[i]]
        delete VAL[to, names[i]]
        delete FUN[to, names[i]]
    }
    CWD[to] = CWD[from]
    COND[to] = COND[from]
    LOOPS[to] = LOOPS[from]
    NAMES[to] = NAMES[from]
    n = split(NAMES[from], names, " ")
    for (i = 1; i <= n; i++) {
        if ((from, names[i]) in HAS) {
            HAS[to, names[i]] = HAS[from, names[i]]
            VAL[to, names[i]] = VAL[from, names[i]]
        }
        if ((from, names[i]) in FUN) FUN[to, names[i]] = 1
    }
}

function push_state() {
    copy_state(L, L + 1)
    L++
}

function keep_state() {
    copy_state(L, L - 1)
    L--
}

function name_it(name) {
    if (index(" " NAMES[L] " ", " " name " ") == 0) NAMES[L] = NAMES[L] " " name
}

function set_variable(name, known, value) {
    if (name == "" || name ~ /[ ]/) return
    name_it(name)
    HAS[L, name] = known ? 1 : 2
    VAL[L, name] = value
}

# ---- Commands

# Judges a text as commands, in the state of level L.
function command_text(text,   t, n, p, err, depth, waiting, level, before) {
    if (NEST >= NEST_MOST) {
        unknown("commands nested too deep")
        return
    }
    t = T
    n = N
    p = P
    err = ERR
    waiting = WAITING
    depth = DEPTH
    level = L
    before = "before" NEST
    copy_state(L, before)
    NEST++
    T = text
    N = length(text)
    P = 1
    WIN_AT = -999
    ERR = 0
    WAITING = ""
    command_list()
    if (!ERR && P <= N) ERR = 1
    if (ERR) {
        L = level + 1
        copy_state(before, L)
        salvage(text)
        L = level
    }
    NEST--
    T = t
    N = n
    P = p
    ERR = err
    WAITING = waiting
    DEPTH = depth
    WIN_AT = -999
}

# What is not understood: every stretch between separators as if it were a command. Too much is found rather than too little.
function salvage(text,   parts, n, i, into, word, list, words, m, k, at_end) {
    PART = ""
    unknown("not understood")
    n = split(text, parts, /[;&|\n()`]/)
    for (i = 1; i <= n; i++) {
        PART = cut_text(parts[i], "")
        words = rough_words(parts[i])
        m = split(words, word, " ")
        list = ""
        into = 0
        for (k = 1; k <= m; k++) {
            at_end = last_index(TXT[word[k]], ">")
            if (at_end && at_end == length(TXT[word[k]]) && KNOWN[word[k]]) into = 1
            else if (at_end) path(word_from(word[k], at_end), "write")
            else if (into) {
                into = 0
                path(word[k], "write")
            } else list = list " " word[k]
        }
        push_state()
        judge(list)
        L--
    }
}

function rough_words(text,   parts, n, i, at_dollar, list, e) {
    n = split(text, parts, /[ \t\n]+/)
    list = ""
    for (i = 1; i <= n; i++) {
        gsub(/['"]/, "", parts[i])
        if (parts[i] == "") continue
        at_dollar = index(parts[i], "$")
        e = plain_text(at_dollar ? substr(parts[i], 1, at_dollar - 1) : parts[i], 1)
        list = list make_words(at_dollar ? e UNK : e, 0)
    }
    return list
}

# Commands up to the end, a closing parenthesis, `;;` or a word that closes a compound command.
function command_list() {
    while (!ERR) {
        separators()
        if (P > N || at(P) == ")" || at(P) == ";" || (word_ahead() in CLOSING)) return
        and_or()
    }
}

# Blanks, and line breaks with the here-documents behind them.
function blanks(   c) {
    for (;;) {
        c = at(P)
        if (c == " " || c == "\t") P++
        else if (c == "\\" && at(P + 1) == "\n") P += 2
        else return
    }
}

function line_breaks(   c) {
    for (;;) {
        blanks()
        c = at(P)
        if (c == "\n") line_end()
        else if (c == "#") comment()
        else return
    }
}

function separators(   c) {
    for (;;) {
        line_breaks()
        c = at(P)
        if ((c == ";" && at(P + 1) !~ /[;&]/) || c == "&") P++
        else return
    }
}

function comment(   rest) {
    while (P <= N && at(P) != "\n") P++
}

# A line feed; the bodies of here-documents that wait begin behind it.
function line_end(   docs, n, i, parts, start) {
    start = P++
    if ((NEST, start) in SKIP && SKIP_TEXT[NEST, start] == T) {
        P = SKIP[NEST, start]
        return
    }
    if (WAITING == "") return
    n = split(WAITING, docs, SUBSEP)
    WAITING = ""
    for (i = 1; i < n && !ERR; i++) {
        # QUOTED DASH DELIMITER
        here_document(substr(docs[i], 3), substr(docs[i], 1, 1), substr(docs[i], 2, 1))
    }
    if (!ERR) {
        SKIP[NEST, start] = P
        SKIP_TEXT[NEST, start] = T
    }
}

function here_document(delimiter, quoted, dash,   rest, lines, n, i, line, body) {
    rest = substr(T, P)
    n = split(rest, lines, "\n")
    body = ""
    for (i = 1; i <= n; i++) {
        line = lines[i]
        P += length(line) + 1
        if (dash == "-") sub(/^\t+/, "", line)
        if (line == delimiter) break
        body = body line "\n"
    }
    if (i > n) return broken()
    if (P > N + 1) P = N + 1
    if (quoted == "0") text_inside(body)
}

# Judges the substitutions of a text that is read as if between double quotes.
function text_inside(text,   t, n, p) {
    if (text !~ /[$`]/) return
    t = T
    n = N
    p = P
    T = text
    N = length(text)
    P = 1
    WIN_AT = -999
    double_quoted("")
    T = t
    N = n
    WIN_AT = -999
    P = ERR ? N + 1 : p
}

# The bare word that comes next, as far as keywords go.
function word_ahead(   word) {
    word = ahead(12)
    if (!match(word, /^([a-z]+|[{}!]|\[\[)/)) return ""
    if (RLENGTH == 12) return ""
    word = substr(word, 1, RLENGTH)
    return substr(T, P + length(word), 1) ~ /^[ \t\n;&|()<>]?$/ ? word : ""
}

function and_or(   two) {
    pipeline()
    while (!ERR) {
        blanks()
        two = ahead(2)
        if (two != "&&" && two != "||") return
        P += 2
        line_breaks()
        pipeline()
    }
}

# One command, or several whose shells end with them.
function pipeline() {
    push_state()
    one_command()
    blanks()
    if (at(P) != "|" || at(P + 1) == "|" || ERR) return keep_state()
    while (!ERR && at(P) == "|" && at(P + 1) != "|") {
        P += at(P + 1) == "&" ? 2 : 1
        copy_state(L - 1, L)
        line_breaks()
        one_command()
        blanks()
    }
    L--
}

function want(word) {
    separators()
    if (ERR || word_ahead() != word) return broken()
    P += length(word)
}

function want_sign(sign) {
    line_breaks()
    if (ERR || at(P) != sign) return broken()
    P++
}

function one_command(   word, before) {
    blanks()
    if (++DEPTH > DEPTH_MOST) {
        unknown("nested too deep")
        broken()
    }
    word = word_ahead()
    if (ERR) ;
    else if (at(P) == "(" && at(P + 1) == "(") arithmetic()
    else if (at(P) == "(") {
        P++
        in_subshell()
        redirections()
    } else if (word == "!") {
        P++
        one_command()
    } else if (word == "{") {
        P++
        command_list()
        want("}")
        redirections()
    } else if (word == "[[") {
        condition()
        redirections()
    } else if (word == "if" || word == "case") {
        before = COND[L]
        COND[L] = 1
        P += length(word)
        if (word == "if") if_command()
        else case_command()
        COND[L] = before
        redirections()
    } else if (word ~ /^(while|until|for|select)$/) loop(word)
    else if (word == "function") {
        P += 8
        blanks()
        word = ""
        while (at(P) ~ /[A-Za-z0-9_.:-]/) word = word at(P++)
        blanks()
        if (at(P) == "(") P++
        blanks()
        if (at(P) == ")") P++
        function_body(word)
    } else if (word in CLOSING) broken()
    else simple()
    DEPTH--
}

# What stands in parentheses, whose opening one is read: its own shell.
function in_subshell() {
    push_state()
    command_list()
    L--
    want_sign(")")
}

function if_command() {
    command_list()
    want("then")
    command_list()
    separators()
    while (!ERR && word_ahead() == "elif") {
        P += 4
        command_list()
        want("then")
        command_list()
        separators()
    }
    if (word_ahead() == "else") {
        P += 4
        command_list()
    }
    want("fi")
}

function case_command(   c) {
    blanks()
    lex_word()
    line_breaks()
    if (word_ahead() != "in") return broken()
    P += 2
    for (;;) {
        separators()
        if (ERR || word_ahead() == "esac") break
        if (at(P) == "(") P++
        for (;;) {
            blanks()
            lex_word()
            blanks()
            if (ERR || at(P) != "|") break
            P++
        }
        want_sign(")")
        command_list()
        while (!ERR && at(P) ~ /[;&]/) P++
    }
    want("esac")
}

# The bodies of loops are looked at twice: what the first round assigns counts in the second.
function loop(word,   start, round, rounds, before) {
    P += length(word)
    blanks()
    start = P
    before = COND[L]
    COND[L] = 1
    LOOPS[L]++
    rounds = LOOPS[L] <= 3 ? 2 : 1
    for (round = 1; round <= rounds && !ERR; round++) {
        P = start
        if (word == "while" || word == "until") command_list()
        else loop_head()
        separators()
        if (word == "for" && word_ahead() == "{") {
            P++
            command_list()
            want("}")
        } else {
            want("do")
            command_list()
            want("done")
        }
    }
    LOOPS[L]--
    COND[L] = before
    redirections()
}

function loop_head(   name) {
    if (ahead(2) == "((") return arithmetic()
    name = ""
    while (at(P) ~ /[A-Za-z0-9_]/) name = name at(P++)
    if (name == "") return broken()
    set_variable(name, 0, "")
    line_breaks()
    if (word_ahead() != "in") return
    P += 2
    for (;;) {
        blanks()
        if (ERR || P > N || at(P) ~ /[;\n&|()]/) return
        lex_word()
    }
}

# A function is judged as if it were called: at once, and with nothing known about its variables.
function function_body(name) {
    if (name == "") return broken()
    # One that may not be defined must not hide the program of its name.
    if (!COND[L]) {
        name_it(name)
        FUN[L, name] = 1
    }
    line_breaks()
    if (at(P) != "{" && at(P) != "(") return broken()
    push_state()
    COND[L] = 1
    forget_variables()
    one_command()
    L--
}

function forget_variables(   names, n, i) {
    n = split(NAMES[L], names, " ")
    for (i = 1; i <= n; i++) delete HAS[L, names[i]]
}

# `(( … ))`, and `[[ … ]]`: only what is substituted inside runs.
function arithmetic(   depth, c) {
    depth = 0
    while (P <= N && !ERR) {
        c = at(P)
        if (c == "(") depth++
        else if (c == ")" && --depth == 0) {
            P++
            return
        }
        if (c == "$" || c == "`" || c == "\"" || c == "'") word_part(0)
        else P++
    }
    broken()
}

function condition() {
    P += 2
    while (!ERR) {
        line_breaks()
        if (P > N) return broken()
        if ((ahead(2) == "]]" && at(P + 2) ~ /^[ \t\n;&|)]?$/)) {
            P += 2
            return
        }
        if (at(P) ~ /[()<>&|;]/) P++
        else lex_word()
    }
}

# One simple command: assignments before it, its words, its redirections.
function simple(   start, stop, words, count, assigned, dangers, behind, n, i, c, kind, operators, targets, parts) {
    start = P
    stop = P - 1
    words = dangers = kind = ""
    count = assigned = behind = n = 0
    while (!ERR) {
        blanks()
        c = at(P)
        if (P > N || c ~ /[\n;)|]/ || (c == "&" && at(P + 1) != ">")) break
        if (c == "#") {
            comment()
            break
        }
        if (redirect_ahead()) {
            # What stands before the command is looked at before it.
            read_redirection(count == 0)
            if (count > 0 && RED_KIND != "word") behind = 1
            if (count > 0 && RED_KIND == "path") {
                operators[++n] = RED_OPERATOR
                targets[n] = RED_WORDS
                parts[n] = RED_PART
            }
            if (!behind) stop = P - 1
            continue
        }
        if (c == "(") {
            if (count != 1 || kind != "" || assigned) {
                broken()
                break
            }
            P++
            want_sign(")")
            i = word_list_head(words)
            return function_body(KNOWN[i] ? TXT[i] : "")
        }
        if ((count == 0 || kind != "") && assignment_ahead()) {
            if (count == 0 && !assigned) push_state()
            if (count == 0) assigned++
            dangers = dangers " " assignment()
            if (!behind) stop = P - 1
            continue
        }
        if (count == 0 && assigned) L--
        i = P
        words = words lex_words()
        if (!behind) stop = P - 1
        if (++count == 1) {
            c = substr(T, i, P - i)
            if (c ~ /^(export|declare|typeset|readonly|local)$/) kind = "declare"
            else if (c ~ /^(unset|unsetenv)$/) kind = "unset"
        }
    }
    if (ERR) {
        if (count == 0 && assigned) L--
        return
    }
    if (P == start) return broken()
    if (count == 0 && assigned) {
        keep_state()
        start_dangers(dangers)
    } else {
        PART = cut_text(substr(T, start, stop - start + 1), "…")
        if (kind != "") {
            flag(dangers)
            if (kind == "unset") unset_names(words)
            else declare_names(words)
        } else if (words != "") {
            flag(dangers)
            judge(words)
        }
    }
    for (i = 1; i <= n; i++) redirect(operators[i], targets[i], parts[i])
}

function word_list_head(list,   words) {
    split(list, words, " ")
    return words[1]
}

# `export "PATH=."`
function declare_names(list,   words, n, i, name) {
    n = split(list, words, " ")
    for (i = 2; i <= n; i++) {
        if (!index(TXT[words[i]], "=")) continue
        name = TXT[words[i]]
        sub(/[\[+=].*/, "", name)
        dangerous_variable(name)
        set_variable(name, 0, "")
    }
}

function unset_names(list,   words, n, i) {
    n = split(list, words, " ")
    for (i = 2; i <= n; i++) {
        set_variable(TXT[words[i]], 1, "")
        delete FUN[L, TXT[words[i]]]
    }
}

# NAME=PLACE:LENGTH… of assignments that stand alone: each is its own part.
function start_dangers(dangers,   list, n, i, place) {
    n = split(dangers, list, " ")
    for (i = 1; i <= n; i++) {
        split(list[i], place, ":")
        PART = cut_text(substr(T, place[2], place[3]), "…")
        dangerous_variable(place[1])
    }
}

function flag(dangers,   list, n, i, place) {
    n = split(dangers, list, " ")
    for (i = 1; i <= n; i++) {
        split(list[i], place, ":")
        dangerous_variable(place[1])
    }
}

function assignment_ahead() {
    return at(P) ~ /[A-Za-z_]/ && match(ahead(256), /^[A-Za-z_][A-Za-z0-9_]*(\[[^\]]*\])?\+?=/)
}

# Reads one assignment and does it; gives NAME:PLACE:LENGTH.
function assignment(   start, name, plain, list, words, n) {
    start = P
    name = ahead(RLENGTH)
    P += RLENGTH
    plain = name !~ /\+=$/ && !COND[L]
    sub(/[\[+=].*/, "", name)
    if (at(P) == "(") {
        P++
        for (;;) {
            line_breaks()
            if (ERR || P > N) {
                broken()
                break
            }
            if (at(P) == ")") {
                P++
                break
            }
            lex_word()
        }
        set_variable(name, 0, "")
    } else if (P > N || (at(P) ~ /[ \t\n;&|()<>]/ && ahead(2) !~ /^[<>]\($/)) set_variable(name, plain, "")
    else {
        list = lex_words()
        n = split(list, words, " ")
        set_variable(name, plain && n == 1 && KNOWN[words[1]], TXT[words[1]])
    }
    return name ":" start ":" (P - start)
}

# ---- Redirections

function redirect_ahead() {
    if (at(P) !~ /[0-9<>&{]/) return 0
    return ahead(40) ~ /^([0-9]*|\{[A-Za-z_0-9]+\})(<[^(]|<$|>[^(]|>$)|^&>/
}

# Reads one. RED_KIND: `path` (then RED_OPERATOR, RED_WORDS, RED_PART; judged at once where `now` is set), `word` or `document`.
function read_redirection(now,   start, operator, list, delimiter, quoted) {
    start = P
    match(ahead(40), /^([0-9]*|\{[A-Za-z_0-9]+\})/)
    P += RLENGTH
    match(ahead(3), /^(<<<|<<-|<<|[&]>>|[&]>|>>|>&|>\||>|<&|<>|<)/)
    operator = ahead(RLENGTH)
    P += RLENGTH
    blanks()
    RED_KIND = "path"
    if (operator == "<<" || operator == "<<-") {
        RED_KIND = "document"
        delimiter = ""
        start = P
        while (P <= N && at(P) !~ /[ \t\n;&|()<>]/) P++
        delimiter = substr(T, start, P - start)
        quoted = delimiter ~ /['"\\]/
        gsub(/['"\\]/, "", delimiter)
        if (delimiter == "") return broken()
        WAITING = WAITING (quoted ? "1" : "0") (operator == "<<-" ? "-" : " ") delimiter SUBSEP
        return
    }
    if ((operator == ">&" || operator == "<&") && at(P) == "-" && at(P + 1) ~ /^[ \t\n;&|()<>]?$/) {
        P++
        RED_OPERATOR = operator
        RED_WORDS = ""
        return
    }
    # The grammar of the binary does not know it, and so neither says more.
    if (P > N || at(P) ~ /[\n;&|()]/) return broken()
    list = lex_words()
    if (operator == "<<<") {
        RED_KIND = "word"
        return
    }
    RED_OPERATOR = operator
    RED_WORDS = list
    RED_PART = cut_text(substr(T, start, P - start), "…")
    if (now) redirect(RED_OPERATOR, RED_WORDS, RED_PART)
}

function redirections() {
    for (;;) {
        blanks()
        if (ERR || !redirect_ahead()) return
        read_redirection(1)
    }
}

function redirect(operator, list, part,   words, n, i) {
    PART = part
    n = split(list, words, " ")
    for (i = 1; i <= n; i++) {
        if (operator ~ /^[<>]&$/ && KNOWN[words[i]] && TXT[words[i]] ~ /^[0-9-]*$/) continue
        if (operator ~ /</) path(words[i], "read")
        if (operator ~ />/) path(words[i], "write")
    }
}

# ---- Words

# Reads the word at P; gives the numbers of what becomes of it.
function lex_words(   e) {
    e = lex_word()
    return make_words(e, WORD_IS_EXPANSION)
}

# The same, but the text with its marks.
function lex_word(   e, start, c, parts, expansions) {
    start = P
    e = ""
    parts = expansions = 0
    while (P <= N && !ERR) {
        c = at(P)
        if (c ~ /[ \t\n;&|()<>]/) {
            if ((c != "<" && c != ">") || at(P + 1) != "(") break
            P += 2
            in_subshell()
            e = e "/dev/fd/63"
        } else {
            if (c == "$" && at(P + 1) !~ /['"(]/) expansions++
            e = e word_part(P == start)
        }
        parts++
    }
    if (P == start) broken()
    WORD_IS_EXPANSION = parts == 1 && expansions == 1
    return e
}

# One piece of a word: something quoted, a substitution, or plain text.
function word_part(first,   c, start) {
    c = at(P)
    if (c == "'") return single_quoted()
    if (c == "\"") {
        P++
        return double_quoted("\"")
    }
    if (c == "$" && at(P + 1) == "'") return ansi_quoted()
    if (c == "$" && at(P + 1) == "\"") {
        P += 2
        return double_quoted("\"")
    }
    if (c == "$") return dollar(0)
    if (c == "`") return backquoted()
    start = P
    while (P <= N && at(P) !~ /[ \t\n;&|()<>'"$`]/) P += at(P) == "\\" ? 2 : 1
    if (P > N + 1) P = N + 1
    return plain_text(substr(T, start, P - start), first)
}

function no_marks(text) {
    gsub(/[\001-\010\016-\037]/, UNK, text)
    return text
}

# Unquoted text: a backslash quotes, and is gone before a line feed.
function plain_text(text, first,   out, c, i, n) {
    out = ""
    if (first && text ~ /^~/) {
        if (text != "~" && text !~ /^~\//) out = UNK
        else out = HOME == "" ? UNK : HOME
        text = substr(text, out == UNK && text !~ /^~(\/|$)/ ? 1 : 2)
    }
    if (text !~ /[\\*?[{,}\001-\010\016-\037]/) return out text
    n = length(text)
    for (i = 1; i <= n; i++) {
        c = substr(text, i, 1)
        if (c == "\\") {
            c = substr(text, ++i, 1)
            if (c != "\n") out = out no_marks(c)
        } else if (c in MARK) out = out MARK[c]
        else out = out no_marks(c)
    }
    return out
}

function single_quoted(   rest, end) {
    end = index(substr(T, P + 1), "'")
    if (!end) {
        broken()
        return ""
    }
    rest = substr(T, P + 1, end - 1)
    P += end + 1
    return no_marks(rest)
}

# Up to the delimiter ("" = the end of the text), whose opening one is read.
function double_quoted(delimiter,   out, c, next_one, start) {
    out = ""
    while (P <= N && !ERR) {
        c = at(P)
        if (c == delimiter && delimiter != "") {
            P++
            return out
        }
        if (c == "\\") {
            next_one = at(P + 1)
            if (next_one == "\n") ;
            else if (next_one ~ /[$`"\\]/) out = out next_one
            else out = out "\\" no_marks(next_one)
            P += 2
        } else if (c == "$") out = out dollar(1)
        else if (c == "`") out = out backquoted()
        else {
            start = P
            while (P <= N && at(P) !~ /[\\$`"]/) P++
            if (P == start) P++
            out = out no_marks(substr(T, start, P - start))
        }
    }
    if (delimiter != "") broken()
    return out
}

# `$'…'`
function ansi_quoted(   out, c, code, digits) {
    P += 2
    out = ""
    while (P <= N) {
        c = at(P++)
        if (c == "'") return out
        if (c != "\\") {
            out = out no_marks(c)
            continue
        }
        c = at(P++)
        if (c == "n") out = out "\n"
        else if (c == "t") out = out "\t"
        else if (c == "r") out = out "\r"
        else if (c == "f") out = out "\f"
        else if (c == "v") out = out "\013"
        else if (c ~ /[\\'"?]/) out = out c
        else if (c ~ /[0-7]/) out = out code_point(c digits_ahead(2, "01234567"), 8)
        else if (c == "x") out = out code_point(digits_ahead(2, "0123456789abcdef"), 16)
        else if (c == "u") out = out code_point(digits_ahead(4, "0123456789abcdef"), 16)
        else if (c == "U") out = out code_point(digits_ahead(8, "0123456789abcdef"), 16)
        else out = out UNK
    }
    broken()
    return out
}

function digits_ahead(most, set,   out) {
    out = ""
    while (length(out) < most && P <= N && index(set, tolower(at(P)))) out = out at(P++)
    return out
}

# A character by its number; those that a name is not made of are left unknown.
function code_point(digits, base,   value, i) {
    value = 0
    for (i = 1; i <= length(digits); i++)
        value = value * base + index("0123456789abcdef", tolower(substr(digits, i, 1))) - 1
    return value >= 32 && value < 127 ? sprintf("%c", value) : UNK
}

# `$name`, `${…}`, `$(…)`, `$((…))`
function dollar(quoted,   c, name, start) {
    P++
    c = at(P)
    if (c == "(" && at(P + 1) == "(") {
        arithmetic()
        return UNK
    }
    if (c == "(") {
        P++
        in_subshell()
        return UNK
    }
    if (c == "{") {
        P++
        name = ""
        while (at(P) ~ /[A-Za-z0-9_]/) name = name at(P++)
        if (at(P) == "}" && name != "") {
            P++
            return variable(name, quoted)
        }
        in_braces()
        return UNK
    }
    if (c ~ /[A-Za-z_]/) {
        name = ""
        while (at(P) ~ /[A-Za-z0-9_]/) name = name at(P++)
        return variable(name, quoted)
    }
    if (c ~ /[0-9@*#?$!_-]/) {
        P++
        return UNK
    }
    return ""
}

# The rest of `${…}`: what is substituted inside runs.
function in_braces(   depth, c) {
    depth = 1
    while (P <= N && !ERR) {
        c = at(P)
        if (c == "}" && --depth == 0) {
            P++
            return
        }
        if (c == "\\") P += 2
        else if (c == "$") dollar(1)
        else if (c == "`") backquoted()
        else if (c == "\"") {
            P++
            double_quoted("\"")
        } else if (c == "'") single_quoted()
        else {
            if (c == "{") depth++
            P++
        }
    }
    broken()
}

function backquoted(   start, c, text) {
    start = ++P
    text = ""
    while (P <= N && at(P) != "`") {
        c = at(P)
        if (c == "\\") {
            P++
            c = at(P) ~ /[\\`$]/ ? at(P) : "\\" at(P)
        }
        text = text c
        P++
    }
    if (P > N) {
        broken()
        return UNK
    }
    P++
    push_state()
    command_text(text)
    L--
    return UNK
}

function variable(name, quoted,   value, i) {
    if ((L, name) in HAS) {
        if (HAS[L, name] == 2) return UNK
        value = VAL[L, name]
    } else if (name == "HOME" && HOME != "") value = HOME
    else if (name == "PWD" && CWD[L] != "") value = CWD[L]
    else if (name == "TMPDIR" && TMP != "") value = TMP
    else return UNK
    if (quoted) return value
    gsub(/[ \t\n]/, BLANK, value)
    for (i = 1; i <= 6; i++) if (index(value, MARKED[i])) value = marked(value, MARKED[i])
    return value
}

function marked(value, sign,   out, n) {
    out = ""
    while ((n = index(value, sign))) {
        out = out substr(value, 1, n - 1) MARK[sign]
        value = substr(value, n + 1)
    }
    return out value
}

function unmarked(text,   i, n) {
    if (text !~ /[\003-\006\016\017]/) return text
    for (i = 1; i <= 6; i++)
        while ((n = index(text, MARKS[i]))) text = substr(text, 1, n - 1) MARKED[i] substr(text, n + 1)
    return text
}

# The numbers of the words that a read word becomes.
function make_words(e, is_expansion,   count, i, parts, n, k, list) {
    list = ""
    count = braces(e)
    for (i = 1; i <= count; i++) {
        if (BRACED[i] == "") {
            if (!is_expansion) list = list " " new_word("", 1, 0)
            continue
        }
        n = split(BRACED[i], parts, BLANK)
        for (k = 1; k <= n; k++) if (parts[k] != "") list = list " " finished(parts[k])
    }
    return list
}

function new_word(text, known, glob) {
    TXT[++WORDS] = text
    KNOWN[WORDS] = known
    GLOB[WORDS] = glob
    return WORDS
}

function finished(e,   end, glob) {
    end = index(e, UNK)
    if (end) e = substr(e, 1, end - 1)
    glob = match(e, /[\003-\005]/) ? RSTART : 0
    return new_word(unmarked(e), !end, glob)
}

function unknown_word() { return new_word("", 0, 0) }

function known_word(text) { return new_word(text, 1, 0) }

# The word from behind its first `skip` bytes on.
function word_from(word, skip,   glob) {
    glob = GLOB[word] ? (GLOB[word] > skip ? GLOB[word] - skip : 1) : 0
    return new_word(substr(TXT[word], skip + 1), KNOWN[word], glob)
}

# `a{b,c}d` into BRACED, `abd` and `acd`; gives their number. A range makes one word, which is kept as it is.
function braces(e,   todo, top, done) {
    if (index(e, MARK["{"]) == 0) {
        BRACED[1] = e
        return 1
    }
    todo[1] = e
    top = 1
    done = 0
    while (top > 0) {
        e = todo[top--]
        if (!first_brace(e)) {
            BRACED[++done] = e
            continue
        }
        if (top + done > BRACES_MOST) {
            BRACED[++done] = UNK
            return done
        }
        top = alternatives(e, todo, top)
    }
    return done
}

# The first brace with a comma of its own: BRACE_FROM, BRACE_TO, and the commas COMMA[1…COMMAS].
function first_brace(e,   n, from, i, c, depth) {
    n = length(e)
    for (from = 1; from <= n; from++) {
        if (substr(e, from, 1) != MARK["{"]) continue
        depth = COMMAS = 0
        for (i = from; i <= n; i++) {
            c = substr(e, i, 1)
            if (c == MARK["{"]) depth++
            else if (c == MARK[","] && depth == 1) COMMA[++COMMAS] = i
            else if (c == MARK["}"] && --depth == 0) break
        }
        if (i <= n && COMMAS) {
            BRACE_FROM = from
            BRACE_TO = i
            return 1
        }
    }
    return 0
}

function alternatives(e, todo, top,   i, from, to) {
    to = BRACE_TO
    for (i = COMMAS; i >= 0; i--) {
        from = i ? COMMA[i] : BRACE_FROM
        todo[++top] = substr(e, 1, BRACE_FROM - 1) substr(e, from + 1, to - from - 1) substr(e, BRACE_TO + 1)
        to = from
    }
    return top
}

# ---- Text

function last_index(text, sign,   n, at_it) {
    at_it = 0
    while ((n = index(substr(text, at_it + 1), sign))) at_it += n
    return at_it
}

# On one line, 60 characters at most, `more` behind what was cut.
function cut_text(text, more,   i, n, count) {
    gsub(/[ \t\n\r\f\013]+/, " ", text)
    gsub(/^ | $/, "", text)
    n = length(text)
    if (n <= 60) return text
    count = 0
    for (i = 1; i <= n; i++) {
        if (substr(text, i, 1) ~ /[\200-\277]/) continue
        if (++count > 60) return substr(text, 1, i - 1) more
    }
    return text
}
