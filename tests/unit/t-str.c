/* Text: buffers, numbers there and back, names, distances, globs. */
#include "runtime/str.h"

#include <locale.h>

#include "runtime/err.h"
#include "runtime/half.h"
#include "tests/tap.h"
#include "tests/unit/failing.h"

static uint64_t seed = 88172645463325252u;

static uint64_t draw(void) {
  return tap_random(&seed);
}

/* ---- buffers */

typedef struct Bufs {
  Mem *m;
  Arena a;
  Buf plain;
  bool ok;
} Bufs;

static void write_to(Buf *b) {
  for (int i = 0; i < 300; i++) buf_putc(b, (char)('a' + i % 26));
  buf_puts(b, "|");
  buf_put(b, "x\0y", 3);
  for (int i = 0; i < 50; i++) buf_printf(b, "%d:%s;", i, "some text");
  buf_printf(b, "%s", "");
  buf_json(b, "\"\\\n\t\x01\x7f\xc3\xa9\xff", 10);
}

static void use_bufs(void *ud) {
  Bufs *u = ud;
  Buf b;
  buf_init_arena(&b, &u->a);
  write_to(&b);
  write_to(&u->plain);
  u->ok = b.n == u->plain.n && memcmp(b.s, u->plain.s, b.n + 1) == 0;
  const char *json = "\"\\\"\\\\\\n\\t\\u0001\\u007f\xc3\xa9\xef\xbf\xbd\\u0000\"";
  size_t n = strlen(json);
  if (b.n < n || strcmp(b.s + b.n - n, json)) u->ok = false;
}

static int run_bufs(int64_t nth) {
  Failing f;
  Mem m;
  Bufs u = {.m = &m};
  failing_init(&f, &m, nth);
  arena_init(&u.a, &m);
  buf_init(&u.plain, &m);
  check_str(u.plain.s, "");
  int code = mem_protect(&m, use_bufs, &u);
  check(code != MEM_OK || u.ok);
  buf_free(&u.plain);
  check_str(u.plain.s, "");
  arena_free(&u.a);
  check(failing_clean(&f, &m));
  return code;
}

static void t_bufs(void) {
  int64_t nth = 1;
  check_int(run_bufs(0), ==, MEM_OK);
  while (nth < 100 && run_bufs(nth) == MEM_ERR_NOMEM) nth++;
  check_int(nth, >, 5);
  check_int(nth, <, 100);
}

static void int_is(int64_t n) {
  Mem m;
  Buf b;
  char text[24];
  snprintf(text, sizeof text, "%lld", (long long)n);
  mem_init(&m, NULL, NULL);
  buf_init(&b, &m);
  buf_int(&b, n);
  check_str(b.s, text);
  buf_free(&b);
  mem_close(&m);
}

static void t_ints(void) {
  int_is(0);
  int_is(INT64_MIN);
  int_is(INT64_MAX);
  for (int i = 0; i < 2000; i++) int_is((int64_t)draw() >> i % 64);
}

/* ---- numbers */

static void f64_is(double x, const char *text) {
  char buf[40];
  int n = str_f64(buf, x);
  check_str(buf, text);
  check_int(n, ==, (int)strlen(text));
}

static void f32_is(float x, const char *text) {
  char buf[40];
  int n = str_f32(buf, x);
  check_str(buf, text);
  check_int(n, ==, (int)strlen(text));
}

static void t_style(void) {
  f64_is(0.1, "0.1");
  f64_is(100, "100.0");
  f64_is(1e30, "1e30");
  f64_is(1.5e-7, "1.5e-7");
  f64_is(-2.5, "-2.5");
  f64_is(0.0, "0.0");
  f64_is(-0.0, "-0.0");
  f64_is(INFINITY, "inf");
  f64_is(-INFINITY, "-inf");
  f64_is(NAN, "nan");
  f64_is(-NAN, "nan");
  f64_is(0.0001, "0.0001");
  f64_is(0.00001, "1e-5");
  f64_is(1e15, "1000000000000000.0");
  f64_is(1e16, "1e16");
  f64_is(123456.789, "123456.789");
  f64_is(5e-324, "5e-324");
  f64_is(1.7976931348623157e308, "1.7976931348623157e308");
  f64_is(2.2250738585072014e-308, "2.2250738585072014e-308");
  f64_is(0.1 + 0.2, "0.30000000000000004");
  f64_is(-1.2345678901234567e-100, "-1.2345678901234567e-100");
  f64_is(9007199254740993.0, "9007199254740992.0");
  f32_is(0.1f, "0.1");
  f32_is(1.0f / 3, "0.33333334");
  f32_is(16777216, "16777216.0");
  f32_is(1e8f, "1e8");
  f32_is(1e-45f, "1e-45");
  f32_is(3.4028235e38f, "3.4028235e38");
  f32_is(1.17549435e-38f, "1.1754944e-38");
  char buf[40];
  check_int(str_f16(buf, 65504), ==, 7);
  check_str(buf, "65500.0");
  str_f16(buf, hf_f32_from_f16(0x2e66));
  check_str(buf, "0.1");
  str_f16(buf, 0x1p-24f);
  check_str(buf, "6e-8");
  str_bf16(buf, 0.10009765625f);
  check_str(buf, "0.1");
  str_bf16(buf, hf_f32_from_bf16(0x7f7f));
  check_str(buf, "3.39e38");
  str_bf16(buf, -INFINITY);
  check_str(buf, "-inf");
}

