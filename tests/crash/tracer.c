/* Runs a program and everything it starts under ptrace (tests/crash): counts the system calls of all of them that change
 * something below a directory and, at number AT, kills or makes the call fail. Every counted call is logged first.
 *
 *   tracer BELOW MODE AT LOG SHADOW PROGRAM [ARGUMENT...]
 *
 * MODE is one of
 *   count             only count
 *   kill-before       SIGKILL to the calling process instead of the call
 *   kill-half         half of the write, then SIGKILL (other calls: as kill-before)
 *   kill-after        the call, then SIGKILL
 *   all-before, all-half, all-after    the same, but SIGKILL to every process
 *   main-before       SIGKILL to PROGRAM itself; who makes the call goes on
 *   enospc-once       this one call fails with ENOSPC
 *   enospc-on         from here on everything that takes space fails with ENOSPC; the first write is done by half
 *   eio-once          this one call fails with EIO
 *   erofs-on          from here on every call fails with EROFS
 *
 * SHADOW, if not empty, is a directory that gets what is sure to be on the disk: for each fsync or fdatasync of a file
 * its content as SHADOW/KEY, for that of a directory (BELOW's parent too) its entries as SHADOW/KEY.dir, lines of
 * `f|d|o KEY NAME`. KEY is the inode's number and time of birth.
 *
 * Ends as PROGRAM ends, once all are gone.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef __x86_64__
#error "the registers of other machines are not known here"
#endif

enum kind { TAKES_SPACE, GIVES_SPACE, SYNCS };
enum shape { FD, PATH, DIR_PATH, DIR_PATH2 };

/* Calls, and where their path is: a descriptor, a path, a directory and a path; DIR_PATH2: the second such pair. */
static const struct call {
  long nr;
  const char *name;
  enum kind kind;
  enum shape shape;
  int first; /* the argument where it begins */
  int length; /* the argument that can be halved, or -1 */
} calls[] = {
  {SYS_write, "write", TAKES_SPACE, FD, 0, 2},
  {SYS_pwrite64, "pwrite", TAKES_SPACE, FD, 0, 2},
  {SYS_writev, "writev", TAKES_SPACE, FD, 0, -1},
  {SYS_copy_file_range, "copy_file_range", TAKES_SPACE, FD, 2, 4},
  {SYS_sendfile, "sendfile", TAKES_SPACE, FD, 0, 3},
  {SYS_splice, "splice", TAKES_SPACE, FD, 2, 4},
  {SYS_fallocate, "fallocate", TAKES_SPACE, FD, 0, -1},
  {SYS_open, "create", TAKES_SPACE, PATH, 0, -1},
  {SYS_openat, "create", TAKES_SPACE, DIR_PATH, 0, -1},
  {SYS_creat, "create", TAKES_SPACE, PATH, 0, -1},
  {SYS_mkdir, "mkdir", TAKES_SPACE, PATH, 0, -1},
  {SYS_mkdirat, "mkdir", TAKES_SPACE, DIR_PATH, 0, -1},
  {SYS_mknod, "mknod", TAKES_SPACE, PATH, 0, -1},
  {SYS_mknodat, "mknod", TAKES_SPACE, DIR_PATH, 0, -1},
  {SYS_link, "link", TAKES_SPACE, PATH, 1, -1},
  {SYS_linkat, "link", TAKES_SPACE, DIR_PATH2, 2, -1},
  {SYS_symlink, "symlink", TAKES_SPACE, PATH, 1, -1},
  {SYS_symlinkat, "symlink", TAKES_SPACE, DIR_PATH, 1, -1},
  {SYS_rename, "rename", GIVES_SPACE, PATH, 1, -1},
  {SYS_renameat, "rename", GIVES_SPACE, DIR_PATH2, 2, -1},
  {SYS_renameat2, "rename", GIVES_SPACE, DIR_PATH2, 2, -1},
  {SYS_unlink, "unlink", GIVES_SPACE, PATH, 0, -1},
  {SYS_unlinkat, "unlink", GIVES_SPACE, DIR_PATH, 0, -1},
  {SYS_rmdir, "rmdir", GIVES_SPACE, PATH, 0, -1},
  {SYS_truncate, "truncate", GIVES_SPACE, PATH, 0, -1},
  {SYS_ftruncate, "truncate", GIVES_SPACE, FD, 0, -1},
  {SYS_fsync, "fsync", SYNCS, FD, 0, -1},
  {SYS_fdatasync, "fdatasync", SYNCS, FD, 0, -1},
  {SYS_sync, "sync", SYNCS, FD, -1, -1},
};
#define CALLS (sizeof calls / sizeof calls[0])

