# cli.sh - what was typed: the flags of CONTRACT §13. Validation only.
#
# parse_args sets OPT_* ("" = not given), PROMPT_WORDS, OPT_SKILLS, OPT_IMAGES.

usage_text() {
  cat <<'END'
A coding agent for people who live in a shell: plain files, FIFOs and filters.

Usage: agent.sh [OPTIONS] [PROMPT]

Without PROMPT it reads stdin, or starts the interactive mode when stdin is a terminal.

Arguments:
  [PROMPT]  What to do; `-` appends stdin to it

Options:
  -p, --provider <NAME>         Model API: claude, openai (Chat Completions), responses, script (a cassette, offline), or a name of the config
  -m, --model <MODEL>           Model name; for `-p script` the cassette file
      --max-tokens <N>          Most tokens of one answer [16384]
      --tool-timeout <SECONDS>  Seconds a tool may run [600]
      --skill <NAME>            Put this skill into the prompt (repeatable)
      --image <FILE>            Send this image with PROMPT (PNG, JPEG, GIF or WebP; repeatable)
      --max-turns <N>           Most model calls of one turn [1000]
      --max-context <N>         Size of the window in tokens [200000]
      --max-sub-agents <N>      Most sub-agents running at once; more wait their turn [8]
      --max-cost <DOLLARS>      Most dollars this run may cost, its sub-agents and summaries included
      --max-total-tokens <N>    Most tokens this run may use, of all kinds together, its sub-agents and summaries included
      --max-time <SECONDS>      Most seconds this run may take
      --api-key <KEY>           The API key; @FILE or `-` (stdin) keep it out of the process list
      --base-url <URL>          Where the API is, for instance http://127.0.0.1:11434
      --effort <LEVEL>          How hard the model thinks: low, medium, high, xhigh, max [high]
      --thinking <KIND>         Thinking: adaptive, enabled, disabled [adaptive]
      --output-format <FORMAT>  What stdout carries: human, stream-json, text, json [human]
      --print                   Short for --output-format stream-json
      --session [<NAME>]        Create or continue the session NAME; without NAME a new one
      --continue                Continue the newest session of this directory
      --fork                    Work on a copy of the session (--session NAME, --continue, or the newest)
      --stay                    Stay and wait for input on input.fifo, turn after turn, without a terminal
      --record <FILE>           Write what the model answers to FILE, as a cassette for `-p script`
      --list-sessions           List the sessions of this directory
      --mode <MODE>             What tools may do: four octal digits (system, external, network, workspace), read-only, workspace, trusted, ask (workspace, and --ask)
      --ask                     Ask before a call that the mode does not allow, instead of refusing it
      --require-sandbox         Run commands confined or not at all
      --no-mask                 Do not mask keys and tokens in what tools print
      --plain                   Interactive without a line editor and cursor moves: for screen readers and simple terminals
  -v, --verbose                 Say more on stderr
  -i, --interactive             Interactive mode, even with a prompt
  -h, --help                    Print help
  -V, --version                 Print version
END
}

usage_error() { # <text>
  say_error "$1; see agent.sh --help"
  finish 2
}

# The options that take a value, and the variable each is kept in.
option_variable() { # <result-var> <option>   fails for an option that takes none
  case $2 in
  -p | --provider) printf -v "$1" OPT_PROVIDER ;;
  -m | --model) printf -v "$1" OPT_MODEL ;;
  --max-tokens) printf -v "$1" OPT_MAX_TOKENS ;;
  --tool-timeout) printf -v "$1" OPT_TOOL_TIMEOUT ;;
  --skill) printf -v "$1" OPT_SKILL ;;
  --image) printf -v "$1" OPT_IMAGE ;;
  --max-turns) printf -v "$1" OPT_MAX_TURNS ;;
  --max-context) printf -v "$1" OPT_MAX_CONTEXT ;;
  --max-sub-agents) printf -v "$1" OPT_MAX_SUB_AGENTS ;;
  --max-cost) printf -v "$1" OPT_MAX_COST ;;
  --max-total-tokens) printf -v "$1" OPT_MAX_TOTAL_TOKENS ;;
  --max-time) printf -v "$1" OPT_MAX_TIME ;;
  --api-key) printf -v "$1" OPT_API_KEY ;;
  --base-url) printf -v "$1" OPT_BASE_URL ;;
  --effort) printf -v "$1" OPT_EFFORT ;;
  --thinking) printf -v "$1" OPT_THINKING ;;
  --output-format) printf -v "$1" OPT_OUTPUT_FORMAT ;;
  --record) printf -v "$1" OPT_RECORD ;;
  --mode) printf -v "$1" OPT_MODE ;;
  *) return 1 ;;
  esac
}

