"""The case of one `agent exec` and the reports about it: the command's own bytes with messages on stderr, or one JSON
event per line.
"""

import json
import os
import select
import sys
from typing import TYPE_CHECKING

from policy.evaluation import fingerprint
from policy.model.assessment import Assessment
from policy.model.frozen import dataclass, fields
from policy.model.profile import Source
from policy.model.verdict import Allow, Deny, Limits, Problem
from runner.audit.fact_recorder import FactRecorder
from runner.frontends.exec.argv import without_values
from runner.gate.gate import Gate
from runner.problems import Exit, Stopped
from runner.secrets.secret import registered_count
from runner.state.workspace import head_commit
from runner.stderr import print_problem, say, say_notice, unwritten, wrapped
from sandbox.backend import MOST_TOLD, Enforcement, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policy.grants.grant import Grant
    from runner.audit.flow_fields import RecordedFlow
    from runner.audit.records import Decision, RecordedAnswer, SessionInfo
    from runner.changes.transaction.report import RecordedTransaction
    from runner.changes.undo.recorder import SnapshotRecorder
    from runner.frontends.guard.tokens import GuardToken
    from runner.secrets.redactor import RedactingStream
    from sandbox.backend import Connection

# The layer that blocked an action, for violations that are certain.
_REASON_INDENT = 4  # columns before the further lines of a reason
_STOPPED = {
    "landlock": "stopped by the kernel, as its audit record states",
    "proxy": "stopped by the egress proxy",
    "limit": "stopped by a limit",
    "watch": "found by the watch of the workspace",
    "transaction": "found in the changes of the command before they were applied",
    "guess": "stopped by the sandbox",
}


@dataclass(frozen=True, slots=True)
class ExecCase:
    """One judged action.

    Attributes:
        gate: The settings and facts that the verdict is based on.
        assessment: The effects, tiers and reasons of the action.
        verdict: The decision.
        answer: The answer of the user or of a grant, or None if there was no question.
        attended: True if a user could answer a question.
        noted: The facts about the machine that the verdict depends on.
        grants: The names of the grants that answered, or that the answer created.
        granted: The grants that the verdict is based on.
        unworkable: True if the action cannot work, so that no user was asked and no decision was made.
        guarded: The token of the guarded agent that called its shell tool, or None for a command of the user.
    """

    gate: Gate
    assessment: Assessment
    verdict: Allow | Deny
    answer: "RecordedAnswer | None"
    attended: bool
    noted: FactRecorder
    grants: tuple[str, ...] = ()
    granted: "tuple[Grant, ...]" = ()
    unworkable: bool = False
    guarded: "GuardToken | None" = None

    def decision(self, verdict: Allow | Deny, backend: str) -> "Decision":
        """Return the decision for the record; `backend` is `none` if the action will not run."""
        from runner.audit.records import Decision  # while the helper confines itself, as all parts of the record

        guarded = self.guarded
        return Decision(
            guarded.tool if guarded else "exec",
            self.assessment,
            verdict,
            backend,
            self.answer,
            self.gate.typed.words if self.gate.typed else (),
            self.grants,
            self.granted,
            Source.MODEL if guarded else Source.PERSON,
            self.gate.backend,
            self.noted,
            call=guarded.call if guarded else "",
            flow=self._flow(),
        )

    def _flow(self) -> "RecordedFlow | None":
        """Return the information flow for the record; None without `--untrusted`."""
        if self.gate.flow is None:
            return None
        from runner.audit.flow_fields import recorded_flow  # few commands state such a source

        context = self.gate.context(unattended=not self.attended)
        return recorded_flow(self.gate.flow, context.flow_findings(self.assessment))

    def policy(self) -> str:
        """Return the fingerprint of everything but the action, the disk and the mode that determines a verdict: all
        command rules, the profile and the matrix.
        """
        return fingerprint(self.gate.settings.profile, self.gate.settings.rules)

    def session(self, enforcement: Enforcement | None, policy: str) -> "SessionInfo":
        """Return the session for the record; `enforcement` is None if the action will not run."""
        from runner.audit.records import SessionInfo

        return SessionInfo(
            mode=self.gate.mode.value,
            workspace=self.gate.facts.workspace,
            unattended=not self.attended,
            enforcement=enforcement,
            argv=("agent", *without_values(sys.argv[1:])),
            commit=head_commit(self.gate.facts.workspace),
            sources=self.gate.settings.sources,
            policy=policy,
            hashes=self.gate.settings.hashes,
            guarded=self.guarded.agent if self.guarded else "",
            guarded_session=self.guarded.session if self.guarded else "",
        )

    def recorder(self, session: str) -> "SnapshotRecorder":
        """Return the recorder of file changes, which shows its notices on standard error. The caller closes it."""
        from runner.changes.undo.recorder import snapshot_recorder  # most commands record no changes
        from runner.text.sanitize import visible

        def show(text: str) -> None:
            say_notice(visible(text, lines=False))

        return snapshot_recorder(self.gate.facts, self.gate.settings, os.environ, session, show)

    def session_name(self) -> str:
        """Return the id of the session in the record; empty for a new session."""
        return self.guarded.audit_session if self.guarded else ""


