/* Tables: what is read, what is skipped, what is refused and where. */
#include "runtime/csv.h"

#include <stdlib.h>
#include <unistd.h>

#include "runtime/bytes.h"
#include "tests/tap.h"
#include "tests/unit/failing.h"

static Failing f;
static Mem m;

/* Reads from a copy of the exact size, so that ASan sees a step too far. */
static Tensor *parse(const char *text, size_t n, DType dt, Err *e) {
  char *copy = malloc(n ? n : 1);
  memcpy(copy, text, n);
  Tensor *t = csv_parse(&m, "t.csv", copy, n, dt, e);
  free(copy);
  return t;
}

/* `numbers` row by row. */
static void reads(const char *text, DType dt, int64_t rows, int64_t cols, const double *numbers) {
  Err e = {.text = ""};
  Tensor *t = parse(text, strlen(text), dt, &e);
  if (!check_msg(t != NULL, "`%s`: %s", text, e.text)) return;
  bool ok = t->dtype == dt && t->rank == 2 && t->dim[0] == rows && t->dim[1] == cols;
  check_msg(ok, "`%s` is [%lld, %lld]", text, (long long)t->dim[0], (long long)t->dim[1]);
  for (int64_t i = 0; ok && i < rows * cols; i++) {
    double x = tn_get_f64(t, i), y = numbers[i];
    check_msg(x == y || (isnan(x) && isnan(y)), "`%s`: number %lld is %g", text, (long long)i, x);
  }
  tn_unref(t);
}

static void refused(const char *text, DType dt, const char *why) {
  Err e = {.text = ""};
  Tensor *t = parse(text, strlen(text), dt, &e);
  check_msg(!t, "`%s` is read", text);
  tn_unref(t);
  check_str(e.text, why);
}

static const double one_to[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};

static void t_separators(void) {
  static const char *const same[] = {
      "1,2,3\n4,5,6\n",
      "1,2,3\n4,5,6",
      "1;2;3\n4;5;6\n",
      "1\t2\t3\n4\t5\t6\n",
      "1 2 3\n4 5 6\n",
      "\t1 \t 2 3  \n  4   5 6\n",
      "1, 2,\t3\n 4 ,5 , 6 \n",
      "1 ; 2 ; 3\n4;5;6",
      "1 \t 2\t3\n4\t5\t 6 \n",
      "1,2,3\r\n4,5,6\r\n",
      "1,2,3\r4,5,6\r",
      "\n\n1,2,3\n\n  \n\t\n4,5,6\n\n",
      "# a comment\n1,2,3 # one\n#,,,\n4,5,6#",
      "\"1\",\"2\",\" 3 \"\n4,\"5\",6\n",
      ("\xef\xbb\xbf"
       "1,2,3\n4,5,6\n"),
      "1.0,2.,3e0\n+4,.5e1,600e-2\n",
      "a,b,c\n1,2,3\n4,5,6\n",
      "\"a, b\";c;\"#d\"\n1;2;3\n4;5;6\n",
      ",b,c\n1,2,3\n4,5,6\n",
      "first second third\n1 2 3\n4 5 6\n",
      "layer 1,layer 2,layer 3\n1,2,3\n4,5,6\n",
      "just a title\n1,2,3\n4,5,6\n",
  };
  for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
    reads(same[i], DT_F32, 2, 3, one_to);
    reads(same[i], DT_F64, 2, 3, one_to);
    reads(same[i], DT_I64, 2, 3, one_to);
  }
  reads("1\n2\n3\n", DT_F32, 3, 1, one_to);
  reads("1", DT_F32, 1, 1, one_to);
  reads("1,2", DT_F64, 1, 2, one_to);
  reads("x\n1\n2", DT_F64, 2, 1, one_to);
}

