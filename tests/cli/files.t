#!/bin/sh
# --files: a program reaches all files, none, or plain ones below a folder, whatever its paths look like.
. "$srcdir/tests/cli/common.sh"

mkdir -p in/sub in/deep/er other
echo 'fn twice(x: f32[3]) -> f32[3] = 2 * x' | tee in/mod.ckl in/sub/mod.ckl other/mod.ckl >/dev/null
printf '1,2\n3,4\n' | tee in/t.csv in/sub/t.csv other/t.csv >/dev/null
ln -s ../other in/away
ln -s ../other/t.csv in/away.csv
ln -s t.csv in/near.csv
ln -s sub in/near
ln -s new-elsewhere in/dangling.csv
mkfifo in/pipe in/pipe.safetensors
ln -s ../other/t.safetensors in/away.safetensors
ln -s t.safetensors in/near.safetensors
ln -s new-elsewhere in/dangling.safetensors

# try FILES STATUS TITLE PROGRAM: runs it in the file main.ckl of this folder
try() {
  printf '%s\n' "$4" >main.ckl
  gives "$2" "$3" timeout 20 "$ckl" run --files="$1" main.ckl
}
# closed FILES PATH: no call opens it
closed() {
  for call in "read_csv(\"$2\")" "read_bytes(\"$2\")" "load(list(ones([2])), \"$2\")" \
    "save(list(ones([2])), \"${2%.*}.safetensors\")" "read_text(\"$2\")" "let l = read_lines(\"$2\")" \
    "read_bytes(\"$2\", mapped = true)" "write_text(\"\", \"$2\")" "append_text(\"\", \"$2\")" \
    "write_bytes([1], \"$2\")" "write_csv([1], \"$2\")" "exists(\"$2\")" "file_size(\"$2\")" "remove_file(\"$2\")" \
    "rename_file(\"$2\", \"in/new-elsewhere\")" "make_folder(\"$2/x\")" "list_files(\"$2/\")" "read_table(\"$2\")" \
    "read_npz(\"$2\")" "read_tensors(\"$2\", mapped = true)" "write_json(1, \"$2\")"; do
    try "$1" 1 "$call with --files=$1" "use data (read_csv, read_bytes)
$call"
    case $call in save*.csv* | save*.ckl*) says err 'error[file-' 'is refused' ;; # for its ending, before it comes to the door
    *) says err 'error[file-4]' 'is refused' ;; esac
    says err 'main.ckl:2:' 'where it stands'
  done
  try "$1" 1 "use \"$2\" with --files=$1" "use \"$2\" as m"
  says err 'error[file-4]' 'is refused'
  says err '--files=FOLDER' 'with a way out'
}

for path in in/t.csv /etc/passwd /dev/null no/such/file main.ckl; do closed none "$path"; done
says err 'this program reaches no files' 'and why'
for path in other/t.csv ../t.csv /etc/passwd /dev/zero /proc/self/mem "$work/other/t.csv" in/../other/t.csv in/sub/../../other/t.csv \
  in/away/t.csv in/away.csv in/near.csv in/near/t.csv in/pipe in/no/../../other/t.csv "$work/in/../other/t.csv" \
  "in/../../$(basename "$work")/other/t.csv" in/dangling.csv in/../in2/t.csv ./in/.././other//t.csv; do
  closed in "$path"
done
tap_empty "$(find other in -newer main.ckl; ls in/new-elsewhere 2>/dev/null)" 'nothing was written'
closed in/sub in/t.csv

for files in all in ./in/. "$work/in" other/../in . /; do
  try "$files" 0 "--files=$files opens what lies below it" 'use "in/mod.ckl" (twice)
use "in/sub/mod.ckl" as m
use "./in//deep/../mod.ckl" as again
use data (read_csv)
assert read_csv("in/t.csv") == f32([[1, 2], [3, 4]])
assert read_csv("in/./deep/er/../..//sub/t.csv") == read_csv(here("in/t.csv"))
save(list(f32([5, 6])), "in/sub/new.safetensors")
save(list(f32([7, 8])), "in/sub/new.safetensors")
let l = load(list(zeros([2])), "in/sub/new.safetensors")
print(l[0], again.twice(ones([3])))'
  says out '[7.0 8.0] [2.0 2.0 2.0]' 'and it works'
  tap_empty "$(ls -A in/sub | grep -v -x -e mod.ckl -e t.csv -e new.safetensors)" 'nothing else is left there'
done
try in 1 'a folder is no file' 'save(list(ones([2])), "in/sub")'
says err 'error[file-1]: in/sub: is a folder' 'says the same as ever'
try in 1 'a file that is not there' 'let l = load(list(ones([2])), "in/none.safetensors")'
says err 'error[file-1]: in/none.safetensors: no such file' 'says the same as ever'
try in 1 'a folder that is not there' 'save(list(ones([2])), "in/none/x.safetensors")'
says err 'no such file' 'says the same as ever'
gives 0 'a library in a folder of the host' sh -c "echo 'use mod (twice)
print(twice(ones([3])))' >uses.ckl; '$ckl' run --files=none --lib=other uses.ckl"
gives 0 'the embedded library needs no file' sh -c "echo 'use nn (Linear)
print(1)' >uses.ckl; '$ckl' run --files=none uses.ckl"
printf 'a\nb\n' >lines
try_input() { gives "$1" "$2" sh -c "'$ckl' run --files=$3 stdin.ckl <lines"; }
printf '%s\n' 'for l in read_lines("-") { print("<{l}>") }' '"more\n".write_text("-")' >stdin.ckl
try_input 0 'standard input and output' all
says out '<b>' 'are read and'
says out more 'written'
for files in none in; do
  try_input 1 "standard input with --files=$files" $files
  says err 'error[file-4]' 'is refused'
done
try none 0 'standard output is open, as it is to print' 'write_text("out\n", "-")'
says out out 'and gets the text'
cd in/sub || exit 1
gives 0 'paths begin at the working folder' sh -c "echo 'use data (read_csv)
print(read_csv(\"../t.csv\")[1, 1])' >up.ckl; '$ckl' run --files=.. up.ckl"
says out 4 'which may lie deeper than the open one'
gives 1 'and no higher' sh -c "echo 'use data (read_csv)
print(read_csv(\"../../other/t.csv\")[1, 1])' >up.ckl; '$ckl' run --files=.. up.ckl"
cd ../..

for command in check test 'plan --files=none'; do
  echo 'use "in/mod.ckl" (twice)
fn f(x: f32[3]) -> f32[3] = twice(x)
print(f(ones([3])))
test "t" { assert 1 == 1 }' >main.ckl
  gives 1 "ckl $command loads nothing either" "$ckl" $command --files=none main.ckl f
  says err 'error[file-4]' 'and says so'
done
gives 1 'the REPL loads nothing' sh -c "printf ':load in/mod.ckl\n:load main.ckl\n' | '$ckl' repl --files=none"
says err ':load: --files does not open `in/mod.ckl`' 'and says so'
echo 'let three = 3' >in/three.ckl
gives 0 'or what lies below the folder' sh -c "printf ':load in/three.ckl\nprint(three + 4)\n' | '$ckl' repl --files=in"
says out 7 'which it runs'
gives 2 'no folder' "$ckl" run --files=in/t.csv main.ckl
says err '`in/t.csv` is no folder' 'is wrong usage'
tap_done
