/* save and load: values by path in safetensors files (rules 57, 63).
 *
 * In: an instance or a tree of instances, tensors, numbers and texts. Out: a file, or the tree
 * filled from a file. A number is a rank-0 i64 or f64 tensor, a text an entry of the metadata.
 * Invariant: load compares all of the file with all of the tree before it writes anything.
 */
#include <string.h>

#include "lang/builtin/builtin.h"
#include "lang/builtin/builtin_fn.h"
#include "lang/eval/ops.h"
#include "lang/eval/state.h"
#include "lang/eval/want.h"
#include "lang/value/dict.h"
#include "lang/value/fail.h"
#include "lang/value/log.h"
#include "lang/value/packed.h"
#include "lang/value/state_walk.h"
#include "runtime/save.h"

static const char format_key[] = "ckl.format", format_number[] = "1";
static const char structure_key[] = "ckl.structure."; /* followed by the path of a buffer */

/* The path of an entry: the path of the leaf, below `key`. */
static const char *entry_path(Session *s, const char *key, const char *path) {
  if (!*path) return *key ? key : "value";
  return *key ? fail_text(s, "%s.%s", key, path) : path;
}

/* ---- save */

typedef struct Saver {
  Span at;
  SaveEntry *entries;
  size_t count, cap;
  SaveMeta *meta;
  size_t meta_count, meta_cap;
} Saver;

/* The tensor that stores a leaf in a file; NULL for a text or none. */
static Tensor *leaf_tensor(Session *s, Value v, Span at, const char *path) {
  switch ((ValueTag)v.tag) {
  case V_PARAM: return v.u.p->t;
  case V_TENSOR: return v.u.t->t;
  case V_INT: return v_tensor(s, tn_scalar_i64(&s->mem, DEV_CPU, DT_I64, v.u.i)).u.t->t;
  case V_FLOAT: return v_tensor(s, tn_scalar_f64(&s->mem, DEV_CPU, DT_F64, v.u.f)).u.t->t;
  case V_BOOL: return v_tensor(s, tn_scalar_i64(&s->mem, DEV_CPU, DT_BOOL, v.u.i)).u.t->t;
  case V_LIST: return op_as_tensor(s, v, DT_COUNT, at).u.t->t; /* a weak tensor */
  case V_STR:
  case V_NONE: return NULL;
  default:
    fail_at(s, ERR_SAVE, at, "%s%s%s%s cannot be saved", value_type_text(s, v),
            *path ? " at `" : "", path, *path ? "`" : "");
  }
}

static bool leaf_is_tensor(Value v) {
  return v_is_tensor(v) || v_is_weak_list(v);
}

static void save_slot(Session *s, void *ud, const char *path, Inst *owner, Field *f, Param *p) {
  Saver *w = ud;
  (void)owner, (void)p;
  if (!f || !f->open) return;
  Buf b;
  buf_init_arena(&b, &s->scratch);
  packed_put(s, &b, f->v);
  SaveMeta m = {fail_text(s, "%s%s", structure_key, entry_path(s, "", path)), b.s};
  VEC_PUSH(&s->scratch, w->meta, w->meta_count, w->meta_cap, m);
}

static void save_leaf(Session *s, void *ud, const char *path, Inst *owner, Field *f, Value v) {
  Saver *w = ud;
  (void)owner;
  const char *p = entry_path(s, "", path);
  if (f && f->open && !leaf_is_tensor(v)) return; /* stands in the structure of its buffer */
  if (v.tag == V_STR && memchr(v.u.str->s, 0, v.u.str->n))
    fail_at(s, ERR_SAVE, w->at, "the text at `%s` has a character 0, which cannot be saved", p);
  if (v.tag == V_STR) {
    SaveMeta m = {p, v.u.str->s};
    VEC_PUSH(&s->scratch, w->meta, w->meta_count, w->meta_cap, m);
    return;
  }
  SaveEntry e = {p, leaf_tensor(s, v, w->at, path)};
  if (e.t) VEC_PUSH(&s->scratch, w->entries, w->count, w->cap, e);
}

