/* A random whole program: models, functions in one file or two, an entry that computes a loss and
 * its gradients, hooks, and a script that calls it, updates the params and prints everything.
 *
 * In: a seed. Out: a tree of parts. It is a pure function of its seed and well-typed by
 * construction. Statements about tensors alone are those of tests/jit/program.c: each body has a
 * Program of its own, which is the scope that statements read and add to.
 *
 * All forms of the program print the same (rules 74, 89, 103). So no program has what a rule lets
 * differ: a param that the entry writes has one use of each older version (rule 74); batches are
 * cut from the gradient, as a comprehension adds up its uses and a loop does not (rule 74), and
 * draw by keys alone (rule 92); forms have the same number of calls in each function, by which
 * draws are numbered (rule 92); what leaves `wrap <no_grad>` is computed in it (rule 78). Where
 * there are hooks, a program keeps to their limits (docs/language.md, docs/not-yet.md): no gradient
 * is taken of a gradient or inside of a call, the loss reaches each value with a hook, arguments of
 * layers have a gradient, a function with hooks has one result. */
#include <stdlib.h>

#include "tests/random/maker.h"

/* ---- functions and models */

static const char *names_of(Maker *m, int n, const int *vars) {
  char text[80];
  size_t at = (size_t)snprintf(text, sizeof text, n > 1 ? "(" : "");
  for (int i = 0; i < n; i++)
    at +=
        (size_t)snprintf(text + at, sizeof text - at, i ? ", %s" : "%s", m->p->vars[vars[i]].name);
  snprintf(text + at, sizeof text - at, n > 1 ? ")" : "");
  return part_text(m->w, "%s", text);
}

static void helper(Maker *m, int into, bool library) {
  Helper *h = &m->helper[m->helpers];
  Dt dt = chance(m, 50) ? F32 : chance(m, 50) ? F64 : m->dt;
  Var inputs[] = {tensor("a", dt, 2, m->n, m->m, m->m), tensor("b", dt, 1, m->m, m->m, m->m),
                  tensor("x", m->dt, 2, m->n, m->d, m->d)};
  *h = (Helper){.params = 1 + below(m, 3),
                .record = chance(m, 30),
                .model = !library && m->models && !m->hooks && chance(m, 40)};
  if (h->params < 2) h->record = false;
  if (h->model) h->params = 3;
  snprintf(h->name, sizeof h->name, "h%d", m->helpers);
  m->p = body_scope(m);
  m->where = IN_HELPER;
  m->in_library = library;
  char text[300], type[100];
  size_t at =
      (size_t)snprintf(text, sizeof text, "fn %s[N, M](%s", h->name, h->model ? "net: M0, " : "");
  for (int i = 0; i < h->params; i++) {
    h->param[i] = inputs[i];
    Var v = inputs[i];
    body_type(&v, type, sizeof type);
    if (h->record && i < 2) {
      at += (size_t)snprintf(text + at, sizeof text - at,
                             i ? "second: %s), " : "both: (first: %s, ", type);
      snprintf(v.name, sizeof v.name, "%s", i ? "second" : "first");
    } else {
      at += (size_t)snprintf(text + at, sizeof text - at, "%s: %s, ", v.name, type);
    }
    take_input(m->p, v);
  }
  snprintf(text + at, sizeof text - at, "k: i64[2])");
  int f = part_add(m->w, into, FUNCTION, part_text(m->w, "%s", text));
  if (h->record) line(m, f, "let {first, second} = both");
  m->hooked = false;
  body_write(m, f, f, 3 + below(m, 10));
  body_clauses(m, f, 0, 0);
  int left[3], n = 0;
  /* one result: in a call with hooks those without a gradient count as zeros (docs/language.md) */
  for (int i = m->p->statements - 1; i >= 0 && n < (m->hooked ? 1 : 3); i--)
    if (!m->p->vars[INPUTS + i].hidden && (n == 0 || chance(m, 40))) left[n++] = INPUTS + i;
  if (n == 0) left[n++] = 0;
  for (int i = 0; i < n; i++) h->result[i] = m->p->vars[left[i]];
  h->results = n;
  m->w->part[f].out = names_of(m, n, left);
  free(m->p);
  m->in_library = false;
  m->helpers++;
}

