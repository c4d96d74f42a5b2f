"""Tests of tracing: commands trace their own processes, and reach neither the helper nor calls that are refused."""

import json
import os

import pytest

from tests.support.sandbox_bench import Bench

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="registers and numbers are those of x86_64")

LIBRARY = """
import ctypes, json, os, signal, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = libc.syscall.restype = ctypes.c_long
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
TRACEME, PEEK, POKE_USER, CONT, ATTACH, SYSCALL, OPTIONS, SEIZE = 0, 2, 6, 7, 16, 24, 0x4200, 0x4206
RAX, ORIG_RAX = 80, 120
cell = ctypes.create_string_buffer(b"seven", 8)

class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]

def read(pid, address, size):
    own = ctypes.create_string_buffer(size)
    here, there = Vector(ctypes.addressof(own), size), Vector(address, size)
    count = libc.syscall(310, pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    return own.raw if count > 0 else ctypes.get_errno()

def failure(request, pid, data=None):
    return 0 if libc.ptrace(request, pid, None, data) >= 0 else ctypes.get_errno()

def traced(work):
    pid = os.fork()
    if pid == 0:
        libc.ptrace(TRACEME, 0, None, None)
        os.kill(os.getpid(), signal.SIGSTOP)
        work()
        os._exit(0)
    os.waitpid(pid, 0)
    return pid
"""
# What each script prints as JSON, under the rights that are named.
# fmt: off
ROWS = [
    ("""
pid = traced(lambda: None)
word = libc.ptrace(PEEK, pid, ctypes.addressof(cell), None)
print(json.dumps([word.to_bytes(8, "little")[:5].decode(), read(pid, ctypes.addressof(cell), 5).decode()]))
libc.ptrace(CONT, pid, None, None)
os.waitpid(pid, 0)
""", "workspace-write", ["seven", "seven"], "a child is traced, and its memory read"),
    ("""
inside = os.getppid()
print(json.dumps([failure(ATTACH, 1), failure(SEIZE, 1), failure(ATTACH, inside), read(1, ctypes.addressof(cell), 1),
                  read(1, 0x400000, 1)]))
""", "workspace-write", [1, 1, 1, 1, 1], "the helper is not dumpable"),
    ("""
pid = traced(lambda: None)
print(json.dumps(failure(OPTIONS, pid, 1 << 21) in (1, 22)))
os.kill(pid, 9)
""", "workspace-write", True, "the filters of a traced process are not suspended"),
    # The tracer writes another number into a call of the process. Unfiltered, io_uring_setup(425) gives EFAULT here.
    ("""
out = os.pipe()
pid = traced(lambda: os.write(out[1], json.dumps([libc.syscall(39, 0, 0), ctypes.get_errno()]).encode()))
entered = False
while True:
    libc.ptrace(SYSCALL, pid, None, None)
    if os.WIFEXITED(os.waitpid(pid, 0)[1]):
        break
    entered = not entered
    if entered and libc.ptrace(3, pid, ctypes.c_void_p(ORIG_RAX), None) == 39:
        libc.ptrace(POKE_USER, pid, ctypes.c_void_p(ORIG_RAX), ctypes.c_void_p(425))
print(os.read(out[0], 99).decode())
""", "workspace-write", [-1, 1], "a call that the tracer wrote is filtered"),
    ("""
print(json.dumps([failure(TRACEME, 0), read(os.getpid(), ctypes.addressof(cell), 1)]))
""", "read-only", [1, 1], "a command that only reads traces nothing"),
]
# fmt: on


def run(bench: Bench, code: str, **told: object) -> dict[str, object]:
    (bench.workspace / "trace.py").write_text(LIBRARY + code)
    return bench.run("/usr/bin/python3 trace.py", **told)


@pytest.mark.threat("T153")
@pytest.mark.parametrize(("code", "rights", "expected", "why"), ROWS, ids=[row[3] for row in ROWS])
def test_tracing_stays_among_the_processes_of_a_command(
    bench: Bench, code: str, rights: str, expected: object, why: str
) -> None:
    answer = run(bench, code, rights=rights)
    assert answer["status"] == 0, answer
    assert json.loads(str(answer["out"])) == expected, why


@pytest.mark.threat("T153")
def test_a_tracer_cannot_keep_a_command_alive(bench: Bench) -> None:
    """The parent of a traced process gets its status only from its tracer, which here never asks for it."""
    keeps = """
main = os.getpid()
libc.prctl(0x59616d61, ctypes.c_ulong(-1 & (1 << 64) - 1), 0, 0, 0)
ready = os.pipe()
if os.fork() == 0:
    libc.ptrace(SEIZE, main, None, None)
    os.write(ready[1], b"x")
    time.sleep(1000)
os.read(ready[0], 1)
os._exit(7)
"""
    answer = run(bench, keeps, limits={"wall": 60.0})
    assert (answer["status"], answer["ended"]) == (7, None), answer
    # The helper itself becomes the tracer of its child, which then stops at each signal.
    stops = "libc.ptrace(TRACEME, 0, None, None)\nos.kill(os.getpid(), signal.SIGTRAP)\nprint('continued')\n"
    answer = run(bench, stops, limits={"wall": 1.0})
    assert (answer["out"], answer["ended"]) == ("", "wall"), answer
    assert bench.run("echo next")["out"] == "next\n"