@dataclass(frozen=True, slots=True)
class UndoableRun:
    """The end of a command whose changes are known.

    Attributes:
        outcome: The outcome of the command.
        code: The exit code if a signal or an output error ended the run, else None.
        changed: The changed files with the kind of change; None if they are not known.
        held: Reports about changes that were taken back, or never applied.
        transaction: The transaction for the record, if the command ran as one.
    """

    outcome: Outcome
    code: int | None
    changed: tuple[tuple[str, str], ...] | None
    held: tuple[Problem, ...] = ()
    transaction: "RecordedTransaction | None" = None


class PlainReport:
    """The report for users and shells: stdout and stderr of the command, then the messages of ringfence on stderr.

    `stdout` is the descriptor that gets the standard output of the command.
    """

    def __init__(self, stdout: int = 1) -> None:
        self._places = {1: stdout, 2: 2}
        # Mask only known secrets: a text that looks like a key may be data that the user redirects to a file.
        self._masked = _masking(shapes=False)

    def denied(self, assessment: Assessment, verdict: Deny, session: str) -> int:
        """Report that nothing ran, and return the exit code."""
        from runner.gate.explain import caret_lines

        print_problem(verdict.problem, label="denied")
        *quoted, reason = caret_lines(assessment.action, verdict.reason)
        say("\n".join([*quoted, wrapped(reason, _REASON_INDENT)]))
        return Exit.DENIED

    def started(self, assessment: Assessment, verdict: Allow, session: str, enforcement: Enforcement) -> None:
        pass

    def listen(self, stream: int, chunk: bytes) -> None:
        """Write a piece of output at once. `stream` is 1 for stdout, 2 for stderr.

        Raise BrokenPipeError if the reader is gone, Stopped if the output cannot be written.
        """
        masked = self._masked.get(stream)
        # Latin-1 maps each byte to one character and back, and keys are ASCII.
        stream = self._places[stream]
        _write(stream, chunk if masked is None else masked.feed(chunk.decode("latin-1")).encode("latin-1"))

    def finished(self, outcome: Outcome, limits: Limits, held: "Sequence[Problem]" = ()) -> int:
        """Report the end of the command, and return the exit code. `held` are reports about changes that were taken
        back, which make the command a denied one.
        """
        for stream, masked in self._masked.items():
            _write(self._places[stream], masked.end().encode("latin-1"))
        for violation in outcome.violations:
            path = f" ({violation.unnamed_path})" if violation.unnamed_path else ""
            why = "inferred from the program's error message" if violation.inferred else _STOPPED[violation.layer]
            from runner.text.sanitize import visible  # slow to import, and most commands have no violation

            # A command chose the name of the file: a line break in it could forge a line of this program.
            what, fix = (visible(text, lines=False) for text in (f"{violation.what}{path}", violation.fix))
            print_problem(Problem(what, why, fix), label="sandbox")
        for each in held:
            print_problem(each, label="denied")
        problem, code = ending(outcome, limits)
        if problem is not None:
            print_problem(problem)
        return Exit.DENIED if held and not code else code


