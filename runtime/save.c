/* The safetensors format, as described on github.com/huggingface/safetensors.
 *
 * In: tensors and strings, or a file that may hold anything. Out: a file that other readers accept,
 * or tensors of checked shape.
 * Invariant: everything in a file is checked before it is used; a length is compared with the size
 * of the file before memory is allocated. The header is JSON (RFC 8259): a first pass verifies that
 * it is, and that it does not nest too deep; the second one walks over text that is known to be
 * JSON. */
#include "runtime/save.h"

#include <stdio.h>
#include <string.h>

#include "runtime/bytes.h"
#include "runtime/str.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "saved files are little-endian: this file must learn to swap bytes first"
#endif

static const char meta_key[] = "__metadata__";

/* The format's name of each dtype. */
static const char *const dtype_code[DT_COUNT] = {
    [DT_BOOL] = "BOOL", [DT_U8] = "U8",   [DT_I8] = "I8",     [DT_I16] = "I16", [DT_I32] = "I32",
    [DT_I64] = "I64",   [DT_F16] = "F16", [DT_BF16] = "BF16", [DT_F32] = "F32", [DT_F64] = "F64",
};

enum {
  MOST_HEADER = 100 * 1000 * 1000, /* bytes, the limit of the format's own reader */
  MOST_DEPTH = 4,                  /* brackets: the header needs 3 */
};

/* ---- order */

typedef struct Item {
  const char *path;
  Tensor *t;
  size_t number; /* place in the caller's list, or in the header */
  uint64_t lo, hi;
  DType dtype;
  int rank;
  int64_t dim[CKL_MAX_RANK];
} Item;

typedef int (*Order)(const Item *a, const Item *b);

static int by_path(const Item *a, const Item *b) {
  return strcmp(a->path, b->path);
}

static int by_place(const Item *a, const Item *b) {
  if (a->lo != b->lo) return a->lo < b->lo ? -1 : 1;
  if (a->hi != b->hi) return a->hi < b->hi ? -1 : 1;
  return (a->number > b->number) - (a->number < b->number);
}

static int by_width(const Item *a, const Item *b) {
  size_t x = dt_size(a->dtype), y = dt_size(b->dtype);
  if (x != y) return x > y ? -1 : 1;
  return (a->number > b->number) - (a->number < b->number);
}

/* Heap sort of pointers (J. Williams 1964): needs no extra memory, and is never slow. */
static void sort(Item **v, size_t n, Order order) {
  for (size_t end = n, start = n / 2; end > 1;) {
    if (start > 0) {
      start--;
    } else {
      Item *top = v[0];
      v[0] = v[--end];
      v[end] = top;
    }
    Item *it = v[start];
    size_t hole = start;
    for (size_t kid; (kid = 2 * hole + 1) < end; hole = kid) {
      if (kid + 1 < end && order(v[kid], v[kid + 1]) < 0) kid++;
      if (order(it, v[kid]) >= 0) break;
      v[hole] = v[kid];
    }
    v[hole] = it;
  }
}

/* Returns a path that occurs twice, or NULL. */
static const char *twice(Item **v, size_t n) {
  sort(v, n, by_path);
  for (size_t i = 1; i < n; i++)
    if (strcmp(v[i - 1]->path, v[i]->path) == 0) return v[i]->path;
  return NULL;
}

/* Allocates an array of n; NULL when out of memory or if n is too large. */
static void *array_try(Arena *a, size_t each, size_t n) {
  return n > PTRDIFF_MAX / each ? NULL : arena_try(a, each * n);
}

/* ---- writing */

typedef struct Header {
  Buf *out;
  Item **item;
  size_t n;
  const SaveMeta *meta;
  size_t n_meta;
} Header;

