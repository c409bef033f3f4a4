#!/bin/sh
# Programs that say in their comments what they print (see run-golden).
exec perl "$srcdir/tests/run-golden" run "$srcdir/tests/golden"
