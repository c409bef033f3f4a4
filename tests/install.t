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

# the code generator and the installed kernels are found where they are now, not where they were to be
if [ -x ckl-codegen ]; then
  installed() { # installed COUNTER WORD...: a counter of a run of the installed program
    counter=$1
    shift
    CKL_CPU=native CKL_CACHE= "$dest$prefix/bin/ckl" run --counts "$@" 2>&1 >/dev/null | awk -v c="$counter" '$1 == c { print $2 }'
  }
  echo 'fn f[N](x: f32[N]) -> f32[N] = tanh(x * 3.25) - x
print(sum(f(uniform([10]))) < 10.0)' >"$dest/new.ckl"
  tap_empty "$(
    for program in "$srcdir/jit/installed.ckl" jit/elementwise.ckl; do
      [ "$(installed jit.generated "$program")" = 0 ] || echo "installed kernels of $program are made again"
      [ "$(installed jit.installed "$program")" -gt 0 ] || echo "installed kernels of $program are not used"
    done
    [ "$(installed jit.generated "$dest/new.ckl")" -gt 0 ] || echo 'a new kernel is not made'
  )" 'the installed program makes code and finds installed kernels'
fi

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
  "$@" -Wall -Wextra -Werror -o "$dest/program" "$source" $flags $LDFLAGS -pthread -lm >"$log" 2>&1
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
tap_empty "$(find "$dest$prefix/bin" "$dest$prefix/lib" "$dest$prefix/libexec" \
  "$dest$prefix/include" ! -type d 2>/dev/null)" \
  'uninstall leaves no file'
tap_done
