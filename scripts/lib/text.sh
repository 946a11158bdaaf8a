# text.sh - text and JSON in variables, without a process where a builtin will do.

# Plain: printable ASCII and blanks, neither quote nor backslash. Such text is its own JSON string.
is_plain() { # <text>
  [[ $1 != *[!\ !#-[\]-~]* ]]
}

json_string() { # <result-var> <text>   body of a JSON string, cleaned
  local js_text
  if is_plain "$2"; then
    printf -v "$1" '%s' "$2"
    return 0
  fi
  if has_core; then
    js_text=$(printf '%s' "$2" | run_core json escape)
    if core_did $? 'json escape'; then
      printf -v "$1" '%s' "$js_text"
      return 0
    fi
  fi
  printf -v "$1" '%s' "$(printf '%s.' "$2" | run_awk json_cli.awk -v op=escape -v mark=1)"
}

# Fields between programs: one line, \\ \t \n \r escaped.
escape_line() { # <result-var> <text>   for short texts
  local el_text=${2//\\/\\\\}
  el_text=${el_text//$'\t'/\\t}
  el_text=${el_text//$'\n'/\\n}
  printf -v "$1" '%s' "${el_text//$'\r'/\\r}"
}

unescape_line() { # <result-var> <line>
  # %b would read \0 and \x too, but only after a backslash, and every backslash of ours is doubled.
  printf -v "$1" '%b' "$2"
}

read_file() { # <result-var> <file>   all of it, line feeds at the end included; 0xFF for NUL, so that U+FFFD comes of it
  local rf_part='' rf_parts=() IFS=
  # (One that cannot be opened fails here.)
  while IFS= read -r -d '' rf_part; do rf_parts[${#rf_parts[@]}]=$rf_part$'\377'; done <"$2" || return 1
  printf -v "$1" '%s' "${rf_parts[*]+"${rf_parts[*]}"}$rf_part"
}

is_number() { # <text>   digits that fit a 64-bit counter
  [[ $1 =~ ^[0-9]{1,18}$ ]]
}