static const char *below, *mode, *shadow;
static char parent[4096];
static size_t below_length;
static long at, count;
static int log_fd = -1;
static pid_t program;
static int all_die;

static void die(const char *what) {
  fprintf(stderr, "tracer: %s: %s\n", what, strerror(errno));
  exit(125);
}

static int is_below(const char *path) {
  return strncmp(path, below, below_length) == 0 && (path[below_length] == '/' || path[below_length] == 0);
}

static int is_mode(const char *name) { return strcmp(mode, name) == 0; }

/* ---- What is traced */

/* Lets the kernel stop only at the calls of the table, and of opens only at those that may create. */
static void install_filter(void) {
  struct sock_filter code[2 * CALLS + 16];
  size_t n = 0;
  const unsigned nr = offsetof(struct seccomp_data, nr), args = offsetof(struct seccomp_data, args);
  code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, nr);
  for (size_t i = 0; i < CALLS; i++) {
    if (calls[i].nr == SYS_open || calls[i].nr == SYS_openat) continue;
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i].nr, 0, 1);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
  }
  for (int i = 0; i < 2; i++) {
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, i ? SYS_openat : SYS_open, 0, 4);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, args + 8 * (i ? 2 : 1));
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_CREAT | O_TRUNC, 0, 1);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  }
  code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  struct sock_fprog filter = {.len = n, .filter = code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) die("seccomp");
}

static pid_t start(char **arguments) {
  int ready[2];
  if (pipe2(ready, O_CLOEXEC)) die("pipe");
  pid_t child = fork();
  if (child < 0) die("fork");
  if (child == 0) {
    char byte;
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 1) _exit(125);
    install_filter();
    execvp(arguments[0], arguments);
    die(arguments[0]);
  }
  const long options = PTRACE_O_TRACESECCOMP | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE |
                       PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL;
  if (ptrace(PTRACE_SEIZE, child, 0, options)) die("ptrace");
  if (write(ready[1], "x", 1) != 1) die("write");
  close(ready[0]);
  close(ready[1]);
  return child;
}

/* ---- Paths of a traced process */

static void read_string(pid_t pid, unsigned long address, char *out, size_t size) {
  unsigned long end = (address & ~4095UL) + 4096;
  size_t first = end - address < size ? end - address : size;
  struct iovec local = {out, first}, remote = {(void *)address, first};
  ssize_t got = process_vm_readv(pid, &local, 1, &remote, 1, 0);
  size_t length = got > 0 ? got : 0;
  if (length == first && !memchr(out, 0, length) && length < size) {
    local = (struct iovec){out + length, size - length};
    remote = (struct iovec){(void *)end, size - length};
    got = process_vm_readv(pid, &local, 1, &remote, 1, 0);
    length += got > 0 ? got : 0;
  }
  out[length < size ? length : size - 1] = 0;
}

static void read_link(char *out, size_t size, const char *format, pid_t pid, int fd) {
  char link[64];
  snprintf(link, sizeof link, format, pid, fd);
  ssize_t length = readlink(link, out, size - 1);
  out[length > 0 ? length : 0] = 0;
}

/* The path that a call is about; empty when it is none of ours. */
static void path_of(pid_t pid, const struct call *call, const unsigned long *args, char *out, size_t size) {
  char name[4096], link[64];
  struct stat found;
  out[0] = 0;
  if (call->first < 0) {
    snprintf(out, size, "%s", below);
    return;
  }
  if (call->shape == FD) {
    int fd = args[call->first];
    snprintf(link, sizeof link, "/proc/%d/fd/%d", pid, fd);
    if (stat(link, &found) || !(S_ISREG(found.st_mode) || S_ISDIR(found.st_mode))) return;
    read_link(out, size, "/proc/%d/fd/%d", pid, fd);
    if (strstr(out, " (deleted)")) out[0] = 0;
    return;
  }
  int has_dir = call->shape != PATH;
  read_string(pid, args[call->first + has_dir], name, sizeof name);
  if (name[0] == '/') {
    snprintf(out, size, "%s", name);
  } else {
    int dir = has_dir ? (int)args[call->first] : AT_FDCWD;
    if (dir == AT_FDCWD)
      read_link(out, size, "/proc/%d/cwd", pid, 0);
    else
      read_link(out, size, "/proc/%d/fd/%d", pid, dir);
    size_t length = strlen(out);
    snprintf(out + length, size - length, "/%s", name);
  }
  /* Opening a FIFO for writing changes nothing that is kept. */
  if (strcmp(call->name, "create") == 0 && lstat(out, &found) == 0 && S_ISFIFO(found.st_mode)) out[0] = 0;
}

/* ---- What is on the disk */

