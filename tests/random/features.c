/* Which words of the language and which builtins random programs have.
 *
 * The rows come from the tables of the language, so a word that is added to one is looked for. A
 * row of `without` says why no program has it. */
#include <stdio.h>
#include <string.h>

#include "tests/random/whole.h"

typedef enum Place { IN_TEXT, IN_CLAUSES, IN_WRAP, A_CALL } Place;
typedef struct Feature {
  const char *word;
  Place place;
  long programs;
} Feature;

static Feature feature[] = {
#define POLICY(word, takes, form, does, doc) {#word, IN_CLAUSES, 0},
#define OPCLASS(NAME, word, of, doc) {word, IN_CLAUSES, 0},
#define MODE(word, takes, form, does, doc) {#word, IN_WRAP, 0},
#include "lang/names/clauses.def"
#define WORD(word, form, section, doc) {word, IN_TEXT, 0},
#include "lang/names/words.def"
#undef WORD
#define BUILTIN(name, signature, fn, flags, op, doc) {name, A_CALL, 0},
#define CONSTANT(name, number, doc)
#include "lang/builtin/builtins.def"
#undef BUILTIN
#undef CONSTANT
    /* of clauses */
    {"lean", IN_CLAUSES, 0},
    {"tight", IN_CLAUSES, 0},
    {"decide", IN_CLAUSES, 0},
    {"least", IN_CLAUSES, 0},
    /* of functions */
    {"around", IN_WRAP, 0},
    {"vjp", A_CALL, 0},
    {"jvp", A_CALL, 0},
    {"hessian", A_CALL, 0},
    {"vmap", A_CALL, 0},
};
enum { FEATURES = sizeof feature / sizeof *feature };

/* What no program has, and why. */
static const char *const without[][2] = {
    {"profile", "does nothing yet"},
    {"backward", "a form writes it"},
    {"test", "`ckl run` skips tests"},
    {"args", "nothing is passed"},
    {"clock", "differs from run to run"},
    {"counter", "forms count otherwise"},
    {"plan", "forms need other memory"},
    {"peak_memory", "forms need other memory"},
    {"read_csv", "reads a file: tests/golden/data"},
    {"read_bytes", "reads a file: tests/golden/data"},
    {"read_text", "files: tests/golden/files"},
    {"read_lines", "files: tests/golden/files"},
    {"write_text", "files: tests/golden/files"},
    {"append_text", "files: tests/golden/files"},
    {"write_bytes", "files: tests/golden/files"},
    {"write_csv", "files: tests/golden/files"},
    {"exists", "files: tests/golden/files"},
    {"file_size", "files: tests/golden/files"},
    {"list_files", "files: tests/golden/files"},
    {"make_folder", "files: tests/golden/files"},
    {"remove_file", "files: tests/golden/files"},
    {"rename_file", "files: tests/golden/files"},
    {"read_npz", "files: tests/golden/files"},
    {"write_npz", "files: tests/golden/files"},
    {"read_tensors", "files: tests/golden/files"},
    {"read_table", "files: tests/golden/files"},
    {"read_json", "files: tests/golden/files"},
    {"write_json", "files: tests/golden/files"},
    {"from_json", "files: tests/golden/files"},
    {"to_json", "files: tests/golden/files"},
    {"read_npy", "files: tests/golden/files"},
    {"write_npy", "files: tests/golden/files"},
    {"read_image", "files: tests/golden/files"},
    {"write_image", "files: tests/golden/files"},
    {"read_wav", "files: tests/golden/files"},
    {"write_wav", "files: tests/golden/files"},
};

static bool letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}
/* Whether text has the word, followed by `after` if that is not 0. */
static bool has_word(const char *text, const char *end, const char *word, char after) {
  size_t n = strlen(word);
  for (const char *at = text; (at = strstr(at, word)) && at + n <= end; at++) {
    if (at > text && letter(at[-1])) continue;
    if (after ? at[n] == after : !letter(at[n])) return true;
  }
  return false;
}
static bool has_mode(const char *text, const char *word) {
  for (const char *at = text; (at = strstr(at, "wrap <"));) {
    const char *end = at + strcspn(at, ">");
    if (has_word(at + 6, end, word, 0)) return true;
    at = end;
  }
  return false;
}

void features_count(const Whole *w) {
  static char text[SOURCE], library[SOURCE];
  Form form = {.blocks = true};
  whole_source(w, &form, text, sizeof text);
  whole_library(w, &form, library, sizeof library);
  for (int i = 0; i < FEATURES; i++) {
    Feature *f = &feature[i];
    bool has = false;
    const char *file[] = {text, library};
    for (int k = 0; k < 2 && !has; k++) {
      const char *t = file[k];
      switch (f->place) {
      case IN_CLAUSES: break;
      case IN_TEXT: has = has_word(t, t + strlen(t), f->word, 0); break;
      case A_CALL: has = has_word(t, t + strlen(t), f->word, '('); break;
      case IN_WRAP: has = has_mode(t, f->word); break;
      }
    }
    for (int p = 1; p < w->parts && f->place == IN_CLAUSES && !has; p++)
      has = w->part[p].kind == CLAUSE &&
            has_word(w->part[p].text, strchr(w->part[p].text, 0), f->word, 0);
    f->programs += has;
  }
}

static bool is_missing(const Feature *f) {
  if (f->programs || f->word[0] == '_') return false; /* _: functions of the library call it */
  for (size_t k = 0; k < sizeof without / sizeof *without; k++)
    if (!strcmp(without[k][0], f->word)) return false;
  return true;
}
int features_missing(void) {
  int missing = 0;
  for (int i = 0; i < FEATURES; i++) missing += is_missing(&feature[i]);
  return missing;
}
void features_print(long programs) {
  int column = 0;
  printf("# of %ld programs have", programs);
  for (int i = 0; i < FEATURES; i++) {
    static const char *const before[] = {"", "<", "wrap <", ""}, *const after[] = {"", ">", ">",
                                                                                   "()"};
    const Feature *f = &feature[i];
    if (f->word[0] == '_') continue;
    if (column++ % 8 == 0) printf("\n# ");
    printf(" %s%s%s %ld", before[f->place], f->word, after[f->place], f->programs);
    if (is_missing(f)) printf(" (MISSING)");
  }
  printf("\n");
}
