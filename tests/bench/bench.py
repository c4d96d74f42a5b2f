"""`make bench`: what the gate and the sandbox cost, as ratios measured side by side in one run.

Machines are noisy, so every figure is a median of interleaved rounds, set against something that cannot be left out:
a bare interpreter start, a bare `posix_spawn`, bubblewrap with equal restrictions. Nothing here fails a build.
"""

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from egress import measure
from lines import LINES, WORST

import profiles
from policy.model.action import RunArgv
from policy.model.verdict import _MINT, Permit, Rights, Terms
from sandbox.backend import ChangeLayer
from sandbox.inside import safe_rmtree
from sandbox.linux.backend import Linux
from sandbox.workspace.folder_cache import FolderTrees
from sandbox.workspace.layer import new_layer
from sandbox.workspace.protected_paths import scan

HERE = Path(__file__).resolve()
BIN = Path(sys.executable).parent
NOBODY = 65534
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/passwd")
BWRAP = (
    *("bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"),
    *("--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib"),
    *(
        "--symlink",
        "usr/lib64",
        "/lib64",
        "--ro-bind",
        "/etc/passwd",
        "/etc/passwd",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
    ),
    *("--ro-bind", "/proc/sys", "/proc/sys", "--tmpfs", "/tmp"),
)


