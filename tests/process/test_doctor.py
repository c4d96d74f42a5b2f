"""Tests of `agent doctor` on machines where something is missing: the report is correct and names the remedy."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from runner.config import load
from runner.doctor.models import models
from runner.doctor.report import CheckResult, CheckState, _container, _read, _unavailable_result, namespaces
from sandbox.backend import ContainerOptions, SandboxUnavailable, helper_failed
from tests.support.agent_program import AGENT
from tests.support.sandbox_bench import NO_NAMESPACES

# fmt: off
SWITCHES: list[tuple[bool, str, str, str, CheckState, str, str]] = [
    # admin, most, clone, apparmor, state, a part of the fix, why
    (True,  "0",   "0", "1", CheckState.OK,   "",                                                "root needs no user namespace"),
    (False, "0",   "",  "",  CheckState.WEAK, "user.max_user_namespaces=",                       "none may be made at all"),
    (False, "99",  "0", "",  CheckState.WEAK, "kernel.unprivileged_userns_clone=1",              "Debian's switch"),
    (False, "99",  "1", "1", CheckState.WEAK, "kernel.apparmor_restrict_unprivileged_userns=0",  "Ubuntu's switch"),
    (False, "99",  "1", "0", CheckState.OK,   "",                                                "every switch is on"),
    (False, "",    "",  "",  CheckState.OK,   "",                                                "no switch is there"),
]
# fmt: on


@pytest.mark.parametrize(("admin", "most", "clone", "apparmor", "state", "fix", "why"), SWITCHES)
def test_the_switches(admin: bool, most: str, clone: str, apparmor: str, state: CheckState, fix: str, why: str) -> None:
    found = namespaces(admin=admin, most=most, clone=clone, apparmor=apparmor)
    assert found.state is state, why
    assert fix in found.fix
    assert bool(found.fix) is (state is not CheckState.OK)


def test_a_refused_sandbox_does_not_send_the_reader_round_in_a_circle() -> None:
    refused = helper_failed("T1", "failed 1 unshare")
    assert "agent doctor" in refused.problem.fix
    for spaces, word in (
        (CheckResult("namespaces", CheckState.WEAK, "off", "sudo sysctl"), "`namespaces`"),
        (CheckResult("namespaces", CheckState.OK, "on"), "container"),
    ):
        fix = _unavailable_result("T1", refused, spaces).fix
        assert word in fix
        assert "--accept-partial" in fix
        assert "agent doctor" not in fix
    other = SandboxUnavailable.of("it cannot be built", "no library", "sudo apt-get install libseccomp2")
    assert _unavailable_result("T1", other, spaces).fix == other.problem.fix
    program = SandboxUnavailable.of("it cannot be built", "no program", "run `agent doctor`", check="bwrap")
    assert _unavailable_result("T2", program, spaces).fix == "apply the fix of `bwrap` in this report"


def test_only_the_switch_of_apparmor_has_lines_to_type() -> None:
    assert namespaces(admin=False, most="0", clone="0", apparmor="1").lines == ()
    assert namespaces(admin=False, most="9", clone="1", apparmor="1").lines


def test_a_file_of_the_system_may_hold_any_letters(tmp_path: Path) -> None:
    """A disk can have a name in any language, and in bytes that are no UTF-8."""
    (tmp_path / "mounts").write_bytes(
        b"/dev/sdb1 /media/ann/Gr\xc3\xb6\xc3\x9fe ext4 rw 0 0\n/dev/sdc1 /media/\xff vfat rw 0 0\n"
    )
    assert [line.split()[2] for line in _read(str(tmp_path / "mounts")).splitlines()] == ["ext4", "vfat"]


@pytest.mark.threat("T19")
def test_where_namespaces_are_refused_it_says_which_switch_and_how(tmp_path: Path) -> None:
    """For real: in a user namespace in which no further one may be made, as root without powers."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run(
        [*NO_NAMESPACES, AGENT, "doctor"], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 4, done.stdout + done.stderr
    assert "max_user_namespaces is 0" in done.stdout
    assert "fix: sudo sysctl -w user.max_user_namespaces=" in done.stdout
    assert "fix: apply the fix of `namespaces` above; or use T3" in done.stdout
    assert "not ready" in done.stdout


# fmt: off
DAEMONS = [
    # what is configured, DOCKER_HOST, state, why
    (ContainerOptions(),                           "unix:///nowhere/d.sock", CheckState.ABSENT,  "nobody asked for it"),
    (ContainerOptions(image="sha256:" + "0" * 64), "unix:///nowhere/d.sock", CheckState.MISSING, "an image is configured for it"),
    (ContainerOptions(socket="/nowhere/d.sock"),   "",                       CheckState.MISSING, "a socket is"),
    (ContainerOptions(),                           "tcp://127.0.0.1:1",      CheckState.WEAK,    "there is one, of no use as it is"),
]
# fmt: on


@pytest.mark.parametrize(("choice", "host", "state", "why"), DAEMONS, ids=[row[3] for row in DAEMONS])
def test_a_container_daemon_that_is_not_there(
    choice: ContainerOptions, host: str, state: CheckState, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    found = asyncio.run(_container(choice))
    assert found.state is state, why
    assert found.fix
    assert not found.sandbox, "it never makes a machine ready"


# fmt: off
MODELS: list[tuple[str, dict[str, str], str, CheckState, str, str]] = [
    # config, environment, name, state, a part of what is said, why
    ("", {}, "model", CheckState.ABSENT, "no model is configured", "nobody said"),
    ("", {}, "openai", CheckState.ABSENT, "no key: set `OPENAI_API_KEY`, or run `agent auth login openai`", "and there is no key"),
    ('model = "gemini"', {}, "model", CheckState.WEAK, "gemini:gemini-4-argon, for which there is no key", "the usual one"),
    ('model = "openai:m"\nfallback_model = "gemini:n"', {"OPENAI_API_KEY": "sk-hunter2hunter2"}, "model", CheckState.OK,
     "openai:m; gemini:n where it stays busy", "a key is there"),
    ("", {"OPENAI_API_KEY": "sk-hunter2hunter2"}, "openai", CheckState.OK, "a key in `OPENAI_API_KEY`", "by its name"),
    ("", {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}, "openai", CheckState.OK, "this machine", "needs none"),
    ("", {"OPENAI_BASE_URL": "nonsense"}, "openai", CheckState.WEAK, "base URL cannot be used", "an address that is none"),
    ('[auth.openai]\nhelper = ["/bin/false"]', {}, "openai", CheckState.OK, "a helper command", "which is not run"),
    ('model = "scripted:x.toml"', {}, "model", CheckState.OK, "scripted:x.toml", "it asks no server"),
]
# fmt: on


@pytest.mark.parametrize(("config", "environ", "name", "state", "said", "why"), MODELS, ids=[row[5] for row in MODELS])
def test_which_model_and_which_keys(
    tmp_path: Path, config: str, environ: dict[str, str], name: str, state: CheckState, said: str, why: str
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(config)
    environ = {"HOME": str(tmp_path), **environ}
    found = {finding.name: finding for finding in models(load(tmp_path, environ, config=file), environ, keyring=True)}
    assert found[name].state is state, why
    assert said in found[name].detail
    assert "hunter2" not in repr(found)


def test_a_login_is_offered_only_where_a_keyring_works(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('model = "openai:m"')
    environ = {"HOME": str(tmp_path)}
    found = {row.name: row for row in models(load(tmp_path, environ, config=file), environ, keyring=False)}
    assert found["openai"].detail == "no key: set `OPENAI_API_KEY`"
    assert found["model"].fix == "set `OPENAI_API_KEY`"
