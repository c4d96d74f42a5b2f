"""`agent exec`: evaluate one script, ask, record the decision, run the script confined, and record the outcome."""

import os
import select
import stat
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from policy.model.action import Action
from policy.model.profile import Source
from policy.model.tier import Ruling, Tier
from policy.model.verdict import Allow, Deny, Problem
from runner.audit.fact_recorder import FactRecorder
from runner.frontends.exec.report import EventReport, ExecCase, PlainReport, Report
from runner.gate.gate import Gate, GateArgs, has_remembered_answers, is_unattended, open_gate, refuse_folder
from runner.problems import Exit, Stopped
from runner.state.paths import cache_dir
from runner.stderr import say, say_notice
from sandbox.backend import Level

if TYPE_CHECKING:
    from sandbox.egress.credential_injection import InjectorFactory
    from sandbox.linux.helper_process import SpareHelper


STDIN_LIMIT = 64 << 20  # bytes
_PATIENCE = 2.0  # seconds without standard input before the user is told that the program waits for it


def run_exec(args: GateArgs, spare: "SpareHelper") -> int:
    """Run the script of `args` and return the exit status. Raise an exception with a Problem if that is not possible.

    `spare` is a helper process that was started before this module was imported. The caller ends it if nothing ran.
    """
    gate, action = open_gate(args, os.environ)
    refuse_folder(gate.cwd, os.environ, gate.settings.profile)
    noted = FactRecorder(gate.facts, gate.settings.profile)
    gate = replace(gate, facts=noted.facts)
    for notice in gate.settings.notices:
        from runner.text.sanitize import visible  # most settings give no notice

        say_notice(visible(notice, lines=False))
    case = _judge(gate, action, noted, attended=not is_unattended(args.unattended))
    report: Report = EventReport() if args.json else PlainReport()
    match case.verdict:
        case Deny() as verdict:
            from runner.audit.log import open_log
            from runner.gate.wording import action_words

            with open_log(case.gate.settings, os.environ) as audit:
                session = audit.session(case.session(None, case.policy()))
                if case.unworkable:
                    from runner.audit.records import Refusal

                    audit.refused(session, Refusal("exec", action_words(action, gate.cwd), verdict.problem))
                else:
                    audit.decided(session, case.decision(verdict, "none"))
            return report.denied(case.assessment, verdict, session)
        case Allow() as verdict:
            stdin = _read_stdin(gate.limits.wall)
            minimum = Level(args.least.upper()) if args.least else gate.settings.sandbox_minimum
            # Imported now: a denial needs no sandbox. The event loop is imported while the helper confines itself.
            from sandbox.linux.launch import launched_ahead

            lending: AbstractContextManager[InjectorFactory | None] = nullcontext()
            if verdict.permit.terms.credentials:
                from runner.secrets.broker.session import injector_for

                lending = injector_for(gate.settings.profile, os.environ, gate.facts.workspace)
            with (
                lending as lend,
                launched_ahead(args.backend, verdict.permit.terms, cache=cache_dir(os.environ), spare=spare) as ahead,
            ):
                _load_event_loop()
                import asyncio

                from runner.frontends.exec.confined import confine

                return asyncio.run(confine(case, verdict, report, stdin, (args.backend, minimum), ahead, lend))


def _load_event_loop() -> None:
    """Import asyncio without `ssl`, as in a Python built without TLS: a quarter faster, and no TLS is used here."""
    if "asyncio" in sys.modules or "ssl" in sys.modules:
        return
    sys.modules["ssl"] = None  # type: ignore[assignment]  # marks a module as missing
    try:
        import asyncio  # noqa: F401  # loaded here, used by its users
    finally:
        del sys.modules["ssl"]


def _judge(gate: Gate, action: Action, noted: FactRecorder, *, attended: bool) -> ExecCase:
    """Evaluate the action, apply remembered answers, and ask if the verdict is a question."""
    assessment, verdict = gate.evaluate(action, Source.PERSON, unattended=not attended)
    if not isinstance(verdict, Allow) and verdict.cell.ruling is Ruling.ASK:
        from runner.gate.missing_program import no_such_program  # only where a user would be asked

        missing = no_such_program(assessment, gate.context(Source.PERSON, unattended=not attended))
        if missing is not None:
            denied = Deny(missing, verdict.cell, verdict.reason)
            return ExecCase(gate, assessment, denied, None, attended, noted, unworkable=True)
    if isinstance(verdict, Deny):
        return ExecCase(gate, assessment, verdict, None, attended, noted)
    if isinstance(verdict, Allow) and (assessment.tiers[0] is Tier.READ or not has_remembered_answers()):
        return ExecCase(gate, assessment, verdict, None, attended, noted)
    # Imported now: only a question or a remembered answer needs it.
    from runner.frontends.exec.grants import authorize_at_terminal, recall

    asked = recall(gate, assessment, verdict, Source.PERSON, unattended=not attended)
    noted.parts()  # read now: a question may stay open for minutes
    return authorize_at_terminal(gate, asked, noted, attended=attended)


def _read_stdin(deadline: float) -> bytes | None:
    """Return all of standard input if it is a pipe, a file or a socket; None if it is a terminal, a device or closed.

    The command starts when its input is complete. Raise Stopped if the input does not end within `deadline` seconds or
    is longer than STDIN_LIMIT bytes.
    """
    try:
        kind = os.fstat(0).st_mode
    except OSError:
        return None
    if not (stat.S_ISFIFO(kind) or stat.S_ISREG(kind) or stat.S_ISSOCK(kind)):
        return None
    parts: list[bytes] = []
    size, started, notified = 0, time.monotonic(), False
    while True:
        waited = time.monotonic() - started
        wait = deadline - waited if notified or size else min(_PATIENCE - waited, deadline - waited)
        if not select.select([0], [], [], max(wait, 0))[0]:
            if time.monotonic() - started >= deadline:
                what = f"standard input did not end within {deadline:g} s"
                why = "another process holds the pipe open, and a command starts only when its input is complete"
                fix = "add `< /dev/null` if the command needs no input, or raise the time with --timeout"
                raise Stopped(Problem(what, why, fix), Exit.LIMIT)
            if not notified:
                notified = True
                say("agent: waiting for the end of standard input (no input? add `< /dev/null`)")
            continue
        chunk = os.read(0, 1 << 16)
        if not chunk:
            return b"".join(parts)
        size += len(chunk)
        if size > STDIN_LIMIT:
            what = f"standard input is longer than {STDIN_LIMIT >> 20} MiB"
            why = "input is kept in memory until the command starts"
            fix = "write the input to a file in the workspace and let the command read the file"
            raise Stopped(Problem(what, why, fix), Exit.LIMIT)
        parts.append(chunk)
