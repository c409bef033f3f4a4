/* Programs for the fuzzers that run or check them: made from those of the tests, the examples and
 * the library. Words are replaced by others of the text or the corpus, mostly of the same kind,
 * lines are moved, doubled and dropped, two programs are put together. The corpus is read in the
 * order of its names, so a seed gives the same programs everywhere. */
#ifndef CKL_FUZZ_PROGRAMS_H
#define CKL_FUZZ_PROGRAMS_H

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_TEXT = 1 << 14, MAX_FILES = 2000, MAX_WORDS = 60000 };

static uint64_t state;

static uint32_t rnd(uint32_t n) { /* below n; xorshift* of Vigna */
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return (uint32_t)((state * 0x2545f4914f6cdd1dull) >> 33) % (n ? n : 1);
}

/* ---- the corpus */

typedef struct Piece {
  const char *s;
  size_t n;
} Piece;

static Piece files[MAX_FILES];
static size_t file_count, running_count; /* the first of them run to their end as they are */
static Piece words[MAX_WORDS]; /* names, numbers and signs of all files, as often as they occur */
static size_t word_count;

static char text[MAX_TEXT + 1];
static size_t text_n;
static bool name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* The word at p: a name or number, a string, white space, or one other character. */
static size_t word_at(const char *p, const char *end) {
  size_t n = 1, left = (size_t)(end - p);
  if (name_char(*p)) {
    while (n < left && name_char(p[n])) n++;
  } else if (*p == '"') {
    while (n < left && p[n] != '"' && p[n] != '\n') n++;
    if (n < left && p[n] == '"') n++;
  } else if (*p == ' ') {
    while (n < left && p[n] == ' ') n++;
  }
  return n;
}

static void add_file(const char *name) {
  struct stat st;
  if (file_count == MAX_FILES || stat(name, &st) || st.st_size > MAX_TEXT / 2) return;
  FILE *f = fopen(name, "rb");
  if (!f) return;
  char *s = malloc((size_t)st.st_size + 1), *to = s;
  if (!s) exit(1);
  size_t n = fread(s, 1, (size_t)st.st_size, f);
  fclose(f);
  /* without the expected output */
  for (const char *p = s, *end = s + n; p < end;) {
    const char *nl = memchr(p, '\n', (size_t)(end - p));
    size_t k = nl ? (size_t)(nl - p) + 1 : (size_t)(end - p);
    if (*p != '#') {
      memmove(to, p, k);
      to += k;
    }
    p += k;
  }
  files[file_count++] = (Piece){s, (size_t)(to - s)};
  for (const char *p = s; p < to;) {
    size_t k = word_at(p, to);
    if (*p != ' ' && *p != '\n' && word_count < MAX_WORDS) words[word_count++] = (Piece){p, k};
    p += k;
  }
}

static void add_folder(const char *name) {
  struct dirent **list;
  int n = scandir(name, &list, NULL, alphasort);
  for (int i = 0; i < n; i++) {
    char full[1024];
    struct stat st;
    const char *base = list[i]->d_name;
    size_t k = strlen(base);
    snprintf(full, sizeof full, "%s/%s", name, base);
    if (base[0] != '.' && !stat(full, &st)) {
      if (S_ISDIR(st.st_mode))
        add_folder(full);
      else if (k > 4 && !strcmp(base + k - 4, ".ckl"))
        add_file(full);
    }
    free(list[i]);
  }
  if (n >= 0) free(list);
}

/* ---- programs */

static void splice(size_t at, size_t cut, const char *s, size_t n) {
  if (text_n - cut + n > MAX_TEXT) return;
  char keep[512];
  if (n > sizeof keep) n = sizeof keep;
  memcpy(keep, s, n); /* s may point into the text */
  memmove(text + at + n, text + at + cut, text_n - at - cut);
  memcpy(text + at, keep, n);
  text_n = text_n - cut + n;
}

static size_t line_start(size_t at) {
  while (at && text[at - 1] != '\n') at--;
  return at;
}

