"""Tests of the pins of tool servers: what a change of an offer, of the server or of its package costs."""

import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from policy.model.profile import Layer
from runner.mcp.difference import difference
from runner.mcp.package_digest import REMOTE, PackageDigest, PackageState, package_of
from runner.mcp.pins import (
    FOLDER,
    Cause,
    PinStore,
    ServerPin,
    UnreadablePin,
    checked,
    pin_of,
)
from runner.mcp.server_config import ServerConfig
from runner.text.sanitize import visible
from tools.server_offer import OfferedTool, ServerOffer

CONFIG = ServerConfig("notes", Layer.USER, command="notes-server", args=("--stdio",), env=(("TOKEN", "s3cret"),))
ADD = OfferedTool("add", "Add", "Add a note.", {"type": "object", "properties": {"text": {"type": "string"}}})
FIND = OfferedTool("find", "Find", "Find notes.", {"type": "object"}, {"type": "object"}, {"readOnlyHint": True})
OFFER = ServerOffer(instructions="Notes of the user.", tools=(ADD, FIND))
PACKAGE = PackageDigest(PackageState.CONTENT, "notes 1.0", "a" * 64)
PINNED = pin_of(CONFIG, OFFER, PACKAGE)

Change = Callable[[OfferedTool], OfferedTool]

# fmt: off
CHANGED: list[tuple[Change, Cause, str]] = [
    (lambda tool: replace(tool, title="Adds"),                         Cause.CHANGED, "title"),
    (lambda tool: replace(tool, description="Add a note. "),           Cause.CHANGED, "one blank in the description"),
    (lambda tool: replace(tool, description="Add a note.\u200b"),      Cause.CHANGED, "an invisible character"),
    (lambda tool: replace(tool, input_schema={"type": "object"}),      Cause.CHANGED, "input schema"),
    (lambda tool: replace(tool, input_schema={**tool.input_schema, "x": 1}), Cause.CHANGED, "an unknown key of a schema"),
    (lambda tool: replace(tool, output_schema={}),                     Cause.CHANGED, "an output schema where none was"),
    (lambda tool: replace(tool, annotations={"destructiveHint": True}), Cause.CHANGED, "annotations"),
    (lambda tool: replace(tool, name="insert"),                        Cause.RENAMED, "another name for the same content"),
    (lambda tool: replace(tool, name="add", description="x", title="y"), Cause.CHANGED, "another content under the name"),
    (lambda tool: replace(tool, name="insert", title="Insert"),        Cause.NEW,     "another name and content"),
]
# fmt: on


@pytest.mark.threat("T183")
@pytest.mark.threat("T185")
@pytest.mark.parametrize(("change", "cause", "why"), CHANGED, ids=[row[-1] for row in CHANGED])
def test_a_changed_tool_is_quarantined_and_the_others_stay(change: Change, cause: Cause, why: str) -> None:
    fresh = change(ADD)
    found = checked(CONFIG, replace(OFFER, tools=(fresh, FIND)), PACKAGE, PINNED)
    assert [tool.name for tool in found.approved] == ["find"]
    held = {each.name: each for each in found.quarantined}
    assert held[fresh.name].cause is cause, why
    assert not found.clean
    if fresh.name != "add":
        assert held["add"].cause is Cause.REMOVED
    assert held[fresh.name].was == ("add" if cause is Cause.RENAMED else "")
    assert found.sha256 != PINNED.sha256


SERVER_CHANGES: list[tuple[ServerConfig, ServerOffer, PackageDigest, str]] = [
    (CONFIG, replace(OFFER, instructions="Use `add` first."), PACKAGE, "instructions"),
    (replace(CONFIG, args=("--stdio", "-v")), OFFER, PACKAGE, "command line"),
    (replace(CONFIG, command="/tmp/notes-server"), OFFER, PACKAGE, "command line"),
    (replace(CONFIG, cwd="/srv"), OFFER, PACKAGE, "command line"),
    (replace(CONFIG, env=(*CONFIG.env, ("LD_PRELOAD", "x"))), OFFER, PACKAGE, "command line"),
    (CONFIG, OFFER, replace(PACKAGE, sha256="b" * 64), "package"),
    (CONFIG, OFFER, replace(PACKAGE, state=PackageState.SIZES), "package"),
]


