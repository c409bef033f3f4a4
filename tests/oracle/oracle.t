#!/bin/sh
# Random programs give the figures that JAX gave: every ORACLE_EVERY-th of expected.txt, in the mode ORACLE_MODE.
exec tests/oracle/oracle "$srcdir/tests/oracle/expected.txt" "${ORACLE_EVERY:-1}" "${ORACLE_MODE:-reference}"
