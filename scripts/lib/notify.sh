#!/usr/bin/env bash
# notify.sh - results and remarks that arrive while the agent works (CONTRACT §7). Sourced by agent.sh; run by itself
# it is the twin of `core notify-reader`:
#
#   notify.sh [--show messages|events|none] SESSION_DIR      until the session has no owner any more

# ---- The reader: a process of its own

# The core's, else ours; ours too when the core's dies, and where this run must know what its sub-agents used.
notify_reader() {
  local code
  RECOVER=0
  if has_core && [[ -z ${MAX_COST:-}${MAX_TOTAL_TOKENS:-} && $FORMAT != json ]]; then
    case $FORMAT in
    human)
      run_core notify-reader --show messages -- "$S" | display
      code=${PIPESTATUS[0]}
      ;;
    stream-json)
      run_core notify-reader --show events -- "$S"
      code=$?
      ;;
    *)
      run_core notify-reader --show none -- "$S"
      code=$?
      ;;
    esac
    # 0: the session has no owner any more; 141: stdout has no reader.
    ((code == 0 || code == 141)) && return 0
    core_died "$code" notify-reader
    RECOVER=1
  fi
  read_notices "$S"
}

# What another reader had taken out of the FIFO and not delivered when it died: its waiters have the frames still.
recover_results() {
  local id _
  RECOVER=0
  while IFS=' ' read -r id _; do
    [[ -n $id && -e $RUN/$id.frame.sent ]] && ! is_answered "$id" && send_frames "$S/notify.fifo" "$RUN/$id.frame.sent" &
  done <"$S/active_sub.list"
}

read_notices() { # <session dir>
  S=$1
  INBOX_NAME=notify
  # A full disk does not end the reader: the result is what counts.
  storage_error() { return 1; }
  exec 3<&10 6<>"${BELL:-$RUN/bell}" 10<&-
  local noise=0 idle=2 wait
  # Where a guard ends this process with its owner.
  [[ -e ${RUN:-}/groups ]] && idle=10
  while :; do
    wait=$idle
    # What finds the disk full is tried again.
    [[ -s $RUN/held ]] && wait=2
    if ! have_bytes $((RECOVER ? 1 : wait)); then
      noise=0
      ((RECOVER)) && recover_results
      flush_held && raise_pending
      has_owner || exit 0
      continue
    fi
    if [[ $PUSHED == '*'* ]]; then
      PUSHED=${PUSHED:1}
      if frame_begins; then
        noise=0
        read_frame
        case $? in
        0) take_notice ;;
        1) skip_broken "notify.fifo: a malformed RESP frame" 0 ;;
        2) skip_broken "notify.fifo: an incomplete RESP frame" 0 silent ;;
        esac
        continue
      fi
      PUSHED=$HEAD$PUSHED
    fi
    # Noise: said once, up to the next line that begins a frame.
    ((noise++)) || report_problem "notify.fifo: bytes that are no RESP frame, skipped"
    next_line "$SILENCE"
  done
}

# The five figures of an AGENT_RESULT; sets `bad` at the first that is no 64-bit count.
check_figures() {
  local name at=5
  for name in input output cache_read cache_creation requests; do
    is_number "${FIELDS[at]}" || { bad=": $name is \`${FIELDS[at]}\`, not a number in range" && return 0; }
    ((++at))
  done
}

take_notice() {
  local name=${FIELDS[0]} count=${#FIELDS[@]} bad=''
  case $name:$count in
  AGENT_RESULT:10)
    if [[ ${FIELDS[2]} == ok || ${FIELDS[2]} == failed ]]; then
      check_figures
    else
      bad=": status is \`${FIELDS[2]}\`, neither ok nor failed"
    fi
    ;;
  ASYNC_TASK_RESULT:4)
    [[ ${FIELDS[2]} =~ ^[0-9]{1,10}$ ]] && ((10#${FIELDS[2]} <= 2147483647)) ||
      bad=": exit_code is \`${FIELDS[2]}\`, not a number in range"
    ;;
  USER_NOTIFY:2)
    append_notice '' ''
    raise_pending
    return 0
    ;;
  AGENT_RESULT:* | ASYNC_TASK_RESULT:* | USER_NOTIFY:*) bad=" with $((count - 1)) fields" ;;
  *)
    report_problem "notify.fifo: unknown message \`$name\`"
    return 0
    ;;
  esac
  [[ -n ${FIELDS[1]:-} || -n $bad ]] || bad=" with no id"
  if [[ -n $bad ]]; then
    report_problem "notify.fifo: $name$bad"
    return 0
  fi
  if is_answered "${FIELDS[1]}"; then
    report_problem "notify.fifo: a second result for ${FIELDS[1]}, dropped"
    return 0
  fi
  append_notice "${FIELDS[1]}" 1
  raise_pending
}

