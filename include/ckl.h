/* ckl.h: run ckl programs from C.
 *
 * A session holds variables, compiled functions and diagnostics; sessions share nothing. Values are
 * reference-counted handles. A call that fails returns a status; the diagnostics tell why, with
 * places in the user's source. Nothing here prints, exits or aborts: text goes to the callbacks.
 *
 *   #include <ckl.h>
 *   #include <stdio.h>
 *   int main(void) {
 *     ckl_session *s = ckl_open(NULL);
 *     ckl_value *y = NULL;
 *     if (ckl_eval(s, "fn f(x: f64[...S]) = sum(x * x)\nf(f64([1.0, 2.0]))", "demo", &y) == CKL_OK)
 *       printf("%g\n", ckl_to_float(y));
 *     else
 *       for (size_t i = 0; i < ckl_diag_count(s); i++)
 *         fputs(ckl_diag_text(s, i, 0), stderr);
 *     ckl_release(y);
 *     ckl_close(s);
 *   }
 *
 * Marks after each declaration: [-] cannot fail, [m] may run out of memory, [p] may meet a wrong
 * program, [r] may fail at run time. Unless said otherwise a session is used by one thread at a
 * time.
 */
#ifndef CKL_H
#define CKL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- version */
#define CKL_VERSION "0.1.0"
const char *ckl_version(void); /* [-] of the library, e.g. "0.1.0" */

/* ---- status */
typedef enum ckl_status {
  CKL_OK = 0,
  CKL_EPROGRAM = 1,   /* the program is wrong: nothing of it ran */
  CKL_ERUN = 2,       /* it failed while running; see ckl_eval */
  CKL_ENOMEM = 3,      /* out of memory, or too little C stack on the thread for any call */
  CKL_EDEVICE = 4,
  CKL_EINTERNAL = 5,  /* ckl is wrong; please report */
  CKL_EINTERRUPT = 6, /* ckl_interrupt was called */
  CKL_EUSAGE = 7      /* an argument of the C call itself makes no sense, or the session is busy */
} ckl_status;

/* ---- session */
typedef struct ckl_session ckl_session;
typedef struct ckl_value ckl_value;

enum { CKL_STDOUT = 1, CKL_STDERR = 2, CKL_TRACE = 3 }; /* streams of ckl_config.write */

typedef struct ckl_config {
  size_t size; /* sizeof(ckl_config); lets the struct grow */
  /* realloc(ud, ptr, old, new): new 0 frees; NULL = out of memory. NULL: the C library's. */
  void *(*alloc)(void *ud, void *ptr, size_t old_size, size_t new_size);
  void *alloc_ud;
  /* Gets the output of the program (stream 1), warnings, logs and progress (2), traces (3).
   * NULL: the text is dropped. */
  void (*write)(void *ud, int stream, const char *text, size_t n);
  void *write_ud;
  bool stderr_is_terminal;   /* progress bars are redrawn on a terminal, printed rarely on a pipe */
  const char *const *args;   /* `name=value` words for args("name", default) */
  size_t arg_count;
  const char *const *lib;    /* folders searched by `use` after the embedded library */
  size_t lib_count;
  const char *device;        /* "cpu" (default) or "sim" */
  int64_t memory_limit;      /* most bytes of every kind alive, 0 = no limit: see ckl_counter */
  bool has_seed;             /* start every program as if it began with seed(seed) */
  uint64_t seed;
  /* How compiled functions run: "reference" (no machine code), "loops" (kernels walked one number
   * at a time, to find faults), "emulator" (kernels for a GPU, in its emulator), "x86-64",
   * "x86-64-v3", "x86-64-v4", "native" (machine code of that level, or of the best this CPU has,
   * made at the first call), or NULL: of the best, as soon as it pays. All give equal numbers. */
  const char *cpu;
  int threads;         /* 0 = as many as the process may use */
  const char *codegen; /* path of ckl-codegen; NULL = where it is installed, "" = none */
  const char *kernels; /* folder of the kernels that come with ckl; NULL and "" as for codegen */
  const char *cache;   /* folder where machine code is kept; NULL = the user's, "" = memory only */
  bool perf_map;       /* write /tmp/perf-PID.map for perf */
  bool profile;        /* take times for ckl_profile */
  bool trace;          /* write, as stream 3, a JSON object per line for each captured backward */
  bool show_plan;      /* write the plan of each compiled call to stream 2 before it first runs */
  /* A file for the values that `checkpoint <offload ..>` moves out of the host's memory. It must be
   * an empty file or not exist, and ckl deletes it. NULL: such values stay in memory, in an account
   * of their own. */
  const char *spill;
  bool json;           /* warnings of a running program: a JSON object per line, as ckl_diag_json */
  /* Which files the program reaches by `use "path"`, read_text, save and the like: NULL = all that
   * the process may open, "" = none, else plain files below this folder, and no link on the way is
   * followed. Paths that the host itself passes are not restricted. */
  const char *files;
  /* Called for each of these files: false refuses it. *instead is NULL before and may be set to
   * another path to open, which the host owns and keeps until the next question or the end of the
   * call; `files` restricts it too. If `files` is no folder, links are followed: check more than
   * the text of the path. */
  bool (*may_open)(void *ud, const char *path, bool to_write, const char **instead);
  void *may_open_ud;
  /* Most bytes of C stack that a call takes, counted from the call. 0: all of the thread's stack,
   * or of the signal stack it runs on. A stack unknown to the C library, such as that of a
   * coroutine, counts as 128 KiB, so say here how much of it is left. Each call looks at the stack
   * anew, so threads with different stacks may use one session. A program that needs more ends with
   * an error (mem-3). Functions of the host have 16 KiB at least. */
  size_t stack;
  /* Most steps of one public call, 0 = no limit. A statement, a call and an iteration of a loop are
   * one step each, also where code is staged. One more is CKL_ERUN, with the diagnostic run-5. */
  int64_t max_steps;
  /* Most nodes of the graph of one compiled call, 0 = 1,000,000. One more is the error graph-2. */
  int64_t max_nodes;
  /* Called after each `progress_steps` steps of a call; a result other than 0 stops the call as
   * ckl_interrupt does. It is a function of the host: see below. */
  int (*progress)(void *ud);
  void *progress_ud;
  int64_t progress_steps;
} ckl_config;

