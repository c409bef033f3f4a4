/* Folders: what is there, and names that come, go and change.
 *
 * In: paths of a program. Out: answers, names, changes of the disk. Idea: every path goes through
 * the door of the session and is then a name in an open folder, so the *at calls of the system see
 * what the door has seen. Invariant: where the door leads to plain files alone, no link is followed
 * or replaced by what it points to. */
#define _DEFAULT_SOURCE
#include "runtime/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/file.h"
#include "runtime/str.h"

static bool failed(const char *shown, int why, Err *e) {
  return err_set(e, "%s: %s", shown, file_why(why));
}

/* 0, or the errno of a look at what was reached. */
static int look(const Reached *r, struct stat *st) {
  return fstatat(r->dir, r->name, st, r->plain ? AT_SYMLINK_NOFOLLOW : 0) ? errno : 0;
}

/* Behind a door to plain files, links and devices are not even looked at. */
static bool closed(const Reached *r, const struct stat *st, const char *shown, Err *e) {
  if (!r->plain || S_ISREG(st->st_mode) || S_ISDIR(st->st_mode)) return false;
  err_closed(e, "`%s` is no plain file or folder, and this program reaches nothing else", shown);
  return true;
}

bool folder_has(const Mem *m, const char *path, bool *there, Err *e) {
  Reached r;
  struct stat st;
  Err why = {.text = ""};
  *there = false;
  if (!door_reach(m->door, path, false, &r, &why)) {
    /* a folder on the way may be missing: that is an answer */
    if (!why.closed && !why.nomem && !why.interrupted && *path) return true;
    if (e) *e = why;
    return false;
  }
  int error = look(&r, &st);
  door_leave(&r);
  if (!error && closed(&r, &st, path, e)) return false;
  *there = !error;
  return !error || error == ENOENT || error == ENOTDIR || failed(path, error, e);
}

int64_t folder_file_size(const Mem *m, const char *path, Err *e) {
  Reached r;
  struct stat st;
  if (!door_reach(m->door, path, false, &r, e)) return -1;
  int error = look(&r, &st);
  door_leave(&r);
  if (error) {
    failed(path, error, e);
  } else if (closed(&r, &st, path, e)) {
    return -1;
  } else if (S_ISREG(st.st_mode)) {
    return (int64_t)st.st_size;
  } else if (S_ISDIR(st.st_mode)) {
    failed(path, EISDIR, e);
  } else {
    err_set(e, "%s: is no plain file", path);
  }
  return -1;
}

/* ---- changes */

typedef enum Made { MADE, PARENT_MISSING, NOT_MADE } Made;

static Made make_one(const Mem *m, const char *path, Err *e) {
  Reached r;
  struct stat st;
  Err why = {.text = ""};
  if (!door_reach(m->door, path, true, &r, &why)) {
    if (e) *e = why;
    return why.closed ? NOT_MADE : PARENT_MISSING;
  }
  int error = mkdirat(r.dir, r.name, 0777) ? errno : 0;
  if (error == EEXIST && !look(&r, &st)) {
    if (S_ISDIR(st.st_mode)) error = 0;
    if (error) err_set(e, "%s: is there, and is no folder", path);
  } else if (error) {
    failed(path, error, e);
  }
  door_leave(&r);
  return !error ? MADE : error == ENOENT ? PARENT_MISSING : NOT_MADE;
}

/* Goes up to the first folder that is there or can be made, then down again. */
static bool make_all(const Mem *m, char *path, Err *e) {
  size_t n = strlen(path), end = n;
  for (;;) {
    char keep = path[end];
    path[end] = 0;
    Made made = make_one(m, path, e);
    path[end] = keep;
    if (made == NOT_MADE) return false;
    if (made == MADE) break;
    while (end && path[end - 1] != '/') end--;
    while (end && path[end - 1] == '/') end--;
    if (!end) return false;
  }
  while (end < n) {
    while (path[end] == '/') end++;
    while (path[end] && path[end] != '/') end++;
    char keep = path[end];
    path[end] = 0;
    Made made = make_one(m, path, e);
    path[end] = keep;
    if (made != MADE) return false;
  }
  return true;
}

bool folder_make(Mem *m, const char *path, Err *e) {
  size_t n = strlen(path);
  char *copy = mem_try(m, NULL, 0, n + 1);
  if (!copy) return err_nomem(e, path);
  memcpy(copy, path, n + 1);
  size_t cut = n;
  while (cut > 1 && copy[cut - 1] == '/') copy[--cut] = 0;
  bool ok = make_all(m, copy, e);
  mem_free(m, copy, n + 1);
  return ok;
}

