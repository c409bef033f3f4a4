#!/bin/sh
# Blocks of checkpoints in listings: numbers, tags, copies; and what runs.
. "$srcdir/tests/cli/common.sh"

cat >f.ckl <<'END'
fn g(x) {
  let h = tanh(x)
  h * h
}
fn f(x: f32[4, 4], w: f32[4, 4]) -> f32 {
  let a = checkpoint <save matmul> {
    let h = tanh(x @ w)
    let i = checkpoint { exp(h @ w) }
    h * i * uniform([4, 4])
  }
  let b = checkpoint { tanh(g(a) @ w) * 2 }
  sum(a + b)
}
fn plain(x: f32[4, 4], w: f32[4, 4]) -> f32 {
  let h = tanh(x @ w)
  let i = exp(h @ w)
  let a = h * i * uniform([4, 4])
  let b = tanh(g(a) @ w) * 2
  sum(a + b)
}
fn one(x: f32[4]) -> f32 {
  let a = checkpoint { tanh(x) }
  sum(a)
}
END
T='f32[4,4]'
gives 0 'the staged graph' "$ckl" ir f.ckl f $T $T --stage=stage
cp out staged
# rows S0.1 blocks-numbered, S0.28 block-per-use, S0.34 nested-numbers, S0.44 listing-names
# row S1.26 policy-readable
says out 'block 1 "save matmul" @ ' 'blocks are numbered in the order of the text, with their clauses'
says out 'block 2 in 1 "" @ ' 'a block in a block knows it'
says out 'block 3 "" @ ' 'the next one'
gives 0 'again' "$ckl" ir f.ckl f $T $T --stage=stage
tap_empty "$(cmp out staged)" 'the same numbers in every run'
# a function that is called twice has two blocks, each of its copies computed from what its own call got
cat >twice.ckl <<'END'
fn part(x: f32[4]) -> f32[4] = checkpoint { sin(exp(x) * 2) }
fn f(x: f32[4]) -> f32 = sum(part(part(x)))
END
gives 0 'a block in a function that is called twice' "$ckl" ir twice.ckl f --stage=stage
cp out log
tap_status $(($(grep -c '^  block ' out) != 2 || $(grep -c '= exp .*region=1' out) != 1 || $(grep -c '= exp .*region=2' out) != 1)) \
  'is two blocks' log
