"""`agent exec --background`: an allowed command runs on under a supervisor, which is a process of its own.

The supervisor is forked after the decision and before any event loop or thread exists. It owns the sandbox, the output
and the control socket, and ends with the command.

THREAT T159: a command in the background must not stay beyond its supervision, and must not reach the terminal of the
user. The supervisor leads a session without a terminal, has /dev/null for its standard streams, and closes what the
caller left open. The kernel ends the sandbox with it. If the caller is gone before it knows the name of the command,
the command is ended.
"""

import asyncio
import contextlib
import gc
import json
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from policy.model.verdict import Allow, Problem
from runner.audit.records import Ran
from runner.engine.control_server import ControlServer
from runner.engine.port_forwards import PortForwards
from runner.engine.processes import SessionProcess, SessionProcesses
from runner.events import Event, Notice
from runner.frontends.exec.confined import require_unchanged
from runner.frontends.exec.in_loop import InLoop
from runner.frontends.exec.report import ExecCase, ending
from runner.gate.gate import GateArgs
from runner.gate.wording import action_words
from runner.problems import Exit, Stopped, ending_signals
from runner.secrets.redactor import Redactor
from runner.state.output_store import OutputStore
from runner.state.paths import state_dir
from runner.stderr import print_problem, say, say_notice
from runner.text.json_line import json_line
from runner.text.phrases import os_reason
from sandbox.backend import Level, Outcome

if TYPE_CHECKING:
    from sandbox.egress.credential_injection import InjectorFactory


