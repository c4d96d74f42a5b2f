"""The tool servers of one session: their start, their tools, their calls, their ends, and their restarts."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from policy.model.action import CallServerTool, ReadServerResource
from policy.model.assessment import Scope
from policy.model.deadline import deadline
from policy.model.frozen import dataclass
from policy.model.tool_arguments import parsed
from policy.model.tool_names import meets_name
from policy.model.verdict import Permit, Problem, ProblemError
from runner.audit.chain import AuditError
from runner.audit.records import Ran, RecordedReply
from runner.events import Notice
from runner.mcp.confined import ServerRefused, start_in, start_process
from runner.mcp.elicitation import (
    REFUSED,
    ElicitedAnswer,
    ElicitedForm,
    ElicitedUrl,
    answer_at_terminal,
    refuse_all,
)
from runner.mcp.pins import tool_digest
from runner.mcp.server_config import ServerConfig
from runner.text.sanitize import marked, one_line, visible_prose
from sandbox.backend import DIRECT, Listener, NetworkOptions, Outcome, SandboxUnavailable, Violation
from tools.server_offer import OfferedTool, ServerOffer, ServerReply

if TYPE_CHECKING:
    from runner.engine.processes import SessionProcess
    from runner.engine.run_context import RunContext
    from runner.mcp.client import ServerClient
    from runner.mcp.stdio import PipeTransport
    from runner.mcp.wants import WantedRight

_PATIENCE = deadline(2.0)  # seconds that a request waits for a server before the user is told
_ENDING = 30.0  # seconds until the record of a process that ended must be complete
_PAUSES = (1.0, 4.0, 15.0)  # seconds before each restart of a server that ended by itself
_LONGEST_TEXT = 8_000  # characters of the instructions of one server
_DYING = deadline(1.0)  # seconds between the end of a connection and that of its process
_SHOWN = 600  # characters of what a server wrote last
_MOST_CHANGES = 20  # times that a server may state that its tools have changed, in one session


class ServerState(StrEnum):
    """The state of one server."""

    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    ENDED = "ended"
    FAILED = "failed"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class ApprovedOffer:
    """The part of an offer that the model may use.

    Attributes:
        tools: The tools that the user approved, unchanged since then.
        held: Pairs of the name of a tool and why the tool is quarantined.
        notice: What the user has to know about the offer; empty if all of it is approved.
        pin: The SHA-256 of the whole approved offer, for the record.
    """

    tools: tuple[OfferedTool, ...] = ()
    held: tuple[tuple[str, str], ...] = ()
    notice: str = ""
    pin: str = ""


class OfferCheck(Protocol):
    """Compares what a server offers with what the user approved."""

    def __call__(self, config: ServerConfig, offer: ServerOffer) -> ApprovedOffer: ...


class ToolShelf(Protocol):
    """The place where the tools of servers become tools of the model."""

    def put(self, server: ServerConfig, offer: ServerOffer, tools: Sequence[OfferedTool]) -> None:
        """Offer exactly these tools of the server from now on."""
        ...


@dataclass(frozen=True, slots=True)
class ServerRow:
    """One server as the user sees it.

    Attributes:
        tools: The names of the tools that the model may call.
        seconds: How long its last start took; 0 before it.
        denials: What its sandbox stopped, in words.
        wants: The rights that it seems to need, as flags of `agent mcp add`.
    """

    name: str
    state: ServerState
    kind: str
    command: str
    tools: tuple[str, ...]
    held: tuple[tuple[str, str], ...]
    error: str
    seconds: float
    protocol: str
    title: str
    denials: tuple[str, ...]
    wants: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        """Return the row as an object for JSON."""
        held = [{"tool": name, "why": why} for name, why in self.held]
        values = {name: getattr(self, name) for name in self.__slots__}
        lists = {name: list(values[name]) for name in ("tools", "denials", "wants")}
        return {**values, "state": self.state.value, "held": held, **lists}


class SessionServers:
    """The servers of one session. All methods are called in the thread of the event loop.

    `check` decides which tools may be used; `shelf` offers them to the model. `network` is the way to remote servers.
    With `least`, servers on this machine get no rights.
    """

    def __init__(
        self,
        configs: Sequence[ServerConfig],
        environ: Mapping[str, str],
        check: OfferCheck,
        shelf: ToolShelf,
        *,
        network: NetworkOptions = DIRECT,
        least: bool = False,
    ) -> None:
        self._servers = {each.name: _SessionServer(each, self) for each in configs}
        self.environ, self.check, self.shelf = environ, check, shelf
        self.network, self.least = network, least
        self._told: dict[str, str] = {}
        self.ctx: RunContext
        self.closed = False

    def begin(self, ctx: "RunContext") -> None:
        """Start every enabled server. `ctx` is the session of all of them."""
        self.ctx = ctx
        for server in self._servers.values():
            server.begin()

    async def ready(self) -> None:
        """Wait until every server has started or failed. The user is told about a server that takes long."""
        settled = asyncio.gather(*(server.settled() for server in self._servers.values()))
        done, _ = await asyncio.wait({settled}, timeout=_PATIENCE)
        for server in () if done else self._servers.values():
            server.tell_waiting()
        await settled

    async def introduction(self) -> str:
        """Wait for the servers, and return their instructions for the model that were not returned before.

        THREAT T186: the instructions are text of the server. Only those that the user approved are shown, marked.
        """
        await self.ready()
        texts = []
        for server in self._servers.values():
            if (text := server.instructions()) and self._told.get(server.config.name) != text:
                self._told[server.config.name] = text
                texts.append(
                    marked("server-instructions", visible_prose(text[:_LONGEST_TEXT]), server=server.config.name)
                )
        if not texts:
            return ""
        head = "[note of the program] What tool servers state about the use of their tools; it is their text:"
        return "\n\n" + "\n".join((head, *texts, "[end of the note]"))

    async def perform(self, permit: Permit, listen: Listener) -> Outcome:
        """Make the call, or read the resource, that `permit` allows. A failure is a Problem of the outcome."""
        action, began = permit.action, time.monotonic()
        assert isinstance(action, CallServerTool | ReadServerResource)
        server = self._servers.get(action.server)
        if server is None:
            problem = Problem("nothing was called", f"there is no server `{action.server}`", "see `agent mcp list`")
            return Outcome(1, problem=problem)
        try:
            reply = await server.perform(action, lambda text: listen(1, text.encode("utf-8", "replace")))
        except ProblemError as error:
            return Outcome(1, seconds=time.monotonic() - began, problem=error.problem)
        data: dict[str, object] = {
            "content": list(reply.content),
            "structured": reply.structured,
            "failed": reply.failed,
        }
        return Outcome(0, seconds=time.monotonic() - began, data=data)

    async def close(self) -> None:
        """Leave all servers. Their processes end with those of the session."""
        self.closed = True
        await asyncio.gather(*(server.close() for server in self._servers.values()))

    # ---- what users see and do

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all servers."""
        return tuple(self._servers)

    def rows(self) -> tuple[ServerRow, ...]:
        """Return all servers as rows."""
        return tuple(server.row() for server in self._servers.values())

    @property
    def running(self) -> tuple[str, ...]:
        """Return the names of the servers that can be used now."""
        return tuple(name for name, server in self._servers.items() if server.state is ServerState.READY)

    def offer(self, name: str) -> ServerOffer | None:
        """Return what the server offered last; None before that, or if there is no such server."""
        server = self._servers.get(name)
        return server.offer if server is not None else None

    def problem(self, name: str) -> Problem | None:
        """Return the last error of the server, or None."""
        server = self._servers.get(name)
        return server.problem if server is not None else None

    async def restart(self, name: str) -> None:
        """End the server and start it anew."""
        server = self._servers[name]
        await server.close()
        server.begin()
        await server.settled()

    async def stop(self, name: str) -> None:
        """End the server until it is started anew."""
        await self._servers[name].close()

    async def recheck(self, name: str) -> None:
        """Offer the tools of the server anew, after the user approved or withdrew some of them."""
        await self._servers[name].publish()

    async def prompt(self, name: str, prompt: str, arguments: dict[str, str]) -> ServerReply:
        """Return the messages of a prompt of the server. Raise ProblemError."""
        server = self._servers.get(name)
        if server is None:
            raise ServerRefused(Problem("nothing was sent", f"there is no server `{name}`", "see `/mcp`"))
        client = await server.client_now()
        return await client.prompt(prompt, arguments)


