"""Benchmark part: appending to, searching and verifying an audit log, empty and with many records."""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from policy.model.abstract_word import SourceSpan
from policy.model.action import RunScript
from policy.model.assessment import Assessment, Effect, EffectKind, Reason, RuleKind, RuleRef, Scope
from policy.model.tier import Mode, Ruling, Tier
from policy.model.verdict import _MINT, Allow, Cell, Deny, Permit, Problem, Rights, Terms
from runner.audit.chain import canonical, seal
from runner.audit.log import AuditLog
from runner.audit.records import Decision, SessionInfo, finished_body
from sandbox.backend import Outcome

HERE = Path(__file__).resolve().parent
RECORDS = 1_000_000
_DENIED_EVERY = 50  # decisions


def decision(number: int, *, deny: bool = False) -> Decision:
    """Of 2 to 3 KB, as an ordinary command leaves one."""
    action = RunScript(f"cd src && python3 -m pytest -q tests/test_{number}.py 2>&1 | tail -20", "/home/u/work/project")
    tier = Tier.SECRET if deny else Tier.EXECUTE
    reasons = tuple(
        Reason(
            tier,
            "it runs code that nobody has looked through",
            RuleRef(RuleKind.COMMAND, "python", 12 + n),
            SourceSpan(7, 20),
        )
        for n in range(4)
    )
    effects = tuple(
        Effect(EffectKind.READS, f"/home/u/work/project/src/module_{n}.py", Scope.WORKSPACE) for n in range(6)
    )
    seen = Assessment(action, effects, reasons, tree="pipeline(command(cd src), command(python3), command(tail))")
    if deny:
        problem = Problem("it reads a secret", "keys stay with you", "run it yourself")
        return Decision("bash", seen, Deny(problem, Cell(tier, Mode.DONT_ASK, Ruling.DENY), reasons[0]), "none")
    hidden = tuple(f"/home/u/work/project/.env.{n}" for n in range(12))
    system = ("/usr", "/bin", "/lib", "/etc/passwd")
    terms = Terms(Rights.WORKSPACE_WRITE, action.cwd, "/home/u", hidden=hidden, system=system)
    return Decision(
        "bash", seen, Allow(Permit(action, terms, _MINT), Cell(tier, Mode.DONT_ASK, Ruling.ALLOW), reasons[0]), "T1"
    )


def build(path: Path, records: int) -> None:
    """A log of that many records, written in a few transactions: the bodies, hashes and checkpoints of a real one."""
    session = "0123456789abcdef"
    bodies = [canonical(decision(777_777, deny=deny).body(session)) for deny in (False, True)]
    outcome = canonical(finished_body(777_777, Outcome(0, b"out", b"", 0.25)))
    made = 0
    with AuditLog.open(path) as log:
        log.session(SessionInfo("dont-ask", "/home/u/work/project", True, None))
        log.checkpoint()
        while made < records:
            with log.store.writing("the log could not be built") as writing:
                for _ in range(min(25_000, records - made)):
                    made += 1
                    text = outcome if made % 2 else bodies[made // 2 % _DENIED_EVERY == 0]
                    text = text.replace("777777", str(made))
                    writing.add(seal(writing.head.hash, text), text)
            log.checkpoint()


def appending(path: Path, rounds: int = 300) -> tuple[float, float]:
    """Milliseconds of a durable append, and of a write of 4 KB with fsync to the same disk, interleaved."""
    bare = os.open(path.with_name("bare"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    times: list[list[float]] = [[], []]
    with AuditLog.open(path) as log:
        session = log.session(SessionInfo("dont-ask", "/w", True, None))
        for number in range(rounds):
            started = time.perf_counter()
            os.write(bare, b"x" * 4096)
            os.fsync(bare)
            times[1].append(time.perf_counter() - started)
            made = decision(number)
            started = time.perf_counter()
            log.decided(session, made)
            times[0].append(time.perf_counter() - started)
    os.close(bare)
    return statistics.median(times[0]) * 1000, statistics.median(times[1]) * 1000


def _command(*words: str) -> float:
    """Seconds of a whole `agent audit`, the best of five (verify: of one)."""
    took = []
    for _ in range(1 if words[0] == "verify" else 5):
        started = time.perf_counter()
        subprocess.run(
            [str(Path(sys.executable).parent / "agent"), "audit", *words], stdout=subprocess.DEVNULL, check=True
        )
        took.append(time.perf_counter() - started)
    return min(took)


def measure(folder: str, records: int = RECORDS) -> dict[str, float]:
    """Milliseconds of an append to a new log and to a long one, over the disk's own; seconds of commands on a long one."""
    fresh, long = Path(folder) / "fresh.db", Path(folder) / "long.db"
    found = dict(zip(("fresh", "fresh bare"), appending(fresh), strict=True))
    started = time.perf_counter()
    build(long, records)
    found["build"] = time.perf_counter() - started
    found |= dict(zip(("long", "long bare"), appending(long), strict=True))
    found["megabytes"] = long.stat().st_size / 1e6
    for name, words in {
        "denied": ("--denied",),
        "rule": ("--rule", "command:nothing"),
        "tier": ("--tier", "dangerous"),
        "session": ("--session", "ffff"),
        "help": ("--help",),
        "verify": ("verify",),
    }.items():
        found[name] = _command(*words, *(() if name == "help" else ("--file", str(long))))
    return found