/* A session is busy while a call of it runs. The call may call functions of the host
 * (ckl_config.alloc, write, may_open and progress, `done`, `report`, those of ckl_define, a
 * compiler's). They may make,
 * read, retain and release values (`alloc` must not make any), read variables (ckl_get),
 * diagnostics, counters, names and help, and call ckl_interrupt. A call that would run a program or
 * change the session does nothing and returns CKL_EUSAGE, or NULL; ckl_close does nothing. */

/* Opens a session; `config` may be NULL. Returns NULL when out of memory or C stack, when
 * config->cpu or config->device is no known name, or a level that this machine does not run, and
 * when config->spill or the folder config->files cannot be opened. [m] */
ckl_session *ckl_open(const ckl_config *config);
/* [-] NULL is fine. Values still held can only be released afterwards. Not for a busy session. */
void ckl_close(ckl_session *s);
const char *ckl_cpu_name(size_t i); /* [-] names for ckl_config.cpu; NULL past the end */
/* Asks the running call to stop soon; does nothing when no call runs. The only call allowed from
 * another thread or a signal handler, at any time until ckl_close is called. [-] */
void ckl_interrupt(ckl_session *s);
/* Forgets variables, declarations, compiled functions and diagnostics. Of the values that the host
 * holds, numbers, texts, tensors, and lists and tuples of these stay; others become (). Each call
 * that loads a file does the same. [m] */
ckl_status ckl_reset(ckl_session *s);

/* ---- running. Diagnostics of the previous call are dropped at the start of each of these. */
/* Runs a program file: parse, check, then every statement. [mpr] */
ckl_status ckl_run_file(ckl_session *s, const char *path);
/* Whether the program may read this file. Ask this for a path that comes from somebody else: the
 * calls below open any path. [-] */
bool ckl_may_read(ckl_session *s, const char *path);
/* Checks without running. `ckl_diag_count` is 0 on CKL_OK unless there are warnings. [mp] */
ckl_status ckl_check_file(ckl_session *s, const char *path);
/* Runs statements in the session's top level, REPL rules (declarations may be replaced). `name`
 * shows in diagnostics. `*out` (may be NULL) gets a new reference to the value of a last
 * expression, else NULL. A text that cannot be parsed or declared is CKL_EPROGRAM. Names and
 * arguments are checked as each statement runs, not before as in files, so an error in them is
 * CKL_ERUN. [mpr] */
ckl_status ckl_eval(ckl_session *s, const char *text, const char *name, ckl_value **out);
/* Whether REPL text is complete or needs another line. [-] */
bool ckl_is_complete(const char *text, size_t n);
/* Runs the `test` blocks whose title contains `filter` (NULL: all), each in a fresh session state.
 * `report` is called after each. CKL_ERUN when one failed. [mpr] */
ckl_status ckl_test_file(ckl_session *s, const char *path, const char *filter,
                         void (*report)(void *ud, const char *title, bool ok,
                                        const char *diagnostics),
                         void *ud);

