#!/bin/sh
# Machine code reads nothing outside its buffers: with CKL_CHECK_ADDRESS each address is tested, in kernels of their
# own. Of the golden files each MEMORY_EVERY-th runs; sanitizers, which do not see into kernels, add little to them.
# That a run takes the bytes of its plan, and reads nothing that is not alive, all tests see by CKL_CHECK.
every=4 # from the number MEMORY_FROM on
[ -z "${SANITIZE-}" ] || every=40
CKL_CHECK_ADDRESS=1 CKL_CPU=${GOLDEN_CPU:-native} exec tests/golden-runner --no-format \
  --every="${MEMORY_EVERY:-$every}" --from="${MEMORY_FROM:-0}" tests/golden tests/error
