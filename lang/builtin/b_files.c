/* Builtins of files: texts, bytes, tables of numbers; what is in a folder.
 *
 * In: paths, values of script. Out: texts and tensors; files, written as a whole or not at
 * all. Every path goes through the door of the session (runtime/door.h), and `-` is standard input
 * or output. A reader of runtime/ knows the format; here are arguments and values.
 */
#include <string.h>

#include "lang/builtin/builtin.h"
#include "lang/builtin/builtin_fn.h"
#include "lang/eval/ops.h"
#include "lang/eval/seq.h"
#include "lang/eval/want.h"
#include "lang/names/module.h"
#include "lang/value/fail.h"
#include "runtime/bytes.h"
#include "runtime/csv.h"
#include "runtime/folder.h"
#include "runtime/lines.h"

/* NumPy's order, the file first. */
static void file_comes_last(Session *s, Call *c) {
  if (c->n < 2 || c->v[0].tag != V_STR || c->v[1].tag == V_STR) return;
  const char *x = fail_source_text(s, c->spans[1], "x");
  fail_help(s, ERR_WANT_TENSOR, c->spans[0],
            fail_text(s, "write `%s(%s, %s)`", c->b->name, x,
                      fail_source_text(s, c->spans[0], "\"name\"")),
            "the file comes last");
}

const char *arg_path(Session *s, Call *c, int i) {
  if (i == 1) file_comes_last(s, c);
  const char *path = want_str(s, c->v[i], c->spans[i], "the path");
  if (strlen(path) != c->v[i].u.str->n)
    fail_at(s, ERR_FILE, c->spans[i], "a path has no NUL character");
  bi_save_end(s);
  return path;
}

const Tensor *arg_known(Session *s, Call *c, int i, const char *what) {
  Value v = c->v[i];
  bool weak = v_is_weak_list(v) || v_is_number(v) || v.tag == V_BOOL;
  if (weak) v = op_as_tensor(s, v, DT_COUNT, c->spans[i]);
  Tensor *t = v_tensor_of(v);
  if (!t && i == 0) file_comes_last(s, c);
  if (!t)
    fail_at(s, ERR_WANT_TENSOR, c->spans[i], "%s is a tensor, not %s", what,
            value_type_text(s, c->v[i]));
  return t;
}

BUILTIN_FN(bi_here) {
  const char *path = want_str(s, c->v[0], c->spans[0], "the path");
  const Module *m = s->frame ? s->frame->module : s->main;
  const char *slash = m && m->path ? strrchr(m->path, '/') : NULL;
  if (*path == '/' || !slash) return c->v[0];
  return v_printf(s, "%.*s%s", (int)(slash - m->path + 1), m->path, path);
}

/* ---- text */

BUILTIN_FN(bi_read_text) {
  const char *path = arg_path(s, c, 0);
  Err e = {.text = ""};
  size_t n;
  char *text = lines_read(&s->mem, path, &n, &e);
  if (!text) fail_file(s, c->spans[0], &e);
  return v_str(s, value_pool_text(s, text, n), n);
}

BUILTIN_FN(bi_read_lines) {
  const char *path = arg_path(s, c, 0);
  bool there = true;
  Err e = {.text = ""};
  /* a loop opens it; that it is not there is said here */
  if (strcmp(path, "-") && !folder_has(&s->mem, path, &there, &e)) fail_file(s, c->spans[0], &e);
  if (!there) fail_at(s, ERR_FILE, c->spans[0], "%s: no such file", path);
  return seq_value(s, SEQ_LINES, c->v[0], v_unit(), 0, 0, false, false, 0);
}

void arg_write(Session *s, Span at, const char *path, const void *bytes, size_t n) {
  FileOut f;
  Err e = {.text = ""};
  bool ok = file_create(&f, &s->mem, path, &e);
  if (ok && !(ok = file_put(&f, bytes, n, &e))) file_cancel(&f);
  if (!ok || !file_commit(&f, &e)) fail_file(s, at, &e);
}

BUILTIN_FN(bi_write_text) {
  want_str(s, c->v[0], c->spans[0], "what is written");
  arg_write(s, c->spans[1], arg_path(s, c, 1), c->v[0].u.str->s, c->v[0].u.str->n);
  return v_unit();
}

BUILTIN_FN(bi_append_text) {
  want_str(s, c->v[0], c->spans[0], "what is written");
  const StrObj *t = c->v[0].u.str;
  Err e = {.text = ""};
  if (!file_append(&s->mem, arg_path(s, c, 1), t->s, t->n, &e)) fail_file(s, c->spans[1], &e);
  return v_unit();
}

/* ---- bytes */

