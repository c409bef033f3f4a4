/* Operands keep the values that they read (rule 48).
 *
 * In script an operand can be a param itself, not its value, and an operand further right may write
 * to it: `p + { p = 2 * p; p }`. In: the operands that wait for others, a list of arrays, innermost
 * first. Out: before a write to a param, operands that refer to it get its old value instead. So a
 * read costs nothing, and a write visits the waiting operands. In code operands are nodes of the
 * graph, which no write changes. Invariant: the session holds these values until the expression has
 * all its operands, because the pool of the statement that writes is drained before that.
 */
#include "lang/eval/operands.h"
#include "lang/tape/gradient.h"
#include "lang/tape/tape.h"

/* The present value of p, as a value whose uses are uses of p. */
static Value version(Session *s, Param *p) {
  Value v = v_tensor(s, tn_ref(p->t));
  if (tape_wants_grad(s, (Value){.tag = V_PARAM, .u.p = p})) tape_version(s, p, v, s->running);
  return v;
}

Value operand_held(Session *s, Value v) {
  return v.tag == V_PARAM && !s->stage ? version(s, v.u.p) : v;
}

/* v with p replaced by its present value. *now is that value, made when it is first needed. With p
 * NULL all params in v are replaced. */
static Value held(Session *s, Value v, Param *p, Value *now) {
  stack_check();
  if (!p && v.tag == V_PARAM) return version(s, v.u.p);
  if (v.tag == V_PARAM && v.u.p == p) {
    if (now->tag == V_UNIT) *now = version(s, p);
    return *now;
  }
  if (!v_counted(v) || !v.u.o->params) return v;
  size_t n;
  Value *items = value_parts(s, v, &n);
  if (!items) return v;
  value_bound(s, v, s->running);
  bool same = true;
  for (size_t i = 0; i < n; i++) {
    Value x = held(s, items[i], p, now);
    same &= x.tag == items[i].tag && (!v_counted(x) || x.u.o == items[i].u.o);
    items[i] = x;
  }
  return same ? v : value_like(s, v, items);
}

Value operand_parts_held(Session *s, Value v) {
  return s->stage ? v : held(s, v, NULL, NULL);
}

void operands_hold(Session *s, Param *p) {
  Value now = v_unit();
  for (Operands *o = s->operands; o; o = o->up)
    for (size_t i = 0; i < o->count; i++) {
      Value v = held(s, o->v[i], p, &now);
      if (!v_counted(v) || v.u.o == o->v[i].u.o) continue;
      if (s->hold_count == s->hold_cap) {
        size_t cap = s->hold_cap ? s->hold_cap * 2 : 8;
        s->holds = mem_need(&s->mem, s->holds, s->hold_cap * sizeof(Hold), cap * sizeof(Hold));
        s->hold_cap = cap;
      }
      value_retain(v);
      s->holds[s->hold_count++] = (Hold){o, v};
      o->v[i] = v;
      o->holds = true;
    }
}

void operands_give(Session *s, Operands *o) {
  size_t kept = 0;
  for (size_t i = 0; i < s->hold_count; i++)
    if (s->holds[i].of == o) value_pool(s, s->holds[i].v);
  for (size_t i = 0; i < s->hold_count; i++) {
    if (s->holds[i].of == o)
      value_release(s->holds[i].v);
    else
      s->holds[kept++] = s->holds[i];
  }
  s->hold_count = kept;
}

void operands_cut(Session *s, Operands *to) {
  size_t kept = 0;
  for (size_t i = 0; i < s->hold_count; i++) {
    const Operands *o = to;
    while (o && o != s->holds[i].of) o = o->up;
    if (o)
      s->holds[kept++] = s->holds[i];
    else
      value_release(s->holds[i].v);
  }
  s->hold_count = kept;
  s->operands = to;
}
