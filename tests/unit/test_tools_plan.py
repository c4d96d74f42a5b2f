"""Tests of the translation of tool arguments to actions."""

import pytest

from policy.model.action import (
    Action,
    EditFile,
    GlobFiles,
    GrepFiles,
    ListFolder,
    ReadFile,
    RunScript,
    WriteFile,
)
from policy.model.verdict import Problem
from tools import TOOLS
from tools.arguments import parse
from tools.paths import SeenFiles
from tools.text import count, seconds, size, tail
from tools.tool import Arguments, find


def plan(name: str, arguments: dict[str, object], seen: SeenFiles | None = None, cwd: str = "/w") -> Action | Problem:
    tool = find(TOOLS, name)
    assert not isinstance(tool, Problem)
    parsed = parse(tool, arguments)
    assert isinstance(parsed, Arguments), parsed
    return tool.plan(parsed, cwd, SeenFiles() if seen is None else seen)


# fmt: off
PLANS: list[tuple[str, dict[str, object], Action, str]] = [
    ("bash",  {"command": "ls"},                            RunScript("ls", "/w", 120),              "the default timeout"),
    ("bash",  {"command": "ls", "timeout": 0.5},            RunScript("ls", "/w", 0.5),              "its own timeout"),
    ("bash",  {"command": "ls", "description": "list"},     RunScript("ls", "/w", 120),              "a word for the reader"),
    ("read",  {"path": "a"},                                ReadFile("/w/a", 1, 2000),               "relative to here"),
    ("read",  {"path": "./b//a/"},                          ReadFile("/w/b/a", 1, 2000),             "dots and slashes"),
    ("read",  {"path": "../a"},                             ReadFile("/w/../a", 1, 2000),            "the disk says what .. is"),
    ("read",  {"path": "/etc/hosts", "offset": 3, "limit": 9}, ReadFile("/etc/hosts", 3, 9),         "absolute"),
    ("read",  {"path": "./~"},                              ReadFile("/w/~", 1, 2000),               "a file of that name"),
    ("read",  {"path": " a\n"},                             ReadFile("/w/ a\n", 1, 2000),            "a name is a name"),
    ("write", {"path": "a", "content": ""},                 WriteFile("/w/a", ""),                   "an empty file"),
    ("edit",  {"path": "a", "old_string": "x", "new_string": "y"}, EditFile("/w/a", "x", "y"),       "never read"),
    ("edit",  {"path": "a", "old_string": "x", "new_string": "", "replace_all": True},
                                                            EditFile("/w/a", "x", "", True),         "every place"),
    ("glob",  {"pattern": "*.py"},                          GlobFiles("*.py", "/w"),                 "here"),
    ("glob",  {"pattern": "*.py", "ignored": True},         GlobFiles("*.py", "/w", True),           "ignored files as well"),
    ("glob",  {"pattern": "*.py", "path": "src"},           GlobFiles("*.py", "/w/src"),             "there"),
    ("glob",  {"pattern": "/a/b/**/*.py"},                  GlobFiles("**/*.py", "/a/b"),            "an absolute pattern"),
    ("glob",  {"pattern": "/*.py"},                         GlobFiles("*.py", "/"),                  "at the top"),
    ("glob",  {"pattern": "/a/b.py"},                       GlobFiles("b.py", "/a"),                 "nothing special in it"),
    ("grep",  {"pattern": "x"},                             GrepFiles("x", "/w"),                    "here"),
    ("grep",  {"pattern": "x", "path": "/s", "glob": "*.c", "ignore_case": True, "files_only": True, "context": 2, "limit": 5},
                                                            GrepFiles("x", "/s", "*.c", True, True, 2, 5), "everything"),
    ("ls",    {},                                           ListFolder("/w"),                        "here"),
    ("ls",    {"path": "."},                                ListFolder("/w"),                        "here, said"),
    ("ls",    {"path": "/"},                                ListFolder("/"),                         "the root"),
]

