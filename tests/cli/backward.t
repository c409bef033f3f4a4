#!/bin/sh
# What the command line shows of captured backwards.
. "$srcdir/tests/cli/common.sh"

cat >grads.ckl <<'END'
use nn (Linear)
let net = Linear(3, 3)
proc slope(n: int) {
  let x = track(ones([n, 3]))
  grad(sum(exp(net(x)) * x), x)
}
slope(4)
slope(5)
slope(1)
print(counter("backward.captures"), counter("backward.hits"))
END
# row S3.1 S3.2 S3.45
gives 0 'a log of captures' "$ckl" run --log=backward:debug grads.ckl
says out '2 1' 'another size takes what is there'
says err 'backward: captured 4 nodes of the tape' 'a capture is told'
says err 'no backward was captured here before' 'the first one'
says err "NodeCall 0, \`sum\` of line 5: other dtypes, ranks, attributes or pattern of sizes" \
  'a size that is a constant is another pattern'
gives 0 'without the log' "$ckl" run grads.ckl
silent err 'nothing is told'

# row S3.47 S3.46
gives 0 'a trace' "$ckl" run --trace-json=trace.json grads.ckl
tap_empty "$(grep -v '^{"event":"backward.capture","file":"grads.ckl","line":5,.*}$' trace.json)" \
  'a line of JSON per capture'
tap_empty "$(grep -c 'origin=2' trace.json | grep -v '^2$')" 'nodes say which call of the tape they are'
gives 2 'a trace that cannot be written' "$ckl" run --trace-json=/nowhere/x.json grads.ckl
says err 'cannot write `/nowhere/x.json`' 'its name shows'
tap_done
