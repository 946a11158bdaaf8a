# tools.sh - the model's tools (CONTRACT §11). What they may do is said by policy.sh.
#
# A tool is a function tool_NAME. It reads ARG_* and leaves R_HEAD, R_FILE, R_NOTES, R_SUMMARY, R_ERROR, R_OPTIONS (for
# awk/result.awk); fail TEXT makes an error of it. Results are stored in call order.

reset_result() {
  R_HEAD='' R_FILE='' R_NOTES='' R_SUMMARY='' R_ERROR=0 R_TODO='' R_REFUSED=''
  R_OPTIONS=()
}

fail() { # <text>
  reset_result
  R_HEAD="Error: $1"
  R_ERROR=1
}

# ---- The calls of one response: neighbours that only read side by side, the others one by one.

# So many at a time.
MAX_BESIDE=16

run_tools() {
  local count=0 n=1 many id name broken line frames=$RUN/answer/frames
  CALL_IDS=() CALL_NAMES=() CALL_BROKEN=() BLOCKS=''
  run_awk calls.awk -v dir="$RUN_V/answer" "$RUN/answer/calls" >"$frames"
  while IFS= read -r line; do log_line "$line"; done <"$RUN/answer/tool_calls"
  show_frames <"$frames"
  while IFS=$'\t' read -r id name broken; do
    ((++count))
    unescape_line name "$name"
    CALL_IDS[count]=$id CALL_NAMES[count]=$name CALL_BROKEN[count]=$broken
  done <"$RUN/answer/calls"
  while ((n <= count)); do
    many=0
    while ((n + many <= count && many < MAX_BESIDE)) && runs_beside_others "${CALL_NAMES[n + many]}"; do ((++many)); done
    if ((many > 1)); then
      run_beside "$n" "$many"
    else
      many=1
      run_tool "$n"
    fi
    n=$((n + many))
  done
  append_line "{\"role\":\"user\",\"content\":[$BLOCKS]}"
}

# Whether calls of this tool change nothing.
runs_beside_others() { # <name>
  case $1 in
  Read | Glob | Grep | Skill | TodoWrite) return 0 ;;
  *) return 1 ;;
  esac
}

run_tool() { # <number>
  call_tool "$1"
  ((ASK)) && [[ -n $R_REFUSED ]] && run_if_approved "$1"
  make_result "$1"
  show_result
}

call_tool() { # <number>
  local name=${CALL_NAMES[$1]}
  reset_result
  if ((INTERRUPTED || ENDING)); then
    fail interrupted
  elif [[ ${CALL_BROKEN[$1]} == 1 ]]; then
    fail_broken "$name" "$RUN/answer/broken.$1"
  else
    read_arguments "$1"
    case $name in
    Read | Write | Edit | Bash | Glob | Grep | TodoWrite | Skill | PlanConfirm | PlanClear | SubAgent) "tool_$name" "$1" ;;
    *) fail "unknown tool: $name" ;;
    esac
  fi
}

# Runs a refused call when somebody says that it may; fails when nobody does.
run_if_approved() { # <number>
  local given=$MODE_DIGITS wider
  wider_mode wider "$R_REFUSED"
  APPROVED=session
  # The answer to a call before this one may have been for it too.
  mode_allows "$R_REFUSED" || ask_approval "$1" "${CALL_IDS[$1]}" "${CALL_NAMES[$1]}" "$R_REFUSED"
  if ((INTERRUPTED || ENDING)); then
    fail interrupted
    return 0
  fi
  [[ $APPROVED == false ]] && return 1
  MODE_DIGITS=$wider
  reset_result
  "tool_${CALL_NAMES[$1]}" "$1"
  [[ $APPROVED == session ]] || MODE_DIGITS=$given
}

