/* Files read as a whole and replaced as a whole.
 *
 * Invariant: at any moment the name of a file being replaced stands for the old bytes or for all of
 * the new ones; a temporary file outlives only a process that was killed. */
#include "runtime/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef O_CLOEXEC
#define O_CLOEXEC 0
#endif

enum { MOST_AT_ONCE = 1 << 30 }; /* systems move at most about 2 GiB per call */

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

/* ---- reading --------------------------------------------------------------------------------- */

static int open_at(const Reached *r, const char *name, int flags) {
  int fd;
  if (r->plain) flags |= O_NOFOLLOW | O_NONBLOCK; /* what a pipe would wait for */
  do fd = openat(r->dir, name, flags | O_CLOEXEC, 0666);
  while (fd < 0 && errno == EINTR);
  return fd;
}

/* What a path leads to; false after err_set where that may not be opened. *there: whether there is
 * anything. */
static bool look(const Reached *r, const char *shown, struct stat *st, bool *there, Err *e) {
  *there = !fstatat(r->dir, r->name, st, r->plain ? AT_SYMLINK_NOFOLLOW : 0);
  if (!*there) return errno == ENOENT || err_set(e, "%s: %s", shown, file_why(errno));
  if (S_ISDIR(st->st_mode)) return err_set(e, "%s: %s", shown, file_why(EISDIR));
  if (!r->plain || S_ISREG(st->st_mode)) return true;
  return err_closed(e, S_ISLNK(st->st_mode)
                           ? "`%s` is a link, and none is followed below the folder that this "
                             "program reaches"
                           : "`%s` is no plain file, and this program opens nothing else", shown);
}

static int open_reached(const Reached *r, const char *shown, int64_t *size, Err *e) {
  struct stat st;
  bool there;
  if (!look(r, shown, &st, &there, e)) return -1;
  int fd = open_at(r, r->name, O_RDONLY);
  if (fd < 0 || fstat(fd, &st) < 0) {
    err_set(e, "%s: %s", shown, file_why(errno));
  } else if (S_ISDIR(st.st_mode) || (r->plain && !S_ISREG(st.st_mode))) {
    err_set(e, "%s: was another file a moment ago", shown);
  } else {
    *size = S_ISREG(st.st_mode) ? (int64_t)st.st_size : -1;
    return fd;
  }
  if (fd >= 0) close(fd);
  return -1;
}

int file_open(const Mem *m, const char *path, int64_t *size, Err *e) {
  Reached r;
  if (!door_reach(m->door, path, false, &r, e)) return -1;
  int fd = open_reached(&r, path, size, e);
  door_leave(&r);
  return fd;
}

char *file_read(Mem *m, const char *path, size_t *n, Err *e) {
  Reached r;
  if (!door_reach(m->door, path, false, &r, e)) return NULL;
  char *text = file_read_reached(m, &r, path, n, e);
  door_leave(&r);
  return text;
}

char *file_read_reached(Mem *m, const Reached *r, const char *path, size_t *n, Err *e) {
  int64_t size;
  int fd = open_reached(r, path, &size, e);
  if (fd < 0) return NULL;
  /* the size is a hint: files in /proc say 0, others may grow */
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

/* ---- replacing ------------------------------------------------------------------------------- */

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

bool file_create(FileOut *f, Mem *m, const char *shown, Err *e) {
  char real[PATH_MAX];
  struct stat st;
  bool exists;
  *f = (FileOut){.mem = m, .fd = -1};
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
    f->fd = open_at(&f->at, path, O_WRONLY);
  } else {
    enum { NAME_ROOM = 48, TRIES = 100 };
    if (exists && !f->at.plain && realpath(path, real)) path = real;
    size_t folder = folder_length(path);
    f->temp_size = folder + NAME_ROOM + 1;
    f->temp = copy(m, path, folder, NAME_ROOM);
    if (!f->temp) {
      door_leave(&f->at);
      return err_nomem(e, shown);
    }
    for (int i = 0; i < TRIES && f->fd < 0; i++) {
      snprintf(f->temp + folder, NAME_ROOM, ".ckl-%ld-%d.tmp", (long)getpid(), i);
      f->fd = open_at(&f->at, f->temp, O_WRONLY | O_CREAT | O_EXCL);
      if (f->fd < 0 && errno != EEXIST) break;
    }
  }
  if (f->fd < 0) {
    int why = errno;
    mem_free(m, f->temp, f->temp_size);
    f->temp = NULL;
    door_leave(&f->at);
    if (why == ENOENT) return err_set(e, "%s: no such folder", shown);
    return err_set(e, "%s: %s", shown, file_why(why));
  }
  f->path_size = strlen(path) + 1;
  f->path = copy(m, path, f->path_size - 1, 0);
  if (!f->path) {
    file_cancel(f);
    return err_nomem(e, shown);
  }
  if (exists && f->temp) {
    int ignored = fchmod(f->fd, st.st_mode & 07777);
    (void)ignored; /* a file of somebody else gets our mode */
  }
  return true;
}

bool file_put(FileOut *f, const void *bytes, size_t n, Err *e) {
  const char *p = bytes;
  while (n) {
    ssize_t put = write(f->fd, p, n < MOST_AT_ONCE ? n : MOST_AT_ONCE);
    if (put > 0) {
      p += put;
      n -= (size_t)put;
    } else if (put == 0 || errno != EINTR) {
      return err_set(e, "%s: %s", f->path, put ? file_why(errno) : "the disk takes no more");
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

/* Makes the new name itself last; not every system and file system can, and the data are safe. */
static void sync_folder(FileOut *f) {
  size_t n = folder_length(f->temp);
  f->temp[n] = 0; /* the temporary name is not needed any more */
  int fd = open_at(&f->at, n ? f->temp : ".", O_RDONLY);
  if (fd < 0) return;
  int ignored = fsync(fd);
  (void)ignored;
  close(fd);
}

bool file_commit(FileOut *f, Err *e) {
  int failed = 0;
  if (f->temp && fsync(f->fd) != 0) failed = errno;
  if (close(f->fd) != 0 && !failed && errno != EINTR) failed = errno;
  f->fd = -1;
  if (f->temp && !failed && renameat(f->at.dir, f->temp, f->at.dir, f->path) != 0) failed = errno;
  if (failed) {
    err_set(e, "%s: %s", f->path, file_why(failed));
    file_cancel(f);
    return false;
  }
  if (f->temp) sync_folder(f);
  end(f);
  return true;
}

void file_cancel(FileOut *f) {
  if (f->fd >= 0) close(f->fd);
  if (f->temp) unlinkat(f->at.dir, f->temp, 0);
  end(f);
}
