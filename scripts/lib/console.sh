# console.sh - the `/commands` of a person at a terminal, the small twin of src/cli/console.rs. What the binary alone has does
# not go to the model: it is said to be missing.

console_help() {
  cat <<'END'
/help        these commands, and the keys
/status      what the session is doing, and its figures
/cost        tokens and dollars by kind and model
/sessions    the sessions of this directory
/image FILE  take an image into the session
/compact     summarise older messages now
/quit        end the session (also /exit, exit, quit, Ctrl+D)
END
  ((OPT_PLAIN)) && return 0
  cat <<'END'

Ctrl+R  searches the history              Ctrl+C  ends the turn, or the session
Ctrl+O  steers a turn from elsewhere      Ctrl+V  pastes an image
END
}

# A slash, a word, perhaps an argument; a path is none.
is_console() { # <line>
  [[ $1 =~ ^/[A-Za-z0-9?-]+([[:space:]].*)?$ ]]
}

# Outside a turn. What fails is said, and the prompt comes back.
do_console() { # <line>
  local name=${1%%[[:space:]]*} argument number
  toml_trim argument "${1#"$name"}"
  case $name in
  /help | '/?') console_help ;;
  /status | /cost) look_at_session "${name#/}" "--session=$SESSION" ;;
  /sessions) look_at_session sessions ;;
  /image)
    if [[ -z $argument ]]; then
      say_error "/image: which file? give its path"
    elif add_image number "$argument"; then
      print_line "[Image #$number] is in the session: name it so in what you ask"
    else
      say_error "$IMAGE_ERROR"
    fi
    ;;
  /compact) console_compact ;;
  /quit | /exit) finish 0 ;;
  /last | /plan | /model | /effort | /mode | /skill | /export | /clear | /fork | /resume)
    say_error "no command $name here, only the binary has it: /help lists what there is"
    ;;
  *) say_error "no command $name: /help lists them" ;;
  esac
  return 0
}

# As from another terminal: a command of its own, which reads the session's files.
look_at_session() { # <command> [argument…]
  (
    close_own
    trap - EXIT INT TERM HUP USR1 USR2 CONT PIPE
    exec "$BASH" "$AGENT_SELF" "$@" </dev/null
  )
}

console_compact() {
  IN_TURN=1
  printf '1\n' >"$RUN/busy_turn"
  compact manual
  IN_TURN=0
  : >"$RUN/busy_turn"
  [[ $COMPACTED == nothing ]] && say_warning "there is nothing to compact"
  INTERRUPTED=0
}
