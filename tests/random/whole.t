#!/bin/sh
# Random whole programs print the same in all forms and modes: WHOLE_COUNT of them from WHOLE_SEED on (CKL_SEED goes
# before it), in WHOLE_MODES. Without these 40, and two as machine code, which is kept in the build folder.
modes="code script captured blocks captured-blocks rows turns turned-blocks turns:loops loops planned planned-script"
[ -z "$CKL_CODEGEN" ] || modes="$modes native/20 captured-blocks:native/20 planned:native/20 turns:native/20"
if [ -z "${WHOLE_COUNT-}" ]; then RANDOM_CACHE=${RANDOM_CACHE-$XDG_CACHE_HOME/random}; fi
export builddir RANDOM_CACHE
exec tests/random/whole "${WHOLE_COUNT:-40}" "${WHOLE_SEED:-1}" ${WHOLE_MODES:-$modes}
