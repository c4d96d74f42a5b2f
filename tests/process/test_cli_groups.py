"""Tests of command groups without a subcommand, which show their list or state, and of `agent config get`."""

import json
from pathlib import Path

import pytest

from tests.support.cli_harness import CliHarness


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> CliHarness:
    base = tmp_path_factory.mktemp("groups")
    made = CliHarness(base)
    made.work.mkdir()
    (base / "home").mkdir()
    return made


# fmt: off
GROUPS: list[tuple[str, str, int, str]] = [
    ("config",   "config show",     0, 'mode = "default"'),
    ("auth",     "auth status",     1, "anthropic: no key"),
    ("policy",   "policy matrix",   0, "trust-project"),
    ("sandbox",  "sandbox show",    0, "rights of commands that only read"),
    ("batch",    "",                0, "there is no batch in this folder; to run a list of tasks: agent batch TASKS"),
    ("audit key", "audit key show", 1, ""),
    ("grants",   "grants list",     0, "there are no grants for this folder"),
    ("guard",    "",                0, "not installed"),
    ("mcp",      "mcp list",        0, "there are no tool servers; `agent mcp add` configures one"),
    ("bundle",   "bundle list",     0, "there are no bundles; `agent bundle add SOURCE` adds one"),
    ("memory",   "memory list",     0, "there are no notes; `agent memory add TEXT` stores one"),
    ("sessions", "sessions list",   0, "there are no sessions of this workspace"),
]
# fmt: on


@pytest.mark.parametrize(("group", "same", "code", "text"), GROUPS, ids=[group for group, *_ in GROUPS])
def test_a_group_alone_shows_its_list_or_state(place: CliHarness, group: str, same: str, code: int, text: str) -> None:
    done = place.agent(*group.split())
    assert (done.returncode, text in done.stdout) == (code, True), done.stdout + done.stderr
    assert "Usage" not in done.stdout + done.stderr
    if same:
        assert (done.stdout, done.stderr) == ((other := place.agent(*same.split())).stdout, other.stderr)


@pytest.mark.parametrize("group", ["config", "auth", "policy", "sandbox", "batch", "audit key", "grants"])
def test_a_group_takes_json_alone_and_not_before_a_subcommand(place: CliHarness, group: str) -> None:
    for line in place.agent(*group.split(), "--json").stdout.splitlines():
        json.loads(line)
    inner = {"audit key": "show", "batch": "show", "sandbox": "cache"}.get(group, "show" if group == "config" else "")
    if inner and group != "batch":
        done = place.agent(*group.split(), "--json", inner)
        assert (done.returncode, done.stdout) == (2, "")
        assert "the options must follow the command" in done.stderr


# fmt: off
KEYS: list[tuple[tuple[str, ...], int, str, str]] = [
    (("mode",),           0, "default\n",  ""),
    (("limits.memory",),  0, None,         ""),  # type: ignore[list-item]  # any value
    (("model",),          1, "",           "`model` is not set"),
    (("mdoe",),           2, "",           "did you mean `mode`?"),
    (("limits",),         2, "",           "see `agent config show limits`"),
    (("rule",),           2, "",           "see `agent config show rule`"),
]
# fmt: on


@pytest.mark.parametrize(("words", "code", "out", "err"), KEYS, ids=[words[0] for words, *_ in KEYS])
def test_one_key_is_printed(place: CliHarness, words: tuple[str, ...], code: int, out: str | None, err: str) -> None:
    done = place.agent("config", "get", *words)
    assert done.returncode == code
    assert out is None or done.stdout == out
    assert err in done.stderr


def test_one_key_as_json_names_the_layer_that_set_it(place: CliHarness) -> None:
    (place.base / "mine.toml").write_text('mode = "plan"\n')
    done = place.agent("config", "get", "mode", "--json", "--config", str(place.base / "mine.toml"))
    found = json.loads(done.stdout)
    assert (found["key"], found["value"], found["from"][0]["layer"]) == ("mode", "plan", "named")
    assert found["overridden"][0]["value"] == "default"


def test_the_batches_of_a_folder_are_listed(place: CliHarness) -> None:
    lists = place.base / "lists"
    lists.mkdir()
    (place.base / "script.json").write_text(
        json.dumps(
            {"turn": [{"calls": [{"name": "bash", "arguments": {"command": "curl https://x.org"}}]}, {"text": "x"}]}
        )
    )
    task = {"id": "a", "prompt": "go", "model": f"scripted:{place.base}/script.json"}
    (lists / "nightly.jsonl").write_text(json.dumps(task))
    before = sorted(place.work.iterdir())
    done = place.agent("batch", "../lists/nightly.jsonl")
    assert done.returncode == 3, "an action was denied"
    assert done.stdout.startswith("1/1 done, 1 call denied  a  2 ")
    assert "1 done (1 with denied calls); cost" in done.stdout
    assert sorted(place.work.iterdir()) == before, "the results are beside the list, not in the workspace"
    assert f"results: {lists}/nightly.batch/results.jsonl" in done.stdout
    listed = place.agent("batch", cwd=lists)
    assert listed.stdout == "nightly.batch  1 done (1 with denied calls); cost 0.0000\n"
    (line,) = place.agent("batch", "--json", cwd=lists).stdout.splitlines()
    assert json.loads(line)["denied"] == 1
    for status, rows in (("done", 1), ("denied", 1), ("failed", 0)):
        shown = place.agent("batch", "show", "nightly.batch", "--status", status, cwd=lists).stdout
        assert shown.count("done, 1 call denied  a") == rows, status
        assert shown.endswith("1 done (1 with denied calls); cost 0.0000\n"), "the statuses that exist"
    assert "no task has the status failed\n" in shown
    assert sorted(Path(lists).iterdir()) == [lists / "nightly.batch", lists / "nightly.jsonl"]

    (place.base / "link.jsonl").symlink_to(lists / "nightly.jsonl")
    again = place.agent("batch", "../link.jsonl")
    assert f"1 of 1 tasks are already done; see `agent batch show {lists}/nightly.batch`" in again.stderr, "by a link"
    piped = place.agent("batch", "/dev/stdin", stdin=json.dumps(task).encode())
    assert (piped.returncode, "add --out FOLDER" in piped.stderr) == (2, True), "nothing is created in /dev"
