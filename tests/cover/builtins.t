#!/bin/sh
# Every builtin in every form gives what tests/cover/builtins.txt says, in script and in code; with COVER=all, as
# `make check-all` has it, in loops and machine code too.
exec tests/cover/builtins "$srcdir/tests/cover/builtins.txt" ${COVER-}
