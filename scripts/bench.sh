#!/usr/bin/env bash
# Whole processes against curl, bash and cat on the same local data, as ratios (`make bench`; budgets: docs and DESIGN).
# RUNS=30 sets the number of runs, ROWS="hello deltas" picks rows, AGENT names another binary.
# With scripts/agent.sh in place, ROWS="scripts" compares the Bash agent on the first row too.
set -euo pipefail
cd "$(dirname "$0")/.."

bench_runs=${RUNS:-15}
bench_rows=${ROWS:-size start hello deltas tool open body}
bench_target=${CARGO_TARGET_DIR:-$PWD/target}/release
bench_dir=$(mktemp -d)
bench_mock_pid=

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

# 100,000 events of 119 bytes.
bench_deltas() {
  bench_mock_start --repeat <<<'repeat 100000 "word"'
  bench_measure '100,000 text deltas, 11.9 MB  (budget: 2 × the CPU of curl, 12 MB)' \
    'curl -N' curl -sSN -d '{}' "$ANTHROPIC_BASE_URL/v1/messages" \
    --vs bash-agent "$bench_agent" hi \
    --vs 'bash-agent --print' "$bench_agent" --print hi
}

# From the answer's last byte to the next request, as the model sees it.
bench_tool() {
  bench_mock_start --cycle --log "$bench_dir/log" <<'END'
tool Bash b1 {"command":"true"}
---
text Done.
END
  local i
  for ((i = 0; i < bench_runs; i++)); do
    "$bench_agent" hi >"$bench_dir/said"
  done
  bench_mock_stop
  printf 'a Bash tool round, last byte to next request  (budget: 2.5 × the wall of bash -c true)\n'
  sed -n 's/.*"gap_us":\([0-9]*\),.*/\1/p' "$bench_dir/log" | awk 'NR % 2' | sort -n |
    awk '{ gap[NR] = $1 / 1000 } END { printf "  bash-agent  wall %8.2f ms [%.2f–%.2f]\n", gap[int((NR + 1) / 2)], gap[1], gap[NR] }'
  bench_measure '  against' 'bash -c true' bash -c true
}

bench_open() {
  bench_mock_start --repeat <<<'text Hello'
  local size
  for size in 1 1000; do
    "$bench_agent" --session "$size" hi >"$bench_dir/said"
    # A line of 1 kB, so that the file is what a long session leaves: many lines.
    awk -v lines=$((size * 1000)) 'BEGIN {
      line = sprintf("%0974d", 0)
      for (i = 0; i < lines; i++) print "{\"type\":\"text\",\"content\":\"" line "\"}"
    }' >>"$HOME/.bash-agent/projects/$bench_key/$size/events.jsonl"
  done
  bench_measure 'opening a session with 1 GB of events  (budget: 2 × one of 1 MB)' \
    '1 MB' "$bench_agent" --session 1 hi --vs '1 GB' "$bench_agent" --session 1000 hi
  rm -r "$HOME/.bash-agent/projects/$bench_key/1000"
}

bench_body() {
  "$bench_agent" --session body hi >"$bench_dir/said"
  local session=$HOME/.bash-agent/projects/$bench_key/body
  awk 'BEGIN {
    text = sprintf("%099900d", 0)
    for (i = 0; i < 500; i++) {
      print "{\"role\":\"user\",\"content\":\"" text "\"}"
      print "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"" text "\"}]}"
    }
  }' >>"$session/conversation.jsonl"
  if ! "$bench_agent" core body "$session" >"$bench_dir/said" 2>&1; then
    echo 'the body of a request from 100 MB: this binary has no core body'
    return
  fi
  bench_measure 'the body of a request from 100 MB  (budget: half of cat'\''s throughput, 16 MB)' \
    cat cat "$session/conversation.jsonl" --vs 'core body' "$bench_agent" core body "$session"
  rm -r "$session"
}

bench_scripts() {
  bench_mock_start --repeat <<<'text "Hello, " "world"'
  bench_measure 'one-shot hello, the runtimes' bash-agent "$bench_agent" hi \
    --vs 'agent.sh with core' env BASH_AGENT_CORE="$bench_agent" bash scripts/agent.sh hi \
    --vs 'agent.sh' env BASH_AGENT_CORE= bash scripts/agent.sh hi
}

trap bench_clean_up EXIT
[ -n "${AGENT:-}" ] || cargo build --quiet --release --locked
cargo build --quiet --release --locked -p mock-model
bench_agent=${AGENT:-$bench_target/bash-agent}
mkfifo "$bench_dir/mock.in" "$bench_dir/mock.out"
mkdir "$bench_dir/home"
export HOME=$bench_dir/home ANTHROPIC_API_KEY=sk-bench
unset BASH_AGENT_HOME
bench_key=$(pwd -P | tr -c 'A-Za-z0-9._\n-' - | tr -s -)
for bench_row in $bench_rows; do
  "bench_$bench_row"
done
