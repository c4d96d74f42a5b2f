"""Measure the cost of transactions: in a large workspace, after an installation of many files, and in a preview.

Part of `make bench`; nothing here fails a build.
"""

import asyncio
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from policy.model.action import RunScript
from policy.model.verdict import _MINT, Permit, Rights, Terms
from runner.changes.transaction.transaction import open_transaction
from runner.changes.undo.conclude import conclude
from runner.changes.undo.recorder import snapshot_recorder
from runner.config import load
from runner.facts.gather import gather
from sandbox.linux.backend import Linux

AGENT = str(Path(sys.executable).parent / "agent")
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/passwd")
PACKAGES, FILES = 200, 100  # 20,000 files


def row(what: str, value: str, goal: str) -> None:
    print(f"  {what:<66} {value:>14}   goal {goal}", flush=True)


class TransactionBench:
    """Commands in one workspace, each as a transaction that is stored for undo."""

    def __init__(self, base: Path, name: str) -> None:
        self.work = base / name
        self.work.mkdir()
        environ = {
            "HOME": str(base / "home"),
            "PATH": os.environ["PATH"],
            "RINGFENCE_STATE_DIR": str(base / "state"),
            "RINGFENCE_CACHE_DIR": str(base / "cache"),
        }
        for folder in ("home", "state", "cache"):
            (base / folder).mkdir(exist_ok=True)
        settings = load(self.work, environ)
        facts = gather(str(self.work), environ, settings.profile)
        self.recorder = snapshot_recorder(facts, settings, environ, "s", lambda text: None)
        usual = settings.profile
        self.terms = Terms(
            Rights.WORKSPACE_WRITE,
            str(self.work),
            "/nonexistent",
            system=SYSTEM,
            hidden=usual.secret_names,
            locked=(*usual.locked, *usual.personal),
            env=(("PATH", "/usr/bin:/bin"), ("HOME", "/tmp")),  # the private folder of the sandbox
        )
        self.terms = replace(self.terms, limits=replace(self.terms.limits, wall=600))
        self.backend = Linux("T1", files=False, cache=base / "cache")

    async def run(self, script: str) -> tuple[float, float]:
        """Run a script. Return the seconds of the command, and those of the judgement and application."""
        permit = Permit(RunScript(script, str(self.work)), self.terms, _MINT)
        started = time.perf_counter()
        state = self.recorder.transactions(permit)
        assert state is not None
        transaction = await open_transaction(state, self.terms, self.backend)
        assert not isinstance(transaction, str), transaction
        outcome = await self.backend.run(permit, layer=transaction.layer)
        assert outcome.status == 0, (outcome.stderr, outcome.problem)
        between = time.perf_counter()
        done = conclude(self.recorder, transaction, permit, script, "1.1", None)
        assert done.problem is None, done.problem
        return between - started, time.perf_counter() - between

    async def close(self) -> None:
        await self.backend.close()
        self.recorder.close()


async def large(base: Path, files: int = 100_000) -> None:
    """Compare a command that writes one file in an empty workspace and in a large one."""
    full, empty = TransactionBench(base, "full"), TransactionBench(base, "empty")
    for number in range(files // 50):
        inner = full.work / str(number % 100) / str(number)
        inner.mkdir(parents=True)
        for name in range(50):
            (inner / f"{name}.txt").write_bytes(b"x")
    await asyncio.sleep(3)  # what changed a moment ago is read again
    spent: dict[TransactionBench, list[float]] = {full: [], empty: []}
    taken: dict[TransactionBench, list[float]] = {full: [], empty: []}
    for number in range(40):
        for each, times in spent.items():
            before = sum(os.times()[:4])  # of this process, and of its helpers that have ended
            times.append(sum(await each.run(f"echo {number} > out")))
            taken[each].append(sum(os.times()[:4]) - before)
    in_full, in_empty = (statistics.median(times[5:]) * 1000 for times in spent.values())
    more = (statistics.mean(taken[full][5:]) - statistics.mean(taken[empty][5:])) * 1000
    print("a command that writes one file, as a transaction with undo")
    row("in an empty workspace (median)", f"{in_empty:.1f} ms", "none")
    row(f"more in a workspace of {files:,} files (median)", f"{in_full - in_empty:.1f} ms", "<= 5 ms")
    row("  the same in processor time (mean)", f"{more:.1f} ms", "<= 5 ms")
    for each in spent:
        await each.close()
    shutil.rmtree(full.work)


def packed(folder: Path) -> dict[str, str]:
    """Write packages of npm as archives, and return the dependencies on them."""
    folder.mkdir()
    found = {}
    for number in range(PACKAGES):
        with tarfile.open(folder / f"p{number}.tgz", "w:gz", compresslevel=1) as archive:
            for name in range(FILES):
                path, text = (
                    ("package.json", json.dumps({"name": f"p{number}", "version": "1.0.0"}))
                    if not name
                    else (f"lib/{name % 10}/{name}.js", f"exports.n = {number * name};\n" * 60)
                )
                entry = tarfile.TarInfo(f"package/{path}")
                entry.size = len(text)
                archive.addfile(entry, io.BytesIO(text.encode()))
        found[f"p{number}"] = f"file:tars/p{number}.tgz"
    return found


async def installation(base: Path) -> None:
    """Compare an installation of many files with the application of its changes."""
    place = TransactionBench(base, "npm")
    needed = packed(place.work / "tars")
    (place.work / "package.json").write_text(json.dumps({"name": "x", "version": "1.0.0", "dependencies": needed}))
    print(f"{PACKAGES * FILES:,} new files, as a transaction")
    if shutil.which("npm"):
        command, applying = await place.run("npm install --offline --no-audit --no-fund")
        row(f"`npm install`, {command:.1f} s: applying", f"{applying / command:.1%}", "<= 5 %")
    unpack = 'mkdir vendor; for f in tars/*.tgz; do n=vendor/$(basename "$f"); mkdir "$n"; tar xzf "$f" -C "$n"; done'
    command, applying = await place.run(unpack)
    row(f"`tar x` into a folder that undo stores, {command:.1f} s: applying", f"{applying / command:.1%}", "none")
    row("  the same", f"{applying * 1000:.0f} ms", "none")
    command, applying = await place.run("rm -r vendor")
    row(f"`rm -r` of it, {command:.1f} s: applying", f"{applying * 1000:.0f} ms", "none")
    await place.close()


def preview(base: Path, rounds: int = 15) -> None:
    """Compare `agent exec --preview` with the same command as a transaction."""
    (work := base / "preview").mkdir()
    environ = {"HOME": str(base / "home"), "PATH": os.environ["PATH"]}
    words = {"--mode=trust-project": list[float](), "--preview": list[float]()}
    for number in range(rounds):
        for flag, times in words.items():
            started = time.perf_counter()
            subprocess.run(
                [AGENT, "exec", "--unattended", flag, f"echo {number} > out"],
                cwd=work, env=environ, stdin=subprocess.DEVNULL, capture_output=True, check=True,
            )  # fmt: skip
            times.append(time.perf_counter() - started)
    plain, shown = (statistics.median(times) * 1000 for times in words.values())
    print("`agent exec 'echo 1 > out'`")
    row(f"{plain:.0f} ms; with --preview, more", f"{shown - plain:.0f} ms", "<= 20 ms")


def main() -> None:
    base = Path(tempfile.mkdtemp(prefix="bench-transactions-", dir="/var/tmp"))
    try:
        asyncio.run(large(base))
        asyncio.run(installation(base))
        preview(base)
    finally:
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