static void t_round_f64(void) {
  for (int i = 0; i < 200000; i++) {
    double x, y;
    uint64_t u = draw();
    if (i % 4 == 1) u &= ~0ull << (draw() % 53); /* few bits, powers of two */
    if (i % 16 == 2) u &= 0x800fffffffffffffu;   /* subnormals */
    memcpy(&x, &u, 8);
    if (i % 4 == 3) x = (double)(int64_t)(u >> (u & 63)) / 1000;
    if (isnan(x)) continue;
    char buf[40];
    int n = str_f64(buf, x);
    if (!check_msg(n < 40 && strtod(buf, NULL) == x, "%s is not %a", buf, x)) return;
    if (!check_msg(str_to_f64(buf, (size_t)n, &y) && y == x, "%s reads as %a", buf, y)) return;
  }
}

static void t_round_f32(void) {
  for (int i = 0; i < 300000; i++) {
    float x, y;
    uint32_t u = (uint32_t)draw();
    if (i % 4 == 1) u &= ~0u << (draw() % 24);
    if (i % 16 == 2) u &= 0x807fffffu;
    memcpy(&x, &u, 4);
    if (isnan(x)) continue;
    char buf[40];
    int n = str_f32(buf, x);
    if (!check_msg(n < 40 && strtof(buf, NULL) == x, "%s is not %a", buf, (double)x)) return;
    if (!check_msg(str_to_f32(buf, (size_t)n, &y) && y == x, "%s reads as %a", buf, (double)y))
      return;
  }
}

/* Significant digits of a printed number. */
static int digits_in(const char *s) {
  char d[40];
  int n = 0;
  for (; *s && *s != 'e'; s++)
    if (*s >= '0' && *s <= '9' && (n || *s != '0')) d[n++] = *s;
  while (n > 1 && d[n - 1] == '0') n--;
  return n;
}

/* Every number of `digits` digits near x: does one of them read back? */
static bool some_reads_back(double x, int digits, bool bf16) {
  char buf[64];
  snprintf(buf, sizeof buf, "%.*e", digits - 1, x);
  char *e = strchr(buf, 'e');
  double unit = pow(10, atoi(e + 1) - digits + 1), mid = strtod(buf, NULL) / unit;
  for (int k = -2; k <= 2; k++) {
    snprintf(buf, sizeof buf, "%.0fe%d", round(mid) + k, (int)lround(log10(unit)));
    double y = strtod(buf, NULL);
    if ((bf16 ? hf_f64_from_bf16(hf_bf16_from_f64(y)) : hf_f64_from_f16(hf_f16_from_f64(y))) == x)
      return true;
  }
  return false;
}

static void t_halves(bool bf16) {
  int bad = 0;
  for (uint32_t h = 0; h < 0x10000 && bad < 5; h++) {
    float x = bf16 ? hf_f32_from_bf16((uint16_t)h) : hf_f32_from_f16((uint16_t)h);
    if (isnan(x)) continue;
    char buf[40];
    int n = bf16 ? str_bf16(buf, x) : str_f16(buf, x);
    double y;
    if (!check_msg(n < 40 && str_to_f64(buf, (size_t)n, &y), "%s cannot be read", buf)) return;
    uint16_t back = bf16 ? hf_bf16_from_f64(y) : hf_f16_from_f64(y);
    bad += !check_msg(back == h, "%s: 0x%04x reads back as 0x%04x", buf, h, back);
    if (!(h & 0x8000) && x > 0 && !isinf(x) && digits_in(buf) > 1)
      bad += !check_msg(!some_reads_back((double)x, digits_in(buf) - 1, bf16),
                        "%s could be shorter", buf);
  }
}

