/* The reader of the text form (the grammar is at the top of graph/text.c).
 *
 * In: any bytes. Out: a verified graph in the given arena with a DimTab of its own, or NULL and a
 * text with the number of the line. Nodes go through gr_op, so types come from the shape rules; the
 * types in the text must agree with them. Alias classes (made where a text leaves them out),
 * provenance and checks are taken from the text, and the verifier tests the result. Any text is
 * safe: numbers are range-checked, and nesting is limited.
 */
#include <string.h>

#include "graph/build.h"
#include "graph/copy.h"
#include "graph/op.h"
#include "graph/pass.h"

enum { MAX_NESTING = 32, MAX_OPERANDS = 1 << 16 };

typedef struct Reader {
  Arena *a;
  Names *names;
  DimTab *dims;
  const char *p, *end;
  unsigned line;
  int nesting;
  uint32_t classes; /* the highest alias class in the text */
  GErr *e;
} Reader;

/* ---- characters and words */
static bool fault(Reader *r, const char *what) {
  gerr_set(r->e, ERR_IR_TEXT, -1, "%s", what);
  r->e->line = r->line;
  return false;
}

static void blanks(Reader *r) {
  while (r->p < r->end && (*r->p == ' ' || *r->p == '\t')) r->p++;
}

static bool at_end(Reader *r) {
  blanks(r);
  return r->p == r->end || *r->p == '\n' || *r->p == '\r';
}

/* Skips the rest of this line, and blank lines and comments; false at the end of the text. */
static bool next_line(Reader *r) {
  for (;;) {
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\r')) r->p++;
    if (r->p == r->end) return false;
    if (*r->p == '#') {
      while (r->p < r->end && *r->p != '\n') r->p++;
    } else if (*r->p == '\n') {
      r->p++;
      r->line++;
    } else {
      return true;
    }
  }
}

static bool word_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         (unsigned char)c >= 0x80;
}

static bool take(Reader *r, char c) {
  blanks(r);
  if (r->p == r->end || *r->p != c) return false;
  r->p++;
  return true;
}

static bool need(Reader *r, char c) {
  if (take(r, c)) return true;
  return fault(r, arena_printf(r->a, "`%c` is expected here", c));
}

static bool take_word(Reader *r, const char *w) {
  blanks(r);
  size_t n = strlen(w);
  if ((size_t)(r->end - r->p) < n || memcmp(r->p, w, n)) return false;
  if ((size_t)(r->end - r->p) > n && word_char(r->p[n])) return false;
  r->p += n;
  return true;
}

/* A word of at most 31 characters. */
static bool word(Reader *r, char *out) {
  size_t n = 0;
  blanks(r);
  while (r->p < r->end && word_char(*r->p)) {
    if (n == 31) return fault(r, "this word is too long");
    out[n++] = *r->p++;
  }
  out[n] = 0;
  return n > 0 || fault(r, "a word is expected here");
}

static bool number(Reader *r, int64_t lo, int64_t hi, int64_t *out) {
  blanks(r);
  const char *s = r->p;
  if (r->p < r->end && *r->p == '-') r->p++;
  while (r->p < r->end && *r->p >= '0' && *r->p <= '9') r->p++;
  if (str_to_i64(s, (size_t)(r->p - s), out) && *out >= lo && *out <= hi) return true;
  return fault(r, "a number in range is expected here");
}

