#!/bin/sh
# Every operation with every class of attributes, sizes and dtypes that cases.txt has for it, in COVER_MODES: the right
# numbers, and the same bits in all of them. The machine code is kept in the build folder for the next time.
COVER_CACHE=${COVER_CACHE-$XDG_CACHE_HOME/cover}
export COVER_CACHE
exec tests/cover/ops ${COVER_MODES:-reference script loops}