# rows S0.20 block-by-number, S0.21 tags-then-copies
# rows S0.29 computing-nodes-tagged, S0.30 nodes-name-block, S0.31 plain-tag, S0.32 policy-tag
# row S0.33 tags-change-nothing
tap_empty "$(grep 'region=' staged | grep -v -e 'tag=' -e ' const ' -e ' iota ' -e '= input')" 'what computes has a tag'
tap_empty "$(grep -e ' const ' -e '= input' staged | grep 'tag=')" 'what is given has none'
tap_empty "$(grep 'region=3' staged | grep tag= | grep -v prefer_recompute)" 'a plain block prefers to recompute'
tap_empty "$(grep -c 'dot.*region=1 tag=must_save' staged | grep -v '^1$')" 'the policy decides about its class'
tap_empty "$(grep 'dot.*region=2' staged | grep -v prefer_recompute)" 'and not inside of an inner block'
tap_empty "$(grep recomputed staged)" 'there are no copies yet'
# rows S0.6 plain-wrap-neutral, S1.29 no-inputs-added
gives 0 'the same without blocks' "$ckl" ir f.ckl plain $T $T --stage=stage
sed 's/ \(@\|name=\|region=\|tag=\|~\).*//; /block/d; s/^graph.*//' staged >a
sed 's/ \(@\|name=\|region=\|tag=\|~\).*//; s/^graph.*//' out >b
tap_empty "$(diff a b)" 'a block adds no node and no input'
gives 0 'the joint graph' "$ckl" ir f.ckl f $T $T --stage=joint
cp out joint
# rows S0.13 backward-copies, S0.17 copies-placed, S0.22 copy-same-site, S0.46 places-both-kinds
# rows X.1 tags-live, S0.48 draws-without-fork, X.4 copies-captured
cat >want <<'END'
tanh(g(a) @ w) * 2 :: broadcast region=3 backward recomputed
a :: alias region=3 backward recomputed
x :: tanh name="h" region=3 backward recomputed
h * h :: mul region=3 backward recomputed
g(a) @ w :: dot region=3 backward recomputed
g(a) @ w :: tanh region=3 backward recomputed
uniform([4, 4]) :: random region=1 backward recomputed
x @ w :: tanh name="h" region=1 backward recomputed
h @ w :: dot region=2 backward recomputed
h @ w :: exp name="i" region=2 backward recomputed
h @ w :: dot region=2 backward recomputed
h @ w :: exp name="i" region=2 backward recomputed
END
whence f.ckl joint | grep recomputed >got
tap_empty "$(diff want got)" 'backward has copies, with the places, names and blocks of what they copy'
tap_empty "$(grep 'tag=' joint)" 'tags are used up'
# what a draw is given: its key, an input of the call that the backward gets as it is
draw() { sed -n "s/^ *%[0-9]* = random %[0-9]* \({.*\) @ .*$1/\1/p" joint; }
tap_empty "$(draw 'region=1$' >a; draw 'region=1 backward recomputed$' | diff a -)" 'a draw is made again as it was'
cat >draw.ckl <<'END'
fn f(x: f32[4]) -> f32 = sum(tanh(checkpoint { sin(exp(x) * uniform([4])) }))
f(track(ones([4])))
END
gives 0 'a block that draws' "$ckl" run --dump=joint draw.ckl
awk '/^graph/ { n++ } { print > (n > 1 ? "back" : "fore") }' err
key() { sed -n 's/^  \(%[0-9]*\) = input .*: i64.2. .*/\1/p' $1; }
tap_empty "$(sed 's/ *$/ /' fore | grep return | grep -v " $(key fore) ")" 'the forward hands out its key'
says back "= random $(key back) {" 'and the backward draws from it'
tap_empty "$(grep -c '= random' back | grep -v '^1$')" 'once'
# row S0.27 clause-order
sed 's/<save matmul>/<save matmul, recompute h>/' f.ckl >p.ckl
sed 's/<save matmul>/<recompute h, save matmul>/' f.ckl >q.ckl
"$ckl" ir p.ckl f $T $T --stage=joint | grep -v ' block ' | sed 's/ @ [^ ]*//' >p
"$ckl" ir q.ckl f $T $T --stage=joint | grep -v ' block ' | sed 's/ @ [^ ]*//' >q
tap_empty "$(diff p q)" 'the order of clauses changes nothing'

# rows S0.40 unnamed-recomputed, S0.41 one-way-of-policies
cat >ways.ckl <<'END'
policy named { save matmul }
fn asked(op: str, name: str, bytes: int, flops: int) = if op == "matmul" { "save" } else { none }
fn f(x: f32[4, 4], w: f32[4, 4]) -> f32 = sum(checkpoint <POLICY> { tanh(exp(x @ w) @ w) })
let x = ones([4, 4])
let l = f(x, track(x))
END
for p in named asked 'save matmul' 'recompute all' 'save none' auto; do
  sed "s/POLICY/$p/" ways.ckl >way.ckl
  "$ckl" run --dump=joint way.ckl 2>&1 | sed 's/ @ [^ ]*//; s/ ~.*//; /block 1/d' >"way $p"
done
sed 's/ <POLICY>//' ways.ckl >way.ckl
"$ckl" run --dump=joint way.ckl 2>&1 | sed 's/ @ [^ ]*//; s/ ~.*//; /block 1/d' >'way plain'
tap_empty "$(diff 'way named' 'way save matmul' && diff 'way asked' 'way save matmul')" \
  'a policy does the same by name, as a function, and written out'
tap_empty "$(diff 'way plain' 'way save none' && diff 'way plain' 'way recompute all' | grep '^[<>]')" \
  'what no clause names is computed again'
