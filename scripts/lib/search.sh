# search.sh - Glob and Grep: rg where it is, else git or find with grep; the same forms, sorted by the bytes of the path.

setup_search() {
  HAS_RG=0
  [[ -z ${BASH_AGENT_NO_RG:-} ]] && command -v rg >/dev/null 2>&1 && HAS_RG=1
  return 0
}

# A pattern relative to the directory that is searched.
relative_pattern() { # <result-var> <pattern> <path>
  local re_pattern=${2#./} re_root
  resolve_from_cwd re_root "$3"
  if [[ $re_pattern == "$re_root"/* ]]; then
    re_pattern=${re_pattern#"$re_root"/}
  elif [[ $re_pattern == "$CWD"/* ]]; then
    re_pattern=${re_pattern#"$CWD"/}
  fi
  printf -v "$1" '%s' "$re_pattern"
}

resolve_from_cwd() { # <result-var> <path>
  case $2 in
  /*) printf -v "$1" '%s' "$2" ;;
  . | ./) printf -v "$1" '%s' "$CWD" ;;
  *) printf -v "$1" '%s' "$CWD/${2#./}" ;;
  esac
}

# `/src/*.rs`, `../x/*` and `~/x/*` name their own directory: SEARCH_PATH, SEARCH_PATTERN.
split_pattern() { # <pattern>
  local pattern magic dir
  relative_pattern pattern "$1" .
  SEARCH_PATH=. SEARCH_PATTERN=$pattern
  case $pattern in
  /* | ../* | \~/*) ;;
  *) return 0 ;;
  esac
  magic=${pattern%%[*?[\{]*}
  [[ $magic == */* ]] || return 0
  dir=${magic%/*}
  [[ -z $dir ]] && return 0
  [[ $dir == /* && ! -d $dir ]] && return 0
  SEARCH_PATH=$dir
  SEARCH_PATTERN=${pattern#"$dir"/}
}

# Fails, with a result, when there is nothing to search at REAL.
need_place() { # <path as given>
  [[ -e $REAL ]] && return 0
  need_regular "$1"
}

tool_Glob() {
  local prefix late
  need_text pattern && has_text path || return 0
  if [[ -n $ARG_path ]]; then
    SEARCH_PATH=$ARG_path
    relative_pattern SEARCH_PATTERN "$ARG_pattern" "$ARG_path"
  else
    split_pattern "$ARG_pattern"
  fi
  judge_path "$SEARCH_PATH" 4 && need_place "$SEARCH_PATH" || return 0
  if [[ ! -d $REAL ]]; then
    fail "$SEARCH_PATH is not a directory"
    return 0
  fi
  prefix=${SEARCH_PATH%/}
  start_search list_files "$SEARCH_PATTERN" || return 0
  late=$LATE
  if ((late)); then start_search sort_files || return 0; fi
  prefix_paths "$prefix" <"$WORK/files" | tr '\000' '\n' >"$WORK/found"
  frame_search Glob "$late"
}

# What was found as the result, with what is to be said about it.
frame_search() { # <tool> <1 when its time was up>
  reset_result
  R_FILE=$WORK/found
  if [[ $1 == Grep && -s $WORK/not_searched ]]; then
    IFS= read -r R_NOTES <"$WORK/not_searched"
    R_NOTES="[... $R_NOTES closed by the safety policy, not searched ...]"
  fi
  if (($2)); then
    R_HEAD='Error: ' R_ERROR=1
    R_NOTES=$R_NOTES${R_NOTES:+$'\n'}"[... $1 timed out after $TOOL_TIMEOUT seconds ...]"
    [[ -s $R_FILE ]] || R_HEAD=$R_HEAD$R_NOTES R_NOTES=''
  fi
  R_OPTIONS=(-v joint=1 -v room=$((MAX_RESULT - ${#R_NOTES} - ${#R_HEAD} - 1)))
  gather_output "$R_FILE"
}

# Runs a search so that an interrupt and the time limit end it. Fails, with a result, when it was interrupted or could not
# be made. LATE=1: its time was up, and what it found until then is there.
start_search() { # <function> <argument>…
  local status=1 timer
  LATE=0 TIMER_FIRED=0
  rm -f -- "$WORK/search.code"
  start_group run_search "$@"
  TOOL_PID=$GROUP_PID
  start_group watch_command "$TOOL_TIMEOUT" "${TASK_PID:-$$}"
  timer=$GROUP_PID
  wait_limited "$TOOL_PID"
  case $? in
  0) reap_group "$TOOL_PID" ;;
  1)
    fail interrupted
    end_search "$TOOL_PID"
    ;;
  2)
    LATE=1
    end_search "$TOOL_PID"
    ;;
  esac
  stop_group "$timer"
  TOOL_PID=
  ((R_ERROR)) && return 1
  ((LATE)) && return 0
  IFS= read -r status 2>/dev/null <"$WORK/search.code"
  ((status == 2)) || return 0
  search_failed
  return 1
}

# Its last filters are deaf to TERM: they pass on what they hold, and end with what they read from.
end_search() { # <pid of its leader>
  local tries=0
  stop_group "$1"
  while kill -0 -- "-$1" 2>/dev/null && ((++tries < 100)); do
    sleep 0.01 2>/dev/null || sleep 1
  done
}

run_search() { # <function> <argument>…
  # In a subshell: a search gives its stderr away.
  (
    exec 2>"$WORK/search.err"
    "$@"
  )
  printf '%s\n' "$?" >"$WORK/search.code"
}

search_failed() {
  local words
  words=$(cat "$WORK/search.err")
  words=${words#rg: }
  fail "${words:-the search failed}"
}

# Paths below REAL that fit the pattern ("" = all), each ended by NUL, sorted by their bytes, into $WORK/files.
list_files() { # <pattern>
  local flags=() hidden=0 git=0 part rest=$1
  : >"$WORK/all"
  cd "$REAL" || return 2
  # A pattern that names something hidden wants it; .git only when it says so itself.
  while [[ -n $rest ]]; do
    part=${rest%%/*}
    [[ $part == .* || $part == '{.'* ]] && hidden=1
    [[ $part == .git* && $part != *ignore* ]] && git=1
    [[ $rest == */* ]] || break
    rest=${rest#*/}
  done
  if ((HAS_RG)); then
    [[ -n $1 ]] && flags=(--glob "$1")
    ((hidden)) && flags=("${flags[@]+"${flags[@]}"}" --hidden)
    ((hidden && !git)) && flags=("${flags[@]+"${flags[@]}"}" --glob '!.git')
    rg --no-config --files --null "${flags[@]+"${flags[@]}"}" >"$WORK/all"
    if (($? == 2)) && grep -q 'glob' "$WORK/search.err"; then
      say_why "invalid glob: $(sed 's/^rg: //' "$WORK/search.err")"
      return 2
    fi
  else
    list_without_rg "$1" "$hidden" "$git" >"$WORK/all" || return 2
  fi
  sort_files
}

# (LF and NUL change places for awk and sort.)
sort_files() {
  local last=p
  # The name that a search was ended in has no end.
  [[ $(tail -c 1 <"$WORK/all" | od -An -tx1) == *[1-9a-f]* ]] && last=d
  tr '\n\000' '\000\n' <"$WORK/all" | LC_ALL=C sed -n -e "\$$last" -e '$!p' | drop_closed "$WORK/not_searched" |
    LC_ALL=C sort | tr '\n\000' '\000\n' >"$WORK/files"
  ((PIPESTATUS[2] == 0)) || return 2
}

# The one word of why a search could not be made.
say_why() { # <text>
  printf '%s' "$1" >"$WORK/search.err"
}

# What the mode closes is not listed: keys, and the agent's own files; how much that was is counted.
drop_closed() { # <file for the count>
  rm -f -- "$1"
  if ((${MODE_DIGITS:0:1} & 4)); then
    cat
  else
    # shellcheck disable=SC2016 # awk's own fields
    LC_ALL=C "${AWK[@]}" -v root="${REAL//\\/\\\\}" -v base="${REAL_BASE//\\/\\\\}" -v count="${1//\\/\\\\}" '{
      name = $0
      sub(/.*\//, "", name)
      name = tolower(name)
      if (index(root "/" $0, base "/") == 1) { own = 1; next }
      if (name ~ /\.(pem|key)$/ || name == ".env" || name ~ /^id_(rsa|dsa|ecdsa|ed25519|ecdsa_sk|ed25519_sk)$/) { closed++; next }
      if (name ~ /^\.(netrc|git-credentials|pgpass)$/) { closed++; next }
      if (name ~ /^\.env\./ && name !~ /^\.env\.(example|sample|template|dist)$/) { closed++; next }
      print
    }
    END { if (closed + own) print closed + own > count }'
  fi
}

# What git knows in a work tree, else what find finds; hidden files and what .gitignore names stay out.
list_without_rg() { # <pattern> <hidden> <git>
  if ((!$3)) && git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    # The work tree's own settings must not run a program here, outside the sandbox.
    git -c core.fsmonitor=false ls-files -z -co --exclude-standard | tr '\n\000' '\000\n'
  else
    find . -type f -print0 2>/dev/null | tr '\n\000' '\000\n' | LC_ALL=C sed 's/^\.\///'
  fi | LC_ALL=C "${AWK[@]}" -v glob="${1//\\/\\\\}" -v hidden="$2" -f "$LIB_DIR/glob.awk" | tr '\n\000' '\000\n'
  ((PIPESTATUS[1] == 0))
}

prefix_paths() { # <prefix>   NUL-ended paths on stdin
  # shellcheck disable=SC2016 # awk's own fields
  tr '\n\000' '\000\n' | LC_ALL=C "${AWK[@]}" -v p="${1//\\/\\\\}" '{ print p "/" $0 }' | tr '\n\000' '\000\n'
}

tool_Grep() {
  local context path glob
  need_text pattern && has_text path && has_text glob && whole_number context || return 0
  context=${ARG_context:-0}
  ((context > 1000)) && context=1000
  path=${ARG_path:-.}
  judge_path "$path" 4 && need_place "$path" || return 0
  rm -f -- "$WORK/not_searched"
  : >"$WORK/found"
  if [[ ! -d $REAL ]]; then
    need_regular "$path" || return 0
    start_search grep_file "$context" || return 0
  else
    glob=$ARG_glob
    [[ -z $glob ]] || relative_pattern glob "$glob" "$path"
    start_search grep_tree "$context" "$glob" "$path" || return 0
  fi
  frame_search Grep "$LATE"
}

# The pattern first: a bad one must not look like no match. Without rg one that is no POSIX ERE is an error that names it.
check_pattern() {
  if ((HAS_RG)); then
    printf '' | rg --no-config -e "$ARG_pattern" >/dev/null
    (($? != 2)) && return 0
    say_why "invalid pattern: $(sed -e 's/^rg: //' "$WORK/search.err")"
    return 2
  fi
  if [[ $ARG_pattern == *\\[dDpPAzhHvVKRQEux]* || $ARG_pattern == *'(?'* || $ARG_pattern == *[*+?\}]'?'* ]] ||
    ! printf '' | grep -E -e "$ARG_pattern" >/dev/null && [[ -s $WORK/search.err ]]; then
    say_why 'invalid pattern: this is no POSIX extended regular expression; install ripgrep (rg) for others'
    return 2
  fi
  # What it finds is wanted when it is ended in the midst of it, too.
  GREP_FLAGS=(--line-buffered)
  printf '' | grep --line-buffered x >/dev/null 2>&1
  (($? == 1)) || GREP_FLAGS=()
  return 0
}

