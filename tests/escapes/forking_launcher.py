"""A launcher of `agent` that forks each process from one that has imported the product: `forking_launcher.py SOCKET`.

The user, the environment of this program and its command line are those that the attempts may find in /proc: they hold the
decoys of a world. Each request on the socket is a line of JSON with the descriptors of the new process; the answers are its
process ID and, after its end, its wait status.
"""

import gc
import importlib
import io
import json
import os
import pkgutil
import socket
import sys
from typing import NoReturn

MOST = 1 << 17  # bytes of a request
EARLY = ("policy", "runner.audit", "runner.changes", "runner.config", "runner.facts", "runner.frontends.exec", "runner.gate",
         "sandbox.egress", "sandbox.linux", "sandbox.workspace")  # fmt: skip


def prepare() -> None:
    """Import what `agent exec` imports late, and more: an import that is missing here only costs time."""
    for name in EARLY:
        package = importlib.import_module(name)
        for each in pkgutil.walk_packages(package.__path__, f"{name}."):
            importlib.import_module(each.name)
    importlib.import_module("runner.cli.main")
    gc.collect()
    gc.freeze()


def become(asked: dict[str, object], files: list[int]) -> None:
    """Give this process the descriptors and the state of one that was started by execve(2)."""
    numbers, environ, argv = asked["numbers"], asked["environ"], asked["argv"]
    assert isinstance(numbers, list)
    assert isinstance(environ, dict)
    assert isinstance(argv, list)
    for file, number in zip(files, numbers, strict=True):
        os.dup2(file, number)
        os.close(file)
    os.setsid()
    os.chdir(str(asked["cwd"]))
    os.environ.clear()
    os.environ.update(environ)
    sys.argv[:] = argv
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False), "utf-8", "surrogateescape", "\n")  # type: ignore[arg-type]  # no input
    for number, name in ((1, "stdout"), (2, "stderr")):
        raw = io.BufferedWriter(io.FileIO(number, "wb", closefd=False))
        setattr(sys, name, io.TextIOWrapper(raw, "utf-8", "backslashreplace", "\n", line_buffering=number == 2))


def main() -> NoReturn:
    requests = socket.socket(fileno=int(sys.argv[1]))
    prepare()
    while True:
        data, files, _, _ = socket.recv_fds(requests, MOST, 16)
        if not data:
            sys.exit()
        pid = os.fork()
        if pid == 0:
            break
        for each in files:
            os.close(each)
        requests.send(b"%d" % pid)
        requests.send(b"%d" % os.waitpid(pid, 0)[1])
    requests.close()
    become(json.loads(data), files)
    from runner.cli.main import main as agent
    from runner.ending import leave

    leave(agent())


if __name__ == "__main__":
    main()
