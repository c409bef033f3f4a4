#!/bin/sh
# The sources as files: lines, spaces, sizes, the opening comment of each C file.
. "$srcdir/tests/tap.sh"
cd "$srcdir" || exit 1
folders='include runtime parser graph autograd jit lang stdlib cli tests examples bench docs'

# what make and tests write into an in-tree build is no source: folders of tests end in their process or `.d`
sources() { # sources NAME-PATTERN...
  for pattern; do find $folders -type f -name "$pattern"; done |
    grep -v -x -e parser/grammar.c -e parser/grammar.h -e parser/lex.c -e stdlib/embed.c -e '.*_rows[.]def' \
      -e tests/cover/traced.c -e 'tests/cover-.*/.*' -e '.*[.]\([0-9]*\|d\)/.*'
}
c_files=$(sources '*.[chy]' '*.re' '*.def')
text_files="$c_files $(sources '*.ckl' '*.md' '*.inc' '*.t' 'run-*' '*.sh')
  README.md CONTRIBUTING.md configure.ac Makefile.am bootstrap build-aux/embed build-aux/kernels build-aux/lemon build-aux/rows
  ckl.pc.in"
tab=$(printf '\t')
cr=$(printf '\r')

tap_empty "$(grep -n "$tab" $c_files)" 'no tabs in C'
tap_empty "$(echo "$c_files" | grep -v '[.]def$' |
  xargs awk 'length > 100 { print FILENAME ":" FNR ": " length " columns" }')" \
  'lines of C are short'
# prose of Markdown; rows of tables, code and a line that is one address cannot be broken
long_prose() {
  awk 'FNR == 1 { code = 0 }
    /^ *```/ { code = !code }
    !code && length > 100 && !/^ *[|]/ && !/^ *([-*] |[0-9]+[.] )?[^ ]*:\/\/[^ ]*$/ {
      print FILENAME ":" FNR ": " length " columns"
    }' "$@"
}
tap_empty "$(long_prose README.md CONTRIBUTING.md $(sources '*.md'))" 'lines of prose are short'
word=$(printf '%0100d' 0)
[ "$(printf '%s\n' "a $word" "| $word a |" '```' "a $word" '```' "- https://$word" "see https://$word" |
  long_prose | sed 's/.*:\([0-9]*\): .*/\1/' | tr '\n' ' ')" = '1 7 ' ]
tap_status $? 'and a long line is found, outside of tables and code'
tap_empty "$(wc -l $c_files | awk '$1 > 1200 && $2 != "total" && $2 !~ /[.]def$/ { print $2, $1 }')" \
  'a file of C holds one idea, in 1200 lines at most'
tap_empty "$(grep -n "[ $tab]\$" $text_files)" 'no spaces at the ends of lines'
tap_empty "$(grep -l "$cr" $text_files)" 'no carriage returns'
tap_empty "$(for f in $text_files; do [ -z "$(tail -c 1 "$f")" ] || echo "$f"; done)" \
  'files end with a newline'
tap_empty "$(for f in $c_files; do head -n 4 "$f" | grep -q '/\*\|//' || echo "$f"; done)" \
  'each C file opens with what it is about'
# a long file says in its head comment, by these words, why it is not two
unexplained() { # LINES, then a file on standard input
  awk -v most="$1" -v words='One file: ' '
    !over { text = text "\n" $0; over = /[*]\// }
    END { if (NR > most && !index(text, words)) print NR " lines" }'
}
tap_empty "$(for f in $c_files; do
  case $f in
  *.def | include/ckl.h) continue ;;
  *.h) most=300 ;;
  *) most=1000 ;;
  esac
  why=$(unexplained $most <"$f")
  [ -z "$why" ] || echo "$f: $why"
done)" 'a file of C with over 1000 lines, a header with over 300, says in its head why it is one file'
[ -z "$({ echo '/* One file: because.'; echo ' */'; seq 1000; } | unexplained 1000)" ] &&
  [ -n "$({ echo '/* A file. */'; echo '/* One file: because. */'; seq 1000; } | unexplained 1000)" ]
tap_status $? 'and one that does not say it is found'
# what begins a section is written in one way, for whoever looks for sections
rules() {
  awk '/\/[*\/] *(--|[=*#~_][=*#~_][=*#~_])/ && !/^ *\/[*] ---- [^- ]/ || /[-=*#~_][-=*#~_][-=*#~_] *[*]\/$/ {
    print FILENAME ":" FNR ": " $0
  }' "$@"
}
tap_empty "$(rules $c_files $(sources '*.inc' | grep -v Makefile))" 'a section begins with /* ---- name */'
[ "$(printf '%s\n' '/* ---- a */' '/* -- b */' '/* ---- c ---- */' '  /* ---- d: e' '// ---- f' '/*==== g' |
  rules | sed 's/^[^:]*:\([0-9]*\):.*/\1/' | tr '\n' ' ')" = '2 3 5 6 ' ]
tap_status $? 'and a section that begins otherwise is found'
# a source that make does not know is neither built nor in the tarball
known=" $(cat Makefile.am $(find $folders -name Makefile.inc) | tr '\n\t' '  ') "
tap_empty "$(for f in $c_files; do
  case $known in *" $f "* | *" ${f%.c} "*) ;; *) echo "$f: in no Makefile.inc" ;; esac
done)" 'make knows every source'
# objects of one archive are told apart by their names alone; headers by people
tap_empty "$(sources '*.[ch]' | grep -v -e '^tests/' -e '^examples/' -e '^bench/' | sed 's,.*/,,' | sort | uniq -d)" \
  'no two files of C have one name'
# a README of a room names what stands in it, a header with its .c file
tap_empty "$(for d in lang/* jit/* runtime/*; do
  [ -f "$d/Makefile.inc" ] || continue
  for f in "$d"/*.[ch]; do
    case $f in *.h) [ ! -f "${f%.h}.c" ] || continue ;; esac
    grep -q "^| .${f##*/}. |" "$d/README.md" || echo "$f: not in $d/README.md"
  done
done)" 'the README of a room has a line for each of its files'
# so it is seen at a call which room is called
tap_empty "$(for d in lang/*/; do
  begin=$(awk '/^Functions for other files begin/, /^$/' "${d}README.md" | grep -o '`[a-z_]*`' |
    tr -d '`' | tr '\n' ' ')
  awk -v begin="$begin" '
    BEGIN { n = split(begin, b, " ") }
    /^[A-Za-z_][A-Za-z0-9_ *]*[ *][a-z][a-z0-9_]*[(]/ && !/^(static|typedef) / && !/;$/ {
      name = $0
      sub(/[(].*/, "", name)
      sub(/.*[ *]/, "", name)
      for (i = 1; i <= n && index(name, b[i]) != 1; i++) continue
      if (i > n) print FILENAME ":" FNR ": " name
    }' "$d"*.c
done)" 'functions of a room that others call begin as its README says'
# the layout of C is clang-format's; other versions than Debian 12's lay out some lines otherwise
if clang-format --version 2>/dev/null | grep -q 'version 14[.]'; then
  tap_empty "$(sources '*.[ch]' | grep -v -x -e include/ckl.h |
    xargs clang-format --dry-run -Werror 2>&1 | grep 'error:')" 'C is laid out by .clang-format'
else
  tap_n=$((tap_n + 1))
  echo "ok $tap_n # skip no clang-format 14"
fi
tap_done
