"""Tests of the reading of scripts: each construct, each place of evaluation, each special variable, each limit.

What must come out is one of three: the tree shows the inner command (and the tier counts it), the text is Opaque with a
reason that names the place, or the walk says which word it cannot vouch for. `touch x` stands for what is hidden.
"""

import pytest

from policy.bash.ast import Command, Opaque
from policy.bash.parser import read
from policy.bash.printer import show
from policy.model.assessment import Assessment
from policy.model.tier import Tier
from tests.support.classified import judge

# fmt: off
# Every word position: what is substituted there is in the tree, and counts.
SHOWN: tuple[tuple[str, str], ...] = (
    ("ls $(touch x)",                                    "an argument"),
    ("$(touch x) ls",                                    "a command name"),
    ("ls `touch x`",                                     "backquotes"),
    ("ls \"a $(touch x) b\"",                            "inside double quotes"),
    ("ls $\"$(touch x)\"",                               "inside translated quotes"),
    ("ls <(touch x)",                                    "a process to read from"),
    ("ls >(touch x)",                                    "a process to write to"),
    ("ls $(echo $(echo `touch x`))",                     "in each other"),
    ("ls $(true\ntouch x)",                              "D1: behind a newline"),
    ("ls \"$(true\ntouch x)\"",                          "D1: behind a newline, quoted"),
    ("ls <(true\ntouch x)",                              "D1: behind a newline, in a process"),
    ("y=$(true\ntouch x)",                               "D1: behind a newline, in an assignment"),
    ("y=$(touch x)",                                     "a value"),
    ("y+=$(touch x)",                                    "a value that is added"),
    ("y=$(touch x) ls",                                  "a value for one command"),
    ("2>/dev/null y=$(touch x) ls",                      "D9: a value after a redirection"),
    ("y=(a $(touch x))",                                 "an element"),
    ("y+=($(touch x))",                                  "an element that is added"),
    ("local y=($(touch x))",                             "an element of a declared array"),
    ("export y=$(touch x)",                              "a declared value"),
    ("ls > \"$(touch x)\"",                              "a target"),
    ("cat < $(touch x)",                                 "a source"),
    ("cat <<< $(touch x)",                               "a here-string"),
    ("cat <<E\n$(touch x)\nE",                           "D5: a here-document"),
    ("cat <<E\n`touch x`\nE",                            "D5: with backquotes"),
    ("cat <<E\n${y:-$(touch x)}\nE",                     "D5: in a default"),
    ("cat <<-E\n\t$(touch x)\n\tE",                      "D5: with tabs"),
    ("cat <<E\na\\\nb $(touch x)\nE",                    "D5: after a line continuation"),
    ("cat <<E\na\\\\\nE\ntouch x",                         "D5: a line that ends with an escaped backslash"),
    ("ls `echo 'a\\\\b'; touch x`",                        "after an escape in backquotes"),
    ("ls \"`echo \"a b\"; touch x`\"",                    "after quotes in quoted backquotes"),
    ("ls \"a$'$(touch x)'\"",                             "inside single quotes inside double quotes"),
    ("ls \"a$\\\\$(touch x)\"",                           "after a dollar sign and an escaped backslash"),
    ("ls \"a\\\n$(touch x)\"",                            "after a line continuation"),
    ("ls a\\\n ; touch x",                               "after a word that a line continuation ends"),
    ("{ ls; } <<E\n$(touch x)\nE",                       "D5: for a group"),
    ("f() { cat; } <<E\n$(touch x)\nE\nf",               "D5: for a function"),
    ("for y in $(touch x); do ls; done",                 "a list"),
    ("for y in a; do $(touch x); done",                  "a body"),
    ("for ((y=0; y<$(touch x); y++)); do ls; done",      "a head"),
    ("while $(touch x); do ls; done",                    "a condition"),
    ("until touch x; do ls; done",                       "a condition that must fail"),
    ("if ls; then touch x; fi",                          "a branch"),
    ("if ls; then ls; elif touch x; then ls; fi",        "another branch"),
    ("if ls; then ls; else touch x; fi",                 "the last branch"),
    ("case $(touch x) in a) ls;; esac",                  "what is compared"),
    ("case a in $(touch x)) ls;; esac",                  "a pattern"),
    ("case a in b) ls;; *) touch x;; esac",              "a branch of it"),
    ("[[ -n $(touch x) ]]",                              "a condition's word"),
    ("[[ a == $(touch x) ]]",                            "its right side"),
    ("[[ a =~ $(touch x) ]]",                            "a regular expression"),
    ("[[ $(touch x) -gt 0 ]]",                           "a number in it"),
    ("(( $(touch x) > 0 ))",                             "a number"),
    ("ls $((1 + $(touch x)))",                           "a number in a word"),
    ("ls ${y:-$(touch x)}",                              "D4: a default"),
    ("ls ${y-`touch x`}",                                "D4: a default"),
    ("ls ${y:+$(touch x)}",                              "D4: an alternative"),
    ("ls ${y:?$(touch x)}",                              "D4: a complaint"),
    (": ${y:=$(touch x)}",                               "D4: a default that is kept"),
    ("ls ${y#$(touch x)}",                               "D4: a prefix"),
    ("ls ${y%%$(touch x)}",                              "D4: a suffix"),
    ("ls ${y/$(touch x)/b}",                             "D4: a pattern"),
    ("ls ${y//a/$(touch x)}",                            "D4: a replacement"),
    ("ls \"${y:-$(touch x)}\"",                          "D4: quoted"),
    ("ls ${y[0]:-$(touch x)}",                           "D4: of an element"),
    ("cat \"\"$(touch x)",                               "D3: glued to quotes"),
    ("(touch x)",                                        "a subshell"),
    ("{ touch x; }",                                     "a group"),
    ("time touch x",                                     "timed"),
    ("time -p touch x",                                  "timed, plainly"),
    ("! touch x",                                        "negated"),
    ("ls | touch x",                                     "piped"),
    ("ls |& touch x",                                    "piped with errors"),
    ("ls && touch x || touch x",                         "joined"),
    ("ls & touch x &",                                   "in the background"),
    ("ls \\\n; touch x",                                 "on a continued line"),
    ("ls # a\ntouch x",                                  "behind a comment"),
)

