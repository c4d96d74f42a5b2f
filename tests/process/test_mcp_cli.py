"""Tests of `agent mcp list`, `show`, `add`, `remove` and `import`, and of `agent config check` about tool servers."""

import json
from pathlib import Path

import pytest

from policy.model.profile import Layer
from runner.mcp.package_digest import PackageDigest, PackageState
from runner.mcp.pins import PinStore, pin_of
from runner.mcp.server_config import ServerConfig
from tests.support.cli_harness import AGENT, CliHarness
from tests.support.terminal import Terminal
from tools.server_offer import ServerOffer

KEY = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.fixture
def place(tmp_path: Path) -> CliHarness:
    made = CliHarness(tmp_path)
    (made.work / ".git").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    (tmp_path / "config" / "ringfence").mkdir(parents=True)
    return made


def own(place: CliHarness) -> Path:
    return place.base / "config" / "ringfence" / "config.toml"


def test_servers_are_added_shown_and_removed_and_comments_stay(place: CliHarness) -> None:
    before = '# mine\nmode = "plan"\n\n# about git\n[mcp.git]\ncommand = "git-server"\n'
    own(place).write_text(before)
    add = ("mcp", "add", "files", "--read", ".", "--host", "api.example.com", "--env", "A=${HOME}", "--")
    added = place.agent(*add, "npx", "-y", "files", "${workspaceFolder}")
    table = (
        '[mcp.files]\ncommand = "npx"\nargs = ["-y", "files", "${workspaceFolder}"]\nenv = { A = "${HOME}" }\n'
        'hosts = ["api.example.com"]\nread = ["."]\n'
    )
    assert (added.returncode, added.stdout) == (0, table), added.stderr
    assert own(place).read_text() == f"{before}\n{table}"
    shown = json.loads(place.agent("mcp", "show", "files", "--json").stdout)
    assert (shown["read"], shown["command"][-1]) == ([str(place.work)], str(place.work))
    assert "api.example.com" in place.agent("mcp", "show", "files").stdout
    more = place.agent("mcp", "add", "files", "--read", "~/a", "--read", ".", "--write", "out", "--env", "A=b")
    wide = table.replace('A = "${HOME}"', 'A = "b"').replace('["."]\n', '[".", "~/a"]\nwrite = ["out"]\n')
    assert (more.returncode, more.stdout) == (0, wide), more.stderr
    table = own(place).read_text().partition('git-server"\n\n')[2]
    assert sorted(table.splitlines()) == sorted(wide.splitlines())
    assert place.agent("mcp", "remove", "git").returncode == 0
    assert own(place).read_text() == f'# mine\nmode = "plan"\n\n# about git\n{table}'
    pins = PinStore(place.base / "state", str(place.work))
    approved = ServerConfig("files", Layer.USER, command="npx")
    pins.keep(approved, pin_of(approved, ServerOffer(), PackageDigest(PackageState.CONTENT)))
    removed = place.agent("mcp", "remove", "files")
    assert (removed.returncode, removed.stdout.splitlines()[-1]) == (0, "the approval of `files` is forgotten")
    assert pins.get(approved) is None
    assert place.agent("mcp").stdout.startswith("there are no tool servers")


def test_a_server_of_the_project_needs_trust(place: CliHarness) -> None:
    added = place.agent("mcp", "add", "docs", "https://docs.example.com/mcp", "--scope", "project")
    assert (added.returncode, added.stdout) == (0, '[mcp.docs]\nurl = "https://docs.example.com/mcp"\n')
    (place.work / ".mcp.json").write_text('{"mcpServers": {"two": {"command": "x"}, "far": {"url": "${NO}"}}}')
    rows = [json.loads(line) for line in place.agent("mcp", "list", "--json").stdout.splitlines()]
    states = [("docs", "untrusted"), ("two", "untrusted"), ("far", "untrusted")]
    assert [(each["name"], each["state"]) for each in rows] == states
    assert place.agent("mcp", "list").stdout.count("not trusted, see `agent trust`") == 3
    sha256 = json.loads(place.agent("trust", "--json").stdout)["sha256"]
    assert place.agent("trust", "accept", "--sha256", sha256).returncode == 0
    rows = [json.loads(line) for line in place.agent("mcp", "list", "--json").stdout.splitlines()]
    assert [(each["name"], each["state"]) for each in rows] == [("docs", "on"), ("two", "on"), ("far", "fault")]


# fmt: off
REFUSED: list[tuple[tuple[str, ...], str, str]] = [
    # words after `agent mcp`, part of the message, why
    (("add", "a__b", "--", "x"),                                    "call the server `a_b`",      "an ambiguous name"),
    (("add", "git", "--", "x"),                                     "a server with this name",    "a name twice"),
    (("add", "a", "--env", f"T={KEY}", "--", "x"),                  "looks like a key",           "a key in a variable"),
    (("add", "a", "--env", "A=supersecretvalue", "--", "x"),        "looks like a key",           "a variable of the user's shell"),
    (("add", "a", "--header", f"X: {KEY}", "https://a.example"),    "looks like a key",           "a key in a header"),
    (("add", "a", "--", "x", f"--token={KEY}"),                     "looks like a key",           "a key in an argument"),
    (("add", "a", "--env", "A", "--", "x"),                         "not NAME=VALUE",             "half a variable"),
    (("add", "a"),                                                  "neither a `command` nor",    "nothing to start"),
    (("add", "a", "--host", "b.example", "https://a.example"),      "runs on another machine",    "rights of a remote server"),
    (("add", "a", "--scope", "all", "--", "x"),                     "write `user` or `project`",  "another scope"),
    (("show", "gti"),                                               "did you mean `git`?",        "a misspelled name"),
    (("remove", "none"),                                            "there is no tool server",    "nothing to remove"),
    (("import", "none.json"),                                       "no such file or client",     "a missing file"),
]
# fmt: on


