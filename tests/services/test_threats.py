"""Tests of the security pages: threats, marks and tests agree in both directions, and the README shows real output."""

import importlib.util
import os
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from policy.model.tier import Mode
from runner.config.schema import VARIABLES
from runner.engine.context.context import tool_specs
from runner.problems import Exit
from sandbox.linux.backend import T3_LACKS
from tests.support.agent_program import AGENT
from tests.support.model_server import ModelServer, calling, serving
from tests.support.places import ROOT, TESTS
from tests.support.sandbox_bench import USERS
from tests.support.secret_service import harness
from tools import TOOLS

THREATS = (ROOT / "docs/security/threats.md").read_text("utf-8")
SECRETS = (ROOT / "docs/security/secrets.md").read_text("utf-8")
LIMITS = (ROOT / "docs/security/limits.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")
POLICY = (ROOT / "docs/reference/policy.md").read_text("utf-8")
CANARY = "sk-canary-8d1f07aa52c94e"

NAMED = re.compile(r"`(test_\w+)::(test_\w+)`")


@cache
def ids() -> list[str]:
    """Return the ids of the headings in docs/security/threats.md."""
    return re.findall(r"^## (T\d{2,}): ", THREATS, re.MULTILINE)


@cache
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_threat_tests", ROOT / "docs/make_threat_tests.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def marks() -> dict[tuple[str, str], set[str]]:
    """Return the threats of each collected test, by file stem and function name."""
    return dict(generator().marks(ROOT / "tests"))


def test_the_ids_are_in_order_without_a_gap() -> None:
    assert ids() == [f"T{number:02}" for number in range(1, len(ids()) + 1)]


def test_every_threat_states_the_threat_and_its_mitigation() -> None:
    parts = re.split(r"^## T\d+: .+\n", THREATS, flags=re.MULTILINE)[1:]
    assert [
        tid for tid, part in zip(ids(), parts, strict=True) if len(re.findall("^[*]{2}", part, re.MULTILINE)) != 2
    ] == []


def test_every_threat_has_a_marked_test_and_every_mark_a_threat() -> None:
    assert {tid for tids in marks().values() for tid in tids} == set(ids())


def test_the_page_of_the_tests_of_each_threat_is_current() -> None:
    page = (ROOT / "docs/security/threat-tests.md").read_text("utf-8")
    assert page == generator().threat_tests_page(ROOT / "tests"), "run `make docs`"
    assert re.findall(r"^## (T\d+)$", page, re.MULTILINE) == ids()


def test_every_place_of_a_secret_names_tests_that_exist() -> None:
    places = [line for line in SECRETS.splitlines() if line.startswith("| ") and "---" not in line][1:]
    assert len(places) >= 10
    for line in places:
        named = NAMED.findall(line)
        assert named, line
        assert set(named) <= set(marks()), line


def test_marks_stand_only_where_they_are_counted() -> None:
    """On a class, a helper or a nested function a mark would be counted by nobody."""
    for file in TESTS.rglob("*.py"):
        counted = sum(len(tids) for (name, _), tids in marks().items() if name == file.stem)
        assert len(re.findall(r"^\s*@pytest\.mark\.threat\(", file.read_text("utf-8"), re.MULTILINE)) == counted, file


def test_threats_that_the_code_names_are_in_the_table() -> None:
    found = {
        tid
        for package in ("policy", "sandbox", "tools", "runner")
        for file in (ROOT / package).rglob("*.py")
        for tid in re.findall(r"THREAT (T\d+)", file.read_text("utf-8"))
    }
    assert found
    assert found <= set(ids())


# ---- threats that are about the whole program -------------------------------------------------------------------------


@pytest.mark.threat("T19")
def test_what_t3_misses_is_listed() -> None:
    assert [lack for lack in T3_LACKS if f"- {lack}\n" not in LIMITS] == []


