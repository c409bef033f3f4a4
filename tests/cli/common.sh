# common.sh: for scripts that try the command; `. "$srcdir/tests/cli/common.sh"`. The folder $work is theirs, and
# the working folder; $ckl is the command.
. "$srcdir/tests/tap.sh"
ckl=$builddir/ckl
work=$builddir/tests/cli.$$
mkdir -p "$work" || exit 1
trap 'cd /; rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
cd "$work" || exit 1
unset NO_COLOR
HOME=$work
XDG_STATE_HOME=$work/state
export HOME XDG_STATE_HOME

# gives STATUS TITLE COMMAND...: the command ends with STATUS; what it wrote is left in ./out and ./err
gives() {
  want=$1 title=$2
  shift 2
  "$@" >out 2>err </dev/null
  got=$?
  { echo "status $got, not $want"; cat out err; } >log
  tap_status $((got != want)) "$title" log
}
# says FILE TEXT TITLE: FILE (out or err) contains TEXT
says() {
  cp "$1" log
  grep -q -F -e "$2" "$1"
  tap_status $? "$3" log
}
# silent FILE TITLE
silent() { tap_empty "$(cat "$1")" "$2"; }
# whence FILE LISTING: the nodes of a listing with a place, each as the text in FILE that it comes from, `::`, its
# operation, and what it says behind the place
whence() {
  perl -e '
    open my $f, "<", $ARGV[0] or die; local $/; my $text = <$f>;
    open my $l, "<", $ARGV[1] or die; $/ = "\n";
    while (<$l>) {
      print substr($text, $2, $3 - $2), " :: $1$4\n" if / = (\w+).* @ \d+:(\d+)-(\d+)(.*)/;
    }' "$@"
}
