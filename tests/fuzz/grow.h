/* Programs grown from the grammar (parser/grammar.y), production by production, into `text`: what
 * includes this has rnd(), text, text_n and MAX_TEXT, and says in grow_names of which names.
 * One file: productions call each other. */
#ifndef CKL_FUZZ_GROW_H
#define CKL_FUZZ_GROW_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define COUNT(a) ((uint32_t)(sizeof(a) / sizeof *(a)))

typedef enum GrowKind {
  GROW_VALUE,  /* what an expression names */
  GROW_NEW,    /* what is declared or assigned */
  GROW_FIELD,  /* of a record or model, or a method */
  GROW_TYPE,   /* its first word */
  GROW_CLAUSE, /* a word of `<..>` */
  GROW_KINDS
} GrowKind;
typedef struct GrowNames {
  const char *const *names;
  uint32_t count;
} GrowNames;
static GrowNames grow_names[GROW_KINDS];

static void add(const char *s, size_t n) {
  if (text_n >= MAX_TEXT) return;
  if (n > MAX_TEXT - text_n) n = MAX_TEXT - text_n;
  memmove(text + text_n, s, n);
  text_n += n;
}

static void adds(const char *s) {
  add(s, strlen(s));
}

static int grow_fuel;

static void grow_gap(void) { /* where a newline may stand */
  switch (rnd(12)) {
  case 0: adds("\n"); break;
  case 1: adds(" # c\n"); break;
  case 2: adds("\n  # own\n"); break;
  default: break;
  }
}

static void grow_name(GrowKind kind) {
  adds(grow_names[kind].names[rnd(grow_names[kind].count)]);
}

static void grow_expr(void);
static void grow_block(void);
static void grow_typ(void);

static void grow_list_of(void (*f)(void), uint32_t most, bool comma) {
  uint32_t n = rnd(most + 1);
  for (uint32_t i = 0; i < n; i++) {
    if (i) adds(", ");
    grow_gap();
    f();
  }
  if (n && comma && !rnd(4)) adds(",");
  grow_gap();
}

static void grow_words(GrowKind kind) {
  grow_name(kind);
  for (uint32_t k = rnd(6); k > 3; k--) {
    adds(".");
    grow_name(GROW_FIELD);
  }
}

static void grow_pattern(void) {
  if (rnd(4)) {
    grow_name(GROW_NEW);
  } else if (rnd(2)) {
    adds("(");
    grow_pattern();
    adds(rnd(2) ? ", " : ",");
    if (rnd(2))
      grow_pattern();
    else
      grow_name(GROW_NEW);
    adds(")");
  } else {
    adds("{");
    grow_name(GROW_NEW);
    adds(rnd(2) ? "}" : ", b}");
  }
}

static void grow_param(void) {
  grow_name(GROW_NEW);
  if (rnd(2)) adds(": "), grow_typ();
  if (!rnd(3)) adds(" = "), grow_expr();
}

static void grow_params(void) {
  adds("(");
  grow_list_of(grow_param, 3, true);
  adds(")");
}

static void grow_dim(void) {
  if (rnd(4))
    grow_expr();
  else
    adds(rnd(2) ? "..." : "...S");
}

static void grow_type_item(void) {
  grow_name(GROW_FIELD);
  adds(": ");
  grow_typ();
}

static void grow_typ(void) {
  if (grow_fuel-- < 0) {
    adds("f32");
    return;
  }
  switch (rnd(7)) {
  case 0:
    adds("[");
    grow_typ();
    adds("]");
    break;
  case 1:
    adds("(");
    grow_list_of(grow_typ, 3, true);
    adds(")");
    break;
  case 2:
    adds("(");
    grow_type_item();
    adds(", ");
    grow_type_item();
    adds(")");
    break;
  case 3:
    adds("fn(");
    grow_list_of(rnd(2) ? grow_typ : grow_type_item, 2, true);
    adds(") -> ");
    grow_typ();
    break;
  case 4:
    grow_words(GROW_TYPE);
    adds("[");
    grow_list_of(grow_dim, 3, false);
    adds("]");
    break;
  default: grow_words(GROW_TYPE);
  }
}

static void grow_clause_arg(void) {
  switch (rnd(5)) {
  case 0: adds("12"); break;
  case 1: adds("1.5GiB"); break;
  case 2: adds("\"s\""); break;
  case 3:
    adds("(");
    grow_expr();
    adds(")");
    break;
  default: grow_words(rnd(2) ? GROW_CLAUSE : GROW_VALUE);
  }
}

