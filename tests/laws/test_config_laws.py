"""Property: settings of an untrusted repository only restrict, until exactly their content is trusted."""

import os
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from policy.model.tier import Mode, Ruling, no_looser
from runner.config import ConfigError, Settings, load
from runner.config.merge import current_value
from runner.config.schema import Widens, key_of, list_of
from sandbox.backend import Level
from tests.support.config_strategies import as_toml, documents
from tests.support.law import examples

LAW = examples(25, many=300)
NAMES = (".ringfence/config.toml", ".ringfence/config.local.toml")


class Folder:
    def __init__(self, top: str) -> None:
        self.project, self.environ = Path(top) / "p", {"HOME": f"{top}/h"}
        (self.project / ".git").mkdir(parents=True)
        (self.project / ".ringfence").mkdir()
        self.user = Path(top) / "h/.config/ringfence/config.toml"
        self.user.parent.mkdir(parents=True)

    def load(self, **more: Any) -> Settings:
        return load(self.project, self.environ, **more)


def put(path: Path, document: dict[str, Any]) -> None:
    path.write_text(as_toml(document), "utf-8", newline="")


def no_wider(after: Settings, before: Settings) -> None:
    """Nothing that `after` allows is more than `before` does: field by field, and row by row of the table."""
    old, new = before.profile, after.profile
    assert no_looser(after.mode or Mode.DEFAULT, before.mode or Mode.DEFAULT)
    assert (after.model, after.base_urls, after.models) == (before.model, before.base_urls, before.models)
    assert after.container == before.container
    assert after.sandbox_minimum is Level.FULL or before.sandbox_minimum is after.sandbox_minimum
    assert (after.max_turns or 50) <= (before.max_turns or 50)
    assert new.unix_sockets <= old.unix_sockets
    for name in type(new.limits).__slots__:
        assert getattr(new.limits, name) <= getattr(old.limits, name), name
    for name in ("secret_home", "secret_paths", "secret_names", "locked", "denied"):
        assert set(getattr(new, name)) >= set(getattr(old, name)), name
    for name in ("public_names", "system", "etc", "environment"):
        assert set(getattr(new, name)) <= set(getattr(old, name)), name
    added = [rule for rule in new.permissions if rule not in old.permissions]
    assert set(old.permissions) <= set(new.permissions)
    assert Ruling.ALLOW not in {rule.verdict for rule in added}
    for path, value in after.values.items():
        key, was = key_of(path), current_value(before, path, key_of(path))
        if key.widens in (Widens.NEVER, Widens.YOURS):
            assert value == was, key.name
        elif not key.adds:
            assert key.tightens(value, was), key.name
        else:
            assert isinstance(value, tuple)
            assert set(value) >= set(before.values.get(path, ())), key.name  # type: ignore[arg-type]  # a list
    for entry in after.lists[len(before.lists) :]:
        assert list_of(entry.name).stays(entry), entry


@pytest.mark.threat("T23")
@LAW
@given(documents(), documents(), documents(), st.booleans())
def test_what_came_along_never_widens(
    user: dict[str, Any], project: dict[str, Any], local: dict[str, Any], unattended: bool
) -> None:
    with tempfile.TemporaryDirectory() as top:
        folder = Folder(top)
        put(folder.user, user)
        try:
            before = folder.load()
        except ConfigError:
            assume(False)
        for name, document in zip(NAMES, (project, local), strict=True):
            put(folder.project / name, document)
        wrong = dict.fromkeys(NAMES, "0" * 64)
        try:
            no_wider(folder.load(unattended=unattended, trusted=wrong), before)
        except ConfigError:
            assert not unattended, "a repository must not be able to stop its own check"
            no_wider(folder.load(unattended=True), before)


@pytest.mark.threat("T23")
@LAW
@given(documents(), documents(), st.data())
def test_trusted_content_counts_as_the_users_own_and_one_byte_more_does_not(
    user: dict[str, Any], project: dict[str, Any], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as top:
        folder = Folder(top)
        path = folder.project / NAMES[0]
        put(folder.user, user)
        try:
            before = folder.load()
            put(path, project)
            content = path.read_bytes()
            trusted = {NAMES[0]: sha256(content).hexdigest()}
            after = folder.load(trusted=trusted)
        except ConfigError:
            assume(False)
        path.unlink()
        elsewhere = Path(top) / "named.toml"
        elsewhere.write_bytes(content)
        same = folder.load(config=elsewhere)
        for key in {*after.values, *same.values}:
            if key[0] == "mcp" and key[:2] in {path[:2] for path in before.values}:  # T180: a server of the user
                row, was = key_of(key), current_value(before, key, key_of(key))
                value = after.values.get(key)
                assert value == before.values.get(key) or (value is not None and row.tightens(value, was)), key
                continue
            yours = key_of(key).widens is Widens.YOURS  # no content is ever trusted so far
            assert after.values.get(key) == (before if yours else same).values.get(key), key
        assert (after.profile.limits, after.mode, after.model) == (same.profile.limits, same.mode, same.model)
        assert [rule.verdict for rule in after.profile.permissions] == [
            rule.verdict for rule in same.profile.permissions
        ]
        at = data.draw(st.integers(0, len(content)))
        path.write_bytes(content[:at] + b"\n" + content[at:])
        no_wider(folder.load(trusted=trusted, unattended=True), before)


@pytest.mark.threat("T23")
def test_what_is_hashed_is_what_is_parsed(tmp_path: Path) -> None:
    """A file that is swapped while it is read: the bytes of one look count, never the hash of one and the text of another."""
    folder = Folder(str(tmp_path))
    good, evil = b"mode = 'trust-project'\n", b"mode = 'dangerously'  \n"
    path = folder.project / NAMES[0]
    trusted = {NAMES[0]: sha256(good).hexdigest()}
    child = os.fork()
    if child == 0:
        try:
            while True:
                for number, content in enumerate((good, evil)):
                    beside = path.parent / f"beside{number}"
                    beside.write_bytes(content)
                    beside.rename(path)
        finally:
            os._exit(1)
    try:
        while not path.exists():
            pass
        seen = {folder.load(trusted=trusted).mode for _ in range(100)}
        while len(seen) < 2:
            seen.add(folder.load(trusted=trusted).mode)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert seen == {Mode.TRUST_PROJECT, None}, "both were met, and the evil one is never trusted"
