"""Tests of settings in real files: which file may widen, which may only restrict, and the message for each mistake."""

import os
import subprocess
import sys
import tomllib
from hashlib import sha256
from pathlib import Path

import pytest

from policy.model.profile import Layer
from policy.model.tier import Mode, Ruling
from policy.toml.schema import too_deep
from runner.config import ConfigError, load
from runner.config.schema import PROVIDERS as KNOWN
from runner.config.schema import REMOTE, key_of
from runner.config.show import origins
from runner.engine.run_limits import RunLimits
from runner.facts.gather import gather
from runner.providers.remotes import PROVIDERS, Remote
from runner.state.paths import PlaceError, cache_dir, config_dir, config_file, private, state_dir
from sandbox.backend import Level
from tests.support.places import ROOT


class Machine:
    """A home and a project on the real disk."""

    def __init__(self, top: Path) -> None:
        self.home, self.project = top / "home", top / "project"
        self.home.mkdir()
        (self.project / ".git").mkdir(parents=True)
        self.environ = {"HOME": str(self.home)}

    def user(self, text: str) -> Path:
        return self._write(self.home / ".config/ringfence/config.toml", text)

    def repository(self, text: str) -> Path:
        return self._write(self.project / ".ringfence/config.toml", text)

    def named(self, text: str) -> Path:
        return self._write(self.home / "other.toml", text)

    def _write(self, path: Path, text: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o644)
        return path


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_any_file_the_packaged_profile_holds(machine: Machine) -> None:
    settings = load(machine.project, machine.environ)
    assert (settings.mode, settings.model, settings.max_turns) == (None, None, None)
    assert settings.sandbox_minimum is Level.FULL
    assert settings.sources == ("profiles/default.toml",)
    assert settings.notices == ()
    assert ".ssh" in settings.profile.secret_home
    assert not list(machine.home.iterdir()), "reading settings makes no folder"


def test_the_user_may_say_anything(machine: Machine) -> None:
    path = machine.user(
        'mode = "trust-project"\nmodel = "openai:x"\nmax_turns = 9\n'
        '[provider.openai]\nbase_url = "http://127.0.0.1:8080/v1/"\nmodel = "big"\n'
        '[limits]\nwall = 300\nmemory = "8 GiB"\n[sandbox]\nminimum = "partial"\n'
        '[secret]\nnames = ["*.vault"]\n[deny]\ncommands = [["terraform", "destroy"]]\n'
    )
    settings = load(machine.project, machine.environ)
    assert (settings.mode, settings.model, settings.max_turns) == (Mode.TRUST_PROJECT, "openai:x", 9)
    assert settings.base_urls == {"openai": "http://127.0.0.1:8080/v1"}
    assert settings.models == {"openai": "big"}
    assert (settings.profile.limits.wall, settings.profile.limits.memory) == (300.0, 8 << 30)
    assert settings.sandbox_minimum is Level.PARTIAL
    assert "*.vault" in settings.profile.secret_names
    assert ".env" in settings.profile.secret_names, "the packaged list stays"
    assert settings.profile.denied == (("terraform", "destroy"),)
    assert settings.sources == ("profiles/default.toml", str(path))


REPOSITORY = [
    # text, ignored keys, why
    ('mode = "trust-project"', ["1: `mode`"], "more freedom than the usual mode"),
    ('mode = "dangerously"', ["1: `mode`"], "all freedom"),
    ('mode = "dont-ask"', ["1: `mode`"], "allows writes that the usual mode asks about"),
    ('mode = "plan"', [], "the strictest mode"),
    ("max_turns = 5", [], "fewer turns than nobody chose"),
    ('model = "openai:y"', ["1: `model`"], "where prompts go"),
    ('[provider.openai]\nbase_url = "https://evil"', ["2: `provider.openai.base_url`"], "where the key goes"),
    ('[sandbox]\nminimum = "partial"', ["2: `sandbox.minimum`"], "a weaker boundary"),
    ("[sandbox]\nunix_sockets = true", [], "what holds anyway"),
    ("[sandbox]\nunix_sockets = false", [], "fewer sockets"),
    ('[sandbox]\nminimum = "full"', [], "the stronger one"),
    ("[limits]\nwall = 30", [], "less time"),
    ("[limits]\nwall = 3000", ["2: `limits.wall`"], "more time"),
    ('[limits]\nwall = "2min"\ncpu = "90s"', [], "times with units, none of them more"),
    ('[limits]\nwall = "3m"\ncpu = "3h"', ["2: `limits.wall`", "3: `limits.cpu`"], "times with units, more of each"),
    ("[limits]\n\npids = 9999999\nopen-files = 8", ["3: `limits.pids`"], "one of each"),
    ('[secret]\nnames = ["*.vault"]', [], "more secrets"),
    ('[deny]\ncommands = [["make", "deploy"]]', [], "more denied"),
]


