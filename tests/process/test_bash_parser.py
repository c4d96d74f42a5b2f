"""Tests of the script reader: the structure that bash gives a script, or Opaque with a reason and a position."""

import dataclasses
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policy.bash.ast import Command, Opaque, Redirect, RedirectOp, Script, Substitution
from policy.bash.parser import read
from policy.bash.printer import show
from policy.model.abstract_word import SourceSpan

# fmt: off
SHAPES: tuple[tuple[str, str, str], ...] = (
    ("", "nothing", "no command at all"),
    (" \n# a comment\n\t", "nothing", "nor in blanks and comments"),
    ("a b", "command a b", "one command"),
    ("a # b; c", "command a", "a comment"),
    ("a;#b\nc", "command a\ncommand c", "a comment right after an operator"),
    ("a; b\nc & d", "command a\ncommand b\ncommand c &\ncommand d", "lists"),
    ("a && b ||\n# c\n d", "command a\n&& command b\n|| command d", "and, or, and a line break after it"),
    ("a | b |& c", "pipeline\n  command a\n  command b\n  command c", "pipelines"),
    ("! a | b", "not pipeline\n  command a\n  command b", "a negated pipeline"),
    ("! a", "not\n  command a", "a negated command"),
    ("!a b", "command !a b", "not a negation"),
    ("a \\\n  b \\\n\\\n c", "command a b c", "line continuations between words"),
    ("a b\\\n  c >f\\\n 2>&1\\\n\\\n | d 'e'\\\n ;f", "pipeline\n  command a b c\n    > f\n    2>&1\n  command d e\ncommand f",
     "line continuations glued to what they follow"),
    ("a |\\\nb &&\\\nc; case d in e|\\\nf) g;; esac",
     "pipeline\n  command a\n  command b\n&& command c\ncase d\nwhen e or f\n  command g", "and to operators"),
    ("{ a; b; }", "group\n  command a\n  command b", "a group"),
    ("(a; b)", "subshell\n  command a\n  command b", "a subshell"),
    ("( (a) )", "subshell\n  subshell\n    command a", "nested, with a blank"),
    ("echo { } if then ! ]]", "command echo { } if then ! ]]", "reserved words mean nothing after a command name"),
    ("'if' a", "command if a", "nor when quoted"),
    ("i\\f a", "command if a", "nor when partly quoted"),
    ("{a b", "command {a b", "`{` is reserved only alone"),
    ("if a; then b; fi", "if\n  command a\nthen\n  command b", "if"),
    ("if a\nthen b\nelif c; then d\nelse e\nfi",
     "if\n  command a\nthen\n  command b\nelif\n  command c\nthen\n  command d\nelse\n  command e", "all of it"),
    ("while a; b; do c; done", "while\n  command a\n  command b\ndo\n  command c", "while"),
    ("until a\ndo\nb\ndone >f", "until\n  command a\ndo\n  command b\n  > f", "until, with a redirection"),
    ("for x in a 'b c' *; do d $x; done", "for x in a 'b c' *\ndo\n  command d ${x}", "for"),
    ("for x in; do a; done", "for x in\ndo\n  command a", "over nothing"),
    ("for x do a; done", "for x\ndo\n  command a", "over the arguments"),
    ("for x; do a; done", "for x\ndo\n  command a", "over the arguments, with a semicolon"),
    ("for x\nin a do\ndo b\ndone", "for x in a do\ndo\n  command b", "`do` as a word, then as a keyword"),
    ("for x in {1..3} a{b,c}; do d; done", "for x in 1 2 3 ab ac\ndo\n  command d", "braces become several words"),
    ("a $((1 + 2 * 3)) \"$(( (x) ? -1 : 2 ))\"; x=1",
     'command a $((1 + (2 * 3))) "$((x ? (-1) : 2))"\ncommand x=1', "arithmetic over numbers"),
    ("for i in 1 2; do a $((i%2)); done", "for i in 1 2\ndo\n  command a $((i % 2))", "over a name that holds numbers"),
    ("a $(($# + ${#x} - $?)) $((RANDOM))", "command a $((($# + ${#x}) - $?)) $((RANDOM))",
     "over counts"),
    ("x=1; ((x += 2, x--)) && a", "command x=1\ncompute (x += 2), (x--)\n&& command a", "as a command"),
    ("for ((i=0; i<3; i++)); do a $i; done >f",
     "for ((i = 0; i < 3; i++))\ndo\n  command a ${i}\n  > f", "counting"),
    ("for ((;;)) do a; done", "for ((; ; ))\ndo\n  command a", "for ever"),
    ("((1)) >f", "compute 1\n  > f", "with a redirection"),
    ("[[ -f a && ! ( $x == *.py || \"$y\" < b ) ]] || c",
     "test -f a && ! ( ${x} == '*'.py || \"${y}\" < b )\n|| command c", "conditions"),
    ("[[ -n $(a) ]] >f", "test -n $(..)\n  inside $(..)\n    command a\n  > f", "D1: every position"),
    ("[[ a == $(b) ]]", "test a == $(..)\n  inside $(..)\n    command b", "D1: every position"),
    ("[[ $x =~ ^(a|b)[0-9]+\\.c$ ]]", "test ${x} =~ '^(a|b)[0-9]+\\.c$'", "a regular expression"),
    ("[[ $x =~ $y ]]", "test ${x} =~ ${y}", "one in a variable"),
    ("x=1; [[ $x -gt 0 && $# -lt 3 ]]", "command x=1\ntest ${x} -gt 0 && ${#} -lt 3", "numbers"),
    ("[[ a &&\n b ]]", "test a && b", "over two lines"),
    ("case $x in a|'b c') d; e;; (f) ;; *) g & esac >h",
     "case ${x}\nwhen a or 'b c'\n  command d\n  command e\nwhen f\n  nothing\nwhen '*'\n  command g &\n  > h", "case"),
    ("case a in\n# c\na)\nb\n;;\nesac", "case a\nwhen a\n  command b", "over lines"),
    ("case $(a) in $(b)|\"`c`\") ;; esac",
     "case $(..)\n  inside $(..)\n    command a\nwhen $(..) or \"$(..)\"\n  inside $(..)\n    command b\n"
     "  inside $(..)\n    command c\n  nothing", "case 21: every position"),
    ("case a in if) b;; esac", "case a\nwhen if\n  command b", "no reserved word there"),
    ("a $(case b in (c) d;; esac)", "command a $(..)\n  inside $(..)\n    case b\n    when c\n      command d", "inside"),
    ("case x in esac", "case x", "nothing to choose from"),
    ("a $(case b in c) d;; e|f) ;; esac)",
     "command a $(..)\n  inside $(..)\n    case b\n    when c\n      command d\n    when e or f\n      nothing", "as people write it"),
    ("local x=(a 'b c') -r y=1", "command x=(a 'b c') local -r y=1", "an array that is declared"),
    ("x=\"${x:=\"a\"}\" y=${y=b}", "command x=\"${x:=a}\" y=${y=b}", "a default for the same variable"),
    (": \"${x:=a $(b)}\" ${y=c}", "command : \"${x:='a '\"$(..)\"}\" ${y=c}\n  inside $(..)\n    command b", "a default that is kept"),
    ("time a | b; time -p c", "time pipeline\n  command a\n  command b\ntime\n  command c", "time"),
    ("x=(a 'b c' $(d) *.py)\ny+=(e)", "command x=(a 'b c' $(..) *.py)\n  inside $(..)\n    command d\ncommand y+=(e)", "arrays"),
    ("x=(\"${y[@]}\" ${y[0]})", "command x=(\"${y[@]}\" ${y[0]})", "one from another"),
    ("x[1]='a b' x[i+1]+=$(c) >f", "command x[1]='a b' x[i+1]+=$(..)\n  inside $(..)\n    command c\n  > f", "D7: elements by plain numbers"),
    ("x=(\na # b\nc\n)", "command x=(a c)", "over lines"),
    ("declare -A m=([a]=1 ['b.c']=\"$x\" d); m[\"$k\"]=v", "command m=([a]=1 [b.c]=\"${x}\" d) declare -A\ncommand m[\"${k}\"]=v",
     "keys of associative arrays"),
    ("a ${m[$x.y]:-b} \"${!m[@]}\" ${m[\"k\"]}", "command a ${m[${x}.y]:-b} \"${!m[@]}\" ${m[k]}", "likewise"),
    ("a ${x:$i:1} \"${x[@]:1}\" ${x[i+1]} \"${!y}\" ${!1}",
     "command a ${x:$((i)):1} \"${x[@]:1}\" ${x[i+1]} \"${!y}\" ${!1}", "what is computed"),
    ("a \"${x[@]}\" ${#x[@]} ${x[0]:-b}", "command a \"${x[@]}\" ${#x[@]} ${x[0]:-b}", "and what is in them"),
    ("x=1 y+=2 a z=3", "command x=1 y+=2 a z=3", "assignments only before the name"),
    ("2>f x=1 a", "command x=1 a\n  2> f", "D9: also after a redirection"),
    ("x=1", "command x=1", "an assignment alone"),
    (">f", "command\n  > f", "a redirection alone"),
    ("a >f 2>>g <h >|i <>j &>k &>>l 3<m",
     "command a\n  > f\n  2>> g\n  < h\n  >| i\n  <> j\n  &> k\n  &>> l\n  3< m", "files"),
    ("a 2>&1 >&2 <&3 >&- 4>&5-", "command a\n  2>&1\n  >&2\n  <&3\n  >&-\n  4>&5-", "descriptors"),
    ("{fd}>f a b {x}<g; c \"{fd}\">h {fd} >&$fd {fd}>&- <&\"${x}\"",
     "command a b\n  {fd}> f\n  {x}< g\ncommand c '{fd}' {fd}\n  > h\n  >&${fd}\n  {fd}>&-\n  <&\"${x}\"", "D8: descriptors in variables"),
    ("a>f b", "command a b\n  > f", "without blanks, and in the middle"),
    ("a2>f", "command a2\n  > f", "a digit at the end of a word is no descriptor"),
    ("a 2 >f", "command a 2\n  > f", "nor is one before a blank"),
    ('a "2">f', "command a 2\n  > f", "nor a quoted one"),
    ("a <<<'b c'", "command a\n  <<< 'b c'", "a here-string"),
    ("a <<<*", "command a\n  <<< '*'", "where no file names appear"),
    ("{ a; } 2>&1 | b", "pipeline\n  group\n    command a\n    2>&1\n  command b", "a group in a pipeline"),
    ("a <(b c) > >(d)",
     "command a <(..)\n  inside <(..)\n    command b c\n  > >(..)\n    inside >(..)\n      command d", "D1"),
    ("a \"$(b `c`)\"",
     'command a "$(..)"\n  inside $(..)\n    command b $(..)\n      inside $(..)\n        command c', "nested"),
    ("x=$(a) >$(b)",
     "command x=$(..)\n  inside $(..)\n    command a\n  > $(..)\n    inside $(..)\n      command b", "D1: every position"),
    ("for x in $(a); do b; done", "for x in $(..)\n  inside $(..)\n    command a\ndo\n  command b", "D1: every position"),
    ("a <<<$(b)", "command a\n  <<< $(..)\n    inside $(..)\n      command b", "D1: every position"),
    ("a <<E\nx y\nE", "command a\n  << 1 line", "a here-document"),
    ("a <<'E'\n$(b)\nE\n", "command a\n  << 1 line", "a quoted delimiter: nothing in it is special"),
    ("a <<E\nx\\\ny\\\\\nE\nb", "command a\n  << 1 line\ncommand b", "line continuations in it join lines, an escaped backslash does not"),
    ("a <<E\n`b \"c\"`\nE", "command a\n  << text that depends on the moment\n    inside $(..)\n      command b c", "quotes in its backquotes"),
    ("a <<E\nx$'b$\\y\nE\nb", "command a\n  << 1 line\ncommand b", "dollar signs that mean nothing in it"),
    ("a <<E\n$(b)\nE\nc",
     "command a\n  << text that depends on the moment\n    inside $(..)\n      command b\ncommand c",
     "D5, and what follows"),
    ("a <<E | b; c\nx\nE\nd", "pipeline\n  command a\n    << 1 line\n  command b\ncommand c\ncommand d",
     "the rest of its line comes first"),
    ("a <<A <<B\n1\nA\n2\nB\nb", "command a\n  << 1 line\n  << 1 line\ncommand b", "two on a line"),
    ("while a; do b; done <<E\n`c`\nE",
     "while\n  command a\ndo\n  command b\n  << text that depends on the moment\n    inside $(..)\n      command c", "D5"),
    ("a \"$(b <<'E'\n') \"\nE\n)\"", 'command a "$(..)"\n  inside $(..)\n    command b\n      << 1 line',
     "the way models write commit messages"),
    ("a() { b $1; }; a c", "function a\n  group\n    command b ${1}\ncommand a c", "a function"),
    ("function a { b; } >f", "function a\n  group\n    command b\n    > f", "with a keyword, and a redirection"),
    ("function a () ( b )", "function a\n  subshell\n    command b", "with both, in a subshell"),
    ("a-b.c ( )\n# d\n{\nb\n}", "function a-b.c\n  group\n    command b", "over lines"),
    ("a && b() { c; } && d", "command a\n&& function b\n  group\n    command c\n&& command d", "in a list"),
    ("a $(b() { c; }; b)", "command a $(..)\n  inside $(..)\n    function b\n      group\n        command c\n    command b",
     "in a substitution"),
    ("a <<E; b() { c; }\nx\nE\nb", "command a\n  << 1 line\nfunction b\n  group\n    command c\ncommand b", "after a here-document"),
    ("a $((1+$(b) * $1)) && (( $(c) > 2 ))",
     "command a $((1 + ($(..) * 1)))\n  inside $(..)\n    command b\n&& compute $(..) > 2\n  inside $(..)\n    command c",
     "case 21: arithmetic, too"),
    ("[[ $(a) -gt 1 ]]", "test $(..) -gt 1\n  inside $(..)\n    command a", "D1: every position"),
    ("set -euo pipefail; a", "command set -euo pipefail\ncommand a", "switches that change nothing about reading"),
    ("shopt -s nullglob globstar", "command shopt -s nullglob globstar", "likewise"),
    ("SECONDS=0; a", "command SECONDS=0\ncommand a", "a number is safe to evaluate"),
)

