#!/bin/sh
# The programs of tests/golden and tests/error print the same from machine code: of the best level here, or
# of $GOLDEN_CPU. The first run fills the cache of this build folder.
CKL_CPU=${GOLDEN_CPU:-native} exec tests/golden-runner tests/golden tests/error