static size_t line_length(size_t at) {
  size_t n = 0;
  while (at + n < text_n && text[at + n] != '\n') n++;
  return at + n < text_n ? n + 1 : n;
}

/* Whether a declaration that all that follows needs begins here. */
static bool brings_names(size_t line) {
  return text_n - line > 4 && !memcmp(text + line, "use ", 4);
}

/* The word at a place of the text that another may stand for. */
static Piece word_near(size_t at) {
  size_t start = line_start(at), end = start;
  while (end <= at && end < text_n) {
    start = end;
    end += word_at(text + end, text + text_n);
  }
  return (Piece){text + start, end - start};
}

static int word_kind(Piece w) {
  if (!w.n || *w.s == ' ' || *w.s == '\n') return 0;
  if (*w.s >= '0' && *w.s <= '9') return 1;
  return name_char(*w.s) ? 2 : *w.s == '"' ? 3 : 4;
}

/* Another word in place of `old`: of the same kind, since most others cannot be read there. */
static void replace_word(Piece old) {
  static const char *const extra[] = {
      "0",  "-1", "1",    "9223372036854775807", "0.5", "none", "self", "true", "inf", "_",
      "[]", "()", "\"\"", "4000000000",          "f32", "x",    "n",    "out",  "any", "model"};
  size_t start = (size_t)(old.s - text);
  if (rnd(8) == 0) {
    const char *w = extra[rnd(sizeof extra / sizeof *extra)];
    splice(start, old.n, w, strlen(w));
    return;
  }
  for (int tries = 0; tries < 20; tries++) {
    Piece w = rnd(2) ? word_near(rnd((uint32_t)text_n)) : words[rnd((uint32_t)word_count)];
    if (word_kind(w) != word_kind(old)) continue;
    splice(start, old.n, w.s, w.n);
    return;
  }
}

static void mutate(void) {
  size_t at = rnd((uint32_t)text_n);
  for (int tries = 0; tries < 3 && brings_names(line_start(at)); tries++)
    at = rnd((uint32_t)text_n);
  uint32_t what = rnd(16);
  if (what < 9) {
    Piece old = word_near(at);
    if (word_kind(old)) replace_word(old);
  } else if (what < 11) { /* a line less */
    size_t s = line_start(at);
    splice(s, line_length(s), "", 0);
  } else if (what < 13) { /* a line twice, or elsewhere */
    size_t s = line_start(at), to = line_start(rnd((uint32_t)text_n + 1));
    splice(to, 0, text + s, line_length(s));
  } else if (what < 15) { /* a line of another program */
    Piece f = files[rnd((uint32_t)file_count)];
    if (!f.n) return;
    size_t p = rnd((uint32_t)f.n), n = 0;
    while (p && f.s[p - 1] != '\n') p--;
    while (p + n < f.n && f.s[p + n] != '\n') n++;
    if (p + n < f.n) n++;
    splice(line_start(at), 0, f.s + p, n);
  } else { /* a word less */
    splice(at, word_at(text + at, text + text_n), "", 0);
  }
}

/* A program out of the first `count` files. */
static void make_of(size_t count, uint32_t changes) {
  Piece f = files[rnd((uint32_t)count)];
  memcpy(text, f.s, f.n);
  text_n = f.n;
  if (rnd(4) == 0) {
    Piece g = files[rnd((uint32_t)count)];
    memcpy(text + text_n, g.s, g.n);
    text_n += g.n;
  }
  for (; changes > 0 && text_n; changes--) mutate();
}

/* Reads the corpus; false where srcdir is not the source. */
static bool read_programs(void) {
  static const char *const folders[] = {"tests/golden", "examples", "tests/error", "tests/parse",
                                        "stdlib"};
  const char *src = getenv("srcdir");
  char full[1024];
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
    snprintf(full, sizeof full, "%s/%s", src && *src ? src : ".", folders[i]);
    add_folder(full);
    if (i < 2) running_count = file_count;
  }
  if (running_count && word_count) return true;
  printf("no programs: srcdir is not the source\n");
  return false;
}

#endif
