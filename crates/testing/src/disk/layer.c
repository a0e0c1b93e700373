/* Interposes on the file calls of a process on one folder, for tests: loaded with LD_PRELOAD.
 *
 * Each function is active only if its variable is set:
 * - DISK_LAYER_LOG: records every call that changes a file or a name in the folder, in the order in which the calls took
 *   effect, and everything the process writes to standard output. Tests derive from the log the content of a disk after a
 *   power cut at any call.
 * - DISK_LAYER_ROOM: lets the files of the folder grow by this number of bytes and then fails like a full disk, as long as
 *   the file DISK_LAYER_ROOM_FILE does not exist.
 * - DISK_LAYER_NO_SYNC_FILE: makes every sync fail as long as this file exists.
 * - DISK_LAYER_HURRY: makes sleeping take no time.
 *
 * A file belongs to the folder (DISK_LAYER_FOLDER) if its path, as opened, starts with that of the folder. Memory maps are
 * not intercepted: nothing that matters may be written through one.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define FILES 4096
#define EXPORT __attribute__((visibility("default")))

/* Held around call and record, so that the log has the calls in the order in which they took effect. */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static atomic_char watched[FILES];
static char folder[PATH_MAX];
static size_t folder_length;
static int log_file = -1;
static const char *room_file;
static const char *no_sync_file;
static int64_t room = -1;
static int hurry;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("DISK_LAYER_FOLDER");
    const char *log = getenv("DISK_LAYER_LOG");
    const char *bytes = getenv("DISK_LAYER_ROOM");
    room_file = getenv("DISK_LAYER_ROOM_FILE");
    no_sync_file = getenv("DISK_LAYER_NO_SYNC_FILE");
    hurry = getenv("DISK_LAYER_HURRY") != NULL;
    if (!path || strlen(path) >= sizeof folder) return;
    strcpy(folder, path);
    folder_length = strlen(folder);
    if (log) {
        log_file = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        if (log_file < 0) abort();
    }
    if (bytes) room = atoll(bytes);
}

static int exists(const char *path) {
    return syscall(SYS_faccessat, AT_FDCWD, path, F_OK) == 0;
}

static int is_watched(int fd) {
    return fd >= 0 && fd < FILES && atomic_load(&watched[fd]);
}

/* Returns the path relative to the folder, or NULL if it is outside. The folder itself is the empty path. */
static const char *inside(const char *path, char *buffer) {
    if (!folder_length || !path) return NULL;
    if (path[0] != '/') {
        if (!getcwd(buffer, PATH_MAX) || strlen(buffer) + strlen(path) + 2 > PATH_MAX) return NULL;
        strcat(buffer, "/");
        strcat(buffer, path);
        path = buffer;
    }
    if (strncmp(path, folder, folder_length) != 0) return NULL;
    if (path[folder_length] == 0) return path + folder_length;
    return path[folder_length] == '/' ? path + folder_length + 1 : NULL;
}

struct __attribute__((packed)) record {
    uint8_t call;
    uint32_t process;
    int32_t fd;
    uint64_t number;
    uint32_t first;
    uint32_t second;
};

static void put(char call, int fd, uint64_t number, const void *first, size_t first_length, const char *second) {
    if (log_file < 0) return;
    size_t second_length = second ? strlen(second) : 0;
    struct record record = {(uint8_t)call, (uint32_t)getpid(), fd, number, (uint32_t)first_length,
                            (uint32_t)second_length};
    struct iovec parts[3] = {{&record, sizeof record}, {(void *)first, first_length}, {(void *)second, second_length}};
    ssize_t length = (ssize_t)(sizeof record + first_length + second_length);
    if (syscall(SYS_writev, log_file, parts, 3) != length) abort();
}

static void put_path(char call, int fd, uint64_t number, const char *path) {
    put(call, fd, number, path, strlen(path), NULL);
}

/* Free space. */

static int is_limited(void) {
    return room >= 0 && !(room_file && exists(room_file));
}

