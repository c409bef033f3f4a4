#!/bin/sh
# What the libraries show and use: libckl.so exports ckl_* alone, no session state hides in a global
# variable, and nothing below cli/ prints or ends the process.
. "$srcdir/tests/tap.sh"
so=.libs/libckl.so
core=libcklcore.a

exported=$(nm -D --defined-only "$so" | awk '{ print $3 }' | sed 's/@.*//' | sort -u)
tap_empty "$(echo "$exported" | grep -v '^ckl_')" 'libckl.so exports ckl_* alone'

# declarations are what is left of ckl.h without comments, up to an opening parenthesis
declared=$(tr '\n' ' ' <"$srcdir/include/ckl.h" |
  sed 's:/\*[^*]*\**\([^/*][^*]*\*\**\)*/: :g' | tr ';{}' '\n\n\n' |
  grep -v '(\*' | grep -o 'ckl_[a-z0-9_]* *(' | tr -d ' (' | sort -u)
tap_empty "$(for f in $declared; do echo "$exported" | grep -q -x "$f" || echo "$f"; done)" \
  'every function of ckl.h is exported'

# .data.rel.ro (constants with addresses) is fine; the sanitizers keep their own books; gdb asks for a list that
# belongs to the process (jit/engine/load.c); a stack belongs to its thread (runtime/stack.c), a processor to the machine
# (eng_host_level)
tap_empty "$(objdump -t "$core" | awk '
  /file format/ { file = $1 }
  / (\.data|\.bss|\.tdata|\.tbss|\*COM\*)([.a-z_0-9]*)\t/ && !/\t?\.data\.rel\.ro/ {
    if (file ~ /load[.]o/ && $NF ~ /^(__jit_debug_descriptor|debug_lock)/) next
    if (file ~ /stack[.]o/ && / \.tbss\t/ && $NF ~ /^(here|own)$/) next
    if (file ~ /target[.]o/ && $NF ~ /^known[.]/) next
    if ($NF ~ /^[.]/ || $NF ~ /asan|ubsan|sanitizer|^__odr/) next
    print file, $NF }')" 'no global variable can be written to'

# uses NAME|NAME...: which members of the core use one of these functions
uses() { nm -A -u "$core" | awk '{ print $NF, $1 }' | grep -E "^_*($1) "; }

# One abort is fine: the one for a throw without a protected call around it, which only a wrong ckl can
# make. worker.c ends processes of its own, file.c asks whether one that left a file is still there.
tap_empty "$(uses 'exit|_?Exit|abort|quick_exit|assert_fail|v?printf(_chk)?|puts|putchar|perror|stdout|stderr|system|raise|kill' |
  grep -v -e '^abort .*[:/]mem[.]o' -e '^kill .*[:/]worker[.]o' -e '^kill .*[:/]file[.]o')" 'nothing below cli/ prints, exits or aborts'
# mem.c holds the default hook
tap_empty "$(uses 'malloc|calloc|realloc|reallocarray|free|aligned_alloc|posix_memalign|strn?dup|v?asprintf|getline|open_memstream' |
  grep -v -e '[:/]mem[.]o')" 'memory comes from the hook of the session'
tap_empty "$(uses 's?rand|s?random|drand48|setlocale|strtok|signal|sigaction|setenv|putenv|localtime|gmtime|strerror')" \
  'no function with state of the process is used'

tap_empty "$(
  ./ckl --version 2>&1 | grep -q -w -F "$VERSION" || echo "./ckl --version does not say $VERSION"
  grep -q -F "CKL_VERSION \"$VERSION\"" "$srcdir/include/ckl.h" || echo "ckl.h does not say $VERSION"
)" 'configure, ckl.h and ./ckl agree on the version'

tap_empty "$(head -c 4 ./ckl | od -An -c | grep -v 'E *L *F')" './ckl is an executable, no script'
tap_done
