#!/usr/bin/env bash
# Keeps one agent busy over its FIFOs for a while: `make soak`, `SECONDS_TO_RUN=3600 make soak`.
# Four writers send inputs with ids, a fifth sends broken frames and noise. At the end every input must have been
# answered exactly once, every line of the session must be JSON, and the agent must hold no more files, threads
# or (by more than 16 MB) memory than after the first round. Then one session gets a million events (EVENTS=…), under the
# same limits. Linux only (/proc). AGENT names the program.
set -u

soak_seconds=${SECONDS_TO_RUN:-120}
soak_writers=4
soak_inputs=25 # of each writer in a round
soak_pid=
soak_dir=

soak_fail() {
  printf 'soak: %s\n' "$*" >&2
  exit 1
}

# shellcheck disable=SC2329  # run by the trap
soak_clean_up() {
  if [ -n "$soak_pid" ]; then
    kill "$soak_pid" 2>/dev/null
    wait "$soak_pid" 2>/dev/null
  fi
  [ -z "$soak_dir" ] || rm -rf "$soak_dir"
}

# soak_writer ROUND WRITER: sends inputs, each with an id of its own, in one write each.
soak_writer() {
  local i
  for ((i = 0; i < soak_inputs; i++)); do
    printf '{"type":"user_input","id":"r%d-w%d-%d","content":"input %d of writer %d"}\n' "$1" "$2" "$i" "$i" "$2" >"$soak_session/input.fifo"
  done
}

# What must do no harm: a frame that breaks off, an unknown message, bytes that are no text, noise.
# shellcheck disable=SC2016  # RESP lengths, not variables
soak_noise() {
  printf '*2\r\n$5\r\nab\n' >"$soak_session/input.fifo"
  printf '{"type":"no such type"}\n' >"$soak_session/input.fifo"
  printf 'noise \377\376\n' >"$soak_session/notify.fifo"
  printf '*1\r\n$7\r\nUNKNOWN\r\n' >"$soak_session/notify.fifo"
  printf '*99\r\n$999999999999\r\n\n' >"$soak_session/notify.fifo"
}

# How many inputs were answered so far.
soak_answered() { grep -c '^{"type":"stop".*"id":"r' "$soak_session/events.jsonl"; }

# soak_wait_for COUNT: until that many inputs are answered; 60 s without progress are a failure.
soak_wait_for() {
  local now last=-1 still=0
  while
    now=$(soak_answered) # grep says 1 when it counts 0
    [ "$now" -lt "$1" ]
  do
    kill -0 "$soak_pid" 2>/dev/null || soak_fail "the agent ended after $now of $1 inputs"
    if [ "$now" -eq "$last" ]; then still=$((still + 1)); else still=0; fi
    [ "$still" -lt 300 ] || soak_fail "no progress after $now of $1 inputs"
    last=$now
    sleep 0.2
  done
}

# Sets soak_files, soak_threads, soak_memory (kB) of the agent.
soak_measure() {
  soak_files=$(find "/proc/$soak_pid/fd" -mindepth 1 | wc -l)
  soak_threads=$(awk '/^Threads:/ { print $2 }' "/proc/$soak_pid/status")
  soak_memory=$(awk '/^VmRSS:/ { print $2 }' "/proc/$soak_pid/status")
}

soak_round() {
  local writer
  local -a pids=()
  for ((writer = 0; writer < soak_writers; writer++)); do
    soak_writer "$1" "$writer" &
    pids+=($!)
  done
  soak_noise &
  pids+=($!)
  wait "${pids[@]}"
  soak_wait_for $((($1 + 1) * soak_writers * soak_inputs))
}

# soak_start CASSETTE SESSION: an agent that stays; sets soak_pid and soak_session, its directory.
soak_start() {
  local fifo
  "$soak_agent" -p script --model "$1" --stay --session "$2" >/dev/null 2>"$soak_dir/stderr" &
  soak_pid=$!
  until fifo=$(find "$soak_dir/.bash-agent/projects" -path "*/$2/input.fifo" 2>/dev/null) && [ -n "$fifo" ]; do
    kill -0 "$soak_pid" 2>/dev/null || soak_fail "the agent did not start: $(cat "$soak_dir/stderr")"
    sleep 0.1
  done
  soak_session=$(dirname "$fifo")
}

