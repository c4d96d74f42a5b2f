"""JSON form of a grant, for the list of grants and for the journal of a session."""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from policy.grants.grant import Grant, GrantScope, GrantSubject
from policy.model.command_pattern import HOLE, CommandPattern
from policy.model.profile import Tool
from policy.model.tier import Ruling, Tier
from policy.model.tool_arguments import bounds_folder, parsed
from policy.model.tool_names import is_pattern, names_tool
from policy.permission.allow import NEVER, OF_SERVER

_ID = re.compile(r"g[0-9a-f]{8}")
_RULINGS = {"allow": Ruling.ALLOW, "deny": Ruling.DENY}
_TIERS = {tier.label: tier for tier in Tier if tier not in NEVER and tier not in (Tier.READ, Tier.UNKNOWN)}
_CALLED = frozenset([Tool.AGENT.value, Tool.WEB_FETCH.value, Tool.WEB_SEARCH.value])
_NOTES = frozenset([Tool.REMEMBER.value, Tool.RECALL.value, Tool.SKILL.value])  # no grant is about them
_USED = frozenset(tool.value for tool in Tool) - _CALLED - _NOTES  # tools with commands and paths
_SCOPES = {scope.value: scope for scope in GrantScope}
# Fields of a grant that are JSON values of the same name.
_PLAIN = ("workspace", "agent", "session", "created", "expires", "uses", "who", "reason", "script", "over")
_TEXTS = ("workspace", "agent", "session", "who", "reason", "script")
_LONGEST = 16_384  # characters of one text
_MOST = 200  # entries of one list
_Value = TypeVar("_Value")


def to_json(grant: Grant) -> dict[str, object]:
    """Return every field as JSON values."""
    what = grant.what
    return {
        "id": grant.id,
        "ruling": grant.ruling.name.lower(),
        "scope": grant.span.value,
        "what": {
            "words": list(what.shape.words),
            "flags": what.shape.flags,
            "folder": what.shape.folder,
            "program": what.shape.program,
            **({"family": what.shape.family} if what.shape.family else {}),
            "tools": [str(tool) for tool in what.tool],
            "read": list(what.read),
            "write": list(what.write),
            "hosts": list(what.host),
            "tiers": [tier.label for tier in what.tiers],
            **({"arguments": dict(what.arguments)} if what.arguments else {}),
            **({"values": dict(what.values)} if what.values else {}),
            **({"below": dict(what.below)} if what.below else {}),
            **({"only": list(what.only)} if what.only is not None else {}),
        },
        **{name: getattr(grant, name) for name in _PLAIN},
    }


def from_json(found: object) -> Grant:
    """Return the grant that `to_json` wrote. Raises ValueError for anything else; no field is guessed or ignored.

    INVARIANT: the result is a grant that a question could have produced, whatever the file contains: no tier that only
    a single approval accepts, no wildcard in a path except for a whole folder, and no scope without its holder.
    """
    grant = _Fields(found, "a grant")
    what = _Fields(grant.take("what"), "its subject")
    name = grant.text("id")
    if not _ID.fullmatch(name):
        raise ValueError(f"`{name[:40]}` is not the id of a grant")
    words = what.texts("words", _word)
    texts: dict[str, Any] = {name: grant.text(name) for name in _TEXTS}
    made = Grant(
        id=name,
        what=GrantSubject(
            CommandPattern(
                words, what.flag("flags"), what.text("folder"), what.text("program"), what.text_or_none("family")
            ),
            what.texts("tools", _tool),
            what.texts("read", _path),
            what.texts("write", _path),
            what.texts("hosts", _host),
            tuple(what.among(_TIERS, text) for text in what.texts("tiers")),
            what.pairs("arguments", lambda text: not is_pattern(text)),
            what.pairs("values", _is_value),
            what.pairs("below", bounds_folder),
            what.texts("only", _argument) if what.has("only") else None,
        ),
        ruling=grant.among(_RULINGS, grant.text("ruling")),
        span=grant.among(_SCOPES, grant.text("scope")),
        created=grant.number("created"),
        expires=grant.maybe("expires", grant.number),
        uses=grant.maybe("uses", grant.count),
        over=grant.flag("over"),
        **texts,
    )
    what.end()
    grant.end()
    for_user, for_session = made.span is GrantScope.USER, made.of_session
    if for_user != (made.workspace == "") or for_session != bool(made.session):
        raise ValueError(f"`{name}` has a workspace or a session that does not fit its scope")
    if not made.agent or not (words or made.what.read or made.what.write or made.what.calls) or not made.what.tiers:
        raise ValueError(f"`{name}` has no agent, no subject or no tier")
    if not _consistent(made.what) or (made.what.shape.family and made.ruling is not Ruling.ALLOW):
        raise ValueError(f"`{name}` has tools or tiers that do not fit its subject")
    return made


