/* Saved files: what is written reads back; what is not a saved file is refused with a reason. */
#include "runtime/save.h"

#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/file.h"
#include "tests/tap.h"
#include "tests/unit/failing.h"

static char folder[64];

static const char *in_folder(const char *name) {
  static char path[2][512];
  static int round;
  round = !round;
  snprintf(path[round], sizeof path[round], "%s/%s", folder, name);
  return path[round];
}

static int files_in_folder(void) {
  char cmd[128];
  snprintf(cmd, sizeof cmd, "ls -A %s | wc -l", folder);
  FILE *p = popen(cmd, "r");
  int n = -1;
  if (p && fscanf(p, "%d", &n) != 1) n = -1;
  if (p) pclose(p);
  return n;
}

static Tensor *ramp(Mem *m, DType dt, int rank, const int64_t *dim) {
  Tensor *t = tn_new(m, DEV_CPU, dt, rank, dim);
  for (int64_t i = 0; t && i < tn_count(t); i++) {
    Tensor *s = tn_scalar_f64(m, DEV_CPU, dt, (double)(i % 100));
    if (!s) {
      tn_unref(t);
      return NULL;
    }
    memcpy((char *)tn_data(t) + (size_t)i * dt_size(dt), tn_data(s), dt_size(dt));
    tn_unref(s);
  }
  return t;
}

/* ---- there and back */

static void t_back(void) {
  Failing f;
  Mem m;
  Err e;
  SaveFile r;
  SaveEntry in[DT_COUNT + 5];
  char name[DT_COUNT][24];
  size_t n = 0;
  failing_init(&f, &m, 0);
  for (int i = 0; i < DT_COUNT; i++, n++) {
    snprintf(name[i], sizeof name[i], "blocks.%d.w", i);
    in[n] = (SaveEntry){name[i], ramp(&m, (DType)i, 2, (int64_t[]){3, 5})};
  }
  in[n++] = (SaveEntry){"number", tn_scalar_f64(&m, DEV_CPU, DT_F64, 0.1)};
  in[n++] = (SaveEntry){"count", tn_scalar_i64(&m, DEV_SIM, DT_I64, -7)};
  in[n++] = (SaveEntry){"none", ramp(&m, DT_F32, 3, (int64_t[]){2, 0, 4})};
  in[n++] = (SaveEntry){"\xc3\xa9 \"\\\n", ramp(&m, DT_U8, 1, (int64_t[]){1})};
  Tensor *t = ramp(&m, DT_F32, 2, (int64_t[]){100, 70});
  in[n++] =
      (SaveEntry){"transposed", tn_view(&m, t, 2, (int64_t[]){70, 100}, (int64_t[]){1, 70}, 0)};
  tn_unref(t);
  SaveMeta meta[2] = {{"format", "ckl 1"}, {"text \xe6\xbc\xa2", "a\n\"b\""}};
  const char *file = in_folder("a\xff b.safetensors");
  check_msg(save_write(&m, file, in, n, meta, 2, &e), "%s", e.text);
  need(save_read(&m, file, false, &r, &e));
  check_size(r.count, ==, n);
  for (size_t i = 0; i < n; i++) {
    Tensor *got = save_find(&r, in[i].path);
    if (!check_msg(got != NULL, "%s is missing", in[i].path)) continue;
    check_msg(tn_same(got, in[i].t), "%s", in[i].path);
    check_int(got->store->dev, ==, DEV_CPU);
  }
  for (size_t i = 1; i < r.count; i++) /* wide elements first */
    check_size(dt_size(r.entries[i - 1].t->dtype), >=, dt_size(r.entries[i].t->dtype));
  check_str(save_meta(&r, "format"), "ckl 1");
  check_str(save_meta(&r, meta[1].key), meta[1].value);
  check_str(save_meta(&r, "other"), NULL);
  check(!save_find(&r, "blocks"));
  save_close(&r);
  /* on a thread of its own, also where memory ends */
  for (int64_t k = 1;; k++) {
    SaveLater *later;
    f.nth = f.count + k;
    bool ok = save_write_later(&m, file, in, n, meta, 2, &later, &e) &&
              (!later || save_later_end(later, &e));
    check(ok || e.nomem);
    if (f.count < f.nth) break;
  }
  f.nth = 0;
  need(save_read(&m, file, false, &r, &e));
  for (size_t i = 0; i < n; i++) check(tn_same(save_find(&r, in[i].path), in[i].t));
  save_close(&r);
  /* nothing at all is a file too */
  check(save_write(&m, file, NULL, 0, NULL, 0, &e));
  need(save_read(&m, file, false, &r, &e));
  check(!r.count && !r.meta_count);
  save_close(&r);
  for (size_t i = 0; i < n; i++) tn_unref(in[i].t);
  check_int(files_in_folder(), ==, 1);
  unlink(file);
  check(failing_clean(&f, &m));
}

