"""The methods of the protocol, and the sessions of one connection. START HERE.

The library of the protocol matches answers with requests and checks the types of messages; its dispatcher is not used,
because it lets `_meta` of a message replace checked parameters.
"""

import asyncio
import os
import shlex
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from acp import schema
from acp.exceptions import RequestError
from acp.meta import CLIENT_METHODS, PROTOCOL_VERSION
from pydantic import ValidationError

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner import VERSION
from runner.agent.startup import RunArgs, SessionStart, chosen_model, prepare_start
from runner.config import load
from runner.frontends.acp.markdown import code
from runner.frontends.acp.materials import read_blocks
from runner.frontends.acp.questions import AskEditor
from runner.frontends.acp.session import EditorSession, RunFailed
from runner.frontends.acp.updates import Update, dumped
from runner.frontends.wire_lines import stderr_has_room
from runner.messages import Usage
from runner.problems import Exit, Stopped, known_problem, usage
from runner.secrets.secret import SecretError
from runner.sessions.selection import SessionSelection
from runner.sessions.store import SessionError, SessionStore
from runner.sessions.summary import SessionSummary, summarize_sessions
from runner.state.paths import state_dir
from runner.state.session_id import is_session_id
from runner.state.workspace import workspace_at
from runner.stderr import print_problem, unexpected
from runner.text.phrases import many
from runner.text.sanitize import one_line, visible

MOST_SESSIONS = 16  # open sessions of one connection
_MOST_REQUESTS = 64  # requests of the editor that are answered at the same time
_PAGE = 50  # sessions of one page of the list
_LONGEST_NAME = 80  # characters of the name of the editor
_KEYS = "keys"  # the id of the only way to authenticate
_AUTH_REQUIRED, _INVALID_PARAMS, _INTERNAL, _INVALID_REQUEST, _NOT_FOUND = -32000, -32602, -32603, -32600, -32002
_MOST_NAMED = 5  # tool servers that a message lists
_LONGEST_LINE = 500  # characters of a command line

Requested = TypeVar("Requested", bound=schema.BaseModel)


class EditorConnection(Protocol):
    """The part of the library's connection that the server uses."""

    async def send_request(self, method: str, params: Any = None) -> Any:
        """Send a request, and return its result. Raise RequestError or ConnectionError."""
        ...


@dataclass(frozen=True, slots=True)
class Method:
    """One method of the protocol: the type of its parameters, and the function that answers it."""

    params: type[schema.BaseModel]
    answer: Callable[[Any], Awaitable[schema.BaseModel | None]]


