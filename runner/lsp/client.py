"""The client of one language server: the protocol library behind plain data.

The library is imported by this module, which is itself imported only while a server starts: the import takes 0.5 s.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from lsprotocol import types as lsp
from pygls.client import JsonRPCClient
from pygls.protocol import JsonRPCProtocol, default_converter
from pygls.uris import from_fs_path, to_fs_path
from pygls.workspace import PositionCodec

from policy.model.deadline import deadline
from policy.model.frozen import dataclass
from policy.model.verdict import Problem, ProblemError
from runner import VERSION
from runner.lsp.presets import language_of

MOST_DIAGNOSTICS = 500  # of one file
_MOST_FILES = 2_000  # files whose diagnostics are kept
_MOST_WAITING = 8 << 20  # bytes that a server does not read
_MOST_OPEN = 32  # documents that are open at the same time
_PARTING = deadline(1.0)  # seconds that a server has to answer to `shutdown`
_SETTLING = 0.3  # seconds that diagnostics may still change after the first ones

_PROVIDERS = (
    "definitionProvider", "referencesProvider", "documentSymbolProvider", "workspaceSymbolProvider", "hoverProvider",
    "renameProvider",
)  # fmt: skip

# The library logs what it receives. What a server sends belongs to no log of this program.
logging.getLogger("pygls").addHandler(logging.NullHandler())
logging.getLogger("pygls").propagate = False


class LanguageServerError(ProblemError):
    """The error for a server that answers with an error, too late, or with what the protocol does not allow."""


@dataclass(frozen=True, slots=True)
class CodePlace:
    """A place in a file that a server names. Nothing about it is checked.

    Attributes:
        path: The absolute path; empty if the address is that of no file on this machine.
        line: The line, from 0.
        units: The column in units of the encoding that was agreed on, from 0.
        name: The name of the symbol there; empty if the server names none.
        kind: The kind of the symbol.
        inside: The name of the symbol around it.
    """

    path: str
    line: int
    units: int
    name: str = ""
    kind: str = ""
    inside: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One diagnostic of a file. The text is that of the server.

    Attributes:
        severity: 1 for an error, 2 for a warning, 3 for information, 4 for a hint.
        line: The line, from 0.
        units: The column in units of the encoding that was agreed on, from 0.
        code: The code of the rule; empty without one.
    """

    severity: int
    line: int
    units: int
    text: str
    code: str = ""

    @property
    def same(self) -> tuple[int, str, str]:
        """Return what stays the same if the lines above change."""
        return self.severity, self.code, self.text


@dataclass(frozen=True, slots=True)
class TextChange:
    """One change of a text: lines and units of its start and end, from 0, and the new text."""

    line: int
    units: int
    end_line: int
    end_units: int
    text: str


class _Protocol(JsonRPCProtocol):
    """The protocol with the messages of LSP, and without any feature of its own.

    THREAT T263: the library's own class for language servers answers `exit` by ending this process, and opens files.
    """

    def get_message_type(self, method: str) -> type[Any] | None:
        return lsp.METHOD_TO_TYPES.get(method, (None,))[0]

    def get_result_type(self, method: str) -> type[Any] | None:
        return lsp.METHOD_TO_TYPES.get(method, (None, None))[1]


class _Outgoing:
    """The messages that wait until the server reads them, as the writer of the library."""

    def __init__(self, send: Callable[[bytes], Any], broken: Callable[[str], None]) -> None:
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._waiting = 0
        self._broken, self._send = broken, send
        self._task = asyncio.create_task(self._drain())

    def write(self, data: bytes) -> None:
        self._waiting += len(data)
        if self._waiting > _MOST_WAITING:
            self._broken("it does not read what it is sent")
            return
        self._queue.put_nowait(data)

    def close(self) -> None:
        self._task.cancel()

    async def _drain(self) -> None:
        with contextlib.suppress(BrokenPipeError):  # the end of the process is noticed elsewhere
            while True:
                data = await self._queue.get()
                await self._send(data)
                self._waiting -= len(data)


