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
  local prefix
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
  start_search list_files "$SEARCH_PATTERN" "$RUN/files" || return 0
  prefix_paths "$prefix" <"$RUN/files" | tr '\000' '\n' >"$RUN/found"
  R_FILE=$RUN/found
}

# Runs a search so that an interrupt ends it. Its errors are in $RUN/search.err.
start_search() { # <function> <argument>…
  local status=1
  rm -f -- "$RUN/search.code"
  start_group run_search "$@"
  TOOL_PID=$GROUP_PID
  wait_for "$TOOL_PID"
  if ((INTERRUPTED || ENDING)); then
    stop_group "$TOOL_PID"
    TOOL_PID=
    fail interrupted
    return 1
  fi
  reap_group "$TOOL_PID"
  TOOL_PID=
  IFS= read -r status 2>/dev/null <"$RUN/search.code"
  ((status == 2)) || return 0
  search_failed
  return 1
}

run_search() { # <function> <argument>…
  # In a subshell: a search gives its stderr away.
  ("$@")
  printf '%s\n' "$?" >"$RUN/search.code"
}

search_failed() {
  local words
  words=$(cat "$RUN/search.err")
  words=${words#rg: }
  fail "${words:-the search failed}"
}

# Paths below REAL that fit the pattern ("" = all), each ended by NUL, sorted by their bytes.
list_files() { # <pattern> <output file>
  local flags=() hidden=0 git=0 part rest=$1
  exec 2>"$RUN/search.err"
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
    rg --no-config --files --null "${flags[@]+"${flags[@]}"}" 2>"$RUN/search.err" >"$2.all"
    if (($? == 2)) && grep -q 'glob' "$RUN/search.err"; then
      printf 'invalid glob: %s' "$(sed 's/^rg: //' "$RUN/search.err")" >"$RUN/search.err.new"
      mv -f "$RUN/search.err.new" "$RUN/search.err"
      return 2
    fi
  else
    list_without_rg "$1" "$hidden" "$git" >"$2.all" || return 2
  fi
  tr '\n\000' '\000\n' <"$2.all" | drop_closed | LC_ALL=C sort | tr '\n\000' '\000\n' >"$2"
  return 0
}

# What the mode closes is not listed: keys, and the agent's own files. LF and NUL have changed places here.
drop_closed() {
  if ((${MODE_DIGITS:0:1} & 4)); then
    cat
  else
    # shellcheck disable=SC2016 # awk's own fields
    LC_ALL=C "${AWK[@]}" -v root="${REAL//\\/\\\\}" -v base="${REAL_BASE//\\/\\\\}" '{
      name = $0
      sub(/.*\//, "", name)
      name = tolower(name)
      if (name ~ /\.(pem|key)$/ || name == ".env" || name ~ /^id_(rsa|dsa|ecdsa|ed25519|ecdsa_sk|ed25519_sk)$/) next
      if (name ~ /^\.(netrc|git-credentials|pgpass)$/) next
      if (name ~ /^\.env\./ && name !~ /^\.env\.(example|sample|template|dist)$/) next
      if (index(root "/" $0, base "/") == 1) next
      print
    }'
  fi
}

# What git knows in a work tree, else what find finds; hidden files and what .gitignore names stay out.
list_without_rg() { # <pattern> <hidden> <git>
  if ((!$3)) && git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    # The work tree's own settings must not run a program here, outside the sandbox.
    git -c core.fsmonitor=false ls-files -z -co --exclude-standard | tr '\n\000' '\000\n'
  else
    find . -type f -print0 | tr '\n\000' '\000\n' | LC_ALL=C sed 's/^\.\///'
  fi | LC_ALL=C "${AWK[@]}" -v glob="${1//\\/\\\\}" -v hidden="$2" -f "$LIB_DIR/glob.awk" | tr '\n\000' '\000\n'
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
  if [[ ! -d $REAL ]]; then
    need_regular "$path" || return 0
    start_search grep_file "$context" || return 0
  else
    glob=$ARG_glob
    [[ -z $glob ]] || relative_pattern glob "$glob" "$path"
    start_search grep_tree "$context" "$glob" "$path" || return 0
  fi
  R_FILE=$RUN/found
}

# The pattern that greps understand; one that is no POSIX ERE is an error that names rg.
check_ere() {
  if [[ $ARG_pattern == *\\[dDpPAzhHvVKRQEux]* || $ARG_pattern == *'(?'* || $ARG_pattern == *[*+?\}]'?'* ]] ||
    ! printf '' | grep -E -e "$ARG_pattern" >/dev/null 2>"$RUN/search.err" && [[ -s $RUN/search.err ]]; then
    printf 'invalid pattern: this is no POSIX extended regular expression; install ripgrep (rg) for others' >"$RUN/search.err"
    return 1
  fi
  return 0
}

