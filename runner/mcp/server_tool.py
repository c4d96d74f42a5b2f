"""The tools of tool servers as tools of the model: `mcp__SERVER__TOOL` for each, and `mcp_resource` for resources.

THREAT T187: a result is text of the server. It is put between tags that it cannot close, its invisible and control
characters are spelled out, and nothing that it names is fetched.
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Annotated

from pydantic import Field

from policy.interpreter.tool_call import DESTRUCTIVE
from policy.model.action import CallServerTool, ReadServerResource
from policy.model.frozen import dataclass
from policy.model.profile import Layer
from policy.model.tool_arguments import canonical
from policy.model.tool_names import SERVER, certain_server, meets_name
from policy.model.verdict import Problem
from runner.mcp.pins import tool_digest
from runner.mcp.server_config import ServerConfig
from runner.text.phrases import many
from runner.text.sanitize import marked, one_line, visible_prose
from tools.file_result import tell
from tools.paths import SeenFiles
from tools.schema_check import faults, without_needless_null
from tools.server_offer import JsonObject, OfferedResource, OfferedTool
from tools.text import BYTES, LINES, count, size
from tools.tool import Arguments, Finished, ImagePart, Keep, ResultPart, TextPart

_LONGEST_ARGUMENTS = 1 << 20  # characters of canonical JSON
_LONGEST_URI = 4096  # characters
_LARGEST_IMAGE = 5 << 20  # characters of base64
_MOST_IMAGES = 8
_MOST_LISTED = 30  # resources in the description of `mcp_resource`
_SHOWN = 200  # characters of a name or an address
_CALLABLE = re.compile(r"[A-Za-z0-9_-]{1,64}")  # SOURCE: names that the interfaces of all providers accept
_IMAGES = ((b"\x89PNG\r\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))

# The annotations of the protocol that become hints. Each can only make the verdict stricter.
_HINTS = (
    ("destructiveHint", DESTRUCTIVE),
    ("openWorldHint", "open-world"),
    ("readOnlyHint", "read-only"),
    ("idempotentHint", "idempotent"),
)


def hints_of(tool: OfferedTool) -> tuple[str, ...]:
    """Return the hints of a tool. Every value of a hint but false counts as true, so that none is lost by its type."""
    return tuple(hint for name, hint in _HINTS if tool.annotations.get(name, False) not in (False, None))


def tier_for(config: ServerConfig, tool: str) -> str:
    """Return the tier that the user's own configuration names for a tool: the first pattern that matches counts.

    A file of the repository chooses no tier, whether or not the user trusts it.
    """
    if config.layer in (Layer.REPOSITORY, Layer.TRUSTED):
        return ""
    return next((tier for pattern, tier in config.tiers if meets_name((pattern,), tool, allows=True)), "")


def model_name(server: str, tool: str) -> str:
    """Return the name by which the model calls a tool. It is the name of the tool in rules, unless the interfaces of
    providers refuse that one: then other characters are replaced, and a digest tells such names apart.
    """
    name = f"{SERVER}{server}__{tool}"
    if _CALLABLE.fullmatch(name):
        return name
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{re.sub('[^A-Za-z0-9_-]', '_', name)[:51]}_{digest}"


class ServerArguments:
    """The arguments of one tool, by the JSON Schema of its server."""

    def __init__(self, schema: JsonObject) -> None:
        self._schema = schema

    def schema_for_model(self) -> dict[str, object]:
        """Return the schema with its descriptions and titles in safe characters."""
        shown = _shown(self._schema)
        found = dict(shown) if isinstance(shown, dict) else {}
        found.setdefault("type", "object")
        found.setdefault("properties", {})
        return found

    def checked(self, arguments: Mapping[str, object]) -> Mapping[str, object] | list[str]:
        """Return the arguments for the server, or the faults."""
        given = without_needless_null(self._schema, arguments)
        return faults(self._schema, given) or given


def _shown(value: object, key: str = "") -> object:
    """Return a JSON value whose describing texts are safe. Names and values that a call uses stay as they are."""
    if isinstance(value, Mapping):
        return {name: _shown(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [_shown(inner, key) for inner in value]
    return visible_prose(value) if isinstance(value, str) and key in ("description", "title", "$comment") else value


class ServerTool:
    """One tool of a server as a tool of the model.

    Attributes:
        server: The name that the user gave to the server.
        offered: The tool as the server describes it.
    """

    def __init__(self, config: ServerConfig, offered: OfferedTool) -> None:
        self.server, self.offered = config.name, offered
        self.name = model_name(config.name, offered.name)
        title = f" ({one_line(offered.title, _SHOWN)})" if offered.title else ""
        self.description = f"[server {config.name}]{title} {visible_prose(offered.description)}".rstrip()
        self.Args = ServerArguments(offered.input_schema)
        self.tier = tier_for(config, offered.name)
        self._hints = hints_of(offered)

    @property
    def example(self) -> str:
        """Return a call with the required arguments, as JSON text."""
        return json.dumps(_example(self.offered.input_schema))

    def plan(self, args: Mapping[str, object], cwd: str, seen: SeenFiles) -> CallServerTool | Problem:
        """Return the call of the tool with exactly these arguments."""
        what = f"`{self.name}` cannot be called"
        try:
            arguments = canonical(args)
        except (ValueError, RecursionError):
            return Problem(what, "the arguments are nested too deeply or are no JSON", "send simpler arguments")
        if len(arguments) > _LONGEST_ARGUMENTS:
            why = f"its arguments are {size(len(arguments))} long; at most {size(_LONGEST_ARGUMENTS)} are allowed"
            return Problem(what, why, "send less, or the path of a file if the server can read it")
        pin = tool_digest(self.offered)
        return CallServerTool(self.server, self.offered.name, arguments, self._hints, self.tier, pin)

    def render(
        self, action: CallServerTool, finished: Finished, seen: SeenFiles, *, keep: Keep | None = None
    ) -> tuple[ResultPart, ...]:
        """Return the result as text of the server, and its images."""
        return rendered(action.server, action.name, finished, keep)


def _example(schema: JsonObject) -> dict[str, object]:
    samples = {"string": "...", "integer": 1, "number": 1, "boolean": True, "array": [], "object": {}}
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, Mapping) or not isinstance(required, list):
        return {}
    found: dict[str, object] = {}
    for name in required[:6]:
        one = properties.get(name) if isinstance(name, str) else None
        if isinstance(one, Mapping):
            choices, kind = one.get("enum"), one.get("type")
            given = choices[0] if isinstance(choices, list) and choices else None
            found[name] = given if given is not None else samples.get(kind, "...") if isinstance(kind, str) else "..."
    return found


class ResourceArgs(Arguments):
    server: Annotated[str, Field(min_length=1, max_length=64, description="Name of the server.")]
    uri: Annotated[str, Field(min_length=1, max_length=_LONGEST_URI, description="Address of the resource.")]


class ReadResourceTool:
    """The tool that reads resources. `resources` are those of the session's servers, by server."""

    name = "mcp_resource"
    example = '{"server": "docs", "uri": "docs://page/1"}'
    Args = ResourceArgs

    def __init__(self, resources: Mapping[str, Sequence[OfferedResource]]) -> None:
        self._resources = resources

    @property
    def description(self) -> str:
        """Return the description with the first resources. Their names are text of the servers."""
        rows = [(server, each) for server, listed in self._resources.items() for each in listed]
        lines = [_resource_line(server, each) for server, each in rows[:_MOST_LISTED]]
        if len(rows) > _MOST_LISTED:
            lines.append(f"- and {len(rows) - _MOST_LISTED:,} more")
        return "\n".join(["Read a resource of a tool server by its address. The servers list:", *lines])

    def plan(self, args: ResourceArgs, cwd: str, seen: SeenFiles) -> ReadServerResource | Problem:
        """Return the reading of one resource of a server of this session."""
        if args.server not in self._resources or not certain_server(args.server):
            names = ", ".join(f"`{name}`" for name in self._resources) or "none"
            return Problem(
                f"no server `{one_line(args.server, 64)}` has resources", f"the servers are {names}", "name one"
            )
        if not args.uri.isprintable():
            return Problem("the address of the resource is not plain", "it has control characters", "leave them out")
        return ReadServerResource(args.server, args.uri)

    def render(
        self, action: ReadServerResource, finished: Finished, seen: SeenFiles, *, keep: Keep | None = None
    ) -> tuple[ResultPart, ...]:
        """Return the resource as text of the server, and its images."""
        return rendered(action.server, action.uri, finished, keep)


