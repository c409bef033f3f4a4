/* Files read as a whole and replaced as a whole.
 *
 * Invariant: at any moment the name of a file being replaced refers to the old bytes or to all of
 * the new ones. A temporary file is left behind only by a process that was killed. */
#define _GNU_SOURCE /* O_TMPFILE */
#include "runtime/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifndef O_CLOEXEC
#define O_CLOEXEC 0
#endif

enum {
  MOST_AT_ONCE = 16 << 20, /* bytes between two tests for an interrupt */
  LOOK_MS = 50             /* time between the tests while the other side moves no bytes */
};

const char *file_why(int error) {
  switch (error) {
  case ENOENT: return "no such file";
  case ENOTDIR: return "a part of the path is not a folder";
  case EISDIR: return "is a folder";
  case EACCES:
  case EPERM: return "permission denied";
  case ENOSPC: return "no space left on the disk";
  case EDQUOT: return "the disk quota is used up";
  case EFBIG: return "the file would be too large";
  case EROFS: return "the file system is read-only";
  case ENAMETOOLONG: return "the name is too long";
  case ELOOP: return "too many symbolic links";
  case EMFILE:
  case ENFILE: return "too many open files";
  case EIO: return "the disk failed";
  case ENOMEM: return "out of memory";
  case ETXTBSY:
  case EBUSY: return "is in use";
  case EPIPE: return "nobody reads the other end";
  case EINVAL: return "the system does not do that with this file";
  default: return "the system refused";
  }
}

/* ---- reading */

static int open_at(const Mem *m, const Reached *r, const char *name, int flags) {
  int fd;
  if (r->plain) flags |= O_NOFOLLOW | O_NONBLOCK; /* do not wait for the other end of a pipe */
  do fd = openat(r->dir, name, flags | O_CLOEXEC, 0666);
  while (fd < 0 && errno == EINTR && !interrupt_asked(m->stop));
  return fd;
}

/* Opens a file that is not plain for writing. Waits for a reader if it is a pipe. */
static int open_pipe(const Mem *m, const Reached *r, const char *name) {
  for (;;) {
    int fd = open_at(m, r, name, O_WRONLY | O_NONBLOCK);
    if (fd >= 0 || errno != ENXIO || r->plain) return fd;
    if (interrupt_asked(m->stop)) {
      errno = EINTR;
      return -1;
    }
    poll(NULL, 0, LOOK_MS);
  }
}

/* Reports why a system call for a file failed; the reason may be an interrupt of the program. */
static bool failed_for(const Mem *m, const char *shown, int why, Err *e) {
  if (why == EINTR && interrupt_asked(m->stop)) return err_interrupted(e);
  return err_set(e, "%s: %s", shown, file_why(why));
}

/* Looks up the file of a path. False after err_set if it may not be opened. *there: it exists. */
static bool look(const Reached *r, const char *shown, struct stat *st, bool *there, Err *e) {
  *there = !fstatat(r->dir, r->name, st, r->plain ? AT_SYMLINK_NOFOLLOW : 0);
  if (!*there) return errno == ENOENT || err_set(e, "%s: %s", shown, file_why(errno));
  if (S_ISDIR(st->st_mode)) return err_set(e, "%s: %s", shown, file_why(EISDIR));
  if (!r->plain || S_ISREG(st->st_mode)) return true;
  return err_closed(e,
                    S_ISLNK(st->st_mode)
                        ? "`%s` is a link, and none is followed below the folder that this "
                          "program reaches"
                        : "`%s` is no plain file, and this program opens nothing else",
                    shown);
}

static int open_reached(const Mem *m, const Reached *r, const char *shown, int64_t *size, Err *e) {
  struct stat st;
  bool there;
  if (!look(r, shown, &st, &there, e)) return -1;
  int fd = open_at(m, r, r->name, O_RDONLY);
  if (fd < 0 || fstat(fd, &st) < 0) {
    failed_for(m, shown, errno, e);
  } else if (S_ISDIR(st.st_mode) || (r->plain && !S_ISREG(st.st_mode))) {
    err_set(e, "%s: was another file a moment ago", shown);
  } else {
    *size = S_ISREG(st.st_mode) ? (int64_t)st.st_size : -1;
    return fd;
  }
  if (fd >= 0) close(fd);
  return -1;
}

