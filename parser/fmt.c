/* The formatter: a tree back to source in the one style.
 *
 * In: a tree without errors, and its source for comments, blank lines and the spelling of literals.
 * Out: text that parses to the same tree; formatting it again changes nothing. Idea: the tree
 * becomes a flat run of items (text, places where a line may break, groups); a group is printed on
 * one line when its contents fit, as in D. C. Oppen, Prettyprinting, TOPLAS 2(4), 1980. Line
 * breaks that the author chose stay: blocks, lists whose first item is on a line of its own,
 * chains of calls, the body after `fn f(x) =`.
 * Invariant: comments are printed in order, each once, and only where a newline may stand. Testing
 * whether a group fits stops at the right margin, so time is linear.
 * One file: one function for each construct of the language, all of which write to one list of
 * items. */
#include <string.h>

#include "parser/parse.h"

enum { MARGIN = 100, INDENT = 2 };

typedef enum ItemKind {
  I_TEXT,
  I_COMMENT, /* text that ends its line and may pass the margin */
  I_LINE,    /* a blank, or a newline in a broken group */
  I_SOFT,    /* nothing, or a newline */
  I_HARD,    /* a newline */
  I_BLANK,   /* a newline and an empty line */
  I_EMPTY,   /* behind I_ROW: the line is empty, and the next one is never joined to it */
  I_FORCED,  /* a newline because the author wrote one; counts as I_LINE (`all`) or I_SOFT when a
               group is measured, so that a line broken for its length stays the same */
  I_BROKEN,  /* text in a broken group only */
  I_FLAT,    /* text in a flat group only */
  I_OPEN,    /* a group; `all`: broken when there is a newline anywhere in it */
  I_CLOSE,
  I_IN,
  I_OUT, /* indentation */
  I_SOLID,
  I_SOLID_END, /* never broken: a hole of a string */
  I_QUOTE,
  I_UNQUOTE, /* a text of several lines, further in than its line, unless it begins the line */
  I_ROW,     /* a newline in it, which breaks no group */
} ItemKind;

typedef struct Item {
  uint8_t kind;
  bool all;
  bool block;   /* of I_OPEN: the inner part of braces */
  bool newline; /* of I_OPEN: there is I_HARD, I_FORCED or I_BLANK inside */
  uint32_t n;   /* bytes of text */
  const char *text;
} Item;

typedef struct Fmt {
  Buf *out;
  Arena scratch;
  const Node *file;
  const char *src;
  uint32_t src_n;
  Item *items;
  size_t count, cap;
  const Comment *comments;
  uint32_t comment_count, next; /* comments[next] is the first not yet printed */
  int solid;
} Fmt;

/* ---- items */

static void put_item(Fmt *f, Item i) {
  VEC_PUSH(&f->scratch, f->items, f->count, f->cap, i);
}

static void textn(Fmt *f, const char *s, size_t n) {
  if (n) put_item(f, (Item){.kind = I_TEXT, .text = s, .n = (uint32_t)n});
}

static void text(Fmt *f, const char *s) {
  textn(f, s, strlen(s));
}

static void mark(Fmt *f, ItemKind kind) {
  put_item(f, (Item){.kind = (uint8_t)kind});
}

static void open_all(Fmt *f) {
  put_item(f, (Item){.kind = I_OPEN, .all = true});
}

/* Adds a place where a line may break, or must (`forced`). */
static void edge(Fmt *f, bool line, bool forced) {
  if (forced)
    put_item(f, (Item){.kind = I_FORCED, .all = line});
  else
    mark(f, line ? I_LINE : I_SOFT);
}

static void when(Fmt *f, ItemKind kind, const char *s) {
  put_item(f, (Item){.kind = (uint8_t)kind, .text = s, .n = (uint32_t)strlen(s)});
}

/* ---- looking at the source */

/* Newlines between two places. */
static int lines_between(const Fmt *f, uint32_t lo, uint32_t hi) {
  int n = 0;
  for (uint32_t i = lo; i < hi && i < f->src_n && n < 2; i++) n += f->src[i] == '\n';
  return n;
}

static bool starts_line(const Fmt *f, uint32_t at) {
  while (at > 0 && (f->src[at - 1] == ' ' || f->src[at - 1] == '\t')) at--;
  return at > 0 && f->src[at - 1] == '\n';
}

static const Comment *pending(const Fmt *f, uint32_t before) {
  if (f->next >= f->comment_count || f->solid) return NULL;
  const Comment *c = &f->comments[f->next];
  return c->lo < before ? c : NULL;
}

static void put_comment(Fmt *f, const Comment *c) {
  put_item(f, (Item){.kind = I_COMMENT, .text = f->src + c->lo, .n = c->hi - c->lo});
  f->next++;
}

/* Prints a comment behind code, after the author's blanks, at least two. */
static void put_behind(Fmt *f, const Comment *c) {
  static const char blanks[] = "                                        "
                               "                                        ";
  uint32_t n = 0;
  while (n < c->lo && n < sizeof blanks - 1 && f->src[c->lo - 1 - n] == ' ') n++;
  if (n < 2) n = 2;
  put_item(f, (Item){.kind = I_COMMENT, .text = blanks, .n = n});
  put_comment(f, c);
}

/* Prints the comments before a place where a newline may stand, each on a line of its own. */
static void comments_before(Fmt *f, uint32_t at) {
  for (const Comment *c; (c = pending(f, at)) != NULL;) {
    put_comment(f, c);
    mark(f, I_HARD);
  }
}

/* ---- lists in brackets */

