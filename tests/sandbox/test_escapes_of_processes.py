"""Escape attempts of processes that stay, judged from outside, and other attempts while a process runs beside them."""

import contextlib
import json
import os
import shutil
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.escapes.attempts_network import ATTEMPTS as NETWORK
from tests.escapes.attempts_processes import ATTEMPTS as PROCESSES
from tests.escapes.attempts_stays import STAYS, Stay
from tests.escapes.world import MARK, World
from tests.support.marked_processes import processes_about
from tests.support.places import ROOT
from tests.support.sandbox_bench import SECRET, USERS, Bench, make
from tests.support.waiting import until

TIERS = ("T1", "T2", "T3")
HIDDEN, LOCKED = [".env"], [".vscode", ".envrc"]
NAMES = {"one.test": ["127.0.0.1"]}
SIBLING = """exec python3 -uc 'import os, socket, sys, threading
kept = "{token}"
def serve(server):
    while True: server.accept() and print("REACHED")
def serve_at(family, place):
    server = socket.socket(family)
    server.bind(place)
    server.listen()
    threading.Thread(target=serve, args=(server,), daemon=True).start()
for place in ((socket.AF_INET, ("127.0.0.1", 8000)), (socket.AF_UNIX, chr(0) + "sibling"), (socket.AF_UNIX, "/run/tmp/sibling")):
    try: serve_at(*place)
    except OSError: pass
print("ready")
for line in sys.stdin: print("got", line.strip())'
"""