def _resource_line(server: str, resource: OfferedResource) -> str:
    kind = " (a template: fill in the braces)" if resource.template else ""
    name = one_line(resource.title or resource.name, 80)
    return f"- {server}: {one_line(resource.uri, _SHOWN)}{kind}{f' - {name}' if name else ''}"


# ---- results


@dataclass(frozen=True, slots=True)
class _Rendering:
    """The parts of a result: lines of text, and images."""

    texts: list[str]
    images: list[ImagePart]


def rendered(server: str, what: str, finished: Finished, keep: Keep | None) -> tuple[ResultPart, ...]:
    """Return the reply of a server for the model: `what` is the tool or the resource. `finished.data` has the fields
    `content`, `structured` and `failed` of a `ServerReply`.
    """
    if finished.problem is not None:  # its reason may be a message of the server
        told = marked("server-result", visible_prose(tell(finished.problem)), server=server, source=what)
        return (TextPart(f"[the call failed]\n{told}"),)
    data, found = finished.data, _Rendering([], [])
    content = data.get("content")
    for block in content if isinstance(content, list | tuple) else ():
        if isinstance(block, Mapping):
            _block(block, found)
    structured = data.get("structured")
    if structured is not None and not _is_shown(structured, content):
        found.texts.append(_json(structured))
    whole = "\n".join(text.removesuffix("\n") for text in found.texts)
    begun, cut = _cut(whole)  # before its characters are spelled out, which takes time for megabytes
    shown, more = _cut(visible_prose(begun))
    cut = cut or more
    notes = [cut + _kept(whole, keep)] if cut else []
    if data.get("failed") is True:
        notes.insert(0, "[the server reports that the tool failed]")
    body = marked("server-result", shown, server=server, source=what) if shown else "[the result has no text]"
    if found.images and not shown:
        body = f"[the result is {many(len(found.images), 'image')}]"
    return (TextPart("\n".join([*notes, body])), *found.images)


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, indent=1)
    except (TypeError, ValueError, RecursionError):
        return "[the structured result is nested too deeply to be shown]"