# Each call in a process and a directory of its own; what is asked, stored and shown comes in their order when all are done.
run_beside() { # <number of the first> <how many>
  local n last=$(($1 + $2 - 1)) pids=() dirs=()
  for ((n = $1; n <= last; n++)); do dirs[n]=$RUN/beside.$n; done
  rm -rf -- "${dirs[@]}"
  mkdir -- "${dirs[@]}"
  for ((n = $1; n <= last; n++)); do
    ((INTERRUPTED || ENDING)) && break
    start_group beside_call "$n"
    pids[n]=$GROUP_PID
  done
  for ((n = $1; n <= last; n++)); do
    [[ -z ${pids[n]:-} ]] || wait_for "${pids[n]}" || break
  done
  if ((n <= last)); then
    for ((n = $1; n <= last; n++)); do end_group "${pids[n]:-}"; done
  fi
  for ((n = $1; n <= last; n++)); do stop_group "${pids[n]:-}"; done
  for ((n = $1; n <= last; n++)); do
    use_work "beside.$n"
    if [[ ! -e $WORK/done ]]; then
      fail interrupted
      make_result "$n"
    elif ((ASK)) && [[ -s $WORK/refused ]]; then
      read_arguments "$n"
      reset_result
      IFS= read -r R_REFUSED <"$WORK/refused"
      run_if_approved "$n" && make_result "$n"
    fi
  done
  for ((n = $1; n <= last; n++)); do
    use_work "beside.$n"
    show_result
  done
  use_work work
}

beside_call() { # <number>
  own_pid TASK_PID "beside.$1"
  BASHPID_NOW=$TASK_PID ENDING=0
  # bash's own words about what an interrupt ends are for nobody.
  exec 2>/dev/null
  trap '((++TRAPS)); ENDING=143' TERM INT HUP
  trap '((++TRAPS)); TIMER_FIRED=1' USR2
  trap '((++TRAPS))' CONT
  use_work "beside.$1"
  call_tool "$1"
  ((ENDING)) && return 0
  [[ -z $R_REFUSED ]] || printf '%s\n' "$R_REFUSED" >"$WORK/refused"
  make_result "$1"
  ((ENDING)) || : >"$WORK/done"
}

use_work() { # <directory in the private files>
  WORK=$RUN/$1 WORK_V=$RUN_V/$1
}

# What was found as the event, the block of the conversation, and what a person sees, in $WORK.
make_result() { # <number>
  {
    print_secrets
    [[ -z $R_FILE ]] || tr '\000' '\377' <"$R_FILE"
    printf '.\n'
  } | R_ID=${CALL_IDS[$1]} R_NAME=${CALL_NAMES[$1]} R_HEAD=$R_HEAD R_NOTES=$R_NOTES R_SUMMARY=$R_SUMMARY R_TODO=$R_TODO \
    run_awk result.awk -v dir="$WORK_V" -v max="$MAX_RESULT" -v error="$R_ERROR" -v shapes="$MASK" \
    "${R_OPTIONS[@]+"${R_OPTIONS[@]}"}" >"$WORK/frame"
}

show_result() {
  local line
  IFS= read -r line <"$WORK/event"
  event "$line"
  show_frames <"$WORK/frame"
  IFS= read -r line <"$WORK/block"
  BLOCKS=$BLOCKS${BLOCKS:+,}$line
}

