# approval.sh - a refusal turned into a question (CONTRACT §12, --ask): an `approval_request` event, and whoever answers
# first, at the terminal or on input.fifo, decides. No answer in time is no.
#
# An open question has its id in $RUN/question; answers are lines `BY TAB ID TAB TEXT` of $RUN/approval, written by the reader of
# input.fifo, by the line editor, or by a process that reads the terminal.

ANSWERER_PID=''

# Asks whether a refused call may run; sets APPROVED: false, true or session.
ask_approval() { # <number of the call> <id of the call> <name> <required mode>
  local id why input line wider call
  new_id id
  id=approval_$id
  APPROVED=false
  refusal_reasons why "$3"
  wider_mode wider "$4"
  # The event of the call, without its first and last members.
  input=$(sed -n "$1p" "$RUN/answer/tool_calls")
  input=${input#*',"input":'}
  input=${input%',"ts":"'*}
  : >"$RUN/approval"
  printf '%s\n' "$id" >"$RUN/question"
  json_string line "$why"
  json_string call "$2"
  event "{\"type\":\"approval_request\",\"id\":\"$id\",\"tool_use_id\":\"$call\",\"name\":\"$3\",\"input\":$input,\"required\":\"$4\",\"allowed\":\"$MODE_DIGITS\",\"why\":\"$line\""
  start_answers "$id"
  show_question "$id" "$3" "$4" "$why" "$wider"
  await_answer "$id"
  stop_answers
  rm -f -- "$RUN/question"
  line=$APPROVED
  [[ $APPROVED == session ]] && line='"session"'
  event "{\"type\":\"approval\",\"id\":\"$id\",\"allow\":$line,\"by\":\"$APPROVED_BY\""
}

# What the call wanted that the mode does not give.
refusal_reasons() { # <result-var> <name>
  case $2 in
  Bash) printf -v "$1" '%s' "$NEEDS_WHY" ;;
  Glob) printf -v "$1" '%s' "Glob $ARG_pattern" ;;
  *) printf -v "$1" '%s' "$2 $ARG_path" ;;
  esac
}

wider_mode() { # <result-var> <required digits>   the mode with these bits added
  local wm_i wm_out=''
  for wm_i in 0 1 2 3; do wm_out=$wm_out$((${MODE_DIGITS:wm_i:1} | ${2:wm_i:1})); done
  printf -v "$1" '%s' "$wm_out"
}

show_question() { # <id> <name> <required> <why> <wider mode>
  local text line
  [[ $FORMAT == stream-json && $HAS_ANSWERER == 0 ]] && return 0
  text="[approval] $2 needs $3, and the mode is $MODE_DIGITS: $4"$'\n'
  if [[ $2 == Bash ]]; then
    # Whole: what is approved must be seen.
    while IFS= read -r line; do text="$text  | $line"$'\n'; done <<<"$ARG_command"
  fi
  if ((HAS_ANSWERER)); then
    text="${text}y = this once, s = from now on (mode $5), n = no; without an answer in $ASK_TIMEOUT s: no"$'\n'
  else
    text="${text}answer within $ASK_TIMEOUT s on input.fifo: {\"type\":\"approval\",\"id\":\"$1\",\"allow\":true|false|\"session\"}"$'\n'
  fi
  printf '%s' "$text" | LC_ALL=C tr -d '\001-\010\013-\037\177' >&2
}

await_answer() { # <id>   sets APPROVED and APPROVED_BY
  local until=$((SECONDS + ASK_TIMEOUT)) by id text seen=0 number
  APPROVED_BY=timeout
  while :; do
    if ((INTERRUPTED || ENDING)); then
      APPROVED_BY=interrupt
      return 0
    fi
    ((SECONDS < until)) || return 1
    if [[ -s $RUN/approval ]]; then
      number=0
      while IFS=$'\t' read -r by id text; do
        ((++number > seen)) || continue
        seen=$number
        # An answer that came just as its question was closed is none to the next.
        [[ $id == "$1" ]] || continue
        if parse_answer "$text"; then
          APPROVED_BY=$by
          # Whoever else waits for the bell.
          printf '\n' >&6
          return 0
        elif [[ $by == terminal ]]; then
          printf '%s\n' "answer y (once), s (session) or n (no)" >&2
          ask_answer
        else
          event_error "approval '$1' has \"allow\" $text: give true, false or \"session\""
        fi
      done <"$RUN/approval"
    fi
    ring_wait ''
  done
}

parse_answer() { # <text>   sets APPROVED; fails when it is none
  local text
  toml_trim text "$1"
  case $text in
  [nN] | [nN][oO] | [fF][aA][lL][sS][eE]) APPROVED=false ;;
  [yY] | [yY][eE][sS] | [tT][rR][uU][eE]) APPROVED=true ;;
  [sS] | [sS][eE][sS][sS][iI][oO][nN]) APPROVED=session ;;
  *) return 1 ;;
  esac
}

# ---- The terminal

# Somebody at a terminal: the line editor, or a process that reads one.
start_answers() { # <id>
  local groups
  HAS_ANSWERER=0
  if [[ -n $EDITOR_PID ]]; then
    HAS_ANSWERER=1
    ask_answer
    return $?
  fi
  [[ -t 2 ]] && (: </dev/tty) 2>/dev/null || return 0
  # A job in the background would be stopped by reading.
  IFS=' ' read -r -a groups <<<"$(ps -o pgid= -o tpgid= -p "$$" 2>/dev/null)"
  [[ ${groups[0]:-0} == "${groups[1]:-1}" ]] || return 0
  (
    close_own
    trap - EXIT TERM HUP USR1 USR2 CONT PIPE
    exec 6<>"$RUN/bell"
    while IFS= read -r line; do put_answer terminal "$1" "$line"; done
  ) </dev/tty &
  ANSWERER_PID=$!
  HAS_ANSWERER=1
}

put_answer() { # <by> <id of the question> <text>
  printf '%s\t%s\t%s\n' "$1" "$2" "$3" >>"$RUN/approval"
  printf '\n' >&6
}

# The editor asks for an answer, unless its prompt is open: what is typed there is the answer.
ask_answer() {
  [[ -n $EDITOR_PID ]] && ((!PROMPT_OPEN)) && printf 'answer\n' >"$RUN/ask"
  return 0
}

stop_answers() {
  [[ -n $ANSWERER_PID ]] || return 0
  # (A signal that meets it in the moment of its birth is lost.)
  while kill -TERM "$ANSWERER_PID" 2>/dev/null; do sleep 0.01 2>/dev/null || sleep 1; done
  wait "$ANSWERER_PID" 2>/dev/null
  ANSWERER_PID=
}