@pytest.mark.parametrize(("words", "said", "why"), REFUSED, ids=[row[2] for row in REFUSED])
def test_what_cannot_be_done_changes_nothing(place: CliHarness, words: tuple[str, ...], said: str, why: str) -> None:
    text = '[mcp.git]\ncommand = "git-server"\n'
    own(place).write_text(text)
    done = place.agent("mcp", *words, env={"MY_TOKEN": "supersecretvalue"})
    assert (done.returncode, said in done.stderr, own(place).read_text()) == (2, True, text), done.stderr
    assert KEY not in done.stdout + done.stderr


@pytest.mark.threat("T182")
def test_an_import_copies_no_key_and_no_approval(place: CliHarness) -> None:
    home = place.base / "home"
    content = {
        "mcpServers": {
            "git": {"command": "theirs"},
            "notes": {"command": "npx", "env": {"NOTES_TOKEN": KEY, "LEVEL": "1"}, "autoApprove": ["*"]},
            "my notes": {"url": "https://n.example/m", "headers": {"Authorization": f"Bearer {KEY}"}},
            "argued": {"command": "x", "args": [KEY]},
        },
        "projects": {str(place.work): {"mcpServers": {"local": {"command": "x"}}}, "/other": {"mcpServers": {"o": {}}}},
    }
    (home / ".claude.json").write_text(json.dumps(content))
    (home / ".codex").mkdir()
    (home / ".codex/config.toml").write_text('[mcp_servers.local]\ncommand = "y"\n')
    own(place).write_text('[mcp.git]\ncommand = "mine"\n')
    shown = place.agent("mcp", "import", "--dry-run")
    assert own(place).read_text() == '[mcp.git]\ncommand = "mine"\n'
    done = place.agent("mcp", "import")
    assert done.stdout == shown.stdout, "the change is shown first"
    assert own(place).read_text() == (
        '[mcp.git]\ncommand = "mine"\n\n'
        '[mcp.notes]\ncommand = "npx"\nenv = { NOTES_TOKEN = "${NOTES_TOKEN}", LEVEL = "1" }\n\n'
        '[mcp.my_notes]\nurl = "https://n.example/m"\nheaders = { Authorization = "Bearer ${MY_NOTES_AUTHORIZATION}" }\n\n'
        '[mcp.local]\ncommand = "x"\n'
    )
    for part in (
        "git: not imported: you have",
        "`autoApprove` never carries",
        "it is called `my notes` there",
        "argued: not",
    ):
        assert part in done.stdout
    assert KEY not in done.stdout + done.stderr


def test_an_import_of_a_file_is_a_table_of_each_server(place: CliHarness) -> None:
    (place.work / ".mcp.json").write_text('{"mcpServers": {"a": {"command": "x", "args": ["${TOKEN:-y}"]}}}')
    (row,) = map(json.loads, place.agent("mcp", "import", ".mcp.json", "--json").stdout.splitlines())
    assert (row["name"], row["table"]) == ("a", {"command": '"x"', "args": '["${TOKEN:-y}"]'})
    assert own(place).read_text() == '[mcp.a]\ncommand = "x"\nargs = ["${TOKEN:-y}"]\n'


def test_a_check_warns_of_keys_in_plain_text_and_finds_contradictions(place: CliHarness) -> None:
    own(place).write_text(
        f'[mcp.a]\ncommand = "x"\nargs = ["{KEY}"]\nenv = {{ A_TOKEN = "0123456789abcdef", B = "$B" }}\n'
        '[mcp.b]\nurl = "https://b.example/m"\nwrite = ["."]\n'
    )
    done = place.agent("config", "check", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 2
    assert [(each["line"], each["text"]) for each in found["faults"]] == [
        (7, "`mcp.b.write` cannot be used: a remote server runs on another machine")
    ]
    assert [each.partition(":")[2].partition(":")[0] for each in found["warnings"]] == ["4", "3"]
    assert KEY not in done.stdout


def test_names_of_servers_are_completed_and_a_broken_file_completes_nothing(place: CliHarness) -> None:
    asked = {"COMP_WORDS": "agent\nmcp\nshow\ng", "COMP_CWORD": "3", "_AGENT_COMPLETE": "complete_bash"}
    for text, offered in (('[mcp.git]\ncommand = "x"\n[mcp.notes]\ncommand = "y"\n', "git"), ("[mcp", "")):
        own(place).write_text(text)
        done = place.agent(env=asked)
        assert (done.stdout.strip(), done.stderr) == (offered, "")


def test_on_a_terminal_an_import_asks_before_it_writes(place: CliHarness) -> None:
    (place.work / "servers.json").write_text('{"servers": [{"command": "notes-server"}]}')
    for answer, written in (("\n", False), ("y\n", True)):
        terminal = Terminal([AGENT, "mcp", "import", "servers.json"], place.work, place.environ)
        try:
            terminal.until("? [y/N] ")
            assert terminal.seen.index("[mcp.notes-server]") < terminal.seen.index("[y/N]"), "the change is shown first"
            terminal.type(answer)
            assert terminal.end() == 0, terminal.seen
        finally:
            terminal.close()
        assert own(place).exists() == written