# Code that these commands run is not part of the syntax tree: the interpreter knows it.
RUN: tuple[tuple[str, Tier, str], ...] = (
    ("eval 'touch x'",                    Tier.WRITE,   "`eval`"),
    ("eval touch 'x;' ls",                Tier.WRITE,   "its words are joined"),
    ("eval \"$y\"",                       Tier.UNKNOWN, "known only at run time"),
    ("trap 'touch x' EXIT",               Tier.WRITE,   "`trap`"),
    ("trap 'touch x' DEBUG; ls",          Tier.WRITE,   "before each command"),
    ("trap \"$y\" EXIT",                  Tier.UNKNOWN, "known only at run time"),
    ("exec touch x",                      Tier.WRITE,   "`exec`"),
    ("command touch x",                   Tier.WRITE,   "`command`"),
    ("builtin eval 'touch x'",            Tier.WRITE,   "`builtin`"),
    ("source ./run.sh",                   Tier.EXECUTE, "`source`"),
    (". <(echo touch x)",                 Tier.WRITE,   "known text that a process prints"),
    ("bash -c 'touch x'",                 Tier.WRITE,   "a script in a word"),
    ("bash -c '\"$@\"' _ touch x",        Tier.WRITE,   "a command in its arguments"),
    ("ls() { touch x; }; ls",             Tier.WRITE,   "a function that shadows"),
    ("f() { \"$@\"; }; f touch x",        Tier.WRITE,   "called with literals"),
    ("f() { touch x; }; ls",              Tier.READ,    "never called"),
    ("set -- touch x; \"$@\"",            Tier.WRITE,   "the arguments of the script"),
    ("y='touch x'; $y",                   Tier.WRITE,   "a value that is split"),
    ("y=(touch x); \"${y[@]}\"",          Tier.WRITE,   "an array"),
    ("y=(touch x); i=1; ${y[i-1]} ${y[$i]}", Tier.WRITE,  "elements by a known number"),
    ("y=(ls); y[1]=x; y[0]=touch; \"${y[@]}\"", Tier.WRITE, "elements that are set one by one"),
    ("y=(a b); i=1; y[$i]=.env; cat \"${y[1]}\"", Tier.SECRET, "by a known number"),
    ("y[2]=.env; cat \"${y[2]}\"",        Tier.SECRET,  "of a new array"),
    ("y=(a touch x); \"${y[@]:1}\"",       Tier.WRITE,   "elements after the first"),
    ("y=-o; z=y; sort ${!z} x a",         Tier.WRITE,   "D6: a variable by a known name"),
    ("f() { ${!1} x; }; y=touch; f y",    Tier.WRITE,   "D6: by an argument"),
    ("y=x-o; n=1; sort ${y:$n} x a",      Tier.WRITE,   "a computed piece"),
    ("y=abc; for ((i=0; i<${#y}; i++)); do echo \"${y:$i:1}\"; done", Tier.READ, "letter by letter"),
    ("y=(a .env); for ((i=0; i<2; i++)); do cat \"${y[$i]}\"; done", Tier.SECRET, "elements by an unknown number"),
    ("y=(a .env); cat \"${y[@]:$#}\"",     Tier.SECRET,  "some elements"),
    ("mapfile -C 'touch x' y < a.txt",    Tier.UNKNOWN, "D-list: a command for every line"),
    ("compgen -C 'touch x'",              Tier.UNKNOWN, "D-list: a command for completions"),
    ("compgen -W '$(touch x)'",           Tier.UNKNOWN, "D-list: a text that is expanded"),
    ("complete -C 'touch x' ls",          Tier.UNKNOWN, "likewise"),
    ("enable -f ./x.so x",                Tier.UNKNOWN, "a program that becomes a word of the shell"),
    ("hash -p ./run.sh ls; ls",           Tier.UNKNOWN, "case 28: another program under that name"),
    ("bind -x '\"a\": touch x'",          Tier.UNKNOWN, "a command for a key"),
    ("cat {/etc/shadow,a}",               Tier.SECRET,  "D13: every word of braces"),
    ("sort {-o,x} a",                     Tier.WRITE,   "D13: a flag in braces"),
    ("sort -{o,u} x a",                   Tier.WRITE,   "D13: half a flag in braces"),
    ("sort '{-o,x}' a",                   Tier.READ,    "D13: quoted braces are text"),
    ("touch x{01..03} y{a..c} z{1..9..4}", Tier.WRITE,  "sequences"),
    ("cat ~/.ssh/id_rsa",                 Tier.SECRET,  "`~`"),
    ("dd if=~/.ssh/id_rsa",               Tier.SECRET,  "D13: after a name and `=`"),
    ("sh -c 'dd if=~/a of=b'",            Tier.UNKNOWN, "which other shells do not expand"),
    ("grep --file=~/x a b",               Tier.READ,    "but not after a flag: a folder named `~`"),
    ("cat /etc/hos*",                     Tier.READ_OUTSIDE, "a glob, bounded"),
    ("sort -'o' x a",                     Tier.WRITE,   "D10: quotes in a flag"),
    ("sort -\\\no x a",                   Tier.WRITE,   "case 15: a line continuation in a flag"),
    ("sort \"-\\\no\" x a",               Tier.WRITE,   "case 15: likewise inside double quotes"),
    ("sort $'\\x2do' x a",                Tier.WRITE,   "D12: an escape in a flag"),
    ("sort $\"-o\" x a",                  Tier.WRITE,   "D12: translated quotes"),
    ("ls {PATH}>x",                       Tier.EXECUTE, "D8: sets a variable that the shell obeys"),
    ("ls {fd}>x",                         Tier.WRITE,   "D8: a descriptor in a variable"),
    ("{fd}>/dev/null touch y",            Tier.WRITE,   "D8: after which the command comes"),
    ("exec {fd}</dev/null; cat <&$fd; exec {fd}<&-", Tier.READ, "D8: opened, copied and closed"),
    ("exec {fd}<~/.ssh/id_rsa; cat <&$fd", Tier.SECRET, "D8: what is opened counts"),
    ("y=2; echo a >&$y",                  Tier.READ,    "a known number"),
    ("{ echo a; } >&2",                   Tier.READ,    "a copied descriptor"),
)