@pytest.mark.threat("T23")
@pytest.mark.threat("T63")
@pytest.mark.parametrize(("text", "ignored", "why"), REPOSITORY)
def test_the_repository_may_only_tighten(machine: Machine, text: str, ignored: list[str], why: str) -> None:
    before = load(machine.project, machine.environ)
    path = machine.repository(text)
    after = load(machine.project, machine.environ)
    assert len(after.notices) == len(ignored), (why, after.notices)
    for notice, key in zip(after.notices, ignored, strict=True):
        assert notice.startswith(f"{path}:{key} is ignored: "), why
    assert (after == before) is False, "its file is at least named as a source"
    assert (after.model, after.base_urls, after.models) == (None, {}, {}), why
    assert after.mode in (None, Mode.PLAN), why
    assert after.sandbox_minimum is Level.FULL, why
    assert after.profile.unix_sockets is ("unix_sockets = false" not in text), why
    for name in type(before.profile.limits).__slots__:
        assert getattr(after.profile.limits, name) <= getattr(before.profile.limits, name), why
    assert set(after.profile.secret_names) >= set(before.profile.secret_names), why


@pytest.mark.threat("T23")
def test_what_the_repository_tightens_is_tight(machine: Machine) -> None:
    machine.user('mode = "trust-project"\nmax_turns = 40\n[sandbox]\nminimum = "partial"\n')
    machine.repository(
        'mode = "default"\nmax_turns = 7\n[limits]\nwall = 30\n[sandbox]\nminimum = "full"\n'
        '[secret]\nnames = ["*.vault"]\n[deny]\ncommands = [["make", "deploy"]]\n'
    )
    settings = load(machine.project, machine.environ)
    assert (settings.mode, settings.max_turns, settings.sandbox_minimum) == (Mode.DEFAULT, 7, Level.FULL)
    assert settings.profile.limits.wall == 30
    assert "*.vault" in settings.profile.secret_names
    assert settings.profile.denied == (("make", "deploy"),)
    assert settings.notices == ()


def test_the_repositorys_file_is_found_from_below(machine: Machine) -> None:
    machine.repository('mode = "plan"')
    (machine.project / "a/b").mkdir(parents=True)
    assert load(machine.project / "a/b", machine.environ).mode is Mode.PLAN


def test_later_layers_win(machine: Machine) -> None:
    machine.user('mode = "trust-project"\n[limits]\nwall = 300\n')
    machine.repository('mode = "plan"\n[limits]\nwall = 30\n')
    named = machine.named('mode = "accept-edits"\n[limits]\nwall = 60\n')
    settings = load(machine.project, machine.environ, config=named)
    assert (settings.mode, settings.profile.limits.wall) == (Mode.ACCEPT_EDITS, 60)
    environ = machine.environ | {"RINGFENCE_MODE": "dont-ask", "RINGFENCE_LIMIT_WALL": "90.5"}
    settings = load(machine.project, environ, config=named)
    assert (settings.mode, settings.profile.limits.wall) == (Mode.DONT_ASK, 90.5)
    assert settings.sources[-3:] == (str(named), "RINGFENCE_LIMIT_WALL", "RINGFENCE_MODE")


def test_every_setting_of_the_environment(machine: Machine) -> None:
    environ = machine.environ | {
        "RINGFENCE_MODE": "plan",
        "RINGFENCE_MODEL": "scripted:x",
        "RINGFENCE_MAX_TURNS": "3",
        "RINGFENCE_SANDBOX_MINIMUM": "partial",
        "RINGFENCE_LIMIT_MEMORY": "2 GiB",
        "RINGFENCE_LIMIT_OPEN_FILES": "99",
    }
    settings = load(machine.project, environ)
    assert (settings.mode, settings.model, settings.max_turns) == (Mode.PLAN, "scripted:x", 3)
    assert settings.sandbox_minimum is Level.PARTIAL
    assert (settings.profile.limits.memory, settings.profile.limits.open_files) == (2 << 30, 99)


