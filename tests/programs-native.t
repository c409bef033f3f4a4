#!/bin/sh
# The examples and workloads print the same from machine code as on the reference evaluator.
CKL_CPU=native exec sh "$srcdir/tests/programs.t"
