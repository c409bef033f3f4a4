/* The npy format, as numpy.lib.format describes it.
 *
 * In: a magic, a version, the length of a header, the header, which is the text of a Python dict
 * with the keys descr, fortran_order and shape, and the elements. Out: a tensor; one of Fortran
 * order is a view with the axes turned round.
 * Invariant: what the header claims is compared with the size of the file before memory is asked
 * for, and a file that holds more than its array is refused: nothing in it gets lost. */
#include "runtime/npy.h"

#include <stdio.h>
#include <string.h>

#include "runtime/str.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "arrays are written little-endian: this file must learn to swap bytes first"
#endif

static const char magic[] = "\x93NUMPY";
enum { MAGIC = 6, MOST_HEADER = 1 << 20 };

/* NumPy's letter and size of each dtype. */
static const char *const code[DT_COUNT] = {
    [DT_BOOL] = "b1", [DT_U8] = "u1",  [DT_I8] = "i1",  [DT_I16] = "i2", [DT_I32] = "i4",
    [DT_I64] = "i8",  [DT_F16] = "f2", [DT_F32] = "f4", [DT_F64] = "f8",
};

typedef struct Header {
  DType dtype;
  int stored; /* bytes of an unsigned element that becomes a wider one; else 0 */
  bool swapped, fortran;
  int rank;
  int64_t dim[CKL_MAX_RANK];
} Header;

/* ---- the header: a Python dict */

typedef struct Cursor {
  const char *name, *text, *at, *end;
  Err *err;
} Cursor;

static bool bad(const Cursor *c, const char *what) {
  return err_set(c->err, "%s: in the header, at byte %lld: %s", c->name,
                 (long long)(c->at - c->text), what);
}

static void blanks(Cursor *c) {
  while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\t' || *c->at == '\r'))
    c->at++;
}

static bool token(Cursor *c, const char *word) {
  blanks(c);
  size_t n = strlen(word);
  if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n)) return false;
  c->at += n;
  return true;
}

/* A text in quotes, without escapes. */
static bool quoted(Cursor *c, const char **s, size_t *n) {
  blanks(c);
  if (c->at == c->end || (*c->at != '\'' && *c->at != '"')) return bad(c, "a text is missing");
  const char *close = memchr(c->at + 1, *c->at, (size_t)(c->end - c->at - 1));
  if (!close) return bad(c, "a text has no end");
  *s = c->at + 1;
  *n = (size_t)(close - *s);
  c->at = close + 1;
  return true;
}

static bool read_dtype(Cursor *c, Header *h) {
  const char *s;
  size_t n;
  blanks(c);
  if (c->at < c->end && *c->at == '[')
    return err_set(c->err, "%s: is an array of records, which no tensor is", c->name);
  if (!quoted(c, &s, &n)) return false;
  int dt = 0;
  bool order = n == 3 && strchr("<>=|", s[0]) != NULL;
  while (dt < DT_COUNT && !(order && code[dt] && !memcmp(code[dt], s + 1, 2))) dt++;
  if (order && dt == DT_COUNT && s[1] == 'u' && (s[2] == '2' || s[2] == '4' || s[2] == '8')) {
    h->stored = s[2] - '0';
    dt = h->stored == 2 ? DT_I32 : DT_I64;
  }
  if (n > 2 && s[1] == 'c')
    return err_set(c->err, "%s: has complex numbers; save its real and its imaginary part",
                   c->name);
  if (dt == DT_COUNT) {
    char shown[40];
    size_t most = n < sizeof shown - 1 ? n : sizeof shown - 1;
    for (size_t i = 0; i < most; i++) shown[i] = s[i] < ' ' || s[i] > '~' ? '?' : s[i];
    shown[most] = 0;
    return err_set(c->err, "%s: has the dtype %s, which is none of ckl's", c->name, shown);
  }
  h->dtype = (DType)dt;
  h->swapped = s[0] == '>' && dt_size(h->dtype) > 1;
  return true;
}