grep_file() { # <context>
  exec 2>"$RUN/search.err"
  if ((HAS_RG)); then
    rg --no-config -n --no-heading --no-filename --color never -C "$1" -e "$ARG_pattern" -- "$REAL" >"$RUN/found"
    grep_status $?
  else
    check_ere || return 2
    LC_ALL=C grep -n -h -E -C "$1" -e "$ARG_pattern" -- "$REAL" >"$RUN/found"
    return 0
  fi
}

grep_status() { # <rg's exit code>
  (($1 == 2)) || return 0
  grep -q 'regex\|pattern\|error parsing' "$RUN/search.err" || return 0
  printf 'invalid pattern: %s' "$(sed -e 's/^rg: //' -e 's/^regex parse error:/regex parse error:/' "$RUN/search.err")" >"$RUN/search.err.new"
  mv -f "$RUN/search.err.new" "$RUN/search.err"
  return 2
}

grep_tree() { # <context> <glob> <path as given>
  local prefix=${3%/}
  : >"$RUN/found"
  if ((HAS_RG)); then
    # The pattern first: a bad one must not look like no match.
    printf '' | rg --no-config -e "$ARG_pattern" >/dev/null 2>"$RUN/search.err"
    grep_status $? || return 2
  else
    check_ere || return 2
  fi
  list_files "$2" "$RUN/files" || return 2
  exec 2>"$RUN/search.err"
  if ((HAS_RG)); then
    [[ -s $RUN/files ]] || return 0
    # Files without a match or with NUL bytes drop out here, then the rest is searched in order.
    cd "$REAL" && xargs -0 rg --no-config -l --null --no-messages -e "$ARG_pattern" -- <"$RUN/files" >"$RUN/hits"
    [[ -s $RUN/hits ]] || return 0
    xargs -0 rg --no-config -j 1 -n --heading --with-filename --color never --no-messages -C "$1" -e "$ARG_pattern" -- \
      < <(tr '\n\000' '\000\n' <"$RUN/hits" | LC_ALL=C sort | tr '\n\000' '\000\n') >"$RUN/found.raw"
    head_paths "$prefix" <"$RUN/found.raw" >"$RUN/found"
  else
    cd "$REAL" || return 2
    xargs -0 grep -n -H -E -I --null -C "$1" -e "$ARG_pattern" -- <"$RUN/files" >"$RUN/found.raw" 2>/dev/null
    tr '\000' '\001' <"$RUN/found.raw" | LC_ALL=C "${AWK[@]}" -v p="${prefix//\\/\\\\}" -f "$LIB_DIR/headings.awk" >"$RUN/found"
  fi
  return 0
}

# A heading follows an empty line or stands first; it gets the path that was asked for in front.
head_paths() { # <prefix>
  # shellcheck disable=SC2016 # awk's own fields
  LC_ALL=C "${AWK[@]}" -v p="${1//\\/\\\\}" 'NR == 1 || (blank && $0 !~ /^[0-9]+[-:]/) { print p "/" $0; blank = 0; next } { blank = $0 == ""; print }'
}
