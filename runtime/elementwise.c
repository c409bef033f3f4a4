/* The rows of elementwise.def as data. */
#include "runtime/domain.h"
#include "runtime/elementwise.h"

#define TEST_same false
#define TEST_test true

const ElemInfo elem_un[RU_COUNT] = {
#define UN(NAME, name, text, domain, result, needs, cost, call, low, high, sentence)               \
  [RU_##NAME] = {#name, DOM_##domain, TEST_##result, low, high},
#include "runtime/elementwise_rows.def"
};

const ElemInfo elem_bin[RB_COUNT] = {
#define BIN(NAME, name, text, traits, domain, result, needs, cost, sentence)                       \
  [RB_##NAME] = {#name, DOM_##domain, TEST_##result, 0, 0},
#include "runtime/elementwise_rows.def"
};

bool dom_has(OpDomain domain, DType dt) {
  switch (domain) {
  case DOM_FLOAT: return dt_float(dt);
  case DOM_NUM: return dt_float(dt) || dt_int(dt);
  case DOM_INT: return dt_int(dt);
  case DOM_BOOL: return dt == DT_BOOL;
  case DOM_ANY: break;
  }
  return true;
}
