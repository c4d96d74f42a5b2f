"""The user unit of the resident process: its text, and what `agent serve --install` and `--uninstall` do with it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from runner.frontends.resident.unit import unit_text
from runner.problems import Stopped
from tests.support.agent_program import AGENT
from tests.support.places import ROOT

GOLDEN = ROOT / "tests" / "golden" / "resident.service"
ENVIRON = {
    "HOME": "/home/u", "PATH": "/home/u/my bin:/usr/bin", "LANG": "C.UTF-8", "RINGFENCE_STATE_DIR": "/srv/50% $x \"q\" \\",
    "ANTHROPIC_API_KEY": "sk-secret", "PWD": "/somewhere",
}  # fmt: skip


def test_the_unit_is_the_reviewed_one() -> None:
    text = unit_text("/opt/a $b/agent", ENVIRON)
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()
    assert "sk-secret" not in text
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_reads_the_unit_as_it_is_meant(tmp_path: Path) -> None:
    program = tmp_path / "a $b" / "agent"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / "ringfence.service"
    unit.write_text(unit_text(str(program), ENVIRON))
    (tmp_path / "run").mkdir(mode=0o700)
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "run")}
    done = subprocess.run(
        ["systemd-analyze", "verify", "--user", "--man=no", str(unit)], env=environ, capture_output=True, text=True
    )
    assert (done.returncode, [line for line in done.stderr.splitlines() if "ringfence" in line]) == (0, []), done.stderr


@pytest.mark.parametrize(
    "word", ["/a\nExecStartPre=/bin/evil", "/a\0b", "/a\x1b[31m"], ids=["a line", "a NUL", "an escape"]
)
def test_a_word_that_would_be_more_than_one_is_refused(word: str) -> None:
    with pytest.raises(Stopped):
        unit_text(word, {})
    with pytest.raises(Stopped):
        unit_text("/agent", {"PATH": word})


class UnitUser:
    """A user with a `systemctl` that writes down its arguments, or without one."""

    def __init__(self, base: Path) -> None:
        self.calls = base / "calls"
        self.bin = base / "bin"
        self.bin.mkdir()
        (base / "home").mkdir()
        self.unit = base / "config" / "systemd" / "user" / "ringfence.service"
        self.environ = {
            "HOME": str(base / "home"), "PATH": str(self.bin), "LANG": "C.UTF-8",
            "RINGFENCE_STATE_DIR": str(base / "state"), "XDG_CONFIG_HOME": str(base / "config"),
        }  # fmt: skip

    def with_systemctl(self, code: int = 0) -> None:
        script = self.bin / "systemctl"
        script.write_text(
            f'#!/bin/sh\necho "$*" >> {self.calls}\n[ "$2" = is-active ] && exit 3\necho no bus >&2\nexit {code}\n'
        )
        script.chmod(0o755)

    def serve(self, *words: str, code: int) -> str:
        done = subprocess.run(
            [AGENT, "serve", *words], env=self.environ, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def called(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []


@pytest.fixture
def user(tmp_path: Path) -> UnitUser:
    return UnitUser(tmp_path)


def test_install_and_uninstall(user: UnitUser) -> None:
    user.with_systemctl()
    said = user.serve("--install", code=0)
    assert f"wrote {user.unit}" in said
    assert "enable-linger" in said
    assert user.unit.read_text() == unit_text(AGENT, user.environ)
    assert user.unit.stat().st_mode & 0o777 == 0o600
    assert "up to date" in user.serve("--install", code=0)
    assert user.called() == ["--user daemon-reload", "--user enable --now ringfence.service"] * 2
    assert f"removed {user.unit}" in user.serve("--uninstall", code=0)
    assert not user.unit.exists()
    assert user.called()[4:] == ["--user disable --now ringfence.service", "--user daemon-reload"]
    assert "there is no unit" in user.serve("--uninstall", code=2)


def test_a_changed_unit_is_shown_and_kept(user: UnitUser) -> None:
    user.with_systemctl()
    user.serve("--install", code=0)
    changed = user.unit.read_text().replace("RestartSec=5", "RestartSec=60")
    user.unit.write_text(changed)
    said = user.serve("--install", code=2)
    assert "-RestartSec=60\n+RestartSec=5\n" in said
    assert user.unit.read_text() == changed
    user.serve("--install", "--yes", code=0)
    assert "RestartSec=5\n" in user.unit.read_text()


def test_a_foreign_unit_is_not_removed(user: UnitUser) -> None:
    user.with_systemctl()
    user.unit.parent.mkdir(parents=True)
    user.unit.write_text("[Service]\nExecStart=/bin/true\n")
    assert "did not write it" in user.serve("--uninstall", code=2)
    assert user.unit.exists()


def test_a_masked_unit_is_not_replaced(user: UnitUser) -> None:
    user.with_systemctl()
    user.unit.parent.mkdir(parents=True)
    user.unit.symlink_to("/dev/null")
    assert "it is a link" in user.serve("--install", "--yes", code=1)
    assert user.unit.is_symlink()
    assert user.called() == []


@pytest.mark.parametrize("present", [False, True], ids=["no systemctl", "no manager of the user"])
def test_without_systemd_the_commands_are_printed(user: UnitUser, present: bool) -> None:
    if present:
        user.with_systemctl(code=1)
    said = user.serve("--install", code=1)
    assert "  systemctl --user daemon-reload\n  systemctl --user enable --now ringfence.service\n" in said
    assert ("no bus" in said) is present
    assert user.unit.exists()


def test_options_that_exclude_each_other(user: UnitUser) -> None:
    assert "exclude each other" in user.serve("--install", "--stop", code=2)
    assert "needs `--install`" in user.serve("--yes", code=2)
    assert "exclude each other" in user.serve("--stay", "--status", code=2)
