/* The driver: feeds tokens from the lexer to the grammar; recovery, limits; helpers of actions.
 *
 * In: a source. Out: N_FILE. Idea: before a token is fed, gr_accepts runs the automaton on a copy
 * of the states; a token that does not fit is reported with all tokens that would (complain.c),
 * then the stack is cut back to the innermost place where a statement may stand, N_BAD is put
 * there, and tokens are skipped up to the end of that statement at the same depth of brackets.
 * Invariant: no node is higher than AST_MAX_HEIGHT; after PARSE_MAX_ERRORS errors, or when the text
 * is nested too deeply, reading stops and the tree so far is returned. */
#include "parser/lex.h"

#include <stdio.h>
#include <string.h>

#include "parser/grammar.h"

/* ---- helpers of the actions */

Span ps_span(Parser *ps, uint32_t lo, uint32_t hi) {
  return (Span){ps->file, lo, hi};
}

Node *ps_node(Parser *ps, NodeKind kind, uint32_t lo, uint32_t hi) {
  Node *n = ARENA_NEW(ps->c->arena, Node);
  n->kind = (uint8_t)kind;
  n->span = ps_span(ps, lo, hi);
  n->height = 1;
  return n;
}

static void highest(void *ud, Node *child) {
  uint32_t *h = ud;
  if (child->height > *h) *h = child->height;
}

Node *ps_done(Parser *ps, Node *n) {
  uint32_t h = 0;
  ast_children(n, highest, &h);
  n->height = h + 1;
  if (n->height < AST_MAX_HEIGHT - 1) return n; /* room for the file itself */
  Diag *g = lex_error(&ps->lx, ERR_SYNTAX_DEEP, n->span.lo, n->span.hi,
                      "more than %d operations, calls or blocks hang on one another here",
                      AST_MAX_HEIGHT - 2);
  lex_help(&ps->lx, g, "give a part a name with `let`");
  ps->lx.stop = true;
  return ps_node(ps, N_BAD, n->span.lo, n->span.hi);
}

NodeList *ps_list(Parser *ps) {
  return ARENA_NEW(ps->c->arena, NodeList);
}

NodeList *ps_push(Parser *ps, NodeList *l, Node *n) {
  VEC_PUSH(ps->c->arena, l->items, l->count, l->cap, n);
  return l;
}

NodeList *ps_list1(Parser *ps, Node *n) {
  return ps_push(ps, ps_list(ps), n);
}

Word ps_word(Parser *ps, Tok t) {
  return (Word){.name = t.v.name, .span = ps_span(ps, t.lo, t.hi)};
}

Words *ps_words(Parser *ps, Words *w, Tok t) {
  if (!w) w = ARENA_NEW(ps->c->arena, Words);
  if (t.kind) VEC_PUSH(ps->c->arena, w->items, w->count, w->cap, ps_word(ps, t));
  return w;
}

Fn *ps_fn(Parser *ps) {
  return ARENA_NEW(ps->c->arena, Fn);
}

Node *ps_unary(Parser *ps, AstOp op, Tok t, Node *e) {
  Node *n = ps_node(ps, N_UNARY, t.lo, e->span.hi);
  if (op == AST_NEG && e->kind == N_INT && e->number.i < 0 && !e->parens) lex_take_edge(&ps->lx, e);
  n->unary.op = op;
  n->unary.operand = e;
  return ps_done(ps, n);
}

Node *ps_binary(Parser *ps, AstOp op, Tok t, Node *a, Node *b) {
  Node *n = ps_node(ps, N_BINARY, a->span.lo, b->span.hi);
  n->binary.op = op;
  n->binary.left = a;
  n->binary.right = b;
  n->binary.op_span = ps_span(ps, t.lo, t.hi);
  return ps_done(ps, n);
}

/* Puts the value of the place where the first call of `value`, of a chain f(a).g(b).0, takes its
 * first argument. */
