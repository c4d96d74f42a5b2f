"""Pins of tool servers: what a server offered, and what it ran, when the user approved it.

THREAT T183: a server that changes a tool, its instructions or its program after the approval loses the approval of
exactly what changed. THREAT T185: a renamed tool is a removed one and a new one.
"""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from itertools import islice
from pathlib import Path

from policy.model.frozen import dataclass, replace
from policy.model.profile import Layer
from policy.model.tool_arguments import canonical
from policy.model.verdict import Problem
from runner.mcp.package_digest import PackageDigest
from runner.mcp.server_config import ServerConfig
from runner.mcp.suspicions import definition_parts, refusal
from runner.state.json_file import StateError, StateFile
from tools.server_offer import OfferedTool, ServerOffer

FOLDER = "server-pins"  # in the state folder; one file for each server
_REPOSITORY = (Layer.REPOSITORY, Layer.TRUSTED)
_MOST_TEXT = 6 << 20  # characters of definitions that one file contains; of further tools it has only the digests
_MOST_TOOLS = 5000


class Cause(StrEnum):
    """The reason why a tool of a server cannot be used."""

    NEW = "new"
    CHANGED = "changed"
    RENAMED = "renamed"
    REMOVED = "removed"  # the server does not offer it any more
    SERVER = "server"  # the instructions, the command line or the package of the server changed
    REFUSED = "refused"  # no approval makes the tool usable
    LEFT_OUT = "left-out"  # the user saw it and did not approve it
    UNREADABLE = "unreadable"  # the pin of the server cannot be read


@dataclass(frozen=True, slots=True)
class ToolPin:
    """The pin of one tool.

    Attributes:
        sha256: The digest of the canonical definition, which includes the name.
        content: The digest of the definition without the name, by which a renamed tool is recognized.
        definition: The canonical definition; empty if it is not stored because of its size.
        approved: False if the user saw the tool and did not approve it.
    """

    name: str
    sha256: str
    content: str
    definition: str = ""
    approved: bool = True


@dataclass(frozen=True, slots=True)
class ServerPin:
    """The pin of one server.

    Attributes:
        tools: The tools in the order of their names.
        instructions: The text of the server for the model.
        runs: The command line with its folder and the names of its variables, or the address, as canonical JSON.
        package: The state and the digest of the package (`PackageDigest.text`).
        package_name: The package for the user.
    """

    tools: tuple[ToolPin, ...]
    instructions: str
    runs: str
    package: str
    package_name: str = ""

    @property
    def sha256(self) -> str:
        """Return the digest of the whole set: the approved tools, the instructions, the command line, the package."""
        tools = {tool.name: tool.sha256 for tool in self.tools if tool.approved}
        values = {"instructions": self.instructions, "runs": self.runs, "package": self.package, "tools": tools}
        return _hash(canonical(values))

    def approving(self, names: Iterable[str]) -> "ServerPin":
        """Return this pin with an approval of exactly the tools with these names."""
        wanted = frozenset(names)
        return replace(self, tools=tuple(replace(tool, approved=tool.name in wanted) for tool in self.tools))

    @property
    def approved(self) -> frozenset[str]:
        """Return the names of the approved tools."""
        return frozenset(tool.name for tool in self.tools if tool.approved)


@dataclass(frozen=True, slots=True)
class UnreadablePin:
    """The pin of a server that was stored and cannot be read. It approves nothing."""

    problem: Problem


StoredPin = ServerPin | UnreadablePin | None


@dataclass(frozen=True, slots=True)
class QuarantinedTool:
    """A tool that the model does not get.

    Attributes:
        why: The reason for the user, as one line without untrusted text.
        was: The name under which a renamed tool was approved.
    """

    name: str
    cause: Cause
    why: str
    was: str = ""


@dataclass(frozen=True)
class PinCheck:
    """The result of a comparison of an offer with a pin.

    Attributes:
        pin: The pin of the offer as it is now. It approves every tool that can be approved.
        approved: The tools that may be used: approved and unchanged.
        quarantined: The other tools, and the removed ones.
        changes: What changed of the server itself: `instructions`, `command line`, `package`.
        problem: The problem of a pin that cannot be read, or None.
    """

    pin: ServerPin
    approved: tuple[OfferedTool, ...] = ()
    quarantined: tuple[QuarantinedTool, ...] = ()
    changes: tuple[str, ...] = ()
    problem: Problem | None = None

    @cached_property
    def clean(self) -> bool:
        """Return True if nothing has to be answered: each quarantined tool was left out by the user, or is refused."""
        settled = (Cause.LEFT_OUT, Cause.REFUSED)
        return self.problem is None and not self.changes and all(each.cause in settled for each in self.quarantined)

    @cached_property
    def sha256(self) -> str:
        """Return the digest of what may be used now, for the record of a call."""
        return self.pin.approving(tool.name for tool in self.approved).sha256

    def digest_of(self, tool: str) -> str:
        """Return the digest of the definition of one tool, or an empty string."""
        return self._digests.get(tool, "")

    @cached_property
    def _digests(self) -> Mapping[str, str]:
        return {tool.name: tool.sha256 for tool in self.pin.tools}


