#!/usr/bin/env bash
# wire.sh - RESP frames (CONTRACT §3). Sourced by agent.sh; run by itself it is a filter:
#
#   wire.sh encode < lines      lines of TAB-separated, escaped fields -> frames
#   wire.sh decode < frames     frames -> such lines

# Lines on stdin -> frames.
encode_frames() {
  if has_core; then
    run_core resp encode
    core_did $? 'resp encode'
    return $?
  fi
  stream_awk resp_encode.awk
}

# Opens a FIFO for a writer, on descriptor 5. An owner that ends just now takes it away: what this makes in its place goes.
open_fifo() { # <fifo>
  exec 5<>"$1" || return 1
  [[ -p /dev/fd/5 ]] && return 0
  exec 5>&-
  [[ -f $1 && ! -s $1 ]] && rm -f -- "$1"
  return 1
}

# Writes a file of frames whole into a FIFO, with the lock that every writer of ours takes. When the lock is not to be
# had for 5 s the function named is called, and it waits on.
send_frames() { # <fifo> <file> [function [argument…]]
  local fifo=$1 file=$2
  shift 2
  [[ -p $fifo ]] || return 1
  (
    open_fifo "$fifo" || exit 1
    if ! lock_within 5 5; then
      if (($#)); then "$@"; fi
      lock_fd 5
    fi
    cat -- "$file" >&5
  )
}

# The same for who must not wait for ever. 1 = no FIFO, 2 = the reader did not take it in time.
send_within() { # <fifo> <file> <seconds>
  [[ -p $1 ]] || return 1
  (
    local pid='' rest=''
    open_fifo "$1" || exit 1
    lock_within 5 "$3" || exit 2
    # Its first line is the writer's pid, its end the writer's.
    exec 6< <(
      cat -- "$2" >&5 6<&- &
      echo "$!"
      exec 5>&-
      wait
    )
    IFS= read -r pid <&6
    IFS= read -r -t "$3" rest <&6
    (($? <= 128)) && exit 0
    kill "$pid" 2>/dev/null
    exit 2
  )
}

send_message() { # <fifo> <field>…   a short message
  local fifo=$1 frame="*$(($# - 1))"$'\r\n' field
  shift
  for field; do frame=$frame"\$${#field}"$'\r\n'$field$'\r\n'; done
  [[ -p $fifo ]] || return 1
  (
    open_fifo "$fifo" && lock_within 5 5 && F=$frame LC_ALL=C "${AWK[@]}" 'BEGIN { printf "%s", ENVIRON["F"] }' >&5
  )
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
  set -u
  LIB_DIR=$(cd -P -- "${0%/*}" && pwd -P)
  AWK_DIR=${AWK_DIR:-$LIB_DIR/../../awk}
  # shellcheck source=scripts/lib/base.sh
  . "$LIB_DIR/base.sh"
  # The twin is this one: no core.
  has_core() { return 1; }
  finish() { exit "$1"; }
  setup_awk
  case ${1:-} in
  encode) encode_frames ;;
  decode) stream_awk resp_decode.awk -v out=lines ;;
  *)
    echo "usage: wire.sh encode|decode" >&2
    exit 2
    ;;
  esac
fi