/* A vector of D floats to another. */
static void row(Maker *m, int into) {
  char type[60];
  Var r = tensor("r", m->dt, 1, m->d, m->d, m->d);
  m->p = body_scope(m);
  m->where = IN_ROW;
  take_input(m->p, r);
  body_type(&r, type, sizeof type);
  int f = part_add(m->w, into, FUNCTION,
                   part_text(m->w, "fn row0(r: %s, k: i64[2]) -> %s", type, type));
  body_write(m, f, f, 2 + below(m, 6));
  body_clauses(m, f, 0, 0);
  Var *v = body_pick(m, ALIKE, &r);
  m->w->part[f].out = part_text(m->w, "%s + r", v ? v->name : "r");
  free(m->p);
  m->rows = 1;
}

static void model(Maker *m, int into) {
  Whole *w = m->w;
  int k = m->models;
  const char *f = dt_name[m->dt];
  static const char *const start[] = {"uniform(lo = -0.5, hi = 0.5)", "normal(std = 0.4)", "0.25"};
  int g = part_add(w, into, GROUP, part_text(w, "model M%d(d: int)", k));
  Size outer = m->d, d = m->d;
  snprintf(d.text, sizeof d.text, "d");
  m->d = d;
  line(m, g, "param w: %s[d, d] = %s", f, ONE_OF(m, start));
  line(m, g, "param bias: %s[d]%s", f, chance(m, 50) ? " = normal(std = 0.3)" : "");
  line(m, g, "buffer seen: %s[d]", f);
  line(m, g, "buffer calls: i64");
  m->linear[k] = m->dt == F32 && chance(m, 60);
  m->has_inner[k] = m->linear[k];
  bool list = m->linear[k] && chance(m, 50), sub = k > 0 && chance(m, 60);
  if (m->has_inner[k]) line(m, g, "let inner = Linear(d, d)");
  if (list) line(m, g, "let more = [Linear(d, d) for i in 0..2]");
  if (sub) line(m, g, "let under = M%d(d)", k - 1);
  m->has_pair[k] = chance(m, 50);
  for (int method = 0; method < 1 + m->has_pair[k]; method++) {
    m->p = body_scope(m);
    m->where = IN_METHOD;
    Var x = tensor("x", m->dt, 2, m->n, d, d);
    take_input(m->p, x);
    take_input(m->p, tensor("w", m->dt, 2, d, d, d));
    take_input(m->p, tensor("bias", m->dt, 1, d, d, d));
    if (chance(m, 50)) take_input(m->p, tensor("seen", m->dt, 1, d, d, d));
    char type[60], two[140];
    body_type(&x, type, sizeof type);
    snprintf(two, sizeof two, method ? "(%s, %s)" : "%s", type, type);
    int fn = part_add(
        w, g, FUNCTION,
        part_text(w, "fn %s[N](x: %s, k: i64[2]) -> %s", method ? "pair" : "forward", type, two));
    line(m, fn, "let %s = tanh(x @ w + bias)", body_define(m, &x)->name);
    if (chance(m, 70)) line(m, fn, "calls += 1");
    if (m->linear[k] && chance(m, 60))
      line(m, fn, "let %s = inner(%s)", body_define(m, &x)->name, m->p->vars[INPUTS].name);
    body_write(m, fn, fn, 2 + below(m, 7));
    Var *y = body_pick(m, ALIKE, &x);
    if (chance(m, 60)) line(m, fn, "seen = 0.9 * seen + mean(%s, axis = 0)", y ? y->name : "x");
    if (sub) line(m, fn, "let %s = under(%s, k)", body_define(m, &x)->name, y ? y->name : "x");
    if (list && !method) {
      line(m, fn, "var z = %s\nfor l in more { z = z + tanh(l(z)) }", y ? y->name : "x");
      w->part[fn].out = chance(m, 30) ? "self.bias + z" : "z";
    } else {
      Var *z = body_pick(m, ALIKE, &x);
      w->part[fn].out = part_text(w, method ? "(v0, %s)" : "v0 + %s", z ? z->name : "x");
    }
    body_clauses(m, fn, 0, 0);
    free(m->p);
  }
  m->d = outer;
  m->models++;
}

/* ---- the entry and the script */

static void input_line(Maker *m, int into, const Var *v, const char *suffix, int run) {
  char dims[100];
  size_t at = (size_t)snprintf(dims, sizeof dims, "[");
  for (int i = 0; i < v->rank; i++)
    at += (size_t)snprintf(dims + at, sizeof dims - at, i ? ", %ld" : "%ld", v->dim[i].n[run]);
  snprintf(dims + at, sizeof dims - at, "]");
  int key = below(m, 1000);
  if (is_float(v))
    line(m, into, "let %s%s = track(normal(%s, dtype = %s, key = key(%d)))", v->name, suffix, dims,
         dt_name[v->dt], key);
  else if (v->dt == U8)
    line(m, into, "let %s%s = u8(randint(41, %s, key = key(%d)))", v->name, suffix, dims, key);
  else
    line(m, into, "let %s%s = randint(41, %s, dtype = %s, key = key(%d)) - 20", v->name, suffix,
         dims, dt_name[v->dt], key);
}

