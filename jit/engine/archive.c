/* Archives of installed kernels.
 *
 * In: loop text. Out: the object made of it when ckl was built. Idea: a head, a table sorted by
 * hash, then texts and objects; mapped read-only, so that starting costs the pages of one search.
 * Invariant: every offset is checked against the size of the file, and each entry has a checksum
 * of its text and object.
 */
#define _GNU_SOURCE
#include "jit/engine/archive.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "runtime/file.h"

enum { FORMAT = 1 };
static const char magic[8] = "ckl-krn";

typedef struct Head {
  char magic[8];
  uint32_t version, level;
  unsigned char build[CACHE_BUILD];
  uint32_t zero;
  uint64_t count;
} Head;

typedef struct Entry {
  uint64_t hash[2]; /* of the text */
  uint64_t at;      /* offset of the text, which the object follows */
  uint64_t text_n, object_n;
  uint64_t sum; /* of text and object */
} Entry;

_Static_assert(sizeof(Head) == 48 && sizeof(Entry) == 48, "the file has no gaps");

static void hash_text(const char *text, size_t n, uint64_t out[2]) {
  XXH128_hash_t h = XXH3_128bits(text, n);
  out[0] = h.high64;
  out[1] = h.low64;
}

static uint64_t sum_of(const void *text, size_t text_n, const void *object, size_t object_n) {
  return XXH3_64bits_withSeed(object, object_n, XXH3_64bits(text, text_n));
}

bool archive_open(Archive *r, const char *path, uint32_t level, const unsigned char *build,
                  Err *e) {
  struct stat st;
  Head h;
  *r = (Archive){0};
  e->text[0] = 0;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT ? false : err_set(e, "%s: %s", path, file_why(errno));
  void *p = MAP_FAILED;
  if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size >= (off_t)sizeof h)
    p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  close(fd);
  if (p == MAP_FAILED) return err_set(e, "%s: is no file of kernels", path);
  *r = (Archive){p, (size_t)st.st_size};
  memcpy(&h, p, sizeof h);
  if (memcmp(h.magic, magic, sizeof magic) || h.version != FORMAT || h.level != level ||
      h.count > (r->size - sizeof h) / sizeof(Entry))
    err_set(e, "%s: is no file of kernels", path);
  else if (build && memcmp(h.build, build, CACHE_BUILD))
    err_set(e, "%s: was made by another code generator", path);
  else
    return true;
  archive_close(r);
  return false;
}

void archive_close(Archive *r) {
  if (r->bytes) munmap((void *)r->bytes, r->size);
  *r = (Archive){0};
}

static Entry entry(const Archive *r, uint64_t i) {
  Entry x;
  memcpy(&x, r->bytes + sizeof(Head) + i * sizeof x, sizeof x);
  return x;
}

static int compare(const uint64_t a[2], const uint64_t b[2]) {
  if (a[0] != b[0]) return a[0] < b[0] ? -1 : 1;
  return a[1] != b[1] ? a[1] < b[1] ? -1 : 1 : 0;
}

const void *archive_find(const Archive *r, const char *text, size_t text_n, size_t *n, Err *e) {
  uint64_t want[2], lo = 0, hi;
  Head h;
  e->text[0] = 0;
  if (!r->bytes) return NULL;
  hash_text(text, text_n, want);
  memcpy(&h, r->bytes, sizeof h);
  for (hi = h.count; lo < hi;) {
    uint64_t mid = lo + (hi - lo) / 2;
    if (compare(entry(r, mid).hash, want) < 0)
      lo = mid + 1;
    else
      hi = mid;
  }
  if (lo >= h.count) return NULL;
  Entry x = entry(r, lo);
  if (compare(x.hash, want) || x.text_n != text_n) return NULL;
  if (x.at > r->size || x.text_n > r->size - x.at || x.object_n > r->size - x.at - x.text_n ||
      sum_of(r->bytes + x.at, x.text_n, r->bytes + x.at + x.text_n, x.object_n) != x.sum) {
    err_set(e, "a damaged file of installed kernels");
    return NULL;
  }
  if (memcmp(r->bytes + x.at, text, text_n)) return NULL;
  *n = (size_t)x.object_n;
  return r->bytes + x.at + x.text_n;
}

/* ---- writing */

static int by_hash(const void *a, const void *b) {
  return compare(((const ArchiveItem *)a)->hash, ((const ArchiveItem *)b)->hash);
}

