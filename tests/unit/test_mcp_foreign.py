"""Tests of the readers of other clients' files with tool servers, and of the servers of a repository's files."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from runner.agent.startup import RunArgs, prepare_options
from runner.config import load
from runner.config.serverfiles.json_servers import ServerForm
from runner.config.serverfiles.read_servers import form_of, read_servers
from runner.config.trust.cached import trusted_inventory
from runner.config.trust.discover import look
from runner.config.trust.session_check import evaluate_files
from runner.config.trust.store import TrustStore
from runner.config.trust.text import description
from runner.mcp.configured import ConfiguredServers, find_servers, servers_here
from runner.problems import Stopped

CLAUDE, CURSOR, GEMINI, VSCODE = ServerForm.CLAUDE, ServerForm.CURSOR, ServerForm.GEMINI, ServerForm.VSCODE
# fmt: off
JSON: list[tuple[ServerForm, dict[str, Any], dict[str, Any], str]] = [
    # form, entry of the file, keys of [mcp.NAME], why
    (CLAUDE, {"type": "stdio", "command": "npx", "args": ["-y", "a"], "env": {"A": "${B:-c}"}},
        {"command": "npx", "args": ("-y", "a"), "env": (("A", "${B:-c}"),)}, "a program"),
    (CLAUDE, {"type": "http", "url": "https://a.example/m", "headers": {"Authorization": "Bearer ${T}"}},
        {"url": "https://a.example/m", "headers": (("Authorization", "Bearer ${T}"),)}, "a remote server"),
    (CLAUDE, {"type": "sse", "url": "https://a.example/m"}, {"url": "https://a.example/m", "transport": "sse"}, "an old one"),
    (CLAUDE, {"command": "x", "env": {"A": "$B 5$"}}, {"command": "x", "env": (("A", "$$B 5$$"),)}, "no braces, no variable"),
    (CURSOR, {"command": "x", "args": ["${workspaceFolder}/a", "${env:B}"], "env": {"A": "${userHome}/a"}},
        {"command": "x", "args": ("${workspaceFolder}/a", "${B}"), "env": (("A", "${HOME}/a"),)}, "Cursor's variables"),
    (CURSOR, {"command": "x", "disabled": True}, {"command": "x", "enabled": False}, "switched off"),
    (VSCODE, {"type": "stdio", "command": "x", "env": {"A": "${input:api-key}", "B": None}},
        {"command": "x", "env": (("A", "${API_KEY}"),)}, "a question of VS Code"),
    (GEMINI, {"command": "x", "env": {"A": "$B"}, "timeout": 30000, "includeTools": ["a"], "excludeTools": ["b"], "cwd": "d"},
        {"command": "x", "env": (("A", "$B"),), "timeout": 30.0, "tools": ("a",), "exclude_tools": ("b",), "cwd": "d"}, "Gemini"),
    (GEMINI, {"httpUrl": "https://a.example/m"}, {"url": "https://a.example/m"}, "Gemini's streamable HTTP"),
    (GEMINI, {"url": "https://a.example/m"}, {"url": "https://a.example/m", "transport": "sse"}, "Gemini's SSE"),
]
LEFT: list[tuple[ServerForm, dict[str, Any], str, str]] = [
    # form, further keys of a server, what is said, why
    (GEMINI, {"trust": True}, "`trust` never carries over", "an approval of all calls"),
    (CURSOR, {"autoApprove": ["a"]}, "`autoApprove` never carries over", "an approval of some calls"),
    (VSCODE, {"envFile": ".env"}, "`envFile` are not read", "a file of variables"),
    (VSCODE, {"env": {"A": "${input:api-key}"}}, "asks for `api-key`: set the variable `API_KEY`", "a question"),
    (CLAUDE, {"env": {"A": ""}}, "`A` of `env` is empty", "an empty variable"),
    (CLAUDE, {"oauth": {}}, "`oauth` has no counterpart", "an unknown key"),
]
FAULTY: list[tuple[ServerForm, Any, str, str]] = [
    # form, entry, fault, why
    (CLAUDE, {"type": "ws", "url": "wss://a.example"}, "transport `ws` is not known", "an unknown transport"),
    (CLAUDE, {"command": "x", "args": "-y a"}, "`args` is not a list", "words in one text"),
    (CLAUDE, {"command": "x", "url": "https://a.example"}, "has a `command` too", "two kinds at once"),
    (CLAUDE, {"url": "http://a.example/m"}, "unencrypted", "plain HTTP"),
    (CLAUDE, {"command": "x\0"}, "NUL", "a word that no program gets"),
    (VSCODE, {"command": "${command:pick}"}, "has no counterpart", "a command of the editor"),
    (CLAUDE, {}, "neither a `command` nor a `url`", "nothing to start"),
    (CLAUDE, ["x"], "it is not a server", "another type"),
]
# fmt: on


def only(form: ServerForm, entry: Any) -> Any:
    (found,) = read_servers(json.dumps({form.key: {"a": entry}}).encode(), form)
    return found


@pytest.mark.parametrize(("form", "entry", "values", "why"), JSON, ids=[row[3] for row in JSON])
def test_an_entry_has_the_same_meaning_here(
    form: ServerForm, entry: dict[str, Any], values: dict[str, Any], why: str
) -> None:
    found = only(form, entry)
    assert (found.fault, found.values) == ("", values)


@pytest.mark.threat("T182")
@pytest.mark.parametrize(("form", "more", "said", "why"), LEFT, ids=[row[3] for row in LEFT])
def test_what_is_not_taken_over_is_said(form: ServerForm, more: dict[str, Any], said: str, why: str) -> None:
    found = only(form, {"command": "x", **more})
    assert found.values.keys() <= {"command", "env"}
    assert [said in each for each in found.left] == [True], found.left


@pytest.mark.parametrize(("form", "entry", "fault", "why"), FAULTY, ids=[row[3] for row in FAULTY])
def test_an_entry_with_a_fault_is_named(form: ServerForm, entry: Any, fault: str, why: str) -> None:
    found = only(form, entry)
    assert (fault in found.fault, found.values) == (True, {}), found.fault


CODEX_FILE = """
[mcp_servers.a]
command = "x"
args = ["${literal}", "$b"]
env = { A = "cost$5" }
env_vars = ["B", { name = "C", source = "remote" }]
enabled_tools = ["t"]
disabled_tools = ["u"]
startup_timeout_sec = 5
tool_timeout_sec = 9.5
default_tools_approval_mode = "approve"
[mcp_servers.far]
url = "https://a.example/m"
bearer_token_env_var = "T"
http_headers = { X = "y" }
env_http_headers = { Z = "V" }
enabled = false
"""


def test_the_table_of_codex_has_the_same_meaning_here() -> None:
    here, far = read_servers(CODEX_FILE.encode(), ServerForm.CODEX)
    assert here.values == {
        "command": "x",
        "args": ("$${literal}", "$b"),
        "env": (("A", "cost$$5"), ("B", "${B}")),
        "tools": ("t",),
        "exclude_tools": ("u",),
        "timeout": 9.5,
    }
    assert len(here.left) == 3
    assert far.values == {
        "url": "https://a.example/m",
        "headers": (("X", "y"), ("Z", "${V}"), ("Authorization", "Bearer ${T}")),
        "enabled": False,
    }


def test_a_list_of_servers_gets_names() -> None:
    listed = [
        {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/tmp"]},
        {"url": "https://mcp.example.com/sse"},
    ]
    found = read_servers(json.dumps({"servers": listed}).encode(), ServerForm.LIST)
    assert [each.name for each in found] == ["server-filesystem", "example-com"]


# fmt: off
FORMS = [
    ("a.json",                '{"servers": []}',    ServerForm.LIST),
    ("a.json",                '{"servers": {}}',    VSCODE),
    (".mcp.json",             '{"mcpServers": {}}', CLAUDE),
    (".gemini/settings.json", '{"mcpServers": {}}', GEMINI),
    ("config.toml",           "",                   ServerForm.CODEX),
]
# fmt: on


@pytest.mark.parametrize(("path", "text", "form"), FORMS, ids=[f"{row[0]} {row[1]}" for row in FORMS])
def test_a_named_file_is_recognized(path: str, text: str, form: ServerForm) -> None:
    assert form_of(path, text.encode()) is form


def test_comments_of_vs_code_are_left_out_in_linear_time() -> None:
    text = '{ // a\n "servers": {"a": {"command": "x", "args": ["//no", "/*no*/", ",]",], /* b, */ },}, }'
    (found,) = read_servers(text.encode(), VSCODE)
    assert found.values["args"] == ("//no", "/*no*/", ",]")
    began = time.process_time()
    for piece in ('\\"', "/*", "//", ",", '"'):
        with pytest.raises(ValueError, match="not valid JSON"):
            read_servers(("{" + piece * 300_000).encode(), VSCODE)
    assert time.process_time() - began < 20, "quadratic time would be hours"


def test_a_crowd_is_refused() -> None:
    many = {f"a{number}": {"command": "x"} for number in range(10_000)}
    with pytest.raises(ValueError, match="more than 64 servers"):
        read_servers(json.dumps({"mcpServers": many}).encode(), CLAUDE)


class Repository:
    """A repository with files of other clients, and a user who trusts it."""

    def __init__(self, base: Path) -> None:
        self.home, self.work = base / "home", base / "home" / "work"
        (self.work / ".git").mkdir(parents=True)
        self.environ = {"HOME": str(self.home), "TOKEN": "abcdefgh12345678", "RINGFENCE_STATE_DIR": str(base / "state")}

    def put(self, path: str, content: Any) -> Path:
        file = self.work / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
        return file

    def own(self, text: str) -> None:
        file = self.home / ".config/ringfence/config.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")

    def trust(self) -> None:
        (self.home.parent / "state").mkdir(exist_ok=True, mode=0o700)
        TrustStore(self.home.parent / "state").remember(look(str(self.work)), yes=True, time="2026-01-01T00:00:00Z")

    def servers(self) -> ConfiguredServers:
        """Return the servers with everything in the repository trusted."""
        settings = load(self.work, self.environ, system=self.home / "no-system.toml")
        return find_servers(settings, str(self.work), self.environ, str(self.home), look(str(self.work)))

    def here(self) -> list[str]:
        """Return the names of the servers of a command that asks no question."""
        return [each.name for each in servers_here(self.work, self.environ).servers]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(Path(os.path.realpath(tmp_path)))


def server(command: str, **more: Any) -> dict[str, Any]:
    return {"mcpServers": {"a": {"command": command, **more}}}


@pytest.mark.threat("T180")
def test_a_server_of_a_repository_runs_with_exactly_the_trusted_bytes(repository: Repository) -> None:
    file = repository.put(".mcp.json", server("theirs"))
    assert repository.here() == []
    repository.trust()
    assert repository.here() == ["a"]
    text = file.read_text()
    file.write_text(text + " ")
    assert repository.here() == [], "one blank more"
    file.write_text(text)
    assert repository.here() == ["a"]
    other = repository.put(".vscode/mcp.json", {"servers": {"b": {"command": "x"}}})
    assert repository.here() == [], "one file more"
    other.unlink()
    target = file.rename(file.with_name("elsewhere.json"))
    file.symlink_to(target)
    assert repository.here() == [], "a link with the same content"
    assert servers_here(repository.work, repository.environ, unattended=True).servers == ()


@pytest.mark.threat("T180")
def test_an_unattended_session_starts_servers_of_a_repository_only_with_its_hash(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.own('[mcp.own]\ncommand = "mine"\n')
    repository.put(".mcp.json", server("theirs"))
    repository.put(".ringfence/config.toml", '[mcp.shared]\ncommand = "ours"\n')
    repository.trust()
    for name, value in repository.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    named = repository.put("ci.toml", '[mcp.named]\ncommand = "named"\n')
    sha256 = look(str(repository.work)).sha256

    def started(*, unattended: bool, **more: Any) -> list[str]:
        options, _ = prepare_options(RunArgs(cwd=str(repository.work), **more), unattended, asks=False)
        return sorted(each.name for each in options.servers)

    assert started(unattended=False) == ["a", "own", "shared"]
    assert started(unattended=True) == ["own"]
    assert started(unattended=True, config=str(named)) == ["named", "own"]
    assert started(unattended=True, trust_config=sha256) == ["a", "own", "shared"]
    repository.put(".mcp.json", server("changed"))
    with pytest.raises(Stopped, match="does not contain the trusted content"):
        started(unattended=True, trust_config=sha256)
    assert started(unattended=False) == ["own"], "one changed file ends the trust in all of them"


@pytest.mark.threat("T180")
def test_an_answer_to_a_version_that_started_no_servers_starts_none(repository: Repository) -> None:
    repository.put(".mcp.json", server("theirs"))
    repository.trust()
    store = repository.home.parent / "state" / "trust.json"
    assert repository.here() == ["a"]
    store.write_text(store.read_text().replace('"tool-servers"', '"servers"'))
    assert repository.here() == []
    assert trusted_inventory(str(repository.work), repository.environ) is None


@pytest.mark.threat("T180")
def test_each_file_is_used_and_the_first_of_two_servers_with_one_name(repository: Repository) -> None:
    repository.put(".mcp.json", server("first", args=["./s.js"]))
    repository.put(".cursor/mcp.json", server("second"))
    repository.put(".vscode/mcp.json", '{"servers": {"b": {"command": "./b"}}} // a comment')
    repository.put(".gemini/settings.json", {"mcpServers": {"c": {"httpUrl": "https://c.example/m"}}})
    repository.put(".codex/config.toml", '[mcp_servers."d d"]\ncommand = "x"\n[mcp_servers.e]\ncommand = "x"\n')
    found = repository.servers()
    assert [(each.name, each.command or each.url, each.place, each.layer) for each in found.servers] == [
        ("a", "first", ".mcp.json", "trusted"),
        ("b", f"{repository.work}/b", ".vscode/mcp.json", "trusted"),
        ("c", "https://c.example/m", ".gemini/settings.json", "trusted"),
        ("e", "x", ".codex/config.toml", "trusted"),
    ]
    assert [each.name for each in found.faults] == ["d d"]
    assert found.notices == ("the tool server `a` of `.cursor/mcp.json` is not used: that of .mcp.json has this name",)


# fmt: off
OWNERS = [
    # the user's own file, servers as (name, command, enabled, tools), notices, why
    ('[mcp.a]\ncommand = "mine"',        [("a", "mine", True, ())],           1, "the user's server wins"),
    ('[mcp.A]\ncommand = "mine"',        [("A", "mine", True, ())],           1, "another case is no other name"),
    ('[mcp.a]\nenabled = false',         [("a", "theirs", False, ("t", "u"))], 0, "the user switches it off"),
    ('[mcp.a]\ntools = ["t", "x"]',      [("a", "theirs", True, ("t",))],     0, "the user allows fewer tools"),
    ('[mcp.a]\nhosts = ["a.example"]',   [],                                  1, "no rights for whatever server is there"),
]
# fmt: on


@pytest.mark.threat("T180")
@pytest.mark.parametrize(("own", "servers", "notices", "why"), OWNERS, ids=[row[3] for row in OWNERS])
def test_the_users_own_table_wins(
    repository: Repository, own: str, servers: list[tuple[str, str, bool, tuple[str, ...]]], notices: int, why: str
) -> None:
    repository.own(own)
    repository.put(".gemini/settings.json", server("theirs", includeTools=["t", "u"]))
    found = repository.servers()
    assert [(each.name, each.command, each.enabled, each.tools) for each in found.servers] == servers
    assert len(found.notices) == notices


@pytest.mark.threat("T181")
@pytest.mark.parametrize("text", ["${TOKEN}", "${env:TOKEN}", "${input:token}", "x ${TOKEN:-y}"])
def test_a_file_of_a_repository_inserts_no_secret(repository: Repository, text: str) -> None:
    repository.put(".vscode/mcp.json", {"servers": {"a": {"command": "x", "env": {"K": text}}}})
    found = repository.servers()
    assert (found.servers, len(found.faults)) == ((), 1)
    assert "agent mcp import" in str(found.faults[0])
    assert repository.environ["TOKEN"] not in str(found.faults[0])


# fmt: off
HOSTILE = [
    # file, content, part of what `agent trust` shows, why
    (".mcp.json", '{"mcpServers": {"g\u0456thub": {"command": "x"}}}',   "cannot be used: a name has", "a Cyrillic letter"),
    (".mcp.json", '{"mcpServers": {"a": {"command": "x", "args": ["\\u202eok"]}}}', "<U+202E>",       "a reversed text"),
    (".mcp.json", '{"mcpServers": {"a": {"command": "x", "args": ["' + '", "'.join(["y" * 200] * 30) + '"]}}}',
        "longer than 4,096 characters",                                                                 "more than anyone reads"),
    (".mcp.json", '{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}', "contains a key twice", "a name twice"),
    (".cursor/mcp.json", '{"mcpServers": {"a": {"command": "x", "url": "https://a.example"}}}', "has a `command` too", "two kinds"),
    (".codex/config.toml", '[mcp_servers.a]\ncommand = "x"\n[mcp_servers.a]\n', "it is not valid TOML",  "a table twice"),
    (".vscode/mcp.json", '{"servers": ' + "[" * 50_000,                    "nested too deeply",          "a deep file"),
    (".gemini/settings.json", '{"mcpServers": {' + ", ".join(f'"a{n}": {{"command": "x"}}' for n in range(9000)) + "}}",
        "more than 64 servers",                                                                         "a crowd"),
]
# fmt: on


@pytest.mark.threat("T180")
@pytest.mark.parametrize(("path", "content", "shown", "why"), HOSTILE, ids=[row[3] for row in HOSTILE])
def test_a_hostile_file_starts_nothing_that_is_not_shown(
    repository: Repository, path: str, content: str, shown: str, why: str
) -> None:
    repository.put(path, content)
    review, _ = evaluate_files(
        look(str(repository.work)), load(repository.work, repository.environ), repository.environ
    )
    text = "\n".join(description(review, brief=True))
    assert shown in text
    assert sum(len(line) // 80 + 1 for line in text.splitlines()) < 40, "it pushes nothing off the screen"
    started = [each.name for each in repository.servers().servers]
    assert bool(started) == bool(review.counts)
    for name in started:
        assert f"{name}: " in text


@pytest.mark.threat("T180")
def test_a_folder_of_links_and_a_long_file_start_nothing(repository: Repository) -> None:
    elsewhere = repository.home / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mcp.json").write_text(json.dumps(server("x")))
    (repository.work / ".cursor").symlink_to(elsewhere)
    os.link(elsewhere / "mcp.json", repository.work / ".mcp.json")
    repository.put(".vscode/mcp.json", '{"servers": {"a": {"command": "x"}}}' + " " * (1 << 20))
    os.mkfifo(repository.put(".gemini/x", "x").with_name("settings.json"))
    assert repository.servers() == ConfiguredServers()
    refused = {each.path: each.refused for each in look(str(repository.work)).entries}
    assert sorted(refused) == [".cursor", ".gemini/settings.json", ".mcp.json", ".vscode/mcp.json"]
    assert all(refused.values())


@pytest.mark.threat("T180")
def test_settings_of_other_clients_without_servers_need_no_trust(repository: Repository) -> None:
    repository.put(".gemini/settings.json", {"theme": "x"})
    repository.put(".codex/config.toml", 'model = "x"')
    repository.put(".vscode/mcp.json", {"servers": {}})
    assert look(str(repository.work)).entries == ()