static void grow_clause(void) {
  grow_words(GROW_CLAUSE);
  if (!rnd(4)) {
    adds(" = ");
    grow_clause_arg();
    return;
  }
  for (uint32_t k = rnd(3); k > 0; k--) adds(" "), grow_clause_arg();
}

static void grow_clauses(void) {
  grow_clause();
  while (!rnd(3)) adds(", "), grow_gap(), grow_clause();
}

static void grow_policy(void) {
  adds(" <");
  grow_clauses();
  adds("> ");
}

static void grow_arg(void) {
  if (!rnd(4)) grow_name(GROW_FIELD), adds(" = ");
  grow_expr();
}

static void grow_named(void) {
  grow_name(GROW_FIELD);
  adds(" = ");
  grow_expr();
}

static void grow_slice(void) {
  switch (rnd(4)) {
  case 0: adds("..."); break;
  case 1:
    if (rnd(2)) grow_expr();
    adds(":");
    if (rnd(2)) grow_expr();
    if (!rnd(3)) adds(":"), grow_expr();
    break;
  default: grow_expr();
  }
}

static bool grow_in_string;

static void grow_string(void) {
  if (grow_in_string) {
    adds("1");
    return;
  }
  grow_in_string = true;
  adds("\"text {{}} \\n ");
  for (uint32_t k = rnd(3); k > 0; k--) {
    size_t at = text_n;
    adds("{");
    adds(rnd(2) ? " " : "");
    grow_expr();
    /* nothing in a hole may break the line */
    for (size_t i = at; i < text_n; i++)
      if (text[i] == '\n' || text[i] == '#') {
        text_n = at;
        adds("{x");
        break;
      }
    adds(rnd(2) ? "}" : " :<+05,.2f}");
  }
  adds(" \\u{e9}\"");
  grow_in_string = false;
}

static void grow_body(void) {
  if (rnd(2)) {
    adds(" = ");
    grow_gap();
    grow_expr();
  } else {
    adds(" ");
    grow_block();
  }
}

static void grow_atom(void) {
  switch (rnd(20)) {
  case 0: adds("1"); break;
  case 1: adds("1_0.5e3"); break;
  case 2: adds("8MB"); break;
  case 3: grow_string(); break;
  case 4: adds("self"); break;
  case 5: adds("true"); break;
  case 6: adds("()"); break;
  case 7:
    adds("[");
    grow_list_of(grow_expr, 4, true);
    adds("]");
    break;
  case 8:
    adds("(");
    grow_gap();
    grow_expr();
    adds(", ");
    grow_list_of(grow_expr, 1, false);
    adds(")");
    break;
  case 9:
    adds("(");
    grow_named();
    adds(", ");
    grow_named();
    adds(")");
    break;
  case 10:
    adds("[");
    grow_expr();
    grow_gap();
    adds(" for ");
    grow_pattern();
    adds(" in ");
    grow_expr();
    adds("]");
    break;
  case 11:
    adds("if ");
    grow_expr();
    adds(" ");
    grow_block();
    if (rnd(2)) adds(" else "), grow_block();
    break;
  case 12:
    adds("checkpoint");
    if (rnd(2))
      grow_policy();
    else
      adds(" ");
    grow_block();
    break;
  case 13:
    adds("wrap");
    grow_policy();
    grow_block();
    break;
  case 14: grow_block(); break;
  case 15:
  case 16:
    adds("(");
    grow_gap();
    grow_expr();
    grow_gap();
    adds(")");
    break;
  default: grow_name(GROW_VALUE);
  }
}