static int hex(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool string(Reader *r, Name *out) {
  if (!need(r, '"')) return false;
  Buf b;
  buf_init_arena(&b, r->a);
  for (;;) {
    if (r->p == r->end || *r->p == '\n') return fault(r, "the string does not end");
    char c = *r->p++;
    if (c == '"') break;
    if (c == 0) return fault(r, "a zero byte in a string");
    if (c == '\\') {
      char k = r->p < r->end ? *r->p++ : 0;
      if (k == 'n') {
        c = '\n';
      } else if (k == '"' || k == '\\') {
        c = k;
      } else if (k == 'x' && r->end - r->p >= 2 && hex(r->p[0]) >= 0 && hex(r->p[1]) >= 0) {
        c = (char)(hex(r->p[0]) * 16 + hex(r->p[1]));
        r->p += 2;
        if (c == 0) return fault(r, "a zero byte in a string");
      } else {
        return fault(r, "this escape is not known");
      }
    }
    buf_putc(&b, c);
  }
  *out = names_get(r->names, b.n ? b.s : "", b.n);
  return true;
}

/* ---- dims and types */
static bool dim(Reader *r, Dim *out) {
  blanks(r);
  const char *s = r->p;
  int open = 0; /* brackets, in which a comma is of the dim */
  for (; r->p < r->end && *r->p; r->p++) {
    if (!word_char(*r->p) && !strchr(open > 0 ? " .'+-*/%()?," : " .'+-*/%()?", *r->p)) break;
    open += (*r->p == '(') - (*r->p == ')');
  }
  Sym before = dim_symbol_count(r->dims);
  if (!dim_parse(r->dims, r->names, s, (size_t)(r->p - s), out))
    return fault(r, "this is not a dim");
  if (dim_symbol_count(r->dims) != before) return fault(r, "a symbol is not declared");
  return true;
}

static bool span(Reader *r, Span *out) {
  int64_t file, lo, hi;
  if (!number(r, 0, UINT32_MAX, &file) || !need(r, ':') || !number(r, 0, UINT32_MAX, &lo) ||
      !need(r, '-') || !number(r, 0, UINT32_MAX, &hi)) {
    return false;
  }
  if (lo > hi) return fault(r, "this span ends before it begins");
  *out = (Span){(uint32_t)file, (uint32_t)lo, (uint32_t)hi};
  return true;
}

static bool type(Reader *r, Type *t) {
  char w[32];
  int64_t n;
  memset(t, 0, sizeof *t);
  if (!word(r, w)) return false;
  if (!strcmp(w, "token") || !strcmp(w, "stash")) {
    t->kind = *w == 't' ? TK_TOKEN : TK_STASH;
    if (t->kind == TK_STASH) t->dtype = DT_I64;
    return true;
  }
  int dt = dtype_find(w);
  if (dt < 0) return fault(r, "there is no such type");
  t->dtype = (uint8_t)dt;
  if (take(r, '[')) {
    do {
      if (t->rank == CKL_MAX_RANK) return fault(r, "too many axes");
      if (!dim(r, &t->dim[t->rank])) return false;
      t->rank++;
    } while (take(r, ','));
    if (!need(r, ']')) return false;
  }
  if (take_word(r, "on")) {
    if (take_word(r, "cuda"))
      t->dev = DEV_CUDA;
    else if (take_word(r, "sim"))
      t->dev = DEV_SIM;
    else if (take_word(r, "spill"))
      t->dev = DEV_SPILL;
    else if (!take_word(r, "cpu"))
      return fault(r, "there is no such device");
  }
  if (take(r, '~')) {
    if (!number(r, 1, r->classes, &n)) return false;
    t->alias = (uint32_t)n;
  }
  return true;
}

/* ---- provenance */
static bool prov(Reader *r, Prov *v) {
  int64_t n;
  *v = (Prov){.origin = -1};
  if (!take(r, '@')) return true;
  blanks(r);
  if (r->p < r->end && *r->p >= '0' && *r->p <= '9' && !span(r, &v->span)) return false;
  if (take_word(r, "path") && !(need(r, '=') && string(r, &v->path))) return false;
  if (take_word(r, "name") && !(need(r, '=') && string(r, &v->name))) return false;
  if (take_word(r, "region")) {
    if (!need(r, '=') || !number(r, 1, UINT32_MAX, &n)) return false;
    v->region = (uint32_t)n;
  }
  if (take_word(r, "within")) {
    if (!need(r, '=') || !number(r, 1, UINT32_MAX, &n)) return false;
    v->within = (uint32_t)n;
  }
  if (take_word(r, "origin")) {
    if (!need(r, '=') || !number(r, 0, INT32_MAX, &n)) return false;
    v->origin = (int32_t)n;
  }
  if (take_word(r, "tag")) {
    if (!need(r, '=')) return false;
    for (int i = TAG_NONE + 1; i < TAG_COUNT && !v->tag; i++) {
      if (take_word(r, tag_info[i].name)) v->tag = (uint8_t)i;
    }
    if (!v->tag) return fault(r, "there is no such tag");
  }
  if (take_word(r, "backward")) v->backward = 1;
  if (take_word(r, "recomputed")) v->recomputed = 1;
  if (take_word(r, "anomaly")) v->anomaly = 1;
  return true;
}

/* ---- attributes */
/* A number, or the name of a dtype or device. */
static bool whole(Reader *r, uint16_t key, int64_t *out) {
  static const char *const device[DEV_COUNT] = {"cpu", "cuda", "sim", "spill"};
  blanks(r);
  if (key == AT_DTYPE && take_word(r, "stash")) {
    *out = -TK_STASH;
    return true;
  }
  if (key == AT_DTYPE && take_word(r, "token")) {
    *out = -1;
    return true;
  }
  for (int i = 0; key == AT_DTYPE && i < DT_COUNT; i++) {
    if (take_word(r, dtype_info[i].name)) {
      *out = i;
      return true;
    }
  }
  for (int i = 0; key == AT_DEVICE && i < DEV_COUNT; i++) {
    if (take_word(r, device[i])) {
      *out = i;
      return true;
    }
  }
  return number(r, INT64_MIN, INT64_MAX, out);
}

static bool attr_list(Reader *r, Attr *a, char close) {
  int64_t *v = NULL;
  size_t n = 0, cap = 0;
  if (!take(r, close)) {
    do {
      int64_t x;
      Dim d = 0;
      if (a->kind == AK_DIMS) {
        if (!dim(r, &d)) return false;
        x = d;
      } else if (!whole(r, a->key, &x)) {
        return false;
      }
      if (n == MAX_OPERANDS) return fault(r, "this list is too long");
      VEC_PUSH(r->a, v, n, cap, x);
    } while (take(r, ','));
    if (!need(r, close)) return false;
  }
  a->count = (uint32_t)n;
  a->u.ints = v;
  return true;
}

static bool attr_number(Reader *r, Attr *a) {
  blanks(r);
  const char *s = r->p;
  bool digits = true;
  if (a->key == AT_DTYPE || a->key == AT_DEVICE) {
    a->kind = AK_INT;
    return whole(r, a->key, &a->u.i);
  }
  while (r->p < r->end && (word_char(*r->p) || *r->p == '.' || *r->p == '-' || *r->p == '+')) {
    digits = digits && ((*r->p >= '0' && *r->p <= '9') || *r->p == '-');
    r->p++;
  }
  size_t n = (size_t)(r->p - s);
  a->kind = digits ? AK_INT : AK_FLOAT;
  if (digits ? str_to_i64(s, n, &a->u.i) : str_to_f64(s, n, &a->u.f)) return true;
  return fault(r, "this is no attribute value");
}

static bool attribute(Reader *r, Attr *a) {
  char w[32];
  if (!word(r, w) || !need(r, '=')) return false;
  memset(a, 0, sizeof *a);
  int key = 0;
  while (key < AT_COUNT && strcmp(attr_name[key], w)) key++;
  if (key == AT_COUNT) return fault(r, "there is no such attribute");
  a->key = (uint16_t)key;
  blanks(r);
  char c = r->p < r->end ? *r->p : 0;
  if (c == '(') {
    r->p++;
    a->kind = AK_INTS;
    return attr_list(r, a, ')');
  }
  if (c == '[') {
    r->p++;
    a->kind = AK_DIMS;
    return attr_list(r, a, ']');
  }
  if (c == '<') {
    Dim d;
    r->p++;
    a->kind = AK_DIM;
    if (!dim(r, &d)) return false;
    a->u.i = d;
    return need(r, '>');
  }
  if (c == '"') {
    a->kind = AK_TEXT;
    return string(r, &a->u.text);
  }
  return attr_number(r, a);
}

/* ---- nodes */
static bool value(Reader *r, const Graph *g, Val *v) {
  int64_t node, res = 0;
  if (!need(r, '%') || !number(r, 0, UINT32_MAX - 1, &node)) return false;
  if (r->p < r->end && *r->p == '.') {
    r->p++;
    if (!number(r, 0, UINT16_MAX, &res)) return false;
  }
  *v = (Val){(uint32_t)node, (uint32_t)res};
  if (v->node >= g->node_count || v->res >= g->nodes[v->node].result_count) {
    return fault(r, "this value is not computed before it is used");
  }
  return true;
}

static bool body(Reader *r, Graph *g);

static bool title(Reader *r, Name *name) {
  blanks(r);
  *name = NULL;
  return (r->p == r->end || *r->p != '"' || string(r, name)) && need(r, '{') &&
         (at_end(r) || fault(r, "the line should end here"));
}

static bool node(Reader *r, Graph *g) {
  stack_check();
  char w[32];
  int64_t index;
  Val *in = NULL;
  size_t n = 0, cap = 0, types = 0, type_cap = 0, regions = 0, region_cap = 0;
  Type *given = NULL;
  Graph **region = NULL;
  Attr attr[AT_COUNT];
  int attrs = 0;
  Prov at;
  if (!need(r, '%') || !number(r, 0, UINT32_MAX - 1, &index)) return false;
  if ((size_t)index != g->node_count) return fault(r, "nodes are numbered from 0 in order");
  if (!need(r, '=') || !word(r, w)) return false;
  int op = op_find(w);
  if (op < 0) return fault(r, "there is no such op");
  for (blanks(r); r->p < r->end && *r->p == '%'; blanks(r)) {
    Val v;
    if (!value(r, g, &v)) return false;
    if (n == MAX_OPERANDS) return fault(r, "too many operands");
    VEC_PUSH(r->a, in, n, cap, v);
  }
  if (take(r, '{')) {
    while (!take(r, '}')) {
      if (attrs == AT_COUNT) return fault(r, "too many attributes");
      if (!attribute(r, &attr[attrs])) return false;
      for (int i = 0; i < attrs; i++) {
        if (attr[i].key == attr[attrs].key) return fault(r, "an attribute is given twice");
      }
      attrs++;
    }
  }
  if (take(r, ':')) {
    do {
      Type t;
      if (!type(r, &t)) return false;
      VEC_PUSH(r->a, given, types, type_cap, t);
    } while (take(r, ','));
  }
  if (!prov(r, &at)) return false;
  if (!at_end(r)) return fault(r, "the line should end here");
  unsigned line = r->line;
  /* Regions follow their node. */
  while (next_line(r) && take_word(r, "region")) {
    Name name;
    if (r->nesting == MAX_NESTING) return fault(r, "regions are nested too deeply");
    if (!title(r, &name)) return false;
    Graph *sub = gr_new(r->a, r->dims, r->names, name);
    sub->blocks = g->blocks;
    sub->alias_count = r->classes;
    r->nesting++;
    if (!body(r, sub)) return false;
    r->nesting--;
    VEC_PUSH(r->a, region, regions, region_cap, sub);
  }
  if (regions > 8) return fault(r, "too many regions");
  g->at = at;
  GErr e;
  Val v = gr_op(g, (OpCode)op, in, (int)n, attr, attrs, region, (int)regions, &e);
  r->line = val_none(v) ? line : r->line;
  if (val_none(v)) return fault(r, e.text);
  const GNode *made = &g->nodes[v.node];
  if (types != made->result_count) {
    r->line = line;
    return fault(r, "the node has another number of results");
  }
  for (size_t i = 0; i < types; i++) {
    Type *t = &g->types[made->result0 + i];
    bool same = t->kind == given[i].kind;
    if (same && t->kind == TK_TENSOR) {
      same = t->dtype == given[i].dtype && t->dev == given[i].dev && t->rank == given[i].rank;
      for (int k = 0; same && k < t->rank; k++) {
        same = dim_compare(r->dims, t->dim[k], given[i].dim[k]) == DIM_EQUAL;
      }
    }
    if (!same) {
      Buf b;
      buf_init_arena(&b, r->a);
      buf_puts(&b, "the result is ");
      type_print(&b, r->dims, t);
      buf_puts(&b, ", the text says ");
      type_print(&b, r->dims, &given[i]);
      r->line = line;
      return fault(r, b.s);
    }
    uint32_t alias = t->alias;
    *t = given[i];
    if (!t->alias) t->alias = alias;
  }
  if (op == OP_INPUT) VEC_PUSH(g->arena, g->inputs, g->input_count, g->input_cap, v);
  return true;
}

static bool check(Reader *r, Graph *g, SizeCheck *c) {
  if (take_word(r, "eq"))
    c->kind = CHECK_EQ;
  else if (take_word(r, "ge"))
    c->kind = CHECK_GE;
  else if (take_word(r, "divides"))
    c->kind = CHECK_DIVIDES;
  else if (take_word(r, "fits"))
    c->kind = CHECK_FITS;
  else
    return fault(r, "there is no such check");
  Name text = NULL, help = NULL;
  int64_t dt;
  if (!dim(r, &c->a) || !need(r, ',')) return false;
  if (c->kind != CHECK_FITS) {
    if (!dim(r, &c->b)) return false;
  } else {
    if (!whole(r, AT_DTYPE, &dt)) return false;
    c->b = dim_const(r->dims, dt);
  }
  blanks(r);
  if (r->p < r->end && *r->p == '"' && !string(r, &text)) return false;
  blanks(r);
  if (text && r->p < r->end && *r->p == '"' && !string(r, &help)) return false;
  c->text = text;
  c->help = help;
  if (!prov(r, &g->at)) return false;
  VEC_PUSH(g->arena, g->provs, g->prov_count, g->prov_cap, g->at);
  c->prov = (uint32_t)g->prov_count - 1;
  return at_end(r) || fault(r, "the line should end here");
}

/* Reads up to the closing brace. Called at the end of the opening line. */
static bool body(Reader *r, Graph *g) {
  SizeCheck *checks = NULL;
  size_t count = 0, cap = 0;
  bool returned = false;
  for (;;) {
    if (!next_line(r)) return fault(r, "the text ends in a graph");
    if (take(r, '}')) break;
    if (returned) return fault(r, "`return` comes last");
    if (*r->p == '%') {
      if (!node(r, g)) return false;
    } else if (take_word(r, "check")) {
      SizeCheck c;
      if (!check(r, g, &c)) return false;
      VEC_PUSH(r->a, checks, count, cap, c);
    } else if (take_word(r, "return")) {
      returned = true;
      for (blanks(r); r->p < r->end && *r->p == '%'; blanks(r)) {
        Val v;
        if (!value(r, g, &v)) return false;
        gr_output(g, v);
      }
      if (!at_end(r)) return fault(r, "the line should end here");
    } else {
      return fault(r, "a node, `check` or `return` is expected here");
    }
  }
  /* The checks of the text replace those of the rules; the verifier tests that none is missing. */
  g->checks = checks;
  g->check_count = count;
  g->check_cap = cap;
  g->at = (Prov){.origin = -1};
  return at_end(r) || fault(r, "the line should end here");
}

static bool block(Reader *r, Graph *g) {
  Block b = {.budget = -1};
  int64_t n, next = g->blocks ? (int64_t)g->blocks->count + 1 : 1;
  if (!number(r, next, next, &n)) return false;
  if (take_word(r, "in")) {
    if (!number(r, 1, next - 1, &n)) return false;
    b.parent = (uint32_t)n;
  }
  if (take_word(r, "budget") && !(need(r, '=') && number(r, 0, INT64_MAX, &b.budget))) return false;
  b.automatic = take_word(r, "auto");
  b.saves = take_word(r, "saves");
  b.reentrant = take_word(r, "reentrant");
  blanks(r);
  if (!string(r, &b.text)) return false;
  if (take(r, '@') && !span(r, &b.span)) return false;
  if (next > 10000) return fault(r, "too many blocks");
  gr_block(g, b);
  return true;
}

/* Reads up to the first line of the body. */
static bool declarations(Reader *r, Graph *g) {
  while (next_line(r)) {
    bool counter = take_word(r, "counter");
    if (counter || take_word(r, "sym")) {
      Name name = NULL;
      Span at = {0, 0, 0};
      blanks(r);
      if (take(r, '?')) {
        name = NULL;
      } else if (r->p < r->end && *r->p == '"') {
        if (!string(r, &name)) return false;
      } else {
        const char *s = r->p;
        while (r->p < r->end && (word_char(*r->p) || *r->p == '.')) r->p++;
        if (r->p == s) return fault(r, "a name is expected here");
        name = names_get(r->names, s, (size_t)(r->p - s));
      }
      if (take(r, '@') && !span(r, &at)) return false;
      if (dim_symbol_count(r->dims) > 10000) return fault(r, "too many symbols");
      (counter ? dim_counter : dim_symbol)(r->dims, name, at, NULL);
    } else if (take_word(r, "fact")) {
      Dim a, b;
      if (!dim(r, &a) || !need(r, ',') || !dim(r, &b)) return false;
      dim_assume_divides(r->dims, a, b);
    } else if (take_word(r, "block")) {
      if (!block(r, g)) return false;
    } else {
      return true;
    }
    if (!at_end(r)) return fault(r, "the line should end here");
  }
  return fault(r, "the text ends in a graph");
}

Graph *gr_read(Arena *a, Names *names, const char *text, size_t n, GErr *e) {
  GErr scratch;
  Reader r = {.a = a,
              .names = names,
              .dims = dim_tab_new(a),
              .p = text,
              .end = text + n,
              .line = 1,
              .e = e ? e : &scratch};
  Name name;
  if (!next_line(&r) || !take_word(&r, "graph")) {
    fault(&r, "a graph begins with `graph`");
    return NULL;
  }
  if (!title(&r, &name)) return NULL;
  Graph *g = gr_new(a, r.dims, names, name);
  if (!declarations(&r, g)) return NULL;
  for (const char *p = r.p; p < r.end; p++) {
    uint32_t k = 0;
    for (const char *q = p + 1; *p == '~' && q < r.end && *q >= '0' && *q <= '9' && k < 400000000;
         q++) {
      k = k * 10 + (uint32_t)(*q - '0');
    }
    if (k > r.classes) r.classes = k;
  }
  g->alias_count = r.classes;
  if (!body(&r, g)) return NULL;
  if (next_line(&r)) {
    fault(&r, "something follows the graph");
    return NULL;
  }
  GErr why;
  if (!gr_verify(g, &why)) {
    gerr_set(r.e, ERR_IR_TEXT, -1, "%s", why.text);
    return NULL;
  }
  return g;
}
