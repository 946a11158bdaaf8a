#!/usr/bin/env bash
# display.sh - what a person sees. Sourced by agent.sh; run by itself it is the filter of DESIGN's table:
# display messages (RESP) on stdin -> text on stdout, as awk/display.awk does it.

# The end of every pipe that shows something. Colours only on a terminal that can.
setup_display() {
  COLOR=0 COLOR_ERR=0 STDOUT_CLOSED=0
  if [[ -z ${NO_COLOR:-} && -n ${TERM:-} && $TERM != dumb ]]; then
    [[ -t 1 ]] && COLOR=1
    [[ -t 2 ]] && COLOR_ERR=1
  fi
  return 0
}

display() { # frames on stdin
  local code when=never error_when=never
  if has_core; then
    ((COLOR)) && when=always
    ((COLOR_ERR)) && error_when=always
    run_core display --color "$when" --error-color "$error_when"
    code=$?
    case $code in
    0 | 141) return "$code" ;;
    esac
    # The rest of what it was reading is shown by awk; the log has all of it.
    core_died "$code" display
  fi
  stream_awk display.awk -v color="$COLOR" -v error_color="$COLOR_ERR"
}

# Event lines on stdin -> frames for who looks on, as they come.
replay_events() {
  if has_core; then
    run_core replay --live
    core_did $? replay && return 0
  fi
  stream_awk event_replay.awk -v live=1
}

# The same for a transcript: results are whole.
replay_whole() { # <events file>
  if has_core; then
    run_core replay --whole -- "$1" >"$RUN/replay"
    if core_did $? replay; then
      cat -- "$RUN/replay"
      return $?
    fi
  fi
  run_awk event_replay.awk -v whole=1 "$1"
}

# Frames for a person, in the human format only.
show_frames() { # frames on stdin
  if [[ $FORMAT == human ]]; then
    display || stdout_closed
  else
    cat >/dev/null
  fi
}

show_message() { # <field>…   one message
  [[ $FORMAT == human ]] || return 0
  local text
  case $1 in
  STOP)
    [[ $2 == interrupted ]] || return 0
    text="Interrupted."
    ;;
  CONTEXT_UPDATE) text="Context compacted ($3)." ;;
  *) return 0 ;;
  esac
  if ((COLOR)); then text=$'\033[36m'$text$'\033[0m'; fi
  print_line "$text"
}

show_error() { # <message>   on stderr, in every format
  say_error "$1"
}

print_line() { # <text>   a reader of stdout that has gone away ends the run quietly
  printf '%s\n' "$1" 2>/dev/null || stdout_closed
}

stdout_closed() {
  STDOUT_CLOSED=1
}

# ---- The terminal's title

show_title() { # <busy 0|1>
  [[ $FORMAT == human && -t 2 && -n ${TERM:-} && $TERM != dumb ]] || return 0
  local model
  awk_value model "$MODEL"
  run_awk title.awk -v file="$SV/stats.json" -v model="$model" -v busy="$1" >&2 2>/dev/null
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
  set -u
  LIB_DIR=$(cd -P -- "${0%/*}" && pwd -P)
  AWK_DIR=${AWK_DIR:-$LIB_DIR/../../awk}
  # shellcheck source=scripts/lib/base.sh
  . "$LIB_DIR/base.sh"
  finish() { exit "$1"; }
  has_core() { return 1; }
  setup_awk
  setup_display
  display
fi
