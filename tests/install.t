#!/bin/sh
# make install with DESTDIR, what a user gets, programs in C and C++ built against it, make uninstall.
. "$srcdir/tests/tap.sh"
dest=$builddir/tests/install.$$
log=$dest.log
trap 'rm -rf "$dest" "$log"' EXIT
trap 'exit 1' HUP INT TERM
mkdir -p "$dest"

"${MAKE:-make}" -s install DESTDIR="$dest" >"$log" 2>&1
tap_status $? 'make install with DESTDIR' "$log"
pc=$(find "$dest" -name ckl.pc)
prefix=$(sed -n 's/^prefix=//p' "$pc")
files=$(cd "$dest$prefix" && find . ! -type d | sort)
tap_empty "$(echo "$files" | grep '\.h$' | grep -v -x ./include/ckl.h)" 'ckl.h is the only header installed'
"$dest$prefix/bin/ckl" --version >"$log" 2>&1
tap_status $? 'the installed program runs' "$log"

# flags as a user gets them, moved to where the copy is
PKG_CONFIG_PATH=$(dirname "$pc"):${PKG_CONFIG_PATH-}
export PKG_CONFIG_PATH
flags=$("${PKG_CONFIG:-pkg-config}" --define-variable=prefix="$dest$prefix" --cflags --libs ckl 2>"$log")
tap_status $? 'pkg-config knows ckl' "$log"
LD_LIBRARY_PATH=$dest$prefix/lib
export LD_LIBRARY_PATH
try() { # try SOURCE COMPILER...
  source=$1
  name=$(basename "$source")
  shift
  "$@" -Wall -Wextra -Werror -o "$dest/program" "$source" $flags $LDFLAGS -pthread >"$log" 2>&1
  tap_status $? "$name is built against the installed library" "$log"
  "$dest/program" >"$log" 2>&1
  tap_status $? "$name runs" "$log"
}
for source in "$srcdir"/tests/api/*.c; do try "$source" $CC -std=c11 $CFLAGS; done
for source in "$srcdir"/tests/api/*.cc; do try "$source" $CXX -std=c++17 $CFLAGS; done
$CC -std=c11 -pedantic -Wall -Wextra -Werror -fsyntax-only -x c "$dest$prefix/include/ckl.h" >"$log" 2>&1
tap_status $? 'ckl.h compiles alone as C11' "$log"

"${MAKE:-make}" -s uninstall DESTDIR="$dest" >"$log" 2>&1
tap_status $? 'make uninstall' "$log"
tap_empty "$(find "$dest$prefix/bin" "$dest$prefix/lib" "$dest$prefix/include" ! -type d)" \
  'uninstall leaves no file'
tap_done