/* Runs under mem_protect, since a Buf throws. */
static void make_header(void *ud) {
  Header *h = ud;
  Buf *b = h->out;
  bool first = true;
  buf_putc(b, '{');
  if (h->n_meta) {
    buf_json(b, meta_key, strlen(meta_key));
    buf_puts(b, ":{");
    for (size_t i = 0; i < h->n_meta; i++) {
      if (i) buf_putc(b, ',');
      buf_json(b, h->meta[i].key, strlen(h->meta[i].key));
      buf_putc(b, ':');
      buf_json(b, h->meta[i].value, strlen(h->meta[i].value));
    }
    buf_putc(b, '}');
    first = false;
  }
  for (size_t i = 0; i < h->n; i++) {
    const Item *it = h->item[i];
    if (!first) buf_putc(b, ',');
    first = false;
    buf_json(b, it->path, strlen(it->path));
    buf_printf(b, ":{\"dtype\":\"%s\",\"shape\":[", dtype_code[it->dtype]);
    for (int k = 0; k < it->rank; k++) buf_printf(b, k ? ",%lld" : "%lld", (long long)it->dim[k]);
    buf_printf(b, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)it->lo,
               (unsigned long long)it->hi);
  }
  buf_putc(b, '}');
  while (b->n % 8) buf_putc(b, ' '); /* align the tensors */
}

/* Fills in the items and their order in the file. */
static bool lay_out(const char *file, const SaveEntry *entries, size_t n, Item *item, Item **order,
                    Err *e) {
  for (size_t i = 0; i < n; i++) {
    const Tensor *t = entries[i].t;
    item[i] = (Item){.path = entries[i].path, .t = entries[i].t, .number = i, .dtype = t->dtype};
    item[i].rank = t->rank;
    memcpy(item[i].dim, t->dim, sizeof t->dim);
    order[i] = &item[i];
    if (!str_valid(item[i].path, strlen(item[i].path)))
      return err_set(e, "%s: the path of tensor %zu is not valid UTF-8", file, i + 1);
    if (strcmp(item[i].path, meta_key) == 0)
      return err_set(e, "%s: `%s` cannot be the path of a tensor", file, meta_key);
    if (t->store->dev == DEV_CUDA)
      return err_set(e, "%s: `%s` is not in host memory", file, item[i].path);
  }
  const char *again = twice(order, n);
  if (again) return err_set(e, "%s: the path `%s` is given twice", file, again);
  sort(order, n, by_width);
  uint64_t at = 0;
  for (size_t i = 0; i < n; i++) {
    uint64_t bytes = (uint64_t)tn_count(order[i]->t) * dt_size(order[i]->dtype);
    if (bytes > INT64_MAX - at) return err_set(e, "%s: the file would be too large", file);
    order[i]->lo = at;
    order[i]->hi = at += bytes;
  }
  return true;
}

/* A file to write. */
struct SaveLater {
  Mem *mem;
  Arena arena; /* holds all but the tensors */
  Buf header;
  Item **order;
  size_t n;
  FileLater *file; /* the thread that writes, and has references to the tensors */
};

/* *w is to be released by arena_free(&w->arena), also if it fails. */
static bool plan(SaveLater *w, Mem *m, const char *file, const SaveEntry *entries, size_t n,
                 const SaveMeta *meta, size_t n_meta, Err *e) {
  *w = (SaveLater){.mem = m, .n = n};
  arena_init(&w->arena, m);
  buf_init_arena(&w->header, &w->arena);
  for (size_t i = 0; i < n_meta; i++) {
    if (!str_valid(meta[i].key, strlen(meta[i].key)) ||
        !str_valid(meta[i].value, strlen(meta[i].value)))
      return err_set(e, "%s: the metadata are not valid UTF-8", file);
    for (size_t k = 0; k < i; k++)
      if (strcmp(meta[i].key, meta[k].key) == 0)
        return err_set(e, "%s: the metadata key `%s` is given twice", file, meta[i].key);
  }
  Item *item = array_try(&w->arena, sizeof *item, n);
  w->order = array_try(&w->arena, sizeof *w->order, n);
  if (!item || !w->order) return err_nomem(e, file);
  if (!lay_out(file, entries, n, item, w->order, e)) return false;
  Header h = {&w->header, w->order, n, meta, n_meta};
  if (mem_protect(m, make_header, &h) != MEM_OK) return err_nomem(e, file);
  return w->header.n <= MOST_HEADER ||
         err_set(e, "%s: the header would take %zu bytes, %d are allowed", file, w->header.n,
                 (int)MOST_HEADER);
}

static bool put_all(FileOut *f, void *ud, Err *e) {
  const SaveLater *w = ud;
  uint64_t length = w->header.n;
  if (!file_put(f, &length, 8, e) || !file_put(f, w->header.s, w->header.n, e)) return false;
  for (size_t i = 0; i < w->n; i++)
    if (!bytes_each(w->order[i]->t, bytes_to_file, f, e)) return false;
  return true;
}

