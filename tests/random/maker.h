/* What the makers of random programs share: the state of one program, and the writing of bodies
 * (body.c), which whole.c makes into functions, models and a script. */
#ifndef TESTS_RANDOM_MAKER_H
#define TESTS_RANDOM_MAKER_H

#include <stdio.h>
#include <string.h>

#include "tests/jit/program.h"
#include "tests/random/whole.h"

enum { HELPERS = 3, LISTED = 12 };

typedef struct Helper {
  char name[8], call[16]; /* the name, and how its arguments are passed */
  int params, results;
  Var param[4], result[3];
  bool record, model; /* results in a record; takes a model first */
} Helper;

typedef enum Where { IN_ENTRY, IN_HELPER, IN_METHOD, IN_ROW } Where;

typedef struct Maker {
  Whole *w;
  Program *p; /* the scope of the present body */
  Where where;
  int depth;   /* of blocks around */
  bool fresh;  /* what a side assigns is a value of its own */
  int quiet;   /* > 0: no hooks and writes here */
  int still;   /* > 0: nor draws: data decides whether it runs */
  bool hooks;  /* the program has hooks: no second order */
  bool hooked; /* the present body has */
  bool in_library;
  Dt dt; /* of models */
  Size d, n, m, c;
  int models, helpers, rows;
  Helper helper[HELPERS];
  bool has_pair[MODELS], has_inner[MODELS], linear[MODELS];
  int uses[MODELS];   /* of the params in the entry since they were written */
  bool spent[MODELS]; /* and no more uses in this turn or side, which writes them */
  int prints;
  int owner[STATEMENTS],
      block;   /* the block that runs a statement, by its number; 0: none does for sure */
  bool scale;  /* the tracked scalar `u` is in scope */
  bool totals; /* the variable `total` is in scope */
} Maker;

static inline int below(Maker *m, int n) {
  return (int)(program_random(&m->w->rng) % (unsigned)n);
}
static inline bool chance(Maker *m, int percent) {
  return below(m, 100) < percent;
}
#define ONE_OF(m, list) (list)[below(m, (int)(sizeof(list) / sizeof *(list)))]

#define line(m, into, ...) part_add((m)->w, into, LINE, part_text((m)->w, __VA_ARGS__))

static inline bool is_float(const Var *v) {
  return v->dt >= F16;
}
static inline bool alike(const Var *a, const Var *b) {
  if (a->dt != b->dt || a->rank != b->rank) return false;
  for (int i = 0; i < a->rank; i++)
    if (strcmp(a->dim[i].text, b->dim[i].text)) return false;
  return true;
}
static inline Size number(long n) {
  Size s = {.n = {n, n}};
  snprintf(s.text, sizeof s.text, "%ld", n);
  return s;
}
static inline Var tensor(const char *name, Dt dt, int rank, Size a, Size b, Size c) {
  Var v = {.dt = dt, .rank = rank, .dim = {a, b, c}};
  snprintf(v.name, sizeof v.name, "%s", name);
  return v;
}
static inline void take_input(Program *p, Var v) {
  if (p->inputs < INPUTS) p->vars[p->inputs++] = v;
}

typedef enum Wish { ANY, FLOATS, AXES, ALIKE, ROWS } Wish;

Program *body_scope(Maker *m);
/* A var in scope, rather a new one; NULL when there is none. */
Var *body_pick(Maker *m, Wish wish, const Var *with);
/* A new var like `v` in scope, whose statement the caller writes. */
Var *body_define(Maker *m, const Var *v);
/* matrices.c */
void body_matrix(Maker *m, int into);
void body_type(const Var *v, char *to, size_t cap);
/* So many statements into the part `into`; clauses of block `b` may name them. */
void body_write(Maker *m, int b, int into, int statements);
/* Clauses of block `into` that runs the statements `from` on; `loop`: of so many iterations. */
void body_clauses(Maker *m, int into, int from, int loop);

#endif
