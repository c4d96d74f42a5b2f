"""Comparison of the reader of ignore files with pathspec, beside the comparison with Git.

`tests/process/test_review_patch.py` compares with `git check-ignore`; this comparison needs no process, so it covers
many more lists. Four differences are known, and `git check-ignore` agrees with our reader in each of them:

- pathspec takes a file in again although a folder above the file is ignored (`d/` and `!d/keep`); gitignore(5) says that
  this is impossible. So pathspec is asked about each folder above, too.
- A line that ignores a folder does not outrank an earlier line with `!` that matches the folder (`!*` and `/*`).
- pathspec refuses a line of `!` alone; Git passes that line over.
- A line that ends with `/**/` is about folders only, but matches files in pathspec (`*/**/` and `a/b`).

So lists with lines that begin with `!` or end with `**/` are compared in the table and with Git only.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pathspec import GitIgnoreSpec

from runner.changes.review.gitignore import Ignored

_BACKEND = "simple"  # pathspec would choose RE2 if it is installed, which judges a few of the lines below otherwise

# fmt: off
ROWS: list[tuple[str, str, bool, str]] = [
    ("*.o",            "d/x.o",     True,  "a name at any depth"),
    ("/*.o",           "d/x.o",     False, "at the top only"),
    ("d/*.o",          "d/x.o",     True,  "a slash inside binds the pattern to the folder of the list"),
    ("d/*.o",          "c/d/x.o",   False, "such a pattern is not searched below"),
    ("build/",         "build/f",   True,  "everything in a folder"),
    ("build/",         "build",     False, "a file is not a folder"),
    ("a/**/b",         "a/b",       True,  "two stars stand for no folder, too"),
    ("a/**/b",         "a/x/y/b",   True,  "or for several"),
    ("**/b",           "x/b",       True,  "at any depth"),
    ("a/**",           "a/x",       True,  "everything inside"),
    ("a/**",           "a",         False, "but not the folder itself"),
    ("*\n!keep",       "keep",      False, "taken in again"),
    ("d/\n!d/keep",    "d/keep",    True,  "not below an ignored folder"),
    ("[a-c].x",        "b.x",       True,  "a range"),
    ("[!a].x",         "a.x",       False, "a negated set"),
    ("\\#x",           "#x",        True,  "an escaped comment"),
    ("\\!x",           "!x",        True,  "an escaped exclamation mark"),
    ("# x",            "# x",       False, "a comment"),
    ("x ",             "x",         True,  "a blank at the end"),
    ("x\\ ",           "x ",        True,  "an escaped blank"),
    ("a?c",            "a/c",       False, "no sign stands for a slash"),
]
# fmt: on


def ours(text: str, path: str) -> bool:
    return Ignored({".gitignore": text.encode()}.get)(path)


def theirs(text: str, path: str) -> bool:
    """Return the opinion of pathspec. Raises ValueError for a line that pathspec refuses."""
    spec = GitIgnoreSpec.from_lines(text.split("\n"), backend=_BACKEND)
    names = path.split("/")
    folders = ("/".join(names[:depth]) + "/" for depth in range(1, len(names)))
    return spec.match_file(path) or any(map(spec.match_file, folders))


@pytest.mark.parametrize(("text", "path", "wanted"), [row[:3] for row in ROWS], ids=[row[3] for row in ROWS])
def test_both_readers_agree_on_the_rules_of_the_manual(text: str, path: str, wanted: bool) -> None:
    assert ours(text, path) is wanted
    assert theirs(text, path) is wanted


def test_pathspec_still_takes_in_a_file_below_an_ignored_folder() -> None:
    assert not GitIgnoreSpec.from_lines(["d/", "!d/keep"], backend=_BACKEND).match_file("d/keep")


def test_pathspec_still_lets_an_earlier_line_outrank_an_ignored_folder() -> None:
    assert ours("!*\n/*", "a/b")
    assert not theirs("!*\n/*", "a/b")


def test_pathspec_still_matches_a_file_with_a_line_for_folders() -> None:
    assert not ours("*/**/", "a/b")
    assert theirs("*/**/", "a/b")


LINE = st.text(st.sampled_from("ab*?/!-."), min_size=1, max_size=6).filter(
    lambda line: line[0] != "!" and not line.endswith("**/")
)
NAMES = st.lists(st.sampled_from(["a", "b", "ab", "a.b", "-", "!"]), min_size=1, max_size=4).map("/".join)


@given(st.lists(LINE, max_size=4), NAMES)
def test_both_readers_agree(lines: list[str], path: str) -> None:
    text = "\n".join(lines)
    assert ours(text, path) is theirs(text, path)
