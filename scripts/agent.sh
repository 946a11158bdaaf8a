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

# Keys stay in the block that /proc/<pid>/environ shows for as long as this process lives: so it starts itself anew without
# them, and takes them over descriptor 5. They are the shell's own variables then, of no helper's environment.
agent_hide_keys() { # <argument>…
  local name line names=() config=${BASH_AGENT_HOME:-${HOME:-}}/.bash-agent/config.toml
  for name in $(compgen -e); do
    case $name in
    *_API_KEY | *_APIKEY | *_TOKEN | *_SECRET | *_SECRET_KEY | *_PASSWORD | *_PASSWD | *_ACCESS_KEY | *_PRIVATE_KEY) ;;
    *_api_key | *_apikey | *_token | *_secret | *_secret_key | *_password | *_passwd | *_access_key | *_private_key) ;;
    *) continue ;;
    esac
    names[${#names[@]}]=$name
  done
  if [[ -r $config && -f $config ]]; then
    while IFS= read -r line || [[ -n $line ]]; do
      [[ $line =~ ^[[:blank:]]*key_env[[:blank:]]*=[[:blank:]]*[\"\']([A-Za-z_][A-Za-z0-9_]*)[\"\'] ]] || continue
      name=${BASH_REMATCH[1]}
      [[ -n ${!name:-} ]] && names[${#names[@]}]=$name
    done <"$config"
  fi
  ((${#names[@]})) || return 0
  exec 5< <(for name in "${names[@]}"; do printf '%s=%s\0' "$name" "${!name}"; done)
  unset "${names[@]}"
  BASH_AGENT_KEYS=$$ exec "$BASH" "${BASH_SOURCE[0]}" "$@"
}

agent_take_keys() {
  local word
  unset BASH_AGENT_KEYS
  AGENT_KEYS=()
  while IFS= read -r -d '' word; do
    [[ ${word%%=*} =~ ^[A-Za-z_][A-Za-z0-9_]*$ ]] || continue
    printf -v "${word%%=*}" '%s' "${word#*=}"
    AGENT_KEYS[${#AGENT_KEYS[@]}]=${word%%=*}
  done <&5
  exec 5<&-
}

AGENT_KEYS=()
if [[ ${BASH_AGENT_KEYS:-} == "$$" ]]; then
  agent_take_keys
elif [[ -f ${BASH_SOURCE[0]} ]]; then
  agent_hide_keys "$@"
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
for agent_part in base text core config cli session images wire display prompt model policy classify sandbox approval tools command search notify subagent limits compact turn inbox keys console repl control main; do
  # shellcheck source=/dev/null
  . "$LIB_DIR/$agent_part.sh"
done
main "$@"
