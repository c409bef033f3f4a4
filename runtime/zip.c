/* Zip archives (PKWARE's APPNOTE.TXT), as far as npz files need them.
 *
 * In: bytes that may hold anything. Out: entries, unpacked by zlib; archives of stored entries.
 * Idea: the directory at the end says where everything is; large archives have the same numbers in
 * 64 bits beside it. Invariant: an entry is unpacked into memory only if its packed bytes are there
 * and can stand for that many; what comes out has the size and the sum that the directory says. */
#include "runtime/zip.h"

#include <string.h>
#include <zlib.h>

#include "runtime/str.h"

enum {
  END = 22, /* bytes of the end of the directory, of its 64 bit locator and form, */
  LOCATOR = 20,
  END64 = 56,
  CENTRAL = 46, /* of an entry in it, and before the bytes of one */
  LOCAL = 30,
  STORED = 0,
  DEFLATED = 8,
  PACKED = 1040, /* bytes that a byte of deflate stands for at most, and some to spare */
  CHUNK = 1 << 16,
  FRONT = 16 /* bytes before a block of zlib, which hold its size */
};

static uint64_t le(const unsigned char *p, int n) {
  uint64_t x = 0;
  for (int i = n - 1; i >= 0; i--) x = x << 8 | p[i];
  return x;
}

static bool is(const unsigned char *p, const char *sign) {
  return p[0] == 'P' && p[1] == 'K' && p[2] == (unsigned char)sign[0] &&
         p[3] == (unsigned char)sign[1];
}

/* ---- the directory */

typedef struct Directory {
  uint64_t at, size, count;
} Directory;

static bool no_zip(const Zip *z, const char *why, Err *e) {
  return err_set(e, "%s: is no zip archive (%s)", z->in->name, why);
}

/* Searches the end of the directory; behind it is a comment of at most 65,535 bytes. */
static bool find_end(const Zip *z, unsigned char *end, uint64_t *at, Err *e) {
  enum { REACH = END + UINT16_MAX };
  uint64_t size = z->in->size, n = size < REACH ? size : REACH;
  if (size < END) return no_zip(z, "too short", e);
  unsigned char *tail = mem_try(z->arena.mem, NULL, 0, (size_t)n);
  if (!tail) return err_nomem(e, z->in->name);
  bool ok = file_in_read(z->in, size - n, tail, n, e), found = false;
  for (uint64_t i = n - END + 1; ok && !found && i-- > 0;) {
    found = is(tail + i, "\5\6") && le(tail + i + 20, 2) == n - END - i;
    *at = size - n + i;
    if (found) memcpy(end, tail + i, END);
  }
  mem_free(z->arena.mem, tail, (size_t)n);
  return ok && (found || no_zip(z, "its directory is missing", e));
}

static bool find_directory(const Zip *z, Directory *d, Err *e) {
  unsigned char end[END], more[END64];
  uint64_t at = 0;
  if (!find_end(z, end, &at, e)) return false;
  *d = (Directory){le(end + 16, 4), le(end + 12, 4), le(end + 10, 2)};
  if (at >= LOCATOR && file_in_read(z->in, at - LOCATOR, more, LOCATOR, e) && is(more, "\6\7")) {
    at = le(more + 8, 8);
    if (at > z->in->size || z->in->size - at < END64) return no_zip(z, "ends too early", e);
    if (!file_in_read(z->in, at, more, END64, e)) return false;
    if (!is(more, "\6\6")) return no_zip(z, "its directory is missing", e);
    *d = (Directory){le(more + 48, 8), le(more + 40, 8), le(more + 32, 8)};
  }
  if (d->at > z->in->size || d->size > z->in->size - d->at || d->count > d->size / CENTRAL)
    return no_zip(z, "its directory lies outside", e);
  return true;
}

/* Numbers of 64 bits, in the order of those that the directory has no room for. */
static void read_extra(const unsigned char *p, size_t n, uint64_t *const *wide, int count) {
  while (n >= 4) {
    size_t size = (size_t)le(p + 2, 2);
    if (size > n - 4) return;
    const unsigned char *q = p + 4;
    for (int i = 0; le(p, 2) == 1 && i < count; i++) {
      if (*wide[i] != UINT32_MAX) continue;
      if (q + 8 > p + 4 + size) return;
      *wide[i] = le(q, 8);
      q += 8;
    }
    p += 4 + size;
    n -= 4 + size;
  }
}