# Places that evaluate a text once more. `0`: Opaque, and the reason names it; otherwise the walk's reason does.
TWICE: tuple[tuple[str, str, str], ...] = (
    ("ls ${y@P}",                          "a `${..}` form",           "D6"),
    ("ls \"${@@P}\"",                      "a `${..}` form",           "D6"),
    ("ls ${1@P}",                          "a `${..}` form",           "D6"),
    ("ls ${y@A}",                          "a `${..}` form",           "D6"),
    ("ls ${!y}",                           "`${!y}`",                  "D6: by another name"),
    ("y='a[b]'; ls ${!y}",        "`${!y}`",                  "D6: a name with a subscript"),
    ("y=z; read z < a.txt; y=$z; ls ${!y}", "`${!y}`",                 "D6: a name known only at run time"),
    ("f() { ls ${!1}; }; f 'a[$(touch x)]'", "`${!1}`",                "D6: an argument"),
    ("ls ${!y*}",                          "a `${..}` form",           "names"),
    ("ls ${y[$(touch x)]}",                "a `${..}` form",           "D7: a subscript"),
    ("ls ${y[z]}",                         "arithmetic on `z`",        "D7: a subscript"),
    ("z='a[b]'; ls ${y[$z]}",     "arithmetic on `z`",        "D7: a subscript"),
    ("z='a[b]'; ls ${y[z+1]}",    "arithmetic on `z`",        "D7: a subscript"),
    ("z='a[b]'; ls ${y[$((z))]}", "arithmetic on `z`",        "D7: a subscript"),
    ("f() { ls ${y[$1]}; }; f 'a[$(touch x)]'", "arithmetic on `1`",   "D7: a subscript"),
    ("ls ${HOME:z}",                       "arithmetic on `z`",        "D7: an offset"),
    ("z='a[b]'; ls \"${@:$z}\"",   "arithmetic on `z`",        "D7: an offset"),
    ("z='a[b]'; ls ${y[@]:z:1}",  "arithmetic on `z`",        "D7: an offset"),
    ("ls ${HOME:0:z}",                     "arithmetic on `z`",        "D7: a length"),
    ("z=-3; ls ${HOME:0:z}",               "may be negative",          "ends the line"),
    ("y[$(touch x)]=1",                    "an array element",         "D7: a subscript"),
    ("y[0]=1 touch x",                     "an array element",         "D9: hides the command"),
    ("z='a[b]'; y[z]=1",                   "arithmetic on `z`",        "D7: a subscript"),
    ("y[$z]=1",                            "arithmetic on `z`",        "D7: a subscript"),
    ("f() { y[$1]=1; }; f 'a[$(touch x)]'", "arithmetic on `1`",       "D7: a subscript"),
    ("y[-1]=1",                            "may be negative",          "ends the line"),
    ("declare -i y; y[1]=$z",              "may not be a number",      "D7: a value"),
    ("sh -c 'y[1]=a'",                     "an array",                 "the name of a program in other shells"),
    ("y=([$(touch x)]=1)",                 "begins with `[`",          "D7"),
    ("y['$(touch x)']=1",                  "an array element",         "D7: in quotes"),
    ("y=([\"$(touch x)\"]=1)",             "begins with `[`",          "D7: in quotes"),
    ("ls ${y[`touch x`]}",                 "a `${..}` form",           "D7: backquotes"),
    ("z='a[$(touch x)]'; y=([z]=1)",       "arithmetic on `z`",        "D7: in a list"),
    ("z='a[$(touch x)]'; y=([0]=a [$z]=1)", "arithmetic on `z`",       "D7: in a list"),
    ("z='a[b]'; ls ${y[\"$z\"]:-a}",       "arithmetic on `z`",        "D7: in quotes"),
    ("y[a.b]=1",                           "may not be associative",   "D7: no arithmetic"),
    ("y=(1); declare -A y; y[a.b]=1",      "may not be associative",   "bash does not convert an indexed array"),
    ("declare -A y; unset y; y[a.b]=1",    "may not be associative",   "unset"),
    ("f() { local -A y; }; f; y[a.b]=1",   "may not be associative",   "local"),
    ("f() { declare -gA y; y[a.b]=1; }; f", "may not be associative",  "a local variable may hide it"),
    ("declare -- -A y=(); y[a.b]=1",       "may not be associative",   "not a flag"),
    ("declare y=() -A; y[a.b]=1",          "may not be associative",   "a flag after a name"),
    ("ls && declare -A y; y[a.b]=1",       "may not be associative",   "perhaps"),
    (". ./x; declare -A y; y[a.b]=1",      "may not be associative",   "the file may make it an indexed array"),
    ("declare -A y; y[$(cat a)]=1",        "an array element",         "a command"),
    ("z=$(cat a); declare -A y; y[$z]=1",  "the key of `y`",           "a key known only at run time may be empty"),
    ("z='a[b]'; declare -A y; y[z]=1",     "the key of `y`",           "before 4.0, bash evaluates it"),
    ("z='a[$(touch x)]'; declare -A y=([$z]=1)", "the key of `y`",     "before 4.0, bash evaluates it"),
    ("declare -A y; ls ${y[--z]}",         "the key of `y`",           "before 4.0, bash changes `z`"),
    ("declare -A y; unset 'y[$(touch x)]'", "`unset`",                 "D7: evaluated again"),
    ("[[ -v 'y[$(touch x)]' ]]",           "`-v` in",                  "D7: a name is evaluated"),
    ("test -v 'y[$(touch x)]'",            "`test`",                   "D7: a name is evaluated"),
    ("read 'y[$(touch x)]'",               "`read`",                   "D7: a name is evaluated"),
    ("declare -A y='([b]=1)'",             "as an array",              "D7: a value is evaluated"),
    ("ls $((y[$(touch x)]))",              "arithmetic",               "D7"),
    ("ls $[y]",                            "arithmetic `$[..]`",       "the old form"),
    ("[[ -v y[$(touch x)] ]]",             "`-v` in `[[ .. ]]`",       "D7"),
    ("[[ -R y ]]",                         "`-R` in `[[ .. ]]`",       "D7"),
    ("[[ 'y[$(touch x)]' -eq 0 ]]",        "a comparison of numbers",  "D7"),
    ("y='a[$(touch x)]'; [[ y -eq 0 ]]",   "arithmetic on `y`",        "D7: by its name"),
    ("y='a[$(touch x)]'; ls $((y))",       "arithmetic on `y`",        "D7: by its name"),
    ("y='a[0]'; ((y))",                    "arithmetic on `y`",        "D7: by its name"),
    ("test -v 'y[$(touch x)]'",            "a condition of `test`",    "D7"),
    ("[ -v 'y[$(touch x)]' ]",             "a condition of `[`",       "D7"),
    ("printf -v 'y[$(touch x)]' a",        "`printf -v`",              "D7"),
    ("read 'y[$(touch x)]'",               "`read` sets a variable",   "D7"),
    ("unset 'y[$(touch x)]'",              "`unset` with an",          "D7"),
    ("let 'y[$(touch x)]=1'",              "`let`",                    "D7"),
    ("declare 'y[$(touch x)]=1'",          "`declare` with an",        "D7"),
    ("declare -i y='a[0]'",                "assigned to `y`",          "D7"),
    ("declare -n y=z",                     "`declare -n`",             "another name"),
    ("getopts a 'y[$(touch x)]'",          "`getopts` sets",           "D7"),
    ("mapfile 'y[$(touch x)]' < a.txt",    "`mapfile` sets",           "D7"),
    ("wait -n -p 'y[$(touch x)]'",         "`-p`",                     "D7"),
    ("SECONDS='y[$(touch x)]'",            "`SECONDS`",                "D7: a clock"),
    ("RANDOM=$y",                          "`RANDOM`",                 "D7"),
    ("OPTIND=$y",                          "`OPTIND`",                 "D7"),
    ("HISTCMD=$y",                         "`HISTCMD`",                "D7"),
    ("exec {y}>x; y=$z; echo a >&$y",      "`>&`",                     "D14: no longer the number"),
    ("ls {y}>x; echo a >&$y",              "`>&`",                     "D14: a program does not set it"),
    ("y='a[b]'; ls >&$y",                  "`>&`",                     "D14: expanded twice"),
    ("y=a; ls >&$y",                       "`>&`",                     "D14: a file"),
    ("y=-3; ls >&$y",                      "`>&`",                     "D14: a file, too"),
    ("y=7; ls >&$y",                       "copies a descriptor",      "opened elsewhere"),
    ("sh -c 'ls {fd}>x'",                  "`{name}>`",                "D8: a word in other shells"),
    ("ls >&'$(touch x)'",                  "`>&`",                     "D14: expanded twice"),
    ("ls >& \"$y\"",                       "`>&`",                     "D14"),
    ("cat <& $y",                          "`<&`",                     "D14"),
    ("y=(): touch x",                      "text right after an array", "glued: runs touch"),
    ("y=(a)touch x",                       "text right after an array", "glued"),
    ("declare 2>x y=(a)",                  "`(` right after a word",  "bash refuses it: no array after an operator"),
    ("local&>x y=(a)",                     "`(` right after a word",  "likewise"),
    ("declare <(cmd) y=(a)",               "`(` right after a word",  "likewise"),
    ("cat \"\"<(touch x)",                 "glued to other text",      "D3"),
    ("ls ~$(touch x)",                     "`~`",                      "D2"),
    ("ls ~x`touch x`",                     "`~`",                      "D2"),
    ("ls ~<(touch x)",                     "glued to other text",      "D2"),
    ("y=~/a:~$(touch x)",                  "`~`",                      "D2: in a value"),
    ("coproc touch x",                     "`coproc`",                 "runs beside"),
    ("coproc C { touch x; }",              "`coproc`",                 "runs beside, with a name"),
    ("select y in a; do touch x; done",    "`select`",                 "asks"),
    ("case a in a) ls;& b) touch x;; esac", "continues with the next",   "falls through"),
    ("case a in a) ls;;& b) touch x;; esac", "continues with the next",  "tries on"),
    ("ls @(a|b)",                          "extended glob",            "another grammar"),
    ("sh -c \"alias ls='touch x'\"",        "`alias`",                  "another meaning for a word, in another shell"),
    ("shopt -s expand_aliases",            "`shopt`",                  "another grammar"),
    ("shopt -s extglob",                   "`shopt`",                  "another grammar"),
    ("shopt -s lastpipe",                  "`shopt`",                  "another shell for the last command"),
    ("set -o posix",                       "`set`",                    "another grammar"),
    ("set -k",                             "`set`",                    "assignments anywhere"),
    ("enable -n test",                     "`enable`",                 "another meaning for a word"),
    ("command_not_found_handle() { touch x; }", "a function named",    "bash calls it by itself"),
    ("eval() { touch x; }",                "a function named `eval`",  "a word of the shell"),
    ("export -f f",                        "`export -f`",              "a function for other shells"),
    ("cat /dev/null | while read \"$y\"; do ls; done", "a flag of `read`", "a name known only at run time"),
)

