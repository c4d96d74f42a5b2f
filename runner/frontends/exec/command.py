"""`agent exec`: evaluate one script, ask, record the decision, run the script confined, and record the outcome."""

import contextlib
import errno
import os
import stat
import sys
from typing import TYPE_CHECKING

from policy.decide import preview_of, starts_without_network
from policy.model.action import Action
from policy.model.frozen import replace
from policy.model.profile import Source
from policy.model.tier import Ruling, Tier
from policy.model.verdict import Allow, Deny, Rights, Terms
from runner.audit.fact_recorder import FactRecorder
from runner.frontends.exec.report import EventReport, ExecCase, PlainReport, Report
from runner.gate.gate import Gate, GateArgs, has_remembered_answers, is_unattended, open_gate, refuse_folder
from runner.state.paths import cache_dir
from runner.stderr import say_notice
from sandbox.backend import Level

if TYPE_CHECKING:
    from policy.grants.extra_right import ExtraRight
    from runner.changes.transaction.place import MadeAhead
    from runner.frontends.exec.confined import ExecResult, WantedSandbox
    from sandbox.egress.credential_injection import InjectorFactory
    from sandbox.linux.helper_process import SpareHelper
    from sandbox.linux.launch import PrelaunchedHelper


def run_exec(args: GateArgs, spare: "SpareHelper | None") -> int:
    """Run the script of `args` and return the exit status. Raise an exception with a Problem if that is not possible.

    `spare` is a helper process that was started before this module was imported. The caller ends it if nothing ran.
    It is None for a command in the background.
    """
    token = None
    if args.guard_token is not None:
        from runner.frontends.guard.redemption import redeem_args  # only for a guarded agent

        args, token = redeem_args(args, os.environ)
    gate, action = open_gate(args, os.environ)
    refuse_folder(gate.cwd, os.environ, gate.settings.profile)
    if gate.settings.values.get(("serve", "start")):
        from runner.resident.control import start_if_wanted  # only if the user configured it

        start_if_wanted(os.environ)
    noted = FactRecorder(gate.facts, gate.settings.profile)
    gate = replace(gate, facts=noted.facts)
    for notice in gate.settings.notices:
        from runner.text.sanitize import visible  # most settings give no notice

        say_notice(visible(notice, lines=False))
    if token is not None:
        from runner.frontends.exec.guarded import guarded_case

        case = guarded_case(gate, action, noted, token)
    elif args.preview:
        case = _judge_preview(gate, action, noted, attended=not is_unattended(args.unattended))
    else:
        case = _judge(gate, action, noted, attended=not is_unattended(args.unattended), waits=not args.background)
    report: Report = EventReport() if args.json else PlainReport()
    match case.verdict:
        case Deny() as verdict:
            from runner.audit.log import open_log
            from runner.gate.wording import action_words

            with open_log(case.gate.settings, os.environ) as audit:
                begun = case.session(None, case.policy())
                if case.unworkable:
                    from runner.audit.records import Refusal

                    session = audit.session(begun, case.session_name())
                    audit.refused(session, Refusal("exec", action_words(action, gate.cwd), verdict.problem))
                else:
                    session, _ = audit.began(begun, case.session_name(), case.decision(verdict, "none"))
            return report.denied(case.assessment, verdict, session)
        case Allow() as verdict:
            minimum = Level(args.least.upper()) if args.least else gate.settings.sandbox_minimum
            if spare is None:
                from runner.frontends.exec.background import run_in_background

                return run_in_background(case, verdict, args, minimum)
            stdin = _standard_input()
            interactive = stdin is None and not args.json and not args.preview and _has_terminal()
            # Imported now: a denial needs no sandbox.
            from sandbox.linux.launch import launched_ahead

            lending: contextlib.AbstractContextManager[InjectorFactory | None] = contextlib.nullcontext()
            if verdict.permit.terms.credentials:
                from runner.secrets.broker.session import injector_for

                lending = injector_for(gate.settings.profile, os.environ, gate.facts.workspace)
            terms, cache = verdict.permit.terms, cache_dir(os.environ)
            folders: MadeAhead | None = None
            if terms.rights is Rights.WORKSPACE_WRITE and not interactive:
                from runner.frontends.exec.layer_ahead import folders_ahead  # only for commands that may write

                folders = folders_ahead(gate.settings, terms, args.backend, always=args.preview)
            layer = folders.layer if folders is not None else None
            with (
                contextlib.nullcontext() if folders is None else contextlib.closing(folders),
                lending as lend,
                launched_ahead(args.backend, terms, cache=cache, spare=spare, layer=layer) as ahead,
            ):
                wanted = (args.backend, minimum)
                if args.preview:
                    _load_event_loop()  # while the helper confines itself
                    from runner.frontends.exec.preview import run_preview

                    return run_preview(case, verdict, wanted, ahead, folders, json=args.json)
                if ahead is not None and not interactive and _only_reads(case, terms):
                    ended = _run_without_loop(case, verdict, report, stdin, wanted, ahead)
                else:
                    _load_event_loop()
                    ended = _run_in_loop(
                        case, verdict, report, stdin, wanted, ahead, lend, interactive=interactive, folders=folders
                    )
            if ended.code and stdin is None and not args.json and starts_without_network(verdict):
                return _with_hosts(case, verdict, ended, wanted, interactive=interactive)
            return ended.code