static bool is_standard(const char *path) {
  return path[0] == '-' && !path[1];
}

int file_open(const Mem *m, const char *path, int64_t *size, Err *e) {
  Reached r;
  if (is_standard(path)) {
    *size = -1;
    int fd = door_standard(m->door, e) ? dup(STDIN_FILENO) : -1;
    if (fd < 0 && (!e || !e->closed)) err_set(e, "%s: %s", path, file_why(errno));
    return fd;
  }
  if (!door_reach(m->door, path, false, &r, e)) return -1;
  int fd = open_reached(m, &r, path, size, e);
  door_leave(&r);
  return fd;
}

/* All bytes behind those that were read. Closes fd. */
static char *read_rest(Mem *m, int fd, int64_t size, const char *path, size_t *n, Err *e) {
  /* the size is a hint: files in /proc have size 0, others may grow */
  size_t cap = size > 0 && (uint64_t)size < PTRDIFF_MAX - 2 ? (size_t)size + 2 : 4096, have = 0;
  char *p = mem_try(m, NULL, 0, cap);
  bool ok = p || err_nomem(e, path);
  while (ok) {
    if (cap - have < 2) { /* room for one byte and the NUL */
      char *grown = cap > PTRDIFF_MAX / 2 ? NULL : mem_try(m, p, cap, 2 * cap);
      if (!grown) {
        ok = err_nomem(e, path);
        break;
      }
      p = grown;
      cap *= 2;
    }
    if (interrupt_asked(m->stop)) {
      ok = err_interrupted(e);
      break;
    }
    size_t room = cap - have - 1;
    ssize_t got = read(fd, p + have, room < MOST_AT_ONCE ? room : MOST_AT_ONCE);
    if (got == 0) break;
    if (got > 0) {
      have += (size_t)got;
    } else if (errno != EINTR) {
      ok = err_set(e, "%s: %s", path, file_why(errno));
    }
  }
  close(fd);
  if (ok && have + 1 < cap) {
    char *fit = mem_try(m, p, cap, have + 1);
    if (fit) {
      p = fit;
      cap = have + 1;
    } else {
      ok = err_nomem(e, path);
    }
  }
  if (!ok) {
    if (p) mem_free(m, p, cap);
    return NULL;
  }
  p[have] = 0;
  *n = have;
  return p;
}

char *file_read(Mem *m, const char *path, size_t *n, Err *e) {
  int64_t size;
  int fd = file_open(m, path, &size, e);
  return fd < 0 ? NULL : read_rest(m, fd, size, path, n, e);
}

char *file_read_reached(Mem *m, const Reached *r, const char *path, size_t *n, Err *e) {
  int64_t size;
  int fd = open_reached(m, r, path, &size, e);
  return fd < 0 ? NULL : read_rest(m, fd, size, path, n, e);
}

/* ---- reading at places */

bool file_in_open(FileIn *f, Mem *m, const char *path, Err *e) {
  int64_t size;
  *f = (FileIn){.mem = m, .name = path};
  f->fd = file_open(m, path, &size, e);
  if (f->fd < 0) return false;
  if (size > 0) {
    f->size = (uint64_t)size;
    return true;
  }
  size_t n; /* files in /proc have size 0 */
  f->bytes = read_rest(m, f->fd, size, path, &n, e);
  f->fd = -1;
  f->size = n;
  f->own = true;
  return f->bytes != NULL;
}

FileIn file_in_memory(const char *name, const void *bytes, size_t n) {
  return (FileIn){.name = name, .bytes = n ? bytes : "", .fd = -1, .size = n};
}

bool file_in_read(const FileIn *f, uint64_t at, void *to, uint64_t n, Err *e) {
  if (at > f->size || n > f->size - at) return err_set(e, "%s: ends too early", f->name);
  if (f->bytes) {
    if (n) memcpy(to, f->bytes + at, (size_t)n);
    return true;
  }
  char *p = to;
  while (n) {
    if (interrupt_asked(f->mem->stop)) return err_interrupted(e);
    ssize_t got = pread(f->fd, p, n < MOST_AT_ONCE ? (size_t)n : MOST_AT_ONCE, (off_t)at);
    if (got == 0) return err_set(e, "%s: became shorter while it was read", f->name);
    if (got > 0) {
      p += got;
      at += (uint64_t)got;
      n -= (uint64_t)got;
    } else if (errno != EINTR) {
      return err_set(e, "%s: %s", f->name, file_why(errno));
    }
  }
  return true;
}

