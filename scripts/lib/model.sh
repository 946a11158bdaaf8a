# model.sh - one call of the model: the body, the connection, the stream, the retries (DESIGN "The model behind it").
#
# ask_model [instruction file] [kind] runs a call. It leaves the answer in $RUN/answer, that of a summary in
# $RUN/summary_answer (the files of awk/response.awk), and
# sets ANSWER: complete, failed or interrupted; then ANSWER_STOP, ANSWER_CALLS, ANSWER_DROPPED; FAIL_* of a failure;
# ANSWER_USAGES: the figures of every try, one line each.

MAX_TRIES=4
RETRY_BUDGET_MS=120000

setup_model() {
  STALLED="no event for $STALL_TIMEOUT s, the stream is stalled"
  PLAYED=1 PLAYED_CALLS=0 OMIT='' DROP_SIGNED=0 CALLS_MADE=0
  local words models=("$ASSETS_DIR/models.json")
  [[ -e $BASE/models.json ]] && models[1]=$BASE/models.json
  MODEL_FILES=("${models[@]}")
  awk_value MODEL_V "$MODEL"
  words=$(run_awk models.awk -v model="$MODEL_V" "${MODEL_FILES[@]}" 2>"$RUN/models.err") || die 2 "$(cat "$RUN/models.err")"
  IFS=' ' read -r MODEL_WINDOW MODEL_MAX_OUTPUT MODEL_THINKING MODEL_DISABLE MODEL_VISION <<<"$words"
  [[ $MODEL_THINKING == - ]] && MODEL_THINKING=
  [[ $MODEL_DISABLE == - ]] && MODEL_DISABLE=
  case $PROVIDER in
  claude) URL=${BASE_URL:-https://api.anthropic.com} ;;
  openai | responses) URL=${BASE_URL:-https://api.openai.com} ;;
  script)
    setup_cassette
    return 0
    ;;
  esac
  command -v curl >/dev/null 2>&1 || die 2 "no curl here: install the package curl (\`-p script\` works without it)"
  URL=${URL%"${URL##*[!/]}"}
  [[ $URL =~ ^https?://[^/]+$ ]] && URL=$URL/v1
  case $PROVIDER in
  claude) URL=$URL/messages ;;
  openai) URL=$URL/chat/completions ;;
  responses) URL=$URL/responses ;;
  esac
  PLACE=$URL
  [[ $PLACE =~ ^(https?://)[^/@]*@(.*)$ ]] && PLACE=${BASH_REMATCH[1]}${BASH_REMATCH[2]}
  return 0
}

setup_cassette() {
  CASSETTE=$SCRIPT_FILE
  if [[ -z $CASSETTE ]]; then
    CASSETTE=$ASSETS_DIR/demo.ndjson
    return 0
  fi
  [[ -f $CASSETTE && -r $CASSETTE ]] ||
    die 2 "cannot read the cassette $CASSETTE: $([[ -e $CASSETTE ]] && echo 'it is no readable file' || echo 'No such file or directory')"
}

# ---- The body

request_body() { # <instruction file or ""> <output file>
  local line
  : >"$RUN/window.notes"
  body_by_core "$@" || body_by_awk "$@" || return 1
  while IFS= read -r line; do say_once "$line"; done <"$RUN/window.notes"
}

body_by_core() { # <instruction file or ""> <output file>
  local words word
  has_core || return 1
  # What was resolved here already; the rest it finds where we did.
  words=(--model "$MODEL" --max-tokens "$MAX_TOKENS" --effort "$EFFORT_LEVEL" --thinking "$THINKING_KIND" --system "$RUN/system"
    --image-bytes "$RUN/image.bytes")
  [[ -z $PROVIDER_ARG ]] || words=("${words[@]}" --provider "$PROVIDER_ARG")
  [[ -z $OPT_BASE_URL ]] || words=("${words[@]}" --base-url "$OPT_BASE_URL")
  [[ -z $1 ]] || words=("${words[@]}" --instruction "$1")
  ((DROP_SIGNED)) && words=("${words[@]}" --drop-signed)
  [[ -z ${CONVERSATION:-} ]] || words=("${words[@]}" --until "$(($(wc -c <"$CONVERSATION")))")
  for word in $OMIT; do words=("${words[@]}" --omit "$word"); done
  run_core body "${words[@]}" -- "$S" >"$2" 2>"$RUN/body.err"
  core_did $? body || return 1
  # Its own warnings about the configuration were given here already.
  sed '/^bash-agent: /d' "$RUN/body.err" >"$RUN/window.notes"
}

body_by_awk() { # <instruction file or ""> <output file>
  local program=body_anthropic.awk unsigned=0 images='' vision=1
  case $PROVIDER in
  claude) unsigned=1 ;;
  openai) program=body_openai.awk ;;
  responses) program=body_responses.awk ;;
  esac
  has_images && awk_value images "$S/images"
  [[ $MODEL_VISION == false || " $OMIT " == *' images '* ]] && vision=0
  awk_value RUN_V "$RUN"
  set -- "$1" "$2" -v images_dir="$images" -v vision="$vision" -v images_file="$RUN_V/image.bytes" \
    -v model="$MODEL_V" -v max_tokens="$MAX_TOKENS" -v effort="$EFFORT_LEVEL" -v thinking="$THINKING_KIND" \
    -v thinking_kind="$MODEL_THINKING" -v disable="$MODEL_DISABLE" -v omit="$OMIT" -v system_file="$RUN_V/system" \
    -v tools_file="$TOOLS_V" -v instruction_file="$1" -v thinking_from="$META_FROM" -v results_from="$META_RESULTS" -v drop_unsigned="$unsigned" \
    -v drop_signed="$DROP_SIGNED" -v notes_file="$RUN_V/window.notes" -v base_url="$URL" \
    -v extra_file="${EXTRA_BODY:+$RUN_V/extra}"
  local output=$2
  shift 2
  [[ -z $EXTRA_BODY ]] || printf '%s' "$EXTRA_BODY" >"$RUN/extra"
  LC_ALL=C "${AWK[@]}" -f "$AWK_DIR/json.awk" -f "$AWK_DIR/protocol.awk" -f "$AWK_DIR/window.awk" "$@" \
    -f "$AWK_DIR/$program" "${CONVERSATION:-$S/conversation.jsonl}" >"$output"
}

