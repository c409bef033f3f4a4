/* Folders: what is there, and names that come, go and change. Paths pass the door of m; texts name
 * the path first, as those of file.h. */
#ifndef CKL_RUNTIME_FOLDER_H
#define CKL_RUNTIME_FOLDER_H

#include "runtime/door.h"

/* *there: a file or folder has that path. False after err_set if this cannot be known. */
bool folder_has(const Mem *m, const char *path, bool *there, Err *e);
/* Bytes of a plain file; -1 after err_set. */
int64_t folder_file_size(const Mem *m, const char *path, Err *e);
/* Makes a folder and those above it; one that is there stays. */
bool folder_make(Mem *m, const char *path, Err *e);
bool folder_remove_file(const Mem *m, const char *path, Err *e);
/* A file that has the new name is replaced. */
bool folder_rename_file(const Mem *m, const char *from, const char *to, Err *e);

/* The names of the plain files of a folder that match `glob`, sorted by their bytes: `*` stands for
 * any characters, `?` for one. Names that begin with a dot match only a glob that does. A name that
 * matches and is not valid UTF-8 is an error. All is on the arena. */
bool folder_list(Arena *a, const char *path, const char *glob, const char ***names, size_t *count,
                 Err *e);
bool folder_glob(const char *glob, const char *name);

#endif
