"""The language servers of one session: their starts, questions and answers, edits, ends and restarts.

A server is started for the first question about a file of its language, or in the background for the first edit of such
a file. It reads the workspace, and its process ends with the session, after a time without use, or with a fault.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from policy.model.action import EditFile, QueryCode, ReadFile, WriteFile
from policy.model.deadline import deadline
from policy.model.frozen import dataclass
from policy.model.profile import MAIN
from policy.model.secret_paths import inside
from policy.model.verdict import Problem, ProblemError
from runner.engine.code_access import EditWatch
from runner.events import Notice
from runner.lsp.answers import MOST_SHOWN, AnswerWriter, diagnostics_text
from runner.lsp.confined import installed, start_language_server
from runner.lsp.gate_files import FileText, read_text
from runner.lsp.language_config import CodeOptions, LanguageConfig, has_files, parsed_settings
from runner.lsp.positions import SymbolMissing, name_at, place_of, word_from
from runner.text.sanitize import marked, one_line, visible_prose
from sandbox.backend import Outcome, SandboxUnavailable

if TYPE_CHECKING:
    from runner.engine.processes import SessionProcess
    from runner.engine.run_context import RunContext
    from runner.engine.tool_calls import ModelCall
    from runner.lsp.client import CodePlace, Diagnosis, LanguageClient
    from runner.lsp.framing import MessageReader

_START = 30.0  # seconds from the start of a server to its first answer
_ANSWER = 20.0  # seconds for one answer
_BASELINE = deadline(1.0)  # seconds that an edit waits for the diagnostics before it
_MOST_FAULTS = 3  # times that a server may end by itself in one session
_LONGEST_HOVER = 6_000  # characters
_DYING = deadline(1.0)  # seconds between the end of a connection and that of its process


class CodeServerState(StrEnum):
    """The state of one language server."""

    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    ENDED = "ended"
    FAILED = "failed"


class CodeUnanswered(ProblemError):
    """The error for a question that no language server can answer."""


@dataclass(frozen=True, slots=True)
class CodeServerRow:
    """One language server as the user sees it.

    Attributes:
        program: The absolute path of the program, or its name if it is gone.
        refused: Requests of the server that were refused, with their number.
        error: Why it cannot be used; empty if it can.
    """

    name: str
    state: CodeServerState
    program: str
    files: tuple[str, ...]
    seconds: float
    refused: tuple[str, ...]
    error: str


class LanguageServers:
    """The language servers of one session. All methods are called in the thread of the event loop.

    Agents that work in `workspace`, that of the session, share its servers. `offer` is called once the model should
    have the tool `lsp`.
    """

    def __init__(
        self,
        configs: Sequence[LanguageConfig],
        environ: Mapping[str, str],
        options: CodeOptions,
        workspace: str,
        offer: Callable[[], None],
    ) -> None:
        self.workspace = workspace
        self.configs, self.environ, self.options = tuple(configs), environ, options
        self._offer, self._offered = offer, False
        self._servers: dict[tuple[str, str], CodeServer] = {}
        self._background: set[asyncio.Task[None]] = set()
        self.count = 0
        self.closed = False

    def offer_for(self, workspace: str) -> None:
        """Offer the tool if the workspace has files for one of the servers."""
        if not self._offered and any(each.place or has_files(workspace, each) for each in self.configs):
            self._offered = True
            self._offer()

    # ---- which server

    def known(self, action: QueryCode, ctx: "RunContext") -> QueryCode | Problem:
        """Return the question, or the Problem that no server can answer it."""
        config = self._config(action, ctx.look().workspace)
        return config if isinstance(config, Problem) else action

    def _config(self, action: QueryCode, workspace: str) -> LanguageConfig | Problem:
        if not action.path:
            running = [server.config for (place, _), server in self._servers.items() if place == workspace]
            found = next((each for each in (*running, *self.configs) if has_files(workspace, each)), None)
            if found is None:
                return Problem("nothing was searched", "no language server has files here", "use `grep`")
            return found
        if not inside(os.path.normpath(action.path), workspace):
            why = "language servers see only the workspace"
            return Problem(f"nothing is known about `{action.path}`", why, "use `read` and `grep`")
        return self._serving(action.path, workspace) or Problem(
            f"nothing is known about `{action.path}`",
            "no language server for such files is installed",
            "use `grep`; the user can name a server in `[language.NAME]`",
        )

    def _serving(self, path: str, workspace: str) -> LanguageConfig | None:
        """Return the first server for the file that has not failed; the first one if all have."""
        found = [each for each in self.configs if each.serves(path)]
        failed = {name for (place, name), server in self._servers.items()
                  if place == workspace and server.state is CodeServerState.FAILED}  # fmt: skip
        return next((each for each in found if each.name not in failed), found[0] if found else None)

    def _server(self, config: LanguageConfig, workspace: str) -> "CodeServer":
        key = (workspace, config.name)
        if key not in self._servers:
            self._servers[key] = CodeServer(config, workspace, self)
        return self._servers[key]

    # ---- questions

    async def perform(self, action: QueryCode, call: "ModelCall", ctx: "RunContext") -> Outcome:
        """Ask the server. A failure is a Problem of the outcome."""
        began = time.monotonic()
        try:
            workspace = ctx.look().workspace
            config = self._config(action, workspace)
            if isinstance(config, Problem):
                raise CodeUnanswered(config)
            server = self._server(config, workspace)
            with server.used():
                text = await self._answer(action, server, call, ctx)
        except SymbolMissing as missing:
            return Outcome(1, seconds=time.monotonic() - began, problem=missing.problem)
        except (ProblemError, SandboxUnavailable) as error:
            return Outcome(1, seconds=time.monotonic() - began, problem=error.problem)
        return Outcome(0, text.encode("utf-8", "replace"), seconds=time.monotonic() - began)

    async def _answer(self, action: QueryCode, server: "CodeServer", call: "ModelCall", ctx: "RunContext") -> str:
        client = await server.client(ctx)
        if not client.can(action.operation):
            why = f"the language server `{server.config.name}` does not answer questions of this kind"
            raise CodeUnanswered(Problem(f"`{action.operation}` was not done", why, "use `grep` or another operation"))
        await server.refresh(ctx)
        writer = AnswerWriter(server.config.name, client, ctx)
        if action.operation == "workspace_symbols":
            return await writer.places(await client.workspace_symbols(action.symbol, _ANSWER))
        path = os.path.normpath(action.path)
        content = await server.shown(path, ctx)
        match action.operation:
            case "symbols":
                return await writer.places(await client.symbols(path, _ANSWER), outline=True)
            case "diagnostics":
                found = await client.diagnostics(path, _ANSWER)
                _note_sources([], ctx)
                if found is None:
                    why = f"the language server `{server.config.name}` sent none in time"
                    raise CodeUnanswered(Problem("the diagnostics are not known", why, "try again later"))
                return diagnostics_text(server.config.name, path, found, content, client, ctx.look().workspace)
        line, column = await self._position(action, path, content, client)
        at = client.units(content.lines, line, column)
        match action.operation:
            case "definition":
                return await writer.places(await client.definition(path, at, _ANSWER))
            case "references":
                return await writer.places(await client.references(path, at, _ANSWER))
            case "hover":
                _note_sources(await client.definition(path, at, _ANSWER) if client.can("definition") else [], ctx)
                text = visible_prose((await client.hover(path, at, _ANSWER))[:_LONGEST_HOVER]).strip()
                return (
                    marked("language-server", text, server=server.config.name) if text else "nothing is known about it"
                )
            case "rename":
                from runner.lsp.rename import rename  # few questions change files

                old = name_at(content.lines, line, column)
                changes = await client.rename(path, at, action.new_name, _ANSWER)
                return await rename(changes, old, action.new_name, client, call, ctx)
        raise AssertionError(action.operation)  # the gate allows no other operation

    async def _position(
        self, action: QueryCode, path: str, content: FileText, client: "LanguageClient"
    ) -> tuple[int, int]:
        """Return the line and the column of the word that the question is about. Raise SymbolMissing."""
        if action.symbol and not action.line and client.can("symbols"):
            wanted = action.symbol.replace("::", ".").split(".")
            for each in await client.symbols(path, _ANSWER):
                if each.name == wanted[-1] and (len(wanted) == 1 or each.inside == wanted[-2]):
                    column = client.column(content.lines, each.line, each.units)
                    return word_from(content.lines, each.line, column, wanted[-1])
        return place_of(action, content.lines)

    # ---- edits

    async def before_edit(self, action: EditFile | WriteFile, ctx: "RunContext") -> EditWatch | None:
        """Return the diagnostics before an edit. A server that does not run is started in the background."""
        path = os.path.normpath(action.path)
        if not any(each.serves(path) for each in self.configs) or not inside(path, workspace := ctx.look().workspace):
            return None
        config = self._serving(path, workspace)
        assert config is not None  # one of them serves the file
        self.offer_for(workspace)
        if not self.options.diagnostics:
            return None
        server = self._server(config, workspace)
        if server.state is not CodeServerState.READY:
            if server.state is CodeServerState.WAITING:
                self._later(server, ctx)
            return None
        try:
            with server.used():
                return await server.before(path, ctx)
        except (ProblemError, SandboxUnavailable):
            return None  # the edit itself reports what is wrong with the file, and `/lsp` what with the server

    def _later(self, server: "CodeServer", ctx: "RunContext") -> None:
        """Start the server in the background."""

        async def start() -> None:
            try:
                await server.client(ctx)
            except (ProblemError, SandboxUnavailable):
                return  # the state of the server says why

        task = asyncio.create_task(start())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def files_changed(self, changed: tuple[tuple[str, str], ...]) -> None:
        """Tell the running servers which files an action changed."""
        for server in self._servers.values():
            server.files_changed(changed)

    # ---- what users see and do

    def rows(self) -> tuple[CodeServerRow, ...]:
        """Return all servers as rows: those that were used, then those that would be started."""
        used = {name for _, name in self._servers}
        workspace = next(iter(self._servers))[0] if self._servers else "/"
        waiting = (CodeServer(each, workspace, self) for each in self.configs if each.name not in used)
        return tuple(server.row() for server in (*self._servers.values(), *waiting))

    async def restart(self, name: str) -> bool:
        """End the servers with this name, which start anew when they are used. Return False if there is none."""
        found = [server for (_, each), server in self._servers.items() if each == name]
        for server in found:
            await server.close()
            server.forgive()
        return bool(found)

    async def close(self) -> None:
        """End all servers."""
        self.closed = True
        for task in tuple(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await asyncio.gather(*(server.close() for server in self._servers.values()))


class CodeServer:
    """One language server in one workspace."""

    def __init__(self, config: LanguageConfig, workspace: str, all: LanguageServers) -> None:
        self.config, self.workspace, self._all = config, workspace, all
        self.state = CodeServerState.WAITING
        self.problem: Problem | None = None
        self._client: LanguageClient | None = None
        self._process: SessionProcess | None = None
        self._ctx: RunContext | None = None
        self._reader: MessageReader | None = None
        self._starting: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._seconds = 0.0
        self._faults = 0
        self._used = time.monotonic()
        self._ready = False  # True once it has started
        self._busy = 0  # questions and edits that use the server now
        self._stamps: dict[str, tuple[int, ...]] = {}  # of open documents, to see changes by other actions

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Keep the server from being ended for want of use inside of the block."""
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            self._used = time.monotonic()

    async def client(self, ctx: "RunContext") -> "LanguageClient":
        """Return the client of the running server, which is started if it does not run. Raise ProblemError."""
        self._used = time.monotonic()
        if self.state in (CodeServerState.WAITING, CodeServerState.ENDED):
            self.state, self._ctx = CodeServerState.STARTING, ctx
            self._starting = asyncio.create_task(self._start(ctx))
        if self._starting is not None:
            await asyncio.wait({self._starting})
            if not self._starting.cancelled():
                self._starting.result()  # an error of this program, which `_start` does not handle
        if self.state is not CodeServerState.READY or self._client is None:
            why = self.problem.why if self.problem is not None else f"it is {self.state.value}"
            fix = (
                self.problem.fix if self.problem is not None else ""
            ) or "use `grep`; the user can try `/lsp restart`"
            raise CodeUnanswered(Problem(f"the language server `{self.config.name}` does not run", why, fix))
        return self._client

    async def _start(self, ctx: "RunContext") -> None:
        began = time.monotonic()
        try:
            await self._connect(ctx)
            self._seconds = time.monotonic() - began
            self.state, self.problem, self._ready = CodeServerState.READY, None, True
            self._watch(self._end_idle())
        except (ProblemError, SandboxUnavailable) as error:
            await self._fail(error.problem)
        except BaseException:
            await self._drop("session")
            self.state = CodeServerState.WAITING
            raise

    async def _connect(self, ctx: "RunContext") -> None:
        loading = asyncio.create_task(asyncio.to_thread(_load, self.config.name))  # while the process starts
        early: list[bytes] = []
        self._all.count += 1
        try:
            process = await start_language_server(
                self.config,
                ctx,
                self._all.environ,
                early.append,
                self._all.count,
                agent=MAIN if self.workspace == self._all.workspace else ctx.agent,  # the others have a worktree
            )
        finally:
            modules = await loading
        self._process = process
        reader = self._reader = modules.framing.MessageReader()
        client: LanguageClient = modules.client.LanguageClient(
            self.config.name, self.workspace, parsed_settings(self.config.settings), process.process.write, self._break
        )
        self._client = client

        def take(chunk: bytes) -> None:
            for message in reader.take(chunk):
                client.take(message)
            if reader.fault:
                self._break(reader.fault)

        for chunk in early:
            take(chunk)
        process.messages = take
        self._watch(self._await_end(process))
        options = parsed_settings(self.config.options) if self.config.options else None
        await client.open(options, _START)

    def _break(self, why: str) -> None:
        """End a server that sends what no client should read."""
        if self._client is None or self._client.broken:
            return
        self._client.end(why)
        if self._process is not None and self._ctx is not None:
            self._watch(_ended(self._ctx, self._process.id, "flood"))

    # ---- documents

    async def shown(self, path: str, ctx: "RunContext") -> FileText:
        """Tell the server the present text of the file, and return the text. Raise CodeUnanswered."""
        stamp = _stamp(path)  # before the text: a change while it is read is then seen by the next look
        content = await read_text(path, ctx)
        if isinstance(content, Problem):
            raise CodeUnanswered(content)
        client = self._client
        if client is None:
            raise CodeUnanswered(
                Problem("nothing was asked", f"the language server `{self.config.name}` ended", "try again")
            )
        client.show(path, content.text)
        self._stamps[path] = stamp
        return content

    async def refresh(self, ctx: "RunContext") -> None:
        """Tell the server the texts of open documents that other actions have changed since then."""
        client = self._client
        for path in client.open_paths if client is not None else ():
            stamp = _stamp(path)
            if self._stamps.get(path) == stamp or client is None:
                continue
            content = await read_text(path, ctx)
            if isinstance(content, Problem):
                client.hide(path)  # it is gone, or the session may not read it any more
                self._stamps.pop(path, None)
            else:
                client.show(path, content.text)
                self._stamps[path] = stamp

    async def before(self, path: str, ctx: "RunContext") -> "FileWatch | None":
        """Return the diagnostics of the file before an edit, or None if they are not known in time."""
        client = self._client
        if client is None:
            return None
        found: Sequence[Diagnosis] | None = ()
        if os.path.lexists(path):
            await self.shown(path, ctx)
            found = await client.diagnostics(path, min(_BASELINE, deadline(self._all.options.wait)))
        return FileWatch(self, path, found) if found is not None else None

    async def after(self, path: str, before: "Sequence[Diagnosis]", ctx: "RunContext") -> str:
        """Return the errors of the file that were not there before, as text for the model."""
        content = await self.shown(path, ctx)
        client = self._client
        found = await client.diagnostics(path, deadline(self._all.options.wait)) if client is not None else None
        if found is None or client is None:
            return ""
        known = [each.same for each in before]
        new = []
        for each in found:
            if each.severity != 1:
                continue
            if each.same in known:
                known.remove(each.same)
            else:
                new.append(each)
        if not new:
            return ""
        _note_sources([], ctx)
        return diagnostics_text(self.config.name, path, new, content, client, self.workspace, new=True)

    def files_changed(self, changed: Sequence[tuple[str, str]]) -> None:
        """Tell the running server which files of its workspace have changed."""
        client = self._client
        if self.state is CodeServerState.READY and client is not None and not client.broken:
            own = [(path, kind) for path, kind in changed[:MOST_SHOWN] if inside(path, self.workspace)]
            if own:
                client.files_changed(own)

    # ---- the end

    async def _end_idle(self) -> None:
        """End the server after a time without use."""
        while True:
            idle = self._all.options.idle
            left = idle if self._busy else self._used + idle - time.monotonic()
            if left <= 0:
                break
            await asyncio.sleep(left)
        if self.state is CodeServerState.READY:
            self.state = CodeServerState.WAITING
            await self._drop("session")

    async def _await_end(self, process: "SessionProcess") -> None:
        """Wait for the end of the process, which a running server has not been asked for."""
        outcome = await process.process.wait()
        if process is not self._process:
            return
        if self._client is not None:
            self._client.end(f"its program ended with status {outcome.status}")
        if self.state is CodeServerState.READY:
            await self._fail(Problem(f"the language server `{self.config.name}` ended", "its process ended", ""))

    async def _fail(self, problem: Problem) -> None:
        """Note why the server cannot be used, with what it wrote last. It may start again a few times."""
        self._faults += 1
        started = self._ready
        if self._process is not None and self._ctx is not None:
            await self._ctx.processes.ended(self._process.id, _DYING)
        problem = self._detailed(problem)
        again = started and self._faults < _MOST_FAULTS
        self.state, self.problem = (CodeServerState.ENDED if again else CodeServerState.FAILED), problem
        await self._drop("cancelled")
        if not self._all.closed and self._ctx is not None and not again:
            self._ctx.emit(Notice(f"{problem.what}: {problem.why}; {problem.fix}".rstrip("; ")))

    def _detailed(self, problem: Problem) -> Problem:
        why = problem.why
        if self._reader is not None and self._reader.fault:
            why = self._reader.fault
        elif self._client is not None and self._client.broken:
            why = self._client.broken
        if self._process is not None:
            log = self._process.log
            lines = [line for line in log.since(max(log.end - 4000, 0)).text.splitlines() if line.strip()]
            if lines:
                why = f"{why}; it wrote: {one_line(lines[-1], 300)}"
            if (violations := self._process.process.violations) and problem.fix == "":
                why = f"{why}; its sandbox stopped: {one_line(violations[0].what, 300)}"
        return Problem(problem.what, why, problem.fix)

    async def close(self) -> None:
        """End the server."""
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            await asyncio.wait({self._starting})
        if self.state is CodeServerState.READY:
            self.state = CodeServerState.WAITING
        await self._drop("session")

    def forgive(self) -> None:
        """Let a server that failed start again."""
        self.state, self.problem, self._faults = CodeServerState.WAITING, None, 0

    async def _drop(self, why: str) -> None:
        """Leave the connection, and end the process with everything that it has started."""
        client, process, ctx = self._client, self._process, self._ctx
        self._client = self._process = None
        self._stamps.clear()
        if client is not None:
            await client.close()
        if process is not None and ctx is not None and process.alive:
            await ctx.processes.end(process.id, why)
        for task in tuple(self._tasks):
            if task is not asyncio.current_task():
                task.cancel()

    def _watch(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def row(self) -> CodeServerRow:
        """Return the server as the user sees it."""
        program = installed(self.config, self._all.environ, self.workspace) or self.config.argv[0]
        refused = self._client.refused if self._client is not None else {}
        return CodeServerRow(
            self.config.name,
            self.state,
            " ".join((program, *self.config.argv[1:])),
            self.config.files,
            round(self._seconds, 3),
            tuple(f"{method} ({count})" for method, count in list(refused.items())[:10]),
            f"{self.problem.why}" if self.problem is not None else "",
        )


@dataclass(frozen=True, slots=True)
class FileWatch:
    """The diagnostics of one file before an edit."""

    server: CodeServer
    path: str
    before: "Sequence[Diagnosis]"

    async def new_errors(self, ctx: "RunContext") -> str:
        """Return the errors that the edit added as text for the model."""
        try:
            with self.server.used():
                return await self.server.after(self.path, self.before, ctx)
        except (ProblemError, SandboxUnavailable):
            return ""  # the edit was done, and `/lsp` says what is wrong with the server


def _note_sources(places: "Sequence[CodePlace]", ctx: "RunContext") -> None:
    """Note the files that a text of the server may come from: those of `places`, and each file of the workspace.

    THREAT T264: a server reads the whole workspace. Untrusted text in one of its files may be in what it says.
    """
    if ctx.flow is not None:
        for place in places:
            ctx.flow.saw(ReadFile(place.path), "")
        ctx.flow.read_files((ctx.look().workspace,))


async def _ended(ctx: "RunContext", id: str, why: str) -> None:
    await ctx.processes.end(id, why)


def _stamp(path: str) -> tuple[int, ...]:
    """Return what shows that a file has changed. Nothing of the file is read."""
    try:
        found = os.lstat(path)
    except OSError:
        return ()
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)


@dataclass(frozen=True, slots=True)
class _Modules:
    """The modules that a server needs."""

    client: Any
    framing: Any


def _load(name: str) -> _Modules:
    """Import the modules with the protocol library. Raise CodeUnanswered if the library is not installed."""
    try:
        from runner.lsp import client, framing
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pygls", "lsprotocol", "attrs", "cattrs"):
            raise
        why, fix = "the library `pygls` is not installed", "install the extra: `pip install 'ringfence[code]'`"
        raise CodeUnanswered(Problem(f"the language server `{name}` cannot be used", why, fix)) from None
    return _Modules(client, framing)