static void put_node(Fmt *f, const Node *n);
static void put_expr(Fmt *f, const Node *n, int least);

/* The trailing comment of an item of a list; true when there was one. */
static bool trailing_comment(Fmt *f, uint32_t before) {
  const Comment *c = pending(f, before);
  if (!c || c->own_line) return false;
  put_behind(f, c);
  return true;
}

typedef struct ListStyle {
  const char *open, *close;
  bool comma; /* a comma after the last item when broken */
  bool pad;   /* blanks inside the brackets on one line */
} ListStyle;

static void put_list(Fmt *f, NodeList l, ListStyle style, uint32_t end) {
  text(f, style.open);
  if (l.count == 0) {
    if (pending(f, end)) {
      mark(f, I_IN);
      mark(f, I_HARD);
      comments_before(f, end);
      mark(f, I_OUT);
      mark(f, I_HARD);
    }
    text(f, style.close);
    return;
  }
  open_all(f);
  mark(f, I_IN);
  bool forced = !f->solid && starts_line(f, l.items[0]->span.lo);
  edge(f, style.pad, forced);
  bool newline = false;
  for (uint32_t i = 0; i < l.count; i++) {
    comments_before(f, l.items[i]->span.lo);
    put_node(f, l.items[i]);
    bool last = i + 1 == l.count;
    if (!last)
      text(f, ",");
    else if (style.comma)
      when(f, I_BROKEN, ",");
    newline = trailing_comment(f, last ? end : l.items[i + 1]->span.lo);
    if (!last) mark(f, newline ? I_HARD : I_LINE);
  }
  for (const Comment *c; (c = pending(f, end)) != NULL; newline = true) {
    mark(f, I_HARD);
    put_comment(f, c);
  }
  mark(f, I_OUT);
  if (newline)
    mark(f, I_HARD);
  else
    edge(f, style.pad, forced);
  mark(f, I_CLOSE);
  text(f, style.close);
}

/* An expression behind `=` or `:`; a comment goes between the two, on a line of its own. */
static void put_behind_sign(Fmt *f, const Node *e) {
  bool commented = pending(f, e->span.lo) != NULL;
  if (commented) {
    mark(f, I_IN);
    mark(f, I_HARD);
    comments_before(f, e->span.lo);
  } else {
    text(f, " ");
  }
  put_expr(f, e, 0);
  if (commented) mark(f, I_OUT);
}

/* ` = e` or ` += e` behind a name. */
static void put_value_of(Fmt *f, AstOp op, const Node *e) {
  text(f, " ");
  if (op != AST_NONE) text(f, ast_op_text(op));
  text(f, "=");
  put_behind_sign(f, e);
}

static void put_init(Fmt *f, const Node *e) {
  put_value_of(f, AST_NONE, e);
}

static void put_words(Fmt *f, Words w, const char *between) {
  for (uint32_t i = 0; i < w.count; i++) {
    if (i) text(f, between);
    text(f, w.items[i].name);
  }
}

/* ---- blocks */

/* Prints a comment between statements: behind the former one, or on a line of its own. `prev`: the
 * end of the text before, which is a comment if `commented`; 0 at the start of the file. */
static void comment_between(Fmt *f, const Comment *c, uint32_t prev, bool first, bool commented) {
  bool inside = c->lo < prev; /* inside the former statement, where it could not be printed */
  if (!c->own_line && !commented && prev > 0 && (inside || !lines_between(f, prev, c->lo))) {
    put_behind(f, c);
    return;
  }
  if (prev > 0 || commented)
    mark(f, !first && !inside && lines_between(f, prev, c->lo) > 1 ? I_BLANK : I_HARD);
  put_comment(f, c);
}

/* Statements between `lo` (after the opening brace) and `hi` (the closing one). In a block the
 * first one is preceded by a newline or, in a `flat` group, a blank. */
static void put_statements(Fmt *f, NodeList l, uint32_t lo, uint32_t hi, bool flat) {
  uint32_t prev = lo;
  bool first = true, commented = false, in_run = false;
  for (uint32_t i = 0; i <= l.count; i++) {
    uint32_t at = i < l.count ? l.items[i]->span.lo : hi;
    if (!in_run)
      for (const Comment *c; (c = pending(f, at)) != NULL;) {
        comment_between(f, c, prev, first, commented);
        prev = c->hi > prev ? c->hi : prev;
        first = false;
        commented = true;
      }
    if (i == l.count) break;
    const Node *n = l.items[i];
    if (in_run || (flat && !first && !commented)) {
      when(f, I_FLAT, ";");
      mark(f, I_LINE);
    } else if (first) {
      if (lo > 0) mark(f, flat ? I_LINE : I_HARD);
    } else {
      mark(f, lines_between(f, prev, at) > 1 ? I_BLANK : I_HARD);
    }
    bool joined =
        !flat && i + 1 < l.count && !lines_between(f, n->span.hi, l.items[i + 1]->span.lo);
    if (joined && !in_run) put_item(f, (Item){.kind = I_OPEN});
    put_node(f, n);
    if (!joined && in_run) mark(f, I_CLOSE);
    in_run = joined;
    prev = n->span.hi;
    first = commented = false;
  }
  if (lo > 0) {
    mark(f, I_OUT);
    mark(f, flat && !commented ? I_LINE : I_HARD);
  }
}

