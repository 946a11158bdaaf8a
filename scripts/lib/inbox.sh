# inbox.sh - the scanners of the two FIFOs (CONTRACT §3) and the queue between them and the main loop.
#
# A reader is a process of its own: it reads bytes with builtins, so that a time-out costs nothing, and hands over whole
# messages. A queued message is one line of $RUN/queue, fields separated by TAB and line-escaped, then one byte on the bell:
#   input ID CONTENT · inputf ID FILE · file ID NAME · sync ID · end CODE · pending · long FILE (a record that is no short line)
# Without fractions of seconds (bash 3.2) 100 ms of silence are 1 s.

MAX_FRAME=67108864

setup_inbox() {
  mkfifo -m 600 -- "$S/input.fifo" "$S/notify.fifo" "$RUN/bell" || storage_error create "$S/input.fifo" ''
  : >"$RUN/queue"
  printf '0\n' >"$RUN/busy"
  exec 6<>"$RUN/bell" 7<"$RUN/queue"
  # Both ends: writers find a reader as long as this process lives. A reader gets its one as descriptor 10: by its path it
  # may be gone already.
  exec 3<>"$S/input.fifo" 4<>"$S/notify.fifo"
  start_group read_input 10<&3
  INPUT_PID=$GROUP_PID
  start_group notify_reader 10<&4
  NOTIFY_PID=$GROUP_PID
}

# DRAIN is the time for what is in a FIFO already; "" = byte by byte, for bash 3.2 loses what a `read` had got when its
# time is over. (Before 5.2 a time-out is a signal, which a `read` misses that begins in that moment: so not too short.)
setup_silence() {
  SILENCE=1 DRAIN=''
  ((BASH_VERSINFO[0] >= 4)) && SILENCE=0.1 DRAIN=0.01
  ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 502)) && DRAIN=0.001
  return 0
}

# ---- Bytes: what was pushed back first, then the FIFO on descriptor 3.

# PUSHED comes next, then the lines of BACK (from BACK_AT on): so that looking through much costs no more than its length.
PUSHED='' BACK=() BACK_AT=0 NEXT_LOOK=0 BUSY=0