static int64_t size_of(int fd) {
    struct stat status;
    return fstat(fd, &status) == 0 ? status.st_size : 0;
}

/* Returns how much of a write fits, and reserves that space. */
static size_t take_room(int fd, int64_t offset, size_t count) {
    if (!is_limited()) return count;
    int64_t size = size_of(fd);
    int64_t growth = offset + (int64_t)count - size;
    if (growth <= 0) return count;
    if (growth <= room) {
        room -= growth;
        return count;
    }
    int64_t fits = size + room - offset;
    if (fits > 0) room = 0;
    return fits > 0 ? (size_t)fits : 0;
}

static void give_back(int64_t bytes) {
    if (room >= 0 && bytes > 0) room += bytes;
}

static int is_full(void) {
    return is_limited() && room <= 0;
}

/* Files. */

static int open_file(int at, const char *path, int flags, mode_t mode) {
    char buffer[PATH_MAX];
    const char *name = at == AT_FDCWD || path[0] == '/' ? inside(path, buffer) : NULL;
    if (!name) return (int)syscall(SYS_openat, at, path, flags, mode);
    pthread_mutex_lock(&turn);
    int creates = (flags & O_CREAT) && !exists(path);
    int fd = -1;
    if (creates && is_full()) {
        errno = ENOSPC;
    } else {
        fd = (int)syscall(SYS_openat, at, path, flags, mode);
    }
    if (fd >= FILES) abort();
    if (fd >= 0) {
        atomic_store(&watched[fd], 1);
        put_path('o', fd, (creates ? 1 : 0) | ((flags & O_TRUNC) ? 2 : 0), name);
    }
    pthread_mutex_unlock(&turn);
    return fd;
}

#define OPEN(at, path, flags) \
    va_list rest; \
    va_start(rest, flags); \
    mode_t mode = (flags) & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
    va_end(rest); \
    return open_file(at, path, flags, mode)

EXPORT int open(const char *path, int flags, ...) {
    OPEN(AT_FDCWD, path, flags);
}

EXPORT int open64(const char *path, int flags, ...) {
    OPEN(AT_FDCWD, path, flags);
}

EXPORT int openat(int at, const char *path, int flags, ...) {
    OPEN(at, path, flags);
}

EXPORT int openat64(int at, const char *path, int flags, ...) {
    OPEN(at, path, flags);
}

/* Needs no lock and no record: a descriptor that is reused is opened again. */
EXPORT int close(int fd) {
    if (fd >= 0 && fd < FILES) atomic_store(&watched[fd], 0);
    return (int)syscall(SYS_close, fd);
}

static ssize_t write_file(int fd, const void *bytes, size_t count, int64_t offset, int moves) {
    size_t fits = take_room(fd, offset, count);
    if (fits == 0 && count > 0) {
        errno = ENOSPC;
        return -1;
    }
    ssize_t written = moves ? syscall(SYS_write, fd, bytes, fits) : syscall(SYS_pwrite64, fd, bytes, fits, offset);
    if (written > 0) put('w', fd, (uint64_t)offset, bytes, (size_t)written, NULL);
    return written;
}

EXPORT ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset) {
    if (!is_watched(fd)) return syscall(SYS_pwrite64, fd, bytes, count, offset);
    pthread_mutex_lock(&turn);
    ssize_t written = write_file(fd, bytes, count, offset, 0);
    pthread_mutex_unlock(&turn);
    return written;
}

EXPORT ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset) {
    return pwrite(fd, bytes, count, offset);
}

EXPORT ssize_t write(int fd, const void *bytes, size_t count) {
    int says = fd == STDOUT_FILENO && log_file >= 0;
    if (!says && !is_watched(fd)) return syscall(SYS_write, fd, bytes, count);
    pthread_mutex_lock(&turn);
    ssize_t written;
    if (says) {
        /* Recorded before a reader can see it. */
        put('p', fd, 0, bytes, count, NULL);
        written = syscall(SYS_write, fd, bytes, count);
    } else {
        int appends = fcntl(fd, F_GETFL) & O_APPEND;
        written = write_file(fd, bytes, count, appends ? size_of(fd) : lseek(fd, 0, SEEK_CUR), 1);
    }
    pthread_mutex_unlock(&turn);
    return written;
}

