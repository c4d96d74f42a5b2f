"""Decisions, outcomes and whole logs for the tests of the record."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from policy.model.abstract_word import SourceSpan
from policy.model.action import Action, RunScript
from policy.model.assessment import Assessment, Effect, EffectKind, Reason, RuleKind, RuleRef, Scope
from policy.model.tier import Mode, Ruling, Tier
from policy.model.verdict import _MINT as MINT
from policy.model.verdict import Allow, Cell, Deny, Permit, Problem, Rights, Terms
from runner.audit.log import AuditLog
from runner.audit.records import Decision, RecordedAnswer, Refusal, SessionInfo
from sandbox.backend import Enforcement, Level, Outcome

TERMS = Terms(Rights.READ_ONLY, "/w", "/home/u", env=(("PATH", "/usr/bin"), ("TOKEN", "hunter2")))


def info(workspace: str = "/w") -> SessionInfo:
    return SessionInfo(
        "default", workspace, True, Enforcement(Level.FULL, "T1", (("sealed", True),)), ("agent", "exec", "ls")
    )


def assessment(action: Action, tier: Tier = Tier.READ, rules: int = 1) -> Assessment:
    reasons = tuple(
        Reason(tier, "reads a file", RuleRef(RuleKind.COMMAND, "cat", 3 + n), SourceSpan(0, 3)) for n in range(rules)
    )
    return Assessment(action, (Effect(EffectKind.READS, "/w/a", Scope.WORKSPACE),), reasons, tree="cat a")


def allowed(action: Action, tool: str = "exec", rules: int = 1) -> Decision:
    seen = assessment(action, rules=rules)
    cell = Cell(Tier.READ, Mode.DEFAULT, Ruling.ALLOW)
    return Decision(tool, seen, Allow(Permit(action, TERMS, MINT), cell, seen.reasons[0]), "T1")


def denied(action: Action, mode: Mode = Mode.DEFAULT) -> Decision:
    seen = assessment(action, Tier.SECRET)
    cell = Cell(Tier.SECRET, mode, Ruling.DENY)
    problem = Problem("it reads a secret", "keys stay with you", "run it yourself")
    return Decision(
        "bash", seen, Deny(problem, cell, seen.reasons[0]), "none", RecordedAnswer("really?", False, "terminal", "no!")
    )


def refusal(text: str = "{") -> Refusal:
    return Refusal("bash", text, Problem("a", "b", "c"))


def fill(path: Path, count: int = 5) -> None:
    """One session, and `count` decisions with their outcomes: 1 + 2 x count records."""
    with AuditLog.open(path) as log:
        session = log.session(info())
        for number in range(count):
            decided = log.decided(session, allowed(RunScript(f"echo {number}", "/w")))
            log.finished(decided, Outcome(0, b"out", b"", 0.25))


@contextlib.contextmanager
def fence_down(path: Path) -> Iterator[sqlite3.Connection]:
    """Allow records to be changed as the owner of the file can, and restore the triggers so that no trace is left."""
    raw = sqlite3.connect(path)
    fence = [sql for (sql,) in raw.execute("SELECT sql FROM sqlite_master WHERE name IN ('no_update', 'no_delete')")]
    raw.executescript("DROP TRIGGER no_update; DROP TRIGGER no_delete;")
    yield raw
    raw.commit()
    for statement in fence:
        raw.execute(statement)
    raw.close()


def unfenced(path: Path, statement: str) -> None:
    with fence_down(path) as raw:
        raw.executescript(f"{statement};")
