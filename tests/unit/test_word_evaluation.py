"""Tests of the evaluation of one word: the exact result of bash, or Opaque."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.bash.ast import (
    Arithmetic,
    Assignment,
    Command,
    Expansion,
    Glob,
    Opaque,
    Parameter,
    Part,
    Script,
    Substitution,
    Text,
    Tilde,
    Word,
)
from policy.bash.parser import read
from policy.bash.printer import _expression


def command(text: str) -> Command:
    tree = read(text)
    assert isinstance(tree, Script), tree
    (item,) = tree.items
    assert isinstance(item.node, Command)
    return item.node


def bare(part: Part) -> tuple[object, ...]:
    """A part without its place, short enough for a table."""
    match part:
        case Text():
            return ("quoted" if part.quoted else "text", part.text)
        case Parameter():
            return ("length" if part.length else "parameter", part.name, part.quoted)
        case Expansion():
            words: list[object] = [[bare(inner) for inner in word.parts] for word in part.words]
            if part.index is not None:
                key, number = part.index.key, part.index.number
                parts = None if key is None else [bare(inner) for inner in key.parts]
                words.insert(0, [None if number is None else _expression(number), parts])
            return (part.name, part.operator, part.quoted, *words)
        case Arithmetic():
            return ("arithmetic", _expression(part.expression))
        case Substitution():
            return (part.kind, part.quoted, *(bare_command(item.node) for item in part.body.items))
        case Glob():
            return ("glob", part.text)
        case Tilde():
            return ("tilde", part.user)


def bare_command(node: object) -> str:
    assert isinstance(node, Command)
    return " ".join(word.literal or "?" for word in node.words)


# fmt: off
EXACT: tuple[tuple[str, list[tuple[object, ...]], str], ...] = (
    ("abc",              [("text", "abc")], "plain"),
    ("-o=x:y,z@%+^]}!",  [("text", "-o=x:y,z@%+^]}!")], "characters that mean nothing inside a word"),
    ("a#b",              [("text", "a#b")], "no comment inside a word"),
    ("'a b'",            [("quoted", "a b")], "single quotes"),
    ("'a\\b$c`d'",       [("quoted", "a\\b$c`d")], "nothing is special in single quotes"),
    ("''",               [("quoted", "")], "an empty word is a word"),
    ('""',               [("quoted", "")], "an empty word is a word"),
    ("'a'\\''b'",        [("quoted", "a'b")], "D10: the usual way to quote a quote"),
    ("'a'\"'\"'b'",      [("quoted", "a'b")], "D10: the other usual way"),
    ("a'b\"c'd",         [("text", "a"), ("quoted", 'b"c'), ("text", "d")], "D10: a double quote inside single ones"),
    ("a\"b'c\"d",        [("text", "a"), ("quoted", "b'c"), ("text", "d")], "D10: and the other way round"),
    ('"a\\nb"',          [("quoted", "a\\nb")], "D11: the backslash stays"),
    ('"\\a\\$\\`\\"\\\\"', [("quoted", '\\a$`"\\')], "D11: only four characters lose it"),
    ("\\a\\ b",          [("quoted", "a "), ("text", "b")], "an escaped character is quoted"),
    ("-\"o\"",           [("text", "-"), ("quoted", "o")], "case 3: an option hidden in quotes"),
    ("-e\\xec",          [("text", "-e"), ("quoted", "x"), ("text", "ec")], "case 4: an option hidden by a backslash"),
    ("-ex''ec",          [("text", "-ex"), ("quoted", ""), ("text", "ec")], "case 4: an option hidden by empty quotes"),
    ("$'\\x2d\\x6f'",    [("quoted", "-o")], "D12: hexadecimal escapes"),
    ("$'-o'",            [("quoted", "-o")], "case 3"),
    ("$'\\101\\7\\60'",  [("quoted", "A\x070")], "octal escapes of one to three digits"),
    ("$'\\n\\t\\e\\\\\\'\\\"\\?'", [("quoted", "\n\t\x1b\\'\"?")], "single letters"),
    ("$'\\u41\\U00000042\\cg'", [("quoted", "AB\x07")], "code points and control letters"),
    ("$'a b'c",          [("quoted", "a b"), ("text", "c")], "text after it"),
    ('$"a b"',           [("quoted", "a b")], "D12: translated text, untranslated"),
    ('$"$x"',            [("parameter", "x", True)], "it expands like double quotes"),
    ("$x",               [("parameter", "x", False)], "a variable"),
    ("${x}y",            [("parameter", "x", False), ("text", "y")], "with braces"),
    ('"a$x b"',          [("quoted", "a"), ("parameter", "x", True), ("quoted", " b")], "inside double quotes"),
    ("$x$y",             [("parameter", "x", False), ("parameter", "y", False)], "two variables"),
    ("${#x}",            [("length", "x", False)], "a length"),
    ("$10",              [("parameter", "1", False), ("text", "0")], "one digit only"),
    ("${10}",            [("parameter", "10", False)], "more digits with braces"),
    ('"$@"',             [("parameter", "@", True)], "all arguments"),
    ("${x:-a}",          [("x", ":-", False, [("text", "a")])], "a default"),
    ("${x-}",            [("x", "-", False, [("text", "")])], "an empty one"),
    ('"${x:-a b}"',      [("x", ":-", True, [("quoted", "a b")])], "blanks in it"),
    ("${x:-$(a)}",       [("x", ":-", False, [("command", False, "a")])], "D4: the default runs"),
    ('"${x:+`a b`}"',    [("x", ":+", True, [("command", True, "a b")])], "D4: so does the alternative"),
    ("${1:?a $(b)}",     [("1", ":?", False, [("text", "a "), ("command", False, "b")])], "D4: and the message"),
    ("${x:-${y-$z}}",    [("x", ":-", False, [("y", "-", False, [("parameter", "z", False)])])], "one in the other"),
    ("${x:-'a b'\"$y\"}", [("x", ":-", False, [("quoted", "a b"), ("parameter", "y", True)])], "quotes outside of quotes"),
    ("${x:-~/a}",        [("x", ":-", False, [("tilde", ""), ("text", "/a")])], "home"),
    ("${x:-*.py}",       [("x", ":-", False, [("glob", "*"), ("text", ".py")])], "names of files"),
    ('"${x:-*.py}"',     [("x", ":-", True, [("quoted", "*.py")])], "no names of files"),
    ('"${x:-(a) <b>}"',  [("x", ":-", True, [("quoted", "(a) <b>")])], "signs that mean nothing inside double quotes"),
    ("${x##*/}",         [("x", "##", False, [("glob", "*"), ("text", "/")])], "the longest start"),
    ('"${x%.py}"',       [("x", "%", True, [("quoted", ".py")])], "an end"),
    ("${x#$(a)}",        [("x", "#", False, [("command", False, "a")])], "D4: patterns run, too"),
    ('"${x%"$y"}"',      [("x", "%", True, [("parameter", "y", True)])], "a quoted pattern inside double quotes"),
    ("${x/a/`b`}",       [("x", "/", False, [("text", "a")], [("command", False, "b")])], "D4: and replacements"),
    ("${x//\\//_}",      [("x", "//", False, [("quoted", "/")], [("text", "_")])], "an escaped slash"),
    ("${x/#a}",          [("x", "/#", False, [("text", "a")])], "nothing in its place"),
    ("${x//$'\\n'/ }",   [("x", "//", False, [("quoted", "\n")], [("text", " ")])], "a line end"),
    ("${x^}${x^^}${x,}${x,,}", [("x", o, False) for o in ("^", "^^", ",", ",,")], "letters"),
    ("${x:1}${x:0:2}",   [("x", ":", False, [("text", "1")]), ("x", ":", False, [("text", "0")], [("text", "2")])], "a piece"),
    ('"${@:2}"',         [("@", ":", True, [("text", "2")])], "some arguments"),
    ("${x: -3}",         [("x", ":", False, [("text", " -3")])], "from the end"),
    ("${x[0]}${x[12]}",  [("parameter", "x", False), ("parameter", "x", False)], "elements of an array"),
    ('"${x[@]}"',        [("parameter", "x", True)], "all of them"),
    ("${#x[@]}",         [("length", "x", False)], "how many"),
    ("${x:i:$n}",        [("x", ":", False, [("arithmetic", "i")], [("arithmetic", "n")])], "a computed piece"),
    ('"${x:$((i-1)):1}"', [("x", ":", True, [("arithmetic", "i - 1")], [("text", "1")])], "likewise"),
    ('"${@:$i}"',        [("@", ":", True, [("arithmetic", "i")])], "some arguments"),
    ('"${x[@]:1}"',      [("x", ":", True, [("text", "1")])], "some elements"),
    ("${x[$i]}",         [("x", "[", False, ["i", [("parameter", "i", False)]])], "a computed element"),
    ("${x[i + 1]}",      [("x", "[", False, ["i + 1", None])], "likewise"),
    ("${x['y.z']}",      [("x", "[", False, [None, [("quoted", "y.z")]])], "a key"),
    ("${x[01]}",         [("x", "[", False, [None, [("text", "01")]])], "octal is not read as arithmetic"),
    ("${x[$y]:-a}",      [("x", ":-", False, ["y", [("parameter", "y", False)]], [("text", "a")])], "a computed element, or a default"),
    ("${!x[@]}",         [("x", "!", False)], "the subscripts"),
    ("${!x}${!1}",       [("x", "!", False), ("1", "!", False)], "by the name in a variable"),
    ("${x[0]:-$(a)}",    [("x", ":-", False, [("command", False, "a")])], "with a default"),
    ("$#$?$$$!$-",       [("parameter", c, False) for c in "#?$!-"], "special parameters"),
    ("${#}",             [("parameter", "#", False)], "the count, not a length"),
    ("$",                [("text", "$")], "a dollar sign alone"),
    ('"a$"',             [("quoted", "a$")], "a dollar sign before the quote"),
    ("a$/b",             [("text", "a$/b")], "a dollar sign before no name"),
    ('"a$\\|b$"',         [("quoted", "a$\\|b$")], "one before a backslash, inside double quotes"),
    ('"a$\\"b$\\$x"',      [("quoted", 'a$"b$$x')], "before an escaped character"),
    ("\"a$'b'$~\"",      [("quoted", "a$'b'$~")], "and before a single quote, which means nothing there"),
    ("a$\\x",             [("text", "a$"), ("quoted", "x")], "before a backslash outside of quotes"),
    ('"a\\\n b\\\\\\\nc"',  [("quoted", "a b\\c")], "a line continuation inside double quotes is nothing"),
    ('"$x\\\n b"',        [("parameter", "x", True), ("quoted", " b")], "after a variable"),
    ('"${x}\\\n$(a)"',    [("parameter", "x", True), ("quoted", ""), ("command", True, "a")], "between two expansions"),
    ("a\\\n\\\nb",       [("text", "ab")], "case 15: line continuations inside a word join it"),
    ("-\\\n'o'\\\n\"p\"", [("text", "-"), ("quoted", "op")], "case 15: also beside quotes"),
    ("$(a b)",           [("command", False, "a b")], "a command substitution"),
    ('"x$(a)y"',         [("quoted", "x"), ("command", True, "a"), ("quoted", "y")], "inside double quotes"),
    ("$(a\nb; c)",       [("command", False, "a", "b", "c")], "D1: every line of it"),
    ("`a\nb`",           [("command", False, "a", "b")], "D1: every line of it"),
    ("`a b`",            [("command", False, "a b")], "backquotes"),
    ('"`a`"',            [("command", True, "a")], "backquotes inside double quotes"),
    ("$(a '#)' # )\n)",  [("command", False, "a #)")], "a parenthesis in quotes and in a comment"),
    ("$()",              [("command", False)], "nothing to run"),
    ("`a 'b\\c\\\\d\\$e'`", [("command", False, "a b\\c\\d$e")], "backslashes in single quotes, some of which bash removes first"),
    ("`a b\\ \\.c\\\n d`",  [("command", False, "a b .c d")], "other escapes, and a line continuation"),
    ('"`a "b c" \'d\\\\\'`"', [("command", True, "a b c d\\")], "double quotes inside backquotes inside double quotes"),
    ("$'\\0'",             [("quoted", "")], "NUL ends the text"),
    ("$'\\.\\$a'",         [("quoted", "\\.\\$a")], "a backslash before a sign stays"),
    ("<(a)",             [("process-in", False, "a")], "a process substitution"),
    (">(a b)",           [("process-out", False, "a b")], "and to the other side"),
    ("*.py",             [("glob", "*"), ("text", ".py")], "a glob"),
    ("a?[b-d]*",         [("text", "a"), ("glob", "?"), ("glob", "[b-d]"), ("glob", "*")], "all kinds of it"),
    ("**/x",             [("glob", "**"), ("text", "/x")], "two stars"),
    ("'*'\\?\"[a]\"",    [("quoted", "*?[a]")], "no glob when quoted"),
    ("[",                [("text", "[")], "a bracket that nothing closes"),
    ("a[",               [("text", "a[")], "likewise"),
    ("a[b",              [("text", "a[b")], "likewise"),
    ("[!a-c]x",          [("glob", "[!a-c]"), ("text", "x")], "a bracket expression"),
    ("[[:digit:]x]*",    [("glob", "[[:digit:]x]"), ("glob", "*")], "with a class"),
    ("~",                [("tilde", "")], "home"),
    ("~/a",              [("tilde", ""), ("text", "/a")], "below home"),
    ("~root/a",          [("tilde", "root"), ("text", "/a")], "the home of a user"),
    ("HEAD~1",           [("text", "HEAD~1")], "no tilde expansion inside a word"),
    ("a~",               [("text", "a~")], "nor at its end"),
    ("host:~/a",         [("text", "host:~/a")], "nor after a colon outside of assignments"),
    ("'~'",              [("quoted", "~")], "nor in quotes"),
    ("--x=~/a",          [("text", "--x=~/a")], "nor after `=` without a name before it"),
    ("-x=a:~",           [("text", "-x=a:~")], "nor after a colon there"),
    ("a.b=~`c`",         [("text", "a.b=~"), ("command", False, "c")], "D2: and what follows is seen"),
    ("y=~/a",            [("text", "y="), ("tilde", ""), ("text", "/a")], "but after a name and `=`, in every argument"),
    ("y+=~",             [("text", "y+="), ("tilde", "")], "likewise"),
    ("{}",               [("text", "{}")], "what find needs"),
    ("@{u}",             [("text", "@{u}")], "what git needs"),
    ("@{u}..HEAD",       [("text", "@{u}..HEAD")], "no sequence: the dots are outside"),
    ("a@{0}..b@{1.day}", [("text", "a@{0}..b@{1.day}")], "nor with two of them"),
    ("@{-1}...@{u}",     [("text", "@{-1}...@{u}")], "nor with a minus"),
    ("'{a,b}'",          [("quoted", "{a,b}")], "D13: quoted braces are text"),
    ("\\{a,b}",          [("quoted", "{"), ("text", "a,b}")], "D13: escaped braces are text"),
    ("é",                [("text", "é")], "letters beyond ASCII"),
    ("'à b'",            [("quoted", "à b")], "quoted, any printable character"),
)

OPAQUE: tuple[tuple[str, str, str], ...] = (
    ("{a,$x}",           "brace expansion", "D13: an expansion inside"),
    ("{u}..{a,b}",       "brace expansion", "the first braces mean themselves, the second ones do not"),
    ("{a..}..b",         "brace expansion", "a sequence without an end: left alone"),
    ("{u}..$x",          "brace expansion", "with a value"),
    ("{,a}",             "brace expansion", "one of them empty: it vanishes"),
    ("{a..C}",           "brace expansion", "letters of both kinds, and what stands between them"),
    ("{1..9..0}",        "brace expansion", "a step of nothing"),
    ("{-0..2}",          "brace expansion", "a sign before nothing"),
    ("a$x{b,c}",         "brace expansion", "bash puts the words together first: `$xb $xc`"),
    ("{$x,b}c",          "brace expansion", "likewise: `$xc`"),
    ("{[a,b]}",          "brace expansion", "a bracket expression, or two words"),
    ("{$,a}x",           "brace expansion", "would become `$x`"),
    ("{a,\"$(b)\"}",      "brace expansion", "with a command in it"),
    ("{1..999}",         "brace expansion", "too many"),
    ("x={a,b}",          "brace expansion", "depends on the command before it"),
    ("{a,$(b)}",         "brace expansion", "with a command in it"),
    ("a{1..$(b)}",       "brace expansion", "with a command in it"),
    ("[\"a\"b]",         "`[..]`", "quotes in a bracket expression"),
    ("a[a[1]",           "`[..]`", "found by fuzzing: matches a1"),
    ("a[$x",             "`[..]`", "the value may close it"),
    ("[]a]",             "`[..]`", "the first `]` does not close it"),
    ("[!]a]",            "`[..]`", "nor after a negation"),
    ("~$(a)",            "`~`", "D2: the substitution runs"),
    ("~`a`",             "`~`", "D2"),
    ("~<(a)",            "process substitution", "D2"),
    ("~x$(a)",           "`~`", "D2"),
    ("~+",               "`~`", "the current folder, by another name"),
    ("~'a'",             "`~`", "a quote ends the user name"),
    ("x=a:~",            "`~`", "D13: bash expands it in a word that looks like an assignment"),
    ("x=~/a:~",          "`~`", "likewise"),
    ("x=~$(a)",          "`~`", "D2"),
    ("x[1]=~",           "`~`", "likewise with a subscript"),
    ("'x'=~/y",          "`~`", "a quoted name is none"),
    ("{x,y}=~/z",        "`~`", "nor is one that braces make"),
    ("x=~/{a,b}",        "brace expansion", "depends on the command before it"),
    ('""<(a)',           "glued", "D3: runs, though the word looks quoted"),
    ('"a b">(c)',        "glued", "D3"),
    ("<(a)b",            "glued", "text after it"),
    ("<()",              "empty process substitution", "found by fuzzing: no word comes of it"),
    (">()",              "empty process substitution", "likewise"),
    ("<(a)<(b)",         "glued", "two in one word"),
    ("<((a))",           "arithmetic", "found by fuzzing: bash 5.2 reads this differently"),
    ("${x:=a}",          "`${..}`", "D4: assigns"),
    ("${x=a}",           "`${..}`", "D4: assigns"),
    ("${x:y?1:2}",       "`${..}`", "where the offset ends"),
    ("${x:y[1]}",        "`${..}`", "D7: a subscript in the offset"),
    ("${x:'y'}",         "`${..}`", "quotes in the offset"),
    ("${x:y=1}",         "`${..}`", "an offset that assigns"),
    ("${x:$y$z}",        "arithmetic", "what two values make together"),
    ("${x:0:-$y}",       "`${..}`", "ends the line when the value is too short"),
    ("${x:y++}",         "arithmetic that assigns", "an offset that assigns"),
    ("${x[1]:1}",        "`${..}`", "nobody writes it"),
    ("${x:$(a)}",        "`${..}`", "D4, D7: arithmetic"),
    ("${x:0:-1}",        "`${..}`", "ends the line when the value is too short"),
    ("$((1/$#))",        "may fail", "ends the line when it is zero"),
    ("$((2**-1))",       "may fail", "ends the line"),
    ("$((1%0))",         "may fail", "ends the line"),
    ("${x:08}",          "arithmetic", "octal"),
    ("${x[$(a)]}",       "`${..}`", "D4, D7: a subscript"),
    ("${x[y[1]]}",       "`${..}`", "D7: a subscript in a subscript"),
    ("${x[y=1]}",        "`${..}`", "D7: a subscript that assigns"),
    ("${x[@]@Q}",        "`${..}`", "D6"),
    ("${#x[$(a)]}",      "`${..}`", "D7"),
    ("${x^^a}",          "`${..}`", "a pattern for letters"),
    ("${x~}",            "`${..}`", "not documented"),
    ("${x//}",           "`${..}`", "no pattern"),
    ("${x///a}",         "`${..}`", "where the pattern ends is not plain"),
    ("${#x:-a}",         "`${..}`", "a length of what"),
    ("${!x:-a}",         "`${..}`", "D6: the name is in a variable"),
    ("${?:-a}",          "`${..}`", "never empty, and nobody writes it"),
    ("${x:-a;b}",        "`${..}`", "a separator outside of quotes"),
    ("${x:-(a)}",        "`${..}`", "a parenthesis outside of quotes"),
    ("${x:-{a,b}}",      "`${..}`", "where it ends is not plain"),
    ("${x:-a\nb}",       "`${..}`", "over two lines"),
    ("${x:-'}'}",        "`${..}`", "where it ends depends on the quotes"),
    ("${x:-\"}\"}",      "`${..}`", "likewise"),
    ("${x:-\\}}",        "`${..}`", "likewise"),
    ("\"${x:-'a'}\"",    "`${..}`", "inside double quotes they are text for some versions only"),
    ("\"${x:-\"a b\"}\"", "`${..}`", "likewise, so that a blank may split the word"),
    ("\"${x:-\"$y\"}\"", "`${..}`", "likewise"),
    ("\"${x%\\'}\"",     "`${..}`", "an escaped single quote"),
    ("\"${x/'a'/b}\"",   "`${..}`", "likewise"),
    ("\"${x:-~}\"",      "`${..}`", "likewise"),
    ("${x:-a:~}",        "`${..}`", "bash expands it in an assignment"),
    ("${x:-~a}",         "`${..}`", "a user's home"),
    ("${x:-[a$b]}",      "`[..]`", "a bracket expression that is not plain"),
    ("${x:-$}",          "`${..}`", "not followed by a name"),
    ("${x:-$\"a\"}",     "`${..}`", "translated text"),
    ("${x:-a",           "`${..}`", "never closed"),
    ("\"${x:->(a)}\"",   "`${..}`", "found by fuzzing an earlier reader"),
    ("${x:-<(a)}",       "`${..}`", "runs, found by fuzzing an earlier reader"),
    ("\"${x:=`a`}\"",    "`${..}`", "case 18"),
    ("${p@P}",           "`${..}`", "D6, case 19: expanded again"),
    ("${@@P}",           "`${..}`", "D6"),
    ("${1@P}",           "`${..}`", "D6"),
    ("${!p*}",           "`${..}`", "D6: names"),
    ("${!p@P}",          "`${..}`", "D6"),
    ("${!#}",            "`${..}`", "D6: the last argument"),
    ("${!p[1]}",         "`${..}`", "D6"),
    ("${#-}",            "`${#..}`", "versions of bash differ"),
    ("${ a; }",          "`${..}`", "runs a command in newer versions of bash"),
    ("${|a; }",          "`${..}`", "likewise"),
    ("${x",              "`${..}`", "never closed"),
    ("$[a[1]]",          "arithmetic", "the old spelling"),
    ("$xé",              "beyond ASCII", "whether é belongs to the name depends on the system"),
    ('"$${x:-"a"}"',     "`$$`", "found by fuzzing: bash takes `${` for an expansion while it looks for the quote"),
    ("$$(a)",            "`$$`", "likewise"),
    ("$$'a'",            "`$$`", "likewise"),
    ("$\\\n(a)",         "not followed by a plain name", "joins `$` and `(`"),
    ('"$\\\n(a)"',       "not followed by a plain name", "likewise inside double quotes"),
    ('"$\\\n{x@P}"',     "not followed by a plain name", "joins `$` and `{`"),
    ('"$x\\\ny"',        "after a variable name", "joins `$x` and `y` to `$xy`"),
    ("$x\\\ny",          "line continuation", "likewise without quotes"),
    ("a\\\n(b)",         "line continuation", "joins a word and a parenthesis"),
    ("a\\\n<(b)",        "line continuation", "joins a word and a process"),
    ("{a,\\\nb}",        "line continuation", "in braces"),
    ("[a\\\nb]",         "`[..]`", "in a bracket expression"),
    ("a=\\\n~",          "line continuation", "joins `=` and `~`"),
    ("~\\\nroot",        "`~`", "joins `~` and a name"),
    ("a\\\n1>f",         "number before", "joins a word and a descriptor"),
    ("$'\\x80'",         "escape", "a byte beyond ASCII: the locale decides"),
    ("$'\\u00e9'",       "escape", "likewise"),
    ("$'a\\0b'",         "escape", "NUL cuts the word"),
    ("$'\\x'",           "escape", "no digits"),
    ("$'\\x{41}'",       "escape", "not documented"),
    ("$'\\q'",           "escape", "not an escape"),
    ("$'\\ca'",          "escape", "a mark that bash itself uses inside words"),
    ("$'a",              "never closed", "no end"),
    ("'a",               "never closed", "no end"),
    ('"a',               "never closed", "no end"),
    ("`a",               "never closed", "no end"),
    ("$(a",              "missing", "no end"),
    ("`a \\`b\\``",      "backquotes", "nested backquotes are decoded first"),
    ("`a \\$b`",          "backquotes", "the backslash is removed first, and then `$b` is expanded"),
    ('`a "\\$(b)"`',      "backquotes", "likewise: it runs `b`"),
    ("`a \\\\$b`",        "backquotes", "likewise"),
    ("`a $'\\\\n'`",      "backquotes", "decoded twice"),
    ("`a 'b\\\nc'`",      "backquotes", "the lines are joined even inside single quotes"),
    ("`a #b\\\nc`",       "backquotes", "and in a comment"),
    ('"`a \\"b\\"`"',     "backquotes", "quotes that bash removes backslashes from"),
    ('${x:-"`a "b"`"}',  "`${..}`", "versions of bash read these quotes differently"),
    ("${x:-`a 'b\\\\c'`}", "", "likewise"),
    ("a(b)",             "`(`", "an extended glob or a function"),
    ("@(a|b)",           "`(`", "an extended glob"),
    ("!(a)",             "`(`", "an extended glob"),
    ("\\",               "backslash at the end", "nothing to escape"),
    ("a\u00a0b",         "U+00A0", "an odd blank"),
    ("a\u3164b",         "U+3164", "a letter that looks like a blank"),
    ("a\u2028b",         "U+2028", "an odd line end"),
    ("a\u200bb",         "U+200B", "an invisible character"),
    ("a\u202eb",         "U+202E", "turns the direction of writing"),
    ("\ufeffa",          "U+FEFF", "a byte order mark"),
    ("a\ud800b",         "U+D800", "half a character"),
    ("a\x00b",           "U+0000", "NUL"),
    ("a\rb",             "U+000D", "a carriage return is part of the word for bash"),
    ("a\x0cb",           "U+000C", "so is a form feed"),
    ("a\x1bb",           "U+001B", "escape"),
    ("a\x7fb",           "U+007F", "a mark that bash itself uses inside words"),
    ("naà",              "another system", "its bytes hold 0xa0, a blank in some C libraries"),
    ("{fd}<<<f",         "here-document for a file descriptor", "nobody writes it"),
    ("{fd}2>f",          "descriptor put into a variable", "D8: glued to a number"),
    ("{SECONDS}>f",      "evaluates", "D8: bash obeys the variable"),
    ("{a[0]}>f",         "descriptor put into a variable", "D8"),
)
# fmt: on


@pytest.mark.parametrize(("source", "parts", "why"), EXACT, ids=[row[0] for row in EXACT])
def test_a_word_is_decoded_exactly(source: str, parts: list[tuple[object, ...]], why: str) -> None:
    for text in (f"cmd {source}", f"cmd x {source} y", f"cmd {source};", f"for v in {source}; do z; done"):
        tree = read(text)
        assert isinstance(tree, Script), (tree, why)
        node = tree.items[0].node
        word = node.words[0 if text.startswith("for") else 1 + text.startswith("cmd x")]  # type: ignore[union-attr, index]
        assert [bare(part) for part in word.parts] == parts, why
        assert text[word.span.start : word.span.end] == source


@pytest.mark.threat("T01")
@pytest.mark.parametrize(("source", "reason", "why"), OPAQUE, ids=[ascii(row[0]) for row in OPAQUE])
def test_a_word_that_is_not_certain_is_opaque(source: str, reason: str, why: str) -> None:
    for text in (f"cmd {source}", f"cmd x{source}" if source[0] in "$`\\" else f"cmd a {source}", f"cmd > {source}"):
        tree = read(text)
        assert isinstance(tree, Opaque), (text, why)
        if not text.startswith("cmd >"):
            assert reason in tree.reason, (text, why)
        assert 0 <= tree.span.start <= tree.span.end <= len(text)


@pytest.mark.parametrize(
    ("source", "words", "why"),
    [
        ("{a,b}", "a b", "D13"),
        ("{a,{b,c}d}e", "ae bde cde", "nested"),
        ("{a..b,c}", "a..b c", "a sequence beside a comma is text"),
        ("{01..3}", "01 02 03", "padded"),
        ("{-1..01}", "-1 00 01", "padded, the sign too"),
        ("{a..e..2}x", "ax cx ex", "letters, some of them"),
        ("{9..1..-4}", "9 5 1", "backwards"),
        ("{1..9..4}", "1 5 9", "forwards"),
        ("--{output=f,stat}", "--output=f --stat", "case 6: an option hidden in braces is found"),
        ("{-o,out}", "-o out", "case 3: likewise"),
        ("src/{a,b}.{py,c}", "src/a.py src/a.c src/b.py src/b.c", "the last group turns fastest"),
        ("f{,.bak}", "f f.bak", "an empty choice"),
        ("{1..3}", "1 2 3", "a sequence"),
        ("x{2..-1}", "x2 x1 x0 x-1", "downwards"),
        ("{if,a}", "if a", "no reserved words come out of it"),
    ],
)
def test_plain_braces_become_the_words_that_bash_makes(source: str, words: str, why: str) -> None:
    assert [word.literal for word in command(f"cmd {source} z").words] == ["cmd", *words.split(), "z"], why
    assert isinstance(read(f"cmd > {source}"), Opaque)


@pytest.mark.parametrize(
    ("source", "words", "why"),
    [
        ("*.{ts,js}", [["*", ".ts"], ["*", ".js"]], "a glob before the braces"),
        ("{a,b}/*.py", [["a/", "*", ".py"], ["b/", "*", ".py"]], "and after them"),
        ("{a*,b}", [["a", "*"], ["b"]], "and in one choice only: the other word is certain"),
        ("--x=*.{a,?}", [["--x=", "*", ".a"], ["--x=", "*", ".", "?"]], "in the value of a flag"),
        ("**/{a,b}", [["**", "/a"], ["**", "/b"]], "two stars are one glob"),
        ("{a,b}*'c'", [["a", "*", "c"], ["b", "*", "c"]], "and quotes"),
        ("{a,'b c'}", [["a"], ["b c"]], "D13: quotes inside"),
        ("{'a,b',\\,}", [["a,b"], [","]], "D13: quoted commas are text"),
    ],
)
def test_globs_beside_braces_stay_globs(source: str, words: list[list[str]], why: str) -> None:
    made = command(f"cmd {source} z").words[1:-1]
    assert [[part.text for part in word.parts if isinstance(part, (Text, Glob))] for word in made] == words, why
    stars = [[isinstance(part, Glob) for part in word.parts] for word in made]
    assert stars == [[piece.strip("*?") == "" for piece in word] for word in words], why


@pytest.mark.parametrize(
    ("source", "value", "why"),
    [
        ("x=1", [("text", "1")], "plain"),
        ("x=", [("text", "")], "empty"),
        ("x='a b'", [("quoted", "a b")], "quoted"),
        ("x=$y", [("parameter", "y", False)], "another variable"),
        ("x=$(a)", [("command", False, "a")], "runs"),
        ("x=<(a)", [("process-in", False, "a")], "runs"),
        ("x=~", [("tilde", "")], "home"),
        ("x=~/a", [("tilde", ""), ("text", "/a")], "home at the start of the value"),
        ("x=~:a", [("tilde", ""), ("text", ":a")], "a colon ends it"),
        ("x=*.py", [("quoted", "*"), ("text", ".py")], "no file names in an assignment"),
        ("x=[a]?", [("quoted", "["), ("text", "a]"), ("quoted", "?")], "no file names in an assignment"),
        ("x=#a", [("text", "#a")], "no comment"),
        ("x==b", [("text", "=b")], "the first `=` counts"),
    ],
)
def test_an_assigned_value_is_not_split_and_has_no_globs(source: str, value: list[object], why: str) -> None:
    (assignment,) = command(f"{source} cmd").assignments
    assert isinstance(assignment, Assignment)
    assert (assignment.name, [bare(part) for part in assignment.value.parts]) == ("x", value), why


@pytest.mark.parametrize(
    "source", ["x=a:~", "x=~/a:~/b", "x=a=~", 'x="a:"~', "x={a,b}", "x=(): y", "x=a(b)", "x=([0]", "x=(a"]
)
def test_an_assigned_value_that_is_not_certain_is_opaque(source: str) -> None:
    assert isinstance(read(f"{source} cmd"), Opaque)
    assert isinstance(read(source), Opaque)


def test_the_start_of_a_word_is_known_as_far_as_it_is_literal() -> None:
    words = command("cmd --out=$x 'a'\"b\"*c $y").words[1:]
    assert [(word.prefix, word.literal) for word in words] == [("--out=", None), ("ab", None), ("", None)]


def tiles(word: Word, text: str) -> bool:
    at = word.span.start
    for part in word.parts:
        if part.span.start != at or part.span.end < at:
            return False
        at = part.span.end
        if isinstance(part, Text) and not part.quoted and text[part.span.start : part.span.end] != part.text:
            return False
    return at == word.span.end


PIECES = [
    "a",
    "'b c'",
    '"d$x e"',
    "\\f",
    "$g",
    "${h}",
    "${x:-$(y) z}",
    '"${x%"$y"}"',
    "*",
    "[i]",
    "$(j)",
    "`k`",
    '""',
    "$'\\n'",
    '$"l"',
    "~",
    "é",
    "{}",
    "=",
]


@pytest.mark.threat("T01")
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=6))
def test_the_parts_of_a_word_tile_it(pieces: list[str]) -> None:
    text = "cmd " + "".join(pieces) + " x"
    tree = read(text)
    if isinstance(tree, Script):
        for word in tree.items[0].node.words:  # type: ignore[union-attr]
            assert tiles(word, text)
    else:
        assert re.search(r"~|\$|=", text), tree


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=("Cc",)), max_size=20))
def test_single_quotes_keep_every_character(text: str) -> None:
    quoted = "'" + text.replace("'", "'\\''") + "'"
    tree = read(f"cmd {quoted}")
    if isinstance(tree, Script):
        assert tree.items[0].node.words[1].literal == text  # type: ignore[union-attr]
    else:
        assert not text.isprintable(), tree