static void ps_update(Parser *ps, const Node *target, Node *value) {
  Node *first = NULL;
  for (Node *n = value; n && !n->parens;) {
    if (n->kind == N_CALL) first = n;
    n = n->kind == N_CALL    ? n->call.callee
        : n->kind == N_DOT   ? n->dot.object
        : n->kind == N_ITEM  ? n->item.object
        : n->kind == N_INDEX ? n->index.object
                             : NULL;
  }
  if (!first) {
    if (value->kind == N_BAD) return;
    Diag *g = lex_error(&ps->lx, ERR_SYNTAX_ASSIGN, value->span.lo, value->span.hi,
                        "after `.=` stands a call, which gets what the place was");
    lex_help(&ps->lx, g, "`xs .= push(v)` is `xs = push(xs, v)`");
    return;
  }
  Node *place = ps_node(ps, N_PLACE, target->span.lo, target->span.hi), *c = first->call.callee;
  if (c->kind == N_NAME && !c->parens) {
    Node *dot = ps_node(ps, N_DOT, c->span.lo, c->span.hi);
    dot->dot.object = place;
    dot->dot.name = (Word){.name = c->name, .span = c->span};
    first->call.callee = dot;
    return;
  }
  Node *arg = ps_node(ps, N_ARG, target->span.lo, target->span.hi);
  arg->arg.value = place;
  NodeList *all = ps_push(ps, ps_list(ps), arg);
  for (uint32_t i = 0; i < first->call.args.count; i++)
    all = ps_push(ps, all, first->call.args.items[i]);
  first->call.args = *all;
}

/* The pattern that takes apart what the places of a tuple get, and in `sets` an assignment of each
 * name of it to its place. The names hold a blank, as none in a program does. */
static Node *places(Parser *ps, Node *target, Node *value, NodeList *sets) {
  Span at = target->span;
  bool tuple = target->kind == N_TUPLE;
  Node *p;
  if (tuple) {
    const NodeList *l = &target->list;
    const NodeList *v =
        value && value->kind == N_TUPLE && value->list.count == l->count ? &value->list : NULL;
    p = ps_node(ps, N_PAT_TUPLE, at.lo, at.hi);
    for (uint32_t i = 0; i < l->count; i++)
      ps_push(ps, &p->list, places(ps, l->items[i], v ? v->items[i] : NULL, sets));
    return ps_done(ps, p);
  }
  if (target->kind == N_NAME && !strcmp(target->name, "_"))
    return ps_node(ps, N_PAT_WILD, at.lo, at.hi);
  char text[16];
  int n = snprintf(text, sizeof text, " %u", (unsigned)sets->count);
  p = ps_node(ps, N_PAT_NAME, at.lo, at.hi);
  p->word = (Word){.name = names_get(ps->c->names, text, (size_t)n), .span = at};
  Node *given = ps_node(ps, N_NAME, at.lo, at.hi);
  if (value) given->span = value->span;
  given->name = p->word.name;
  ps_push(ps, sets, ps_assign(ps, AST_NONE, target, given));
  return p;
}

/* (a, b) = e: { let (" 0", " 1") = e; a = " 0"; b = " 1" } */
static Node *assign_each(Parser *ps, Node *target, Node *value) {
  NodeList sets = {0}, all = {0};
  Node *let = ps_node(ps, N_LET, target->span.lo, value->span.hi);
  let->let.pat = places(ps, target, value, &sets);
  let->let.init = value;
  let->let.places = target;
  ps_push(ps, &all, ps_done(ps, let));
  for (uint32_t i = 0; i < sets.count; i++) ps_push(ps, &all, sets.items[i]);
  Node *n = ps_node(ps, N_EXPR_STMT, target->span.lo, value->span.hi);
  n->expr = ps_block(ps, &all, target->span.lo, value->span.hi);
  return ps_done(ps, n);
}

Node *ps_assign(Parser *ps, AstOp op, Node *target, Node *value) {
  if (op == AST_NONE && target->kind == N_TUPLE) return assign_each(ps, target, value);
  if (op == AST_UPDATE) ps_update(ps, target, value);
  Node *n = ps_node(ps, N_ASSIGN, target->span.lo, value->span.hi);
  n->assign.op = op;
  n->assign.target = target;
  n->assign.value = value;
  if (target->kind == N_CALL && target->call.callee->kind == N_NAME && ps_in_model(ps))
    return ps_done(ps, n); /* ps_members files the error, with a help */
  if (target->kind != N_NAME && target->kind != N_DOT && target->kind != N_INDEX &&
      target->kind != N_BAD) {
    Diag *g = lex_error(&ps->lx, ERR_SYNTAX_ASSIGN, target->span.lo, target->span.hi,
                        "only a name, a field or an index can be assigned");
    if (target->kind == N_TUPLE)
      lex_help(&ps->lx, g, "several places are assigned by `=`: `(a, b) = (a + 1, b + 1)`");
    else if (target->kind == N_BINARY)
      lex_help(&ps->lx, g, "to compare write `==`");
    else if (target->kind == N_CALL && target->call.callee->kind == N_NAME)
      lex_help(&ps->lx, g, "a function is declared with `fn f(x) = e`");
    else if (target->kind == N_ITEM)
      lex_help(&ps->lx, g,
               "items of a tuple are fixed; make a new tuple, or use a record: `r.x = e`");
  }
  return ps_done(ps, n);
}