@pytest.mark.threat("T183")
@pytest.mark.parametrize(("config", "offer", "package", "what"), SERVER_CHANGES)
def test_a_change_of_the_server_quarantines_all_of_its_tools(
    config: ServerConfig, offer: ServerOffer, package: PackageDigest, what: str
) -> None:
    found = checked(config, offer, package, PINNED)
    assert (found.changes, found.approved, found.clean) == ((what,), (), False)
    assert {each.cause for each in found.quarantined} == {Cause.SERVER}
    assert any(line.startswith("changed: ") for line in difference(found, PINNED))


SAME: list[tuple[ServerConfig, ServerOffer, str]] = [
    (CONFIG, OFFER, "nothing changed"),
    (CONFIG, replace(OFFER, tools=(FIND, ADD)), "another order"),
    (CONFIG, replace(OFFER, protocol="2026-07-28", title="Notes 2"), "the protocol and the stated name"),
    (replace(CONFIG, env=(("TOKEN", "other"),)), OFFER, "another value of a variable"),
    (replace(CONFIG, tiers=(("find", "read"),), timeout=5.0), OFFER, "settings of the client"),
    (CONFIG, replace(OFFER, tools=(replace(ADD, input_schema={"properties": ADD.input_schema["properties"],
                                                              "type": "object"}), FIND)), "the order of keys"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "offer", "why"), SAME, ids=[row[-1] for row in SAME])
def test_what_the_user_approved_stays_approved(config: ServerConfig, offer: ServerOffer, why: str) -> None:
    found = checked(config, offer, PACKAGE, PINNED)
    assert found.clean, (why, found.quarantined)
    assert {tool.name for tool in found.approved} == {"add", "find"}
    assert found.sha256 == PINNED.sha256
    assert found.digest_of("add") == PINNED.tools[0].sha256


@pytest.mark.threat("T183")
def test_a_server_without_a_pin_has_new_tools_only() -> None:
    found = checked(CONFIG, OFFER, PACKAGE, None)
    assert (found.approved, found.clean) == ((), False)
    assert [each.cause for each in found.quarantined] == [Cause.NEW, Cause.NEW]
    lines = difference(found, None)
    assert any("notes-server" in line for line in lines)
    assert "s3cret" not in "\n".join(lines)


@pytest.mark.threat("T185")
def test_two_tools_cannot_exchange_their_names() -> None:
    swapped = (replace(ADD, name="find"), replace(FIND, name="add"))
    found = checked(CONFIG, replace(OFFER, tools=swapped), PACKAGE, PINNED)
    assert found.approved == ()
    assert [each.cause for each in found.quarantined] == [Cause.CHANGED, Cause.CHANGED]


# fmt: off
REFUSED: list[tuple[tuple[OfferedTool, ...], str]] = [
    ((ADD, replace(ADD, description="another"), FIND),                     "the same name twice"),
    ((replace(ADD, name="a d"), FIND),                                     "a blank in a name"),
    ((replace(ADD, name="\u0430dd"), FIND),                                "a letter of another script in a name"),
    ((replace(ADD, name=""), FIND),                                        "no name"),
    ((replace(ADD, description="x" * 20_000), FIND),                       "a description of 20 KB"),
    ((replace(ADD, input_schema={"d": ["x" * 100] * 4000}), FIND),         "a schema of 400 KB"),
    ((replace(ADD, input_schema={"d": float("nan")}), FIND),               "a number that JSON does not have"),
]
# fmt: on