def pin_of(config: ServerConfig, offer: ServerOffer, package: PackageDigest) -> ServerPin:
    """Return the pin of `offer`. Tools that are refused (`suspicions.refusal`) and those with the same name as another
    one are not in it.
    """
    times = Counter(tool.name for tool in offer.tools)
    made = (_tool_pin(tool) for tool in offer.tools if times[tool.name] == 1)
    pins = sorted(islice((pin for pin in made if pin is not None), _MOST_TOOLS), key=lambda pin: pin.name)
    return ServerPin(tuple(pins), offer.instructions, _runs(config), package.text, package.name)


def tool_digest(tool: OfferedTool) -> str:
    """Return the digest of the definition of a tool, as it is in a pin and in the record of a call; empty for a tool
    that no pin can approve.
    """
    pin = _tool_pin(tool)
    return pin.sha256 if pin is not None else ""


def checked(config: ServerConfig, offer: ServerOffer, package: PackageDigest, pinned: StoredPin) -> PinCheck:
    """Compare an offer with the pin of the server. Only tools that are unchanged since their approval are approved."""
    now = pin_of(config, offer, package)
    refused = _refused(offer, now)
    if isinstance(pinned, UnreadablePin):
        held = [
            QuarantinedTool(tool.name, Cause.UNREADABLE, "the pin of the server cannot be read") for tool in now.tools
        ]
        return PinCheck(now, (), (*held, *refused), (), pinned.problem)
    if pinned is None:
        held = [QuarantinedTool(tool.name, Cause.NEW, "you have not approved this server yet") for tool in now.tools]
        return PinCheck(now, (), (*held, *refused))
    pairs = (
        ("instructions", now.instructions == pinned.instructions),
        ("command line" if config.command else "address", now.runs == pinned.runs),
        ("package", now.package == pinned.package),
    )
    changes = tuple(name for name, same in pairs if not same)
    before = {tool.name: tool for tool in pinned.tools}
    names = {tool.name for tool in now.tools}
    gone = {tool.content: tool for tool in pinned.tools if tool.approved and tool.name not in names}
    held = []
    for tool in now.tools:
        found = _cause(tool, before.get(tool.name), gone.get(tool.content))
        if found is None and changes:
            found = QuarantinedTool(tool.name, Cause.SERVER, f"the {' and the '.join(changes)} of the server changed")
        if found is not None:
            held.append(found)
    missing = [tool for tool in pinned.tools if tool.approved and tool.name not in names]
    removed = [QuarantinedTool(tool.name, Cause.REMOVED, "the server no longer offers it") for tool in missing]
    stopped = {each.name for each in held}
    approved = tuple(tool for tool in offer.tools if tool.name in names and tool.name not in stopped)
    return PinCheck(now, approved, (*held, *removed, *refused), changes)


def _cause(now: ToolPin, before: ToolPin | None, renamed: ToolPin | None) -> QuarantinedTool | None:
    """Return why a tool is quarantined, or None for an approved one without a change."""
    if before is None:
        if renamed is not None:
            return QuarantinedTool(now.name, Cause.RENAMED, "it was approved under another name", renamed.name)
        return QuarantinedTool(now.name, Cause.NEW, "the server did not offer it when you approved the server")
    if now.sha256 != before.sha256:
        return QuarantinedTool(now.name, Cause.CHANGED, "its definition changed since you saw it")
    if not before.approved:
        return QuarantinedTool(now.name, Cause.LEFT_OUT, "you did not approve it")
    return None


def _refused(offer: ServerOffer, pin: ServerPin) -> list[QuarantinedTool]:
    """Return the offered tools that are not in the pin, each name once."""
    known = {tool.name for tool in pin.tools}
    times = Counter(tool.name for tool in offer.tools)
    found: dict[str, QuarantinedTool] = {}
    for tool in offer.tools:
        if tool.name not in known and tool.name not in found:
            why = "the server offers two tools with this name" if times[tool.name] > 1 else refusal(tool)
            why = why or f"the server offers more than {_MOST_TOOLS:,} tools"
            found[tool.name] = QuarantinedTool(tool.name, Cause.REFUSED, why)
    return list(found.values())


def _tool_pin(tool: OfferedTool) -> ToolPin | None:
    """Return the pin of a tool, or None if the tool is refused."""
    parts = definition_parts(tool)
    if isinstance(parts, str):
        return None
    rows = [f'"{name}":{parts[name]}' for name in sorted(parts)]
    definition = f"{{{','.join(rows)}}}"
    content = "\n".join(row for row in rows if not row.startswith('"name":'))
    return ToolPin(tool.name, _hash(definition), _hash(content), definition)