# The lines that match, of the files whose names, each ended by NUL, are on stdin.
match_lines() { # <context> <flag for headings.awk>…
  local words=(grep "${GREP_FLAGS[@]+"${GREP_FLAGS[@]}"}" -n -H -E -I --null)
  ((HAS_RG)) && words=(rg --no-config --no-mmap --line-buffered -j 1 -n -H --no-heading --null --color never --no-messages)
  # With a context of 0 GNU grep sets marks between the lines.
  (($1 == 0)) || words=("${words[@]}" -C "$1")
  LC_ALL=C xargs -0 "${words[@]}" -e "$ARG_pattern" -- 2>/dev/null |
    (
      trap '' TERM
      shift
      tr '\000' '\001' | LC_ALL=C "${AWK[@]}" -v max=$((2 * MAX_RESULT)) "$@" -f "$LIB_DIR/headings.awk" >"$WORK/found"
    )
  ((PIPESTATUS[1] == 0)) || return 2
}

grep_file() { # <context>
  check_pattern || return 2
  printf '%s\000' "$REAL" | match_lines "$1" -v bare=1
}

grep_tree() { # <context> <glob> <path as given>
  local prefix=${3%/}
  check_pattern && list_files "$2" || return 2
  [[ -s $WORK/files ]] || return 0
  match_lines "$1" -v p="${prefix//\\/\\\\}" <"$WORK/files"
}
