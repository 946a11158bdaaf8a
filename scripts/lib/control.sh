# control.sh - the commands that drive or look at a session from outside (DESIGN "Commands"). They need no key and never
# block for ever; a session that nobody runs is exit 3 with a sentence.

is_command() { # <word>
  case $1 in
  send | notify | interrupt | stop | wait | watch | status | cost | sessions | path | export | completions | man) return 0 ;;
  esac
  return 1
}

run_command_word() { # <command> [argument…]
  local command=$1
  shift
  parse_command "$command" "$@"
  case $command in
  man)
    man_page
    finish 0
    ;;
  completions)
    completions
    finish 0
    ;;
  esac
  find_base
  find_cwd
  setup_run
  trap 'on_exit' EXIT
  trap ':' PIPE
  trap 'finish 130' INT
  trap 'finish 143' TERM
  if declare -F unpack_files >/dev/null; then unpack_files "$RUN/parts"; fi
  setup_awk
  setup_core
  setup_lock
  find_project
  case $command in
  send) command_send ;;
  notify)
    find_running
    need_words
    send_words "$S/notify.fifo" USER_NOTIFY "$WORDS"
    ;;
  interrupt)
    find_running
    send_words "$S/input.fifo" INTERRUPT
    ;;
  stop)
    find_running
    send_words "$S/input.fifo" SESSION_END
    ;;
  wait) command_wait ;;
  watch) command_watch ;;
  status) command_status ;;
  cost) command_cost ;;
  sessions)
    if ((COMMAND_JSON)); then list_json; else list_sessions; fi
    ;;
  path) command_path ;;
  export) command_export ;;
  esac
  finish 0
}

