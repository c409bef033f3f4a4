/* Layer paths: the name of an instance by the names of the program, "net.blocks.0.attn".
 *
 * In: an instance, or a frame inside one of its methods. Out: its path, for traces of errors and
 * the provenance of graph nodes. A path starts at a top-level name that leads to the instance.
 * Names of the file are tried before those of its modules, children before constructor arguments.
 * If no name leads there, the path starts at the model's name of the outermost instance known to
 * hold it. Paths are found by search, only when they are asked for. Code asks while it is compiled,
 * and a compiled function that instances share records which instance a path meant.
 */
#include <string.h>

#include "lang/compile/compile.h"
#include "lang/compile/stage.h"
#include "lang/eval/call.h"
#include "lang/names/module.h"
#include "lang/value/fail.h"
#include "lang/value/path.h"

enum { PATH_DEEP = 64 };

/* One search for an instance, through names of the file or from instances known to hold it. */
typedef struct PathSearch {
  const Inst *want;
  bool by_arg; /* also through constructor arguments */
  /* the way, once it is found: the first name, and the name of each part */
  const char *root, *part[PATH_DEEP + 2];
  int depth;
  Table failed; /* shared containers (rc > 1) without a way to the instance, with the depth of the
                   search; so lists of lists that share items are searched once, not once per way */
} PathSearch;

static bool failed_before(const PathSearch *p, const Obj *o, int depth) {
  ptrdiff_t from = table_get(&p->failed, table_key(o));
  return from != TABLE_NONE && from <= depth;
}

static bool lead(PathSearch *p, Value v, int depth);

/* The way goes on by this name. */
static bool found(PathSearch *p, const char *name, int depth) {
  p->part[depth] = name;
  if (depth >= p->depth) p->depth = depth + 1;
  return true;
}

static bool lead_parts(PathSearch *p, Value v, int depth) {
  if (v.tag == V_INST) {
    const Inst *i = v.u.inst;
    for (size_t k = 0; k < i->count; k++) {
      if (i->fields[k].kind == FIELD_ARG && !p->by_arg) continue;
      if (lead(p, i->fields[k].v, depth + 1)) return found(p, i->fields[k].name, depth);
    }
    return false;
  }
  size_t count;
  const Value *items = value_items(v, &count);
  for (size_t k = 0; k < count; k++)
    if (lead(p, items[k], depth + 1)) return found(p, value_part_name(v.u.o->s, v, k), depth);
  return false;
}

/* Whether a way goes from v to the wanted instance; p gets its names. */
static bool lead(PathSearch *p, Value v, int depth) {
  stack_check();
  if (v.tag == V_INST && v.u.inst == p->want) return true;
  bool parts = v.tag == V_INST || v.tag == V_RECORD || v.tag == V_DICT || v.tag == V_TUPLE ||
               (v.tag == V_LIST && !v.u.list->weak);
  if (!parts || depth > PATH_DEEP) return false;
  const Obj *o = v.u.o;
  bool shared = o->rc > 1;
  if (shared && failed_before(p, o, depth)) return false;
  if (lead_parts(p, v, depth)) return true;
  if (shared) table_set(&p->failed, table_key(o), (size_t)depth);
  return false;
}

static bool lead_global(PathSearch *p, const Module *m) {
  for (size_t i = 0; i < m->global_count; i++) {
    const Global *g = &m->globals[i];
    if (g->kind != G_VALUE || !g->is_set || g->module != m) continue;
    p->root = g->name;
    if (lead(p, g->v, 0)) return true;
  }
  return false;
}

static Name way(Session *s, const PathSearch *p) {
  Buf out;
  buf_init_arena(&out, &s->scratch);
  buf_puts(&out, p->root);
  for (int k = 0; k < p->depth; k++) {
    if (*p->part[k] != '[') buf_putc(&out, '.');
    buf_puts(&out, p->part[k]);
  }
  return names_of(s->names, out.s);
}

/* The path of i; `roots` are instances that may hold it. */
static Name inst_path(Session *s, Inst *i, Inst *const *roots, size_t n) {
  for (int k = 0; k < 4; k++) { /* from names, then from roots, each without and with arguments */
    PathSearch p = {.want = i, .by_arg = k % 2, .failed = {.arena = &s->scratch}};
    bool leads = k < 2 && s->main && lead_global(&p, s->main);
    for (size_t m = 0; m < s->module_count && k < 2 && !leads; m++)
      leads = s->modules[m] != s->main && lead_global(&p, s->modules[m]);
    for (size_t r = 0; r < n && k >= 2 && !leads; r++) {
      p.root = roots[r]->model->name;
      leads = lead(&p, (Value){.tag = V_INST, .u.inst = roots[r]}, 0);
    }
    if (leads) return way(s, &p);
  }
  return i->model->name;
}

/* The instances whose methods surround f, the outermost first. */
static size_t selves(const Frame *f, Inst **out, size_t most) {
  size_t n = 0;
  for (; f; f = f->up)
    if (f->self && n < most) out[n++] = f->self;
  for (size_t i = 0; i < n / 2; i++) {
    Inst *t = out[i];
    out[i] = out[n - 1 - i];
    out[n - 1 - i] = t;
  }
  return n;
}

/* Path of the instance of f; the unit of f records which instance the path means. */
Name path_frame(Session *s, Frame *f) {
  enum { MOST = 32 };
  Inst *roots[MOST];
  if (f->path) return f->path;
  f->path = inst_path(s, f->self, roots, selves(f, roots, MOST));
  Unit *u = f->stage ? f->stage->unit : NULL;
  if (!u) return f->path;
  for (size_t i = 0; i < u->path_count; i++)
    if (u->paths[i].path == f->path) return f->path;
  for (size_t i = 0; i < u->flat.inst_count; i++)
    if (u->flat.insts[i] == f->self) {
      LayerPath p = {f->path, i};
      VEC_PUSH(u->arena, u->paths, u->path_count, u->path_cap, p);
      break;
    }
  return f->path;
}

Name path_stage(Session *s) {
  Frame *f = s->frame;
  while (f && f->stage && !f->self) f = f->up;
  return f && f->stage ? path_frame(s, f) : NULL;
}

const char *path_frame_title(Session *s, Frame *f) {
  if (!f->what) return "fn";
  bool method = f->self && f->fn && f->fn->decl->kind == N_FN && f->what != f->self->model->name;
  return method ? names_of(s->names, fail_text(s, "%s.%s", path_frame(s, f), f->what)) : f->what;
}

const char *path_fn_title(Session *s, const FnObj *f) {
  if (!f->self || f->decl->kind != N_FN) return call_fn_name(f);
  return names_of(s->names, fail_text(s, "%s.%s", inst_path(s, f->self, NULL, 0), call_fn_name(f)));
}

const char *path_place_title(Session *s, Inst *i, Inst *const *roots, size_t n, Span at) {
  Name path = inst_path(s, i, roots, n);
  const NodeList *l = &i->model->decl->model.members;
  for (uint32_t k = 0; k < l->count; k++) {
    const Node *m = l->items[k];
    if (m->kind == N_FN && m->span.file == at.file && m->span.lo <= at.lo && at.hi <= m->span.hi)
      return names_of(s->names, fail_text(s, "%s.%s", path, m->fn->name.name));
  }
  return path;
}
