/* The text form of a graph: its grammar and the printer. graph/read.c has the reader.
 *
 * In: a graph. Out: lines that hold everything: types with device and alias class, symbolic dims,
 * attributes, regions, tokens, provenance, checks, facts. Reading the text makes an equal graph,
 * which prints as the same text. Used symbols are declared in the order of their table.
 *
 *   file     = "graph" [string] "{" { symbol | fact } { block } body "}"
 *   symbol   = ( "sym" | "counter" ) ( name | string | "?" ) [ "@" span ]
 *              ? and names that are no words are written ?0 ?1 .. in dims
 *   fact     = "fact" dim "," dim                             the first is a multiple of the second
 *   block    = "block" number [ "in" number ] [ "budget=" number ] [ "auto" ] [ "saves" ]
 *              [ "reentrant" ] string [ "@" span ]               numbers count up from 1
 *   body     = { node | check } [ "return" { value } ]
 *   node     = "%" number "=" op { value } [ "{" { attr } "}" ] [ ":" type { "," type } ] [ prov ]
 *              { "region" [string] "{" body "}" }                 numbers count up from 0
 *   value    = "%" number [ "." number ]                          node and result
 *   attr     = key "=" ( whole | float | "(" [ whole { "," whole } ] ")"
 *              | "<" dim ">" | "[" [ dim { "," dim } ] "]" | string )
 *   type     = "token" | dtype [ "[" dim { "," dim } "]" ] [ "on" device ] [ "~" class ]
 *                                                             (views get a class if none is given)
 *   check    = "check" ( "eq" | "ge" | "divides" ) dim "," dim [ string [ string ] ] [ prov ]
 *            | "check" "fits" dim "," dtype [ string [ string ] ] [ prov ]
 *   prov     = "@" [ span ] [ "path=" string ] [ "name=" string ] [ "region=" number ]
 *              [ "within=" number ] [ "origin=" number ] [ "tag=" tag ] [ "backward" ]
 *              [ "recomputed" ] [ "anomaly" ]
 *   span     = file ":" lo "-" hi                                 number of a source, byte range
 *   string   = '"' .. '"' with \" \\ \n \xHH
 *   dim      = sums, products, // and % of numbers and symbols, as dim.c prints them
 *
 * A whole number that is a dtype or a device is written as a name. A float has a point, an
 * exponent, or is inf, -inf, nan. Each construct ends with its line; blank lines and lines that
 * begin with # are skipped; the indentation is free.
 * The plain form, for hashing, leaves out provenance, names, alias classes and the texts of checks.
 */
#include <string.h>

#include "graph/copy.h"
#include "graph/op.h"
#include "graph/pass.h"

typedef struct Printer {
  Buf *out;
  bool plain;
  DimTab *dims; /* a table of just the symbols used */
  Dim *to;      /* symbol of the graph's table -> dim of `dims` */
  Sym count;
  const Graph *g; /* the one being printed */
  int indent;
} Printer;

static const char *const device_name[DEV_COUNT] = {"cpu", "cuda", "sim", "spill"};

static void put_string(Buf *b, const char *s) {
  buf_putc(b, '"');
  for (; *s; s++) {
    unsigned char c = (unsigned char)*s;
    if (c == '"' || c == '\\')
      buf_printf(b, "\\%c", c);
    else if (c == '\n')
      buf_puts(b, "\\n");
    else if (c < 0x20 || c == 0x7f)
      buf_printf(b, "\\x%02x", c);
    else
      buf_putc(b, (char)c);
  }
  buf_putc(b, '"');
}

static void put_dim(Printer *p, Dim d) {
  dim_print(p->out, p->dims, dim_import(p->dims, p->g->dims, d, p->to, p->count));
}

