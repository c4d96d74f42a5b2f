"""Kinds of audit records, the fields of each, and their encoding as bodies for JSON.

Long texts are cut and keep their length and SHA-256. Values of environment variables are left out, because a user may
pass a token through. The digest of the terms covers these values nevertheless.
"""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from policy.model.action import Action
from policy.model.assessment import Assessment, Effect, EffectKind, Reason, Scope
from policy.model.digest import sha256_hex
from policy.model.frozen import dataclass, field, fields
from policy.model.profile import MAIN, Source
from policy.model.tier import Tier
from policy.model.verdict import Allow, Deny, Problem, Terms
from runner import VERSION
from runner.audit.chain import now
from sandbox.backend import Enforcement, Outcome

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from policy.grants.grant import Grant
    from policy.model.agent_limit import AgentLimit
    from runner.audit.fact_recorder import FactRecorder
    from runner.audit.flow_fields import RecordedFlow
    from runner.changes.file_state import Change
    from runner.changes.transaction.report import RecordedFile, RecordedTransaction

TEXT_KEPT = 16_384  # characters of one text
LISTED = 200  # reasons, effects, violations of one record


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """Start of a session. `argv` must not hold secrets: the command line rejects keys, and prompts are not secrets."""

    mode: str
    workspace: str
    unattended: bool
    enforcement: Enforcement | None  # None: the session runs nothing, so no sandbox was opened
    argv: tuple[str, ...] = ()
    model: str | None = None
    commit: str | None = None
    sources: tuple[str, ...] = ()
    policy: str = ""  # fingerprint of the policy in effect
    original: str = ""  # the folder that the workspace is a copy of
    apart: tuple[str, ...] = ()  # paths that were made secret for this run, in addition to those of the configuration
    hashes: tuple[tuple[str, str], ...] = ()  # of the files among `sources`: name, SHA-256 of the bytes that were read
    guarded: str = ""  # the guarded agent, such as `claude`; empty for a session of this program
    guarded_session: str = ""  # the id that the guarded agent gave its session
    job: str = ""  # the scheduled job that the session is a run of

    def body(self, session: str) -> dict[str, object]:
        """Return the body of the record for the start of the session with this id."""
        system = os.uname()
        values = _values(self)
        if not self.guarded:
            del values["guarded"], values["guarded_session"]
        if not self.job:
            del values["job"]
        return {
            **_head("session", session),
            **values,
            "program": f"ringfence {VERSION}",
            "python": sys.version.split()[0],
            "kernel": " ".join((system.sysname, system.release, system.machine)),
            "user": os.geteuid(),
            "process": os.getpid(),
            "original": self.original or None,
            "offset": time.localtime().tm_gmtoff,
            "hashes": dict(self.hashes),
            "argv": [bounded(word) for word in self.argv],
            "enforcement": _enforcement(self.enforcement),
        }


class AnswerSource(StrEnum):
    """Origin of an answer: the user, or an approval or a refusal that the user gave earlier."""

    USER = "user"
    GRANT = "grant"
    REFUSAL = "refusal"


@dataclass(frozen=True, slots=True)
class AnsweringClient:
    """Client of a hosted session that answered a question.

    Attributes:
        name: kind and place of the client, as the client states them: `terminal /dev/pts/3`.
        process: id of the client's process, as the kernel reports it.
    """

    name: str
    process: int

    def body(self) -> dict[str, object]:
        """Return the fields of a record that name this client."""
        return {"client": bounded(self.name), "process": self.process}


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """Answer of the user to a question.

    Attributes:
        by: name of the approver, or the remembered answers, in words: `terminal`, `grant g0123abcd`, ...
        seconds: time until the answer; None if the answer was remembered
        mode: mode that the answer also set; None if the mode stayed
        client: attached client of a hosted session that answered; None for every other session
    """

    question: str
    yes: bool
    by: str
    feedback: str | None = None
    seconds: float | None = None
    source: AnswerSource = AnswerSource.USER
    mode: str | None = None
    client: AnsweringClient | None = None

    def body(self) -> dict[str, object]:
        """Return the field `answer` of a record. It has a `mode` only if the answer set one, and `client` and
        `process` only if a client of a hosted session answered.
        """
        values = _values(self)
        del values["client"]
        if self.mode is None:
            del values["mode"]
        if self.client is not None:
            values |= self.client.body()
        return {
            **values,
            "source": self.source.value,
            "question": bounded(self.question),
            "feedback": bounded(self.feedback) if self.feedback is not None else None,
            "seconds": round(self.seconds, 3) if self.seconds is not None else None,
        }


