/* The cache of machine code on disk.
 *
 * In: loop text. Out: the object that was made of it before, or nothing. Idea: the folder is
 * opened once and checked (ours, 0700, no link), and files are reached through its handle, so
 * nobody can put another folder in its place. A file has a head, the text and the object; it is
 * written under another name and renamed, so that readers see all of it or nothing. Invariant: an
 * object is returned only if the whole text is equal and the checksum fits; names and hashes only
 * serve to find it.
 */
#define _GNU_SOURCE
#include "jit/engine/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "runtime/file.h"

enum {
  FORMAT = 1,
  NAME = 48,          /* hash, level, code generator, and the end */
  MOST = 1 << 28,     /* bytes of a text or an object */
  STALE = 3600,       /* seconds after which a file that was never renamed is dead */
  TOUCH_AFTER = 3600, /* seconds after which a use updates the time of the file */
};

typedef struct Head {
  char magic[8];
  uint32_t version, level;
  unsigned char build[CACHE_BUILD];
  uint32_t zero;
  uint64_t text_n, object_n;
  uint64_t sum; /* of text and object, seeded with the fields before it */
} Head;

_Static_assert(sizeof(Head) == 64, "the head has no gaps");

static const char magic[8] = "ckl-jit";

struct Cache {
  Mem *mem;
  int dir;
  int64_t limit, size; /* size: bytes of all files; -1 before they were counted */
  unsigned count;      /* files written; part of their temporary names */
};

/* ---- the folder */

static bool make_folders(const char *path, Err *e) {
  char part[PATH_MAX];
  size_t n = strlen(path);
  if (n >= sizeof part) return err_set(e, "%s: the name is too long", path);
  for (size_t i = 1; i <= n; i++) {
    if (path[i] != '/' && path[i]) continue;
    memcpy(part, path, i);
    part[i] = 0;
    if (mkdir(part, 0700) && errno != EEXIST && errno != EISDIR && i == n)
      return err_set(e, "%s: %s", path, file_why(errno));
  }
  return true;
}

static bool ours(int dir, const char *path, Err *e) {
  struct stat st;
  if (fstat(dir, &st)) return err_set(e, "%s: %s", path, file_why(errno));
  if (st.st_uid != geteuid()) return err_set(e, "%s: belongs to another user", path);
  if (st.st_mode & 077) return err_set(e, "%s: is open to others; its mode should be 0700", path);
  return true;
}