BROKEN = [
    # text, line, parts, why
    ('mod = "plan"', 1, ["`mod`", "`mode`"], "the nearest key"),
    ('mode = "trust"', 1, ["`mode`", "`trust-project`"], "the nearest mode"),
    ("\n[limits]\nwal = 3", 3, ["`limits.wal`", "`limits.wall`"], "the nearest limit"),
    ("wall = 3", 1, ["`wall`", "`limits.wall`"], "the right key in the wrong table"),
    (
        '[provider.openai]\nurl = "https://a"',
        2,
        ["`provider.openai.url`", "`provider.openai.base_url`"],
        "a key of a table",
    ),
    (
        '[provider.antropic]\nbase_url = "https://a"',
        1,
        ["did you mean `provider.anthropic`?"],
        "a provider that does not exist",
    ),
    (
        'model = "antropic:x"',
        1,
        ["`model`", "no provider `antropic`", "did you mean `anthropic`?"],
        "a model of nobody",
    ),
    ('model = "gpt"', 1, ["`model`", "`provider:model`"], "a model without its provider"),
    ('model = "OPENAI:x"', 1, ["did you mean `openai`?"], "a provider in capitals"),
    ('[provider.openai]\nbase_url = "ftp://a"', 2, ["https://host/v1"], "another protocol"),
    (
        '[provider.openai]\nbase_url = "https://u:secret@a"',
        2,
        ["secrets are not allowed here"],
        "a login in an address",
    ),
    ('[provider.openai]\nbase_url = "https://a/v1?x=1"', 2, ["it has a query"], "a query in an address"),
    ('[provider.openai]\nbase_url = "https://a:0"', 2, ["not a URL"], "a port that is none"),
    ('[provider.openai]\nbase_url = "http://a.example/v1"', 2, ["unencrypted"], "a key in clear"),
    ('[provider.openai]\nbase_url = "http://x.localhost/v1"', 2, ["unencrypted"], "a name that a server may resolve"),
    ('[audit]\notlp = "https://u:secret@a"', 2, ["secrets are not allowed here"], "a login of a collector"),
    ('[audit]\notlp = "https://a/#x"', 2, ["a fragment"], "a fragment of a collector"),
    ('[audit]\notlp = "a:4318"', 2, ["https://host:4318"], "a collector without a protocol"),
    ('[sandbox]\nminimum = "none"', 2, ["`full` or `partial`"], "no boundary is no level"),
    ("[sandbox]\nminimum = 1", 2, ["a text in quotes"], "a number"),
    ('[secret]\nhome = [".x"]', 2, ["`secret.home`", "`names`"], "only names can be added here"),
    ("max_turns = 0", 1, ["above 0"], "no turn at all"),
    ('version = "1"', 1, ["write `version = 1`"], "a text, and what is told must work"),
    ('[limits]\nwall = "20x"', 2, ["`limits.wall`", '"90s"'], "a time in a unit of nobody"),
    ('[limits]\ncpu = "1.5s"', 2, ["`limits.cpu`", "whole"], "half a second, where seconds are whole"),
    ('mode = "plan', 1, ["TOML"], "broken syntax"),
    ('[provider]\nopenai = "y"', 2, ["`provider.openai`", "table"], "not a table"),
]


@pytest.mark.threat("T44")
@pytest.mark.parametrize(("text", "line", "parts", "why"), BROKEN)
@pytest.mark.parametrize("layer", ["user", "repository", "named"])
def test_a_mistake_names_file_line_and_key(
    machine: Machine, text: str, line: int, parts: list[str], why: str, layer: str
) -> None:
    path: Path = getattr(machine, layer)(text)
    with pytest.raises(ConfigError) as caught:
        load(machine.project, machine.environ, config=path if layer == "named" else None)
    problem = caught.value.problem
    assert f"{path}:{line}" in problem.what, why
    assert all(part in str(problem) for part in parts), (why, str(problem))
    assert "secret@" not in str(problem), "what may be a secret is not repeated"


@pytest.mark.threat("T44")
@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("RINGFENCE_MDOE", "plan", "`RINGFENCE_MODE`"),
        ("RINGFENCE_XYZZY", "1", "RINGFENCE_MAX_TURNS"),
        ("RINGFENCE_MODE", "trust", "`trust-project`"),
        ("RINGFENCE_MODE", "", "a text in quotes"),
        ("RINGFENCE_MAX_TURNS", "many", "whole number"),
        ("RINGFENCE_MAX_TURNS", "1.5", "whole number"),
        ("RINGFENCE_MAX_TURNS", "-1", "whole number"),
        ("RINGFENCE_LIMIT_WALL", "nan", "seconds"),
        ("RINGFENCE_LIMIT_WALL", "1e99", "seconds"),
        ("RINGFENCE_LIMIT_MEMORY", "a lot", "512 MiB"),
        ("RINGFENCE_STATE_DIR", "here", "absolute"),
        ("RINGFENCE_CONFIG_DIR", "here", "absolute"),
    ],
)
def test_a_variable_that_cannot_be_used_is_never_ignored(machine: Machine, name: str, value: str, part: str) -> None:
    environ = machine.environ | {name: value}
    with pytest.raises((ConfigError, PlaceError)) as caught:
        private(environ) and load(machine.project, environ)
    error = caught.value
    assert isinstance(error, ConfigError | PlaceError)
    assert name in error.problem.what
    assert part in str(error.problem)