static void t_numbers(void) {
  reads("nan,inf,-inf\nNaN,-Infinity,1e400\n", DT_F64, 2, 3,
        (double[]){NAN, INFINITY, -INFINITY, NAN, -INFINITY, INFINITY});
  reads("0.1,1e-45,16777217\n", DT_F32, 1, 3, (double[]){(double)0.1f, 0x1p-149, 16777216});
  reads("0.1,5e-324,9007199254740993\n", DT_F64, 1, 3, (double[]){0.1, 5e-324, 0x1p53});
  reads("5.0,1e3,-7", DT_I64, 1, 3, (double[]){5, 1000, -7});
  Err e;
  Tensor *t = parse("9223372036854775807,-9223372036854775808", 40, DT_I64, &e);
  need(t);
  check_int(tn_get_i64(t, 0), ==, INT64_MAX);
  check_int(tn_get_i64(t, 1), ==, INT64_MIN);
  tn_unref(t);
}

static void t_refused(void) {
  refused("", DT_F32, "t.csv: holds no numbers");
  refused("\n # only\n", DT_F32, "t.csv: holds no numbers");
  refused("a,b\n", DT_F32, "t.csv: holds a header, but no numbers");
  refused("1,2\n3\n", DT_F32, "t.csv:2: 1 field, but line 1 has 2");
  refused("a,b\n1,2\n\n3,4,5\n", DT_F32, "t.csv:4: 3 fields, but line 2 has 2");
  refused("1,2\n3,x\n", DT_F32, "t.csv:2:3: `x` is not a number (`read_table` reads texts, too)");
  refused("1,2\n3,  \xc3\xa9t\xc3\xa9\n", DT_F32,
          "t.csv:2:5: `\xc3\xa9t\xc3\xa9` is not a number (`read_table` reads texts, too)");
  refused("1,2\n\xc3\xa9,x\n", DT_F32,
          "t.csv:2:1: `\xc3\xa9` is not a number (`read_table` reads texts, too)");
  refused("1,,2\n", DT_F32, "t.csv:1:3: the field is empty");
  refused("1,2\n3,\n", DT_F32, "t.csv:2:3: the field is empty");
  refused("1\t2\t3\n\t5\t6\n", DT_F32, "t.csv:2:1: the field is empty");
  refused("1\t2\t3\n4\t5\t\n", DT_F32, "t.csv:2:5: the field is empty");
  refused(",,\n,,\n", DT_F32, "t.csv:1:1: the field is empty");
  refused("1,2\n\"\",2\n", DT_F32, "t.csv:2:2: the field is empty");
  refused("1,2\n\"3,4\n", DT_F32, "t.csv:2:1: a quote in this line has no end");
  refused("\"a,b\n1,2\n", DT_F32, "t.csv:1:1: a quote in this line has no end");
  refused(
      "1,x,3\n4,5,6\n", DT_F32,
      "t.csv:1:3: `x` is not a number (a first line is a header only when none of its fields is "
      "a number)");
  refused("1,5;2,5\n3,5;4,5\n", DT_F32,
          "t.csv:1:1: `1,5` is not a number (the decimal point is `.`)");
  refused("1 2 3\n4,5,6\n", DT_F32,
          "t.csv:1:1: `1 2 3` is not a number (a first line is a header only when none of its "
          "fields is a number)");
  refused("1.5\n", DT_I64, "t.csv:1:1: `1.5` is not a whole number that an i64 holds");
  refused("9223372036854775808", DT_I64,
          "t.csv:1:1: `9223372036854775808` is not a whole number that an i64 holds");
  refused("nan", DT_I64, "t.csv:1:1: `nan` is not a whole number that an i64 holds");
  refused("0x10\n1\n0x10\n", DT_F32,
          "t.csv:3:1: `0x10` is not a number (`read_table` reads texts, too)");
  refused("1 2\n1_000 2\n", DT_F32,
          "t.csv:2:1: `1_000` is not a number (`read_table` reads texts, too)");
  refused("1\n2", DT_I16, "t.csv: a table is read as f32, f64 or i64, not as i16");
  refused("1,2\n3,aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\xc3\xa9zzz", DT_F32,
          "t.csv:2:3: `aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...` is not a number (`read_table` "
          "reads texts, too)");
  Err e;
  check(!parse("1,2\0,3", 6, DT_F32, &e));
  check_str(e.text, "t.csv: is no text (it has NUL bytes)");
  check(!parse("\xff\xfe"
               "1\0",
               4, DT_F32, &e));
  check_str(e.text, "t.csv: is UTF-16; UTF-8 is read");
}

