# sse_script.awk, response.awk, record.awk, display.awk: a turn's way from the model to files and screen.
cat >cassette <<'END'
{"type":"thinking","content":"hm","signature":"sig"}
{"type":"text","content":"Hello\n"}
{"type":"text","content":"\tyou"}
{"type":"tool_call","name":"Bash","input":{"command":"echo hi","n":1}}
{"type":"tool_call","name":"Write","id":"a b","input":"{\"path\":\"x"}
{"type":"usage","input_tokens":5,"output_tokens":6,"cache_read_input_tokens":7,"cache_creation_input_tokens":8}
{"type":"stop","reason":"tool_use"}

{"type":"text","content":"lost"}
{"type":"usage","input_tokens":1,"output_tokens":1}
{"type":"error","message":"over","status":529}
{"type":"redacted_thinking","data":"opaque"}
{"type":"text","content":"bye"}
{"type":"retry"}
{"type":"text","content":"good bye"}
{"type":"stop","reason":"end_turn"}
{"type":"text","content":"no"}
{"type":"error","message":"bad","status":400}
END
play() { # N
    prog sse_script.awk -v out=json -v estimated=1 -v play=$1 -v status=state ${2:+-v calls=$2} cassette
    cat state
}
cassette() {
    play 1
    play 2 2
    play 4
    play 9
    printf '{"type":"text","content":"A"}\nx\n' >bad
    prog sse_script.awk -v out=json bad
    printf '{"type":"text","content":"A"}\n' >open
    prog sse_script.awk -v out=json open
    prog sse_script.awk -v out=json /dev/null
    for try in 1 2 3 4; do printf '{"type":"error","message":"over %s","status":503}\n' $try; done >over
    prog sse_script.awk -v out=json -v tries=3 over
}
check cassette cassette

