#!/usr/bin/env bash
# The conformance suite over every runtime and mix that this machine can run, and their matrix: `make test-conformance`.
#
#   BIN=FILE       the binary (default: the release build)
#   AGENTS=LIST    run these instead: name=command;name=command… (tests/conformance/README.md)
#   QUICK=1        one awk only
#   CONFORMANCE_MATRIX=FILE   the whole matrix, every case a row (default: target/conformance-matrix.txt)
#
# Further arguments go to the suite: `scripts/test-conformance.sh input::` runs one area.
set -u

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P) || exit 1
bin=${BIN:-${CARGO_TARGET_DIR:-$root/target}/release/bash-agent}
bin=$(realpath -- "$bin") || exit 1
agent="bash $root/scripts/agent.sh"
dist="bash $root/dist/agent.sh"

# Without the binary the Bash agent is confined by bubblewrap, where that works.
bare=
bwrap --unshare-pid --unshare-ipc --ro-bind / / --proc /proc --dev /dev true 2>/dev/null || bare="WITHOUT=sandbox "

# The awks that are here, as `name program` lines. The suite splits commands at blanks, so busybox gets a link to be
# called by.
awks() {
  local name busybox
  for name in mawk gawk original-awk; do
    if command -v "$name" >/dev/null; then printf '%s %s\n' "$name" "$name"; fi
  done
  if busybox=$(command -v busybox) && "$busybox" awk 'BEGIN {}' 2>/dev/null; then
    mkdir -p "$root/target/busybox" && ln -sf "$busybox" "$root/target/busybox/awk"
    printf 'busybox %s\n' "$root/target/busybox/awk"
  fi
}

# list: every runtime and mix as name=command, separated by semicolons.
list() {
  local name awk out="binary=$bin"
  while read -r name awk; do
    out="$out;sh $name=${bare}BASH_AGENT_CORE= BASH_AGENT_AWK=$awk $agent"
    case $name in
    mawk | gawk)
      out="$out;sh+core $name=BASH_AGENT_CORE=$bin BASH_AGENT_AWK=$awk $agent"
      out="$out;dist $name=${bare}BASH_AGENT_CORE= BASH_AGENT_AWK=$awk $dist"
      ;;
    esac
    [ -z "${QUICK:-}" ] || break
  done < <(awks)
  printf '%s' "$out"
}

"$root/scripts/build.sh" >/dev/null || exit 1
export AGENTS="${AGENTS:-$(list)}"
export CONFORMANCE_MATRIX=${CONFORMANCE_MATRIX-$root/target/conformance-matrix.txt}
cd "$root" && exec cargo test --locked --test conformance -- "$@"
