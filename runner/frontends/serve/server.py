"""The protocol side of `agent mcp serve`: the tools, their calls and the forms, in both generations of MCP.

A client of the older generation gets a form as a request while its call waits. For a client of the generation of
2026-07-28, the call ends with `input_required`; the client repeats it with the answer, and the waiting call continues.

THREAT T198: the state that a client sends back is untrusted. It is a random name, valid once, for a repetition of the
same call of the same client; everything else refuses the question.
"""

import asyncio
import hashlib
import json
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from policy.model.verdict import Problem
from runner import VERSION
from runner.approval.open_questions import OpenQuestions
from runner.frontends.serve import explained
from runner.frontends.serve.calls import ProgressReports, ServedCalls, client_name
from runner.frontends.serve.questions import CHOICE, CHOICES, AskSettings, ClientApprover, FormFailed
from runner.messages import ImageBlock, ToolResult
from runner.stderr import print_problem, unexpected
from runner.text.sanitize import one_line

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    CallContext = ServerRequestContext[Any, Any]

_INSTRUCTIONS = """\
Every call is judged by the policy of ringfence and runs in a sandbox with exactly the rights that the policy allows. \
A refusal says what was refused, why, and what to do instead; do not repeat or disguise a refused call. Prefer `read`, \
`grep`, `glob`, `ls`, `edit` and `write` over `bash` for files. `why` judges a command without running it."""
_READS = frozenset(("read", "glob", "grep", "ls", "bash_output", explained.NAME))
_FILES = frozenset(
    ("read", "write", "edit", "notebook_edit", "glob", "grep", "ls", explained.NAME)
)  # these never use the network
_FORM = {
    "type": "object",
    "properties": {
        CHOICE: {"type": "string", "title": "Allow once?", "enum": list(CHOICES), "description": "`yes` allows it once"}
    },
    "required": [CHOICE],
}


class _OpenCall:
    """One call from its beginning to its result, over all requests of the client about it.

    Attributes:
        signature: The digest of the name of the tool and the arguments, which every repetition must have.
        approver: The approver of the call.
        reports: The progress of the call.
        wanted: The form that the client has to show, or None; a pair of its name and text.
        changed: Set when `wanted` changes.
    """

    def __init__(self, signature: str, client: str, elsewhere: OpenQuestions, settings: AskSettings) -> None:
        self.signature = signature
        self.client = client
        self.reports = ProgressReports()
        self.approver = ClientApprover(client, self, elsewhere, settings, self.reports.line)
        self.task: asyncio.Task[ToolResult] | None = None
        self.context: CallContext | None = None  # of the request that waits for this call now
        self.wanted: tuple[str, str] | None = None
        self.changed = asyncio.Event()
        self._answered: asyncio.Future[object] | None = None  # the answer of the client as it is

    @property
    def supported(self) -> bool:
        """Return True if the client shows forms."""
        context = self.context
        if context is None or (context.session.client_capabilities is None):
            return False
        offered = context.session.client_capabilities.elicitation
        if offered is None or (offered.form is None and offered.url is not None):
            return False
        return context.protocol_version in MODERN_PROTOCOL_VERSIONS or context.session.can_send_request

    async def show(self, name: str, text: str) -> Mapping[str, object] | None:
        """Show a form in the client; see `ClientForms`."""
        context = self.context
        if context is None:
            raise FormFailed("no request of the client is open")
        if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
            self.wanted = (name, text)
            self._answered = asyncio.get_running_loop().create_future()
            self.changed.set()
            try:
                return _submitted(await self._answered)
            finally:
                self.wanted = self._answered = None
        try:
            answer = await context.session.elicit_form(text, _FORM, related_request_id=context.request_id)
        except Exception as error:  # the client refuses, its answer is not valid, or the connection is closed
            raise FormFailed(one_line(str(error), 200)) from None
        return _submitted(answer)

    def submit(self, responses: Mapping[str, object] | None) -> None:
        """Take the answers of a repeated request. An answer to anything but the open form is a refusal."""
        future, wanted = self._answered, self.wanted
        if future is None or wanted is None or future.done():
            return
        self.wanted = None
        future.set_result(responses[wanted[0]] if responses is not None and set(responses) == {wanted[0]} else None)


def _submitted(answer: object) -> Mapping[str, object] | None:
    """Return the fields of an accepted form; None for every other answer. Raise FormFailed for a form that was closed
    without an answer, as clients without a user do.
    """
    if isinstance(answer, types.ElicitResult) and answer.action == "cancel":
        raise FormFailed("it was closed without an answer")
    if isinstance(answer, types.ElicitResult) and answer.action == "accept":
        return dict(answer.content or {})
    return None