BUILTIN_FN(bi_read_bytes) {
  const char *path = arg_path(s, c, 0);
  DType dt = arg_dtype(s, c->v[1], c->spans[1]);
  int64_t from = want_int(s, c->v[2], c->spans[2], "`from`"), most = -1;
  if (c->v[3].tag != V_NONE) most = want_int(s, c->v[3], c->spans[3], "`most`");
  if (from < 0 || (c->v[3].tag != V_NONE && most < 0))
    fail_at(s, ERR_VALUE, c->spans[from < 0 ? 2 : 3], "`%s` is at least 0, this is %lld",
            from < 0 ? "from" : "most", (long long)(from < 0 ? from : most));
  bool mapped = want_bool(s, c->v[4], c->spans[4], "`mapped`");
  if (dt == DT_BOOL) fail_at(s, ERR_WANT_DTYPE, c->spans[1], "bytes are numbers, not bools");
  if (mapped && dt != DT_U8)
    fail_at(s, ERR_WANT_DTYPE, c->spans[1], "mapped bytes are u8, for they stay in the file");
  Err e = {.text = ""};
  Tensor *t = bytes_read(&s->mem, path, from, most, mapped, &e);
  if (!t) fail_file(s, c->spans[0], &e);
  return op_cast(s, v_tensor(s, t), dt, c->at);
}

/* The elements of a tensor of ints as bytes. */
static const Tensor *as_bytes(Session *s, const Tensor *t, Span at) {
  if (t->dtype == DT_U8) return t;
  if (!dt_int(t->dtype) && tn_count(t))
    fail_at(s, ERR_WANT_TENSOR, at, "bytes are ints, not %s", dtype_info[t->dtype].name);
  Tensor *b = tn_new(&s->mem, DEV_CPU, DT_U8, t->rank, t->dim);
  v_tensor(s, b);
  uint8_t *to = tn_data(b);
  for (int64_t i = 0; i < tn_count(t); i++) {
    int64_t x = tn_get_i64(t, i);
    if (x < 0 || x > UINT8_MAX)
      fail_at(s, ERR_VALUE, at, "a byte is an int from 0 to 255, element %lld is %lld",
              (long long)i, (long long)x);
    to[i] = (uint8_t)x;
  }
  return b;
}

BUILTIN_FN(bi_write_bytes) {
  const Tensor *t = as_bytes(s, arg_known(s, c, 0, "what is written"), c->spans[0]);
  FileOut f;
  Err e = {.text = ""};
  bool ok = file_create(&f, &s->mem, arg_path(s, c, 1), &e);
  if (ok && !(ok = bytes_each(t, bytes_to_file, &f, &e))) file_cancel(&f);
  if (!ok || !file_commit(&f, &e)) fail_file(s, c->spans[1], &e);
  return v_unit();
}

/* ---- tables of numbers */

BUILTIN_FN(bi_read_csv) {
  const char *path = arg_path(s, c, 0);
  DType dt = arg_dtype(s, c->v[1], c->spans[1]), as = dt == DT_F64 ? DT_F64
                                                      : dt_int(dt) ? DT_I64
                                                                   : DT_F32;
  if (dt == DT_BOOL)
    fail_at(s, ERR_WANT_DTYPE, c->spans[1], "a table holds ints or floats, not bools");
  Err e = {.text = ""};
  Tensor *t = csv_read(&s->mem, path, as, &e);
  if (!t) fail_file(s, c->spans[0], &e);
  return op_cast(s, v_tensor(s, t), dt, c->at);
}

/* ---- folders */

BUILTIN_FN(bi_exists) {
  bool there;
  Err e = {.text = ""};
  if (!folder_has(&s->mem, arg_path(s, c, 0), &there, &e)) fail_file(s, c->spans[0], &e);
  return v_bool(there);
}

BUILTIN_FN(bi_file_size) {
  Err e = {.text = ""};
  int64_t n = folder_file_size(&s->mem, arg_path(s, c, 0), &e);
  if (n < 0) fail_file(s, c->spans[0], &e);
  return v_int(n);
}

BUILTIN_FN(bi_list_files) {
  const char *path = arg_path(s, c, 0), *glob = want_str(s, c->v[1], c->spans[1], "`glob`");
  if (strchr(glob, '/'))
    fail_help(s, ERR_VALUE, c->spans[1], "`list_files(\"data\", glob = \"*.csv\")`",
              "`glob` is of names in one folder, without `/`: \"%s\"", glob);
  const char **names;
  size_t n;
  Err e = {.text = ""};
  if (!folder_list(&s->scratch, path, glob, &names, &n, &e)) fail_file(s, c->spans[0], &e);
  bool bare = !strcmp(path, "."), slash = path[strlen(path) - 1] == '/';
  Value *items = ARENA_ARRAY(&s->scratch, Value, n + 1);
  for (size_t i = 0; i < n; i++)
    items[i] = bare ? v_str(s, names[i], strlen(names[i]))
                    : v_printf(s, "%s%s%s", path, slash ? "" : "/", names[i]);
  return v_list(s, V_LIST, n, items);
}

BUILTIN_FN(bi_make_folder) {
  Err e = {.text = ""};
  if (!folder_make(&s->mem, arg_path(s, c, 0), &e)) fail_file(s, c->spans[0], &e);
  return v_unit();
}

BUILTIN_FN(bi_remove_file) {
  Err e = {.text = ""};
  if (!folder_remove_file(&s->mem, arg_path(s, c, 0), &e)) fail_file(s, c->spans[0], &e);
  return v_unit();
}

BUILTIN_FN(bi_rename_file) {
  Err e = {.text = ""};
  if (!folder_rename_file(&s->mem, arg_path(s, c, 0), arg_path(s, c, 1), &e))
    fail_file(s, c->spans[0], &e);
  return v_unit();
}
