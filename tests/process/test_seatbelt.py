"""macOS: what the profile of a command says (everywhere), how the backend starts it (here, through a program of ours in
the place of sandbox-exec), and whether it holds (marked `macos`: only a Mac can tell)."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.model.action import ReadFile, RunArgv, RunScript
from policy.model.verdict import _MINT, Limits, Permit, Rights, Terms
from sandbox.backend import Enforcement, Level, SandboxUnavailable
from sandbox.backends import BACKENDS, here, open_backend
from sandbox.linux.session_tmp import Scratch
from sandbox.macos import backend as seatbelt
from sandbox.macos.backend import LACKS, Seatbelt
from sandbox.macos.sbpl import Sbpl, profile_for
from sandbox.workspace.protected_paths import Scan
from tests.support.marked_processes import new_nap
from tests.support.places import ROOT, TESTS
from tests.support.sbpl_reader import Malformed, answer, check, read
from tests.support.waiting import until_async

GOLDEN = TESTS / "golden" / "seatbelt"
WS, SCRATCH = "/Users/me/project", "/private/var/folders/x/ringfence-tmp-1"
LIMITS = (ROOT / "docs/security/limits.md").read_text("utf-8")


def terms(rights: str = "workspace-write", **told: Any) -> Terms:
    return Terms(Rights(rights), told.pop("workspace", WS), "/Users/me", **told)


# fmt: off
CASES: dict[str, tuple[Terms, Scan, dict[str, Any]]] = {
    "read-only":              (terms("read-only"), Scan(), {}),
    "workspace-write":              (terms(), Scan(), {}),
    "read-only-read":         (terms("read-only", read=("/Users/me/other/notes.txt",)), Scan(), {}),
    "workspace-write-read-folder":  (terms(read=("/Users/me/other",)), Scan(), {}),
    "workspace-write-write":        (terms(write=("/Users/me/out",)), Scan(), {}),
    "read-only-write":        (terms("read-only", write=("/Users/me/out",)), Scan(), {}),
    "system":            (terms(system=("/opt/homebrew", "/Users/me/.pyenv/versions/3.12.1")), Scan(), {}),
    "masked":            (terms(), Scan(masked=(f"{WS}/.env", f"{WS}/deep/er/key.pem")), {}),
    "masked-read-only":       (terms("read-only"), Scan(masked=(f"{WS}/.env",)), {}),
    "masked-named":      (terms(read=(f"{WS}/.env",)), Scan(masked=(f"{WS}/.env", f"{WS}/b.env")), {}),
    "locked":            (terms(locked=(".git/hooks", ".git/config", ".vscode")), Scan(locked=(f"{WS}/.git/hooks",), pinned=(f"{WS}/.git",), roots=(WS,)), {}),
    "locked-nested":     (terms(locked=(".git/hooks", ".git/modules/*/hooks")), Scan(locked=(f"{WS}/.git/modules/m/hooks",), roots=(WS, f"{WS}/vendor/lib")), {}),
    "locked-opened":     (terms(locked=(".vscode", ".envrc"), write=(f"{WS}/.vscode",)), Scan(locked=(f"{WS}/.vscode",), roots=(WS,)), {}),
    "shared":            (terms(), Scan(shared=(f"{WS}/store/linked",)), {}),
    "aliases":           (terms(workspace="/tmp/project", read=("/etc/hosts", "/var/log")), Scan(masked=("/tmp/project/.env",)), {}),
    "hosts-read-only":        (terms("read-only", hosts=("example.org",)), Scan(), {"proxy": 50123}),
    "hosts-workspace-write":        (terms(hosts=("example.org", "*.example.net:8443")), Scan(), {"proxy": 50123}),
    "cache":             (terms(cache="/Users/me/.cache/ringfence/w1"), Scan(), {}),
    "unix":              (terms(unix=True), Scan(), {}),
    "file-action":       (terms("read-only"), Scan(masked=(f"{WS}/.env",)), {"code": ("/usr/local/ringfence/sandbox", "/opt/python")}),
    "hostile-names":     (terms(workspace='/Users/me/a")(allow default)("', read=('/Users/me/\\"; (allow file-read* (subpath "/"))', "/Users/me/line\nbreak", "/Users/me/ünïcode")),
                          Scan(masked=('/Users/me/a")(allow default)("/.env',)), {}),
}
# fmt: on


def written(name: str) -> Sbpl:
    told, found, more = CASES[name]
    return profile_for(told, found, scratch=SCRATCH, **more)


@pytest.mark.parametrize("name", CASES)
def test_the_profile_is_the_reviewed_one(name: str) -> None:
    sbpl = written(name)
    shown = sbpl.text + "".join(f"; {key} = {value!r}\n" for key, value in sbpl.parameters)
    file = GOLDEN / f"{name}.sb"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(shown, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == shown


def test_every_golden_file_has_a_case() -> None:
    assert {file.stem for file in GOLDEN.iterdir()} == set(CASES)


@pytest.mark.threat("T67")
@pytest.mark.parametrize("name", CASES)
def test_the_profile_is_well_formed_and_names_what_is_known(name: str) -> None:
    sbpl = written(name)
    assert len(dict(sbpl.parameters)) == len(sbpl.parameters), "one name, one path"
    rules = check(sbpl.text, dict(sbpl.parameters))
    assert all(rule.filters for rule in rules if rule.allows and rule.operations[0].startswith(("file", "mach", "net")))


# fmt: off
ANSWERS = [
    ("read-only", "file-read-data", f"{WS}/a", True, "the workspace can be read"),
    ("read-only", "file-write-data", f"{WS}/a", False, "and not written"),
    ("workspace-write", "file-write-create", f"{WS}/a", True, "under workspace-write it can"),
    ("workspace-write", "file-read-data", "/Users/me/.ssh/id_rsa", False, "the home is no part of it"),
    ("workspace-write", "file-read-metadata", "/Users/me/.ssh/id_rsa", False, "nor whether something is there"),
    ("workspace-write", "file-read-data", f"{WS}-other/a", False, "a name that only starts alike"),
    ("workspace-write", "file-read-metadata", "/Users/me", True, "what leads to the workspace can be walked"),
    ("workspace-write", "file-read-data", "/Users/me", False, "and not listed"),
    ("workspace-write", "file-write-data", "/Users/me", False, "nor changed"),
    ("workspace-write", "file-write-data", f"{SCRATCH}/x", True, "the session's own folder"),
    ("read-only", "file-write-data", f"{SCRATCH}/x", False, "which is to be read under read-only"),
    ("workspace-write", "file-write-setugid", f"{WS}/a", False, "no setuid bit anywhere"),
    ("workspace-write", "file-link", f"{WS}/a", False, "no second name of a file elsewhere"),
    ("workspace-write", "file-clone", f"{WS}/a", False, "and no copy that shares its blocks"),
    ("workspace-write", "file-read-data", "/System/Volumes/Data/Users/me/.ssh/id_rsa", False, "the other name of every file"),
    ("workspace-write", "file-read-data", "/System/Library/x", True, "the system's own libraries"),
    ("workspace-write", "process-exec", "/Users/me/Downloads/tool", False, "only what is readable can be started"),
    ("workspace-write", "process-exec-interpreter", "/bin/bash", True, "scripts too"),
    ("workspace-write", "ipc-posix-shm-write-data", "x", False, "no memory by name"),
    ("workspace-write", "mach-register", "x", False, "no service of its own"),
    ("workspace-write", "file-mount", "/", False, "nothing is mounted"),
    ("masked", "file-read-data", f"{WS}/.env", False, "a mask comes after the allow of what holds it"),
    ("masked", "file-read-metadata", f"{WS}/.env", False, "there is no trace of it"),
    ("masked", "file-write-unlink", f"{WS}/.env", False, "it cannot be moved to a name that is not masked"),
    ("masked", "file-write-unlink", f"{WS}/deep", False, "nor can a folder above it"),
    ("masked", "file-write-unlink", f"{WS}/deep/er", False, "at any depth"),
    ("masked", "file-write-create", f"{WS}/deep/er/new", True, "beside it all is as before"),
    ("masked", "file-write-unlink", f"{WS}/deep/er/other", True, "and can be removed"),
    ("masked-named", "file-read-data", f"{WS}/.env", True, "what the Terms name is not masked"),
    ("masked-named", "file-read-data", f"{WS}/b.env", False, "the rest is"),
    ("locked", "file-write-data", f"{WS}/.git/hooks/pre-commit", False, "a hook that exists"),
    ("locked", "file-write-create", f"{WS}/.vscode/tasks.json", False, "a folder that does not exist yet"),
    ("locked", "file-read-data", f"{WS}/.git/config", True, "reading is for everybody"),
    ("locked", "file-write-data", f"{WS}/.git/index", True, "git itself still works"),
    ("locked", "file-write-unlink", f"{WS}/.git", False, "and stays where it is"),
    ("locked-nested", "file-write-create", f"{WS}/vendor/lib/.git/hooks/x", False, "a repository inside"),
    ("locked-opened", "file-write-create", f"{WS}/.vscode/tasks.json", True, "opened by name"),
    ("locked-opened", "file-write-create", f"{WS}/.envrc", False, "and nothing else by that"),
    ("shared", "file-write-data", f"{WS}/store/linked", False, "a file with another name elsewhere"),
    ("aliases", "file-write-data", "/private/tmp/project/a", True, "the kernel's own name of /tmp"),
    ("aliases", "file-read-data", "/private/tmp/project/.env", False, "masks know it too"),
    ("aliases", "file-read-data", "/private/tmp/other", False, "the rest of it is not there"),
    ("aliases", "file-read-data", "/private/var/log/x", True, "and that of /var"),
    ("hostile-names", "file-read-data", "/Users/me/.ssh/id_rsa", False, "a name is never a rule"),
    ("hostile-names", "file-read-data", '/Users/me/a")(allow default)("/x', True, "it is just a name"),
    ("hostile-names", "file-read-data", '/Users/me/a")(allow default)("/.env', False, "masked like any other"),
]
# fmt: on


@pytest.mark.threat("T67")
@pytest.mark.parametrize(("name", "operation", "path", "allowed", "why"), ANSWERS)
def test_what_the_last_rule_that_matches_says(name: str, operation: str, path: str, allowed: bool, why: str) -> None:
    sbpl = written(name)
    assert answer(check(sbpl.text, dict(sbpl.parameters)), operation, path) is allowed, why


@pytest.mark.threat("T67")
def test_the_only_way_out_is_one_port_of_this_machine() -> None:
    reached = {
        name: [f for r in _network(name) if "network-outbound" in r.operations for f in r.filters] for name in CASES
    }
    assert {name: found for name, found in reached.items() if found} == {
        "hosts-read-only": [("remote", "localhost:50123")],
        "hosts-workspace-write": [("remote", "localhost:50123")],
        "unix": [("remote", SCRATCH)],
    }
    assert not _network("read-only"), "read-only opens no socket at all"


def _network(name: str) -> list[Any]:
    sbpl = written(name)
    return [rule for rule in check(sbpl.text, dict(sbpl.parameters)) if rule.operations[0].startswith("network")]


@pytest.mark.threat("T67")
@given(st.lists(st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), min_size=1), max_size=6))
def test_law_no_name_of_a_path_changes_the_rules(names: list[str]) -> None:
    """Terms that differ only in names give the same text, so nothing in a name can be read as a rule."""
    odd = tuple(dict.fromkeys(f"/Users/me/{name.replace('/', '_')}" for name in names))
    plain = tuple(f"/Users/me/{number}" for number in range(len(odd)))
    one, other = (profile_for(terms(read=each), Scan(), scratch=SCRATCH) for each in (odd, plain))
    assert one.text == other.text
    check(one.text, dict(one.parameters))


@pytest.mark.parametrize(
    "source",
    ["(version 1", "(version 1))", "(a 'b \"c)", '(version 1)\n(deny default)\n(allow file-red* (subpath "/"))',
     '(version 1)\n(deny default)\n(allow file-read* (sub-path "/"))', "(version 1)\n(allow default)",
     '(version 1)\n(deny default)\n(allow file-read* (subpath (param "GONE")))',
     '(version 1)\n(deny default)\n(allow network-outbound (remote ip "*:*"))'],
)  # fmt: skip
def test_the_reader_refuses_what_sandbox_exec_would(source: str) -> None:
    with pytest.raises(Malformed):
        check(source, {})


def test_the_reader_reads_texts_and_comments() -> None:
    assert read("(a ; b) c\n d)") == [["a", "d"]]


# ---- the backend


@pytest.mark.skipif(sys.platform == "darwin", reason="this is about other systems")
def test_elsewhere_it_is_not_chosen_and_says_why() -> None:
    assert "seatbelt" in BACKENDS
    assert "seatbelt" not in here()
    with pytest.raises(SandboxUnavailable) as caught:
        asyncio.run(open_backend("seatbelt", Level.PARTIAL))
    assert "a part of macOS" in caught.value.problem.why


def test_what_it_lacks_is_in_the_document() -> None:
    assert [lack for lack in LACKS if f"- {lack}\n" not in LIMITS] == []


def test_more_places_than_a_command_line_holds_are_refused() -> None:
    many = Scan(masked=tuple(f"{WS}/{number}/{'x' * 200}" for number in range(3000)))
    with pytest.raises(SandboxUnavailable):
        Seatbelt().command(terms(), many, ("/bin/echo",))


STAND_IN = """#!/bin/sh
# In the place of sandbox-exec: confines nothing, takes the same arguments.
[ "$1" = -p ] || exit 99
shift 2
while [ "$1" = -D ]; do shift 2; done
exec "$@"
"""


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    program = tmp_path / "sandbox-exec"
    program.write_text(STAND_IN)
    program.chmod(0o755)
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / "file.txt").write_text("hello\n")
    return tmp_path


def run_through(place: Path, script: str, *, stdin: bytes | None = None, **limits: Any) -> Any:
    async def once() -> Any:
        backend = Seatbelt(program=str(place / "sandbox-exec"))
        told = Terms(
            Rights.WORKSPACE_WRITE,
            str(place / "ws"),
            "/nonexistent",
            env=(("A", "b"),),
            limits=Limits(**limits),
        )
        try:
            argv = ("/bin/bash", "-c", script)
            return await backend._confined(told, argv, str(place / "ws"), stdin, None)
        finally:
            await backend.close()

    return asyncio.run(once())


# fmt: off
TALKS = [
    ("echo out; echo err >&2; exit 7", {}, 7, b"out\n", None, "status and streams"),
    ("kill -9 $$", {}, 137, b"", None, "a signal is 128+N"),
    ("wc -c < /dev/stdin | tr -d ' '", {"stdin": b"x" * 300_000}, 0, b"300000\n", None, "all of the input"),
    ("cat | wc -c | tr -d ' '", {}, 0, b"0\n", None, "input is empty unless given"),
    ("true", {"stdin": b"x" * 300_000}, 0, b"", None, "input that nobody reads"),
    ("env | grep -v -e ^HOME= -e ^TMPDIR= -e ^_= -e ^SHLVL= -e ^PWD=", {}, 0, b"A=b\n", None, "the environment is the Terms'"),
    ("[ $HOME = $TMPDIR ] && echo x > ~/a && cat ~/a", {}, 0, b"x\n", None, "a home of its own"),
    ("ulimit -n; ulimit -c", {"open_files": 123}, 0, b"123\n0\n", None, "limits are set"),
    ("sleep 30", {"wall": 0.5}, 137, b"", "wall", "wall time"),
    ("yes", {"output": 1000}, 137, b"y\n" * 500, "output", "output"),
    ("sleep 97531 & echo left", {}, 0, b"left\n", None, "what is left behind is ended"),
]
# fmt: on


@pytest.mark.parametrize(("script", "told", "status", "out", "ended", "why"), TALKS, ids=[row[-1] for row in TALKS])
def test_the_conversation_with_a_command(
    stand_in: Path, script: str, told: dict[str, Any], status: int, out: bytes, ended: str | None, why: str
) -> None:
    done = run_through(stand_in, script, **told)
    assert (done.status, done.stdout, done.ended_by) == (status, out, ended), done
    assert b"97531" not in subprocess.run(["ps", "axo", "args"], capture_output=True, check=True).stdout


def test_a_permit_becomes_a_command_or_a_file_action(stand_in: Path) -> None:
    """Through `run`; what its canary would have said is said for it, since there is nothing here that holds."""
    told = Terms(Rights.WORKSPACE_WRITE, str(stand_in / "ws"), "/nonexistent")
    actions = (
        RunScript("echo $((6 * 7)); exit 3", told.workspace),
        RunArgv(("/bin/echo", "a b"), told.workspace),
        ReadFile(f"{told.workspace}/file.txt"),
        ReadFile(f"{told.workspace}/missing.txt"),
    )

    async def all_of_them() -> list[Any]:
        backend = Seatbelt(program=str(stand_in / "sandbox-exec"))
        backend.enforcement = Enforcement(Level.PARTIAL, "seatbelt")
        try:
            return [await backend.run(Permit(action, told, _MINT)) for action in actions]
        finally:
            await backend.close()

    script, argv, found, missing = asyncio.run(all_of_them())
    assert (script.status, script.stdout) == (3, b"42\n")
    assert (argv.status, argv.stdout) == (0, b"a b\n")
    assert "hello" in str(found.data), found
    assert missing.problem is not None


def test_named_hosts_are_reached_through_the_proxy_of_one_command(stand_in: Path) -> None:
    """The stand-in confines nothing, so this is about the way that is offered; that it is the only one, the profile says."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = (
            f"import os, urllib.request\nproxy = os.environ['http_proxy']\nprint(proxy.rpartition(':')[0])\n"
            f"opener = urllib.request.build_opener(urllib.request.ProxyHandler({{'http': proxy}}))\n"
            f"print(opener.open('http://127.0.0.1:{port}/').read())\n"
            "try: opener.open('http://192.0.2.7/')\nexcept OSError as error: print(error.code)\n"
        )

        def serve() -> None:
            with server.accept()[0] as client:
                client.recv(4096)
                client.sendall(b"HTTP/1.0 200 OK\r\n\r\nserved")

        threading.Thread(target=serve, daemon=True).start()

        async def once() -> Any:
            backend = Seatbelt(program=str(stand_in / "sandbox-exec"))
            told = Terms(Rights.READ_ONLY, str(stand_in / "ws"), "/nonexistent", hosts=(f"127.0.0.1:{port} private",))
            try:
                return await backend._confined(told, ("/usr/bin/python3", "-c", script), "/", None, None)
            finally:
                await backend.close()

        done = asyncio.run(once())
    assert done.stdout.decode().split("\n")[:3] == ["http://127.0.0.1", "b'served'", "403"], done
    assert [(each.host, each.allowed) for each in done.connections] == [("127.0.0.1", True), ("192.0.2.7", False)]