parse_args() {
  local word variable value
  OPT_PROVIDER='' OPT_MODEL='' OPT_MAX_TOKENS='' OPT_TOOL_TIMEOUT='' OPT_MAX_TURNS='' OPT_MAX_CONTEXT=''
  OPT_MAX_SUB_AGENTS='' OPT_MAX_COST='' OPT_MAX_TOTAL_TOKENS='' OPT_MAX_TIME='' OPT_API_KEY='' OPT_BASE_URL='' OPT_EFFORT='' OPT_THINKING='' OPT_OUTPUT_FORMAT=''
  OPT_RECORD='' OPT_MODE='' OPT_SESSION='' OPT_HAS_SESSION=0 OPT_CONTINUE=0 OPT_FORK=0 OPT_STAY=0 OPT_PRINT=0
  OPT_LIST=0 OPT_VERBOSE=0 OPT_INTERACTIVE=0 OPT_REQUIRE_SANDBOX=0 OPT_ASK=0 OPT_NO_MASK=0 OPT_PLAIN=0
  OPT_SKILLS=() OPT_IMAGES=() PROMPT_WORDS=()
  while (($#)); do
    word=$1
    shift
    # --option=value, and -pvalue
    case $word in
    --*=*)
      value=${word#*=}
      word=${word%%=*}
      [[ $word == --session ]] || option_variable variable "$word" || usage_error "unexpected value '$value' for '$word'"
      set -- "$value" "$@"
      [[ $word == --session ]] && OPT_HAS_SESSION=2 OPT_SESSION=$value && shift && continue
      ;;
    -[pm]?*)
      set -- "${word:2}" "$@"
      word=${word:0:2}
      ;;
    -[vihV][vihVpm]*)
      set -- "-${word:2}" "$@"
      word=${word:0:2}
      ;;
    esac
    case $word in
    --)
      while (($#)); do
        PROMPT_WORDS[${#PROMPT_WORDS[@]}]=$1
        shift
      done
      ;;
    -h | --help)
      usage_text
      exit 0
      ;;
    -V | --version)
      echo "bash-agent $VERSION"
      exit 0
      ;;
    --session)
      OPT_HAS_SESSION=1
      # A word that begins with `-` is no name.
      if (($#)) && [[ $1 != -* ]]; then
        OPT_SESSION=$1
        OPT_HAS_SESSION=2
        shift
      fi
      ;;
    --continue) OPT_CONTINUE=1 ;;
    --fork) OPT_FORK=1 ;;
    --stay) OPT_STAY=1 ;;
    --print) OPT_PRINT=1 ;;
    --list-sessions) OPT_LIST=1 ;;
    --ask) OPT_ASK=1 ;;
    --require-sandbox) OPT_REQUIRE_SANDBOX=1 ;;
    --no-mask) OPT_NO_MASK=1 ;;
    --plain) OPT_PLAIN=1 ;;
    -v | --verbose) OPT_VERBOSE=1 ;;
    -i | --interactive) OPT_INTERACTIVE=1 ;;
    -?*)
      option_variable variable "$word" || usage_error "unexpected argument '$word' found"
      (($#)) || usage_error "a value is required for '$word' but none was supplied"
      [[ $1 == -?* && $variable != OPT_API_KEY ]] && usage_error "a value is required for '$word' but none was supplied"
      if [[ $variable == OPT_SKILL ]]; then
        OPT_SKILLS[${#OPT_SKILLS[@]}]=$1
      elif [[ $variable == OPT_IMAGE ]]; then
        OPT_IMAGES[${#OPT_IMAGES[@]}]=$1
      else
        [[ -z ${!variable} ]] || usage_error "the argument '$word' cannot be used multiple times"
        [[ -n $1 ]] || usage_error "a value is required for '$word' but none was supplied"
        printf -v "$variable" '%s' "$1"
      fi
      shift
      ;;
    *) PROMPT_WORDS[${#PROMPT_WORDS[@]}]=$word ;;
    esac
  done
  ((OPT_PRINT)) && [[ -n $OPT_OUTPUT_FORMAT ]] && usage_error "'--print' cannot be used with '--output-format'"
  ((OPT_HAS_SESSION && OPT_CONTINUE)) && usage_error "'--session' cannot be used with '--continue'"
  return 0
}

# ---- Values

parse_size() { # <result-var> <text>   digits with k, m or g; fails for anything else
  local ps_digits=$2 ps_factor=1
  case $ps_digits in
  *[kK]) ps_factor=1000 ;;
  *[mM]) ps_factor=1000000 ;;
  *[gG]) ps_factor=1000000000 ;;
  esac
  ((ps_factor > 1)) && ps_digits=${ps_digits%?}
  [[ $ps_digits =~ ^[0-9]{1,18}$ ]] || return 1
  ps_digits=$((10#$ps_digits))
  ((ps_digits > 0 && ps_digits <= 9223372036854775807 / ps_factor)) || return 1
  printf -v "$1" '%d' $((ps_digits * ps_factor))
}

SIZE_HELP="give a number above 0, such as 16384, 200k or 1m"

need_size() { # <result-var> <text> [what]
  parse_size "$1" "$2" ||
    usage_error "${3:+$3: }'$2' is no size: $SIZE_HELP"
}

COUNT_HELP="give a whole number above 0"

is_count() { [[ $1 =~ ^[0-9]{1,18}$ ]] && ((10#$1 > 0)); } # <text>

need_count() { # <result-var> <text> <kind>   a whole number above 0
  is_count "$2" || usage_error "'$2' is no $3: $COUNT_HELP"
  printf -v "$1" '%d' $((10#$2))
}

need_choice() { # <result-var> <what> <text> <word>…
  local nc_var=$1 nc_what=$2 nc_text=$3 nc_word nc_all=
  shift 3
  for nc_word; do
    if [[ $nc_word == "$nc_text" ]]; then
      printf -v "$nc_var" '%s' "$nc_word"
      return 0
    fi
    nc_all=$nc_all${nc_all:+, }$nc_word
  done
  usage_error "unknown $nc_what '$nc_text': give one of $nc_all"
}
