#!/bin/sh
# Each allocation of some programs fails in turn, and some of all others: a clean error and a session that goes on.
# ALLOC_SAMPLES: how many of each program.
. "$srcdir/tests/tap.sh"
trap 'rm -f "alloc.$$" "alloc.$$.bad"' EXIT
# try TITLE OPTION FILE...
try() {
  title=$1
  shift
  tests/golden-runner "$@" >"alloc.$$"
  status=$?
  grep -v '^ok ' "alloc.$$" >"alloc.$$.bad"
  tap_status $status "$title" "alloc.$$.bad"
}
[ -z "${SANITIZE-}" ] || : "${ALLOC_SAMPLES:=1}"
# What is compiled must not hang on the time it takes: runs are compared.
code=native
[ -n "${CKL_CODEGEN-}" ] || code=reference
CKL_CPU=reference
export CKL_CPU
try 'every allocation of seven programs' --fail-alloc=all tests/golden/grad/script.ckl \
  tests/golden/models/mlp.ckl tests/golden/functions/closures.ckl \
  tests/golden/functions/saves-many.ckl tests/golden/trees/map-fold.ckl \
  tests/golden/text/holes.ckl tests/golden/hooks/outside-of-a-block.ckl
try 'samples of the allocations of the others' --fail-alloc="${ALLOC_SAMPLES:-3}" tests/golden
CKL_CPU=loops
try 'every allocation of four programs whose kernels are walked' --fail-alloc=all \
  tests/golden/models/mlp.ckl tests/golden/functions/closures.ckl tests/golden/control/list-of-a-kernel.ckl \
  tests/golden/control/list-of-launches.ckl
try 'samples of the allocations of others whose kernels are walked' \
  --fail-alloc="${ALLOC_SAMPLES:-3}" tests/golden/functions tests/golden/grad
CKL_CPU=$code
try 'samples of the allocations of others in machine code' \
  --fail-alloc="${ALLOC_SAMPLES:-3}" tests/golden/backward tests/golden/hooks tests/golden/checkpoint
tap_done