static void t_bytes(void) {
  Mem m;
  Err e;
  mem_init(&m, NULL, NULL);
  SaveEntry in[2] = {{"b", ramp(&m, DT_U8, 1, (int64_t[]){3})}, {"a", ramp(&m, DT_I16, 0, NULL)}};
  const char *file = in_folder("bytes");
  need(save_write(&m, file, in, 2, NULL, 0, &e));
  size_t n;
  char *p = file_read(&m, file, &n, &e);
  need(p);
  static const char head[] =
      "\x70\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"I16\",\"shape\":[],\"data_offsets\":[0,2]},"
      "\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[2,5]}}";
  check_mem(p, head, 8);
  check_mem(p + 8, head + 8, sizeof head - 9);
  check_size(n, ==, 8 + 0x70 + 5);
  check_mem(p + 8 + 0x70, "\0\0\0\1\2", 5);
  mem_free(&m, p, n + 1);
  tn_unref(in[0].t);
  tn_unref(in[1].t);
  unlink(file);
  check_size(m.live, ==, 0);
}

/* ---- what is refused */

static char page[70000];

static size_t build(const char *header, size_t data) {
  uint64_t n = strlen(header);
  memcpy(page, &n, 8);
  memcpy(page + 8, header, n);
  memset(page + 8 + n, 7, data);
  return 8 + (size_t)n + data;
}

static void t_bools(void) {
  Mem m;
  Err e;
  SaveFile r;
  size_t n = build("{\"a\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[0,3]}}", 3);
  memcpy(page + n - 3, "\0\1\xff", 3);
  mem_init(&m, NULL, NULL);
  need(save_parse(&m, "t", page, n, &r, &e));
  check_mem(tn_data(r.entries[0].t), "\0\1\1", 3);
  save_close(&r);
  check_size(m.live, ==, 0);
}

static void refused(const char *header, size_t data, const char *why) {
  Failing f;
  Mem m;
  SaveFile r;
  Err e = {.text = ""};
  failing_init(&f, &m, 0);
  check_msg(!save_parse(&m, "x.st", page, build(header, data), &r, &e), "%s is read", header);
  check_has(e.text, why);
  check_has(e.text, "x.st: ");
  check(failing_clean(&f, &m));
}

#define ENTRY(name, dtype, shape, lo, hi)                                                          \
  "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #lo "," #hi "]}"

