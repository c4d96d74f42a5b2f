"""Kinds of audit records and the fields of each, as bodies for JSON. Their values are encoded by `encode`."""

import os
import sys
import time
from typing import TYPE_CHECKING

from policy.model.action import Action
from policy.model.assessment import Assessment, Effect, EffectKind, Reason, Scope
from policy.model.frozen import dataclass
from policy.model.permission_rule import Source
from policy.model.tier import Tier
from policy.model.verdict import Allow, Deny, Problem
from runner.audit import encode
from runner.audit.encode import now
from runner.version import VERSION
from sandbox.backend import Enforcement, Outcome

if TYPE_CHECKING:
    from policy.grants.grant import Grant
    from runner.audit.fact_recorder import FactRecorder

LISTED = 200  # reasons, effects, violations of one record


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """Start of a session. `argv` must not hold secrets: the command line rejects keys, and prompts are not secrets."""

    mode: str
    workspace: str
    unattended: bool
    enforcement: Enforcement | None  # None: nothing was to be run, so no boundary was opened
    argv: tuple[str, ...] = ()
    model: str | None = None
    commit: str | None = None
    sources: tuple[str, ...] = ()
    policy: str = ""  # the fingerprint of what decides here
    original: str = ""  # the folder that the workspace is a copy of
    apart: tuple[str, ...] = ()  # places that were put out of reach for this run, whatever the configuration says
    hashes: tuple[tuple[str, str], ...] = ()  # of the files among `sources`: name, SHA-256 of the bytes that were read


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of a person to a question.

    Attributes:
        by: who answered, and where: `terminal`, `grant 12`, ...
        seconds: time until the answer; None when the answer was remembered
    """

    question: str
    yes: bool
    by: str
    feedback: str | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """Final verdict on one action.

    Attributes:
        tool: origin of the action: `exec`, or the name of the model's tool
        source: who proposed the action
        typed: rights that command-line flags added
        grants: names of the remembered answers that the decision used or created
        granted: the remembered answers that it used, as they were
        reach: backend whose capabilities were checked; None when none was chosen yet
    """

    tool: str
    assessment: Assessment
    verdict: Allow | Deny
    backend: str
    answer: Answer | None = None
    typed: tuple[str, ...] = ()
    grants: tuple[str, ...] = ()
    granted: "tuple[Grant, ...]" = ()
    source: Source = Source.MODEL
    reach: str | None = None
    noted: "FactRecorder | None" = None  # what was asked of the machine on the way
    proposed: Action | None = None  # what the model wanted, where a person put something else in its place
    model: str = ""  # `provider:model` that wanted it; empty where no model did


@dataclass(frozen=True, slots=True)
class Ran:
    """Run of an action as the runner measured it.

    Attributes:
        started: in seconds since 1970
        given: bytes of standard input
        changed: pairs of a path and `added`, `modified` or `deleted`, if undo records changes; None if nobody looked
    """

    started: float
    given: int = 0
    changed: tuple[tuple[str, str], ...] | None = None


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """End of a model's session.

    Attributes:
        exit: exit code of the program
        usage: tokens by kind
        cost: None when the price of the model is unknown
    """

    exit: int
    reason: str
    turns: int
    usage: tuple[tuple[str, int], ...]
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Tool call that never became an action; `arguments` as the model sent them."""

    tool: str
    arguments: str
    problem: Problem


@dataclass(frozen=True, slots=True)
class Patching:
    """Patch that a person applies to `workspace`.

    Attributes:
        files: pairs of a path in the workspace and the kind of change
        by: who approved
        sha256: of the patch
    """

    name: str
    sha256: str
    by: str
    reverse: bool
    workspace: str
    files: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Planned:
    """Answer of a person to a plan.

    Attributes:
        into: mode of the session from here on; None when the person declined
        by: see Answer, like `feedback` and `seconds`
    """

    plan: str
    into: str | None
    by: str
    feedback: str | None = None
    seconds: float | None = None


