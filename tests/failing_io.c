/* A disk that fails on request, and a clock that jumps, for LD_PRELOAD.
 *
 * Counts the operations that change what lies below one folder (open for writing, write, fsync, rename, truncate,
 * mkdir) and lets the Nth fail, once or from then on. It sits below every language in the process: Python, Rust
 * (safetensors) and C++ alike call libc.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static char root[PATH_MAX];
static long fail_at, *counter;
static int is_sticky, kills;

/* `count` is shared with the parent; at = 0 only counts. `kill`: SIGKILL instead of an error, before the operation. */
void fault_arm(const char *folder, long at, int sticky, int kill_instead, long *count) {
    snprintf(root, sizeof root, "%s/", folder);
    fail_at = at;
    is_sticky = sticky;
    kills = kill_instead;
    counter = count;
}

static int fails(void) {
    long number = __sync_add_and_fetch(counter, 1);
    int hit = fail_at > 0 && (number == fail_at || (is_sticky && number > fail_at));
    if (hit && kills) kill(getpid(), SIGKILL);
    return hit;
}

static int is_below(const char *path) { return counter && path && strncmp(path, root, strlen(root)) == 0; }

static int is_file_below(int fd) {
    char link[64], path[PATH_MAX];
    if (!counter) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return is_below(path);
}

#define REAL(type, name, ...) ((type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))
#define REFUSE(error) do { errno = (error); return -1; } while (0)

ssize_t write(int fd, const void *data, size_t size) {
    if (is_file_below(fd) && fails()) REFUSE(ENOSPC);
    return REAL(ssize_t, "write", int, const void *, size_t)(fd, data, size);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    if (is_file_below(fd) && fails()) REFUSE(ENOSPC);
    return REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t)(fd, data, size, at);
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
    if (is_file_below(fd) && fails()) REFUSE(ENOSPC);
    return REAL(ssize_t, "writev", int, const struct iovec *, int)(fd, parts, count);
}
int ftruncate64(int fd, off64_t size) {
    if (is_file_below(fd) && fails()) REFUSE(EIO);
    return REAL(int, "ftruncate64", int, off64_t)(fd, size);
}
int fsync(int fd) {
    if (is_file_below(fd) && fails()) REFUSE(EIO);
    return REAL(int, "fsync", int)(fd);
}
int rename(const char *from, const char *to) {
    if (is_below(to) && fails()) REFUSE(EIO);
    return REAL(int, "rename", const char *, const char *)(from, to);
}
int renameat(int a, const char *from, int b, const char *to) {
    if (is_below(to) && fails()) REFUSE(EIO);
    return REAL(int, "renameat", int, const char *, int, const char *)(a, from, b, to);
}
int mkdir(const char *path, mode_t mode) {
    if (is_below(path) && fails()) REFUSE(ENOSPC);
    return REAL(int, "mkdir", const char *, mode_t)(path, mode);
}

#define OPEN(name)                                                                                   \
    int name(const char *path, int flags, ...) {                                                     \
        va_list rest;                                                                                \
        va_start(rest, flags);                                                                       \
        mode_t mode = va_arg(rest, mode_t);                                                          \
        va_end(rest);                                                                                \
        if ((flags & (O_WRONLY | O_RDWR | O_CREAT)) && is_below(path) && fails()) REFUSE(ENOSPC);    \
        return REAL(int, #name, const char *, int, ...)(path, flags, mode);                          \
    }
OPEN(open)
OPEN(open64)
#undef OPEN
#define OPENAT(name)                                                                                 \
    int name(int at, const char *path, int flags, ...) {                                             \
        va_list rest;                                                                                \
        va_start(rest, flags);                                                                       \
        mode_t mode = va_arg(rest, mode_t);                                                          \
        va_end(rest);                                                                                \
        if ((flags & (O_WRONLY | O_RDWR | O_CREAT)) && is_below(path) && fails()) REFUSE(ENOSPC);    \
        return REAL(int, #name, int, const char *, int, ...)(at, path, flags, mode);                 \
    }
OPENAT(openat)
OPENAT(openat64)

/* Seconds by which the wall clock jumps at every look: ahead, back, ahead, ... The monotonic clock is left alone. */
static long jump_s;
static unsigned long looks;
void clock_arm(long seconds) { jump_s = seconds; }
static long jumped(void) { return __sync_add_and_fetch(&looks, 1) % 2 ? jump_s : -jump_s; }

int clock_gettime(clockid_t id, struct timespec *now) {
    int code = REAL(int, "clock_gettime", clockid_t, struct timespec *)(id, now);
    if (code == 0 && jump_s && id == CLOCK_REALTIME) now->tv_sec += jumped();
    return code;
}
int gettimeofday(struct timeval *now, void *zone) {
    int code = REAL(int, "gettimeofday", struct timeval *, void *)(now, zone);
    if (code == 0 && jump_s) now->tv_sec += jumped();
    return code;
}
time_t time(time_t *now) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (now) *now = found.tv_sec;
    return found.tv_sec;
}