/* Refuses file names of another format: the file would hold safetensors. */
static void check_ending(Session *s, const Call *c, const char *file) {
  static const struct {
    const char *ending, *kind;
    const char *writer; /* NULL: there is none */
  } other[] = {{"csv", "a table", "write_csv"},
               {"tsv", "a table", NULL},
               {"txt", "a text", "write_text"},
               {"md", "a text", "write_text"},
               {"html", "a text", "write_text"},
               {"json", "JSON", "write_json"},
               {"npy", "NumPy's", "write_npy"},
               {"npz", "NumPy's", "write_npz"},
               {"png", "a picture", "write_image"},
               {"ppm", "a picture", "write_image"},
               {"pgm", "a picture", "write_image"},
               {"jpg", "a picture", NULL},
               {"jpeg", "a picture", NULL},
               {"gif", "a picture", NULL},
               {"bmp", "a picture", NULL},
               {"wav", "a sound", "write_wav"},
               {"pt", "PyTorch's", NULL},
               {"pth", "PyTorch's", NULL},
               {"pkl", "Python's", NULL},
               {"h5", "HDF5", NULL},
               {"onnx", "ONNX", NULL},
               {"gguf", "GGUF", NULL},
               {"ckl", "a program", NULL}};
  const char *dot = strrchr(file, '.');
  if (!dot || strchr(dot, '/')) return;
  for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
    if (strcmp(dot + 1, other[i].ending)) continue;
    Diag *d = fail_report(s, ERR_SAVE_NAME, c->spans[1],
                          "%s is the name of another kind of file (%s): save writes safetensors",
                          file, other[i].kind);
    if (other[i].writer)
      dg_help(&s->diags, d, "`%s(%s, \"%s\")` writes one; \"%.*s.safetensors\" is a name for save",
              other[i].writer, fail_source_text(s, c->spans[0], "x"), file, (int)(dot - file),
              file);
    else
      dg_help(&s->diags, d, "\"%.*s.safetensors\" names one", (int)(dot - file), file);
    fail_raise(s);
  }
}

/* One save at a time goes on beside the program. Builtins of files wait for it first, so no program
 * sees the old file behind it. */
static bool ended(Session *s, Err *e) {
  SaveLater *l = s->saving;
  s->saving = NULL;
  return !l || save_later_end(l, e);
}

void bi_save_end(Session *s) {
  Err e = {.text = ""};
  if (!ended(s, &e)) fail_file(s, s->saving_at, &e);
}

void bi_save_free(Session *s) {
  Err e = {.text = ""};
  if (ended(s, &e)) return;
  log_write(s, 2, e.text, strlen(e.text));
  log_write(s, 2, "\n", 1);
}

BUILTIN_FN(bi_save) {
  const char *file = arg_path(s, c, 1);
  bool wait = want_bool(s, c->v[2], c->spans[2], "`wait`");
  check_ending(s, c, file);
  Saver w = {.at = c->spans[0]};
  SaveMeta format = {format_key, format_number};
  VEC_PUSH(&s->scratch, w.meta, w.meta_count, w.meta_cap, format);
  walk_leaves(s, c->v[0], save_leaf, &w);
  walk_slots(s, c->v[0], save_slot, &w);
  Err e = {.text = ""};
  s->saving_at = c->spans[1];
  if (wait ? !save_write(&s->mem, file, w.entries, w.count, w.meta, w.meta_count, &e)
           : !save_write_later(&s->mem, file, w.entries, w.count, w.meta, w.meta_count, &s->saving,
                               &e))
    fail_file(s, c->spans[1], &e);
  return v_unit();
}

/* ---- load */

typedef struct Opened {
  Mem *mem;
  bool open;
  SaveFile file;
} Opened;

