/* Text that grows, lists of strings, whole files, and the difference of two texts, for the golden
 * runner. What cannot be done ends the program. */
#include "tests/golden/runner.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Noreturn void die(const char *what) {
  printf("Bail out! golden-runner: %s: %s\n", what, strerror(errno));
  exit(1);
}

void *grow(void *p, size_t n) {
  void *q = realloc(p, n);
  if (!q) die("memory");
  return q;
}

void add(Text *t, const char *s, size_t n) {
  if (t->n + n + 1 > t->room) {
    t->room = (t->n + n + 1) * 2;
    t->s = grow(t->s, t->room);
  }
  memcpy(t->s + t->n, s, n);
  t->n += n;
  t->s[t->n] = 0;
}

void adds(Text *t, const char *s) {
  add(t, s, strlen(s));
}

void addf(Text *t, const char *fmt, ...) {
  char room[1024];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(room, sizeof room, fmt, ap);
  va_end(ap);
  adds(t, room);
}

const char *text_of(const Text *t) {
  return t->s ? t->s : "";
}

void clear(Text *t) {
  free(t->s);
  memset(t, 0, sizeof *t);
}

/* ---- lists of strings */
bool has(const Names *l, const char *s, size_t n) {
  for (size_t i = 0; i < l->n; i++)
    if (strlen(l->s[i]) == n && !memcmp(l->s[i], s, n)) return true;
  return false;
}

void push(Names *l, const char *s, size_t n) {
  l->s = grow(l->s, (l->n + 1) * sizeof *l->s);
  l->s[l->n] = grow(NULL, n + 1);
  memcpy(l->s[l->n], s, n);
  l->s[l->n++][n] = 0;
}

void clear_names(Names *l) {
  for (size_t i = 0; i < l->n; i++) free(l->s[i]);
  free(l->s);
  memset(l, 0, sizeof *l);
}

void push_new(Names *l, const char *s, size_t n) {
  if (!has(l, s, n)) push(l, s, n);
}

/* ---- files */
bool read_file(const char *path, Text *t) {
  char part[8192];
  FILE *f = fopen(path, "rb");
  if (!f) return false;
  for (size_t k; (k = fread(part, 1, sizeof part, f)) > 0;) add(t, part, k);
  fclose(f);
  add(t, "", 0);
  return true;
}

bool write_file(const char *path, const Text *t) {
  FILE *f = fopen(path, "wb");
  if (!f) return false;
  size_t k = fwrite(text_of(t), 1, t->n, f);
  return !fclose(f) && k == t->n;
}

/* ---- differences, as `diff -u` shows them */
typedef struct Lines {
  const char **s;
  size_t *n, count;
} Lines;

static Lines split(const char *text) {
  Lines l = {NULL, NULL, 0};
  for (const char *p = text; *p;) {
    size_t n = strcspn(p, "\n");
    l.s = grow(l.s, (l.count + 1) * sizeof *l.s);
    l.n = grow(l.n, (l.count + 1) * sizeof *l.n);
    l.s[l.count] = p;
    l.n[l.count++] = n;
    p += n + (p[n] == '\n');
  }
  return l;
}

static bool same_line(const Lines *a, size_t i, const Lines *b, size_t j) {
  return a->n[i] == b->n[j] && !memcmp(a->s[i], b->s[j], a->n[i]);
}

void show_difference(Text *why, const char *old, const char *new) {
  Lines a = split(old), b = split(new);
  if (a.count > 3000 || b.count > 3000) {
    adds(why, "the texts differ\n");
    return;
  }
  /* best[i][j]: the longest common part of a[i..] and b[j..] */
  size_t w = b.count + 1;
  unsigned short *best = grow(NULL, (a.count + 1) * w * sizeof *best);
  for (size_t i = a.count + 1; i-- > 0;)
    for (size_t j = w; j-- > 0;) {
      unsigned short *x = &best[i * w + j];
      if (i == a.count || j == b.count)
        *x = 0;
      else if (same_line(&a, i, &b, j))
        *x = (unsigned short)(best[(i + 1) * w + j + 1] + 1);
      else
        *x = best[(i + 1) * w + j] > best[i * w + j + 1] ? best[(i + 1) * w + j]
                                                         : best[i * w + j + 1];
    }
  adds(why, "--- the file\n+++ this run\n");
  size_t i = 0, j = 0, quiet = 0;
  while (i < a.count || j < b.count) {
    bool both = i < a.count && j < b.count && same_line(&a, i, &b, j);
    if (both) {
      bool near = false; /* a difference within two lines */
      for (size_t k = 1; k <= 2; k++)
        if (i + k >= a.count || j + k >= b.count ? a.count - i != b.count - j
                                                 : !same_line(&a, i + k, &b, j + k))
          near = true;
      if (near || quiet > 0) addf(why, "%4zu  %.*s\n", i + 1, (int)a.n[i], a.s[i]);
      if (quiet) quiet--;
      i++;
      j++;
      continue;
    }
    quiet = 2;
    if (j == b.count || (i < a.count && best[(i + 1) * w + j] >= best[i * w + j + 1])) {
      addf(why, "%4zu -%.*s\n", i + 1, (int)a.n[i], a.s[i]);
      i++;
    } else {
      addf(why, "     +%.*s\n", (int)b.n[j], b.s[j]);
      j++;
    }
  }
  free(best);
  free(a.s);
  free(a.n);
  free(b.s);
  free(b.n);
}