class AcpServer:
    """The agent at the end of one connection.

    `post` sends a message at once, and `drained` waits while many messages wait for the editor. Until `connection` is
    set, no request can be sent to the editor.
    """

    def __init__(
        self, args: RunArgs, post: Callable[[dict[str, Any]], None], drained: Callable[[], Awaitable[None]]
    ) -> None:
        self.connection: EditorConnection | None = None
        self._args = args
        self._post = post
        self._drained = drained
        self._editor = ""  # the name of the editor, empty before `initialize`
        self._sessions: dict[str, EditorSession] = {}
        self._opening = 0  # sessions that are being opened
        self._running = 0
        self._closed = False
        self._methods = {
            "initialize": Method(schema.InitializeRequest, self._initialize),
            "authenticate": Method(schema.AuthenticateRequest, self._authenticate),
            "session/new": Method(schema.NewSessionRequest, self._new),
            "session/load": Method(schema.LoadSessionRequest, self._load),
            "session/resume": Method(schema.ResumeSessionRequest, self._resume),
            "session/fork": Method(schema.ForkSessionRequest, self._fork),
            "session/list": Method(schema.ListSessionsRequest, self._list),
            "session/close": Method(schema.CloseSessionRequest, self._close),
            "session/prompt": Method(schema.PromptRequest, self._prompt),
            "session/set_mode": Method(schema.SetSessionModeRequest, self._set_mode),
            "session/set_config_option": Method(schema.SetSessionConfigOptionSelectRequest, self._set_option),
        }

    async def handle(self, method: str, params: Any, is_notification: bool) -> Any:
        """Answer one message of the editor. Raise RequestError, with a text that says what, why and how to fix."""
        if is_notification:
            if method == "session/cancel":
                self._cancel(params)
            return None  # an unknown notification is ignored (JSON-RPC 2.0, section 4.1)
        if self._running >= _MOST_REQUESTS:
            why = f"{_MOST_REQUESTS} requests are open"
            raise _error(_INVALID_REQUEST, Problem("the request is not answered", why, "wait for the answers"))
        self._running += 1
        try:
            return await self._answer(method, params)
        except (RequestError, asyncio.CancelledError):
            raise
        except ValidationError as error:
            raise _error(_INVALID_PARAMS, _unfit(method, error)) from None
        except Exception as error:  # SEAM of the server: an error ends the request, not the connection
            if (found := known_problem(error)) is None:
                problem = unexpected(error)
                _report(problem)
                raise _error(_INTERNAL, problem) from None
            raise _error(_code(error, found[1]), found[0]) from None
        finally:
            self._running -= 1

    async def _answer(self, name: str, params: Any) -> Any:
        method = self._methods.get(name)
        if method is None:
            raise RequestError(-32601, f"there is no method `{one_line(name, 60)}`")
        if not self._editor and name != "initialize":
            raise usage(f"`{name}` is not possible yet", "the connection has not begun", "send `initialize` first")
        return await method.answer(method.params.model_validate(params if params is not None else {}))

    # ---- the connection

    async def _initialize(self, asked: schema.InitializeRequest) -> schema.InitializeResponse:
        if self._editor:
            raise usage("the connection has begun already", "`initialize` came twice", "send it once")
        info = asked.client_info
        name = f"{info.name} {info.version}" if info is not None else ""
        self._editor = f"ACP client {one_line(name.strip(), _LONGEST_NAME) or 'without a name'}"
        return schema.InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=schema.AgentCapabilities(
                load_session=True,
                prompt_capabilities=schema.PromptCapabilities(image=True, audio=False, embedded_context=True),
                mcp_capabilities=schema.McpCapabilities(http=False, sse=False),
                session_capabilities=schema.SessionCapabilities(
                    list=schema.SessionListCapabilities(),
                    resume=schema.SessionResumeCapabilities(),
                    fork=schema.SessionForkCapabilities(),
                    close=schema.SessionCloseCapabilities(),
                ),
            ),
            auth_methods=[
                schema.AuthMethodAgent(
                    id=_KEYS,
                    name="Keys of ringfence",
                    description="A key in the environment, in the keyring, or from a helper. Run `agent auth login "
                    "PROVIDER` in a terminal to store one; no key is sent over this connection.",
                )
            ],
            agent_info=schema.Implementation(name="ringfence", title="ringfence", version=VERSION),
        )

    async def _authenticate(self, asked: schema.AuthenticateRequest) -> schema.AuthenticateResponse:
        """Check that a model can be used. No key passes over the connection."""
        if asked.method_id != _KEYS:
            name = one_line(asked.method_id, 60)
            raise usage(f"there is no way `{name}` to authenticate", f"the only way is `{_KEYS}`", "use it")

        def check() -> Any:
            cwd = Path(os.path.realpath(os.curdir))
            return chosen_model(self._args, load(cwd, os.environ, repository=False), cwd)

        opened = await asyncio.to_thread(check)
        await opened.provider.close()
        return schema.AuthenticateResponse()

    async def close(self) -> None:
        """Stop all work and close all sessions."""
        self._closed = True
        sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            session.cancel()
        for done in await asyncio.gather(*(each.close() for each in sessions), return_exceptions=True):
            if isinstance(done, Exception):
                found = known_problem(done)
                _report(found[0] if found is not None else unexpected(done))

    # ---- sessions

    async def _new(self, asked: schema.NewSessionRequest) -> schema.NewSessionResponse:
        session = await self._open(asked, SessionSelection(unkept=self._args.selection.unkept))
        self._begin(session)
        return schema.NewSessionResponse(session_id=session.id, modes=session.modes, config_options=session.options)

    async def _load(self, asked: schema.LoadSessionRequest) -> schema.LoadSessionResponse:
        session = self._sessions.get(asked.session_id) or await self._continued(asked)
        await session.replay(self._drained)
        self._begin(session)
        return schema.LoadSessionResponse(modes=session.modes, config_options=session.options)

    async def _resume(self, asked: schema.ResumeSessionRequest) -> schema.ResumeSessionResponse:
        session = self._sessions.get(asked.session_id) or await self._continued(asked)
        self._begin(session)
        return schema.ResumeSessionResponse(modes=session.modes, config_options=session.options)

    async def _fork(self, asked: schema.ForkSessionRequest) -> schema.ForkSessionResponse:
        session = await self._open(asked, SessionSelection(fork=await _stored_id(asked.session_id)))
        self._begin(session)
        return schema.ForkSessionResponse(session_id=session.id, modes=session.modes, config_options=session.options)

    async def _continued(self, asked: schema.LoadSessionRequest | schema.ResumeSessionRequest) -> EditorSession:
        return await self._open(asked, SessionSelection(resume=await _stored_id(asked.session_id)))

    def _begin(self, session: EditorSession) -> None:
        """Send what waited for the editor to know the session, after the answer that names it."""
        asyncio.get_running_loop().call_soon(session.begin)

    async def _open(self, asked: Any, selection: SessionSelection) -> EditorSession:
        if len(self._sessions) + self._opening >= MOST_SESSIONS:
            why = f"{MOST_SESSIONS} sessions of this connection are open"
            raise usage("no further session is opened", why, "close one, or start another `agent acp`")
        if asked.additional_directories:
            why = "a session has one folder"
            raise usage("the session is not opened", why, "leave `additionalDirectories` out")
        if not os.path.isabs(asked.cwd):
            raise usage(
                f"`{one_line(asked.cwd, 200)}` cannot be the folder", "it is not absolute", "send an absolute path"
            )
        self._opening += 1
        try:
            args = replace(self._args, cwd=asked.cwd, selection=selection)
            start = await asyncio.to_thread(_start, args)
            session = EditorSession(start, self._editor, self._update, self._asking)
            await session.open()
        finally:
            self._opening -= 1
        if self._closed:
            await session.close()
            raise asyncio.CancelledError
        self._sessions[session.id] = session
        if asked.mcp_servers and (told := _not_used(asked.mcp_servers, {each.name for each in start.options.servers})):
            session.tell(told)
        return session

    async def _list(self, asked: schema.ListSessionsRequest) -> schema.ListSessionsResponse:
        begin = _cursor(asked.cursor)
        rows = await asyncio.to_thread(_stored, asked.cwd)
        sessions = [_row(each) for each in rows[begin : begin + _PAGE]]
        more = begin + _PAGE if begin + _PAGE < len(rows) else None
        return schema.ListSessionsResponse(sessions=sessions, next_cursor=str(more) if more is not None else None)

    async def _close(self, asked: schema.CloseSessionRequest) -> schema.CloseSessionResponse:
        session = self._session(asked.session_id)
        del self._sessions[session.id]
        await session.close()
        return schema.CloseSessionResponse()

    # ---- one session

    async def _prompt(self, asked: schema.PromptRequest) -> schema.PromptResponse:
        session = self._session(asked.session_id)
        try:
            done = await session.prompt(read_blocks(asked.prompt, asked.field_meta))
        except RunFailed as error:
            fix = "the messages of the session say why; send the prompt again when that is corrected"
            raise _error(_INTERNAL, Problem("the prompt was not worked on", str(error), fix)) from None
        return schema.PromptResponse(stop_reason=done.stop, usage=_usage(done.usage))

    def _cancel(self, params: Any) -> None:
        id = params.get("sessionId") if isinstance(params, dict) else None
        session = self._sessions.get(id) if isinstance(id, str) else None
        if session is not None:
            session.cancel()

    async def _set_mode(self, asked: schema.SetSessionModeRequest) -> schema.SetSessionModeResponse:
        self._session(asked.session_id).set_mode(asked.mode_id)
        return schema.SetSessionModeResponse()

    async def _set_option(
        self, asked: schema.SetSessionConfigOptionSelectRequest
    ) -> schema.SetSessionConfigOptionResponse:
        session = self._session(asked.session_id)
        session.set_option(asked.config_id, asked.value)
        return schema.SetSessionConfigOptionResponse(config_options=session.options)

    def _session(self, id: str) -> EditorSession:
        session = self._sessions.get(id)
        if session is None:
            what, why = f"there is no open session `{one_line(id, 60)}`", "it was not opened here, or is closed"
            raise _error(_NOT_FOUND, Problem(what, why, "use `session/new` or `session/load`"))
        return session

    # ---- messages to the editor

    def _update(self, session: str, update: Update) -> None:
        params = {"sessionId": session, "update": dumped(update)}
        self._post({"jsonrpc": "2.0", "method": CLIENT_METHODS["session_update"], "params": params})

    def _asking(self, session: str) -> AskEditor:
        async def ask(params: dict[str, Any]) -> object:
            if self.connection is None:
                raise ConnectionError("there is no connection")
            method = CLIENT_METHODS["session_request_permission"]
            answer: object = await self.connection.send_request(method, {"sessionId": session, **params})
            return answer

        return ask