# Assignments that make a later command run something, in every way to make them. An allowlist: any other is the same.
OBEYED: tuple[str, ...] = (
    "BASH_ENV", "ENV", "PATH", "PS4", "PS1", "PROMPT_COMMAND", "LD_PRELOAD", "LD_LIBRARY_PATH", "GIT_EXTERNAL_DIFF",
    "GIT_SSH_COMMAND", "GIT_CONFIG_COUNT", "GIT_DIR", "PAGER", "GIT_PAGER", "MANPAGER", "LESS", "LESSOPEN",
    "RIPGREP_CONFIG_PATH", "NODE_OPTIONS", "NODE_PATH", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "PERL5OPT",
    "PERL5LIB", "RUBYOPT", "JAVA_TOOL_OPTIONS", "EDITOR", "VISUAL", "BROWSER", "GREP_OPTIONS", "TAR_OPTIONS", "CDPATH",
    "GLOBIGNORE", "HOME", "TMPDIR", "MAKEFLAGS", "DYLD_INSERT_LIBRARIES", "XDG_CONFIG_HOME", "SHELL", "HISTFILE",
    "TERMINFO", "http_proxy", "npm_config_registry", "CARGO_HOME", "GOFLAGS", "CC", "PIP_INDEX_URL", "DOCKER_HOST",
    "KUBECONFIG", "AWS_CONFIG_FILE", "SSH_ASKPASS", "UNHEARD_OF",
)