tap_empty "$(diff -q 'way plain' 'way save matmul' >log && echo equal)" 'and what one saves is not'

# rows S1.2 reentrant-plan, S1.21 plain-not-reentrant, S1.23 options-arrive
sed 's/POLICY/reentrant, auto, budget = 1MiB/' ways.ckl >way.ckl
gives 0 'options' "$ckl" ir way.ckl f $T $T --stage=stage
says out 'block 1 budget=1048576 auto reentrant "' 'all reach the block'
sed 's/POLICY/save none/' ways.ckl >way.ckl
gives 0 'without options' "$ckl" ir way.ckl f $T $T --stage=stage
says out 'block 1 "' 'the plain form has none of them'

# row S1.18 offloaded-elsewhere
sed 's/POLICY/offload matmul/' ways.ckl >way.ckl
gives 0 'offload' "$ckl" run --dump=joint way.ckl
awk '/^graph/ { n++ } { print > (n > 1 ? "back" : "fore") }' err
cp fore log
tap_empty "$(grep -c '= place .*device=spill' fore | grep -v '^2$')" 'products are moved away in the forward'
tap_empty "$(grep return fore | grep -w -e %4 -e %7)" 'which hands out no product'
cp back log
tap_empty "$(grep -c '= place .*device=cpu' back | grep -v '^2$')" 'and fetched in the backward'

# row S0.14 copies-late
cat >inside.ckl <<'END'
fn slope(x: f32[4], w: f32[4]) -> f32[4] {
  let a = checkpoint { exp(tanh(x * w)) }
  grad(sum(a * a), w)
}
END
for stage in stage hooks remat simplify; do
  "$ckl" ir inside.ckl slope --stage=$stage >out
  echo "$stage $(grep -c backward out) $(grep -c recomputed out) $(grep -c tag= out)"
done >got
printf '%s\n' 'stage 12 0 3' 'hooks 12 0 3' 'remat 14 2 0' 'simplify 13 2 0' | diff - got >log
tap_status $? 'one pass makes copies of the tags of a gradient, and no other' log

# row S4.21 no-backward
cat >needs.ckl <<'END'
fn one(x: f32[4]) -> f32 = sum(tanh(x))
let x = one(ones([4]))
END
gives 0 'what needs no gradient' "$ckl" run --dump=joint needs.ckl
silent err 'has no backward'
sed 's/ones(.4.)/track(&)/' needs.ckl >need.ckl
gives 0 'what needs one' "$ckl" run --dump=joint need.ckl
tap_empty "$(grep -c '^graph' err | grep -v '^2$')" 'has two halves'
# rows S4.2 function-names, S4.19 backward-places, S4.22 backward-names, S4.27 places-without-mode
# row S4.28 no-place-warning
says joint 'graph "f"' 'functions keep their names'
# the places of the backward of block 3 and of the sum, and the names of their forward nodes, in order
cat >want <<'END'
sum(a + b) :: backward
tanh(g(a) @ w) * 2 :: name="b" region=3 backward
g(a) @ w :: region=3 backward
h * h :: region=3 backward
x :: name="h" region=3 backward
a :: region=3 backward
h * i * uniform([4, 4]) :: name="a" region=1 backward
h * i :: region=1 backward
h @ w :: name="i" region=2 backward
h @ w :: region=2 backward
x @ w :: name="h" region=1 backward
x @ w :: region=1 backward
END
whence f.ckl joint | grep 'backward$' | sed 's/:: [a-z_]* /:: /' | uniq >got
tap_empty "$(diff want got)" 'backward nodes have the places and names of their forward nodes'
tap_empty "$(grep backward joint | grep -v ' @ ')" 'all of them'
gives 0 'nothing is said' "$ckl" ir f.ckl f $T $T --stage=joint
silent err 'no warning'

