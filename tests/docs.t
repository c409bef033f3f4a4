#!/usr/bin/perl
# The pages tell the truth. Every ```ckl block of README.md and docs/*.md is a golden program (tests/README.md): as
# PAGE-N.ckl, the N-th of its page, it prints what its `#>` lines say. A block below a line `<!-- $ ckl ARGS -->` is
# what that command prints, both streams, in a folder with these programs. The examples of the library, lines of `##`
# comments that stand three columns further in, run without an error.
# `docs.t --bless` (with srcdir, in the build folder) writes what comes out into the pages: read the difference.
use strict;
use warnings;
use Cwd 'getcwd';
use File::Temp 'tempdir';

my $bless = @ARGV && $ARGV[0] eq '--bless';
my $source = $ENV{srcdir} // '.';
my $build = $ENV{builddir} // getcwd();
my $runner = $ENV{GOLDEN_RUNNER} // "$build/tests/golden-runner";
my $ckl = $ENV{CKL} // "$build/ckl";
my $work = tempdir('docs.XXXXXX', DIR => $build, CLEANUP => 1);
$_ = Cwd::abs_path($_) for $source, $runner, $ckl, $work;
my $count = 0;

sub slurp { open my $f, '<', $_[0] or die "$_[0]: $!\n"; local $/; return scalar(<$f>) // '' }
sub spew { open my $f, '>', $_[0] or die "$_[0]: $!\n"; print $f $_[1]; close $f }
sub result {
  my ($ok, $title, $log) = @_;
  $count++;
  unless ($ok) { print "# $_\n" for split /\n/, $log }
  print $ok ? '' : 'not ', "ok $count - $title\n";
}

$ENV{srcdir} = $work;
chdir $work or die;
mkdir $_ or die for 'tests', 'tests/docs'; # the runner knows the folder tests
my @pages = ("$source/README.md", sort glob "$source/docs/*.md");
my %text = map { $_ => slurp($_) } @pages;
for my $page (@pages) {    # programs first: commands use them
  my ($name) = $page =~ m{([^/]*)\.md$};
  my $n = 0;
  $text{$page} =~ s{^```ckl\n(.*?)^```$}{
    my ($program, $file) = ($1, "tests/docs/$name-" . ++$n . ".ckl");
    spew($file, $program);
    my $log = $bless ? `"$runner" --bless $file 2>&1` : `"$runner" $file 2>&1`;
    result($? == 0, "$name.md, program $n", $log);
    "```ckl\n" . slurp($file) . "```"
  }gmse;
}
for my $page (@pages) {
  my ($name) = $page =~ m{([^/]*)\.md$};
  $text{$page} =~ s{^<!-- \$ ckl (.*?) -->\n```(\w*)\n(.*?)^```$}{
    my ($args, $kind, $want) = ($1, $2, $3);
    my $got = `cd tests/docs && "$ckl" $args 2>&1 </dev/null`;
    my $ok = $bless || $got eq $want;
    result($ok, "$name.md: ckl $args", "it prints\n$got") ;
    "<!-- \$ ckl $args -->\n```$kind\n${got}```"
  }gmse;
  spew($page, $text{$page}) if $bless;
}
# Examples: the names of their file, and of a program around them.
my $head = <<'END';
use nn as layers
model Net() {
  let tok = layers.Embedding(4, 8)
  let a = layers.Linear(8, 8)
  let b = layers.Linear(8, 2)
  fn forward(ids: i64[3]) = b(tanh(a(tok(ids))))
}
let net = Net()
let x = i64([0, 2, 1])
let step = 3
let loss = mean(net(x) ** 2)
let opt = adamw(net)
END
for my $file (sort glob "$source/stdlib/*.ckl $source/stdlib/shelf/*.ckl") {
  my ($text, $log, $n) = (slurp($file), '', 0);
  my ($name, $shelf) = ($file =~ m{(\w+)\.ckl$}, $file =~ m{stdlib/shelf/});
  my @public = $shelf ? () : $text =~ /^(?:fn|proc|model) ([A-Za-z]\w*)/mg;
  my $use = @public ? "use $name (" . join(', ', @public) . ")\n" : '';
  while ($text =~ /((?:^##   .*\n)+)/mg) {
    my $example = $1;
    $example =~ s/^##   //mg;
    $example =~ s/^(?!let |use |wrap |for |opt\.|slow\.|\s)/let result = /mg;
    spew("example.ckl", "$use$head$example");
    my $out = `"$ckl" run example.ckl 2>&1 </dev/null`;
    $log .= "$example$out" if $?;
    $n++;
  }
  result($log eq '', "stdlib/$name.ckl: examples: $n", $log) if $n;
}
print "1..$count\n";
chdir '/';
