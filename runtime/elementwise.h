/* The elementwise functions of one and two numbers, numbered, with the columns of
 * runtime/elementwise.def. Kernels, the loop form and the code generator use these numbers. */
#ifndef CKL_RUNTIME_ELEMENTWISE_H
#define CKL_RUNTIME_ELEMENTWISE_H

#include "runtime/tensor.h"

typedef enum RefUn {
#define UN(NAME, ...) RU_##NAME,
#include "runtime/elementwise_rows.def"
  RU_COUNT
} RefUn;

typedef enum RefBin {
#define BIN(NAME, ...) RB_##NAME,
#include "runtime/elementwise_rows.def"
  RB_COUNT
} RefBin;

typedef struct ElemInfo {
  const char *name;
  uint8_t domain;   /* OpDomain */
  bool test;        /* the result is bool, whatever the operands are */
  double low, high; /* of one operand: where it is smooth */
} ElemInfo;
extern const ElemInfo elem_un[RU_COUNT], elem_bin[RB_COUNT];

#endif