@pytest.mark.threat("T23")
def test_files_that_are_not_what_they_should_be(machine: Machine, tmp_path: Path) -> None:
    def refused(part: str, config: Path | None = None) -> None:
        with pytest.raises(ConfigError) as caught:
            load(machine.project, machine.environ, config=config)
        assert part in str(caught.value.problem)

    refused("no such file", machine.home / "missing.toml")
    refused("not a plain file", machine.home)
    path = machine.user("mode = 'plan'")
    path.chmod(0o646)
    refused("every user may write")
    path.write_bytes(b"mode = 'plan'\n# \xff\n")
    path.chmod(0o644)
    refused("line 2 is not UTF-8")
    path.write_text("#" * (1 << 20) + "\n")
    refused("longer than 1 MiB")
    path.unlink()
    project = machine.repository("mode = 'plan'")
    project.rename(tmp_path / "elsewhere.toml")
    project.symlink_to(tmp_path / "elsewhere.toml")
    refused("it is a link")
    project.unlink()
    os.mkfifo(project)
    refused("not a plain file")  # and above all: no waiting for a user to write to it
    project.unlink()
    project.parent.rmdir()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/config.toml").write_text("mode = 'plan'")
    project.parent.symlink_to(tmp_path / "folder")
    refused("its folder is a link")


def foreign(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `path` another user's: root gives it away, anybody else becomes another user."""
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
    else:
        other = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: other)


@pytest.mark.threat("T33")
def test_a_users_file_of_somebody_else_is_refused(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    path = machine.user("mode = 'plan'")
    foreign(path, monkeypatch)
    with pytest.raises(ConfigError) as caught:
        load(machine.project, machine.environ)
    assert "another user" in caught.value.problem.why
    environ = {"HOME": str(machine.project)}
    assert load(machine.project, environ, config=path).mode is Mode.PLAN, "named on the command line it is meant"


def test_a_users_file_may_be_a_link(machine: Machine) -> None:
    real = machine.named("mode = 'plan'")
    path = machine.user("")
    path.unlink()
    path.symlink_to(real)
    assert load(machine.project, machine.environ).mode is Mode.PLAN


def test_the_packaged_rules_are_loaded(machine: Machine) -> None:
    rules = load(machine.project, machine.environ).rules
    found = rules.find("ls")
    assert found is not None
    assert (ROOT / "policy" / "commands" / f"{found.ref.id}.toml").is_file(), (
        "a rule names its file as it lies in the source"
    )
    assert rules.find("no-such-program") is None


def test_the_fast_path_loads_no_schema_library_and_no_resource_machinery(machine: Machine) -> None:
    script = (
        "import sys, pathlib, runner.config as c; c.load(pathlib.Path(sys.argv[1]), {'HOME': sys.argv[2]}); "
        "print([m for m in ('pydantic', 'importlib.resources', 'bashlex', 'httpx', 'keyring', 'asyncio', 'difflib') "
        "if m in sys.modules])"
    )
    argv = [sys.executable, "-c", script, str(machine.project), str(machine.home)]
    found = subprocess.run(argv, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(ROOT)})
    assert found.stdout == "[]\n"


# --- places -----------------------------------------------------------------------------------------------------------


def test_places_follow_our_variables_then_the_desktops_then_the_home(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path / "h")}
    xdg = home | {
        "XDG_STATE_HOME": str(tmp_path / "s"),
        "XDG_CONFIG_HOME": str(tmp_path / "c"),
        "XDG_CACHE_HOME": "relative",
    }
    own = xdg | {"RINGFENCE_STATE_DIR": str(tmp_path / "own")}
    assert state_dir(home) == tmp_path / "h/.local/state/ringfence"
    assert config_dir(home) == tmp_path / "h/.config/ringfence"
    assert cache_dir(home) == tmp_path / "h/.cache/ringfence"
    assert state_dir(xdg) == tmp_path / "s/ringfence"
    assert config_dir(xdg) == tmp_path / "c/ringfence"
    assert cache_dir(xdg) == tmp_path / "h/.cache/ringfence", "a relative one counts as not set"
    assert state_dir(own) == tmp_path / "own"
    assert config_file(xdg) == tmp_path / "c/ringfence/config.toml"
    for path in (state_dir(own), config_dir(home), cache_dir(home)):
        assert path.stat().st_mode & 0o7777 == 0o700