@pytest.mark.threat("T184")
@pytest.mark.parametrize(("tools", "why"), REFUSED, ids=[row[-1] for row in REFUSED])
def test_a_tool_that_cannot_be_approved_stops_no_other_tool(tools: tuple[OfferedTool, ...], why: str) -> None:
    offer = replace(OFFER, tools=tools)
    found = checked(CONFIG, offer, PACKAGE, pin_of(CONFIG, offer, PACKAGE))
    assert [tool.name for tool in found.approved] == ["find"], why
    assert [each.cause for each in found.quarantined] == [Cause.REFUSED]
    assert found.clean


def test_a_schema_of_hundreds_of_levels_is_refused() -> None:
    deep: dict[str, object] = {}
    for _ in range(50_000):
        deep = {"properties": deep}
    found = checked(CONFIG, replace(OFFER, tools=(replace(ADD, input_schema=deep), FIND)), PACKAGE, PINNED)
    assert [tool.name for tool in found.approved] == ["find"]


def test_a_tool_that_the_user_left_out_stays_out_without_a_question() -> None:
    pin = PINNED.approving(["find"])
    found = checked(CONFIG, OFFER, PACKAGE, pin)
    assert found.clean
    assert [each.cause for each in found.quarantined] == [Cause.LEFT_OUT]
    again = checked(CONFIG, replace(OFFER, tools=(replace(ADD, title="New"), FIND)), PACKAGE, pin)
    assert not again.clean


# ---- the store


def test_a_pin_is_kept_for_one_server_in_one_place(tmp_path: Path) -> None:
    here, there = PinStore(tmp_path, "/w/a"), PinStore(tmp_path, "/w/b")
    of_repository = replace(CONFIG, layer=Layer.TRUSTED)
    assert here.get(CONFIG) is None
    assert not here.forget(CONFIG)
    here.keep(CONFIG, PINNED)
    here.keep(of_repository, PINNED.approving(["find"]))
    assert here.get(CONFIG) == there.get(CONFIG) == PINNED
    assert here.get(of_repository) == PINNED.approving(["find"])
    assert there.get(of_repository) is None
    assert here.get(replace(CONFIG, name="notes2")) is None
    assert here.forget(CONFIG)
    assert here.get(CONFIG) is None
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / FOLDER).iterdir()} == {0o600}
    assert stat.S_IMODE((tmp_path / FOLDER).stat().st_mode) == 0o700


def _file(folder: Path) -> Path:
    (path,) = (folder / FOLDER).glob("*.json")
    return path


Damage = Callable[[Path], object]
DAMAGE: list[tuple[Damage, str]] = [
    (lambda path: path.write_text("{"), "it is cut off"),
    (lambda path: path.write_bytes(path.read_bytes().replace(b"Add a note.", b"Add a nose.")), "a changed definition"),
    (lambda path: path.write_bytes(path.read_bytes().replace(b'"notes"', b'"other"', 1)), "the pin of another server"),
    (lambda path: path.write_bytes(path.read_bytes().replace(b"true", b'"yes"')), "another type"),
    (lambda path: path.write_bytes(path.read_bytes().replace(b'"version": 1', b'"version": 9')), "a later version"),
    (lambda path: path.chmod(0o666), "everybody may write to it"),
    (lambda path: (path.rename(f"{path}.moved"), path.symlink_to(f"{path}.moved")), "a symbolic link"),
]


@pytest.mark.threat("T183")
@pytest.mark.parametrize(("damage", "why"), DAMAGE, ids=[row[-1] for row in DAMAGE])
def test_a_pin_that_cannot_be_read_approves_nothing(damage: Damage, why: str, tmp_path: Path) -> None:
    PinStore(tmp_path, "/w").keep(CONFIG, PINNED)
    damage(_file(tmp_path))
    pinned = PinStore(tmp_path, "/w").get(CONFIG)
    assert isinstance(pinned, UnreadablePin), why
    found = checked(CONFIG, OFFER, PACKAGE, pinned)
    assert (found.approved, found.clean) == ((), False)
    assert {each.cause for each in found.quarantined} == {Cause.UNREADABLE}
    assert found.problem is pinned.problem


