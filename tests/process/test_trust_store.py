"""Tests of the trust store: an answer is bound to the content, kept outside of the repository, ignored if damaged."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from runner.config.inventory import EntryKind, Inventory, InventoryEntry
from runner.config.trust.store import TrustStore
from runner.state.json_file import StateError
from tests.support.places import ROOT

ENTRY = InventoryEntry("AGENTS.md", EntryKind.INSTRUCTIONS, False, 3, "a" * 64)
HERE = Inventory("/w/one", (ENTRY,))
OTHER = Inventory("/w/one", (replace(ENTRY, sha256="b" * 64),))


def said(folder: Path, workspace: str = "/w/one") -> list[tuple[str, bool]]:
    return [(each.sha256, each.yes) for each in TrustStore(folder).of(workspace)[0]]


def test_an_answer_is_kept_for_this_content_in_this_place(tmp_path: Path) -> None:
    store = TrustStore(tmp_path)
    assert store.remember(HERE, yes=True, time="2026-01-02T03:04:05Z") == ()
    assert said(tmp_path) == [(HERE.sha256, True)]
    assert said(tmp_path, "/w/two") == [], "a copy elsewhere is asked about again"
    assert TrustStore(tmp_path).of("/w/one")[0][0].entries == (ENTRY,)
    assert (tmp_path / "trust.json").stat().st_mode & 0o777 == 0o600


def test_the_latest_answer_to_the_same_content_holds_and_others_stay(tmp_path: Path) -> None:
    store = TrustStore(tmp_path)
    store.remember(HERE, yes=True, time="2026-01-02T00:00:00Z")
    store.remember(OTHER, yes=False, time="2026-01-01T00:00:00Z")  # the clock went back: nothing is judged by it
    assert said(tmp_path) == [(OTHER.sha256, False), (HERE.sha256, True)]
    store.remember(HERE, yes=False, time="2025-01-01T00:00:00Z")
    assert said(tmp_path) == [(HERE.sha256, False), (OTHER.sha256, False)]


def test_what_is_taken_back_is_gone(tmp_path: Path) -> None:
    store = TrustStore(tmp_path)
    for inventory in (HERE, OTHER, replace(HERE, workspace="/w/two"), replace(HERE, workspace="/w/three")):
        store.remember(inventory, yes=True, time="")
    assert store.forget("/w/one")[0] == 2
    assert store.forget("/w/one")[0] == 0
    assert list(store.all()[0]) == ["/w/two", "/w/three"]
    assert store.forget(None)[0] == 2
    assert store.all()[0] == {}


def test_what_is_kept_has_an_end(tmp_path: Path) -> None:
    store = TrustStore(tmp_path)
    for number in range(20):
        store.remember(replace(HERE, entries=(replace(ENTRY, sha256=f"{number:064x}"),)), yes=True, time="")
    assert len(said(tmp_path)) == 12
    many = tuple(replace(ENTRY, path=f"{number}") for number in range(9000))
    for name in "abc":
        store.remember(Inventory(f"/w/{name}", many), yes=True, time="")
    assert list(store.all()[0]) == ["/w/b", "/w/c"], "those answered for longest ago are asked about again"
    assert (tmp_path / "trust.json").stat().st_size < 16 << 20, "which is the most that is read"


_GOOD = {"answer": "yes", "time": "", "entries": []}
_ROW = {"path": "a", "kind": "hook", "executable": False, "size": 1, "sha256": "", "refused": ""}
BROKEN: list[tuple[object, str]] = [
    ("{", "no JSON"),
    ([], "no object"),
    ({"version": 1}, "nothing in it"),
    ({"version": 1, "workspaces": []}, "a list"),
    ({"version": 1, "workspaces": {}, "all": True}, "a key too many"),
    ({"version": 1, "workspaces": {"w": []}}, "a path that is relative"),
    ({"version": 1, "workspaces": {"/w/one": [_GOOD | {"answer": True}]}}, "an approval of another kind"),
    ({"version": 1, "workspaces": {"/w/one": [_GOOD | {"answer": "always"}]}}, "an answer that nobody gave"),
    ({"version": 1, "workspaces": {"/w/one": [_GOOD | {"until": ""}]}}, "a key too many in an answer"),
    ({"version": 1, "workspaces": {"/w/one": [_GOOD, 1]}}, "one good and one bad answer"),
    ({"version": 1, "workspaces": {"/w/one": [_GOOD | {"entries": [_ROW | {"kind": "all"}]}]}}, "an unknown kind"),
    (
        {"version": 1, "workspaces": {"/w/one": [_GOOD | {"entries": [_ROW | {"executable": 1}]}]}},
        "a number as a switch",
    ),
    ({"version": 1, "workspaces": {"/w/one": [_GOOD | {"entries": [{"path": "a"}]}]}}, "half an entry"),
]


@pytest.mark.threat("T71")
@pytest.mark.parametrize(("content", "why"), BROKEN, ids=[row[1] for row in BROKEN])
def test_nothing_is_taken_from_a_broken_file(tmp_path: Path, content: object, why: str) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    (tmp_path / "trust.json").write_text(text)
    answers, notices = TrustStore(tmp_path).all()
    assert answers == {}, why
    assert "trust.json.corrupt-1" in notices[0]
    assert (tmp_path / "trust.json.corrupt-1").read_text() == text, "it is kept to look at"
    TrustStore(tmp_path).remember(HERE, yes=True, time="")
    assert said(tmp_path) == [(HERE.sha256, True)]


@pytest.mark.threat("T71")
def test_a_file_that_others_could_have_written_is_refused(tmp_path: Path) -> None:
    TrustStore(tmp_path).remember(HERE, yes=True, time="")
    (tmp_path / "trust.json").chmod(0o666)
    with pytest.raises(StateError, match="other users may write"):
        TrustStore(tmp_path).all()
    (tmp_path / "trust.json").rename(tmp_path / "real")
    (tmp_path / "trust.json").symlink_to("real")
    with pytest.raises(StateError, match="symbolic link"):
        TrustStore(tmp_path).all()


_ANSWER = """
import sys
from pathlib import Path
from runner.state import json_file
from runner.config.inventory import EntryKind, Inventory, InventoryEntry
from runner.config.trust.store import TrustStore
json_file._PATIENCE = 300.0  # of a slow disk
for number in range(10):
    entry = InventoryEntry("AGENTS.md", EntryKind.INSTRUCTIONS, False, 3, "a" * 64)
    TrustStore(Path(sys.argv[1])).remember(Inventory(f"/w/{sys.argv[2]}-{number}", (entry,)), yes=True, time="")
"""


def test_two_who_answer_at_once_lose_nothing(tmp_path: Path) -> None:
    root = str(ROOT)
    both = [
        subprocess.Popen([sys.executable, "-c", _ANSWER, str(tmp_path), name], cwd=root, env=os.environ)
        for name in ("a", "b", "c")
    ]
    assert [each.wait(timeout=300) for each in both] == [0, 0, 0]
    assert len(TrustStore(tmp_path).all()[0]) == 30