static bool put(int fd, const void *from, size_t n) {
  for (const char *p = from; n;) {
    ssize_t done = write(fd, p, n);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    p += done;
    n -= (size_t)done;
  }
  return true;
}

bool archive_write(int fd, uint32_t level, const unsigned char *build, ArchiveItem *items,
                   size_t count) {
  for (size_t i = 0; i < count; i++) hash_text(items[i].text, items[i].text_n, items[i].hash);
  if (count) qsort(items, count, sizeof *items, by_hash);
  size_t kept = 0;
  for (size_t i = 0; i < count; i++)
    if (!kept || by_hash(&items[i], &items[kept - 1])) items[kept++] = items[i];
  Head h = {.version = FORMAT, .level = level, .count = kept};
  memcpy(h.magic, magic, sizeof magic);
  memcpy(h.build, build, CACHE_BUILD);
  if (!put(fd, &h, sizeof h)) return false;
  uint64_t at = sizeof h + kept * sizeof(Entry);
  for (int pass = 0; pass < 2; pass++) {
    for (size_t i = 0; i < kept; i++) {
      const ArchiveItem *x = &items[i];
      Entry t = {{x->hash[0], x->hash[1]},
                 at,
                 x->text_n,
                 x->object_n,
                 sum_of(x->text, x->text_n, x->object, x->object_n)};
      if (pass && !(put(fd, x->text, x->text_n) && put(fd, x->object, x->object_n))) return false;
      if (pass) continue;
      if (!put(fd, &t, sizeof t)) return false;
      at += x->text_n + x->object_n;
    }
  }
  return true;
}

/* ---- which code generator */

static bool read_at(int fd, void *to, size_t n, uint64_t at) {
  return at <= INT64_MAX && pread(fd, to, n, (off_t)at) == (ssize_t)n;
}

/* Looks for the linker's note (--build-id=sha1) in one segment of notes. */
static bool find_note(int fd, const Elf64_Phdr *p, unsigned char build[CACHE_BUILD]) {
  unsigned char notes[4096];
  size_t n = p->p_filesz < sizeof notes ? (size_t)p->p_filesz : sizeof notes;
  if (!read_at(fd, notes, n, p->p_offset)) return false;
  for (size_t at = 0; at + sizeof(Elf64_Nhdr) <= n;) {
    Elf64_Nhdr h;
    memcpy(&h, notes + at, sizeof h);
    at += sizeof h;
    size_t name = ((size_t)h.n_namesz + 3) & ~(size_t)3,
           desc = ((size_t)h.n_descsz + 3) & ~(size_t)3;
    if (name > n - at || desc > n - at - name) return false;
    if (h.n_type == NT_GNU_BUILD_ID && h.n_namesz == 4 && !memcmp(notes + at, "GNU", 4) &&
        h.n_descsz == CACHE_BUILD) {
      memcpy(build, notes + at + name, CACHE_BUILD);
      return true;
    }
    at += name + desc;
  }
  return false;
}

static bool linker_id(int fd, unsigned char build[CACHE_BUILD]) {
  Elf64_Ehdr h;
  if (!read_at(fd, &h, sizeof h, 0) || memcmp(h.e_ident, ELFMAG, SELFMAG) ||
      h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_phentsize != sizeof(Elf64_Phdr))
    return false;
  for (unsigned i = 0; i < h.e_phnum; i++) {
    Elf64_Phdr p;
    if (!read_at(fd, &p, sizeof p, h.e_phoff + i * sizeof p)) return false;
    if (p.p_type == PT_NOTE && find_note(fd, &p, build)) return true;
  }
  return false;
}

bool archive_build_id(const char *path, unsigned char build[CACHE_BUILD], Err *e) {
  struct stat st;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || fstat(fd, &st)) {
    err_set(e, "%s: %s", path, file_why(errno));
    if (fd >= 0) close(fd);
    return false;
  }
  memset(build, 0, CACHE_BUILD);
  if (!linker_id(fd, build)) {
    uint64_t what[3] = {(uint64_t)st.st_size, (uint64_t)st.st_mtim.tv_sec,
                        (uint64_t)st.st_mtim.tv_nsec},
             h[2];
    hash_text((const char *)what, sizeof what, h);
    memcpy(build, h, sizeof h);
  }
  close(fd);
  return true;
}
