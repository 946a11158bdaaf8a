# sandbox.sh - what confines a command (CONTRACT §12): the binary's sandbox where there is one, else bubblewrap, else nothing.
#
# SANDBOX_CHOICE comes from the configuration: auto, off, required, bubblewrap. Sets SANDBOX (core, bubblewrap, off, none),
# SANDBOX_TEXT (it in words, for `status`) and CAGE (the words that go before a command).

SANDBOX='' SANDBOX_TEXT='' SANDBOX_SAID=0 CAGE=()

# What programs look into beyond RUNTIME_PATHS, as in src/policy/sandbox_linux.rs.
LIBRARY_PATHS=(/etc/passwd /etc/group /etc/shells /etc/login.defs /etc/gitconfig /etc/gitattributes /etc/inputrc /etc/profile
  /etc/bash.bashrc /etc/bashrc /etc/environment /etc/os-release /etc/lsb-release /etc/debian_version /etc/machine-id
  /etc/mime.types /etc/magic /etc/terminfo /etc/fonts /etc/ethers /etc/networks /etc/rpc /etc/crypto-policies /etc/pki
  /etc/python3 /etc/perl /etc/npmrc /etc/pip.conf /etc/wgetrc /etc/java /etc/maven /etc/gradle /etc/php
  /etc/ImageMagick-6 /etc/ImageMagick-7 /etc/vim /etc/manpath.config /nix/store /gnu/store /snap /sys/devices/system/cpu
  /sys/kernel/mm/transparent_hugepage /sys/fs/cgroup)
# What root keeps no more, as there.
DROPPED_CAPABILITIES=(DAC_READ_SEARCH LINUX_IMMUTABLE NET_ADMIN SYS_MODULE SYS_RAWIO SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT
  SYS_TIME SYS_TTY_CONFIG MKNOD AUDIT_WRITE AUDIT_CONTROL MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ
  PERFMON BPF CHECKPOINT_RESTORE)

# Looks once what there is.
setup_sandbox() {
  local flags=()
  [[ -z $SANDBOX ]] || return 0
  SANDBOX=none
  if [[ $SANDBOX_CHOICE == off ]]; then
    SANDBOX=off
    SANDBOX_TEXT="off: commands are only judged beforehand"
    return 0
  fi
  [[ $SANDBOX_CHOICE == bubblewrap ]] && flags=(--bubblewrap)
  if [[ -n ${CORE:-} ]] && SANDBOX_TEXT=$("$CORE" core sandbox "${flags[@]+"${flags[@]}"}" 0000 2>/dev/null </dev/null); then
    SANDBOX=core
  elif bwrap --unshare-pid --unshare-ipc --unshare-net --ro-bind / / --proc /proc --dev /dev true >/dev/null 2>&1 </dev/null; then
    SANDBOX=bubblewrap
    SANDBOX_TEXT="bubblewrap; the network is open or closed as a whole"
  elif is_sandbox_required; then
    SANDBOX_TEXT="none: neither Landlock nor bubblewrap; a sandbox is required, so no command runs"
  else
    SANDBOX_TEXT="none: neither Landlock nor bubblewrap; commands are only judged beforehand"
  fi
}

is_sandbox_required() {
  [[ $SANDBOX_CHOICE == required || $SANDBOX_CHOICE == bubblewrap ]]
}

is_confined() {
  setup_sandbox
  [[ $SANDBOX == core || $SANDBOX == bubblewrap ]]
}

# The words before a command into CAGE; fails, with a result, when it must not run free and nothing can hold it.
prepare_cage() {
  setup_sandbox
  CAGE=()
  case $SANDBOX in
  core)
    CAGE=("$CORE" core sandbox)
    [[ $SANDBOX_CHOICE == bubblewrap ]] && CAGE[3]=--bubblewrap
    CAGE=("${CAGE[@]}" --session-dir "$S" --tmp "$TOOL_TMP" --private "$RUN" "$MODE_DIGITS" --)
    ;;
  bubblewrap) bwrap_words ;;
  none)
    if is_sandbox_required; then
      fail "could not start bash in $CWD: a sandbox is required here, and there is none: neither Landlock nor bubblewrap; no command runs"
      return 1
    fi
    ((SANDBOX_SAID)) || say_warning "commands are not confined: this system has neither Landlock nor bubblewrap, or the binary is not there to use it; they are only judged beforehand (--require-sandbox runs none)"
    SANDBOX_SAID=1
    ;;
  esac
  return 0
}

