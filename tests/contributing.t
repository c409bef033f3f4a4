#!/usr/bin/perl
# CONTRIBUTING.md tells the truth. Of each kind of thing one member is looked up: the numbered places of its section are
# the hand-written files in which the member stands, no more and no less; comments do not count. Places with a dash
# (tests, pages, the Makefile.inc of a new file) exist and have it, too. In a path NAME is the member, other words in
# capitals are anything.
use strict;
use warnings;
use File::Find;

my $root = $ENV{srcdir} || '.';

# section => the member, and how it is written in the sources (`member`: that word, in either case)
my %section = (
  'An elementwise operation' => ['rsqrt'],
  'Another operation' => ['cumsum', qr/\b(?:(?:OP|run)_)?CUMSUM\b|"cumsum"|\b(?:ref|bi)_cumsum\b/],
  'A pass over graphs' => ['cse', qr/\bgr_cse\b|"cse"|\bcse\.c\b/],
  'A builtin in C' => ['one_hot', qr/"one_hot"|\bbi_one_hot\b/],
  'A word of a policy' => ['offload', qr/"offload"|\bPOLICY\(offload\b|\bTAG_OFFLOAD\b/],
  'A mode of wrap' => ['with_params', qr/"with_params"|\bmode_with_params\b|\bMODE\(with_params\b/],
  'An error' => ['call-12', qr/"call-12"|\bERR_DROPPED\b|\bcall-12\b/],
  'A level of CPU' => ['x86-64-v4', qr/x86-64-v4|\bENG_X86_64_V4\b/],
);

sub content {
  my ($path) = @_;
  open my $in, '<', $path or die "$path: $!\n";
  local $/;
  return scalar <$in>;
}

# without comments
sub code {
  my ($path) = @_;
  my $text = content($path);
  $text =~ s{/\*.*?\*/}{ }gs if $path =~ /\.(?:[chy]|inc|def|re)$/;
  $text =~ s{^\s*#.*$}{}gm if $path =~ /(?:\.ckl|\.am|Makefile\.inc)$/;
  return $text;
}

my @sources = ("$root/Makefile.am");
find({no_chdir => 1, wanted => sub {
  return unless -f && /(?:\.[chy]|\.inc|\.def|\.re|\.ckl)$/;
  # generated, in a build in the folder of the sources
  return if m{/parser/(?:grammar|lex)\.[ch]$|/stdlib/embed\.c$|/jit/elementwise\.ckl$|_rows\.def$};
  return if m{/lang/names/foreign\.def$}; # what other languages call things
  push @sources, $_;
}}, map { "$root/$_" } qw(runtime parser graph autograd jit lang stdlib cli include));
my %code = map { my $path = $_; $path =~ s{^\Q$root\E/}{}; ($path => code($_)) } @sources;

# path of the page => files
sub files {
  my ($path, $member) = @_;
  $path =~ s/\bNAME\b/$member/g;
  $path =~ s{\b[A-Z]{2,}\b}{*}g unless -e "$root/$path";
  $path .= '*' if $path =~ m{/$};
  return map { s{^\Q$root\E/}{}r } grep { -f } glob "$root/$path";
}

my $n = 0;
sub check {
  my ($title, @why) = @_;
  print "# $_\n" for @why;
  printf "%sok %d - %s\n", @why ? 'not ' : '', ++$n, $title;
}

my (%page, $heading, @unknown);
for (split /\n/, content("$root/CONTRIBUTING.md")) {
  $heading = $1 if /^## (.*)/;
  next unless defined $heading && /^(\d+\.|-) ((?:`[^`]+`(?:, )?)+)/;
  my ($kind, $paths) = ($1 eq '-' ? 'beside' : 'place', $2);
  push @{$page{$heading}{$kind}}, $paths =~ /`([^`]+)`/g;
}

for my $name (sort keys %section) {
  my ($member, $written) = @{$section{$name}};
  $written //= qr/(?<![A-Za-z])\Q$member\E(?![A-Za-z])/i;
  my $places = $page{$name}{place} || [];
  my @why;
  push @why, "CONTRIBUTING.md has no such section, or no places in it" unless @$places;
  my %there = map { $_ => 1 } grep { $code{$_} =~ $written } keys %code;
  my %said;
  for my $path (@$places) {
    my @hit = grep { $there{$_} } files($path, $member);
    push @why, "`$member` does not stand in $path: the place goes from the list" unless @hit;
    $said{$_} = 1 for @hit;
  }
  # a line in a list of files is no place, if it is said to be beside them
  $said{$_} = 1 for grep { m{(?:^|/)Makefile\.inc$} } @{$page{$name}{beside} || []};
  push @why, "`$member` stands in $_, too: a place more, or one to be saved" for grep { !$said{$_} } sort keys %there;
  check("$name: `$member` is in the places of the list alone", @why);
  @why = ();
  for my $path (@{$page{$name}{beside} || []}) {
    my @files = files($path, $member);
    push @why, "$path is not there" unless @files;
    next if $path =~ /NAME/;
    push @why, "$path does not have `$member`" if @files && !grep { content("$root/$_") =~ /\Q$member\E/i } @files;
  }
  check("$name: what is beside them is there", @why);
}
for my $name (sort keys %page) {
  next if $section{$name};
  check("$name: the places are there",
    map { "$_ is not there" } grep { !files($_, '*') } map { @$_ } values %{$page{$name}});
}
print "1..$n\n";
exit 0;
