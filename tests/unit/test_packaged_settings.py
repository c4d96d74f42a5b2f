"""Tests of the parsed form of the packaged profile and rule files (`runner/config/packaged.json`)."""

import json
from pathlib import Path
from typing import Any

import pytest

from policy.rules.rulebook import RuleBook
from policy.toml.profile import parse_profile
from runner.config import load as _load  # noqa: F401  # imports the module
from runner.config.load import PREPARED, packaged, packaged_files, prepare_packaged
from tests.support.places import ROOT

LOADER = "runner.config.load"


def _module() -> Any:
    import sys

    return sys.modules[LOADER]


@pytest.fixture(autouse=True)
def _read_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `packaged` read the files in each test, and not only once in this process."""
    monkeypatch.setattr(_module(), "_kept", [])


def test_the_file_was_made_from_the_packaged_files() -> None:
    text = Path(PREPARED).read_text("ascii")
    assert json.loads(text) == json.loads(json.dumps(prepare_packaged())), "run `make docs`"


def test_the_settings_are_those_of_the_packaged_files() -> None:
    text, files = packaged_files()
    assert (ROOT / "profiles" / "default.toml").read_text("utf-8") == text
    settings, plain = packaged(), RuleBook(files)
    assert settings.profile == parse_profile(text, "x")
    assert settings.rules.files == files
    assert settings.rules.names() == plain.names()
    assert settings.rules.families() == plain.families()
    assert settings.rules.index() == plain.index()
    for name in plain.names():
        ours, theirs = settings.rules.find(name), plain.find(name)
        assert ours is not None
        assert theirs is not None
        assert (ours.name, ours.ref, dict(ours.subs)) == (theirs.name, theirs.ref, dict(theirs.subs)), name
    settings.rules.check()
    assert settings.rules.find("no such program") is None


@pytest.mark.parametrize("changed", ["profile", "rules", "no file", "not JSON"])
def test_a_file_for_other_texts_is_not_used(changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The packaged files count also after a change, and not what was made from them before."""
    text, files = packaged_files()
    name = next(iter(files))
    if changed == "profile":
        text = text.replace('".ssh"', '".ssh", ".another-secret"', 1)
    elif changed == "rules":
        files = {**files, name: files[name] + '\n[another-program]\nwhy = "x"\n'}
    else:
        place = tmp_path / "packaged.json"
        if changed == "not JSON":
            place.write_text("{")
        monkeypatch.setattr(_module(), "PREPARED", str(place))
    monkeypatch.setattr(_module(), "packaged_files", lambda: (text, files))
    found = packaged()
    assert (".another-secret" in found.profile.secret_home) is (changed == "profile")
    assert ("another-program" in found.rules.names()) is (changed == "rules")
    assert ".ssh" in found.profile.secret_home
    assert "git" in found.rules.names()
