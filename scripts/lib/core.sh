# core.sh - the binary's filters in the place of the awk programs (DESIGN "Swapping").
#
# CORE is the program, "" = awk alone. One that cannot be used, or dies at its work, is reported once; the awk twin does
# that work again, where nothing was lost by it, and all that follows.

setup_core() {
  local found said why=
  CORE=
  if [[ -n ${BASH_AGENT_CORE+set} ]]; then
    [[ -n $BASH_AGENT_CORE ]] || return 0
    found=$BASH_AGENT_CORE
  else
    found=$(command -v bash-agent 2>/dev/null) || return 0
  fi
  said=$("$found" core --version 2>&1 </dev/null)
  case $?:$said in
  0:"bash-agent-core "*)
    said=${said##* }
    if is_older "$said" "$VERSION"; then why="is version $said, and $VERSION is needed"; fi
    ;;
  # The Bash agent under that name has no filters to offer.
  0:"bash-agent "*) [[ -z ${BASH_AGENT_CORE:-} ]] && return 0 || why="has no filters" ;;
  126:* | 127:*)
    why=${said##*: }
    why="cannot be run (${why%$'\n'*})"
    ;;
  *) why="is no bash-agent of version $VERSION or newer" ;;
  esac
  if [[ -z $why ]]; then
    CORE=$found
  else
    say_warning "the core $found $why: awk does its work"
  fi
}

is_older() { # <version> <than that one>   numbers with points between
  local own=$1. than=$2.
  while [[ -n $than ]]; do
    [[ ${own%%.*} =~ ^[0-9]{1,9}$ ]] || return 0
    ((10#${own%%.*} < 10#${than%%.*})) && return 0
    ((10#${own%%.*} > 10#${than%%.*})) && return 1
    own=${own#*.} than=${than#*.}
    own=${own:-0.}
  done
  return 1
}

# Whether the binary's filters do the work. (One that died may have done so in another process of ours.)
has_core() {
  [[ -n ${CORE:-} && ! -e ${RUN:-}/no_core ]]
}

# Runs a filter. (bash's own word about one that was killed is for nobody.)
run_core() { # <filter> [argument…]
  { "$CORE" core "$@" 2>&3; } 3>&2 2>/dev/null
}

# A filter has ended that should have given something: whether it did its work. Tells once when the core died.
core_did() { # <exit code> <filter>
  (($1 == 0)) && return 0
  core_died "$1" "$2"
  return 1
}

core_died() { # <exit code> <filter>
  local text="the core $CORE ended with code $1 at \`$2\`: awk does its work from now on"
  # An end that was wished is no fault.
  ((${INTERRUPTED:-0} || ${ENDING:-0} || $1 == 129 || $1 == 130 || $1 == 143)) && return 0
  # Several may die at once. A process whose stderr nobody sees leaves the telling to `tell_core`.
  if [[ -z ${RUN:-} ]] || (set -C && : >"$RUN/no_core") 2>/dev/null; then
    if ((${CORE_QUIET:-0})); then printf '%s\n' "$text" >"$RUN/no_core"; else say_warning "$text"; fi
  fi
}

tell_core() {
  local text
  [[ -s $RUN/no_core ]] || return 0
  IFS= read -r text <"$RUN/no_core"
  : >"$RUN/no_core"
  say_warning "$text"
}
