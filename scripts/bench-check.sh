#!/usr/bin/env bash
# Instructions of the release binary's hot paths, counted by valgrind and held against benches/baseline.json: a path
# that needs over 5 % more is a failure (`make bench-check`). The counts do not depend on how busy the machine is.
# UPDATE=1 writes the baseline anew (and the commit says why); ROWS="start hello" picks rows; AGENT names another binary.
set -euo pipefail
cd "$(dirname "$0")/.."

check_baseline=benches/baseline.json
check_allowed=5 # per cent
check_dir=$(mktemp -d)
check_failed=0

# shellcheck disable=SC2329  # run by the trap
check_clean_up() { rm -rf "$check_dir"; }
trap check_clean_up EXIT

for check_tool in valgrind awk; do
  command -v "$check_tool" >/dev/null || {
    echo "bench-check: $check_tool is missing (Debian: apt-get install $check_tool)" >&2
    exit 1
  }
done

# repeat COUNT LINE: the line, that many times.
repeat() { awk -v count="$1" -v line="$2" 'BEGIN { for (i = 0; i < count; i++) print line }'; }

# --- What goes in -----------------------------------------------------------------------------------------------------

# A stream of 20,000 deltas in each dialect.
make_streams() {
  {
    printf 'event: message_start\ndata: {"type":"message_start","message":{"id":"m","usage":{"input_tokens":9,"output_tokens":1}}}\n\n'
    printf 'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\n'
    repeat 20000 'event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"word "}}
'
    printf 'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
    printf 'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":20000}}\n\n'
    printf 'event: message_stop\ndata: {"type":"message_stop"}\n\n'
  } >"$check_dir/claude.sse"
  {
    repeat 20000 'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}]}
'
    printf 'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":20000}}\n\ndata: [DONE]\n\n'
  } >"$check_dir/openai.sse"
  {
    repeat 20000 'event: response.output_text.delta
data: {"type":"response.output_text.delta","item_id":"i","output_index":0,"content_index":0,"delta":"word "}
'
    printf 'event: response.completed\ndata: {"type":"response.completed","response":{"status":"completed","usage":{"input_tokens":9,"output_tokens":20000}}}\n\n'
  } >"$check_dir/responses.sse"
}

# Logs, frames and files of a long session.
make_files() {
  repeat 5000 '{"type":"user_input","content":"what comes next?"}
{"type":"text","content":"a piece of the answer, as it came from the model"}
{"type":"tool_call","name":"Bash","id":"toolu_1","input":{"command":"ls -l src"}}
{"type":"tool_result","id":"toolu_1","name":"Bash","content":"total 4\n-rw-r--r-- 1 me me 0 Jan 1 main.c\n","is_error":false}
{"type":"stop","reason":"end_turn"}' >"$check_dir/events.jsonl"
  "$check_agent" core replay <"$check_dir/events.jsonl" >"$check_dir/messages.resp"
  "$check_agent" core resp decode <"$check_dir/messages.resp" >"$check_dir/messages.txt"
  repeat 100 'current_turn_count=+1
total_input_tokens=+1200' >"$check_dir/updates"
  printf '{}\n' >"$check_dir/stats.json"
  awk 'BEGIN { for (i = 0; i < 20000; i++) print "line number " i " of a text with \"quotes\" and a tab\t." }' >"$check_dir/text"
  printf 'line number 19999 of\tthe line number 19999 of\n' | "$check_agent" core resp encode >"$check_dir/edit.resp"
}

# Cassettes for whole turns, and a session of 5 MB.
make_sessions() {
  printf '%s\n' '{"type":"text","content":"Hello, world"}' '{"type":"stop","reason":"end_turn"}' >"$check_dir/hello.ndjson"
  {
    repeat 20 '{"type":"tool_call","name":"Read","id":"r1","input":{"file_path":"notes"}}
{"type":"stop","reason":"tool_use"}'
    printf '%s\n' '{"type":"text","content":"Done."}' '{"type":"stop","reason":"end_turn"}'
  } >"$check_dir/rounds.ndjson"
  {
    repeat 20000 '{"type":"text","content":"word "}'
    printf '%s\n' '{"type":"stop","reason":"end_turn"}'
  } >"$check_dir/deltas.ndjson"
  mkdir "$check_dir/home" "$check_dir/work"
  echo hello >"$check_dir/work/notes"
  agent -p script -m "$check_dir/hello.ndjson" --session long hi >"$check_dir/said"
  check_session=$(agent path --session long)
  awk 'BEGIN {
    text = sprintf("%0900d", 0)
    for (i = 0; i < 1250; i++) {
      print "{\"role\":\"user\",\"content\":\"" text "\"}"
      print "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"" text "\"},{\"type\":\"tool_use\",\"id\":\"toolu_" i "\",\"name\":\"Read\",\"input\":{\"file_path\":\"notes\"}}]}"
      print "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"toolu_" i "\",\"content\":\"" text "\"}]}"
      print "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"" text "\"}]}"
    }
  }' >>"$check_session/conversation.jsonl"
}

# The agent on its cassette, in its own home and project, with nothing of the user's environment.
agent() {
  (cd "$check_dir/work" && env -i HOME="$check_dir/home" PATH=/usr/bin:/bin LC_ALL=C.UTF-8 "$check_agent" "$@")
}

# --- Counting ---------------------------------------------------------------------------------------------------------

