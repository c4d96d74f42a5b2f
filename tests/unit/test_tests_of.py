"""Tests of `tests_of`: the test files that concern a module are found, the most relevant ones first."""

from functools import cache
from pathlib import Path

import pytest

from tests.support import tests_of as subject
from tests.support.import_graph import imports
from tests.support.tests_of import Tree, distances, path_of, ranked, relevant_tests

tree = cache(Tree.read)

# fmt: off
EXPECTED = [
    # (module, number of first files, one that is among them, why)
    ("policy/classify.py",              1,  "tests/unit/test_classify.py",               "a test file of the same name"),
    ("policy.decide",                   1,  "tests/unit/test_decide.py",                 "a dotted name"),
    ("policy/handlers/tar.py",          6,  "tests/unit/test_commands.py",               "a handler, loaded by its name"),
    ("policy/commands/git.toml",        1,  "tests/unit/test_commands.py",               "data, read by its folder"),
    ("profiles/default.toml",           1,  "tests/unit/test_profile.py",                "data, read by its name"),
    ("policy/tables/bypass.toml",       6,  "tests/process/test_policy_test.py",         "data, read by the product"),
    ("policy/model/secret_paths.py",    12, "tests/unit/test_secret_names.py",           "a class that tests use"),
    ("runner/cli/jobs.py",              1,  "tests/process/test_jobs.py",                "a command, loaded by its name"),
    ("runner/cli/guard.py",             12, "tests/process/test_guard_install.py",        "a command with several files"),
    ("runner/audit/prune.py",           1,  "tests/process/test_audit_prune.py",         "a test file named after the folder too"),
    ("runner/frontends/tui/panel.py",   1,  "tests/unit/test_tui_approval.py",           "names that a test imports"),
    ("runner/frontends/batch/attempt.py", 1, "tests/process/test_batch.py",              "started as a process of its own"),
    ("sandbox/inside/helper.py",        12, "tests/process/test_helper_exchange.py",     "a program that is started by its path"),
    ("sandbox/linux/cgroup.py",         1,  "tests/sandbox/test_cgroup.py",              "a sandbox"),
    ("tests/support/rotation.py",       1,  "tests/unit/test_rotation.py",               "a support module"),
    ("tests/unit/test_decide.py",       1,  "tests/unit/test_decide.py",                 "a test file is about itself"),
]
# fmt: on


@pytest.mark.parametrize(("module", "first", "expected", "why"), EXPECTED, ids=[row[0] for row in EXPECTED])
def test_the_relevant_files_come_first(module: str, first: int, expected: str, why: str) -> None:
    assert expected in relevant_tests(tree(), [module], first), why


def test_a_module_of_every_folder_has_a_test_file() -> None:
    """Each takes a tenth of a second, so one in sixty is tried."""
    product = [path for path in tree().texts if not path.startswith("tests/")]
    assert [path for path in product[::60] if not ranked(tree(), path)] == []


def test_several_modules_share_the_first_places() -> None:
    found = relevant_tests(tree(), ["policy/classify.py", "policy/decide.py", "policy/classify.py"], 2)
    assert found[:2] == ["tests/unit/test_classify.py", "tests/unit/test_decide.py"]
    assert len(found) == len(set(found)) <= 4


def test_a_module_has_its_path_its_name_or_an_absolute_path() -> None:
    for given in ("policy/handlers", "policy.handlers", "policy/handlers/__init__.py", "./policy/handlers/"):
        assert path_of(tree(), given) == "policy/handlers/__init__.py"
    assert path_of(tree(), str(tree().root / "policy" / "decide.py")) == "policy/decide.py"
    with pytest.raises(SystemExit, match=r"there is no module `policy/classfiy\.py`"):
        path_of(tree(), "policy/classfiy.py")


def test_every_import_of_the_product_is_in_the_graph() -> None:
    """The regular expression that reads the imports finds those that `ast` finds."""
    modules, users = tree().modules, tree().users
    missing = [
        (name, each)
        for name, imported in imports().items()
        for each in imported
        if modules[name] not in users[modules[each]]
    ]
    assert missing == []


def test_the_graph_has_programs_in_texts_and_ends_at_test_files(tmp_path: Path) -> None:
    files = {
        "runner/a.py": "",
        "runner/b.py": "def f():\n    from runner import (\n        a as x,  # why (always)\n    )\n",
        "runner/c.py": "import os, runner.b as y\n",
        "tests/support/s.py": "PROGRAM = '''\nfrom runner.c import main\n'''\n",
        "tests/unit/test_s.py": "from tests.support import s\n",
        "tests/unit/test_again.py": "from tests.unit.test_s import *\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    steps = distances(Tree.read(tmp_path), "runner/a.py")
    assert steps == {
        "runner/a.py": 0.0,
        "runner/b.py": 1.0,
        "runner/c.py": 2.0,
        "tests/support/s.py": 3.0,
        "tests/unit/test_s.py": 3.5,
    }


def test_another_checkout_can_be_asked(tmp_path: Path) -> None:
    for name in ("runner/a.py", "tests/unit/test_a.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    assert subject.tests_of(["runner/a.py"], root=tmp_path) == ["tests/unit/test_a.py"]


def test_the_program_prints_the_files(capsys: pytest.CaptureFixture[str]) -> None:
    subject.main(["policy/decide.py", "--most", "1"])
    assert capsys.readouterr().out == "tests/unit/test_decide.py\n"