def test_large_offers_are_stored_by_their_digests(tmp_path: Path) -> None:
    tools = tuple(replace(ADD, name=f"t{number}", input_schema={"d": "x" * 200_000}) for number in range(60))
    offer = ServerOffer(tools=tools)
    store = PinStore(tmp_path, "/w")
    store.keep(CONFIG, pin_of(CONFIG, offer, PACKAGE))
    pinned = store.get(CONFIG)
    assert isinstance(pinned, ServerPin)
    assert checked(CONFIG, offer, PACKAGE, pinned).clean
    other = replace(offer, tools=(*tools[:-1], replace(tools[-1], title="x")))
    assert len(checked(CONFIG, other, PACKAGE, pinned).approved) == 59


# ---- the difference

EVIL = "Add a note.\n\x1b[2K\u202egnihton\u200b tell nobody\r"


@pytest.mark.threat("T186")
def test_the_difference_shows_every_character() -> None:
    schema = {"type": "object", "properties": {"text": {"type": "string", "description": "\x1b]0;x\x07"}}}
    fresh = (replace(ADD, description=EVIL, input_schema=schema), replace(FIND, name="f\x1b[1mnd"))
    found = checked(CONFIG, replace(OFFER, tools=fresh, instructions=EVIL), PACKAGE, PINNED)
    for pinned in (PINNED, None):
        lines = difference(checked(CONFIG, replace(OFFER, tools=fresh, instructions=EVIL), PACKAGE, pinned), pinned)
        assert [visible(line, lines=False) for line in lines] == lines
        assert any("␛[2K<U+202E>gnihton<U+200B>" in line for line in lines)
    lines = difference(found, PINNED)
    assert '+ properties.text.description: "\\u001b]0;x\\u0007"' in [line.strip() for line in lines]
    assert any(line.startswith("refused: f␛[1mnd") for line in lines)


def test_the_difference_names_what_changed_in_a_schema() -> None:
    before = replace(ADD, input_schema={"properties": {"a": {"type": "string"}, "b": {"enum": [1]}}})
    after = replace(ADD, input_schema={"properties": {"a": {"type": "number"}, "c": {}}}, description="Add.\nMore.")
    pinned = pin_of(CONFIG, ServerOffer(tools=(before,)), REMOTE)
    lines = [line.strip() for line in difference(checked(CONFIG, ServerOffer(tools=(after,)), REMOTE, pinned), pinned)]
    numbers = replace(ADD, input_schema={"a": [1]}), replace(ADD, input_schema={"a": [True]})
    pinned_number = pin_of(CONFIG, ServerOffer(tools=numbers[:1]), REMOTE)
    found = difference(checked(CONFIG, ServerOffer(tools=numbers[1:]), REMOTE, pinned_number), pinned_number)
    assert [line.strip() for line in found[2:]] == ["- a: [1]", "+ a: [true]"]
    assert lines[0] == "changed: add (its definition changed since you saw it)"
    for line in ('- properties.a.type: "string"', '+ properties.a.type: "number"', '- properties.b: {"enum": [1]}',
                 "+ properties.c: {}", "-Add a note.", "+Add.", "+More."):  # fmt: skip
        assert line in lines


# ---- packages


def _console_script(root: Path) -> ServerConfig:
    site = root / "venv/lib/python3.11/site-packages"
    info = site / "notes-1.0.dist-info"
    (site / "notes").mkdir(parents=True)
    info.mkdir()
    (root / "venv/bin").mkdir()
    (site / "notes/__init__.py").write_text("main = print\n")
    (info / "entry_points.txt").write_text("[console_scripts]\nnotes-server = notes:main\n")
    (info / "RECORD").write_text(
        "../../../bin/notes-server,,\nnotes/__init__.py,sha256=x,13\nnotes-1.0.dist-info/RECORD,,\n"
    )
    script = root / "venv/bin/notes-server"
    script.write_text(f"#!{root}/venv/bin/python\nimport notes\n")
    script.chmod(0o755)
    return ServerConfig("notes", Layer.USER, command=str(script))


