/* Random whole programs: whole.c makes them as trees of parts, parts.c writes them down in any of
 * their forms, run.c runs and compares them. */
#ifndef TESTS_RANDOM_WHOLE_H
#define TESTS_RANDOM_WHOLE_H

#include <stdbool.h>
#include <stddef.h>

enum { PARTS = 2000, TEXTS = 1 << 17, SOURCE = 1 << 18, MODELS = 2 };

typedef enum Kind {
  LINE,     /* a statement or declaration, as it stands */
  LAYERS,   /* a line where blocks stand, else `also` */
  USE,      /* a line that is needed where the library is a file */
  GROUP,    /* text { parts, then `out` } */
  ELSE,     /* last in a GROUP: the other side of its `if` */
  FUNCTION, /* the same; its body is a block where blocks stand */
  ENTRY,    /* the same, as a fn or a proc; its body is no block */
  BLOCK,    /* let out = checkpoint <clauses> { parts, then `out` }, or the parts alone */
  LOOP,     /* checkpoint <clauses> text { parts }, or without its clauses */
  CLAUSE,   /* of the part around it */
  JOIN,     /* text, items with ` + ` or `, ` between, out */
  GRAD,     /* the same; `grad` of script, recorded if `also` is set */
  ITEM,     /* of the part around it */
  BATCH     /* let out = text, or as a loop: the lines `also` */
} Kind;

typedef struct Part {
  Kind kind;
  const char *text, *out, *also; /* in Whole.texts, or constant */
  int first, last, next;         /* children and sibling; 0 is none */
  bool dropped, flat; /* cut away; its children, or for a line a number, stand in its place */
} Part;

typedef struct Whole {
  unsigned long long seed, rng;
  Part part[PARTS];
  int parts, library, program; /* roots: a second file, or 0; the first file */
  char texts[TEXTS];
  size_t used;
  bool one_file; /* the library stands in the program */
  bool full;     /* no room was left: not a program */
  bool inner;    /* the entry takes gradients that are not its last */
  bool near;     /* sums may stand in another order: numbers are compared roughly */
  bool narrow;   /* clauses save narrow values: blocks stand in all forms */
} Whole;

typedef struct Form {
  bool proc;   /* the entry is a proc: its operations run one by one, on a tape */
  bool plain;  /* the tape is walked, not captured */
  bool blocks; /* checkpoint blocks stand */
  bool loops;  /* batches are loops */
  bool turns;  /* each `for` stays a loop that can */
  bool copies; /* each update makes a copy */
  int plan;    /* which plan each gradient gets, from 1; 0: the best */
} Form;

/* parts.c */
int part_add(Whole *w, int into, Kind kind, const char *text);
const char *part_text(Whole *w, const char *fmt, ...); /* a copy, in w */
/* The files in a form; false: there is no second one. */
void whole_source(const Whole *w, const Form *form, char *to, size_t cap);
bool whole_library(const Whole *w, const Form *form, char *to, size_t cap);
/* One declaration or statement of the top level; NULL: as it is a line that this form lacks. */
void part_source(const Whole *w, const Form *form, int part, char *to, size_t cap);

/* whole.c */
void whole_generate(Whole *w, unsigned long long seed);

/* features.c: which words of the language programs have */
void features_count(const Whole *w);
/* The number of words that no program had, but for those of the table `without`. */
int features_missing(void);
/* Writes how many of `programs` had each. */
void features_print(long programs);

#endif
