# sandbox.sh - what confines a command (CONTRACT §12): the binary's sandbox where there is one, else bubblewrap, else nothing.
#
# SANDBOX_CHOICE comes from the configuration: auto, off, required, bubblewrap. Sets SANDBOX (core, bubblewrap, off, none),
# SANDBOX_TEXT (it in words, for `status`), CAGE (the words that go before a command) and CAGE_FILTER (the file that it
# reads from descriptor 8, or empty).

SANDBOX='' SANDBOX_TEXT='' SANDBOX_SAID=0 CAGE=() CAGE_FILTER='' MACHINE=''

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
  elif MACHINE=$(uname -m) && try_bwrap --seccomp 8 8< <(seccomp_filter "$MACHINE" 0000); then
    SANDBOX=bubblewrap
    SANDBOX_TEXT="bubblewrap and seccomp"
  elif try_bwrap; then
    SANDBOX=bubblewrap
    SANDBOX_TEXT="bubblewrap, without a seccomp filter on this machine ($MACHINE): Unix sockets stay reachable, the network is open or closed as a whole"
    MACHINE=
  elif is_sandbox_required; then
    SANDBOX_TEXT="none: neither Landlock nor bubblewrap; a sandbox is required, so no command runs"
  else
    SANDBOX_TEXT="none: neither Landlock nor bubblewrap; commands are only judged beforehand"
  fi
}

try_bwrap() { # <option>…
  bwrap --unshare-pid --unshare-ipc --unshare-net --ro-bind / / --proc /proc --dev /dev "$@" true >/dev/null 2>&1 </dev/null
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
  CAGE=() CAGE_FILTER=
  case $SANDBOX in
  core)
    CAGE=("$CORE" core sandbox)
    [[ $SANDBOX_CHOICE == bubblewrap ]] && CAGE[3]=--bubblewrap
    CAGE=("${CAGE[@]}" --session-dir "$S" --tmp "$TOOL_TMP" --private "$RUN" "$MODE_DIGITS" --)
    ;;
  bubblewrap)
    bwrap_words
    [[ -z $MACHINE ]] || filter_words || return 1
    add_words --
    ;;
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
  add_words --chdir "$CWD"
}

# The filter of the mode, made once.
filter_words() {
  CAGE_FILTER=$RUN/seccomp.$MODE_DIGITS
  if [[ ! -s $CAGE_FILTER ]] && ! seccomp_filter "$MACHINE" "$MODE_DIGITS" >"$CAGE_FILTER"; then
    rm -f -- "$CAGE_FILTER"
    fail "could not start bash in $CWD: no room for the sandbox's filter in $RUN"
    return 1
  fi
  add_words --seccomp 8
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

# ---- The seccomp filter that bubblewrap loads: that of src/policy/sandbox_filter.rs, whose test compares the two.

# Calls by number, in order. `uname -m` names the list.
SECCOMP_X86_64='41:socket 42:connect 44:sendto 46:sendmsg 50:listen 163:acct 164:settimeofday 167:swapon 168:swapoff 169:reboot
  170:sethostname 171:setdomainname 172:iopl 173:ioperm 175:init_module 176:delete_module 227:clock_settime 246:kexec_load
  248:add_key 249:request_key 250:keyctl 304:open_by_handle_at 307:sendmmsg 308:setns 313:finit_module 320:kexec_file_load
  321:bpf 425:io_uring_setup'
SECCOMP_GENERIC='89:acct 104:kexec_load 105:init_module 106:delete_module 112:clock_settime 142:reboot 161:sethostname
  162:setdomainname 170:settimeofday 198:socket 201:listen 203:connect 206:sendto 211:sendmsg 217:add_key 218:request_key
  219:keyctl 224:swapon 225:swapoff 265:open_by_handle_at 268:setns 269:sendmmsg 273:finit_module 280:bpf
  294:kexec_file_load 425:io_uring_setup'
# What the filter answers with: SECCOMP_RET_ALLOW, and SECCOMP_RET_ERRNO with EACCES.
SECCOMP_ALLOW=$((0x7fff0000)) SECCOMP_REFUSE=$((0x50000 + 13))

# The filter of a mode to stdout; fails for a machine whose calls are not known here.
seccomp_filter() { # <machine> <mode>
  local calls arch call any=0 SF_PROGRAM='' SF_RULES
  case $1 in
  x86_64)
    calls=$SECCOMP_X86_64 arch=$((0xc000003e))
    # Its second set of numbers for the same calls (x32) answers with ENOSYS.
    bpf 0x20 0 0 0
    bpf 0x35 0 1 $((0x40000000))
    bpf 0x06 0 0 $((0x50000 + 38))
    ;;
  aarch64) calls=$SECCOMP_GENERIC arch=$((0xc00000b7)) ;;
  riscv64) calls=$SECCOMP_GENERIC arch=$((0xc00000f3)) ;;
  *) return 1 ;;
  esac
  bpf 0x20 0 0 4
  bpf 0x15 1 0 "$arch"
  bpf 0x06 0 0 $((0x80000000))
  for call in $calls; do
    closed_call "${call#*:}" "$2" || continue
    ((any++)) || bpf 0x20 0 0 0
    bpf 0x15 0 1 "${call%%:*}"
    if [[ -n $SF_RULES ]]; then
      SF_PROGRAM=$SF_PROGRAM$SF_RULES
    else
      bpf 0x05 0 0 1
      bpf 0x05 0 0 2
      bpf 0x06 0 0 "$SECCOMP_REFUSE"
    fi
    bpf 0x06 0 0 "$SECCOMP_ALLOW"
  done
  bpf 0x06 0 0 "$SECCOMP_ALLOW"
  # shellcheck disable=SC2059 # the program is octal escapes
  printf "$SF_PROGRAM"
}