const void *file_in_map(const FileIn *f, uint64_t at, uint64_t n, void **base, size_t *size,
                        Err *e) {
  if (at > f->size || n > f->size - at) {
    err_set(e, "%s: ends too early", f->name);
    return NULL;
  }
  if (f->fd < 0 || !n) {
    err_set(e, "%s: only bytes of a plain file can be mapped", f->name);
    return NULL;
  }
  uint64_t skip = at % (uint64_t)sysconf(_SC_PAGESIZE);
  *size = (size_t)(skip + n);
  *base = mmap(NULL, *size, PROT_READ, MAP_PRIVATE, f->fd, (off_t)(at - skip));
  if (*base != MAP_FAILED) return (const char *)*base + skip;
  if (errno == ENOMEM)
    err_nomem(e, f->name);
  else
    err_set(e, "%s: %s", f->name, file_why(errno));
  return NULL;
}

void file_unmap(void *base, size_t size) {
  munmap(base, size);
}

void file_in_close(FileIn *f) {
  if (f->fd >= 0) close(f->fd);
  if (f->own && f->bytes) mem_free(f->mem, (char *)f->bytes, (size_t)f->size + 1);
  f->bytes = NULL;
  f->fd = -1;
}

/* ---- replacing */

static char *copy(Mem *m, const char *s, size_t n, size_t more) {
  char *p = mem_try(m, NULL, 0, n + more + 1);
  if (p) {
    memcpy(p, s, n);
    p[n] = 0;
  }
  return p;
}

static size_t folder_length(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? (size_t)(slash - path) + 1 : 0;
}

enum { NAME_ROOM = 48, TRIES = 100 };

/* Opens a file without a name in the folder, so that nothing stays if the process is killed. Not
 * every file system can do this. */
static int open_nameless(FileOut *f) {
#ifdef O_TMPFILE
  f->temp[f->folder] = 0;
  f->nameless = true;
  int fd = open_at(f->mem, &f->at, f->folder ? f->temp : ".", O_WRONLY | O_TMPFILE);
  if (fd >= 0) return fd;
#endif
  f->nameless = false;
  return -1;
}

/* Gives the file a new name in the folder, f->temp; if fd < 0, opens a new file of that name.
 * Returns the descriptor, or -1 with errno. */
static int name_it(FileOut *f, int fd) {
  char link[32];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  for (int i = 0; i < TRIES; i++) {
    snprintf(f->temp + f->folder, NAME_ROOM, ".ckl-%ld-%d.tmp", (long)getpid(), i);
    int got = fd >= 0 ? linkat(AT_FDCWD, link, f->at.dir, f->temp, AT_SYMLINK_FOLLOW) ? -1 : fd
                      : open_at(f->mem, &f->at, f->temp, O_WRONLY | O_CREAT | O_EXCL);
    if (got >= 0 || errno != EEXIST) return got;
  }
  return -1;
}

/* Removes temporary files that killed processes have left in the folder: files of this user whose
 * process is gone, which nobody has locked (in another container the process has another number),
 * and which are not new (a file is locked a moment after it is made). */
static void collect(FileOut *f) {
  enum { OLD = 10 }; /* seconds */
  f->temp[f->folder] = 0;
  int folder = open_at(f->mem, &f->at, f->folder ? f->temp : ".", O_RDONLY | O_DIRECTORY);
  DIR *d = folder >= 0 ? fdopendir(folder) : NULL;
  if (!d && folder >= 0) close(folder);
  for (const struct dirent *n; d && (n = readdir(d));) {
    long pid = 0;
    int end = 0;
    struct stat st;
    if (sscanf(n->d_name, ".ckl-%ld-%*d.tmp%n", &pid, &end) != 1 || !end || n->d_name[end])
      continue;
    if (pid < 1 || kill((pid_t)pid, 0) == 0 || errno != ESRCH) continue;
    if (fstatat(folder, n->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode) ||
        st.st_uid != geteuid() || time(NULL) - st.st_mtime < OLD)
      continue;
    int fd = openat(folder, n->d_name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) unlinkat(folder, n->d_name, 0);
    if (fd >= 0) close(fd);
  }
  if (d) closedir(d);
}