# ---- The connection

# curl's settings, read from its stdin: a key is never an argument.
curl_config() {
  local line value name ours=('content-type: application/json' "user-agent: bash-agent/$VERSION")
  case $PROVIDER in
  claude)
    ours[2]='anthropic-version: 2023-06-01'
    if [[ -n $AUTH_TOKEN ]]; then
      value="authorization: Bearer $AUTH_TOKEN"
    else
      value=${API_KEY:+x-api-key: $API_KEY}
    fi
    ;;
  *) value=${API_KEY:+authorization: Bearer $API_KEY} ;;
  esac
  [[ -n $value ]] && ours[3]=$value
  # One of the user's replaces ours of the same name.
  for name in "${!ours[@]}"; do
    has_header "${ours[name]%%:*}" && unset "ours[$name]"
  done
  for line in "${ours[@]+"${ours[@]}"}" "${HEADERS[@]+"${HEADERS[@]}"}"; do
    line=${line//\\/\\\\}
    printf 'header = "%s"\n' "${line//\"/\\\"}"
  done
}

# curl looks at the mean of some seconds: it gives up a silent server 3 to 6 s after --speed-time. (A stream that only
# sends comments is given up by who decodes it.) Nobody asks for a compressed stream (it tends to be held back on its way); one that comes anyhow is decoded.
connect() { # <body file>   the answer with its headers, then a line with the end mark
  local code silence=$((STALL_TIMEOUT > 3 ? STALL_TIMEOUT - 3 : 1))
  curl_config | curl -q -sS -N -i -K - --suppress-connect-headers --connect-timeout 5 --speed-limit 1 \
    --speed-time "$silence" --compressed -H 'accept-encoding:' -H 'accept:' -H 'expect:' \
    --data-binary "@$1" --url "$URL" 2>"$RUN/curl.err"
  code=$?
  if ((TRY_CORE)); then
    # The binary's filter takes the body as it is.
    printf '%s %s\n' "$code" "$(curl_words "$code")" >"$RUN/curl.code"
  else
    printf '\n%s %s %s\n' "$END_MARK" "$code" "$(curl_words "$code")"
  fi
}