# Limits and characters: Opaque, with a reason that names them.
LIMITS: tuple[tuple[str, str, str], ...] = (
    ("ls " + "a" * 66_000,                 "longer than",              "over 64 KB"),
    ("(" * 9 + "ls" + ")" * 9,             "",                         "nesting"),
    ("( " * 9 + "ls" + " )" * 9,           "nested more than 8 deep",  "nesting"),
    ("ls " + "$(ls " * 9 + ")" * 9,        "nested more than 8 deep",  "nesting of substitutions"),
    ("if ls; then " * 9 + "ls" + "; fi" * 9, "nested more than 8 deep", "nesting of branches"),
    ("ls " + "a " * 10_000,                "more than 10000 words",    "a decision is bounded"),
    ("cat " + "<f " * 4_000,               "more than 10000 words",    "a redirection takes as long as three words"),
    ("ls\0",                               "U+0000",                   "NUL"),
    ("ls\r\ntouch x",                      "U+000D",                   "a carriage return"),
    ("ls \x1b[2J",                         "U+001B",                   "an escape sequence"),
    ("ls\x0bx",                            "U+000B",                   "a vertical tab"),
    ("ls\x7f",                             "U+007F",                   "delete"),
    ("ls\u00a0x",                          "U+00A0",                   "a blank that is none"),
    ("ls\u2003x",                          "U+2003",                   "a blank that is none"),
    ("ls\u3000x",                          "U+3000",                   "a blank that is none"),
    ("ls\u200bx",                          "U+200B",                   "no width"),
    ("ls \u202ex",                         "U+202E",                   "turns the line around"),
    ("\ufeffls",                           "U+FEFF",                   "a mark"),
    ("ls \u2800",                          "U+2800",                   "looks like a blank"),
    ("ls (",                               "`(`",                      "bash refuses it"),
    ("if ls; then",                        "is missing",               "bash refuses it"),
    ("ls 'a",                              "never closed",             "bash refuses it"),
    ("ls \"a",                             "never closed",             "bash refuses it"),
    ("ls $(",                              "missing",                  "bash refuses it"),
    ("cat <<E\nx",                         "never meets `E`",          "bash takes the rest"),
    ("ls )",                               "unexpected `)`",           "bash refuses it"),
    ("POSIXLY_CORRECT=1",                  "POSIXLY_CORRECT",          "another grammar"),
)

