"""The client of one tool server: the protocol library behind plain data.

The library is imported by this module, which is itself imported only while a server starts: the import takes 0.6 s.
Sampling, roots and logging are deprecated in the protocol, and are not offered to servers.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
from mcp.client import Client
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from policy.model.deadline import deadline
from policy.model.verdict import Problem, ProblemError
from runner import VERSION
from runner.mcp.elicitation import ElicitedAnswer, ElicitedForm, ElicitedUrl, Elicitor
from tools.server_offer import OfferedPrompt, OfferedResource, OfferedTool, ServerOffer, ServerReply

if TYPE_CHECKING:
    from mcp.client._transport import Transport

MOST_TOOLS = 2_000
_MOST_PAGES = 100  # pages of one list
_MOST_ROUNDS = 5  # times that a server may ask for input during one call
_PARTING = deadline(2.0)  # seconds that the end of a connection may take

ProgressListener = Callable[[str], None]


class ServerError(ProblemError):
    """The error for a server that answers with an error, too late, or with what the protocol does not allow."""


class ServerClient:
    """A connection to one server. Its task holds the library's client, which one task must enter and leave.

    Attributes:
        name: The name of the server for messages.
        changed: A function that is called when the server states that its lists have changed.
    """

    def __init__(
        self, name: str, transport: "Transport", elicitor: Elicitor, changed: Callable[[], None], timeout: float
    ) -> None:
        self.name, self.changed = name, changed
        self._elicitor, self._timeout = elicitor, timeout
        self._client = Client(
            transport,
            read_timeout_seconds=timeout,
            client_info=types.Implementation(name="ringfence", version=VERSION),
            elicitation_callback=self._elicit,
            message_handler=self._notified,
            input_required_max_rounds=_MOST_ROUNDS,
            cache=None,
        )
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._leave = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def open(self, seconds: float) -> None:
        """Connect and agree on a revision of the protocol. Raise ServerError."""
        self._task = asyncio.create_task(self._hold())
        try:
            async with asyncio.timeout(seconds):
                await asyncio.shield(self._ready)
        except TimeoutError:
            await self.close()
            raise self._error(f"it gave no answer in {seconds:g} s", "check the command or address") from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Leave the connection."""
        self._leave.set()
        if self._task is None:
            return
        done, _ = await asyncio.wait({self._task}, timeout=_PARTING)
        if not done:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=_PARTING)
        if self._ready.done() and not self._ready.cancelled():
            self._ready.exception()  # it was raised by `open`, or nobody waits for it any more

    async def _hold(self) -> None:
        """Hold the client until `close` is called. The result of its start is the result of `_ready`."""
        try:
            async with self._client:
                if not self._ready.done():
                    self._ready.set_result(None)
                listener = asyncio.create_task(self._listen())
                try:
                    await self._leave.wait()
                finally:
                    listener.cancel()
                    await asyncio.wait({listener})
        except asyncio.CancelledError:
            if not self._ready.done():
                self._ready.cancel()
            raise
        except BaseException as error:  # the library raises groups of errors of its tasks
            if not self._ready.done():
                self._ready.set_exception(self._translated(error))

    async def _listen(self) -> None:
        """Listen for changed lists: since 2026-07-28 a client has to ask for such notifications."""
        if self._client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return
        tools = self._client.server_capabilities.tools
        if tools is None or not tools.list_changed:
            return
        with contextlib.suppress(MCPError, anyio.ClosedResourceError, anyio.BrokenResourceError, RuntimeError):
            async with self._client.listen(tools_list_changed=True) as subscription:
                async for _ in subscription:
                    self.changed()

    # ---- requests

    async def offer(self) -> ServerOffer:
        """Return everything that the server offers. Raise ServerError."""
        client = self._client
        with self._translating():
            capabilities = client.server_capabilities
            tools = await self._pages(client.list_tools, "tools") if capabilities.tools else []
            resources, templates = [], []
            if capabilities.resources:
                resources = await self._pages(client.list_resources, "resources")
                with contextlib.suppress(MCPError):  # some servers have resources and no templates
                    templates = await self._pages(client.list_resource_templates, "resource_templates")
            prompts = await self._pages(client.list_prompts, "prompts") if capabilities.prompts else []
            info = client.server_info
        return ServerOffer(
            protocol=client.protocol_version,
            title=f"{info.name} {info.version}".strip() if info is not None else "",
            instructions=client.instructions or "",
            tools=tuple(map(_tool, tools)),
            resources=(*map(_resource, resources), *map(_template, templates)),
            prompts=tuple(map(_prompt, prompts)),
        )

    async def _pages(self, request: Callable[..., Awaitable[Any]], field: str) -> list[Any]:
        found: list[Any] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            page = await request(cursor=cursor)
            found += getattr(page, field)
            if len(found) > MOST_TOOLS:
                raise self._error(f"it offers more than {MOST_TOOLS:,} {field}", "use a server that offers fewer")
            cursor = page.next_cursor
            if not cursor:
                return found
        raise self._error(f"its list of {field} has more than {_MOST_PAGES} pages", "use a server that offers fewer")

    async def call(
        self, tool: str, arguments: dict[str, object], tell: ProgressListener = lambda text: None
    ) -> ServerReply:
        """Call a tool and return its result. `tell` gets a line for each report of progress. Raise ServerError."""

        async def report(progress: float, total: float | None, message: str | None) -> None:
            share = f"{progress:g}/{total:g}" if total else f"{progress:g}"
            tell(f"{message or 'progress'} ({share})\n")

        with self._translating():
            result = await self._client.call_tool(tool, arguments, progress_callback=report)
            return ServerReply(
                tuple(_plain(block) for block in result.content),
                result.structured_content if isinstance(result.structured_content, dict) else None,
                bool(result.is_error),
            )

    async def read(self, uri: str) -> ServerReply:
        """Read a resource. Raise ServerError."""
        with self._translating():
            result = await self._client.read_resource(uri)
            return ServerReply(tuple({"type": "resource", "resource": _plain(each)} for each in result.contents))

    async def prompt(self, name: str, arguments: dict[str, str]) -> ServerReply:
        """Return the messages of a prompt, each as a block with its role. Raise ServerError."""
        with self._translating():
            result = await self._client.get_prompt(name, arguments)
            return ServerReply(tuple({**_plain(each.content), "role": each.role} for each in result.messages))

    # ---- what the server asks and tells

    async def _elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        asked: ElicitedForm | ElicitedUrl
        if isinstance(params, types.ElicitRequestURLParams):
            asked = ElicitedUrl(self.name, params.message, params.url)
        else:
            asked = ElicitedForm(self.name, params.message, dict(params.requested_schema))
        answer = await self._elicitor(asked)
        match answer:
            case ElicitedAnswer(accepted=True, values=values):
                return types.ElicitResult(action="accept", content=values or None)  # type: ignore[arg-type]  # checked by the form
            case ElicitedAnswer(refused=True):
                return types.ElicitResult(action="decline")
            case _:
                return types.ElicitResult(action="cancel")

    async def _notified(self, message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification | types.PromptListChangedNotification) or isinstance(
            getattr(message, "root", None),
            types.ToolListChangedNotification
            | types.PromptListChangedNotification
            | types.ResourceListChangedNotification,
        ):
            self.changed()

    # ---- errors

    @contextlib.contextmanager
    def _translating(self) -> Any:
        try:
            yield
        except ServerError:
            raise
        except Exception as error:  # the named seam: the library raises many kinds of errors
            raise self._translated(error) from None

    def _translated(self, error: BaseException) -> ServerError:
        while isinstance(error, BaseExceptionGroup) and error.exceptions:
            error = error.exceptions[0]
        if isinstance(error, ServerError):
            return error
        if isinstance(error, ProblemError):
            return ServerError(error.problem)
        if isinstance(error, MCPError):
            return self._error(f"it answers with the error {error.error.code}: {error.error.message[:500]}", "")
        if isinstance(error, ValidationError):
            return self._error("its answer is not what the protocol allows", "use another version of the server")
        if isinstance(error, TimeoutError):
            return self._error(f"it gave no answer in {self._timeout:g} s", "raise `timeout` in its table")
        if isinstance(error, anyio.ClosedResourceError | anyio.BrokenResourceError | anyio.EndOfStream):
            return self._error("the connection ended", f"see `agent mcp test {self.name}`")
        return self._error(f"{type(error).__name__}: {str(error)[:500]}", "")

    def _error(self, why: str, fix: str) -> ServerError:
        return ServerError(Problem(f"the server `{self.name}` cannot be used", why, fix))


def _plain(value: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = value.model_dump(mode="json", by_alias=True, exclude_none=True)
    return dumped


def _tool(tool: types.Tool) -> OfferedTool:
    return OfferedTool(
        tool.name,
        tool.title or "",
        tool.description or "",
        tool.input_schema,
        tool.output_schema,
        _plain(tool.annotations) if tool.annotations is not None else {},
    )


def _resource(resource: types.Resource) -> OfferedResource:
    media = resource.mime_type or ""
    return OfferedResource(str(resource.uri), resource.name, resource.title or "", resource.description or "", media)


def _template(template: types.ResourceTemplate) -> OfferedResource:
    return OfferedResource(
        template.uri_template,
        template.name,
        template.title or "",
        template.description or "",
        template.mime_type or "",
        template=True,
    )


def _prompt(prompt: types.Prompt) -> OfferedPrompt:
    arguments = tuple((each.name, each.description or "", bool(each.required)) for each in prompt.arguments or ())
    return OfferedPrompt(prompt.name, prompt.title or "", prompt.description or "", arguments)