static int open_folder(const char *path) {
  return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

Cache *cache_open(Mem *m, const char *folder, int64_t limit, Err *e) {
  int dir = open_folder(folder);
  if (dir < 0 && errno == ENOENT) {
    if (!make_folders(folder, e)) return NULL;
    dir = open_folder(folder);
  }
  if (dir < 0) {
    bool other = errno == ELOOP || errno == ENOTDIR;
    err_set(e, "%s: %s", folder, other ? "is no folder" : file_why(errno));
    return NULL;
  }
  if (!ours(dir, folder, e)) {
    close(dir);
    return NULL;
  }
  Cache *c = mem_try(m, NULL, 0, sizeof *c);
  if (!c) {
    close(dir);
    mem_throw(m, MEM_ERR_NOMEM);
  }
  *c = (Cache){.mem = m, .dir = dir, .limit = limit, .size = -1};
  return c;
}

void cache_close(Cache *c) {
  if (!c) return;
  close(c->dir);
  mem_free(c->mem, c, sizeof *c);
}

/* ---- names */

static void name_of(const CacheKey *k, char name[NAME]) {
  XXH128_hash_t h = XXH3_128bits(k->text, k->text_n);
  int n = snprintf(name, NAME, "%016llx%016llx-%u-", (unsigned long long)h.high64,
                   (unsigned long long)h.low64, (unsigned)(k->level % 10));
  for (int i = 0; i < 6; i++) n += snprintf(name + n, (size_t)(NAME - n), "%02x", k->build[i]);
}

/* 0: not a file of ours; 1: a file of the cache; 2: a file that was being written. */
static int kind_of(const char *name) {
  if (!strncmp(name, "tmp-", 4)) return 2;
  size_t n = strspn(name, "0123456789abcdef-");
  return !name[n] && n == NAME - 1 && name[32] == '-' && name[34] == '-';
}

/* ---- reading */

static bool read_at(int fd, void *to, size_t n, off_t at) {
  for (char *p = to; n;) {
    ssize_t got = pread(fd, p, n, at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    p += got;
    at += got;
    n -= (size_t)got;
  }
  return true;
}

static uint64_t sum_of(const Head *h, const char *body) {
  uint64_t seed = XXH3_64bits(h, offsetof(Head, sum));
  return XXH3_64bits_withSeed(body, h->text_n + h->object_n, seed);
}

static bool head_fits(const Head *h, const CacheKey *k, int64_t size) {
  return !memcmp(h->magic, magic, sizeof magic) && h->version == FORMAT && h->level == k->level &&
         !memcmp(h->build, k->build, CACHE_BUILD) && h->text_n <= MOST && h->object_n <= MOST &&
         (uint64_t)size == sizeof *h + h->text_n + h->object_n;
}

/* Returns the body of an open file, *n bytes that begin with the text; NULL with `e` if the file is
 * damaged or cannot be read. */
static char *read_body(Cache *c, int fd, const CacheKey *k, Head *h, size_t *n, Err *e) {
  struct stat st;
  if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022))
    return err_set(e, "not a file of ours"), NULL;
  if (st.st_size < (off_t)sizeof *h || !read_at(fd, h, sizeof *h, 0) ||
      !head_fits(h, k, st.st_size))
    return err_set(e, "damaged or of another version"), NULL;
  *n = (size_t)(h->text_n + h->object_n);
  char *body = mem_try(c->mem, NULL, 0, *n ? *n : 1);
  if (!body) return err_nomem(e, "cached code"), NULL;
  if (read_at(fd, body, *n, sizeof *h) && sum_of(h, body) == h->sum) {
    if (time(NULL) - st.st_mtime > TOUCH_AFTER) futimens(fd, NULL);
    return body;
  }
  mem_free(c->mem, body, *n ? *n : 1);
  return err_set(e, "damaged"), NULL;
}

void *cache_get(Cache *c, const CacheKey *k, size_t *n, Err *e) {
  char name[NAME];
  Head h;
  size_t body_n = 0;
  e->text[0] = 0;
  name_of(k, name);
  int fd = openat(c->dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    if (errno == ENOENT) return NULL;
    err_set(e, "%s", file_why(errno));
    unlinkat(c->dir, name, 0);
    return NULL;
  }
  char *body = read_body(c, fd, k, &h, &body_n, e);
  close(fd);
  if (!body) {
    if (!e->nomem) unlinkat(c->dir, name, 0);
    return NULL;
  }
  /* if different texts have equal hashes, the file stays until the other text is written */
  void *object = NULL;
  if (h.object_n && h.text_n == k->text_n && !memcmp(body, k->text, k->text_n)) {
    *n = (size_t)h.object_n;
    object = mem_try(c->mem, NULL, 0, *n);
    if (object)
      memcpy(object, body + h.text_n, *n);
    else
      err_nomem(e, "cached code");
  }
  mem_free(c->mem, body, body_n ? body_n : 1);
  return object;
}

/* ---- writing */

static bool write_all(int fd, const void *from, size_t n) {
  for (const char *p = from; n;) {
    ssize_t put = write(fd, p, n);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    p += put;
    n -= (size_t)put;
  }
  return true;
}

typedef struct Entry {
  char name[NAME];
  int64_t time, size;
} Entry;