static void t_powers(void) {
  /* where the spacing changes, the shortest text may not be the nearest of its length */
  for (int e = -1074; e < 1024; e++) {
    double x = ldexp(1, e);
    char buf[40], trial[64];
    str_f64(buf, x);
    int n = digits_in(buf);
    if (n < 2) continue;
    snprintf(trial, sizeof trial, "%.*e", n - 2, x);
    double unit = 0;
    for (int k = -1; k <= 1; k++) { /* the neighbours in the last place, by the digits */
      char t[64];
      strcpy(t, trial);
      char *p = strchr(t, 'e') - 1;
      if (*p + k < '0' || *p + k > '9') continue;
      *p = (char)(*p + k);
      unit = strtod(t, NULL);
      check_msg(unit != x, "%s could be %s", buf, t);
    }
  }
}

static void reads(const char *s, double x) {
  double y = 12345;
  check_msg(str_to_f64(s, strlen(s), &y) && (y == x || (isnan(y) && isnan(x))) &&
                !signbit(y) == !signbit(x),
            "%s reads as %a", s, y);
}

static void refuses(const char *s) {
  double y;
  float f;
  check_msg(!str_to_f64(s, strlen(s), &y) && !str_to_f32(s, strlen(s), &f), "`%s` is read", s);
}

static void t_reads(void) {
  reads("0", 0);
  reads("-0", -0.0);
  reads("+1.5", 1.5);
  reads(".5", 0.5);
  reads("5.", 5);
  reads("1e3", 1000);
  reads("1E+3", 1000);
  reads("1e-3", 0.001);
  reads("1e400", INFINITY);
  reads("-1e400", -INFINITY);
  reads("1e-400", 0);
  reads("0e999999999999999999999", 0);
  reads("1e999999999999999999999", INFINITY);
  reads("1e-999999999999999999999", 0);
  reads("inf", INFINITY);
  reads("-Infinity", -INFINITY);
  reads("NaN", NAN);
  reads("9007199254740993", 9007199254740992.0);
  reads("9007199254740993.00000000000000000000000000000001", 9007199254740994.0);
  reads("2.4703282292062327e-324", 0);
  reads("2.4703282292062328e-324", 5e-324);
  reads("179769313486231580793728971405301e276", 1.7976931348623157e308);
  static const char *const bad[] = {
      "",   "+",   "-",    ".",  "e5",   "1e",  "1e+",  "1.2.3", "1_0",   "0x10",    " 1",
      "1 ", "1,5", "infi", "na", "nanx", "--1", "1e5.", "1-2",   "+inf-", "infinit", "1f"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) refuses(bad[i]);
  /* a tie decided by its 800th digit */
  char text[1200] = "1.00000000000000011102230246251565404236316680908203125";
  size_t n = strlen(text);
  double x;
  check(str_to_f64("1.59", 3, &x) && x == 1.5); /* not what is behind it */
  check(str_to_f64(text, n, &x) && x == 1.0);
  memset(text + n, '0', 1000);
  check(str_to_f64(text, n + 1000, &x) && x == 1.0);
  text[n + 999] = '1';
  check(str_to_f64(text, n + 1000, &x) && x == nextafter(1.0, 2));
}

static void t_reads_as_c(void) {
  for (int i = 0; i < 200000; i++) {
    char s[2000];
    int n = 0, most = i % 50 == 0 ? 900 : 25;
    if (draw() % 2) s[n++] = '-';
    int whole = (int)(draw() % (uint64_t)most), part = (int)(draw() % (uint64_t)most);
    for (int k = 0; k < whole; k++) s[n++] = (char)('0' + draw() % 10);
    if (part || !whole) s[n++] = '.';
    for (int k = 0; k < part || !(whole + part); k++, part += !(whole + part))
      s[n++] = (char)('0' + draw() % 10);
    if (draw() % 2)
      n += sprintf(s + n, "e%d", (int)(draw() % (i % 3 ? 80 : 700)) - (i % 3 ? 40 : 350));
    s[n] = 0;
    double x = -1;
    float y = -1;
    bool ok = str_to_f64(s, (size_t)n, &x) && str_to_f32(s, (size_t)n, &y);
    if (!check_msg(ok && x == strtod(s, NULL) && y == strtof(s, NULL), "%s", s)) return;
  }
  /* the midpoints of f32, just above and below */
  for (int i = 0; i < 20000; i++) {
    uint32_t u = (uint32_t)draw() & 0x7fffffff;
    float f;
    memcpy(&f, &u, 4);
    if (!(f < 1e38f)) continue;
    double mid = ((double)f + (double)nextafterf(f, INFINITY)) / 2;
    char s[400];
    int n = snprintf(s, sizeof s, "%.200e", mid);
    char *e = strchr(s, 'e'), *last = e - 1;
    for (int k = 0; k < 2; k++) {
      float y = -1;
      check(str_to_f32(s, (size_t)n, &y));
      if (!check_msg(y == strtof(s, NULL), "%s", s)) return;
      *last = '1';
    }
  }
}

