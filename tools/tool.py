"""The interface of a tool: it plans an action, and later renders the result. A tool never acts, and never sees the
sandbox.
"""

import difflib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict

from policy.model.action import Action
from policy.model.frozen import dataclass
from policy.model.tool_names import SERVER
from policy.model.verdict import Problem
from tools.paths import SeenFiles
from tools.text import short


@dataclass(frozen=True, slots=True)
class TextPart:
    text: str


@dataclass(frozen=True, slots=True)
class ImagePart:
    media_type: str  # image/png, image/jpeg, image/gif, image/webp
    data: str  # base64


ResultPart = TextPart | ImagePart

# Stores the complete (stdout, stderr), at most 10 MiB, and returns the path, or None if nothing is stored. May raise
# OSError.
Keep = Callable[[bytes, bytes], str | None]


class BlockedAttempt(Protocol):
    """An attempt that the boundary stopped.

    `unnamed_path` is its path, empty if `what` contains the path. `inferred` is True if the attempt was concluded from
    the program's own message.
    """

    @property
    def what(self) -> str: ...
    @property
    def unnamed_path(self) -> str: ...
    @property
    def fix(self) -> str: ...
    @property
    def inferred(self) -> bool: ...


class Finished(Protocol):
    """The part of the outcome of one action that a tool may use. `sandbox.backend.Outcome` implements it."""

    @property
    def status(self) -> int: ...
    @property
    def stdout(self) -> bytes: ...
    @property
    def stderr(self) -> bytes: ...
    @property
    def seconds(self) -> float: ...
    @property
    def ended_by(self) -> str | None: ...
    @property
    def truncated(self) -> bool: ...
    @property
    def violations(self) -> Sequence[BlockedAttempt]: ...
    @property
    def problem(self) -> Problem | None: ...
    @property
    def data(self) -> Mapping[str, object]: ...


class Arguments(BaseModel):
    """The base of every tool's arguments: exact types, no unknown names. `null` means the same as leaving out."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    @classmethod
    @cache
    def schema_for_model(cls) -> dict[str, object]:
        """Return the JSON Schema without parts that only cost tokens. Do not change the result: it is computed once."""
        schema = cls.model_json_schema()
        properties: dict[str, object] = {}
        for name, field in schema["properties"].items():
            kept = {key: value for key, value in field.items() if key not in ("title", "maxLength", "minLength")}
            # an optional field is not required, so its `null` is left out
            for choice in kept.pop("anyOf", ()):
                if choice.get("type") != "null":
                    kept |= {key: value for key, value in choice.items() if key not in ("maxLength", "minLength")}
            if kept.get("default", 0) is None:
                del kept["default"]
            properties[name] = kept
        required = schema.get("required", [])
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


class ForeignArguments(Protocol):
    """Arguments that a JSON Schema of another program describes. Such a tool plans from a mapping."""

    def schema_for_model(self) -> dict[str, object]:
        """Return the JSON Schema that the model is sent."""
        ...

    def checked(self, arguments: Mapping[str, object]) -> Mapping[str, object] | list[str]:
        """Return the arguments of a call for the tool, or the faults as text."""
        ...


class ModelTool(Protocol):
    """One tool. `Any` replaces the two types of each tool: its arguments, and the action that it plans. `example` is a
    valid call as JSON text; a Problem about wrong arguments shows it.
    """

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def example(self) -> str: ...
    @property
    def Args(self) -> type[Arguments] | ForeignArguments: ...

    def plan(self, args: Any, cwd: str, seen: SeenFiles) -> Action | Problem:
        """Return the action that these arguments request. Pure: no disk, no clock. `cwd` is absolute."""
        ...

    def render(
        self, action: Any, finished: Finished, seen: SeenFiles, *, keep: Keep | None = None
    ) -> tuple[ResultPart, ...]:
        """Return the result of `action`, which this tool planned, for the model; note the content that the model saw.

        `keep` is called if text was cut, so that the marker can name the file with the whole text.
        """
        ...


# Names that other coding agents give to these tools, without case and separators, so that a model that learned them is
# told the name here. Only names of tools that exist are suggested.
# fmt: off
_ELSEWHERE = {
    **dict.fromkeys(("plan", "exitplanmode", "submitplan", "presentplan", "finishplan"), "propose_plan"),
    **dict.fromkeys(("shell", "sh", "terminal", "runshellcommand", "runcommand", "execute", "exec"), "bash"),
    **dict.fromkeys(("readfile", "cat", "view", "open", "readmanyfiles"), "read"),
    **dict.fromkeys(("writefile", "create", "createfile"), "write"),
    **dict.fromkeys(("editfile", "replace", "strreplace", "multiedit", "applypatch", "patch"), "edit"),
    **dict.fromkeys(("find", "findfiles", "searchfiles", "fileglob"), "glob"),
    **dict.fromkeys(("search", "searchtext", "rg", "searchfilecontent"), "grep"),
    **dict.fromkeys(("askuserquestion", "requestuserinput", "askquestion", "question"), "ask_user"),
    **dict.fromkeys(("list", "listdir", "listdirectory", "listfiles"), "ls"),
}
# fmt: on


_SEARCH = "tool_search"  # describes tools of servers, which can be called after that


def find(tools: Sequence[ModelTool], name: str, others: Sequence[str] = ()) -> ModelTool | Problem:
    """Return the tool that the model named, or the Problem that lists the tools and suggests one.

    `others` are the names of tools that can be called now and that the caller performs itself.
    """
    by_name = {tool.name: tool for tool in tools}
    if name in by_name:
        return by_name[name]
    known = (*by_name, *others)
    meant = meant_tool(name, known)
    fix = f"did you mean `{meant}`? Call it by this exact name" if meant else "call one of these by its exact name"
    if name.startswith(SERVER) and _SEARCH in by_name:
        fix = f"find the tools of servers with `{_SEARCH}` first"
    names = ", ".join(f"`{each}`" for each in known)
    return Problem(f"there is no tool `{short(name)}`", f"the tools are {names}", fix)


def meant_tool(name: str, known: Sequence[str]) -> str | None:
    """Return the tool of `known` that `name` probably means, or None."""
    bare = "".join(char for char in name[:40].lower() if char.isalnum())
    plain = {"".join(char for char in each if char.isalnum()): each for each in known}
    meant = _ELSEWHERE.get(bare)
    if meant in known:
        return meant
    near = difflib.get_close_matches(bare, plain, n=1, cutoff=0.6)
    return plain[near[0]] if near else None