static bool read_entry(Zip *z, const unsigned char *p, const unsigned char *end, size_t *used,
                       Err *e) {
  if (end - p < CENTRAL || !is(p, "\1\2")) return no_zip(z, "its directory is broken", e);
  size_t name = (size_t)le(p + 28, 2), extra = (size_t)le(p + 30, 2),
         comment = (size_t)le(p + 32, 2);
  *used = CENTRAL + name + extra + comment;
  if ((size_t)(end - p) < *used) return no_zip(z, "its directory is broken", e);
  ZipEntry *t = &z->entry[z->count];
  *t = (ZipEntry){.packed = le(p + 20, 4), .size = le(p + 24, 4), .at = le(p + 42, 4)};
  t->crc = (uint32_t)le(p + 16, 4);
  t->method = (int)le(p + 10, 2);
  uint64_t *const wide[3] = {&t->size, &t->packed, &t->at};
  read_extra(p + CENTRAL + name, extra, wide, 3);
  char *copy = arena_try(&z->arena, name + 1);
  if (!copy) return err_nomem(e, z->in->name);
  memcpy(copy, p + CENTRAL, name);
  copy[name] = 0;
  t->name = copy;
  bool plain = str_valid(copy, name);
  for (size_t i = 0; i < name; i++) plain = plain && (unsigned char)copy[i] >= ' ';
  if (!plain) return err_set(e, "%s: the name of entry %zu is no text", z->in->name, z->count + 1);
  if (le(p + 8, 2) & 1) return err_set(e, "%s: entry %zu is encrypted", z->in->name, z->count + 1);
  z->count++;
  return true;
}

static bool read_directory(Zip *z, Err *e) {
  Directory d;
  if (!find_directory(z, &d, e)) return false;
  size_t size = (size_t)d.size, at = 0, used = 0;
  z->entry = arena_try(&z->arena, (size_t)d.count * sizeof *z->entry + 1);
  unsigned char *bytes = mem_try(z->arena.mem, NULL, 0, size + 1);
  bool ok = (z->entry && bytes) || err_nomem(e, z->in->name);
  ok = ok && file_in_read(z->in, d.at, bytes, d.size, e);
  while (ok && z->count < d.count) {
    ok = read_entry(z, bytes + at, bytes + size, &used, e);
    at += used;
  }
  if (bytes) mem_free(z->arena.mem, bytes, size + 1);
  return ok;
}

bool zip_open(Zip *z, Mem *m, FileIn *in, Err *e) {
  *z = (Zip){.in = in};
  arena_init(&z->arena, m);
  if (read_directory(z, e)) return true;
  zip_close(z);
  return false;
}

void zip_close(Zip *z) {
  arena_free(&z->arena);
  z->count = 0;
}

/* ---- unpacking */

static void *get(void *mem, unsigned n, unsigned each) {
  size_t size = (size_t)n * each + FRONT;
  char *p = mem_try(mem, NULL, 0, size);
  if (!p) return NULL;
  memcpy(p, &size, sizeof size);
  return p + FRONT;
}

static void give(void *mem, void *q) {
  size_t size;
  memcpy(&size, (char *)q - FRONT, sizeof size);
  mem_free(mem, (char *)q - FRONT, size);
}

/* Where the bytes of an entry begin: behind a header that repeats its name. */
static bool find_bytes(const Zip *z, const ZipEntry *t, uint64_t *at, Err *e) {
  unsigned char head[LOCAL];
  uint64_t size = z->in->size;
  if (t->at > size || size - t->at < LOCAL || !file_in_read(z->in, t->at, head, LOCAL, e) ||
      !is(head, "\3\4"))
    return err_set(e, "%s: `%s` lies outside of the archive", z->in->name, t->name);
  *at = t->at + LOCAL + le(head + 26, 2) + le(head + 28, 2);
  if (*at > size || t->packed > size - *at)
    return err_set(e, "%s: `%s` ends too early", z->in->name, t->name);
  return true;
}

static bool inflate_to(const Zip *z, const ZipEntry *t, uint64_t at, char *out, Err *e) {
  Mem *m = z->arena.mem;
  z_stream s = {.zalloc = get, .zfree = give, .opaque = m};
  unsigned char *chunk = mem_try(m, NULL, 0, CHUNK);
  if (!chunk || inflateInit2(&s, -MAX_WBITS) != Z_OK) {
    if (chunk) mem_free(m, chunk, CHUNK);
    return err_nomem(e, z->in->name);
  }
  uint64_t left = t->packed, room = t->size;
  s.next_out = (unsigned char *)out;
  bool ok = true;
  int got = Z_OK;
  while (ok && got == Z_OK) {
    if (!s.avail_in && left) {
      s.avail_in = left < CHUNK ? (unsigned)left : CHUNK;
      s.next_in = chunk;
      ok = file_in_read(z->in, at, chunk, s.avail_in, e);
      at += s.avail_in;
      left -= s.avail_in;
    }
    unsigned here = room < CHUNK ? (unsigned)room : CHUNK;
    s.avail_out = here;
    if (ok) got = inflate(&s, Z_NO_FLUSH);
    room -= here - s.avail_out;
  }
  inflateEnd(&s);
  mem_free(m, chunk, CHUNK);
  if (got == Z_MEM_ERROR) return err_nomem(e, z->in->name);
  if (ok && (got != Z_STREAM_END || room || left || s.avail_in))
    return err_set(e, "%s: `%s` is not packed as it should be", z->in->name, t->name);
  return ok;
}