typedef struct Entry { /* what the script has to know of it */
  Var input[INPUTS];
  int inputs;
  char args[120];
} Entry;

static void entry(Maker *m, int into, Entry *e) {
  static const Dt floats[] = {F32, F32, F32, F32, F64, F16, BF16};
  Whole *w = m->w;
  Dt f = ONE_OF(m, floats);
  m->p = body_scope(m);
  m->where = IN_ENTRY;
  Program *p = m->p;
  take_input(p, tensor("a", f, 2, m->n, m->m, m->m));
  take_input(p, tensor("b", chance(m, 70) ? f : F64, 1, m->m, m->m, m->m));
  take_input(p, tensor("c", f, 2, m->m, m->c, m->c));
  take_input(p, tensor("x", m->dt, 2, m->n, m->d, m->d));
  take_input(p, tensor("i", chance(m, 60) ? I64 : chance(m, 50) ? I32 : U8, 1, m->n, m->n, m->n));
  if (chance(m, 40)) take_input(p, tensor("e", f, 3, m->n, m->m, m->c));
  if (chance(m, 20)) { /* images and filters */
    Var image = {.name = "images", .dt = F32, .rank = 4}, filter = image;
    snprintf(filter.name, sizeof filter.name, "filters");
    for (int i = 0; i < 4; i++) {
      image.dim[i] = number((i < 2 ? 1 : 3) + below(m, 4));
      filter.dim[i] = i == 1 ? image.dim[1] : number(1 + below(m, 3));
    }
    take_input(p, image);
    take_input(p, filter);
  }
  e->inputs = p->inputs;
  memcpy(e->input, p->vars, sizeof(Var) * (size_t)p->inputs);
  char text[500], type[100];
  size_t at = (size_t)snprintf(text, sizeof text, "entry[N, M](");
  size_t args = 0;
  e->args[0] = 0;
  for (int i = 0; i < m->models; i++) {
    at += (size_t)snprintf(text + at, sizeof text - at, "m%d: M%d, ", i, i);
    args += (size_t)snprintf(e->args + args, sizeof e->args - args, "m%d, ", i);
  }
  for (int i = 0; i < p->inputs; i++) {
    body_type(&p->vars[i], type, sizeof type);
    at += (size_t)snprintf(text + at, sizeof text - at, "%s: %s, ", p->vars[i].name, type);
  }
  snprintf(text + at, sizeof text - at, "u: f32, k: i64[2])");
  int en = part_add(w, into, ENTRY, part_text(w, "%s", text));
  m->scale = true;
  m->totals = m->hooks || chance(m, 60);
  if (m->totals) line(m, en, "var total = u * 0.5");
  m->uses[0] = m->uses[1] = 0;
  m->spent[0] = m->spent[1] = false;
  body_write(m, 0, en, 8 + below(m, 16));
  /* the loss and its gradients */
  int loss = part_add(w, en, JOIN, "let loss = ");
  w->part[loss].also = "+";
  static const char *const term[] = {"f32(mean(%s))", "f32(mean(tanh(%s)))", "f32(sum(sin(%s)))"};
  for (int n = 1 + below(m, 3), tries = 0; n > 0 && tries < 20; tries++) {
    Var *v = body_pick(m, FLOATS, NULL);
    if (!v) continue;
    part_add(w, loss, ITEM, part_text(w, ONE_OF(m, term), v->name));
    n--;
  }
  if (m->totals) part_add(w, loss, ITEM, "total");
  for (int k = 0; k < m->models; k++)
    if (m->uses[k] == 0) {
      m->uses[k]++;
      part_add(w, loss, ITEM, part_text(w, "f32(mean(m%d(x * %s(u), k)))", k, dt_name[m->dt]));
    }
  part_add(w, loss, ITEM, "weighted((value = u, scale = f32(mean(x))))");
  bool second = !m->hooks && chance(m, 30);
  int grads = part_add(w, en, GRAD, "let g = ");
  w->part[grads].out = ")";
  w->part[grads].also = second ? "record" : NULL;
  part_add(w, grads, ITEM, "loss");
  part_add(w, grads, ITEM, "(u = u");
  for (int i = 0; i < p->inputs; i++)
    if (is_float(&p->vars[i]) && (m->hooks || chance(m, 70)))
      part_add(w, grads, ITEM, part_text(w, "%s = %s", p->vars[i].name, p->vars[i].name));
  for (int k = 0; k < m->models; k++) part_add(w, grads, ITEM, part_text(w, "m%d = m%d", k, k));
  if (second) {
    int g = part_add(w, en, GRAD, "let g2 = ");
    w->part[g].out = "";
    part_add(w, g, ITEM, "f32(sum(g.u * g.u)) + u");
    part_add(w, g, ITEM, "u");
  }
  int result = part_add(w, en, JOIN, "(");
  w->part[result].out = ")";
  part_add(w, result, ITEM, "loss = loss");
  part_add(w, result, ITEM, "g = g");
  if (second) part_add(w, result, ITEM, "g2 = g2");
  for (int i = p->statements - 1, n = 0; i >= 0 && n < 4; i--) {
    Var *v = &p->vars[INPUTS + i];
    if (v->hidden || !chance(m, 50)) continue;
    part_add(w, result, ITEM, part_text(w, "r%d = %s", n++, v->name));
  }
  m->scale = m->totals = false;
  free(m->p);
}

