"""Tests of the trust inventory: nothing in a repository redirects or blocks the search, and one hash covers it all."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from runner.config.inventory import EntryKind, Inventory, InventoryEntry, differences
from runner.config.serverfiles.json_servers import ServerForm
from runner.config.serverfiles.read_servers import REPOSITORY, read_servers
from runner.config.trust.discover import SERVER_FILES, look
from runner.config.trust.text import server_words
from runner.problems import Stopped
from tests.support.places import ROOT

FILES = {
    ".ringfence/config.toml": 'mode = "trust-project"\n',
    ".ringfence/config.local.toml": "max_turns = 9\n",
    ".ringfence/commands/git/log.md": "Show the log.\n",
    ".ringfence/hooks/before/run.sh": "#!/bin/sh\n",
    ".ringfence/skills/review/SKILL.md": "# Review\n",
    ".mcp.json": '{"mcpServers": {}}',
    "AGENTS.md": "# Agents\n",
    "CLAUDE.md": "# Claude\n",
    "GEMINI.md": "# Gemini\n",
}


def lay(base: Path, files: dict[str, str]) -> Path:
    workspace = base / "w"
    workspace.mkdir(exist_ok=True)
    for path, text in files.items():
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace / path).write_text(text)
    return Path(os.path.realpath(workspace))


def refusals(inventory: Inventory) -> dict[str, str]:
    return {entry.path: entry.refused for entry in inventory.entries if entry.refused}


def test_everything_that_would_change_or_run_something_is_found(tmp_path: Path) -> None:
    others = {"README.md": "x", "docs/AGENTS.md": "nested", ".ringfence/notes.txt": "x", "agents.txt": "x"}
    found = look(str(lay(tmp_path, FILES | others)))
    assert {entry.path: found.contents[entry.path].decode() for entry in found.entries} == FILES
    assert [entry.path for entry in found.entries] == sorted(FILES)
    assert not refusals(found)


def test_a_repository_without_any_has_an_empty_one(tmp_path: Path) -> None:
    assert look(str(lay(tmp_path, {"README.md": "x"}))).entries == ()


def _rewrite(path: str, text: str) -> Callable[[Path], object]:
    return lambda workspace: (workspace / path).write_text(text)


CHANGES: list[tuple[Callable[[Path], object], list[tuple[str, str]], str]] = [
    (_rewrite("AGENTS.md", "# agents\n"), [("AGENTS.md", "has changed")], "one byte of a text"),
    (
        _rewrite(".ringfence/config.toml", 'mode = "trust-project" \n'),
        [(".ringfence/config.toml", "has changed")],
        "a blank",
    ),
    (_rewrite(".ringfence/hooks/b", ""), [(".ringfence/hooks/b", "is new")], "an empty hook"),
    (lambda w: (w / "CLAUDE.md").unlink(), [("CLAUDE.md", "is gone")], "one less"),
    (lambda w: (w / ".mcp.json").chmod(0o755), [(".mcp.json", "is executable now")], "a bit that lets it run"),
    (
        lambda w: (w / ".ringfence/hooks/before").rename(w / ".ringfence/hooks/after"),
        [(".ringfence/hooks/after/run.sh", "is new"), (".ringfence/hooks/before/run.sh", "is gone")],
        "another time to run at",
    ),
    (
        lambda w: ((w / "AGENTS.md").unlink(), (w / "AGENTS.md").symlink_to("GEMINI.md")),
        [("AGENTS.md", "is a link and no plain file now")],
        "a link in its place",
    ),
    (lambda w: (w / "README.md").write_text("y"), [], "nothing of ours"),
    (lambda w: os.utime(w / "AGENTS.md", (1, 1)), [], "another time, the same content"),
]


@pytest.mark.threat("T71")
@pytest.mark.parametrize(("change", "expected", "why"), CHANGES, ids=[row[2] for row in CHANGES])
def test_every_change_of_content_changes_the_hash(
    tmp_path: Path, change: Callable[[Path], object], expected: list[tuple[str, str]], why: str
) -> None:
    workspace = lay(tmp_path, FILES)
    before = look(str(workspace))
    change(workspace)
    after = look(str(workspace))
    assert list(differences(before.entries, after.entries)) == expected, why
    assert (before.sha256 != after.sha256) == bool(expected), why


def test_the_hash_is_that_of_the_content_wherever_it_lies(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, other = look(str(lay(tmp_path / "a", FILES))), look(str(lay(tmp_path / "b", FILES)))
    assert one.sha256 == other.sha256
    # A written-down value: a change of the form would quietly ask everybody again.
    entry = InventoryEntry("AGENTS.md", EntryKind.INSTRUCTIONS, False, 3, "0" * 64)
    assert Inventory("/w", (entry,)).sha256 == "f0e8ea9c65fdb5035fedcf8b97de941aa0d7404491316a8633f53f8974ca2344"
    assert replace(entry, size=4).sha256 == entry.sha256


@pytest.mark.parametrize("one", ["path", "kind", "executable", "sha256", "refused"])
def test_law_each_part_of_an_entry_counts(one: str) -> None:
    entry = InventoryEntry("AGENTS.md", EntryKind.INSTRUCTIONS, False, 3, "0" * 64)
    other = {"path": "AGENTS.m", "kind": EntryKind.HOOK, "executable": True, "sha256": "1" * 64, "refused": "is a link"}
    changed = replace(entry, **{one: other[one]})
    assert Inventory("/w", (entry,)).sha256 != Inventory("/w", (changed,)).sha256


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def _big(path: Path) -> None:
    path.write_bytes(b"x" * ((1 << 20) + 1))


def _linked(path: Path) -> None:
    secret = path.parents[1] / "secret"
    secret.write_text("a key")
    os.link(secret, path)


ODD: list[tuple[Callable[[Path], None], str, str]] = [
    (_fifo, "is a pipe and no plain file", "opening it would wait for a writer"),
    (_socket, "is a socket and no plain file", "nothing to read"),
    (lambda path: path.symlink_to("/etc/passwd"), "is a link and no plain file", "it leads out"),
    (lambda path: path.symlink_to("nowhere"), "is a link and no plain file", "it leads nowhere yet"),
    (lambda path: path.mkdir(), "is a folder and no plain file", "not a text"),
    (_big, "is longer than 1 MiB", "nobody reads that before saying yes"),
    (_linked, "has another name elsewhere (a hard link)", "it may be a file that only its owner could read"),
    (
        lambda path: path.write_bytes(b"fine\xff\n") and None,
        "is not UTF-8 text",
        "what a person sees is not what it is",
    ),
]


@pytest.mark.threat("T71")
@pytest.mark.parametrize(("make", "said", "why"), ODD, ids=[row[1] + ": " + row[2] for row in ODD])
def test_what_is_no_plain_file_is_listed_and_not_read(
    tmp_path: Path, make: Callable[[Path], None], said: str, why: str
) -> None:
    workspace = lay(tmp_path, {"CLAUDE.md": "fine"})
    make(workspace / "AGENTS.md")
    found = look(str(workspace))
    assert refusals(found) == {"AGENTS.md": said}, why
    assert set(found.contents) == {"CLAUDE.md"}
    assert found.hashes(EntryKind.INSTRUCTIONS).keys() == {"CLAUDE.md"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_a_device_is_not_even_opened(tmp_path: Path) -> None:
    workspace = lay(tmp_path, {})
    os.mknod(workspace / "AGENTS.md", 0o600 | 0o020000, os.makedev(1, 5))  # /dev/zero, which never ends
    assert refusals(look(str(workspace))) == {"AGENTS.md": "is a device and no plain file"}


@pytest.mark.threat("T71")
def test_a_folder_of_ours_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    elsewhere = lay(tmp_path, FILES)
    workspace = tmp_path / "v"
    workspace.mkdir()
    (workspace / ".ringfence").symlink_to(elsewhere / ".ringfence")
    found = look(str(workspace))
    assert refusals(found) == {".ringfence": "is a link and no folder"}
    assert not found.contents
    (workspace / ".ringfence").unlink()
    (workspace / ".ringfence").mkdir()
    (workspace / ".ringfence/hooks").symlink_to(elsewhere / ".ringfence/hooks")
    (workspace / ".ringfence/skills").write_text("no folder")
    assert refusals(look(str(workspace))) == {
        ".ringfence/hooks": "is a link and no folder",
        ".ringfence/skills": "is a file and no folder",
    }


def test_names_that_would_lie_on_a_screen_are_told_and_not_read(tmp_path: Path) -> None:
    workspace = lay(tmp_path, {".ringfence/hooks/fine": "x"})
    hooks = os.fsencode(workspace / ".ringfence/hooks")
    for name in (b"a\nb", b"a\x1b[2Jb", b"a\xffb", "a\u202eb".encode(), "a\u200bb".encode()):
        with open(os.path.join(hooks, name), "w"):
            pass
    found = refusals(look(str(workspace)))
    assert len(found) == 5
    assert set(found.values()) == {"has a name that cannot be shown as it is"}


def test_ten_thousand_skills_come_to_an_end(tmp_path: Path) -> None:
    workspace = lay(tmp_path, {"AGENTS.md": "x", ".ringfence/hooks/a": "x"})
    for number in range(10_000):
        (workspace / f".ringfence/skills/s{number}").mkdir(parents=True)
        (workspace / f".ringfence/skills/s{number}/SKILL.md").touch()
    found = look(str(workspace))
    assert refusals(found) == {".ringfence/skills": "holds more than 500 things, so none of them was looked at"}
    assert {entry.path for entry in found.entries} == {".ringfence/skills", ".ringfence/hooks/a", "AGENTS.md"}


def test_hooks_that_are_deep_or_large_come_to_an_end(tmp_path: Path) -> None:
    workspace = lay(tmp_path, {".ringfence/hooks/" + "d/" * 12 + "x": "x"})
    for number in range(20):
        (workspace / ".ringfence/skills/s").mkdir(parents=True, exist_ok=True)
        (workspace / f".ringfence/skills/s/{number}").write_bytes(b"x" * (1 << 20))
    assert refusals(look(str(workspace))) == {
        ".ringfence/hooks": "has folders more than 8 deep, so nothing below it was looked at",
        ".ringfence/skills": "holds more than 16 MiB, so none of it was looked at",
    }


_AS_NOBODY = """
import os, sys
from runner.config.serverfiles.json_servers import ServerForm
from runner.config.serverfiles.read_servers import REPOSITORY, read_servers
from runner.config.trust.discover import SERVER_FILES, look
os.setgid(65534); os.setuid(65534)
for entry in look(sys.argv[1]).entries:
    print(entry.path, entry.refused)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="root makes files that another user may not read")
