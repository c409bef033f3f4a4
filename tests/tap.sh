# tap.sh: for scripts that print TAP; `. "$srcdir/tests/tap.sh"`, and `tap_done` at the end.
tap_n=0

# tap_status STATUS TITLE [FILE]: passes when STATUS is 0, else shows the end of FILE, and what is not ok
# in it if it is TAP
tap_status() {
  tap_n=$((tap_n + 1))
  if [ "$1" -eq 0 ]; then
    echo "ok $tap_n - $2"
  else
    if [ -n "${3-}" ]; then
      { grep -B 8 '^not ok' "$3" || tail -n 40 "$3"; } | head -n 80 | sed 's/^/# /'
    fi
    echo "not ok $tap_n - $2"
  fi
}

# tap_empty TEXT TITLE: passes when TEXT, most often the output of a search for faults, is empty
tap_empty() {
  tap_n=$((tap_n + 1))
  if [ -z "$1" ]; then
    echo "ok $tap_n - $2"
  else
    echo "$1" | head -n 40 | sed 's/^/# /'
    echo "not ok $tap_n - $2"
  fi
}

tap_done() { echo "1..$tap_n"; }