/* Prints `{ .. }`, which stands at `lo` to `hi`. A block on one line stays so if it fits. */
static void put_braces(Fmt *f, NodeList l, uint32_t lo, uint32_t hi, bool may_be_flat) {
  if (l.count == 0 && !pending(f, hi)) {
    text(f, "{ }");
    return;
  }
  bool flat = f->solid || (may_be_flat && !lines_between(f, lo, hi));
  text(f, "{");
  if (flat) put_item(f, (Item){.kind = I_OPEN, .all = true, .block = true});
  mark(f, I_IN);
  put_statements(f, l, lo + 1, hi, flat);
  if (flat) mark(f, I_CLOSE);
  text(f, "}");
}

static void put_block(Fmt *f, const Node *n) {
  uint32_t lo = n->span.lo;
  while (n->parens && f->src[lo] != '{') lo++;
  put_braces(f, n->list, lo, n->span.hi, true);
}

/* ---- expressions */

enum { P_LAMBDA, P_OR, P_AND, P_NOT, P_COMPARE, P_RANGE, P_ADD, P_MUL, P_NEG, P_POW, P_POSTFIX };

static int op_level(AstOp op) {
  switch (op) {
  case AST_OR: return P_OR;
  case AST_AND: return P_AND;
  case AST_NOT: return P_NOT;
  case AST_LT:
  case AST_LE:
  case AST_GT:
  case AST_GE:
  case AST_EQ:
  case AST_NE:
  case AST_IN:
  case AST_NOT_IN: return P_COMPARE;
  case AST_RANGE: return P_RANGE;
  case AST_ADD:
  case AST_SUB: return P_ADD;
  case AST_NEG: return P_NEG;
  case AST_POW: return P_POW;
  default: return P_MUL;
  }
}

static int level(const Node *n) {
  switch (n->kind) {
  case N_BINARY: return op_level(n->binary.op);
  case N_UNARY: return op_level(n->unary.op);
  case N_LAMBDA: return P_LAMBDA;
  default: return P_POSTFIX;
  }
}

static void put_binary(Fmt *f, const Node *n, bool inner) {
  stack_check();
  AstOp op = n->binary.op;
  int p = op_level(op);
  const Node *a = n->binary.left, *b = n->binary.right;
  bool right = op == AST_POW, none = p == P_COMPARE || p == P_RANGE;
  if (!inner) {
    put_item(f, (Item){.kind = I_OPEN});
    mark(f, I_IN);
    mark(f, I_IN);
  }
  /* operators of one precedence level form one group */
  if (a->kind == N_BINARY && !a->parens && level(a) == p && !right && !none)
    put_binary(f, a, true);
  else
    put_expr(f, a, right || none ? p + 1 : p);
  if (op == AST_RANGE) {
    text(f, "..");
  } else {
    text(f, " ");
    text(f, ast_op_text(op));
    mark(f, I_LINE);
  }
  if (op == AST_RANGE && pending(f, b->span.lo)) text(f, " ");
  comments_before(f, b->span.lo);
  bool negated = right && b->kind == N_UNARY && b->unary.op == AST_NEG;
  put_expr(f, b, negated ? P_NEG : right ? p : p + 1);
  if (!inner) {
    mark(f, I_OUT);
    mark(f, I_OUT);
    mark(f, I_CLOSE);
  }
}

static bool is_tall(const Fmt *f, const Node *block) {
  return block->list.count && lines_between(f, block->span.lo, block->span.hi) > 0;
}

/* Whether an argument's value has brackets of its own, which may stay on the line of the call. */
static bool hugs(const Fmt *f, const Node *n, bool alone) {
  if (n->parens) return false;
  switch (n->kind) {
  case N_LAMBDA: return !n->fn->body_is_expr && is_tall(f, n->fn->body);
  case N_BLOCK: return is_tall(f, n);
  case N_CHECKPOINT:
  case N_WRAP: return is_tall(f, n->region.body);
  case N_LIST:
  case N_DICT:
  case N_RECORD:
  case N_TUPLE: return alone && n->list.count > 0;
  case N_COMP: return alone;
  default: return false;
  }
}

static void put_args(Fmt *f, NodeList l, uint32_t end) {
  const Node *last = l.count ? l.items[l.count - 1] : NULL;
  bool hug = last && !f->solid && !pending(f, last->arg.value->span.lo) &&
             hugs(f, last->arg.value, l.count == 1) && !starts_line(f, l.items[0]->span.lo);
  if (!hug) {
    put_list(f, l, (ListStyle){"(", ")", true, false}, end);
    return;
  }
  text(f, "(");
  for (uint32_t i = 0; i < l.count; i++) {
    if (i) text(f, ", ");
    put_node(f, l.items[i]);
  }
  text(f, ")");
}

/* In a chain x.f(a).g(b): may a line break before this `.name`? */
static bool breaks_before(const Node *dot) {
  const Node *o = dot->dot.object;
  return !o->parens && (o->kind == N_CALL || o->kind == N_INDEX);
}

/* Postfix operators apply to a primary from left to right: `n` is the outermost. `chain`: 0 no line
 * breaks, 1 breaks where it does not fit, 2 always breaks. */
static void put_postfix(Fmt *f, const Node *n, int chain);

static void put_object(Fmt *f, const Node *o, int chain) {
  if (!o->parens &&
      (o->kind == N_CALL || o->kind == N_DOT || o->kind == N_ITEM || o->kind == N_INDEX))
    put_postfix(f, o, chain);
  else
    put_expr(f, o, P_POSTFIX);
}

/* An object before a dot and a digit, or before a name that would be read as an exponent: 1.e5,
 * 8MB.0. */
static void put_number_object(Fmt *f, const Node *o, int chain, bool parens) {
  parens = parens && !o->parens && (o->kind == N_INT || o->kind == N_FLOAT || o->kind == N_SIZE);
  if (parens) text(f, "(");
  put_object(f, o, chain);
  if (parens) text(f, ")");
}

