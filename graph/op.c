/* The op table as data. In: ops.def. Out: op_info, names, and the spelling of each op in
 * programs. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "graph/op.h"
#include "graph/opcode.h"
#include "graph/shape.h"

const OpInfo op_info[OP_COUNT] = {
#define OP(NAME, text, arity, results, cls, traits, domain, shape, batch, remat, needs, cost,      \
           cases, doc)                                                                             \
  [OP_##NAME] = {text,   doc,          arity,         results,       cls,                          \
                 traits, DOM_##domain, REMAT_##remat, NEEDS_##needs, cost},
#include "graph/ops.def"
#undef OP
};

const char *const attr_name[AT_COUNT] = {
    [AT_INDEX] = "index",       [AT_AXIS] = "axis",
    [AT_AXES] = "axes",         [AT_PERM] = "perm",
    [AT_DIMS] = "dims",         [AT_STARTS] = "starts",
    [AT_LENS] = "lens",         [AT_STEPS] = "steps",
    [AT_LOW] = "low",           [AT_HIGH] = "high",
    [AT_INNER] = "inner",       [AT_VALUE] = "value",
    [AT_DTYPE] = "dtype",       [AT_KIND] = "kind",
    [AT_REVERSE] = "reverse",   [AT_DESCENDING] = "descending",
    [AT_DISTINCT] = "distinct", [AT_MOST] = "most",
    [AT_COMPUTE] = "compute",   [AT_STRIDE] = "stride",
    [AT_PAD] = "pad",           [AT_WRT] = "wrt",
    [AT_CARRY] = "carry",       [AT_MAPPED] = "mapped",
    [AT_TEXT] = "text",         [AT_SIZE] = "size",
    [AT_DEVICE] = "device",     [AT_SEEN] = "seen",
    [AT_WHILE] = "while",       [AT_COUNTER] = "counter",
    [AT_UPPER] = "upper",       [AT_UNIT] = "unit",
    [AT_ACROSS] = "across",     [AT_REGULAR] = "regular",
    [AT_FULL] = "full",         [AT_VALUES] = "values",
    [AT_STATES] = "states",     [AT_EVERY] = "every",
    [AT_AGAIN] = "again",
};

/* The spelling in programs, if it differs from the op's name. */
static const char *const written[OP_COUNT] = {
    [OP_NEG] = "-",   [OP_NOT] = "not",        [OP_ADD] = "+",          [OP_SUB] = "-",
    [OP_MUL] = "*",   [OP_DIV] = "/",          [OP_FLOORDIV] = "//",    [OP_MOD] = "%",
    [OP_POW] = "**",  [OP_EQ] = "==",          [OP_NE] = "!=",          [OP_LT] = "<",
    [OP_LE] = "<=",   [OP_GT] = ">",           [OP_GE] = ">=",          [OP_DOT] = "@",
    [OP_INNER] = "@", [OP_REDUCE_MAX] = "max", [OP_REDUCE_MIN] = "min",
};

const char *op_written(OpCode op) {
  return written[op] ? written[op] : op_info[op].text;
}

const TagInfo tag_info[TAG_COUNT] = {
#define TAG(NAME, text, firm, choice, narrow) {text, firm, CHOICE_##choice, DT_##narrow},
#include "graph/tags.def"
#undef TAG
};

int op_find(const char *text) {
  for (int i = 0; i < OP_COUNT; i++) {
    if (!strcmp(op_info[i].text, text)) return i;
  }
  return -1;
}

bool gerr_set(GErr *e, ErrCode code, int operand, const char *fmt, ...) {
  if (!e) return false;
  memset(e, 0, sizeof *e);
  e->code = code;
  e->operand = operand;
  e->nomem = code == ERR_NOMEM;
  e->interrupted = code == ERR_INTERRUPT;
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(e->text, sizeof e->text, fmt, ap);
  va_end(ap);
  if (n >= (int)sizeof e->text) memcpy(e->text + sizeof e->text - 4, "...", 4);
  return false;
}

bool gerr_help(GErr *e, const char *fmt, ...) {
  if (!e) return false;
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(e->help, sizeof e->help, fmt, ap);
  va_end(ap);
  if (n >= (int)sizeof e->help) memcpy(e->help + sizeof e->help - 4, "...", 4);
  return false;
}
