# config.sh - what flags, environment and config files mean together. After resolve_config nobody reads OPT_* or the environment.
#
# Sets BASE, CWD, PROVIDER (claude|openai|responses|script), MODEL, BASE_URL, API_KEY, AUTH_TOKEN, HEADERS, MAX_TOKENS,
# EFFORT_LEVEL, THINKING_KIND, STALL_TIMEOUT, RETRY_BASE_MS, EXTRA_BODY (JSON or ""), SCRIPT_FILE, RECORD_FILE, TOOL_TIMEOUT, MAX_TURNS, MAX_CONTEXT,
# MAX_SUB_AGENTS, MAX_RESULT, MAX_COST, MAX_TOTAL_TOKENS, MAX_TIME, MODE_DIGITS, ASK, ASK_TIMEOUT, SANDBOX_CHOICE, MASK, SKILLS, FORMAT, LANG_NAME, SHELL_NAME, HIDDEN_ENV, IS_CHILD, PROVIDER_ARG.

# Variables that carry keys: taken out of every tool's environment.
HIDDEN_ENV=(ANTHROPIC_API_KEY ANTHROPIC_AUTH_TOKEN OPENAI_API_KEY DEEPSEEK_API_KEY JINA_API_KEY)

find_base() {
  local home=${BASH_AGENT_HOME:-${HOME:-}}
  [[ -n $home ]] || die 11 "neither BASH_AGENT_HOME nor HOME is set: set one of them to a directory you can write to"
  BASE=${home%/}/.bash-agent
}

find_cwd() {
  if CWD=$(pwd -P 2>/dev/null) && [[ -d $CWD ]] && cd . 2>/dev/null; then return 0; fi
  die 1 "cannot use the working directory: No such file or directory; cd to one that exists"
}

# ---- The TOML that config files need: `key = value` and [table] lines; strings, numbers, true/false, arrays of strings.

config_error() { # <file> <text>
  say_error "$1: $2"
  finish 2
}