OPAQUE: tuple[tuple[str, str, str], ...] = (
    ("[[ -v a ]]",             "`-v`", "D7: evaluates a subscript"),
    ("[[ -v 'a[$(b)]' ]]",     "`-v`", "D7"),
    ("[[ -R a ]]",             "`-R`", "D7"),
    ("[[ -o a ]]",             "`-o`", "nobody writes it"),
    ("[[ -a a ]]",             "`-a`", "means two things"),
    ("[[ 'a[$(b)]' -eq 0 ]]",  "comparison of numbers", "case 20: both sides are evaluated"),
    ("[[ a -eq b[$(c)] ]]",    "comparison of numbers", "case 20"),
    ("[[ a == @(b|c) ]]",      "`(`", "an extended glob"),
    ("[[ a =~ (b ]]",          "[[", "unbalanced"),
    ("[[ a =~ ^$x(b) ]]",      "`(`", "a regex that is not plain"),
    ("[[ -e <(a) ]]",          "[[", "a comparison or a process"),
    ("[[ a<b ]]",              "blank", "without blanks"),
    ("[[ a # b ]]\n]]",         "[[", "a comment"),
    ("[[ a\n]]",               "blank", "a line end where nobody puts one"),
    ("[[ a b ]]",              "[[", "two words"),
    ("[[ a ]]b",               "after `]]`", "glued"),
    ("[[ ]]",                  "[[", "nothing"),
    ("[[ a == ]]",             "[[", "no right side"),
    ("[[ a =~ ]] ]]",          "[[", "found by fuzzing: bash does not take `]]` as an expression"),
    ("[[ ! ]]",                "[[", "nothing to negate"),
    ("[[ ( a ]]",              "[[", "not closed"),
    ("[[ -t $x ]]",            "`-t`", "not a number"),
    ("[[ a",                   "[[", "never closed"),
    ("[[\na ]]",               "[[", "a line end where nobody puts one"),
    ("case a in a) b;& c) d;; esac", "case", "falls through"),
    ("case a in a) b;;& c) d;; esac", "case", "goes on"),
    ("case a in a) b;;& esac",  "case", "goes on"),
    ("case a in @(a|b)) c;; esac", "`(`", "an extended glob"),
    ("case a in a b) c;; esac", "case", "two words"),
    ("case a in a||b) c;; esac", "case", "not a pattern"),
    ("case a in (esac) b;; esac", "case", "not everywhere the same"),
    ("case a in <(b)) c;; esac", "case", "a process"),
    ("case <(a) in b) c;; esac", "case", "a process"),
    ("case a b in c) d;; esac", "`in` is missing", "two words"),
    ("case a in b) c",         "`esac` is missing", "no end"),
    ("case a in b) c;; d",     "case", "no end"),
    ("select x in a; do b; done", "select", "not yet"),
    ("time",                   "time", "nothing to time"),
    ("time -x a",              "time", "a program of that name, perhaps"),
    ("time ! a",               "time", "nobody writes it"),
    ("! time a",               "time", "nobody writes it"),
    ("a | time b",             "time", "a program of that name, perhaps"),
    ("time; a",                "time", "nothing to time"),
    ("coproc a",               "coproc", "D-list: refused for good"),
    ("a() b",                  "whose body is not", "a simple command is no body"),
    ("a() if b; then c; fi",   "whose body is not", "nobody writes it"),
    ("a() (( 1 ))",            "whose body is not", "nobody writes it"),
    ("function if { b; }",     "a function named `if`", "a reserved word"),
    ("function a",             "`function`", "no body"),
    ("a() {b; }",              "whose body is not", "`{b` is a word"),
    ("x=1 a() { b; }",         "`(`", "an assignment before it"),
    (">f a() { b; }",          "`(`", "a redirection before it"),
    ("a b() { c; }",           "`(`", "an argument"),
    ("'a'() { b; }",           "`(`", "a quoted name"),
    ("$a() { b; }",            "`(`", "a name known only at run time"),
    ("a*() { b; }",            "`(`", "an extended glob, perhaps"),
    ("a(b) { c; }",            "`(`", "no parameters in a shell"),
    ("a\\\n() { b; }",         "line continuation", "glued"),
    (":() { a; }",             "`(`", "a sign for a name"),
    ("unset() { a; }",         "a function named `unset`", "POSIX shells would not call it"),
    ("command() { a; }",       "a function named `command`", "what goes past functions"),
    ("command_not_found_handle() { a; }", "a function named", "bash calls it by itself"),
    ("a() { b; } c",           "unexpected `c`", "a word after it"),
    ("a() { b; ",              "missing", "no end"),
    ("((a) || b)",             "arithmetic", "bash tries arithmetic first"),
    ("for ((a b; ;)); do a; done", "for ((..))", "two names"),
    ("for ((i=0;i<3;i++)) { a; }", "do", "not documented"),
    ("for ((i=0 # c\n;;)); do a; done", "for ((..))", "no comment there"),
    ("x=-1; a $((2-$x))",      "arithmetic", "put together as text, it is `2--1`"),
    ("x=1; ((x++, y=$x))",     "arithmetic", "found by fuzzing: `$x` is put in before `x` is changed"),
    ("a $((x=1))",             "arithmetic that assigns", "nobody tracks it there"),
    ("a $((08))",              "arithmetic", "octal"),
    ("a $((16#ff))",           "arithmetic", "another base"),
    ("a $((1--1))",            "arithmetic", "two signs or one"),
    ("a $((1<(2)))",           "arithmetic", "a process substitution, perhaps"),
    ("a $((1\n+2))",           "arithmetic", "over two lines"),
    ("a $((1) + (2))",         "arithmetic", "two subshells"),
    ("a $((x[1]))",            "arithmetic", "D7: a subscript"),
    ("a $(('1'))",             "arithmetic", "quotes"),
    ("(( - - - - - - - - -1))", "nested", "however it is nested"),
    ("for x in a; { b; }",     "do", "not documented"),
    ("x=(a a[b) c]",           "`[` in an array", "found by fuzzing: bash reads on to the `]`"),
    ("x=(a[b]=c)",             "`[` in an array", "D7"),
    ("x=([0])",                "begins with `[`", "a pattern"),
    ("x=([0]+=a)",             "begins with `[`", "adds to an element of a list"),
    ("x=([0]={a,b})",          "brace expansion", "bash takes `[0]=a` and `[0]=b` for two words"),
    ("x=([$(c)]=a)",           "begins with `[`", "D7: a command in a subscript"),
    ("x=(a[1]=b)",             "`[` in an array", "bash continues to the `]`"),
    ("x=([$(a)]=b)",           "array", "D7"),
    ("export x=(a)",           "`(`", "arrays cannot be given to programs"),
    ("'local' x=(a)",          "`(`", "bash does not see that it declares"),
    ("command local x=(a)",    "`(`", "likewise"),
    ("local x=([$(a)]=b)",     "array", "D7: subscripts are evaluated"),
    ("local x=(a)b",           "after an array", "glued"),
    ("x=(a) local y",          "before a command", "what y gets is not certain"),
    ("a ${x:=b}",              "`${..}`", "assigns, and runs something with it"),
    ("y=${x:=b}",              "`${..}`", "assigns to two variables"),
    ("x=a${x:=b}",             "`${..}`", "two values"),
    ("x=${x:=b} c",            "`${..}`", "a value for one command, and for the shell"),
    ("x=${x:=b} >c",           "`${..}`", "assigns before or after the redirection"),
    (": \"$(a ${x:=b})\"",     "`${..}`", "likewise"),
    (": ${x:-${y:=b}}",        "`${..}`", "perhaps"),
    (": ${x[0]:=b}",           "`${..}`", "D7"),
    (": ${SECONDS:=$(a)}",     "`${..}`", "D7"),
    (": ${1:=b}",              "`${..}`", "cannot be assigned"),
    (": <<<${x:=b}",           "`${..}`", "not in a word of `:`"),
    ("x=1 : ${x:=b}",          "`${..}`", "which one"),
    ("a $(case b in c) d\nesac)", "without `(`", "older versions of bash end the substitution there, and run the next line"),
    ("case x in y) a $(case b in c) d;; esac);; esac", "without `(`", "and here the `;;` would mean something"),
    ("a $(case b in c) d;; e)\nf;; esac)", "without `(`", "in every branch"),
    ("x=(a) b",                "before a command", "what b gets is not certain"),
    ("x=(a)b",                 "after an array", "glued"),
    ("x=(a)>f",                "after an array", "glued"),
    ("x=(a b",                 "array", "no end"),
    ("x=(a; b)",               "word is missing", "not a list of commands"),
    ("x=(a (b))",              "`(`", "nor anything else"),
    ("x=(y=~/a)",              "`~`", "found by fuzzing: bash expands it in arguments only"),
    ("SECONDS=(1)",            "evaluates", "D7"),
    ("a <<E; x=(b\n)\nE",      "array", "where the body starts is not certain"),
    ("a <<E<(b)\nE",            "delimiter", "found by fuzzing: glued to the delimiter"),
    ("a 2>&1<(b)",             "file descriptor", "glued to the descriptor"),
    ("while a; do<(b); done",  "glued", "glued to the keyword"),
    ("a $(x=(b))",             "array inside", "found by fuzzing: bash 5.2 reads some of them twice"),
    ("a $(time { b; })",       "`time` inside", "found by fuzzing: bash 5.2 does not know it there"),
    ("x=(): a",                "array", "runs a: found by fuzzing an earlier reader"),
    ("x[1]=a b",               "array element", "D7, D9: evaluates the subscript, and b is the command"),
    ("a[$(b)]=1",              "array element", "D7"),
    ("a[b[1]]=c",              "array element", "D7"),
    ("a['1 2']=b",             "array element", "D7: a blank in quotes"),
    ("a['x]y']=b",             "array element", "D7: a bracket in quotes"),
    ("a[1]=(b)",               "an element of an array", "bash refuses it"),
    ("a[b=1]=c",               "array element", "D7: a subscript that assigns"),
    ("SECONDS[0]=1",           "evaluates", "D7"),
    ("b $(a[1]=c)",            "array element inside", "bash 5.2 reads some of them twice"),
    ("a >&f",                  "descriptor", "case 27: writes f"),
    ("a >&'$(b)'",             "descriptor", "D14: expanded twice, even single-quoted"),
    ("a >& \"$x\"y",            "descriptor", "D14"),
    ("a >&${x:-b}",            "descriptor", "D14"),
    ("a 1&>f",                 "may or may not belong", "found by fuzzing: the number is a word"),
    ("a 1234>f",               "may or may not belong", "a number too long for a descriptor"),
    ("a; {fd}<<E\nb\nE",       "descriptor", "D8: nobody writes it"),
    ("x=a b {x}>f",            "receives a file descriptor", "found by fuzzing: which value b gets"),
    ("{ a; } {fd}>f",          "unexpected `{`", "D8: after a group"),
    ("x=({fd}>f)",             "descriptor", "D8: in an array"),
    ("a 2>(b)",                "`(` right after", "a word or a redirection"),
    ("a > 2>f",                "number before", "bash refuses it"),
    ("a |\\\n| b",             "line continuation", "would become `||`"),
    ("a ;; b",                 "`;;`", "outside of case"),
    (">f if a; then b; fi",    "after an assignment or a redirection", "no keyword there"),
    ("x=1 for",                "after an assignment or a redirection", "no keyword there"),
    ("! ! a",                  "unexpected `!`", "not everywhere the same"),
    ("a | ! b",                "unexpected `!`", "not allowed"),
    ("{ a }",                  "missing", "the brace is an argument"),
    ("if a; then b",           "missing", "no end"),
    ("then",                   "unexpected `then`", "no beginning"),
    ("{ a; } b",               "unexpected `b`", "a word after a compound command"),
    ("(a) b",                  "unexpected `b`", "a word after a compound command"),
    ("a <<E\nx",               "never meets `E`", "bash would take the rest of the script"),
    ("a <<E\nE x\nE",          "starts with its delimiter", "some versions of bash end it there, inside `$(..)`"),
    ("a <<E\nx\\\nE\nE",       "starts with its delimiter", "bash does not end the body there, and other shells may"),
    ("a <<E\nx\\\\\\\nE\nE",   "starts with its delimiter", "likewise after an escaped backslash"),
    ("a <<EF\nE\\\nF\nEF",     "starts with its delimiter", "the joined line is the delimiter"),
    ("a <<-E\n\tx\\\n\ty\nE", "tab after a line continuation", "whether that tab is removed"),
    ("a <<E\n$\\\n(b)\nE",     "not followed by a plain name", "joins `$` and `(`"),
    ("a <<E\n$(b 'c\\\nd')\nE", "line continuation", "joined inside single quotes, too, before the command is read"),
    ("a <<E\n${x:-\\\nb}\nE",   "`${..}`", "likewise"),
    ("a \\\n<<E b\\\nc\nE\n", "continued inside a word", "where the body starts is not certain"),
    ("if\\\n a; then b; fi",   "line continuation", "glued to a keyword"),
    ("i\\\nf a; then b; fi",   "line continuation", "inside a keyword"),
    ("time\\\n a",            "line continuation", "glued to a keyword that could be a program"),
    ("!\\\n a",               "line continuation", "likewise"),
    ("a &\\\n>f",             "line continuation", "would become `&>`"),
    ("a <\\\n(b)",            "line continuation", "would become `<(`"),
    ("a 2\\\n>f",             "line continuation", "would become `2>`"),
    ("[[ a\\\n ]]",           "line continuation", "in a condition"),
    ("a <<E\n${x:=$(b)}\nE",   "`${..}`", "D5"),
    ("a <<E\n${x:-\"b\"}\nE",   "`${..}`", "whether these quotes mean anything depends on the version"),
    ("a <<E\n${x:-b\nc}\nE",    "`${..}`", "over two lines"),
    ("a <<E \"x\ny\"\nb\nE\n", "continued inside a word", "where the body starts is not certain"),
    ("a <<E $(b\n)\nc\nE\n",   "continued inside a word", "likewise"),
    ("$(a <<E)\nb\nE",         "outside its substitution", "the body would be outside"),
    ("`a <<E\nb\nE\n`",        "inside backquotes", "decoded first"),
    ("a <<E\n`b '\\$c'`\nE",   "backquotes", "escapes that the here-document removes before the backquotes do"),
    ("a <<$x\nb\n$x",          "delimiter", "not a plain word"),
    ("a <<E\"O\"F\nb\nEOF",    "delimiter", "not a plain word"),
    ("enable -n cd\ncd",       "enable", "changes what words mean"),
    ("command enable -n cd",   "enable", "through a prefix"),
    ("command -p enable -n cd", "enable", "through a prefix with an option"),
    ("shopt -s lastpipe",      "shopt", "moves commands out of their subshell"),
    ("shopt -s extglob\na",    "shopt", "changes the grammar"),
    ("set -o posix",           "set", "changes the grammar"),
    ("set -k; a x=1",          "set", "assignments anywhere"),
    ("set $x",                 "set", "cannot tell"),
    ("enable -n test",         "enable", "changes what words mean"),
    ("POSIXLY_CORRECT=1 a",    "POSIXLY_CORRECT", "changes the grammar"),
    ("SECONDS='a[$(b)]'",      "evaluates", "D7: arithmetic by assignment"),
    ("RANDOM=$x",              "evaluates", "D7"),
    ("for OPTIND in a; do b; done", "evaluates", "D7"),
    ("TEXTDOMAIN=x a $\"b\"",  "TEXTDOMAIN", "the text would be translated"),
    ("LC_ALL=zh_CN.GBK\na 'é'", "LC_", "other bytes, other characters"),
    ("-x",                     "option", "`bash -c -x` takes it as an option"),
    ("a\rb",                   "U+000D", "a carriage return"),
    ("a &&",                   "nothing after", "no right side"),
    ("a && )",                 "missing", "no right side"),
    ("| a",                    "missing before `|`", "no left side"),
    ("; a",                    "missing before `;`", "no command"),
    ("a & ; b",                "missing before `;`", "no command"),
    ("a )",                    "unexpected `)`", "no opening"),
    ("()",                     "empty", "nothing in it"),
    ("{ }",                    "empty", "nothing in it"),
    ("while do a; done",       "empty", "no condition"),
    ("if a; then fi",          "empty", "no body"),
    ("a >",                    "word is missing", "no target"),
    ("a > # f",                "word is missing", "a comment is no target"),
    ("for 1x in a; do b; done", "plain variable name", "not a name"),
    ("for x y; do b; done",    "do", "two names"),
)

