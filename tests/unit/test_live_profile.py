"""Tests of the profile of a running session, which follows the files of the configuration."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from policy.model.profile import Profile
from policy.model.tier import Ruling
from runner.config import Settings, load
from runner.config.live_profile import ConfigurationSource, LiveProfile
from runner.config.load import files
from runner.config.trust.cached import remembered
from runner.config.trust.discover import look
from runner.config.trust.store import NAME, TrustStore


def rule(verdict: str, word: str) -> str:
    return f'[[rule]]\nverdict = "{verdict}"\nrun = ["{word}"]\nwhy = "w"\n'


ALLOW, DENY, OTHER = rule("allow", "make"), rule("deny", "touch"), rule("deny", "mkdir")
LENT = '[[credential]]\nname = "c"\nhosts = ["api.example.org"]\nheader = "A: {secret}"\nenv = "T"\n'
Edit = Callable[["Machine"], None]


class Machine:
    """A session in a folder, with the files of its user and of its repository."""

    def __init__(self, base: Path) -> None:
        self.work, home = base / "w", base / "home"
        self.user = home / ".config" / "ringfence" / "config.toml"
        self.project = self.work / ".ringfence" / "config.toml"
        self.state = base / "state"
        for folder in (self.user.parent, self.project.parent, self.state):
            folder.mkdir(parents=True, mode=0o700)
        self.environ = {"HOME": str(home), "RINGFENCE_STATE_DIR": str(self.state)}
        self.told: list[str] = []
        self.reads = 0

    def start(self) -> LiveProfile:
        paths = [path for _, path in files(self.work, self.environ, system=self.state / "none")]
        source = ConfigurationSource.of((*paths, self.state / NAME), self.settings)
        settings = self.settings()
        self.reads = 0
        return LiveProfile(settings.profile, settings, source, self.told.append)

    def settings(self) -> Settings:
        self.reads += 1
        trusted = remembered(str(self.work), self.environ)
        return load(self.work, self.environ, trusted=trusted, system=self.state / "none")

    def trust(self, *, yes: bool = True) -> None:
        TrustStore(self.state).remember(look(str(self.work)), yes=yes, time="now")


def rules(profile: Profile) -> list[str]:
    return [f"{each.verdict.name.lower()} {each.pattern}" for each in profile.permissions]


def write(text: str, machine: Machine, where: str = "user") -> None:
    path = machine.user if where == "user" else machine.project
    path.write_text(text)


user, project = partial(partial, write), lambda text: partial(write, text, where="project")


def both(*edits: Edit) -> Edit:
    def edit(machine: Machine) -> None:
        for each in edits:
            each(machine)

    return edit


# fmt: off
CHANGES: list[tuple[Edit, Edit, list[str], str]] = [
    (user(""),                 user(DENY),                ["deny touch"],               "a new rule of the user"),
    (user(ALLOW + DENY),       user(DENY),                ["deny touch"],               "a rule of the user is removed"),
    (user(ALLOW + DENY),       lambda m: m.user.unlink(), [],                           "the file of the user is removed"),
    (user(ALLOW + DENY),       user(ALLOW + "x"),         ["deny touch"],               "hostile: a broken file allows nothing"),
    (user(ALLOW + DENY),       lambda m: (m.user.unlink(), m.user.mkdir()), ["deny touch"], "hostile: a folder in its place"),
    (user(ALLOW + DENY),       lambda m: m.user.chmod(0o666), ["deny touch"],           "hostile: every user may write to it"),
    (project(DENY),            project(""),               ["deny touch"],               "hostile: an untrusted repository drops a denial"),
    (project(DENY),            lambda m: m.project.unlink(), ["deny touch"],            "hostile: the file of the repository goes"),
    (project(DENY),            project("\n" + DENY),      ["deny touch"],               "only the line changed"),
    (project(DENY),            project(OTHER),            ["deny mkdir", "deny touch"], "an untrusted repository adds a denial"),
    (project(""),              project(ALLOW),            [],                           "hostile: an untrusted repository allows"),
    (both(project(ALLOW), Machine.trust), project(ALLOW + OTHER), ["deny mkdir"],       "hostile: changed after the trust"),
    (both(project(ALLOW), Machine.trust), partial(Machine.trust, yes=False), [],        "the trust is withdrawn"),
    (project(ALLOW),           Machine.trust,             ["allow make"],               "trust from another terminal"),
    (project(DENY),            both(project(ALLOW), Machine.trust), ["allow make"],     "a trusted change replaces all"),
]
# fmt: on


@pytest.mark.threat("T164")
@pytest.mark.parametrize(("first", "then", "expected", "why"), CHANGES, ids=[row[3] for row in CHANGES])
def test_a_change_takes_effect_at_the_next_decision(
    first: Edit, then: Edit, expected: list[str], why: str, tmp_path: Path
) -> None:
    machine = Machine(tmp_path)
    first(machine)
    live = machine.start()
    live.now()
    then(machine)
    assert rules(live.now()) == expected
    assert rules(live.now()) == expected, "the second decision is the same"


def test_the_user_is_told_once_and_again_after_the_repair(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.user.write_text(ALLOW + DENY)
    live = machine.start()
    machine.user.write_text(ALLOW + "x")
    for _ in range(3):
        live.now()
    assert len(machine.told) == 1
    assert "config.toml" in machine.told[0]
    assert "no rule allows anything" in machine.told[0]
    machine.user.write_text(DENY + OTHER)
    assert rules(live.now()) == ["deny touch", "deny mkdir"]
    assert machine.told[1:] == [
        "the configuration changed: 1 rule added, 1 rule removed. It applies from this action on"
    ]


def test_unchanged_files_are_read_once(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.user.write_text(DENY)
    os.utime(machine.user, (1_000, 1_000))
    live = machine.start()
    first = live.now()
    assert live.now() is first
    assert machine.reads == 0


def test_a_change_before_the_first_decision_is_seen(tmp_path: Path) -> None:
    """The user may edit the file while a question about trust, or the list of models, is open."""
    machine = Machine(tmp_path)
    machine.user.write_text("")
    os.utime(machine.user, (1_000, 1_000))
    live = machine.start()
    machine.user.write_text(DENY)
    os.utime(machine.user, (1_000, 1_000))  # hostile: the same time of modification
    assert rules(live.now()) == ["deny touch"]


@pytest.mark.threat("T164")
def test_a_removed_credential_is_not_injected_any_more(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.user.write_text(LENT)
    live = machine.start()
    assert [each.name for each in live.now().credentials] == ["c"]
    machine.user.write_text("\n\n" + LENT)
    assert [each.name for each in live.now().credentials] == ["c"], "another line is the same credential"
    machine.user.write_text(LENT.replace("api.example.org", "example.org"))
    assert live.now().credentials == (), "the proxy has read the secret for other requests"


def test_the_fingerprint_of_a_changed_policy_is_recorded(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.user.write_text(DENY)
    live, book = machine.start(), machine.settings().rules
    live.now()
    assert live.fingerprint(book) == ""
    machine.user.write_text(OTHER)
    assert any(each.verdict is Ruling.DENY for each in live.now().permissions)
    first = live.fingerprint(book)
    machine.user.write_text(DENY + OTHER)
    live.now()
    assert len({first, live.fingerprint(book), ""}) == 3