def run_in_background(case: ExecCase, verdict: Allow, args: GateArgs, minimum: Level) -> int:
    """Start the command under a supervisor, and print its name when it runs. Return the exit code.

    The code is that of `agent exec` if the command could not be started; the supervisor has printed the reason then.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    read, write = os.pipe()
    supervisor = os.fork()
    if supervisor == 0:
        os.close(read)
        return _Supervisor(case, verdict, args, minimum, write).run()
    os.close(write)
    try:
        with open(read, encoding="ascii") as answers:
            answer = answers.readline()
    except KeyboardInterrupt:
        os.kill(supervisor, signal.SIGTERM)
        os.waitpid(supervisor, 0)
        raise
    if not answer.endswith("\n"):
        code = os.waitstatus_to_exitcode(os.waitpid(supervisor, 0)[1])
        if code < 0:
            raise _not_started(f"its supervisor was ended by signal {-code}")
        return code
    started = json.loads(answer)
    for notice in started.pop("notices"):
        say_notice(notice)
    if args.json:
        print(json_line(started))
        return Exit.DONE
    name = started["process"]
    print(name)
    say(f"{name} runs in the background: `agent processes` lists it, `agent processes output {name}` shows its output,")
    say(f"`agent processes stop {name}` ends it, and `agent ports` lists its ports")
    return Exit.DONE


class _Supervisor:
    """The process that keeps one command. It reports to its caller on the descriptor `report`, once."""

    def __init__(self, case: ExecCase, verdict: Allow, args: GateArgs, minimum: Level, report: int) -> None:
        self._case, self._verdict, self._args, self._minimum = case, verdict, args, minimum
        self._report, self._notices = report, list[str]()
        self._errors = -1  # stderr of the caller until the command runs

    def run(self) -> int:
        """Run the command to its end and return the exit code, which the caller reads if the command did not start."""
        os.setsid()
        gc.enable()  # a short command does without
        self._detach()
        try:
            with contextlib.ExitStack() as stack:
                lend: InjectorFactory | None = None
                if self._verdict.permit.terms.credentials:
                    from runner.secrets.broker.session import injector_for

                    gate = self._case.gate
                    lend = stack.enter_context(injector_for(gate.settings.profile, os.environ, gate.facts.workspace))
                return asyncio.run(self._supervise(lend))
        except asyncio.CancelledError:
            raise _not_started("its supervisor was ended by a signal") from None
        finally:
            if self._errors >= 0:
                os.dup2(self._errors, 2)  # the caller of this method prints the problem there

    def _detach(self) -> None:
        """Replace the standard streams, and close what the caller of `agent` left open for its children."""
        self._errors = os.dup(2)
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        os.close(null)
        for name in os.listdir("/dev/fd"):
            with contextlib.suppress(OSError):  # that of the listing itself is closed
                if int(name) > 2 and os.get_inheritable(int(name)):
                    os.close(int(name))

    async def _supervise(self, lend: "InjectorFactory | None") -> int:
        from runner.audit.log import open_log

        self._heed_signals()
        case, permit, state = self._case, self._verdict.permit, state_dir(os.environ)
        wanted = (self._args.backend, self._minimum)
        async with InLoop().boundary(wanted, permit.terms, None, case.gate.settings, lend) as opening:
            with open_log(case.gate.settings, os.environ) as audit:
                policy = case.policy()  # while the helper locks itself in
                case.noted.parts()
                backend, enforcement = await opening
                session = audit.session(case.session(enforcement, policy))
                outputs = OutputStore(state / "outputs" / session)
                redactor = Redactor(live=True, shapes=True)
                processes = SessionProcesses(backend, audit, redactor, outputs, self._note)
                forwards = PortForwards(processes, audit, session, self._note)
                control = ControlServer(state, session, processes, forwards)
                async with contextlib.AsyncExitStack() as stack:
                    stack.push_async_callback(processes.close)
                    stack.push_async_callback(forwards.close)
                    stack.push_async_callback(control.finish)
                    try:
                        control.open()  # first: a command that nobody could stop is not started
                    except OSError as error:
                        raise _not_started(f"its control socket cannot be opened: {os_reason(error)}") from None
                    # INVARIANT: the decision is on the disk before anything runs. Otherwise nothing runs.
                    decided = audit.decided(session, case.decision(self._verdict, backend.name))
                    began = Ran(time.time())
                    try:
                        require_unchanged(permit)
                        started = await processes.start(
                            permit,
                            action_words(permit.action, case.gate.cwd).removeprefix("$ "),
                            decided,
                            tiers=tuple(tier.label for tier in case.assessment.tiers),
                            by_user=True,
                            name=f"x{os.urandom(2).hex()}",
                        )
                    except BaseException:
                        audit.finished(decided, Outcome(Exit.FAILED, ended_by="failure"), began)
                        raise
                    return await self._until_end(processes, started, session)

    def _heed_signals(self) -> None:
        """Let the first ending signal cancel the current task. A second one would interrupt the end of the command."""
        main, heard = asyncio.current_task(), list[int]()
        assert main is not None

        def end(number: int) -> None:
            if not heard:
                main.cancel()
            heard.append(number)

        for number in {signal.SIGINT, *ending_signals()}:
            asyncio.get_running_loop().add_signal_handler(number, end, number)

    async def _until_end(self, processes: SessionProcesses, started: SessionProcess, session: str) -> int:
        """Report the start, and return the exit code when the command has ended."""
        early, limits = started.process.outcome, started.permit.terms.limits
        if early is not None and early.problem is not None:  # the program could not be started
            await processes.ended(started.id, limits.wall)
            problem, code = ending(early, limits)
            assert problem is not None
            os.dup2(self._errors, 2)
            print_problem(problem)
            return code
        try:
            self._tell(started, session)
            async with asyncio.timeout(limits.wall if self._has_wall() else None):
                await started.process.wait()
        except TimeoutError:
            await processes.end(started.id, "wall")
        except (asyncio.CancelledError, BrokenPipeError):  # by a signal, or the caller is gone
            await processes.end(started.id)
        await processes.ended(started.id, limits.wall)
        return Exit.DONE

    def _has_wall(self) -> bool:
        """Return True if the user set a wall time for this command."""
        named = any(each.partition("=")[0].strip() == "wall" for each in self._args.limits)
        return named or self._args.timeout is not None

    def _tell(self, started: SessionProcess, session: str) -> None:
        """Report that the command runs. Raise BrokenPipeError if the caller is gone."""
        os.close(self._errors)
        self._errors = -1
        fields = {
            "process": started.id,
            "session": session,
            "record": started.record,
            "command": started.words,
            "rights": started.permit.terms.rights.value,
            "output": started.log.path or None,
        }
        line = json_line({**fields, "notices": self._notices}).encode("ascii") + b"\n"
        with open(self._report, "wb", buffering=0) as report:
            report.write(line)

    def _note(self, event: Event) -> None:
        """Keep a notice for the caller. After the start nobody reads notices, and the record has what they tell."""
        if isinstance(event, Notice):
            self._notices.append(event.text)


def _not_started(why: str) -> Stopped:
    return Stopped(Problem("the command was not started", why, "start it again"), Exit.FAILED)