def median(rounds: int, *works: Callable[[], object]) -> list[float]:
    """Milliseconds of each work, interleaved so that noise hits all of them alike."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for work, spent in zip(works, times, strict=True):
            started = time.perf_counter()
            work()
            spent.append(time.perf_counter() - started)
    return [statistics.median(spent) * 1000 for spent in times]


def process(*argv: str, cwd: str | None = None) -> Callable[[], object]:
    # Without the variable, the compiled modules are kept, as those of an installed program are.
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environ["PYTHONHASHSEED"] = "0"  # a worker of a resident process cannot follow it, so that each start is cold
    return lambda: subprocess.run(
        argv, cwd=cwd, env=environ, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )


def row(what: str, value: str, goal: str) -> None:
    print(f"  {what:<58} {value:>18}   goal {goal}")


# The words after `agent`, and the goal as a ratio to `python -c pass`. Each process is a cold start.
PROCESSES = (
    (("--version",), "<= 8x"),
    (("--help",), "<= 6x"),
    (("policy", "matrix"), "<= 6x"),
    (("sessions", "list"), "<= 6x"),
    (("audit", "--denied"), "<= 6x"),
    (("why", "ls"), "none"),
    (("exec", "--", "/bin/true"), "<= 9x"),
    (("exec", "ls"), "<= 25x"),
    (("exec", "echo $(ls)"), "<= 25x"),  # bashlex is loaded
)


def whole_processes(folder: str) -> None:
    agent = str(BIN / "agent")
    starts = [process(agent, *words, cwd=folder) for words, _ in PROCESSES]
    for start in starts:
        start()  # compiles the modules after a change
    bare, *found = median(15, process(sys.executable, "-c", "pass"), *starts)
    print(f"whole processes, cold (python -c pass: {bare:.1f} ms)")
    for (words, goal), spent in zip(PROCESSES, found, strict=True):
        row(f"agent {' '.join(words)}", f"{spent / bare:.1f}x", goal)


def configuration(folder: str) -> None:
    """All settings, in this process: what is shipped, and every layer with a file of its own. Processor time."""
    from runner.config import load

    top = Path(folder) / "configuration"
    home, project, named = top / "home", top / "project", top / "named.toml"
    text = 'version = 1\nmode = "plan"\n[limits]\nwall = 60\nmemory = "2 GiB"\n[secret]\nnames = ["*.vault"]\n'
    rules = '[[rule]]\nverdict = "deny"\nrun = ["git", "push"]\nwhy = "by hand"\n' * 5
    places = (
        "home/.config/ringfence/config.toml",
        "project/.ringfence/config.toml",
        "project/.ringfence/config.local.toml",
    )
    for path in (*(top / place for place in places), named):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + rules)
        path.chmod(0o600)
    (project / ".git").mkdir()
    environ = {"HOME": str(home), "RINGFENCE_MODE": "plan", "RINGFENCE_LIMIT_CPU": "30"}

    def spent(work: Callable[[], object]) -> float:
        started = time.process_time()
        work()
        return (time.process_time() - started) * 1000

    def best(work: Callable[[], object]) -> float:
        return min(spent(work) for _ in range(15))

    print("reading the configuration (processor time, the best of 15 rounds)")
    nobody = {"HOME": str(top / "nobody")}
    row("what is shipped, and no file of anybody", f"{best(lambda: load(top, nobody)):.1f} ms", "< 20 ms")
    every = best(lambda: load(project, environ, config=named, system=top / places[0]))
    row("every layer, each with 5 keys and 5 rules", f"{every:.1f} ms", "< 20 ms")


def decision(folder: str, lines: Sequence[str]) -> None:
    """Parse to verdict, warm, in this process; and how long the rule table takes in a new one. Processor time."""
    from policy.classify import classify
    from policy.decide import decide
    from policy.model.action import RunScript
    from policy.model.tier import Mode
    from runner.config import load
    from runner.facts.gather import gather

    settings = load(Path(folder), {"HOME": folder})
    facts = gather(folder, os.environ, settings.profile)

    def judged(script: str) -> float:
        started = time.process_time()
        found = classify(RunScript(script, folder), facts, settings.rules, settings.profile)
        decide(found, facts, settings.profile, Mode.DEFAULT, unattended=True, environment=())
        return (time.process_time() - started) * 1000

    rounds = [[judged(script) for script in lines] for _ in range(6)]
    yardstick = min(_yardstick() for _ in range(9))
    spent = sorted(min(of_one) for of_one in zip(*rounds[1:], strict=True))
    print(f"decision, warm, over {len(lines)} lines (processor time, the best of {len(rounds) - 1} rounds each)")
    one, five, _ = os.getloadavg()
    print(
        f"  (load {one:.1f}, {five:.1f} before; a loop of 100,000 rounds takes {yardstick:.1f} ms here, 4 to 5 on a quiet machine)"
    )
    row("p50", f"{spent[len(spent) // 2]:.3f} ms", "< 0.3 ms")
    row("p99", f"{spent[int(len(spent) * 0.99)]:.3f} ms", "< 1.5 ms")
    worst = {what: min(judged(script) for _ in range(5)) for what, script in WORST.items()}
    slowest = max(worst, key=lambda what: worst[what])
    row(f"worst of {len(worst)} hostile inputs ({slowest})", f"{worst[slowest]:.0f} ms", "< 50 ms")
    large = max(spent for what, spent in worst.items() if what.startswith("1 MB"))
    row("worst 1 MB input", f"{large:.1f} ms", "< 50 ms")
    fresh = [json.loads(subprocess.run([sys.executable, "-c", _TABLE], **_OUTPUT).stdout) for _ in range(7)]
    row(
        "rule table read and indexed, in a new process",
        f"{statistics.median(each[0] for each in fresh):.1f} ms",
        "< 15 ms",
    )
    row("the first `git` after that", f"{statistics.median(each[1] for each in fresh):.1f} ms", "< 2 ms")


def _yardstick() -> float:
    """Milliseconds of a loop that never changes: two runs are compared by it, not by what the neighbours left."""
    started, seen = time.process_time(), dict[int, int]()
    for number in range(100_000):
        seen[number % 1000] = number
    return (time.process_time() - started) * 1000


_OUTPUT: dict[str, Any] = {"capture_output": True, "text": True, "check": True, "cwd": HERE.parent.parent.parent}
_TABLE = """
import json, os, time
from policy.rules.rulebook import RuleBook
started = time.process_time()
folder = "policy/commands"
files = {name: open(f"{folder}/{name}", encoding="utf-8").read() for name in os.listdir(folder) if name.endswith(".toml")}
book = RuleBook(files)
loaded = time.process_time()
book.find("git")
print(json.dumps([(loaded - started) * 1000, (time.process_time() - loaded) * 1000]))
"""


def patterns() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of secret files and of what other programs run by themselves, as the default profile has them."""
    profile = tomllib.loads((Path(profiles.__file__).parent / "default.toml").read_text(encoding="utf-8"))
    return tuple(profile["secret"]["names"]), tuple(profile["locked"]["paths"])


