"""Tests of the reader of Git's files: tables, and real Git as the oracle for unusual files."""

from pathlib import Path

import pytest

from policy.languages.git_config import (
    LONGEST,
    GitConfigError,
    commondir_target,
    expand_home,
    gitdir_target,
    read_settings,
)
from tests.fuzz import fuzz_git

# fmt: off
READ = [
    (b"",                                       [],                                "an empty file"),
    (b"\xef\xbb\xbf[a]\nb=c",                   [("a.b", "c")],                    "a byte order mark"),
    (b"[a]\r\n\tb = c\r\n",                     [("a.b", "c")],                    "lines of another system"),
    (b"[A] B = c",                              [("a.b", "c")],                    "section and key have no case"),
    (b'[A "B"] C = d',                          [("a.B.c", "d")],                  "what is quoted has"),
    (b'[diff.X "Y"] textconv = z',              [("diff.x.Y.textconv", "z")],      "the name is joined of both"),
    (b"[diff.X.Y] textconv = z",                [("diff.x.y.textconv", "z")],      "the deprecated form"),
    (b'[a "b.c\\"d\\e\\\\"] f',                 [('a.b.c"de\\.f', None)],          "a backslash keeps what follows it"),
    (b"[a] b\n[a] c # no = here\n",             None,                              "Git refuses a comment there"),
    (b"[a]\nb = c ; d\n",                       [("a.b", "c")],                    "a comment"),
    (b'[a]\nb = "c ; d" # e\n',                 [("a.b", "c ; d")],                "no comment"),
    (b'[a]\nb = "c "\n',                        [("a.b", "c ")],                   "a quoted blank at the end stays"),
    (b"[a]\nb = c\xc2\xa0\n",                   [("a.b", "c\xa0")],                "U+00A0 is no blank"),
    (b"[a]\nb = c\x0b\n",                       [("a.b", "c\x0b")],                "nor is a vertical tab"),
    (b"[a]\nb = c \\\n  d\n",                   [("a.b", "c   d")],                "continued"),
    (b'[a]\nb = "c\\\nd"\n',                    [("a.b", "cd")],                   "continued inside quotes"),
    (b"[a]\nb = \\n\\t\\b\\\\\\\"\n",           [("a.b", '\n\t\b\\"')],            "all escapes"),
    (b"[a]\nb = c # d \\\n[e]\nf=g\n",          [("a.b", "c"), ("e.f", "g")],      "a comment is not continued"),
    (b"[a]b=c\n[d]e",                           [("a.b", "c"), ("d.e", None)],     "on the line of the header"),
    (b"[a]\nb = \xff\n",                        [("a.b", "\udcff")],               "a byte that is no text"),
    (b"b = c\n",                                None,                              "a setting of no section"),
    (b"[a]\nb = \\x\n",                         None,                              "an escape that Git does not know"),
    (b'[a]\nb = "c\n',                          None,                              "an open quotation mark"),
    (b"[a]\nb = c\0d\n",                        None,                              "NUL ends the text for Git"),
    (b"[a]\nb = c\rd\n",                        None,                              "a carriage return inside a line"),
    (b"[a]\nb = c\\",                           None,                              "the file ends in a backslash"),
    (b"[a_b]\nc\n",                             None,                              "a letter that no section has"),
    (b"[a\nb]\n",                               None,                              "a header over two lines"),
    (b'[a "b\nc"]\n',                           None,                              "a subsection over two lines"),
    (b'[a "b" ]\n',                             None,                              "a blank before the bracket"),
    (b"[.a]\nb\n",                              None,                              "a section without a name"),
    (b"\xef\xbb[a]\n",                          None,                              "half a byte order mark"),
    (b"[a]\n" + b"b\n" * 60_000,               None,                              "very many settings"),
    (b"[a]\nb = " + b"c" * LONGEST,             None,                              "very long"),
]
GITDIRS = [
    (b"gitdir: ../x\n",       "../x",    "as Git writes it"),
    (b"gitdir: evil \r\n",    "evil ",   "a blank at the end belongs to the name"),
    (b"gitdir:  evil\n",      " evil",   "and one at the beginning"),
    (b"gitdir: a\nb\n\n",     "a\nb",    "a line break inside"),
    (b"gitdir:evil\n",        None,      "Git wants the blank"),
    (b"gitdir: \n",           None,      "no path"),
    (b"gitdir: a\0b\n",       None,      "NUL ends the text for Git"),
    (b"GITDIR: a\n",          None,      "in lower case only"),
]
COMMONDIRS = [
    (b"../..\n",    "../..",   "as Git writes it"),
    (b"../x \r\n",  "../x ",   "a blank at the end belongs to the name"),
    (b"\n",         None,      "no path"),
    (b"",           None,      "Git ends with an error"),
]
# fmt: on


@pytest.mark.threat("T30")
@pytest.mark.parametrize(("content", "expected", "why"), READ)
def test_settings_are_read_as_git_reads_them(
    content: bytes, expected: list[tuple[str, str | None]] | None, why: str, tmp_path: Path
) -> None:
    if expected is None:
        with pytest.raises(GitConfigError):
            read_settings(content)
    else:
        assert [(each.name, each.value) for each in read_settings(content)] == expected, why
        assert fuzz_git.difference(content, str(tmp_path)) == "", why


def test_a_setting_has_the_parts_that_git_looks_for() -> None:
    one, two = read_settings(b'# x\n[diff.x "y.z"]\n\n  textconv = a\tb\n[core] bare')
    assert (one.section, one.subsection, one.key, one.line) == ("diff", "x.y.z", "textconv", 4)
    assert (one.value, one.older, one.values) == ("a\tb", "a b", {"a\tb", "a b"})
    assert (two.section, two.subsection, two.key, two.value, two.line) == ("core", None, "bare", None, 5)


def test_an_error_says_on_which_line() -> None:
    for content, line in ((b"[a]\nb = c\n\nd e\n", 4), (b"[a]\n\n\0", 3), (b'[a]\n b = "', 2)):
        with pytest.raises(GitConfigError) as error:
            read_settings(content)
        assert error.value.line == line


@pytest.mark.threat("T30")
def test_git_agrees_wherever_the_reader_is_certain() -> None:
    done, certain, found = fuzz_git.run(seconds=float("inf"), seed=14, rounds=600)
    assert (done, found) == (600, [])
    assert certain > done // 5, "the odd files are so odd that hardly one is read"


@pytest.mark.parametrize(("content", "expected", "why"), GITDIRS)
def test_the_folder_that_a_git_file_names(content: bytes, expected: str | None, why: str) -> None:
    if expected is None:
        with pytest.raises(GitConfigError):
            gitdir_target(content)
    else:
        assert gitdir_target(content) == expected, why


@pytest.mark.parametrize(("content", "expected", "why"), COMMONDIRS)
def test_the_folder_that_commondir_names(content: bytes, expected: str | None, why: str) -> None:
    if expected is None:
        with pytest.raises(GitConfigError):
            commondir_target(content)
    else:
        assert commondir_target(content) == expected, why


def test_a_path_of_a_setting_may_begin_with_the_home() -> None:
    assert [expand_home(each, "/h") for each in ("~", "~/x", "x", "/x ", "./~")] == ["/h", "/h/x", "x", "/x ", "./~"]
    for each in ("~root/x", "%(prefix)/x"):
        with pytest.raises(GitConfigError):
            expand_home(each, "/h")