class LanguageClient:
    """A connection to one language server.

    Attributes:
        refused: The names of requests of the server that were refused.
        said: The last message of the server for the user.
        broken: Why the connection cannot be used any more; empty while it can.
    """

    def __init__(
        self, name: str, root: str, settings: dict[str, Any], send: Callable[[bytes], Any], fault: Callable[[str], None]
    ) -> None:
        self.name, self._root, self._settings, self._fault = name, root, settings, fault
        self.refused: dict[str, int] = {}
        self.said = ""
        self.broken = ""
        self._client = JsonRPCClient(_Protocol, default_converter)
        self._protocol = self._client.protocol
        self._outgoing = _Outgoing(send, fault)
        self._protocol.set_writer(self._outgoing)
        self._able = lsp.ServerCapabilities()
        self._pulls = False  # True if the server gives diagnostics when it is asked
        self._codec = PositionCodec(lsp.PositionEncodingKind.Utf16)
        self._documents: dict[str, tuple[int, str]] = {}  # by path: the version and the text, least recently used first
        self._found: dict[str, tuple[Diagnosis, ...]] = {}  # by path: the diagnostics that the server sent last
        self._published: dict[str, asyncio.Event] = {}
        self._count = 0
        self._features()

    def _features(self) -> None:
        """Register the answers to the few requests that are not refused, and the notifications that are read."""
        feature = self._client.feature
        answers: dict[str, Callable[[Any], Any]] = {
            lsp.WORKSPACE_CONFIGURATION: self._configuration,
            lsp.WORKSPACE_WORKSPACE_FOLDERS: lambda params: [self._folder],
            lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS: self._publish,
            lsp.WINDOW_SHOW_MESSAGE: self._note,
            lsp.WINDOW_LOG_MESSAGE: self._note,
        }
        for method, answer in answers.items():
            feature(method)(_plain(answer))  # the library marks the function, which no method allows

    # ---- messages

    _ANSWERED = (lsp.WORKSPACE_CONFIGURATION, lsp.WORKSPACE_WORKSPACE_FOLDERS)
    _READ = (lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS, lsp.WINDOW_SHOW_MESSAGE, lsp.WINDOW_LOG_MESSAGE)

    def take(self, message: dict[str, Any]) -> None:
        """Take one message of the server.

        THREAT T263: a server may ask its client to edit files, run commands, show documents or watch files. Every
        request is refused but those for its own settings and for the folder that it was told already.
        """
        method, id = message.get("method"), message.get("id")
        if id is not None and not isinstance(id, str | int):
            return
        if method is None:
            self._response(message)
        elif not isinstance(method, str):
            return
        elif id is not None and method not in self._ANSWERED:
            self._refuse(method, id)
        elif id is not None or method in self._READ:
            self._pass_on(message)

    def _response(self, message: dict[str, Any]) -> None:
        id = message.get("id")
        future = self._protocol._request_futures.get(id) if isinstance(id, str) else None
        if future is None or not isinstance(id, str):
            return  # it answers to nothing, or too late
        if self._protocol._result_types.get(id) is lsp.InitializeResponse:
            message = self._capabilities(message)
        if not self._pass_on(message) or not future.done():
            self._protocol._request_futures.pop(id, None)
            if not future.done():
                future.set_exception(self._error("its answer is not what the protocol allows"))

    def _capabilities(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the first answer of the server with those of its abilities that this client uses, as true or false.

        The library refuses the whole answer for details of other abilities, such as notebooks.
        """
        result = message.get("result")
        able = result.get("capabilities") if isinstance(result, dict) else None
        if not isinstance(able, dict):
            return message
        self._pulls = isinstance(able.get("diagnosticProvider"), dict)
        kept = {name: True for name in _PROVIDERS if able.get(name) not in (None, False)}
        encoding = able.get("positionEncoding")
        return {**message, "result": {"capabilities": kept | ({"positionEncoding": encoding} if encoding else {})}}

    def _pass_on(self, message: dict[str, Any]) -> bool:
        """Pass a message to the library. Return False for a message that is not what the protocol allows."""
        try:
            self._protocol.handle_message(self._protocol.structure_message({**message, "jsonrpc": "2.0"}))
        except Exception:  # the named seam: the library raises many kinds of errors for what a server sends
            return False
        return True

    def _refuse(self, method: str, id: str | int) -> None:
        known = method if method in lsp.METHOD_TO_TYPES else "another request"
        self.refused[known] = self.refused.get(known, 0) + 1
        error = lsp.ResponseError(lsp.ErrorCodes.MethodNotFound.value, "this client does not do that")
        self._protocol._send_response(id, error=error)

    def _configuration(self, params: lsp.ConfigurationParams) -> list[Any]:
        found: list[Any] = []
        for item in params.items[:100]:
            value: Any = self._settings
            for part in (item.section or "").split(".") if item.section else ():
                value = value.get(part) if isinstance(value, dict) else None
            found.append(value)
        return found

    def _note(self, params: lsp.ShowMessageParams | lsp.LogMessageParams) -> None:
        if params.type in (lsp.MessageType.Error, lsp.MessageType.Warning):
            self.said = params.message[:1000]

    def _publish(self, params: lsp.PublishDiagnosticsParams) -> None:
        path = path_of(params.uri)
        document = self._documents.get(path)
        if document is None and len(self._found) >= _MOST_FILES:
            return
        if document is not None and params.version is not None and params.version < document[0]:
            return  # about an earlier text
        self._found[path] = tuple(map(_diagnosis, params.diagnostics[:MOST_DIAGNOSTICS]))
        if (event := self._published.get(path)) is not None:
            event.set()

    # ---- the start and the end

    @property
    def _folder(self) -> lsp.WorkspaceFolder:
        return lsp.WorkspaceFolder(uri=_uri(self._root), name=self._root.rpartition("/")[2] or "workspace")

    async def open(self, options: dict[str, Any] | None, seconds: float) -> None:
        """Agree on what both sides can do. Raise LanguageServerError."""
        formats = [lsp.MarkupKind.PlainText, lsp.MarkupKind.Markdown]
        document = lsp.TextDocumentClientCapabilities(
            synchronization=lsp.TextDocumentSyncClientCapabilities(did_save=True),
            definition=lsp.DefinitionClientCapabilities(link_support=True),
            references=lsp.ReferenceClientCapabilities(),
            hover=lsp.HoverClientCapabilities(content_format=formats),
            document_symbol=lsp.DocumentSymbolClientCapabilities(hierarchical_document_symbol_support=True),
            rename=lsp.RenameClientCapabilities(prepare_support=False),
            publish_diagnostics=lsp.PublishDiagnosticsClientCapabilities(version_support=True),
            diagnostic=lsp.DiagnosticClientCapabilities(),
        )
        workspace = lsp.WorkspaceClientCapabilities(
            apply_edit=False,
            configuration=True,
            workspace_folders=True,
            symbol=lsp.WorkspaceSymbolClientCapabilities(),
            workspace_edit=lsp.WorkspaceEditClientCapabilities(document_changes=True),
        )
        general = lsp.GeneralClientCapabilities(
            position_encodings=[lsp.PositionEncodingKind.Utf32, lsp.PositionEncodingKind.Utf16]
        )
        able = lsp.ClientCapabilities(workspace=workspace, text_document=document, general=general)
        params = lsp.InitializeParams(
            capabilities=able,
            process_id=None,  # the process is not visible in the sandbox of the server
            client_info=lsp.ClientInfo(name="ringfence", version=VERSION),
            root_uri=_uri(self._root),
            workspace_folders=[self._folder],
            initialization_options=options,
        )
        result = await self.request(lsp.INITIALIZE, params, seconds)
        self._able = result.capabilities
        if (encoding := self._able.position_encoding) is not None:
            self._codec = PositionCodec(encoding)
        self._protocol.notify(lsp.INITIALIZED, lsp.InitializedParams())
        if self._settings:
            self._protocol.notify(
                lsp.WORKSPACE_DID_CHANGE_CONFIGURATION, lsp.DidChangeConfigurationParams(settings=self._settings)
            )

    async def close(self) -> None:
        """Ask the server to end."""
        if not self.broken:
            with contextlib.suppress(LanguageServerError):
                await self.request(lsp.SHUTDOWN, None, _PARTING)
                self._protocol.notify(lsp.EXIT, None)
                await asyncio.sleep(0)
        self.end("it was ended")

    def end(self, why: str) -> None:
        """Let every request fail, because the process has ended or is being ended."""
        self.broken = self.broken or why
        self._outgoing.close()
        for future in tuple(self._protocol._request_futures.values()):
            if not future.done():
                future.set_exception(self._error(self.broken))
        self._protocol._request_futures.clear()
        for event in self._published.values():
            event.set()

    async def request(self, method: str, params: Any, seconds: float) -> Any:
        """Send a request and return the result. Raise LanguageServerError."""
        if self.broken:
            raise self._error(self.broken)
        self._count += 1
        id = str(self._count)
        sent = self._protocol.send_request(method, params, msg_id=id)
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.wrap_future(sent)
        except TimeoutError:
            why = f"it gave no answer in {seconds:g} s"
            self._protocol.notify(lsp.CANCEL_REQUEST, lsp.CancelParams(id))
        except LanguageServerError:
            raise
        except asyncio.CancelledError:
            raise
        except Exception as error:  # the named seam: the library has many kinds of errors
            why = f"it answers with an error: {str(error)[:300]}"
        finally:
            self._protocol._request_futures.pop(id, None)
            self._protocol._result_types.pop(id, None)
        raise self._error(why)

    def _error(self, why: str) -> LanguageServerError:
        return LanguageServerError(Problem(f"the language server `{self.name}` did not answer", why, "see `/lsp`"))

    # ---- documents

    def text(self, path: str) -> str | None:
        """Return the text of an open document, or None."""
        document = self._documents.get(path)
        return document[1] if document is not None else None

    @property
    def open_paths(self) -> tuple[str, ...]:
        """Return the paths of the open documents."""
        return tuple(self._documents)

    def show(self, path: str, text: str) -> None:
        """Open the document, or tell its new text. The server reads this text in place of the file."""
        if (document := self._documents.pop(path, None)) is not None:
            version, before = document
            if before == text:
                self._documents[path] = document  # the most recently used one
                return
            self._documents[path] = (version + 1, text)
            self._expect(path)
            whole = lsp.TextDocumentContentChangeWholeDocument(text=text)
            changed = lsp.VersionedTextDocumentIdentifier(version=version + 1, uri=_uri(path))
            self._protocol.notify(
                lsp.TEXT_DOCUMENT_DID_CHANGE, lsp.DidChangeTextDocumentParams(changed, content_changes=[whole])
            )
            saved = lsp.DidSaveTextDocumentParams(lsp.TextDocumentIdentifier(uri=_uri(path)), text=text)
            self._protocol.notify(lsp.TEXT_DOCUMENT_DID_SAVE, saved)
            return
        while len(self._documents) >= _MOST_OPEN:
            self.hide(next(iter(self._documents)))
        self._documents[path] = (1, text)
        self._expect(path)
        item = lsp.TextDocumentItem(uri=_uri(path), language_id=language_of(path), version=1, text=text)
        self._protocol.notify(lsp.TEXT_DOCUMENT_DID_OPEN, lsp.DidOpenTextDocumentParams(text_document=item))

    def hide(self, path: str) -> None:
        """Close the document, if it is open."""
        if self._documents.pop(path, None) is not None:
            identifier = lsp.TextDocumentIdentifier(uri=_uri(path))
            self._protocol.notify(lsp.TEXT_DOCUMENT_DID_CLOSE, lsp.DidCloseTextDocumentParams(identifier))
        self._published.pop(path, None)

    def files_changed(self, changes: list[tuple[str, str]]) -> None:
        """Tell the server which files have changed: pairs of a path and `created`, `changed` or `deleted`."""
        kinds = {"created": lsp.FileChangeType.Created, "deleted": lsp.FileChangeType.Deleted}
        events = [lsp.FileEvent(_uri(path), kinds.get(kind, lsp.FileChangeType.Changed)) for path, kind in changes]
        self._protocol.notify(lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES, lsp.DidChangeWatchedFilesParams(events))

    def _expect(self, path: str) -> None:
        """Wait for new diagnostics of the document from now on."""
        self._published[path] = asyncio.Event()

    # ---- positions

    def units(self, lines: list[str], line: int, column: int) -> lsp.Position:
        """Return the position of a character as the server counts."""
        return self._codec.position_to_client_units(lines, lsp.Position(line, column))

    def column(self, lines: list[str], line: int, units: int) -> int:
        """Return the column of a position of the server as a count of characters."""
        if not 0 <= line < len(lines):
            return 0
        return self._codec.position_from_client_units(lines, lsp.Position(line, max(units, 0))).character

    # ---- questions

    def can(self, operation: str) -> bool:
        """Return True if the server states that it answers this kind of question."""
        able = self._able
        stated = {
            "definition": able.definition_provider,
            "references": able.references_provider,
            "symbols": able.document_symbol_provider,
            "workspace_symbols": able.workspace_symbol_provider,
            "hover": able.hover_provider,
            "rename": able.rename_provider,
            "diagnostics": True,
        }
        return stated.get(operation) not in (None, False)

    async def definition(self, path: str, at: Any, seconds: float) -> list[CodePlace]:
        """Return the places of the definition. Raise LanguageServerError."""
        params = lsp.DefinitionParams(lsp.TextDocumentIdentifier(_uri(path)), at)
        return _places(await self.request(lsp.TEXT_DOCUMENT_DEFINITION, params, seconds))

    async def references(self, path: str, at: Any, seconds: float) -> list[CodePlace]:
        """Return the places of the references, the declaration among them. Raise LanguageServerError."""
        context = lsp.ReferenceContext(include_declaration=True)
        params = lsp.ReferenceParams(context, lsp.TextDocumentIdentifier(_uri(path)), at)
        return _places(await self.request(lsp.TEXT_DOCUMENT_REFERENCES, params, seconds))

    async def hover(self, path: str, at: Any, seconds: float) -> str:
        """Return what the server says about a symbol. Raise LanguageServerError."""
        params = lsp.HoverParams(lsp.TextDocumentIdentifier(_uri(path)), at)
        found = await self.request(lsp.TEXT_DOCUMENT_HOVER, params, seconds)
        if found is None:
            return ""
        contents = found.contents if isinstance(found.contents, list | tuple) else [found.contents]
        return "\n\n".join(each if isinstance(each, str) else each.value for each in contents)

    async def symbols(self, path: str, seconds: float) -> list[CodePlace]:
        """Return the symbols of a document. Raise LanguageServerError."""
        params = lsp.DocumentSymbolParams(lsp.TextDocumentIdentifier(_uri(path)))
        found: list[CodePlace] = []
        waiting = [(each, "") for each in await self.request(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL, params, seconds) or ()]
        while waiting:
            each, inside = waiting.pop(0)
            if isinstance(each, lsp.DocumentSymbol):
                start = each.selection_range.start
                found.append(CodePlace(path, start.line, start.character, each.name, _kind(each.kind), inside))
                waiting[:0] = [(child, each.name) for child in each.children or ()]
            else:
                found.append(_symbol(each))
        return found

    async def workspace_symbols(self, query: str, seconds: float) -> list[CodePlace]:
        """Return the symbols of the workspace that match `query`. Raise LanguageServerError."""
        params = lsp.WorkspaceSymbolParams(query)
        return [_symbol(each) for each in await self.request(lsp.WORKSPACE_SYMBOL, params, seconds) or ()]

    async def diagnostics(self, path: str, seconds: float) -> tuple[Diagnosis, ...] | None:
        """Return the diagnostics of an open document, or None if the server sends none in time.

        Raise LanguageServerError.
        """
        if self._pulls:
            params = lsp.DocumentDiagnosticParams(lsp.TextDocumentIdentifier(_uri(path)))
            report = await self.request(lsp.TEXT_DOCUMENT_DIAGNOSTIC, params, seconds)
            items = getattr(report, "items", None)
            if items is not None:
                self._found[path] = tuple(map(_diagnosis, items[:MOST_DIAGNOSTICS]))
            return self._found.get(path)
        event = self._published.get(path)
        if event is not None and not event.is_set():
            try:
                async with asyncio.timeout(seconds):
                    await event.wait()
                    await asyncio.sleep(min(_SETTLING, seconds))
            except TimeoutError:
                if not event.is_set():
                    return None
        if self.broken:
            raise self._error(self.broken)
        return self._found.get(path)

    async def rename(self, path: str, at: Any, name: str, seconds: float) -> dict[str, list[TextChange]]:
        """Return the changes of each file for a new name. Raise LanguageServerError.

        THREAT T262: an answer that creates, renames or deletes files is refused as a whole.
        """
        params = lsp.RenameParams(lsp.TextDocumentIdentifier(_uri(path)), at, name)
        edit = await self.request(lsp.TEXT_DOCUMENT_RENAME, params, seconds)
        found: dict[str, list[TextChange]] = {}
        if edit is None:
            return found
        for each in edit.document_changes or ():
            if not isinstance(each, lsp.TextDocumentEdit):
                raise self._error("its answer creates, renames or deletes files, which is not done for a server")
            found.setdefault(path_of(each.text_document.uri), []).extend(map(self._change, each.edits))
        for uri, edits in (edit.changes or {}).items() if not edit.document_changes else ():
            found.setdefault(path_of(uri), []).extend(map(self._change, edits))
        return found

    def _change(self, edit: Any) -> TextChange:
        text = getattr(edit, "new_text", None)
        if text is None:
            raise self._error("its answer contains a snippet, which is no text")
        start, end = edit.range.start, edit.range.end
        return TextChange(start.line, start.character, end.line, end.character, text)


def _plain(answer: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return `answer` as a function."""

    def answered(params: Any) -> Any:
        return answer(params)

    return answered


def path_of(uri: str) -> str:
    """Return the absolute path of a `file:` address of this machine; an empty text for any other address."""
    if not uri.startswith("file:///") or len(uri) > 8192:
        return ""
    try:
        path = to_fs_path(uri)
    except ValueError:
        return ""
    if not path or not path.startswith("/") or path.startswith("//") or "\0" in path or ".." in path.split("/"):
        return ""
    return str(path)


def _uri(path: str) -> str:
    uri = from_fs_path(path)
    assert uri is not None  # the path is absolute
    return str(uri)


def _kind(kind: lsp.SymbolKind) -> str:
    return str(kind.name).lower()


def _symbol(each: lsp.SymbolInformation | lsp.WorkspaceSymbol) -> CodePlace:
    location = each.location
    start = location.range.start if isinstance(location, lsp.Location) else lsp.Position(0, 0)
    inside = each.container_name or ""
    return CodePlace(path_of(location.uri), start.line, start.character, each.name, _kind(each.kind), inside)


def _places(result: Any) -> list[CodePlace]:
    found: list[CodePlace] = []
    for each in result if isinstance(result, list | tuple) else [result] if result is not None else ():
        if isinstance(each, lsp.LocationLink):
            start, uri = each.target_selection_range.start, each.target_uri
        else:
            start, uri = each.range.start, each.uri
        found.append(CodePlace(path_of(uri), start.line, start.character))
    return found


def _diagnosis(each: lsp.Diagnostic) -> Diagnosis:
    severity = each.severity.value if each.severity is not None else 1
    start, message = each.range.start, each.message
    code = str(each.code) if isinstance(each.code, str | int) else ""
    return Diagnosis(severity, start.line, start.character, message[:2000], code[:100])