Node *ps_value(Parser *ps, Node *e) {
  if (e->kind != N_BLOCK || e->parens || e->list.count) return e;
  Diag *g = lex_error(&ps->lx, ERR_SYNTAX_WORD, e->span.lo, e->span.hi,
                      "an empty dict is `[:]`; an empty block is no value");
  lex_help(&ps->lx, g, "the value of nothing is `()`, the empty set `set()`");
  return ps_node(ps, N_BAD, e->span.lo, e->span.hi);
}

/* ---- arguments of a clause: what stands in parentheses comes as a call without its function */

Node *ps_clause_arg(Parser *ps, Node *arg) {
  if (arg->kind != N_CALL || arg->call.callee) return arg;
  const NodeList *l = &arg->call.args;
  uint32_t lo = arg->span.lo, hi = arg->span.hi, named = 0;
  for (uint32_t i = 0; i < l->count; i++) named += l->items[i]->arg.name.name != NULL;
  if (l->count == 1 && !named) {
    Node *e = l->items[0]->arg.value;
    e->parens = false; /* `f (({ }))` has the tree of `f ({ })` */
    e = ps_value(ps, e);
    e->parens = true;
    e->span = arg->span;
    return e;
  }
  if (l->count == 0 || (named && named < l->count)) {
    lex_error(&ps->lx, ERR_SYNTAX, lo, hi, "parentheses hold an expression, a tuple or a record");
    return ps_node(ps, N_BAD, lo, hi);
  }
  Node *e = ps_node(ps, named ? N_RECORD : N_TUPLE, lo, hi);
  for (uint32_t i = 0; i < l->count; i++)
    VEC_PUSH(ps->c->arena, e->list.items, e->list.count, e->list.cap,
             named ? l->items[i] : l->items[i]->arg.value);
  return ps_done(ps, e);
}

/* A word as the expression that it is in front of `(`. */
static Node *word_value(Parser *ps, const Node *word) {
  Node *e = NULL;
  for (uint32_t i = 0; i < word->path.count; i++) {
    const Word *w = &word->path.items[i];
    Node *n = ps_node(ps, e ? N_DOT : N_NAME, word->span.lo, w->span.hi);
    if (e) {
      n->dot.object = e;
      n->dot.name = *w;
    } else {
      n->name = w->name;
    }
    e = ps_done(ps, n);
  }
  return e;
}

NodeList *ps_clause_args(Parser *ps, NodeList *l, Node *arg) {
  Node *last = l->count ? l->items[l->count - 1] : NULL;
  bool call = arg->kind == N_CALL && !arg->call.callee && last && last->span.hi == arg->span.lo;
  if (!call || (last->kind != N_WORD && last->kind != N_CALL))
    return ps_push(ps, l, ps_clause_arg(ps, arg));
  arg->call.callee = last->kind == N_WORD ? word_value(ps, last) : last;
  arg->span.lo = last->span.lo;
  l->items[l->count - 1] = ps_done(ps, arg);
  return l;
}

Node *ps_pattern(Parser *ps, Tok t) {
  bool wild = t.hi - t.lo == 1 && t.v.name[0] == '_';
  Node *n = ps_node(ps, wild ? N_PAT_WILD : N_PAT_NAME, t.lo, t.hi);
  if (!wild) n->word = ps_word(ps, t);
  return n;
}

Node *ps_tuple_type(Parser *ps, NodeList *l, bool comma, uint32_t lo, uint32_t hi) {
  uint32_t named = 0;
  for (uint32_t i = 0; i < l->count; i++) named += l->items[i]->kind == N_TYPE_FIELD;
  if (!named && l->count == 1 && !comma) return l->items[0]; /* just parentheses */
  if (named && named < l->count) {
    Diag *g = lex_error(&ps->lx, ERR_SYNTAX_MIXED, lo, hi,
                        "some items of this type have names, some have none");
    lex_help(&ps->lx, g, "a tuple is (A, B), a record is (x: A, y: B)");
    return ps_node(ps, N_BAD, lo, hi);
  }
  Node *n = ps_node(ps, named ? N_TYPE_RECORD : N_TYPE_TUPLE, lo, hi);
  n->list = *l;
  return ps_done(ps, n);
}

