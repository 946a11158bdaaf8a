# subagent.sh - children: sub-agents and background commands (CONTRACT §7 "Children"). Each has a waiter, a process that
# writes one result frame to notify.fifo however the child ended. The notify reader does the rest.
#
# CHILD_IDS, CHILD_WAITERS, CHILD_PIDS, CHILD_TURNS: what runs. QUEUED_*: sub-agents that wait for a place.

CHILD_IDS=() CHILD_WAITERS=() CHILD_PIDS=() CHILD_TURNS=()
QUEUED_IDS=() QUEUED_TURNS=()

forget_ended() {
  local i ids=() waiters=() pids=() turns=() n=0
  for ((i = 0; i < ${#CHILD_IDS[@]}; i++)); do
    if ! kill -0 "${CHILD_WAITERS[i]}" 2>/dev/null; then
      reap_group "${CHILD_WAITERS[i]}"
      continue
    fi
    ids[n]=${CHILD_IDS[i]} waiters[n]=${CHILD_WAITERS[i]} pids[n]=${CHILD_PIDS[i]} turns[n]=${CHILD_TURNS[i]}
    ((++n))
  done
  CHILD_IDS=("${ids[@]+"${ids[@]}"}")
  CHILD_WAITERS=("${waiters[@]+"${waiters[@]}"}")
  CHILD_PIDS=("${pids[@]+"${pids[@]}"}")
  CHILD_TURNS=("${turns[@]+"${turns[@]}"}")
}

add_child() { # <id> <waiter> <pid>
  local n=${#CHILD_IDS[@]}
  CHILD_IDS[n]=$1 CHILD_WAITERS[n]=$2 CHILD_PIDS[n]=$3 CHILD_TURNS[n]=$RUN_TURNS
}

# The pid that a waiter's child has written, as soon as it is there.
child_pid() { # <result-var> <file> <waiter>
  local cp_pid='' cp_tries=0
  until [[ -s $2 ]]; do
    kill -0 "$3" 2>/dev/null || break
    ((++cp_tries > 300)) && break
    sleep 0.01 2>/dev/null || sleep 1
  done
  [[ -s $2 ]] && IFS= read -r cp_pid <"$2"
  printf -v "$1" '%s' "${cp_pid:-0}"
}

# ---- Background commands

background_command() {
  local id seconds pid
  if [[ $ARG_command != *[![:space:]]* ]]; then
    fail "no command provided"
    return 0
  fi
  judge_command "$ARG_command" && prepare_cage || return 0
  # Only a number counts here.
  [[ $KINDS == *' timeout:n '* ]] || ARG_timeout=
  command_timeout seconds || return 0
  while :; do
    new_id id
    id=task_$id
    [[ " ${CHILD_IDS[*]-} " == *" $id "* ]] || break
  done
  put_on_list "$id" 0
  start_group run_task "$id" "$ARG_command" "$seconds"
  child_pid pid "$RUN/$id.pid" "$GROUP_PID"
  add_child "$id" "$GROUP_PID" "$pid"
  [[ $pid == 0 ]] || put_on_list "$id" "$pid"
  R_HEAD="Async task started: task_id=$id, pid=$pid"
}

own_pid() { # <result-var>   of a subshell, in every bash
  if [[ -n ${BASHPID:-} ]]; then
    printf -v "$1" '%s' "$BASHPID"
  else
    local op_pid
    # shellcheck disable=SC2016
    sh -c 'echo $PPID' >"$RUN/own_pid.$2"
    IFS= read -r op_pid <"$RUN/own_pid.$2"
    printf -v "$1" '%s' "$op_pid"
  fi
}

run_task() { # <id> <command> <seconds>
  local frame=$RUN/$1.frame
  own_pid TASK_PID "$1"
  BASHPID_NOW=$TASK_PID
  INTERRUPTED=0 ENDING=0
  trap '((++TRAPS)); ENDING=143' TERM INT HUP
  trap '((++TRAPS)); TIMER_FIRED=1' USR2
  trap '((++TRAPS))' CONT
  run_command "$2" "$3" "$RUN/$1"
  reset_result
  frame_result "$3"
  # The output alone travels; what a person and the model see is made from it.
  R_HEAD='' R_ERROR=0
  R_OPTIONS=()
  R_FILE=$RUN/$1
  gather_output "$RUN/$1"
  {
    print_secrets
    tr '\000' '\377' <"$R_FILE"
    printf '.\n'
  } | R_ID=$1 R_NAME=Bash R_HEAD='' R_NOTES=$R_NOTES R_SUMMARY='' R_TODO='' \
    run_awk result.awk -v dir="$RUN_V" -v max="$MAX_RESULT" -v shapes="$MASK" -v task=1 -v code="$CMD_CODE" "${R_OPTIONS[@]+"${R_OPTIONS[@]}"}" >"$frame"
  forget_output "$RUN/$1"
  deliver "$frame" "$S"
}

deliver() { # <frame file> <session directory whose event log tells of a wait>
  kill -0 "$$" 2>/dev/null || exit 0
  send_frames "$S/notify.fifo" "$1" say_that_it_waits "$2"
  # Kept for the case that the notify reader dies with it in hand.
  mv -f -- "$1" "$1.sent"
  # The main loop may have a place for one that waits.
  printf 'child\n' >>"$RUN/queue" && printf '\n' >"$RUN/bell" &
  wait
}

say_that_it_waits() { # <session directory>
  local path ts
  json_string path "$S/notify.fifo"
  timestamp ts
  state_lock "$1"
  printf '{"type":"error","message":"%s is busy: the result waits until it can be written","ts":"%s"}\n' "$path" "$ts" >>"$1/events.jsonl"
  state_unlock
}

# ---- Sub-agents

tool_SubAgent() {
  local id
  if ((IS_CHILD)); then
    fail "sub-agent recursion limit reached; child agents cannot launch SubAgent"
    return 0
  fi
  has_text prompt && has_text description || return 0
  if [[ $ARG_prompt != *[![:space:]]* ]]; then
    fail "no prompt provided"
    return 0
  fi
  # Its directory keeps the name for it, queued or running.
  while :; do
    new_id id
    id=sub_$id
    mkdir -m 700 -- "$PROJECT_DIR/$id" 2>/dev/null && break
    [[ -d $PROJECT_DIR/$id ]] && continue
    fail "the session directory of $id could not be made"
    return 0
  done
  [[ $ARG_fork == true ]] && copy_session "$PROJECT_DIR/$id"
  printf '%s' "$ARG_prompt" >"$RUN/$id.prompt"
  printf '%s' "$ARG_description" >"$RUN/$id.description"
  printf '%s' "${ARG_fork:-false}" >"$RUN/$id.fork"
  budget_flags >"$RUN/$id.budget"
  put_on_list "$id" 0
  forget_ended
  if ((${#CHILD_IDS[@]} - $(count_tasks) >= MAX_SUB_AGENTS)); then
    QUEUED_IDS[${#QUEUED_IDS[@]}]=$id
    QUEUED_TURNS[${#QUEUED_TURNS[@]}]=$RUN_TURNS
    R_HEAD="Sub-agent queued: session_id=$id"
    return 0
  fi
  start_child "$id"
  R_HEAD="Sub-agent started: session_id=$id, pid=$CHILD_PID"
}

count_tasks() {
  local id n=0
  for id in "${CHILD_IDS[@]+"${CHILD_IDS[@]}"}"; do [[ $id == task_* ]] && ((++n)); done
  printf '%d' "$n"
}

# A fork has all up to, and without, an open assistant line.
copy_session() { # <directory>
  local own=$S own_v=$SV
  local provider=$META_PROVIDER model=$META_MODEL from=$META_FROM results=$META_RESULTS
  S=$1
  fork_session "$own"
  S=$own SV=$own_v
  META_PROVIDER=$provider META_MODEL=$model META_FROM=$from META_RESULTS=$results
  load_meta "$S"
}

start_child() { # <id>   sets CHILD_PID
  local prompt description fork ts
  # The event comes first: the child may answer at once, and its waiter takes these files away.
  read_file prompt "$RUN/$1.prompt"
  read_file description "$RUN/$1.description"
  read_file fork "$RUN/$1.fork"
  json_string prompt "$prompt"
  json_string description "$description"
  timestamp ts
  event "{\"type\":\"sub_agent_start\",\"session_id\":\"$1\",\"timestamp\":\"${ts%.*}Z\",\"prompt\":\"$prompt\",\"description\":\"$description\",\"fork\":$fork"
  start_group run_child "$1"
  child_pid CHILD_PID "$RUN/$1.pid" "$GROUP_PID"
  add_child "$1" "$GROUP_PID" "$CHILD_PID"
  # Without a pid it has ended already, and must not get onto the list again.
  [[ $CHILD_PID == 0 ]] || put_on_list "$1" "$CHILD_PID"
}

run_child() { # <id>
  local code pid='' frame=$RUN/$1.frame
  trap 'ENDING=143' TERM INT HUP
  ENDING=0 INTERRUPTED=0
  (
    trap - TERM INT HUP
    exec_child "$1"
  ) &
  pid=$!
  while :; do
    ((ENDING)) && break
    wait "$pid" 2>/dev/null
    code=$?
    ((ENDING)) && break
    kill -0 "$pid" 2>/dev/null || break
  done
  if ((ENDING)); then
    ENDING=0
    [[ -s $RUN/$1.pid ]] && IFS= read -r code <"$RUN/$1.pid" && end_process "$code" 2
    code=143
  fi
  sub_result "$PROJECT_DIR/$1" "$code" >"$frame"
  rm -f -- "$RUN/$1.prompt" "$RUN/$1.description" "$RUN/$1.fork" "$RUN/$1.budget" "$RUN/$1.pid"
  deliver "$frame" "$PROJECT_DIR/$1"
}

# What a child did, as one frame for notify.fifo.
sub_result() { # <its session directory> <exit code>
  local dir
  if has_core; then
    run_core sub-result --exit-code "$2" -- "$1" >"$RUN/sub_result.${1##*/}"
    if core_did $? sub-result; then
      cat -- "$RUN/sub_result.${1##*/}"
      rm -f -- "$RUN/sub_result.${1##*/}"
      return 0
    fi
  fi
  awk_value dir "$1"
  run_awk sub_result.awk -v dir="$dir" -v code="$2"
}

end_process() { # <pid> <grace in seconds>
  local tries=0
  kill -TERM "$1" 2>/dev/null || return 0
  while ((tries++ < $2 * 20)); do
    kill -0 "$1" 2>/dev/null || return 0
    sleep 0.05 2>/dev/null || sleep 1
  done
  kill -KILL "$1" 2>/dev/null
}

exec_child() { # <id>
  local words name
  if [[ -n ${BASH_AGENT_SUBAGENT:-} ]]; then
    words=("$BASH_AGENT_SUBAGENT")
  else
    words=("$BASH" "$AGENT_SELF")
  fi
  words=("${words[@]}" --session "$1" --output-format stream-json)
  [[ -z $PROVIDER_ARG ]] || words=("${words[@]}" --provider "$PROVIDER_ARG")
  if [[ $PROVIDER == script ]]; then
    [[ -z $SCRIPT_FILE ]] || words=("${words[@]}" --model "$SCRIPT_FILE")
  else
    words=("${words[@]}" --model "$MODEL")
  fi
  [[ -z $OPT_BASE_URL ]] || words=("${words[@]}" --base-url "$OPT_BASE_URL")
  words=("${words[@]}" --max-tokens "$MAX_TOKENS" --tool-timeout "$TOOL_TIMEOUT" --max-turns "$MAX_TURNS"
    --max-context "$MAX_CONTEXT" --effort "$EFFORT_LEVEL" --thinking "$THINKING_KIND")
  local word
  while IFS= read -r word; do words[${#words[@]}]=$word; done <"$RUN/$1.budget"
  is_sandbox_required && words=("${words[@]}" --require-sandbox)
  ((OPT_NO_MASK)) && words=("${words[@]}" --no-mask)
  export BASH_AGENT_CHILD=1 BASH_AGENT_BASH_MODE=$MODE_GIVEN
  for name in "${AGENT_KEYS[@]+"${AGENT_KEYS[@]}"}"; do export "${name?}"; done
  if [[ -n $OPT_API_KEY && -n $API_KEY ]]; then
    if [[ $PROVIDER == claude ]]; then export ANTHROPIC_API_KEY=$API_KEY; else export OPENAI_API_KEY=$API_KEY; fi
  fi
  if [[ -n ${ORIG_LC_ALL+set} ]]; then export LC_ALL=$ORIG_LC_ALL; else unset LC_ALL; fi
  umask "$ORIG_UMASK"
  cd "$CWD" || exit 1
  # shellcheck disable=SC2016 # the inner shell's own words
  exec "${SETSID[@]+"${SETSID[@]}"}" sh -c 'echo $$ >"$1"; shift; exec "$@"' sh "$RUN/$1.pid" "${words[@]}" \
    <"$RUN/$1.prompt" >/dev/null 2>&1
}

# Starts those that wait, as places become free.
start_queued() {
  local id
  ((${#QUEUED_IDS[@]})) || return 0
  forget_ended
  while ((${#QUEUED_IDS[@]} && ${#CHILD_IDS[@]} - $(count_tasks) < MAX_SUB_AGENTS)); do
    id=${QUEUED_IDS[0]}
    QUEUED_IDS=("${QUEUED_IDS[@]:1}")
    QUEUED_TURNS=("${QUEUED_TURNS[@]:1}")
    start_child "$id"
  done
}

# ---- Ends

# TERM to a waiter, and to its sub-agent too: a waiter that is just about to `wait` sees a signal only when that ends.
end_waiter() { # <index>
  kill -TERM "${CHILD_WAITERS[$1]}" 2>/dev/null || return 0
  [[ ${CHILD_IDS[$1]} == task_* || ${CHILD_PIDS[$1]} == 0 ]] || kill -TERM "${CHILD_PIDS[$1]}" 2>/dev/null
}

# An interrupt ends the children that this turn started.
end_turn_children() {
  local i ids=() turns=() n=0 frame
  for ((i = 0; i < ${#CHILD_IDS[@]}; i++)); do
    ((CHILD_TURNS[i] == RUN_TURNS)) && end_waiter "$i"
  done
  for ((i = 0; i < ${#QUEUED_IDS[@]}; i++)); do
    if ((QUEUED_TURNS[i] != RUN_TURNS)); then
      ids[n]=${QUEUED_IDS[i]} turns[n]=${QUEUED_TURNS[i]}
      ((++n))
      continue
    fi
    frame=$RUN/${QUEUED_IDS[i]}.frame
    emit_failed "${QUEUED_IDS[i]}" "interrupted before it started" >"$frame"
    send_frames "$S/notify.fifo" "$frame"
    rm -f -- "$frame"
  done
  QUEUED_IDS=("${ids[@]+"${ids[@]}"}")
  QUEUED_TURNS=("${turns[@]+"${turns[@]}"}")
}

emit_failed() { # <id> <text>   an AGENT_RESULT frame
  printf 'AGENT_RESULT\t%s\tfailed\t\t%s\t0\t0\t0\t0\t0\n' "$1" "$2" | encode_frames
}

# All of them, at the end: TERM, two seconds, KILL. Their results, and those that were on their way, are taken in.
end_children() {
  local i tries=0 count
  forget_ended
  for ((i = 0; i < ${#CHILD_IDS[@]}; i++)); do end_waiter "$i"; done
  while ((tries++ < 60)); do
    forget_ended
    open_count count
    # (Those that waited for a place have no result.)
    ((${#CHILD_IDS[@]} == 0 && count <= ${#QUEUED_IDS[@]})) && return 0
    sleep 0.05 2>/dev/null || sleep 1
  done
  for ((i = 0; i < ${#CHILD_IDS[@]}; i++)); do
    kill -KILL "${CHILD_PIDS[i]}" 2>/dev/null
    kill -KILL -- "-${CHILD_WAITERS[i]}" 2>/dev/null
  done
}