PROBLEMS: list[tuple[str, dict[str, object], str, str]] = [
    ("bash",  {"command": " \n"},                           "the command is empty",                  "nothing to run"),
    ("read",  {"path": ""},                                 "the path is empty",                     "no path"),
    ("read",  {"path": "~/x"},                              "cannot use the path `~/x`",             "no shell here"),
    ("ls",    {"path": "~"},                                "cannot use the path `~`",               "no shell here"),
    ("write", {"path": "a/", "content": ""},                "cannot write `/w/a/`",                  "a folder's name"),
    ("edit",  {"path": "a", "old_string": "", "new_string": "x"},  "cannot edit `/w/a`",             "nothing to find"),
    ("edit",  {"path": "a", "old_string": "x", "new_string": "x"}, "cannot edit `/w/a`",             "nothing to change"),
    ("glob",  {"pattern": "/a/*", "path": "b"},             "cannot look for `/a/*`",                "two places"),
    ("glob",  {"pattern": "../*"},                          "cannot look for `../*`",                "out of the folder"),
    ("glob",  {"pattern": "~/*"},                           "cannot look for `~/*`",                 "no shell here"),
    ("grep",  {"pattern": "a\nb"},                          "cannot search for a pattern with a line break", "line by line"),
]

TAILS: list[tuple[str, int, int, tuple[str, int, int], str]] = [
    ("a\nb\nc\n",  2, 99, ("b\nc\n", 1, 2),     "the last lines"),
    ("a\nb\nc",    2, 99, ("b\nc", 1, 2),       "the last has no newline"),
    ("a\nb\nc\n",  3, 99, ("a\nb\nc\n", 0, 0),  "all of it"),
    ("a\nb\nc\n",  9, 4,  ("b\nc\n", 1, 2),     "bytes are fewer than lines"),
    ("a\nb\nc\n",  9, 3,  ("c\n", 2, 4),        "whole lines only"),
    ("é\né\n",     9, 3,  ("é\n", 1, 3),        "bytes, not characters"),
    ("abcdef",     9, 3,  ("def", 0, 3),        "a line that alone is too large"),
    ("ab\nxxxx\n", 9, 3,  ("xx\n", 1, 5),       "it is the last one"),
    ("ééé",        9, 3,  ("é", 0, 4),          "no half characters"),
    ("\n\n\n",     2, 9,  ("\n\n", 1, 1),       "empty lines are lines"),
    ("",           2, 9,  ("", 0, 0),           "nothing"),
    ("a\n",        0, 9,  ("", 1, 2),           "no room for any line"),
    ("abc",        9, 0,  ("", 0, 3),           "no room for any byte"),
]
# fmt: on


@pytest.mark.parametrize(("name", "arguments", "action", "why"), PLANS, ids=[f"{row[0]}: {row[3]}" for row in PLANS])
def test_plan(name: str, arguments: dict[str, object], action: Action, why: str) -> None:
    assert plan(name, arguments) == action


@pytest.mark.parametrize(("name", "arguments", "what", "why"), PROBLEMS, ids=[f"{r[0]}: {r[3]}" for r in PROBLEMS])
def test_plan_problem(name: str, arguments: dict[str, object], what: str, why: str) -> None:
    problem = plan(name, arguments)
    assert isinstance(problem, Problem)
    assert problem.what == what
    assert problem.fix


def test_an_edit_carries_what_was_seen() -> None:
    seen = SeenFiles()
    seen.note("/w/./b/../a", "d1")
    arguments: dict[str, object] = {"path": "a", "old_string": "x", "new_string": "y"}
    assert plan("edit", arguments, seen) == EditFile("/w/a", "x", "y", seen="d1")
    seen.note("/w/a", "d2")
    assert plan("edit", arguments | {"path": "/w//a"}, seen) == EditFile("/w/a", "x", "y", seen="d2")


def test_tail() -> None:
    for text, lines, room, expected, why in TAILS:
        shown = tail(text, lines, room)
        assert (shown.text, shown.lines, shown.bytes) == expected, why


def test_words_for_numbers() -> None:
    assert [count(1, "line"), count(2000, "line"), count(0, "entry", "entries")] == [
        "1 line",
        "2,000 lines",
        "0 entries",
    ]
    assert [size(1), size(1023), size(1536), size(20 << 20), size(3 << 40)] == [
        "1 byte",
        "1,023 bytes",
        "1.5 KiB",
        "20.0 MiB",
        "3.0 TiB",
    ]
    assert [seconds(0.04), seconds(9.94), seconds(119.6)] == ["0.0 s", "9.9 s", "120 s"]