def _block(block: Mapping[str, object], found: _Rendering) -> None:
    """Add one block of a result."""
    match block.get("type"):
        case "text":
            found.texts.append(_text(block, "text"))
        case "image":
            _image(_text(block, "data"), _text(block, "mimeType"), found)
        case "resource":
            resource = block.get("resource")
            if isinstance(resource, Mapping):
                _embedded(resource, found)
        case "resource_link":
            name = one_line(_text(block, "title") or _text(block, "name"), 80)
            found.texts.append(f"[a resource, not read: {one_line(_text(block, 'uri'), _SHOWN)} {name}".rstrip() + "]")
        case kind:
            what = one_line(str(kind), 40)
            found.texts.append(f"[a block of the type `{what}` is left out: the program cannot show it]")


def _embedded(resource: Mapping[str, object], found: _Rendering) -> None:
    uri, media = one_line(_text(resource, "uri"), _SHOWN), _text(resource, "mimeType")
    blob = _text(resource, "blob")
    if not blob:
        found.texts.append(f"[resource {uri}]\n{_text(resource, 'text')}")
    elif media.startswith("image/"):
        found.texts.append(f"[resource {uri}, an image]")
        _image(blob, media, found)
    else:
        found.texts.append(
            f"[resource {uri}: {size(len(blob) * 3 // 4)} of {one_line(media, 60) or 'binary data'}, left out]"
        )


def _image(data: str, media: str, found: _Rendering) -> None:
    """Add an image, or say why it is left out. Its first bytes decide about its type: a provider refuses a whole
    request in which the stated type is another one.
    """
    kind = _image_type(data)
    if kind and len(data) <= _LARGEST_IMAGE and len(found.images) < _MOST_IMAGES:
        found.images.append(ImagePart(kind, data))
        return
    why = "it is no PNG, JPEG, GIF or WebP image"
    if kind:
        large = len(data) > _LARGEST_IMAGE
        why = f"it is larger than {size(_LARGEST_IMAGE)}" if large else f"at most {_MOST_IMAGES} images are shown"
    found.texts.append(f"[an image ({one_line(media, 60)}) is left out: {why}]")


def _image_type(data: str) -> str:
    try:
        start = base64.b64decode(data[:64], validate=True)
        if len(data) <= _LARGEST_IMAGE:
            base64.b64decode(data, validate=True)
    except (ValueError, binascii.Error):
        return ""
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _IMAGES if start.startswith(magic)), "")


def _is_shown(structured: object, content: object) -> bool:
    """Return True if a text block is the JSON of the structured result: servers send both for older clients."""
    for block in content if isinstance(content, list | tuple) else ():
        text = block.get("text") if isinstance(block, Mapping) else None
        if isinstance(text, str) and text[:1] in "{[":
            try:
                if json.loads(text) == structured:
                    return True
            except (ValueError, RecursionError):
                continue
    return False


def _cut(text: str) -> tuple[str, str]:
    """Return the beginning of a text that a model can use, and a marker if something is missing."""
    lines = text.split("\n")
    kept: list[str] = []
    room = BYTES
    for line in lines[:LINES]:
        room -= len(line.encode("utf-8", "replace")) + 1
        if room < 0:
            break
        kept.append(line)
    if not kept and text:  # one line that alone is too long
        kept = [text.encode("utf-8", "replace")[:BYTES].decode("utf-8", "ignore").partition("\n")[0]]
    shown = "\n".join(kept)
    if len(shown) == len(text):
        return text, ""
    missing = len(text.encode("utf-8", "replace")) - len(shown.encode("utf-8", "replace"))
    return shown, f"[cut from the end: {count(len(lines) - len(kept), 'line')} ({size(missing)})"


def _kept(text: str, keep: Keep | None) -> str:
    """Return the end of the marker, with the path of the whole text if it could be stored."""
    try:
        path = keep(text.encode("utf-8", "replace"), b"") if keep is not None else None
    except OSError:
        path = None
    return f"; the whole text is in {path}]" if path else "]"


def _text(block: Mapping[str, object], name: str) -> str:
    value = block.get(name)
    return value if isinstance(value, str) else ""
