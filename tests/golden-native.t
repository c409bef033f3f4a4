#!/bin/sh
# The programs of tests/golden and tests/error print the same from machine code: of the best level here, or
# of $GOLDEN_CPU; with GOLDEN_EVERY each so many-th of them, from number GOLDEN_FROM on. The first run fills
# the cache of this build folder.
CKL_CPU=${GOLDEN_CPU:-native} exec tests/golden-runner --no-format --every="${GOLDEN_EVERY:-1}" \
  --from="${GOLDEN_FROM:-0}" tests/golden tests/error
