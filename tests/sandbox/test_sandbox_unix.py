"""Tests of AF_UNIX sockets for commands that may use them: working calls, and peers that stay unreachable."""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.workspace.host_sockets import bound_sockets, in_folders, in_use, is_foreign
from tests.support.sandbox_bench import SYSTEM, Bench
from tests.support.waiting import until

PY = "/usr/bin/python3 -c"
TALK = (
    "import contextlib, os, socket, threading\nwith contextlib.suppress(OSError, ValueError): os.unlink({address})\n"
    "s = socket.socket(socket.AF_UNIX); s.bind({address}); s.listen()\n"
    "threading.Thread(target=lambda: s.accept()[0].sendall(b'served')).start()\n"
    "c = socket.socket(socket.AF_UNIX); c.connect({address}); print(c.recv(9).decode())"
)
# Connects, and sends datagrams from a socket and from both kinds of pairs, to each path; prints what could be reached.
REACH = """
import socket, sys
for path in sys.argv[1:]:
    path = path.replace("@", chr(0))
    for name, try_ in {
        "connect": lambda: socket.socket(1, 1).connect(path),
        "packets": lambda: socket.socket(1, 5).connect(path),
        "send": lambda: socket.socket(1, 2).sendto(b"leak", path),
        "pair": lambda: socket.socketpair(1, 2)[0].sendto(b"leak", path),
        "raw pair": lambda: socket.socketpair(1, 3)[0].sendto(b"leak", path),
    }.items():
        try:
            try_()
            print("REACHED", path, "by", name)
        except OSError:
            pass
print("tried", len(sys.argv) - 1)
"""


def talk(address: str) -> str:
    return f'{PY} "{TALK.format(address=address)}"'


@contextlib.contextmanager
def bound(*paths: Path | str) -> Iterator[list[socket.socket]]:
    """A listener and, beside it, a receiver of datagrams (`.d`) for each path; `@` begins an abstract name."""
    with contextlib.ExitStack() as stack:
        made = []
        for each in paths:
            for kind, address in ((socket.SOCK_STREAM, str(each)), (socket.SOCK_DGRAM, f"{each}.d")):
                one = stack.enter_context(socket.socket(socket.AF_UNIX, kind))
                one.bind(address.replace("@", "\0"))
                if kind == socket.SOCK_STREAM:
                    one.listen(1)
                if not address.startswith("@"):
                    Path(address).chmod(0o777)
                    stack.callback(Path(address).unlink)
                one.setblocking(False)
                made.append(one)
        yield made


def untouched(sockets: list[socket.socket]) -> bool:
    for each in sockets:
        with contextlib.suppress(BlockingIOError):
            if each.type == socket.SOCK_STREAM:
                each.accept()[0].close()
            else:
                each.recv(9)
            return False
    return True


@pytest.mark.threat("T63")
@pytest.mark.threat("T151")
def test_no_program_of_the_host_is_reached_by_a_socket(bench: Bench) -> None:
    own = bench.workspace
    read, write, system = (bench.base / name for name in ("read", "write", "system"))
    for folder in (read, write, system, own / "deep" / "down"):
        folder.mkdir(parents=True, exist_ok=True)
    for folder in (read, write, system, own / "deep"):
        bench.own(folder)
    name = f"@ringfence-unix-{os.getpid()}-{bench.user}-{bench.tier}"
    places = (own / "s", own / "deep" / "down" / "s", read / "s", write / "s", system / "s", bench.outside / "s", name)
    (own / "reach.py").write_text(REACH)
    rights = {"read": [str(read)], "write": [str(write)], "system": [*SYSTEM, str(system)]}
    with bound(*places) as sockets:
        os.link(bench.outside / "s", own / "second-name")
        os.link(bench.outside / "s.d", own / "second-name.d")
        (own / "link").symlink_to(bench.outside / "s")
        paths = [f"{each}{end}" for each in (*places, own / "second-name", own / "link") for end in ("", ".d")]
        try:
            for told in ({"unix": True}, {}, {"unix": True, "rights": "read-only", "write": []}):
                answer = bench.run(f"/usr/bin/python3 reach.py {' '.join(paths)}", **{**rights, **told})
                assert answer["out"] == f"tried {len(paths)}\n", (told, answer)
            assert untouched(sockets)
            answer = bench.run("true", unix=True, read=[str(read / "s")])
            assert "cannot be given to a sandbox" in str(answer["unavailable"])
        finally:
            for each in ("second-name", "second-name.d", "link"):
                (own / each).unlink()