class _SessionServer:
    """One server of the session."""

    def __init__(self, config: ServerConfig, all: SessionServers) -> None:
        self.config, self._all = config, all
        self.state = ServerState.WAITING if config.enabled else ServerState.DISABLED
        self.problem: Problem | None = None
        self.offer: ServerOffer | None = None
        self._approved = ApprovedOffer()
        self._client: ServerClient | None = None
        self._process: SessionProcess | None = None
        self._transport: PipeTransport | None = None
        self._seconds = 0.0
        self._starting: asyncio.Task[None] | None = None
        self._watching: set[asyncio.Task[None]] = set()
        self._record: int | None = None
        self._changes = self._restarts = 0
        self._leaving = False
        self._asking = asyncio.Lock()
        self._checking = asyncio.Lock()

    # ---- the start

    def begin(self) -> None:
        """Start the server in the background."""
        if self.config.enabled:
            self._leaving = False
            self._starting = asyncio.create_task(self._start())

    async def settled(self) -> None:
        """Wait until the server has started or failed. Cancelling this does not stop the start."""
        if self._starting is not None:
            await asyncio.wait({self._starting})

    def tell_waiting(self) -> None:
        """Tell the user that the server has not answered yet, if it is being started."""
        if self.state is ServerState.STARTING:
            most = f"{self.config.start_timeout:g} s at most (`start_timeout`)"
            self._all.ctx.emit(Notice(f"waiting for the server `{self.config.name}`, {most}"))

    async def _start(self) -> None:
        began = time.monotonic()
        self.state, self.problem = ServerState.STARTING, None
        try:
            await (self._connect_remote() if self.config.url else self._connect_process())
            assert self._client is not None
            self.offer = await self._client.offer()
            self._seconds = time.monotonic() - began
            self.state = ServerState.READY
            await self.publish()
        except (ProblemError, SandboxUnavailable) as error:
            await self._fail(error.problem)
        except BaseException:
            await self._drop()
            raise

    async def _connect_process(self) -> None:
        ctx = self._all.ctx
        judged, record = start_in(self.config, ctx, self._all.environ, least=self._all.least)
        early: list[bytes] = []
        loading = asyncio.create_task(asyncio.to_thread(_load))  # while the process starts
        try:
            process = await start_process(judged, record, ctx, early.append)
        finally:
            modules = await loading
        transport = modules.stdio.PipeTransport()
        self._process, self._transport = process, transport
        for chunk in early:
            transport.take(chunk)
        process.messages = transport.take
        transport.attach(process.process)
        self._watch(self._await_end(process, transport))
        self._watch(self._await_fault(process, transport))
        await self._open(modules, transport)

    async def _connect_remote(self) -> None:
        ctx = self._all.ctx
        _, self._record = start_in(self.config, ctx, self._all.environ)
        modules = await asyncio.to_thread(_load)
        from runner.mcp.remote import session_connection  # with the HTTP library

        connection = await asyncio.to_thread(  # reads the keyring
            session_connection, self.config, self._all.environ, self._all.network
        )
        await self._open(modules, connection)

    async def _open(self, modules: "_Modules", transport: Any) -> None:
        client = modules.client.ServerClient(
            self.config.name, transport, self._elicit, self._changed, self.config.timeout
        )
        self._client = client
        await client.open(self.config.start_timeout)

    async def _elicit(self, asked: ElicitedForm | ElicitedUrl) -> ElicitedAnswer:
        """Put the question of the server to the user. Without a user, or if the question is not allowed, refuse it."""
        ctx = self._all.ctx
        ask = getattr(ctx.approver, "ask_text", None)
        answer = getattr(ctx.approver, "answer_server", None)
        if answer is None and ask is not None:
            answer = partial(answer_at_terminal, ask=ask)
        if ctx.unattended or answer is None:
            ctx.emit(Notice(f"the server `{self.config.name}` asked for input, and there is no user to give it"))
            return await refuse_all(asked)
        if asked.fault:
            ctx.emit(Notice(f"a question of the server `{self.config.name}` was refused: {one_line(asked.fault, 300)}"))
            return await refuse_all(asked)
        async with self._asking:  # one question of this server at a time
            began = time.monotonic()
            found: ElicitedAnswer = await answer(asked)
            return found if self._noted(asked, found, time.monotonic() - began) else REFUSED

    def _noted(self, asked: ElicitedForm | ElicitedUrl, answer: ElicitedAnswer, seconds: float) -> bool:
        """Record an answer of the user. Return False, with a notice, if it cannot be recorded: then it is not sent."""
        ctx = self._all.ctx
        reply = RecordedReply(
            self.config.name,
            asked.message,
            tuple(answer.values),
            asked.url if isinstance(asked, ElicitedUrl) else "",
            answer.accepted,
            ctx.approver.name,
            seconds,
            ctx.live.mode.value,
            ctx.agent,
            ctx.parent,
            answer.client,
        )
        try:
            ctx.audit.replied(ctx.session, reply)
        except AuditError as error:
            problem = error.problem
            why = one_line(f"{problem.what}: {problem.why}", 300)
            ctx.emit(Notice(f"the server `{self.config.name}` got no answer: {why}; {problem.fix}"))
            return False
        return True

    # ---- the offer

    async def publish(self) -> None:
        """Offer the approved tools to the model, and tell the user about the others.

        THREAT T202: the comparison reads the files of the server in a thread. Its result counts only for the connection
        and the offer that were compared, and no call is made before the result is there.
        """
        async with self._checking:
            offer, client = self.offer, self._client
            if offer is None or self.state is not ServerState.READY:
                return
            approved = await asyncio.to_thread(self._all.check, self.config, offer)
            if client is self._client and offer is self.offer and self.state is ServerState.READY:
                self._put(offer, approved)

    def _put(self, offer: ServerOffer, approved: ApprovedOffer) -> None:
        if approved.notice and approved.notice != self._approved.notice:
            self._all.ctx.emit(Notice(approved.notice))
        self._approved = approved
        self._all.shelf.put(self.config, offer, [each for each in approved.tools if self._selected(each.name)])

    def _selected(self, tool: str) -> bool:
        config = self.config
        kept = not config.tools or meets_name(config.tools, tool, allows=True)
        return kept and not meets_name(config.exclude_tools, tool, allows=False)

    def _changed(self) -> None:
        """Ask the server for its offer anew, because it stated a change."""
        self._changes += 1
        if self._changes > _MOST_CHANGES or self.state is not ServerState.READY:
            return
        self._watch(self._refresh())

    async def _refresh(self) -> None:
        client = self._client
        if client is None:
            return
        try:
            self.offer = await client.offer()
        except ProblemError as error:
            self.problem = error.problem
            return
        await self.publish()

    def instructions(self) -> str:
        """Return the instructions of the server if the user approved a tool beside them, else an empty text."""
        usable = self.state is ServerState.READY and self.offer is not None and self._approved.tools
        return self.offer.instructions if usable and self.offer is not None else ""

    # ---- calls

    async def client_now(self) -> "ServerClient":
        """Return the client of the running server. Raise ServerRefused."""
        if self.state is ServerState.ENDED and not self._leaving:
            self.begin()
        await self.settled()
        if self._client is None or self.state is not ServerState.READY:
            why = self.problem.why if self.problem is not None else f"it is {self.state.value}"
            fix = self.problem.fix if self.problem is not None else "start it anew with `/mcp restart NAME`"
            raise ServerRefused(Problem(f"the server `{self.config.name}` does not run", why, fix))
        return self._client

    async def perform(self, action: CallServerTool | ReadServerResource, tell: Callable[[str], None]) -> ServerReply:
        """Make the call. Raise ProblemError.

        THREAT T178: a server may replace a tool between the verdict and the call. Only a tool that is approved now, and
        whose definition is the one of the verdict, is called.
        """
        client = await self.client_now()
        if isinstance(action, ReadServerResource):
            return await client.read(action.uri)
        while self._checking.locked():  # a new offer is being compared with the pin
            async with self._checking:
                pass
            client = await self.client_now()
        tool = next((each for each in self._approved.tools if each.name == action.name), None)
        if tool is None or (action.pin and tool_digest(tool) != action.pin):
            gone = "the server does not offer it any more" if tool is None else "its definition is another one by now"
            why = dict(self._approved.held).get(action.name, gone)
            fix = f"the user can look at it with `agent mcp pin {self.config.name}`"
            raise ServerRefused(Problem(f"the tool `{one_line(action.name, 100)}` was not called", why, fix))
        arguments = parsed(action.arguments)
        assert arguments is not None  # the gate allows no other text
        return await client.call(action.name, arguments, tell)

    # ---- the end

    async def close(self) -> None:
        """End the server, and forget its tools."""
        self._leaving = True
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            await asyncio.wait({self._starting})
        await self._drop()
        if self.state is not ServerState.DISABLED:
            self.state = ServerState.WAITING

    async def _drop(self) -> None:
        """Leave the connection, end the process, and withdraw the tools."""
        client, process = self._client, self._process
        self._client = self._transport = None
        self._all.shelf.put(self.config, self.offer or ServerOffer(), ())
        if client is not None:
            await client.close()
        if process is not None and process.alive:
            await self._all.ctx.processes.end(process.id, "session" if self._leaving else "cancelled")
        if self._record is not None:
            record, self._record = self._record, None
            with contextlib.suppress(AuditError):  # the next action fails for the same reason, with its own message
                self._all.ctx.audit.finished(record, Outcome(0), Ran(time.time()))
        for task in tuple(self._watching):
            if task is not asyncio.current_task():
                task.cancel()

    async def _fail(self, problem: Problem) -> None:
        """Note why the server cannot be used, with what it wrote last and what its sandbox stopped."""
        if self._process is not None:  # a connection that ended may be the end of the process
            await self._all.ctx.processes.ended(self._process.id, _DYING)
        problem = self._detailed(problem)
        await self._drop()
        self.state, self.problem = ServerState.FAILED, problem
        if not self._all.closed:
            self._all.ctx.emit(Notice(f"{problem.what}: {problem.why}; {problem.fix}".rstrip("; ")))

    def _detailed(self, problem: Problem) -> Problem:
        why, fix = problem.why, problem.fix
        if self._transport is not None and self._transport.fault:
            why = self._transport.fault
        process = self._process
        if process is not None:
            if (outcome := process.process.outcome) is not None and outcome.ended_by is None:
                why = f"its program ended with status {outcome.status}"
            if said := self.last_words():
                why = f"{why}; it wrote: {said}"
            if denials := self._denials():
                why = f"{why}; its sandbox stopped: {'; '.join(denials[:3])}"
            if wants := self.wants():
                rights = ", ".join(each.words for each in wants[:3])
                fix = f"it seems to need rights: {rights}; add them to its table if you trust it with them"
        return Problem(problem.what, why, fix)

    def last_words(self) -> str:
        """Return the last line that the server wrote to standard error."""
        if self._process is None:
            return ""
        text = self._process.log.since(max(self._process.log.end - 4000, 0)).text
        lines = [line for line in text.splitlines() if line.strip()]
        return one_line(lines[-1], _SHOWN) if lines else ""

    def _violations(self) -> Sequence[Violation]:
        if self._process is None:
            return ()
        process = self._process.process
        return process.outcome.violations if process.outcome is not None else process.violations

    def _denials(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one_line(each.what, 300) for each in self._violations()))

    def wants(self) -> "tuple[WantedRight, ...]":
        """Return the rights that the server seems to need, as far as its sandbox stopped something."""
        from runner.mcp.wants import wanted_rights  # most servers have all that they need

        terms = self._process.permit.terms if self._process is not None else None
        started = self.state is ServerState.READY or self._process is None
        return wanted_rights(self.config, terms, self._violations(), *([] if started else [self._registries]))

    def _registries(self, program: str) -> list[str]:
        """Return the registries of packages that the user's own settings name, not those of the repository."""
        facts = self._all.ctx.look()
        return [host for host, scope in facts.registries(program, facts.home) if scope is not Scope.WORKSPACE]

    def _watch(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)

    async def _await_fault(self, process: "SessionProcess", transport: "PipeTransport") -> None:
        """End a server that sends what no client should read."""
        await transport.broken.wait()
        await self._all.ctx.processes.end(process.id, "flood")

    async def _await_end(self, process: "SessionProcess", transport: "PipeTransport") -> None:
        """Wait for the end of the process. One that ended by itself after its start is started anew, a few times."""
        await process.process.wait()
        await self._all.ctx.processes.ended(process.id, _ENDING)
        transport.ended()
        if self._leaving or self._process is not process or self.state is not ServerState.READY:
            return
        await self._fail(Problem(f"the server `{self.config.name}` ended", "its process ended", ""))
        self.state = ServerState.ENDED
        if transport.fault or self._restarts >= len(_PAUSES):
            self.state = ServerState.FAILED
            return
        pause = _PAUSES[self._restarts]
        self._restarts += 1
        await asyncio.sleep(pause)
        if not self._leaving and self.state is ServerState.ENDED:
            self.begin()

    # ---- the row

    def row(self) -> ServerRow:
        """Return the server as the user sees it."""
        config = self.config
        offer = self.offer or ServerOffer()
        return ServerRow(
            config.name,
            self.state,
            config.transport if config.url else "stdio",
            config.url or " ".join(config.argv),
            tuple(each.name for each in self._approved.tools if self._selected(each.name))
            if self.state is ServerState.READY
            else (),
            self._approved.held,
            f"{self.problem.what}: {self.problem.why}" if self.problem is not None else "",
            round(self._seconds, 3),
            offer.protocol,
            offer.title,
            self._denials(),
            tuple(each.flag for each in self.wants()),
        )


@dataclass(frozen=True, slots=True)
class _Modules:
    """The modules that import the protocol library."""

    client: Any
    stdio: Any


def _load() -> _Modules:
    """Import the modules with the protocol library. Raise ServerRefused if the library is not installed."""
    try:
        from runner.mcp import client, stdio
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "anyio"):
            raise
        why, fix = "the library `mcp` is not installed", "install the extra: `pip install 'ringfence[mcp]'`"
        raise ServerRefused(Problem("no tool server can be used", why, fix)) from None
    return _Modules(client, stdio)