/* Opens a temporary file with a name, for file systems without nameless files. */
static int open_named(FileOut *f) {
  collect(f);
  int fd = name_it(f, -1);
  if (fd >= 0) {
    int ignored = flock(fd, LOCK_EX | LOCK_NB);
    (void)ignored;
  }
  return fd;
}

bool file_create(FileOut *f, Mem *m, const char *shown, Err *e) {
  char real[PATH_MAX];
  struct stat st;
  bool exists;
  *f = (FileOut){.mem = m, .fd = -1, .at.dir = AT_FDCWD};
  if (is_standard(shown)) {
    f->print = true;
    return true;
  }
  if (!door_reach(m->door, shown, true, &f->at, e)) return false;
  const char *path = f->at.name;
  bool ok = look(&f->at, shown, &st, &exists, e);
  if (ok && exists && faccessat(f->at.dir, path, W_OK, 0) != 0)
    ok = err_set(e, "%s: %s", shown, file_why(errno));
  if (!ok) {
    door_leave(&f->at);
    return false;
  }
  if (exists && !S_ISREG(st.st_mode)) {
    f->fd = open_pipe(m, &f->at, path);
  } else {
    if (exists && !f->at.plain && realpath(path, real)) path = real;
    size_t folder = folder_length(path);
    f->temp_size = folder + NAME_ROOM + 1;
    f->temp = copy(m, path, folder, NAME_ROOM);
    if (!f->temp) {
      door_leave(&f->at);
      return err_nomem(e, shown);
    }
    f->folder = folder;
    f->fd = open_nameless(f);
    if (f->fd < 0) f->fd = open_named(f);
  }
  if (f->fd < 0) {
    int why = errno;
    mem_free(m, f->temp, f->temp_size);
    f->temp = NULL;
    door_leave(&f->at);
    if (why == ENOENT) return err_set(e, "%s: no such folder", shown);
    return failed_for(m, shown, why, e);
  }
  f->path_size = strlen(path) + 1;
  f->path = copy(m, path, f->path_size - 1, 0);
  if (!f->path) {
    file_cancel(f);
    return err_nomem(e, shown);
  }
  if (exists && f->temp) {
    int ignored = fchmod(f->fd, st.st_mode & 07777);
    (void)ignored; /* if this fails, the file has the mode of a new one */
  }
  return true;
}

/* The bytes that went out, or -1 with errno. */
static ssize_t put_some(FileOut *f, const char *p, size_t n) {
  const Door *d = f->mem->door;
  if (n > MOST_AT_ONCE) n = MOST_AT_ONCE;
  if (!f->print) return write(f->fd, p, n);
  if (!d) return write(STDOUT_FILENO, p, n);
  if (d->print) d->print(d->print_ud, p, n);
  return (ssize_t)n;
}

bool file_put(FileOut *f, const void *bytes, size_t n, Err *e) {
  const char *p = bytes;
  while (n) {
    if (interrupt_asked(f->mem->stop)) return err_interrupted(e);
    ssize_t put = put_some(f, p, n);
    if (put > 0) {
      p += put;
      n -= (size_t)put;
    } else if (put < 0 && errno == EAGAIN) { /* a full pipe */
      struct pollfd full = {.fd = f->fd, .events = POLLOUT};
      poll(&full, 1, LOOK_MS);
    } else if (put == 0 || errno != EINTR) {
      return err_set(e, "%s: %s", f->path ? f->path : "-",
                     put ? file_why(errno) : "the disk takes no more");
    }
  }
  return true;
}

static void end(FileOut *f) {
  mem_free(f->mem, f->path, f->path_size);
  mem_free(f->mem, f->temp, f->temp_size);
  f->path = f->temp = NULL;
  f->fd = -1;
  door_leave(&f->at);
}

/* Writes the folder with the new name to the disk. Not every system can do this; an error is
 * ignored, since the data are safe. */
