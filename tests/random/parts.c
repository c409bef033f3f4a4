/* The parts of a program, and how they are written down.
 *
 * In: the tree that whole.c makes. Out: the text of its files in a form. A part that is dropped is
 * not written; what needs it makes the text no program, which run.c sees. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tests/random/whole.h"

const char *part_text(Whole *w, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  size_t room = sizeof w->texts - w->used;
  char *to = w->texts + w->used;
  int n = vsnprintf(to, room, fmt, ap);
  va_end(ap);
  if (n < 0 || (size_t)n >= room) {
    w->full = true;
    return "";
  }
  w->used += (size_t)n + 1;
  return to;
}

int part_add(Whole *w, int into, Kind kind, const char *text) {
  if (w->parts == PARTS) {
    w->full = true;
    return 1;
  }
  int i = w->parts++;
  w->part[i] = (Part){.kind = kind, .text = text, .out = ""};
  if (into) {
    Part *p = &w->part[into];
    if (p->last)
      w->part[p->last].next = i;
    else
      p->first = i;
    p->last = i;
  }
  return i;
}

typedef struct Writer {
  const Whole *w;
  const Form *form;
  char *to;
  size_t at, cap;
} Writer;

static void put(Writer *o, const char *text) {
  size_t n = strlen(text);
  if (o->at + n + 1 > o->cap) return;
  memcpy(o->to + o->at, text, n + 1);
  o->at += n;
}

/* Each line of a text, indented. */
static void lines(Writer *o, const char *text, int depth) {
  while (*text) {
    size_t n = strcspn(text, "\n");
    for (int i = 0; i < depth; i++) put(o, "  ");
    if (o->at + n + 1 < o->cap) {
      memcpy(o->to + o->at, text, n);
      o->to[o->at += n] = 0;
    }
    put(o, "\n");
    text += n + (text[n] == '\n');
  }
}

static void clauses(Writer *o, const Part *p) {
  const char *before = " <";
  for (int i = p->first; i; i = o->w->part[i].next) {
    const Part *c = &o->w->part[i];
    if (c->kind != CLAUSE || c->dropped) continue;
    put(o, before);
    put(o, c->text);
    before = ", ";
  }
  if (before[0] == ',') put(o, ">");
}

static void indent(Writer *o, int depth) {
  for (int i = 0; i < depth; i++) put(o, "  ");
}

static void write_part(Writer *o, int at, int depth);

static void children(Writer *o, const Part *p, int depth) {
  for (int i = p->first; i; i = o->w->part[i].next) write_part(o, i, depth);
}

static void joined(Writer *o, const Part *p, int depth) {
  bool grad = p->kind == GRAD, sum = p->also && !grad;
  indent(o, depth);
  put(o, p->text);
  if (grad && o->form->plain) put(o, "wrap <backward plain> { ");
  if (grad) put(o, "grad(");
  bool some = false;
  for (int i = p->first; i; i = o->w->part[i].next) {
    if (o->w->part[i].dropped) continue;
    if (some) put(o, sum ? " + " : ", ");
    put(o, o->w->part[i].text);
    some = true;
  }
  put(o, p->out);
  if (grad) put(o, p->also && o->form->proc ? ", record = true)" : ")");
  if (grad && o->form->plain) put(o, " }");
  put(o, "\n");
}

/* The last `let` of a statement, with 1.0 for each value: `let (v1, v2) = (1.0, 1.0)`. */
static void simple(Writer *o, const char *text, int depth) {
  const char *let = NULL;
  for (const char *at = text; (at = strstr(at, "let ")); at++)
    if (at == text || at[-1] == '\n' || at[-1] == ' ') let = at;
  const char *end = let ? strstr(let, " = ") : NULL;
  if (!end) return;
  char value[200] = "";
  for (const char *at = let + 4; at < end && strlen(value) + 8 < sizeof value;) {
    size_t n = strcspn(at, "(), {}"), most = (size_t)(end - at);
    if (n == 0)
      strncat(value, at++, 1);
    else
      strcat(value, "1.0"), at += n < most ? n : most;
  }
  indent(o, depth);
  char line[300];
  snprintf(line, sizeof line, "%.*s = %s\n", (int)(end - let), let, value);
  put(o, line);
}

static void write_part(Writer *o, int at, int depth) {
  const Part *p = &o->w->part[at];
  const Form *form = o->form;
  if (p->dropped) return;
  if (p->flat) {
    if (p->kind == LINE)
      simple(o, p->text, depth);
    else
      children(o, p, depth);
    return;
  }
  switch (p->kind) {
  case LINE: lines(o, p->text, depth); break;
  case LAYERS: lines(o, form->blocks ? p->text : p->also, depth); break;
  case USE:
    if (!o->w->one_file) lines(o, p->text, depth);
    break;
  case CLAUSE:
  case ITEM: break; /* written by the part around it */
  case BATCH:
    if (form->loops) {
      lines(o, p->also, depth);
    } else {
      indent(o, depth);
      put(o, "let ");
      put(o, p->out);
      put(o, " = ");
      put(o, p->text);
      put(o, "\n");
    }
    break;
  case ELSE:
    lines(o, "} else {", depth - 1);
    children(o, p, depth);
    break;
  case GROUP:
  case ENTRY:
  case FUNCTION: {
    bool block = p->kind == FUNCTION && form->blocks;
    indent(o, depth);
    if (p->kind == ENTRY) put(o, form->proc ? "proc " : "fn ");
    put(o, p->text);
    put(o, " {\n");
    if (block) {
      indent(o, depth + 1);
      put(o, "checkpoint");
      clauses(o, p);
      put(o, " {\n");
    }
    children(o, p, depth + 1 + block);
    lines(o, p->out, depth + 1 + block);
    if (block) lines(o, "}", depth + 1);
    lines(o, p->also ? p->also : "}", depth);
    break;
  }
  case BLOCK:
    if (!form->blocks) {
      children(o, p, depth);
      break;
    }
    indent(o, depth);
    put(o, "let ");
    put(o, p->out);
    put(o, " = checkpoint");
    clauses(o, p);
    put(o, " {\n");
    children(o, p, depth + 1);
    lines(o, p->out, depth + 1);
    lines(o, "}", depth);
    break;
  case LOOP:
    indent(o, depth);
    if (form->blocks) {
      put(o, "checkpoint");
      clauses(o, p);
      put(o, " ");
    }
    put(o, p->text);
    put(o, " {\n");
    children(o, p, depth + 1);
    lines(o, "}", depth);
    break;
  case JOIN:
  case GRAD: joined(o, p, depth); break;
  }
}

void part_source(const Whole *w, const Form *form, int part, char *to, size_t cap) {
  Writer o = {w, form, to, 0, cap};
  to[0] = 0;
  write_part(&o, part, 0);
}

void whole_source(const Whole *w, const Form *form, char *to, size_t cap) {
  Writer o = {w, form, to, 0, cap};
  to[0] = 0;
  if (w->library && w->one_file) children(&o, &w->part[w->library], 0);
  children(&o, &w->part[w->program], 0);
}

bool whole_library(const Whole *w, const Form *form, char *to, size_t cap) {
  Writer o = {w, form, to, 0, cap};
  to[0] = 0;
  if (w->library && !w->one_file) children(&o, &w->part[w->library], 0);
  return o.at > 0;
}