static void put_dot(Fmt *f, const Node *n, int chain, bool called) {
  const Node *o = n->dot.object;
  if (o->kind == N_PLACE) {
    text(f, n->dot.name.name);
    return;
  }
  put_number_object(f, o, chain, (n->dot.name.name[0] | 0x20) == 'e');
  if (chain && called && breaks_before(n)) edge(f, false, chain == 2);
  text(f, ".");
  text(f, n->dot.name.name);
}

static void put_postfix(Fmt *f, const Node *n, int chain) {
  stack_check();
  switch (n->kind) {
  case N_CALL: {
    const Node *callee = n->call.callee;
    if (callee->kind == N_DOT && !callee->parens)
      put_dot(f, callee, chain, true);
    else
      put_object(f, callee, chain);
    NodeList args = n->call.args;
    if (args.count && args.items[0]->arg.value->kind == N_PLACE) args.items++, args.count--;
    put_args(f, args, n->span.hi);
    break;
  }
  case N_INDEX:
    put_object(f, n->index.object, chain);
    put_list(f, n->index.items, (ListStyle){"[", "]", false, false}, n->span.hi);
    break;
  case N_DOT: put_dot(f, n, chain, false); break;
  default: /* N_ITEM */
    put_number_object(f, n->item.object, chain, true);
    text(f, arena_printf(&f->scratch, ".%lld", (long long)n->item.index));
  }
}

static void put_chain(Fmt *f, const Node *n) {
  int places = 0;
  bool broken = false;
  for (const Node *o = n; !o->parens || o == n;) {
    if (o->kind == N_CALL) {
      const Node *c = o->call.callee;
      if (c->kind == N_DOT && !c->parens) {
        places += breaks_before(c);
        if (breaks_before(c) && starts_line(f, c->dot.name.span.lo - 1)) broken = true;
      }
      o = c;
    } else if (o->kind == N_DOT) {
      o = o->dot.object;
    } else if (o->kind == N_ITEM) {
      o = o->item.object;
    } else if (o->kind == N_INDEX) {
      o = o->index.object;
    } else {
      break;
    }
  }
  int chain = f->solid ? 0 : broken ? 2 : places > 1 ? 1 : 0;
  if (chain == 1) put_item(f, (Item){.kind = I_OPEN});
  if (chain) mark(f, I_IN);
  put_postfix(f, n, chain);
  if (chain) mark(f, I_OUT);
  if (chain == 1) mark(f, I_CLOSE);
}

static void put_hole(Fmt *f, const StrPart *p) {
  mark(f, I_SOLID);
  f->solid++;
  text(f, "{");
  size_t at = f->count;
  put_expr(f, p->hole, P_LAMBDA);
  /* a brace right after the brace would be text: find the first item with text */
  while (at < f->count && (f->items[at].kind != I_TEXT || !f->items[at].n)) at++;
  if (at < f->count && f->items[at].text[0] == '{') {
    Item *t = &f->items[at];
    t->text = arena_printf(&f->scratch, " %.*s", (int)t->n, t->text);
    t->n++;
  }
  if (p->has_format) {
    text(f, ":");
    textn(f, f->src + p->format.span.lo, p->format.span.hi - p->format.span.lo);
  }
  text(f, "}");
  f->solid--;
  mark(f, I_SOLID_END);
}

static bool ends_line(const char *s) {
  return *s == '\n' || (*s == '\r' && s[1] == '\n');
}

/* Lines of a block between two places of the source, without the indentation of its end, which
 * is `cut` bytes from `indent` on. A line that has less of it is blank, and becomes empty. */
static void put_lines(Fmt *f, uint32_t lo, uint32_t hi, uint32_t indent, uint32_t cut) {
  const char *s = f->src;
  while (lo < hi) {
    uint32_t end = lo, k = 0;
    while (end < hi && !ends_line(s + end)) end++;
    textn(f, s + lo, end - lo);
    if (end == hi) return;
    mark(f, I_ROW);
    lo = end + (s[end] == '\r' ? 2 : 1);
    for (; k < cut && lo < hi && s[lo] == s[indent + k]; k++) lo++;
    while (k < cut && lo < hi && !ends_line(s + lo)) lo++;
    if (lo < hi && ends_line(s + lo)) mark(f, I_EMPTY);
  }
}

static void put_string(Fmt *f, const Node *n) {
  const StrParts *p = &n->string;
  const char *quotes = p->block ? "\"\"\"" : "\"";
  uint32_t at = p->lo, end = p->hi - (uint32_t)strlen(quotes), cut = 0;
  if (p->block) {
    while (f->src[end - 1 - cut] != '\n') cut++;
    while (f->src[at] != '\n') at++;
    if (f->src[at - 1] == '\r') at--;
  } else {
    at += p->raw ? 2 : 1;
  }
  if (p->block) mark(f, I_QUOTE);
  if (p->raw) text(f, "r");
  text(f, quotes);
  for (uint32_t i = 0; i <= p->count; i++) {
    const StrPart *hole = i < p->count && p->items[i].hole ? &p->items[i] : NULL;
    uint32_t hi = hole ? hole->span.lo : i == p->count ? end : at;
    if (p->block)
      put_lines(f, at, hi, end - cut, cut);
    else if (hi > at)
      textn(f, f->src + at, hi - at);
    at = hole ? hole->span.hi : hi;
    if (hole) put_hole(f, hole);
  }
  text(f, quotes);
  if (p->block) mark(f, I_UNQUOTE);
}