def session_body(name: str, info: SessionInfo) -> dict[str, object]:
    return {
        "kind": "session",
        "time": now(),
        "session": name,
        "program": f"ringfence {VERSION}",
        "python": sys.version.split()[0],
        "kernel": " ".join((os.uname().sysname, os.uname().release, os.uname().machine)),
        "user": os.geteuid(),
        "process": os.getpid(),
        "mode": info.mode,
        "unattended": info.unattended,
        "model": info.model,
        "workspace": info.workspace,
        "commit": info.commit,
        "policy": info.policy,
        "original": info.original or None,
        "apart": list(info.apart),
        "offset": time.localtime().tm_gmtoff,
        "sources": list(info.sources),
        "hashes": dict(info.hashes),
        "argv": [encode.text(word) for word in info.argv],
        "enforcement": encode.enforcement(info.enforcement) if info.enforcement else None,
    }


def decided_body(session: str, decision: Decision) -> dict[str, object]:
    assessment, verdict = decision.assessment, decision.verdict
    cell = verdict.cell
    terms = verdict.permit.terms if isinstance(verdict, Allow) else None
    return {
        "kind": "decided",
        "time": now(),
        "session": session,
        "tool": decision.tool,
        "source": decision.source.value,
        "action": encode.action(assessment.action),
        "tree": encode.text(assessment.tree),
        "effects": [encode.effect(effect) for effect in assessment.effects[:LISTED]],
        "tiers": [tier.label for tier in assessment.tiers],
        "reasons": [encode.reason(reason) for reason in assessment.reasons[:LISTED]],
        "rules": [encode.reason(rule) for rule in _of_users(assessment)[:LISTED]],
        "counts": {"effects": len(assessment.effects), "reasons": len(assessment.reasons)},
        "mode": cell.mode.value,
        "cell": {"tier": cell.tier.label, "mode": cell.mode.value, "ruling": cell.ruling.name.lower()},
        "verdict": "allow" if isinstance(verdict, Allow) else "deny",
        "because": encode.reason(verdict.reason),
        "problem": encode.problem(verdict.problem) if isinstance(verdict, Deny) else None,
        "terms": encode.terms(terms) if terms is not None else None,
        "digest": terms.digest if terms is not None else None,
        "backend": decision.backend,
        "answer": _answer(decision.answer),
        "typed": [encode.text(word) for word in decision.typed],
        "grants": list(decision.grants),
        "granted": encode.granted(decision.granted),
        "reach": decision.reach,
        **({"proposed": encode.action(decision.proposed)} if decision.proposed is not None else {}),
        **({"model": encode.text(decision.model)} if decision.model else {}),
    }


def facts_body(name: str, said: dict[str, object]) -> dict[str, object]:
    """Return a part of the facts that decisions used. `name` is its SHA-256, by which decisions refer to it."""
    return {"kind": "facts", "time": now(), "sha256": name, "said": said}


def _of_users(assessment: Assessment) -> list[Reason]:
    """Return the statements of the users' own rules: each that asks, and each that allows a part."""
    return list(dict.fromkeys((*assessment.asked, *assessment.covered.values())))


def refused_body(session: str, refusal: Refusal) -> dict[str, object]:
    return {
        "kind": "refused",
        "time": now(),
        "session": session,
        "tool": encode.text(refusal.tool),
        "arguments": encode.text(refusal.arguments),
        "verdict": "deny",
        "problem": encode.problem(refusal.problem),
    }