# Ends the session; the agent must have held no more than soak_first_… says.
soak_end() {
  soak_measure
  printf 'at the end: %d files, %d threads, %d kB\n' "$soak_files" "$soak_threads" "$soak_memory"
  printf '{"type":"session_end"}\n' >"$soak_session/input.fifo"
  wait "$soak_pid"
  local code=$?
  soak_pid=
  [ "$code" -eq 0 ] || soak_fail "the agent ended with code $code: $(cat "$soak_dir/stderr")"
  [ "$soak_files" -le "$soak_first_files" ] || soak_fail "it holds $soak_files files, $soak_first_files after the first round"
  [ "$soak_threads" -le "$soak_first_threads" ] || soak_fail "it holds $soak_threads threads, $soak_first_threads after the first round"
  [ "$soak_memory" -le $((soak_first_memory + 16384)) ] || soak_fail "it holds $soak_memory kB, $soak_first_memory after the first round"
  [ ! -e "$soak_session/input.fifo" ] || soak_fail "input.fifo was left behind"
}

# Answers of 100,000 pieces each, until a session has so many events.
soak_events() {
  local round answered
  awk 'BEGIN {
    for (i = 0; i < 100000; i++) print "{\"type\":\"text\",\"content\":\"word \"}"
    print "{\"type\":\"stop\",\"reason\":\"end_turn\"}"
  }' >"$soak_dir/long.ndjson"
  soak_start "$soak_dir/long.ndjson" events
  for ((round = 1; round * 100000 <= ${EVENTS:-1000000}; round++)); do
    printf '{"type":"user_input","id":"r%d","content":"more"}\n' "$round" >"$soak_session/input.fifo"
    while
      answered=$(soak_answered)
      [ "$answered" -lt "$round" ]
    do
      kill -0 "$soak_pid" 2>/dev/null || soak_fail "the agent ended: $(cat "$soak_dir/stderr")"
      sleep 0.2
    done
    if ((round == 1)); then
      soak_measure
      printf 'after 100,000 events: %d files, %d threads, %d kB\n' "$soak_files" "$soak_threads" "$soak_memory"
      soak_first_files=$soak_files soak_first_threads=$soak_threads soak_first_memory=$soak_memory
    fi
  done
  printf '%d events\n' "$(wc -l <"$soak_session/events.jsonl")"
  soak_end
}

soak_agent=$(command -v "${AGENT:?names the program to run}") || soak_fail "AGENT=$AGENT is no program"
soak_agent=$(cd "$(dirname "$soak_agent")" && pwd -P)/$(basename "$soak_agent")
trap soak_clean_up EXIT
trap 'exit 130' INT TERM
soak_dir=$(mktemp -d "${TMPDIR:-/tmp}/bash-agent-soak.XXXXXX") || soak_fail "cannot make a temporary directory"
export BASH_AGENT_HOME=$soak_dir
mkdir "$soak_dir/project" && cd "$soak_dir/project" || exit 1
printf '%s\n' '{"type":"text","content":"done"}' \
  '{"type":"usage","input_tokens":9,"output_tokens":1,"cache_read_input_tokens":90,"cache_creation_input_tokens":1}' \
  '{"type":"stop","reason":"end_turn"}' >"$soak_dir/answer.ndjson"

soak_start "$soak_dir/answer.ndjson" soak
soak_round 0
soak_measure
printf 'after %d inputs: %d files, %d threads, %d kB\n' "$(soak_answered)" "$soak_files" "$soak_threads" "$soak_memory"
soak_first_files=$soak_files soak_first_threads=$soak_threads soak_first_memory=$soak_memory
for ((round = 1; SECONDS < soak_seconds; round++)); do soak_round "$round"; done
soak_count=$(soak_answered)
printf '%d inputs in %d s\n' "$soak_count" "$SECONDS"
soak_end
[ "$soak_count" -eq $((round * soak_writers * soak_inputs)) ] || soak_fail "$soak_count answers for $((round * soak_writers * soak_inputs)) inputs"
soak_twice=$(grep -oE '^\{"type":"stop".*"id":"[^"]*"' "$soak_session/events.jsonl" | sed 's/.*"id"://' | sort | uniq -d)
[ -z "$soak_twice" ] || soak_fail "answered twice: $soak_twice"
for file in events conversation; do
  jq -e . "$soak_session/$file.jsonl" >/dev/null || soak_fail "$file.jsonl holds a line that is no JSON"
done
soak_events
echo "soak: ok"
