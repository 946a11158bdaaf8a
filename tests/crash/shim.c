/* Preloaded into the agent by tests/crash: counts the calls that change something below CRASH_BELOW and, at number
 * CRASH_AT, kills the process or makes the call fail. Every counted call is logged to CRASH_LOG before it is done.
 *
 * CRASH_MODE is one of
 *   count             only count
 *   kill-before       SIGKILL instead of the call
 *   kill-half         do half of the write, then SIGKILL (other calls: as kill-before)
 *   kill-after        do the call, then SIGKILL
 *   enospc-once       this one call fails with ENOSPC
 *   enospc-on         from here on everything that takes space fails with ENOSPC; the first write is done by half
 *   eio-once          this one call fails with EIO
 *   erofs-on          from here on every call fails with EROFS
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { TAKES_SPACE, GIVES_SPACE, SYNCS };

static char below[4096];
static size_t below_length;
static char mode[32];
static long at = -1;
static int log_fd = -1;
static atomic_long count;

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("CRASH_BELOW"), *log = getenv("CRASH_LOG");
  const char *number = getenv("CRASH_AT"), *name = getenv("CRASH_MODE");
  if (path && name) {
    snprintf(below, sizeof below, "%s", path);
    below_length = strlen(below);
    snprintf(mode, sizeof mode, "%s", name);
    at = number ? atol(number) : -1;
    if (log) log_fd = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  }
  /* What the agent starts runs undisturbed. */
  unsetenv("LD_PRELOAD");
  unsetenv("CRASH_BELOW");
}

static int is_below(const char *path) {
  return below_length && strncmp(path, below, below_length) == 0 &&
         (path[below_length] == '/' || path[below_length] == 0);
}

/* The path of a descriptor, or of a name relative to one; empty when it is none of ours. */
static void path_of(int dir, const char *name, char *out, size_t size) {
  char link[64];
  out[0] = 0;
  if (!below_length) return;
  if (name && name[0] == '/') {
    snprintf(out, size, "%s", name);
    return;
  }
  if (dir == AT_FDCWD) return;
  snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
  ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, out, size - 1);
  out[length > 0 ? length : 0] = 0;
  if (name && length > 0) snprintf(out + length, size - length, "/%s", name);
}

static void fail_with_kill(void) {
  syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
  for (;;) pause();
}

/* What to do with a call. */
enum verdict { DO, HALF_THEN_KILL, HALF, DO_THEN_KILL, FAIL };

static enum verdict judge(const char *name, const char *path, enum kind kind) {
  if (!is_below(path)) return DO;
  long number = atomic_fetch_add(&count, 1) + 1;
  if (log_fd >= 0) {
    char line[4400];
    int length = snprintf(line, sizeof line, "%ld %s %s\n", number, name, path + below_length);
    syscall(SYS_write, log_fd, line, length);
  }
  if (at < 0 || number < at) return DO;
  if (strcmp(mode, "erofs-on") == 0) return errno = EROFS, FAIL;
  if (strcmp(mode, "enospc-on") == 0) {
    if (kind != TAKES_SPACE) return DO;
    return errno = ENOSPC, number == at ? HALF : FAIL;
  }
  if (number != at) return DO;
  if (strcmp(mode, "kill-before") == 0) fail_with_kill();
  if (strcmp(mode, "kill-half") == 0) return HALF_THEN_KILL;
  if (strcmp(mode, "kill-after") == 0) return DO_THEN_KILL;
  if (strcmp(mode, "enospc-once") == 0) return kind == TAKES_SPACE ? (errno = ENOSPC, FAIL) : DO;
  if (strcmp(mode, "eio-once") == 0) return errno = EIO, FAIL;
  return DO;
}

/* For calls that cannot be done by half. */
#define GUARD(name, path, kind, call)                                  \
  do {                                                                 \
    enum verdict verdict_ = judge(name, path, kind);                   \
    if (verdict_ == HALF_THEN_KILL) fail_with_kill();                  \
    if (verdict_ == HALF || verdict_ == FAIL) return -1;               \
    long result_ = (call);                                             \
    if (verdict_ == DO_THEN_KILL) fail_with_kill();                    \
    return result_;                                                    \
  } while (0)

/* For writes; `half` is the same call with half of the bytes, or -1 when there are too few. */
#define GUARD_WRITE(name, path, whole, length, half)                   \
  do {                                                                 \
    enum verdict verdict_ = judge(name, path, TAKES_SPACE);            \
    if (verdict_ == FAIL || (verdict_ == HALF && (length) < 2)) return -1; \
    long result_ = verdict_ == HALF || verdict_ == HALF_THEN_KILL ? (half) : (whole); \
    if (verdict_ == HALF_THEN_KILL || verdict_ == DO_THEN_KILL) fail_with_kill(); \
    return result_;                                                    \
  } while (0)