static void put_type(Printer *p, const Type *t) {
  Buf *b = p->out;
  if (t->kind != TK_TENSOR) {
    buf_puts(b, t->kind == TK_TOKEN ? "token" : "stash");
    return;
  }
  buf_puts(b, dtype_info[t->dtype].name);
  if (t->rank) {
    buf_putc(b, '[');
    for (int i = 0; i < t->rank; i++) {
      if (i) buf_puts(b, ", ");
      put_dim(p, t->dim[i]);
    }
    buf_putc(b, ']');
  }
  if (t->dev != DEV_CPU) buf_printf(b, " on %s", device_name[t->dev]);
  if (t->alias && !p->plain) buf_printf(b, " ~%u", (unsigned)t->alias);
}

/* Writes a whole number; dtypes and devices by name. */
static void put_whole(Buf *b, uint16_t key, int64_t n) {
  if (key == AT_DTYPE && (n == -TK_TOKEN || n == -TK_STASH))
    buf_puts(b, n == -TK_TOKEN ? "token" : "stash");
  else if (key == AT_DTYPE && n >= 0 && n < DT_COUNT)
    buf_puts(b, dtype_info[n].name);
  else if (key == AT_DEVICE && n >= 0 && n < DEV_COUNT)
    buf_puts(b, device_name[n]);
  else
    buf_int(b, n);
}

static void put_attr(Printer *p, const Attr *a) {
  Buf *b = p->out;
  char num[64];
  buf_printf(b, "%s=", attr_name[a->key]);
  switch ((AttrKind)a->kind) {
  case AK_INT: put_whole(b, a->key, a->u.i); break;
  case AK_FLOAT:
    if (a->u.f != a->u.f) {
      buf_puts(b, "nan");
    } else {
      str_f64(num, a->u.f);
      buf_puts(b, num);
    }
    break;
  case AK_INTS:
    buf_putc(b, '(');
    for (uint32_t i = 0; i < a->count; i++) {
      if (i) buf_puts(b, ", ");
      put_whole(b, a->key, a->u.ints[i]);
    }
    buf_putc(b, ')');
    break;
  case AK_DIM:
    buf_putc(b, '<');
    put_dim(p, (Dim)a->u.i);
    buf_putc(b, '>');
    break;
  case AK_DIMS:
    buf_putc(b, '[');
    for (uint32_t i = 0; i < a->count; i++) {
      if (i) buf_puts(b, ", ");
      put_dim(p, (Dim)a->u.ints[i]);
    }
    buf_putc(b, ']');
    break;
  case AK_TEXT: put_string(b, a->u.text); break;
  }
}

static bool has_span(Span s) {
  return s.file || s.lo || s.hi;
}

static void put_span(Buf *b, Span s) {
  buf_printf(b, "%u:%u-%u", (unsigned)s.file, (unsigned)s.lo, (unsigned)s.hi);
}

static void put_prov(Printer *p, const Prov *v) {
  Buf *b = p->out;
  bool any = has_span(v->span) || v->path || v->name || v->region || v->within || v->origin != -1 ||
             v->tag || v->backward || v->recomputed || v->anomaly;
  if (!any || p->plain) return;
  buf_puts(b, " @");
  if (has_span(v->span)) {
    buf_putc(b, ' ');
    put_span(b, v->span);
  }
  if (v->path) {
    buf_puts(b, " path=");
    put_string(b, v->path);
  }
  if (v->name) {
    buf_puts(b, " name=");
    put_string(b, v->name);
  }
  if (v->region) buf_printf(b, " region=%u", (unsigned)v->region);
  if (v->within) buf_printf(b, " within=%u", (unsigned)v->within);
  if (v->origin != -1) buf_printf(b, " origin=%d", (int)v->origin);
  if (v->tag) buf_printf(b, " tag=%s", tag_info[v->tag < TAG_COUNT ? v->tag : TAG_NONE].name);
  if (v->backward) buf_puts(b, " backward");
  if (v->recomputed) buf_puts(b, " recomputed");
  if (v->anomaly) buf_puts(b, " anomaly");
}

static void line(Printer *p) {
  for (int i = 0; i < p->indent; i++) buf_puts(p->out, "  ");
}

