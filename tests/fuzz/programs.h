/* Programs for the fuzzers that run or check them: made from those of the tests, the examples and
 * the library. Words are replaced by others of the corpus, lines are moved, doubled and dropped,
 * two programs are put together. */
#ifndef CKL_FUZZ_PROGRAMS_H
#define CKL_FUZZ_PROGRAMS_H

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
  MAX_TEXT = 1 << 14,
  MAX_FILES = 2000,
  MAX_WORDS = 60000
};

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
static size_t file_count;
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
  DIR *d = opendir(name);
  if (!d) return;
  for (struct dirent *e; (e = readdir(d)) != NULL;) {
    char full[1024];
    struct stat st;
    size_t n = strlen(e->d_name);
    if (e->d_name[0] == '.') continue;
    snprintf(full, sizeof full, "%s/%s", name, e->d_name);
    if (stat(full, &st)) continue;
    if (S_ISDIR(st.st_mode))
      add_folder(full);
    else if (n > 4 && !strcmp(e->d_name + n - 4, ".ckl"))
      add_file(full);
  }
  closedir(d);
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

static void mutate(void) {
  size_t at = rnd((uint32_t)text_n);
  switch (rnd(8)) {
  case 0:
  case 1:
  case 2:
  case 3: { /* another word */
    size_t start = line_start(at), end = start;
    while (end <= at && end < text_n) {
      start = end;
      end += word_at(text + end, text + text_n);
    }
    if (end <= start || text[start] == '\n') break;
    static const char *const extra[] = {
        "0",  "-1", "1",    "9223372036854775807", "0.5", "none", "self", "true", "inf", "_",
        "[]", "()", "\"\"", "4000000000",          "f32", "x",    "n",    "out",  "any", "model"};
    if (rnd(4) == 0) {
      const char *w = extra[rnd(sizeof extra / sizeof *extra)];
      splice(start, end - start, w, strlen(w));
    } else {
      Piece w = words[rnd((uint32_t)word_count)];
      splice(start, end - start, w.s, w.n);
    }
    break;
  }
  case 4: { /* a line less */
    size_t s = line_start(at);
    splice(s, line_length(s), "", 0);
    break;
  }
  case 5: { /* a line twice, or elsewhere */
    size_t s = line_start(at), to = line_start(rnd((uint32_t)text_n + 1));
    splice(to, 0, text + s, line_length(s));
    break;
  }
  case 6: { /* a line of another program */
    Piece f = files[rnd((uint32_t)file_count)];
    if (!f.n) break;
    size_t p = rnd((uint32_t)f.n), n = 0;
    while (p && f.s[p - 1] != '\n') p--;
    while (p + n < f.n && f.s[p + n] != '\n') n++;
    if (p + n < f.n) n++;
    splice(line_start(at), 0, f.s + p, n);
    break;
  }
  default: { /* a word less */
    size_t n = word_at(text + at, text + text_n);
    splice(at, n, "", 0);
    break;
  }
  }
}

static void make(void) {
  Piece f = files[rnd((uint32_t)file_count)];
  memcpy(text, f.s, f.n);
  text_n = f.n;
  if (rnd(4) == 0) {
    Piece g = files[rnd((uint32_t)file_count)];
    memcpy(text + text_n, g.s, g.n);
    text_n += g.n;
  }
  for (uint32_t i = 1 + rnd(8); i > 0 && text_n; i--) mutate();
}

/* Reads the corpus; false where srcdir is not the source. */
static bool read_programs(void) {
  static const char *const folders[] = {"tests/golden", "tests/error", "tests/parse", "examples",
                                        "stdlib"};
  const char *src = getenv("srcdir");
  char full[1024];
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
    snprintf(full, sizeof full, "%s/%s", src && *src ? src : ".", folders[i]);
    add_folder(full);
  }
  if (file_count && word_count) return true;
  printf("no programs: srcdir is not the source\n");
  return false;
}

#endif