class ToolServer:
    """The server of one session, for all its clients."""

    def __init__(self, calls: ServedCalls, elsewhere: OpenQuestions, settings: AskSettings) -> None:
        self._calls = calls
        self._elsewhere = elsewhere
        self._settings = settings
        self._open: set[_OpenCall] = set()
        self._waiting: dict[str, _OpenCall] = {}  # by the state that the client has to send back
        self.protocol: Server[Any] = Server(
            "ringfence",
            version=VERSION,
            instructions=_INSTRUCTIONS,
            on_list_tools=self._list,
            on_call_tool=self._call,
        )
        self.protocol.middleware.clear()  # nothing about a call is sent to a collector of traces

    async def close(self) -> None:
        """Stop every call, and return after their commands have ended."""
        tasks = [call.task for call in self._open if call.task is not None]
        for task in tasks:
            if not task.cancelling():  # a second cancel would interrupt the killing of the command
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _list(self, context: "CallContext", params: object) -> types.ListToolsResult:
        own = [
            types.Tool(
                name=tool.name,
                description=tool.description,
                input_schema=tool.Args.schema_for_model(),
                annotations=_annotations(tool.name),
            )
            for tool in self._calls.ctx.tools
        ]
        why = types.Tool(
            name=explained.NAME,
            description=explained.DESCRIPTION,
            input_schema=explained.INPUT,
            output_schema=explained.OUTPUT,
            annotations=_annotations(explained.NAME),
        )
        return types.ListToolsResult(tools=[*own, why])

    async def _call(
        self, context: "CallContext", params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        arguments = params.arguments or {}
        try:
            words = json.dumps([params.name, arguments], sort_keys=True).encode()
        except (ValueError, RecursionError):
            return _failed("the arguments are not valid", "they are nested too deeply, or have an invalid number")
        signature = hashlib.sha256(words).hexdigest()
        info = context.session.client_params.client_info if context.session.client_params is not None else None
        client = client_name(info.name, info.version) if info is not None else client_name("", "")
        if params.request_state is not None or params.input_responses is not None:
            call = self._waiting.pop(params.request_state or "", None)
            if call is None:
                return _failed("this answer belongs to no open question", "it was answered, or its time is over")
            if call.signature != signature or call.client != client:
                call.submit(None)
                return _failed("this answer belongs to another call", "the question about that call is refused")
            call.submit(params.input_responses)
            return await self._follow(call, context)
        if params.name == explained.NAME:
            return self._explain(arguments, client)
        call = _OpenCall(signature, client, self._elsewhere, self._settings)
        call.context = context  # before the task runs, which may ask at once
        # A task of its own: a cancelled request cancels it exactly once, so that its command is killed in peace.
        work = self._calls.call(params.name, arguments, client, call.approver, call.reports)
        call.task = asyncio.create_task(work)
        self._open.add(call)
        call.task.add_done_callback(lambda _: self._ended(call))
        return await self._follow(call, context)

    def _ended(self, call: _OpenCall) -> None:
        self._open.discard(call)
        for state in [state for state, other in self._waiting.items() if other is call]:
            del self._waiting[state]

    async def _follow(
        self, call: _OpenCall, context: "CallContext"
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Wait until `call` has a result, or needs an answer from the client. A cancellation stops the call."""
        task = call.task
        assert task is not None  # set by `_call`
        call.context = context
        call.reports.send = _report(context)
        try:
            while not task.done():
                call.changed.clear()
                if call.wanted is not None:
                    return self._input_required(call, call.wanted)
                change = asyncio.ensure_future(call.changed.wait())
                try:
                    await asyncio.wait({task, change}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    change.cancel()
        except asyncio.CancelledError:
            if not task.cancelling():
                task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait({task})
            raise
        finally:
            call.context = call.reports.send = None
        if task.cancelled():
            return _failed("the call was stopped", "the server ends")
        return _result(task.result())

    def _input_required(self, call: _OpenCall, wanted: tuple[str, str]) -> types.InputRequiredResult:
        state = secrets.token_urlsafe(24)
        self._waiting[state] = call
        params = types.ElicitRequestFormParams(message=wanted[1], requested_schema=_FORM)
        return types.InputRequiredResult(
            input_requests={wanted[0]: types.ElicitRequest(params=params)}, request_state=state
        )

    def _explain(self, arguments: Mapping[str, object], client: str) -> types.CallToolResult:
        command = arguments.get("command")
        if not isinstance(command, str) or not command.strip() or set(arguments) != {"command"}:
            return _failed("the arguments of `why` are not valid", "it takes one argument `command`, a bash script")
        try:
            text, values = explained.explained(command, self._calls.of(client))
        except Exception as error:  # SEAM of the server: an unexpected exception ends the call, not the session
            print_problem(problem := unexpected(error))
            return _failed(problem.what, problem.why)
        return types.CallToolResult(content=[_text(text)], structured_content=values)


def _annotations(name: str) -> types.ToolAnnotations:
    reads = name in _READS
    return types.ToolAnnotations(
        read_only_hint=reads,
        destructive_hint=None if reads else True,
        open_world_hint=name not in _FILES,
    )


def _report(context: "CallContext") -> Any:
    """Return the function that sends progress to the client, or None if the client did not ask for progress."""
    if (context.meta or {}).get("progress_token") is None:
        return None

    async def send(count: int, text: str) -> None:
        await context.session.report_progress(float(count), None, _encodable(text))

    return send


def _result(result: ToolResult) -> types.CallToolResult:
    content: list[types.ContentBlock] = [
        types.ImageContent(data=block.data, mime_type=block.media_type)
        if isinstance(block, ImageBlock)
        else _text(block.text)
        for block in result.content
    ]
    return types.CallToolResult(content=content, is_error=result.is_error)


def _failed(what: str, why: str) -> types.CallToolResult:
    problem = Problem(f"not done: {what}", why, "call the tool again")
    text = f"{problem.what}\nwhy: {problem.why}\ninstead: {problem.fix}"
    return types.CallToolResult(content=[_text(text)], is_error=True)


def _text(text: str) -> types.TextContent:
    return types.TextContent(text=_encodable(text))


def _encodable(text: str) -> str:
    """Return `text` with lone surrogates, which JSON in UTF-8 cannot contain, as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()