def _only_reads(case: ExecCase, terms: Terms) -> bool:
    """Return True if the command changes nothing, has no network, and no snapshot is made before it."""
    plain = case.guarded is None and case.gate.flow is None
    return plain and terms.rights is Rights.READ_ONLY and not terms.hosts


def _run_without_loop(
    case: ExecCase,
    verdict: Allow,
    report: Report,
    stdin: int | None,
    wanted: "WantedSandbox",
    ahead: "PrelaunchedHelper",
) -> "ExecResult":
    from runner.frontends.exec.confined import WithoutLoop, confine, run_without_loop
    from sandbox.linux.helper_request import PollWait

    with PollWait() as waits:
        return run_without_loop(waits, confine(WithoutLoop(waits), case, verdict, report, stdin, wanted, ahead))


def _run_in_loop(
    case: ExecCase,
    verdict: Allow,
    report: Report,
    stdin: int | None,
    wanted: "WantedSandbox",
    ahead: "PrelaunchedHelper | None",
    lend: "InjectorFactory | None" = None,
    *,
    interactive: bool,
    session: str = "",
    folders: "MadeAhead | None" = None,
) -> "ExecResult":
    import asyncio

    from runner.frontends.exec.confined import confine
    from runner.frontends.exec.in_loop import InLoop

    return asyncio.run(
        confine(
            InLoop(),
            case,
            verdict,
            report,
            stdin,
            wanted,
            ahead,
            lend,
            interactive=interactive,
            session=session,
            folders=folders,
        )
    )


def _with_hosts(
    case: ExecCase, verdict: Allow, ended: "ExecResult", wanted: "WantedSandbox", *, interactive: bool
) -> int:
    """Run a command that started without network again, with each host that the user adds after it was refused. Return
    the exit code of the last run.
    """
    from runner.frontends.exec.escalation import request_host  # only after a failure

    gained: list[ExtraRight] = []
    while (more := request_host(case, verdict, ended.outcome, gained)) is not None:
        case, right = more
        if isinstance(case.verdict, Deny):
            from runner.audit.log import open_log

            with open_log(case.gate.settings, os.environ) as audit:
                audit.decided(ended.session, case.decision(case.verdict, "none"))
            return ended.code
        verdict = case.verdict
        gained.append(right)
        say_notice(f"the command runs once more, with {right.words}")
        _load_event_loop()
        ended = _run_in_loop(
            case, verdict, PlainReport(), None, wanted, None, interactive=interactive, session=ended.session
        )
    return ended.code


def _load_event_loop() -> None:
    """Import asyncio without `ssl`, as in a Python built without TLS: a quarter faster, and no TLS is used here."""
    if "asyncio" in sys.modules or "ssl" in sys.modules:
        return
    sys.modules["ssl"] = None  # type: ignore[assignment]  # marks a module as missing
    try:
        import asyncio  # noqa: F401  # loaded here, used by its users
    finally:
        del sys.modules["ssl"]


def _judge(gate: Gate, action: Action, noted: FactRecorder, *, attended: bool, waits: bool = True) -> ExecCase:
    """Evaluate the action, apply remembered answers, and ask if the verdict is a question.

    `waits` is False for a command in the background: no question follows its run, so it does not start without network
    if a user can answer now.
    """
    assessment, verdict = gate.evaluate(action, Source.PERSON, unattended=not attended)
    if not waits and attended and starts_without_network(verdict):
        verdict = gate.context(Source.PERSON, unattended=False).decide(assessment, offline=False)
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


def _judge_preview(gate: Gate, action: Action, noted: FactRecorder, *, attended: bool) -> ExecCase:
    """Evaluate the action. A question of the policy becomes the verdict of a preview, and a refusal stays one."""
    assessment, verdict = gate.evaluate(action, Source.PERSON, unattended=False)
    shown = verdict if isinstance(verdict, Deny) else preview_of(verdict)
    return ExecCase(gate, assessment, shown, None, attended, noted)


def _standard_input() -> int | None:
    """Return the descriptor of standard input, whose data is passed on as it arrives.

    Return None if it is a terminal, /dev/null or closed: then the command has an empty input, or a terminal of its own.
    """
    try:
        status = os.fstat(0)
    except OSError:
        return None
    if stat.S_ISCHR(status.st_mode):
        return None if status.st_rdev == os.stat(os.devnull).st_rdev or os.isatty(0) else 0
    return None if stat.S_ISDIR(status.st_mode) else 0


def _has_terminal() -> bool:
    """Return True if standard input and output are terminals, and this process may read from its terminal now.

    A terminal that does not control this process is never held back from it (ENOTTY of tcgetpgrp(3)). A worker of the
    resident process has such a terminal; a client in the background of its terminal uses no worker.
    """
    if not (os.isatty(0) and os.isatty(1)):
        return False
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError as error:
        return error.errno == errno.ENOTTY
