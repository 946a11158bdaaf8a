#!/usr/bin/env bash
# Whole processes against curl, bash, cat and the awk twins on the same local data, as medians and ratios of one run
# (`make bench`; docs/performance.md has a run with its budgets). RUNS=30 sets the number of runs, ROWS="hello deltas"
# picks rows, QUICK=1 leaves out the files of 1 GB, AGENT names another binary.
set -euo pipefail
cd "$(dirname "$0")/.."

bench_runs=${RUNS:-15}
bench_all="size start hello deltas tool rounds children open replay body list filters twins stats scripts codecs compaction"
bench_rows=${ROWS:-$bench_all}
bench_target=${CARGO_TARGET_DIR:-$PWD/target}/release
# Not /tmp: a home with a thousand neighbours is no usual one, and the sandbox has to grant each.
bench_dir=$(mktemp -d "${TMPDIR:-/var/tmp}/bash-agent-bench.XXXXXX")
bench_mock_pid=
bench_sizes="1 100 1000"
[ -z "${QUICK:-}" ] || bench_sizes="1 100"

# shellcheck disable=SC2329  # run by the trap
bench_clean_up() {
  bench_mock_stop
  rm -rf "$bench_dir"
}

# bench_mock_start OPTION…: reads the answers from stdin; sets ANTHROPIC_BASE_URL.
bench_mock_start() {
  bench_mock_stop
  cat >"$bench_dir/answers"
  "$bench_target/mock-model" "$@" "$bench_dir/answers" <"$bench_dir/mock.in" >"$bench_dir/mock.out" &
  bench_mock_pid=$!
  exec 8>"$bench_dir/mock.in"
  IFS= read -r ANTHROPIC_BASE_URL <"$bench_dir/mock.out"
  export ANTHROPIC_BASE_URL
}

# Its stdin ends, so it writes its log and ends.
bench_mock_stop() {
  [ -n "$bench_mock_pid" ] || return 0
  exec 8>&-
  wait "$bench_mock_pid"
  bench_mock_pid=
}

# bench_measure TITLE NAME COMMAND… [--vs NAME COMMAND…]…
bench_measure() {
  "$bench_target/measure" --runs "$bench_runs" "$@"
}

# bench_few …: as bench_measure, for what takes seconds.
bench_few() {
  "$bench_target/measure" --runs $((bench_runs < 5 ? bench_runs : 5)) "$@"
}

bench_session_dir() { "$bench_agent" path --session "$1"; }

# bench_from FILE COMMAND…: the words of a command with its stdin from FILE, in bench_words.
bench_from() {
  local file=$1
  shift
  # shellcheck disable=SC2016  # for the inner shell
  bench_words=(sh -c 'file=$1; shift; exec "$@" <"$file"' sh "$file" "$@")
}

# --- Start, one answer, a long answer ------------------------------------------------------------------------------

bench_size() {
  printf 'size  (budget: 10 MB)\n  bash-agent  %s bytes\n' "$(wc -c <"$bench_agent")"
}

bench_start() {
  bench_measure 'start  (budget: 2 × true)' true /bin/true --vs bash-agent "$bench_agent" --version
}

bench_hello() {
  bench_mock_start --repeat <<<'text "Hello, " "world"'
  bench_measure 'one-shot hello  (budget: wall and CPU of curl, 8 MB)' \
    'curl -N' curl -sSN -d '{}' "$ANTHROPIC_BASE_URL/v1/messages" \
    --vs bash-agent "$bench_agent" hi
}

# 100,000 events of 119 bytes, and as many in the other dialects.
bench_deltas() {
  bench_mock_start --repeat <<<'repeat 100000 "word"'
  bench_measure '100,000 text deltas, 11.9 MB  (budget: 2 × the CPU of curl, 12 MB)' \
    'curl -N' curl -sSN -d '{}' "$ANTHROPIC_BASE_URL/v1/messages" \
    --vs bash-agent "$bench_agent" hi \
    --vs 'bash-agent --print' "$bench_agent" --print hi \
    --vs 'bash-agent text' "$bench_agent" --output-format text hi
  bench_measure '100,000 text deltas of Chat Completions' \
    'curl -N' curl -sSN -d '{}' "$ANTHROPIC_BASE_URL/v1/chat/completions" \
    --vs bash-agent "$bench_agent" -p openai --base-url "$ANTHROPIC_BASE_URL" hi
  bench_measure '100,000 text deltas of Responses' \
    'curl -N' curl -sSN -d '{}' "$ANTHROPIC_BASE_URL/v1/responses" \
    --vs bash-agent "$bench_agent" -p responses --base-url "$ANTHROPIC_BASE_URL" hi
}

