"""Tests of workspace keys: one key per folder under any of its names; a key is always a safe folder name."""

import os
import re
from pathlib import Path

import pytest

from runner.state.workspace import workspace_key

# fmt: off
NAMES: list[tuple[str, str, str]] = [
    ("project",            "project",             "the usual"),
    ("My Project (2)",     "my-project-2",        "blanks and signs become one dash"),
    ("..hidden..",         "hidden",              "no leading dots, so it is never `..`"),
    ("-rf",                "rf",                  "never an option"),
    ("日本",               "folder",              "letters outside ASCII say nothing here"),
    ("a\nb\x1b[31m",       "a-b-31m",             "nothing that drives a terminal"),
    ("x" * 200,            "x" * 40,              "bounded"),
    ("a" * 39 + "-b",      "a" * 39,              "no dash before the dash"),
]
# fmt: on


@pytest.mark.parametrize(("name", "readable", "why"), NAMES, ids=[why for *_, why in NAMES])
def test_a_key_is_readable_and_a_safe_name(tmp_path: Path, name: str, readable: str, why: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    key = workspace_key(folder)
    assert key.rpartition("-")[0] == readable, why
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]{0,39}-[0-9a-f]{16}", key), why


def test_spellings_of_one_folder_have_one_key_and_two_folders_two(tmp_path: Path) -> None:
    one, other = tmp_path / "a" / "w", tmp_path / "b" / "w"
    one.mkdir(parents=True)
    other.mkdir(parents=True)
    (tmp_path / "link").symlink_to(one)
    spellings = {workspace_key(path) for path in (one, f"{one}/", f"{tmp_path}/b/../a/w", tmp_path / "link")}
    assert spellings == {workspace_key(str(one))}
    assert workspace_key(other) != workspace_key(one)


def test_the_root_and_a_name_that_is_no_text_have_keys(tmp_path: Path) -> None:
    assert workspace_key("/").startswith("folder-")
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    os.mkdir(odd)
    assert workspace_key(odd).startswith("folder-")
