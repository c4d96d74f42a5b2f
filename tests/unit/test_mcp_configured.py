"""Tests of the tool servers of the configuration: values, layers of the user and of the repository, variables."""

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from policy.model.profile import Layer
from runner.config import ConfigError, load
from runner.mcp.configured import ConfiguredServers, find_servers, servers_in_copy
from runner.mcp.package_digest import package_of
from runner.mcp.pins import PinStore, checked, pin_of
from runner.mcp.server_config import ServerConfig
from runner.mcp.variables import UserVariables, VariableError
from runner.secrets.redactor import masked
from tools.server_offer import ServerOffer

SHARED = ".ringfence/config.toml"


class Place:
    """A home and a workspace with configuration files."""

    def __init__(self, base: Path) -> None:
        self.home, self.work = base / "home", base / "home" / "work"
        self.work.mkdir(parents=True)
        (self.work / ".git").mkdir()
        self.environ = {"HOME": str(self.home), "TOKEN": "abcdefgh12345678", "LANG": "de_DE.UTF-8"}

    def write(self, own: str = "", repository: str = "") -> None:
        for path, text in ((self.home / ".config/ringfence/config.toml", own), (self.work / SHARED, repository)):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")

    def servers(self, *, trusts: bool = False, named: str = "") -> ConfiguredServers:
        trusted: Mapping[str, str] = {}
        if trusts:
            trusted = {SHARED: sha256((self.work / SHARED).read_bytes()).hexdigest()}
        config = self.home / "named.toml" if named else None
        if config:
            config.write_text(named, "utf-8")
        settings = load(self.work, self.environ, trusted=trusted, config=config, system=self.home / "no-system.toml")
        return find_servers(settings, str(self.work), self.environ, str(self.home))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(Path(os.path.realpath(tmp_path)))


def test_every_key_has_an_effect(place: Place) -> None:
    place.write(
        '[mcp.all]\ncommand = "~/bin/x"\nargs = ["-v", "${workspaceFolder}/a", "$b"]\ncwd = "."\nread = [".", "~/r"]\n'
        'write = ["out"]\nhosts = ["api.example.com"]\ntools = ["a*"]\nexclude_tools = ["ab"]\ntimeout = "2m"\n'
        'start_timeout = "1m"\ncallback_port = 8765\n'
        'env = { A = "x ${TOKEN}", B = "$TOKEN$$", C = "${NONE:-c}" }\ntiers = { "a*" = "read" }\n'
        '[mcp.far]\nurl = "https://mcp.example.com/mcp"\nheaders = { Authorization = "Bearer $TOKEN" }\n'
        '[mcp.off]\nurl = "https://mcp.example.com/mcp"\nenabled = false\nheaders = { X = "$NONE" }\n'
    )
    work, home, own = str(place.work), str(place.home), "~/.config/ringfence/config.toml"
    assert place.servers() == ConfiguredServers(
        (
            ServerConfig(
                "all",
                Layer.USER,
                f"{own}:2",
                command=f"{home}/bin/x",
                args=("-v", f"{work}/a", "$b"),
                env=(("A", "x abcdefgh12345678"), ("B", "abcdefgh12345678$"), ("C", "c")),
                cwd=work,
                tools=("a*",),
                exclude_tools=("ab",),
                tiers=(("a*", "read"),),
                timeout=120.0,
                start_timeout=60.0,
                callback_port=8765,
                hosts=("api.example.com",),
                read=(work, f"{home}/r"),
                write=(f"{work}/out",),
            ),
            ServerConfig(
                "far",
                Layer.USER,
                f"{own}:16",
                url="https://mcp.example.com/mcp",
                transport="http",
                headers=(("Authorization", "Bearer abcdefgh12345678"),),
            ),
            ServerConfig(
                "off",
                Layer.USER,
                f"{own}:19",
                url="https://mcp.example.com/mcp",
                transport="http",
                headers=(("X", "$NONE"),),
                enabled=False,
            ),
        )
    )