static bool put_now(FileOut *f, SaveLater *w, Err *e) {
  if (put_all(f, w, e)) return file_commit(f, e);
  file_cancel(f);
  return false;
}

bool save_write(Mem *m, const char *file, const SaveEntry *entries, size_t n, const SaveMeta *meta,
                size_t n_meta, Err *e) {
  SaveLater w;
  FileOut f;
  bool ok = plan(&w, m, file, entries, n, meta, n_meta, e) && file_create(&f, m, file, e) &&
            put_now(&f, &w, e);
  arena_free(&w.arena);
  return ok;
}

static void release(SaveLater *w) {
  arena_free(&w->arena);
  mem_free(w->mem, w, sizeof *w);
}

bool save_write_later(Mem *m, const char *file, const SaveEntry *entries, size_t n,
                      const SaveMeta *meta, size_t n_meta, SaveLater **later, Err *e) {
  FileOut f;
  SaveLater *w = mem_try(m, NULL, 0, sizeof *w);
  *later = NULL;
  if (!w) return err_nomem(e, file);
  bool ok = plan(w, m, file, entries, n, meta, n_meta, e) && file_create(&f, m, file, e);
  if (ok) {
    w->file = file_later(&f, put_all, w);
    if (!w->file) ok = put_now(&f, w, e);
  }
  if (ok && w->file) {
    for (size_t i = 0; i < n; i++) tn_ref(w->order[i]->t);
    *later = w;
  } else {
    release(w);
  }
  return ok;
}

bool save_later_end(SaveLater *w, Err *e) {
  bool ok = file_later_end(w->file, e);
  for (size_t i = 0; i < w->n; i++) tn_unref(w->order[i]->t);
  release(w);
  return ok;
}

/* ---- reading: the header is JSON */

static const char *blank(const char *p) {
  return p + strspn(p, " \t\r\n");
}

static bool hex4(const char *p, uint32_t *out) {
  *out = 0;
  for (int i = 0; i < 4; i++) {
    char c = p[i];
    int d = c >= '0' && c <= '9'                 ? c - '0'
            : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 87
                                                 : -1;
    if (d < 0) return false;
    *out = *out << 4 | (uint32_t)d;
  }
  return true;
}

/* Reads an escape; p is behind the backslash. Returns the place behind it, or NULL. */
static const char *escape(const char *p, uint32_t *cp) {
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  const char *k = *p ? strchr(from, *p) : NULL;
  uint32_t low;
  if (k) {
    *cp = (unsigned char)to[k - from];
    return p + 1;
  }
  if (*p != 'u' || !hex4(p + 1, cp)) return NULL;
  p += 5;
  if (*cp < 0xd800 || *cp > 0xdfff) return p;
  if (*cp > 0xdbff || p[0] != '\\' || p[1] != 'u' || !hex4(p + 2, &low)) return NULL;
  if (low < 0xdc00 || low > 0xdfff) return NULL;
  *cp = 0x10000 + ((*cp - 0xd800) << 10) + (low - 0xdc00);
  return p + 6;
}

/* The first pass. p is at a value in a text that ends with NUL; these functions return the place
 * behind the value, or NULL. */
static const char *check_string(const char *p, const char **why) {
  if (*p++ != '"') return NULL;
  while (*p != '"') {
    uint32_t cp = 1;
    if ((unsigned char)*p < ' ') return NULL;
    if (*p++ == '\\' && !(p = escape(p, &cp))) return NULL;
    if (!cp) {
      *why = "holds a NUL in a name";
      return NULL;
    }
  }
  return p + 1;
}

static const char *check_number(const char *p) {
  static const char digits[] = "0123456789";
  p += *p == '-';
  size_t n = strspn(p, digits);
  if (!n || (n > 1 && *p == '0')) return NULL;
  p += n;
  if (*p == '.') {
    n = strspn(++p, digits);
    if (!n) return NULL;
    p += n;
  }
  if (*p != 'e' && *p != 'E') return p;
  p++;
  p += *p == '+' || *p == '-';
  n = strspn(p, digits);
  return n ? p + n : NULL;
}