INVALID: tuple[str, ...] = (
    "if", "fi", "if a; then; fi", "a ||", "a | | b", "a ;; b", "a &;", "(a", "a)", "{ a", "{ a; ", "}", "do a; done",
    "for", "for x in a; b; done", "while a; done", "until do a; done", "a > ", "a > > b", "a < | b", "a 'b", 'a "b', "a `b",
    "a $(b", "a ${b", "! | a", "a | ! b", "a <<< ", "a > 2>f", "f() ", "x=1 if a; then b; fi", "{ a; } b", "(a) b", "( )",
    "a (b)", "a & & b", "a && && b", "if a; else b; fi", "elif a; then b; fi", "case a in", "[[ a", "a; do b", "a >( b",
    "for x in a (b); do c; done", "a <(", "for x in a & do b; done", "a <<<\n", "{ } }", "while a; do b; done c",
)
# fmt: on


@pytest.mark.parametrize(("text", "shown", "why"), SHAPES, ids=[row[0] for row in SHAPES])
def test_a_script_has_the_shape_that_bash_gives_it(text: str, shown: str, why: str) -> None:
    tree = read(text)
    assert isinstance(tree, Script), (tree, why)
    assert show(tree) == shown, why


@pytest.mark.threat("T01")
@pytest.mark.parametrize(("text", "reason", "why"), OPAQUE, ids=[ascii(row[0]) for row in OPAQUE])
def test_what_is_not_understood_is_opaque_and_says_where(text: str, reason: str, why: str) -> None:
    answer = read(text)
    assert isinstance(answer, Opaque), (show(answer), why)
    assert reason in answer.reason, why
    assert answer.reason.isprintable()
    assert 0 <= answer.span.start <= answer.span.end <= len(text)


