#!/usr/bin/env bash
# classify.sh - what a command needs (CONTRACT §12), before it runs. Sourced by agent.sh, after policy.sh; run by itself it is the twin
# of `core classify`:
#
#   classify.sh [--session-dir DIR] [--tmp DIR] [--private DIR] [--mode MODE] COMMAND|-
#
# It prints the mode that the command needs, then a line `MODE TAB WHY` for each part that needs something. Exit 1, with the refusal
# on stderr, when --mode does not allow it. awk/classify.awk takes the command apart; where its paths lead is looked at here.

SCOPE_NAMES=(system external network workspace)

# Fails, with a result, when the mode does not allow the command, as far as that can be told before it runs.
judge_command() { # <command>
  local required
  command_needs required "$1"
  # What nothing confines can do anything in the workspace: so it needs all of its bits.
  if ((${required:3:1} & 1)) && ! is_confined; then required=${required:0:3}7; fi
  mode_allows "$required" && return 0
  [[ -n $NEEDS_WHY ]] || NEEDS_WHY="nothing confines it here, so it needs all of the workspace"
  refuse "$required"
  return 1
}

# The mode a command needs. NEEDS_WHY: what of it the mode does not give.
command_needs() { # <result-var> <command>
  local cn_mode='' cn_line
  NEEDS_WHY=
  classify_command "$2"
  while IFS= read -r cn_line; do
    if [[ $cn_line == *$'\t'* ]]; then
      mode_allows "${cn_line%%$'\t'*}" || NEEDS_WHY=$NEEDS_WHY${NEEDS_WHY:+; }${cn_line#*$'\t'}
    else
      cn_mode=$cn_line
    fi
  done <<<"$NEEDS"
  printf -v "$1" '%s' "$cn_mode"
}

# The judgement into NEEDS, as `core classify` prints it: by the binary where it is there, else here.
classify_command() { # <command>
  if has_core; then
    NEEDS=$(printf '%s' "$1" | run_core classify --session-dir "$S" --tmp "$TOOL_TMP" --private "$RUN" - 2>/dev/null)
    core_did $? classify && return 0
  fi
  command_parts "$1" || {
    # What nobody judged is code: all that can be said is that it runs.
    NEEDS=$'0001\n0001\tnot judged'
    return 0
  }
  add_up_parts
}

# The parts of a command, from awk, into PARTS.
command_parts() { # <command>
  local runtime table
  awk_value table "$ASSETS_DIR/programs.tsv"
  printf -v runtime '%s\n' "${RUNTIME_PATHS[@]}"
  PARTS=$(printf '%s\n' "$1" |
    C_CWD=$CWD C_HOME=${HOME:+$REAL_HOME} C_TMP=$TOOL_TMP C_RUNTIME=$runtime LC_ALL=C "${AWK[@]}" -f "$AWK_DIR/shell.awk" \
      -f "$AWK_DIR/programs.awk" -v table="$table" -f "$AWK_DIR/classify.awk" 2>/dev/null)
}

# What the parts need once their paths are followed, each once, with the sum before them.
add_up_parts() {
  local kind first second third place scope needs sum=(0 0 0 0) lines='' line i
  while IFS=$'\037' read -r kind first second third; do
    case $kind in
    need) needs=$first line=$second${second:+: }$third ;;
    path | run)
      place=$first
      [[ $kind == path ]] && place=$second
      place=${place//$'\036'/$'\n'}
      resolve_path place "$place" || :
      case $kind:$first in
      path:read) is_runtime "$place" && ! is_sensitive "$place" && continue ;;
      esac
      scope_of scope "$place"
      case $kind:$first in
      path:read) i=4 ;;
      path:*) i=2 ;;
      *) i=1 ;;
      esac
      needs=0000
      needs=${needs:0:scope}$i${needs:scope+1}
      if [[ $kind == path ]]; then
        line=$third${third:+: }$first\ ${SCOPE_NAMES[scope]}
      else
        line=$second${second:+: }$third
      fi
      ;;
    *) continue ;;
    esac
    line=$needs$'\t'$line
    [[ $'\n'$lines == *$'\n'"$line"$'\n'* ]] && continue
    lines=$lines$line$'\n'
    for i in 0 1 2 3; do sum[i]=$((sum[i] | ${needs:i:1})); done
  done <<<"$PARTS"
  NEEDS="${sum[0]}${sum[1]}${sum[2]}${sum[3]}"$'\n'$lines
  NEEDS=${NEEDS%$'\n'}
}

mode_allows() { # <four digits>
  local i
  for i in 0 1 2 3; do
    (((${1:i:1} & ~${MODE_DIGITS:i:1}) == 0)) || return 1
  done
}

# The places and the mode of the command line, then the judgement.
classify_main() { # <argument>…
  local allowed='' digits
  CWD=$(pwd -P) BASE=${BASH_AGENT_HOME:-${HOME:-}}/.bash-agent
  S=$BASE/none TOOL_TMP='' RUN=/dev/null/none
  while (($# > 1)); do
    case $1 in
    --session-dir) S=$2 ;;
    --tmp) TOOL_TMP=$2 ;;
    --private) RUN=$2 ;;
    --mode) allowed=$2 ;;
    *) break ;;
    esac
    shift 2
  done
  case $allowed in
  '' | [0-7][0-7][0-7][0-7]) ;;
  read-only) allowed=0444 ;;
  workspace) allowed=0467 ;;
  trusted) allowed=0777 ;;
  *) die 2 "'$allowed' is no mode: give four octal digits (system, external, network, workspace), read-only, workspace or trusted" ;;
  esac
  (($# == 1)) || die 2 "usage: classify.sh [--session-dir DIR] [--tmp DIR] [--private DIR] [--mode MODE] COMMAND|-"
  [[ $S == /* ]] || S=$CWD/$S
  [[ $RUN == /* ]] || RUN=$CWD/$RUN
  [[ -z $TOOL_TMP || $TOOL_TMP == /* ]] || TOOL_TMP=$CWD/$TOOL_TMP
  setup_awk
  setup_places
  if [[ $1 == - ]]; then classify_command "$(cat)"; else classify_command "$1"; fi
  printf '%s\n' "$NEEDS"
  MODE_DIGITS=${allowed:-7777} digits=${NEEDS%%$'\n'*}
  mode_allows "$digits" && return 0
  refusal digits "$digits"
  die 1 "$digits"
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
  set -u
  LIB_DIR=$(cd -P -- "${0%/*}" && pwd -P)
  AWK_DIR=${AWK_DIR:-$LIB_DIR/../../awk}
  ASSETS_DIR=$LIB_DIR/../../src/assets
  for classify_part in base policy; do
    # shellcheck source=/dev/null
    . "$LIB_DIR/$classify_part.sh"
  done
  # The twin is this one: no core.
  has_core() { return 1; }
  finish() { exit "$1"; }
  classify_main "$@"
fi
