#!/bin/sh
# Wrong programs that say in their comments what `ckl check` answers (see run-golden).
exec perl "$srcdir/tests/run-golden" check "$srcdir/tests/error"