static void t_i64(void) {
  int64_t v;
  check(str_to_i64("9223372036854775807", 19, &v) && v == INT64_MAX);
  check(str_to_i64("-9223372036854775808", 20, &v) && v == INT64_MIN);
  check(str_to_i64("+0012", 5, &v) && v == 12);
  check(!str_to_i64("9223372036854775808", 19, &v));
  check(!str_to_i64("-9223372036854775809", 20, &v));
  check(!str_to_i64("99999999999999999999999", 23, &v));
  check(!str_to_i64("", 0, &v));
  check(!str_to_i64("-", 1, &v));
  check(!str_to_i64("1.0", 3, &v));
}

/* A locale of the machine whose decimal point is no point; the C library may have none. */
static void t_locale(void) {
  static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE.utf8",  "nl_NL.UTF-8",
                                      "it_IT.UTF-8", "es_ES.UTF-8", "ps_AF.UTF-8", "de_DE"};
  const char *found = NULL;
  for (size_t i = 0; i < sizeof names / sizeof *names && !found; i++)
    if (setlocale(LC_ALL, names[i]) && strcmp(localeconv()->decimal_point, ".")) found = names[i];
  if (!found) tap_note("this machine has no locale with a decimal comma: tried in \"C\"");
  t_style();
  t_reads();
  Mem m;
  Buf b;
  Err e;
  mem_init(&m, NULL, NULL);
  buf_init(&b, &m);
  buf_printf(&b, "%.2f %g", 1.25, 0.5);
  check_str(b.s, "1.25 0.5");
  buf_free(&b);
  err_set(&e, "%.1f", 2.5);
  check_str(e.text, "2.5");
  char text[16];
  snprintf(text, sizeof text, "%.1f", 2.5);
  if (found) check_str_differ(text, "2.5"); /* the program's own locale is as it was */
  setlocale(LC_ALL, "C");
}

/* ---- UTF-8, errors */

static void t_utf8(void) {
  static const struct {
    const char *s;
    int n;
    uint32_t cp;
  } row[] = {
      {"a", 1, 'a'},
      {"\xc3\xa9", 2, 0xe9},
      {"\xe2\x82\xac", 3, 0x20ac},
      {"\xf0\x9f\x98\x80", 4, 0x1f600},
      {"\x80", 1, 0xfffd},
      {"\xc0\x80", 1, 0xfffd},
      {"\xc3", 1, 0xfffd},
      {"\xc3(", 1, 0xfffd},
      {"\xed\xa0\x80", 1, 0xfffd},
      {"\xe0\x80\x80", 1, 0xfffd},
      {"\xf4\x90\x80\x80", 1, 0xfffd},
      {"\xff", 1, 0xfffd},
  };
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    uint32_t cp;
    int n = str_utf8(row[i].s, strlen(row[i].s), &cp);
    check_msg(n == row[i].n && cp == row[i].cp, "row %zu: %d, %x", i, n, (unsigned)cp);
  }
  check_int(str_width('a'), ==, 1);
  check_int(str_width(0xe9), ==, 1);
  check_int(str_width(0x301), ==, 0);
  check_int(str_width(0x6f22), ==, 2);
  check_int(str_width(0x1f600), ==, 2);
  check_int(str_width(0x2500), ==, 1);
}