static bool read_shape(Cursor *c, Header *h) {
  if (!token(c, "(")) return bad(c, "the shape is no tuple");
  h->rank = 0;
  while (!token(c, ")")) {
    const char *from = c->at;
    int64_t v;
    while (c->at < c->end && *c->at >= '0' && *c->at <= '9') c->at++;
    if (!str_to_i64(from, (size_t)(c->at - from), &v)) return bad(c, "a size is no whole number");
    if (h->rank == CKL_MAX_RANK)
      return err_set(c->err, "%s: has more than %d axes", c->name, (int)CKL_MAX_RANK);
    h->dim[h->rank++] = v;
    token(c, "L");
    if (token(c, ",")) continue;
    if (token(c, ")")) break;
    return bad(c, "`,` or `)` is missing");
  }
  return true;
}

static bool read_header(Cursor *c, Header *h) {
  bool descr = false, order = false, shape = false;
  if (!token(c, "{")) return bad(c, "is no dict");
  while (!token(c, "}")) {
    const char *key;
    size_t n;
    if (!quoted(c, &key, &n)) return false;
    if (!token(c, ":")) return bad(c, "`:` is missing");
    if (n == 5 && !memcmp(key, "descr", n)) {
      if (!read_dtype(c, h)) return false;
      descr = true;
    } else if (n == 13 && !memcmp(key, "fortran_order", n)) {
      h->fortran = token(c, "True");
      if (!h->fortran && !token(c, "False")) return bad(c, "the order is neither True nor False");
      order = true;
    } else if (n == 5 && !memcmp(key, "shape", n)) {
      if (!read_shape(c, h)) return false;
      shape = true;
    } else {
      return bad(c, "an unknown key");
    }
    if (token(c, ",")) continue;
    if (token(c, "}")) break;
    return bad(c, "`,` or `}` is missing");
  }
  blanks(c);
  if (c->at < c->end) return bad(c, "there is more behind the dict");
  return (descr && order && shape) || bad(c, "descr, fortran_order or shape is missing");
}

/* ---- reading */

static void swap_bytes(void *data, int64_t n, size_t each) {
  unsigned char *p = data;
  for (int64_t i = 0; i < n; i++, p += each)
    for (size_t k = 0; k < each / 2; k++) {
      unsigned char t = p[k];
      p[k] = p[each - 1 - k];
      p[each - 1 - k] = t;
    }
}

/* Unsigned numbers of `stored` bytes lie at the end of the elements of t, which they become. The
 * next one is never written over: n - i numbers need no more than their bytes behind it. */
static bool widen(Tensor *t, int64_t n, const FileIn *in, int stored, Err *e) {
  size_t each = dt_size(t->dtype), k = (size_t)stored;
  unsigned char *to = t->store->data;
  const unsigned char *from = to + (size_t)n * (each - k);
  for (int64_t i = 0; i < n; i++, from += k, to += each) {
    uint64_t v = 0;
    memcpy(&v, from, k);
    if (v > INT64_MAX)
      return err_set(e, "%s: element %lld is %llu, more than an i64 holds", in->name, (long long)i,
                     (unsigned long long)v);
    memcpy(to, &v, each);
  }
  return true;
}

static Tensor *turned(Mem *m, Tensor *t) {
  int64_t dim[CKL_MAX_RANK], stride[CKL_MAX_RANK];
  for (int i = 0; i < t->rank; i++) {
    dim[i] = t->dim[t->rank - 1 - i];
    stride[i] = t->stride[t->rank - 1 - i];
  }
  Tensor *v = tn_view(m, t, t->rank, dim, stride, 0);
  tn_unref(t);
  return v;
}