# fmt: off
ARGUMENTS = {
    "bash":  {"command", "timeout", "background", "pty", "description"},
    "bash_output": {"id", "pattern", "wait"},
    "bash_input":  {"id", "text", "close"},
    "bash_kill":   {"id", "signal"},
    "read":  {"path", "offset", "limit", "pages"},
    "write": {"path", "content"},
    "edit":  {"path", "old_string", "new_string", "replace_all"},
    "notebook_edit": {"path", "operation", "cell", "source", "cell_type"},
    "glob":  {"pattern", "path", "ignored"},
    "grep":  {"pattern", "path", "glob", "ignore_case", "files_only", "context", "limit"},
    "ls":    {"path"},
}
# fmt: on


@pytest.mark.threat("T47")
def test_no_tool_has_an_argument_for_the_gate() -> None:
    """Anyone who adds an argument comes by here: it must not choose mode, rights, paths to open, or the sandbox."""
    told = {spec.name: spec.schema for spec in tool_specs(TOOLS)}
    assert set(told) == set(ARGUMENTS)
    for name, schema in told.items():
        properties = schema["properties"]
        assert isinstance(properties, dict)
        assert set(properties) == ARGUMENTS[name]
        assert schema["additionalProperties"] is False, name


# The policy would refuse a shell script that reads these places, so it is code that nobody can see through.
LOOK_AROUND = """python3 -c '
import glob, os
print(dict(os.environ))
places = [*glob.glob("/proc/*/environ"), *glob.glob("/proc/*/cmdline")]
for top in (os.path.expanduser("~"), "/tmp", "/dev/shm", "/run", "."):
    places += [os.path.join(folder, name) for folder, _, names in os.walk(top) for name in names]
for place in places:
    try: print(place, open(place, "rb").read())
    except OSError as error: print(place, error)
print("looked")'
"""


@pytest.fixture
def model() -> Iterator[ModelServer]:
    """First it asks for a command that looks for the key, then it is done."""
    with serving(lambda turn, *_: calling(LOOK_AROUND) if turn == 1 else {"content": "done"}) as server:
        yield server


@pytest.mark.threat("T20")
def test_an_api_key_is_in_its_header_and_nowhere_else(model: ModelServer, tmp_path: Path) -> None:
    """A whole session, as a user runs it, whose command looks for the key wherever a command can look."""
    work = tmp_path / "work"
    work.mkdir()
    done = subprocess.run(
        [AGENT, "run", "--json", "--model", "openai:some-model", "--mode", "trust-project", "hello"],
        cwd=work,
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path / "home"),
            "RINGFENCE_STATE_DIR": str(tmp_path / "state"),
            "OPENAI_API_KEY": CANARY,
            "OPENAI_BASE_URL": model.url,
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "looked" in done.stdout
    assert "GIT_CONFIG_COUNT" in done.stdout, "the command did see an environment"
    assert CANARY not in done.stdout + done.stderr
    assert len(model.requests) == 2
    for headers, body in model.requests:
        assert headers.count(CANARY) == 1
        assert f"authorization: Bearer {CANARY}\n" in headers
        assert CANARY.encode() not in body
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "audit.db" for path in kept)
    assert [path for path in kept if CANARY.encode() in path.read_bytes()] == []


# ---- what the README and the pages show ------------------------------------------------------------------------------


def test_the_matrix_in_the_page_about_the_policy_is_the_matrix() -> None:
    assert (ROOT / "tests/golden/matrix.txt").read_text("utf-8").partition("\n\n")[0] in POLICY


def test_the_exit_codes_in_their_page_are_the_exit_codes() -> None:
    page = (ROOT / "docs/reference/exit-codes.md").read_text("utf-8")
    told = {int(code) for code in re.findall(r"^\| (\d+) \| ", page, re.MULTILINE)}
    assert told == {int(code) for code in Exit}


def test_every_mode_is_in_the_page_about_the_policy_and_every_variable_in_its_page() -> None:
    page = (ROOT / "docs/reference/configuration.md").read_text("utf-8")
    assert [name for name in VARIABLES if f"`{name}`" not in page] == []
    assert [mode for mode in Mode if f"| `{mode.value}` |" not in POLICY] == []