# count ROW INPUT ARGUMENT…: the instructions of one run, in check_count; what the tools it starts need is not counted.
count() {
  local row=$1 input=$2
  shift 2
  if ! (cd "$check_dir/work" && env -i HOME="$check_dir/home" PATH=/usr/bin:/bin LC_ALL=C.UTF-8 \
    valgrind --tool=cachegrind --cache-sim=no --cachegrind-out-file=/dev/null --log-file="$check_dir/valgrind.%p" \
    "$check_agent" "$@" <"$input" >"$check_dir/said" 2>"$check_dir/errors"); then
    printf 'bench-check: %s failed:\n' "$row" >&2
    cat "$check_dir/errors" >&2
    exit 1
  fi
  check_count=$(cat "$check_dir"/valgrind.* | sed -n 's/.*I *refs: *//p' | tr -d , | sort -n | tail -n 1)
  rm -f "$check_dir"/valgrind.*
}

# The rows: what is counted, one a line.
run_row() {
  case $1 in
  start) count "$1" /dev/null --version ;;
  hello) count "$1" /dev/null -p script -m "$check_dir/hello.ndjson" hi ;;
  deltas) count "$1" /dev/null -p script -m "$check_dir/deltas.ndjson" hi ;;
  deltas-events) count "$1" /dev/null -p script -m "$check_dir/deltas.ndjson" --print hi ;;
  rounds) count "$1" /dev/null -p script -m "$check_dir/rounds.ndjson" hi ;;
  sse-claude) count "$1" "$check_dir/claude.sse" core sse --provider claude ;;
  sse-openai) count "$1" "$check_dir/openai.sse" core sse --provider openai ;;
  sse-responses) count "$1" "$check_dir/responses.sse" core sse --provider responses ;;
  resp-decode) count "$1" "$check_dir/messages.resp" core resp decode ;;
  resp-encode) count "$1" "$check_dir/messages.txt" core resp encode ;;
  replay) count "$1" "$check_dir/events.jsonl" core replay ;;
  replay-last) count "$1" /dev/null core replay --last 10 "$check_dir/events.jsonl" ;;
  display) count "$1" "$check_dir/messages.resp" core display ;;
  body-claude) count "$1" /dev/null core body -p claude "$check_session" ;;
  body-openai) count "$1" /dev/null core body -p openai "$check_session" ;;
  body-responses) count "$1" /dev/null core body -p responses "$check_session" ;;
  stats-update) count "$1" "$check_dir/updates" core stats update "$check_dir/stats.json" ;;
  compact-choice) count "$1" /dev/null core compact-choice --turns 1250 --requests 2500 --context 150000 "$check_session/conversation.jsonl" ;;
  sub-result) count "$1" /dev/null core sub-result "$check_session" ;;
  json-escape) count "$1" "$check_dir/text" core json escape ;;
  edit) count "$1" "$check_dir/edit.resp" core edit "$check_dir/text" ;;
  sessions) count "$1" /dev/null sessions ;;
  *)
    echo "bench-check: no row is called $1; there are: $check_all" >&2
    exit 2
    ;;
  esac
}

check_all="start hello deltas deltas-events rounds sse-claude sse-openai sse-responses resp-decode resp-encode replay
  replay-last display body-claude body-openai body-responses stats-update compact-choice sub-result json-escape edit sessions"

[ -n "${AGENT:-}" ] || cargo build --quiet --release --locked
check_agent=$(realpath "${AGENT:-${CARGO_TARGET_DIR:-target}/release/bash-agent}")
check_made_by=$(rustc --version | cut -d ' ' -f 1-2)
check_before=$(sed -n 's/.*"made_by": "\([^"]*\)".*/\1/p' "$check_baseline" 2>/dev/null || true)
if [ -z "${UPDATE:-}" ] && [ "$check_before" != "$check_made_by" ]; then
  echo "bench-check: the baseline is of '$check_before', this is '$check_made_by': differences may be the compiler's; UPDATE=1 writes it anew" >&2
fi
make_streams
make_files 2>/dev/null
make_sessions 2>/dev/null

printf '%-16s %14s %14s\n' path baseline now
for check_row in ${ROWS:-$check_all}; do
  run_row "$check_row"
  printf '%s %s\n' "$check_row" "$check_count" >>"$check_dir/counts"
  check_old=$(sed -n 's/^ *"'"$check_row"'": \([0-9]*\),*$/\1/p' "$check_baseline" 2>/dev/null || true)
  check_verdict=$(awk -v old="${check_old:-0}" -v now="$check_count" -v allowed="$check_allowed" 'BEGIN {
    if (old == 0) { print "new"; exit }
    grown = (now / old - 1) * 100
    printf "%+.1f %%%s", grown, (grown > allowed ? "  GREW" : "")
  }')
  printf '%-16s %14s %14s  %s\n' "$check_row" "${check_old:--}" "$check_count" "$check_verdict"
  case $check_verdict in *GREW | new) check_failed=1 ;; esac
done

if [ -n "${UPDATE:-}" ]; then
  [ -z "${ROWS:-}" ] || {
    echo "bench-check: UPDATE writes all rows: do not give ROWS" >&2
    exit 2
  }
  awk -v made_by="$check_made_by" -v machine="$(uname -m)" '
    BEGIN { printf "{\n  \"made_by\": \"%s\",\n  \"machine\": \"%s\",\n  \"instructions\": {\n", made_by, machine }
    { printf "%s    \"%s\": %s", (NR > 1 ? ",\n" : ""), $1, $2 }
    END { print "\n  }\n}" }' "$check_dir/counts" >"$check_baseline"
  echo "bench-check: wrote $check_baseline"
elif [ "$check_failed" -ne 0 ]; then
  echo "bench-check: a path needs over $check_allowed % more instructions than in $check_baseline (or is not in it): find the cause, or UPDATE=1 and say why in the commit" >&2
  exit 1
fi