# The ids that have their result already, over restarts too.
is_answered() { # <id>
  local id
  json_string id "$1"
  LC_ALL=C grep -q -F -e "{\"type\":\"sub_agent_result\",\"session_id\":\"$id\"," \
    -e "{\"type\":\"async_task_result\",\"task_id\":\"$id\"," "$S/events.jsonl"
}

# One result or remark: events, stats, buffer, list and count under one hold of the lock.
append_notice() { # <id or ""> <1 = a result>
  local i frame=$RUN/notice.in updates ts cost
  : >"$frame"
  for ((i = 0; i < ${#FIELDS[@]}; i++)); do
    printf '%s.\n' "${FIELDS[i]}" >"$RUN/notice.$i"
  done
  timestamp ts
  run_awk notice.awk -v dir="$RUN_V" -v fields="${#FIELDS[@]}" -v ts="$ts" >"$RUN/notice.lines"
  updates=
  if [[ ${FIELDS[0]} == AGENT_RESULT ]]; then
    price_of cost "${FIELDS[5]} ${FIELDS[6]} ${FIELDS[7]} ${FIELDS[8]}"
    updates="agent_request_count=+${FIELDS[9]} sub_agent_request_count=+1 total_input_tokens=+${FIELDS[5]}"
    updates="$updates total_output_tokens=+${FIELDS[6]} total_cache_read_tokens=+${FIELDS[7]}"
    updates="$updates total_cache_creation_tokens=+${FIELDS[8]} total_cost_usd=+$cost"
    printf '%s\n' "${FIELDS[5]} ${FIELDS[6]} ${FIELDS[7]} ${FIELDS[8]} $cost" >>"$RUN/children.used"
  fi
  flush_held
  state_lock "$S"
  append_whole "$S/events.jsonl" "$RUN/notice.lines"
  # shellcheck disable=SC2086 # words without blanks or patterns
  [[ -z $updates ]] || write_stats < <(printf '%s\n' $updates) 2>/dev/null
  if append_whole "$S/notify.buf" "$RUN/notice.frame"; then
    [[ -z $2 ]] || take_off_list "$1"
  else
    hold_notice "$1"
  fi
  state_unlock
  case $FORMAT in
  stream-json) cat -- "$RUN/notice.lines" ;;
  human) [[ -n $2 ]] && display <"$RUN/notice.frame" ;;
  messages) [[ -n $2 ]] && cat -- "$RUN/notice.frame" ;;
  esac
  return 0
}

# Whole or not at all.
append_whole() { # <file> <file with what is appended>
  local size=0
  [[ -e $1 ]] && size=$(($(wc -c <"$1")))
  cat -- "$2" 2>"$RUN/append.err" >>"$1" && return 0
  dd if=/dev/null of="$1" bs=1 seek="$size" count=0 2>/dev/null
  return 1
}

# notify.buf cannot be written: the result waits in this process's own directory, and is told.
hold_notice() { # <id or "">
  local reason
  reason=$(tail -n 1 "$RUN/append.err")
  cat -- "$RUN/notice.frame" >>"$RUN/held"
  [[ -z $1 ]] || printf '%s\n' "$1" >>"$RUN/held.ids"
  say_warning "cannot write $S/notify.buf: ${reason##*: }; a result is kept in memory and delivered when there is space again"
}

# Whether there was something, and it is in notify.buf now.
flush_held() {
  local id code=1
  [[ -s $RUN/held ]] || return 1
  state_lock "$S"
  if append_whole "$S/notify.buf" "$RUN/held"; then
    code=0
    while IFS= read -r id; do take_off_list "$id"; done < <(cat -- "$RUN/held.ids" 2>/dev/null)
    rm -f -- "$RUN/held" "$RUN/held.ids"
  fi
  state_unlock
  return "$code"
}

# The flag is looked at after the buffer was written, the buffer after the flag was taken away: nothing is left lying.
raise_pending() {
  [[ -e $S/agent_running.flag ]] && return 0
  send_message "$S/input.fifo" NOTIFY_PENDING || say_warning "a result waits in notify.buf, but could not be announced"
}

# The reader ends with the session's owner.
has_owner() {
  kill -0 "$$" 2>/dev/null
}

# ---- The list of what is open, and its count. The caller holds state.lock.

take_off_list() { # <id>
  local id pid left='' count=0
  while IFS=' ' read -r id pid; do
    [[ -z $id ]] && continue
    [[ $id == "$1" ]] && continue
    left=$left$id' '$pid$'\n'
    ((++count))
  done <"$S/active_sub.list"
  write_list "$left" "$count"
}

write_list() { # <lines> <count>
  printf '%s' "$1" >"$S/active_sub.list.new" && mv -f -- "$S/active_sub.list.new" "$S/active_sub.list"
  printf '%d\n' "$2" >"$S/active_sub.count.new" && mv -f -- "$S/active_sub.count.new" "$S/active_sub.count"
}