# row X.2 layers-like-blocks
cat >model.ckl <<'END'
use nn (Linear)
policy lean { save matmul }
model Hand(d: int) {
  let up = Linear(d, d)
  fn forward(x: f32[2, 3]) -> f32[2, 3] = checkpoint <lean> { tanh(up(x)) }
}
model Layer(d: int) {
  let up = Linear(d, d)
  fn forward(x: f32[2, 3]) -> f32[2, 3] = tanh(up(x))
}
model Net(d: int) {
  let layer = Layer(d)
}
fn loss(m: model, x: f32[2, 3]) -> f32 = sum(m(x))
let net = Net(3)
let hand = Hand(3)
checkpoint_layers(net, policy = lean, where = "layer")
let x = ones([2, 3])
let a = loss(hand, x)
let b = loss(net.layer, x)
END
gives 0 'blocks by hand and by layers' "$ckl" run --dump=joint model.ckl
cp err listing
grep -v 'block 1' err | sed 's/ @ [^ ]*//; s/path="[^"]*"//' >log
awk '/^graph/ { n++ } { print > (n > 2 ? "two" : "one") }' log
tap_empty "$(diff one two 2>&1 | head -n 20)" 'they make the same graphs'
tap_status $(($(grep -c '^  block 1 "lean"' listing) != 4)) 'each half of which names the policy' listing

# rows S1.38 model-no-layer, S1.42 layers-first
cat >nest.ckl <<'END'
use nn (Linear)
model Inner(d: int) {
  let up = Linear(d, d)
  fn forward(x: f32[2, 3]) -> f32[2, 3] = exp(tanh(up(x)))
}
model Net(d: int) {
  let inner = Inner(d)
  fn forward(x: f32[2, 3]) -> f32[2, 3] = sin(inner(x))
}
let net = Net(3)
checkpoint_layers(net)
let y = net(ones([2, 3]))
END
gives 0 'layers in layers' "$ckl" run --dump=stage nest.ckl
cp err out
says out 'block 2 in 1 ' 'their blocks nest'
tap_empty "$(grep '= sin ' out | grep region=)" 'the model itself has none'

# row S0.36 warning-once
cat >warn.ckl <<'END'
let w = track(ones([2]))
var y = w
for i in 0..100 { y = y + checkpoint <save all> { tanh(w) } }
# one that is staged anew for each word, and two of them in one line
for b in ["a", "b", "c"] { checkpoint <save all> { if b == "a" { tanh(w) } else { exp(w) } } }
let (a, b) = (checkpoint <save all> { sin(w) }, checkpoint <save all> { cos(w) })
END
for turn in 'a warning in a loop' 'in another process, again'; do
  gives 0 "$turn" "$ckl" run warn.ckl
  sed -n 's/^warning.policy-6.*warn.ckl:/warn.ckl:/p' err | xargs >got
  echo 'warn.ckl:3:27 warn.ckl:5:28 warn.ckl:6:15 warn.ckl:6:49' | diff - got >log
  tap_status $? 'comes once for each place' log
done

# rows S0.7 generator-on-demand, S4.66 layer-listed
printf '#!/bin/sh\necho >>started\nexit 1\n' >generator
chmod +x generator
echo 'let x = 1 + 2' >nothing.ckl
printf 'fn f(x: f32[3]) -> f32 = sum(exp(x) * 17)\nprint(f(ones([3])))\n' >code.ckl
for how in 'check code.ckl' 'run nothing.ckl' 'ir code.ckl f --stage=joint'; do
  # shellcheck disable=SC2086
  gives 0 "$how" env CKL_CODEGEN="$work/generator" CKL_CPU=native CKL_CACHE= CKL_KERNELS= "$ckl" $how
  tap_empty "$(ls started 2>&1 | grep -v 'No such')" 'needs no code generator'
done
if [ -x "$CKL_CODEGEN" ] || [ -x "$builddir/ckl-codegen" ]; then
  env CKL_CODEGEN="$work/generator" CKL_CPU=native CKL_CACHE= CKL_KERNELS= "$ckl" run code.ckl >log 2>&1
  test -f started
  tap_status $? 'and a call of code does' log