def test_a_command_that_cannot_be_confined_leaves_no_port_open(stand_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seatbelt, "_MOST", 0)
    told = Terms(Rights.READ_ONLY, str(stand_in / "ws"), "/nonexistent", hosts=("example.org",))

    async def once() -> None:
        backend = Seatbelt(program=str(stand_in / "sandbox-exec"))
        backend.scratch = Scratch()
        try:
            before = os.listdir("/dev/fd")
            with pytest.raises(SandboxUnavailable) as refused:
                await backend._confined(told, ("/bin/echo",), "/", None, None)
            assert (os.listdir("/dev/fd"), "too many" in refused.value.problem.what) == (before, True)
        finally:
            await backend.close()

    asyncio.run(once())


def test_a_command_that_is_cancelled_is_ended(stand_in: Path) -> None:
    nap = new_nap()

    def seen() -> bytes:
        return subprocess.run(["ps", "axo", "args"], capture_output=True, check=True).stdout

    async def cancel() -> None:
        backend = Seatbelt(program=str(stand_in / "sandbox-exec"))
        told = Terms(Rights.READ_ONLY, str(stand_in / "ws"), "/nonexistent")
        running = asyncio.create_task(backend._confined(told, ("/bin/sleep", nap), "/", None, None))
        await until_async(lambda: nap.encode() in seen() or running.done())
        running.cancel()
        await asyncio.wait({running})
        assert running.cancelled()
        await until_async(lambda: nap.encode() not in seen())
        await backend.close()

    asyncio.run(cancel())