# Words decode exactly.
DECODED: tuple[tuple[str, list[str], str], ...] = (
    ("'a'\\''b'",       ["a'b"],              "D10"),
    ("'a'\"'\"'b'",     ["a'b"],              "D10"),
    ("\"a\"'b'c",       ["abc"],              "D10"),
    ("a'b\"c'd",        ["ab\"cd"],           "D10"),
    ("a\"b'c\"d",       ["ab'cd"],            "D10"),
    ("\"a\\nb\"",       ["a\\nb"],            "D11"),
    ("\"\\a\\$\\\\\"",  ["\\a$\\"],           "D11"),
    ("$'\\x2d\\x6f'",   ["-o"],               "D12"),
    ("$'\\101\\t\\''",  ["A\t'"],             "D12"),
    ("$\"a b\"",        ["a b"],              "D12"),
    ("a\\ b",           ["a b"],              "an escaped blank"),
    ("''",              [""],                 "nothing, and yet a word"),
    ("a \\\n b",        ["a", "b"],           "a continued line"),
    ("{a,b}{1..2}",     ["a1", "a2", "b1", "b2"], "D13"),
    ("'{a,b}'",         ["{a,b}"],            "D13"),
)
# fmt: on


def told(found: Assessment) -> list[str]:
    return [reason.text for reason in found.reasons]


