#!/bin/sh
# Every form of statement and expression does in every context what tests/cover/statements.txt says; with COVER=all, as
# `make check-all` has it, in loops and machine code too.
exec tests/cover/statements "$srcdir/tests/cover/statements.txt" ${COVER-}