# fmt: off
REFUSED = [
    # text of the user's file, part of the error, why
    ('[mcp.a__b]\ncommand = "x"',                  "call the server `a_b`",               "the name would be ambiguous"),
    ('[mcp."gіthub"]\ncommand = "x"',              "call the server `g_thub`",            "a Cyrillic letter"),
    ('[mcp.x]\ncommand = ["x"]',                   "it must be a text in quotes",         "the wrong type"),
    ('[mcp.x]\ncomand = "x"',                      "did you mean `mcp.x.command`?",       "a misspelled key"),
    ('[mcp.x]\ntransport = "ws"',                  "there is no transport `ws`",          "an unknown transport"),
    ('[mcp.x]\nenv = { "A=B" = "c" }',             "cannot be the name of a variable",    "a variable"),
    ('[mcp.x]\nheaders = { "A:" = "c" }',          "cannot be the name of a header",      "a header"),
    ('[mcp.x]\nheaders = { A = "c\\r\\nB: d" }',   "an unprintable character",            "a second header"),
    ('[mcp.x]\ntiers = { "*" = "none" }',          "there is no tier `none`",             "an unknown tier"),
    ('[mcp.x]\ntools = []',                        "an empty list",                       "none, or all"),
    ('[mcp.x]\nhosts = ["https://a"]',             "it has a scheme",                     "no host rule"),
    ('[mcp.x]\nurl = "http://a.example/mcp"',      "unencrypted",                         "plain HTTP"),
    ('[mcp.x]\nurl = "https://a:b@c.example/"',    "a user name or a password",           "a login in an address"),
    ('[mcp.x]\nurl = "file:///etc/passwd"',        "does not start with `https://`",      "another scheme"),
    ("".join(f"[mcp.a{n}]\ncommand = 'x'\n" for n in range(10_000)), "at most 64 tool servers", "too many"),
]
# fmt: on


@pytest.mark.parametrize(("text", "said", "why"), REFUSED, ids=[row[2] for row in REFUSED])
def test_a_file_with_a_fault_is_refused(place: Place, text: str, said: str, why: str) -> None:
    place.write(text)
    with pytest.raises(ConfigError) as caught:
        place.servers()
    problem = caught.value.problem
    assert "config.toml:" in problem.what
    assert said in f"{problem.what}: {problem.why} ({problem.fix})"


# fmt: off
FAULTS = [
    # keys, part of the reason, why
    ('args = ["x"]',                                    "neither a `command` nor a `url`",          "nothing to start"),
    ('command = "x"\nurl = "https://a.example"',        "has a `command` too",                      "two kinds at once"),
    ('command = "x"\ntransport = "http"',               "another transport",                        "the wrong transport"),
    ('url = "https://a.example"\nhosts = ["b.example"]', "runs on another machine",                 "a sandbox without a process"),
    ('url = "https://a.example"\nhosts = ["a.example private", "b.example"]', "runs on another machine", "a host without `private`"),
    ('command = "./x"',                                 "another program in every workspace",       "T181: a relative program"),
    ('command = "x"\nenv = { A = "$NONE" }',            "`NONE` cannot be inserted",                "a missing variable"),
    ('command = "x"\nenv = { A = "${input:k}" }',       "`${input:k}` cannot be inserted",          "a form of another client"),
    ('command = "x"\nargs = ["--key=${TOKEN}"]',        "command lines and addresses are not",      "a secret in an argument"),
    ('url = "https://a.example/?k=${TOKEN}"',           "command lines and addresses are not",      "a secret in an address"),
    ('url = "${LANG}"',                                 "the address cannot be used",               "no address after insertion"),
]
# fmt: on


@pytest.mark.parametrize(("keys", "said", "why"), FAULTS, ids=[row[2] for row in FAULTS])
def test_a_server_with_a_fault_stops_no_other(place: Place, keys: str, said: str, why: str) -> None:
    place.write(f'[mcp.good]\ncommand = "good"\n[mcp.bad]\n{keys}\n')
    found = place.servers()
    assert [each.name for each in found.servers] == ["good"]
    (fault,) = found.faults
    assert (fault.name, said in str(fault)) == ("bad", True), str(fault)
    assert place.environ["TOKEN"] not in str(fault)


def test_names_that_differ_in_case_only_are_one_server(place: Place) -> None:
    place.write('[mcp.git]\ncommand = "a"\n[mcp.GIT]\ncommand = "b"\n')
    found = place.servers()
    assert ([each.command for each in found.servers], [each.name for each in found.faults]) == (["a"], ["GIT"])


OWN = '[mcp.own]\ncommand = "mine"\nenv = { KEY = "$TOKEN" }\nenabled = false\n'