# Sets OPT_SESSION, OPT_HAS_SESSION and the command's own options; its words are in COMMAND_WORDS.
parse_command() { # <command> [argument…]
  local command=$1 word value
  shift
  OPT_SESSION='' OPT_HAS_SESSION=0 OPT_FORK=0 COMMAND_WAIT=0 COMMAND_TIMEOUT='' COMMAND_ID='' COMMAND_JSON=0
  COMMAND_FROM_START=0 COMMAND_FORMAT='' COMMAND_SCOPE=''
  COMMAND_WORDS=()
  while (($#)); do
    word=$1
    shift
    case $word in
    --session=* | --timeout=* | --id=* | --format=* | --output-format=*)
      set -- "${word#*=}" "$@"
      word=${word%%=*}
      ;;
    esac
    case $command:$word in
    *:--help | *:-h)
      echo "Usage: agent.sh $command [OPTIONS]   (see the manual page)"
      exit 0
      ;;
    completions:--session | man:--session | sessions:--session) usage_error "unexpected argument '$word' found" ;;
    *:--session | send:--timeout | wait:--timeout | send:--id | export:--format | watch:--output-format)
      (($#)) || usage_error "a value is required for '$word' but none was supplied"
      value=$1
      shift
      case $word in
      --session) OPT_SESSION=$value OPT_HAS_SESSION=2 ;;
      --timeout) need_count COMMAND_TIMEOUT "$value" "number of seconds" ;;
      --id) COMMAND_ID=$value ;;
      --format) need_choice COMMAND_FORMAT format "$value" md json ;;
      --output-format) need_choice COMMAND_FORMAT 'output format' "$value" human stream-json ;;
      esac
      ;;
    send:--wait) COMMAND_WAIT=1 ;;
    status:--json | cost:--json | sessions:--json) COMMAND_JSON=1 ;;
    cost:--project | cost:--all)
      [[ -z $COMMAND_SCOPE ]] || usage_error "'$word' cannot be used with '$COMMAND_SCOPE'"
      COMMAND_SCOPE=$word
      ;;
    watch:--from-start) COMMAND_FROM_START=1 ;;
    *:--)
      while (($#)); do
        COMMAND_WORDS[${#COMMAND_WORDS[@]}]=$1
        shift
      done
      ;;
    *:-?*) usage_error "unexpected argument '$word' found" ;;
    *) COMMAND_WORDS[${#COMMAND_WORDS[@]}]=$word ;;
    esac
  done
  [[ -z $COMMAND_SCOPE || $OPT_HAS_SESSION == 0 ]] || usage_error "'$COMMAND_SCOPE' cannot be used with '--session'"
}

# The words as one text, or stdin for `-`.
need_words() {
  ((${#COMMAND_WORDS[@]})) || usage_error "the text is missing"
  if ((${#COMMAND_WORDS[@]} == 1)) && [[ ${COMMAND_WORDS[0]} == - ]]; then
    WORDS=$(
      tr '\000' '\377' | head -c 67108865
      printf x
    )
    WORDS=${WORDS%x}
    while [[ $WORDS == *[$'\n\r'] ]]; do WORDS=${WORDS%?}; done
  else
    WORDS="${COMMAND_WORDS[*]}"
  fi
  [[ $WORDS == *[![:space:]]* ]] || usage_error "the text is empty: give some, or \`-\` and pipe it in"
}

# ---- Which session

is_running() { # <session dir>   whoever holds the lock runs it
  [[ -e $1/session.lock ]] || return 1
  (
    exec 9<>"$1/session.lock" || exit 2
    try_lock_fd 9
  )
  (($? == 1))
}

find_newest_running() {
  local name
  find_sessions
  for name in "${FOUND[@]+"${FOUND[@]}"}"; do
    if is_running "$PROJECT_DIR/$name"; then
      S=$PROJECT_DIR/$name
      return 0
    fi
  done
  return 1
}

find_running() {
  if ((OPT_HAS_SESSION == 2)); then
    need_name "$OPT_SESSION"
    find_source S
  else
    find_newest_running ||
      die 3 "no agent runs in this directory: start one with \`agent.sh --stay\`, or name a session with --session"
  fi
  SESSION=${S##*/}
  is_running "$S" || die 3 "no agent runs session $SESSION: start one with \`agent.sh --stay --session $SESSION\`"
  awk_value SV "$S"
}

find_any() {
  if ((OPT_HAS_SESSION == 2)); then
    need_name "$OPT_SESSION"
    find_source S
  elif ! find_newest_running; then
    find_source S
  fi
  SESSION=${S##*/}
  awk_value SV "$S"
}

# ---- send, wait

# How long a running agent may take to take a message in.
PATIENCE=10

send_words() { # <fifo> <field>…
  local fifo=$1
  shift
  encode_frames >"$RUN/frame" < <(escape_fields "$@")
  send_file "$fifo" "$RUN/frame"
}

# A caller who waits for what comes of it does not wait for this any longer than he said.
send_file() { # <fifo> <file>
  local seconds=$PATIENCE
  [[ -n $COMMAND_TIMEOUT ]] && ((COMMAND_TIMEOUT < PATIENCE)) && seconds=$COMMAND_TIMEOUT
  send_within "$1" "$2" "$seconds"
  case $? in
  0) return 0 ;;
  1) die 3 "no agent runs session $SESSION: start one with \`agent.sh --stay --session $SESSION\`" ;;
  esac
  ((seconds < PATIENCE)) && die 124 "gave up after $seconds s"
  die 1 "$1: the agent does not read (stopped?); gave up after $seconds s"
}

escape_fields() { # <field>…
  local field line=''
  for field; do
    escape_line field "$field"
    line=$line${line:+$'\t'}$field
  done
  printf '%s\n' "$line"
}

send_line() { # <line>   one write
  printf '%s\n' "$1" >"$RUN/line"
  send_file "$S/input.fifo" "$RUN/line"
}

command_send() {
  local text id='' line file
  find_running
  need_words
  json_string text "$WORDS"
  new_id file
  [[ -z $COMMAND_ID ]] && ((COMMAND_WAIT)) && COMMAND_ID=send-$file-$$
  if [[ -n $COMMAND_ID ]]; then
    json_string id "$COMMAND_ID"
    id=",\"id\":\"$id\""
  fi
  line="{\"type\":\"user_input\",\"content\":\"$text\"$id}"
  if ((${#line} > 4095)); then
    ensure_dir "$S/input.d"
    {
      printf '%s' "$WORDS" >"$S/input.d/$file.new" && mv -f -- "$S/input.d/$file.new" "$S/input.d/$file"
    } || storage_error write "$S/input.d/$file" ''
    line="{\"type\":\"user_input\",\"file\":\"$file\"$id}"
  fi
  ((COMMAND_WAIT)) && follow_events 0
  send_line "$line"
  ((COMMAND_WAIT)) || return 0
  wait_for_turn
}

# Opens the log at its end, or at its start; next_event then gives its lines.
follow_events() { # <1 = from the start>
  exec 7<"$S/events.jsonl"
  EVENT_PART=''
  DEADLINE=
  [[ -z $COMMAND_TIMEOUT ]] || DEADLINE=$((SECONDS + COMMAND_TIMEOUT))
  (($1)) || while IFS= read -r _ <&7; do :; done
}

# The next line into EVENT. 1 = the agent has ended and all is read, 2 = the time is over.
next_event() {
  local part looks=0 ended=0
  while :; do
    if IFS= read -r part <&7; then
      EVENT=$EVENT_PART$part
      EVENT_PART=
      return 0
    fi
    EVENT_PART=$EVENT_PART$part
    ((ended)) && return 1
    [[ -n $DEADLINE ]] && ((SECONDS >= DEADLINE)) && return 2
    if ((looks++ % 4 == 0)) && ! is_running "$S"; then
      ended=1
      continue
    fi
    sleep 0.05 2>/dev/null || sleep 1
  done
}

wait_for_turn() {
  local id running=0 code
  json_string id "$COMMAND_ID"
  : >"$RUN/turn.events"
  while :; do
    next_event
    case $? in
    1) die 3 "the agent of session $SESSION ended before it was done" ;;
    2) die 124 "gave up after $COMMAND_TIMEOUT s" ;;
    esac
    case $EVENT in
    '{"type":"user_input",'*)
      running=0
      [[ $EVENT == *"\"id\":\"$id\""* ]] && running=1
      ;;
    '{"type":"stop",'*)
      ((running)) || continue
      printf '%s\n' "$EVENT" >>"$RUN/turn.events"
      break
      ;;
    *) ((running)) && printf '%s\n' "$EVENT" >>"$RUN/turn.events" ;;
    esac
  done
  run_awk final.awk -v code_file="$(printf '%s' "$RUN/code")" -v error_file="$RUN/error" "$RUN/turn.events" || finish 141
  IFS= read -r code <"$RUN/code"
  if ((code)) && [[ -s $RUN/error ]]; then say_error "$(cat "$RUN/error")"; fi
  finish "$code"
}

command_wait() {
  local id
  find_running
  new_id id
  id=wait-$id-$$
  follow_events 0
  send_line "{\"type\":\"sync\",\"id\":\"$id\"}"
  while :; do
    next_event
    case $? in
    1) return 0 ;;
    2) die 124 "gave up after $COMMAND_TIMEOUT s" ;;
    esac
    [[ $EVENT == '{"type":"sync","id":"'"$id"'"'* ]] && return 0
  done
}

# ---- Looking

command_watch() {
  find_any
  follow_events "$COMMAND_FROM_START"
  FORMAT=human
  if [[ $COMMAND_FORMAT == stream-json ]]; then
    while next_event; do printf '%s\n' "$EVENT" || finish 141; done
  else
    while next_event; do printf '%s\n' "$EVENT" || break; done | replay_events | display
  fi
  return 0
}

command_path() {
  local file=''
  case ${COMMAND_WORDS[0]:-dir} in
  dir) ;;
  input) file=/input.fifo ;;
  notify) file=/notify.fifo ;;
  events) file=/events.jsonl ;;
  conversation) file=/conversation.jsonl ;;
  stats) file=/stats.json ;;
  *) usage_error "unknown path '${COMMAND_WORDS[0]}': give one of dir, input, notify, events, conversation, stats" ;;
  esac
  find_any
  printf '%s\n' "$S$file"
}