static Tensor *read_elements(Mem *m, const FileIn *in, uint64_t at, const Header *h, Err *e) {
  int64_t dim[CKL_MAX_RANK] = {0}, count = tn_product(h->rank, h->dim),
          each = h->stored ? h->stored : (int64_t)dt_size(h->dtype);
  uint64_t left = in->size - at;
  if (count < 0 || count > INT64_MAX / each || (uint64_t)(count * each) > left) {
    err_set(e, "%s: has %llu bytes of elements, its shape needs more", in->name,
            (unsigned long long)left);
    return NULL;
  }
  if ((uint64_t)(count * each) < left) {
    err_set(e, "%s: %llu bytes are behind the array", in->name,
            (unsigned long long)(left - (uint64_t)(count * each)));
    return NULL;
  }
  for (int i = 0; i < h->rank; i++) dim[i] = h->dim[h->fortran ? h->rank - 1 - i : i];
  Tensor *t = tn_new(m, DEV_CPU, h->dtype, h->rank, dim);
  if (!t) {
    err_nomem(e, in->name);
    return NULL;
  }
  unsigned char *elements =
      (unsigned char *)t->store->data + count * ((int64_t)dt_size(h->dtype) - each);
  bool ok = file_in_read(in, at, elements, left, e);
  if (ok && h->swapped) swap_bytes(elements, count, (size_t)each);
  if (ok && h->stored) ok = widen(t, count, in, h->stored, e);
  if (!ok) {
    tn_unref(t);
    return NULL;
  }
  if (h->dtype == DT_BOOL) {
    unsigned char *b = t->store->data;
    for (int64_t i = 0; i < count; i++) b[i] = b[i] != 0; /* a bool has no other bytes */
  }
  if (h->fortran && h->rank > 1) t = turned(m, t);
  if (!t) err_nomem(e, in->name);
  return t;
}

Tensor *npy_read(Mem *m, const FileIn *in, Err *e) {
  unsigned char start[12];
  if (in->size < 10 || !file_in_read(in, 0, start, 10, e) || memcmp(start, magic, MAGIC)) {
    err_set(e, "%s: is no npy file", in->name);
    return NULL;
  }
  int version = start[6];
  uint64_t length = start[8] | (uint64_t)start[9] << 8, at = version == 1 ? 10 : 12;
  if (version < 1 || version > 3 || start[7]) {
    err_set(e, "%s: is of version %d.%d of the npy format, 1.0 to 3.0 are read", in->name, version,
            start[7]);
    return NULL;
  }
  if (version > 1) {
    if (in->size < 12 || !file_in_read(in, 10, start + 10, 2, e)) {
      err_set(e, "%s: ends too early", in->name);
      return NULL;
    }
    length |= (uint64_t)start[10] << 16 | (uint64_t)start[11] << 24;
  }
  if (length > in->size - at || length > MOST_HEADER) {
    err_set(e, "%s: ends too early (a header of %llu bytes)", in->name, (unsigned long long)length);
    return NULL;
  }
  size_t n = (size_t)length;
  char *text = mem_try(m, NULL, 0, n + 1);
  if (!text) {
    err_nomem(e, in->name);
    return NULL;
  }
  Cursor c = {.name = in->name, .text = text, .at = text, .end = text + n, .err = e};
  Header h = {.rank = 0};
  bool ok = file_in_read(in, at, text, n, e) && read_header(&c, &h);
  mem_free(m, text, n + 1);
  return ok ? read_elements(m, in, at + length, &h, e) : NULL;
}

/* ---- writing */

bool npy_put(const Tensor *t, const char *name, BytesPut put, void *ud, Err *e) {
  enum { ROOM = 512, ALIGN = 64 };
  char text[ROOM] = "";
  if (!code[t->dtype])
    return err_set(e, "%s: NumPy has no %s; f32(x) holds the same numbers", name,
                   dtype_info[t->dtype].name);
  memcpy(text, "\x93NUMPY\1", 8); /* with the NUL that is the minor version */
  int n = 10 + sprintf(text + 10, "{'descr': '%s%s', 'fortran_order': False, 'shape': (",
                       dt_size(t->dtype) > 1 ? "<" : "|", code[t->dtype]);
  for (int i = 0; i < t->rank; i++)
    n += sprintf(text + n, "%s%lld", i ? ", " : "", (long long)t->dim[i]);
  n += sprintf(text + n, "%s), }", t->rank == 1 ? "," : "");
  while ((n + 1) % ALIGN) text[n++] = ' ';
  text[n++] = '\n';
  text[8] = (char)((n - 10) & 0xff);
  text[9] = (char)((n - 10) >> 8);
  return put(ud, text, (size_t)n, e) && bytes_each(t, put, ud, e);
}

bool npy_write(Mem *m, const char *file, const Tensor *t, Err *e) {
  FileOut f;
  if (!file_create(&f, m, file, e)) return false;
  if (npy_put(t, file, bytes_to_file, &f, e)) return file_commit(&f, e);
  file_cancel(&f);
  return false;
}