# ---- on a Mac

# fmt: off
ATTEMPTS = [
    ("cat file.txt", 0, "ordinary reading works"),
    ("echo x > new && mv new newer && rm newer", 0, "ordinary writing works"),
    ("/usr/bin/python3 -c 'print(1)' || /bin/echo 1", 0, "programs start"),
    ("printf a | cat > /dev/null; cat <(echo b)", 0, "pipes and devices"),
    ("git --version; git init -q r && rm -rf r; true", 0, "git is there"),
    ('cat "$OUTSIDE/secret"', 1, "a file outside"),
    ('stat "$OUTSIDE/secret"', 1, "its metadata"),
    ('ls "$OUTSIDE"', 1, "its folder"),
    ('cat "/System/Volumes/Data$OUTSIDE/secret"', 1, "by the other name of the volume"),
    ('ln -s "$OUTSIDE/secret" l; cat l', 1, "through a link"),
    ('ln "$OUTSIDE/secret" h && cat h', 1, "by a second name"),
    ('cp -c "$OUTSIDE/secret" c && cat c', 1, "as a clone"),
    ('echo x > "$OUTSIDE/new"', 1, "a new file outside"),
    ('chmod 777 "$OUTSIDE/secret"', 1, "modes outside"),
    ('mv file.txt "$OUTSIDE/moved"', 1, "moving out"),
    ("cat .env", 1, "a masked file"),
    ("mv .env x && cat x", 1, "a masked file under another name"),
    ("mv deep shallow && cat shallow/key.pem", 1, "a masked file under another folder"),
    ("mkdir -p .vscode && echo x > .vscode/tasks.json", 1, "an auto-run file"),
    ("echo x > .git/hooks/pre-commit", 1, "a hook"),
    ("mv .git gone", 1, "the repository itself"),
    ("touch s && chmod u+s s", 1, "a setuid bit"),
    ("exec 3<>/dev/tcp/127.0.0.1/$PORT", 1, "a service of this machine"),
    ("exec 3<>/dev/tcp/192.0.2.1/80", 1, "another machine"),
    ("/usr/bin/nslookup -timeout=1 example.org || dscacheutil -q host -a name example.org | grep -q ip_address", 1, "a name"),
    ("kill -0 $RUNNER", 1, "a signal to the runner"),
    ("/usr/bin/osascript -e 'tell application \"Finder\" to get name of home'", 1, "another application"),
    ("/usr/bin/open -a Calculator", 1, "a program outside of the sandbox"),
    ("/usr/bin/security list-keychains && /usr/bin/security dump-keychain", 1, "the keychain"),
    ("/usr/bin/pbpaste && echo x | /usr/bin/pbcopy", 1, "the clipboard"),
    ("/bin/launchctl submit -l ringfence.test -- /bin/sleep 1", 1, "a service of launchd"),
    ("/usr/bin/crontab -l; echo '* * * * * true' | /usr/bin/crontab -", 1, "cron"),
    ("/usr/bin/sandbox-exec -p '(version 1)(allow default)' /bin/cat \"$OUTSIDE/secret\"", 1, "a wider profile inside"),
]
# fmt: on


