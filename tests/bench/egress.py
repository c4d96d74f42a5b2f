"""Benchmark of the egress proxy: one client without a sandbox and one behind the proxy, to the same server."""

import asyncio
import json
import multiprocessing
import socket
import subprocess
import sys

from policy.model.action import RunArgv
from policy.model.verdict import _MINT, Permit, Rights, Terms
from sandbox.linux.backend import Linux

ADDRESS = "127.0.0.2"
SIZE = 512 << 20  # bytes of the large answer
ROUNDS = 5

# argv: the port of the server, that of the proxy or 0, bytes of an answer. Prints seconds until the first byte of many
# small answers (median), and bytes a second of a large one.
CLIENT = """
import json, socket, statistics, sys, time
port, proxy, size = map(int, sys.argv[1:])
def connect():
    if not proxy:
        return socket.create_connection(("127.0.0.2", port))
    made = socket.create_connection(("127.0.0.1", proxy))
    made.sendall(f"CONNECT 127.0.0.2:{port} HTTP/1.1\\r\\nHost: 127.0.0.2:{port}\\r\\n\\r\\n".encode())
    assert b" 200 " in made.recv(1000)
    return made
def first():
    started = time.perf_counter()
    with connect() as made:
        made.sendall(b"\\0" + (1).to_bytes(8, "big"))
        assert made.recv(1) == b"x"
        return time.perf_counter() - started
spent = [first() for _ in range(100)]
buffer, got = bytearray(1 << 20), 0
with connect() as made:
    made.sendall(b"\\0" + size.to_bytes(8, "big"))
    started = time.perf_counter()
    while more := made.recv_into(buffer):
        got += more
    took = time.perf_counter() - started
assert got == size
print(json.dumps([statistics.median(spent), size / took]))
"""


def _serve(listener: socket.socket) -> None:
    """Nine bytes name how much the client wants."""
    data = b"x" * (1 << 20)
    while True:
        sock, _ = listener.accept()
        with sock:
            left = int.from_bytes(sock.recv(9, socket.MSG_WAITALL)[1:], "big")
            while left:
                left -= sock.send(data[: min(left, len(data))])


async def _through(backend: Linux, permit: Permit) -> list[float]:
    outcome = await backend.run(permit)
    assert outcome.status == 0, outcome
    found: list[float] = json.loads(outcome.stdout)
    return found


async def measure(folder: str, system: tuple[str, ...]) -> tuple[float, float, float, float]:
    """Seconds to the first byte, straight and through; bytes a second, straight and through: the best of some rounds."""
    with socket.create_server((ADDRESS, 0)) as listener:
        server = multiprocessing.get_context("fork").Process(target=_serve, args=(listener,), daemon=True)
        server.start()
        port = str(listener.getsockname()[1])
        client = ("/usr/bin/python3", "-I", "-S", "-c", CLIENT, port)
        terms = Terms(
            Rights.WORKSPACE_WRITE,
            folder,
            "/nonexistent",
            system=system,
            hosts=(f"{ADDRESS}:{port} private",),
        )
        permit = Permit(RunArgv((*client, "3128", str(SIZE)), folder), terms, _MINT)
        backend = Linux("T1", files=False)
        straight, through = [], []
        try:
            for _ in range(ROUNDS):
                done = await asyncio.to_thread(
                    subprocess.run, (*client, "0", str(SIZE)), capture_output=True, check=True
                )
                straight.append(json.loads(done.stdout))
                through.append(await _through(backend, permit))
        finally:
            await backend.close()
            server.kill()
            server.join()
    pick = lambda rounds, index, best: best(each[index] for each in rounds)  # noqa: E731  # four of these
    return pick(straight, 0, min), pick(through, 0, min), pick(straight, 1, max), pick(through, 1, max)


if __name__ == "__main__":
    print(asyncio.run(measure(sys.argv[1], tuple(sys.argv[2:]))))
