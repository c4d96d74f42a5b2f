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
import time
from collections.abc import Callable
from pathlib import Path

from policy.action import RunArgv
from policy.verdict import _MINT, Permit, Rights, Terms
from sandbox.linux import Linux

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
    return lambda: subprocess.run(argv, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, check=False)


def row(what: str, value: str, goal: str) -> None:
    print(f"  {what:<58} {value:>18}   goal {goal}")


def whole_processes(folder: str) -> None:
    agent = str(BIN / "agent")
    bare, version, argv, script, piped = median(
        15,
        process(sys.executable, "-c", "pass"),
        process(agent, "--version"),
        process(agent, "exec", "--", "/bin/true", cwd=folder),
        process(agent, "exec", "ls", cwd=folder),
        process(agent, "exec", "ls | head -n 3 2>/dev/null", cwd=folder),
    )
    print(f"whole processes (python -c pass: {bare:.1f} ms)")
    row("agent --version", f"{version / bare:.1f}x", "<= 8x")
    row("agent exec -- /bin/true", f"{argv / bare:.1f}x", "<= 15x")
    row("agent exec 'ls'", f"{script / bare:.1f}x", "<= 25x")
    row("agent exec 'ls | head -n 3 2>/dev/null' (witness loaded)", f"{piped / bare:.1f}x", "<= 25x")


def decision(folder: str) -> None:
    """Parse to verdict, warm, in this process."""
    from policy.action import RunScript
    from policy.classify import classify
    from policy.decide import decide
    from policy.tier import Mode
    from runner.config import load
    from runner.facts import gather

    settings = load(Path(folder), {"HOME": folder})
    facts = gather(folder, os.environ, settings.profile)
    print("decision, warm")
    for script in ("ls", "git status && rg -n foo src | head", "for f in a b; do wc -l $f; done"):

        def work(script: str = script) -> None:
            found = classify(RunScript(script, folder), facts, settings.rules, settings.profile)
            decide(found, facts, settings.profile, Mode.DEFAULT, unattended=True, environment=())

        for _ in range(20):
            work()
        (spent,) = median(200, work)
        row(script, f"{spent:.3f} ms", "< 1 ms")


async def launches(folder: str) -> dict[str, float]:
    terms = Terms(
        Rights.WORK, folder, "/nonexistent", system=SYSTEM, env=(("PATH", "/usr/bin:/bin"), ("HOME", "/nonexistent"))
    )
    permit = Permit(RunArgv(("/bin/true",), folder), terms, _MINT)
    starts = []
    for _ in range(7):
        backend = Linux("T1", files=False, cache=Path(folder))
        started = time.perf_counter()
        await backend.probe(terms)
        starts.append(time.perf_counter() - started)
        await backend.close()
    backend = Linux("T1", files=False, cache=Path(folder))
    spawn, ours, theirs = [], [], []
    for _ in range(150):
        started = time.perf_counter()
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
        spawn.append(time.perf_counter() - started)
        started = time.perf_counter()
        outcome = await backend.run(permit)
        ours.append(time.perf_counter() - started)
        assert outcome.status == 0
    for _ in range(60):
        started = time.perf_counter()
        subprocess.run([*BWRAP, "--bind", folder, folder, "/bin/true"], check=True)
        theirs.append(time.perf_counter() - started)
    await backend.close()
    p95 = sorted(ours)[int(len(ours) * 0.95)]
    return {
        "spawn": statistics.median(spawn),
        "ours": statistics.median(ours[5:]),
        "p95": p95,
        "bwrap": statistics.median(theirs),
        "start": statistics.median(starts),
    }


def sandbox(folder: str) -> None:
    users: list[tuple[str, dict[str, float]]] = [("this user", asyncio.run(launches(folder)))]
    if os.geteuid() == 0:
        users.append(("another user", as_other_user()))
    for who, found in users:
        print(f"sandboxed /bin/true, terms repeating, as {who} (posix_spawn {found['spawn'] * 1000:.2f} ms)")
        row("p50 against posix_spawn", f"{found['ours'] / found['spawn']:.2f}x", "<= 2x")
        row("p95 against posix_spawn", f"{found['p95'] / found['spawn']:.2f}x", "<= 4x")
        row("p50 against bwrap with equal restrictions", f"{found['ours'] / found['bwrap']:.2f}x", "<= 0.35x")
        row("helper started, confined, canary passed", f"{found['start'] * 1000:.0f} ms", "<= 60 ms")


def as_other_user() -> dict[str, float]:
    """The same in a process of uid 65534, with a copy of the code that it may read."""
    import pyseccomp

    with tempfile.TemporaryDirectory(dir="/var/tmp") as base:
        code, work = Path(base, "code"), Path(base, "work")
        work.mkdir()
        for package in ("policy", "sandbox", "profiles"):
            shutil.copytree(HERE.parent.parent.parent / package, code / package)
        shutil.copy(pyseccomp.__file__, code / "pyseccomp.py")
        shutil.copy(HERE, code / "bench.py")
        for path in (Path(base), *Path(base).rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        done = subprocess.run(
            ["/usr/bin/python3", str(code / "bench.py"), "--launches", str(work)],
            env={"PYTHONPATH": str(code), "PATH": "/usr/bin:/bin"},
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            capture_output=True,
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
        "import typer, rich.console, httpx, pydantic, tools, runner.loop, runner.cli_app\n"
        "from policy.verdict import *\nfrom policy.verdict import _MINT\nfrom policy.action import *\nfrom sandbox.linux import Linux\n"
        "async def main():\n"
        f"    t = Terms(Rights.WORK, {folder!r}, '/nonexistent', system={SYSTEM!r})\n"
        "    b = Linux('T1')\n"
        f"    await b.run(Permit(RunArgv(('/bin/true',), {folder!r}), t, _MINT))\n"
        "    pids = [os.getpid(), *(s.process.pid for s in b.slots)]\n"
        "    print(sum(int(l.split()[1]) for p in pids for l in open(f'/proc/{p}/smaps_rollup') if l.startswith('Pss:')))\n"
        "    await b.close()\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    print("memory")
    row("idle session, proportional resident size, with its helper", f"{int(done.stdout) / 1024:.0f} MB", "< 60 MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launches", metavar="FOLDER", help="only the launches, as JSON (used for another user)")
    options = parser.parse_args()
    if options.launches:
        print(json.dumps(asyncio.run(launches(options.launches))))
        return
    with tempfile.TemporaryDirectory() as folder:
        real = os.path.realpath(folder)
        subprocess.run(["git", "init", "-q", real], check=True)
        (Path(real) / "src").mkdir()
        whole_processes(real)
        decision(real)
        sandbox(real)
        memory(real)


if __name__ == "__main__":
    main()