static void t_err(void) {
  Err e;
  check(!err_set(&e, "%s:%d", "x", 3));
  check_str(e.text, "x:3");
  check(!e.nomem);
  check(!err_set(NULL, "%d", 1));
  check(!err_nomem(&e, NULL));
  check(e.nomem);
  check_str(e.text, "out of memory");
  char longer[1000];
  for (int i = 0; i < 999; i++) longer[i] = (char)(i % 2 ? 0xa9 : 0xc3);
  longer[998] = 0;
  err_set(&e, "%s", longer);
  size_t n = strlen(e.text);
  check_size(n, <, sizeof e.text);
  check_str(e.text + n - 3, "...");
  check_int(n % 2, ==, 1); /* whole characters and three dots */
  err_set(&e, "a%s", longer);
  check_int(strlen(e.text) % 2, ==, 0);
  memset(longer, 'x', sizeof longer);
  for (size_t room = sizeof e.text - 1, i = room; i <= room + 1;
       i++) { /* what fits, and one more */
    err_set(&e, "%.*s", (int)i, longer);
    check_size(strlen(e.text), ==, room);
    check_str(e.text + room - 3, i == room ? "xxx" : "...");
  }
}

/* ---- names */

typedef struct Interning {
  Arena a;
  bool ok;
} Interning;

static void intern(void *ud) {
  Interning *u = ud;
  Names *t = names_new(&u->a);
  Name first[500];
  char text[32];
  u->ok = true;
  for (int i = 0; i < 500; i++) {
    snprintf(text, sizeof text, "name%d", i);
    first[i] = names_of(t, text);
    if (strcmp(first[i], text)) u->ok = false;
  }
  for (int i = 0; i < 500; i++) {
    int n = snprintf(text, sizeof text, "name%d and more", i);
    if (names_get(t, text, (size_t)n - 9) != first[i]) u->ok = false;
  }
  if (names_of(t, "") != names_get(t, "x", 0)) u->ok = false;
  if (names_get(t, "a\0b", 3) == names_get(t, "a\0c", 3)) u->ok = false;
}

static void t_names(void) {
  int64_t nth = 0;
  for (;; nth++) {
    Failing f;
    Mem m;
    Interning u;
    failing_init(&f, &m, nth);
    arena_init(&u.a, &m);
    int code = mem_protect(&m, intern, &u);
    arena_free(&u.a);
    check(failing_clean(&f, &m));
    if (code == MEM_OK) check(u.ok);
    if (nth && code == MEM_OK) break;
    if (!check_int(code, ==, nth ? MEM_ERR_NOMEM : MEM_OK) || nth > 2000) break;
  }
  check_int(nth, >, 3);
}

static void t_distance(void) {
  check_int(str_distance("relu", "relu", 2), ==, 0);
  check_int(str_distance("relu", "rleu", 2), ==, 1);
  check_int(str_distance("softmax", "sofmax", 2), ==, 1);
  check_int(str_distance("softmax", "softmaxx", 2), ==, 1);
  check_int(str_distance("mean", "mode", 3), ==, 3);
  check_int(str_distance("mean", "mode", 2), ==, 3);
  check_int(str_distance("", "abc", 5), ==, 3);
  check_int(str_distance("", "", 0), ==, 0);
  check_int(str_distance("a", "b", 0), ==, 1);
  check_int(str_distance("abcdef", "a", 2), ==, 3);
  char a[100], b[100];
  memset(a, 'x', 99);
  a[99] = 0;
  strcpy(b, a);
  check_int(str_distance(a, b, 3), ==, 0);
  b[50] = 'y';
  check_int(str_distance(a, b, 3), ==, 4); /* too long to bother */
}

/* ---- globs */