# --- Tools and sub-agents ------------------------------------------------------------------------------------------

# From the answer's last byte to the next request, as the model sees it.
# Two in a turn: the second finds its sandbox prepared.
bench_tool() {
  bench_mock_start --cycle --log "$bench_dir/log" <<'END'
tool Bash b1 {"command":"true"}
---
tool Bash b2 {"command":"true"}
---
text Done.
END
  local i
  for ((i = 0; i < bench_runs; i++)); do
    "$bench_agent" hi >"$bench_dir/said"
  done
  bench_mock_stop
  printf 'a Bash tool round, last byte to next request  (budget: 2.5 × the wall of bash -c true)\n'
  bench_gaps first 1
  bench_gaps next 2
  bench_measure '  against' 'bash -c true' bash -c true
}

# bench_gaps NAME N: the times from the Nth answer of each run's three to the request after it.
bench_gaps() {
  sed -n 's/.*"gap_us":\([0-9]*\),.*/\1/p' "$bench_dir/log" | awk -v n="$2" 'NR % 3 == n' | sort -n |
    awk -v name="$1" '{ gap[NR] = $1 / 1000 }
      END { printf "  bash-agent, %-5s  wall %8.2f ms [%.2f–%.2f]\n", name, gap[int((NR + 1) / 2)], gap[1], gap[NR] }'
}

bench_rounds() {
  local i
  for ((i = 1; i <= 50; i++)); do
    printf 'tool Bash b%d {"command":"true"}\n---\n' "$i"
  done >"$bench_dir/rounds"
  echo 'text Done.' >>"$bench_dir/rounds"
  bench_mock_start --cycle <"$bench_dir/rounds"
  # shellcheck disable=SC2016  # for the inner shell
  bench_few '50 tool rounds in one turn' \
    '50 × bash -c true' bash -c 'for ((i = 0; i < 50; i++)); do bash -c true; done' \
    --vs bash-agent "$bench_agent" hi
}

bench_children() {
  local count i
  for count in 1 10 50; do
    {
      # The children, and the parent once it has started them.
      printf 'when do part\ntext Done.\n---\n'
      for ((i = 1; i <= count; i++)); do
        printf 'tool SubAgent s%d {"prompt":"do part %d","description":"part %d"}\n' "$i" "$i" "$i"
      done
    } >"$bench_dir/children.$count"
  done
  # Each child is a process of its own: that is the comparison, as many one-shot runs one after the other.
  for count in 1 10 50; do
    bench_mock_start --repeat <"$bench_dir/children.$count"
    # shellcheck disable=SC2016  # for the inner shell
    bench_few "$count sub-agents, at most 8 at once" \
      "$count × one-shot" bash -c 'for ((i = 0; i < $2; i++)); do "$1" "do part" || exit; done' bash "$bench_agent" "$count" \
      --vs bash-agent "$bench_agent" hi
  done
}

# --- Sessions ------------------------------------------------------------------------------------------------------

# bench_events MEGABYTES: event lines of 1 kB, a user's input every hundredth, so many as a long session leaves.
bench_events() {
  awk -v lines=$(($1 * 1000)) 'BEGIN {
    line = sprintf("%0974d", 0)
    for (i = 0; i < lines; i++)
      if (i % 100 == 0) print "{\"type\":\"user_input\",\"content\":\"" line "\"}"
      else print "{\"type\":\"text\",\"content\":\"" line "\"}"
  }'
}