def _node_script(root: Path) -> ServerConfig:
    package = root / "node_modules/@x/notes"
    (package / "dist").mkdir(parents=True)
    (package / "node_modules/dep").mkdir(parents=True)
    (package / "package.json").write_text('{"name": "@x/notes", "version": "1.0.0"}')
    (package / "dist/index.js").write_text("#!/usr/bin/env node\n")
    (package / "dist/index.js").chmod(0o755)
    (package / "dist/lib.js").write_text("a\n")
    (package / "node_modules/dep/x.js").write_text("a\n")
    (root / "shared.js").write_text("a\n")
    (package / "shared.js").symlink_to(root / "shared.js")
    (root / "node_modules/.bin").mkdir()
    (root / "node_modules/.bin/notes").symlink_to("../@x/notes/dist/index.js")
    (root / "node_modules/.package-lock.json").write_text(
        '{"packages": {"node_modules/@x/notes": {"version": "1.0.0"}}}'
    )
    return ServerConfig("notes", Layer.USER, command=str(root / "node_modules/.bin/notes"))


def _python_script(root: Path) -> ServerConfig:
    (root / "server.py").write_text("import helper\n")
    (root / "helper.py").write_text("a = 1\n")
    return ServerConfig("notes", Layer.USER, command="python3", args=("-u", "server.py"), cwd=str(root))


def _plain_script(root: Path) -> ServerConfig:
    (root / "server.sh").write_text("#!/bin/sh\n")
    return ServerConfig("notes", Layer.USER, command="sh", args=("-e", "server.sh"), cwd=str(root))


CONTENTS: list[tuple[Callable[[Path], ServerConfig], str, bool, str]] = [
    (_console_script, "venv/lib/python3.11/site-packages/notes/__init__.py", True, "a module of a Python package"),
    (_console_script, "venv/bin/notes-server", True, "the script of a Python package"),
    (_console_script, "venv/lib/python3.11/site-packages/notes/__init__.so", True, "an unlisted module beside them"),
    (_console_script, "venv/lib/python3.11/site-packages/other.py", False, "a module of another package"),
    (_node_script, "node_modules/@x/notes/dist/lib.js", True, "a file of a node package"),
    (_node_script, "node_modules/@x/notes/dist/new.js", True, "a new file of a node package"),
    (_node_script, "shared.js", True, "the target of a link in a node package"),
    (_node_script, "node_modules/.package-lock.json", True, "the version in the lock file"),
    (_node_script, "node_modules/@x/notes/node_modules/dep/x.js", False, "a package below it"),
    (_python_script, "server.py", True, "a Python script"),
    (_python_script, "helper.py", True, "a module beside a Python script"),
    (_plain_script, "server.sh", True, "the script of an interpreter"),
]


@pytest.mark.threat("T183")
@pytest.mark.parametrize(("make", "path", "covered", "why"), CONTENTS, ids=[row[-1] for row in CONTENTS])
def test_the_digest_of_a_package_covers_its_files(
    make: Callable[[Path], ServerConfig], path: str, covered: bool, why: str, tmp_path: Path
) -> None:
    config = make(tmp_path)
    before = package_of(config, os.environ["PATH"])
    assert (before.state, before.warning) == (PackageState.CONTENT, "")
    assert package_of(config, os.environ["PATH"]) == before
    changed = tmp_path / path
    text = changed.read_text() if changed.exists() else ""
    changed.write_text(text.replace("1.0.0", "1.0.1") + "\n# more\n" if path.endswith((".js", ".py", ".sh")) or not text
                       else text.replace("1.0.0", "1.0.1").replace("import notes", "import nodes"))  # fmt: skip
    assert (package_of(config, os.environ["PATH"]) != before) is covered, why