@pytest.mark.threat("T01")
@pytest.mark.parametrize(("script", "why"), SHOWN, ids=[ascii(row[0]) for row in SHOWN])
def test_what_a_word_runs_is_in_the_tree_and_counts(script: str, why: str) -> None:
    tree = read(script)
    assert not isinstance(tree, Opaque), (why, tree)
    assert "command touch x" in show(tree), why
    found = judge(script)
    assert found.tiers[0] >= Tier.WRITE, (why, told(found))
    assert any("touch" in text for text in told(found)), (why, told(found))


@pytest.mark.threat("T01")
@pytest.mark.parametrize(("script", "tier", "why"), RUN, ids=[ascii(row[0]) for row in RUN])
def test_what_a_command_runs_by_itself_counts(script: str, tier: Tier, why: str) -> None:
    found = judge(script)
    assert found.tiers[0] is tier, (why, told(found))


@pytest.mark.threat("T01")
@pytest.mark.parametrize(("script", "place", "why"), TWICE, ids=[ascii(row[0]) for row in TWICE])
def test_what_is_evaluated_twice_is_asked_about_by_its_place(script: str, place: str, why: str) -> None:
    found = judge(script)
    assert found.tiers[0] >= Tier.UNKNOWN, (why, told(found))
    tree = read(script)
    if isinstance(tree, Opaque):
        assert place in tree.reason, (why, tree.reason)
        assert script[tree.span.start : tree.span.end], "and the place is somewhere"
    else:
        unknown = [reason.text for reason in found.reasons if reason.tier is Tier.UNKNOWN]
        assert any(place in text for text in unknown), (why, unknown)


