#!/usr/bin/env bash
# build.sh - makes dist/agent.sh: the Bash agent as one file that needs nothing beside it.
#
# Run      scripts/build.sh [OUTPUT]      (default: dist/agent.sh)
# How      the parts of scripts/lib are put one behind the other; the programs of awk/ and scripts/lib/*.awk and the texts
#          of src/assets become strings, which the agent writes into its private directory when it starts.

set -euo pipefail
LC_ALL=C
ROOT=$(cd -P -- "$(dirname -- "$0")/.." && pwd -P)
OUTPUT=${1:-$ROOT/dist/agent.sh}
PARTS=$(sed -n 's/^for agent_part in \(.*\); do$/\1/p' "$ROOT/scripts/agent.sh")
[[ -n $PARTS ]] || {
  echo "build.sh: the list of parts is not in scripts/agent.sh" >&2
  exit 1
}

# A file as a single-quoted word, without its last line feed.
quoted() { # <file>
  printf "'"
  sed "s/'/'\\\\''/g" "$1"
  printf "'"
}

# What a part does when it is run by itself is not the agent's.
part() { # <name>
  sed -e '1{/^#!/d;}' -e '/^if \[\[ \${BASH_SOURCE\[0\]} == "\$0" \]\]; then$/,$d' "$ROOT/scripts/lib/$1.sh"
}

embed() { # <directory in the private files> <file>…
  local dir=$1 file
  shift
  for file; do
    # shellcheck disable=SC2016 # a word of the program that is made
    printf '  unpack_file "$1/%s/%s" ' "$dir" "${file##*/}"
    quoted "$file"
    printf '\n'
  done
}

mkdir -p -- "$(dirname -- "$OUTPUT")"
{
  sed -n '1,/^agent_find_root() {$/p' "$ROOT/scripts/agent.sh" | sed -e '/^# The directory of this file/d' -e '$d' \
    -e 's/^# The Bash agent: /# The Bash agent in one file (made by scripts\/build.sh): /'
  cat <<'END'
agent_path=${BASH_SOURCE[0]}
[[ $agent_path == */* ]] || agent_path=./$agent_path
AGENT_SELF=$(cd -P -- "${agent_path%/*}" && pwd -P)/${agent_path##*/}

unpack_file() { # <path> <content>
  printf '%s' "$2" >"$1"
}

# Writes the programs and texts into a directory, and has them used from there.
unpack_files() { # <directory>
  mkdir -p -- "$1/awk" "$1/lib" "$1/assets/prompt"
END
  embed awk "$ROOT"/awk/*.awk
  embed lib "$ROOT"/scripts/lib/*.awk
  embed assets "$ROOT"/src/assets/{tools.json,models.json,languages.tsv,programs.tsv,demo.ndjson}
  embed assets/prompt "$ROOT"/src/assets/prompt/*.md
  cat <<'END'
  AWK_DIR=${AWK_DIR:-$1/awk}
  LIB_DIR=$1/lib
  ASSETS_DIR=$1/assets
}
END
  for name in $PARTS; do
    printf '\n'
    part "$name"
  done
  printf '\nmain "$@"\n'
} >"$OUTPUT.new"
bash -n "$OUTPUT.new"
chmod 755 "$OUTPUT.new"
mv -f -- "$OUTPUT.new" "$OUTPUT"
echo "$OUTPUT"