async def launches(folder: str) -> dict[str, float]:
    hidden, locked = patterns()
    terms = Terms(
        Rights.WORKSPACE_WRITE,
        folder,
        "/nonexistent",
        system=SYSTEM,
        hidden=hidden,
        locked=locked,
        env=(("PATH", "/usr/bin:/bin"), ("HOME", "/nonexistent")),
    )
    permit = Permit(RunArgv(("/bin/true",), folder), terms, _MINT)
    looking = Permit(permit.action, replace(terms, rights=Rights.READ_ONLY), _MINT)
    tiers = ("T1", "T2") if shutil.which("bwrap") else ("T1",)
    starts: dict[str, list[float]] = {tier: [] for tier in tiers}
    for _ in range(7):
        for tier in tiers:
            backend = Linux(tier, files=False, cache=Path(folder))
            started = time.perf_counter()
            await backend.probe(terms)
            starts[tier].append(time.perf_counter() - started)
            await backend.close()
    backend = Linux("T1", files=False, cache=Path(folder))
    built = Linux(tiers[-1], files=False, cache=Path(folder))
    spawn, ours, look, second, theirs, layered = [], [], [], [], [], []
    await backend.run(looking)
    layers = tempfile.mkdtemp(dir=os.path.dirname(folder))
    for _ in range(150):
        started = time.perf_counter()
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
        spawn.append(time.perf_counter() - started)
        started = time.perf_counter()
        outcome = await backend.run(permit)
        ours.append(time.perf_counter() - started)
        assert outcome.status == 0
        started = time.perf_counter()
        outcome = await backend.run(looking)
        look.append(time.perf_counter() - started)
        assert outcome.status == 0
        started = time.perf_counter()
        await built.run(permit)
        second.append(time.perf_counter() - started)
        layer = await prepared(backend, terms, layers)
        started = time.perf_counter()
        outcome = await backend.run(permit, layer=layer)
        layered.append(time.perf_counter() - started)
        assert outcome.status == 0
    for _ in range(60 if shutil.which("bwrap") else 0):
        started = time.perf_counter()
        subprocess.run([*BWRAP, "--bind", folder, folder, "/bin/true"], check=True)
        theirs.append(time.perf_counter() - started)
    await backend.close()
    await built.close()
    safe_rmtree.remove(layers)
    p95 = sorted(ours)[int(len(ours) * 0.95)]
    return {
        "spawn": statistics.median(spawn),
        "ours": statistics.median(ours[5:]),
        "p95": p95,
        "layer": statistics.median(layered[5:]),
        "layer p95": sorted(layered)[int(len(layered) * 0.95)],
        "look": statistics.median(look[5:]),
        "look p95": sorted(look)[int(len(look) * 0.95)],
        "bwrap": statistics.median(theirs) if theirs else 0.0,
        "start": statistics.median(starts["T1"]),
        "t2": statistics.median(second[5:]),
        "t2 start": statistics.median(starts[tiers[-1]]),
    }


async def prepared(backend: Linux, terms: Terms, folder: str) -> ChangeLayer:
    """Return a layer for which a helper was started while no command ran, as between two commands of a session."""
    layer = new_layer(terms.workspace, folder)
    backend.prepare(terms, folder)
    while backend._preparing:
        await asyncio.sleep(0.002)
    return layer


