"""A run of the loop with a scripted provider and a sandbox that runs nothing, with all its outputs."""

import asyncio
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from policy.model.action import Action, RunScript
from policy.model.tier import Mode
from policy.model.verdict import Ask, Permit, Problem, Terms
from runner.approval.approver import Answer, Unattended
from runner.approval.remembered import NOTHING, Offer
from runner.audit.log import AuditLog
from runner.audit.records import SessionInfo
from runner.config import load
from runner.config.live_profile import LiveProfile
from runner.engine.port_forwards import PortForwards
from runner.engine.processes import SessionProcesses
from runner.engine.retry_policy import RetryPolicy
from runner.engine.run_context import LiveSettings, RunContext
from runner.engine.run_limits import RunLimits
from runner.events import (
    Event,
)
from runner.facts.environment import child_environment
from runner.facts.gather import gather
from runner.loop import Ending, run
from runner.messages import (
    Failure,
    Message,
    ProviderError,
    TextBlock,
    ToolCall,
    ToolMessage,
    ToolResult,
)
from runner.providers.scripted import ScriptedProvider, Turn
from runner.secrets.redactor import Redactor
from runner.state.output_store import OutputStore
from sandbox.backend import Enforcement, Level, Listener, Outcome
from tools import TOOLS
from tools.paths import SeenFiles
from tools.registry import ToolRegistry

FULL = Enforcement(Level.FULL, "fake", (("all", True),))


FOREVER = math.inf  # seconds


def let_time_pass(seconds: float) -> None:
    """Set the clock of the running event loop forward, so that a time limit ends at a known moment."""
    loop = asyncio.get_running_loop()
    clock = loop.time
    loop.time = lambda: clock() + seconds  # type: ignore[method-assign]  # of this loop alone


async def let_others_go_on() -> None:
    """Let every task of the loop go on until it waits for this one, or for a thread or a process."""
    for _ in range(50):
        await asyncio.sleep(0)


class FakeSandbox:
    """Runs nothing: notes every permit, and answers as `behave` says for the script of it.

    Bytes are output of a command that then runs forever, a number is the seconds that a command takes, and a coroutine
    is awaited.
    """

    name = "fake"

    def __init__(self, behave: Callable[[str], object] = lambda _: None) -> None:
        self.ran: list[str] = []
        self.cancelled: list[str] = []
        self.most = 0
        self._now = 0
        self._behave = behave
        self.started: asyncio.Queue[str] = asyncio.Queue()
        self.before_run: Callable[[Permit], None] = lambda _: None

    async def probe(self, terms: Terms | None = None) -> Enforcement:
        return FULL

    async def run(self, permit: Permit, *, stdin: bytes | None = None, listen: Listener | None = None) -> Outcome:
        assert isinstance(permit, Permit)
        self.before_run(permit)
        name = _name(permit.action)
        self.ran.append(name)
        self.started.put_nowait(name)
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            answer = self._behave(name)
            if isinstance(answer, bytes) and listen is not None:  # output, and then it runs on
                listen(1, answer)
                listen(2, b"of stderr\n")
                answer = FOREVER
            if asyncio.iscoroutine(answer):
                answer = await answer
            if isinstance(answer, float):
                await asyncio.sleep(answer)
            if isinstance(answer, BaseException):
                raise answer
            if isinstance(answer, Outcome):
                if listen is not None and answer.stdout:
                    listen(1, answer.stdout)
                return answer
            return Outcome(0, stdout=f"of {name}\n".encode(), seconds=0.01)
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
        finally:
            self._now -= 1

    async def close(self) -> None:
        return None


class FixedApprover:
    """Answers every question the same way."""

    name = "person"

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[Ask] = []

    async def ask(self, ask: Ask, offer: Offer = NOTHING) -> Answer:
        self.asked.append(ask)
        return self.answer


@dataclass
class LoopHarness:
    """One run context in a fresh folder, and everything that came out of it."""

    ctx: RunContext
    sandbox: FakeSandbox
    events: list[Event]
    history: list[Message]
    audit: AuditLog

    def play(self) -> Ending:
        return asyncio.run(run("do it", self.ctx, self.history))

    def results(self) -> list[ToolResult]:
        return [result for message in self.history if isinstance(message, ToolMessage) for result in message.results]

    def told(self) -> list[str]:
        return [
            "".join(block.text for block in result.content if isinstance(block, TextBlock)) for result in self.results()
        ]

    def of(self, *kinds: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kinds)]


Make = Callable[..., LoopHarness]


@pytest.fixture
def stage(tmp_path: Path) -> Make:
    def make(
        *turns: Turn,
        provider: object = None,
        behave: Callable[[str], object] = lambda _: None,
        approver: object = None,
        mode: Mode = Mode.TRUST_PROJECT,
        unattended: bool = True,
        bounds: RunLimits | None = None,
    ) -> LoopHarness:
        workspace, home = tmp_path / "w", tmp_path / "home"
        workspace.mkdir()
        home.mkdir()
        environ = {"HOME": str(home), "PATH": os.environ["PATH"], "RINGFENCE_STATE_DIR": str(tmp_path / "state")}
        settings = load(workspace, environ)
        facts = gather(str(workspace), environ, settings.profile)
        audit = AuditLog.open(tmp_path / "audit.db")
        sandbox = FakeSandbox(behave)
        events: list[Event] = []
        outputs = OutputStore(tmp_path / "kept")
        session = audit.session(SessionInfo(mode.value, str(workspace), unattended, FULL))
        processes = SessionProcesses(sandbox, audit, Redactor(), outputs, events.append)  # type: ignore[arg-type]  # a fake
        ctx = RunContext(
            session=session,
            cwd=str(workspace),
            live=LiveSettings(
                mode,
                provider or ScriptedProvider(turns),  # type: ignore[arg-type]  # fakes of the protocol
                "m",
                bounds or RunLimits(patience=RetryPolicy(first=0.0, most=0.0)),
            ),
            unattended=unattended,
            tools=ToolRegistry(TOOLS),
            seen=SeenFiles(),
            look=lambda: gather(str(workspace), environ, settings.profile),
            rules=settings.rules,
            profiles=LiveProfile(settings.profile),
            environment=child_environment(facts, environ, settings.profile),
            approver=approver or Unattended(events.append),  # type: ignore[arg-type]  # fakes of the protocol
            audit=audit,
            sandbox=sandbox,
            enforcement=FULL,
            outputs=outputs,
            emit=events.append,
            redactor=Redactor(),
            processes=processes,
            forwards=PortForwards(processes, audit, session, events.append),
        )
        return LoopHarness(ctx, sandbox, events, [], audit)

    return make


def bash(*scripts: str, text: str = "") -> Turn:
    return Turn(text, calls=tuple(ToolCall("", "bash", {"command": script}) for script in scripts))


def call(name: str, arguments: dict[str, object] | None, raw: str = "") -> Turn:
    return Turn(calls=(ToolCall("", name, arguments, raw),))


def _name(action: Action) -> str:
    return action.script if isinstance(action, RunScript) else type(action).__name__


DONE = Turn("done")


READ, WORK, NETWORK = "ls", "python3 x.py", "curl https://example.test/"


def busy(*, retryable: bool = True) -> ProviderError:
    return ProviderError(
        Problem("the provider is busy", "status 529", "wait"),
        status=529,
        failure=Failure.OVERLOADED if retryable else Failure.FATAL,
    )
