"""Tests of `agent config` and `agent init` with real processes and real files."""

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest

from runner.config.schema import KEYS
from tests.support import forked_agent
from tests.support.agent_program import AGENT
from tests.support.terminal import Terminal


class Here:
    def __init__(self, top: Path) -> None:
        self.home, self.project = top / "home", top / "project"
        self.home.mkdir()
        (self.project / ".git").mkdir(parents=True)
        self.user = self.home / ".config/ringfence/config.toml"
        self.shared = self.project / ".ringfence/config.toml"
        self.local = self.project / ".ringfence/config.local.toml"

    def write(self, path: Path, text: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def agent(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        environ = {**self.environ, **more}
        return forked_agent.run(
            [AGENT, *words], cwd=self.project, env=environ, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )

    @property
    def environ(self) -> dict[str, str]:
        return {"HOME": str(self.home), "PATH": os.environ["PATH"]}


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


# --- show -------------------------------------------------------------------------------------------------------------


def test_every_value_is_shown_with_its_place_and_what_it_overrides(here: Here) -> None:
    here.write(here.user, 'mode = "accept-edits"\n\n[limits]\nwall = 300\n[secret]\nnames = ["*.vault"]\n')
    here.write(
        here.shared, '[limits]\nwall = 200\ncpu = 99999\n[[rule]]\nverdict = "deny"\nrun = ["git", "push"]\nwhy = "x"\n'
    )
    done = here.agent("config", "show", "--effective", "--limit", "pids=7", RINGFENCE_MODE="plan")
    assert done.returncode == 0, done.stderr
    rows = [" ".join(line.split()) for line in done.stdout.split("\n")]
    for wanted in (
        'mode = "plan" environment RINGFENCE_MODE',
        'overrides "accept-edits" user ~/.config/ringfence/config.toml:1',
        'overrides "default" packaged the default',
        "limits.wall = 200 project .ringfence/config.toml:2",
        "overrides 300 user ~/.config/ringfence/config.toml:4",
        "ignores 99999 project .ringfence/config.toml:3",
        "limits.pids = 7 flags --limit",
        'has ["*.vault"] user ~/.config/ringfence/config.toml:6',
        '[[rule]] verdict = "deny", run = ["git", "push"], why = "x" project .ringfence/config.toml:4',
        "# model is not set",
    ):
        assert wanted in rows, (wanted, done.stdout)
    assert any(row.startswith("overrides 120 packaged profiles/default.toml:") for row in rows)
    assert "limits.cpu" in done.stderr
    names = {key.name for key in KEYS if "*" not in key.name} - {"version"}
    assert names <= {word for row in rows for word in row.split()}, "every key is there"
    assert "…" not in done.stdout, "and every value, whole"


def test_at_a_terminal_a_long_value_leaves_room_for_its_place(here: Here) -> None:
    window = Terminal([AGENT, "config", "show", "secret", "--effective"], here.project, here.environ)
    try:
        window.until("profiles/default.toml:")
        assert window.end() == 0
        assert "…  packaged" in window.seen
    finally:
        window.close()


def test_without_places_it_is_a_file_that_says_the_same(here: Here) -> None:
    here.write(here.user, 'mode = "plan"\n[price."openai:m"]\ninput = 3\n[[rule]]\nverdict = "deny"\nrun = ["git", ["push", "pull"]]\nwhy = "x"\n')  # fmt: skip
    shown = here.agent("config", "show").stdout
    again = here.write(here.home / "again.toml", shown)
    assert here.agent("config", "check", str(again)).returncode == 0, shown
    here.user.unlink()
    here.user.write_text(shown)
    assert here.agent("config", "show").stdout == shown


def test_one_key_alone_is_for_scripts(here: Here) -> None:
    here.write(here.user, 'mode = "plan"\n')
    assert here.agent("config", "show", "mode").stdout == "plan\n"
    assert here.agent("config", "show", "limits.open_files").stdout == "4096\n"
    missing = here.agent("config", "show", "model")
    assert (missing.returncode, missing.stdout, missing.stderr) == (1, "", "")
    part = here.agent("config", "show", "sandbox.container")
    assert part.stdout.count("\n") == 3
    wrong = here.agent("config", "show", "limits.wal")
    assert (wrong.returncode, "did you mean `limits.wall`?" in wrong.stderr) == (2, True)
    assert here.agent("config", "show", "rule").returncode == 0
    assert here.agent("config", "show", "price").stdout == "# price has no entries\n", "a table of named rows"


def test_json_has_it_all(here: Here) -> None:
    here.write(here.user, 'mode = "plan"\n[limits]\nwall = 3\n')
    here.write(here.shared, 'mode = "dangerously"\n[[rule]]\nverdict = "ask"\nrun = ["ls"]\nwhy = "x"\n')
    found = json.loads(here.agent("config", "show", "--json").stdout)
    mode = found["values"]["mode"]
    assert mode["value"] == "plan"
    assert mode["from"] == [{"layer": "user", "source": str(here.user), "line": 1, "value": "plan"}]
    assert [each["value"] for each in mode["overridden"]] == ["default"]
    assert [each["layer"] for each in mode["ignored"]] == ["project"]
    assert found["lists"][0] | {"values": 0} == {
        "list": "rule",
        "layer": "project",
        "file": str(here.shared),
        "line": 2,
        "values": 0,
    }
    assert found["notices"]


def test_nothing_shown_can_drive_a_terminal(here: Here) -> None:
    here.write(here.user, 'model = "openai:\\u001b[31mred\\u202e"\n[secret]\nnames = ["\\u0007*.x"]\n')
    for words in (["show"], ["show", "--effective"], ["show", "model"], ["check"]):
        done = here.agent("config", *words)
        assert "\x1b" not in done.stdout + done.stderr
        assert "\u202e" not in done.stdout + done.stderr


# --- check ------------------------------------------------------------------------------------------------------------


def test_every_fault_of_every_layer_is_told_at_once(here: Here) -> None:
    here.write(
        here.user,
        'mdoe = "plan"\nmax_turns = 0\n[limits]\nwal = 3\nmemory = "lots"\n[sandbox]\nminimum = "none"\n'
        "[compaction]\ntrim = 90\n",
    )
    here.write(
        here.shared,
        '[[rule]]\nverdict = "dney"\nrun = ["x"]\n\n[[rule]]\nverdict = "deny"\nrun = ["git push"]\nwhy = "x"\n',
    )
    here.write(here.local, "mode = \n")
    done = here.agent("config", "check", RINGFENCE_MODE="never", RINGFENCE_LIMT_CPU="3")
    assert done.returncode == 2
    told = done.stdout.split("\n")
    for place, part in (
        (f"{here.user}:1", "did you mean `mode`?"),
        (f"{here.user}:2", "whole number above 0"),
        (f"{here.user}:4", "did you mean `limits.wall`?"),
        (f"{here.user}:5", "512 MiB"),
        (f"{here.user}:7", "write `full` or `partial`"),
        (f"{here.user}:9", "`one_line`, which removes more text, already begins at 80"),
        (f"{here.shared}:2", "there is no verdict `dney`"),
        (f"{here.shared}:5", "can never take effect"),
        (f"{here.local}:1", "TOML"),
        ("RINGFENCE_MODE", "there is no mode `never`"),
        ("RINGFENCE_LIMT_CPU", "did you mean `RINGFENCE_LIMIT_CPU`?"),
    ):
        assert any(line.startswith(place) and part in line for line in told), (place, part, done.stdout)
    assert told[-2].endswith("11 faults")
    faults = json.loads(here.agent("config", "check", "--json", RINGFENCE_MODE="never").stdout)["faults"]
    assert {"file": str(here.user), "line": 1} in [{key: each[key] for key in ("file", "line")} for each in faults]
    assert len(faults) == 10


def test_a_whole_configuration_is_said_to_be_so(here: Here, tmp_path: Path) -> None:
    assert here.agent("config", "check").stdout == "no configuration file: no faults\n"
    here.write(here.shared, "mode = 'dangerously'\n")
    done = here.agent("config", "check")
    assert done.returncode == 0, "what is ignored is no fault"
    assert f"notice: {here.shared}:1: `mode` is ignored" in done.stdout
    assert done.stdout.endswith(f"{here.shared}: no faults, but 1 entry has no effect\n")
    alone = here.agent("config", "check", str(here.shared))
    assert (alone.returncode, "notice" in alone.stdout) == (0, False), "trusted, it would be in force"
    assert alone.stdout == f"{here.shared}: no faults\n"
    never = 'auth.openai.account = "x"\nauth.openai.helper = ["cat"]\n'
    for path, said in ((here.shared, "no faults, but 2 entries have no effect"), (here.user, "no faults")):
        here.write(path, never)
        alone = here.agent("config", "check", str(path))
        assert (alone.returncode, alone.stdout.endswith(f"{path}: {said}\n")) == (0, True), alone.stdout
        assert alone.stdout.count("no repository may set it, even if it is trusted") == (
            2 if path == here.shared else 0
        )
    assert here.agent("config", "check", str(tmp_path / "missing")).returncode == 2


ODD = [
    (b"\xff\xfe", "is not UTF-8"),
    (b"#" * (1 << 20) + b"\n", "longer than 1 MiB"),
    (b"".join(b"k%d = 1\n" % number for number in range(10_000)), "only the first 100 faults are listed"),
    (b"".join(b"[limits.x%d]\n" % number for number in range(10_000)), "only the first 100 faults are listed"),
    (b"[[rule]]\n" * 2000, "only the first 100 faults are listed"),
    (b"x = " + b"[" * 4000, "nested too deeply"),
    (b"version = 99\nx = 1\n", ":1: `version` cannot be used: it was written for a newer ringfence"),
]


@pytest.mark.threat("T44")
@pytest.mark.parametrize(("data", "part"), ODD, ids=[row[1] for row in ODD])
def test_odd_files_are_told_in_a_bounded_way(here: Here, data: bytes, part: str) -> None:
    here.write(here.user, "").write_bytes(data)
    done = here.agent("config", "check")
    assert done.returncode == 2, done.stdout
    assert part in done.stdout
    assert done.stdout.count("\n") <= 103
    assert "Traceback" not in done.stderr


# --- path, schema -----------------------------------------------------------------------------------------------------


def test_paths_are_named_there_or_not(here: Here) -> None:
    here.write(here.shared, "")
    rows = [line.split() for line in here.agent("config", "path").stdout.splitlines()]
    assert rows[0][:2] == ["system", "/etc/ringfence/config.toml"]
    assert rows[1:] == [
        ["user", str(here.user), "(does", "not", "exist)"],
        ["project", str(here.shared)],
        ["local", str(here.local), "(does", "not", "exist)"],
    ]
    found = json.loads(here.agent("config", "path", "--json").stdout)
    assert found["project"] == {"path": str(here.shared), "there": True}


def test_the_schema_is_printed(here: Here) -> None:
    assert json.loads(here.agent("config", "schema").stdout)["additionalProperties"] is False


# --- init -------------------------------------------------------------------------------------------------------------


def test_a_project_is_given_a_file_to_begin_with(here: Here) -> None:
    done = here.agent("init")
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        ".ringfence/config.toml: written; edit it, then run `agent config check`\n",
        "",
    )
    assert here.shared.read_text().startswith("#:schema ./config.schema.json\n")
    assert json.loads((here.shared.parent / "config.schema.json").read_text())
    assert (here.shared.parent / ".gitignore").read_text() == "config.local.toml\n"
    assert here.agent("config", "check").returncode == 0
    assert here.agent("config", "show", "mode").stdout == "default\n", "nothing in it is in force"
    here.shared.write_text("mode = 'plan'\n")
    again = here.agent("init")
    assert (again.returncode, "exists already" in again.stderr) == (2, True)
    assert here.shared.read_text() == "mode = 'plan'\n", "never overwritten"
    assert here.agent("init", "--force").returncode == 0
    assert "mode = 'plan'" not in here.shared.read_text()
    assert (here.shared.parent / ".gitignore").read_text() == "config.local.toml\n", "said once"
    assert sorted(each.name for each in here.shared.parent.iterdir()) == [
        ".gitignore",
        "config.schema.json",
        "config.toml",
    ]


def test_a_person_is_given_one_that_only_they_can_read(here: Here) -> None:
    assert here.agent("init", "--user").returncode == 0
    assert stat.S_IMODE(here.user.stat().st_mode) == 0o600
    assert stat.S_IMODE(here.user.parent.stat().st_mode) == 0o700
    assert "# model = " in here.user.read_text()
    assert not here.shared.exists()


@pytest.mark.threat("T23")
@pytest.mark.parametrize(
    "linked", [".ringfence", ".ringfence/config.toml", ".ringfence/.gitignore", ".ringfence/config.schema.json"]
)
@pytest.mark.parametrize("words", [["init"], ["init", "--force"]])
def test_nothing_is_written_through_a_link_of_the_repository(
    here: Here, tmp_path: Path, linked: str, words: list[str]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    target = outside / "file"
    target.write_text("mine\n")
    (here.project / linked).parent.mkdir(exist_ok=True)
    (here.project / linked).symlink_to(outside if linked == ".ringfence" else target)
    done = here.agent(*words)
    assert done.returncode == 2, done.stdout
    assert "it is a link" in done.stderr
    assert target.read_text() == "mine\n"
    assert list(outside.iterdir()) == [target]


# --- set, unset, migrate ----------------------------------------------------------------------------------------------


def test_a_key_is_set_where_a_reader_expects_it_and_comments_stay(here: Here) -> None:
    assert here.agent("init", "--user").returncode == 0
    before = here.user.read_text().split("\n")
    done = here.agent("config", "set", "mode", "plan")
    assert (done.returncode, done.stderr) == (0, "")
    line = before.index('# mode = "default"') + 2
    assert done.stdout == f'~/.config/ringfence/config.toml:{line}: mode = "plan"\n'
    assert here.agent("config", "set", "limits.memory", "2GiB").returncode == 0
    assert here.agent("config", "set", "secret.names", "*.vault", "*.kdbx").returncode == 0
    after = here.user.read_text().split("\n")
    assert [row for row in after if row not in before] == [
        'mode = "plan"',
        'names = ["*.vault", "*.kdbx"]',
        'memory = "2GiB"',
    ]
    assert [row for row in after if row in before] == before
    assert here.agent("config", "unset", "mode").returncode == 0
    assert here.agent("config", "show", "mode").stdout == "default\n"
    assert stat.S_IMODE(here.user.stat().st_mode) == 0o600, "as it was"


SETS = [
    # text, words, text then, why
    ("", ["mode", "plan"], 'mode = "plan"\n', "into nothing"),
    ("# mine\n\n[limits]\nwall = 3 # short\n", ["mode", "plan"], '# mine\nmode = "plan"\n\n[limits]\nwall = 3 # short\n', "above the tables"),
    ("[limits]\nwall = 3 # short\n", ["limits.wall", "4"], "[limits]\nwall = 4 # short\n", "its comment stays"),
    ("limits = {wall = 3}\n", ["limits.cpu", "4"], "limits = {wall = 3,cpu = 4}\n", "in a table on one line"),
    ("limits.wall = 3\n", ["limits.wall", "4"], "limits.wall = 4\n", "with dots"),
    ("mode = 'trust'\n", ["mode", "plan"], 'mode = "plan"\n', "what was wrong can be fixed"),
    ("mode = 'plan'\r\n[limits]\r\nwall = 3\r\n", ["limits.cpu", "4"], "mode = 'plan'\r\n[limits]\r\ncpu = 4\r\nwall = 3\r\n", "line ends of Windows"),
    ("[[rule]]\nverdict = 'ask'\nrun = ['ls']\nwhy = 'x'\n", ["max_turns", "3"], "max_turns = 3\n[[rule]]\nverdict = 'ask'\nrun = ['ls']\nwhy = 'x'\n", "above a list"),
    ("", ["deny.commands", '[["make", "x"]]'], '[deny]\ncommands = [["make", "x"]]\n', "TOML for a list of lists"),
    ("", ["limits.wall", "90s"], '[limits]\nwall = "90s"\n', "a time, as `--limit` takes it"),
    ("", ["provider.openai.model", '"x" # y'], '[provider.openai]\nmodel = "\\"x\\" # y"\n', "a text is a text"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words", "then", "why"), SETS, ids=[row[3] for row in SETS])
def test_setting_changes_one_key_and_nothing_else(here: Here, text: str, words: list[str], then: str, why: str) -> None:
    here.write(here.user, "").write_bytes(text.encode())
    done = here.agent("config", "set", *words)
    assert done.returncode == 0, done.stderr
    assert here.user.read_bytes().decode() == then, why


REFUSED = [
    (["mode", "trust"], "did you mean `trust-project`?"),
    (["limits.wall", "soon"], 'a text like "90s"'),
    (["limits.wal", "3"], "did you mean `limits.wall`?"),
    (["max_turns", "3", "4"], "a whole number"),
    (["sandbox.unix_sockets", "yes"], "true or false"),
    (["provider.openai.base_url", "https://u:p@h"], "secrets are not allowed here"),
    (["mode", "plan", "--project", "--local"], "omit one"),
    (["rule", "x"], "there is no key `rule`"),
]


@pytest.mark.parametrize(("words", "part"), REFUSED, ids=[" ".join(row[0]) for row in REFUSED])
def test_what_cannot_be_set_is_not_written(here: Here, words: list[str], part: str) -> None:
    here.write(here.user, "# mine\n")
    done = here.agent("config", "set", *words)
    assert (done.returncode, part in done.stderr) == (2, True), done.stderr
    assert here.user.read_text() == "# mine\n"


def test_setting_says_when_it_has_no_effect(here: Here) -> None:
    done = here.agent("config", "set", "mode", "plan", RINGFENCE_MODE="default")
    assert "RINGFENCE_MODE overrides this value" in done.stderr
    done = here.agent("config", "set", "limits.wall", "3000", "--project")
    assert "is ignored until you trust" in done.stderr
    here.write(here.shared, 'mode = "dangerously"\n')
    assert here.agent("config", "set", "mode", "plan").stderr == "", "the repository is ignored, and not what was set"
    assert here.agent("config", "set", "limits.wall", "3", "--local").returncode == 0
    assert (here.shared.parent / ".gitignore").read_text() == "config.local.toml\n", "it is for you alone"
    assert here.agent("config", "unset", "max_turns").returncode == 2, "nothing to take out is said"


def test_your_own_file_may_be_a_link_and_stays_one(here: Here, tmp_path: Path) -> None:
    real = here.write(tmp_path / "dotfiles/ringfence.toml", "# mine\n")
    here.user.parent.mkdir(parents=True, mode=0o700)
    here.user.symlink_to(real)
    assert here.agent("config", "set", "mode", "plan").returncode == 0
    assert here.user.is_symlink()
    assert real.read_text() == '# mine\nmode = "plan"\n'


def test_a_full_disk_loses_nothing(here: Here) -> None:
    here.write(here.user, "# mine\n" * 2000)
    command = f"ulimit -f 1; exec {AGENT} config set mode plan"
    environ = {"HOME": str(here.home), "PATH": os.environ["PATH"]}
    done = subprocess.run(["bash", "-c", command], cwd=here.project, env=environ, capture_output=True, text=True)
    assert done.returncode != 0
    assert here.user.read_text() == "# mine\n" * 2000
    assert [each.name for each in here.user.parent.iterdir()] == ["config.toml"], "nothing half written stays"


MIGRATED = [
    ("[limits]\nopen-files = 7 # few\n", "version = 1\n[limits]\nopen_files = 7 # few\n", "a key of before"),
    ("#:schema ./x.json\nmode = 'plan'\n", "#:schema ./x.json\nversion = 1\nmode = 'plan'\n", "the schema stays first"),
    ("limits.'open-files' = 7\n", "version = 1\nlimits.'open_files' = 7\n", "in quotes"),
    ("version = 1\nmode = 'plan'\n", "version = 1\nmode = 'plan'\n", "of today"),
]


@pytest.mark.parametrize(("text", "then", "why"), MIGRATED, ids=[row[2] for row in MIGRATED])
def test_older_files_are_rewritten_on_demand(here: Here, text: str, then: str, why: str) -> None:
    here.write(here.user, text)
    dry = here.agent("config", "migrate", "--dry-run")
    assert here.user.read_text() == text
    if text != then:
        assert dry.stdout == then
    assert here.agent("config", "migrate").returncode == 0
    assert here.user.read_text() == then, why
    assert here.agent("config", "check").returncode == 0
    assert "already in the current format" in here.agent("config", "migrate").stdout


def test_a_file_of_tomorrow_is_left_alone(here: Here) -> None:
    here.write(here.user, "version = 99\nlater = 3\n")
    done = here.agent("config", "migrate")
    assert (done.returncode, "written for a newer ringfence" in done.stderr) == (2, True), done.stderr
    assert here.user.read_text() == "version = 99\nlater = 3\n"