@pytest.mark.threat("T01")
@pytest.mark.parametrize("name", OBEYED)
def test_a_variable_that_later_commands_obey_is_never_set_unasked(name: str) -> None:
    for script in (
        f"export {name}=./a\ngit status",
        f"{name}=./a git status",
        f"{name}=$y git status",
        f"declare -x {name}=./a; git status",
        f"{name}=./a eval 'git status'",
        f"env {name}=./a git status",
        f"export {name}; git status",
        f"f() {{ git status; }}; {name}=./a f",
        f"(export {name}=./a; git status)",
        f"ls; eval 'export {name}=./a'; git status",
        f"read {name} < a.txt; export {name}; git status",
        f"for {name} in ./a; do export {name}; git status; done",
        f"printf -v {name} ./a; export {name}; git status",
    ):
        found = judge(script)
        assert found.tiers[0] in (Tier.EXECUTE, Tier.UNKNOWN), (script, told(found))
        assert any(reason.uncertain for reason in found.reasons), script


@pytest.mark.threat("T41")
@pytest.mark.parametrize(("script", "reason", "why"), LIMITS, ids=[ascii(row[0])[:40] for row in LIMITS])
def test_beyond_a_limit_nothing_is_vouched_for(script: str, reason: str, why: str) -> None:
    tree = read(script)
    assert isinstance(tree, Opaque), why
    assert reason in tree.reason, (why, tree.reason)
    assert judge(script).tiers[0] >= Tier.UNKNOWN


@pytest.mark.threat("T01")
@pytest.mark.parametrize(("source", "words", "why"), DECODED, ids=[ascii(row[0]) for row in DECODED])
def test_words_decode_exactly(source: str, words: list[str], why: str) -> None:
    tree = read(f"cmd {source}")
    assert not isinstance(tree, Opaque), (why, tree)
    (item,) = tree.items
    assert isinstance(item.node, Command), why
    assert [word.literal for word in item.node.words] == ["cmd", *words], why