static int key_of(int dir, const char *name, char *out, size_t size) {
  struct statx found;
  if (statx(dir, name, AT_SYMLINK_NOFOLLOW | (*name ? 0 : AT_EMPTY_PATH), STATX_INO | STATX_BTIME | STATX_TYPE, &found)) return 0;
  int has_birth = (found.stx_mask & STATX_BTIME) != 0;
  snprintf(out, size, "%llu-%lld.%u", (unsigned long long)found.stx_ino,
           has_birth ? (long long)found.stx_btime.tv_sec : 0LL, has_birth ? found.stx_btime.tv_nsec : 0);
  return S_ISREG(found.stx_mode) ? 'f' : S_ISDIR(found.stx_mode) ? 'd' : 'o';
}

static FILE *open_shadow(const char *key, const char *end) {
  char path[8192];
  snprintf(path, sizeof path, "%s/%s%s", shadow, key, end);
  FILE *file = fopen(path, "we");
  if (!file) die(path);
  return file;
}

/* A descriptor's file or directory is as it is now on the disk. */
static void remember(int fd) {
  char key[128];
  int type = key_of(fd, "", key, sizeof key);
  if (type == 'f') {
    char bytes[65536];
    FILE *out = open_shadow(key, "");
    for (ssize_t length; (length = read(fd, bytes, sizeof bytes)) > 0;) fwrite(bytes, 1, length, out);
    fclose(out);
  } else if (type == 'd') {
    FILE *out = open_shadow(key, ".dir");
    DIR *entries = fdopendir(dup(fd));
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
      if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
      int kind = key_of(fd, entry->d_name, key, sizeof key);
      if (kind) fprintf(out, "%c %s %s\n", kind, key, entry->d_name);
    }
    if (entries) closedir(entries);
    fclose(out);
  }
}

static void remember_tree(const char *path) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return;
  remember(fd);
  lseek(fd, 0, SEEK_SET);
  DIR *entries = fdopendir(fd);
  if (!entries) {
    close(fd);
    return;
  }
  for (struct dirent *entry; (entry = readdir(entries));) {
    char child[8192];
    if (entry->d_name[0] == '.' && (!entry->d_name[1] || strcmp(entry->d_name, "..") == 0)) continue;
    snprintf(child, sizeof child, "%s/%s", path, entry->d_name);
    if (entry->d_type == DT_REG || entry->d_type == DT_DIR) remember_tree(child);
  }
  closedir(entries);
}