# Sets what was taken before everything that is still to come.
push_back() { # <bytes, whose last line has no LF or has one>
  local line lines=()
  while IFS= read -r line; do lines[${#lines[@]}]=$line$'\n'; done <<<"$1$PUSHED"
  if ((${#lines[@]} == 0)); then # no room for the temporary file of `<<<`
    PUSHED=$1$PUSHED
    return 0
  fi
  # `<<<` has put a line feed behind the last.
  lines[${#lines[@]} - 1]=${lines[${#lines[@]} - 1]%$'\n'}
  BACK=("${lines[@]}" "${BACK[@]+"${BACK[@]}"}")
  PUSHED='' BACK_AT=0
}

# Whether something was pushed back; PUSHED then has its first line, or all that there is of it.
is_pushed() {
  while ((${#BACK[@]})) && [[ $PUSHED != *$'\n'* ]]; do
    PUSHED=$PUSHED${BACK[BACK_AT]}
    unset "BACK[$BACK_AT]"
    ((++BACK_AT))
  done
  [[ -n $PUSHED ]]
}

# The guard ends a reader with its owner; this is for the case that the guard was killed too.
look_for_owner() {
  ((SECONDS < NEXT_LOOK)) && return 0
  ((NEXT_LOOK = SECONDS + 5))
  has_owner || exit 0
}

# Tells the main loop whether this reader is in the middle of something.
mark_busy() { # <1 or 0>
  [[ $BUSY == "$1" || $INBOX_NAME != input ]] && return 0
  BUSY=$1
  printf '%s\n' "$1" >"$RUN/busy"
}

# Sees to it that PUSHED holds something: what was pushed back, else what comes in time. 0xFF takes the place of NUL, at
# which a `read -d ''` ends: no UTF-8 has it, so that it becomes U+FFFD as NUL does. A `read` that gives up just as a byte
# comes says so and hands it over all the same: only without a byte none came.
have_bytes() { # <seconds>
  local bytes=''
  look_for_owner
  is_pushed && return 0
  IFS= read -r -d '' -n 1 -t "$1" -u 3 bytes || [[ -n $bytes ]] || return 1
  PUSHED=${bytes:-$'\377'}
  mark_busy 1
  [[ -n $DRAIN ]] || return 0
  bytes=
  while IFS= read -r -d '' -n 4096 -t "$DRAIN" -u 3 bytes; do
    PUSHED=$PUSHED$bytes
    ((${#bytes} < 4096)) && PUSHED=$PUSHED$'\377'
    bytes=
    ((${#PUSHED} < 4096)) || return 0
  done
  PUSHED=$PUSHED$bytes
}

# Up to the next LF into LINE, LF_CAME says whether it came; fails when no byte came in time.
next_line() { # <seconds>
  local parts=() byte
  LF_CAME=0
  while have_bytes "$1"; do
    LINE=${PUSHED%%$'\n'*}
    parts[${#parts[@]}]=$LINE
    if [[ $PUSHED == *$'\n'* ]]; then
      PUSHED=${PUSHED:${#LINE}+1}
      LF_CAME=1
      break
    fi
    PUSHED=
    [[ -z $DRAIN ]] || continue
    byte=
    while IFS= read -r -d '' -n 1 -t "$1" -u 3 byte || [[ -n $byte ]]; do
      [[ $byte == $'\n' ]] && LF_CAME=1 && break
      parts[${#parts[@]}]=${byte:-$'\377'}
      byte=
    done
    break
  done
  join_parts LINE "${parts[@]+"${parts[@]}"}"
  ((${#parts[@]}))
}

join_parts() { # <result-var> [part…]
  local jp_name=$1 IFS=
  shift
  printf -v "$jp_name" '%s' "$*"
}

# ---- RESP

# After a `*`: whether a frame begins. HEAD is what was taken for it.
frame_begins() {
  HEAD='*'
  next_line 1 || return 1
  HEAD=$HEAD$LINE
  ((LF_CAME)) || return 1
  HEAD=$HEAD$'\n'
  [[ $LINE =~ ^[0-9][0-9]?$'\r'$ ]] || return 1
  have_bytes 5 && [[ $PUSHED == '$'* ]]
}

# Reads the fields of the frame whose header is in HEAD into FIELDS. 1 malformed, 2 incomplete; then TAKEN holds the pieces
# of what came behind its `*`.
read_frame() {
  local count=${HEAD:1} size total=0 text data have
  count=$((10#${count%%$'\r'*}))
  FIELDS=() TAKEN=("${HEAD:1}")
  ((count >= 1 && count <= 64)) || return 1
  while ((${#FIELDS[@]} < count)); do
    take_line || return 2
    [[ $LINE =~ ^\$([0-9]{1,8})$'\r'$ ]] || return 1
    size=$((10#${BASH_REMATCH[1]}))
    ((total += size + 2, total <= MAX_FRAME)) || return 1
    data=() have=0
    while ((have < size + 2)); do
      take_line || return 2
      data[${#data[@]}]=$LINE$'\n'
      ((have += ${#LINE} + 1))
    done
    join_parts text "${data[@]}"
    ((have == size + 2)) && [[ $text == *$'\r\n' ]] || return 1
    FIELDS[${#FIELDS[@]}]=${text:0:size}
  done
}

# The next line of a frame, whole; what came of it is in TAKEN.
take_line() {
  next_line 5 || return 1
  if ((!LF_CAME)); then
    TAKEN[${#TAKEN[@]}]=$LINE
    return 1
  fi
  TAKEN[${#TAKEN[@]}]=$LINE$'\n'
}

# A broken frame is given up: scanning starts behind its `*`, at the next line that begins a message, or after silence.
skip_broken() { # <what was wrong> <1 when JSON lines begin messages too> [silent]
  report_problem "$1, skipped"
  local first=1 taken
  join_parts taken "${TAKEN[@]}"
  push_back "$taken"
  TAKEN=() taken=
  while :; do
    # It was silent long enough: what came then is all that is looked through.
    is_pushed
    if [[ ${3:-} == silent && $PUSHED != *$'\n'* ]]; then
      PUSHED=
      return 0
    fi
    have_bytes "$SILENCE" || return 1
    if ((!first)); then
      [[ $2 == 1 && $PUSHED == '{'* ]] && return 0
      if [[ $PUSHED == '*'* ]]; then
        PUSHED=${PUSHED:1}
        frame_begins && PUSHED=$HEAD$PUSHED && return 0
        PUSHED=${HEAD:1}$PUSHED
      fi
    fi
    first=0
    next_line "$SILENCE" || return 1
    ((LF_CAME)) || return 1
  done
}

# ---- input.fifo

read_input() {
  exec 3<&10 6<>"$RUN/bell" 10<&-
  while :; do
    have_bytes 10 || continue
    case $PUSHED in
    '*'*)
      PUSHED=${PUSHED:1}
      if frame_begins; then take_frame; else
        PUSHED=$HEAD$PUSHED
        take_text
      fi
      ;;
    '{'*) take_json ;;
    *) take_text ;;
    esac
    is_pushed || mark_busy 0
  done
}

take_frame() {
  read_frame
  case $? in
  1) skip_broken "input.fifo: a malformed RESP frame" 1 && return 0 ;;
  2) skip_broken "input.fifo: an incomplete RESP frame" 1 silent && return 0 ;;
  esac
  ((${#FIELDS[@]})) || return 0
  case ${FIELDS[0]}:${#FIELDS[@]} in
  USER_INPUT:2) queue_input '' "${FIELDS[1]}" ;;
  USER_INPUT:3) queue_input '' "${FIELDS[2]}" ;;
  NOTIFY_PENDING:1) queue_line pending ;;
  SESSION_END:1) queue_line end ;;
  SESSION_END:2)
    if [[ ${FIELDS[1]} =~ ^[0-9]{1,3}$ ]] && ((10#${FIELDS[1]} <= 255)); then
      queue_line end$'\t'$((10#${FIELDS[1]}))
    elif [[ -z ${FIELDS[1]} ]]; then
      queue_line end
    else
      report_problem "input.fifo: SESSION_END with \`${FIELDS[1]}\` for an exit code"
    fi
    ;;
  INTERRUPT:1) kill -USR1 "$$" 2>/dev/null ;;
  USER_INPUT:* | NOTIFY_PENDING:* | SESSION_END:* | INTERRUPT:*)
    report_problem "input.fifo: ${FIELDS[0]} with $((${#FIELDS[@]} - 1)) fields"
    ;;
  *) report_problem "input.fifo: unknown message \`${FIELDS[0]}\`" ;;
  esac
}

take_json() {
  next_line 1 || return 0
  if json_line "$LINE"; then
    send_json "$LINE"
  else
    ((LF_CAME)) && LINE=$LINE$'\n'
    PUSHED=$LINE$PUSHED
    take_text
  fi
}

# Whether a line is a JSON object with a type: its records are then in RECORDS.
json_line() { # <line>
  RECORDS=$(printf '%s\n' "$1" | run_awk inbox.awk)
  [[ -n $RECORDS ]]
}

send_json() {
  local record kind
  while IFS= read -r record; do
    kind=${record%%$'\t'*}
    case $kind in
    interrupt) kill -USR1 "$$" 2>/dev/null ;;
    problem)
      unescape_line record "${record#*$'\t'}"
      report_problem "$record"
      ;;
    approval) take_approval "${record#*$'\t'}" ;;
    *) queue_line "$record" ;;
    esac
  done <<<"$RECORDS"
}

# An answer acts at once, when its question is open.
take_approval() { # <id, TAB, answer>
  local id question=''
  unescape_line id "${1%%$'\t'*}"
  [[ -s $RUN/question ]] && IFS= read -r question <"$RUN/question"
  if [[ $id == "$question" ]]; then
    put_answer input.fifo "$id" "${1#*$'\t'}"
  else
    report_problem "nothing asked for approval '$id'"
  fi
}

# Plain text: one input, ended by silence or by a line that begins another message.
take_text() {
  local parts=() text last
  while next_line 1; do
    parts[${#parts[@]}]=$LINE
    ((LF_CAME)) || break
    parts[${#parts[@]} - 1]=$LINE$'\n'
    have_bytes "$SILENCE" || break
    case $PUSHED in
    '*'*)
      PUSHED=${PUSHED:1}
      if frame_begins; then
        PUSHED=$HEAD$PUSHED
        break
      fi
      PUSHED=$HEAD$PUSHED
      ;;
    '{'*)
      next_line 1
      ((LF_CAME)) && LINE=$LINE$'\n'
      if json_line "${LINE%$'\n'}"; then
        PUSHED=$LINE$PUSHED
        break
      fi
      parts[${#parts[@]}]=$LINE
      have_bytes "$SILENCE" || break
      ;;
    esac
  done
  # Without the line feeds at its end, and the CR before each.
  while ((${#parts[@]})); do
    last=${parts[${#parts[@]} - 1]}
    [[ $last == *$'\n' ]] || break
    last=${last%$'\n'}
    parts[${#parts[@]} - 1]=${last%$'\r'}
    [[ -z ${last%$'\r'} ]] || break
    unset "parts[$((${#parts[@]} - 1))]"
  done
  join_parts text "${parts[@]+"${parts[@]}"}"
  queue_input '' "$text"
}

# ---- The queue

# A short line is one write, so that the lines of several writers do not mix; a long one stands in a file.
queue_line() { # <record>
  if ((${#1} > 1000)); then
    ((++IN_COUNT))
    printf '%s' "$1" >"$RUN/in.$INBOX_NAME.$IN_COUNT"
    set -- "long"$'\t'"$RUN/in.$INBOX_NAME.$IN_COUNT"
  fi
  printf '%s\n' "$1" >>"$RUN/queue"
  printf '\n' >&6
}

queue_input() { # <id> <content>
  local content
  [[ $2 == *[![:space:]]* ]] || return 0
  if ((${#2} > 4096)); then
    ((++IN_COUNT))
    printf '%s' "$2" >"$RUN/in.$INBOX_NAME.$IN_COUNT"
    queue_line "inputf"$'\t'"$1"$'\t'"$RUN/in.$INBOX_NAME.$IN_COUNT"
  else
    escape_line content "$2"
    queue_line "input"$'\t'"$1"$'\t'"$content"
  fi
}

# Written by whoever meets it, not by the owner: so under state.lock.
report_problem() { # <text>
  local line
  printf '%s' "$1" | run_awk problem.awk >"$RUN/problem.$INBOX_NAME"
  IFS= read -r line <"$RUN/problem.$INBOX_NAME"
  log_shared "$line"
  show_error "$1"
}

log_shared() { # <event line without ts and brace>
  local ts
  timestamp ts
  state_lock "$S"
  printf '%s,"ts":"%s"}\n' "$1" "$ts" >>"$S/events.jsonl"
  state_unlock
  [[ $FORMAT == stream-json ]] && printf '%s,"ts":"%s"}\n' "$1" "$ts" 2>/dev/null
  return 0
}

INBOX_NAME=input IN_COUNT=0 RECORD_PART=''

# A record that is there into RECORD. Of a line that its writer has only begun, what was read is kept.
take_record() {
  local part='' file
  if ! IFS= read -r part <&7; then
    RECORD_PART=$RECORD_PART$part
    return 1
  fi
  RECORD=$RECORD_PART$part
  RECORD_PART=
  if [[ $RECORD == long$'\t'* ]]; then
    file=${RECORD#*$'\t'}
    read_file RECORD "$file"
    rm -f -- "$file"
  fi
  return 0
}

# The next record into RECORD. 1 = nothing is there and nothing on its way (only when asked not to wait).
next_record() { # <1 = wait>
  local bell
  while :; do
    if take_record; then return 0; fi
    if [[ $1 != 1 ]]; then
      is_input_waiting || return 1
      ring_wait 0.05
    else
      ring_wait ''
    fi
    ((ENDING || INTERRUPTED || STDOUT_CLOSED)) && return 2
  done
}

# A writer's bytes are in the FIFO still, or the reader is in the middle of a message.
is_input_waiting() {
  local busy=0
  if ((BASH_VERSINFO[0] >= 4)); then
    IFS= read -r -t 0 -u 3 && return 0
  fi
  IFS= read -r busy <"$RUN/busy"
  [[ $busy == 1 ]] && return 0
  # What was queued between the two looks.
  [[ $(wc -l <"$RUN/queue") -gt $RECORDS_READ ]]
}

# Waits for the bell; a signal's trap runs at once.
ring_wait() { # <seconds or "">
  local byte pid
  if ((BASH_VERSINFO[0] >= 4)); then
    # A signal that comes just before `read` begins is seen a second later.
    ((ENDING || INTERRUPTED || STDOUT_CLOSED)) && return 0
    IFS= read -r -t "${1:-1}" byte <&6
    return 0
  fi
  # bash 3.2 runs a trap only after `read`, but at once in `wait`.
  (IFS= read -r -t 1 byte <&6) 9>&- 8>&- 7<&- &
  pid=$!
  wait "$pid" 2>/dev/null
}