def test_what_may_not_be_read_is_told(tmp_path: Path) -> None:
    base = Path(f"/var/tmp/ringfence-test-trust-{os.getpid()}")
    base.mkdir(mode=0o755)
    try:
        workspace = lay(base, {"AGENTS.md": "x", ".ringfence/hooks/a": "x", ".ringfence/config.toml": ""})
        (workspace / "AGENTS.md").chmod(0o600)
        (workspace / ".ringfence/hooks").chmod(0o700)
        root = str(ROOT)
        done = subprocess.run(
            [sys.executable, "-c", _AS_NOBODY, str(workspace)], capture_output=True, text=True, cwd=root
        )
        assert done.stdout.splitlines() == [
            ".ringfence/config.toml ",
            ".ringfence/hooks cannot be read: permission denied",
            "AGENTS.md cannot be read: permission denied",
        ], done.stderr
    finally:
        subprocess.run(["rm", "-rf", str(base)], check=True)


def test_a_file_that_turns_into_a_link_meanwhile_shows_nothing(tmp_path: Path) -> None:
    """A neighbour swaps the file as fast as it can; what is read is the file's own text or a refusal."""
    workspace = lay(tmp_path, {"AGENTS.md": "its own"})
    (tmp_path / "secret").write_text("a key")
    swap = (
        "import os, sys\nos.chdir(sys.argv[1])\n"
        "while True:\n"
        "    os.symlink('../secret', 'l'); os.replace('l', 'AGENTS.md')\n"
        "    open('p', 'w').write('its own'); os.replace('p', 'AGENTS.md')\n"
    )
    neighbour = subprocess.Popen([sys.executable, "-c", swap, str(workspace)])
    seen: set[bytes | str] = set()
    try:
        # Besides these it may be a file at the look and a link when it is opened, which has words of its own.
        while not {b"its own", "is a link and no plain file"} <= seen:
            assert neighbour.poll() is None
            found = look(str(workspace))
            seen |= set(found.contents.values()) | set(refusals(found).values())
    finally:
        neighbour.kill()
        neighbour.wait()
    assert b"a key" not in seen
    assert b"its own" in seen
    assert "is a link and no plain file" in seen


