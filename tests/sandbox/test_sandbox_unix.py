"""Tests of AF_UNIX sockets for commands that may use them: working calls, and peers that stay unreachable."""

import os
import socket

import pytest

from tests.support.sandbox_bench import Bench

PY = "/usr/bin/python3 -c"
TALK = (
    "import os, socket, threading\n"
    "s = socket.socket(socket.AF_UNIX); s.bind({address}); s.listen()\n"
    "threading.Thread(target=lambda: s.accept()[0].sendall(b'served')).start()\n"
    "c = socket.socket(socket.AF_UNIX); c.connect({address}); print(c.recv(9).decode())"
)


def talk(address: str) -> str:
    return f'{PY} "{TALK.format(address=address)}"'


@pytest.mark.threat("T63")
def test_unix_sockets_work_when_they_were_asked_for_and_reach_nobody_outside(bench: Bench) -> None:
    name = f"ringfence-unix-{os.getpid()}-{bench.user}"
    outside, granted = bench.outside / "s", bench.workspace / "s"
    with socket.socket(socket.AF_UNIX) as abstract, socket.socket(socket.AF_UNIX) as away, socket.socket(1) as near:
        for listener, address in ((abstract, "\0" + name), (away, str(outside)), (near, str(granted))):
            listener.bind(address)
            listener.listen(1)
            listener.settimeout(0.1)
        for path in (outside, granted):
            path.chmod(0o777)
        rows = [
            # script, told, what is printed, why
            (talk("'/tmp/own'"), {"unix": True}, "served\n", "in the session's /tmp"),
            (talk("b'\\0own'"), {"unix": True}, "served\n", "abstract, in its own namespace"),
            (talk("'/tmp/own2'"), {}, "", "not asked for"),
            (talk("'/run/tmp/own'"), {"unix": True, "rights": "read-only"}, "", "a look never"),
            (f"{PY} 'import socket; socket.socket(1).connect(\"\\0{name}\")'", {"unix": True}, "", "abstract, outside"),
            (f"{PY} 'import socket; socket.socket(1).connect(\"{outside}\")'", {"unix": True}, "", "not granted"),
        ]
        for script, told, out, why in rows:
            answer = bench.run(script, **told)
            assert (answer["out"], answer["status"] == 0) == (out, bool(out)), (why, answer)
        for listener in (abstract, away, near):
            with pytest.raises(TimeoutError):
                listener.accept()
        # docs/security/limits.md: what lies in a granted path can be reached.
        bench.run(f"{PY} 'import socket; socket.socket(1).connect(\"s\")'", unix=True)
        near.accept()[0].close()
    outside.unlink()
    granted.unlink()


def test_a_pair_of_sockets_needs_nobodys_yes(bench: Bench) -> None:
    assert (
        bench.run(f"{PY} 'import socket; a, b = socket.socketpair(); a.send(b\"x\"); print(b.recv(1).decode())'")["out"]
        == "x\n"
    )
