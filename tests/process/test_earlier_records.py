"""Tests of a log that an earlier version (commit fb3c1be) wrote: it verifies, and every reader shows present names.

It was made in `/tmp/project` by `agent exec` and by a run of a scripted model: allowed, asked and denied actions, whose
reasons are checks in code, command rules, rules of the user's configuration, and flags.
"""

import json
import os
import re
import shutil
import sqlite3
from pathlib import Path

import pytest

from policy.model.verdict import Rights
from runner.audit.decisions import deeds
from runner.audit.decode import terms_of
from runner.audit.log import AuditLog
from runner.audit.query import Query
from runner.audit.verify import verify
from runner.gate.grants.codec import from_json, to_json
from runner.sessions.export import parts
from runner.sessions.tree import Tree
from tests.support import forked_agent
from tests.support.agent_program import AGENT
from tests.support.places import TESTS

OLD_NAMES = ("policy/walk.py", "policy/classify.py", "policy/terms.py", "policy/commands/")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return Path(shutil.copy(TESTS / "golden" / "earlier_version.db", tmp_path / "audit.db"))


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    """Return a log of prompted answers: a remembered yes, a remembered no, an approval once, and a run of a model."""
    return Path(shutil.copy(TESTS / "golden" / "earlier_grants.db", tmp_path / "audit.db"))


