#!/bin/sh
# The programs of tests/golden and tests/error print what their comments say, and every error is provoked.
# With CKL_IN_PLACE=0 (tests/run-all) without what says that steps write in place.
set --
[ "${CKL_IN_PLACE-}" != 0 ] || set -- --without=tests/golden/optim/in-place.ckl
exec tests/golden-runner "$@" --codes=tests/error/unprovoked.txt --at-least=120 tests/golden tests/error
