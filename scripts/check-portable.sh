#!/usr/bin/env bash
# check-portable.sh - holds scripts/ to bash 3.2 and awk/ to POSIX, by the list in DESIGN, "What bash and awk cannot do".
#
#   scripts/check-portable.sh              looks through the files of this repository
#   scripts/check-portable.sh --selftest   shows that every construct of the lists below is caught, and what is right is not
#
# A newer construct is right where an older bash does not get to it: on a line, or directly below one, that asks
# BASH_VERSINFO, HAS_CLOCK or for BASHPID. A bare `return` is among them for another reason: in a trap it gives the status from before it.
set -u

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P) || exit 1
selftest=0
[ "${1:-}" != --selftest ] || selftest=1

# Constructs: a name, an extended regular expression, and a line that has it; separated by TAB.
bash_constructs() {
  cat <<'END'
an associative array	(declare|local|typeset)[ ]+-[a-zA-Z]*A	local -A map
case modification	\$\{[A-Za-z_][A-Za-z_0-9]*(\[[^]]*\])?(,|\^)	x=${name,,}
mapfile	(^|[ ;&|(])(mapfile|readarray)[ ]	mapfile -t lines
coproc	(^|[ ;&|(])coproc[ ]	coproc cat
wait -n	(^|[ ;&|(])wait[ ]+-[a-z]*[np]	wait -n
a descriptor into a variable	\{[A-Za-z_][A-Za-z_0-9]*\}(<|>)	exec {fd}>file
a pipe of stderr	[^|]\|&	a |& b
a negative subscript	\$\{[A-Za-z_][A-Za-z_0-9]*\[[ ]*-	x=${list[-1]}
a negative length	\$\{[A-Za-z_][A-Za-z_0-9]*:[0-9]+:[ ]*-	x=${text:0:-1}
read -N	(^|[ ;&|(])read[ ]+([^;|&]*[ ])?-[a-z]*N	IFS= read -r -N 5 x
a fraction for read -t	(^|[ ;&|(])read[ ]+[^;|&]*-t[ ]*[0-9]*\.[0-9]	read -t 0.5 x
printf of a time	%\([^)]*\)T	printf '%(%s)T' -1
BASHPID	\$(\{BASHPID[^:]|BASHPID([^A-Z_]|$))	echo $BASHPID
EPOCHREALTIME	\$(\{EPOCH(REALTIME|SECONDS)[^:]|EPOCH(REALTIME|SECONDS))	echo $EPOCHREALTIME
a name reference	(declare|local|typeset)[ ]+-[a-zA-Z]*n	local -n ref=$1
a global declaration	(declare|typeset)[ ]+-[a-zA-Z]*g	declare -g x=1
a test of a variable's name	(\[\[|&&|\|\||[(!])[ ]+-v[ ]	[[ -v x ]]
both streams appended	&>>	a &>>b
fall-through	;;?&	;;&
a transformation	\$\{[A-Za-z_][A-Za-z_0-9]*(\[[^]]*\])?@[A-Za-z]	x=${name@Q}
an array that may be empty	(^|[^+-])"\$\{(flags|ids|pids|turns|waiters|R_OPTIONS|HEADERS|SECRETS|NOTES|FOUND|SKILLS)\[@\]\}"	a "${flags[@]}"
a bare return	(^|[ ;])return[ ]*($|;|\}|&|\|)	[[ -d $1 ]] && return
END
}

awk_constructs() {
  cat <<'END'
a function of gawk	(^|[^A-Za-z_0-9])(gensub|strftime|systime|mktime|asort|asorti|patsplit|strtonum|and|or|xor|lshift|rshift|compl|isarray|typeof)\(	x = gensub(/a/, "b", "g")
a variable of gawk	(^|[^A-Za-z_0-9])(IGNORECASE|RT|FPAT|FIELDWIDTHS|PROCINFO|BINMODE|ERRNO|LINT|TEXTDOMAIN)([^A-Za-z_0-9]|$)	IGNORECASE = 1
a pattern of gawk	(^|[^A-Za-z_0-9])(BEGINFILE|ENDFILE)([^A-Za-z_0-9]|$)	BEGINFILE { x = 1 }
an inclusion	^@(include|load|namespace)	@include "json.awk"
a switch	(^|[^A-Za-z_0-9])switch[ ]*\(	switch (x) { }
func for function	^func[ ]	func f(x) { }
a co-process	\|&	"cmd" |& getline x
a power by two stars	[A-Za-z0-9_)] *\*\* *[A-Za-z0-9_(]	x = 2 ** 3
a word boundary	[^\\]\\[<>yB][^"]*\/	/\<word/
a whole number by %d	printf[^;]*%d	printf "%d", x
END
}

# Prints FILE:LINE: what is wrong, for a list of constructs.
search() { # <list> <file>…
  local list=$1
  shift
  LIST=$list LC_ALL=C awk '
    BEGIN {
      n = split(ENVIRON["LIST"], lines, "\n")
      for (i = 1; i <= n; i++) {
        split(lines[i], part, "\t")
        name[i] = part[1]
        regex[i] = part[2]
      }
    }
    FNR == 1 { above = "" }
    { line = $0 }
    /^[ \t]*#/ { next }
    { guarded = (line above) ~ /BASH_VERSINFO|HAS_CLOCK|BASHPID:-/ }
    !guarded { for (i = 1; i <= n; i++) if (line ~ regex[i]) { printf "%s:%d: %s: %s\n", FILENAME, FNR, name[i], line; bad = 1 } }
    { above = line }
    END { exit bad }
  ' "$@"
}

# Functions that programs define which are loaded together.
twice() { # <file>…   prints the names
  LC_ALL=C awk '/^function[ ]/ { name = $2; sub(/\(.*/, "", name); if (name in seen) { print FILENAME ": function " name " is in " seen[name] " too"; bad = 1 } seen[name] = FILENAME } END { exit bad }' "$@"
}

check_awk_program() { # <file>   alone with the libraries, as it is run
  local parts=() file=$1 name=${1##*/} library
  for library in json protocol; do [[ $name == $library.awk ]] || parts[${#parts[@]}]=$root/awk/$library.awk; done
  case $name in
  body_*) parts[${#parts[@]}]=$root/awk/window.awk ;;
  esac
  twice ${parts[@]+"${parts[@]}"} "$file"
}

check_selftest() {
  local name line failed=0 dir list kind
  dir=$(mktemp -d) || return 1
  for kind in bash awk; do
    list=$("${kind}_constructs")
    while IFS=$'\t' read -r name _ line; do
      printf '%s\n' "$line" >"$dir/bad"
      if search "$list" "$dir/bad" | grep -q -F ": $name: "; then continue; fi
      echo "check-portable: '$name' is not caught in: $line" >&2
      failed=1
    done <<<"$list"
  done
  cat >"$dir/good" <<'END'
# local -A in a comment
if ((HAS_CLOCK)); then printf -v x '%(%s)T' -1; fi
[[ -n ${BASHPID:-} ]] && printf '%s' "${list[@]+"${list[@]}"}"
wait "$pid" 2>&1 | cat || return 1
END
  if ! search "$(bash_constructs)" "$dir/good" >&2; then failed=1; fi
  printf 'function a(x) { }\n' >"$dir/one"
  printf 'function a(y) { }\n' >"$dir/two"
  if twice "$dir/one" "$dir/two" >/dev/null; then
    echo "check-portable: a function in two files is not caught" >&2
    failed=1
  fi
  rm -rf -- "$dir"
  return "$failed"
}

if [ "$selftest" = 1 ]; then
  check_selftest
  exit
fi

status=0
search "$(bash_constructs)" "$root"/scripts/agent.sh "$root"/scripts/lib/*.sh || status=1
search "$(awk_constructs)" "$root"/awk/*.awk "$root"/scripts/lib/*.awk || status=1
for program in "$root"/awk/*.awk "$root"/scripts/lib/*.awk; do
  check_awk_program "$program" || status=1
done
exit "$status"