def test_sockets_of_a_command_work(bench: Bench) -> None:
    rows = [
        # script, told, what is printed, why
        (talk("'/tmp/own'"), {"unix": True}, "served\n", "in the session's /tmp"),
        (talk("'own'"), {"unix": True}, "served\n", "in the workspace"),
        (talk("'own'"), {"unix": True}, "served\n", "where another command has left one"),
        (talk("b'\\0own'"), {"unix": True}, "served\n", "abstract, in its own namespace"),
        (talk("'/tmp/own2'"), {}, "", "forbidden by a setting"),
        (talk("'/run/tmp/own'"), {"unix": True, "rights": "read-only"}, "", "a look never"),
    ]
    for script, told, out, why in rows:
        answer = bench.run(script, **told)
        assert (answer["out"], answer["status"] == 0) == (out, bool(out)), (why, answer)
        assert not out or answer["violations"] == [], why
    (bench.workspace / "own").unlink()


@pytest.mark.threat("T151")
def test_a_command_is_ended_when_a_program_opens_a_socket_beside_it(bench: Bench) -> None:
    """In the workspace, in a new folder of it, and in a folder that was granted for reading."""
    read = bench.base / "readable"
    read.mkdir(exist_ok=True)
    bench.own(read)
    places = {"root": bench.workspace, "inner": bench.workspace / "made", "read": read}
    for name, folder in places.items():
        begun, path, ended = bench.workspace / f"begun-{name}", folder / "late", threading.Event()

        def open_socket(begun: Path = begun, path: Path = path, ended: threading.Event = ended) -> None:
            until(begun.exists, of=ended.is_set, what="the start of the command")
            path.parent.mkdir(exist_ok=True)
            with socket.socket(socket.AF_UNIX) as late:
                late.bind(str(path))
                late.listen(1)
                ended.wait()

        other = threading.Thread(target=open_socket)
        other.start()
        try:
            script = f"echo > begun-{name}; sleep 500"
            answer = bench.run(script, unix=True, read=[str(read)], limits={"wall": 500.0})
        finally:
            ended.set()
            other.join()
            path.unlink(missing_ok=True)
            begun.unlink(missing_ok=True)
        assert answer["ended"] == "watch", (name, answer)
        assert f"another program opened the socket `{path}`" in str(answer["violations"]), name
    (bench.workspace / "made").rmdir()


def test_a_pair_of_sockets_needs_nobodys_yes(bench: Bench) -> None:
    assert (
        bench.run(f"{PY} 'import socket; a, b = socket.socketpair(); a.send(b\"x\"); print(b.recv(1).decode())'")["out"]
        == "x\n"
    )


@pytest.mark.threat("T63")
def test_a_socket_in_use_is_told_from_its_remains(tmp_path: Path) -> None:
    paths = {name: tmp_path / name for name in ("stream", "datagram", "bound", "moved", "gone", "file")}
    paths["file"].touch()
    with contextlib.ExitStack() as stack:
        for name, kind in (("stream", 1), ("datagram", 2), ("bound", 5), ("moved", 1), ("gone", 1)):
            each = stack.enter_context(socket.socket(socket.AF_UNIX, kind))
            each.bind(str(paths[name]))
            if name == "stream":
                each.listen(1)
                listener = each
            if name == "gone":
                each.close()
        paths["moved"] = paths["moved"].rename(tmp_path / ("m" * 150))
        found = {name: (in_use(str(path)), is_foreign(str(path), path.lstat())) for name, path in paths.items()}
        yes, no = (True, True), (False, False)
        wanted = {"stream": yes, "datagram": yes, "bound": yes, "moved": yes, "gone": no, "file": no}
        assert found == wanted
        assert in_folders([str(tmp_path)]) == tuple(str(paths[name]) for name in ("bound", "datagram", "stream"))
        assert {str(paths["stream"]), str(tmp_path / "moved")} <= {each.name for each in bound_sockets()}
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()  # the question is not noticed