@pytest.mark.macos
@pytest.mark.skipif(sys.platform != "darwin", reason="only a Mac has sandbox-exec")
@pytest.mark.parametrize(("script", "status", "why"), ATTEMPTS, ids=[row[-1] for row in ATTEMPTS])
def test_on_a_mac_it_holds(tmp_path: Path, script: str, status: int, why: str) -> None:
    ws, outside = Path(os.path.realpath(tmp_path)) / "ws", Path(os.path.realpath(tmp_path)) / "outside"
    for folder in (ws / "deep", ws / ".git" / "hooks", outside):
        folder.mkdir(parents=True)
    for file in (ws / "file.txt", ws / ".env", ws / "deep" / "key.pem", outside / "secret"):
        file.write_text("decoy-4f2a91")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        env = (
            ("OUTSIDE", str(outside)),
            ("PATH", "/usr/bin:/bin:/usr/sbin:/sbin"),
            ("PORT", str(listener.getsockname()[1])),
        )
        told = Terms(
            Rights.WORKSPACE_WRITE, str(ws), str(Path.home()), hidden=(".env", "*.pem"), locked=(".git/hooks", ".vscode"),
            env=(*env, ("RUNNER", str(os.getpid()))), limits=Limits(wall=20.0),
        )  # fmt: skip

        async def once() -> Any:
            backend = Seatbelt()
            try:
                await backend.probe()
                return await backend.run(Permit(RunScript(script, str(ws)), told, _MINT))
            finally:
                await backend.close()

        done = asyncio.run(once())
    assert (done.status == 0) is (status == 0), done
    if status:
        assert b"decoy-4f2a91" not in done.stdout
        assert (outside / "secret").read_text() == "decoy-4f2a91"
        assert [file.name for file in outside.iterdir()] == ["secret"]


@pytest.mark.macos
@pytest.mark.skipif(sys.platform != "darwin", reason="only a Mac has sandbox-exec")
def test_on_a_mac_file_actions_and_limits(tmp_path: Path) -> None:
    ws = Path(os.path.realpath(tmp_path))
    (ws / "file.txt").write_text("hello\n")
    told = Terms(Rights.READ_ONLY, str(ws), str(Path.home()), limits=Limits(wall=2.0))

    async def both() -> tuple[Any, Any]:
        backend = Seatbelt()
        try:
            found = await backend.run(Permit(ReadFile(str(ws / "file.txt")), told, _MINT))
            slept = await backend.run(Permit(RunArgv(("/bin/sleep", "60"), str(ws)), told, _MINT))
            return found, slept
        finally:
            await backend.close()

    found, slept = asyncio.run(both())
    assert found.problem is None, found
    assert slept.ended_by == "wall"