/* JSON as others write it: blanks, escapes, members in any order and unknown ones. */
static void t_json(void) {
  Mem m;
  Err e = {.text = ""};
  SaveFile r;
  mem_init(&m, NULL, NULL);
  size_t n = build(
      "{ \"a\\u00e9\\ud83d\\ude00\\n\" : { \"shape\"\t:\r\n[ 1 , 2 ] , \"more\" : [-1.5e+3, {}, "
      "true, false, null, \"]\\\\\\\"\"], \"data_offsets\":[0,2 ],\"dtype\":\"U8\" } ,\n"
      "\"__metadata__\" : { \"k\\/\" : \"\\u0416\\\"\\\\\\t\" , \"\" : \"\" } }  ",
      2);
  check_msg(save_parse(&m, "t", page, n, &r, &e), "%s", e.text);
  need(r.count == 1 && r.meta_count == 2);
  check_str(r.entries[0].path, "a\u00e9\U0001f600\n");
  check_int(r.entries[0].t->rank, ==, 2);
  check_str(save_meta(&r, "k/"), "\u0416\"\\\t");
  check_str(save_meta(&r, ""), "");
  save_close(&r);
  static const char *const wrong[] = {
      "{\"a\":01}",
      "{\"a\":1.}",
      "{\"a\":.5}",
      "{\"a\":1e}",
      "{\"a\":+1}",
      "{\"a\":-}",
      "{\"a\":nul}",
      "{\"a\":True}",
      "{a:1}",
      "{\"a\" 1}",
      "{\"a\":1,}",
      "{,}",
      "{\"a\":[1,]}",
      "{\"a\":[1 2]}",
      "{\"a\":[1}",
      "{\"a\":\"\n\"}",
      "{\"a\":\"\\x\"}",
      "{\"a\":\"\\u12g4\"}",
      "{\"\\ud800\":1}",
      "{\"\\udc00\":1}",
      "{\"\\ud800\\u0041\":1}",
      "{\"a\":\"",
      "{\"a",
      "{\"a\\",
      "{\"a\\u",
      "{\"a\":[[",
      "{'a':1}",
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    refused(wrong[i], 0, "is not valid JSON");
  check_size(m.live, ==, 0);
}

static void t_refused(void) {
  refused("", 0, "no JSON object");
  refused("[]", 0, "no JSON object");
  refused(" {}", 0, "no JSON object");
  refused("{", 0, "not valid JSON");
  refused("{}x", 0, "not valid JSON");
  refused("{} {}", 0, "not valid JSON");
  refused("{\"a\":}", 0, "not valid JSON");
  refused("{}", 1, "1 bytes at the end belong to no tensor");
  refused("{\"a\":3}", 0, "the entry `a` is no object");
  refused("{\"a\":{\"shape\":[],\"data_offsets\":[0,0]}}", 0, "`a` has no dtype");
  refused("{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,0]}}", 0, "`a` has no shape");
  refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[0]}}", 0, "`a` has no data_offsets");
  refused("{" ENTRY("a", "U32", "[1]", 0, 4) "}", 4, "the dtype U32, which is none of ckl's");
  refused("{" ENTRY("a", "F32", "[1]", 0, 8) "}", 8, "8 bytes, which does not fit its shape");
  refused("{" ENTRY("a", "F32", "[1]", 0, 4) "}", 3, "lies outside the file (bytes 0 to 4 of 3)");
  refused("{" ENTRY("a", "F32", "[1]", 4, 0) "}", 4, "lies outside the file");
  refused("{" ENTRY("a", "F32", "[1]", 4, 8) "}", 8, "4 bytes before `a` belong to no tensor");
  refused("{" ENTRY("a", "U8", "[4]", 0, 4) "," ENTRY("b", "U8", "[4]", 3, 7) "}", 7,
          "`a` and `b` overlap");
  refused("{" ENTRY("a", "U8", "[4]", 0, 4) "," ENTRY("b", "U8", "[4]", 0, 4) "}", 4, "overlap");
  refused("{" ENTRY("a", "U8", "[2]", 0, 2) "," ENTRY("a", "U8", "[2]", 2, 4) "}", 4,
          "the path `a` stands twice");
  refused("{" ENTRY("a", "U8", "[-2]", 0, 2) "}", 2, "is not of sizes");
  refused("{" ENTRY("a", "U8", "[1.5]", 0, 2) "}", 2, "is not of sizes");
  refused("{" ENTRY("a", "U8", "[\"2\"]", 0, 2) "}", 2, "is not of sizes");
  refused("{" ENTRY("a", "U8", "[1e300]", 0, 2) "}", 2, "is not of sizes");
  refused("{" ENTRY("a", "U8", "2", 0, 2) "}", 2, "has no shape");
  refused("{" ENTRY("a", "U8", "[4294967296,4294967296]", 0, 0) "}", 0, "does not fit its shape");
  refused("{" ENTRY("a", "F64", "[2305843009213693952]", 0, 0) "}", 0, "is not of sizes");
  refused("{" ENTRY("a", "F64", "[1,1,1,1,1,1,1,1,1,1,1,1,1]", 0, 8) "}", 8, "more than 12 dims");
  refused("{" ENTRY("a", "U8", "[1]", 0, 0.5) "}", 1, "has no data_offsets");
  refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1,2]}}", 1, "data_offsets");
  refused("{" ENTRY("a\\u0000b", "U8", "[1]", 0, 1) "}", 1, "a NUL in a name");
  refused("{" ENTRY("a\xff", "U8", "[1]", 0, 1) "}", 1, "not valid UTF-8");
  refused("{\"__metadata__\":3}", 0, "the metadata are no object");
  refused("{\"__metadata__\":{\"a\":3}}", 0, "the metadata `a` are no string");
  refused("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "metadata twice");
  refused("{\"a\":[[[[[[]]]]]]}", 0, "nests too deeply");
  char deep[60001];
  memset(deep, '[', 60000);
  deep[60000] = 0;
  memcpy(deep, "{\"a\":", 5);
  refused(deep, 0, "nests too deeply");
}