static int older_first(const void *a, const void *b) {
  const Entry *x = a, *y = b;
  if (x->time != y->time) return x->time < y->time ? -1 : 1;
  return strcmp(x->name, y->name);
}

/* Sums up the bytes of all files and lists the first `cap` of them in `list`. */
static int64_t scan(Cache *c, Entry *list, size_t cap, size_t *count) {
  int64_t size = 0, now = (int64_t)time(NULL);
  *count = 0;
  int fd = openat(c->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *d = fd < 0 ? NULL : fdopendir(fd);
  if (!d) {
    if (fd >= 0) close(fd);
    return 0;
  }
  for (struct dirent *x; (x = readdir(d));) {
    struct stat st;
    int kind = kind_of(x->d_name);
    if (!kind || fstatat(c->dir, x->d_name, &st, AT_SYMLINK_NOFOLLOW)) continue;
    if (kind == 2 && now - st.st_mtime > STALE) unlinkat(c->dir, x->d_name, 0);
    if (kind != 1) continue;
    size += st.st_size;
    if (*count < cap) {
      list[*count] = (Entry){.time = (int64_t)st.st_mtime, .size = (int64_t)st.st_size};
      memcpy(list[*count].name, x->d_name, NAME);
    }
    ++*count;
  }
  closedir(d);
  return size;
}

/* Removes the oldest files until a quarter of the limit is free again. Without memory for the list
 * it removes nothing; the next file that is written tries again. */
static void evict(Cache *c) {
  size_t count, again;
  scan(c, NULL, 0, &count);
  Entry *list = mem_try(c->mem, NULL, 0, (count + 1) * sizeof *list);
  if (!list) return;
  c->size = scan(c, list, count, &again);
  if (again < count) count = again;
  qsort(list, count, sizeof *list, older_first);
  for (size_t i = 0; i < count && c->size > c->limit - c->limit / 4; i++)
    if (!unlinkat(c->dir, list[i].name, 0)) c->size -= list[i].size;
  mem_free(c->mem, list, (count + 1) * sizeof *list);
}

bool cache_put(Cache *c, const CacheKey *k, const void *object, size_t n, Err *e) {
  char name[NAME], temp[64];
  size_t ignored;
  if (k->text_n > MOST || n > MOST) return err_set(e, "too large");
  size_t body_n = k->text_n + n;
  char *body = mem_try(c->mem, NULL, 0, sizeof(Head) + body_n);
  if (!body) return err_nomem(e, "cached code");
  Head h = {.version = FORMAT, .level = k->level, .text_n = k->text_n, .object_n = n};
  memcpy(h.magic, magic, sizeof magic);
  memcpy(h.build, k->build, CACHE_BUILD);
  if (k->text_n) memcpy(body + sizeof h, k->text, k->text_n);
  if (n) memcpy(body + sizeof h + k->text_n, object, n);
  h.sum = sum_of(&h, body + sizeof h);
  memcpy(body, &h, sizeof h);

  name_of(k, name);
  struct timespec now;
  /* a process in another container may have the same number */
  clock_gettime(CLOCK_REALTIME, &now);
  snprintf(temp, sizeof temp, "tmp-%ld-%u-%ld", (long)getpid(), c->count++, (long)now.tv_nsec);
  int fd = openat(c->dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  bool ok = fd >= 0 && write_all(fd, body, sizeof h + body_n);
  int error = errno;
  if (fd >= 0 && close(fd) && ok) ok = false, error = errno;
  if (ok && renameat(c->dir, temp, c->dir, name)) ok = false, error = errno;
  mem_free(c->mem, body, sizeof h + body_n);
  if (!ok) {
    if (fd >= 0) unlinkat(c->dir, temp, 0);
    return err_set(e, "%s", file_why(error));
  }
  if (c->size < 0)
    c->size = scan(c, NULL, 0, &ignored);
  else
    c->size += (int64_t)(sizeof h + body_n);
  if (c->size > c->limit) evict(c);
  return true;
}