# Steady work: what a build or an install does, for a second or two each.
FILES = (
    "import os\n"
    "for n in range(40):\n"
    "    os.mkdir(f'd{n}')\n"
    "    for m in range(60):\n"
    "        with open(f'd{n}/{m}', 'w') as f: f.write('x' * 2000)\n"
    "for _ in range(4):\n"
    "    for at, _, names in os.walk('.'):\n"
    "        for name in names:\n"
    "            os.stat(os.path.join(at, name))\n"
    "            with open(os.path.join(at, name)) as f: f.read()\n"
    "for n in range(40):\n"
    "    for m in range(60): os.rename(f'd{n}/{m}', f'd{n}/r{m}'); os.unlink(f'd{n}/r{m}')\n"
    "    os.rmdir(f'd{n}')\n"
)
FORKS = "for i in $(seq 500); do /bin/true; done; for i in $(seq 100); do x=$(echo $i | cat); done"
STEADY = {"file-heavy": ("/usr/bin/python3", "-S", "-c", FILES), "fork-heavy": ("/bin/bash", "-c", FORKS)}


async def steady(folder: str, rounds: int = 7) -> dict[str, float]:
    """Return the median ratio of the duration of the same work inside to that of the neighbouring run outside, with and
    without a layer.
    """
    work = os.path.join(folder, "steady")
    os.mkdir(work)
    layers = tempfile.mkdtemp(dir=os.path.dirname(folder))
    terms = Terms(
        Rights.WORKSPACE_WRITE,
        work,
        "/nonexistent",
        system=SYSTEM,
        env=(("PATH", "/usr/bin:/bin"), ("LANG", "C")),
    )
    backend = Linux("T1", files=False, cache=Path(folder))
    found = {}
    for name, argv in STEADY.items():
        permit = Permit(RunArgv(argv, work), terms, _MINT)
        ratios, on_layer = [], []
        await backend.run(permit)
        for _ in range(rounds):
            layer = await prepared(backend, terms, layers)
            started = time.perf_counter()
            subprocess.run(argv, cwd=work, env=dict(terms.env), check=True, capture_output=True)
            middle = time.perf_counter()
            outcome = await backend.run(permit)
            ratios.append((time.perf_counter() - middle) / (middle - started))
            assert outcome.status == 0, outcome
            last = time.perf_counter()
            outcome = await backend.run(permit, layer=layer)
            on_layer.append((time.perf_counter() - last) / (middle - started))
            assert outcome.status == 0, outcome
        found[name] = statistics.median(ratios)
        found[f"{name} (on a layer)"] = statistics.median(on_layer)
    await backend.close()
    safe_rmtree.remove(layers)
    os.rmdir(work)
    return found


def sandbox(folder: str) -> None:
    print("steady work under T1")
    users: list[tuple[str, dict[str, float]]] = [("this user", asyncio.run(launches(folder)))]
    if os.geteuid() == 0:
        users.append(("another user", as_other_user()))
    for name, ratio in asyncio.run(steady(folder)).items():
        row(f"{name} work inside against outside", f"{ratio:.2f}x", "<= 1.10x")
    for who, found in users:
        print(f"sandboxed /bin/true, terms repeating, as {who} (posix_spawn {found['spawn'] * 1000:.2f} ms)")
        for what, p50, p95 in (("workspace-write", "ours", "p95"), ("read-only", "look", "look p95")):
            row(f"{what}: p50 against posix_spawn", f"{found[p50] / found['spawn']:.2f}x", "<= 1.6x")
            row(f"{what}: p95 against posix_spawn", f"{found[p95] / found['spawn']:.2f}x", "<= 4x")
        row("on a prepared layer: p50 against posix_spawn", f"{found['layer'] / found['spawn']:.2f}x", "<= 1.8x")
        row("on a prepared layer: p95 against posix_spawn", f"{found['layer p95'] / found['spawn']:.2f}x", "<= 4x")
        against = f"{found['ours'] / found['bwrap']:.2f}x" if found["bwrap"] else "no bwrap here"
        row("workspace-write: p50 against bwrap with equal restrictions", against, "<= 0.25x")
        row("helper started, confined, canary passed", f"{found['start'] * 1000:.0f} ms", "<= 50 ms")
        if found["bwrap"]:
            row("T2: p50 against bwrap with equal restrictions", f"{found['t2'] / found['bwrap']:.2f}x", "<= 1.3x")
            row("T2: helper started behind bwrap, canary passed", f"{found['t2 start'] * 1000:.0f} ms", "<= 100 ms")


