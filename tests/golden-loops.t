#!/bin/sh
# The programs of tests/golden and tests/error print the same when kernels are walked in loop form.
CKL_CPU=loops exec tests/golden-runner --no-format tests/golden tests/error
