# json.awk: what src/wire/json.rs does, on the same inputs.
one_line() { with_lib '{ print json_escape(json_clean($0)) "|" json_escape(json_unescape($0)) "|" json_valid($0) }'; }

escapes() {
    printf 'a"b\\c\r\t\b\f\001\013\037\033\n/\177\302\205\342\200\250\303\251\360\237\215\270\n' | one_line
    printf 'a\360b\344\270\377c\n\355\240\200\n\300\200\n\364\220\200\200\n\360\237\215\n\303\n' | one_line
}
check escapes escapes

unescapes() {
    one_line <<'END'
\ud83c\udf78 \uD83C\uDF78
a\ud83d
\ud83dz
\ud83d\ud83c\udf78
\ud83d\u0041\udf78
\ud83d\n
\q\u12G4\u12
a\
\u0000
\\u0000\\\n
END
}
check unescapes unescapes

validity() {
    with_lib '{ print json_valid($0) " " $0 }' <<'END'
{}
[]
"a"
 [1, -0.5e+3 ,true,false,null,{"a":[{}]}] 
01
1.
-
.5
1e
1 2
tru
truefalse
[1,]
[,1]
{"a":1,}
{"a"}
{"a":1 "b":2}
{a:1}
{"a":1}x
"a" "b"
"a
"\x"
"\u12G4"
"\ud83d"
S
{"a":N}
[1}
{"a":"b,c}","d":["]"]}

END
    printf '"a\tb"\n"\377"\n' | with_lib '{ print json_valid($0) }'
    with_lib 'BEGIN {
        for (n = 126; n <= 128; n++) {
            s = "1"; for (i = 0; i < n; i++) s = "[" s "]"
            t = "1"; for (i = 0; i < n; i++) t = i % 2 ? "[" t "]" : "{\"a\":" t "}"
            print n, json_valid(s), json_valid(t)
        }
        s = ""; for (i = 0; i < 20000; i++) s = s "["
        print json_valid(s)
    }'
}
check validity validity

members() {
    with_lib '{
        n = json_members($0, K, V); printf "%d", n; for (i = 1; i <= n; i++) printf " <%s>=<%s>", K[i], V[i]; print ""
        n = json_elements($0, V); printf "%d", n; for (i = 1; i <= n; i++) printf " <%s>", V[i]; print " " json_member($0, "a")
    }' <<'END'
 { "a" : {"b":1} , "b":[1,{"a":2}],"a" :"x\"}" ,"c\u0064": -1.5e+3 } 
[1, [2,3] ,{"x":"y,z"},"a,b", []]
{}
[ ]
{"a":1,}
{"a":{"b":[1,2,{"c":3}],"d":"{[,:"},"e":[]}
"a"
END
}
check members members

tool_input() {
    with_lib 'function show(s) { s = json_tool_input(s); print (JSON_BAD == "" ? "<" s ">" : JSON_BAD) }
    BEGIN {
        show(""); show(" "); show("\r\n\t"); show("null"); show(" null\n")
        show("{ \"a\" :1.0,  \"b\":\"\\u00e9\\/\\n\\ufffd\\uFFFD\\ud83c\\udf78\" }")
        show("{\r\n\t\"a\":\n1,\r\"b\":2\n}")
        show("{\"a\":\"\\u0000 \\ud83d \\udf78\\ud83d\"}")
        show("{\"a\":\"\\\\u0000\"}")
        show("[1]"); show("{\"command\":\"rm -r x"); show("{\"a\":\"x\ny\"}"); show("{}{}"); show("{\"a\":\"\377\"}")
    }'
}
check tool_input tool_input

# Texts of a megabyte: right, and not by steps whose number grows with the square.
large() {
    with_lib 'BEGIN {
        s = "quick \"brown\"\tfox \303\251 \360\237\215\270 back\\slash\n"
        while (length(s) < 1000000) s = s s
        e = json_quote(s)
        print length(s), length(e), json_valid(e), (json_string(e) == s), (json_clean(s) == s)
        o = "{\"a\":" e ",\"b\":[" e "," e "]}"
        print (json_member(o, "a") == e), json_elements(json_member(o, "b"), V), (V[2] == e), (json_tool_input(o) == o)
    }'
}
check large large