static void opened_release(void *p) {
  Opened *o = p;
  if (o->open) save_close(&o->file);
  mem_free(o->mem, o, sizeof *o);
}

/* The paths with one kind of mismatch. */
typedef struct Names1 {
  Buf text;
  size_t count;
} Names1;

enum { NAMES_MOST = 100 };

static void name_add(Names1 *n, const char *text) {
  if (n->count++ < NAMES_MOST) buf_printf(&n->text, "%s%s", n->text.n ? ", " : "", text);
}

typedef struct Loader {
  Span at;
  const char *key;
  SaveFile *file;
  bool *used, *used_text; /* by entry, by text */
  Names1 missing, extra, differ;
  size_t found;
  Value *opened; /* the values of open buffers, in the order of the walk */
  size_t opened_count, opened_cap, next;
} Loader;

static int entry_find(const Loader *l, const char *path) {
  for (size_t i = 0; i < l->file->count; i++)
    if (!strcmp(l->file->entries[i].path, path)) return (int)i;
  return -1;
}

/* The text that the file has at this key, which counts as used; or NULL. */
static const char *text_at_key(Loader *l, const char *key) {
  for (size_t i = 0; i < l->file->meta_count; i++) {
    if (strcmp(l->file->meta[i].key, key) != 0) continue;
    l->used_text[i] = true;
    return l->file->meta[i].value;
  }
  return NULL;
}

static void put_type(Buf *b, const Tensor *t) {
  buf_puts(b, dtype_info[t->dtype].name);
  for (int i = 0; i < t->rank; i++) buf_printf(b, "%s%lld", i ? ", " : "[", (long long)t->dim[i]);
  if (t->rank) buf_putc(b, ']');
}

/* Whether tensor t of the file can become a value like v. */
static bool fits(Session *s, Value v, const Tensor *t, Span at) {
  if (v.tag == V_INT || v.tag == V_FLOAT)
    return t->rank == 0 && (t->dtype == DT_I64 || t->dtype == DT_F64);
  const Tensor *want = leaf_tensor(s, v, at, "");
  if (!want || want->dtype != t->dtype || want->rank != t->rank) return false;
  return !memcmp(want->dim, t->dim, (size_t)t->rank * sizeof t->dim[0]);
}

static void compare_leaf(Session *s, void *ud, const char *path, Inst *owner, Field *f, Value v) {
  Loader *l = ud;
  (void)owner;
  if (v.tag == V_NONE || (f && f->open)) return;
  const char *p = entry_path(s, l->key, path);
  if (v.tag == V_STR) {
    if (text_at_key(l, p))
      l->found++;
    else
      name_add(&l->missing, p);
    return;
  }
  Tensor *want = leaf_tensor(s, v, l->at, path);
  int i = entry_find(l, p);
  if (i < 0) {
    name_add(&l->missing, p);
    return;
  }
  l->used[i] = true;
  const Tensor *t = l->file->entries[i].t;
  if (fits(s, v, t, l->at)) {
    l->found++;
    return;
  }
  Buf b;
  buf_init_arena(&b, &s->scratch);
  buf_printf(&b, "%s (", p);
  put_type(&b, t);
  buf_puts(&b, " in the file, ");
  put_type(&b, want);
  buf_puts(&b, " here)");
  name_add(&l->differ, b.s);
}

static void list_names(Buf *b, const Names1 *n, const char *what) {
  if (!n->count) return;
  buf_printf(b, "%s%zu %s: %s", b->n ? "; " : "", n->count, what, n->text.s);
  if (n->count > NAMES_MOST) buf_printf(b, " and %zu more", n->count - NAMES_MOST);
}