static void grow_expr(void) {
  if (grow_fuel-- < 0) {
    grow_name(GROW_VALUE);
    return;
  }
  static const char *const ops[] = {" or ", " and ", " < ",  " == ", " != ", "..",   " + ", " - ",
                                    " * ",  " / ",   " // ", " % ",  " @ ",  " ** ", " >= "};
  switch (rnd(10)) {
  case 0:
  case 1:
  case 2:
    grow_expr();
    adds(ops[rnd(COUNT(ops))]);
    grow_gap();
    grow_expr();
    break;
  case 3:
    adds(rnd(2) ? "-" : "not ");
    grow_expr();
    break;
  case 4:
    adds("fn");
    grow_params();
    if (rnd(2)) adds(" -> "), grow_typ();
    grow_body();
    break;
  default:
    grow_atom();
    for (uint32_t k = rnd(4); k > 0; k--) switch (rnd(5)) {
      case 0:
        adds(rnd(6) ? "." : "\n  .");
        grow_name(GROW_FIELD);
        break;
      case 1: adds(".0"); break;
      case 2:
        adds("[");
        grow_slice();
        while (!rnd(3)) adds(", "), grow_gap(), grow_slice();
        adds("]");
        break;
      default:
        if (rnd(2)) adds(rnd(6) ? "." : "\n    ."), grow_name(GROW_FIELD);
        adds("(");
        grow_list_of(grow_arg, 3, true);
        adds(")");
      }
  }
}

static void grow_fn_decl(void) {
  adds(rnd(3) ? "fn " : "proc ");
  grow_name(GROW_NEW);
  if (rnd(2)) adds("[B, T]");
  grow_params();
  if (rnd(2)) adds(" -> "), grow_typ();
  grow_body();
  if (!rnd(3)) adds(" backward"), grow_params(), grow_body();
}

static void grow_statement(void) {
  grow_fuel--;
  switch (rnd(12)) {
  case 0:
  case 1:
    adds(rnd(2) ? "let " : "var ");
    grow_pattern();
    if (!rnd(3)) adds(": "), grow_typ();
    adds(" = ");
    grow_gap();
    grow_expr();
    break;
  case 2:
    grow_words(GROW_NEW);
    if (rnd(2)) adds("["), grow_expr(), adds("]");
    adds(rnd(2) ? " = " : " += ");
    grow_expr();
    break;
  case 3:
    if (!rnd(3)) {
      adds("checkpoint");
      grow_policy();
    }
    adds("for ");
    grow_pattern();
    adds(" in ");
    grow_expr();
    adds(" ");
    grow_block();
    break;
  case 4:
    adds("while ");
    grow_expr();
    adds(" ");
    grow_block();
    break;
  case 5:
    adds("return");
    if (rnd(2)) adds(" "), grow_expr();
    break;
  case 6: adds(rnd(2) ? "break" : "continue"); break;
  case 7:
    adds("assert ");
    grow_expr();
    break;
  case 8: grow_fn_decl(); break;
  default: grow_expr();
  }
}

static void grow_separator(void) {
  static const char *const seps[] = {
      "\n", "\n", "\n\n", "; ", "\n\n\n", "  # c\n", "\n# own\n", " # c\n\n# d\n\n", ";\n"};
  if (grow_in_string)
    adds("; ");
  else
    adds(seps[rnd(COUNT(seps))]);
}

static void grow_block(void) {
  adds(rnd(2) ? "{ " : "{\n");
  if (grow_fuel > 0)
    for (uint32_t k = rnd(3); k > 0; k--) {
      grow_statement();
      if (k > 1) grow_separator();
    }
  adds(rnd(2) ? " }" : "\n}");
}

static void grow_item(void) {
  switch (rnd(12)) {
  case 0: adds("use data.sub (a, b)"); break;
  case 1: adds("type Name = "), grow_typ(); break;
  case 2:
    adds("policy lean");
    if (rnd(2)) grow_params();
    adds(" { ");
    grow_clauses();
    adds(" }");
    break;
  case 3: adds("test \"t\" "), grow_block(); break;
  case 4:
    adds("model Net");
    if (rnd(2)) grow_params();
    adds(" {\n");
    for (uint32_t k = rnd(4); k > 0; k--) {
      switch (rnd(4)) {
      case 0:
        adds(rnd(2) ? "param w: " : "buffer v: ");
        grow_typ();
        if (rnd(2)) adds(" = "), grow_expr();
        break;
      case 1: adds("let l = "), grow_expr(); break;
      case 2: adds("assert "), grow_expr(); break;
      default: grow_fn_decl();
      }
      grow_separator();
    }
    adds("}");
    break;
  case 5: grow_fn_decl(); break;
  default: grow_statement();
  }
}

/* A text of some items of the top level. */
static void grow(uint32_t items) {
  text_n = 0;
  grow_in_string = false;
  for (; items > 0; items--) {
    grow_fuel = (int)rnd(40);
    grow_item();
    grow_separator();
  }
}

#endif