put_on_list() { # <id> <pid>   takes the lock itself; a known id gets the pid
  local id pid lines='' count=0 known=0
  state_lock "$S"
  while IFS=' ' read -r id pid; do
    [[ -z $id ]] && continue
    if [[ $id == "$1" ]]; then
      known=1
      pid=$2
    fi
    lines=$lines$id' '$pid$'\n'
    ((++count))
  done <"$S/active_sub.list"
  # Its result may have come before its pid.
  if ((!known)) && [[ $2 == 0 ]]; then
    lines=$lines$1' '$2$'\n'
    ((++count))
  fi
  write_list "$lines" "$count"
  state_unlock
}

open_count() { # <result-var>
  local oc_count=0
  IFS= read -r oc_count 2>/dev/null <"$S/active_sub.count"
  is_number "${oc_count:-0}" || oc_count=0
  printf -v "$1" '%d' "${oc_count:-0}"
}

# ---- Draining: what waits becomes one user line. Returns whether there was something.

has_notices() {
  [[ -s $S/notify.buf || -s $S/notify.buf.taken ]]
}

drain_notices() {
  flush_held
  local text line
  has_notices || return 1
  state_lock "$S"
  if [[ -s $S/notify.buf.taken ]]; then
    [[ -e $S/notify.buf ]] && cat -- "$S/notify.buf" >>"$S/notify.buf.taken" && rm -f -- "$S/notify.buf"
  else
    mv -f -- "$S/notify.buf" "$S/notify.buf.taken"
  fi
  state_unlock
  rm -f "$RUN/drain.notes" "$RUN/drain.problems"
  text=$(run_awk drain.awk -v notes="$RUN_V/drain.notes" -v problems="$RUN_V/drain.problems" <"$S/notify.buf.taken")
  [[ -z $text ]] || append_line "{\"role\":\"user\",\"content\":\"$text\"}"
  rm -f -- "$S/notify.buf.taken"
  if [[ -s $RUN/drain.notes ]]; then
    while IFS= read -r line; do event "{\"type\":\"user_notify\",\"content\":\"$line\""; done <"$RUN/drain.notes"
    show_remarks
  fi
  if [[ -s $RUN/drain.problems ]]; then
    while IFS= read -r line; do event_error "$line"; done <"$RUN/drain.problems"
  fi
  [[ -n $text ]]
}

show_remarks() {
  [[ $FORMAT == human ]] || return 0
  run_awk remarks.awk "$RUN/drain.notes" | show_frames
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
  set -u
  LC_ALL=C
  umask 077
  LIB_DIR=$(cd -P -- "${0%/*}" && pwd -P)
  AWK_DIR=${AWK_DIR:-$LIB_DIR/../../awk}
  ASSETS_DIR=$LIB_DIR/../../src/assets
  for notify_part in base text core session wire display model inbox control; do
    # shellcheck source=/dev/null
    . "$LIB_DIR/$notify_part.sh"
  done
  FORMAT=messages RECOVER=0 MODEL_FILES=("$ASSETS_DIR/models.json")
  finish() { exit "$1"; }
  # The twin is this one: no core.
  has_core() { return 1; }
  # The owner holds the lock of the session.
  has_owner() { is_running "$S"; }
  # Figures of a child cost what the model of the session costs now.
  price_of() {
    local po_model=''
    [[ -s $S/session.json && $(<"$S/session.json") =~ \"model\":\"([^\"]*)\" ]] && awk_value po_model "${BASH_REMATCH[1]}"
    printf -v "$1" '%s' "$(run_awk models.awk -v model="$po_model" -v usage="$2" "${MODEL_FILES[@]}" 2>/dev/null || echo 0)"
  }
  # A display is behind stdout, or the words go to stderr.
  show_error() {
    local text
    if [[ $FORMAT == messages ]]; then
      escape_line text "$1"
      printf 'ERROR\t%s\n' "$text" | encode_frames
    else
      say_error "$1"
    fi
  }
  notify_usage() {
    echo "usage: notify.sh [--show messages|events|none] SESSION_DIR   (of a session that an agent runs)" >&2
    finish 2
  }
  if [[ ${1:-} == --show ]]; then
    case ${2:-} in
    messages) ;;
    events) FORMAT=stream-json ;;
    none) FORMAT=none ;;
    *) notify_usage ;;
    esac
    shift 2
  fi
  [[ ${1:-} == -- ]] && shift
  [[ $# == 1 && -p $1/notify.fifo ]] || notify_usage
  S=$1
  RUN=
  trap '[[ -z $RUN ]] || rm -rf -- "${RUN%/own}"' EXIT
  trap 'finish 143' TERM
  trap 'finish 129' HUP
  trap 'finish 130' INT
  setup_clock
  setup_awk
  setup_lock
  setup_silence
  is_running "$S" || notify_usage
  setup_run
  awk_value RUN_V "$RUN"
  awk_value SV "$S"
  notify_base=${BASH_AGENT_HOME:-${HOME:-}}/.bash-agent
  [[ -e $notify_base/models.json ]] && MODEL_FILES[1]=$notify_base/models.json
  BELL=/dev/null
  exec 10<>"$S/notify.fifo"
  read_notices "$S"
fi