static void synced(pid_t pid, const struct call *call, const unsigned long *args) {
  char link[64];
  if (!*shadow) return;
  if (call->first < 0) {
    remember_tree(below);
    return;
  }
  snprintf(link, sizeof link, "/proc/%d/fd/%d", pid, (int)args[0]);
  int fd = open(link, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return;
  remember(fd);
  close(fd);
}

/* ---- The processes */

static pid_t group_of(pid_t thread) {
  char path[64], line[256];
  int group = thread;
  snprintf(path, sizeof path, "/proc/%d/status", thread);
  FILE *file = fopen(path, "re");
  while (file && fgets(line, sizeof line, file))
    if (sscanf(line, "Tgid: %d", &group) == 1) break;
  if (file) fclose(file);
  return group;
}

static pid_t tracees[65536];
static size_t tracee_count;
static char after[65536]; /* of a thread: kill when its call is done */

static void know(pid_t pid) {
  for (size_t i = 0; i < tracee_count; i++)
    if (tracees[i] == pid) return;
  if (tracee_count < sizeof tracees / sizeof *tracees) tracees[tracee_count++] = pid;
}

static void forget(pid_t pid) {
  for (size_t i = 0; i < tracee_count; i++)
    if (tracees[i] == pid) tracees[i] = tracees[--tracee_count];
}

static void kill_for(pid_t pid) {
  if (strncmp(mode, "all-", 4) == 0) {
    all_die = 1;
    for (size_t i = 0; i < tracee_count; i++) kill(tracees[i], SIGKILL);
  } else {
    kill(is_mode("main-before") ? program : group_of(pid), SIGKILL);
  }
}

/* Answers a call without doing it. */
static void fail_with(pid_t pid, struct user_regs_struct *regs, int error) {
  regs->orig_rax = -1;
  regs->rax = -error;
  ptrace(PTRACE_SETREGS, pid, 0, regs);
  ptrace(PTRACE_CONT, pid, 0, 0);
}

static void halve(pid_t pid, struct user_regs_struct *regs, const struct call *call) {
  unsigned long long *args[] = {&regs->rdi, &regs->rsi, &regs->rdx, &regs->r10, &regs->r8, &regs->r9};
  *args[call->length] /= 2;
  ptrace(PTRACE_SETREGS, pid, 0, regs);
}

static void do_then_kill(pid_t pid) {
  after[pid % sizeof after] = 1;
  ptrace(PTRACE_SYSCALL, pid, 0, 0);
}

static void disturb(pid_t pid, struct user_regs_struct *regs, const struct call *call, long number) {
  const char *dash = strrchr(mode, '-');
  int kills = strncmp(mode, "kill-", 5) == 0 || strncmp(mode, "all-", 4) == 0;
  int can_halve = call->length >= 0;
  if (is_mode("erofs-on")) return fail_with(pid, regs, EROFS);
  if (is_mode("enospc-on") && call->kind == TAKES_SPACE) {
    if (number > at || !can_halve) return fail_with(pid, regs, ENOSPC);
    halve(pid, regs, call);
  }
  if (number == at && is_mode("enospc-once") && call->kind == TAKES_SPACE) return fail_with(pid, regs, ENOSPC);
  if (number == at && is_mode("eio-once")) return fail_with(pid, regs, EIO);
  if (number == at && kills && strcmp(dash, "-half") == 0 && can_halve) {
    halve(pid, regs, call);
    return do_then_kill(pid);
  }
  if (number == at && kills && strcmp(dash, "-after") == 0) return do_then_kill(pid);
  if (number == at && (kills || is_mode("main-before"))) kill_for(pid);
  ptrace(PTRACE_CONT, pid, 0, 0);
}

static void called(pid_t pid) {
  struct user_regs_struct regs;
  char path[8192], line[8400];
  if (ptrace(PTRACE_GETREGS, pid, 0, &regs)) return;
  const unsigned long args[] = {regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9};
  const struct call *call = calls;
  while (call < calls + CALLS && call->nr != (long)regs.orig_rax) call++;
  if (call == calls + CALLS) {
    ptrace(PTRACE_CONT, pid, 0, 0);
    return;
  }
  path_of(pid, call, args, path, sizeof path);
  int ours = is_below(path);
  if (call->kind == SYNCS && (ours || strcmp(path, parent) == 0)) synced(pid, call, args);
  if (!ours) {
    ptrace(PTRACE_CONT, pid, 0, 0);
    return;
  }
  long number = ++count;
  int length = snprintf(line, sizeof line, "%ld %s %s\n", number, call->name, path + below_length);
  if (log_fd >= 0 && write(log_fd, line, length) != length) die("log");
  if (at > 0 && number >= at) disturb(pid, &regs, call, number);
  else ptrace(PTRACE_CONT, pid, 0, 0);
}

static void stopped(pid_t pid, int status) {
  int signal = WSTOPSIG(status), event = status >> 16;
  if (all_die) {
    kill(pid, SIGKILL);
  } else if (event == PTRACE_EVENT_SECCOMP) {
    called(pid);
  } else if (event == PTRACE_EVENT_STOP && signal != SIGTRAP) {
    ptrace(PTRACE_LISTEN, pid, 0, 0);
  } else if (event) {
    ptrace(PTRACE_CONT, pid, 0, 0);
  } else if (signal == (SIGTRAP | 0x80)) {
    if (after[pid % sizeof after]) kill_for(pid);
    after[pid % sizeof after] = 0;
    ptrace(PTRACE_CONT, pid, 0, 0);
  } else {
    ptrace(PTRACE_CONT, pid, 0, signal);
  }
}

static void too_long(int signal) { (void)signal; }

int main(int argc, char **argv) {
  if (argc < 7) return 125;
  below = argv[1], mode = argv[2], at = atol(argv[3]), shadow = argv[5];
  below_length = strlen(below);
  snprintf(parent, sizeof parent, "%.*s", (int)(strrchr(below, '/') - below), below);
  if (*argv[4]) log_fd = open(argv[4], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  program = start(argv + 6);
  /* Its streams end with those who write to them. */
  close(0);
  close(1);
  sigaction(SIGALRM, &(struct sigaction){.sa_handler = too_long}, NULL);
  int status, end = 0;
  for (pid_t pid; (pid = waitpid(-1, &status, __WALL)) > 0 || (errno == EINTR && !end);) {
    if (pid <= 0) continue;
    know(pid);
    if (WIFSTOPPED(status)) {
      stopped(pid, status);
      continue;
    }
    forget(pid);
    if (pid == program) {
      end = status ? status : 0x10000;
      /* What outlives it for long is killed with this process. */
      alarm(20);
    }
  }
  if (WIFSIGNALED(end)) {
    signal(WTERMSIG(end), SIG_DFL);
    raise(WTERMSIG(end));
  }
  return WEXITSTATUS(end);
}
