#!/bin/sh
# A file includes its own folder and the layers to its left (README.md, "Layers"); the program uses
# ckl.h alone.
. "$srcdir/tests/tap.sh"
cd "$srcdir" || exit 1

# allow FOLDER LAYER...: quoted includes in FOLDER name a file of FOLDER or of a LAYER; a LAYER may
# also be one header
allow() {
  folder=$1
  bad=$(grep -n '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' "$folder"/*.[chy] "$folder"/*.re \
    "$folder"/*.def 2>/dev/null |
    while IFS= read -r hit; do
      name=${hit#*\"}
      name=${name%%\"*}
      ok=
      for layer; do
        case $name in "$layer" | "$layer"/*) ok=1 ;; esac
      done
      [ -n "$ok" ] || echo "$hit"
    done)
  shift
  tap_empty "$bad" "$folder/ includes itself and: ${*:-nothing else}"
}

allow runtime
allow parser runtime
allow graph runtime
allow autograd runtime parser graph
allow jit runtime parser graph
allow lang runtime parser graph autograd jit stdlib ckl.h
allow stdlib
allow include
allow cli ckl.h
allow examples ckl.h
tap_done