# fmt: off
LAYERS = [
    # own file, file of the repository, trusted, servers as (name, command, enabled, layer), notices, why
    (OWN, '[mcp.new]\ncommand = "theirs"', False, [("own", "mine", False, "user")], 1, "an untrusted server"),
    (OWN, '[mcp.new]\ncommand = "theirs"', True,
        [("own", "mine", False, "user"), ("new", "theirs", True, "trusted")], 0, "a trusted server"),
    (OWN, '[mcp.own]\ncommand = "theirs"', False, [("own", "mine", False, "user")], 1, "an untrusted command"),
    (OWN, '[mcp.own]\ncommand = "theirs"\nhosts = ["evil.example"]\nargs = ["x"]\nwrite = ["~"]', True,
        [("own", "mine", False, "user")], 4, "a trusted command for a server of the user"),
    (OWN, '[mcp.own]\nenabled = true', False, [("own", "mine", False, "user")], 1, "switching on, untrusted"),
    (OWN, '[mcp.own]\nenabled = true', True, [("own", "mine", False, "user")], 1, "switching on, trusted"),
    ('[mcp.own]\ncommand = "mine"', '[mcp.own]\nenabled = false', False,
        [("own", "mine", False, "user")], 0, "switching off needs no trust"),
    ("", '[mcp.new]\nenabled = false', False, [], 0, "switching off what nobody has"),
    ('[mcp.new]\nenabled = false', '[mcp.new]\ncommand = "theirs"', True, [], 1, "the user switched it off"),
]
# fmt: on


@pytest.mark.threat("T180")
@pytest.mark.parametrize(
    ("own", "repository", "trusts", "servers", "notices", "why"), LAYERS, ids=[row[-1] for row in LAYERS]
)
def test_a_repository_defines_and_changes_nothing_without_trust(
    place: Place,
    own: str,
    repository: str,
    trusts: bool,
    servers: list[tuple[str, str, bool, str]],
    notices: int,
    why: str,
) -> None:
    place.write(own, repository)
    found = place.servers(trusts=trusts)
    assert [(each.name, each.command, each.enabled, each.layer) for each in found.servers] == servers
    if found.servers and servers[0][0] == "own":
        assert (found.servers[0].args, found.servers[0].hosts, found.servers[0].write) == ((), (), ())
    settings = load(
        place.work,
        place.environ,
        trusted={SHARED: sha256((place.work / SHARED).read_bytes()).hexdigest()} if trusts else {},
        system=place.home / "no-system.toml",
    )
    assert len(settings.notices) == notices


@pytest.mark.threat("T180")
def test_a_named_file_takes_over_no_part_of_a_server_of_the_repository(place: Place) -> None:
    place.write("", '[mcp.x]\ncommand = "theirs"\nargs = ["--evil"]\nhosts = ["evil.example"]\nexclude_tools = ["a"]\n')
    (found,) = place.servers(trusts=True, named='[mcp.x]\ncommand = "mine"\nenv = { KEY = "$TOKEN" }\n').servers
    assert (found.command, found.args, found.hosts, found.exclude_tools) == ("mine", (), (), ("a",))


# fmt: off
VARIABLES = [
    # name, value, inserted for a server of a repository
    ("LANG",          "de_DE.UTF-8",                               True),
    ("HOME",          "/home/anna-1987-2026",                      True),
    ("TERM",          "xterm-256color",                            True),
    ("TOKEN",         "short",                                     False),
    ("GITHUB_PAT",    "x",                                         False),
    ("DATABASE",      "postgres://u:p@db/x",                       False),
    ("HOOK",          "https://hooks.example/services/T0/B0/abc",  False),
    ("SENTRY_DSN",    "x",                                         False),
    ("PLAIN",         "sk-proj-abcdefghijklmnop1234567890",        False),
    ("PLAIN",         "9f86d081884c7d659a2feaa0c55ad015",          False),
]
# fmt: on