/* The file's value for a leaf like v; v itself if the file has none. */
static Value loaded(Session *s, const Loader *l, Value v, const char *path) {
  const char *p = entry_path(s, l->key, path);
  if (v.tag == V_NONE) return v;
  if (v.tag == V_STR) {
    const char *text = save_meta(l->file, p);
    return text ? v_str(s, text, strlen(text)) : v;
  }
  int i = entry_find(l, p);
  if (i < 0) return v;
  Tensor *t = l->file->entries[i].t;
  switch ((ValueTag)v.tag) {
  case V_INT: return t->dtype == DT_I64 ? v_int(tn_get_i64(t, 0)) : v_float(tn_get_f64(t, 0));
  case V_FLOAT: return v_float(tn_get_f64(t, 0));
  case V_BOOL: return v_bool(tn_get_i64(t, 0) != 0);
  default: break;
  }
  Device dev = v.tag == V_LIST ? DEV_CPU : leaf_tensor(s, v, l->at, path)->store->dev;
  return v_tensor(s, dev == DEV_CPU ? tn_ref(t) : tn_copy(&s->mem, t, dev));
}

/* v with its tensors, numbers and texts from the file; instances and params stay as they are. */
static Value refill(Session *s, const Loader *l, Value v, const char *path) {
  stack_check();
  size_t n;
  if (v.tag == V_INST || v.tag == V_PARAM) return v;
  Value *items = v_is_weak_list(v) ? NULL : value_parts(s, v, &n);
  if (!items) return loaded(s, l, v, path);
  for (size_t i = 0; i < n; i++) items[i] = refill(s, l, items[i], value_part_path(s, path, v, i));
  return value_like(s, v, items);
}

/* A tensor of an open buffer. */
static Value opened_tensor(Session *s, void *ud, const char *path) {
  Loader *l = ud;
  const char *p = entry_path(s, l->key, path);
  int i = entry_find(l, p);
  if (i < 0) name_add(&l->missing, p);
  if (i < 0) return v_none();
  l->used[i] = true;
  return v_tensor(s, tn_ref(l->file->entries[i].t));
}

/* Reads the value of an open buffer, which has to match its type, before anything is written. */
static void open_slot(Session *s, void *ud, const char *path, Inst *owner, Field *f, Param *p) {
  Loader *l = ud;
  if (p || !f || !f->open) return;
  const char *at = entry_path(s, l->key, path);
  const char *text = text_at_key(l, fail_text(s, "%s%s", structure_key, at));
  size_t missing = l->missing.count;
  Value v = f->v;
  if (!text)
    name_add(&l->missing, at);
  else if (!packed_get(s, text, opened_tensor, l, path, &v))
    fail_at(s, ERR_FILE, l->at, "the structure of `%s` in the file is not well formed", at);
  else if (l->missing.count == missing)
    v = state_fitted(s, owner, f, v, l->at), l->found++;
  if (l->missing.count > missing) v = f->v;
  VEC_PUSH(&s->scratch, l->opened, l->opened_count, l->opened_cap, v);
}

static void fill_slot(Session *s, void *ud, const char *path, Inst *owner, Field *f, Param *p) {
  Loader *l = ud;
  if (!p && f->open) {
    state_write(s, owner, f, l->opened[l->next++], l->at);
    return;
  }
  Value v = p ? (Value){.tag = V_PARAM, .u.p = p} : f->v;
  if (p) {
    Value n = loaded(s, l, v, path);
    if (n.tag == V_TENSOR) param_write(s, p, n, l->at);
  } else {
    state_write(s, owner, f, refill(s, l, v, path), l->at);
  }
}

BUILTIN_FN(bi_read_tensors) {
  const char *path = arg_path(s, c, 0);
  bool mapped = want_bool(s, c->v[1], c->spans[1], "`mapped`");
  Opened *o = mem_need(&s->mem, NULL, 0, sizeof *o);
  *o = (Opened){.mem = &s->mem};
  mem_pool_add(&s->mem, o, opened_release);
  Err e = {.text = ""};
  if (!save_read(&s->mem, path, mapped, &o->file, &e)) fail_file(s, c->spans[0], &e);
  o->open = true;
  size_t n = o->file.count;
  Value *keys = ARENA_ARRAY(&s->scratch, Value, n + 1),
        *items = ARENA_ARRAY(&s->scratch, Value, n + 1);
  for (size_t i = 0; i < n; i++) {
    keys[i] = v_str(s, o->file.entries[i].path, strlen(o->file.entries[i].path));
    items[i] = v_tensor(s, tn_ref(o->file.entries[i].t));
  }
  return v_dict(s, n, keys, items);
}

