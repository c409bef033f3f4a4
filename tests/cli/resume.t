#!/bin/sh
# A training that is stopped in the middle of an epoch, saved, and gone on with in another process ends with the same bits
# as one that was not stopped (rule 122).
. "$srcdir/tests/cli/common.sh"

cat >run.ckl <<'END'
use nn (Linear)
seed(11)
let x = normal([40, 3])
let y = normal([40, 1])
model Net() {
  let up = Linear(3, 8)
  let down = Linear(8, 1)
  fn forward(x) = down(dropout(relu(up(x)), 0.2))
}
let net = Net()
let opt = adam(net, lr = 0.01)
let order = batches(shuffle((x, y)), 7, shuffle = true)
let stop = args("stop", 0)
var run = (net = net, opt = opt, random = random_state(), at = position(order), epoch = 0, steps = 0)
if args("go_on", false) {
  run = load(run, "run.safetensors")
  seed(run.random)
  seek(order, run.at)
}
var steps = run.steps
proc train() {
  for epoch in run.epoch..3 {
    for (a, b) in order {
      wrap <train> { opt.step(grad(mse(net(a), b), net)) }
      steps += 1
      if steps == stop {
        save((net = net, opt = opt, random = random_state(), at = position(order), epoch = epoch, steps = steps),
          "run.safetensors")
        print("stopped in epoch", epoch, "at", position(order)[:2])
        return ()
      }
    }
  }
  print(steps, net.up.w, net.down.w, uniform([2]))
}
train()
END
gives 0 'a run that is not stopped' "$ckl" run run.ckl
cp out whole
says whole '18 ' 'three epochs have 18 steps'
for stop in 1 8 12 17; do
  gives 0 "it is stopped after $stop steps" "$ckl" run run.ckl stop=$stop
  says out 'stopped in epoch' 'and has saved its state'
  gives 0 'it goes on in another process' "$ckl" run run.ckl go_on=true
  diff whole out >log
  tap_status $? 'and ends with the same bits'
done

# a run that is kept while it goes on
cat >keep.ckl <<'END'
use data (Every)
let net = (w = uniform([200000]), t = 0)
let keep = Every(0.0)
for t in 0..20 { if keep.due() { save((w = net.w, t = t), "kept.safetensors", wait = false) } }
if args("fail", false) { print(ones([2]) + ones([3])) }
END
cat >kept.ckl <<'END'
print(load((w = zeros([200000]), t = 0), "kept.safetensors").t)
END
gives 0 'a run is kept while it goes on' "$ckl" run keep.ckl
gives 0 'and read' "$ckl" run kept.ckl
says out 19 'the last state is there when the program has ended'
rm kept.safetensors
gives 1 'the program fails' "$ckl" run keep.ckl fail=true
gives 0 'what it kept is read' "$ckl" run kept.ckl
says out 19 'and whole'
cp kept.safetensors old
# no room: the error stands at the save, the old file stays
gives 1 'a file that cannot be written' sh -c 'trap "" XFSZ; ulimit -f 100; exec "$0" run --seed=1 keep.ckl' "$ckl"
says err 'kept.safetensors: the file would be too large' 'is an error'
says err 'keep.ckl:4:' 'at the line of the save'
cmp old kept.safetensors >log 2>&1
tap_status $? 'and the old file stays'
cat >keep-test.ckl <<'END'
test "kept" { save((w = uniform([200000])), "kept.safetensors", wait = false) }
END
gives 1 'a test whose file cannot be written' sh -c 'trap "" XFSZ; ulimit -f 100; exec "$0" test keep-test.ckl' "$ckl"
says out 'FAIL keep-test.ckl: kept' 'fails'
tap_done
