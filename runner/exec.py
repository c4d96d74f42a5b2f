"""`agent exec`: one script through the gate: judge, ask, record, confine, record. The loop without a model."""

import os
import sys
import time
from collections.abc import Coroutine
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from policy.action import Action
from policy.assessment import Assessment
from policy.fingerprint import fingerprint
from policy.permission.rule import Source
from policy.record import dataclass
from policy.tier import Tier
from policy.verdict import Allow, Ask, Deny
from runner.audit.facts import Noting
from runner.audit.records import Answer, Decision, SessionInfo
from runner.commit import head_commit
from runner.exec_report import EventReport, PlainReport, Report
from runner.gate import Gate, nobody_there, open_gate, refuse_folder
from runner.gate_args import GateArgs, without_values
from runner.places import cache_dir, private
from runner.problems import say
from runner.relay import read_stdin
from runner.visible import visible
from sandbox.backend import Enforcement, Level

if TYPE_CHECKING:
    from policy.grant import Grant
    from runner.exec_grants import Asked
    from sandbox.egress.broker import Lend
    from sandbox.spawn import Spare

_Said = TypeVar("_Said")


@dataclass(frozen=True, slots=True)
class Case:
    """One judged action; what a person answered, if anybody was asked; and the grants that it took or made."""

    gate: Gate
    assessment: Assessment
    verdict: Allow | Deny
    answer: Answer | None
    attended: bool
    noted: Noting  # what was asked of the machine to judge it
    grants: tuple[str, ...] = ()
    granted: "tuple[Grant, ...]" = ()  # those that the verdict rests on

    @property
    def typed(self) -> tuple[str, ...]:
        """What flags added, as it is recorded."""
        return self.gate.typed.words if self.gate.typed else ()

    def decision(self, verdict: Allow | Deny, backend: str) -> Decision:
        """For the record; `backend` is `none` when nothing is to be run."""
        return Decision(
            "exec",
            self.assessment,
            verdict,
            backend,
            self.answer,
            self.typed,
            self.grants,
            self.granted,
            Source.PERSON,
            self.gate.backend,
            self.noted,
        )

    def policy(self) -> str:
        """The fingerprint of what decided."""
        return fingerprint(self.gate.settings.profile, self.gate.settings.rules)

    def session(self, enforcement: Enforcement | None, policy: str) -> SessionInfo:
        """For the record; `enforcement` is None when nothing is to be run."""
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
        )


def run_exec(args: GateArgs, spare: "Spare") -> int:
    """Take the script all the way; answers the exit status. Every error raised carries a Problem.

    `spare` is a helper that was started before any of this was imported; whoever made it ends it when nothing ran.
    """
    gate, action = open_gate(args, os.environ)
    refuse_folder(gate.cwd, os.environ, gate.settings.profile)
    noted = Noting(gate.facts, gate.settings.profile)
    gate = replace(gate, facts=noted.facts)
    for notice in gate.settings.notices:
        say(f"notice: {visible(notice, lines=False)}")
    case = _judge(gate, action, noted, attended=not nobody_there(args.unattended))
    report: Report = EventReport() if args.json else PlainReport()
    match case.verdict:
        case Deny() as verdict:
            from runner.audit.opening import open_log

            with open_log(case.gate.settings, os.environ) as audit:
                session = audit.session(case.session(None, case.policy()))
                audit.decided(session, case.decision(verdict, "none"))
            return report.denied(case.assessment, verdict)
        case Allow() as verdict:
            stdin = read_stdin(gate.limits.wall)
            minimum = Level(args.least.upper()) if args.least else gate.settings.sandbox_minimum
            # Imported now: a denial needs no sandbox. The event loop is loaded while the helper locks itself in.
            from sandbox.launch import launched_ahead

            with (
                _lending(gate, verdict) as lend,
                launched_ahead(args.backend, verdict.permit.terms, cache=cache_dir(os.environ), spare=spare) as ahead,
            ):
                _load_event_loop()
                import asyncio

                from runner.exec_confined import confine

                return asyncio.run(confine(case, verdict, report, stdin, (args.backend, minimum), ahead, lend))


def _lending(gate: Gate, verdict: Allow) -> "AbstractContextManager[Lend | None]":
    if not verdict.permit.terms.credentials:
        return nullcontext()
    from runner.broker.opened import lending

    return lending(gate.settings.profile, os.environ, gate.facts.workspace)


def _load_event_loop() -> None:
    """Import asyncio as a Python that was built without TLS does: a quarter quicker, and nothing here speaks TLS."""
    if "asyncio" in sys.modules or "ssl" in sys.modules:
        return
    sys.modules["ssl"] = None  # type: ignore[assignment]  # import's own sign for a module that is not there
    try:
        import asyncio  # noqa: F401  # loaded here, used by its users
    finally:
        del sys.modules["ssl"]


def _judge(gate: Gate, action: Action, noted: Noting, *, attended: bool) -> Case:
    assessment, verdict = gate.evaluate(action, Source.PERSON, unattended=not attended)
    if isinstance(verdict, Ask) or (
        isinstance(verdict, Allow) and assessment.tiers[0] is not Tier.READ and answers_kept()
    ):
        from runner.exec_grants import recall  # only where something may have been answered before

        asked = recall(gate, assessment, verdict, Source.PERSON, unattended=not attended)
        noted.parts()  # as it is now: a question may stand for minutes
        return _settled(gate, asked, noted, attended)
    return Case(gate, assessment, verdict, None, attended, noted)


def answers_kept() -> bool:
    """Whether any answer was ever remembered: one look, and nothing more is loaded when none was."""
    return os.path.lexists(f"{private(os.environ)[0]}/grants.json")


def _settled(gate: Gate, asked: "Asked", noted: Noting, attended: bool) -> Case:
    """By what was answered before, or by what a person answers now."""
    from runner.remembered import spent

    found = spent(asked.found, asked.store)
    if isinstance(found.verdict, Ask):
        verdict, answer, names = _settle(found.verdict, asked)
        return Case(gate, found.assessment, verdict, answer, attended, noted, names)
    return Case(gate, found.assessment, found.verdict, found.answer, attended, noted, found.names, found.by)


def _settle(ask: Ask, asked: "Asked") -> tuple[Allow | Deny, Answer, tuple[str, ...]]:
    """Put the question on the terminal, before anything is opened or started."""
    from rich.console import Console

    from policy.grants import approve, refuse
    from runner.approval import No, Terminal, Yes

    began = time.monotonic()
    said = _finish_now(Terminal(Console(stderr=True), _ask_line).ask(ask, asked.offer))
    waited = time.monotonic() - began
    if not isinstance(said, Yes | No):
        raise KeyboardInterrupt
    names, told = asked.keep(said.keep) if said.keep is not None else ((), "")
    if told:
        say(f"notice: {told}")
    match said:
        case Yes():
            return approve(ask), Answer(ask.question, True, "terminal", None, waited), names
        case No(feedback=feedback):
            return refuse(ask, feedback), Answer(ask.question, False, "terminal", feedback, waited), names


async def _ask_line(prompt: str) -> str:
    """Read one line without an event loop. What was typed ahead of the question is thrown away: it answers nothing."""
    import termios

    termios.tcflush(0, termios.TCIFLUSH)
    sys.stderr.write(visible(prompt))
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line


def _finish_now(work: Coroutine[object, object, _Said]) -> _Said:
    """Drive a coroutine that never waits for a loop: a Ctrl-C at the question then interrupts the read itself."""
    try:
        work.send(None)
    except StopIteration as done:
        said: _Said = done.value
        return said
    raise RuntimeError("the question waited for something other than its answer")
