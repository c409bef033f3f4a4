/* mutate.h: for fuzzers of what reads a text. A text is drawn, changed a little, and fed; one that
 * was taken goes on, another goes back. The fuzzer says how: fill in a Target and call fuzz(). */
#ifndef CKL_MUTATE_H
#define CKL_MUTATE_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#include "runtime/mem.h"

typedef struct Target {
  const char *what;          /* "graphs" */
  const char *const *words;  /* what the texts are made of, ends with NULL */
  void (*draw)(void *ud);    /* set_text with a new one */
  void (*feed)(void *ud);    /* reads `text`; counts in `taken` and `ran` */
  void (*on_alarm)(int sig); /* whatever runs for more than 30 ms after soon(): stop it */
} Target;

static Mem mem;
static Arena arena; /* until the text is fed */
static char *text;
static size_t length;
static long taken, ran;
static uint64_t state;

static unsigned rnd(unsigned n) { /* below n; xorshift of Marsaglia */
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return n ? (unsigned)(state >> 33) % n : 0;
}

static void die(const char *what, const char *more) {
  printf("%s: %s\n%.*s\n", what, more, (int)length, text);
  exit(1);
}

static void soon(bool on) {
  struct itimerval t = {{0, 0}, {0, on ? 30000 : 0}};
  setitimer(ITIMER_REAL, &t, NULL);
}

static void set_text(const char *s) {
  free(text);
  text = strdup(s);
  length = strlen(s);
}

/* ---- changes */

/* s may lie in the text. */
static void put(size_t at, size_t gone, const char *s, size_t n) {
  if (at > length) at = length;
  if (gone > length - at) gone = length - at;
  if (length - gone + n > 60000) return;
  char *t = malloc(length - gone + n + 1);
  memcpy(t, text, at);
  memcpy(t + at, s, n);
  memcpy(t + at + n, text + at + gone, length - at - gone);
  length = length - gone + n;
  t[length] = 0;
  free(text);
  text = t;
}

static size_t line_start(size_t at) {
  while (at > 0 && text[at - 1] != '\n') at--;
  return at;
}

/* The line at `at`, with its end. */
static size_t line(size_t at, size_t *n) {
  size_t from = line_start(at), to = from;
  while (to < length && text[to] != '\n') to++;
  *n = to - from + (to < length);
  return from;
}

static bool digit(size_t at) {
  return text[at] >= '0' && text[at] <= '9';
}

static void number(size_t at) {
  char s[24];
  while (at < length && !digit(at)) at++;
  while (at > 0 && digit(at - 1)) at--;
  size_t to = at;
  while (to < length && digit(to)) to++;
  long long x = strtoll(text + at, NULL, 10);
  snprintf(s, sizeof s, "%lld", rnd(2) ? (long long)rnd(40) : x - 1 - rnd(5));
  put(at, to - at, s, strlen(s));
}

static void word(size_t at, const char *s) {
  size_t to = at;
  if (rnd(2)) { /* anywhere */
    put(at, rnd(2) ? rnd(4) : 0, s, strlen(s));
    return;
  }
  while (at > 0 && text[at - 1] != ' ' && text[at - 1] != '\n') at--;
  while (to < length && text[to] != ' ' && text[to] != '\n') to++;
  put(at, rnd(4) ? to - at : 0, s, strlen(s));
}

static void mutate(const char *const *words) {
  size_t at = rnd((unsigned)length + 1), n, from, count = 0;
  while (words[count]) count++;
  switch (rnd(9)) {
  case 0:
    if (length)
      text[at % length] = (char)(rnd(2) ? (int)rnd(256) : text[at % length] ^ (1 << rnd(7)));
    break;
  case 1: put(at, 1 + rnd(4), "", 0); break;
  case 2:
  case 3: word(at, words[rnd((unsigned)count)]); break;
  case 4:
  case 5: number(at); break;
  case 6: /* a line comes once more */
    from = line(at, &n);
    put(line_start(rnd((unsigned)length + 1)), 0, text + from, n);
    break;
  case 7: /* or goes */
    from = line(at, &n);
    put(from, n, "", 0);
    break;
  default: { /* some text comes somewhere else too */
    char s[16];
    from = rnd((unsigned)length + 1);
    n = 1 + rnd(12);
    if (from + n > length) break;
    memcpy(s, text + from, n);
    put(at, n, s, n);
  }
  }
}

/* ---- the loop */

static void *limited(void *ud, void *ptr, size_t old_size, size_t new_size) {
  (void)ud;
  (void)old_size;
  if (!new_size) {
    free(ptr);
    return NULL;
  }
  return new_size > (1u << 24) ? NULL : realloc(ptr, new_size);
}

/* SECONDS [SEED]; the exit status. */
static int fuzz(int argc, char **argv, const Target *t) {
  int seconds = argc > 1 ? atoi(argv[1]) : 5;
  state = (argc > 2 ? strtoull(argv[2], NULL, 10) : 1) * 2654435761u + 88172645463325252u;
  mem_init(&mem, limited, NULL);
  struct sigaction act = {.sa_handler = t->on_alarm, .sa_flags = SA_RESTART};
  sigaction(SIGALRM, &act, NULL);
  time_t end = time(NULL) + seconds;
  long fed = 0;
  while (time(NULL) < end) {
    arena_init(&arena, &mem);
    if (mem_protect(&mem, t->draw, NULL) != MEM_OK) die("the generator threw", "");
    arena_free(&arena);
    for (int i = 0; i < 200; i++) {
      size_t n = length;
      char *keep = malloc(n + 1);
      memcpy(keep, text, n + 1);
      for (unsigned m = rnd(4) ? 1 : 3; m > 0; m--) mutate(t->words);
      arena_init(&arena, &mem);
      long before = taken;
      int code = mem_protect(&mem, t->feed, NULL);
      if (code != MEM_OK && code != MEM_ERR_NOMEM) die("threw", "");
      arena_free(&arena);
      fed++;
      if (taken > before && rnd(3)) {
        free(keep);
      } else {
        free(text);
        text = keep;
        length = n;
      }
      if (mem.live != mem.pool_cap * sizeof *mem.pool) die("leaks", "");
    }
  }
  printf("%ld texts, %ld were %s, %ld ran\n", fed, taken, t->what, ran);
  free(text);
  mem_close(&mem);
  return 0;
}

#endif
