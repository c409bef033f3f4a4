#!/bin/sh
# The programs of tests/golden and tests/error print what their comments say, and every error is provoked.
exec tests/golden-runner --codes=tests/error/unprovoked.txt --at-least=120 tests/golden tests/error