/* A declaration where none may stand: files an error and returns N_BAD in its place. */
static Node *misplaced(Parser *ps, Node *n, const char *what, const char *help) {
  uint32_t hi = n->span.lo + 1;
  const char *s = ps->lx.text;
  while (hi < n->span.hi && (s[hi] | 0x20) >= 'a' && (s[hi] | 0x20) <= 'z') hi++;
  Diag *g = lex_error(&ps->lx, ERR_SYNTAX_PLACE, n->span.lo, hi, "%s", what);
  lex_help(&ps->lx, g, help);
  return ps_node(ps, N_BAD, n->span.lo, n->span.hi);
}

static const char param_help[] =
    "`param` and `buffer` are members: model M(..) { param w: f32[3] }";

Node *ps_block(Parser *ps, NodeList *l, uint32_t lo, uint32_t hi) {
  for (uint32_t i = 0; i < l->count; i++) {
    Node *n = l->items[i];
    const char *what = NULL, *help = "move it out of the block";
    switch (n->kind) {
    case N_USE: what = "`use` stands at the top level of a file"; break;
    case N_TYPE_DECL: what = "a `type` is declared at the top level of a file"; break;
    case N_POLICY_DECL: what = "a `policy` is declared at the top level of a file"; break;
    case N_TEST: what = "a `test` stands at the top level of a file"; break;
    case N_MODEL: what = "a `model` is declared at the top level of a file"; break;
    case N_FIELD:
      what = "a param or buffer belongs to a `model`";
      help = param_help;
      break;
    case N_FN:
      if (n->fn->is_proc) {
        what = "a `proc` is declared at the top level of a file";
        help = "a `fn` can be declared inside a block";
      }
      break;
    default: break;
    }
    if (what) l->items[i] = misplaced(ps, n, what, help);
  }
  Node *n = ps_node(ps, N_BLOCK, lo, hi);
  n->list = *l;
  return ps_done(ps, n);
}

void ps_file(Parser *ps, NodeList *l) {
  for (uint32_t i = 0; i < l->count; i++)
    if (l->items[i]->kind == N_FIELD)
      l->items[i] =
          misplaced(ps, l->items[i], "a param or buffer belongs to a `model`", param_help);
  ps->root->file.items = *l;
}

NodeList *ps_members(Parser *ps, NodeList *l) {
  for (uint32_t i = 0; i < l->count; i++) {
    Node *n = l->items[i];
    switch (n->kind) {
    case N_FIELD:
    case N_FN:
    case N_ASSERT:
    case N_BAD: break;
    case N_LET:
      if (n->let.is_var)
        l->items[i] = misplaced(ps, n, "a model has no `var`",
                                "a value that changes is a `buffer`; one that does not is a `let`");
      else if (n->let.pat->kind != N_PAT_NAME)
        l->items[i] = misplaced(ps, n, "a field has one plain name", "write one `let` per field");
      break;
    default:
      if (n->kind == N_ASSIGN && n->assign.target->kind == N_CALL) {
        Span call = n->assign.target->span, name = n->assign.target->call.callee->span;
        Diag *g = lex_error(&ps->lx, ERR_SYNTAX_PLACE, name.lo, name.hi,
                            "a method begins with `fn` or `proc`");
        Buf help;
        buf_init_arena(&help, ps->c->arena);
        buf_printf(&help, "write `fn %.*s = ..`", (int)(call.hi - call.lo), ps->lx.text + call.lo);
        lex_help(&ps->lx, g, help.s);
        l->items[i] = ps_node(ps, N_BAD, n->span.lo, n->span.hi);
        break;
      }
      l->items[i] = misplaced(ps, n, "this is no member of a model",
                              "members are param, buffer, let, assert, fn and proc; what runs "
                              "stands in a fn");
    }
  }
  return l;
}

const char *ps_plain(Parser *ps, Node *string) {
  uint32_t n;
  const char *s = ast_plain_text(string, &n);
  if (s && strlen(s) == n) return s;
  lex_error(&ps->lx, ERR_SYNTAX_STRING, string->span.lo, string->span.hi,
            s ? "this text holds a NUL character" : "this text is fixed: it can have no holes");
  string->string.count = 0;
  return "";
}

/* Whether only blanks and exactly one newline are between the two places. */
static bool next_line(const char *text, uint32_t lo, uint32_t hi) {
  int lines = 0;
  for (uint32_t i = lo; i < hi; i++) {
    if (text[i] == '\n')
      lines++;
    else if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r')
      return false;
  }
  return lines == 1;
}

