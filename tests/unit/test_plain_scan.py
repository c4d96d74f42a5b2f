"""Property of the scan_plain of a plain script: it contains at least what bashlex finds, for a grammar and for any text."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policy.bash import crosscheck
from policy.bash import plain_scan as module
from policy.bash.ast import Script
from policy.bash.parser import read
from policy.bash.plain_scan import Found, scan_plain
from tests.support.law import examples


def reported(text: str) -> set[Found] | None:
    """Return the report of bashlex itself in the terms of an scan_plain, or None if it refuses the text."""
    package: Any = crosscheck._bashlex()
    found: list[Found] = []
    try:
        for part in package.parse(text):
            crosscheck._report(part, found)
    except Exception:  # it refuses with exceptions of every kind
        return None
    return placed([("word" if kind == "assignment" else kind, start, end) for kind, start, end in found])


def placed(found: list[Found]) -> set[Found]:
    """Return the positions that the second parser compares: both ends of a word, the start of all other parts."""
    return {(kind, start, end if kind == "word" else start) for kind, start, end in found}


PLAIN = (
    ("git status", [("command", 0, 0), ("word", 0, 3), ("word", 4, 10)]),
    ("a|b", [("command", 0, 0), ("word", 0, 1), ("command", 2, 2), ("word", 2, 3)]),
    ("a;", [("command", 0, 0), ("word", 0, 1)]),
    (">x a", [("command", 0, 0), ("redirect", 0, 0), ("word", 1, 2), ("word", 3, 4)]),
    ("a 2>&1 <&-", [("command", 0, 0), ("word", 0, 1), ("redirect", 2, 2), ("redirect", 7, 7)]),
    ("a 2> x", [("command", 0, 0), ("word", 0, 1), ("redirect", 2, 2), ("word", 5, 6)]),
    ("'a b'\"c $d\"\\ e", [("command", 0, 0), ("word", 0, 14)]),
    ("x=1 if # then\n", [("command", 0, 0), ("word", 0, 3), ("word", 4, 6)]),
    ("", []),
    (" # a", []),
    ("a \\\n  b", [("command", 0, 0), ("word", 0, 1), ("word", 6, 7)]),
)

NOT_PLAIN = (
    ("a $(b)", "a substitution"),
    ("a '$(b)'", "what looks like one, quoted: bashlex may take it for one"),
    ("a `b`", "a backquote"),
    ("a <(b)", "a process substitution"),
    ("a >(b)", "likewise"),
    ("a $[1]", "arithmetic"),
    ("a $'b'", "a form of quotes with rules of its own"),
    ('a $"b"', "likewise"),
    ("a $$", "its second sign may begin something"),
    ("a ${x:-'b'}", "quotes inside braces"),
    ("a ${x:-${y}}", "braces inside braces"),
    ("(a)", "a parenthesis"),
    ("a() { b; }", "a function"),
    ("if a; then b; fi", "a reserved word where a command begins"),
    ("a | while b; do c; done", "likewise, after an operator"),
    ("{ a; }", "likewise"),
    ("! a", "likewise"),
    ("a <<E\nb\nE", "a here-document"),
    ("a <<<b", "a here-string"),
    ("a;;b", "an operator of `case`"),
    ("a &>>& b", "an operator that there is not"),
    ("a >", "a redirection to nothing"),
    ("a ;# b", "a comment right after an operator, into which bashlex reads"),
    ("a &# b", "likewise"),
    ("a >&-b", "a descriptor with text glued to it"),
    ("a >&b", "a redirection that bash expands twice"),
    ("a 'b'$'c'", "`$'` after other quotes"),
    ('a "b$\'c"', "`$'` inside double quotes"),
    ("a 'b", "a quote that is never closed"),
    ('a "b', "likewise"),
    ("a\\\nb", "a line continuation inside a word"),
    ("a |\\\n| b", "one inside an operator"),
    ("a \\\n\\\nb", "two in a row"),
    ("a\\", "a backslash at the end"),
    ("a\rb", "a blank that is none"),
    ("a\u00a0b", "likewise"),
    ("a b\u00e9", "a letter beyond ASCII outside of quotes"),
)


@pytest.mark.parametrize(("text", "found"), PLAIN, ids=[ascii(row[0]) for row in PLAIN])
def test_a_plain_script_has_an_outline(text: str, found: list[Found]) -> None:
    answer = scan_plain(text)
    assert answer is not None
    assert placed(answer) == set(found)


@pytest.mark.parametrize(("text", "why"), NOT_PLAIN, ids=[ascii(row[0]) for row in NOT_PLAIN])
def test_all_else_is_left_to_bashlex(text: str, why: str) -> None:
    assert scan_plain(text) is None, why


_BARE = st.text("ab=-+./:,@%^*?[]{}~!#019_", min_size=1, max_size=5)
_RESERVED = st.sampled_from(sorted(module._RESERVED))
_DOLLAR = st.sampled_from(["$x", "$1", "$?", "$@", "${x}", "${#x}", "${x%.py}", "${x##*/}", "${x:-d}", "$", "$.", "$-"])
_INSIDE = st.text("ab '|;&<>#{}!=~\n()", max_size=6)
_PIECE = st.one_of(
    _BARE,
    _DOLLAR,
    _RESERVED,
    st.text('ab "\\|;&<>#{}!=~$\n()', max_size=6).map(lambda text: f"'{text}'"),
    st.lists(st.one_of(_INSIDE, _DOLLAR, st.sampled_from(["\\\\", '\\"', "\\a", "é"])), max_size=3).map(
        lambda pieces: f'"{"".join(pieces)}"'
    ),
    st.sampled_from("ab|;&<>#'\"$ {}!").map(lambda char: f"\\{char}"),
)
_WORD = st.one_of(_BARE, _RESERVED, st.lists(_PIECE, min_size=1, max_size=3).map("".join))
_REDIRECT = st.tuples(
    st.sampled_from([">", ">>", "<", "2>", "2>>", "1<", "&>", "&>>", ">|", "<>", "12>"]),
    st.sampled_from(["", " ", "\t"]),
    _WORD,
).map("".join) | st.sampled_from(["2>&1", ">&2", "<&-", ">& 1", ">&1-", ">&-a", ">&12", ">&1a"])
_JOINT = st.sampled_from(
    [" ", " ", " ", "\t", "  ", "|", " | ", " || ", " \\\n", "&&", "; ", ";", " & ", "|& ", "\n", " # c'd\n"]
)


@examples(400)
@given(st.lists(st.tuples(st.one_of(_WORD, _WORD, _REDIRECT), _JOINT), min_size=1, max_size=8))
@example([("echo", " "), ("{", " "), ("if", " "), ("a", ";")])
@example([("a", " "), ("'${'", " ")])
def test_it_says_what_bashlex_says(tokens: list[tuple[str, str]]) -> None:
    text = "".join(word + joint for word, joint in tokens)
    found = scan_plain(text)
    theirs = reported(text) if found is not None else None
    if found is None or theirs is None:
        return
    assert theirs <= placed(found)
    assert theirs == placed(found)


@examples(400)
@given(st.text("ab'\"\\$`|;&<>(){}!#=~ \n\t1-if", max_size=14))
def test_it_says_at_least_what_bashlex_says_of_any_text(text: str) -> None:
    found = scan_plain(text)
    theirs = reported(text) if found is not None else None
    assert found is None or theirs is None or theirs <= placed(found)


@given(st.lists(st.tuples(st.one_of(_WORD, _REDIRECT), _JOINT), min_size=1, max_size=6))
def test_a_right_tree_is_not_objected_to(tokens: list[tuple[str, str]]) -> None:
    text = "".join(word + joint for word, joint in tokens)
    tree = read(text)
    if isinstance(tree, Script) and scan_plain(text) is not None:
        assert crosscheck.find_disagreement(text, tree) is None


@pytest.mark.parametrize(
    "char", ["'", '"', "\\", "$", "${x", "a'", '"a', "a\\", "2>", "#", "{", "a=", "<", "&", "|", "a "]
)
def test_it_ends_on_long_texts_of_one_piece(char: str) -> None:
    for text in (char * 4000, "a" * 8000 + char, '"' + char * 4000, "'" + char * 4000):
        found = scan_plain(text)
        assert found is None or len(found) <= len(text)
