#!/usr/bin/env bash
# Other agents on the same local model, in the same two scenarios (`make bench-peers`): "hello", and an answer of 100,000
# deltas. Measured are those that are on PATH; nothing is installed. Each runs in an empty home with its own switch to
# another server, no telemetry where it can be turned off, and prints to /dev/null. RUNS=10, ROWS="hello deltas", PEERS="claude codex".
set -euo pipefail
cd "$(dirname "$0")/.."

peers_runs=${RUNS:-5}
peers_rows=${ROWS:-hello deltas}
peers_target=${CARGO_TARGET_DIR:-$PWD/target}/release
peers_dir=$(mktemp -d "${TMPDIR:-/var/tmp}/bash-agent-bench.XXXXXX")
peers_mock_pid=

# shellcheck disable=SC2329  # run by the trap
peers_clean_up() {
  peers_mock_stop
  rm -rf "$peers_dir"
}

peers_mock_start() {
  peers_mock_stop
  cat >"$peers_dir/answers"
  "$peers_target/mock-model" --repeat "$peers_dir/answers" <"$peers_dir/mock.in" >"$peers_dir/mock.out" &
  peers_mock_pid=$!
  exec 8>"$peers_dir/mock.in"
  IFS= read -r peers_url <"$peers_dir/mock.out"
}

peers_mock_stop() {
  [ -n "$peers_mock_pid" ] || return 0
  exec 8>&-
  wait "$peers_mock_pid"
  peers_mock_pid=
}

# peers_have NAME: it is wanted and on PATH.
peers_have() {
  case " ${PEERS:-$1} " in *" $1 "*) command -v "$1" >/dev/null ;; *) return 1 ;; esac
}

# peers_version NAME: the first number with dots that it prints.
peers_version() {
  local said
  said=$("$1" --version </dev/null 2>/dev/null) || said='?'
  # shellcheck disable=SC2001  # no pattern of bash takes a number out
  sed 's/^[^0-9]*\([0-9][0-9]*\.[0-9][0-9.]*\).*/\1/; q' <<<"$said"
}

# Sets peers_command to the measured command of each peer that is there, as arguments of `measure`.
peers_commands() {
  peers_command=()
  if peers_have claude; then
    peers_command+=(--vs "claude $(peers_version claude)" env ANTHROPIC_BASE_URL="$peers_url" ANTHROPIC_API_KEY=sk-bench
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 DISABLE_AUTOUPDATER=1 claude -p hi)
  fi
  if peers_have codex; then
    mkdir -p "$peers_dir/home/codex"
    peers_command+=(--vs "codex $(peers_version codex)" env CODEX_HOME="$peers_dir/home/codex" BENCH_KEY=x
    codex exec --skip-git-repo-check -c 'model="bench"' -c 'model_provider="bench"'
    -c "model_providers.bench={name=\"bench\",base_url=\"$peers_url/v1\",wire_api=\"responses\",env_key=\"BENCH_KEY\"}" hi)
  fi
  if peers_have pi; then
    mkdir -p "$peers_dir/home/pi"
    printf '{"providers":{"bench":{"baseUrl":"%s","api":"anthropic-messages","apiKey":"x","models":[{"id":"bench"}]}}}\n' "$peers_url" >"$peers_dir/home/pi/models.json"
    peers_command+=(--vs "pi $(peers_version pi)" env PI_CODING_AGENT_DIR="$peers_dir/home/pi" PI_OFFLINE=1
    pi --provider bench --model bench -p hi)
  fi
  if peers_have aider; then
    peers_command+=(--vs "aider $(peers_version aider)" env OPENAI_API_KEY=x aider --openai-api-base "$peers_url/v1" --model openai/bench
    --no-git --yes-always --no-check-update --no-show-model-warnings --analytics-disable --message hi)
  fi
  if peers_have llm; then
    mkdir -p "$peers_dir/home/llm"
    printf -- '- model_id: bench\n  model_name: bench\n  api_base: %s/v1\n' "$peers_url" >"$peers_dir/home/llm/extra-openai-models.yaml"
    peers_command+=(--vs "llm $(peers_version llm)" env LLM_USER_PATH="$peers_dir/home/llm" OPENAI_API_KEY=x llm -m bench hi)
  fi
}

peers_measure() {
  peers_commands
  "$peers_target/measure" --runs "$peers_runs" "$1" \
    'curl -N' curl -sSN -d '{}' "$peers_url/v1/messages" \
    --vs "bash-agent $(peers_version "$peers_agent")" env ANTHROPIC_BASE_URL="$peers_url" ANTHROPIC_API_KEY=sk-bench "$peers_agent" hi \
    "${peers_command[@]+"${peers_command[@]}"}"
}

trap peers_clean_up EXIT
[ -n "${AGENT:-}" ] || cargo build --quiet --release --locked
cargo build --quiet --release --locked -p mock-model
peers_agent=$(realpath "${AGENT:-$peers_target/bash-agent}")
mkfifo "$peers_dir/mock.in" "$peers_dir/mock.out"
mkdir "$peers_dir/home" "$peers_dir/work"
peers_target=$(realpath "$peers_target")
export HOME=$peers_dir/home
unset BASH_AGENT_HOME
cd "$peers_dir/work"
for peers_row in $peers_rows; do
  case $peers_row in
  hello)
    peers_mock_start <<<'text "Hello, " "world"'
    peers_measure 'one-shot hello'
    ;;
  deltas)
    peers_mock_start <<<'repeat 100000 "word "'
    peers_measure '100,000 text deltas'
    ;;
  *)
    echo "bench-peers: no row is called $peers_row; there are: hello deltas" >&2
    exit 2
    ;;
  esac
done