static void t_ragged_size(void) {
  /* a first line of many fields and many lines of one: no memory for their product */
  size_t n = 0, cap = 200000;
  char *text = malloc(cap);
  for (int i = 0; i < 50000; i++) n += (size_t)sprintf(text + n, "1,");
  text[n - 1] = '\n';
  for (int i = 0; i < 50000; i++) text[n++] = '2', text[n++] = '\n';
  Err e;
  size_t peak = m.peak;
  check(!parse(text, n, DT_F64, &e));
  check_str(e.text, "t.csv:2: 1 field, but line 1 has 50000");
  check_size(m.peak, ==, peak);
  free(text);
}

static void t_files(void) {
  char name[64];
  Err e;
  snprintf(name, sizeof name, "t-csv.%ld.tmp", (long)getpid());
  FILE *p = fopen(name, "wb");
  need(p);
  fputs("a,b\n1,2\n3,4\n", p);
  fclose(p);
  Tensor *t = csv_read(&m, name, DT_F32, &e);
  need(t);
  check(t->dim[0] == 2 && t->dim[1] == 2 && tn_get_f64(t, 3) == 4);
  tn_unref(t);
  t = bytes_read(&m, name, 0, -1, false, &e);
  need(t);
  check(t->dtype == DT_U8 && t->rank == 1 && t->dim[0] == 12 && tn_get_i64(t, 4) == '1');
  tn_unref(t);
  unlink(name);
  check(!csv_read(&m, name, DT_F32, &e));
  check_has(e.text, "no such file");
  check(!bytes_read(&m, ".", 0, -1, false, &e));
  check_str(e.text, ".: is a folder");
  p = fopen(name, "wb");
  need(p);
  fclose(p);
  t = bytes_read(&m, name, 0, -1, false, &e);
  need(t);
  check_int(t->dim[0], ==, 0);
  tn_unref(t);
  for (int64_t nth = 1; nth < 20; nth++) {
    f.count = 0;
    f.nth = nth;
    t = bytes_read(&m, name, 0, -1, false, &e);
    f.nth = 0;
    check(t || e.nomem);
    tn_unref(t);
    check_int(f.blocks, ==, 0);
    if (t) break;
  }
  for (int64_t nth = 1; nth < 20; nth++) {
    f.count = 0;
    f.nth = nth;
    t = parse("1,2\n3,4", 7, DT_F32, &e);
    f.nth = 0;
    check(t || e.nomem);
    tn_unref(t);
    check_int(f.blocks, ==, 0);
    if (t) break;
  }
  unlink(name);
}

/* Random tables written in each way read back exactly. */
static void t_back(void) {
  static const char *const sep[] = {",", ";", "\t", " ", ", ", " ; "};
  static const char *const eol[] = {"\n", "\r\n", "\r", "\n\n", " # c\n"};
  uint64_t seed = 7;
  char *text = malloc(100000);
  double *want = malloc(400 * sizeof *want);
  for (int round = 0; round < 300; round++) {
    size_t n = 0;
    int64_t rows = 1 + round % 20, cols = 1 + round % 19;
    for (int64_t i = 0; i < rows * cols; i++) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      uint64_t u = seed ^ seed >> 29;
      memcpy(&want[i], &u, 8);
      bool quoted = round % 7 == 3;
      n += (size_t)sprintf(text + n, quoted ? "\"%.17g\"" : "%.17g", want[i]);
      n += (size_t)sprintf(text + n, "%s", i % cols == cols - 1 ? eol[round % 5] : sep[round % 6]);
    }
    text[n] = 0;
    reads(text, DT_F64, rows, cols, want);
  }
  free(text);
  free(want);
}

int main(void) {
  failing_init(&f, &m, 0);
  TEST(t_separators(), "one table reads the same in every style");
  TEST(t_numbers(), "numbers are rounded correctly into each dtype");
  TEST(t_refused(), "what is no table of numbers is refused with its place");
  TEST(t_ragged_size(), "a ragged table asks for no memory");
  TEST(t_files(), "files are read, absent ones named, and memory may run out");
  TEST(t_back(), "random tables read back");
  TEST(check(failing_clean(&f, &m)), "nothing is left");
  return tap_done();
}