scrub() { sed 's/"ts":"2[0-9-]*T[0-9:]*\.[0-9]*Z"/"ts":TS/'; }
gather() { # options: the frames on stdin
    rm -rf dir events
    mkdir dir
    prog response.awk -v events=events -v dir=dir -v model=m "$@" | scrub
    [ ! -f events ] || scrub <events
    for file in dir/*; do
        echo "== ${file#dir/}"
        scrub <"$file"
    done
}
response() {
    prog sse_script.awk -v estimated=1 -v play=1 cassette | gather -v out=json
    prog sse_script.awk -v estimated=1 -v play=2 cassette | gather -v show=events
    prog sse_script.awk -v play=4 cassette | gather -v show=none
    printf 'TEXT\thalf\n' | prog resp_encode.awk | gather -v out=lines
    : | gather
}
check response response

cut_off() {
    {
        printf 'THINKING\ta\nSIGNATURE\ts\nTEXT\tt\nTHINKING\tunfinished\nTOOL_CALL\tWrite\tx\t{"a\nUSAGE\t1\t9\t0\t0\nSTOP\tmax_tokens\n' | prog resp_encode.awk | gather -v show=none
        printf 'TOOL_CALL\tWrite\tx\t{"a\nUSAGE\t1\t9\t0\t0\nSTOP\ttool_use\n' | prog resp_encode.awk | gather -v show=none -v max_tokens=9
        printf 'TOOL_CALL\tWrite\tx\t{"a\nUSAGE\t1\t8\t0\t0\nSTOP\ttool_use\n' | prog resp_encode.awk | gather -v show=none -v max_tokens=9
    }
}
check cut_off cut_off

odd_blocks() {
    printf 'TEXT\t \\n\nSIGNATURE\tempty\nTEXT\tx\nTHINKING\tu\nSIGNATURE\te\tid1\nTOOL_CALL\tA\ta.b\t\nTOOL_CALL\tB\ta.b\tnull\nTOOL_CALL\tC\t\t{ "a":\\n1}\nSTOP\ttool_use\n' |
        prog resp_encode.awk | gather -v show=none
}
check odd_blocks odd_blocks

records() {
    printf 'a"b\n' >r1
    : >r2
    printf 'x\377y' >"r'3"
    printf 'id1\tr1\t0\nid2\tr2\t1\n' >list
    printf 'type\ts\tuser_input\ncontent\ts\thi\\nx\\\\\nn\tr\t5\nts\n\nrole\ts\tuser\nresults\tlist\n\ncontent\tf\tr'"'"'3\n\n\ncontent\tf\tmissing\n' |
        prog record.awk | scrub
    printf 'a\ts\tb\n' | prog record.awk -v append=appended
    printf 'a\ts\tc\n' | prog record.awk -v append=appended -v also=1
    cat appended
    rm -f appended
}
check records records

screen() {
    for color in 0 1; do
        printf '%s\n' 'USER_MESSAGE	first line\nsecond' 'THINKING	hm' 'THINKING	 yes' 'TEXT	answer\n' 'TEXT	more' 'TOOL_CALL	Bash	id	{}	command	a\nb' \
            'TOOL_RESULT	id	Bash	out\n\n' 'TOOL_CALL	Read	id	{}	path	p' 'TOOL_RESULT	id	Read	Read(p) [1 lines, 2 bytes]\nx' 'TOOL_CALL	Odd	id	{}' \
            'TOOL_CALL	TodoWrite	id	{}	todos	[{"content":"A","status":"completed"},{"content":"B","status":"pending"}]' \
            'AGENT_RESULT	sub_1	ok	1	2	th	tx' 'AGENT_RESULT	sub_2	failed	1	2		why' 'ASYNC_TASK_RESULT	task_1	0	done' 'ASYNC_TASK_RESULT	task_2	1	' \
            'USER_NOTIFY	steer' 'CONTEXT_UPDATE	compact	auto' 'TEXT	open' 'STOP	interrupted' 'ERROR	bad \x1b[31m' 'USAGE	1	2	3	4' 'RETRY' 'UNKNOWN	x' |
            prog resp_encode.awk | prog display.awk -v color=$color -v error_color=$color
    done
    printf 'TEXT\ta\\rb\\r\\n\177\302\233\342\200\256\033[0m\330\234\342\201\246\303\251\302\240\n' | prog resp_encode.awk | prog display.awk
    with_lib 'BEGIN { for (i = 0; i < 90; i++) s = s "\303\251"; print "USER_MESSAGE\t" s; print "TOOL_CALL\tBash\ti\t{}\tcommand\t" substr(s, 1, 160); print "AGENT_RESULT\ts\tok\t0\t0\t" s s "\t" s s }' |
        prog resp_encode.awk | prog display.awk
}
check screen screen

command_line() {
    printf 'x"y\n\n' | prog json_cli.awk -v op=escape -v lf=1
    printf 'x"y\n\nX' | prog json_cli.awk -v mark=1 -v op=quote -v lf=1
    printf 'a\377' | prog json_cli.awk -v op=clean -v lf=1
    printf 'a\\nb\\ud83d' | prog json_cli.awk -v op=unescape -v lf=1
    echo '{"a":"x\ny","b":[1, {"c":2}]}' >j
    for op in get keys members valid tool_input; do prog json_cli.awk -v op=$op -v key=a -v lf=1 j; done
    prog json_cli.awk -v op=get -v key=a -v raw=1 -v lf=1 j
    prog json_cli.awk -v op=get -v key=none j || echo "exit $?"
    printf '[1,\n{"a":\n2},"x"]' | prog json_cli.awk -v op=elements
    printf '{"a"' | prog json_cli.awk -v op=valid || echo "exit $?"
    printf '[1]' | prog json_cli.awk -v op=tool_input || echo "exit $?"
    prog json_cli.awk -v op=what </dev/null || echo "exit $?"
    printf 'a\360b\nc\000d\n' | tr '\000' '\377' | prog utf8.awk
}
check command_line command_line