@pytest.mark.threat("T01")
@pytest.mark.parametrize("text", INVALID)
def test_what_bash_refuses_is_opaque(text: str) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run([bash, "-n", "-c", text], capture_output=True, timeout=20, check=False)
    assert done.returncode != 0 or done.stderr, "bash takes it: the row is wrong"
    assert isinstance(read(text), Opaque)


@pytest.mark.threat("T41")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a " * 600_000, "longer than"),
        ("(" * 40_000, "nested"),
        ("((" + "1+" * 28_000, "more than"),
        ("((" + "- " * 28_000, "nested"),
        ("((" + "1?" * 28_000, "nested"),
        ("((x=" * 12_000, "nested"),
        ("${x:-" * 12_000, "nested"),
        ("${x#" + "$y" * 28_000 + "}", ""),
        ("a ${x:-a" + "'b'" * 20_000, "${"),
        ("( " * 32_000, "nested"),
        ("$(" * 32_000, "nested"),
        ("`" * 63_996, "more than"),
        ("a `" + "b" * 64_000, "never closed"),
        ("a `" + "b\\." * 20_000, "never closed"),
        ("a ${x[" + "$ab" * 20_000, "`${..}`"),
        ("a ${x:" + "a b" * 20_000, "`${..}`"),
        ("a ${x:" + "${a}" * 15_600, "`${..}`"),
        ("a[" + "$ab" * 20_000, "array element"),
        ("a[" + "b" * 64_000 + "]=c", "array element"),
        ("a" + "\\\n" * 32_000, "line continuation"),
        ('a "' + "\\\n" * 31_996, "never closed"),
        ("a --x=" + "~" * 64_000, ""),
        ("a >&$" + "b" * 64_000, ""),
        ("a {" + "b" * 64_000, ""),
        ("{ " * 32_000, "nested"),
        ("if " * 20_000, "nested"),
        ('"$(' * 20_000, "nested"),
        ("<(" * 32_000, "nested"),
        ("a " * 32_000, "more than"),
        ("a;" * 32_000, "more than"),
        ("a <<E\n" * 10_000, "never meets"),
        ("a=" * 32_000 + "~", "`~`"),
        ("{" * 64_000 + ",", "brace"),
        ("[" * 64_000, ""),
        ("'" * 64_004, ""),
        ("\\" * 64_000, ""),
        ("$" * 64_000, ""),
        ("#" * 64_000, ""),
        ("\n" * 64_000, ""),
    ],
    ids=lambda value: value[:6] if isinstance(value, str) else None,
)
def test_monsters_are_answered(text: str, reason: str) -> None:
    answer = read(text)
    if reason:
        assert isinstance(answer, Opaque)
        assert reason in answer.reason