/* ---- values: every `ckl_value *` returned is a new reference; every argument is borrowed and must
 * belong to the same session. */
ckl_value *ckl_retain(ckl_value *v);  /* [-] */
void ckl_release(ckl_value *v);       /* [-] NULL is fine */
ckl_value *ckl_int(ckl_session *s, int64_t i);     /* [m] a number */
ckl_value *ckl_float(ckl_session *s, double x);    /* [m] a number */
ckl_value *ckl_bool(ckl_session *s, bool b);       /* [m] */
ckl_value *ckl_str(ckl_session *s, const char *text, size_t n); /* [m] copies; NULL: no UTF-8 */
/* A tensor from row-major data, which is copied; `dtype` is "f32", "i64".. NULL on a bad dtype,
 * rank over 12, a negative dim, or out of memory. [m] */
ckl_value *ckl_tensor(ckl_session *s, const char *dtype, int rank, const int64_t *dims,
                      const void *data);
/* As ckl_tensor, without a copy: the caller keeps `data` valid until `done(ud)` is called. [m] */
ckl_value *ckl_tensor_borrow(ckl_session *s, const char *dtype, int rank, const int64_t *dims,
                             void *data, void (*done)(void *ud), void *ud);
typedef enum ckl_kind {
  CKL_UNIT, CKL_NONE, CKL_BOOL, CKL_INT, CKL_FLOAT, CKL_STR, CKL_TENSOR, CKL_LIST, CKL_TUPLE,
  CKL_RECORD, CKL_FN, CKL_MODEL, CKL_OTHER, CKL_DICT
} ckl_kind;
ckl_kind ckl_kind_of(const ckl_value *v);                       /* [-] NULL is CKL_UNIT */
int64_t ckl_to_int(const ckl_value *v); /* [-] numbers, bools, one-element tensors; else 0 */
double ckl_to_float(const ckl_value *v); /* [-] numbers, bools, one-element tensors; else 0 */
/* [-] of a str; NULL otherwise; lives as long as v */
const char *ckl_to_str(const ckl_value *v, size_t *n);
const char *ckl_tensor_dtype(const ckl_value *v); /* [-] NULL when not a tensor or param */
int ckl_tensor_rank(const ckl_value *v);          /* [-] -1 when not a tensor or param */
int64_t ckl_tensor_dim(const ckl_value *v, int axis);           /* [-] */
/* Row-major elements, valid until the next call that uses v or the session. NULL when not a tensor.
 * [m] */
const void *ckl_tensor_data(ckl_value *v);
size_t ckl_length(const ckl_value *v);       /* [-] of a list, tuple, record, dict */
ckl_value *ckl_item(const ckl_value *v, size_t i); /* [m] element; NULL when out of range */
const char *ckl_field_name(const ckl_value *v, size_t i);       /* [-] of a record */
ckl_value *ckl_key(const ckl_value *v, size_t i); /* [m] of a dict, whose i-th value it has */
/* A top-level variable, or NULL. [m] */
ckl_value *ckl_get(ckl_session *s, const char *name);
/* Sets a variable as a top-level `let` does; "_" sets the value that the next statements read as
 * `_`. CKL_EUSAGE when `name` cannot be declared (rule 4). [m] */
ckl_status ckl_set(ckl_session *s, const char *name, ckl_value *v);
/* Calls a function, proc or instance. Arguments that do not fit are CKL_ERUN. [mpr] */
ckl_status ckl_call(ckl_session *s, ckl_value *f, ckl_value *const *args, size_t n,
                    ckl_value **out);
/* The text that the REPL shows for a value ("x : f32[3, 4]   min -1.40  mean 0.31  max 1.91" and a
 * table). It lives until the next call on s. [m] */
const char *ckl_show(ckl_session *s, const char *name, const ckl_value *v);
/* The bytes of the tensors in a value: of a tensor, the params and buffers of an instance, the
 * items of a list, tuple or record. [m] */
int64_t ckl_bytes(ckl_session *s, const ckl_value *v);
/* Names for completion: the i-th visible name that starts with `prefix`, or NULL. For a path with
 * dots, the names that may follow the last dot: `net.` gives the fields and methods of the
 * variable's value, `nn.` the declarations of the module. Lives until the next call. [m] */
const char *ckl_complete(ckl_session *s, const char *prefix, size_t i);

