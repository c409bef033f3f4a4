/* "Did you mean": the candidate with the fewest letters inserted, left out, changed or swapped
 * (optimal string alignment distance), if these are few for the length of the word. */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

enum { LONGEST = 64 };

static int least(int a, int b) {
  return a < b ? a : b;
}

static int distance(const char *a, const char *b) {
  size_t n = strlen(a), m = strlen(b);
  if (n > LONGEST || m > LONGEST) return LONGEST;
  int row[3][LONGEST + 1]; /* rows i - 2, i - 1, i of the table, by i modulo 3 */
  for (size_t j = 0; j <= m; j++) row[0][j] = (int)j;
  for (size_t i = 1; i <= n; i++) {
    int *now = row[i % 3], *up = row[(i + 2) % 3], *upup = row[(i + 1) % 3];
    now[0] = (int)i;
    for (size_t j = 1; j <= m; j++) {
      now[j] = least(least(up[j], now[j - 1]) + 1, up[j - 1] + (a[i - 1] != b[j - 1]));
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        now[j] = least(now[j], upup[j - 2] + 1);
    }
  }
  return row[n % 3][m];
}

void suggest_start(Suggest *s, const char *wrong) {
  s->wrong = wrong;
  s->best[0] = 0;
  s->distance = 1 + (int)(strlen(wrong) / 3);
}

void suggest_try(Suggest *s, const char *candidate) {
  int d = distance(s->wrong, candidate);
  size_t n = strlen(candidate);
  if (d > s->distance || (d == s->distance && s->best[0]) || n >= sizeof s->best) return;
  if (d >= (int)n) return; /* nothing in common */
  s->distance = d;
  memcpy(s->best, candidate, n + 1);
}

const char *suggest_text(Suggest *s, char *room, size_t n) {
  if (!s->best[0]) return "";
  snprintf(room, n, "; did you mean `%s`?", s->best);
  return room;
}
