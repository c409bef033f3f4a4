#!/bin/sh
# Every row of tests/rows.txt has a test that names it, and the table in tests/README.md says which.
exec perl "$srcdir/tests/rows"
