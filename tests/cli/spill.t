#!/bin/sh
# Offloaded values of the host: in an account of their own, or in a file.
. "$srcdir/tests/cli/common.sh"

cat >offload.ckl <<'END'
fn body(x: f32[64, 64], w: f32[64, 64]) -> f32[64, 64] = tanh(tanh(tanh(x @ w) @ w) @ w)
fn plain(x: f32[64, 64], w: f32[64, 64]) -> f32 = sum(body(x, w))
fn away(x: f32[64, 64], w: f32[64, 64]) -> f32 = sum(checkpoint <offload matmul> { body(x, w) })
fn slope(x: f32[64, 64], w: f32[64, 64]) -> f32[64, 64] = grad(plain(x, w), w)
fn slope_away(x: f32[64, 64], w: f32[64, 64]) -> f32[64, 64] = grad(away(x, w), w)
let x = normal([64, 64])
let w = normal([64, 64]) * 0.1
assert slope(x, w) == slope_away(x, w)
let before = counter("spill.peak")
let p = track(w)
assert grad(plain(x, p), p) == grad(away(x, p), p)
let between = counter("spill.peak")
print(before, between, counter("spill.live"))
END
gives 0 'values wait in an account' "$ckl" run --interpret offload.ckl
says out '49152 49152 0' 'three products, and nothing is left'
gives 0 'the same by compiled code' "$ckl" run offload.ckl
says out '49152 49152 0' 'with the same account'
gives 0 'values wait in a file' "$ckl" run --spill=away.bin offload.ckl
says out '49152 49152 0' 'with the same account'
tap_empty "$(ls away.bin 2>/dev/null)" 'the file is gone afterwards'
: >away.bin
gives 0 'an empty file is taken' "$ckl" run --spill=away.bin offload.ckl
tap_empty "$(ls away.bin 2>/dev/null)" 'it is gone, too'
# Without a file they take room of the process, which a limit knows before the call begins.
cat >limit.ckl <<'END'
fn layer(h: f32[128, 64], w: f32[64, 64]) -> f32[128, 64] { tanh(exp(-(h @ w) ** 2) + h) }
fn chain(x: f32[128, 64], w: f32[64, 64]) -> f32 {
  print("begins")
  var h = x
  for i in 0..50 { h = layer(h, w) }
  mean(h ** 2)
}
fn slope(x: f32[128, 64], w: f32[64, 64]) = grad(checkpoint <offload all> { chain(x, w) }, w)
let x = normal([128, 64], key = key(1))
let w = normal([64, 64], key = key(2)) * 0.2
let d = slope(x, w)
END
gives 1 'offloaded values do not fit' "$ckl" run --memory=8500000 limit.ckl
says err 'mem-2' 'the call is refused'
tap_empty "$(cat out)" 'before it begins'
gives 0 'they fit in a file' "$ckl" run --memory=8500000 --spill=away.bin limit.ckl

cat >beside.ckl <<'END'
fn body(x: f32[32, 32], w: f32[32, 32]) -> f32[32, 32] {
  var h = x
  for i in 0..5 { h = tanh(h @ w) }
  h
}
fn slope(x: f32[32, 32], w: f32[32, 32]) -> f32[32, 32] = grad(sum(body(x, w)), w)
fn slope_away(x: f32[32, 32], w: f32[32, 32]) -> f32[32, 32] = grad(sum(checkpoint <offload all> { body(x, w) }), w)
let x = normal([32, 32], key = key(1))
let w = normal([32, 32], key = key(2)) * 0.1
let want = slope(x, w)
for i in 0..8 { assert same(slope_away(x, w), want) }
print(counter("offload.bytes") / (8 * 4 * 32 * 32), counter("offload.us") > 0, counter("offload.wait") > 0)
END
for threads in 1 2; do
  gives 0 "copies beside other steps, of $threads threads" env CKL_THREADS=$threads CKL_CPU=loops "$ckl" run beside.ckl
  says out '10.0 true true' 'each value is counted once each way'
  gives 0 'the same with a file' env CKL_THREADS=$threads CKL_CPU=loops "$ckl" run --spill=away.bin beside.ckl
  says out '10.0 true true' 'and its counters'
done
gives 2 'a file with contents' "$ckl" run --spill=offload.ckl offload.ckl
says err '`offload.ckl` is not empty' 'is left alone'
tap_status $(($(wc -c <offload.ckl) == 0)) 'with what it holds' err
mkfifo pipe && ln -s nothing link && mkdir folder
for other in pipe link folder; do
  gives 2 "a $other" "$ckl" run --spill=$other offload.ckl
  says err "\`$other\` is no file of data" 'is none'
done
tap_status $((0$([ -p pipe ] && [ -L link ] && [ -d folder ] || echo 1))) 'all are still there' err
gives 2 'a file that cannot be written' "$ckl" run --spill=/nowhere/x.bin offload.ckl
says err 'cannot write `/nowhere/x.bin`' 'its name shows'
tap_done