command_status() {
  local pid='' busy=0 waiting=0 open=''
  find_any
  if is_running "$S"; then
    IFS= read -r pid <"$S/session.lock"
    [[ -e $S/agent_running.flag ]] && busy=1
    [[ -e $S/active_sub.list ]] && open=$(cat "$S/active_sub.list")
  fi
  has_notices && waiting=1
  read_toml USER_FILE "$BASE/config.toml"
  read_toml PROJECT "$CWD/.bash-agent.toml"
  check_project_config
  OPT_REQUIRE_SANDBOX=0 OPT_NO_MASK=0
  resolve_sandbox
  setup_sandbox
  STATUS_OPEN=$open STATUS_SANDBOX=$SANDBOX_TEXT run_awk status.awk -v name="${SESSION//\\/\\\\}" -v dir="$SV" -v pid="$pid" -v busy="$busy" \
    -v waiting="$waiting" -v json="$COMMAND_JSON" </dev/null
}

# Tokens and dollars by kind and model, summed over the `usage` events.
command_cost() {
  local models=("$ASSETS_DIR/models.json") name unpriced
  [[ -e $BASE/models.json ]] && models[1]=$BASE/models.json
  case $COMMAND_SCOPE in
  --all)
    # What sub-agents used is in their parents' events.
    for name in "$BASE"/projects/*/*/events.jsonl; do
      name=${name%/events.jsonl}
      [[ ${name##*/} == sub_* || ! -f $name/events.jsonl ]] || printf '%s\n' "$name"
    done
    ;;
  --project)
    find_sessions
    for name in "${FOUND[@]+"${FOUND[@]}"}"; do printf '%s\n' "$PROJECT_DIR/$name"; done
    ;;
  *)
    find_any
    printf '%s\n' "$S"
    ;;
  esac >"$RUN/cost.dirs"
  run_awk cost.awk "$RUN/cost.dirs" | LC_ALL=C sort >"$RUN/cost.sums"
  run_awk models.awk -v rows="$RUN/cost.sums" "${models[@]}" >"$RUN/cost.rows" 2>"$RUN/models.err" || die 2 "$(cat "$RUN/models.err")"
  while IFS= read -r unpriced; do
    say_warning "no price is known for '$unpriced': its tokens count as \$0 (add it to models.json)"
  done < <(LC_ALL=C awk -F '\t' '$1 != "compaction" && $10 == 0 && !said[$2]++ { print $2 }' "$RUN/cost.rows" | LC_ALL=C sort)
  run_awk bill.awk -v json="$COMMAND_JSON" "$RUN/cost.rows" || finish 141
}