@dataclass(frozen=True, slots=True)
class Decision:
    """Final verdict on one action.

    Attributes:
        tool: origin of the action: `exec`, or the name of the model's tool
        source: the model or a person, as the proposer of the action
        typed: rights that command-line flags added
        grants: names of the grants that the decision used or created
        granted: copies of the grants that the decision used
        reach: backend whose capabilities were checked; None if no backend was chosen yet
    """

    tool: str
    assessment: Assessment
    verdict: Allow | Deny
    backend: str
    answer: RecordedAnswer | None = None
    typed: tuple[str, ...] = ()
    grants: tuple[str, ...] = ()
    granted: "tuple[Grant, ...]" = ()
    source: Source = Source.MODEL
    reach: str | None = None
    noted: "FactRecorder | None" = None  # the facts that the decision requested
    proposed: Action | None = None  # the action that the model proposed, if the user replaced it by another one
    policy: str = ""  # fingerprint of the policy, if the configuration changed after the session began
    model: str = ""  # `provider:model` that proposed the action; empty if no model did
    agent: str = MAIN  # the acting agent
    parent: str | None = None  # the agent that started it
    call: str = ""  # the id that a guarded agent gave the call; empty for a call of this program
    client: str = ""  # the name that the program at the other end of `agent mcp serve` states; empty without one
    limits: "tuple[AgentLimit, ...]" = ()  # of the acting sub-agent and the agents above it
    hooks: "tuple[RecordedHook, ...]" = ()  # the answers of hooks that the decision rests on
    flow: "RecordedFlow | None" = None  # the information flow, if untrusted text was in the conversation
    ran: int = 0  # number of the decision to run the command, if this one is about what it changed; else 0

    def body(self, session: str) -> dict[str, object]:
        """Return the body of the record of this decision."""
        assessment, verdict, cell = self.assessment, self.verdict, self.verdict.cell
        terms = verdict.permit.terms if isinstance(verdict, Allow) else None
        granted: list[dict[str, object]] = []
        if self.granted:  # few decisions use a grant
            from runner.gate.grants.codec import to_json

            granted = [to_json(grant) for grant in self.granted]
        limits: list[dict[str, object]] = []
        if self.limits:  # most decisions are about actions of the agent `main`
            from runner.audit.agent_limits import limit_body

            limits = [limit_body(limit) for limit in self.limits]
        of_users = dict.fromkeys((*assessment.asked, *assessment.covered.values()))  # rules that ask, or allow a part
        return {
            **_head("decided", session, self.agent, self.parent),
            "tool": self.tool,
            "source": self.source.value,
            "action": action_body(assessment.action),
            "tree": bounded(assessment.tree),
            "effects": [_effect(effect) for effect in assessment.effects[:LISTED]],
            "tiers": [tier.label for tier in assessment.tiers],
            "reasons": [_reason(reason) for reason in assessment.reasons[:LISTED]],
            "rules": [_reason(rule) for rule in list(of_users)[:LISTED]],
            "counts": {"effects": len(assessment.effects), "reasons": len(assessment.reasons)},
            "mode": cell.mode.value,
            "cell": {"tier": cell.tier.label, "mode": cell.mode.value, "ruling": cell.ruling.name.lower()},
            "verdict": "allow" if isinstance(verdict, Allow) else "deny",
            "because": _reason(verdict.reason),
            "problem": _problem(verdict.problem if isinstance(verdict, Deny) else None),
            "terms": _terms(terms) if terms is not None else None,
            "digest": terms.digest if terms is not None else None,
            "backend": self.backend,
            "answer": self.answer.body() if self.answer is not None else None,
            "typed": [bounded(word) for word in self.typed],
            "grants": list(self.grants),
            "granted": granted,
            "reach": self.reach,
            **({"proposed": action_body(self.proposed)} if self.proposed is not None else {}),
            **({"model": bounded(self.model)} if self.model else {}),
            **({"client": bounded(self.client)} if self.client else {}),
            **({"policy": self.policy} if self.policy else {}),
            **({"call": bounded(self.call)} if self.call else {}),
            **({"limits": limits} if limits else {}),
            **({"hooks": [each.body() for each in self.hooks]} if self.hooks else {}),
            **({"flow": self.flow.body()} if self.flow is not None else {}),
            **({"ran": self.ran} if self.ran else {}),
        }