static void regular_path(int fd, char *out, size_t size) {
  struct stat found;
  out[0] = 0;
  if (below_length && fstat(fd, &found) == 0 && !S_ISFIFO(found.st_mode)) path_of(fd, NULL, out, size);
}

ssize_t write(int fd, const void *bytes, size_t length) {
  char path[8192];
  regular_path(fd, path, sizeof path);
  GUARD_WRITE("write", path, syscall(SYS_write, fd, bytes, length), length,
              syscall(SYS_write, fd, bytes, length / 2));
}

ssize_t writev(int fd, const struct iovec *parts, int n) {
  char path[8192];
  regular_path(fd, path, sizeof path);
  GUARD_WRITE("writev", path, syscall(SYS_writev, fd, parts, n), n ? parts[0].iov_len : 0,
              syscall(SYS_write, fd, parts[0].iov_base, parts[0].iov_len / 2));
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset) {
  char path[8192];
  regular_path(fd, path, sizeof path);
  GUARD_WRITE("pwrite", path, syscall(SYS_pwrite64, fd, bytes, length, offset), length,
              syscall(SYS_pwrite64, fd, bytes, length / 2, offset));
}

ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t length, unsigned flags) {
  char path[8192];
  regular_path(to, path, sizeof path);
  GUARD_WRITE("copy_file_range", path, syscall(SYS_copy_file_range, from, from_at, to, to_at, length, flags), length,
              syscall(SYS_copy_file_range, from, from_at, to, to_at, (size_t)16, flags));
}

static int open_path(int dir, const char *name, int flags, mode_t permissions) {
  char path[8192];
  path[0] = 0;
  if (flags & O_CREAT) path_of(dir, name, path, sizeof path);
  GUARD("create", path, TAKES_SPACE, syscall(SYS_openat, dir, name, flags, permissions));
}

#define PERMISSIONS(flags)                      \
  mode_t permissions = 0;                       \
  if (flags & (O_CREAT | O_TMPFILE)) {          \
    va_list rest;                               \
    va_start(rest, flags);                      \
    permissions = va_arg(rest, int);            \
    va_end(rest);                               \
  }

int open(const char *name, int flags, ...) {
  PERMISSIONS(flags)
  return open_path(AT_FDCWD, name, flags, permissions);
}

int open64(const char *name, int flags, ...) {
  PERMISSIONS(flags)
  return open_path(AT_FDCWD, name, flags | O_LARGEFILE, permissions);
}

int openat(int dir, const char *name, int flags, ...) {
  PERMISSIONS(flags)
  return open_path(dir, name, flags, permissions);
}

int openat64(int dir, const char *name, int flags, ...) {
  PERMISSIONS(flags)
  return open_path(dir, name, flags | O_LARGEFILE, permissions);
}

int rename(const char *from, const char *to) {
  GUARD("rename", to, GIVES_SPACE, syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

int renameat(int from_dir, const char *from, int to_dir, const char *to) {
  char path[8192];
  path_of(to_dir, to, path, sizeof path);
  GUARD("rename", path, GIVES_SPACE, syscall(SYS_renameat2, from_dir, from, to_dir, to, 0));
}

int unlink(const char *path) {
  GUARD("unlink", path, GIVES_SPACE, syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}

int unlinkat(int dir, const char *name, int flags) {
  char path[8192];
  path_of(dir, name, path, sizeof path);
  GUARD("unlink", path, GIVES_SPACE, syscall(SYS_unlinkat, dir, name, flags));
}

int mkdir(const char *path, mode_t permissions) {
  GUARD("mkdir", path, TAKES_SPACE, syscall(SYS_mkdirat, AT_FDCWD, path, permissions));
}

int mkdirat(int dir, const char *name, mode_t permissions) {
  char path[8192];
  path_of(dir, name, path, sizeof path);
  GUARD("mkdir", path, TAKES_SPACE, syscall(SYS_mkdirat, dir, name, permissions));
}

int mkfifo(const char *path, mode_t permissions) {
  GUARD("mkfifo", path, TAKES_SPACE, syscall(SYS_mknodat, AT_FDCWD, path, permissions | S_IFIFO, 0));
}

int ftruncate64(int fd, off64_t length) {
  char path[8192];
  regular_path(fd, path, sizeof path);
  GUARD("truncate", path, GIVES_SPACE, syscall(SYS_ftruncate, fd, length));
}

int fsync(int fd) {
  char path[8192];
  regular_path(fd, path, sizeof path);
  GUARD("fsync", path, SYNCS, syscall(SYS_fsync, fd));
}

int fdatasync(int fd) {
  char path[8192];
  regular_path(fd, path, sizeof path);
  GUARD("fdatasync", path, SYNCS, syscall(SYS_fdatasync, fd));
}