static const char *check_value(const char *p, int depth, const char **why) {
  if (*p == '"') return check_string(p, why);
  if (!strncmp(p, "true", 4) || !strncmp(p, "null", 4)) return p + 4;
  if (!strncmp(p, "false", 5)) return p + 5;
  if (*p != '{' && *p != '[') return check_number(p);
  if (depth == MOST_DEPTH) {
    *why = "nests too deeply";
    return NULL;
  }
  char close = *p == '{' ? '}' : ']';
  p = blank(p + 1);
  if (*p == close) return p + 1;
  for (;;) {
    if (close == '}') {
      if (!(p = check_string(p, why))) return NULL;
      p = blank(p);
      if (*p++ != ':') return NULL;
      p = blank(p);
    }
    if (!(p = check_value(p, depth + 1, why))) return NULL;
    p = blank(p);
    if (*p == close) return p + 1;
    if (*p++ != ',') return NULL;
    p = blank(p);
  }
}

static bool check_header(const char *name, const char *text, size_t n, Err *e) {
  const char *why = "is not valid JSON", *p;
  if (*text != '{') return err_set(e, "%s: the header is no JSON object", name);
  if (memchr(text, 0, n)) return err_set(e, "%s: the header holds a NUL byte", name);
  if (!(p = check_value(text, 0, &why)) || *blank(p))
    return err_set(e, "%s: the header %s", name, why);
  return true;
}

/* The second pass: these functions get text that has been checked. */
static const char *skip(const char *p) {
  int depth = 0;
  do {
    if (*p == '"') {
      for (p++; *p != '"'; p++) p += *p == '\\';
    } else if (*p == '{' || *p == '[') {
      depth++;
    } else if (*p == '}' || *p == ']') {
      depth--;
    } else if (!depth) {
      return p + strcspn(p, ",]} \t\r\n");
    }
    p++;
  } while (depth);
  return p;
}

/* `first` finds the first item or key between brackets, `next` the one behind a value; NULL if
 * there is none. */
static const char *first(const char *p) {
  p = blank(p + 1);
  return *p == '}' || *p == ']' ? NULL : p;
}

static const char *next(const char *p) {
  p = blank(skip(p));
  return *p == ',' ? blank(p + 1) : NULL;
}

static const char *value_of(const char *key) {
  return blank(blank(skip(key)) + 1);
}

/* Finds a value of an object by its key, as written; "" if there is none. */
static const char *find(const char *object, const char *key) {
  for (const char *k = first(object); k; k = next(value_of(k)))
    if (!strncmp(k + 1, key, strlen(key)) && k[1 + strlen(key)] == '"') return value_of(k);
  return "";
}

/* Returns a string without its quotes and escapes; NULL when out of memory. */
static const char *text_of(Arena *a, const char *p) {
  char *text = arena_try(a, (size_t)(skip(p) - p)), *to = text;
  if (!text) return NULL;
  for (p++; *p != '"';) {
    uint32_t cp;
    if (*p != '\\') {
      *to++ = *p++;
      continue;
    }
    p = escape(p + 1, &cp); /* an escape is never shorter than its character */
    int more = cp < 0x80 ? 0 : cp < 0x800 ? 1 : cp < 0x10000 ? 2 : 3;
    *to++ = (char)(more ? (0xff00 >> (more + 1) & 0xff) | cp >> 6 * more : cp);
    while (more--) *to++ = (char)(0x80 | (cp >> 6 * more & 0x3f));
  }
  *to = 0;
  return text;
}

/* A whole number from 0 to 2^53, the range that JSON numbers hold exactly. */
static bool whole(const char *p, uint64_t *v) {
  const uint64_t most = UINT64_C(1) << 53;
  size_t n = strspn(p, "0123456789");
  *v = 0;
  for (size_t i = 0; i < n && *v <= most; i++) *v = *v * 10 + (uint64_t)(p[i] - '0');
  return n && *v <= most && p[n] && strchr(",]} \t\r\n", p[n]);
}

/* ---- reading: entries */