class EventReport:
    """The report for programs: the events of `agent run --json` on stdout, one per line. The methods are those of
    PlainReport.
    """

    def __init__(self) -> None:
        import codecs

        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders = {1: decoder("replace"), 2: decoder("replace")}
        self._masked = _masking(shapes=True)

    def denied(self, assessment: Assessment, verdict: Deny, session: str) -> int:
        self._print({"type": "session_started", "session": session, "enforcement": None})  # no sandbox was started
        self._judged(assessment, verdict)
        self._print({"type": "denied", "call": "exec", "problem": _values(verdict.problem)})
        return self._end(Exit.DENIED)

    def started(self, assessment: Assessment, verdict: Allow, session: str, enforcement: Enforcement) -> None:
        checks = {
            "level": enforcement.level.value,
            "backend": enforcement.backend,
            "missing": enforcement.missing,
            "limits": enforcement.limits,
        }
        self._print({"type": "session_started", "session": session, "enforcement": checks})
        self._judged(assessment, verdict)

    def listen(self, stream: int, chunk: bytes) -> None:
        self._output(stream, self._masked[stream].feed(self._decoders[stream].decode(chunk)))

    def finished(self, outcome: Outcome, limits: Limits, held: "Sequence[Problem]" = ()) -> int:
        for stream, decoder in self._decoders.items():
            masked = self._masked[stream]
            self._output(stream, masked.feed(decoder.decode(b"", final=True)) + masked.end())
        problem, code = ending(outcome, limits)
        problem = problem or next(iter(held), None)
        shown = ("what", "path", "fix", "inferred", "layer")
        violations = [{name: getattr(item, name) for name in shown} for item in outcome.violations]
        self._print(
            {
                "type": "finished",
                "call": "exec",
                "status": outcome.status,
                "seconds": round(outcome.seconds, 6),
                "ended_by": outcome.ended_by,
                "violations": violations,
                "connections": [_values(made) for made in outcome.connections[:MOST_TOLD]],
                "problem": _values(problem) if problem else None,
            }
        )
        return self._end(Exit.DENIED if held and not code else code)

    def _judged(self, assessment: Assessment, verdict: Allow | Deny) -> None:
        cell = verdict.cell
        self._print(
            {
                "type": "verdict",
                "call": "exec",
                "tiers": [tier.label for tier in assessment.tiers],
                "verdict": "allow" if isinstance(verdict, Allow) else "deny",
                "why": verdict.reason.text,
                "rule": str(verdict.reason.rule),
                "cell": {"tier": cell.tier.label, "mode": cell.mode.value, "ruling": cell.ruling.name.lower()},
            }
        )

    def _output(self, stream: int, text: str) -> None:
        if text:
            self._print({"type": "output", "call": "exec", "stream": stream, "text": text})

    def _end(self, code: int) -> int:
        self._print({"type": "run_ended", "exit": int(code)})
        return code

    def _print(self, event: dict[str, object]) -> None:
        sys.stdout.flush()
        _write(1, (json.dumps(event, separators=(",", ":")) + "\n").encode())


def _masking(*, shapes: bool) -> "dict[int, RedactingStream]":
    """Return the maskers of stdout (1) and stderr (2), or an empty mapping if there is nothing to mask."""
    if not shapes and not registered_count():
        return {}

    from runner.secrets.redactor import Redactor  # most commands have nothing to mask

    redactor = Redactor(live=True, shapes=shapes)
    return {1: redactor.stream(), 2: redactor.stream()}


def _values(made: "Connection | Problem") -> dict[str, object]:
    return {each.name: getattr(made, each.name) for each in fields(made)}


def _write(descriptor: int, data: bytes) -> None:
    """Write every byte, and wait for a slow reader.

    Raise BrokenPipeError if the reader closed its end, and Stopped for any other error.
    """
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:  # another process made the descriptor non-blocking
            select.select([], [descriptor], [])
        except BrokenPipeError:
            raise
        except OSError as error:  # a full disk
            raise Stopped(unwritten(error), Exit.FAILED) from None


def ending(outcome: Outcome, limits: Limits) -> tuple[Problem | None, int]:
    """Return the Problem to print about an ended command, or None, and the exit code."""
    if outcome.problem is not None:
        return outcome.problem, outcome.status or Exit.FAILED
    if outcome.ended_by is not None and outcome.ended_by != "cancelled":
        from sandbox.linux.limits import passed  # slow to import, and needed for limits only

        return passed(outcome.ended_by, limits), Exit.LIMIT
    return None, outcome.status


Report = PlainReport | EventReport
