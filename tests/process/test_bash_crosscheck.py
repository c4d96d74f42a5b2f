"""Tests of the second parser: it rejects scripts whose tree lacks something, accepts all others, never fails, and
starts fast.
"""

import dataclasses
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.bash import bashlex_tables
from policy.bash.ast import Assignment, ListElement, Opaque, Redirect, Script, Substitution, Word
from policy.bash.crosscheck import find_disagreement, sources_digest
from policy.bash.parser import read
from policy.model.abstract_word import SourceSpan
from tests.support.places import ROOT


def tree(text: str) -> Script:
    answer = read(text)
    assert isinstance(answer, Script), answer
    return answer


AGREED = (
    ("git status", "plain words"),
    ("git status && rg -n foo src | head", "operators"),
    ("a 'b c' \"$x\" \\d $'e\\x66' *.py {} ~/f", "quoting"),
    ('a $(b "$(c)") `d` <(e) > >(f)', "substitutions of every kind"),
    ('a "$(b)" x"$(c) $(d)"', "substitutions whose quotes we count as theirs"),
    ("a $(b\nc)", "D1: it sees less than we do, which says nothing"),
    ("a <b >>c 2>&1 &>d <<<e 3<&- >|f", "redirections"),
    ("x=1 y+=2 a; z=$(b)", "assignments"),
    ("for x in a b; do c; done; for y do d; done", "loops, whose variable is no word of ours"),
    ("while a; b; do c; done > d; if e; then f; elif g; then h; else i; fi", "compound commands"),
    ("{ a; }; (b) | c; ! d", "groups"),
    ("a <<E | b\nx $(c)\nE\nd", "a here-document"),
    ("{ a <<E; }\nrm -rf x\nE\n", "a here-document that it takes for commands"),
    ("a <<'E'\n$(b)\nE\n", "a quoted here-document, which it does not know"),
    ("a \\\n  b $(c \\\n  d \\\n) `e`", "line continuations, where it loses count"),
    ('a "b\\\n$(c)" d\\\n  e\\\nf <<E\nx\\\ny $(g)\nE\nh', "also inside words, where letters replace them"),
    ("a \"b$\\|$'c'\" <<E\nx$'d\nE\n", "dollar signs without a name"),
    ('a `b \'c\\\\d\' \\. "e"` "`f "g h" \'i\'`"', "quotes inside backquotes"),
    ("{fd}>f a b {x}<g; c $(d {y}>h) >&$fd {fd}>&-", "D8: descriptors in variables, which it takes for words"),
    ("x[1]='a b' x[i+1]+=$(c) >f; y[$i]=z", "elements of an array"),
    ("a é 'ü' $(b ö) > ß", "letters beyond ASCII"),
    ("a # $(b)\nc", "comments"),
    ("a --x='${b'", "a word on which it would never end"),
    ("a ${x}'${'", "another one"),
    ('a ${x:-$(b)} "${x%$(c)}" ${y#*/} ${z/a/`d`} <${x:-e}', "expansions, in which it sees nothing"),
    ("((1 > 0)) >f; x=1; ((x++ < 2)) && a $(b)", "arithmetic, which it takes for subshells"),
)


@pytest.mark.parametrize(("text", "why"), AGREED, ids=[ascii(row[0]) for row in AGREED])
def test_it_agrees_with_a_right_tree(text: str, why: str) -> None:
    assert find_disagreement(text, tree(text)) is None, why


SEEN = (
    'a; b $(c) `d` "e $(f)" <(g) >(h) >i 2>>j <k 3>&1 <<<l',
    "x=1 y=$(a) b 'c d' && e | f || ! g &",
    "x=1 y=2 b 'c d' \"e $f\" && g | h || i & j >k 2>&1 <l; # m\nn",
    "((1 > 2)); g h $(i) >j",
    "for x in $(a) b; do c; done >d",
    "while a; b $(c); do d; done",
    "if a; then b; elif c; then d; else e >f; fi",
    "{ a; } >b; (c; d) | e",
    "a <<E\nx\nE\nb >c",
    "a \\\n b $(c \\\n $(d))",
    "{fd}>f a {x}>>g; b >&$fd {y}<h",
    "a `b 'c\\\\d' e; f` \"`g 'h i'`\"",
    'a "b\\\nc $(d)" e\\\nf; g \\\\\nh $(i)',
)