def test_nesting_is_allowed_up_to_eight() -> None:
    for deep, kind in ((8, Script), (9, Opaque)):
        assert isinstance(read("( " * deep + "a" + " )" * deep), kind)
        assert isinstance(read("a " + "$(a " * deep + ")" * deep), kind)
        assert isinstance(read("{ " * deep + "a" + "; }" * deep), kind)


# -- laws ----------------------------------------------------------------------------------------------------------


def values(value: object) -> Iterator[object]:
    if isinstance(value, tuple):
        for item in value:
            yield from values(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, (type, SourceSpan)):
        yield value
        for each in dataclasses.fields(value):
            yield from values(getattr(value, each.name))


# fmt: off
TOKENS = st.sampled_from((
    "a", "b c", "x=", "$x", "$(", ")", "`", "'", '"', "\\", "\n", " ", ";", "&", "|", "<", ">", "2>", "<<E\n", "\nE\n",
    "{ ", "}", "(", "if ", "then ", "fi", "for x in ", "do ", "done", "while ", "#", "~", "*", "[", "]", "!", "${", "é",
    "<(", "$'", "<<-'E'\n", "\t", "=", "\\\n", "case ", "esac", "\r", "\x00", "\ud800", "\ufeff", "&>", ">&", "1", "{a,b}",
))
# fmt: on