static void put_policy(Fmt *f, NodeList clauses, const Node *body) {
  put_list(f, clauses, (ListStyle){"<", ">", false, false}, body->span.lo);
  text(f, " ");
}

static void put_params(Fmt *f, NodeList params, uint32_t end) {
  put_list(f, params, (ListStyle){"(", ")", true, false}, end);
}

static bool brings_braces(const Node *n) {
  return !n->parens && (n->kind == N_BLOCK || n->kind == N_IF || n->kind == N_CHECKPOINT ||
                        n->kind == N_WRAP || n->kind == N_LAMBDA);
}

/* Prints ` { .. }` or ` = e`. `hi`: the end of the header. */
static void put_body(Fmt *f, const Node *body, bool is_expr, uint32_t hi) {
  if (!is_expr) {
    text(f, " ");
    put_expr(f, body, P_LAMBDA);
    return;
  }
  text(f, " =");
  bool forced = !f->solid && (lines_between(f, hi, body->span.lo) > 0 || pending(f, body->span.lo));
  if (brings_braces(body) && !forced) {
    text(f, " ");
    put_expr(f, body, P_LAMBDA);
    return;
  }
  put_item(f, (Item){.kind = I_OPEN});
  mark(f, I_IN);
  edge(f, true, forced);
  comments_before(f, body->span.lo);
  put_expr(f, body, P_LAMBDA);
  mark(f, I_OUT);
  mark(f, I_CLOSE);
}

static void put_fn(Fmt *f, const Fn *fn) {
  text(f, fn->is_proc ? "proc" : "fn");
  if (fn->name.name) {
    text(f, " ");
    text(f, fn->name.name);
  }
  if (fn->dims.count) {
    text(f, "[");
    put_words(f, fn->dims, ", ");
    text(f, "]");
  }
  put_params(f, fn->params, fn->result ? fn->result->span.lo : fn->header.hi);
  if (fn->result) {
    text(f, " -> ");
    put_node(f, fn->result);
  }
  put_body(f, fn->body, fn->body_is_expr, fn->header.hi);
  if (fn->back_body) {
    text(f, " backward");
    put_params(f, fn->back_params, fn->back_span.hi);
    put_body(f, fn->back_body, fn->back_is_expr, fn->back_span.hi);
  }
}

static void put_if(Fmt *f, const Node *n) {
  for (;; n = n->if_.els) {
    text(f, "if ");
    put_expr(f, n->if_.cond, P_LAMBDA);
    text(f, " ");
    put_block(f, n->if_.then);
    if (!n->if_.els) return;
    text(f, " else ");
    if (n->if_.els->kind != N_IF) {
      put_block(f, n->if_.els);
      return;
    }
  }
}

static void put_slice(Fmt *f, const Node *n) {
  if (n->slice.lo) put_expr(f, n->slice.lo, P_LAMBDA);
  text(f, ":");
  if (n->slice.hi) put_expr(f, n->slice.hi, P_LAMBDA);
  if (n->slice.step) {
    text(f, ":");
    put_expr(f, n->slice.step, P_LAMBDA);
  }
}

static void put_empty_dict(Fmt *f, const Node *n) {
  bool comment = pending(f, n->span.hi) != NULL;
  text(f, "[");
  if (comment) {
    mark(f, I_IN);
    mark(f, I_HARD);
    comments_before(f, n->span.hi);
    mark(f, I_OUT);
    mark(f, I_HARD);
  }
  text(f, ":]");
}

static void put_comp(Fmt *f, const Node *n) {
  text(f, "[");
  open_all(f);
  mark(f, I_IN);
  mark(f, I_SOFT);
  comments_before(f, n->comp.value->span.lo);
  put_node(f, n->comp.value);
  for (uint32_t i = 0; i < n->comp.fors.count; i++) {
    const Node *g = n->comp.fors.items[i];
    text(f, i ? "," : "");
    mark(f, I_LINE);
    comments_before(f, g->span.lo);
    if (i == 0) text(f, "for ");
    put_node(f, g);
  }
  mark(f, I_OUT);
  mark(f, I_SOFT);
  mark(f, I_CLOSE);
  text(f, "]");
}

static void put_tuple(Fmt *f, const Node *n) {
  if (n->list.count == 1) {
    text(f, "(");
    comments_before(f, n->list.items[0]->span.lo);
    put_node(f, n->list.items[0]);
    text(f, ",)");
    return;
  }
  put_list(f, n->list, (ListStyle){"(", ")", true, false}, n->span.hi);
}

/* Prints an expression without its own parentheses. */
static void put_bare(Fmt *f, const Node *n) {
  switch ((NodeKind)n->kind) {
  case N_INT:
  case N_FLOAT:
  case N_SIZE: text(f, n->number.spelling); break;
  case N_STRING: put_string(f, n); break;
  case N_BOOL: text(f, n->boolean ? "true" : "false"); break;
  case N_NAME: text(f, n->name); break;
  case N_SELF: text(f, "self"); break;
  case N_UNIT: text(f, "()"); break;
  case N_UNARY: {
    bool negate = n->unary.op == AST_NEG;
    text(f, negate ? "-" : "not ");
    comments_before(f, n->unary.operand->span.lo);
    put_expr(f, n->unary.operand, negate ? P_NEG : P_NOT);
    break;
  }
  case N_BINARY: put_binary(f, n, false); break;
  case N_CALL:
  case N_DOT:
  case N_ITEM:
  case N_INDEX: put_chain(f, n); break;
  case N_BLOCK: put_block(f, n); break;
  case N_IF: put_if(f, n); break;
  case N_TUPLE: put_tuple(f, n); break;
  case N_RECORD: put_list(f, n->list, (ListStyle){"(", ")", true, false}, n->span.hi); break;
  case N_LIST: put_list(f, n->list, (ListStyle){"[", "]", true, false}, n->span.hi); break;
  case N_DICT:
    if (n->list.count)
      put_list(f, n->list, (ListStyle){"[", "]", true, false}, n->span.hi);
    else
      put_empty_dict(f, n);
    break;
  case N_COMP: put_comp(f, n); break;
  case N_LAMBDA: put_fn(f, n->fn); break;
  case N_CHECKPOINT:
  case N_WRAP:
    text(f, n->kind == N_WRAP ? "wrap " : "checkpoint ");
    if (n->region.has_policy) put_policy(f, n->region.clauses, n->region.body);
    put_block(f, n->region.body);
    break;
  default: textn(f, f->src + n->span.lo, n->span.hi - n->span.lo); /* N_BAD */
  }
}