def _report(problem: Problem) -> None:
    """Print a problem, unless nobody reads standard error: the editor may have connected it to a full pipe."""
    if stderr_has_room():
        print_problem(problem)


def _start(args: RunArgs) -> SessionStart:
    return prepare_start(args, unattended=False, asks=False, notes=True)


async def _stored_id(text: str) -> str:
    """Return the id of a stored session. Raise the error of the protocol for a session that is not stored.

    A session without a prompt is not stored, so that an editor that loads it learns to begin a new one.
    """
    name = one_line(text, 60)
    if len(text) != 16 or not is_session_id(text):
        raise usage(f"`{name}` is no session", "an id has 16 hexadecimal digits", "see `session/list`")

    def stored() -> bool:
        return any(os.path.lexists(store.path(text)) for store in SessionStore.all(state_dir(os.environ)))

    if not await asyncio.to_thread(stored):
        why = "no session with this id is stored; a session is stored with its first prompt"
        raise _error(_NOT_FOUND, Problem(f"there is no session `{name}`", why, "use `session/new`"))
    return text


def _stored(cwd: str | None) -> list[SessionSummary]:
    """Return the stored sessions of the workspace around `cwd`, or of all workspaces, the last one used first."""
    state = state_dir(os.environ)
    if cwd is None:
        stores: Sequence[SessionStore] = SessionStore.all(state)
    elif not os.path.isabs(cwd):
        raise usage(f"`{one_line(cwd, 200)}` is no folder", "it is not absolute", "send an absolute path")
    else:
        stores = [SessionStore.of(state, workspace_at(os.path.realpath(cwd), os.environ))]
    found: list[SessionSummary] = []
    for store in stores:
        try:
            found += [each for each in summarize_sessions(store) if each.broken is None]
        except SessionError:
            if cwd is not None:
                raise  # of all workspaces, one that cannot be read does not hide the others
    return sorted(found, key=lambda each: (each.written, each.id), reverse=True)