@pytest.mark.threat("T41")
@given(st.one_of(st.text(), st.lists(TOKENS, max_size=25).map("".join)))
@example("a <<E\n")
@example("\\\n")
@example("a <<E\nE")
@example("`\\\n`")
def test_reading_is_total_and_places_are_inside_the_text(text: str) -> None:
    answer = read(text)
    if isinstance(answer, Opaque):
        assert 0 <= answer.span.start <= answer.span.end <= len(text)
        assert answer.reason
        return
    assert show(answer).replace("\n", "").isprintable()
    for value in values(answer):
        span = getattr(value, "span", None)
        if span is not None:
            assert 0 <= span.start <= span.end <= len(text)
        if isinstance(value, Command):
            assert value.words or value.assignments or value.redirects
        if isinstance(value, Substitution):
            assert text[value.span.end - 1] in ')`"' or value.quoted
        if isinstance(value, Redirect) and value.op is not RedirectOp.HERE_DOC:
            assert str(value.op) in text[value.span.start : value.span.end]


@pytest.mark.threat("T01")
@given(st.lists(TOKENS, max_size=12).map("".join), st.lists(TOKENS, max_size=12).map("".join))
def test_a_command_in_front_hides_nothing(first: str, second: str) -> None:
    one, two, both = read(first), read(second), read(f"{first}\n{second}")
    if isinstance(one, Script) and isinstance(two, Script) and isinstance(both, Script) and "#" not in first:
        assert len(both.items) == len(one.items) + len(two.items)