static void put_value(Buf *b, Val v) {
  buf_printf(b, " %%%u", (unsigned)v.node);
  if (v.res) buf_printf(b, ".%u", (unsigned)v.res);
}

static void put_body(Printer *p, const Graph *g);

static void put_node(Printer *p, const Graph *g, uint32_t i) {
  stack_check();
  Buf *b = p->out;
  const GNode *n = &g->nodes[i];
  line(p);
  buf_printf(b, "%%%u = %s", (unsigned)i, op_info[n->op].text);
  for (uint32_t k = 0; k < n->operand_count; k++) put_value(b, g->operands[n->operand0 + k]);
  if (n->attr_count) {
    buf_puts(b, " {");
    for (uint32_t k = 0; k < n->attr_count; k++) {
      if (k) buf_putc(b, ' ');
      put_attr(p, &g->attrs[n->attr0 + k]);
    }
    buf_putc(b, '}');
  }
  for (uint32_t k = 0; k < n->result_count; k++) {
    buf_puts(b, k ? ", " : " : ");
    put_type(p, &g->types[n->result0 + k]);
  }
  put_prov(p, &g->provs[n->prov]);
  buf_putc(b, '\n');
  for (uint32_t k = 0; k < n->region_count; k++) {
    const Graph *r = g->regions[n->region0 + k];
    p->indent++;
    line(p);
    buf_puts(b, "region ");
    if (r->name && !p->plain) {
      put_string(b, r->name);
      buf_putc(b, ' ');
    }
    buf_puts(b, "{\n");
    p->indent++;
    put_body(p, r);
    p->indent--;
    line(p);
    buf_puts(b, "}\n");
    p->indent--;
    p->g = g;
  }
}

static void put_body(Printer *p, const Graph *g) {
  static const char *const check_name[] = {"eq", "ge", "divides", "fits"};
  Buf *b = p->out;
  p->g = g;
  for (uint32_t i = 0; i < g->node_count; i++) put_node(p, g, i);
  for (size_t i = 0; i < g->check_count; i++) {
    const SizeCheck *c = &g->checks[i];
    line(p);
    buf_printf(b, "check %s ", check_name[c->kind]);
    put_dim(p, c->a);
    buf_puts(b, ", ");
    int64_t dt;
    if (c->kind == CHECK_FITS && dim_is_const(g->dims, c->b, &dt))
      put_whole(b, AT_DTYPE, dt);
    else
      put_dim(p, c->b);
    if (c->text && !p->plain) {
      buf_putc(b, ' ');
      put_string(b, c->text);
      if (c->help) {
        buf_putc(b, ' ');
        put_string(b, c->help);
      }
    }
    put_prov(p, &g->provs[c->prov]);
    buf_putc(b, '\n');
  }
  line(p);
  buf_puts(b, "return");
  for (size_t i = 0; i < g->output_count; i++) put_value(b, g->outputs[i]);
  buf_putc(b, '\n');
}

/* ---- which symbols a graph uses */
typedef struct Seen {
  bool *used;
  Sym count;
} Seen;

static void mark(void *ud, Sym s) {
  Seen *seen = ud;
  if (s < seen->count) seen->used[s] = true;
}

static void mark_graph(Seen *seen, const Graph *g) {
  for (size_t i = 0; i < g->type_count; i++) {
    const Type *t = &g->types[i];
    for (int k = 0; t->kind == TK_TENSOR && k < t->rank; k++)
      dim_symbols(g->dims, t->dim[k], mark, seen);
  }
  for (size_t i = 0; i < g->attr_count; i++) {
    const Attr *a = &g->attrs[i];
    if (a->kind == AK_DIM) dim_symbols(g->dims, (Dim)a->u.i, mark, seen);
    for (uint32_t k = 0; a->kind == AK_DIMS && k < a->count; k++) {
      dim_symbols(g->dims, (Dim)a->u.ints[k], mark, seen);
    }
  }
  for (size_t i = 0; i < g->check_count; i++) {
    dim_symbols(g->dims, g->checks[i].a, mark, seen);
    dim_symbols(g->dims, g->checks[i].b, mark, seen);
  }
  for (size_t i = 0; i < g->region_count; i++) mark_graph(seen, g->regions[i]);
}