/* ---- functions of the host, which programs call */
/* Computes a function. `in`: the arguments in order, borrowed; a parameter of type `int`, `float`,
 * `num` or `bool` is a number, every other one a tensor. out[i], NULL before, gets a new reference
 * to result i, of the declared type; a number will do for one without axes. A result other than
 * CKL_OK ends the call; the diagnostic is at the call in the program. The session is busy.
 * A gradient gets in `in` also the results, and then their cotangents (zeros for a result that is
 * not float). out[i] is the gradient by argument i, like it, for each float tensor whose parameter
 * has no default; NULL is zero. */
typedef ckl_status (*ckl_function)(void *ud, ckl_session *s, ckl_value *const *in, ckl_value **out);
/* Declares a function of the host for all programs of the session, until ckl_close: `declaration`
 * is a `fn` without a body, as "fn smooth[N](x: f32[N], k: int) -> f32[N]". Its parameters are
 * tensors and numbers, its result one of these, or a tuple or record of them. Script and code call
 * it, and its arguments are checked, as for every `fn`. Its results must depend on its arguments
 * alone: a call whose results nothing needs may be left out, and one may be repeated. `gradient`
 * NULL: a gradient through a call is an error (grad-5). A later function of the same name replaces
 * it. [mp] */
ckl_status ckl_define(ckl_session *s, const char *declaration, ckl_function f,
                      ckl_function gradient, void *ud);
/* A status for such a function to return: CKL_ERUN. The diagnostic says `why`, up to some 400
 * bytes. [-] */
ckl_status ckl_fail(ckl_session *s, const char *why);

/* ---- diagnostics of the last call */
enum { CKL_COLOR = 1 };
size_t ckl_diag_count(const ckl_session *s);                            /* [-] */
/* [-] the whole message, with carets; lives until the next call */
const char *ckl_diag_text(ckl_session *s, size_t i, unsigned flags);
const char *ckl_diag_json(ckl_session *s, size_t i);                    /* [-] one line */
const char *ckl_diag_code(const ckl_session *s, size_t i);              /* [-] "shape-3" */
bool ckl_diag_is_error(const ckl_session *s, size_t i);                 /* [-] */

/* ---- observation */
/* Counters: "nodes", "stage", "compile", "tape.live", "values.live", "bytes.live", "bytes.peak"
 * (of every kind, which memory_limit bounds), "data.live", "data.peak" (of the tensors among them),
 * ... ckl_reset, each file and each test of a file start the counts anew. -1 for an unknown name.
 * ckl_counter_name lists them. [-] */
int64_t ckl_counter(const ckl_session *s, const char *name);
const char *ckl_counter_name(size_t i); /* [-] NULL past the end */
/* Turns a log channel on: "compile" (each compilation; "compile:debug" with its signature), "load"
 * (modules and saved files), "wrap" (each wrap block that is entered), "wait" (before machine code
 * whose making takes more than about a second). CKL_EUSAGE when there is no such channel. [-] */
ckl_status ckl_log(ckl_session *s, const char *channel);
const char *ckl_log_name(size_t i); /* [-] NULL past the end */

/* The plan of the call f(args), which is not run: the record that `plan(f, ..)` gives, with
 * "peak", "saved", "flops", "forward", "backward", .. and "text". [mpr] */
ckl_status ckl_plan_call(ckl_session *s, ckl_value *f, ckl_value *const *args, size_t n,
                         ckl_value **out);
/* What ckl_plan tells. All zero: the memory of the call, and what becomes of values of blocks. */
typedef struct ckl_plan_options {
  bool json;        /* as one JSON object */
  bool curve;       /* instead: the plans that the call could have, by memory and work */
  bool measure;     /* with `curve`: runs each of them on the inputs of the call, which stay */
  bool peak;        /* instead: the values that make the peak */
  const char *why;  /* instead: who decided about the values of this name; NULL: not asked */
  const char **svg; /* with `curve`: gets the drawing, which lives as the text does; may be NULL */
} ckl_plan_options;
/* The plan of a call of function `fn` of a file. Without types: its first call in the program,
 * which is run up to there. With `types` like "f32[8, 3]" for all parameters: a call with such
 * arguments, by which gradients are taken. `o` NULL: all zero. The text lives until the next call
 * on s; NULL = see diagnostics. [mpr] */
const char *ckl_plan(ckl_session *s, const char *path, const char *fn, const char *const *types,
                     size_t type_count, const ckl_plan_options *o);
/* Time of the lines of script, and of compiled code by line of the program, the longest first; ""
 * when there is none, or without ckl_config.profile. The text lives until the next call on s.
 * [m] */
const char *ckl_profile(ckl_session *s);

/* ---- a compiler of the host. A `grad` of script is captured as one graph, which ckl compiles; a
 * host may do so instead. In its functions the session is busy, except for ckl_backward_*. */