const char *ps_doc(Parser *ps, uint32_t lo) {
  const Lexer *lx = &ps->lx;
  size_t hi = 0, n = lx->comment_count; /* comments before the place: those below hi */
  while (hi < n) {
    size_t mid = hi + (n - hi) / 2;
    if (lx->comments[mid].lo < lo)
      hi = mid + 1;
    else
      n = mid;
  }
  size_t first = hi;
  for (uint32_t end = lo; first > 0; first--) {
    const Comment *k = &lx->comments[first - 1];
    if (!k->doc || !k->own_line || !next_line(lx->text, k->hi, end)) break;
    end = k->lo;
  }
  if (first == hi) return NULL;
  Buf b;
  buf_init_arena(&b, ps->c->arena);
  for (size_t i = first; i < hi; i++) {
    uint32_t from = lx->comments[i].lo;
    while (from < lx->comments[i].hi && lx->text[from] == '#') from++;
    if (from < lx->comments[i].hi && lx->text[from] == ' ') from++;
    if (i > first) buf_putc(&b, '\n');
    buf_put(&b, lx->text + from, lx->comments[i].hi - from);
  }
  return b.s;
}

/* ---- feeding */

void ps_feed(Parser *ps, Tok t) {
  if (gr_depth(ps->gr) > GR_STACK - 64) {
    Diag *g = lex_error(&ps->lx, ERR_SYNTAX_DEEP, t.lo, t.hi, "nested too deeply");
    lex_help(&ps->lx, g, "give a part a name with `let`, or move it to a `fn` of its own");
    ps->lx.stop = true;
    return;
  }
  if (t.kind == TK_DSLASH) ps->line_division = t.lo;
  if (t.kind == TK_SEP) {
    ps->line_division = UINT32_MAX;
    ps->lx.quiet = false;
  }
  gr_feed(ps->gr, t);
  if (t.kind == TK_SEP || t.kind == 0) lex_edges(&ps->lx);
  ps->prev2 = ps->prev;
  ps->prev = t;
}

/* Skips to the end of the statement at a depth of `want` brackets. */
static Tok skip_statement(Parser *ps, Tok t, uint32_t want) {
  Lexer *lx = &ps->lx;
  for (;; t = lex_next(lx)) {
    if (t.kind == 0 || lx->depth < want) return t;
    if (lx->depth == want && t.kind == TK_SEP) return t;
    char top = lx->depth ? lx->open[lx->depth - 1].kind : '{';
    if (t.first && ps_is_statement_word(ps, t) && (top != '{' || lx->depth == want)) {
      if (lx->depth > want) lx->depth = want;
      ps_feed(ps, (Tok){.kind = TK_SEP, .lo = t.lo, .hi = t.lo});
      return t;
    }
  }
}

/* After an error at `t`: puts N_BAD where the statement is, and returns the token to go on with. */
static Tok recover(Parser *ps, Tok t) {
  Lexer *lx = &ps->lx;
  int depth = gr_depth(ps->gr);
  int closed = 0; /* closing brackets cut off whose opening one is still there */
  while (depth > 0 && (closed || !gr_accepts(ps->gr, TK_BAD))) {
    closed -= gr_bracket(gr_symbol(ps->gr, 0));
    gr_cut(ps->gr, --depth);
  }
  ps_feed(ps, (Tok){.kind = TK_BAD, .lo = t.lo, .hi = t.hi});
  lx->mute = true;
  t = skip_statement(ps, t, (uint32_t)gr_brackets(ps->gr));
  lx->mute = lx->quiet = false;
  lx->edge_count = 0; /* one error per statement is enough */
  return t;
}

static void run(Parser *ps) {
  Lexer *lx = &ps->lx;
  Tok t = lex_next(lx);
  uint32_t failed_at = UINT32_MAX; /* a token recovery was tried for */
  while (!lx->stop) {
    if (t.kind == TK_BAD) { /* the lexer has filed an error */
      if (t.semi) {
        t = lex_next(lx);
      } else {
        t = recover(ps, t);
      }
      continue;
    }
    if (gr_accepts(ps->gr, t.kind)) {
      ps_feed(ps, t);
      if (t.kind == 0) return;
      t = lex_next(lx);
      continue;
    }
    if (!lx->quiet && ps_mend(ps, &t)) {
      if (t.kind == TK_BAD) t = lex_next(lx);
      continue;
    }
    if (t.lo == failed_at && t.kind != 0) { /* does not happen; guards against an endless loop */
      t = lex_next(lx);
      continue;
    }
    failed_at = t.lo;
    ps_complain(ps, t);
    if (!lx->stop) t = recover(ps, t);
  }
  gr_cut(ps->gr, gr_depth(ps->gr) > 1 ? 1 : gr_depth(ps->gr));
  gr_feed(ps->gr, (Tok){.kind = 0, .lo = lx->n, .hi = lx->n});
}