static void t_short(void) {
  Failing f;
  Mem m;
  SaveFile r;
  Err e;
  size_t n = build("{" ENTRY("a", "F32", "[2]", 0, 8) "}", 8);
  for (size_t cut = 0; cut < n; cut++) {
    failing_init(&f, &m, 0);
    char *copy = malloc(cut + 1); /* of the exact size, for ASan */
    memcpy(copy, page, cut);
    check(!save_parse(&m, "x", copy, cut, &r, &e));
    free(copy);
    check(failing_clean(&f, &m));
  }
  uint64_t lengths[] = {UINT64_MAX, UINT64_MAX - 7, (uint64_t)1 << 63, 100000001, n - 7};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    failing_init(&f, &m, 0);
    memcpy(page, &lengths[i], 8);
    check(!save_parse(&m, "x", page, n, &r, &e));
    check_has(e.text, "cut short");
    check_int(f.count, ==, 0); /* no memory for what cannot be there */
  }
}

static void t_not_written(void) {
  Failing f;
  Mem m;
  Err e;
  failing_init(&f, &m, 0);
  Tensor *t = ramp(&m, DT_F32, 1, (int64_t[]){3});
  SaveEntry twice[2] = {{"a", t}, {"a", t}}, meta = {"__metadata__", t}, odd = {"\xff", t};
  SaveMeta keys[2] = {{"k", "1"}, {"k", "2"}}, bad = {"k", "\xff"};
  const char *file = in_folder("none");
  check(!save_write(&m, file, twice, 2, NULL, 0, &e));
  check_has(e.text, "the path `a` is given twice");
  check(!save_write(&m, file, &meta, 1, NULL, 0, &e));
  check(!save_write(&m, file, &odd, 1, NULL, 0, &e));
  check_has(e.text, "tensor 1 is not valid UTF-8");
  check(!save_write(&m, file, twice, 1, keys, 2, &e));
  check_has(e.text, "`k` is given twice");
  check(!save_write(&m, file, twice, 1, &bad, 1, &e));
  check(!save_write(&m, "", twice, 1, NULL, 0, &e));
  check_has(e.text, "file name is empty");
  check(!save_write(&m, folder, twice, 1, NULL, 0, &e));
  check_has(e.text, "is a folder");
  check(!save_write(&m, in_folder("no/such/x"), twice, 1, NULL, 0, &e));
  check_has(e.text, "no such folder");
  check_int(files_in_folder(), ==, 0);
  tn_unref(t);
  check(failing_clean(&f, &m));
}

/* ---- the file system */

static bool put_file(const char *path, const char *text) {
  FILE *p = fopen(path, "wb");
  return p && fputs(text, p) >= 0 && fclose(p) == 0;
}