/* The first byte behind opening parentheses, blanks and comments. */
static uint32_t behind_parens(const Fmt *f, uint32_t at) {
  while (at < f->src_n && strchr("( \t\r\n#", f->src[at])) {
    if (f->src[at] == '#')
      while (at < f->src_n && f->src[at] != '\n') at++;
    else
      at++;
  }
  return at;
}

/* Prints an expression; it gets parentheses if its precedence level is below `least`. */
static void put_expr(Fmt *f, const Node *n, int least) {
  stack_check();
  bool parens = n->parens || level(n) < least;
  if (parens) text(f, "(");
  if (n->parens) comments_before(f, behind_parens(f, n->span.lo));
  put_bare(f, n);
  if (parens) text(f, ")");
}

/* ---- types, patterns, clauses */

static void put_type(Fmt *f, const Node *n) {
  switch (n->kind) {
  case N_TYPE_NAME:
    put_words(f, n->type_name.path, ".");
    if (n->type_name.has_dims)
      put_list(f, n->type_name.dims, (ListStyle){"[", "]", false, false}, n->span.hi);
    break;
  case N_TYPE_LIST:
    text(f, "[");
    put_node(f, n->type_list);
    text(f, "]");
    break;
  case N_TYPE_DICT:
    text(f, "[");
    put_node(f, n->entry.key);
    text(f, ": ");
    put_node(f, n->entry.value);
    text(f, "]");
    break;
  case N_TYPE_TUPLE:
  case N_TYPE_RECORD:
    if (n->list.count == 1 && n->kind == N_TYPE_TUPLE)
      put_tuple(f, n);
    else
      put_list(f, n->list, (ListStyle){"(", ")", true, false}, n->span.hi);
    break;
  case N_TYPE_FIELD:
    text(f, n->type_field.name.name);
    text(f, ": ");
    put_node(f, n->type_field.type);
    break;
  case N_TYPE_FN:
    text(f, "fn");
    put_list(f, n->type_fn.params, (ListStyle){"(", ")", true, false}, n->type_fn.result->span.lo);
    text(f, " -> ");
    put_node(f, n->type_fn.result);
    break;
  default: /* N_PACK */
    text(f, "...");
    if (n->word.name) text(f, n->word.name);
  }
}

static void put_pattern(Fmt *f, const Node *n) {
  switch (n->kind) {
  case N_PAT_NAME: text(f, n->word.name); break;
  case N_PAT_WILD: text(f, "_"); break;
  case N_PAT_TUPLE: put_tuple(f, n); break;
  default: put_list(f, n->list, (ListStyle){"{", "}", true, false}, n->span.hi); /* N_PAT_RECORD */
  }
}

static void put_clause(Fmt *f, const Node *n) {
  put_words(f, n->clause.path, ".");
  if (n->clause.is_set) text(f, " =");
  for (uint32_t i = 0; i < n->clause.args.count; i++) {
    text(f, " ");
    put_node(f, n->clause.args.items[i]);
  }
  if (n->clause.as.name) text(f, " as "), text(f, n->clause.as.name);
}

/* ---- declarations and statements */

static void put_typed(Fmt *f, Word name, const Node *type, const Node *init) {
  text(f, name.name);
  if (type) {
    text(f, ": ");
    put_node(f, type);
  }
  if (init) put_init(f, init);
}

static void put_use(Fmt *f, const Node *n) {
  text(f, "use ");
  if (n->use.file)
    textn(f, f->src + n->use.file_span.lo, n->use.file_span.hi - n->use.file_span.lo);
  put_words(f, n->use.path, ".");
  if (n->use.as.name) {
    text(f, " as ");
    text(f, n->use.as.name);
  }
  if (!n->use.names.count) return;
  text(f, " (");
  open_all(f);
  mark(f, I_IN);
  mark(f, I_SOFT);
  for (uint32_t i = 0; i < n->use.names.count; i++) {
    if (i) {
      text(f, ",");
      mark(f, I_LINE);
    }
    comments_before(f, n->use.names.items[i].span.lo);
    text(f, n->use.names.items[i].name);
  }
  when(f, I_BROKEN, ",");
  mark(f, I_OUT);
  mark(f, I_SOFT);
  mark(f, I_CLOSE);
  text(f, ")");
}