static void sync_folder(FileOut *f) {
  size_t n = folder_length(f->temp);
  f->temp[n] = 0; /* the temporary name is not needed any more */
  int fd = open_at(f->mem, &f->at, n ? f->temp : ".", O_RDONLY);
  if (fd < 0) return;
  int ignored = fsync(fd);
  (void)ignored;
  close(fd);
}

/* Closes it; the old file stays. Like settle, it takes and frees no memory. */
static void drop(FileOut *f) {
  if (f->fd >= 0) close(f->fd);
  if (f->temp && !f->nameless) unlinkat(f->at.dir, f->temp, 0);
}

/* All of file_commit that may run on another thread: only f is touched, and no memory taken. */
static bool settle(FileOut *f, Err *e) {
  int failed = 0;
  if (f->temp && fsync(f->fd) != 0) failed = errno;
  if (f->nameless && !failed) {
    if (name_it(f, f->fd) < 0)
      failed = errno;
    else
      f->nameless = false;
  }
  if (f->fd >= 0 && close(f->fd) != 0 && !failed && errno != EINTR) failed = errno;
  f->fd = -1;
  if (f->temp && !failed && renameat(f->at.dir, f->temp, f->at.dir, f->path) != 0) failed = errno;
  if (failed) {
    drop(f);
    return err_set(e, "%s: %s", f->path, file_why(failed));
  }
  if (f->temp) sync_folder(f);
  return true;
}

bool file_commit(FileOut *f, Err *e) {
  bool ok = settle(f, e);
  end(f);
  return ok;
}

void file_cancel(FileOut *f) {
  drop(f);
  end(f);
}

struct FileLater {
  FileOut f;
  Mem *mem, calm; /* calm stands for mem in f: no interrupt ends the thread */
  bool (*put)(FileOut *f, void *ud, Err *e);
  void *ud;
  pthread_t thread;
  bool ok;
  Err e;
};

static void *live(void *p) {
  FileLater *l = p;
  l->ok = l->put(&l->f, l->ud, &l->e);
  if (l->ok)
    l->ok = settle(&l->f, &l->e);
  else
    drop(&l->f);
  return NULL;
}

FileLater *file_later(FileOut *f, bool (*put)(FileOut *f, void *ud, Err *e), void *ud) {
  sigset_t all, old;
  FileLater *l = f->temp ? mem_try(f->mem, NULL, 0, sizeof *l) : NULL;
  if (!l) return NULL;
  *l = (FileLater){.f = *f, .mem = f->mem, .put = put, .ud = ud};
  l->f.mem = &l->calm;
  l->f.at.name = l->f.path; /* f's may point into f */
  sigfillset(&all);         /* signals are for the threads of the host */
  pthread_sigmask(SIG_SETMASK, &all, &old);
  bool started = pthread_create(&l->thread, NULL, live, l) == 0;
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (started) return l;
  mem_free(l->mem, l, sizeof *l);
  return NULL;
}

bool file_later_end(FileLater *l, Err *e) {
  Mem *m = l->mem;
  pthread_join(l->thread, NULL);
  bool ok = l->ok;
  if (!ok) *e = l->e;
  l->f.mem = m;
  end(&l->f);
  mem_free(m, l, sizeof *l);
  return ok;
}

bool file_append(Mem *m, const char *path, const void *bytes, size_t n, Err *e) {
  FileOut f;
  struct stat st;
  bool there;
  if (is_standard(path)) return file_create(&f, m, path, e) && file_put(&f, bytes, n, e);
  f = (FileOut){.mem = m, .fd = -1, .path = (char *)path};
  if (!door_reach(m->door, path, true, &f.at, e)) return false;
  bool ok = look(&f.at, path, &st, &there, e);
  if (ok) {
    f.fd = there && !S_ISREG(st.st_mode)
               ? open_pipe(m, &f.at, f.at.name)
               : open_at(m, &f.at, f.at.name, O_WRONLY | O_APPEND | (there ? 0 : O_CREAT));
    if (f.fd < 0)
      ok = errno == ENOENT ? err_set(e, "%s: no such folder", path) : failed_for(m, path, errno, e);
  }
  ok = ok && file_put(&f, bytes, n, e);
  if (f.fd >= 0 && close(f.fd) != 0 && ok && errno != EINTR)
    ok = err_set(e, "%s: %s", path, file_why(errno));
  door_leave(&f.at);
  return ok;
}
