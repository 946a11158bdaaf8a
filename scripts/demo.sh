#!/usr/bin/env bash
# A real session with no network and no key: `make demo`.
# The agent mends a bug in a small throw-away project, then answers a line written to its input.fifo.
# The answers come from cassettes (-p script); the loop, the tools, the FIFO and the files are the real ones.
#
#   AGENT=PROGRAM   run this agent instead of the release binary (it is built when AGENT is not set)
#   KEEP=1          leave the project and the session where they are
set -u

demo_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P) || exit 1
demo_session=demo
demo_pid=
demo_dir=

demo_say() { printf '\n=== %s\n' "$*"; }

demo_fail() {
  printf 'demo: %s\n' "$*" >&2
  exit 1
}

# Sets demo_agent to the absolute path of the program to run; builds it when AGENT names none.
demo_find_agent() {
  if [ -n "${AGENT:-}" ]; then
    demo_agent=$(command -v "$AGENT") || demo_fail "AGENT=$AGENT is no program"
    case $demo_agent in
    /*) ;;
    *) demo_agent=$PWD/$demo_agent ;;
    esac
    return 0
  fi
  cargo build --release --locked --quiet --manifest-path "$demo_root/Cargo.toml" || demo_fail "the build failed"
  demo_agent=${CARGO_TARGET_DIR:-$demo_root/target}/release/bash-agent
  case $demo_agent in
  /*) ;;
  *) demo_agent=$demo_root/$demo_agent ;;
  esac
}

# Ends what is still running and removes what was made.
# shellcheck disable=SC2329  # run by the trap
demo_clean_up() {
  if [ -n "$demo_pid" ]; then
    kill "$demo_pid" 2>/dev/null
    wait "$demo_pid" 2>/dev/null
  fi
  [ -n "$demo_dir" ] || return 0
  if [ -n "${KEEP:-}" ]; then
    printf '\nKept: %s\n' "$demo_dir"
  else
    rm -rf "$demo_dir"
  fi
}

# demo_wait_for WHAT COMMAND...: tries COMMAND until it succeeds, for 20 s at most and while the agent runs.
demo_wait_for() {
  local what=$1 tries=200
  shift
  until "$@"; do
    kill -0 "$demo_pid" 2>/dev/null || demo_fail "the agent ended before $what"
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || demo_fail "gave up waiting for $what"
    sleep 0.1
  done
}

# demo_turns_ended N: whether the event log shows that N turns have ended.
demo_turns_ended() { [ "$(grep -c '^{"type":"stop"' "$demo_session_dir/events.jsonl")" -ge "$1" ]; }

demo_one_shot() {
  demo_say "The project: a report that is wrong, and a test that says so"
  ls
  sh test.sh && demo_fail "the project's test should fail before the agent has run"

  demo_say "bash-agent -p script --session $demo_session \"the totals are wrong, please fix report.sh\""
  "$demo_agent" -p script --session "$demo_session" "the totals are wrong, please fix report.sh" ||
    demo_fail "the agent ended with code $?"

  demo_say "The test now"
  sh test.sh || demo_fail "the test still fails"
  grep -q '^- Done:' NOTES.md || demo_fail "the agent wrote no summary into NOTES.md"
}

demo_fifo() {
  printf '%s\n' '{"type":"text","content":"Hi! This line came through input.fifo."}' \
    '{"type":"usage","input_tokens":20,"output_tokens":12,"cache_read_input_tokens":4500,"cache_creation_input_tokens":40}' \
    '{"type":"stop","reason":"end_turn"}' >"$demo_dir/hi.ndjson"

  demo_say "bash-agent -p script --model hi.ndjson --stay --session $demo_session &"
  "$demo_agent" -p script --model "$demo_dir/hi.ndjson" --stay --session "$demo_session" >"$demo_dir/stay.out" &
  demo_pid=$!
  # The Bash agent has no command `path`: its session is found by name.
  demo_session_dir=$("$demo_agent" path dir --session "$demo_session" 2>/dev/null ||
    find "$demo_dir/.bash-agent/projects" -type d -name "$demo_session")
  [ -d "$demo_session_dir" ] || demo_fail "no such session: $demo_session"
  local fifo=$demo_session_dir/input.fifo
  demo_wait_for "input.fifo was there" test -p "$fifo"

  # shellcheck disable=SC2016  # shown, not run
  demo_say 'echo "say hi" > "$(bash-agent path input)"'
  echo "say hi" >"$fifo"
  demo_wait_for "the answer" demo_turns_ended 2
  cat "$demo_dir/stay.out"
  grep -q "came through input.fifo" "$demo_dir/stay.out" || demo_fail "the answer was not displayed"

  demo_say "echo '{\"type\":\"session_end\"}' > \"\$(bash-agent path input)\""
  echo '{"type":"session_end"}' >"$fifo"
  wait "$demo_pid"
  local code=$?
  demo_pid=
  [ "$code" -eq 0 ] || demo_fail "the waiting agent ended with code $code"
  [ ! -e "$fifo" ] || demo_fail "input.fifo was left behind"
}

demo_show_session() {
  demo_say "The session it left: $demo_session_dir"
  ls -l "$demo_session_dir"
  demo_say "conversation.jsonl (what a model would be sent; long lines cut)"
  cut -c 1-110 "$demo_session_dir/conversation.jsonl"
  demo_say "events.jsonl (the last eight lines; long lines cut)"
  tail -n 8 "$demo_session_dir/events.jsonl" | cut -c 1-110
  demo_say "stats.json"
  cat "$demo_session_dir/stats.json"
}

demo_find_agent
trap demo_clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
demo_dir=$(mktemp -d "${TMPDIR:-/tmp}/bash-agent-demo.XXXXXX") || demo_fail "cannot make a temporary directory"
demo_dir=$(cd "$demo_dir" && pwd -P) || exit 1
export BASH_AGENT_HOME=$demo_dir
cp -R "$demo_root/src/assets/demo" "$demo_dir/project" || demo_fail "cannot make the project"
cd "$demo_dir/project" || exit 1

demo_one_shot
demo_fifo
demo_show_session
demo_say "All of this happened. Nothing was asked of any model, and nothing was sent anywhere."
