"""The offer of a tool server: tools, resources and prompts, as plain data without the protocol library.

All texts are untrusted: they are the words of the server.
"""

from collections.abc import Mapping
from dataclasses import field

from policy.model.frozen import dataclass

JsonObject = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """One tool of a server, as the server describes it.

    Attributes:
        name: The name at the server.
        input_schema: The JSON Schema of the arguments.
        output_schema: The JSON Schema of structured results, or None.
        annotations: Hints of the server, such as `destructiveHint`. They can raise a tier and never lower one.
    """

    name: str
    title: str = ""
    description: str = ""
    input_schema: JsonObject = field(default_factory=dict)
    output_schema: JsonObject | None = None
    annotations: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OfferedResource:
    """One resource of a server, or a template of resources. `uri` is a URI template (RFC 6570) if `template`."""

    uri: str
    name: str = ""
    title: str = ""
    description: str = ""
    media_type: str = ""
    template: bool = False


@dataclass(frozen=True, slots=True)
class OfferedPrompt:
    """One prompt of a server. `arguments` are triples of name, description, and whether the argument is required."""

    name: str
    title: str = ""
    description: str = ""
    arguments: tuple[tuple[str, str, bool], ...] = ()


@dataclass(frozen=True, slots=True)
class ServerOffer:
    """Everything that a server offers at one moment.

    Attributes:
        protocol: The revision of the protocol that client and server agreed on, such as `2025-11-25`.
        title: The name and the version that the server states. They never tell servers apart.
        instructions: The text of the server for the model.
    """

    protocol: str = ""
    title: str = ""
    instructions: str = ""
    tools: tuple[OfferedTool, ...] = ()
    resources: tuple[OfferedResource, ...] = ()
    prompts: tuple[OfferedPrompt, ...] = ()


@dataclass(frozen=True, slots=True)
class ServerReply:
    """The result of a call, a resource or a prompt, as plain data.

    Attributes:
        content: Blocks as in the protocol: `{"type": "text", "text": ...}`, `{"type": "image", "data": base64,
            "mimeType": ...}`, `{"type": "resource", "resource": {...}}`, `{"type": "resource_link", ...}`.
        structured: The structured result, or None.
        failed: True if the server reports that the tool failed.
    """

    content: tuple[JsonObject, ...] = ()
    structured: JsonObject | None = None
    failed: bool = False