def _consistent(what: GrantSubject) -> bool:
    """Return True if the tools, tiers and arguments are those of one kind of subject.

    THREAT T148: a list of grants with a changed line must not allow a tool of a server beside a command, or the other
    way round.
    """
    shape = what.shape
    if shape.family and (
        len(shape.words) != 1
        or HOLE in shape.words
        or shape.flags
        or shape.folder
        or what.read
        or what.write
        or what.tool != (Tool.BASH,)
        or what.tiers != (Tier.NETWORK,)
        or not what.host
    ):
        return False
    bounded = {name for name, _ in (*what.values, *what.below)}
    if len(bounded) != len(what.values) + len(what.below) or not bounded <= set(what.only or ()):
        return False  # a bound of one argument leaves no other argument open
    if what.only is not None and (what.tool[:1] == () or what.tool[0] in list(Tool)):
        return False
    if not what.calls:
        of_command = bool(what.shape.words) or Tier.AGENT_SPAWN not in what.tiers
        return set(what.tool) <= _USED and Tier.MCP_EXTERNAL not in what.tiers and of_command and not what.arguments
    if len(what.tool) != 1 or what.shape.flags or what.shape.folder or what.shape.program:
        return False
    match what.tool[0]:
        case Tool.AGENT.value:
            return what.tiers == (Tier.AGENT_SPAWN,) and not what.host and bool(what.arguments)
        case Tool.WEB_FETCH.value | Tool.WEB_SEARCH.value:
            return what.tiers == (Tier.NETWORK,) and bool(what.host) and not what.arguments
        case _:
            known = len(what.tiers) == 1 and set(what.tiers) <= OF_SERVER
            return known and not what.host and not what.arguments


class _Fields:
    """Fields of one JSON object, each taken once and with a required type."""

    def __init__(self, found: object, what: str) -> None:
        if not isinstance(found, dict):
            raise ValueError(f"{what} is not an object")
        self._left: dict[str, object] = dict(found)
        self._what = what

    def take(self, name: str) -> object:
        if name not in self._left:
            raise ValueError(f"{self._what} has no `{name}`")
        return self._left.pop(name)

    def end(self) -> None:
        if self._left:
            raise ValueError(f"{self._what} has `{str(next(iter(self._left)))[:40]}`, which is not known")

    def text(self, name: str) -> str:
        return self._text(name, self.take(name))

    def text_or_none(self, name: str) -> str:
        """Return a text that grants without it, and those of earlier versions, do not have; empty without it."""
        return self.text(name) if name in self._left else ""

    def texts(self, name: str, check: Callable[[str], bool] = bool) -> tuple[str, ...]:
        found = self.take(name)
        if not isinstance(found, list) or len(found) > _MOST:
            raise ValueError(f"`{name}` of {self._what} is not a list")
        texts = tuple(self._text(name, each) for each in found)
        if not all(map(check, texts)):
            raise ValueError(f"`{name}` of {self._what} has an invalid entry")
        return texts

    def has(self, name: str) -> bool:
        return name in self._left

    def pairs(self, name: str, check: Callable[[str], bool]) -> tuple[tuple[str, str], ...]:
        """Return a table of texts; grants of earlier versions have none."""
        found = self._left.pop(name, {})
        if not isinstance(found, dict) or len(found) > _MOST:
            raise ValueError(f"`{name}` of {self._what} is not a table")
        pairs = tuple((str(key), self._text(name, text)) for key, text in found.items())
        if not all(check(text) for _, text in pairs):
            raise ValueError(f"`{name}` of {self._what} has an invalid entry")
        return pairs

    def flag(self, name: str) -> bool:
        found = self.take(name)
        if not isinstance(found, bool):
            raise ValueError(f"`{name}` of {self._what} is neither true nor false")
        return found

    def number(self, name: str) -> float:
        found = self.take(name)
        if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
            raise ValueError(f"`{name}` of {self._what} is not a number")
        return float(found)

    def count(self, name: str) -> int:
        found = self.take(name)
        if type(found) is not int or not 0 <= found <= 1_000_000_000:
            raise ValueError(f"`{name}` of {self._what} is not a count")
        return found

    def maybe(self, name: str, take: Callable[[str], _Value]) -> _Value | None:
        if name in self._left and self._left[name] is None:
            del self._left[name]
            return None
        return take(name)

    def among(self, known: Mapping[str, _Value], text: str) -> _Value:
        if text not in known:
            raise ValueError(f"`{text[:40]}` of {self._what} is not known")
        return known[text]

    def _text(self, name: str, found: object) -> str:
        if not isinstance(found, str) or len(found) > _LONGEST:
            raise ValueError(f"`{name}` of {self._what} is not a text")
        return found


def _word(text: str) -> bool:
    return text == HOLE or (bool(text) and text.isprintable() and not {"*", "?"} & set(text))


def _tool(text: str) -> bool:
    return not is_pattern(text) and names_tool(text)


def _path(text: str) -> bool:
    bare = text.removesuffix("/**").removesuffix("/")
    return bool(bare) and bare.isprintable() and not {"*", "?"} & set(bare) and not {"..", "."} & set(bare.split("/"))


def _argument(text: str) -> bool:
    return bool(text) and text.isprintable()


def _is_value(text: str) -> bool:
    """Return True if `text` is the canonical form of a JSON value."""
    found = parsed(f'{{"":{text}}}')
    return found is not None and list(found) == [""]


def _host(text: str) -> bool:
    return bool(text) and text.isprintable() and "*" not in text