static bool read_item(const char *name, const char *j, Item *it, uint64_t data_size, Arena *a,
                      Err *e) {
  const char *path = it->path;
  if (*j != '{') return err_set(e, "%s: the entry `%s` is no object", name, path);
  const char *dtype = find(j, "dtype"), *shape = find(j, "shape"), *place = find(j, "data_offsets");
  if (*dtype != '"') return err_set(e, "%s: `%s` has no dtype", name, path);
  const char *code = text_of(a, dtype);
  if (!code) return err_nomem(e, name);
  int dt = 0;
  while (dt < DT_COUNT && strcmp(dtype_code[dt], code) != 0) dt++;
  if (dt == DT_COUNT)
    return err_set(e, "%s: `%s` has the dtype %s, which is none of ckl's", name, path, code);
  it->dtype = (DType)dt;
  if (*shape != '[') return err_set(e, "%s: `%s` has no shape", name, path);
  it->rank = 0;
  for (const char *d = first(shape); d; d = next(d)) {
    uint64_t v;
    if (it->rank == CKL_MAX_RANK)
      return err_set(e, "%s: `%s` has more than %d dims", name, path, (int)CKL_MAX_RANK);
    if (!whole(d, &v)) return err_set(e, "%s: the shape of `%s` is not of sizes", name, path);
    it->dim[it->rank++] = (int64_t)v;
  }
  const char *lo = *place == '[' ? first(place) : NULL, *hi = lo ? next(lo) : NULL;
  if (!hi || next(hi) || !whole(lo, &it->lo) || !whole(hi, &it->hi))
    return err_set(e, "%s: `%s` has no data_offsets", name, path);
  if (it->hi < it->lo || it->hi > data_size)
    return err_set(e, "%s: `%s` lies outside the file (bytes %llu to %llu of %llu)", name, path,
                   (unsigned long long)it->lo, (unsigned long long)it->hi,
                   (unsigned long long)data_size);
  int64_t count = tn_product(it->rank, it->dim), each = (int64_t)dt_size(it->dtype);
  if (count < 0 || count > INT64_MAX / each || (uint64_t)(count * each) != it->hi - it->lo)
    return err_set(e, "%s: `%s` has %llu bytes, which does not fit its shape", name, path,
                   (unsigned long long)(it->hi - it->lo));
  return true;
}

static size_t members(const char *object) {
  size_t n = 0;
  for (const char *k = first(object); k; k = next(value_of(k))) n++;
  return n;
}

static bool read_meta(const char *name, const char *j, SaveFile *out, Err *e) {
  if (out->meta) return err_set(e, "%s: the header has metadata twice", name);
  if (*j != '{') return err_set(e, "%s: the metadata are no object", name);
  out->meta = array_try(&out->text, sizeof *out->meta, members(j));
  if (!out->meta) return err_nomem(e, name);
  for (const char *k = first(j); k; k = next(value_of(k))) {
    SaveMeta it = {text_of(&out->text, k), ""};
    if (!it.key) return err_nomem(e, name);
    if (*value_of(k) != '"') return err_set(e, "%s: the metadata `%s` are no string", name, it.key);
    if (!(it.value = text_of(&out->text, value_of(k)))) return err_nomem(e, name);
    out->meta[out->meta_count++] = it;
  }
  return true;
}

/* Reads the entries of the header and sorts them by place; they have to fill the data exactly. */
static bool read_header(const char *name, const char *root, uint64_t data_size, SaveFile *out,
                        Item ***order, size_t *count, Err *e) {
  size_t n = members(root);
  Item *item = array_try(&out->text, sizeof *item, n);
  Item **at = array_try(&out->text, sizeof *at, n);
  if (!item || !at) return err_nomem(e, name);
  size_t have = 0;
  for (const char *k = first(root); k; k = next(value_of(k))) {
    Item *it = &item[have];
    it->number = have;
    it->path = text_of(&out->text, k);
    if (!it->path) return err_nomem(e, name);
    if (strcmp(it->path, meta_key) == 0) {
      if (!read_meta(name, value_of(k), out, e)) return false;
      continue;
    }
    if (!str_valid(it->path, strlen(it->path)))
      return err_set(e, "%s: the path of entry %zu is not valid UTF-8", name, have + 1);
    if (!read_item(name, value_of(k), it, data_size, &out->text, e)) return false;
    at[have++] = it;
  }
  const char *again = twice(at, have);
  if (again) return err_set(e, "%s: the path `%s` stands twice", name, again);
  sort(at, have, by_place);
  uint64_t end = 0;
  for (size_t i = 0; i < have; end = at[i++]->hi) {
    if (at[i]->lo < end)
      return err_set(e, "%s: `%s` and `%s` overlap", name, at[i - 1]->path, at[i]->path);
    if (at[i]->lo > end)
      return err_set(e, "%s: %llu bytes before `%s` belong to no tensor", name,
                     (unsigned long long)(at[i]->lo - end), at[i]->path);
  }
  if (end != data_size)
    return err_set(e, "%s: %llu bytes at the end belong to no tensor", name,
                   (unsigned long long)(data_size - end));
  *order = at;
  *count = have;
  return true;
}