bench_open() {
  bench_mock_start --repeat <<<'text Hello'
  local size
  set --
  for size in $bench_sizes; do
    "$bench_agent" --session "open-$size" hi >"$bench_dir/said"
    bench_events "$size" >>"$(bench_session_dir "open-$size")/events.jsonl"
    set -- "$@" ${1+--vs} "$size MB" "$bench_agent" --session "open-$size" hi
  done
  bench_measure 'opening a session with so many events  (budget: 1 GB ≤ 2 × 1 MB)' "$@"
  for size in $bench_sizes; do rm -r "$(bench_session_dir "open-$size")"; done
}

bench_replay() {
  local size
  set --
  for size in $bench_sizes; do
    bench_events "$size" >"$bench_dir/events.$size"
    set -- "$@" ${1+--vs} "$size MB" "$bench_agent" core replay --last 10 "$bench_dir/events.$size"
  done
  bench_measure 'the last 10 turns of so many events  (budget: 1 GB ≤ 2 × 1 MB)' "$@"
  bench_few 'all of 100 MB of events' cat cat "$bench_dir/events.100" \
    --vs 'wc -l' wc -l "$bench_dir/events.100" --vs 'core replay' "$bench_agent" core replay "$bench_dir/events.100"
  rm "$bench_dir"/events.*
}

bench_body() {
  local size session api
  for size in 1 10 100; do
    "$bench_agent" -p script --model "$bench_dir/hello.ndjson" --session "body-$size" hi >"$bench_dir/said"
    session=$(bench_session_dir "body-$size")
    awk -v count=$((size * 5)) 'BEGIN {
      text = sprintf("%099900d", 0)
      for (i = 0; i < count; i++) {
        print "{\"role\":\"user\",\"content\":\"" text "\"}"
        print "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"" text "\"}]}"
      }
    }' >>"$session/conversation.jsonl"
    # Into a pipe: on the way to /dev/null cat copies once and no byte is looked at again.
    # shellcheck disable=SC2016  # for the inner shell
    set -- cat sh -c 'cat "$1" | cat >/dev/null' sh "$session/conversation.jsonl"
    for api in claude openai responses; do
      # shellcheck disable=SC2016
      set -- "$@" --vs "$api" sh -c '"$1" core body -p "$2" "$3" | cat >/dev/null' sh "$bench_agent" "$api" "$session"
    done
    bench_measure "the body of a request from $size MB, into a pipe  (budget for claude: half of cat's throughput, 16 MB)" "$@"
    rm -r "$session"
  done
}

bench_list() {
  local i project
  "$bench_agent" -p script --model "$bench_dir/hello.ndjson" --session list hi >"$bench_dir/said"
  project=$(dirname "$(bench_session_dir list)")
  for ((i = 0; i < 10000; i++)); do
    mkdir "$project/list-$i"
    printf '{"current_turn_count":3,"last_updated":"20261202-000000"}\n' >"$project/list-$i/stats.json"
    printf '{"type":"user_input","content":"hello"}\n' >"$project/list-$i/events.jsonl"
  done
  bench_measure '10,000 sessions  (budget: 200 ms)' 'ls -l' ls -l "$project" --vs sessions "$bench_agent" sessions \
    --vs 'sessions --json' "$bench_agent" sessions --json
  rm -rf "$project"/list-*
}

# --- Filters beside their twins ------------------------------------------------------------------------------------

bench_awks() {
  local awk
  for awk in mawk gawk; do command -v "$awk"; done
}

bench_twins() {
  local awk file=$bench_dir/twin
  bench_events 10 >"$file"
  set -- 'core replay' "$bench_agent" core replay "$file"
  for awk in $(bench_awks); do
    set -- "$@" --vs "${awk##*/}" env LC_ALL=C "$awk" -f "$bench_source"/awk/json.awk -f "$bench_source"/awk/protocol.awk -f "$bench_source"/awk/event_replay.awk "$file"
  done
  bench_few '10 MB of events to messages' "$@"

  awk 'BEGIN {
    print "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n"
    for (i = 0; i < 100000; i++)
      print "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"word\"}}\n"
    print "event: message_stop\ndata: {\"type\":\"message_stop\"}\n"
  }' >"$file"
  bench_from "$file" "$bench_agent" core sse --provider claude
  set -- 'core sse' "${bench_words[@]}"
  for awk in $(bench_awks); do
    set -- "$@" --vs "${awk##*/}" env LC_ALL=C "$awk" -f "$bench_source"/awk/json.awk -f "$bench_source"/awk/protocol.awk -f "$bench_source"/awk/sse_anthropic.awk "$file"
  done
  bench_few '100,000 deltas to messages' "$@"
}

