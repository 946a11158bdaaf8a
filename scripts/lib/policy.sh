# policy.sh - the permission mode (CONTRACT §12): where a path leads, and what it needs.
#
# Globals it sets: REAL_HOME, REAL_BASE, REAL_S, REAL_RUN (resolved places), REAL (the path judged last).

# As in src/policy/mode.rs.
SYSTEM_DIRS=(/etc /boot /root /proc /sys /dev /var /run /private/etc /private/var /System)
RUNTIME_PATHS=(/usr /bin /sbin /lib /lib32 /lib64 /libx32 /opt /etc/ld.so.cache /etc/ld.so.preload /etc/ld.so.conf
  /etc/ld.so.conf.d /etc/locale.alias /etc/locale.conf /etc/localtime /etc/timezone /etc/ssl/certs /etc/ssl/openssl.cnf
  /etc/pki/tls/certs /etc/pki/ca-trust /etc/ca-certificates /etc/ca-certificates.conf /etc/resolv.conf /etc/hosts
  /etc/host.conf /etc/nsswitch.conf /etc/gai.conf /etc/services /etc/protocols /etc/alternatives /dev/null /dev/zero
  /dev/full /dev/random /dev/urandom)
SENSITIVE_IN_HOME=(.ssh .gnupg .aws .azure .kube .docker .config/gh .config/gcloud .config/op .password-store
  .local/share/keyrings .netrc .git-credentials .config/git/credentials .npmrc .pypirc .pgpass .my.cnf .vault-token
  .cargo/credentials .cargo/credentials.toml)

# Where a path really leads: links followed, `..` taken back, parts that do not exist kept as they are.
resolve_path() { # <result-var> <absolute path>
  local rp_rest=$2 rp_done='' rp_part rp_link rp_links=0
  while [[ -n $rp_rest ]]; do
    while [[ $rp_rest == /* ]]; do rp_rest=${rp_rest#/}; done
    rp_part=${rp_rest%%/*}
    if [[ $rp_rest == */* ]]; then rp_rest=${rp_rest#*/}; else rp_rest=''; fi
    case $rp_part in
    '' | .) continue ;;
    ..)
      rp_done=${rp_done%/*}
      continue
      ;;
    esac
    if [[ -L $rp_done/$rp_part ]]; then
      ((++rp_links > 40)) && return 1
      # A name may end in line feeds.
      rp_link=$(readlink -- "$rp_done/$rp_part" && printf x) || return 1
      rp_link=${rp_link%$'\nx'}
      [[ $rp_link == /* ]] && rp_done=''
      rp_rest=$rp_link/$rp_rest
    else
      rp_done=$rp_done/$rp_part
    fi
  done
  printf -v "$1" '%s' "${rp_done:-/}"
}

setup_places() {
  resolve_path REAL_HOME "${HOME:-/nowhere}"
  resolve_path REAL_BASE "$BASE"
  resolve_path REAL_S "$S"
  resolve_path REAL_RUN "$RUN"
  local part place
  LINKED_SECRETS=()
  for part in "${SENSITIVE_IN_HOME[@]}"; do
    [[ -L $REAL_HOME/$part ]] && resolve_path place "$REAL_HOME/$part" && LINKED_SECRETS[${#LINKED_SECRETS[@]}]=$place
  done
  [[ -z $TOOL_TMP ]] || resolve_path TOOL_TMP "$TOOL_TMP"
}

is_below() { # <path> <directory>
  [[ $1 == "$2" || $1 == "${2%/}"/* ]]
}

is_sensitive() { # <resolved path>   keys and credentials, wherever they lie
  local name=${1##*/} part home=${REAL_HOME:-${HOME:-}}
  if [[ -n $home ]]; then
    for part in "${SENSITIVE_IN_HOME[@]}"; do
      is_below "$1" "$home/$part" && return 0
    done
  fi
  for part in "${LINKED_SECRETS[@]+"${LINKED_SECRETS[@]}"}"; do
    is_below "$1" "$part" && return 0
  done
  # Public certificates carry the same suffix as keys.
  case $1 in
  /etc/ssl/certs/* | /usr/* | /etc/pki/* | /etc/ca-certificates/*) return 1 ;;
  esac
  case $name in
  *.[pP][eE][mM] | *.[kK][eE][yY] | .[eE][nN][vV]) return 0 ;;
  .env.example | .env.sample | .env.template | .env.dist) return 1 ;;
  .[eE][nN][vV].*) return 0 ;;
  id_rsa | id_dsa | id_ecdsa | id_ed25519 | id_ecdsa_sk | id_ed25519_sk | .netrc | .git-credentials | .pgpass) return 0 ;;
  esac
  return 1
}

is_runtime() { # <resolved path>   what running programs need to read
  local path
  for path in "${RUNTIME_PATHS[@]}"; do
    is_below "$1" "$path" && return 0
  done
  return 1
}

is_own() { # <resolved path>   in the agent's own directories
  is_below "$1" "$REAL_BASE" || is_below "$1" "$REAL_S" || is_below "$1" "$REAL_RUN"
}

scope_of() { # <result-var> <resolved path>   0 system, 1 external, 3 workspace: the digit of the mode
  local so_scope=1 so_dir
  if [[ $2 == "$REAL_S/plan.draft" || $2 == "$REAL_S/plan.md" ]]; then
    so_scope=3
  elif is_own "$2" || is_sensitive "$2"; then
    so_scope=0
  elif [[ -n $TOOL_TMP ]] && is_below "$2" "$TOOL_TMP"; then
    so_scope=3
  else
    is_below "$2" "$CWD" && so_scope=3
    for so_dir in "${SYSTEM_DIRS[@]}"; do
      is_below "$2" "$so_dir" || continue
      # A cwd inside a system directory is a workspace; a cwd of `/` does not turn /etc into one.
      if is_below "$CWD" "$so_dir" && is_below "$2" "$CWD"; then
        so_scope=3
      elif is_below "$REAL_HOME" "$so_dir" && is_below "$2" "$REAL_HOME"; then
        so_scope=1
      else
        so_scope=0
      fi
      break
    done
  fi
  printf -v "$1" '%d' "$so_scope"
}

refusal() { # <result-var> <required digits>
  printf -v "$1" '%s' "command blocked by bash safety policy (required=$2 allowed=$MODE_DIGITS; mode=system/external/network/workspace bits=4:read,2:write,1:execute)"
}

refuse() { # <required digits>
  local text
  refusal text "$1"
  fail "$text"
  R_REFUSED=$1
}

# Sets REAL to where ARG_path (or the path given) leads; fails, with a result, when the mode does not allow it.
judge_path() { # <path> <4 read | 2 write>
  local path=$1 scope required='0000'
  case $path in
  '')
    fail "no path provided"
    return 1
    ;;
  \~) path=${HOME:-} ;;
  \~/*) path=${HOME:-}/${path#??} ;;
  /*) ;;
  *) path=$CWD/$path ;;
  esac
  if ! resolve_path REAL "$path"; then
    fail "$1: Too many levels of symbolic links"
    return 1
  fi
  [[ $2 == 4 ]] && is_runtime "$REAL" && ! is_sensitive "$REAL" && return 0
  scope_of scope "$REAL"
  if (((${MODE_DIGITS:scope:1} & $2) == 0)); then
    required=${required:0:scope}$2${required:scope+1}
    refuse "$required"
    return 1
  fi
  if [[ $2 != 4 && $REAL != "$REAL_S/plan.draft" ]] && is_own "$REAL"; then
    fail "$REAL belongs to the agent and is closed to tools; only plan.draft can be written there"
    return 1
  fi
  return 0
}
