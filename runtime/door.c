/* The door between a program and the files of the machine.
 *
 * In: paths as a program spells them. Out: a folder and a name in it to be opened there, or why
 * not. Idea: if a folder is set, `.` and `..` are removed from the text of the path before anything
 * is opened, and a path that leaves the folder is refused without a look at the disk. Then each
 * folder on the way is opened from the one before, never through a link, so the opened file lies
 * where the text says. Invariant: with a folder, no name that is opened holds `/` or is `..`.
 */
#define _DEFAULT_SOURCE /* realpath */
#include "runtime/door.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/file.h"

#ifndef O_PATH
#define O_PATH O_RDONLY
#endif

bool door_open(Door *d, Mem *m, const char *files) {
  char real[PATH_MAX];
  d->dir = -1;
  if (!files) return true;
  d->shut = !*files;
  if (d->shut) return true;
  if (!realpath(files, real)) return false;
  d->dir = open(real, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (d->dir < 0) return false;
  d->root_size = strlen(real) + 1;
  d->root = mem_try(m, NULL, 0, d->root_size);
  if (!d->root) {
    door_close(d, m);
    return false;
  }
  memcpy(d->root, real, d->root_size);
  return true;
}

void door_close(Door *d, Mem *m) {
  if (d->dir >= 0) close(d->dir);
  mem_free(m, d->root, d->root_size);
  d->dir = -1;
  d->root = NULL;
}

/* ---- paths by their text */

/* Appends the names of `path` to the absolute path in `out`; `..` removes the last name. False if
 * the path gets too long. */
static bool walk_text(char out[PATH_MAX], const char *path) {
  size_t n = strlen(out);
  while (*path) {
    size_t k = strcspn(path, "/");
    if (k == 2 && !memcmp(path, "..", 2)) {
      while (n && out[--n] != '/') continue;
    } else if (k && !(k == 1 && *path == '.')) {
      if (n + k + 2 > PATH_MAX) return false;
      out[n++] = '/';
      memcpy(out + n, path, k);
      n += k;
    }
    out[n] = 0;
    path += k;
    while (*path == '/') path++;
  }
  return true;
}

/* The part of `path` below `root` (a real path), "" for root itself; NULL if it leads elsewhere. */
static char *names_below(const char *root, char *path) {
  size_t n = strcmp(root, "/") ? strlen(root) : 0;
  if (strncmp(root, path, n) || (path[n] && path[n] != '/')) return NULL;
  return path[n] ? path + n + 1 : path + n;
}

/* ---- walking */

static bool not_there(const char *shown, int why, Err *e) {
  if (why == ELOOP || why == ENOTDIR)
    return err_closed(e,
                      "`%s`: no link is followed below the folder that this program reaches, "
                      "and a part of the path is one, or no folder",
                      shown);
  return err_set(e, "%s: %s", shown, file_why(why));
}

/* Opens all folders of `names` but the last name, each in the one before. */
static bool walk(const Door *d, char *names, const char *shown, Reached *r, Err *e) {
  int dir = -1;
  char *slash;
  while ((slash = strchr(names, '/')) != NULL) {
    *slash = 0;
    int next = openat(dir < 0 ? d->dir : dir, names, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int why = errno;
    *slash = '/';
    if (dir >= 0) close(dir);
    if (next < 0) return not_there(shown, why, e);
    dir = next;
    names = slash + 1;
  }
  if (dir < 0) dir = openat(d->dir, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (dir < 0) return err_set(e, "%s: %s", shown, file_why(errno));
  r->dir = dir;
  r->name = *names ? names : "."; /* the folder of the door itself */
  return true;
}

static bool reach_below(const Door *d, const char *path, const char *shown, Reached *r, Err *e) {
  r->plain = true;
  r->path[0] = 0;
  if (*path != '/') { /* the path of the working folder contains no link */
    char here[PATH_MAX];
    if (!getcwd(here, sizeof here)) return err_set(e, "%s: %s", shown, file_why(errno));
    if (!walk_text(r->path, here)) return err_set(e, "%s: %s", shown, file_why(ENAMETOOLONG));
  }
  if (!walk_text(r->path, path)) return err_set(e, "%s: %s", shown, file_why(ENAMETOOLONG));
  char *names = names_below(d->root, r->path);
  if (!names)
    return err_closed(e, "`%s` lies outside of the folder that this program reaches", shown);
  return walk(d, names, shown, r, e);
}

bool door_reach(const Door *d, const char *path, bool write, Reached *r, Err *e) {
  const char *shown = path;
  r->dir = AT_FDCWD;
  r->plain = false;
  if (!*path) return err_set(e, "the file name is empty");
  if (d && d->shut) return err_closed(e, "`%s`: this program reaches no files", shown);
  if (d && d->ask) {
    const char *instead = NULL;
    if (!d->ask(d->ud, path, write, &instead))
      return err_closed(e, "`%s`: the host does not let this program %s it", shown,
                        write ? "write" : "read");
    if (instead && *instead) path = instead;
  }
  if (d && d->dir >= 0) return reach_below(d, path, shown, r, e);
  r->name = path;
  if (realpath(path, r->path)) return true;
  size_t n = strlen(path); /* the path of a pipe or a new file does not resolve */
  if (n >= sizeof r->path) return err_set(e, "%s: %s", shown, file_why(ENAMETOOLONG));
  memcpy(r->path, path, n + 1);
  return true;
}

bool door_standard(const Door *d, Err *e) {
  const char *instead = NULL;
  if (!d) return true;
  if (d->shut || d->dir >= 0 || (d->ask && !d->ask(d->ud, "-", false, &instead)))
    return err_closed(e, "`-`: this program may not read its standard input");
  return true;
}

void door_leave(Reached *r) {
  if (r->dir >= 0) close(r->dir);
  r->dir = AT_FDCWD;
}
