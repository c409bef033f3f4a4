#!/usr/bin/perl
# Random programs with hooks: HOOKS_COUNT of them from HOOKS_SEED on. Each is one list of statements over values, layers and
# buffers, with hooks that do not commute on all of them, written in several forms: script whose tape is walked or captured,
# one fn, a fn that takes the gradient itself, each with and without checkpoint blocks. All forms, on the reference
# evaluator, in loops and in machine code, give the same gradients and the same calls of hooks in the same order (rule 89).
# Of params, and of script with blocks, which are passed as a whole, the calls are the same, in an order of their own.
# HOOKS_SHOW prints the programs.
use strict;
use warnings;
use File::Temp 'tempdir';

my $count = $ENV{HOOKS_COUNT} // 12;
my $first = $ENV{HOOKS_SEED} // 1;
my $ckl = $ENV{CKL} // './ckl';
my $work = tempdir('hooks.XXXXXX', DIR => $ENV{builddir} // '.', CLEANUP => 1);

my ($next, %used);  # the number of the next value; names of those that something reads
sub pick { $_[rand @_] }
sub chance { rand() < $_[0] }

# What a program has: lines [depth, text]; a block is [begin, [names], [lines], [names that leave]].
sub statements {
  my ($n, $depth, @have) = @_;
  my (@lines, @made);
  my $use = sub {
    my $v = pick(@have, @made, @made);
    $used{$v}++;
    return $v;
  };
  my $new = sub { push @made, my $v = 'v' . $next++; return $v };
  for (1 .. $n) {
    my $kind = rand 100;
    if ($kind < 26) {
      my ($a, $b) = ($use->(), $use->());
      my $e = pick("$a + $b", "$a - $b", "$a * 2", "-$a", "$a * c", "$a * $b * 0.5");
      push @lines, "let @{[$new->()]} = $e";
    } elsif ($kind < 52) {
      push @lines, "on_grad(@{[$use->()]}, h" . int(rand 6) . ')';
    } elsif ($kind < 64) {
      my $a = $use->();
      push @lines, "let @{[$new->()]} = m" . int(rand 3) . "($a)";
    } elsif ($kind < 72) {
      my $a = $use->();
      push @lines, "let @{[$new->()]} = passed(m" . int(rand 3) . ", $a)";
    } elsif ($kind < 80) {
      my $a = $use->();
      my ($x, $y) = ($new->(), $new->());
      push @lines, "let ($x, $y) = pair(m" . int(rand 3) . ", $a)";
    } elsif ($kind < 85) {
      my $m = 'm' . int(rand 3);
      push @lines, chance(0.5) ? "$m.n = $m.n + 1.0" : "$m.w = $m.w * " . pick(2, 0.5, 'c');
    } elsif ($kind < 89) {
      my ($a, $b) = ($use->(), $use->());
      push @lines, "let @{[$new->()]} = $a * defer(h" . pick(0, 1, 2, 3, 5) . ")(stop($b))";
    } elsif ($depth < 2) {
      my ($l, @out) = statements(2 + int rand 5, $depth + 1, @have, @made);
      next unless @out;
      my $words = pick('', '', ' <reentrant>', ' <save none>');
      push @lines, [$words, $l, @out];
      push @made, @out;
    }
  }
  # a block gives what it made and did not use: what it uses is another value outside
  @made = grep { !$used{$_} } @made if $depth;
  return (\@lines, @made);
}

sub text {
  my ($lines, $blocks, $indent) = @_;
  my $t = '';
  for my $l (@$lines) {
    if (!ref $l) {
      $t .= "$indent$l\n";
    } elsif (!$blocks) {
      $t .= text($l->[1], 0, $indent);
    } else {
      my ($words, $inner, @out) = @$l;
      my $names = @out > 1 ? '(' . join(', ', @out) . ')' : $out[0];
      $t .= "${indent}let $names = checkpoint$words {\n" . text($inner, 1, "$indent  ") .
            "$indent  $names\n$indent}\n";
    }
  }
  return $t;
}

sub program {
  my ($seed) = @_;
  srand $seed;
  ($next, %used) = (1);
  my ($lines, @out) = statements(8 + int rand 12, 0, 'v0');
  my $sum = join ' + ', map { "sum($_ * " . pick(1, 2, 'c') . ')' } 'v0', @out;
  my $p = '';
  my @forward = ('x * w', 'x', "{\n    on_grad(x, h4)\n    let y = x * w\n    on_grad(y, h5)\n    y\n  }",
                 "{\n    let y = x + w\n    n = n + 1.0\n    y * y * 0.5 + x\n  }");
  for my $k (0 .. 2) {
    my $f = pick(@forward);
    $p .= "model M$k() {\n  param w: f64[2] = f64([" . pick(1, 2, -1) . ', ' . pick(1, 0.5, 3) . "])\n" .
          "  buffer n: f64 = 0.0\n  fn forward(x: f64[2]) -> f64[2] " . ($f =~ /^\{/ ? '' : '= ') . "$f\n}\n";
  }
  $p .= "fn passed(m, x) = m(x)\n";
  my $pair = pick('(y, x * y)', '(x + 0, y)', '(x, y)');
  $p .= "fn pair(m, x) {\n  let y = x * m(x)\n" . (chance(0.5) ? "  on_grad(y, h1)\n" : '') . "  $pair\n}\n";
  $p .= "var said = \"\"\nvar of_params = \"\"\n";
  $p .= "proc say(what, g) { said = \"{said}{what} {g[0]} {m0.n} {m1.n} {m2.n} {m0.w} {m1.w[0]}; \" }\n";
  my @answer = ('g * 2', 'g + 1', '-g', 'g * g', '()', 'g - 3');
  for my $k (0 .. 5) { $p .= "proc h$k(g) {\n  say(\"h$k\", g)\n  $answer[$k]\n}\n" }
  $p .= "let c = f64([2, -1])\n";
  $p .= "let m$_ = M$_()\n" for 0 .. 2;
  for my $k (0 .. 2) {
    $p .= "on_call(m$k, before = fn(dy) {\n  say(\"before $k\", dy)\n  dy * 3\n})\n" if chance(0.4);
    $p .= "on_call(m$k, after = fn(dx, dy) {\n  say(\"after $k\", dx)\n  say(\"of\", dy)\n  dx + dy\n})\n"
      if chance(0.4);
    $p .= "on_grad(m$k.w, fn(g) {\n  of_params = \"{of_params}w$k {g[0]}; \"\n  g * 2\n})\n" if chance(0.4);
    $p .= "after_grad(m$k.w, fn(q, g) {\n  of_params = \"{of_params}after $k {g[0]} {q[0]}; \"\n  g + 1\n})\n"
      if chance(0.3);
  }
  $p .= "after_backward(fn() { said = \"{said}end\" })\n" if chance(0.3);
  my $types = 'm0: M0, m1: M1, m2: M2, x: f64[2], c: f64[2]';
  for my $b (0, 1) {
    my $body = "  let v0 = x * 1\n" . text($lines, $b, '  ') . "  $sum\n";
    $p .= "proc script$b(m0, m1, m2, x, c) {\n$body}\nfn code$b($types) -> f64 {\n$body}\n" .
          "fn inside$b($types) = grad(code$b(m0, m1, m2, x, c), (x, m0.w, m1.w, m2.w))\n";
  }
  $p .= "m0.w = f64([1, 2])\nm1.w = f64([2, 1])\nm2.w = f64([-1, 2])\n";
  $p .= "let x = track(f64([1, 2]))\n" . <<'END';
proc shown(form, g) {
  print("{form}: {g.0} {g.1} {g.2} {g.3}")
  print("{form}: {said}")
  print("{form}: params: {of_params}")
  print("{form}: {m0.n} {m1.n} {m2.n}")
  said = ""
  of_params = ""
  for m in list(m0, m1, m2) { m.n = 0.0 }
  m0.w = f64([1, 2])
  m1.w = f64([2, 1])
  m2.w = f64([-1, 2])

}
END
  my %forms = (script => 'script', captured => 'script', code => 'code', inside => 'inside');
  for my $b (0, 1) {
    for my $form (qw(script captured code inside)) {
      my $f = "$forms{$form}$b";
      my $e = $form eq 'inside' ? "$f(m0, m1, m2, x, c)" : "grad($f(m0, m1, m2, x, c), (x, m0.w, m1.w, m2.w))";
      $e = "wrap <backward plain> { $e }" if $form eq 'script';
      $p .= "shown(\"$form$b\", $e)\n";
    }
  }
  return $p;
}

# What differs between forms and modes, or ''.
sub differs {
  my ($file) = @_;
  my (%right, %whose); # by order
  for my $mode ('--interpret', 'CKL_CPU=loops', 'CKL_CPU=native') {
    local $ENV{CKL_CPU} = $1 if $mode =~ /=(.*)/;
    my $option = $mode =~ /^--/ ? $mode : '';
    my $out = `$ckl run $option $file 2>$work/err`;
    if ($?) {
      open my $f, '<', "$work/err" or die;
      return "$mode fails:\n" . join '', grep { !/^warning/ } <$f>;
    }
    my (%form, %sorted);
    for (split /\n/, $out) {
      next unless /^(\w+): (params: )?(.*)/;
      my $sorted = join '; ', sort split /; /, $3;
      $form{$1} .= ($2 ? $sorted : $3) . "\n";
      $sorted{$1} .= "$sorted\n";
    }
    return "$mode says nothing" if keys %form != 8;
    for my $name (sort keys %form) {
      for (['any', $sorted{$name}], [$name =~ /^(script|captured)1/ ? 'blocks' : 'one', $form{$name}]) {
        my ($order, $is) = @$_;
        ($right{$order}, $whose{$order}) = ($is, "$mode $name") unless defined $right{$order};
        return "$whose{$order}:\n$right{$order}$mode $name:\n$is" if $is ne $right{$order};
      }
    }
  }
  return '';
}

for my $seed ($first .. $first + $count - 1) {
  my $text = program($seed);
  print map { "# $_\n" } split /\n/, $text if $ENV{HOOKS_SHOW};
  open my $f, '>', "$work/p.ckl" or die;
  print $f $text;
  close $f;
  my $what = differs("$work/p.ckl");
  print map { "# $_\n" } split /\n/, $what if $what;
  print $what ? 'not ' : '', 'ok ', $seed - $first + 1, " - hooks of program $seed\n";
}
print "1..$count\n";