# ---- bubblewrap: what the mode gives as mounts, and empty places over what is closed.

# Once: the links right below the root, with where they lead.
find_root_links() {
  local path
  ROOT_LINKS=()
  for path in /* /.[!.]*; do
    [[ -L $path ]] || continue
    ROOT_LINKS=("${ROOT_LINKS[@]+"${ROOT_LINKS[@]}"}" --symlink "$(readlink -- "$path")" "$path")
  done
}

bwrap_words() {
  local system=${MODE_DIGITS:0:1} external=${MODE_DIGITS:1:1} network=${MODE_DIGITS:2:1} workspace=${MODE_DIGITS:3:1} path
  [[ -n ${ROOT_LINKS+set} ]] || find_root_links
  CAGE=(bwrap --unshare-pid --unshare-ipc "${ROOT_LINKS[@]+"${ROOT_LINKS[@]}"}")
  ((network)) || add_words --unshare-net
  for path in "${RUNTIME_PATHS[@]}" "${LIBRARY_PATHS[@]}"; do
    case $path in
    /dev/*) continue ;;
    # A link among them is followed.
    /etc/*) ;;
    *) [[ -e $path && ! -L $path ]] || continue ;;
    esac
    add_words --ro-bind-try "$path" "$path"
  done
  if ((external & 6)); then
    for path in /* /.[!.]*; do
      [[ -L $path || ! -e $path ]] || is_system "$path" || grant "$external" "$path"
    done
    grant "$external" "$REAL_HOME"
  fi
  if ((system & 6)); then
    for path in "${SYSTEM_DIRS[@]}"; do
      [[ $path == /proc || $path == /dev || ! -e $path ]] || grant "$system" "$path"
    done
  fi
  add_words --proc /proc --dev /dev
  if ((system & 2)); then
    add_words --dev-bind /dev /dev
  else
    # What root could change the machine with: bubblewrap itself does not close all of it everywhere.
    for path in sys sysrq-trigger fs irq bus acpi mtrr; do add_words --ro-bind-try "/proc/$path" "/proc/$path"; done
  fi
  if ((workspace & 6)); then grant "$workspace" "$CWD"; else add_words --tmpfs "$CWD" --remount-ro "$CWD"; fi
  close_places "$system"
  ((workspace & 6)) && grant "$workspace" "$TOOL_TMP"
  if ((workspace & 2)); then add_words --bind "$REAL_S/plan.draft" "$REAL_S/plan.draft"; fi
  if ((system & 4 || workspace & 4)); then add_words --ro-bind "$REAL_S/plan.md" "$REAL_S/plan.md"; fi
  ((system & 6)) || add_words --remount-ro "$REAL_BASE" --remount-ro /
  if ((EUID == 0 && !(system & 1))); then
    for path in "${DROPPED_CAPABILITIES[@]}"; do add_words --cap-drop "CAP_$path"; done
  fi
  add_words --chdir "$CWD" --
}

add_words() { # <word>…
  CAGE=("${CAGE[@]}" "$@")
}

is_system() { # <path right below the root>
  local dir
  for dir in "${SYSTEM_DIRS[@]}"; do [[ $1 == "$dir" ]] && return 0; done
  return 1
}

grant() { # <digit> <path>
  if (($1 & 2)); then add_words --bind-try "$2" "$2"; else add_words --ro-bind-try "$2" "$2"; fi
}

# The agent's own places and the credentials: closed, or with the system scope readable only to be read.
close_places() { # <system digit>
  local part path
  add_words --tmpfs "$REAL_RUN" --remount-ro "$REAL_RUN"
  if (($1 & 4)); then
    add_words --ro-bind "$REAL_BASE" "$REAL_BASE"
    return 0
  fi
  for part in "${SENSITIVE_IN_HOME[@]}"; do
    [[ -e $REAL_HOME/$part ]] || continue
    resolve_path path "$REAL_HOME/$part" || continue
    if [[ -d $path ]]; then
      add_words --tmpfs "$path" --remount-ro "$path"
    else
      add_words --ro-bind /dev/null "$path"
    fi
  done
  # Last, because it holds the way down to the plan.
  add_words --tmpfs "$REAL_BASE"
}