/* ---- valid text */

/* Length of the UTF-8 character at s, 0 if there is none. */
static unsigned utf8(const unsigned char *s, const unsigned char *end) {
  unsigned c = s[0];
  unsigned n = c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
  if (n == 0 || (size_t)(end - s) < n) return 0;
  for (unsigned i = 1; i < n; i++)
    if ((s[i] & 0xc0) != 0x80) return 0;
  if (n == 3 && ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f))) return 0;
  if (n == 4 && ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))) return 0;
  return n;
}

static bool readable(Parser *ps, const char *text, size_t n) {
  const unsigned char *s = (const unsigned char *)text, *end = s + n;
  while (s < end) {
    unsigned len = *s ? utf8(s, end) : 0;
    if (len == 0) {
      uint32_t at = (uint32_t)(s - (const unsigned char *)text);
      Diag *g = *s ? lex_error(&ps->lx, ERR_SYNTAX_BYTES, at, at + 1,
                               "the byte 0x%02x here is not UTF-8", *s)
                   : lex_error(&ps->lx, ERR_SYNTAX_BYTES, at, at + 1, "a NUL byte stands here");
      lex_help(&ps->lx, g, "a ckl file is text in UTF-8; is this another kind of file?");
      return false;
    }
    s += len;
  }
  return true;
}

typedef struct Job {
  Parser *ps;
  Arena scratch;
} Job;

static void parse_job(void *ud) {
  Job *job = ud;
  job->ps->gr = arena_alloc(&job->scratch, gr_size());
  gr_init(job->ps->gr, job->ps);
  run(job->ps);
}

Node *parse_file(const ParseContext *c, uint32_t file) {
  const Source *src = src_get(c->sources, file);
  Parser ps = {.c = c, .file = file, .line_division = UINT32_MAX};
  size_t n = src->length;
  bool fits = n < UINT32_MAX / 4;
  lex_init(&ps.lx, c, file, src->text, fits ? (uint32_t)n : 0);
  ps.root = ps_node(&ps, N_FILE, 0, fits ? (uint32_t)n : 0);
  if (!fits) {
    lex_error(&ps.lx, ERR_SYNTAX_BYTES, 0, 0, "the file is too long: %zu bytes, at most 2^30 - 1",
              n);
    return ps.root;
  }
  if (!readable(&ps, src->text, n)) return ps.root;
  Mem *mem = c->arena->mem;
  Job job = {.ps = &ps};
  arena_init(&job.scratch, mem);
  int code = mem_protect(mem, parse_job, &job);
  arena_free(&job.scratch);
  if (code != MEM_OK) mem_throw(mem, code);
  ps.root->file.comments = ps.lx.comments;
  ps.root->file.comment_count = (uint32_t)ps.lx.comment_count;
  ps.root = ps_done(&ps, ps.root);
  return ps.root;
}

bool parse_is_name(const char *text) {
  size_t n = strlen(text);
  if (n >= UINT32_MAX / 4) return false;
  Lexer lx;
  lex_init(&lx, NULL, 0, text, (uint32_t)n);
  Tok t = lex_next(&lx);
  return t.kind == TK_IDENT && t.lo == 0 && t.hi == n;
}

bool parse_repl_complete(const char *text, size_t n) {
  if (n >= UINT32_MAX / 4 || memchr(text, 0, n)) return true;
  Lexer lx;
  lex_init(&lx, NULL, 0, text, (uint32_t)n);
  bool can_end = true; /* no token at all */
  for (;;) {
    uint32_t open = lx.depth;
    bool string = false; /* inside one that ends with its line */
    for (uint32_t i = 0; i < open; i++) string |= strchr("SR", lx.open[i].kind) != NULL;
    uint32_t complaints = lx.errors;
    Tok t = lex_next(&lx);
    if (lx.errors > complaints && t.lo < lx.n) return true; /* it has an error anyway */
    if (lx.stop) return true;
    if (lx.errors > complaints) return string; /* the end, with brackets open */
    if (t.kind == 0) return can_end;
    can_end = lex_can_end(t.kind) || t.kind == TK_SEP;
  }
}