def agent(old: Path, *words: str) -> str:
    home = old.parent / "home"
    home.mkdir(exist_ok=True)
    work = home / "work"
    work.mkdir(exist_ok=True)
    environ = {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    done = forked_agent.run([AGENT, "audit", *words, "--file", str(old)],
                          env=environ, cwd=work, capture_output=True, text=True, timeout=120)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def _values(told: object) -> list[object]:
    inner = told.values() if isinstance(told, dict) else told if isinstance(told, list) else None
    return [told] if inner is None else [value for each in inner for value in _values(each)]


def stored(old: Path) -> str:
    with sqlite3.connect(old) as database:
        return "\n".join(row[0] for row in database.execute("SELECT body FROM records ORDER BY id"))


def test_the_log_holds_the_old_names_and_reading_never_changes_its_bytes(old: Path) -> None:
    before = stored(old)
    assert all(name in before for name in OLD_NAMES)
    assert "all 71 records are intact" in agent(old, "verify")
    for words in (("list",), ("stats",), ("replay",)):
        agent(old, *words)
    assert stored(old) == before
    with AuditLog.open_to_read(old) as log:
        assert verify(log.store).count == 71  # type: ignore[union-attr]  # `BrokenChain` has no count, and fails here


READERS = [("list", "--json"), ("list",), ("stats",), ("stats", "--json"), ("export", "--format", "jsonl"),
           ("export", "--format", "sarif"), ("export", "--format", "csv"), ("replay", "--json"), ("suggest",)]  # fmt: skip


@pytest.mark.parametrize("words", READERS, ids=" ".join)
def test_every_reader_shows_today_s_names(old: Path, words: tuple[str, ...]) -> None:
    shown = agent(old, *words)
    assert not [name for name in OLD_NAMES if name in shown]


def test_the_records_are_replayed_with_the_same_verdicts(old: Path) -> None:
    """Two decisions have a reason of another rule today: both are denied as they were.

    A program without a rule was of tier `unknown`. It is of tier `execute` now, because the sandbox bounds what it can
    do. The limit of a function that calls itself has an id of its own now.
    """
    policy = str(TESTS / "golden" / "earlier_version.toml")  # the user's configuration of then
    replayed = agent(old, "replay", "--policy", policy)
    assert "21 decisions replayed: 2 other tiers" in replayed
    lines = [line.split("  ")[-1].strip() for line in replayed.splitlines()]
    assert [line for line in lines if line.startswith(("deny:", "allow:", "ask:"))] == [
        "deny: the function `f` calls itself (unknown; builtin:shell-syntax/function-call-limit)",
        "deny: the function `f` calls itself (unknown; builtin:shell-syntax)",
        "deny: `nosuchprogram` is not a known command (execute; builtin:shell-syntax/unlisted-program)",
        "deny: `nosuchprogram` is not among the commands that are known (unknown; builtin:shell-syntax)",
    ]


def test_the_right_sets_of_old_records_are_shown_with_today_s_names(old: Path) -> None:
    """The digest of the terms covers the old name; readers show the digest as it was recorded."""
    assert {'"rights":"look"', '"rights":"work"'} <= set(re.findall(r'"rights":"[a-z]+"', stored(old)))
    exported = [json.loads(line) for line in agent(old, "export", "--format", "jsonl").splitlines()]
    with sqlite3.connect(old) as database:
        digests = [json.loads(body).get("digest") for (body,) in database.execute("SELECT body FROM records")]
    with AuditLog.open_to_read(old) as log:
        found = [deed.record.body for deed in deeds(log) if deed.record.body.get("terms")]
        assert {body["terms"]["rights"] for body in found} == {"read-only", "workspace-write"}
        assert {body["digest"] for body in found} <= set(digests)
        assert {terms_of(body).rights for body in found} == set(Rights) - {Rights.ISOLATED}  # type: ignore[union-attr]  # each has terms
    assert {"look", "work"}.isdisjoint(str(each) for line in exported for each in _values(line))


def test_each_record_is_shown_and_explained_with_today_s_names(old: Path) -> None:
    with AuditLog.open_to_read(old) as log:
        numbers = [deed.record.id for deed in deeds(log)]
    for number in (numbers[0], numbers[len(numbers) // 2], numbers[-1]):
        shown = agent(old, "show", str(number))
        assert not [name for name in OLD_NAMES if name in shown]


# what `--rule` is given in the new and in the old spelling, why
SPELLINGS = [
    ("builtin:shell-syntax",                     "policy/walk.py",                       "checks in code"),
    ("command:coreutils:19",                     "policy/commands/coreutils.toml:19",    "a table of a rule file"),
    ("command:shell:",                           "policy/commands/shell.toml",           "a whole rule file"),
    ("/tmp/home/.config/ringfence/config.toml:2", "/tmp/home/.config/ringfence/config.toml:2", "a rule of the user"),
]  # fmt: skip


@pytest.mark.parametrize(("new", "spelled", "why"), SPELLINGS, ids=[row[2] for row in SPELLINGS])
def test_a_filter_finds_the_same_records_in_either_spelling(old: Path, new: str, spelled: str, why: str) -> None:
    with AuditLog.open_to_read(old) as log:
        found = [[deed.record.id for deed in deeds(log, Query(rules=(each,)))] for each in (new, spelled)]
    assert found[0], why
    assert found[0] == found[1], why


def test_sarif_names_checks_by_their_area(old: Path) -> None:
    told = json.loads(agent(old, "export", "--format", "sarif"))
    names = {rule["id"] for rule in told["runs"][0]["tool"]["driver"]["rules"]}
    assert "secret/coreutils" in names
    assert "unknown/shell-syntax" in names
    assert not any(name.endswith(("/walk", "/classify", "/terms")) for name in names)


def test_prompted_answers_of_an_earlier_version_hold_and_replay(asked: Path) -> None:
    assert "records are intact" in agent(asked, "verify")
    assert "5 decisions replayed: none differs" in agent(asked, "replay")
    shown = agent(asked, "list")
    assert "answered: yes, by terminal, remembered as" in shown
    assert "answered: no, by terminal, remembered as" in shown
    assert not [name for name in OLD_NAMES if name in shown]


def test_grants_of_an_earlier_version_are_read_as_they_were_written() -> None:
    stored = json.loads((TESTS / "golden" / "earlier_grants.json").read_text("utf-8"))["grants"]
    assert [grant["ruling"] for grant in stored] == ["allow", "deny"]
    assert [to_json(from_json(grant)) for grant in stored] == stored


def test_a_session_of_an_earlier_version_is_read_with_today_s_names() -> None:
    with (TESTS / "golden" / "earlier_journal.jsonl").open("rb") as file:
        tree = Tree(file)
        facts = [value for part in parts(tree, tree.path()) for name, value in part.facts if name == "verdict"]
    assert any(value.endswith("(command:coreutils:19)") for value in facts)
    assert any(value.endswith("(builtin:rights)") for value in facts)