bench_filters() {
  local file=$bench_dir/filter
  bench_events 50 >"$file.events"
  "$bench_agent" core replay "$file.events" >"$file.resp"
  bench_from "$file.resp" "$bench_agent" core resp decode
  set -- 'wc -l' wc -l "$file.resp" --vs 'core resp decode' "${bench_words[@]}"
  bench_from "$file.resp" "$bench_agent" core display
  bench_few '50 MB of frames' "$@" --vs 'core display' "${bench_words[@]}"
  bench_from "$file.events" "$bench_agent" core json escape
  bench_few '50 MB of text' 'wc -l' wc -l "$file.events" --vs 'core json escape' "${bench_words[@]}"
  rm "$file".*
}

# A process for each update: what a script has to pay.
bench_stats() {
  printf 'total_input_tokens=+1200\ncurrent_turn_count=+1\n' >"$bench_dir/updates"
  printf '{}\n' >"$bench_dir/stats.json"
  bench_from "$bench_dir/updates" "$bench_agent" core stats update "$bench_dir/stats.json"
  bench_measure 'one update of stats.json by a process of its own' true /bin/true --vs 'core stats update' "${bench_words[@]}"
}

# --- The Bash agent ------------------------------------------------------------------------------------------------

bench_scripts() {
  bench_mock_start --repeat <<<'text "Hello, " "world"'
  bench_few 'one-shot hello, the runtimes' bash-agent "$bench_agent" hi \
    --vs 'agent.sh with core' env BASH_AGENT_CORE="$bench_agent" bash "$bench_source/scripts/agent.sh" hi \
    --vs 'agent.sh' env BASH_AGENT_CORE= bash "$bench_source/scripts/agent.sh" hi
  bench_mock_start --repeat <<<'repeat 100000 "word"'
  bench_few '100,000 text deltas, the runtimes  (budget: with core 5 × faster than without)' \
    'agent.sh' env BASH_AGENT_CORE= bash "$bench_source/scripts/agent.sh" hi \
    --vs 'agent.sh with core' env BASH_AGENT_CORE="$bench_agent" bash "$bench_source/scripts/agent.sh" hi \
    --vs bash-agent "$bench_agent" hi
}

# A 200-turn session under four policies, in dollars and cache hits (docs/compaction.md).
bench_compaction() {
  HOME=$bench_real_home cargo bench --quiet --locked --bench compaction
}

bench_codecs() {
  cd "$bench_source"
  HOME=$bench_real_home cargo bench --quiet --locked --bench codecs
}

# --- Main ----------------------------------------------------------------------------------------------------------

for bench_row in $bench_rows; do
  case " $bench_all " in *" $bench_row "*) ;; *)
    echo "bench: no row is called $bench_row; there are: $bench_all" >&2
    exit 2
    ;;
  esac
done
trap bench_clean_up EXIT
[ -n "${AGENT:-}" ] || cargo build --quiet --release --locked
cargo build --quiet --release --locked -p mock-model
bench_agent=$(realpath "${AGENT:-$bench_target/bash-agent}")
bench_target=$(realpath "$bench_target")
mkfifo "$bench_dir/mock.in" "$bench_dir/mock.out"
mkdir "$bench_dir/home" "$bench_dir/work"
bench_source=$PWD
bench_real_home=$HOME
printf '%s\n' '{"type":"text","content":"Hello"}' '{"type":"stop","reason":"end_turn"}' >"$bench_dir/hello.ndjson"
export HOME=$bench_dir/home ANTHROPIC_API_KEY=sk-bench
unset BASH_AGENT_HOME
printf '%s, %s CPUs, %s, load %s\n' "$(uname -srm)" "$(getconf _NPROCESSORS_ONLN)" "$(date -u +%F)" "$(cut -d ' ' -f 1 /proc/loadavg 2>/dev/null || echo '?')"
for bench_row in $bench_rows; do
  cd "$bench_dir/work"
  "bench_$bench_row"
done