EXPORT ssize_t writev(int fd, const struct iovec *parts, int count) {
    if (!is_watched(fd) && !(fd == STDOUT_FILENO && log_file >= 0)) return syscall(SYS_writev, fd, parts, count);
    ssize_t all = 0;
    for (int part = 0; part < count; part++) {
        if (parts[part].iov_len == 0) continue;
        ssize_t written = write(fd, parts[part].iov_base, parts[part].iov_len);
        if (written < 0) return all > 0 ? all : -1;
        all += written;
        if ((size_t)written < parts[part].iov_len) break;
    }
    return all;
}

EXPORT int ftruncate(int fd, off_t length) {
    if (!is_watched(fd)) return (int)syscall(SYS_ftruncate, fd, length);
    pthread_mutex_lock(&turn);
    int64_t before = size_of(fd);
    int done = (int)syscall(SYS_ftruncate, fd, length);
    if (done == 0) {
        give_back(before - length);
        put('t', fd, (uint64_t)length, NULL, 0, NULL);
    }
    pthread_mutex_unlock(&turn);
    return done;
}

EXPORT int ftruncate64(int fd, off64_t length) {
    return ftruncate(fd, length);
}

/* The record stands for the sync; the real disk is not synced. */
EXPORT int fsync(int fd) {
    if (is_watched(fd) && no_sync_file && exists(no_sync_file)) {
        errno = EIO;
        return -1;
    }
    if (!is_watched(fd) || log_file < 0) return (int)syscall(SYS_fsync, fd);
    pthread_mutex_lock(&turn);
    put('s', fd, 0, NULL, 0, NULL);
    pthread_mutex_unlock(&turn);
    return 0;
}

EXPORT int fdatasync(int fd) {
    return fsync(fd);
}

/* Names. */

static int unlink_any(const char *path, int flags) {
    char buffer[PATH_MAX];
    const char *name = inside(path, buffer);
    if (!name) return (int)syscall(SYS_unlinkat, AT_FDCWD, path, flags);
    pthread_mutex_lock(&turn);
    struct stat status;
    int64_t size = stat(path, &status) == 0 && S_ISREG(status.st_mode) ? status.st_size : 0;
    int done = (int)syscall(SYS_unlinkat, AT_FDCWD, path, flags);
    if (done == 0) {
        give_back(size);
        put_path('u', -1, 0, name);
    }
    pthread_mutex_unlock(&turn);
    return done;
}

EXPORT int unlink(const char *path) {
    return unlink_any(path, 0);
}

EXPORT int rmdir(const char *path) {
    return unlink_any(path, AT_REMOVEDIR);
}

EXPORT int mkdir(const char *path, mode_t mode) {
    char buffer[PATH_MAX];
    const char *name = inside(path, buffer);
    if (!name) return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
    pthread_mutex_lock(&turn);
    int done = -1;
    if (is_full() && !exists(path)) {
        errno = ENOSPC;
    } else {
        done = (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
    }
    if (done == 0) put_path('m', -1, 0, name);
    pthread_mutex_unlock(&turn);
    return done;
}

EXPORT int rename(const char *from, const char *to) {
    char from_buffer[PATH_MAX], to_buffer[PATH_MAX];
    const char *old = inside(from, from_buffer), *new = inside(to, to_buffer);
    if (!old || !new) return (int)syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to);
    pthread_mutex_lock(&turn);
    int done = (int)syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to);
    if (done == 0) put('r', -1, 0, old, strlen(old), new);
    pthread_mutex_unlock(&turn);
    return done;
}

/* Time. */

EXPORT int nanosleep(const struct timespec *time, struct timespec *left) {
    if (hurry) return sched_yield();
    return (int)syscall(SYS_nanosleep, time, left);
}