def test_a_workspace_that_is_none_is_said(tmp_path: Path) -> None:
    with pytest.raises(Stopped, match="cannot be looked into"):
        look(str(tmp_path / "gone"))


# fmt: off
SERVERS = [
    ('{"command": "npx", "args": ["-y", "x y"]}',                "npx -y 'x y'",                        "a command line"),
    ('{"command": "x", "env": {"API_KEY": "v"}}',                "x (sets API_KEY)",                    "no value of a key"),
    ('{"command": "x", "env": {"NODE_OPTIONS": "-r ./x"}}',      "x (sets NODE_OPTIONS='-r ./x')",      "another value"),
    ('{"command": "x", "env": {"API_KEY": "${K}"}}',             "x (sets API_KEY='${K}')",             "a variable of the user"),
    ('{"url": "https://h/x", "headers": {"A": "b"}}',            "connects to https://h/x (sends A=b)", "a remote one"),
    ('{"command": ["x"]}',                                       "cannot be used: `command` is not a text", "an odd program"),
    ('1',                                                        "cannot be used: it is not a server",  "an odd server"),
    ('{"command": "x", "args": [1]}',                            "x 1",                                 "a number"),
    ('{"command": "x", "args": [{"b": null}]}', "cannot be used: `args` contains something that is not a text", "an odd word"),
    ('{"command": "x", "args": ["' + "y" * 5000 + '"]}',
        "cannot be used: `args`: it has a text of more than 4,096 characters",                          "an endless word"),
]
# fmt: on


@pytest.mark.parametrize(("text", "expected", "why"), SERVERS, ids=[row[2] for row in SERVERS])
def test_servers_are_told_as_command_lines(text: str, expected: str, why: str) -> None:
    (found,) = read_servers(f'{{"mcpServers": {{"a": {text}}}}}'.encode(), ServerForm.CLAUDE)
    assert (found.name, server_words(found)) == ("a", expected), why


def test_the_same_files_are_found_and_read() -> None:
    assert tuple(REPOSITORY) == SERVER_FILES


NO_SERVERS = [
    (b"", "not valid JSON"),
    (b"[]", "not a JSON object"),
    (b"{}", "no `mcpServers`"),
    (b'{"mcpServers": []}', "no `mcpServers`"),
    (b"\xff", "not valid JSON"),
    (b"[" * 100_000, "nested too deeply"),
    (b'{"mcpServers": {}, "mcpServers": {"a": {"command": "x"}}}', "twice"),
    (b"1" * 10_000, "not valid JSON"),
]


@pytest.mark.parametrize(("text", "said"), NO_SERVERS, ids=[f"{row[0][:20]!r}" for row in NO_SERVERS])
def test_what_is_no_list_of_servers_is_said(text: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_servers(text, ServerForm.CLAUDE)