static void put_loop(Fmt *f, const Node *n) {
  if (n->kind == N_COMP_FOR) {
    put_node(f, n->loop.pat);
    text(f, " in ");
    put_expr(f, n->loop.iter, P_LAMBDA);
    if (n->loop.cond) {
      text(f, " if ");
      put_expr(f, n->loop.cond, P_LAMBDA);
    }
    return;
  }
  if (n->loop.is_checkpoint) {
    text(f, "checkpoint ");
    if (n->loop.clauses.count)
      put_policy(f, n->loop.clauses, n->loop.pat ? n->loop.pat : n->loop.cond);
  }
  if (n->kind == N_FOR) {
    text(f, "for ");
    put_node(f, n->loop.pat);
    text(f, " in ");
    put_expr(f, n->loop.iter, P_LAMBDA);
  } else {
    text(f, "while ");
    put_expr(f, n->loop.cond, P_LAMBDA);
  }
  text(f, " ");
  put_block(f, n->loop.body);
}

/* The place of the opening brace of a declaration, behind its header. */
static uint32_t find_brace(const Fmt *f, uint32_t at, uint32_t hi) {
  uint32_t k = f->next; /* skips braces in comments */
  while (at < hi && f->src[at] != '{') {
    while (k < f->comment_count && f->comments[k].hi <= at) k++;
    if (k < f->comment_count && f->comments[k].lo <= at)
      at = f->comments[k].hi;
    else
      at++;
  }
  return at;
}

static void put_policy_decl(Fmt *f, const Node *n) {
  text(f, "policy ");
  text(f, n->policy_decl.name.name);
  NodeList c = n->policy_decl.clauses;
  if (n->policy_decl.has_params) put_params(f, n->policy_decl.params, c.items[0]->span.lo);
  text(f, " ");
  put_list(f, c, (ListStyle){"{", "}", false, true}, n->span.hi);
}

static void put_model(Fmt *f, const Node *n) {
  text(f, "model ");
  text(f, n->model.name.name);
  uint32_t at = n->model.name.span.hi;
  NodeList params = n->model.params;
  if (params.count) at = params.items[params.count - 1]->span.hi;
  uint32_t brace = find_brace(f, at, n->span.hi);
  if (n->model.has_params) put_params(f, params, brace);
  text(f, " ");
  put_braces(f, n->model.members, brace, n->span.hi, false);
}

static void put_value(Fmt *f, const char *word, const Node *e) {
  text(f, word);
  if (!e) return;
  text(f, " ");
  put_expr(f, e, P_LAMBDA);
}

static void put_node(Fmt *f, const Node *n) {
  stack_check();
  switch ((NodeKind)n->kind) {
  case N_USE: put_use(f, n); break;
  case N_TYPE_DECL:
    text(f, "type ");
    text(f, n->type_decl.name.name);
    text(f, " = ");
    put_node(f, n->type_decl.type);
    break;
  case N_POLICY_DECL: put_policy_decl(f, n); break;
  case N_TEST:
    text(f, "test ");
    put_string(f, n->test.title);
    text(f, " ");
    put_block(f, n->test.body);
    break;
  case N_MODEL: put_model(f, n); break;
  case N_FIELD:
    text(f, n->field.is_buffer ? "buffer " : "param ");
    put_typed(f, n->field.name, n->field.type, n->field.init);
    break;
  case N_FN: put_fn(f, n->fn); break;
  case N_PARAM: put_typed(f, n->param.name, n->param.type, n->param.init); break;
  case N_LET:
    text(f, n->let.is_var ? "var " : "let ");
    put_node(f, n->let.pat);
    if (n->let.type) {
      text(f, ": ");
      put_node(f, n->let.type);
    }
    put_init(f, n->let.init);
    break;
  case N_ASSIGN:
    put_expr(f, n->assign.target, P_LAMBDA);
    put_value_of(f, n->assign.op, n->assign.value);
    break;
  case N_EXPR_STMT:
    put_expr(f, ast_places(n) ? ast_places(n)->let.places : n->expr, P_LAMBDA);
    if (ast_places(n)) put_value_of(f, AST_NONE, ast_places(n)->let.init);
    break;
  case N_FOR:
  case N_WHILE:
  case N_COMP_FOR: put_loop(f, n); break;
  case N_RETURN: put_value(f, "return", n->expr); break;
  case N_BREAK: text(f, "break"); break;
  case N_CONTINUE: text(f, "continue"); break;
  case N_ASSERT: put_value(f, "assert", n->expr); break;
  case N_PAT_NAME:
  case N_PAT_WILD:
  case N_PAT_TUPLE:
  case N_PAT_RECORD: put_pattern(f, n); break;
  case N_ARG:
    if (n->arg.name.name) {
      text(f, n->arg.name.name);
      put_init(f, n->arg.value);
    } else {
      put_expr(f, n->arg.value, P_LAMBDA);
    }
    break;
  case N_ENTRY:
    put_expr(f, n->entry.key, P_LAMBDA);
    text(f, ":");
    put_behind_sign(f, n->entry.value);
    break;
  case N_ELLIPSIS: text(f, "..."); break;
  case N_SLICE: put_slice(f, n); break;
  case N_CLAUSE: put_clause(f, n); break;
  case N_WORD: put_words(f, n->path, "."); break;
  case N_TYPE_NAME:
  case N_TYPE_LIST:
  case N_TYPE_DICT:
  case N_TYPE_TUPLE:
  case N_TYPE_RECORD:
  case N_TYPE_FIELD:
  case N_TYPE_FN:
  case N_PACK: put_type(f, n); break;
  default: put_expr(f, n, P_LAMBDA);
  }
}

/* ---- printing */

static uint32_t columns(const Item *i) {
  uint32_t n = 0;
  for (uint32_t k = 0; k < i->n; k++) n += ((unsigned char)i->text[k] & 0xc0) != 0x80;
  return n;
}