static bool plain_word(Name s) {
  if (!s || !*s || (*s >= '0' && *s <= '9') || *s == '.') return false;
  for (; *s; s++) {
    bool ok = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || (*s >= '0' && *s <= '9') ||
              *s == '_' || *s == '.' || (unsigned char)*s >= 0x80;
    if (!ok) return false;
  }
  return true;
}

static void put_blocks(Printer *p, const BlockTab *t) {
  for (size_t i = 0; t && !p->plain && i < t->count; i++) {
    const Block *k = &t->items[i];
    Buf *b = p->out;
    line(p);
    buf_printf(b, "block %zu", i + 1);
    if (k->parent) buf_printf(b, " in %u", (unsigned)k->parent);
    if (k->budget >= 0) buf_printf(b, " budget=%lld", (long long)k->budget);
    if (k->automatic) buf_puts(b, " auto");
    if (k->saves) buf_puts(b, " saves");
    if (k->reentrant) buf_puts(b, " reentrant");
    buf_putc(b, ' ');
    put_string(b, k->text ? k->text : "");
    if (has_span(k->span)) {
      buf_puts(b, " @ ");
      put_span(b, k->span);
    }
    buf_putc(b, '\n');
  }
}

static void print_graph(Buf *out, const Graph *g, bool plain) {
  Sym count = dim_symbol_count(g->dims);
  Seen seen = {ARENA_ARRAY(g->arena, bool, count + 1), count}, other = seen;
  Printer p = {.out = out, .plain = plain, .dims = dim_tab_new(g->arena), .count = count, .g = g};
  mark_graph(&seen, g);
  p.to = ARENA_ARRAY(g->arena, Dim, count + 1);
  buf_puts(out, "graph ");
  if (g->name && !plain) {
    put_string(out, g->name);
    buf_putc(out, ' ');
  }
  buf_puts(out, "{\n");
  p.indent = 1;
  for (Sym s = 0; s < count; s++) {
    p.to[s] = DIM_BAD;
    if (!seen.used[s]) continue;
    Name name = plain ? NULL : dim_symbol_name(g->dims, s);
    Span at = plain ? (Span){0, 0, 0} : dim_symbol_span(g->dims, s);
    bool counter = dim_is_counter(g->dims, s);
    p.to[s] = (counter ? dim_counter : dim_symbol)(p.dims, name, at, NULL);
    line(&p);
    buf_puts(out, counter ? "counter " : "sym ");
    if (!name)
      buf_putc(out, '?');
    else if (plain_word(name))
      buf_puts(out, name);
    else
      put_string(out, name);
    if (has_span(at)) {
      buf_puts(out, " @ ");
      put_span(out, at);
    }
    buf_putc(out, '\n');
  }
  Dim a, b;
  for (size_t i = 0; dim_fact(g->dims, i, &a, &b); i++) {
    other.used = ARENA_ARRAY(g->arena, bool, count + 1);
    dim_symbols(g->dims, a, mark, &other);
    dim_symbols(g->dims, b, mark, &other);
    bool all = true;
    for (Sym s = 0; s < count; s++) all = all && (!other.used[s] || seen.used[s]);
    if (!all) continue;
    line(&p);
    buf_puts(out, "fact ");
    put_dim(&p, a);
    buf_puts(out, ", ");
    put_dim(&p, b);
    buf_putc(out, '\n');
    dim_assume_divides(p.dims, dim_import(p.dims, g->dims, a, p.to, count),
                       dim_import(p.dims, g->dims, b, p.to, count));
  }
  put_blocks(&p, g->blocks);
  put_body(&p, g);
  buf_puts(out, "}\n");
}

void gr_print(Buf *out, const Graph *g) {
  print_graph(out, g, false);
}

void print_plain(Buf *out, const Graph *g) {
  print_graph(out, g, true);
}