static void t_glob(void) {
  static const struct {
    const char *glob, *path;
    bool is;
  } row[] = {
      {"a", "a", true},
      {"a", "b", false},
      {"a", "a.b", false},
      {"a.b", "a", false},
      {"*", "abc", true},
      {"*", "a.b", false},
      {"*.w", "fc1.w", true},
      {"*.w", "fc1.b", false},
      {"*.w", "a.fc1.w", false},
      {"**", "a", true},
      {"**", "a.b.c", true},
      {"**", "", true},
      {"", "", true},
      {"", "a", false},
      {"*", "", false},
      {"**.w", "w", true},
      {"**.w", "a.b.w", true},
      {"**.w", "a.b.w.x", false},
      {"blocks.**", "blocks.0.up.w", true},
      {"blocks.**", "blocks", true},
      {"blocks.**", "block", false},
      {"a.**.z", "a.z", true},
      {"a.**.z", "a.b.c.z", true},
      {"a.**.z", "a.b.c", false},
      {"**.b.**.d", "a.b.c.d", true},
      {"**.b.**.d", "a.b.x.b.c.d", true},
      {"**.b.**.d", "a.c.d", false},
      {"blocks.[0-3].w", "blocks.0.w", true},
      {"blocks.[0-3].w", "blocks.3.w", true},
      {"blocks.[0-3].w", "blocks.4.w", false},
      {"blocks.[0-3].w", "blocks.12.w", false},
      {"blocks.[0-3].w", "blocks.x.w", false},
      {"blocks.[8-11]", "blocks.10", true},
      {"blocks.[8-11]", "blocks.9", true},
      {"blocks.[8-11]", "blocks.12", false},
      {"blocks.[7]", "blocks.7", true},
      {"blocks.[7]", "blocks.77", false},
      {"fc[1-2]", "fc1", true},
      {"fc[1-2]", "fc12", false},
      {"fc[1-2].*", "fc2.w", true},
      {"*[1-2]", "fc2", true},
      {"*[1-2]", "fc12", false},
      {"*[12]x", "fc12x", true},
      {"ps[\"a b\"].*", "ps[\"a b\"].w", true},
      {"ps[\"a.b\"].**", "ps[\"a.b\"].c.w", true},
      {"**[\"a b\"].w", "ps[\"a b\"].w", true},
      {"ps[\"*\"].?", "ps[\"a b\"].w", false},
      {"ps[(1, \"x\")].*", "ps[(1, \"x\")].w", true},
      {"ps[true].*", "ps[false].w", false},
      {"ps[\"", "ps[\"a\"].w", false},
      {"ps[3].*", "ps[3].w", true},
      {"ps[3].*", "ps[4].w", false},
      {"ps[3].*", "ps[33].w", false},
      {"ps[3-4].w", "ps[4].w", true},
      {"ps[3]", "ps[3].w", false},
      {"ps[*].w", "ps[3].w", true},
      {"ps[-3].w", "ps[-3].w", true},
      {"p*[3].**", "ps[3].a.w", true},
      {"ps.[3].w", "ps[3].w", true},
      {"ps[1][2].w", "ps[1][2].w", true},
      {"ps[1][2].w", "ps[1][3].w", false},
      {"**[1-2][3].w", "a.ps[2][3].w", true},
      {"ps[3", "ps[3]", false},
      {"ln?", "ln1", true},
      {"ln?", "ln", false},
      {"ln?", "ln12", false},
      {"?", "\xc3\xa9", true},
      {"l*n", "ln", true},
      {"l*n", "linen", true},
      {"l*n", "line", false},
      {"*a*b*c", "xxaxxbxxc", true},
      {"*a*b*c", "xxaxxcxxb", false},
      {"[", "[", true},
      {"[x]", "[x]", true},
      {"{a,b}", "a", false},
  };
  for (size_t i = 0; i < sizeof row / sizeof *row; i++)
    check_msg(str_glob(row[i].glob, row[i].path) == row[i].is, "%s %s %s", row[i].glob,
              row[i].is ? "matches" : "does not match", row[i].path);
}

static void t_glob_time(void) {
  char glob[1000] = "", path[2000] = "";
  for (int i = 0; i < 60; i++) strcat(glob, "**.*a*a*");
  for (int i = 0; i < 400; i++) strcat(path, "aaaa");
  check(!str_glob(glob, path));
  glob[0] = path[0] = 0;
  for (int i = 0; i < 60; i++) strcat(glob, "**.a.");
  strcat(glob, "b");
  for (int i = 0; i < 400; i++) strcat(path, "a.");
  strcat(path, "a");
  check(!str_glob(glob, path));
}

int main(void) {
  TEST(t_bufs(), "buffers grow, and survive each allocation failing");
  TEST(t_ints(), "whole numbers are written as the C library does");
  TEST(t_style(), "numbers print in the style of the language");
  TEST(t_round_f64(), "f64 reads back");
  TEST(t_round_f32(), "f32 reads back");
  TEST(t_halves(false), "each f16 reads back from the fewest digits");
  TEST(t_halves(true), "each bf16 reads back from the fewest digits");
  TEST(t_powers(), "powers of two print with the fewest digits");
  TEST(t_reads(), "decimal numbers are read and nothing else is");
  TEST(t_reads_as_c(), "reading rounds as the C library does");
  TEST(t_i64(), "whole numbers fit or are refused");
  TEST(t_locale(), "no locale changes numbers");
  TEST(t_utf8(), "UTF-8 is decoded strictly");
  TEST(t_err(), "error texts are cut at a character");
  TEST(t_names(), "equal names are one pointer");
  TEST(t_distance(), "distances count edits and swaps");
  TEST(t_glob(), "globs match dotted paths");
  TEST(t_glob_time(), "globs take no exponential time");
  return tap_done();
}