static void t_replace(void) {
  Mem m;
  Err e;
  SaveFile r;
  struct stat st;
  mem_init(&m, NULL, NULL);
  Tensor *t = ramp(&m, DT_F32, 1, (int64_t[]){3});
  SaveEntry in = {"a", t};
  const char *real = in_folder("real"), *link = in_folder("link");
  need(put_file(real, "old") && chmod(real, 0640) == 0 && symlink("real", link) == 0);
  check_msg(save_write(&m, link, &in, 1, NULL, 0, &e), "%s", e.text);
  check(lstat(link, &st) == 0 && S_ISLNK(st.st_mode)); /* through the link, which stays */
  check(stat(real, &st) == 0 && (st.st_mode & 0777) == 0640);
  check(save_read(&m, real, false, &r, &e));
  save_close(&r);
  check_int(files_in_folder(), ==, 2);
  unlink(real);
  unlink(link);
  check(save_write(&m, "/dev/null", &in, 1, NULL, 0, &e)); /* written, not replaced */
  check(stat("/dev/null", &st) == 0 && S_ISCHR(st.st_mode));
  check(!save_read(&m, "/dev/null", false, &r, &e));
  check_has(e.text, "too short"); /* what is no plain file is read whole */
  check(!save_read(&m, folder, false, &r, &e));
  check_has(e.text, "is a folder");
  check(!save_read(&m, in_folder("absent"), false, &r, &e));
  check_has(e.text, "no such file");
  check(!save_write(&m, "/dev/full", &in, 1, NULL, 0, &e));
  check_has(e.text, "no space left");
  if (geteuid()) { /* the superuser may write anywhere */
    need(put_file(real, "old") && chmod(real, 0400) == 0);
    check(!save_write(&m, real, &in, 1, NULL, 0, &e));
    check_has(e.text, "permission denied");
    unlink(real);
  }
  tn_unref(t);
  mem_close(&m);
  check_size(m.live, ==, 0);
}

static void t_read_file(void) {
  Failing f;
  Mem m;
  Err e;
  size_t n;
  failing_init(&f, &m, 0);
  const char *file = in_folder("f");
  char *text = malloc(100001);
  memset(text, 'x', 100000);
  text[100000] = 0;
  for (int len = 0; len <= 100000; len = len ? len * 7 : 1) {
    char was = text[len];
    text[len] = 0;
    need(put_file(file, text));
    char *p = file_read(&m, file, &n, &e);
    need(p);
    check_size(n, ==, (size_t)len);
    check_mem(p, text, (size_t)len + 1);
    check_size(m.live, ==, n + 1);
    mem_free(&m, p, n + 1);
    text[len] = was;
  }
  free(text);
  char *p = file_read(&m, "/proc/self/status", &n, &e); /* of unknown length */
  if (p) {
    check_size(n, ==, strlen(p));
    check_size(n, >, 100);
    mem_free(&m, p, n + 1);
  }
  Interrupt asked = {0}; /* a part of a file is no file */
  interrupt_set(&asked, true);
  m.stop = &asked;
  check(!file_read(&m, "/proc/self/status", &n, &e));
  check(e.interrupted);
  m.stop = NULL;
  check(!file_read(&m, folder, &n, &e));
  check_has(e.text, "is a folder");
  check(!file_read(&m, "", &n, &e));
  check(!file_read(&m, in_folder("f/x"), &n, &e));
  check_has(e.text, "a part of the path is not a folder");
  unlink(file);
  check(failing_clean(&f, &m));
}

/* A file behind which there is not more than its name says: sizes past 2^31, without the disk. */
static void t_large(void) {
  Mem m;
  Err e;
  SaveFile r;
  mem_init(&m, NULL, NULL);
  const char *file = in_folder("large");
  const char *header = "{" ENTRY("a", "U8", "[3,1000000000]", 0, 3000000000) "," ENTRY(
      "b", "F32", "[2]", 3000000000, 3000000008) "}";
  size_t n = build(header, 0);
  FILE *p = fopen(file, "wb");
  need(p);
  fwrite(page, 1, n, p);
  fflush(p);
  if (ftruncate(fileno(p), (off_t)(n + 3000000004)) == 0) {
    check(!save_read(&m, file, false, &r, &e));
    check_has(e.text, "`b` lies outside the file (bytes 3000000000 to 3000000008 of 3000000004)");
  }
  fclose(p);
  unlink(file);
  check_size(m.live, ==, 0);
}