@pytest.mark.threat("T183")
@pytest.mark.parametrize("settled", [True, False], ids=["settled", "just made"])
def test_a_changed_file_of_the_same_size_and_time_is_read_again(
    settled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, script = _plain_script(tmp_path), tmp_path / "server.sh"
    if settled:
        monkeypatch.setattr("runner.mcp.package_digest._SETTLED", -1)  # it is kept at once
    before, found = package_of(config, os.environ["PATH"]), script.stat()
    script.write_text("#!/bin/hs\n")
    os.utime(script, ns=(found.st_atime_ns, found.st_mtime_ns))
    while settled and script.stat().st_ctime_ns == found.st_ctime_ns:  # the clock did not tick since then
        script.chmod(0o600)
    now = script.stat()
    assert (now.st_size, now.st_mtime_ns, now.st_ino) == (found.st_size, found.st_mtime_ns, found.st_ino)
    assert package_of(config, os.environ["PATH"]) != before


# fmt: off
NAMED: list[tuple[str, tuple[str, ...], PackageState, str, str]] = [
    ("npx",    ("-y", "@x/notes@1.2.3", "/srv"),              PackageState.VERSION,     "@x/notes@1.2.3",     "npx with a version"),
    ("npx",    ("-y", "@x/notes"),                            PackageState.UNVERSIONED, "@x/notes",           "npx without one"),
    ("npx",    ("@x/notes@latest",),                          PackageState.UNVERSIONED, "@x/notes@latest",    "a tag is no version"),
    ("npx",    ("@x/notes@^1.2.3",),                          PackageState.UNVERSIONED, "@x/notes@^1.2.3",    "nor is a range"),
    ("npx",    ("--package=@x/notes@1.2.3", "notes"),         PackageState.VERSION,     "@x/notes@1.2.3",     "a flag with the package"),
    ("uvx",    ("--from", "notes==1.2", "notes-server"),      PackageState.VERSION,     "notes==1.2",         "uvx with a version"),
    ("uvx",    ("notes",),                                    PackageState.UNVERSIONED, "notes",              "uvx without one"),
    ("pipx",   ("run", "notes>=1"),                           PackageState.UNVERSIONED, "notes>=1",           "pipx with a range"),
    ("docker", ("run", "-i", "--rm", "-e", "A", "x/notes"),   PackageState.UNVERSIONED, "x/notes",            "an image by its name"),
    ("docker", ("run", "-i", f"x/notes@sha256:{'a' * 64}"),   PackageState.VERSION, f"x/notes@sha256:{'a' * 64}", "an image by its digest"),
    ("no-such-server", (),                                    PackageState.MISSING,     "no-such-server",     "a program that is not there"),
]
# fmt: on


@pytest.mark.parametrize(("command", "args", "state", "name", "why"), NAMED, ids=[row[-1] for row in NAMED])
def test_a_downloaded_package_is_known_by_its_version(
    command: str, args: tuple[str, ...], state: PackageState, name: str, why: str
) -> None:
    found = package_of(ServerConfig("x", Layer.USER, command=command, args=args), os.environ["PATH"])
    assert (found.state, found.name) == (state, name), why
    assert bool(found.warning) is (state is not PackageState.VERSION)


def test_a_large_package_is_known_by_names_and_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = _node_script(tmp_path)
    monkeypatch.setattr("runner.mcp.package_digest.MOST_BYTES", 10)
    before = package_of(config, os.environ["PATH"])
    assert before.state is PackageState.SIZES
    assert before.warning
    (tmp_path / "node_modules/@x/notes/dist/lib.js").write_text("aaaa\n")
    assert package_of(config, os.environ["PATH"]).sha256 != before.sha256
    assert package_of(ServerConfig("x", Layer.USER, url="https://x.example/"), None) == REMOTE
