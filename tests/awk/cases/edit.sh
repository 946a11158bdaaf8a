# edit_file.awk: one exact place, or the reason why there is none (CASES.md, group G).
edit() { # FILE OLD NEW (printf formats): the reply, then the new content
    { printf "$2"; } >old
    { printf "$3"; } >new
    {
        printf '*2\r\n$%d\r\n' "$(wc -c <old)"
        cat old
        printf '\r\n$%d\r\n' "$(wc -c <new)"
        cat new
        printf '\r\n'
    } | prog edit_file.awk -v file="$1" -v path=f.txt -v reply=reply >content
    echo "[$?]"
    cat reply
    printf '<\n'
    cat content
    printf '>\n'
}
printf 'one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten' >plain
printf 'a\r\nb\r\nc\r\n' >crlf
printf 'x\302\240y = 1;\n\tif (a) {\n\t\tb();\n\342\200\234q\342\200\235 e\314\201\n' >odd
: >empty
printf 'a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\nm\nn\n' >letters

changes() {
    edit plain 'five\nsix' 'FIVE\nsix\nsix2'
    edit plain 'ten' 'TEN\n'
    edit plain 'one\n' ''
    edit plain 'one' '  kept as it is  '
    edit plain 'two' '$&\\1&%%s\\\\`$1'
    edit letters 'b\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\nm' 'B\nc\nd\ne\nf\ng\nh\ni\nj\nk\nL\nm'
    edit letters 'a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\nm\nn\n' ''
    edit letters 'n\n' 'n\no\n'
}
check changes changes

line_ends() {
    edit crlf 'a\nb' 'x\ny\nz'
    edit crlf 'b' 'x\ny'
    edit crlf 'a\r\nb' 'x\ny'
    edit plain 'ten' 'x\ny'
}
check line_ends line_ends

refusals() {
    edit plain '' 'x'
    edit empty '' 'x'
    edit plain 'a' 'a'
    edit missing 'a' 'b'
    edit plain 'e' 'x'
    edit plain 'zzz' 'b'
    printf 'aaa' >three
    edit three 'aa' 'b'
    printf '*1\r\n$1\r\na\r\n' | prog edit_file.awk -v file=plain
    echo "$?"
    prog edit_file.awk -v file=plain </dev/null
    echo "$?"
    with_lib 'BEGIN { for (i = 0; i < 3000; i++) printf "line x %d\n", i }' >many
    edit many 'x' 'y' | head -n 3
}
check refusals refusals

near_misses() {
    edit odd 'x y = 1' 'q'
    edit odd '    if (a) {\n        b();' 'q'
    edit odd 'if (a) { c' 'q'
    edit odd '"q"' 'q'
    edit odd '\303\251' 'q'
    edit odd 'if (a) {\n\t\tb();\n\342\200\234q\342\200\235 e\314\202' 'q'
    edit plain 'seven\neigth' 'q'
    edit plain '\n\n  five six\n' 'q'
}
check near_misses near_misses

nul() {
    printf 'a\000b\nc\n' >nul
    case $AWK in
    mawk | gawk) edit nul c d | tail -n 3 | od -c | sed 's/ *$//' ;;
    # The others cannot hold it and say so.
    *) edit nul c d | grep -q '^f.txt holds NUL bytes' && printf 'a\000b\nd\n>\n' | od -c | sed 's/ *$//' ;;
    esac
}
check nul nul