/* Statements of script that read what there is; %s is a model. */
static const char *const script_lines[] = {
    "print(count(%s), paths(%s))",
    "show(\"ravel\", ravel(params(%s)))",
    "show(\"copy\", params(copy(%s)))",
    "print(same(%s, copy(%s)))",
    "let flat%s = unravel(ravel(params(%s)) * 0.5, like = params(%s))\nshow(\"flat\", flat%s)",
    "show(\"clipped\", clip_norm(params(%s), 0.5))",
    "print(fold(fn(n, p) = n + size(p), 0, params(%s)))",
    "let kept%s = random_state()\nprint(normal([2]))\nseed(kept%s)\nprint(normal([2]))",
    "wrap <train, seed 3> { print(dropout(%s.bias, 0.5), training()) }",
    "print(error_of(fn() { %s.bias[99] }))",
    "update(%s, map(fn(p) = p * 0.5, params(%s)))",
    "for (n, b) in enumerate(batches(iota(7), 3)) { print(n, b) }",
    "for (s, t) in zip(windows(iota(9), 3).take(2), shuffle(iota(4))) { print(s, t) }",
    "let go%s = shuffle(iota(3)).cycle().take(5)\nfor e in go%s { if e == 2 { print(e, "
    "position(go%s)) } }\n"
    "seek(go%s, i64(zeros([len(position(go%s))])))",
    "let (train%s, held%s) = split(f32([1, 2, 3, 4, 5]), at = 3)\n"
    "print(first(progress(batches(train%s, 2))), held%s)",
    "print(unique(i64([3, 1, 3])), nonzero(i64([0, 2])), has_nan(%s.w), device_of(%s.bias))",
    "print(to(f32([1, 2]), \"sim\") + 1, args(\"n\", 3), len(paths(%s)))",
    "save(%s, here(\"saved.safetensors\"))\n"
    "print(same(load(copy(%s), here(\"saved.safetensors\")).bias, %s.bias))",
    "freeze(%s, \"bias\")\nprint(params(%s).bias == none)\nunfreeze(%s, \"bias\")",
    "let handle%s = on_grad(%s.w, fn(g) = g * 2)\nhandle%s.remove()\nprint(summary(%s))",
    "print(gradcheck(fn(x: f64[3]) = sum(sin(x)), f64([1, 2, 3])), false)",
};

