# keys.sh - keys of ours in bash's line editor (CONTRACT §14): Ctrl+O steers the running turn with the line, Ctrl+V takes an image.
#
# They act where a prompt stands. In the editor's process: HOW says how the line was sent, `typed` or `steer`.

setup_keys() {
  set -o emacs
  # The terminal's own lnext would take Ctrl+V.
  bind 'set bind-tty-special-chars off' 2>/dev/null
  # One key each, as an older bash runs no command for a sequence of them.
  bind -x '"\C-]": HOW=steer' 2>/dev/null
  bind '"\C-o": "\C-]\C-m"' 2>/dev/null
  # An older one does not let a command change the line (READLINE_LINE).
  if ((BASH_VERSINFO[0] >= 4)); then bind -x '"\C-v": key_image' 2>/dev/null; fi
}

is_busy() {
  [[ -s $RUN/busy_turn ]]
}

# To the running turn, as `notify` does; a turn that has just ended is followed by one about it.
steer_turn() { # <line>
  encode_frames >"$RUN/steer.frame" < <(escape_fields USER_NOTIFY "$1")
  if send_within "$S/notify.fifo" "$RUN/steer.frame" 5; then
    remark "the turn hears of it before its next model call"
  else
    remark "it could not be sent: type it again"
  fi
  rm -f -- "$RUN/steer.frame"
}

remark() { # <text>   in a row of its own
  if ((COLOR)); then printf '\033[2m(%s)\033[0m\n' "$1"; else printf '(%s)\n' "$1"; fi
}

# ---- Keys. READLINE_LINE and READLINE_POINT are the line and the cursor, in characters of the person's locale.

key_insert() { # <text>
  READLINE_LINE=${READLINE_LINE:0:READLINE_POINT}$1${READLINE_LINE:READLINE_POINT}
  ((READLINE_POINT += ${#1}))
}

key_image() {
  local number
  if ! clipboard_image "$RUN/clipboard"; then
    remark "$CLIPBOARD_ERROR"
  elif ! add_image number "$RUN/clipboard"; then
    remark "${IMAGE_ERROR/"image $RUN/clipboard"/clipboard\'s image}"
  else
    key_insert "[Image #$number]"
  fi
  rm -f -- "$RUN/clipboard" "$RUN/clipboard.hex"
}

# The clipboard's image as a file, by whichever program is there to ask.
clipboard_image() { # <file>   fails with CLIPBOARD_ERROR
  CLIPBOARD_ERROR="to paste images install wl-paste or xclip, or use /image FILE"
  ask_clipboard "$1" wl-paste --no-newline --type image/png && return 0
  ask_clipboard "$1" xclip -selection clipboard -t image/png -o && return 0
  ask_clipboard "$1.hex" osascript -e 'get the clipboard as «class PNGf»' || return 1
  # AppleScript prints data as hexadecimal digits: «data PNGf8950…».
  printf '%b' "$(LC_ALL=C sed -n -e 's/^.*PNGf\([0-9A-Fa-f]*\).*$/\1/' -e 's/../\\x&/gp' "$1.hex")" >"$1"
  [[ -s $1 ]]
}

# Some wait for a selection that never comes: five seconds at most.
ask_clipboard() { # <file> <program> [argument…]
  local file=$1 pid tries=0
  shift
  command -v "$1" >/dev/null 2>&1 || return 1
  CLIPBOARD_ERROR="no image in the clipboard"
  "$@" >"$file" 2>/dev/null </dev/null 5>&- 6>&- &
  pid=$!
  while kill -0 "$pid" 2>/dev/null && ((tries++ < 50)); do sleep 0.1 2>/dev/null || { sleep 1 && ((tries += 9)); }; done
  kill -KILL "$pid" 2>/dev/null
  wait "$pid" 2>/dev/null && [[ -s $file ]]
}
