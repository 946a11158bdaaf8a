#!/usr/bin/env bash
# Checks README.md, CONTRIBUTING.md and docs/: every relative link leads to a file (and to a heading of it), every
# ```sh block passes shellcheck, and, when a program is named, every --flag and every command that the text gives
# to bash-agent is one that it knows.
#
#   scripts/check-docs.sh [PROGRAM]
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

docs_failed=0
docs_tmp=$(mktemp -d "${TMPDIR:-/tmp}/check-docs.XXXXXX") || exit 1
trap 'rm -rf "$docs_tmp"' EXIT

docs_problem() {
  printf '%s\n' "$*" >&2
  docs_failed=1
}

# docs_anchors FILE: the anchors of its headings, as GitHub makes them.
docs_anchors() {
  awk '/^```/ { code = !code } !code && /^#+ / { sub(/^#+ /, ""); print tolower($0) }' "$1" |
    sed -e 's/[^a-z0-9 _-]//g' -e 's/ /-/g'
}

# docs_links FILE: the targets of its relative links.
docs_links() {
  awk '/^```/ { code = !code } !code' "$1" | grep -oE '\]\([^)]+\)' | sed -e 's/^](//' -e 's/)$//' | grep -vE '^[a-z]+:'
}

docs_check_links() {
  local file=$1 link path anchor
  docs_links "$file" >"$docs_tmp/links"
  while IFS= read -r link; do
    path=${link%%#*}
    anchor=${link#"$path"}
    if [ -n "$path" ]; then path=$(dirname "$file")/$path; else path=$file; fi
    if [ ! -e "$path" ]; then
      docs_problem "$file: the link $link leads nowhere"
    elif [ -n "$anchor" ] && ! docs_anchors "$path" | grep -qxF -e "${anchor#\#}"; then
      docs_problem "$file: $path has no heading for $link"
    fi
  done <"$docs_tmp/links"
}

docs_check_blocks() {
  awk '/^```sh$/ { code = 1; next } /^```/ { code = 0 } code { print } !code { print "" }' "$1" >"$docs_tmp/block.sh"
  shellcheck -s bash -e SC2016 "$docs_tmp/block.sh" >"$docs_tmp/report" || docs_problem "$1, in its sh blocks: $(cat "$docs_tmp/report")"
}

# docs_check_flags FILE PROGRAM
docs_check_flags() {
  local word
  # What is typed after bash-agent, up to the end of the command.
  grep -oE 'bash-agent( +("[^"]*"|[^ |;&>"`)]+))+' "$1" | sed 's/"[^"]*"/TEXT/g' >"$docs_tmp/uses"
  {
    grep -oE -e ' --[a-z][a-z-]+' "$docs_tmp/uses"
    grep -oE -e '`--[a-z][a-z-]+' "$1"
  } | sed 's/^[ `]//' | sort -u >"$docs_tmp/flags"
  while IFS= read -r word; do
    grep -qE -e "(^|[^a-z-])$word([^a-z-]|\$)" "$docs_tmp/help" || docs_problem "$1: no command knows the flag $word"
  done <"$docs_tmp/flags"
  awk '$2 ~ /^[a-z-]+$/ && $2 !~ /^-/ { print $2 }' "$docs_tmp/uses" | sort -u >"$docs_tmp/words"
  while IFS= read -r word; do
    "$2" "$word" --help >/dev/null 2>&1 || docs_problem "$1: there is no command '$word'"
  done <"$docs_tmp/words"
}

docs_program=${1:-}
if [ -n "$docs_program" ]; then
  "$docs_program" man >"$docs_tmp/help.man" || exit 1
  # The manual writes a hyphen as \-, and names every command.
  sed -i.bak 's/\\-/-/g' "$docs_tmp/help.man"
  cp "$docs_tmp/help.man" "$docs_tmp/help"
  sed -n 's/^bash-agent-\([a-z]*\)(1)$/\1/p' "$docs_tmp/help.man" >"$docs_tmp/commands"
  while IFS= read -r command; do
    "$docs_program" "$command" --help </dev/null >>"$docs_tmp/help" 2>/dev/null
  done <"$docs_tmp/commands"
  "$docs_program" core --help | sed -n 's/^  \([a-z][a-z-]*\).*/\1/p' >"$docs_tmp/filters"
  while IFS= read -r command; do
    "$docs_program" core "$command" --help </dev/null >>"$docs_tmp/help" 2>/dev/null
  done <"$docs_tmp/filters"
fi
for file in README.md CONTRIBUTING.md docs/*.md src/assets/README.md; do
  docs_check_links "$file"
  docs_check_blocks "$file"
  [ -z "$docs_program" ] || docs_check_flags "$file" "$docs_program"
done
[ "$docs_failed" -eq 0 ] && echo "docs: ok"
exit "$docs_failed"