def finished_body(decided: int, outcome: Outcome, ran: Ran | None = None) -> dict[str, object]:
    changed = ran.changed if ran is not None else None
    used = outcome.used
    return {
        "kind": "finished",
        "time": now(),
        "decided": decided,
        "started": now(ran.started) if ran is not None else None,
        "status": outcome.status,
        "seconds": round(outcome.seconds, 6),
        "ended_by": outcome.ended_by,
        "bytes": {
            "stdin": ran.given if ran is not None else None,
            "stdout": len(outcome.stdout),
            "stderr": len(outcome.stderr),
        },
        "used": {"cpu": round(used.cpu, 3), "memory": used.memory} if used is not None else None,
        "changed": [{"path": encode.text(path), "how": how} for path, how in (changed or ())[:LISTED]],
        "changes": len(changed) if changed is not None else None,
        "truncated": outcome.truncated,
        "problem": encode.problem(outcome.problem) if outcome.problem else None,
        "violations": [
            {
                **{"what": encode.text(item.what), "path": encode.text(item.path), "fix": encode.text(item.fix)},
                **{"inferred": item.inferred, "layer": item.layer},
            }
            for item in outcome.violations[:LISTED]
        ],
        "connections": [encode.connection(item) for item in outcome.connections[:LISTED]],
        "connected": len(outcome.connections),
        "enforcement": encode.enforcement(outcome.enforcement) if outcome.enforcement else None,
    }


def applied_body(session: str, patching: Patching) -> dict[str, object]:
    """Return the body of a decision that a person made by applying a patch. A `finished` record has its outcome."""
    kinds = {how: EffectKind.DELETES if how == "deleted" else EffectKind.WRITES for _, how in patching.files}
    effects = [
        encode.effect(Effect(kinds[how], f"{patching.workspace}/{path}", Scope.WORKSPACE))
        for path, how in patching.files[:LISTED]
    ]
    many = f"{len(patching.files)} file{'s' * (len(patching.files) != 1)}"
    return {
        "kind": "applied",
        "time": now(),
        "session": session,
        "tool": "apply",
        "action": {
            **{"type": "ApplyPatch", "path": encode.text(patching.name)},
            **{"sha256": patching.sha256, "reverse": patching.reverse},
        },
        "effects": effects,
        "tiers": [Tier.WRITE.label],
        "counts": {"effects": len(patching.files)},
        "mode": "person",
        "cell": {"tier": Tier.WRITE.label, "mode": "person", "ruling": "allow"},
        "verdict": "allow",
        "because": {"tier": Tier.WRITE.label, "text": f"a person put a patch into {many}", "rule": "", "span": None},
        "answer": {"question": "apply it?", "yes": True, "by": patching.by, "feedback": None},
        "backend": "none",
    }


def planned_body(session: str, planned: Planned) -> dict[str, object]:
    """Return the body of the answer to a plan. It runs nothing, but later actions are judged in another mode."""
    text = f"the plan was accepted: {planned.into} from here on" if planned.into else "another plan is wanted"
    answer = Answer("leave plan mode?", planned.into is not None, planned.by, planned.feedback, planned.seconds)
    return {
        "kind": "planned",
        "time": now(),
        "session": session,
        "tool": "propose_plan",
        "action": {"type": "LeavePlan", "plan": encode.text(planned.plan), "into": planned.into},
        "tiers": [],
        "mode": "plan",
        "cell": {"tier": "plan", "mode": "plan", "ruling": "ask"},
        "verdict": "allow" if planned.into is not None else "deny",
        "because": {"tier": "plan", "text": text, "rule": "", "span": None},
        "answer": _answer(answer),
        "backend": "none",
    }


def ended_body(session: str, end: SessionEnd) -> dict[str, object]:
    return {
        "kind": "ended",
        "time": now(),
        "session": session,
        "exit": end.exit,
        "reason": encode.text(end.reason),
        "turns": end.turns,
        "usage": dict(end.usage),
        "cost": end.cost,
    }


def _answer(answer: Answer | None) -> dict[str, object] | None:
    if answer is None:
        return None
    feedback = encode.text(answer.feedback) if answer.feedback is not None else None
    seconds = round(answer.seconds, 3) if answer.seconds is not None else None
    said = {"question": encode.text(answer.question), "yes": answer.yes, "by": answer.by}
    return {**said, "feedback": feedback, "seconds": seconds}