def test_reading_twice_gives_the_same_tree() -> None:
    for text, _, _ in SHAPES:
        assert read(text) == read(text)


# -- the tree for people -------------------------------------------------------------------------------------------


@pytest.mark.threat("T28")
def test_what_is_shown_cannot_move_the_cursor_of_a_terminal() -> None:
    tree = read("a $'\\e[2J\\n' 'b\nc' \"$x\" ''")
    assert isinstance(tree, Script)
    assert show(tree) == "command a $'\\x1b[2J\\n' $'b\\nc' \"${x}\" ''"


def test_a_whole_script_is_shown() -> None:
    text = """\
cd src && for f in *.py "$(git ls-files)"; do
  head -n "$n" "$f" 2>/dev/null | sort > ~/out.txt &
done
if ! grep -q 'a b' ${#f}; then x=1 ./run <<-EOF; else (exit 1); fi
\tbody $x
\tEOF
"""
    tree = read(text)
    assert isinstance(tree, Script)
    assert (
        show(tree)
        == """\
command cd src
&& for f in *.py "$(..)"
  inside $(..)
    command git ls-files
do
  pipeline &
    command head -n "${n}" "${f}"
      2> /dev/null
    command sort
      > ~/out.txt
if
  not
    command grep -q 'a b' ${#f}
then
  command x=1 ./run
    << text that depends on the moment
else
  subshell
    command exit 1"""
    )