BUILTIN_FN(bi_load) {
  const char *name = arg_path(s, c, 1), *key = want_str(s, c->v[2], c->spans[2], "`key`");
  bool partial = want_bool(s, c->v[3], c->spans[3], "`partial`");
  Opened *o = mem_need(&s->mem, NULL, 0, sizeof *o);
  *o = (Opened){.mem = &s->mem};
  mem_pool_add(&s->mem, o, opened_release);
  Err e = {.text = ""};
  if (!save_read(&s->mem, name, false, &o->file, &e)) fail_file(s, c->spans[1], &e);
  o->open = true;
  log_line(s, LOG_LOAD, "%s (%zu tensors)", name, o->file.count);
  Loader l = {.at = c->spans[0], .key = key, .file = &o->file};
  l.used = ARENA_ARRAY(&s->scratch, bool, o->file.count + 1);
  l.used_text = ARENA_ARRAY(&s->scratch, bool, o->file.meta_count + 1);
  buf_init_arena(&l.missing.text, &s->scratch);
  buf_init_arena(&l.extra.text, &s->scratch);
  buf_init_arena(&l.differ.text, &s->scratch);
  const char *format = save_meta(&o->file, format_key);
  if (format && strcmp(format, format_number))
    fail_at(s, ERR_FILE, c->spans[1], "%s: written by a later version of ckl (format %s)", name,
            format);
  walk_leaves(s, c->v[0], compare_leaf, &l);
  walk_slots(s, c->v[0], open_slot, &l);
  size_t n = strlen(key), below = 0;
  for (size_t i = 0; i < o->file.count; i++) {
    const char *p = o->file.entries[i].path;
    if (n && (strncmp(p, key, n) || (p[n] && p[n] != '.'))) continue;
    below++;
    if (!l.used[i]) name_add(&l.extra, p);
  }
  for (size_t i = 0; i < o->file.meta_count; i++) {
    const char *p = o->file.meta[i].key;
    size_t prefix = sizeof structure_key - 1;
    if (!strncmp(p, structure_key, prefix)) p += prefix;
    if (n && (strncmp(p, key, n) || (p[n] && p[n] != '.'))) continue;
    below += n > 0;
    /* texts of a file that others wrote are remarks */
    if (format && !l.used_text[i] && strcmp(p, format_key) != 0) name_add(&l.extra, p);
  }
  if (n && !below) fail_at(s, ERR_LOAD, c->spans[2], "%s: nothing is saved under `%s`", name, key);
  if (l.differ.count || (!partial && (l.missing.count || l.extra.count))) {
    Buf b;
    buf_init_arena(&b, &s->scratch);
    list_names(&b, &l.missing, "missing");
    list_names(&b, &l.extra, "extra");
    list_names(&b, &l.differ, l.differ.count == 1 ? "differs" : "differ");
    if (l.differ.count) fail_at(s, ERR_LOAD, c->at, "%s does not fit: %s", name, b.s);
    fail_help(s, ERR_LOAD, c->at, "partial = true allows missing and extra entries",
              "%s does not fit: %s", name, b.s);
  }
  if (l.missing.count || l.extra.count) {
    const char *note = fail_text(s, "%s: %zu loaded, %zu missing, %zu extra\n", name, l.found,
                                 l.missing.count, l.extra.count);
    log_write(s, 2, note, strlen(note));
  }
  Value root = refill(s, &l, c->v[0], "");
  walk_slots(s, c->v[0], fill_slot, &l);
  return root;
}
