#!/usr/bin/env bash
# The Bash agent: the same contract as the binary, in bash and POSIX awk with curl.
#
# Purpose  Entry: checks the shell, finds its own files, loads the parts and runs them.
# Run      scripts/agent.sh [OPTIONS] [PROMPT]   (--help lists the options; exit codes as CONTRACT §13)
# Parts    scripts/lib/*.sh, the filters of awk/, the texts of src/assets. scripts/build.sh makes one file of all.

set -u
if [ -z "${BASH_VERSION:-}" ]; then
  echo "Error: this program needs bash: run it as \`bash $0\`" >&2
  exit 2
fi
if ((BASH_VERSINFO[0] < 3 || (BASH_VERSINFO[0] == 3 && BASH_VERSINFO[1] < 2))); then
  echo "Error: bash $BASH_VERSION is too old: 3.2 or newer is needed" >&2
  exit 2
fi

# The directory of this file, links followed.
agent_find_root() {
  local path=${BASH_SOURCE[0]} link
  while [[ -L $path ]]; do
    link=$(readlink -- "$path") || break
    [[ $link == /* ]] || link=${path%/*}/$link
    path=$link
  done
  [[ $path == */* ]] || path=./$path
  ROOT=$(cd -P -- "${path%/*}/.." && pwd -P)
}

agent_find_root
LIB_DIR=$ROOT/scripts/lib
AWK_DIR=${AWK_DIR:-$ROOT/awk}
# shellcheck disable=SC2034 # the parts read it
ASSETS_DIR=$ROOT/src/assets
# shellcheck disable=SC2034 # the parts read it
AGENT_SELF=$ROOT/scripts/agent.sh
for agent_part in base text core config cli session images wire display prompt model policy sandbox approval tools search notify subagent compact turn inbox repl control main; do
  # shellcheck source=/dev/null
  . "$LIB_DIR/$agent_part.sh"
done
main "$@"