def _runs(config: ServerConfig) -> str:
    """Return what the client runs or connects to as canonical JSON: no value of a variable or a header is in it. In a
    copy of a workspace, the paths are those of the workspace.
    """
    config = config.copied.config if config.copied is not None else config
    if config.command:
        names = sorted(name for name, _ in config.env)
        return canonical({"argv": list(config.argv), "cwd": config.cwd, "env": names})
    headers = sorted({name.lower() for name, _ in config.headers})
    return canonical({"url": config.url, "transport": config.transport, "headers": headers})


def _hash(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class PinStore:
    """The pins of this user, one file for each server.

    A server of the user's own files has one pin; a server that a repository configures has one for each workspace.
    `state` is a folder that `paths.state_dir` has checked, and `workspace` is the real path of the session's workspace.
    """

    def __init__(self, state: str | Path, workspace: str) -> None:
        self._folder = Path(state) / FOLDER
        self._workspace = workspace

    def get(self, config: ServerConfig) -> StoredPin:
        """Return the pin of the server, None if there is none, or the problem of one that cannot be read."""
        try:
            held = self._file(config).read()
        except StateError as error:
            return UnreadablePin(error.problem)
        if held.notices:
            why = "; ".join(held.notices)
            fix = f"look at what the server offers, and run `agent mcp pin {config.name}`"
            return UnreadablePin(Problem(f"the pin of the server `{config.name}` is lost", why, fix))
        return held.value

    def keep(self, config: ServerConfig, pin: ServerPin) -> tuple[str, ...]:
        """Store the pin in place of an earlier one. Return notices about the file. Raise StateError."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        return self._file(config).change(lambda before: (pin, None))[1]

    def forget(self, config: ServerConfig) -> bool:
        """Remove the pin of the server. Return False if there is none. Raise StateError."""
        if not os.path.lexists(self._folder):
            return False
        return self._file(config).change(lambda before: (None, before is not None))[0]

    def _file(self, config: ServerConfig) -> StateFile[ServerPin | None]:
        copied = config.copied
        own = copied.original if copied is not None and copied.path == self._workspace else self._workspace
        where = own if config.layer in _REPOSITORY else ""
        name = f"{_hash(canonical({'where': where, 'name': config.name}))[:32]}.json"

        def parse(content: dict[str, object], version: int) -> ServerPin | None:
            if (content.pop("where", None), content.pop("name", None)) != (where, config.name):
                raise ValueError("it is the pin of another server")
            return _parsed(content)

        def dump(pin: ServerPin | None) -> dict[str, object]:
            return {"where": where, "name": config.name, "pin": _dumped(pin)}

        return StateFile(self._folder / name, f"the pin of the server `{config.name}`", 1, lambda: None, parse, dump)


def _dumped(pin: ServerPin | None) -> dict[str, object] | None:
    if pin is None:
        return None
    room = _MOST_TEXT
    rows: list[dict[str, object]] = []
    for tool in pin.tools:
        room -= len(tool.definition)
        definition = tool.definition if room >= 0 else ""
        texts = {"name": tool.name, "sha256": tool.sha256, "content": tool.content, "definition": definition}
        rows.append({**texts, "approved": tool.approved})
    return {
        "runs": pin.runs,
        "package": pin.package,
        "package_name": pin.package_name,
        "instructions": pin.instructions,
        "tools": rows,
    }


def _parsed(content: dict[str, object]) -> ServerPin | None:
    """Parse the content of a file. Raise ValueError for anything that this module does not write."""
    found = content.pop("pin", None)
    if content:
        raise ValueError("it is not a pin")
    if found is None:
        return None
    if not isinstance(found, dict) or set(found) != {"runs", "package", "package_name", "instructions", "tools"}:
        raise ValueError("it is not a pin")
    texts = {key: value for key, value in found.items() if key != "tools"}
    rows = found["tools"]
    if not isinstance(rows, list) or not all(isinstance(value, str) for value in texts.values()):
        raise ValueError("a part of the pin has another type")
    tools = tuple(_row(row) for row in rows)
    if len({tool.name for tool in tools}) != len(tools):
        raise ValueError("a tool is in it twice")
    return ServerPin(tools, **texts)


_FIELDS = ("name", "sha256", "content", "definition")


def _row(row: object) -> ToolPin:
    if not isinstance(row, dict) or set(row) != {*_FIELDS, "approved"} or type(row["approved"]) is not bool:
        raise ValueError("a tool in it is not complete")
    if not all(isinstance(row[field], str) for field in _FIELDS):
        raise ValueError("a tool in it has another type")
    tool = ToolPin(**row)
    if tool.definition and _hash(tool.definition) != tool.sha256:
        raise ValueError("the definition of a tool does not have its digest")
    return tool
