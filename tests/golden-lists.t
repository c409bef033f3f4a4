#!/bin/sh
# Turns of few numbers, which one kernel could run, print the same as lists of kernels (CKL_LISTS), as larger ones are.
CKL_LISTS=1 CKL_CPU=${GOLDEN_CPU:-native} exec tests/golden-runner --no-format tests/golden/control tests/golden/checkpoint
