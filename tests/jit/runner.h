/* runner.h: runs a random program of program.h through the C API, and keeps all its results. */
#ifndef TESTS_JIT_RUNNER_H
#define TESTS_JIT_RUNNER_H

#include <ckl.h>

#include "tests/jit/program.h"

enum { CALLS = 3, KEEP = 256 }; /* the third call has the sizes of the first; results of one run */

typedef struct Blob { /* one result: dtype, dims, bytes */
  Dt dt;
  int rank;
  int64_t dim[12];
  size_t bytes;
  unsigned char *data;
} Blob;
typedef struct Outcome {
  ckl_status status;
  bool script;                  /* messages are worded otherwise */
  char code[32], message[1500]; /* of a failure */
  Blob blob[KEEP];
  int count;
} Outcome;

extern const int dt_bytes[DTS];

/* A mode: a value of ckl_config.cpu, as in `native@4` on so many threads; `script`, the same text
 * as a proc, on the reference evaluator, or as in `script:native@4`. */
ckl_session *runner_open(const char *mode);
/* Ends the program if the mode needs machine code, and none is made. */
void runner_mode(const char *mode);
bool runner_in_script(const char *mode);

/* Declares the program in `s`; clears `o`. */
bool runner_declare(ckl_session *s, const Program *p, const char *mode, Outcome *o);
/* The elements of input i in a call, to be freed; n: how many. */
void *runner_input(const Program *p, int i, int call, size_t *n);
/* The key that a call is given. */
void runner_key(const Program *p, int call, int64_t key[2]);
/* Calls the declared program with these inputs; what comes out is added to `o`. */
void runner_call(ckl_session *s, const Program *p, int call, void *const *input, Outcome *o);
/* All of it: every call with its own inputs. */
void runner_run(ckl_session *s, const Program *p, const char *mode, Outcome *o);
void runner_clear(Outcome *o);

/* Drops what a fault does not need: gradients, results, statements from the end. `shows` says
 * whether a program has the fault, and how in `text`. */
typedef bool Shows(const Program *p, const void *with, char *text, size_t n);
void runner_shrink(Program *p, Shows *shows, const void *with, char *text, size_t n);

/* Prints text as comments of TAP. */
void runner_comment(const char *text);

#endif