# What is to be masked, for awk/result.awk: how many lines, then a secret each. In no environment and no file.
print_secrets() {
  printf '%d\n' "${#SECRETS[@]}"
  ((${#SECRETS[@]} == 0)) || printf '%s\n' "${SECRETS[@]+"${SECRETS[@]}"}"
}

# Tells the model what was wrong with the call it made, and what is right.
fail_broken() { # <name> <file with what it wrote>
  local raw schema
  schema=$(run_awk schema.awk -v name="$1" "$TOOLS_FILE")
  read_file raw "$2"
  fail "the input of $1 was not a valid JSON object, so nothing ran.${schema:+ It must match: $schema}"$'\n'"What was received: ${raw:0:20000}"
}

# ---- Arguments

read_arguments() { # <number>
  local key kind value
  ARG_path='' ARG_offset='' ARG_limit='' ARG_content='' ARG_old_string='' ARG_new_string='' ARG_command='' ARG_timeout=''
  ARG_background='' ARG_pattern='' ARG_glob='' ARG_context='' ARG_name='' ARG_prompt='' ARG_description='' ARG_fork=''
  KINDS=' '
  while IFS=$'\t' read -r key kind value; do
    case $key in
    path | offset | limit | content | old_string | new_string | command | timeout | background | pattern | glob | context | \
      name | prompt | description | fork)
      unescape_line "ARG_$key" "$value"
      KINDS="$KINDS$key:$kind "
      ;;
    esac
  done <"$RUN/answer/args.$1"
}

has_text() { # <key>   fails, with a result, when it is there and no string
  [[ $KINDS == *" $1:"[no]" "* ]] || return 0
  fail "$1 must be a string"
  return 1
}

need_text() { # <key>   fails, with a result, when it is missing or empty
  local value=ARG_$1
  has_text "$1" || return 1
  [[ -n ${!value} ]] && return 0
  fail "no $1 provided"
  return 1
}

whole_number() { # <key>   ARG_<key> as digits, or ""; fails, with a result, when it is something else
  local value=ARG_$1
  value=${!value}
  value=${value#"${value%%[! ]*}"}
  value=${value%"${value##*[! ]}"}
  [[ $value =~ ^([0-9]{1,18})(\.0*)?$ ]] && printf -v "ARG_$1" '%d' $((10#${BASH_REMATCH[1]})) && return 0
  [[ -z $value ]] && printf -v "ARG_$1" '' && return 0
  if [[ $value =~ ^[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$ ]]; then
    value=$(LC_ALL=C awk -v n="$value" 'BEGIN { if (n == int(n) && n < 1e18) printf "%.0f", n }')
    [[ -n $value ]] && printf -v "ARG_$1" '%s' "$value" && return 0
    fail "$1 must be a whole number"
  else
    fail "$1 must be a number that is not negative"
  fi
  return 1
}

# ---- Files

# Fails, with a result, unless REAL is a regular file.
need_regular() { # <path as given>
  local dir kind=
  if [[ ! -e $REAL && ! -L $REAL ]]; then
    dir=${REAL%/*}
    while [[ -n $dir && ! -e $dir ]]; do dir=${dir%/*}; done
    if [[ -n $dir && ! -d $dir ]]; then
      fail "$1: a part of the path is not a directory"
    elif [[ -n $dir && ! -x $dir ]]; then
      fail "permission denied: $1"
    else
      fail "file not found: $1"
    fi
    return 1
  fi
  if [[ -d $REAL ]]; then
    kind="a directory; use Glob to list it"
  elif [[ -p $REAL ]]; then
    kind="a FIFO"
  elif [[ -S $REAL ]]; then
    kind="a socket"
  elif [[ -b $REAL || -c $REAL ]]; then
    kind="a device"
  elif [[ ! -f $REAL ]]; then
    kind="no regular file"
  fi
  [[ -z $kind ]] && return 0
  fail "$1 is $kind"
  return 1
}

# ---- Read, Write, Edit

tool_Read() {
  local size counts lines first last piece=$WORK/read stopped=0
  need_text path && whole_number offset && whole_number limit || return 0
  if [[ $ARG_limit == 0 ]]; then
    fail "limit must be at least 1"
    return 0
  fi
  judge_path "$ARG_path" 4 && need_regular "$ARG_path" || return 0
  if [[ ! -r $REAL ]]; then
    fail "permission denied: $ARG_path"
    return 0
  fi
  size=$(($(wc -c <"$REAL")))
  if (($(head -c 8192 <"$REAL" | tr -d '\000' | wc -c) != (size < 8192 ? size : 8192))); then
    fail "$ARG_path is a binary file of $size bytes; look at it with a command (file, xxd, strings)"
    return 0
  fi
  if ((size > 67108864)) && [[ -z $ARG_limit ]]; then
    fail "$ARG_path is too large to read whole ($size bytes); use offset and limit, or Grep"
    return 0
  fi
  first=${ARG_offset:-1}
  ((first > 0)) || first=1
  if ((size > 67108864)); then stopped=1; fi
  if [[ -z $ARG_limit ]]; then
    if ((first == 1)); then cat <"$REAL" >"$piece"; else tail -n "+$first" <"$REAL" >"$piece"; fi
  else
    last=$((first + ARG_limit - 1))
    LC_ALL=C sed -n -e "${first},${last}p" -e "${last}q" <"$REAL" >"$piece"
  fi
  if ((stopped)); then
    lines='?'
  else
    counts=$(wc -l <"$REAL")
    lines=$((counts))
    # A last line without its line feed is a line too.
    ((size)) && [[ $(tail -c 1 <"$REAL" | od -An -tx1) != *0a* ]] && ((++lines))
  fi
  if ((size == 0)); then
    R_SUMMARY="Read($ARG_path) [0 lines, 0 bytes"
    printf '[%s is empty]' "$ARG_path" >"$piece"
  elif [[ ! -s $piece ]]; then
    fail "offset $first is past the end of $ARG_path ($lines lines)"
    return 0
  else
    R_SUMMARY="Read($ARG_path) [$lines lines, $size bytes"
    # sed ends the last line even when the file does not; one LF at the end is not shown.
  fi
  [[ -n $ARG_offset ]] && R_SUMMARY="$R_SUMMARY, offset=$ARG_offset"
  [[ -n $ARG_limit ]] && R_SUMMARY="$R_SUMMARY, limit=$ARG_limit"
  R_SUMMARY="$R_SUMMARY]"
  R_OPTIONS=(-v one_lf=1 -v utf8_note=1)
  R_FILE=$piece
}

# Puts a file's new content in its place: same mode, owner and link; the old content stays until the new one is whole.
replace_file() { # <path as given> <file with the content>   REAL is where it goes
  local temporary reason
  temporary=${REAL%/*}/.agent-$$-$RANDOM.tmp
  if [[ -e $REAL ]]; then
    if [[ ! -w $REAL ]]; then
      fail "permission denied: $1"
      return 1
    fi
    # A copy with its mode and owner first, then the content over it.
    reason=$(cp -p -- "$REAL" "$temporary" 2>&1 && cat -- "$2" 2>&1 >"$temporary") && cmp -s -- "$2" "$temporary" &&
      reason=$(mv -f -- "$temporary" "$REAL" 2>&1) && return 0
  else
    reason=$( (umask "$ORIG_UMASK" && cat -- "$2" >"$temporary") 2>&1) && cmp -s -- "$2" "$temporary" &&
      reason=$(mv -f -- "$temporary" "$REAL" 2>&1) && return 0
  fi
  rm -f -- "$temporary"
  reason=${reason##*: }
  fail "could not write $1: ${reason:-it failed}; the file is unchanged"
  return 1
}

tool_Write() {
  local dir bytes lines content=$RUN/answer/text.$1 reason
  need_text path || return 0
  if [[ $KINDS != *' content:'* ]]; then
    fail "no content provided"
    return 0
  fi
  has_text content || return 0
  if [[ $ARG_path == */ ]]; then
    fail "$ARG_path is a directory"
    return 0
  fi
  judge_path "$ARG_path" 2 || return 0
  if [[ -e $REAL ]]; then
    need_regular "$ARG_path" || return 0
  else
    dir=${REAL%/*}
    if ! reason=$( (umask "$ORIG_UMASK" && mkdir -p -- "${dir:-/}") 2>&1); then
      case $reason in
      *'Not a directory' | *'File exists') fail "$ARG_path: a part of the path is not a directory" ;;
      *'Permission denied') fail "permission denied: $ARG_path" ;;
      *) fail "$ARG_path: ${reason##*: }" ;;
      esac
      return 0
    fi
  fi
  replace_file "$ARG_path" "$content" || return 0
  bytes=$(($(wc -c <"$content")))
  lines=$(($(wc -l <"$content")))
  ((bytes)) && [[ $(tail -c 1 <"$content" | od -An -tx1) != *0a* ]] && ((++lines))
  R_SUMMARY="Write($ARG_path) [$lines lines, $bytes bytes]"
  R_HEAD="OK: wrote $bytes bytes to $ARG_path"
}

# REAL with old and new exchanged, into $RUN/edited; what is to be said of it into $RUN/reply.
edit_text() { # <file with the frame of old and new>
  local path real code
  if has_core; then
    run_core edit --name="$ARG_path" --reply "$RUN/reply" -- "$REAL" <"$1" >"$RUN/edited"
    code=$?
    # 1 is a refusal, with its reason.
    ((code == 1)) && [[ -s $RUN/reply ]] && return 1
    core_did "$code" edit && return 0
  fi
  awk_value path "$ARG_path"
  awk_value real "$REAL"
  run_awk edit_file.awk -v path="$path" -v file="$real" -v reply="$RUN_V/reply" <"$1" >"$RUN/edited"
}

tool_Edit() {
  local path
  need_text path && has_text old_string && has_text new_string || return 0
  if [[ $KINDS != *' new_string:'* ]]; then
    fail "no new_string provided"
    return 0
  fi
  judge_path "$ARG_path" 4 && judge_path "$ARG_path" 2 || return 0
  if [[ -z $ARG_old_string ]]; then
    fail "old_string is empty; to create or replace a whole file use Write"
    return 0
  fi
  need_regular "$ARG_path" || return 0
  if edit_text "$RUN/answer/edit.$1"; then
    replace_file "$ARG_path" "$RUN/edited" || return 0
    R_OPTIONS=(-v first_line=1)
    R_FILE=$RUN/reply
  else
    read_file path "$RUN/reply"
    fail "${path%$'\n'}"
  fi
}

# ---- TodoWrite, Skill, the plan

tool_TodoWrite() {
  local word rest
  IFS=' ' read -r word rest <"$RUN/answer/todo.$1"
  if [[ $word == error ]]; then
    fail "$rest"
    return 0
  fi
  R_TODO=$rest
  tail -n +2 "$RUN/answer/todo.$1" >"$WORK/todo"
  R_FILE=$WORK/todo
}

tool_Skill() {
  need_text name || return 0
  local file
  if ! skill_file file "$ARG_name"; then
    fail "skill not found: $ARG_name"
  elif load_skill "$ARG_name" >"$WORK/skill.text"; then
    R_FILE=$WORK/skill.text
  else
    fail "skill $ARG_name: Permission denied"
  fi
}

# Compacts first, with the prompt as it is: so the summary's request has the prefix of the calls before it.
compact_for_plan() { # <trigger>   fails, with a result, when the turn was interrupted meanwhile
  compact "$1" </dev/null
  [[ $COMPACTED == interrupted ]] || return 0
  fail interrupted
  return 1
}

tool_PlanConfirm() {
  if ! grep -q '[^[:space:]]' "$S/plan.draft" 2>/dev/null; then
    fail "no plan draft found to confirm."
    return 0
  fi
  compact_for_plan plan_confirm || return 0
  {
    cp -- "$S/plan.draft" "$S/plan.md.new" && mv -f -- "$S/plan.md.new" "$S/plan.md" && : >"$S/plan.draft"
  } || storage_error write "$S/plan.md" ''
  R_HEAD="Plan confirmed and locked in."
}

tool_PlanClear() {
  compact_for_plan plan_clear || return 0
  : >"$S/plan.md" || storage_error write "$S/plan.md" ''
  R_HEAD="Plan cleared."
}