fi
says listing 'path="net.layer.up' 'layer paths stand in listings'

# row S0.2 wrap-log
cat >log.ckl <<'END'
let x = wrap <train> { ones([2]) }
END
gives 0 'the channel of wraps' "$ckl" run --log=wrap log.ckl
says err 'wrap: train' 'shows them'
gives 0 'without it' "$ckl" run log.ckl
silent err 'nothing'

# rows S1.15 other-layers-load, S1.12 saved-by-path, S1.13 saved-any-depth, S1.14 plain-file-loads
# rows X.9 saved-files-same, S1.11 buffer-paths
cat >save.ckl <<'END'
use nn (Linear)
policy lean { save matmul }
model Block(d: int) {
  let up = Linear(d, d)
  let deep = [[Linear(d, d)], [Linear(d, d)]]
  buffer seen: f32 = 0.0
  fn forward(x: f32[2, 3]) -> f32[2, 3] = tanh(deep[1][0](deep[0][0](up(x))))
}
model Net(d: int) {
  let blocks = [Block(d), Block(d)]
  fn forward(x: f32[2, 3]) -> f32[2, 3] = blocks[1](blocks[0](x))
}
proc made(kind: int) {
  let net = Net(3)
  if kind == 1 { checkpoint_layers(net) }
  if kind == 2 { checkpoint_layers(net, where = "blocks.1", policy = lean) }
  if kind == 3 { checkpoint_layers(net, where = "blocks.*.deep.*.*") }
  net
}
let x = ones([2, 3])
for a in 0..4 {
  let from = made(a)
  save(from, "net{a}.safetensors")
  for b in 0..4 {
    let into = made(b)
    load(into, "net{a}.safetensors")
    assert paths(into) == paths(from)
    assert same(ravel(params(into)), ravel(params(from)))
    assert same(into(x), from(x))
  }
}
let one = made(0)
for b in 0..4 {
  let net = made(b)
  update(net, params(one))
  save(net, "same{b}.safetensors")
}
END
gives 0 'saved with one choice of layers, loaded with another' "$ckl" run save.ckl
cp err log
tap_empty "$(cmp same0.safetensors same1.safetensors; cmp same0.safetensors same2.safetensors; cmp same0.safetensors same3.safetensors)" 'the files are the same'
for f in same0 same1 same2 same3; do
  grep -a -o '"blocks[a-z0-9.]*"' $f.safetensors | sort | xargs
done | uniq >got
echo 'blocks.0.deep.0.0.b blocks.0.deep.0.0.w blocks.0.deep.1.0.b blocks.0.deep.1.0.w blocks.0.seen blocks.0.up.b blocks.0.up.w' \
  'blocks.1.deep.0.0.b blocks.1.deep.0.0.w blocks.1.deep.1.0.b blocks.1.deep.1.0.w blocks.1.seen blocks.1.up.b blocks.1.up.w' |
  diff - got >log
tap_status $? 'and name params and buffers by their paths alone' log
cat >opaque.ckl <<'END'
fn f(x: f32[3]) -> f32 {
  let h = wrap <opaque "outer"> {
    let t = tanh(x * 2)
    wrap <opaque "inner"> { exp(t) * x } + t
  }
  sum(h)
}
END
gives 0 'a named block' "$ckl" ir opaque.ckl f --stage=stage
says out 'text="outer"' 'is one node of its name'
tap_empty "$(grep -c '^  %.*= wrap' out | grep -v '^1$')" 'at the top'
says out 'text="inner"' 'with the one inside of it'
tap_empty "$(grep '^  %.*= tanh' out)" 'and nothing of its body outside'
for stage in simplify joint; do
  gives 0 "after $stage" "$ckl" ir opaque.ckl f --stage=$stage
  says out 'text="outer"' 'it is still there'
done
gives 0 'in a plan' "$ckl" ir opaque.ckl f --stage=plan
tap_empty "$(grep 'wrap' out)" 'it is gone'
tap_done