@dataclass(frozen=True, slots=True)
class RecordedHook:
    """Answer of a hook.

    Attributes:
        event: event that the hook was asked about
        place: file and line of the hook
        answer: allow, modify, retry, ask or deny
        reason: reason in the words of the hook, or of its failure
        record: number of the record of the run of the hook; 0 if it did not run
        failed: True if the hook gave no answer, so that its failure counts
    """

    event: str
    place: str
    answer: str
    reason: str = ""
    record: int = 0
    failed: bool = False

    def body(self) -> dict[str, object]:
        """Return one entry of the field `hooks` of a decision, and the field `hook` of the outcome of a hook."""
        return {**_values(self), "place": bounded(self.place), "reason": bounded(self.reason)}


@dataclass(frozen=True, slots=True)
class Ran:
    """Run of an action as the runner measured it.

    Attributes:
        started: in seconds since 1970
        given: bytes of standard input
        changed: pairs of a path and `added`, `modified` or `deleted`; None if changes were not recorded
        hashes: SHA-256 of the contents before and after by the path, in hex, for changes whose contents are stored
        printed: bytes of standard output and standard error of a process that stayed, whose outcome has no output
        hook: answer that the hook gave, if the action was the run of a hook
        answered: answer of the user to questions of the model, as the model got it; None for other actions
        client: attached client of a hosted session that answered those questions; None for every other session
        transaction: exact changes of a command that ran as a transaction; None for others
    """

    started: float
    given: int = 0
    changed: tuple[tuple[str, str], ...] | None = None
    printed: tuple[int, int] | None = None
    hook: RecordedHook | None = None
    answered: str | None = None
    client: AnsweringClient | None = None
    transaction: "RecordedTransaction | None" = None
    hashes: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def ran_changes(started: float, changes: "Sequence[Change]") -> Ran:
    """Return the run of an action that made these changes."""
    from runner.changes.file_state import content_hash  # most records are of other actions

    paths = [(f"{each.root}/{each.path}", each) for each in changes]
    hashes = {path: (content_hash(each.before), content_hash(each.after)) for path, each in paths}
    return Ran(started, changed=tuple((path, each.how) for path, each in paths), hashes=hashes)


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """End of a model's session.

    Attributes:
        exit: exit code of the program
        usage: tokens by kind
        cost: in US dollars; None if the price of the model is unknown
    """

    exit: int
    reason: str
    turns: int
    usage: tuple[tuple[str, int], ...]
    cost: float | None = None

    def body(self, session: str) -> dict[str, object]:
        """Return the body of the last record of a session."""
        ended = {"reason": bounded(self.reason), "usage": dict(self.usage)}
        return {**_head("ended", session), **_values(self), **ended}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Tool call that never became an action. `arguments` is the text that was sent. `client` is as in Decision."""

    tool: str
    arguments: str
    problem: Problem
    agent: str = MAIN
    parent: str | None = None
    client: str = ""

    def body(self, session: str) -> dict[str, object]:
        """Return the body of the record of this refusal."""
        return {
            **_head("refused", session, self.agent, self.parent),
            "tool": bounded(self.tool),
            "arguments": bounded(self.arguments),
            "verdict": "deny",
            "problem": _problem(self.problem),
            **({"client": bounded(self.client)} if self.client else {}),
        }


@dataclass(frozen=True, slots=True)
class Patching:
    """Patch that the user applies to `workspace`.

    Attributes:
        files: pairs of a path in the workspace and the kind of change
        by: origin of the approval, as in RecordedAnswer
        sha256: hash of the patch
    """

    name: str
    sha256: str
    by: str
    reverse: bool
    workspace: str
    files: tuple[tuple[str, str], ...]

    def body(self, session: str) -> dict[str, object]:
        """Return the body of the decision to apply the patch. A `finished` record has its outcome."""
        action = {"type": "ApplyPatch", "path": bounded(self.name), "sha256": self.sha256, "reverse": self.reverse}
        files = tuple((f"{self.workspace}/{path}", how) for path, how in self.files)
        why = f"the user applied a patch to {_files(files)}"
        return _applied(session, "apply", action, files, why, "apply the patch?", self.by)


@dataclass(frozen=True, slots=True)
class Reverting:
    """Undo of actions that the user asked for.

    Attributes:
        steps: number of actions
        redo: True if the last undo is undone instead
        by: place where the user asked for it: `terminal`, `command line`, or a command of a session
        files: pairs of an absolute path and the kind of change
    """

    steps: int
    redo: bool
    by: str
    workspace: str
    files: tuple[tuple[str, str], ...]

    def body(self, session: str) -> dict[str, object]:
        """Return the body of the decision to restore the files. A `finished` record has its outcome."""
        action = {"type": "Undo", "path": bounded(self.workspace), "steps": self.steps, "redo": self.redo}
        what = "the last undo" if self.redo else f"{self.steps} action{'s' * (self.steps != 1)}"
        why = f"the user undid {what}, which changes {_files(self.files)}"
        return _applied(session, "undo", action, self.files, why, "restore the files?", self.by)


def _files(files: tuple[tuple[str, str], ...]) -> str:
    return f"{len(files)} file{'s' * (len(files) != 1)}"


def _applied(
    session: str,
    tool: str,
    action: dict[str, object],
    files: tuple[tuple[str, str], ...],
    why: str,
    question: str,
    by: str,
) -> dict[str, object]:
    kinds = {"deleted": EffectKind.DELETES}
    effects = [Effect(kinds.get(how, EffectKind.WRITES), path, Scope.WORKSPACE) for path, how in files[:LISTED]]
    tier = Tier.WRITE.label
    return {
        **_head("applied", session),
        "tool": tool,
        "action": action,
        "effects": [_effect(effect) for effect in effects],
        "tiers": [tier],
        "counts": {"effects": len(files)},
        "mode": "person",
        "cell": {"tier": tier, "mode": "person", "ruling": "allow"},
        "verdict": "allow",
        "because": {"tier": tier, "text": why, "rule": "", "span": None},
        "answer": {"question": question, "yes": True, "by": by, "feedback": None},
        "backend": "none",
    }


@dataclass(frozen=True, slots=True)
class Forwarding:
    """Forward of a port of this machine to a process, which the user opened.

    Attributes:
        process: name of the process in its session
        command: command of the process
        port: port on which the process listens
        host_port: port of 127.0.0.1 on this machine
        by: origin of the approval, as in RecordedAnswer
    """

    process: str
    command: str
    port: int
    host_port: int
    by: str

    def body(self, session: str) -> dict[str, object]:
        """Return the body of the decision to open the forward. A `finished` record has its end."""
        tier = Tier.NETWORK.label
        text = f"the user forwarded port {self.host_port} of this machine to port {self.port} of {self.process}"
        return {
            **_head("forwarded", session),
            "tool": "forward",
            "action": {
                "type": "ForwardPort",
                "forward": f"127.0.0.1:{self.host_port} to port {self.port} of {self.process}",
                "process": self.process,
                "command": bounded(self.command),
                "port": self.port,
                "host_port": self.host_port,
            },
            "tiers": [tier],
            "mode": "person",
            "cell": {"tier": tier, "mode": "person", "ruling": "allow"},
            "verdict": "allow",
            "because": {"tier": tier, "text": text, "rule": "", "span": None},
            "answer": {"question": "forward the port?", "yes": True, "by": self.by, "feedback": None},
            "backend": "none",
        }


@dataclass(frozen=True, slots=True)
class RecordedPlan:
    """Answer of the user to a plan.

    Attributes:
        into: mode of the session from here on; None if the user declined
        by: as in RecordedAnswer, like `feedback`, `seconds` and `client`
    """

    plan: str
    into: str | None
    by: str
    feedback: str | None = None
    seconds: float | None = None
    agent: str = MAIN
    parent: str | None = None
    client: AnsweringClient | None = None

    def body(self, session: str) -> dict[str, object]:
        """Return the body of the answer to a plan. It runs nothing, but can change the mode of later actions."""
        text = f"the plan was accepted: {self.into} from here on" if self.into else "the plan was declined"
        answer = RecordedAnswer(
            "leave plan mode?", self.into is not None, self.by, self.feedback, self.seconds, client=self.client
        )
        return {
            **_head("planned", session, self.agent, self.parent),
            "tool": "propose_plan",
            "action": {"type": "LeavePlan", "plan": bounded(self.plan), "into": self.into},
            "tiers": [],
            "mode": "plan",
            "cell": {"tier": "plan", "mode": "plan", "ruling": "ask"},
            "verdict": "allow" if self.into is not None else "deny",
            "because": {"tier": "plan", "text": text, "rule": "", "span": None},
            "answer": answer.body(),
            "backend": "none",
        }


@dataclass(frozen=True, slots=True)
class RecordedReply:
    """Answer of the user to a form or a page of a tool server.

    Attributes:
        server: name of the server in the configuration
        message: text of the server
        fields: names of the fields that the user filled; no values, because these belong to the user
        url: the page; empty for a form
        accepted: False if the user refused or left the question
        by: as in RecordedAnswer, like `seconds` and `client`
    """

    server: str
    message: str
    fields: tuple[str, ...]
    url: str
    accepted: bool
    by: str
    seconds: float
    mode: str
    agent: str = MAIN
    parent: str | None = None
    client: AnsweringClient | None = None

    def body(self, session: str) -> dict[str, object]:
        """Return the body of the decision to answer the server."""
        tier = Tier.MCP_EXTERNAL.label
        given = "the user opened the page" if self.url else f"the user filled {len(self.fields)} fields"
        text = f"{given} that the server `{self.server}` sent" if self.accepted else "the user gave no answer"
        question = "open the page?" if self.url else "answer the form?"
        answer = RecordedAnswer(question, self.accepted, self.by, None, self.seconds, client=self.client)
        return {
            **_head("replied", session, self.agent, self.parent),
            "tool": "elicitation",
            "action": {
                "type": "AnswerServer",
                "server": self.server,
                "message": bounded(self.message),
                "fields": list(self.fields),
                "url": bounded(self.url),
            },
            "tiers": [tier],
            "mode": self.mode,
            "cell": {"tier": tier, "mode": self.mode, "ruling": "ask"},
            "verdict": "allow" if self.accepted else "deny",
            "because": {"tier": tier, "text": text, "rule": "", "span": None},
            "answer": answer.body(),
            "backend": "none",
        }


def started_body(decision: int, process: str, agent: str, *, terminal: bool) -> dict[str, object]:
    """Return the body of the start of a process that stays. Record `decision` allowed it; `process` is its name."""
    return {
        "kind": "started",
        "time": now(),
        "decision": decision,
        "process": process,
        "agent": agent,
        "terminal": terminal,
    }


def _changed_file(path: str, how: str, ran: Ran | None) -> dict[str, object]:
    before, after = ran.hashes.get(path, ("", "")) if ran is not None else ("", "")
    return {"path": bounded(path), "how": how, "before": before, "after": after}


def finished_body(
    decided: int, outcome: Outcome, ran: Ran | None = None, *, agent: str = MAIN, parent: str | None = None
) -> dict[str, object]:
    """Return the body of the outcome of the action that record `decided` allowed."""
    given, changed = (ran.given, ran.changed) if ran is not None else (None, None)
    used = outcome.used
    out, err = len(outcome.stdout), len(outcome.stderr)
    if ran is not None and ran.printed is not None:
        out, err = ran.printed
    return {
        "kind": "finished",
        "time": now(),
        "decided": decided,
        "agent": agent,
        "parent": parent,
        "started": now(ran.started) if ran is not None else None,
        "status": outcome.status,
        "seconds": round(outcome.seconds, 6),
        "ended_by": outcome.ended_by,
        "bytes": {"stdin": given, "stdout": out, "stderr": err},
        "used": {"cpu": round(used.cpu, 3), "memory": used.memory} if used is not None else None,
        "changed": [_changed_file(path, how, ran) for path, how in (changed or ())[:LISTED]],
        "changes": len(changed) if changed is not None else None,
        "truncated": outcome.truncated,
        "problem": _problem(outcome.problem),
        "violations": [
            {
                "what": bounded(item.what),
                "path": bounded(item.path),
                "fix": bounded(item.fix),
                "inferred": item.inferred,
                "layer": item.layer,
            }
            for item in outcome.violations[:LISTED]
        ],
        "connections": [
            {**_values(item), "host": bounded(item.host), "asked": bounded(item.asked), "why": bounded(item.why)}
            for item in outcome.connections[:LISTED]
        ],
        "connected": len(outcome.connections),
        "enforcement": _enforcement(outcome.enforcement),
        **({"hook": ran.hook.body()} if ran is not None and ran.hook is not None else {}),
        **({"answered": bounded(ran.answered)} if ran is not None and ran.answered is not None else {}),
        **({"answer": ran.client.body()} if ran is not None and ran.client is not None else {}),
        **({"transaction": _transaction(ran.transaction)} if ran is not None and ran.transaction is not None else {}),
    }


def _transaction(done: "RecordedTransaction") -> dict[str, object]:
    return {
        "by": done.by,
        "files": _recorded_files(done.applied),
        "count": done.count,
        "tree": done.tree,
        "held": [{"path": bounded(path), "reason": kind, "why": bounded(why)} for path, kind, why in done.held],
        "left": done.left,
        "deleted": done.deleted,
        **({"tried": done.tried} if done.tried else {}),
        **(
            {"unapplied": _recorded_files(done.unapplied.files), "unkept": done.unapplied.count}
            if done.unapplied.count
            else {}
        ),
    }


def _recorded_files(files: "Sequence[RecordedFile]") -> list[dict[str, object]]:
    return [{**_values(each), "path": bounded(each.path)} for each in files[:LISTED]]


def bounded(text: str) -> object:
    """Return the text, or its beginning together with the length and SHA-256 of the whole."""
    if len(text) <= TEXT_KEPT:
        return text
    digest = sha256_hex(text.encode("utf-8", "surrogatepass"))
    return {"cut": text[:TEXT_KEPT], "length": len(text), "sha256": digest}


def action_body(action: Action) -> dict[str, object]:
    """Return the field `action` of a record."""
    body: dict[str, object] = {"type": action.kind}
    for name, value in _values(action).items():
        if isinstance(value, list):  # argv: cut as one text, so that a million words make one short record
            body[name] = bounded("\0".join(value)) if sum(len(word) + 1 for word in value) > TEXT_KEPT else value
        else:
            body[name] = bounded(value) if isinstance(value, str) else value
    return body


def _head(kind: str, session: str, agent: str = MAIN, parent: str | None = None) -> dict[str, object]:
    return {"kind": kind, "time": now(), "session": session, "agent": agent, "parent": parent}


def _values(item: "DataclassInstance") -> dict[str, Any]:
    """Return the fields of `item`. Tuples become lists: `log.redact_body` redacts texts, lists and dicts only."""
    values = {field.name: getattr(item, field.name) for field in fields(item)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _effect(effect: Effect) -> dict[str, object]:
    target = bounded(effect.target)
    return {"kind": effect.kind.value, "target": target, "scope": effect.scope.value, "exact": effect.exact}


def _reason(reason: Reason) -> dict[str, object]:
    span = [reason.span.start, reason.span.end] if reason.span else None
    return {"tier": reason.tier.label, "text": bounded(reason.text), "rule": str(reason.rule), "span": span}


def _problem(problem: Problem | None) -> dict[str, object] | None:
    return {name: bounded(text) for name, text in _values(problem).items()} if problem else None


def _enforcement(report: Enforcement | None) -> dict[str, object] | None:
    return {**_values(report), "level": report.level.value, "checks": dict(report.checks)} if report else None


def _terms(terms: Terms) -> dict[str, object]:
    values = _values(terms)
    del values["limits"]  # the last field of the record
    env = [name for name, _ in terms.env]
    return {**values, "rights": terms.rights.value, "env": env, "limits": _values(terms.limits)}