static void script(Maker *m, int into, const Entry *e) {
  Whole *w = m->w;
  line(m, into, "seed(%d)", below(m, 1000));
  for (int k = 0; k < m->models; k++) line(m, into, "let m%d = M%d(%s)", k, k, m->d.text);
  for (int i = 0; i < e->inputs; i++) input_line(m, into, &e->input[i], "", 0);
  for (int k = 0; k < m->models; k++) {
    if (chance(m, 15)) line(m, into, "freeze(m%d, \"%s\")", k, chance(m, 50) ? "w" : "bias");
    if (m->has_inner[k] && chance(m, 30)) {
      static const char *const layers[] = {
          "checkpoint_layers(m%d, policy = lean)", "checkpoint_layers(m%d)",
          "checkpoint_layers(m%d, where = \"inner\", policy = tight(3))",
          "checkpoint_layers(m%d, where = fn(path, layer) = path == \"inner\", policy = lean)"};
      int which = below(m, 4);
      int l = part_add(w, into, LAYERS, part_text(w, layers[which], k));
      w->part[l].also = part_text(w, "checkpoint_layers(m%d, policy = none)%s", k,
                                  which == 2 ? "\nlet _ = tight(3)" : ""); /* as many calls */
    }
    if (!m->hooks) continue;
    if (chance(m, 40))
      line(m, into,
           "on_call(m%d, before = fn(dy) {\n  print(\"hook before %d {f64(norm(dy)):.17g}\")\n  dy "
           "* 2\n})",
           k, k);
    if (chance(m, 30))
      line(m, into,
           "on_call(m%d, after = fn(dx, dy) {\n  print(\"hook after %d {f64(norm(dy)):.17g}\")\n  "
           "()\n})",
           k, k);
    if (chance(m, 40))
      line(m, into,
           "on_grad(m%d.w, fn(g) {\n  print(\"hook p%d {f64(norm(g)):.17g}\")\n  g * 0.5\n})", k,
           k);
    if (chance(m, 40))
      line(m, into,
           "after_grad(m%d, \"*\", fn(path, p, g) {\n  print(\"hook p%d {path} "
           "{f64(norm(g)):.17g}\")\n  -g\n})",
           k, k);
  }
  if (m->hooks && chance(m, 40)) line(m, into, "after_backward(fn() { print(\"hook end\") })");
  int opt = m->dt == F32 && m->models && chance(m, 50);
  static const char *const optimizer[] = {"adam(m0, lr = 0.01)", "sgd(m0, 0.1)",
                                          "adamw(m0, lr = 0.01)"};
  if (opt) line(m, into, "let opt = %s", ONE_OF(m, optimizer));
  line(m, into, "let u = track(f32(0.75))");
  line(m, into, "var step = 0");
  int loop = part_add(w, into, GROUP, part_text(w, "while step < %d", 1 + below(m, 3)));
  char args[160];
  size_t at = (size_t)snprintf(args, sizeof args, "%s", e->args);
  for (int i = 0; i < e->inputs; i++)
    at += (size_t)snprintf(args + at, sizeof args - at, "%s, ", e->input[i].name);
  const char *modes[] = {"entry(%su, key(step))", "wrap <train> { entry(%su, key(step)) }"};
  char call[240];
  snprintf(call, sizeof call, chance(m, 70) ? modes[0] : modes[1], args);
  line(m, loop, "let r = %s", call);
  line(m, loop, "show(\"step {step}\", r)");
  if (opt) line(m, loop, "opt.step(r.g.m0)");
  for (int k = opt; k < m->models; k++)
    line(m, loop, "update(m%d, map(fn(p, g) = p - 0.01 * g, params(m%d), r.g.m%d))", k, k, k);
  line(m, loop, "step += 1");
  if (chance(m, 25)) { /* once more with other sizes */
    for (int i = 0; i < e->inputs; i++) input_line(m, into, &e->input[i], "2", 1);
    at = (size_t)snprintf(args, sizeof args, "%s", e->args);
    for (int i = 0; i < e->inputs; i++)
      at += (size_t)snprintf(args + at, sizeof args - at, "%s2, ", e->input[i].name);
    line(m, into, "show(\"again\", entry(%su, key(9)))", args);
  }
  for (int k = 0; k < m->models; k++) {
    for (int n = below(m, 3); n > 0; n--) {
      char text[400];
      const char *from = ONE_OF(m, script_lines);
      size_t to = 0;
      for (; *from && to + 4 < sizeof text; from++) {
        if (from[0] == '%' && from[1] == 's')
          to += (size_t)snprintf(text + to, sizeof text - to, "m%d", k), from++;
        else
          text[to++] = *from;
      }
      text[to] = 0;
      line(m, into, "%s", text);
    }
    line(m, into, "show(\"m%d\", (params(m%d), buffers(m%d)))", k, k, k);
  }
  if (opt) line(m, into, "show(\"opt\", buffers(opt))");
  line(m, into, "print(random_state())");
}

static const char common[] = /* functions for both files */
    "use linalg\n"
    "fn around(n: int, f) = f()\n"
    "fn twice(f, x) = f(f(x))\n"
    "fn graded(v) {\n"
    "  let d = [where(i == j, 2.0 + 0.75 * i, 0.0) for i in 0..size(v, axis = 0), j in 0..size(v, "
    "axis = 1)]\n"
    "  where(v == v, 0.1 * tanh(v), 0) + to_dtype(d, dtype_of(v))\n"
    "}\n";

