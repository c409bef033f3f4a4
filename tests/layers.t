#!/bin/sh
# A file includes its own folder and the layers above it (README.md, "The folders"); the program uses
# ckl.h alone.
. "$srcdir/tests/tap.sh"
cd "$srcdir" || exit 1

# allow FOLDER LAYER...: quoted includes in FOLDER, its rooms included, name a file of FOLDER or of a LAYER;
# a LAYER may also be one header
allow() {
  folder=$1
  bad=$(find "$folder" -type f -name '*.[chy]' -o -type f -name '*.re' -o -type f -name '*.def' |
    xargs grep -n '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' /dev/null |
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
allow tests/golden ckl.h

# rooms: what a room may use of its own folder; a ROOM may also be a header
room() { # room FOLDER ROOM...
  folder=$1
  shift
  bad=$(grep -n "^[[:space:]]*#[[:space:]]*include[[:space:]]*\"${folder%%/*}/" "$folder"/*.[ch] |
    while IFS= read -r hit; do
      ok=
      for room in "$folder" "$@"; do
        case $hit in *"\"$room/"* | *"\"$room\""*) ok=1 ;; esac
      done
      [ -n "$ok" ] || echo "$hit"
    done)
  tap_empty "$bad" "of its own folder, $folder/ includes itself and: ${*:-nothing else}"
}

room jit/loop
room jit/lower jit/loop
room jit/engine jit/loop
room jit/codegen jit/loop jit/engine
room jit/plan jit/loop jit/lower jit/engine
# eval, checkpoint, compile and tape use each other: an evaluator stages, a call and the clauses of a block are
# evaluated, a tape holds calls
l=lang/lang.h
v='lang/value lang/names'
# names: of the evaluator, constants of declarations, the locals at hand, members of a model
room lang/names $l lang/value lang/check lang/compile lang/builtin lang/eval/eval.h lang/eval/bindings.h lang/eval/model.h
room lang/checkpoint $l $v lang/check lang/compile lang/eval lang/tape/gradient.h
room lang/compile $l $v lang/checkpoint lang/tape lang/eval
room lang/tape $l $v lang/check lang/checkpoint lang/compile lang/builtin lang/eval
room lang/eval $l $v lang/check lang/checkpoint lang/compile lang/tape lang/builtin
room lang/builtin $l $v lang/check lang/checkpoint lang/compile lang/tape lang/eval
room lang/check $l $v lang/compile lang/eval lang/builtin
room lang/api $l $v lang/check lang/compile lang/tape lang/eval lang/builtin

# joint graphs of calls: their states are kept by one file, which alone writes the fields
fields=$(sed -n '/^typedef struct JointRef {/,/^} JointRef;/p' lang/compile/joint_ref.h |
  sed -e '/^ *\*/d' -e 's,/[*].*,,' | grep -o '[a-z_]*[;,]' | tr -d ';,' | tr '\n' '|')
writes() { grep -En "(joint|j|parent)->(${fields%|})([.][a-z_]+)? *([|+&-]?=[^=]|[+][+]|--)" "$@"; }
tap_empty "$(writes lang/*/*.c | grep -v '^lang/compile/joint_ref[.]c:')" \
  'lang/compile/joint_ref.c alone writes the fields of a JointRef'
[ "$(writes lang/compile/joint_ref.c | wc -l)" -gt 15 ]
tap_status $? 'and it does'
tap_done