def workspace(folder: str, files: int = 100_000) -> None:
    """Measure the scan of a large workspace before each command: complete once, then only changed folders."""
    place, kept, each = os.path.join(folder, "large"), Path(folder, "kept"), 50
    kept.mkdir()
    for number in range(files // each):
        inner = os.path.join(place, str(number % 100), str(number))
        os.makedirs(inner)
        for name in range(each):
            os.close(os.open(f"{inner}/{name}.txt", os.O_CREAT | os.O_WRONLY, 0o644))
    time.sleep(3)  # what changed a moment ago is read again
    hidden, locked = patterns()
    first: list[float] = []
    again: list[float] = []
    later: list[float] = []
    trees = FolderTrees(kept)
    for times, known in ((first, trees), *((again, trees) for _ in range(9)), *((later, None) for _ in range(5))):
        known = known or FolderTrees(kept)  # of another process: read from the disk
        started = time.perf_counter()
        scan(place, hidden, (), locked, known)
        times.append(time.perf_counter() - started)
    print(f"a workspace of {files} files in {files // each + 101} folders (the best of some rounds)")
    row("scanned the first time", f"{first[0] * 1000:.0f} ms", "none")
    row("the second time, in the same session", f"{min(again) * 1000:.0f} ms", "< 150 ms")
    row("the second time, in the next session", f"{min(later) * 1000:.0f} ms", "< 150 ms")
    shutil.rmtree(place)


def snapshots(folder: str) -> None:
    """Measure the snapshots of `agent undo`: the first copies every file, later ones compare the times of each file."""
    from runner.changes.undo.change_scan import Rules
    from runner.changes.undo.snapshot import Bounds, Snapshotter
    from runner.changes.undo.store import Store  # as below: the other user of the launches has no copy of this package

    print("a snapshot of all files, before and after each action that may write")
    for files in (10_000, 100_000):
        place, each = os.path.join(folder, f"kept-{files}"), 50
        for number in range(files // each):
            inner = os.path.join(place, str(number % 100), str(number))
            os.makedirs(inner)
            for name in range(each):
                Path(inner, f"{name}.txt").write_bytes(os.urandom(8) + b"x" * (number * 37 % 8000))
        time.sleep(0.3)  # what changed a moment ago is read again
        store = Store(Path(folder, f"snapshots-{files}"))
        taker, rules, times = Snapshotter(store, Bounds(), threading.Event()), Rules(lambda name: False), []
        for _ in range(6):
            started = time.perf_counter()
            with store.turns.locked(), store.transaction():
                taker.take(place, (), rules)
            times.append(time.perf_counter() - started)
        store.close()
        row(f"{files:,} files, the first time", f"{times[0] * 1000:.0f} ms", "none")
        row("later (the best of some rounds)", f"{min(times[1:]) * 1000:.0f} ms", f"< {files // 150} ms")
        shutil.rmtree(place)


def network(folder: str) -> None:
    straight, through, rate, kept = asyncio.run(measure(folder, SYSTEM))
    print("egress proxy on loopback, a client in the sandbox against one without (the best of some rounds each)")
    row("added to a connection, until the first byte", f"{(through - straight) * 1000:.2f} ms", "< 2 ms")
    row("one large answer", f"{kept / 1e6:.0f} MB/s, {kept / rate:.2f}x", ">= 500 MB/s")


def long_talk() -> None:
    """Deciding what of a conversation is shown, and how much that is."""
    from long_talk import TURNS, measured

    found = measured()
    print(f"a conversation of {TURNS:,} turns, before a request")
    row("the first one after a level was reached", f"{found['first']:.1f} ms", "none")
    row("each one after it (median)", f"{found['each']:.2f} ms", "< 5 ms")


def sessions(folder: str) -> None:
    """Going on with a long session (a process each, from the import of ours to the whole conversation), and adding."""
    from sessions import measure as measured

    place = os.path.join(folder, "state")
    os.mkdir(place, 0o700)
    found = measured(place)
    print(f"a session of 100,000 entries, {found['megabytes']:.0f} MB")
    row("gone on with", f"{found['seconds']:.2f} s", "< 1 s")
    row("resident memory of that process", f"{found['rss']:.0f} MB", "< 150 MB")
    row("a message added, on the disk (median)", f"{found['durable']:.2f} ms", "< 1 ms")
    row("a message added, on the disk (p95)", f"{found['durable p95']:.2f} ms", "none")
    row("a bare write and fdatasync, side by side", f"{found['bare']:.2f} ms", "none")
    row("another entry added (median)", f"{found['plain']:.2f} ms", "< 1 ms")
    shutil.rmtree(place)


def record(folder: str) -> None:
    """Measure a record beside the sync of the disk, and the search and verification of a million records."""
    from record import RECORDS
    from record import measure as measured

    place = os.path.join(folder, "record")
    os.mkdir(place, 0o700)
    found = measured(place)
    print(f"the record, with {RECORDS:,} records, {found['megabytes']:.0f} MB")
    for name, what in (("fresh", "an empty log"), ("long", "the long one")):
        bare = found[f"{name} bare"]
        row(f"a decision appended to {what}, over a bare write and fsync", f"{found[name] - bare:.2f} ms", "< 1.5 ms")
        row("... as a ratio", f"{found[name] / bare:.1f}x", "none")
    for name, goal in (
        ("denied", "< 0.5 s"),
        ("tier", "none"),
        ("rule", "none"),
        ("session", "none"),
        ("help", "none"),
    ):
        row(f"`agent audit --{name}`, whole process", f"{found[name]:.2f} s", goal)
    row("`agent audit verify`", f"{found['verify']:.1f} s", "< 20 s")
    shutil.rmtree(place)


def as_other_user() -> dict[str, float]:
    """Measure the launches in a process of uid 65534, with a copy of the code that this user may read."""
    import pyseccomp

    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        base = Path(folder)
        code = base / "code"
        (base / "work").mkdir()
        for package in ("policy", "sandbox", "profiles"):
            shutil.copytree(HERE.parent.parent.parent / package, code / package)
        shutil.copy(pyseccomp.__file__, code / "pyseccomp.py")
        for name in ("bench.py", "egress.py", "lines.py"):
            shutil.copy(HERE.parent / name, code / name)
        for path in (base, *base.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        done = subprocess.run(
            ["/usr/bin/python3", str(code / "bench.py"), "--launches", str(base / "work")],
            env={"PYTHONPATH": str(code), "PATH": "/usr/bin:/bin"},
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def memory(folder: str) -> None:
    """Resident memory of a session that has run a turn and waits, its helpers included."""
    script = (
        "import asyncio, os\n"
        "from pathlib import Path\n"
        "import typer, rich.console, httpx, pydantic, tools, runner.loop, runner.cli.app\n"
        "from policy.model.verdict import *\nfrom policy.model.verdict import _MINT\nfrom policy.model.action import *\nfrom sandbox.linux.backend import Linux\n"
        "async def main():\n"
        f"    t = Terms(Rights.WORKSPACE_WRITE, {folder!r}, '/nonexistent', system={SYSTEM!r})\n"
        "    b = Linux('T1')\n"
        f"    await b.run(Permit(RunArgv(('/bin/true',), {folder!r}), t, _MINT))\n"
        "    pids = [os.getpid(), *(s.process.pid for s in b.pool.all)]\n"
        "    print(sum(int(l.split()[1]) for p in pids for l in open(f'/proc/{p}/smaps_rollup') if l.startswith('Pss:')))\n"
        "    await b.close()\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    print("memory")
    row("idle session, proportional resident size, with its helper", f"{int(done.stdout) / 1024:.0f} MB", "< 60 MB")


def redaction() -> None:
    from runner.secrets.redactor import Redactor  # the other user of the launches has no copy of this package
    from runner.secrets.secret import Secret

    text = "".join(f"{line}\n" for line in (HERE.parents[2] / "README.md").read_text().splitlines() * 8)[: 1 << 18]
    one, many = (
        Redactor([Secret(f"sk-canary-{place:03}-{'Zz9_Qq-x' * 8}") for place in range(size)]) for size in (1, 41)
    )
    shapes, plain = Redactor(shapes=True), (lambda: [text.replace("\n", "") for _ in range(10)])
    first, more, known, reference = median(
        15, lambda: one.text(text), lambda: many.text(text), lambda: shapes.text(text), plain
    )
    size = len(text) / 1024
    print("masking secrets in 256 KiB of text, microseconds a KiB")
    row("each further secret", f"{(more - first) / 40 * 1000 / size:.2f}", "under 1")
    row("the text itself, with one secret", f"{first * 1000 / size:.1f}", "-")
    row("shapes of tokens", f"{known * 1000 / size:.1f}", "-")
    row("removing line breaks ten times, for comparison", f"{reference * 1000 / size:.1f}", "-")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launches", metavar="FOLDER", help="only the launches, as JSON (used for another user)")
    parser.add_argument(
        "--lines", metavar="FILE", help="decide about these instead: JSON lines with the command as `cmd`"
    )
    parser.add_argument("--network", action="store_true", help="only the egress proxy")
    parser.add_argument("--starts", action="store_true", help="only the whole processes")
    parser.add_argument("--sandbox", action="store_true", help="only the sandbox and the look at a large workspace")
    parser.add_argument("--redaction", action="store_true", help="only the masking of secrets")
    parser.add_argument("--decisions", action="store_true", help="only the decisions")
    parser.add_argument("--undo", action="store_true", help="only the snapshots of `agent undo`")
    parser.add_argument("--config", action="store_true", help="only the reading of the configuration")
    parser.add_argument("--sessions", action="store_true", help="only the sessions")
    parser.add_argument("--record", action="store_true", help="only the audit log (minutes, 5 GB of disk)")
    options = parser.parse_args()
    if options.launches:
        print(json.dumps(asyncio.run(launches(options.launches))))
        return
    with tempfile.TemporaryDirectory() as folder:
        real = os.path.realpath(folder)
        subprocess.run(["git", "init", "-q", real], check=True)
        (Path(real) / "src").mkdir()
        lines = LINES
        if options.lines:
            with open(options.lines, encoding="utf-8") as file:
                lines = tuple(json.loads(line)["cmd"] for line in file if line.strip())
        if options.network:
            network(real)
            return
        if options.starts:
            whole_processes(real)
            return
        if options.sandbox:
            sandbox(real)
            workspace(real)
            return
        if options.redaction:
            redaction()
            return
        if options.undo:
            snapshots(real)
            return
        if options.config:
            configuration(real)
            return
        if options.sessions:
            sessions(real)
            return
        if options.record:
            record(real)
            return
        if options.decisions:
            decision(real, lines)
            return
        whole_processes(real)
        configuration(real)
        decision(real, lines)
        sandbox(real)
        workspace(real)
        snapshots(real)
        sessions(real)
        long_talk()
        network(real)
        redaction()
        memory(real)


if __name__ == "__main__":
    main()
