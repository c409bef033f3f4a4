#!/bin/sh
# Each allocation of some programs fails in turn, and some of all others: a clean error and a session that goes on.
# ALLOC_SAMPLES: how many of each program.
. "$srcdir/tests/tap.sh"
every='tests/golden/grad/script.ckl tests/golden/models/mlp.ckl tests/golden/functions/closures.ckl
  tests/golden/trees/map-fold.ckl tests/golden/text/holes.ckl'
tests/golden-runner --fail-alloc=all $every >alloc.$$
tap_status $? 'every allocation of five programs' alloc.$$
tests/golden-runner --fail-alloc="${ALLOC_SAMPLES:-5}" tests/golden >alloc.$$
tap_status $? 'samples of the allocations of the others' alloc.$$
rm -f alloc.$$
tap_done