@pytest.mark.threat("T181")
@pytest.mark.parametrize(("name", "value", "inserted"), VARIABLES, ids=[f"{row[0]}={row[1][:12]}" for row in VARIABLES])
def test_a_server_of_a_repository_gets_no_secret(name: str, value: str, inserted: bool) -> None:
    for form in (f"${name}", f"${{{name}}}", f"${{{name}:-x}}"):
        assert UserVariables({name: value}, "/w", repository=False).value(form) == value, "the user's own file"
        theirs = UserVariables({name: value}, "/w", repository=True)
        if inserted:
            assert theirs.value(form) == value
            continue
        with pytest.raises(VariableError) as caught:
            theirs.value(form)
        assert "agent mcp import" in caught.value.problem.fix
        assert value not in str(caught.value.problem)


def test_credentials_of_a_server_are_masked_in_every_text(place: Place) -> None:
    place.environ |= {"PLAIN": "entirely-ordinary-words", "LONG": "another-ordinary-text"}
    place.write(
        '[mcp.a]\ncommand = "x"\nenv = { A_TOKEN = "${PLAIN}", LEVEL = "ordinary-level-1" }\n'
        '[mcp.b]\nurl = "https://b.example/m"\nheaders = { Authorization = "Bearer $LONG", X-Api-Key = "literal-ordinary" }\n'
    )
    shown = repr(place.servers())
    for text in ("entirely-ordinary-words", "another-ordinary-text", "literal-ordinary"):
        assert text not in shown
        assert masked(f"a {text} b") == "a [secret] b"
    assert masked("ordinary-level-1") == "ordinary-level-1"


@pytest.mark.threat("T94")
def test_a_session_in_a_copy_has_the_servers_of_the_copy() -> None:
    given = ServerConfig(
        "a",
        Layer.USER,
        command="/w/bin/x",
        args=("/w", "--root=/w/a", "/w2", "/x/w", "file:///w/b"),
        env=(("A", "/w:/w/c"),),
        cwd="/w",
        read=("/w", "/w-2"),
        write=("/w/out",),
    )
    (found,) = servers_in_copy((given,), "/w", "/copy")
    assert (found.command, found.args) == ("/copy/bin/x", ("/copy", "--root=/copy/a", "/w2", "/x/w", "file:///copy/b"))
    assert (found.env, found.cwd, found.read, found.write) == (
        (("A", "/copy:/copy/c"),),
        "/copy",
        ("/copy", "/w-2"),
        ("/copy/out",),
    )


CHANGES: list[tuple[str, tuple[str, ...], str]] = [
    ("", (), "the same files and the same command line"),
    ("server.py", ("package",), "another program in the copy"),
    ("beside.py", ("package",), "a module beside it"),
    ("args", ("command line",), "another command line"),
]


@pytest.mark.threat("T203")
@pytest.mark.parametrize("layer", [Layer.USER, Layer.TRUSTED])
@pytest.mark.parametrize(("changed", "changes", "why"), CHANGES, ids=[row[-1] for row in CHANGES])
def test_a_pin_counts_in_a_copy_of_the_same_content(
    changed: str, changes: tuple[str, ...], why: str, layer: Layer, tmp_path: Path
) -> None:
    work, copy, other, state = (str(tmp_path / name) for name in ("w", "ringfence-copy-1", "other", "state"))
    Path(state).mkdir(mode=0o700)
    for folder in (work, copy):
        (Path(folder) / "tool").mkdir(parents=True)
        for name in ("server.py", "beside.py"):
            (Path(folder) / "tool" / name).write_text("one")
        (Path(folder) / "tool/link.py").symlink_to(f"{folder}/tool/beside.py")
    given = ServerConfig("a", layer, command=sys.executable, args=("-u", f"{work}/tool/server.py"), read=(work,))
    PinStore(state, work).keep(given, pin_of(given, ServerOffer(), package_of(given, None)))
    if changed == "args":
        given = replace(given, args=(*given.args, "--more"))
    elif changed:
        (Path(copy) / "tool" / changed).write_text("two")
    (found,) = servers_in_copy((given,), work, copy)
    check = checked(found, ServerOffer(), package_of(found, None), PinStore(state, copy).get(found))
    assert check.changes == changes, why
    assert check.pin.runs == pin_of(given, ServerOffer(), package_of(given, None)).runs
    elsewhere = PinStore(state, other).get(found)  # a session that does not work in this copy
    assert (elsewhere is None) is (layer is Layer.TRUSTED)
    without = checked(
        replace(found, copied=None), ServerOffer(), package_of(found, None), PinStore(state, work).get(given)
    )
    assert "command line" in without.changes