# Reads a file into the arrays <prefix>_KEYS and <prefix>_VALUES; the elements of an array are joined by LF.
# shellcheck disable=SC2094 # config_error only names the file
read_toml() { # <prefix> <file>
  local prefix=$1 file=$2 line key value table='' number=0 status
  printf -v "${prefix}_COUNT" '%d' 0
  [[ -e $file ]] || return 0
  [[ -f $file ]] || config_error "$file" "it is no regular file"
  [[ -r $file ]] || config_error "$file" "cannot read it: Permission denied"
  while IFS= read -r line || [[ -n $line ]]; do
    ((++number))
    toml_trim line "$line"
    [[ -z $line || $line == '#'* ]] && continue
    if [[ $line =~ ^\[([A-Za-z0-9_.\"-]+)\]([[:blank:]]*#.*)?$ ]]; then
      table=${BASH_REMATCH[1]//\"/}.
      continue
    fi
    [[ $line =~ ^(\"?)([A-Za-z0-9_-]+)\"?[[:blank:]]*=[[:blank:]]*(.*)$ ]] ||
      config_error "$file" "line $number: it is not KEY = VALUE"
    key=$table${BASH_REMATCH[2]}
    value=${BASH_REMATCH[3]}
    # An array goes on to its closing bracket.
    while [[ $value == '['* && $value != *']'* ]] && IFS= read -r line; do
      ((++number))
      toml_trim line "$line"
      [[ $line == '#'* ]] || value=$value$line
    done
    toml_member "$prefix" "$key" "$value"
    status=$?
    case $status in
    1) config_error "$file" "line $number: '$key' has a value that is not understood" ;;
    2) config_error "$file" "line $number: unknown field \`$TOML_UNKNOWN\`" ;;
    3) config_error "$file" "$TOML_UNKNOWN: $TOML_WHY" ;;
    esac
  done <"$file"
}

# Keeps one member. An inline table is its members; what goes into a request's body is kept as JSON.
toml_member() { # <prefix> <key> <raw value>   1: the value is none, 2: TOML_UNKNOWN is no key, 3: TOML_UNKNOWN's is of another kind
  local prefix=$1 key=$2 value=$3 count=${1}_COUNT
  if [[ $key == extra_body.* || $key == providers.*.extra_body.* ]]; then
    TJ_REST=$value TJ_OUT=''
    toml_json && toml_rest "$TJ_REST" || return 1
    value=$TJ_OUT
  elif [[ $value == '{'* ]]; then
    TJ_REST=$value TJ_OUT=''
    toml_table "$prefix" "$key" || return $?
    toml_rest "$TJ_REST"
    return $?
  else
    toml_value value "$value" || return 1
  fi
  count=${!count}
  # bash 3.2 has no printf -v for elements of arrays.
  case $prefix in
  USER_FILE) USER_FILE_KEYS[count]=$key USER_FILE_VALUES[count]=$value ;;
  PROJECT) PROJECT_KEYS[count]=$key PROJECT_VALUES[count]=$value ;;
  esac
  printf -v "${prefix}_COUNT" '%d' $((count + 1))
  TOML_UNKNOWN=$key TOML_WHY=
  toml_known "$key" || return 2
  toml_kind "$key" "$3" "$value" || return 3
}

# Whether a value is of the kind that its key takes; else TOML_WHY says why not (src/config/file.rs has the same).
toml_kind() { # <key> <raw value> <value>
  local raw=$2 value=$3 tk_number
  case $raw in
  '['*) value='a list' ;;
  '{'*) value='a table' ;;
  esac
  case $1 in
  max_tokens | max_context | tool_result_max_bytes)
    parse_size tk_number "$value" || TOML_WHY="'$value' is no size: $SIZE_HELP"
    ;;
  max_turns | max_sub_agents) is_count "$value" || TOML_WHY="'$value' is no count: $COUNT_HELP" ;;
  max_time | tool_timeout | stall_timeout | ask_timeout)
    is_count "$value" || TOML_WHY="'$value' is no number of seconds: $COUNT_HELP"
    ;;
  retry_base_ms) is_number "$value" || TOML_WHY="'$value' is no number of milliseconds: give a whole number" ;;
  max_cost) parse_dollars tk_number "$value" || TOML_WHY="'$value' is no amount: $DOLLARS_HELP" ;;
  mask | plain | markdown)
    [[ $raw == "$value"* && ($value == true || $value == false) ]] ||
      TOML_WHY="'$value' is no truth value: give true or false, without quotes"
    ;;
  output_format) toml_word "$raw" "$value" human stream-json text json ;;
  sandbox) toml_word "$raw" "$value" off auto required bubblewrap ;;
  bell) toml_word "$raw" "$value" bell osc9 osc777 off ;;
  skills | trusted | keep_env)
    [[ $raw == '['* ]] || TOML_WHY="'$value' is no list of texts: give one such as [\"a\", \"b\"]"
    ;;
  extra_body.* | providers.*.extra_body.*) ;;
  *)
    [[ $1 == api_key ]] && value='***'
    [[ $raw == [\"\']* ]] || TOML_WHY="'$value' is no text: put it in quotes"
    ;;
  esac
  [[ -z $TOML_WHY ]]
}

toml_word() { # <raw value> <value> <word>…
  local raw=$1 value=$2 word all=''
  shift 2
  for word; do
    [[ $raw == [\"\']* && $word == "$value" ]] && return 0
    all=$all${all:+, }$word
  done
  TOML_WHY="'$value' is not known: give one of $all, in quotes"
}

# Only a comment may follow a value.
toml_rest() { # <text>
  local text
  toml_trim text "$1"
  [[ -z $text || $text == '#'* ]]
}

# The members of an inline table, each kept under `<key>.<name>`; TJ_REST is what follows it.
toml_table() { # <prefix> <key>
  local tt_name tt_raw tt_rest tt_status
  TJ_REST=${TJ_REST#\{}
  while :; do
    toml_trim TJ_REST "$TJ_REST"
    [[ $TJ_REST == '}'* ]] && break
    toml_name tt_name || return 1
    tt_raw=$TJ_REST
    TJ_OUT=''
    toml_json || return 1
    tt_rest=$TJ_REST
    toml_member "$1" "$2.$tt_name" "${tt_raw:0:${#tt_raw}-${#tt_rest}}"
    tt_status=$?
    ((tt_status)) && return "$tt_status"
    toml_trim TJ_REST "$tt_rest"
    [[ $TJ_REST == ,* ]] && TJ_REST=${TJ_REST#,}
  done
  TJ_REST=${TJ_REST#\}}
}

# `name =` at the head of TJ_REST.
toml_name() { # <result-var>
  if [[ $TJ_REST =~ ^\"([^\"\\]*)\"[[:blank:]]*=(.*)$ || $TJ_REST =~ ^([A-Za-z0-9_-]+)[[:blank:]]*=(.*)$ ]]; then
    printf -v "$1" '%s' "${BASH_REMATCH[1]}"
    toml_trim TJ_REST "${BASH_REMATCH[2]}"
  else
    return 1
  fi
}

# The value at the head of TJ_REST, appended to TJ_OUT as JSON; TJ_REST is what follows it.
toml_json() {
  local tj_text tj_end tj_comma=''
  toml_trim TJ_REST "$TJ_REST"
  case $TJ_REST in
  '{'* | '['*)
    tj_end=${TJ_REST:0:1}
    TJ_OUT=$TJ_OUT$tj_end
    if [[ $tj_end == '{' ]]; then tj_end='}'; else tj_end=']'; fi
    TJ_REST=${TJ_REST#?}
    while :; do
      toml_trim TJ_REST "$TJ_REST"
      [[ ${TJ_REST:0:1} == "$tj_end" ]] && break
      TJ_OUT=$TJ_OUT$tj_comma
      tj_comma=,
      if [[ $tj_end == '}' ]]; then
        toml_name tj_text || return 1
        json_string tj_text "$tj_text"
        TJ_OUT="$TJ_OUT\"$tj_text\":"
      fi
      toml_json || return 1
      toml_trim TJ_REST "$TJ_REST"
      [[ $TJ_REST == ,* ]] && TJ_REST=${TJ_REST#,}
    done
    TJ_OUT=$TJ_OUT$tj_end
    TJ_REST=${TJ_REST#?}
    ;;
  [\"\']*)
    toml_string tj_text TJ_REST "$TJ_REST" || return 1
    json_string tj_text "$tj_text"
    TJ_OUT="$TJ_OUT\"$tj_text\""
    ;;
  *)
    [[ $TJ_REST =~ ^(true|false|[+-]?[0-9][0-9_]*(\.[0-9_]+)?([eE][+-]?[0-9]+)?)(.*)$ ]] || return 1
    tj_text=${BASH_REMATCH[1]//_/}
    TJ_OUT=$TJ_OUT${tj_text#+}
    TJ_REST=${BASH_REMATCH[4]}
    ;;
  esac
}

# The members below a key prefix as one JSON object, in the order of the file; "" when there are none.
toml_object() { # <result-var> <USER_FILE or PROJECT> <key prefix with a dot>
  local to_i to_count=${2}_COUNT to_ref to_key to_name to_seen=. to_out='' to_inner
  for ((to_i = 0; to_i < ${!to_count}; to_i++)); do
    to_ref="${2}_KEYS[$to_i]"
    to_key=${!to_ref}
    [[ $to_key == "$3"* ]] || continue
    to_key=${to_key#"$3"}
    to_name=${to_key%%.*}
    [[ $to_seen == *".$to_name."* ]] && continue
    to_seen=$to_seen$to_name.
    if [[ $to_key == *.* ]]; then
      # Its own locals: the call has a frame of its own.
      toml_object to_inner "$2" "$3$to_name."
      to_inner=$TO_RESULT
    else
      to_ref="${2}_VALUES[$to_i]"
      to_inner=${!to_ref}
    fi
    json_string to_name "$to_name"
    to_out="$to_out${to_out:+,}\"$to_name\":$to_inner"
  done
  TO_RESULT=${to_out:+{$to_out\}}
  printf -v "$1" '%s' "$TO_RESULT"
}

toml_known() { # <key>
  case $1 in
  provider | model | effort | thinking | max_tokens | max_context | max_turns | max_sub_agents | tool_timeout) ;;
  max_cost | max_time) ;;
  tool_result_max_bytes | skills | output_format | mode | stall_timeout | retry_base_ms | base_url | api_key | trusted) ;;
  sandbox | mask | ask_timeout | keep_env) ;;
  plain | bell | markdown) ;;
  headers.* | extra_body.* | parts.*) ;;
  providers.*.api | providers.*.base_url | providers.*.key_env | providers.*.model) ;;
  providers.*.headers.* | providers.*.extra_body.*) ;;
  *) return 1 ;;
  esac
}

toml_trim() { # <result-var> <text>
  local tt_text=${2%$'\r'}
  tt_text=${tt_text#"${tt_text%%[!$' \t']*}"}
  printf -v "$1" '%s' "${tt_text%"${tt_text##*[!$' \t']}"}"
}

toml_value() { # <result-var> <text>
  local tv_rest=$2 tv_out='' tv_item
  if [[ $tv_rest == '['* ]]; then
    tv_rest=${tv_rest#[}
    while :; do
      toml_trim tv_rest "$tv_rest"
      [[ $tv_rest == ']'* ]] && break
      toml_string tv_item tv_rest "$tv_rest" || return 1
      tv_out=$tv_out${tv_out:+$'\n'}$tv_item
      toml_trim tv_rest "$tv_rest"
      [[ $tv_rest == ,* ]] && tv_rest=${tv_rest#,}
    done
    printf -v "$1" '%s' "$tv_out"
    return 0
  fi
  if [[ $tv_rest == [\"\']* ]]; then
    toml_string tv_out tv_rest "$tv_rest" || return 1
  elif [[ $tv_rest =~ ^(true|false|[+-]?[0-9][0-9_]*(\.[0-9]+)?)(.*)$ ]]; then
    tv_out=${BASH_REMATCH[1]//_/}
    tv_rest=${BASH_REMATCH[3]}
  else
    return 1
  fi
  toml_trim tv_rest "$tv_rest"
  [[ -z $tv_rest || $tv_rest == '#'* ]] || return 1
  printf -v "$1" '%s' "$tv_out"
}

toml_string() { # <result-var> <rest-var> <text>
  local ts_text=$3 ts_body
  if [[ $ts_text =~ ^\"(([^\"\\]|\\.)*)\"(.*)$ ]]; then
    ts_body=${BASH_REMATCH[1]}
    printf -v "$2" '%s' "${BASH_REMATCH[3]}"
    printf -v "$1" '%b' "$ts_body"
  elif [[ $ts_text =~ ^\'([^\']*)\'(.*)$ ]]; then
    ts_body=${BASH_REMATCH[1]}
    printf -v "$2" '%s' "${BASH_REMATCH[2]}"
    printf -v "$1" '%s' "$ts_body"
  else
    return 1
  fi
}

toml_get() { # <result-var> <prefix> <key>   "" and failure when it is not there
  local tg_i tg_count=${2}_COUNT tg_key tg_value
  for ((tg_i = ${!tg_count} - 1; tg_i >= 0; tg_i--)); do
    tg_key="${2}_KEYS[$tg_i]"
    if [[ ${!tg_key} == "$3" ]]; then
      tg_value="${2}_VALUES[$tg_i]"
      printf -v "$1" '%s' "${!tg_value}"
      return 0
    fi
  done
  printf -v "$1" ''
  return 1
}

# The project's file may narrow, never take a key or widen rights, unless the user's file trusts this directory.
check_project_config() {
  local file=$CWD/.bash-agent.toml dir trusted i key mode widest
  ((PROJECT_COUNT)) || return 0
  toml_get trusted USER_FILE trusted
  while IFS= read -r dir; do
    [[ $dir == '~'* ]] && dir=${HOME:-}${dir#\~}
    [[ -n $dir && $(cd -P -- "$dir" 2>/dev/null && pwd -P) == "$CWD" ]] && return 0
  done <<<"$trusted"
  for ((i = 0; i < PROJECT_COUNT; i++)); do
    key=${PROJECT_KEYS[i]%%.*}
    case $key in
    base_url | api_key | headers | extra_body | parts | providers | provider | trusted | sandbox | mask | ask_timeout | keep_env)
      config_error "$file" "a project may not set '$key': move it to $BASE/config.toml, or list this directory under 'trusted' there"
      ;;
    esac
  done
  if toml_get mode PROJECT mode; then
    toml_get widest USER_FILE mode && [[ $widest != ask ]] || widest=0467
    need_mode mode "$mode"
    need_mode widest "$widest"
    for i in 0 1 2 3; do
      (((${mode:i:1} & ~${widest:i:1}) == 0)) ||
        config_error "$file" "mode '$mode' is wider than yours ($widest): a project may only narrow it"
    done
  fi
}

# Flag, environment, project's file, user's file, default: the first that is there.
first_of() { # <result-var> <flag value> <environment value> <file key> <default>
  local fo_value=$2
  [[ -n $fo_value ]] || fo_value=$3
  [[ -n $fo_value ]] || toml_get fo_value PROJECT "$4" || toml_get fo_value USER_FILE "$4" || fo_value=$5
  printf -v "$1" '%s' "$fo_value"
}

need_mode() { # <result-var> <text>
  case $2 in
  [0-7][0-7][0-7][0-7]) printf -v "$1" '%s' "$2" ;;
  read-only) printf -v "$1" 0444 ;;
  workspace) printf -v "$1" 0467 ;;
  trusted) printf -v "$1" 0777 ;;
  *) usage_error "'$2' is no mode: give four octal digits (system, external, network, workspace), read-only, workspace, trusted or ask" ;;
  esac
}

resolve_config() {
  read_toml USER_FILE "$BASE/config.toml"
  read_toml PROJECT "$CWD/.bash-agent.toml"
  check_project_config
  resolve_limits
  resolve_budget
  resolve_model
  resolve_mode
  resolve_sandbox
  resolve_look
  resolve_format
  local i
  for ((i = 0; i < USER_FILE_COUNT; i++)); do
    [[ ${USER_FILE_KEYS[i]} == providers.*.key_env ]] && HIDDEN_ENV[${#HIDDEN_ENV[@]}]=${USER_FILE_VALUES[i]}
  done
  resolve_secrets
  LANG_NAME=${ORIG_LC_ALL:-${LC_MESSAGES:-${LANG:-}}}
  LANG_NAME=${LANG_NAME%%.*}
  LANG_NAME=${LANG_NAME:-C}
  # bash sets SHELL where it is missing, but exports only one that it was given.
  SHELL_NAME=/bin/sh
  [[ -n ${SHELL:-} && $(declare -p SHELL) == "declare -"*x*" SHELL="* ]] && SHELL_NAME=$SHELL
  IS_CHILD=0
  [[ ${BASH_AGENT_CHILD:-} == 1 ]] && IS_CHILD=1
  RECORD_FILE=$OPT_RECORD
  return 0
}

resolve_limits() {
  local text
  first_of text "$OPT_MAX_TURNS" '' max_turns 1000
  need_count MAX_TURNS "$text" count
  first_of text "$OPT_MAX_CONTEXT" '' max_context 200000
  need_size MAX_CONTEXT "$text"
  first_of text "$OPT_MAX_SUB_AGENTS" '' max_sub_agents 8
  need_count MAX_SUB_AGENTS "$text" count
  first_of text "$OPT_TOOL_TIMEOUT" '' tool_timeout 600
  need_count TOOL_TIMEOUT "$text" "number of seconds"
  first_of text '' "${TOOL_RESULT_MAX_BYTES:-}" tool_result_max_bytes 100000
  need_size MAX_RESULT "$text" "${TOOL_RESULT_MAX_BYTES:+TOOL_RESULT_MAX_BYTES}"
  first_of text "$OPT_MAX_TOKENS" '' max_tokens 16384
  need_size MAX_TOKENS "$text"
  first_of text '' '' stall_timeout 300
  need_count STALL_TIMEOUT "$text" "number of seconds"
  first_of text '' '' retry_base_ms 500
  is_number "$text" || usage_error "retry_base_ms: '$text' is no number of milliseconds"
  RETRY_BASE_MS=$((10#$text))
}

resolve_mode() {
  local text
  ASK=$OPT_ASK
  first_of text "$OPT_MODE" '' mode ''
  # A project may not ask.
  if [[ $text == ask ]] && { [[ $OPT_MODE == ask ]] || ! toml_get text PROJECT mode; }; then
    text=workspace
    [[ -n $OPT_MODE ]] && OPT_MODE=workspace
    [[ -z $OPT_MODE && -n ${BASH_AGENT_BASH_MODE:-} ]] || ASK=1
  fi
  toml_get ASK_TIMEOUT PROJECT ask_timeout || toml_get ASK_TIMEOUT USER_FILE ask_timeout || ASK_TIMEOUT=300
  need_count ASK_TIMEOUT "$ASK_TIMEOUT" "number of seconds"
  if [[ -n $OPT_MODE || (-z ${BASH_AGENT_BASH_MODE:-} && -n $text) ]]; then
    need_mode MODE_DIGITS "$text"
  elif [[ -n ${BASH_AGENT_BASH_MODE:-} ]]; then
    # A value that is no such number counts as 0000 (CONTRACT §12).
    case $BASH_AGENT_BASH_MODE in
    [0-7][0-7][0-7][0-7]) MODE_DIGITS=$BASH_AGENT_BASH_MODE ;;
    *) MODE_DIGITS=0000 ;;
    esac
  else
    MODE_DIGITS=0467
  fi
  MODE_GIVEN=$MODE_DIGITS
}

# How much the run relies on the sandbox, and whether results are masked.
resolve_sandbox() {
  local text
  toml_get text PROJECT sandbox || toml_get text USER_FILE sandbox || text=auto
  need_choice SANDBOX_CHOICE sandbox "$text" off auto required bubblewrap
  ((OPT_REQUIRE_SANDBOX)) && [[ $SANDBOX_CHOICE != bubblewrap ]] && SANDBOX_CHOICE=required
  toml_get text PROJECT mask || toml_get text USER_FILE mask || text=true
  need_choice text mask "$text" true false
  MASK=1
  if ((OPT_NO_MASK)) || [[ $text == false ]]; then MASK=0; fi
}

# How a terminal is used. There is no bell here, and no styled answer: those keys are for the binary, and only checked.
resolve_look() {
  local text
  toml_get text USER_FILE plain || text=false
  need_choice text plain "$text" true false
  [[ $text == true ]] && OPT_PLAIN=1
  toml_get text USER_FILE markdown || text=true
  need_choice text markdown "$text" true false
  toml_get text USER_FILE bell || text=bell
  need_choice text bell "$text" bell osc9 osc777 off
}

resolve_format() {
  local text skill
  ((OPT_PRINT)) && OPT_OUTPUT_FORMAT=stream-json
  first_of text "$OPT_OUTPUT_FORMAT" '' output_format human
  need_choice FORMAT 'output format' "$text" human stream-json text json
  SKILLS=()
  if ((${#OPT_SKILLS[@]})); then
    SKILLS=("${OPT_SKILLS[@]}")
  elif first_of text '' '' skills '' && [[ -n $text ]]; then
    while IFS= read -r skill; do SKILLS[${#SKILLS[@]}]=$skill; done <<<"$text"
  fi
}

resolve_model() {
  local name model='' api text
  first_of name "$OPT_PROVIDER" '' provider claude
  PROVIDER_ARG=$OPT_PROVIDER
  API_KEY='' AUTH_TOKEN='' BASE_URL='' SCRIPT_FILE='' EXTRA_BODY=''
  HEADERS=()
  if toml_get api USER_FILE "providers.$name.api"; then
    need_choice PROVIDER api "$api" claude openai responses
    toml_get text USER_FILE "providers.$name.key_env" && API_KEY=${!text:-}
    toml_get BASE_URL USER_FILE "providers.$name.base_url"
    toml_get model USER_FILE "providers.$name.model"
    collect_headers "providers.$name.headers."
    # A provider's own ones go before those for all.
    toml_object EXTRA_BODY USER_FILE "providers.$name.extra_body."
  else
    need_choice PROVIDER provider "$name" claude openai responses script
    case $PROVIDER in
    claude) API_KEY=${ANTHROPIC_API_KEY:-} AUTH_TOKEN=${ANTHROPIC_AUTH_TOKEN:-} BASE_URL=${ANTHROPIC_BASE_URL:-} ;;
    openai | responses) API_KEY=${OPENAI_API_KEY:-} BASE_URL=${OPENAI_BASE_URL:-} ;;
    esac
    # What is in the project's file here, the user trusts (check_project_config).
    [[ -n $API_KEY || $PROVIDER == script ]] || toml_get API_KEY PROJECT api_key || toml_get API_KEY USER_FILE api_key
    [[ -n $BASE_URL ]] || toml_get BASE_URL PROJECT base_url || toml_get BASE_URL USER_FILE base_url
  fi
  collect_headers headers.
  [[ -n $EXTRA_BODY ]] || toml_object EXTRA_BODY PROJECT extra_body.
  [[ -n $EXTRA_BODY ]] || toml_object EXTRA_BODY USER_FILE extra_body.
  [[ -z $OPT_BASE_URL ]] || BASE_URL=$OPT_BASE_URL
  if [[ -n $OPT_API_KEY ]]; then
    read_key "$OPT_API_KEY"
    AUTH_TOKEN=
  fi
  if [[ -z $API_KEY$AUTH_TOKEN$BASE_URL && -n ${DEEPSEEK_API_KEY:-} ]] && [[ $PROVIDER == claude || $PROVIDER == openai ]]; then
    API_KEY=$DEEPSEEK_API_KEY
    model=deepseek-chat
    BASE_URL=https://api.deepseek.com/v1
    [[ $PROVIDER == claude ]] && BASE_URL=https://api.deepseek.com/anthropic/v1
  fi
  [[ -z $BASE_URL ]] || check_url "$BASE_URL"
  text=$OPT_MODEL
  if [[ $PROVIDER == script ]]; then
    SCRIPT_FILE=$text
    MODEL=script
  else
    [[ -n $text ]] || toml_get text PROJECT model
    [[ -n $text ]] || text=$model
    [[ -n $text ]] || toml_get text USER_FILE model
    MODEL=$text
    if [[ -z $MODEL ]]; then
      if [[ $PROVIDER == claude ]]; then MODEL=claude-sonnet-5-5; else MODEL=gpt-6-sol; fi
    fi
  fi
  first_of text "$OPT_EFFORT" "${EFFORT:-}" effort high
  need_choice EFFORT_LEVEL effort "$text" low medium high xhigh max
  first_of text "$OPT_THINKING" "${THINKING:-}" thinking adaptive
  need_choice THINKING_KIND thinking "$text" adaptive enabled disabled
}

collect_headers() { # <key prefix>   appends `name: value` to HEADERS; the first of a name counts
  local i
  for ((i = 0; i < PROJECT_COUNT; i++)); do
    [[ ${PROJECT_KEYS[i]} == "$1"* ]] && add_header "${PROJECT_KEYS[i]#"$1"}" "${PROJECT_VALUES[i]}"
  done
  for ((i = 0; i < USER_FILE_COUNT; i++)); do
    [[ ${USER_FILE_KEYS[i]} == "$1"* ]] && add_header "${USER_FILE_KEYS[i]#"$1"}" "${USER_FILE_VALUES[i]}"
  done
}

add_header() { # <name> <value>
  has_header "$1" || HEADERS[${#HEADERS[@]}]="$1: $2"
}

# Whether the user has given a header; names have no case.
has_header() { # <name>
  local header found=1
  shopt -s nocasematch
  for header in "${HEADERS[@]+"${HEADERS[@]}"}"; do
    [[ $header == "$1:"* ]] && found=0
  done
  shopt -u nocasematch
  return "$found"
}

check_url() { # <url>
  [[ $1 =~ ^https?://[^/?#[:space:]]+[^[:space:]]*$ ]] ||
    usage_error "'$1' is no base URL: give http://HOST[:PORT][/PATH] or https://…"
}

read_key() { # <KEY, @FILE or ->
  local text
  case $1 in
  -) text=$(head -c 65536) ;;
  @*)
    [[ -r ${1#@} ]] || usage_error "--api-key: cannot open ${1#@}: No such file or directory"
    text=$(head -c 65536 -- "${1#@}")
    ;;
  *)
    say_warning "a key given as an argument shows in the process list: use --api-key @FILE or -"
    text=$1
    ;;
  esac
  toml_trim text "${text//$'\n'/}"
  [[ -n $text && $text != *[$'\001'-$'\037'$'\177']* ]] ||
    usage_error "--api-key: the key is empty or holds control characters"
  API_KEY=$text
}

# The values of keys, to be masked wherever they turn up; and no key stays in the environment of what we start.
resolve_secrets() {
  local name text value
  SECRETS=() KEEP_ENV=()
  { toml_get text PROJECT keep_env || toml_get text USER_FILE keep_env; } && [[ -n $text ]] &&
    while IFS= read -r name; do [[ -n ${!name:-} ]] && KEEP_ENV[${#KEEP_ENV[@]}]=$name; done <<<"$text"
  ((MASK)) || return 0
  for name in "${HIDDEN_ENV[@]}"; do
    [[ -n ${!name:-} ]] && SECRETS[${#SECRETS[@]}]=${!name}
  done
  # A short value of somebody else's variable would mask too much.
  for name in "${AGENT_KEYS[@]+"${AGENT_KEYS[@]}"}"; do
    ((${#KEEP_ENV[@]})) && [[ " ${KEEP_ENV[*]} " == *" $name "* ]] && continue
    value=${!name}
    ((${#value} >= 16)) && [[ $value != *$'\n'* ]] && SECRETS[${#SECRETS[@]}]=$value
  done
  [[ -n $API_KEY ]] && SECRETS[${#SECRETS[@]}]=$API_KEY
  [[ -n $AUTH_TOKEN ]] && SECRETS[${#SECRETS[@]}]=$AUTH_TOKEN
  return 0
}

# Without a key and a base URL nothing can be asked: says what to set, and who listens on this machine.
check_access() {
  local names text
  [[ $PROVIDER == script || -n $BASE_URL || -n $API_KEY || -n $AUTH_TOKEN ]] && return 0
  names="OPENAI_API_KEY, or OPENAI_BASE_URL"
  [[ $PROVIDER == claude ]] && names="ANTHROPIC_API_KEY (or ANTHROPIC_AUTH_TOKEN), or ANTHROPIC_BASE_URL"
  text="no API key: set $names for a server of your own, or DEEPSEEK_API_KEY; \`-p script\` runs offline without any"
  if [[ $(curl -s -m 0.2 http://127.0.0.1:11434/ 2>/dev/null) == *'Ollama is running'* ]]; then
    text="$text; Ollama runs here: try -p openai --base-url http://127.0.0.1:11434 -m MODEL"
  fi
  if [[ $(curl -s -m 0.2 http://127.0.0.1:8080/health 2>/dev/null) == *'"status":"ok"'* ]]; then
    text="$text; llama.cpp runs here: try -p openai --base-url http://127.0.0.1:8080 -m MODEL"
  fi
  die 2 "$text"
}
