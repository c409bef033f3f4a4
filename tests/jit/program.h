/* Random programs: program.c makes them, random.c runs them. */
#ifndef TESTS_JIT_PROGRAM_H
#define TESTS_JIT_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>

enum { INPUTS = 7, STATEMENTS = 24, VARS = INPUTS + STATEMENTS, RANK = 5, RESULTS = 8 };
enum { RUNS = 2 }; /* sets of sizes */

typedef enum Dt { BOOL, U8, I8, I16, I32, I64, F16, BF16, F32, F64, DTS } Dt;
extern const char *const dt_name[DTS];

typedef struct Size { /* of an axis: its text in the program, its value in each run */
  char text[40];
  long n[RUNS];
} Size;
typedef struct Var {
  char name[8];
  Dt dt;
  int rank;
  Size dim[RANK];
  bool hidden; /* out of scope */
} Var;
typedef struct Statement {
  char text[600]; /* defines vars[INPUTS + number] */
  bool dropped;
} Statement;
typedef struct Program {
  unsigned long long seed, rng;
  Var vars[VARS];
  int inputs, statements;
  Statement statement[STATEMENTS];
  int result[RESULTS], results; /* numbers of vars */
  int loss[3], losses;          /* vars whose means are added up */
  int wrt[3], wrts;             /* inputs */
  bool no_loss, wide;
  int order;   /* of gradients, by the first input: 1, 2 or 3 */
  double most; /* elements of a value */
} Program;

unsigned long long program_random(unsigned long long *rng); /* the next number */
/* `wide`: every float is f64, so that the numbers can be judged. */
void program_generate(Program *p, unsigned long long seed, bool wide);
/* The source; `script`: as a proc whose inputs are tracked. */
void program_source(const Program *p, bool script, char *to, size_t cap);

/* For programs of more than one function (tests/random): a Program whose vars and `most` another
 * generator sets is a scope in which this one writes statements. */
extern const char program_functions[]; /* the functions that statements call */
bool program_statement(Program *p);    /* one more, if there is room */

#endif