class Field:
    """A world of decoys, a bench in it, and a process with other rights, for many attempts."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.world = bench, World(bench.user)
        self.told = {**self.world.told, "driver": bench.process.pid, "space": os.readlink("/proc/self/ns/pid")}
        self.told |= {"home": str(bench.home), "key": str(bench.home / ".ssh" / "id_rsa"), "handles": []}
        self.turn = 0
        self.before = self.look()

    def look(self) -> dict[str, object]:
        """Return what lies in the folders that no command may change."""
        return {
            str(path): (path.lstat().st_mode, path.lstat().st_nlink, path.is_file() and path.read_bytes())
            for top in (self.world.outside, self.bench.outside, self.bench.home / ".ssh")
            for path in sorted(top.rglob("*"))
            if not path.is_symlink()
        }

    def lay(self, source: str) -> str:
        """Write the program into a fresh workspace, and return the word by which its processes are found."""
        ws = self.bench.workspace
        self.turn += 1
        for path in ws.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        (ws / "inner").mkdir()
        for name, text in ((".env", self.world.token), ("inner/.env", self.world.token), ("file.txt", "hello\n")):
            (ws / name).write_text(text)
        nap = f"nap-{self.world.plain}-{self.turn}-"
        (ws / "world.json").write_text(json.dumps({**self.told, "nap": nap}))
        (ws / "attempt.py").write_text(source)
        self.bench.own(ws)
        return nap

    def start(self, stay: Stay) -> str:
        """Start the attempt under its name, wait until it attacks, and return the word of its processes."""
        nap = self.lay(stay.source())
        terminal = (24, 80) if stay.terminal else None
        told: dict[str, Any] = {"hidden": HIDDEN, "locked": LOCKED, "limits": dict(stay.limits)}
        if stay.hosts:
            told |= {"hosts": list(stay.hosts), "names": NAMES}
        begun = self.bench.start(stay.name, "exec python3 attempt.py", terminal=terminal, **told)
        assert begun.get("started"), begun
        answer = self.bench.process_do(stay.name, "until", text="TRIED")
        assert "STARTED" in answer["out"], answer
        assert stay.ended or "TRIED" in answer["out"], answer
        return nap

    def start_sibling(self) -> None:
        script = SIBLING.format(token=self.world.token)
        assert self.bench.start("sibling", script, rights="read-only")["started"]
        assert self.bench.process_do("sibling", "until", text="ready\n")["out"] == "ready\n"
        self.lines = "ready\n"

    def signs(self, output: str) -> list[str]:
        """Return everything that shows from outside that an attempt got out."""
        told = [line[:80] for line in output.splitlines() if line.startswith("GOT ")]
        told += [f"printed {what}" for what in (self.world.token, SECRET) if what in output]
        after = self.look()
        told += [f"changed {path}" for path in {*self.before, *after} if self.before.get(path) != after.get(path)]
        told += [f"reached {name}" for name in self.world.heard]
        fields = Path(f"/proc/{self.world.victim.pid}/stat").read_text().rpartition(")")[2].split()
        told += ["touched another process"] if fields[0] in "TtZX" else []
        os.set_blocking(self.world.slave, False)
        with contextlib.suppress(BlockingIOError):
            told.append(f"wrote to the terminal: {os.read(self.world.slave, 99)!r}")
        self.bench.process_do("sibling", "write", text=f"{self.turn}\n")
        self.lines += f"got {self.turn}\n"
        answer = self.bench.process_do("sibling", "until", text=f"got {self.turn}\n")
        told += [] if answer["out"] == self.lines else [f"touched the process with other rights: {answer}"]
        with socket.socket() as knock:
            if knock.connect_ex(("127.0.0.1", self.told["inward"])) == 0:
                told.append("listens on the host")
        for path in self.bench.workspace.rglob("*"):
            mode = path.lstat().st_mode
            if mode & (stat.S_ISUID | stat.S_ISGID) and not stat.S_ISDIR(mode):
                told.append(f"made {path.name} set-id")
            if stat.S_ISBLK(mode) or stat.S_ISCHR(mode):
                told.append(f"made the device {path.name}")
            if {".vscode", ".envrc"} & {*path.parts} and stat.S_ISREG(mode) and MARK in path.read_text():
                told.append(f"left {path.name}")
        return told


def wait_until_there(mark: str, field: "Field") -> None:
    until(lambda: processes_about(mark), of=field.bench.process, what="a process of the attempt")


def wait_until_gone(mark: str) -> None:
    until(lambda: not processes_about(mark), what=lambda: f"the end of {processes_about(mark)}")


# In T3 the limit on processes counts all processes of the user, also those of other tests, but not for root.
FIELDS = [f"{tier}-{user}" for tier in TIERS for user in (USERS[:1] if tier == "T3" else USERS)]


@pytest.fixture(scope="module", params=FIELDS)
def field(request: pytest.FixtureRequest) -> Iterator[Field]:
    tier, user = request.param.split("-")
    benches = make(user, tier=tier)
    made = Field(next(benches))
    try:
        made.start_sibling()
        yield made
    finally:
        made.world.close()
        for _ in benches:  # closes the bench
            pass


def of_kind(kind: str) -> pytest.MarkDecorator:
    """Return the parameters `field` and `stay`: each attempt of a kind in each field that promises to contain it."""
    return pytest.mark.parametrize(
        ("field", "stay"),
        [
            pytest.param(field, stay, id=f"{field}-{stay.name}")
            for field in FIELDS
            for stay in STAYS
            if stay.kind == kind and field.partition("-")[0] in stay.tiers
        ],
        indirect=["field"],
        scope="module",  # otherwise each test would have a field of its own
    )


@pytest.mark.thorough
@pytest.mark.threat("T126")
@pytest.mark.threat("T128")
@pytest.mark.threat("T131")
@of_kind("stays")
def test_a_process_that_stays_gains_nothing(field: Field, stay: Stay) -> None:
    field.start(stay)
    beside = field.bench.run(stay.later, stdin=b"typed\n")
    assert (beside["status"], beside["out"], beside["ended"]) == (0, "hello\n", None), beside
    ended = field.bench.process_do(stay.name, "wait" if stay.ended else "end")
    assert not stay.ended or ended["ended"] == stay.ended, ended
    assert field.signs(ended["out"] + ended["err"]) == []


@pytest.mark.thorough
@pytest.mark.threat("T126")
@of_kind("outlives")
def test_no_process_outlives_its_end(field: Field, stay: Stay) -> None:
    nap = field.start(stay)
    if stay.name != "outlive-leader":  # its end has ended the others already
        wait_until_there(nap, field)
    field.bench.process_do(stay.name, "end")
    wait_until_gone(nap)


@pytest.mark.thorough
@pytest.mark.threat("T126")
@pytest.mark.parametrize("way", ["killed", "closed"])
@pytest.mark.parametrize("tier", ["T1", "T2"])  # in T3 the limit on processes counts those of all attempts together
@pytest.mark.parametrize("user", USERS)
def test_no_process_outlives_the_runner(user: str, tier: str, way: str) -> None:
    benches = make(user, tier=tier)
    field = Field(next(benches))
    try:
        for stay in STAYS:
            if stay.kind == "outlives" and tier in stay.tiers:
                nap = field.start(stay)
                if stay.name != "outlive-leader":
                    wait_until_there(nap, field)
        if way == "killed":
            field.bench.process.kill()
        for _ in benches:  # closes the bench
            pass
        wait_until_gone(f"nap-{field.world.plain}-")
    finally:
        field.world.close()


# Not those that wait for a second or more.
BESIDE = [each for each in (*NETWORK, *PROCESSES) if each.kind in ("network", "processes") and each.name not in ("listen-outside", "ping", "tcp-multipath")]  # fmt: skip


@pytest.mark.thorough
@pytest.mark.threat("T05")
@pytest.mark.threat("T126")
# T3 has neither a network nor processes of its own.
@pytest.mark.parametrize("field", [each for each in FIELDS if not each.startswith("T3")], indirect=True)
def test_the_attempts_on_network_and_processes_beside_a_process(field: Field) -> None:
    """The process has equal rights, so it shares the network of the attempts."""
    wrong = {}
    field.lay("")
    assert field.bench.start("beside", "echo ready; cat")["started"]
    assert field.bench.process_do("beside", "until", text="ready")["alive"]
    for attempt in BESIDE:
        if attempt.x86 and os.uname().machine != "x86_64":
            continue
        field.lay(attempt.source(field.told))
        answer = field.bench.run("python3 attempt.py" if attempt.language == "py" else "sh attempt.py")
        found = field.signs(answer["out"] + answer["err"])
        found += [] if attempt.dies or "TRIED" in answer["out"] else [f"did not run to its end: {answer}"]
        if found:
            wrong[attempt.name] = found
    assert wrong == {}
    assert field.bench.process_do("beside", "end")["out"] == "ready\n"


def test_the_document_lists_every_attempt_of_a_process() -> None:
    page = (ROOT / "docs/security/escapes.md").read_text("utf-8")
    table = page.partition("<!-- stays: begin -->")[2].partition("<!-- stays: end -->")[0]
    rows = [line.split("|")[1:4] for line in table.splitlines() if line.startswith("| `")]
    assert [[part.strip() for part in row] for row in rows] == [
        [f"`{each.name}`", each.kind, each.why] for each in STAYS
    ], "run `make tables`"
    assert len({each.name for each in STAYS}) == len(STAYS) >= 30
