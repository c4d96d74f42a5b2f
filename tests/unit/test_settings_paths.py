"""Tests of the shortcuts with which settings of a user are searched for paths."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.languages.settings_paths import _GIT_FOLDER, _TOP, _TOP_WORDS, SettingKind, setting_paths

PARTS = [
    *("$", "{", "}", "(", ")", "`", " ", "/x", "HOME", "PWD", "GIT_WORK_TREE", "GIT_PREFIX", "CLAUDE_PROJECT_DIR"),
    *("workspaceFolder", "pwd", " -L", "git rev-parse --show-toplevel", "git rev-parse --git-dir", "GIT_COMMON_DIR"),
]


@given(st.lists(st.sampled_from(PARTS), max_size=8).map("".join))
def test_a_text_with_a_folder_of_git_or_the_workspace_has_one_of_the_words(text: str) -> None:
    if re.search(_TOP, text) or re.search(_GIT_FOLDER, text):
        assert any(word in text for word in _TOP_WORDS)


@pytest.mark.parametrize("form", ["$PWD/x", "${PWD}/x", "$(pwd)/x", "`pwd -P`/x", "$(git rev-parse --show-cdup)/x"])
def test_the_workspace_is_the_current_folder(form: str) -> None:
    assert list(setting_paths(SettingKind.COMMAND, f"sh {form}", {})) == ["./x"]


@pytest.mark.parametrize(
    ("program", "reads"),
    [
        *((each, True) for each in ("sh", "/bin/bash", "python", "python3.11", "/opt/pypy3", "lua5.4", "luajit", ".")),
        *((each, False) for each in ("shx", "python-x", "cat", "mypython", "/bin/python3x", "perldoc")),
    ],
)
def test_the_file_after_an_interpreter_is_its_script(program: str, reads: bool) -> None:
    paths = list(setting_paths(SettingKind.SCRIPT, f"{program} script", {}))
    assert ("script" in paths) is reads