/* Reaches a file that is to be changed by its name: a link counts as itself. */
static bool reach_file(const Mem *m, const char *path, Reached *r, Err *e) {
  struct stat st;
  if (!door_reach(m->door, path, true, r, e)) return false;
  int error = fstatat(r->dir, r->name, &st, AT_SYMLINK_NOFOLLOW) ? errno : 0;
  if (!error && S_ISDIR(st.st_mode)) error = EISDIR;
  if (!error && r->plain && !S_ISREG(st.st_mode))
    err_closed(e, "`%s` is no plain file, and this program changes nothing else", path);
  else if (error)
    failed(path, error, e);
  else
    return true;
  door_leave(r);
  return false;
}

bool folder_remove_file(const Mem *m, const char *path, Err *e) {
  Reached r;
  if (!reach_file(m, path, &r, e)) return false;
  int error = unlinkat(r.dir, r.name, 0) ? errno : 0;
  door_leave(&r);
  return !error || failed(path, error, e);
}

bool folder_rename_file(const Mem *m, const char *from, const char *to, Err *e) {
  Reached r, q;
  if (!reach_file(m, from, &r, e)) return false;
  bool ok = door_reach(m->door, to, true, &q, e);
  if (ok) {
    int error = renameat(r.dir, r.name, q.dir, q.name) ? errno : 0;
    door_leave(&q);
    if (error == ENOENT)
      ok = err_set(e, "%s: no such folder", to);
    else if (error == EXDEV)
      ok = err_set(e, "%s: is on another disk", to);
    else
      ok = !error || failed(to, error == ENOTEMPTY || error == EEXIST ? EISDIR : error, e);
  }
  door_leave(&r);
  return ok;
}

/* ---- listing */

bool folder_glob(const char *glob, const char *name) {
  const char *star = NULL, *from = NULL;
  while (*name) {
    uint32_t cp;
    int step = str_utf8(name, strlen(name), &cp);
    if (*glob == '*') {
      star = ++glob;
      from = name;
    } else if (*glob == '?') {
      glob++;
      name += step;
    } else if (*glob == *name) {
      glob++;
      name++;
    } else if (star) { /* the star takes one byte more */
      glob = star;
      name = ++from;
    } else {
      return false;
    }
  }
  while (*glob == '*') glob++;
  return !*glob;
}

typedef struct List {
  Arena *arena;
  const char **names;
  size_t count, cap;
} List;

static bool add(List *l, const char *name) {
  if (l->count == l->cap) {
    size_t cap = l->cap ? 2 * l->cap : 64;
    const char **more = arena_try(l->arena, cap * sizeof *more);
    if (!more) return false;
    if (l->count) memcpy(more, l->names, l->count * sizeof *more);
    l->names = more;
    l->cap = cap;
  }
  size_t n = strlen(name) + 1;
  char *copy = arena_try(l->arena, n);
  if (!copy) return false;
  memcpy(copy, name, n);
  l->names[l->count++] = copy;
  return true;
}

static int by_bytes(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool list(List *l, DIR *d, bool plain, const char *shown, const char *glob, Err *e) {
  const struct dirent *n;
  const Interrupt *stop = l->arena->mem->stop;
  for (;;) {
    if (interrupt_asked(stop)) return err_interrupted(e);
    errno = 0;
    if (!(n = readdir(d))) return !errno || failed(shown, errno, e);
    struct stat st;
    if (n->d_name[0] == '.' && glob[0] != '.') continue;
    if (!folder_glob(glob, n->d_name)) continue;
    if (fstatat(dirfd(d), n->d_name, &st, plain ? AT_SYMLINK_NOFOLLOW : 0)) continue;
    if (!S_ISREG(st.st_mode)) continue;
    if (!str_valid(n->d_name, strlen(n->d_name)))
      return err_set(e, "%s: the name of a file in it is not valid UTF-8", shown);
    if (!add(l, n->d_name)) return err_nomem(e, shown);
  }
}

bool folder_list(Arena *a, const char *path, const char *glob, const char ***names, size_t *count,
                 Err *e) {
  Reached r;
  struct stat st;
  if (!door_reach(a->mem->door, path, false, &r, e)) return false;
  if (!look(&r, &st) && closed(&r, &st, path, e)) {
    door_leave(&r);
    return false;
  }
  int fd = openat(r.dir, r.name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (r.plain ? O_NOFOLLOW : 0)),
      error = errno;
  bool plain = r.plain;
  door_leave(&r);
  if (fd < 0)
    return error == ENOTDIR  ? err_set(e, "%s: is no folder", path)
           : error == ENOENT ? err_set(e, "%s: no such folder", path)
                             : failed(path, error, e);
  DIR *d = fdopendir(fd);
  if (!d) {
    close(fd);
    return err_nomem(e, path);
  }
  List l = {.arena = a};
  bool ok = list(&l, d, plain, path, glob, e);
  closedir(d);
  if (ok && l.count) qsort(l.names, l.count, sizeof *l.names, by_bytes);
  *names = l.names;
  *count = l.count;
  return ok;
}