char *zip_read(Zip *z, const ZipEntry *t, Err *e) {
  Mem *m = z->arena.mem;
  uint64_t at = 0;
  if (!find_bytes(z, t, &at, e)) return NULL;
  if (t->method != STORED && t->method != DEFLATED) {
    err_set(e, "%s: `%s` is packed by method %d; stored and deflated ones are read", z->in->name,
            t->name, t->method);
    return NULL;
  }
  if (t->method == STORED ? t->size != t->packed : t->size / PACKED > t->packed) {
    err_set(e, "%s: `%s` has %llu bytes for %llu", z->in->name, t->name,
            (unsigned long long)t->packed, (unsigned long long)t->size);
    return NULL;
  }
  size_t n = (size_t)t->size;
  char *p = mem_try(m, NULL, 0, n + 1);
  if (!p) {
    err_nomem(e, z->in->name);
    return NULL;
  }
  bool ok = t->method == STORED ? file_in_read(z->in, at, p, n, e) : inflate_to(z, t, at, p, e);
  if (ok && crc32_z(0, (unsigned char *)p, n) != t->crc)
    ok = err_set(e, "%s: `%s` has another sum: a part of it is not what was written", z->in->name,
                 t->name);
  p[n] = 0;
  if (ok) return p;
  mem_free(m, p, n + 1);
  return NULL;
}

/* ---- writing */

bool zip_sum(void *sum, const void *bytes, size_t n, Err *e) {
  ZipSum *s = sum;
  (void)e;
  s->crc = (uint32_t)crc32_z(s->crc, bytes, n);
  s->size += n;
  return true;
}

void zip_begin(ZipOut *z, Mem *m, FileOut *file) {
  *z = (ZipOut){.file = file};
  arena_init(&z->arena, m);
}

bool zip_put(void *out, const void *bytes, size_t n, Err *e) {
  ZipOut *z = out;
  z->at += n;
  return file_put(z->file, bytes, n, e);
}

static unsigned char *put_le(unsigned char *p, uint64_t x, int n) {
  for (int i = 0; i < n; i++) *p++ = (unsigned char)(x >> 8 * i);
  return p;
}

/* What the header of an entry and the directory share, 26 bytes: versions, flags (names are UTF-8),
 * method, the first moment that the format knows, sum, sizes, length of the name. */
static unsigned char *put_facts(unsigned char *p, const ZipEntry *t) {
  p = put_le(p, 20, 2);
  p = put_le(p, 1 << 11, 2);
  p = put_le(p, STORED, 2);
  p = put_le(p, 0, 2);
  p = put_le(p, 1 << 5 | 1, 2);
  p = put_le(p, t->crc, 4);
  p = put_le(p, t->size, 4);
  p = put_le(p, t->size, 4);
  return put_le(p, strlen(t->name), 2);
}

bool zip_entry(ZipOut *z, const char *name, const ZipSum *sum, Err *e) {
  size_t n = strlen(name);
  if (sum->size >= UINT32_MAX || z->at >= UINT32_MAX || n > UINT16_MAX || z->count >= UINT16_MAX)
    return err_set(e, "an archive has less than 4 GiB and less than 65,535 entries");
  if (z->count == z->cap) {
    size_t cap = z->cap ? 2 * z->cap : 16;
    ZipEntry *more = arena_try(&z->arena, cap * sizeof *more);
    if (!more) return err_nomem(e, name);
    if (z->count) memcpy(more, z->entry, z->count * sizeof *more);
    z->entry = more;
    z->cap = cap;
  }
  char *copy = arena_try(&z->arena, n + 1);
  if (!copy) return err_nomem(e, name);
  memcpy(copy, name, n + 1);
  ZipEntry *t = &z->entry[z->count++];
  *t = (ZipEntry){.name = copy, .size = sum->size, .crc = sum->crc, .at = z->at};
  unsigned char head[LOCAL] = "PK\3\4";
  put_le(put_facts(head + 4, t), 0, 2);
  return zip_put(z, head, sizeof head, e) && zip_put(z, name, n, e);
}

bool zip_finish(ZipOut *z, Err *e) {
  uint64_t from = z->at;
  for (size_t i = 0; i < z->count; i++) {
    unsigned char head[CENTRAL] = "PK\1\2";
    put_le(head + 4, 20, 2);
    put_facts(head + 6, &z->entry[i]);
    put_le(head + 42, z->entry[i].at, 4);
    if (!zip_put(z, head, sizeof head, e) ||
        !zip_put(z, z->entry[i].name, strlen(z->entry[i].name), e))
      return false;
  }
  if (z->at >= UINT32_MAX) return err_set(e, "an archive has less than 4 GiB");
  unsigned char end[END] = "PK\5\6";
  put_le(end + 8, z->count, 2);
  put_le(end + 10, z->count, 2);
  put_le(end + 12, z->at - from, 4);
  put_le(end + 16, from, 4);
  return zip_put(z, end, sizeof end, e);
}

void zip_end(ZipOut *z) {
  arena_free(&z->arena);
}