# Adds a step to SF_PROGRAM: a `struct sock_filter`.
bpf() { # <code> <jump if true> <jump if false> <value>
  local step
  printf -v step '\\%03o\\000\\%03o\\%03o\\%03o\\%03o\\%03o\\%03o' \
    "$1" "$2" "$3" $(($4 & 255)) $(($4 >> 8 & 255)) $(($4 >> 16 & 255)) $(($4 >> 24 & 255))
  SF_PROGRAM=$SF_PROGRAM$step
}

# Whether the mode closes a call; SF_RULES: with which arguments only (none: with all).
closed_call() { # <call> <mode>
  local system=${2:0:1} network=${2:2:1} services=0 kind
  # What listens on a Unix socket acts with rights of its own.
  (((${2:1:1} & 3) == 3)) && services=1
  SF_RULES=
  case $1 in
  io_uring_setup) ((network != 7 || !services)) ;;
  connect) (((network & 6) == 0)) ;;
  sendto | sendmmsg) (((network & 6) == 0)) && seccomp_rule 3 $((0x20000000)) $((0x20000000)) ;;
  sendmsg) (((network & 6) == 0)) && seccomp_rule 2 $((0x20000000)) $((0x20000000)) ;;
  listen) (((network & 1) == 0)) ;;
  socket)
    ((network == 0)) && return 0
    ((services)) || seccomp_rule 0 = 1
    if (((network & 6) == 0)); then
      # Only streams of TCP and Unix, and the kernel's own sockets (netlink), cannot send without a connect.
      for kind in 2 3 4 5 6 10; do seccomp_rule 0 ! 16 1 15 "$kind"; done
      seccomp_rule 0 ! 1 0 ! 2 0 ! 10 0 ! 16
      seccomp_rule 0 ! 16 2 ! 0 2 ! 6
    fi
    [[ -n $SF_RULES ]]
    ;;
  *) (((system & 1) == 0)) ;;
  esac
}

# Adds a rule to SF_RULES, which holds when all conditions do.
seccomp_rule() { # (<number of the argument> <= | ! | mask> <value>)…
  local SF_PROGRAM tests='' offset=1
  while (($#)); do
    SF_PROGRAM=
    bpf 0x20 0 0 $((16 + 8 * $1))
    case $2 in
    =) bpf 0x15 0 "$offset" "$3" ;;
    !) bpf 0x15 "$offset" 0 "$3" ;;
    *)
      bpf 0x54 0 0 "$2"
      bpf 0x15 0 "$offset" "$3"
      ;;
    esac
    # The last condition is looked at first.
    tests=$SF_PROGRAM$tests
    offset=$((offset + ${#SF_PROGRAM} / 32))
    shift 3
  done
  SF_PROGRAM=
  bpf 0x05 0 0 1
  bpf 0x05 0 0 $((offset + 1))
  SF_PROGRAM=$SF_PROGRAM$tests
  bpf 0x06 0 0 "$SECCOMP_REFUSE"
  SF_RULES=$SF_RULES$SF_PROGRAM
}