curl_words() { # <curl's exit code>
  local words
  case $1 in
  0) return 0 ;;
  28) grep -q 'too slow' "$RUN/curl.err" && words=$STALLED || words="no connection within 5 s" ;;
  *)
    words=$(head -n 1 "$RUN/curl.err")
    words=${words#curl: (*) }
    ;;
  esac
  printf '%s' "$words"
}

# Reads status and headers byte by byte (so that nothing of the body is taken), then hands the body to its decoder.
decode() {
  local line status='' key value
  while :; do
    IFS= read -r line || break
    line=${line%$'\r'}
    if [[ $line == "$END_MARK "* ]]; then
      # No answer at all.
      printf '%s\n' "${line#"$END_MARK "}" >"$RUN/no_answer"
      return 0
    fi
    if [[ $line == HTTP/* ]]; then
      status=${line#* }
      status=${status%% *}
      : >"$RUN/headers"
    elif [[ -z $line ]]; then
      # 1xx answers come before the real one.
      [[ $status == 1?? || -z $status ]] || break
    else
      key=${line%%:*}
      value=${line#*:}
      printf '%s:%s\n' "$key" "$value" >>"$RUN/headers"
    fi
  done
  if [[ -z $status && -e $RUN/curl.code ]]; then
    mv -f -- "$RUN/curl.code" "$RUN/no_answer"
    return 0
  fi
  printf '%s\n' "$status" >"$RUN/status"
  case $status in
  2??) ;;
  *)
    cat >"$RUN/error.body"
    return 0
    ;;
  esac
  if ((TRY_CORE)); then
    run_core sse --provider "$PROVIDER" --max-tokens "$MAX_TOKENS" --id-prefix "call_${CALL_SEED}_" --estimated \
      --sent "$BODY_SIZE" --server "$PLACE" --stall-timeout "$STALL_TIMEOUT"
    key=$?
    # Without a reader nobody wants the rest.
    ((key == 141)) && return 0
    core_did "$key" sse || : >"$RUN/sse.died"
    return 0
  fi
  local program=sse_anthropic.awk
  case $PROVIDER in
  openai) program=sse_openai.awk ;;
  responses) program=sse_responses.awk ;;
  esac
  stream_awk "$program" -v end_mark="$END_MARK" -v max_tokens="$MAX_TOKENS" -v server="$PLACE" -v status="$RUN_V/sse.status" \
    -v stall_timeout="$STALL_TIMEOUT" -v estimated=1 -v sent="$BODY_SIZE" -v id_prefix="call_${CALL_SEED}_"
}

respond() { # <kind>   messages on stdin -> events, answer files, what is shown
  local show=none
  case $FORMAT in
  human) show=messages ;;
  stream-json) show=events ;;
  esac
  [[ $1 == compact ]] && show=none
  local events="$SV/events.jsonl"
  [[ $1 == compact ]] && events=
  if [[ -n $RECORD_FILE && -z ${RECORDING:-} ]]; then
    local RECORDING=1 tape
    awk_value tape "$RECORD_FILE"
    stream_awk tape.awk -v file="$tape" | respond "$1"
    return $?
  fi
  set -- stream_awk response.awk -v events="$events" -v dir="$RUN_V/$ANSWER_NAME" -v kind="$1" -v model="$MODEL_V" \
    -v max_tokens="$MAX_TOKENS" -v show="$show"
  # What shows the answer lives through the end of the others, so that no line is left open; when its reader has gone
  # away, all of it ends.
  if [[ $show == messages ]]; then
    "$@" | (
      trap '' TERM
      display
    )
  else
    "$@"
  fi
  if (($? == 141)); then
    : >"$RUN/closed"
    kill -TERM 0
  fi
}

# One try, in a group of its own: everything of it can be ended at once. Its leader waits for the end of all.
try_script() { # <kind>
  local cassette
  trap ':' TERM
  # bash would tell of each part that is ended.
  exec 2>>"$RUN/model.err"
  CORE_QUIET=1
  awk_value cassette "$CASSETTE"
  stream_awk sse_script.awk -v play="$PLAYED" -v calls="$PLAYED_CALLS" -v status="$RUN_V/sse.status" -v estimated=1 "$cassette" |
    respond "$1"
}

try_http() { # <kind> <body file>
  trap ':' TERM
  exec 2>>"$RUN/model.err"
  CORE_QUIET=1
  connect "$2" | decode | respond "$1"
}

# ---- A call with its retries

ask_model() { # [instruction file] [kind]
  local instruction=${1:-} kind=${2:-agent} body=$RUN/body try=1 now wait_ms
  ANSWER='' ANSWER_USAGES='' FAIL_EXIT=1 FAIL_MESSAGE='' FAIL_KIND=''
  # A summary may be asked for while the calls of an answer run.
  ANSWER_NAME=answer
  [[ $kind == compact ]] && ANSWER_NAME=summary_answer
  [[ -d $RUN/$ANSWER_NAME ]] || mkdir "$RUN/$ANSWER_NAME"
  before_call
  now_ms CALL_STARTED
  END_MARK=end-of-body-$$-$RANDOM$RANDOM
  BODY_SIZE=0 IMAGE_BYTES=0
  if [[ $PROVIDER != script ]]; then
    system_prompt >"$RUN/system"
  fi
  while :; do
    ((INTERRUPTED || ENDING)) && ANSWER=interrupted && return 0
    rm -f "$RUN/$ANSWER_NAME"/* "$RUN/no_answer" "$RUN/status" "$RUN/error.body" "$RUN/sse.status" "$RUN/headers" "$RUN/curl.code" \
      "$RUN/sse.died"
    if has_core; then TRY_CORE=1; else TRY_CORE=0; fi
    ((++CALLS_MADE))
    CALL_SEED=$(printf '%04x%04x' $((RANDOM & 65535)) $((RANDOM & 65535)))
    if [[ $PROVIDER == script ]]; then
      start_group try_script "$kind"
    else
      request_body "$instruction" "$body" || {
        ANSWER=failed FAIL_MESSAGE="the request could not be made: ${AWK[*]} failed"
        return 0
      }
      BODY_SIZE=$(($(wc -c <"$body")))
      # What images weigh says nothing of tokens.
      IMAGE_BYTES=0
      [[ -s $RUN/image.bytes ]] && IMAGE_BYTES=$(<"$RUN/image.bytes")
      ((BODY_SIZE -= IMAGE_BYTES))
      start_group try_http "$kind" "$body"
    fi
    MODEL_PID=$GROUP_PID
    printf '%s\n' "$MODEL_PID" >"$RUN/model"
    if wait_for "$MODEL_PID"; then reap_group "$MODEL_PID"; else stop_group "$MODEL_PID"; fi
    MODEL_PID=
    : >"$RUN/model"
    read_answer
    if ((INTERRUPTED || ENDING)); then
      ANSWER=interrupted
      return 0
    fi
    [[ $ANSWER == failed ]] || return 1
    ((STDOUT_CLOSED)) && return 0
    if [[ $FAIL_OMIT != - && -n $FAIL_OMIT ]]; then
      OMIT="$OMIT $FAIL_OMIT"
      say_once "the server does not take $FAIL_FIELD: it is left out from now on"
      show_retry
      continue
    fi
    if [[ $FAIL_KIND == ThinkingRejected && $DROP_SIGNED == 0 ]]; then
      DROP_SIGNED=1
      say_once "the server does not take the thinking of earlier answers: it is left out from now on"
      show_retry
      continue
    fi
    [[ $PROVIDER != script && $FAIL_RETRY == 1 ]] && ((try < MAX_TRIES)) || return 1
    retry_wait wait_ms "$try" || return 1
    now_ms now
    if ((now - CALL_STARTED + wait_ms > RETRY_BUDGET_MS)); then
      [[ -n $RETRY_AFTER ]] && FAIL_MESSAGE="$FAIL_MESSAGE (the server asks to wait $((wait_ms / 1000)) s, which is too long)" && FAIL_EXIT=6
      return 0
    fi
    show_retry
    say_warning "$FAIL_MESSAGE; trying again in $((wait_ms / 1000)).$((wait_ms % 1000 / 100)) s"
    pause "$((wait_ms / 1000)).$(printf '%03d' $((wait_ms % 1000)))"
    ((++try))
  done
}

show_retry() {
  event '{"type":"retry"'
}

# The wait before the next try: what the server asks for, else a backoff with jitter.
retry_wait() { # <result-var> <failed tries>
  local value='' seconds=''
  RETRY_AFTER=
  if [[ -s $RUN/headers ]]; then
    value=$(LC_ALL=C awk -F: 'tolower($1) == "retry-after-ms" { ms = $0 } tolower($1) == "retry-after" { s = $0 }
      END { sub(/^[^:]*:[ \t]*/, "", ms); sub(/^[^:]*:[ \t]*/, "", s); print ms; print s }' "$RUN/headers")
    seconds=${value#*$'\n'}
    value=${value%%$'\n'*}
  fi
  if is_number "$value"; then
    RETRY_AFTER=$((10#$value))
  elif is_number "${seconds%"${seconds##*[! ]}"}"; then
    seconds=${seconds%"${seconds##*[! ]}"}
    RETRY_AFTER=$((10#$seconds * 1000))
  elif [[ $seconds == *:*GMT* ]]; then
    http_date RETRY_AFTER "$seconds"
  fi
  if [[ -n $RETRY_AFTER ]]; then
    printf -v "$1" '%s' "$RETRY_AFTER"
  else
    printf -v "$1" '%d' $(((RETRY_BASE_MS << ($2 - 1)) * (50 + RANDOM % 101) / 100))
  fi
}

http_date() { # <result-var> <date>   milliseconds until then, 0 when it is past; "" when it is no date
  local hd_now hd_m hd_y hd_d hd_days hd_then
  [[ $2 =~ ([0-9]{1,2})\ ([A-Z][a-z][a-z])\ ([0-9]{4})\ ([0-9]{2}):([0-9]{2}):([0-9]{2}) ]] || return 0
  case ${BASH_REMATCH[2]} in
  Jan) hd_m=1 ;; Feb) hd_m=2 ;; Mar) hd_m=3 ;; Apr) hd_m=4 ;; May) hd_m=5 ;; Jun) hd_m=6 ;;
  Jul) hd_m=7 ;; Aug) hd_m=8 ;; Sep) hd_m=9 ;; Oct) hd_m=10 ;; Nov) hd_m=11 ;; Dec) hd_m=12 ;;
  *) return 0 ;;
  esac
  hd_y=$((10#${BASH_REMATCH[3]} - (hd_m <= 2)))
  hd_d=$((10#${BASH_REMATCH[1]}))
  hd_days=$((hd_y * 365 + hd_y / 4 - hd_y / 100 + hd_y / 400 + (153 * (hd_m > 2 ? hd_m - 3 : hd_m + 9) + 2) / 5 + hd_d - 1 - 719468))
  hd_then=$(((hd_days * 86400 + 10#${BASH_REMATCH[4]} * 3600 + 10#${BASH_REMATCH[5]} * 60 + 10#${BASH_REMATCH[6]}) * 1000))
  now_ms hd_now
  printf -v "$1" '%d' $((hd_then > hd_now ? hd_then - hd_now : 0))
}

# What the try left, into ANSWER_* and FAIL_*.
read_answer() {
  local word rest line type='-'
  ANSWER=failed ANSWER_STOP='' ANSWER_CALLS=0 ANSWER_DROPPED=-1 FAIL_RETRY=0 FAIL_OMIT=- FAIL_FIELD=- FAIL_KIND=''
  if [[ $PROVIDER == script && -s $RUN/sse.status ]]; then
    while IFS=' ' read -r word rest; do
      case $word in
      played) PLAYED=$((rest + 1)) ;;
      calls) PLAYED_CALLS=$rest ;;
      esac
    done <"$RUN/sse.status"
  fi
  if [[ -s $RUN/$ANSWER_NAME/result ]]; then
    while IFS=' ' read -r word rest; do
      case $word in
      usage) ANSWER_USAGES=$ANSWER_USAGES$rest$'\n' ;;
      stop) ANSWER=complete ANSWER_STOP=$rest ;;
      calls) ANSWER_CALLS=$rest ;;
      dropped) ANSWER_DROPPED=$rest ;;
      error) type=$rest ;;
      esac
    done <"$RUN/$ANSWER_NAME/result"
  fi
  tell_core
  [[ -e $RUN/closed ]] && stdout_closed
  [[ $ANSWER == complete ]] && return 0
  if [[ -e $RUN/no_answer ]]; then
    IFS=' ' read -r word rest <"$RUN/no_answer"
    no_answer "$word" "$rest"
  elif [[ -e $RUN/sse.died ]]; then
    FAIL_KIND=Network FAIL_EXIT=7 FAIL_RETRY=1 FAIL_MESSAGE="$PLACE: the answer was cut off by the end of its filter"
  elif [[ -e $RUN/error.body ]]; then
    IFS= read -r word <"$RUN/status"
    # The end mark is ours.
    sed "/^$END_MARK /d" "$RUN/error.body" | run_awk error.awk -v code="${word:-0}" -v provider="$PROVIDER" -v tried="$OMIT" -v images="$IMAGE_BYTES" >"$RUN/failure"
    read_failure
  elif [[ $type == stream_broken && -e $RUN/curl.code ]] && grep -q '^28 ' "$RUN/curl.code"; then
    # The core's filter saw only the end.
    no_answer 28 "$STALLED"
  else
    [[ $type == - ]] && type=
    [[ -e $RUN/$ANSWER_NAME/error ]] || printf 'the model call ended without an answer' >"$RUN/$ANSWER_NAME/error"
    run_awk error.awk -v type="$type" -v provider="$PROVIDER" -v tried="$OMIT" <"$RUN/$ANSWER_NAME/error" >"$RUN/failure"
    read_failure
  fi
  FAIL_MESSAGE=$(mask_secrets "$FAIL_MESSAGE")
}