CLONED = """\
mode = "trust-project"

[[rule]]
verdict = "allow"
run = ["npm", "test"]
why = "the tests are ours"
"""
TIDY = """\
[[turn]]
calls = [{ name = "bash", arguments = { command = "mv calc.py sums.py" } }]
[[turn]]
text = "done"
"""
# Pages whose samples need this repository, a keyring and programs; test_docs runs those of the others.
SAMPLES = ("guide/one-command", "guide/undo", "guide/credentials", "reference/grants", "guide/trust")
PAGES = (README, *((ROOT / f"docs/{name}.md").read_text("utf-8") for name in SAMPLES))
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)


def shown() -> list[tuple[str, list[str]]]:
    """Each command of the console blocks, with the lines that it is said to print."""
    found: list[tuple[str, list[str]]] = []
    for block in (block for page in PAGES for block in CONSOLE.findall(page)):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif line.strip() not in ("", "…"):  # an ellipsis marks lines that were left out
                found[-1][1].append(line)
    return found


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """The small repository that the README's samples were made in, on a machine with a keyring and with `pass`."""
    base = tmp_path_factory.mktemp("readme")
    work, home = base / "work", base / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/id_rsa").write_text("decoy")
    work.mkdir()
    (work / "calc.py").write_text("def add(a, b):\n    return a + b\n")
    (work / ".env").write_text("TOKEN=decoy\n")
    (home / "tidy.toml").write_text(TIDY)
    (home / "cloned/.ringfence").mkdir(parents=True)
    (home / "cloned/.ringfence/config.toml").write_text(CLONED)
    (home / "cloned/AGENTS.md").write_text("# Shop\n\nRun `make test` before you commit.\n")
    (home / "cloned/.mcp.json").write_text('{"mcpServers": {"db": {"command": "npx", "args": ["-y", "db-server"]}}}\n')
    (home / "bin").mkdir()
    (home / "bin/pass").write_text(f"#!/bin/sh\necho {CANARY}\n")
    (home / "bin/pass").chmod(0o755)
    path = f"{Path(AGENT).parent}:{home}/bin:/usr/bin:/bin"
    environ = {"PATH": path, "HOME": str(home), "RINGFENCE_STATE_DIR": str(base / "s")}
    who = {f"GIT_{role}_{field}": "n@e" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")}
    when = {"GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z"}
    for words in (["init", "-q"], ["add", "calc.py"], ["commit", "-qm", "Add up"]):
        subprocess.run(["git", *words], cwd=work, env={**os.environ, **environ, **who, **when}, check=True)
    with harness(USERS[0]) as keys, keys.secret_service():
        environ["DBUS_SESSION_BUS_ADDRESS"] = keys.environ["DBUS_SESSION_BUS_ADDRESS"]
        yield work, environ


def plain(line: str) -> str:
    """Return the line without the line numbers of rules, dates, times and hashes, which differ between runs."""
    line = re.sub(r"(\.toml|command:[\w-]+):\d+", r"\1:N", line.rstrip())
    line = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "DATE", line)
    return re.sub(r"\d+\.\d\d s|\b[0-9a-f]{7,64}\b", "X", line)


@pytest.mark.parametrize(("command", "lines"), shown(), ids=[command for command, _ in shown()])
def test_the_readme_and_these_pages_show_what_is_printed(
    project: tuple[Path, dict[str, str]], command: str, lines: list[str]
) -> None:
    work, environ = project
    assert command.startswith("agent "), "samples are run, so they start with our own command"
    done = subprocess.run(
        ["/bin/bash", "-c", command],
        cwd=work,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    printed = iter(plain(line) for line in done.stdout.splitlines())
    for line in lines:
        assert plain(line) in printed, (line, done.stdout)  # `in` moves on, so the order counts too
