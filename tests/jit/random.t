#!/bin/sh
# Random programs give the same bits in all modes: RANDOM_COUNT of them from RANDOM_SEED on, in RANDOM_MODES. The
# machine code of the usual 50 is kept in the build folder for the next time.
if [ -z "${RANDOM_COUNT-}" ]; then RANDOM_CACHE=${RANDOM_CACHE-$XDG_CACHE_HOME/random}; fi
export RANDOM_CACHE
modes='reference script loops'
[ -z "$CKL_CODEGEN" ] || modes="$modes native script:native"
exec tests/jit/random "${RANDOM_COUNT:-50}" "${RANDOM_SEED:-1}" ${RANDOM_MODES:-$modes}
