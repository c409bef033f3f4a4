/* The dtypes of operands that an op is defined for. */
#ifndef CKL_RUNTIME_DOMAIN_H
#define CKL_RUNTIME_DOMAIN_H

#include "runtime/tensor.h"

typedef enum OpDomain { DOM_FLOAT, DOM_NUM, DOM_INT, DOM_BOOL, DOM_ANY } OpDomain;
bool dom_has(OpDomain domain, DType dt); /* elementwise.c */

#endif