/* Does the group at `at` fit from this column on, up to its first newline or, behind it, the next
 * place where a line may break? If a line continues behind a block (`x + wrap <f> {`), its header
 * counts, but not the inside of the block. */
static bool group_fits(const Fmt *f, size_t at, uint32_t column) {
  int depth = 0, solid = 0;
  bool closed = false;
  for (size_t i = at; i < f->count; i++) {
    const Item *t = &f->items[i];
    switch ((ItemKind)t->kind) {
    case I_TEXT: column += columns(t); break;
    case I_COMMENT:
    case I_HARD:
    case I_ROW:
    case I_BLANK: return true;
    case I_LINE:
      if (closed && !solid) return true;
      column++;
      break;
    case I_SOFT:
    case I_FORCED:
      if (closed && !solid) return true;
      column += t->all;
      break;
    case I_BROKEN: break;
    case I_FLAT:
      if (!closed) column += columns(t);
      break;
    case I_OPEN:
      if (t->block && i > at && !solid && (closed || !f->items[at].all)) return true;
      depth++;
      break;
    case I_CLOSE:
      if (--depth <= 0) closed = true;
      break;
    case I_SOLID: solid++; break;
    case I_SOLID_END: solid--; break;
    case I_EMPTY:
    case I_QUOTE:
    case I_UNQUOTE:
    case I_IN:
    case I_OUT: break;
    }
    if (column > MARGIN) return false;
  }
  return true;
}

/* Sets `newline` of each group. */
static void find_newlines(Fmt *f) {
  size_t *open = ARENA_ARRAY(&f->scratch, size_t, f->count + 1), depth = 0;
  for (size_t i = 0; i < f->count; i++) {
    switch (f->items[i].kind) {
    case I_OPEN: open[depth++] = i; break;
    case I_CLOSE:
      depth--;
      if (depth && f->items[open[depth]].newline) f->items[open[depth - 1]].newline = true;
      break;
    case I_HARD:
    case I_FORCED:
    case I_BLANK:
      if (depth) f->items[open[depth - 1]].newline = true;
      break;
    default: break;
    }
  }
}

typedef struct Printer {
  Buf *out;
  uint32_t column, indent, line_indent; /* line_indent: of the present line */
  int newlines;                         /* to be printed before the next text */
  uint32_t outer, outer_line;           /* indent and line_indent around a text of several lines */
} Printer;

static void newline(Printer *p, int n) {
  if (p->newlines < n) p->newlines = n;
  p->column = p->line_indent = p->indent;
}

static void end_lines(Printer *p) {
  for (; p->newlines > 0; p->newlines--) buf_putc(p->out, '\n');
}

static void put_text(Printer *p, const Item *t) {
  if (p->newlines) {
    end_lines(p);
    for (uint32_t k = 0; k < p->line_indent; k++) buf_putc(p->out, ' ');
  }
  buf_put(p->out, t->text, t->n);
  p->column += columns(t);
}

static void print(Fmt *f) {
  static const Item blank = {.kind = I_TEXT, .text = " ", .n = 1};
  bool *broken = ARENA_ARRAY(&f->scratch, bool, f->count + 1);
  size_t depth = 0;
  int solid = 0;
  Printer p = {.out = f->out};
  for (size_t i = 0; i < f->count; i++) {
    const Item *t = &f->items[i];
    bool now = !solid && (depth == 0 || broken[depth - 1]);
    switch ((ItemKind)t->kind) {
    case I_TEXT:
    case I_COMMENT: put_text(&p, t); break;
    case I_BROKEN:
      if (now) put_text(&p, t);
      break;
    case I_FLAT:
      if (!now) put_text(&p, t);
      break;
    case I_LINE:
    case I_SOFT:
      if (now)
        newline(&p, 1);
      else if (t->kind == I_LINE && !p.newlines)
        put_text(&p, &blank);
      break;
    case I_HARD:
    case I_ROW:
    case I_FORCED: newline(&p, 1); break;
    case I_BLANK: newline(&p, 2); break;
    case I_EMPTY: end_lines(&p); break;
    case I_OPEN: broken[depth++] = (t->all && t->newline) || !group_fits(f, i, p.column); break;
    case I_CLOSE: depth--; break;
    case I_IN: p.indent += INDENT; break;
    case I_OUT: p.indent -= INDENT; break;
    case I_SOLID: solid++; break;
    case I_SOLID_END: solid--; break;
    case I_QUOTE:
      p.outer = p.indent, p.outer_line = p.line_indent;
      p.indent = p.line_indent + (p.column > p.line_indent ? INDENT : 0);
      break;
    case I_UNQUOTE: p.indent = p.outer, p.line_indent = p.outer_line; break;
    }
  }
}

static void fmt_job(void *ud) {
  Fmt *f = ud;
  put_statements(f, f->file->file.items, 0, f->src_n + 1, false);
  find_newlines(f);
  size_t before = f->out->n;
  print(f);
  if (f->out->n > before) buf_putc(f->out, '\n');
}

void fmt_file(Buf *out, const Node *file, const Sources *sources) {
  const Source *src = src_get(sources, file->span.file);
  Fmt f = {.out = out,
           .file = file,
           .src = src->text,
           .src_n = (uint32_t)src->length,
           .comments = file->file.comments,
           .comment_count = file->file.comment_count};
  arena_init(&f.scratch, out->mem);
  int code = mem_protect(out->mem, fmt_job, &f);
  arena_free(&f.scratch);
  if (code != MEM_OK) mem_throw(out->mem, code);
}
