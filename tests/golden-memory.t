#!/bin/sh
# Each run of machine code takes the bytes that its plan says, to the byte, and reads nothing that is not
# alive: with CKL_CHECK another number is an error, and what is not alive is NaN. With CKL_CHECK_ADDRESS no address
# is outside its buffer; sanitizers, which do not see into kernels, need not wait for those to be made twice.
[ -n "${SANITIZE-}" ] || export CKL_CHECK_ADDRESS=1
CKL_CHECK=1 CKL_CPU=${GOLDEN_CPU:-native} exec tests/golden-runner tests/golden tests/error