list_json() {
  local i preview
  find_sessions
  for ((i = 0; i < ${#FOUND[@]}; i++)); do
    preview=$(head -c 4096 -- "$PROJECT_DIR/${FOUND[i]}/summary.txt" 2>/dev/null | grep -m 1 '[^[:space:]]')
    escape_line preview "$preview"
    printf '%s\t%s\t%s\n' "${FOUND[i]}" "${FOUND_TIMES[i]}" "$preview"
  done | run_awk listing.awk -v json=1 -v project="${PROJECT_DIR//\\/\\\\}"
}

command_export() {
  find_any
  replay_whole "$S/events.jsonl" | run_awk transcript.awk -v format="${COMMAND_FORMAT:-md}" -v name="${SESSION//\\/\\\\}"
}

# ---- Generated from the usage text

man_page() {
  printf '.TH BASH-AGENT 1\n.SH NAME\nagent.sh \\- a coding agent for people who live in a shell\n.SH OPTIONS\n.nf\n'
  usage_text | sed -e 's/\\/\\e/g' -e 's/-/\\-/g' -e "s/^\\([.']\\)/\\\\\&\\1/"
  printf '.fi\n.SH "EXIT STATUS"\n.nf\n'
  cat <<'END'
0    the last turn ended well
1    it failed otherwise
2    usage: flags, names, config; no key and no base URL
3    no such session, or nobody runs it
4    another agent owns the session
5    the API refused the key or the right (401, 403)
6    429, 503, 529 or an overload in the stream outlasted the retries
7    no connection, the stream kept breaking, or 408, 409 and other 5xx outlasted the retries
8    context too long and compaction could not help
9    a limit of the user's: turns, cost, tokens, time
10   the model refused, or a content filter did
11   own storage: disk full, read\-only, no permission
124  a \-\-timeout ran out
129  SIGHUP
130  SIGINT
141  stdout was closed early
143  SIGTERM
.fi
END
}

completions() {
  local words
  [[ ${COMMAND_WORDS[0]:-bash} == bash ]] || usage_error "unknown shell '${COMMAND_WORDS[0]}': give one of bash"
  words=$(usage_text | grep -o -e '--[a-z][a-z-]*' | sort -u | tr '\n' ' ')
  printf '# bash completion for bash-agent\ncomplete -o default -W "%ssend notify interrupt stop wait watch status cost compact sessions path export" bash-agent agent.sh\n' "$words"
}
