/* The files that a session reaches: each path of a program passes through one door.
 *
 * A program names files by `use "path"` and by the builtins of files (lang/builtin/b_files.c, its
 * siblings, b_save.c), which all come here by runtime/file.h and runtime/folder.h. The host may
 * refuse all files, or those outside of a folder, or be asked each time. Files that the host names
 * itself (the file that it runs, folders of modules, the cache, the spill file) take no door. */
#ifndef CKL_RUNTIME_DOOR_H
#define CKL_RUNTIME_DOOR_H

#include <limits.h>

#include "runtime/err.h"
#include "runtime/mem.h"

typedef struct Door {
  bool shut; /* no file at all */
  int dir;   /* only what lies below this folder; -1: everywhere */
  char *root;
  size_t root_size; /* its real path */
  /* Returns whether the program may open `path`, and may set *instead (NULL before) to another
   * path. NULL: the host is not asked. */
  bool (*ask)(void *ud, const char *path, bool write, const char **instead);
  void *ud;
  /* What a program writes to `-`, its standard output. NULL: descriptor 1. */
  void (*print)(void *ud, const char *bytes, size_t n);
  void *print_ud;
} Door;

/* `files`: NULL any, "" none, else a folder. False if the folder cannot be opened, or when out of
 * memory. */
bool door_open(Door *d, Mem *m, const char *files);
void door_close(Door *d, Mem *m);

/* A path after the door: the folder and the name to open. */
typedef struct Reached {
  int dir;             /* where `name` begins: a folder that door_leave closes, or AT_FDCWD */
  const char *name;    /* in `path`, or the caller's */
  bool plain;          /* only a plain file is accepted, and no link is followed */
  char path[PATH_MAX]; /* one path for an existing file, however the program spells it */
} Reached;

/* Takes a path through the door (NULL: any path may pass). False after err_set, or after err_closed
 * if the program may not open it; door_leave is not needed then. */
bool door_reach(const Door *d, const char *path, bool write, Reached *r, Err *e);
void door_leave(Reached *r);
/* Whether the program may read its standard input, which lies below no folder. */
bool door_standard(const Door *d, Err *e);

#endif