/* ---- out of memory */

static void t_nomem(void) {
  bool wrote = false, read = false;
  const char *file = in_folder("m");
  for (int64_t nth = 1; nth < 200 && !read; nth++) {
    Failing f;
    Mem m;
    Err e = {.text = ""};
    SaveFile r;
    failing_init(&f, &m, 0);
    SaveEntry in[3] = {{"a", ramp(&m, DT_F32, 2, (int64_t[]){20, 3})},
                       {"b", ramp(&m, DT_I64, 0, NULL)},
                       {"c", NULL}};
    in[2].t = tn_view(&m, in[0].t, 2, (int64_t[]){3, 20}, (int64_t[]){1, 3}, 0);
    SaveMeta meta = {"key", "value"};
    f.count = 0;
    f.nth = nth;
    bool ok = wrote || save_write(&m, file, in, 3, &meta, 1, &e);
    if (ok && !wrote) {
      wrote = true;
      nth = 0;
    } else if (ok) {
      read = save_read(&m, file, false, &r, &e);
      if (read) {
        check_size(r.count, ==, 3);
        save_close(&r);
      }
      ok = read;
    } else {
      check_int(files_in_folder(), ==, 0);
    }
    f.nth = 0;
    if (!ok) {
      check_has(e.text, "out of memory");
      check(e.nomem);
    }
    for (int i = 0; i < 3; i++) tn_unref(in[i].t);
    check(failing_clean(&f, &m));
  }
  check(wrote && read);
  unlink(file);
}

/* Many entries in a bad order: sorting is not slow, and finds what stands where. */
static void t_many(void) {
  enum { N = 5000 };
  static SaveEntry in[N];
  static char name[N][16];
  Mem m;
  Err e;
  SaveFile r;
  mem_init(&m, NULL, NULL);
  for (int i = 0; i < N; i++) {
    snprintf(name[i], sizeof name[i], "p%d", i * 7919 % N);
    DType dt = i % 3 ? DT_I32 : DT_I64;
    in[i] = (SaveEntry){name[i], tn_scalar_i64(&m, DEV_CPU, dt, i * 7919 % N)};
  }
  const char *file = in_folder("many");
  need(save_write(&m, file, in, N, NULL, 0, &e));
  need(save_read(&m, file, false, &r, &e));
  check_size(r.count, ==, N);
  for (size_t i = 0; i < r.count; i++)
    check_int(tn_get_i64(r.entries[i].t, 0), ==, atoi(r.entries[i].path + 1));
  save_close(&r);
  for (int i = 0; i < N; i++) tn_unref(in[i].t);
  unlink(file);
  mem_trim(&m);
  check_size(m.live, ==, 0);
}

int main(void) {
  snprintf(folder, sizeof folder, "t-save.%ld.tmp", (long)getpid());
  if (mkdir(folder, 0777) != 0) return 1;
  TEST(t_back(), "all dtypes, shapes and strides read back");
  TEST(t_bytes(), "the bytes are those of the format");
  TEST(t_bools(), "bools read as 0 and 1");
  TEST(t_json(), "a header is any JSON that holds what it must");
  TEST(t_refused(), "what is not a saved file is refused with a reason");
  TEST(t_short(), "cut files and impossible lengths are refused without asking for memory");
  TEST(t_not_written(), "what cannot be saved leaves no file");
  TEST(t_replace(), "files are replaced through links, with their mode");
  TEST(t_read_file(), "files of any length are read whole");
  TEST(t_large(), "places past 2^31 are kept");
  TEST(t_nomem(), "each allocation can fail and nothing leaks or stays");
  TEST(t_many(), "thousands of entries read back");
  rmdir(folder);
  return tap_done();
}