read_failure() {
  local line
  IFS= read -r line <"$RUN/failure"
  FAIL_KIND=${line%%$'\t'*} && line=${line#*$'\t'}
  FAIL_EXIT=${line%%$'\t'*} && line=${line#*$'\t'}
  FAIL_RETRY=${line%%$'\t'*} && line=${line#*$'\t'}
  line=${line#*$'\t'}
  line=${line#*$'\t'}
  unescape_line FAIL_MESSAGE "${line%%$'\t'*}"
  if [[ $line == *$'\t'* ]]; then
    line=${line#*$'\t'}
    FAIL_OMIT=${line%%$'\t'*}
    FAIL_FIELD=${line#*$'\t'}
  fi
  [[ -n $FAIL_EXIT ]] || FAIL_EXIT=1
}

no_answer() { # <curl's exit code> <its words>
  FAIL_KIND=Network FAIL_EXIT=7 FAIL_RETRY=1
  case $1 in
  28)
    FAIL_MESSAGE="$PLACE: $2"
    [[ $2 != "$STALLED" ]] || FAIL_RETRY=0
    ;;
  # What will not get better: a bad URL or proxy, a certificate that is not trusted.
  1 | 3 | 5 | 35 | 51 | 58 | 60 | 77)
    FAIL_KIND=Rejected FAIL_EXIT=1 FAIL_RETRY=0
    FAIL_MESSAGE="$PLACE: $2"
    ;;
  *) FAIL_MESSAGE="$PLACE: ${2:-curl ended with $1}" ;;
  esac
}

mask_secrets() { # <text>
  local text=$1 secret
  # The user's own headers may hold one too.
  for secret in "${HEADERS[@]+"${HEADERS[@]}"}"; do
    secret=${secret#*: }
    ((${#secret} >= 8)) && text=${text//"$secret"/***}
  done
  for secret in "${SECRETS[@]+"${SECRETS[@]}"}"; do
    ((${#secret} >= 4)) && text=${text//"$secret"/***}
  done
  printf '%s' "$text"
}

# Dollars of some figures.
price_of() { # <result-var> <in out cache_read cache_creation>
  printf -v "$1" '%s' "$(run_awk models.awk -v model="$MODEL_V" -v usage="$2" "${MODEL_FILES[@]}" 2>/dev/null || echo 0)"
}