/* ---- reading: all of it */

static bool read_tensors(Mem *m, const FileIn *in, bool mapped, uint64_t data, Item **order,
                         size_t n, SaveFile *out, Err *e) {
  out->entries = array_try(&out->text, sizeof *out->entries, n);
  if (!out->entries) return err_nomem(e, in->name);
  for (size_t i = 0; i < n; i++) {
    const Item *it = order[i];
    bool stays = mapped && !in->bytes && it->hi > it->lo && it->dtype != DT_BOOL &&
                 (data + it->lo) % dt_size(it->dtype) == 0;
    Tensor *t = stays ? bytes_mapped(m, in, data + it->lo, it->dtype, it->rank, it->dim, e)
                      : tn_new(m, DEV_CPU, it->dtype, it->rank, it->dim);
    if (!t) return !stays && err_nomem(e, in->name);
    out->entries[out->count++] = (SaveEntry){it->path, t};
    if (stays) continue;
    if (!file_in_read(in, data + it->lo, t->store->data, it->hi - it->lo, e)) return false;
    if (it->dtype != DT_BOOL) continue;
    unsigned char *b = t->store->data;
    for (size_t k = 0; k < t->store->bytes; k++) b[k] = b[k] != 0; /* a bool has no other bytes */
  }
  return true;
}

static bool read_in(Mem *m, const FileIn *in, bool mapped, SaveFile *out, Err *e) {
  uint64_t length;
  if (in->size < 8) return err_set(e, "%s: is no safetensors file (too short)", in->name);
  if (!file_in_read(in, 0, &length, 8, e)) return false;
  if (length > MOST_HEADER || length > in->size - 8)
    return err_set(e, "%s: is no safetensors file, or cut short (a header of %llu bytes)", in->name,
                   (unsigned long long)length);
  size_t n = (size_t)length;
  char *text = mem_try(m, NULL, 0, n + 1);
  if (!text) return err_nomem(e, in->name);
  text[n] = 0;
  Item **order = NULL;
  size_t count = 0;
  bool ok = file_in_read(in, 8, text, length, e) && check_header(in->name, text, n, e) &&
            read_header(in->name, text, in->size - 8 - length, out, &order, &count, e);
  mem_free(m, text, n + 1);
  return ok && read_tensors(m, in, mapped, 8 + length, order, count, out, e);
}

static bool read_or_close(Mem *m, const FileIn *in, bool mapped, SaveFile *out, Err *e) {
  *out = (SaveFile){.count = 0};
  arena_init(&out->text, m);
  if (read_in(m, in, mapped, out, e)) return true;
  save_close(out);
  return false;
}

bool save_parse(Mem *m, const char *name, const void *bytes, size_t n, SaveFile *out, Err *e) {
  FileIn in = file_in_memory(name, bytes, n);
  return read_or_close(m, &in, false, out, e);
}

bool save_read(Mem *m, const char *file, bool mapped, SaveFile *out, Err *e) {
  FileIn in;
  if (!file_in_open(&in, m, file, e)) return false;
  bool ok = read_or_close(m, &in, mapped, out, e);
  file_in_close(&in);
  return ok;
}

void save_close(SaveFile *f) {
  for (size_t i = 0; i < f->count; i++) tn_unref(f->entries[i].t);
  arena_free(&f->text);
  f->entries = NULL;
  f->meta = NULL;
  f->count = f->meta_count = 0;
}

Tensor *save_find(const SaveFile *f, const char *path) {
  for (size_t i = 0; i < f->count; i++)
    if (strcmp(f->entries[i].path, path) == 0) return f->entries[i].t;
  return NULL;
}

const char *save_meta(const SaveFile *f, const char *key) {
  for (size_t i = 0; i < f->meta_count; i++)
    if (strcmp(f->meta[i].key, key) == 0) return f->meta[i].value;
  return NULL;
}
