#!/bin/sh
# How command lines are read: wrong usage is status 2 with a hint on standard error.
. "$srcdir/tests/cli/common.sh"

gives 0 'ckl version' "$ckl" version
says out "ckl $VERSION" 'it prints the version'
gives 0 'ckl --version' "$ckl" --version
says out "ckl $VERSION" 'it prints the same'
gives 0 'ckl help' "$ckl" help
cp out overview
for command in run check test fmt repl ir opt help ops errors builtins version; do
  says overview "ckl $command" "the overview names $command"
  gives 0 "ckl help $command" "$ckl" help $command
  says out "usage: ckl $command" 'it says how'
done
gives 0 'ckl run --help' "$ckl" run --help
says out --memory=SIZE 'options are listed'
gives 0 'ckl --help' "$ckl" --help
silent err 'help asked for is no error'

gives 2 'an unknown command' "$ckl" rnu
says err 'did you mean `run`' 'a near one is suggested'
says err usage: 'and the usage shown'
silent out 'standard output stays empty'
gives 2 'an unknown option' "$ckl" run --dmup=all x.ckl
says err 'did you mean `--dump`' 'a near one is suggested'
gives 2 'an option of another command' "$ckl" check --dump=all x.ckl
says err 'no option --dump here' 'it says so'
gives 2 'an option without its value' "$ckl" run --memory
says err '--memory=SIZE' 'it shows the form'
gives 2 'a value that makes no sense' "$ckl" run --memory=lots x.ckl
gives 2 'a negative size' "$ckl" run --memory=-3 x.ckl
gives 2 'an unknown device' "$ckl" run --device=tpu x.ckl
gives 2 'an option with a value too many' "$ckl" run --counts=3 x.ckl
gives 2 'run without a file' "$ckl" run
gives 2 'run of two files' "$ckl" run a.ckl b.ckl
gives 2 'check without a file' "$ckl" check
gives 2 'ir without a function' "$ckl" ir x.ckl
gives 2 'opt without a pass' "$ckl" opt x.ckg
gives 2 'an unknown pass' "$ckl" opt --pass=nosuchpass x.ckg
says err 'known ones: ' 'the passes are listed'
gives 2 'a topic that is none' "$ckl" help reluu
says err 'did you mean `relu`' 'a near one is suggested'
# what language.md calls words and dtypes, has help that names one of its sections
guide=$srcdir/docs/language.md
words=$(tr '\n' ' ' <"$guide" | sed 's/.*21 words are reserved: `\([^`]*\)`. The words *`\([^`]*\)`.* of a dtype `\([^`]*\)`.*/\1 \2 \3/')
: >without
for word in $words; do
  section=$("$ckl" help "$word" 2>err | sed -n 's/^  (docs\/language.md, "\(.*\)")$/\1/p')
  grep -q -x -F "## $section" "$guide" || echo "$word: $section" >>without
done
tap_empty "$(cat without)" 'all words of the language have help'
tap_status $(($(echo $words | wc -w) != 40)) 'they are 40' without
gives 0 'a name that is a command and a word' "$ckl" help test
says out 'usage: ckl test' 'tells of the command'
says out 'test "title" { .. }' 'and of the word'
gives 0 'a model of the library' "$ckl" help Linear
says out 'model Linear(nin: int, nout: int, bias = true)     use nn (Linear)' 'has its head and its module'
says out 'x @ w + b on the last axis' 'and its comment'
gives 0 'a function of the library' "$ckl" help standardize
says out 'use data (standardize)' 'likewise'
gives 0 'a module of the library' "$ckl" help nn
says out 'It declares Linear Embedding' 'lists what it declares'
gives 2 'a colour that is none' "$ckl" run --color=blue x.ckl
gives 2 'a log channel that is none' "$ckl" run --log=compiel x.ckl
says err 'did you mean `compile`' 'a near one is suggested'
says err 'known ones: compile load wrap' 'the channels are listed'
gives 2 'a level that is none' "$ckl" run --log=compile:loud x.ckl
tap_done
