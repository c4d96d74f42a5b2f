"""Tests of bundles: what is read, what is refused, and that only exactly the pinned content is used."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from policy.model.profile import Layer
from runner.agent.context_sources import read_context
from runner.bundles.bundle import Bundle, bundle_of, manifest_of
from runner.bundles.described import change_rows
from runner.bundles.git_source import commit_content, git_source
from runner.bundles.manifest import BundleError
from runner.bundles.pinned import FILE, BundleStore, Pin, installed
from runner.config.agentfiles.definitions.find import find_agents
from runner.config.load import load
from runner.config.trust.discover import look, look_whole
from runner.frontends.slash.registry import known
from runner.hooks.configured import find_hooks
from runner.hooks.confined import hook_rights
from runner.mcp.configured import find_servers
from tests.support.bundle_folders import PLUGIN, ObjectWriter, write_files


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    values = {"HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"]}
    values |= {f"RINGFENCE_{name.upper()}_DIR": str(tmp_path / name) for name in ("state", "data", "config", "cache")}
    (tmp_path / "home").mkdir()
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    return values


def pinned(folder: Path, environ: dict[str, str]) -> tuple[Pin, Bundle]:
    content = look_whole(str(folder))
    manifest = manifest_of(content, folder.name)
    pin = Pin(manifest.name, manifest.version, str(folder), "", "", "2026-11-27T00:00:00Z", content.entries)
    return pin, BundleStore(environ).keep(pin, content, BundleStore(environ).pins()[0].get(pin.name))


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    return write_files(tmp_path / "source" / "tidy", PLUGIN)


def test_every_part_of_a_plugin_is_read_under_the_name_of_the_bundle(plugin: Path, environ: dict[str, str]) -> None:
    write_files(plugin, {"agents/tidy-two.md": "---\nname: tidy-two\ndescription: is second\n---\nTwo.\n"})
    (plugin / ".git").mkdir()
    (plugin / ".git" / "link").symlink_to("/etc/passwd")  # what Git keeps is no part of the bundle
    pin, kept = pinned(plugin, environ)
    assert installed(environ).bundles == (kept,)
    root = kept.root
    assert root == f"{environ['RINGFENCE_DATA_DIR']}/bundles/tidy/{pin.sha256}"
    assert [(each.name, each.text) for each in kept.commands] == [("tidy:go", f"Use {root}/notes.txt for $1")]
    assert [(each.name, each.path) for each in kept.skills] == [("tidy:fmt", f"{root}/skills/fmt/SKILL.md")]
    assert [(each.name, each.owner.value, each.tools) for each in kept.agents] == [
        ("tidy-rev", "bundle", ("read", "grep")),
        ("tidy-two", "bundle", ()),
    ]
    assert [(each.name, each.values["command"]) for each in kept.servers] == [("tidy-db", f"{root}/srv")]
    assert [(each.event, each.scope.value, each.root) for each in kept.hooks] == [("PreToolUse", "bundle", root)]
    assert os.access(f"{root}/skills/fmt/scripts/fmt.sh", os.X_OK)
    assert not os.path.lexists(f"{root}/.git")
    BundleStore(environ).remove("tidy")
    assert installed(environ).bundles == ()
    assert not os.path.lexists(os.path.dirname(root))


# fmt: off
CHANGES: list[tuple[str, Callable[[Path], object]]] = [
    ("a byte changes",            lambda root: (root / "commands/go.md").write_text("Do something else")),
    ("a file is new",             lambda root: (root / "commands/new.md").write_text("New")),
    ("a file is gone",            lambda root: (root / "commands/go.md").unlink()),
    ("a file becomes executable", lambda root: (root / "commands/go.md").chmod(0o755)),
    ("a file becomes a link",     lambda root: ((root / "commands/go.md").unlink(), (root / "commands/go.md").symlink_to("/etc/passwd"))),
    ("others may write",          lambda root: root.chmod(0o777)),
    ("the copy is a link",        lambda root: (root.rename(root.with_name("moved")), root.symlink_to(root.with_name("moved")))),
    ("the copy is gone",          lambda root: shutil.rmtree(root)),
]
# fmt: on


@pytest.mark.threat("T218")
@pytest.mark.parametrize("change", [pytest.param(each, id=why) for why, each in CHANGES])
def test_a_copy_that_differs_from_its_pin_is_not_used(
    plugin: Path, environ: dict[str, str], change: Callable[[Path], object]
) -> None:
    pin, kept = pinned(plugin, environ)
    change(Path(kept.root))
    found = installed(environ)
    assert (found.bundles, found.folders) == ((), ())
    assert found.pins == (pin,)
    assert len(found.notices) == 1
    assert found.notices[0].startswith("the bundle `tidy` is not used: ")


@pytest.mark.threat("T218")
def test_a_change_of_the_source_has_no_effect_until_it_is_accepted(plugin: Path, environ: dict[str, str]) -> None:
    pin, kept = pinned(plugin, environ)
    (plugin / "agents" / "rev.md").write_text("---\nname: rev\ndescription: reviews\n---\nYou review.\n")
    assert installed(environ).bundles == (kept,)
    content = look_whole(str(plugin))
    new = bundle_of(content, manifest_of(content, "tidy"), "/copy")
    old = BundleStore(environ).content(pin)
    rows = change_rows(kept, new, pin.entries, content.entries, (old.contents, content.contents))
    assert [row.strip() for row in rows if row.startswith(("  -", "  +"))] == [
        "-  tidy-rev  tools read, grep  reviews",
        "+  tidy-rev  no limit of its own  reviews",
    ]
    assert "-tools: Read, Grep" in rows
    newer = Pin("tidy", "1.0", str(plugin), "", "", pin.time, content.entries)
    with pytest.raises(BundleError, match="changed meanwhile"):
        BundleStore(environ).keep(newer, content, None)
    BundleStore(environ).keep(newer, content, pin)
    assert not os.path.lexists(kept.root)
    pins = Path(environ["RINGFENCE_STATE_DIR"]) / FILE
    pins.write_text(pins.read_text().replace('"tidy"', '"../../x"'))
    assert installed(environ).bundles == ()  # no path is made of an edited pin


def linked(folder: Path) -> None:
    (folder / "commands" / "key.md").symlink_to("/etc/hostname")


def huge(folder: Path) -> None:
    for number in range(2001):
        (folder / f"f{number}").touch()


# fmt: off
HOSTILE: list[tuple[str, Callable[[Path], object], str]] = [
    ("a link",               linked,                                                                     "is a link"),
    ("a folder is a link",   lambda at: (at / "more").symlink_to("/etc"),                                "is a link"),
    ("a pipe",               lambda at: os.mkfifo(at / "pipe"),                                          "is a pipe"),
    ("a second name",        lambda at: os.link(at / "commands/go.md", at / "two"),                      "hard link"),
    ("a long file",          lambda at: (at / "big").write_bytes(bytes((1 << 20) + 1)),                  "longer than 1 MiB"),
    ("too many files",       huge,                                                                       "more than 2,000 things"),
    ("deep folders",         lambda at: (at / "/".join("abcdefghijk")).mkdir(parents=True),              "folders more than 8 deep"),
    ("a name with a newline", lambda at: (at / "a\nb").touch(),                                          "cannot be shown"),
    ("a path out of it",     lambda at: (at / ".claude-plugin/plugin.json").write_text('{"name": "tidy", "commands": "../x"}'), "no path below it"),
    ("a name that is a path", lambda at: (at / ".claude-plugin/plugin.json").write_text('{"name": "../tidy"}'),  "its name is"),
    ("a reserved name",      lambda at: (at / ".claude-plugin/plugin.json").write_text('{"name": "skill"}'), "its name is"),
    ("a key twice",          lambda at: (at / ".claude-plugin/plugin.json").write_text('{"name": "tidy", "name": "x"}'), "twice"),
    ("a hook without form",  lambda at: (at / "hooks/hooks.json").write_text('{"hooks": {"PreToolUse": [{"hooks": [{"type": "command"}]}]}}'), "no text to run"),
]
# fmt: on


@pytest.mark.threat("T219")
@pytest.mark.parametrize(("change", "why"), [pytest.param(each, says, id=name) for name, each, says in HOSTILE])
def test_a_folder_that_is_not_what_it_appears_to_be_is_refused(
    plugin: Path, change: Callable[[Path], object], why: str
) -> None:
    change(plugin)
    content = look_whole(str(plugin))
    with pytest.raises(BundleError, match=why):
        bundle_of(content, manifest_of(content, "tidy"), "/copy")


# fmt: off
TREES: list[tuple[str, tuple[str, str], str]] = [
    ("a link",              ("120000", "a"),   "is a link"),
    ("a submodule",         ("160000", "a"),   "is a submodule"),
    ("the folder above",    ("100644", ".."),  "has a file with the name"),
    ("a path",              ("100644", "a/b"), "has a file with the name"),
    ("files of Git",        ("40000", ".GIT"), "has a file with the name"),
    ("a control character", ("100644", "a\r"), "has a file with the name"),
    ("another kind",        ("100000", "a"),   "is no plain file"),
]
# fmt: on


@pytest.mark.threat("T219")
@pytest.mark.parametrize(("entry", "why"), [pytest.param(each, says, id=name) for name, each, says in TREES])
def test_a_tree_of_git_with_an_entry_that_no_bundle_has_is_refused(
    tmp_path: Path, entry: tuple[str, str], why: str
) -> None:
    made = ObjectWriter(tmp_path / "far")
    mode, name = entry
    commit = made.commit(made.tree((mode, name, made.put("blob", b"x"))))
    with pytest.raises(BundleError, match=why):
        manifest_of(commit_content(git_source(f"file://{tmp_path}/far@{commit}"), {}), "far")


COMMIT = "0123456789abcdef0123456789abcdef01234567"
# fmt: off
ADDRESSES = [
    (f"ext::sh -c x@{COMMIT}",                       "a program as a transport"),
    (f"ext://x/y@{COMMIT}",                          "another scheme"),
    (f"http://git.example.com/x@{COMMIT}",           "no encryption"),
    (f"git://git.example.com/x@{COMMIT}",            "no encryption, too"),
    ("https://git.example.com/x@main",               "a branch"),
    ("https://git.example.com/x@0123456",            "a short id"),
    ("https://git.example.com/x",                    "no commit"),
    (f"https://me:secret@git.example.com/x@{COMMIT}", "a password"),
    (f"ssh://-oProxyCommand=x/y@{COMMIT}",           "an option as a host"),
    (f"ssh://git.example.com/../x@{COMMIT}",         "the folder above"),
    (f"ssh://git.example.com/x;y@{COMMIT}",          "a character of the shell"),
    (f"file://x/y@{COMMIT}",                         "a file on a host"),
    (f"--upload-pack=x://a/b@{COMMIT}",              "an option"),
]
# fmt: on


@pytest.mark.threat("T220")
@pytest.mark.parametrize("address", [pytest.param(each, id=why) for each, why in ADDRESSES])
def test_an_address_that_git_could_take_for_something_else_is_refused(address: str) -> None:
    with pytest.raises(BundleError):
        git_source(address)


@pytest.mark.threat("T221")
def test_a_bundle_takes_no_name_that_the_user_knows_and_gives_its_servers_no_right(
    plugin: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    _, kept = pinned(plugin, environ)
    other = write_files(tmp_path / "source" / "tidy-db", {".mcp.json": json.dumps({"x": {"command": "true"}})})
    (other / "commands").mkdir()
    (other / "commands" / "go.md").write_text("Other")
    _, second = pinned(other, environ)
    work = write_files(
        tmp_path / "work",
        {".ringfence/commands/tidy/go.md": "Theirs", ".mcp.json": '{"mcpServers": {"tidy-db": {"command": "evil"}}}'},
    )
    inventory = look(str(work))
    settings = load(work, environ)
    servers = find_servers(settings, str(work), environ, environ["HOME"], inventory, (kept, second))
    (mine,) = [each for each in servers.servers if each.name == "tidy-db"]
    assert (mine.command, mine.layer, mine.read, mine.write, mine.hosts) == (
        f"{kept.root}/srv",
        Layer.TRUSTED,
        (kept.root,),
        (),
        (),
    )
    assert any("`tidy-db` of `.mcp.json` is not used" in each for each in servers.notices)
    assert [each.name for each in servers.servers] == ["tidy-db", "tidy-db-x"]
    own = write_files(
        tmp_path / "config", {"config.toml": f'[mcp.tidy-db]\nhosts = ["db.example.com"]\nwrite = ["{tmp_path}/out"]\n'}
    )
    (mine, _) = find_servers(
        load(work, environ), str(work), environ, environ["HOME"], inventory, (kept, second)
    ).servers
    assert (mine.hosts, mine.write, mine.read) == (("db.example.com",), (f"{tmp_path}/out",), (kept.root,))
    (own / "config.toml").write_text('[mcp.tidy-db]\ncommand = "/bin/mine"\n')
    taken = find_servers(load(work, environ), str(work), environ, environ["HOME"], None, (kept, second))
    assert [(each.name, each.command) for each in taken.servers] == [("tidy-db", "/bin/mine"), ("tidy-db-x", "true")]
    write_files(tmp_path / "config", {"agents/tidy-rev.md": "---\nname: tidy-rev\ndescription: mine\n---\nMine.\n"})
    agents = find_agents(None, environ, kept.agents)
    assert [each.description for each in agents.definitions if each.name == "tidy-rev"] == ["mine"]
    assert "`bundle tidy: agents/rev.md` is not used as an agent" in agents.notices[0]
    context = read_context(inventory, environ, bundles=(kept, second)).context
    commands = {each.name: each.source for each in known(environ, context).commands}
    assert (commands["tidy:go"], commands["tidy-db:go"]) == (
        "bundle tidy: commands/go.md",
        "bundle tidy-db: commands/go.md",
    )
    write_files(tmp_path / "config", {"commands/tidy/go.md": "Mine"})
    commands = {each.name: each.source for each in known(environ, context).commands}
    assert commands["tidy:go"] == f"{tmp_path}/config/commands/tidy/go.md"
    (hook,) = find_hooks(load(work, environ), str(work), environ["HOME"], None, (kept,)).hooks
    assert hook_rights(hook, ("/bin/bash", "-c", "cat ~/.profile"), str(work), environ["HOME"]).read == (kept.root,)