def test_private_names_all_three_as_they_really_are(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    found = private({"HOME": str(tmp_path / "link")})
    real = tmp_path / "real"
    assert found == (f"{real}/.local/state/ringfence", f"{real}/.config/ringfence", f"{real}/.cache/ringfence")
    assert not list(real.iterdir()), "naming makes nothing"


@pytest.mark.threat("T33")
def test_a_folder_that_others_can_read_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.mkdir(mode=0o755)
    assert state_dir({"RINGFENCE_STATE_DIR": str(path)}) == path
    assert path.stat().st_mode & 0o777 == 0o700


@pytest.mark.threat("T33")
def test_places_that_somebody_else_could_reach_into_are_refused(tmp_path: Path) -> None:
    def refused(path: Path, part: str) -> None:
        with pytest.raises(PlaceError) as caught:
            state_dir({"RINGFENCE_STATE_DIR": str(path)})
        assert part in str(caught.value.problem)
        assert "RINGFENCE_STATE_DIR" in caught.value.problem.fix

    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    refused(tmp_path / "open", "every user may write to it")
    refused(tmp_path / "open/inner", "every user may rename")
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    refused(tmp_path / "link", "symbolic link")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    refused(tmp_path / "dangling", "is not a folder")
    (tmp_path / "file").write_text("")
    refused(tmp_path / "file", "is not a folder")
    refused(tmp_path / "file/below", "is not a folder")
    refused(tmp_path / ("x" * 300), "file name too long")


@pytest.mark.threat("T33")
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state"
    path.mkdir(mode=0o700)
    foreign(path, monkeypatch)
    with pytest.raises(PlaceError) as caught:
        state_dir({"RINGFENCE_STATE_DIR": str(path)})
    assert "another user" in caught.value.problem.why


def test_a_broken_repository_file_stops_a_person_and_is_a_notice_when_nobody_is_there(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / ".ringfence").mkdir()
    (project / ".ringfence" / "config.toml").write_text("orig")
    environ = {"HOME": str(tmp_path / "home")}
    with pytest.raises(ConfigError) as raised:
        load(project, environ)
    assert "config.toml:1" in raised.value.problem.what
    (notice,) = load(project, environ, unattended=True).notices
    assert "config.toml:1" in notice
    assert "ignored" in notice


def test_the_providers_that_settings_know_are_those_that_there_are() -> None:
    assert tuple(PROVIDERS) == KNOWN
    assert tuple(name for name, found in PROVIDERS.items() if isinstance(found, Remote)) == REMOTE


# --- rules ------------------------------------------------------------------------------------------------------------

ALLOW = '[[rule]]\nverdict = "allow"\nrun = ["npm", "test"]\n'
DENY = '[[rule]]\nverdict = "deny"\nrun = ["npm", "publish"]\nwhy = "by hand"\n'


def test_rules_come_from_all_files_with_file_line_and_layer(machine: Machine) -> None:
    user, named = machine.user(f"\n{ALLOW}"), machine.named(f"\n\n{DENY}{ALLOW}")
    repository = machine.repository(DENY)
    found = load(machine.project, machine.environ, config=named).profile.permissions
    assert [(rule.verdict, str(rule.ref), rule.layer) for rule in found] == [
        (Ruling.ALLOW, f"{user}:2", Layer.USER),
        (Ruling.DENY, f"{repository}:1", Layer.REPOSITORY),
        (Ruling.DENY, f"{named}:3", Layer.NAMED),
        (Ruling.ALLOW, f"{named}:7", Layer.NAMED),
    ]


@pytest.mark.threat("T23")
@pytest.mark.parametrize("unattended", [False, True])
def test_the_repository_may_ask_and_deny_and_never_allow(machine: Machine, unattended: bool) -> None:
    path = machine.repository(f"{DENY}{ALLOW}{DENY.replace('deny', 'ask')}")
    settings = load(machine.project, machine.environ, unattended=unattended)
    assert [rule.verdict for rule in settings.profile.permissions] == [Ruling.DENY, Ruling.ASK]
    assert settings.notices == (
        f"{path}:5: `[[rule]]` is ignored: a rule of the repository may ask and deny, but not allow",
    )


@pytest.mark.threat("T51")
@pytest.mark.parametrize("layer", ["user", "repository", "named"])
def test_a_rule_that_can_never_take_effect_stops_the_program(machine: Machine, layer: str) -> None:
    path: Path = getattr(machine, layer)('mode = "plan"\n[[rule]]\nverdict = "deny"\nrun = ["git push"]\nwhy = "x"\n')
    with pytest.raises(ConfigError) as caught:
        load(machine.project, machine.environ, config=path if layer == "named" else None)
    assert caught.value.problem.what == f"{path}:2: `[[rule]]` can never take effect"
    assert 'run = ["git", "push"]' in caught.value.problem.fix


@pytest.mark.threat("T51")
def test_a_rule_that_is_over_is_told(machine: Machine) -> None:
    path = machine.user(f"{ALLOW}until = 2020-01-31\n{DENY}until = 9999-12-31\n")
    settings = load(machine.project, machine.environ)
    assert settings.notices == (f"{path}:1: the rule expired: its last day was 2020-01-31",)
    assert gather(str(machine.project), machine.environ, settings.profile).today is not None


def test_rules_are_bounded(machine: Machine) -> None:
    machine.repository(DENY * 1001)
    with pytest.raises(ConfigError, match="at most 1000 rules"):
        load(machine.project, machine.environ)


# --- layers and trust -------------------------------------------------------------------------------------------------


def digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def test_every_layer_has_its_place(machine: Machine, tmp_path: Path) -> None:
    system = tmp_path / "etc/config.toml"
    system.parent.mkdir()
    system.write_text('mode = "plan"\nmax_turns = 1\nmodel = "openai:system"\n[limits]\nwall = 1\ncpu = 1\n')
    if os.geteuid() != 0:
        pytest.skip("the system's file belongs to root")
    user = machine.user('mode = "trust-project"\nmax_turns = 40\nmodel = "openai:user"\n[limits]\nwall = 50\n')
    machine.repository("max_turns = 30\n[limits]\nwall = 40\n")
    local = machine.project / ".ringfence/config.local.toml"
    local.write_text("[limits]\nwall = 30\n")
    settings = load(machine.project, machine.environ | {"RINGFENCE_MODE": "default"}, system=system)
    assert (settings.mode, settings.model, settings.max_turns) == (Mode.DEFAULT, "openai:user", 30)
    assert (settings.profile.limits.wall, settings.profile.limits.cpu) == (30, 1)
    places = {".".join(path): [str(place) for place in found] for path, found in origins(settings).items()}
    assert places["mode"] == ["the default", f"{system}:1", f"{user}:1", "RINGFENCE_MODE"]
    assert places["limits.wall"][0].startswith("profiles/default.toml:")
    assert places["limits.wall"][1:] == [
        f"{system}:5",
        f"{user}:5",
        f"{machine.project}/.ringfence/config.toml:3",
        f"{local}:2",
    ]


@pytest.mark.threat("T23")
def test_trusted_content_widens_and_one_byte_more_does_not(machine: Machine) -> None:
    path = machine.repository(f'mode = "trust-project"\nmodel = "openai:y"\n[limits]\nwall = 3000\n{ALLOW}')
    trusted = {".ringfence/config.toml": digest(path)}
    settings = load(machine.project, machine.environ, trusted=trusted)
    assert (settings.mode, settings.model, settings.profile.limits.wall) == (Mode.TRUST_PROJECT, "openai:y", 3000)
    assert [(rule.verdict, rule.layer) for rule in settings.profile.permissions] == [(Ruling.ALLOW, Layer.TRUSTED)]
    assert settings.notices == ()
    path.write_text(path.read_text() + "\n")
    changed = load(machine.project, machine.environ, trusted=trusted)
    assert (changed.mode, changed.model, changed.profile.limits.wall, changed.profile.permissions) == (
        None,
        None,
        120,
        (),
    )
    assert len(changed.notices) == 4
    other = {".ringfence/config.local.toml": digest(path), "config.toml": digest(path)}
    assert load(machine.project, machine.environ, trusted=other).mode is None, "trust in another file is none in this"


@pytest.mark.threat("T23")
def test_turns_that_nobody_chose_are_not_raised_by_the_repository(machine: Machine) -> None:
    path = machine.repository("max_turns = 5000")
    settings = load(machine.project, machine.environ)
    assert settings.max_turns is None
    assert settings.notices[0].startswith(f"{path}:1: `max_turns` is ignored")
    assert key_of(("max_turns",)).default == RunLimits().turns, "the table says what holds"


# --- formats ----------------------------------------------------------------------------------------------------------

FORMATS = [
    # text, open files, complaint, why
    ("[limits]\nopen-files = 7", 7, None, "from before there were numbers"),
    ("[limits]\nopen_files = 7", 7, None, "nobody has to write the number"),
    ("version = 1\n[limits]\nopen_files = 7", 7, None, "of today"),
    ("version = 1\n[limits]\nopen-files = 7", None, ":3: `limits.open-files` cannot be used: there is no such key; did you mean `limits.open_files`?", "the new format has the new name"),
    ("[limits]\nopen-files = 7\nopen_files = 8", None, ":2: `limits.open-files` cannot be used", "both"),
    ("[limits]\n\nopen-files = 'x'", None, ":3: `limits.open-files` cannot be used: it must be a whole number", "the name as it was written, and its line"),
    ("version = 2\nnew = 1", None, ":1: `version` cannot be used: it was written for a newer ringfence", "nothing else is complained about"),
    ("[[rule]]\nnew = 1\n[limits]\nx = 1", None, "`rule.new`", "not newer, so complained about"),
    ("version = 0", None, "`version` cannot be used: it must be a whole number above 0", "no format"),
    ("version = true", None, "`version` cannot be used", "a switch"),
    ("version = '1'", None, "`version` cannot be used", "a text"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "found", "complaint", "why"), FORMATS)
def test_formats_old_and_new(machine: Machine, text: str, found: int | None, complaint: str | None, why: str) -> None:
    machine.user(text)
    if complaint is None:
        assert load(machine.project, machine.environ).profile.limits.open_files == found, why
    else:
        with pytest.raises(ConfigError) as caught:
            load(machine.project, machine.environ)
        assert complaint in str(caught.value.problem), why


READABLE = [
    (b"\xef\xbb\xbfmode = 'plan'\r\nmax_turns = 3\r\n", None, "a mark of UTF-8, and the line ends of Windows"),
    ("mode = 'plan'".encode("utf-16"), "line 1 is not UTF-8 text", "another coding"),
    (b"mode = 'plan'\rmax_turns = 3", "not valid TOML", "the line ends of an old Mac"),
    (b"mode = 'plan'\0", "not valid TOML", "a zero byte"),
    (b"mode = 'plan'\nmode = 'default'\n", ":2 cannot be read", "a key twice"),
    (b"[limits]\nwall = 3\n[limits]\ncpu = 3\n", ":3 cannot be read", "a table twice"),
    (b"[limits]\nwall = nan\n", "a number of seconds", "no number"),
    (b"[limits]\nwall = inf\n", "a number of seconds", "endless"),
    (b"[limits]\nwall = true\n", "a number of seconds", "a switch is no number"),
    (b"max_turns = 2024-01-01\n", "a whole number", "a date"),
    (b"mode = 2024-01-01T00:00:00Z\n", "a text in quotes", "a moment"),
    (b"mode = {}\n", "a text in quotes", "a table"),
    (b"limits = {wall = 5}\n", None, "a table on one line"),
    (b"limits.wall = 5\n", None, "a table with dots"),
    (b"limits = [1]\n", "it is a table of settings", "a list for a table"),
    (b"rule = {}\n", "write `[[rule]]`", "one table for a list of them"),
    (b"[sandbox]\nunix_sockets = 1\n", "write `unix_sockets = true`", "a number for a switch"),
    (b"max_turns = " + b"9" * 5000, "a number in it is too long", "a number of 5,000 digits"),
    (b"mode = " + b"[" * 5000, "nested too deeply", "deep"),
    (b"".join(b"k%d = 1\n" % number for number in range(10_000)), ":1: `k0` cannot be used", "10,000 keys"),
]  # fmt: skip


@pytest.mark.threat("T44")
@pytest.mark.parametrize(("data", "complaint", "why"), READABLE, ids=[row[2] for row in READABLE])
@pytest.mark.parametrize("layer", ["user", "repository"])
def test_odd_files(machine: Machine, data: bytes, complaint: str | None, why: str, layer: str) -> None:
    path: Path = getattr(machine, layer)("")
    path.write_bytes(data)
    if complaint is None:
        assert load(machine.project, machine.environ).sources[-1] == str(path), why
        return
    with pytest.raises(ConfigError) as caught:
        load(machine.project, machine.environ)
    assert complaint in str(caught.value.problem), why
    assert len(str(caught.value.problem)) < 2000, why
    if layer == "repository":
        (notice,) = load(machine.project, machine.environ, unattended=True).notices
        assert "ignored" in notice


@pytest.mark.threat("T33")
def test_nobody_else_can_put_a_file_into_the_place_of_the_users(machine: Machine) -> None:
    path = machine.user("mode = 'plan'")
    path.parent.chmod(0o777)
    with pytest.raises(ConfigError, match="every user may replace it, because its folder is writable"):
        load(machine.project, machine.environ)
    path.parent.chmod(0o1777)
    assert load(machine.project, machine.environ).mode is Mode.PLAN, "as in /tmp: nobody else's can replace it"


@pytest.mark.threat("T33")
@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
@pytest.mark.parametrize(
    ("mode", "owner", "group", "complaint"),
    [
        (0o644, 0, 0, None),
        (0o664, 0, 0, None),
        (0o646, 0, 0, "every user may write to it"),
        (0o664, 0, 100, "a group may write to it (gid 100)"),
        (0o644, 65534, 0, "it belongs to another user (uid 65534)"),
    ],
)
def test_the_systems_file_is_roots(
    machine: Machine, tmp_path: Path, mode: int, owner: int, group: int, complaint: str | None
) -> None:
    path = tmp_path / "config.toml"
    path.write_text("mode = 'plan'")
    os.chown(path, owner, group)
    path.chmod(mode)
    if complaint is None:
        assert load(machine.project, machine.environ, system=path).mode is Mode.PLAN
        return
    for unattended in (False, True):
        with pytest.raises(ConfigError) as caught:
            load(machine.project, machine.environ, system=path, unattended=unattended)
        assert caught.value.problem.why == complaint


@pytest.mark.threat("T23")
@pytest.mark.parametrize("name", ["config.toml", "config.local.toml"])
def test_a_folder_that_is_a_link_is_refused_for_a_person_and_ignored_with_a_word_otherwise(
    machine: Machine, tmp_path: Path, name: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / name).write_text("mode = 'plan'")
    (machine.project / ".ringfence").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="its folder is a link"):
        load(machine.project, machine.environ)
    settings = load(machine.project, machine.environ, unattended=True)
    assert settings.mode is None
    assert {notice.rpartition(": ")[2] for notice in settings.notices} == {
        "its folder is a link; the configuration of the repository is ignored"
    }