typedef struct ckl_backward ckl_backward; /* a captured graph; it lives until its code is freed */
typedef struct ckl_code {
  void *ud;
  /* Computes one gradient. `in`: the inputs of the graph in order, borrowed; out[i], NULL before,
   * gets a new reference to output i, of its type in the graph. A result other than CKL_OK ends the
   * `grad`. */
  ckl_status (*run)(void *ud, ckl_backward *b, ckl_value *const *in, ckl_value **out);
  void (*free)(void *ud); /* frees ud, at the end; may be NULL */
} ckl_code;
/* Called once for each structure that is captured; each run may have other sizes, tensors and
 * hooks. Fills `code`, or leaves code->run NULL, and then ckl compiles the graph. A result other
 * than CKL_OK ends the `grad`; the next `grad` asks again. */
typedef ckl_status (*ckl_compiler)(void *ud, ckl_backward *b, ckl_code *code);
/* From now on `f` compiles captured graphs; NULL: ckl does. Graphs captured before are forgotten.
 * ckl_run_file keeps `f`, ckl_reset drops it, and `wrap <backward plain>` does not use it. [m] */
ckl_status ckl_set_compiler(ckl_session *s, ckl_compiler f, void *ud);
/* The graph, as ckl_ir writes it; NULL when out of memory. Lives as long as b. [m] */
const char *ckl_backward_text(ckl_backward *b);
size_t ckl_backward_inputs(const ckl_backward *b);             /* [-] */
size_t ckl_backward_outputs(const ckl_backward *b);            /* [-] */
/* How many symbols the graph has, and the present value of each; -1 when out of range. [-] */
size_t ckl_backward_sizes(const ckl_backward *b);
int64_t ckl_backward_size(const ckl_backward *b, size_t i);
/* Whether the graph calls hooks or prints. Such a graph is run by ckl_backward_run, once, or left
 * to ckl. [-] */
bool ckl_backward_acts(const ckl_backward *b);
/* Runs the graph as ckl does; only inside of ckl_code.run. Its errors end the `grad`, whatever
 * ckl_code.run returns. [mpr] */
ckl_status ckl_backward_run(ckl_backward *b, ckl_value *const *in, ckl_value **out);
/* A status for the host's function to return: CKL_ERUN, or CKL_ENOMEM. The diagnostic of the `grad`
 * says `why`. [m] */
ckl_status ckl_backward_fail(ckl_backward *b, const char *why);

/* ---- tools: text in, text out. The result lives until the next call on s; NULL = see
 * diagnostics. */
/* The program text in the one style; diagnostics show path_for_messages as its path. [mp] */
const char *ckl_format(ckl_session *s, const char *path_for_messages, const char *text, size_t n);
/* The graph of function `fn` of a file after `stage` (see ckl_stage_name); `types` like "f32[8, 3]"
 * for un-annotated parameters. State that the function writes is shown as outputs after its results
 * or, with " epilogue" behind a stage up to `joint`, as copies into inputs at the end. [mp] */
const char *ckl_ir(ckl_session *s, const char *path, const char *fn, const char *const *types,
                   size_t type_count, const char *stage);
const char *ckl_stage_name(size_t i);                       /* [-] NULL past the end */
const char *ckl_pass_name(size_t i);                        /* [-] of ckl_opt; NULL past the end */
/* A graph in text form after a pass. A pass whose result is no graph gives a text that shows its
 * result. [mp] */
const char *ckl_opt(ckl_session *s, const char *pass, const char *name, const char *text, size_t n);
/* From now on writes to stream 2 the graph after `stage` of everything that is compiled. [-] */
ckl_status ckl_dump(ckl_session *s, const char *stage);
/* [m] help on all that has this name: an error code, a word of the language, a builtin, a
 * declaration of the program, a module of the library or a declaration in one; NULL: none has */
const char *ckl_help(ckl_session *s, const char *topic);
const char *ckl_error_code(size_t i);                       /* [-] all codes; NULL past the end */
/* [m] the pages of all operations, builtins, passes, error codes, and of the whole library */
const char *ckl_ops_markdown(ckl_session *s);
const char *ckl_builtins_markdown(ckl_session *s);
const char *ckl_passes_markdown(ckl_session *s);            /* docs/passes.md */
const char *ckl_errors_markdown(ckl_session *s);            /* docs/errors.md */
const char *ckl_library_markdown(ckl_session *s);           /* docs/library.md */
const char *ckl_libraries(ckl_session *s); /* "PCRE2 10.42, utf8proc 2.8.0 (Unicode 15.0.0)" */

#ifdef __cplusplus
}
#endif
#endif
