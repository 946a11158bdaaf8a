#!/usr/bin/env bash
# Runs every check of cases/*.sh under each awk that is installed, and compares with expected/<case>/<check>.
#
# usage: tests/awk/run.sh [-u] [CASE...]      -u writes the expected files anew, from the first awk: look at the diff
# AWKS="mawk;gawk" chooses the awks. Exit: 0 when every check passed.
set -u
here=$(cd "$(dirname "$0")" && pwd)
awk_dir=$here/../../awk
t_update=0
if [ "${1:-}" = -u ]; then
    t_update=1
    shift
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/awk-tests.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
passed=0
failed=0
LC_ALL=C
export LC_ALL

# The libraries and one program: prog PROGRAM [options] [files]
prog() {
    program=$1
    shift
    case $program in
    body_*) $AWK -f "$awk_dir/json.awk" -f "$awk_dir/protocol.awk" -f "$awk_dir/window.awk" -f "$awk_dir/$program" "$@" ;;
    *) $AWK -f "$awk_dir/json.awk" -f "$awk_dir/protocol.awk" -f "$awk_dir/$program" "$@" ;;
    esac
}

# The libraries and a program text: with_lib 'TEXT' [options] [files]
with_lib() {
    printf '%s\n' "$1" >"$work/text.awk"
    shift
    $AWK -f "$awk_dir/json.awk" -f "$awk_dir/protocol.awk" -f "$awk_dir/window.awk" -f "$work/text.awk" "$@"
}

# The events of a stream, one JSON text a line on stdin: events PROVIDER [options]
events() {
    provider=$1
    shift
    while IFS= read -r data; do printf 'data: %s\n\n' "$data"; done | prog "sse_$provider.awk" -v out=json -v join=1 -v estimated=1 "$@"
}

report() { # ok|bad NAME
    if [ "$1" = ok ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $case $2 ($AWK)"
    fi
}

# Compares what a command writes (to both streams, with its exit code) with expected/$case/NAME: check NAME COMMAND...
check() {
    check_name=$1
    shift
    { "$@"; echo "exit $?"; } >"$work/got" 2>&1
    want=$here/expected/$case/$check_name
    if [ "$t_update" = 1 ] && [ "$AWK" = "$t_first" ]; then
        mkdir -p "$here/expected/$case"
        cp "$work/got" "$want"
    fi
    if cmp -s "$work/got" "$want"; then
        report ok "$check_name"
    else
        report bad "$check_name"
        diff "$want" "$work/got" 2>&1 | head -n 20
    fi
}

# The same for a command that must say yes: hold NAME COMMAND...
hold() {
    check_name=$1
    shift
    if "$@"; then report ok "$check_name"; else report bad "$check_name"; fi
}

t_first=
old_ifs=$IFS
IFS=';'
for AWK in ${AWKS:-mawk;gawk;busybox awk;original-awk}; do
    IFS=$old_ifs
    command -v "${AWK%% *}" >/dev/null 2>&1 || continue
    [ -n "$t_first" ] || t_first=$AWK
    case $AWK in
    mawk) stream="mawk -W interactive" ;;
    *) stream=$AWK ;;
    esac
    for file in "$here"/cases/*.sh; do
        case=$(basename "$file" .sh)
        if [ $# -gt 0 ]; then
            case " $* " in
            *" $case "*) ;;
            *) continue ;;
            esac
        fi
        # Each case has a directory of its own.
        mkdir -p "$work/${AWK##*/}/$case" && cd "$work/${AWK##*/}/$case" || exit 1
        . "$file"
    done
    IFS=';'
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