def removable(value: object) -> Iterator[object]:
    """Everything in a tree that could have been forgotten: commands, words, assignments, redirections, substitutions."""
    if isinstance(value, tuple):
        for item in value:
            if isinstance(item, (ListElement, Word, Assignment, Redirect, Substitution)):
                yield item
            yield from removable(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for each in dataclasses.fields(value):
            yield from removable(getattr(value, each.name))


def without(value: Any, victim: object) -> Any:
    if isinstance(value, tuple):
        return tuple(without(item, victim) for item in value if item is not victim)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {each.name: without(getattr(value, each.name), victim) for each in dataclasses.fields(value)}
        return dataclasses.replace(value, **fields)
    return value


@pytest.mark.threat("T01")
@pytest.mark.parametrize("text", SEEN)
def test_it_objects_to_whatever_is_taken_out_of_a_tree(text: str) -> None:
    whole = tree(text)
    victims = list(removable(whole))
    assert len(victims) > 4
    for victim in victims:
        objection = find_disagreement(text, without(whole, victim))
        assert isinstance(objection, Opaque), victim
        assert objection.reason.startswith("the second parser finds a")
        assert 0 <= objection.span.start < objection.span.end <= len(text)


def test_it_names_what_it_found_and_where() -> None:
    objection = find_disagreement("a x$(rm -rf y)", tree("a xxxxxxxxxxxx"))
    assert objection == Opaque(
        "the second parser finds a command substitution that the first does not: `$(rm -rf y)`", SourceSpan(3, 14)
    )


@given(st.text(max_size=40))
def test_it_never_fails(text: str) -> None:
    assert find_disagreement(text, tree("a")) is None or isinstance(find_disagreement(text, tree("a")), Opaque)


@pytest.mark.parametrize(
    "text",
    [
        "[[ a ]]",
        "case a in b) c;; esac",
        "time a",
        "x=(a b)",
        "a $((1))",
        "a ${x:-`echo }`}",
        "a $(" * 200,
        "a 'b",
        "x='${b",
    ],
)
def test_what_bashlex_refuses_is_no_objection(text: str) -> None:
    assert find_disagreement(text, tree(":")) is None


# -- its tables --------------------------------------------------------------------------------------------------------


def test_the_shipped_tables_are_those_that_bashlex_builds() -> None:
    """Run in a process of its own: here bashlex may have been imported with the shipped tables."""
    words = [sys.executable, "-m", "tests.support.make_witness_table", "--print"]
    fresh = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert fresh == (ROOT / "policy" / "bash" / "bashlex_tables.py").read_text(encoding="utf-8")


COMPARE = """
import sys
sys.path.insert(0, {root!r})
from policy.bash import bashlex_tables, crosscheck
{spoil}
package = crosscheck._bashlex()
from bashlex import parser
tables = parser.yaccparser
import hashlib
print(package.__name__, "inspect" in sys.modules)
print(hashlib.sha256(repr((
    sorted((state, sorted(row.items())) for state, row in tables.action.items()),
    sorted((state, sorted(row.items())) for state, row in tables.goto.items()),
    sorted(tables.defaulted_states.items()),
    [(p.name, p.prod, p.len, p.number, p.func, getattr(p.callable, "__name__", None)) for p in tables.productions],
    tables.errorfunc.__name__,
)).encode()).hexdigest())
print(crosscheck.find_disagreement("a; b $(c)", __import__("policy.bash.parser").bash.parser.read("a; b $(c)")))
"""


def run_fresh(spoil: str) -> str:
    source = COMPARE.format(root=str(ROOT), spoil=spoil)
    return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True).stdout


def test_the_short_cut_gives_the_same_parser_as_the_long_way() -> None:
    short, long = run_fresh(""), run_fresh("bashlex_tables.SOURCES = 'other sources'")
    assert short == long
    assert short.endswith("None\n")


def test_tables_that_do_not_fit_are_not_fatal() -> None:
    broken = run_fresh("bashlex_tables.ACTIONS = 'nonsense'")
    assert broken == run_fresh("")


@pytest.mark.threat("T01")
def test_a_witness_that_does_not_start_is_no_silent_one() -> None:
    source = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from policy.bash.crosscheck import find_disagreement\nfrom policy.bash.parser import read\n"
        "sys.modules['bashlex'] = None\n"
        "print(find_disagreement('a $(b)', read('a $(b)')).reason)\n"
    )
    said = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True).stdout
    assert said.startswith("the second parser (bashlex) does not start")


def test_the_tables_are_for_the_sources_that_are_installed() -> None:
    assert sources_digest() == bashlex_tables.SOURCES


def test_plain_commands_never_load_bashlex() -> None:
    source = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from policy.bash.crosscheck import find_disagreement\nfrom policy.bash.parser import read\n"
        "for text in ('ls', 'git log --format=oneline | head', 'x=1; grep -rn \"a $x\" src 2>/dev/null && b > c'):\n"
        "    assert find_disagreement(text, read(text)) is None\n"
        "print([name for name in sys.modules if name.startswith('bashlex')])\n"
    )
    assert subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_only_the_witness_names_bashlex() -> None:
    users = [
        path.name
        for path in (ROOT / "policy").rglob("*.py")
        if "import bashlex" in (text := path.read_text(encoding="utf-8")) or '"bashlex' in text
    ]
    assert users == ["crosscheck.py"]
    assert importlib.util.find_spec("bashlex") is not None