def _row(seen: SessionSummary) -> schema.SessionInfo:
    import time

    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seen.written))
    title = visible(seen.first, lines=False) or None
    return schema.SessionInfo(session_id=seen.id, cwd=seen.workspace, title=title, updated_at=when)


def _cursor(text: str | None) -> int:
    if text is None:
        return 0
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise usage("the list has no such page", "the cursor is not one of this list", "begin without a cursor")
    return int(text)


def _usage(spent: Usage) -> schema.Usage:
    return schema.Usage(
        total_tokens=spent.input + spent.output + spent.cache_read + spent.cache_write,
        input_tokens=spent.input,
        output_tokens=spent.output,
        cached_read_tokens=spent.cache_read,
        cached_write_tokens=spent.cache_write,
    )


def _not_used(servers: Sequence[Any], configured: Collection[str]) -> str:
    """Return the message about tool servers that the editor passed; empty if the user configured all of their names.

    THREAT T291: a tool server of the editor is a command line or an address that no configuration of the user names.
    The session does not start it; the user configures and approves it like any other. Values of variables and headers
    may be keys, and are not shown.
    """
    unknown = [each for each in servers if each.name not in configured]
    if not unknown:
        return ""
    lines = [
        f"the editor passed {many(len(unknown), 'tool server')} that this session does not use: a server needs your "
        "configuration and your approval. To use it from the next session on, run in a terminal, with the rights that "
        "it needs (`agent mcp add --help`), and then `agent mcp pin NAME`:"
    ]
    for each in unknown[:_MOST_NAMED]:
        words = [each.command, *each.args] if isinstance(each, schema.McpServerStdio) else [getattr(each, "url", "URL")]
        more = [each.name, *(["--"] if isinstance(each, schema.McpServerStdio) else []), *words]
        lines.append(code(one_line(f"agent mcp add {shlex.join(more)}", _LONGEST_LINE)))
    left = len(unknown) - _MOST_NAMED
    return "\n\n".join([*lines, *([f"and {left} more"] if left > 0 else [])])


def _code(error: Exception, exit: Exit) -> int:
    """Return the code of JSON-RPC for an error with a Problem."""
    if isinstance(error, SecretError) or (isinstance(error, Stopped) and error.problem.what == "no model is chosen"):
        return _AUTH_REQUIRED
    return _INVALID_PARAMS if exit is Exit.USAGE else _INTERNAL


def _error(code: int, problem: Problem) -> RequestError:
    """Return the error of the protocol with a Problem in plain text."""
    what, why, fix = (visible(each, lines=False) for each in (problem.what, problem.why, problem.fix))
    text = f"{what}: {why}" + (f"; {fix}" if fix else "")
    return RequestError(code, text, {"what": what, "why": why, "fix": fix})


def _unfit(method: str, error: ValidationError) -> Problem:
    """Return the Problem of parameters that have another form. The values are not repeated."""
    first: Mapping[str, Any] = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(each) for each in first["loc"])[:200]
    why = f"`{one_line(place, 200)}`: {one_line(str(first['msg']).lower(), 200)}"
    return Problem(f"the parameters of `{one_line(method, 60)}` cannot be used", why, "send what the protocol says")
