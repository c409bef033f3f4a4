#!/bin/sh
# Every row of tests/rows.txt has a test that names it, by number and name, and tests/rows.md says which.
exec perl "$srcdir/tests/rows"
