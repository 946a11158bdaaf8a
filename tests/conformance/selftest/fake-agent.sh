#!/bin/sh
# A stand-in for an agent, for the runner's own test: its first word says what it does.
set -eu
session=$HOME/.bash-agent/projects/$(pwd -P | tr / -)/s
case $1 in
say) # OUT ERR CODE
  printf '%s' "$2"
  printf '%s' "$3" >&2
  exit "$4"
  ;;
ask) # BODY: prints the texts of the answer, ends with 1 where the answer is none
  curl -sSf -H "x-api-key: $ANTHROPIC_API_KEY" -d "$2" "$ANTHROPIC_BASE_URL/v1/messages" |
    sed -n 's/^data: .*"type":"text_delta","text":"\(.*\)"}}$/\1/p'
  ;;
listen) # prints the first line that comes
  mkdir -p "$session"
  mkfifo "$session/input.fifo"
  IFS= read -r line <>"$session/input.fifo"
  rm -r "$HOME/.bash-agent"
  printf '%s\n' "$line"
  ;;
write) # FILE TEXT: into the session
  mkdir -p "$session"
  printf '%s' "$3" >"$session/$2"
  ;;
wait) # until a signal comes
  mkfifo "$TMPDIR/never"
  echo ready
  read -r _ <>"$TMPDIR/never"
  ;;
typed) # prints the size of the terminal and the line that is typed
  printf 'ready %s\n' "$(stty size)"
  IFS= read -r line
  printf '%s\n' "$line"
  ;;
leave) # a process behind
  tail -f /dev/null >/dev/null 2>&1 &
  ;;
esac