DEEP = ".".join("a" * 17)
DEEP_KEYS = [
    # text, line (None: none is too deep), why
    (f"{DEEP} = 1", 1, "plain"),
    (f"\n[{DEEP}]", 2, "a table"),
    (f"[[{DEEP}]]", 1, "a list"),
    (f"x = {{{DEEP} = 1}}", 1, "in a table on one line"),
    (f"x = {{y = [1, 2], {DEEP} = 1}}", 1, "behind other values"),
    (" . ".join(["a"] * 17) + " = 1", 1, "with blanks"),
    ('"a,=".' * 16 + "a = 1", 1, "with separators in quotes"),
    ("'#'." * 16 + "a = 1", 1, "with signs of a comment in quotes"),
    ('x = {y = "\\"", ' + DEEP + " = 1}", 1, "behind a quote that does not end a text"),
    ("x = {y = '\\', " + DEEP + " = 1}", 1, "behind a backslash that is none"),
    (f'x = {{y = """\n""", {DEEP} = 1}}', 2, "behind a text of several lines"),
    (f"x = {{y = '''\n\"''', {DEEP} = 1}}", 2, "behind another one"),
    (f'x = {{y = """\n" # """, {DEEP} = 1}}', 2, "behind one that looks like a comment"),
    (f"# {DEEP}", None, "a comment"),
    (f"x = '{DEEP}' # {DEEP}", None, "a text"),
    (f'x = "..................\\"{DEEP}"', None, "a text with dots and quotes"),
    ("x = [" + "1.5, " * 40 + "]", None, "numbers"),
    ("x = [" + "'a.org', " * 40 + "]", None, "hosts"),
    (".".join("a" * 16) + " = 1", None, "as deep as can be"),
]  # fmt: skip


@pytest.mark.threat("T23")
@pytest.mark.parametrize(("text", "line", "why"), DEEP_KEYS, ids=[row[2] for row in DEEP_KEYS])
def test_a_key_of_very_many_parts_is_refused_before_it_takes_hours(text: str, line: int | None, why: str) -> None:
    if line is None:
        tomllib.loads(text)
    assert too_deep(text) == line, why


@pytest.mark.threat("T23")
@pytest.mark.parametrize("unit", ["a.", "'a'.", "a . "])
def test_a_repository_cannot_stop_its_check_by_a_file_that_takes_hours(machine: Machine, unit: str) -> None:
    machine.repository(f"{unit * ((1 << 20) // len(unit) - 10)}a = 1")
    (notice,) = load(machine.project, machine.environ, unattended=True).notices
    assert ":1 cannot be read: a key has more than 16 parts" in notice
