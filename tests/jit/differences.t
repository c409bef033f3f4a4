#!/bin/sh
# Gradients of random programs against differences of their values: DIFFERENCES_COUNT programs from DIFFERENCES_SEED on.
exec tests/jit/differences "${DIFFERENCES_COUNT:-1000}" "${DIFFERENCES_SEED:-1}" ${DIFFERENCES_MODE:-reference}