void whole_generate(Whole *w, unsigned long long seed) {
  static const long sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 33};
  static Maker made;
  Maker *m = &made;
  memset(w, 0, offsetof(Whole, texts));
  w->used = 0, w->one_file = w->full = w->near = w->inner = false;
  w->seed = w->rng = seed;
  w->parts = 1; /* 0 is none */
  *m = (Maker){.w = w};
  m->dt = chance(m, 70) ? F32 : F64;
  m->n = (Size){"N", {ONE_OF(m, sizes), ONE_OF(m, sizes)}};
  m->m = (Size){"M", {ONE_OF(m, sizes), ONE_OF(m, sizes)}};
  m->d = number(2 + below(m, 6));
  m->c = number(1 + below(m, 8));
  m->hooks = chance(m, 40);
  w->near = chance(m, 15);
  w->narrow = seed % 8 == 3;
  w->program = part_add(w, 0, GROUP, "");
  int main_file = w->program;
  bool library = chance(m, 40);
  if (library) w->library = part_add(w, 0, GROUP, "");
  int lib = library ? w->library : main_file;
  line(m, lib, "%s", program_functions);
  line(m, lib, "%s", common);
  int helpers = below(m, HELPERS + 1), shared = library ? below(m, helpers + 1) : 0;
  int rows = chance(m, 80);
  m->in_library = library;
  if (rows) row(m, lib);
  m->in_library = false;
  for (int i = 0; i < shared; i++) helper(m, lib, true);
  if (library) {
    char names[60] = "";
    for (int i = 0; i < shared; i++)
      snprintf(names + strlen(names), sizeof names - strlen(names), ", h%d", i);
    part_add(w, main_file, USE,
             part_text(w, "use \"_lib.ckl\" (own, outer, around, twice, graded%s%s)",
                       rows ? ", row0" : "", names));
  }
  if (library) part_add(w, main_file, USE, "use linalg");
  line(m, main_file, "use nn (Linear)");
  line(m, main_file, "use optim as o");
  line(m, main_file, "policy lean { save matmul, recompute pointwise }");
  line(m, main_file,
       "policy tight(n) { prefer recompute reduce, prefer save matmul, budget = (n * 64MB) }");
  line(m, main_file,
       "fn decide(op: str, name: str, bytes: int, flops: int) {\n"
       "  if flops > bytes { \"save\" } else if op == \"pointwise\" { \"recompute\" } else { none "
       "}\n}");
  line(m, main_file,
       "fn least(op: str, name: str, bytes: int, flops: int, most: int) {\n"
       "  if bytes > most { \"prefer recompute\" } else { \"prefer save\" }\n}");
  line(m, main_file, "type Weighted = (value: f32, scale: f32)");
  line(m, main_file, "fn weighted(l: Weighted) -> f32 = l.value * l.scale");
  line(m, main_file, "fn through(net, x, k) = net(x, k)");
  line(m, main_file,
       "fn slope(net, x, k) = x + 0.1 * mean(ravel(grad(mean(net(x, k) ** 2), net)))");
  static const char *const answer[] = {"g * 2", "-g", "g + 1", "()", "g * g", "g - 3"};
  for (int i = 0; i < 3 && m->hooks; i++)
    line(m, main_file, "proc hook%d(g) {\n  print(\"hook %d {f64(g):.17g}\")\n  %s\n}", i, i,
         ONE_OF(m, answer));
  if (m->hooks)
    line(m, main_file, "proc deferred(v) {\n  print(\"deferred {f64(v):.17g}\")\n  v * 3\n}");
  line(m, main_file,
       "proc shown(label, x) {\n"
       "  let flat = reshape(f64(x), [-1])\n"
       "  print(\"{label} {dtype_of(x)} {shape(x)}\")\n"
       "  for i in 0..(len(flat) + 99) // 100 { # a line has at most 100 elements in full\n"
       "    print(\"{flat[100 * i:min(100 * i + 100, len(flat))]:.17g}\")\n"
       "  }\n"
       "}");
  line(m, main_file,
       "proc show(label: str, tree) {\n"
       "  each(fn(path, x) { shown(\"{label}.{path}\", x) }, tree, path = true)\n}");
  for (int k = below(m, MODELS + 1); k > 0; k--) model(m, main_file);
  while (m->helpers < helpers) helper(m, main_file, false);
  Entry e;
  entry(m, main_file, &e);
  script(m, main_file, &e);
}
