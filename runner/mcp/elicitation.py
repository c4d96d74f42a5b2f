"""Questions of a tool server for the user (elicitation), and their answers.

SOURCE: MCP 2025-11-25 and 2026-07-28, "Elicitation": a client names the server that asks, lets no form ask for secrets,
and shows the whole address of a page before it is opened.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from policy.model.frozen import dataclass
from runner.text.sanitize import one_line, visible_prose

if TYPE_CHECKING:
    from runner.audit.records import AnsweringClient

_MOST_FIELDS = 30
_LARGEST = 64 << 10  # characters of the schema of a form
_SECRET = re.compile(
    r"pass(?:word|phrase|code)|secret|token|api.?key|credential|private.?key|\bpin\b|\bcvv\b|\botp\b|card.?number|"
    r"\bssn\b|recovery|mnemonic|seed.?phrase",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class ElicitedForm:
    """A form of the server `server`: `schema` is a flat JSON Schema object. All texts are untrusted."""

    server: str
    message: str
    schema: Mapping[str, object]

    @property
    def fields(self) -> Mapping[str, Mapping[str, object]]:
        """Return the fields by name, without what is no field."""
        found = self.schema.get("properties")
        pairs = found.items() if isinstance(found, dict) else ()
        return {str(name): each for name, each in pairs if isinstance(each, dict)}

    @property
    def required(self) -> tuple[str, ...]:
        """Return the names of the fields that must be filled."""
        found = self.schema.get("required")
        return tuple(str(each) for each in found) if isinstance(found, list) else ()

    @property
    def fault(self) -> str:
        """Return why this form is not shown to the user; empty if it may be shown.

        THREAT T177: a server must not collect secrets in a form, where the model and its record could see them.
        """
        if len(self.fields) > _MOST_FIELDS:
            return f"it has more than {_MOST_FIELDS} fields"
        if len(str(self.schema)) > _LARGEST:
            return "it is too large"
        for name, each in self.fields.items():
            words = " ".join(str(each.get(key, "")) for key in ("title", "description", "format"))
            if _SECRET.search(f"{name} {words}".replace("_", " ").replace("-", " ")) or _SECRET.search(name):
                return f"its field `{name}` asks for a secret"
            if each.get("type") not in ("string", "number", "integer", "boolean", "array"):
                return f"its field `{name}` has no type that a form can have"
        return ""


@dataclass(frozen=True, slots=True)
class ElicitedUrl:
    """A page that the server `server` asks the user to open, for example to sign in there."""

    server: str
    message: str
    url: str

    @property
    def fault(self) -> str:
        """Return why this page is not shown to the user; empty if it may be shown."""
        from urllib.parse import urlsplit

        try:
            parts = urlsplit(self.url)
            local = parts.hostname in ("127.0.0.1", "localhost", "::1")
        except ValueError:
            return "its address cannot be read"
        if parts.scheme != "https" and not (parts.scheme == "http" and local):
            return "its address is no https address"
        if not self.url.isascii() or not self.url.isprintable() or " " in self.url or len(self.url) > 4096:
            return "its address contains characters that an address cannot have"
        return ""

    @property
    def host(self) -> str:
        """Return the host of the address, which the question shows on its own."""
        from urllib.parse import urlsplit

        return urlsplit(self.url).hostname or ""

    @property
    def warning(self) -> str:
        """Return a warning about the host, or an empty text."""
        if "xn--" in self.host:
            return "the name of the host contains letters of another script (punycode): it may imitate another name"
        return "the address contains a user name before the host" if "@" in self.url.split("/", 3)[2] else ""


@dataclass(frozen=True, slots=True)
class ElicitedAnswer:
    """The answer of the user. Neither `accepted` nor `refused` means that the user left the question.

    Attributes:
        client: the client of a hosted session that answered, or None
    """

    accepted: bool = False
    refused: bool = False
    values: Mapping[str, object] = field(default_factory=dict)
    client: "AnsweringClient | None" = field(default=None, repr=False, compare=False)


CANCELLED = ElicitedAnswer()
REFUSED = ElicitedAnswer(refused=True)

Elicitor = Callable[[ElicitedForm | ElicitedUrl], Awaitable[ElicitedAnswer]]


def shown_fields(asked: ElicitedForm) -> tuple[dict[str, object], ...]:
    """Return the fields of a form for a program that shows them: names, types and texts on one line each."""
    found: list[dict[str, object]] = []
    for name, shape in asked.fields.items():
        default = shape.get("default")
        found.append({
            "name": name,
            "title": one_line(str(shape.get("title") or name), _LONGEST),
            "description": one_line(str(shape.get("description") or ""), _LONGEST),
            "type": str(shape.get("type")),
            "choices": _choices(shape),
            "required": name in asked.required,
            "default": default if isinstance(default, str | int | float | bool) else None,
        })  # fmt: skip
    return tuple(found)


def values_fault(asked: ElicitedForm, values: Mapping[str, object]) -> str:
    """Return why `values` cannot be the answer to a form, or an empty text."""
    if unknown := next((name for name in values if name not in asked.fields), None):
        return f"the form has no field `{one_line(unknown, 100)}`"
    if missing := next((name for name in asked.required if name in asked.fields and name not in values), None):
        return f"the field `{one_line(missing, 100)}` has no value"
    for name, value in values.items():
        shape = asked.fields[name]
        if fault := _value_fault(value, shape, _choices(shape)):
            return f"the field `{one_line(name, 100)}` {fault}"
    return ""


def _value_fault(value: object, shape: Mapping[str, object], choices: Sequence[str]) -> str:
    match shape.get("type"):
        case "boolean":
            return "" if isinstance(value, bool) else "needs true or false"
        case "integer":
            return "" if type(value) is int else "needs a whole number"
        case "number":
            finite = type(value) in (int, float) and value == value and abs(value) != float("inf")  # type: ignore[arg-type]  # a number
            return "" if finite else "needs a number"
        case "array":
            texts = isinstance(value, list) and all(isinstance(each, str) for each in value)
            right = texts and isinstance(value, list) and (not choices or all(each in choices for each in value))
            return "" if right else "needs a list of texts, each of them one of its choices"
        case _:
            longest = shape.get("maxLength")
            if not isinstance(value, str) or (isinstance(longest, int) and len(value) > longest):
                return "needs a text" if not isinstance(value, str) else f"needs a text of at most {longest} characters"
            return "" if not choices or value in choices else "needs one of its choices"


async def refuse_all(asked: ElicitedForm | ElicitedUrl) -> ElicitedAnswer:
    """Refuse every question: there is no user."""
    return REFUSED


AskText = Callable[[Sequence[str], str], Awaitable[str | None]]  # shows lines, and returns the text typed at a prompt
_TRIES = 5  # answers to one field
_LONGEST = 300  # characters of a text of the server in a prompt


async def answer_at_terminal(asked: ElicitedForm | ElicitedUrl, ask: AskText) -> ElicitedAnswer:
    """Let the user answer a question of a server, field by field, and confirm the whole before it is sent."""
    head = [f"the tool server `{asked.server}` asks:", visible_prose(asked.message)[:4000]]
    if isinstance(asked, ElicitedUrl):
        lines = [*head, f"page: {asked.url}", f"host: {asked.host}"]
        lines += [f"warning: {asked.warning}"] if asked.warning else []
        said = await ask([*lines, "open the page yourself if you trust it; nothing is opened for you"], "done? [y/N]: ")
        return CANCELLED if said is None else ElicitedAnswer(accepted=True) if said.lower() in _YES else REFUSED
    said = await ask([*head, "never type a password or a token here"], "answer this form? [y/N]: ")
    if said is None or said.lower() not in _YES:
        return CANCELLED if said is None else REFUSED
    values: dict[str, object] = {}
    for name, shape in asked.fields.items():
        found = await _field(name, shape, ask, required=name in asked.required)
        if isinstance(found, _Left):
            return CANCELLED
        if found is not None:
            values[name] = found
    shown = [f"{one_line(name, _LONGEST)} = {one_line(str(value), _LONGEST)}" for name, value in values.items()]
    said = await ask(shown, f"send this to `{asked.server}`? [y/N]: ")
    if said is None or said.lower() not in _YES:
        return CANCELLED if said is None else REFUSED
    return ElicitedAnswer(accepted=True, values=values)


_YES = ("y", "yes")


class _Left:
    """The answer of a user who left the form."""


async def _field(name: str, shape: Mapping[str, object], ask: AskText, *, required: bool) -> object:
    """Return the value of one field, None for an optional one that stays empty, or a _Left."""
    title = one_line(str(shape.get("title") or name), _LONGEST)
    lines = [one_line(str(shape["description"]), _LONGEST)] if shape.get("description") else []
    choices = _choices(shape)
    lines += [f"one of: {', '.join(one_line(each, _LONGEST) for each in choices)}"] if choices else []
    default = shape.get("default")
    hint = f" [{one_line(str(default), _LONGEST)}]" if default is not None else "" if required else " [empty: none]"
    for _ in range(_TRIES):
        said = await ask(lines, f"{title} ({shape.get('type')}){hint}: ")
        if said is None:
            return _Left()
        if not said and (default is not None or not required):
            return default
        value, fault = _value(said, shape, choices)
        if not fault:
            return value
        lines = [fault]
    return _Left()


def _choices(shape: Mapping[str, object]) -> list[str]:
    """Return the values that a text, or an entry of a list, may have; empty if any text may be given."""
    items = shape.get("items")
    of = items if shape.get("type") == "array" and isinstance(items, dict) else shape
    found = of.get("enum")
    if isinstance(found, list):
        return [str(each) for each in found]
    titled = of.get("oneOf") or of.get("anyOf")
    return [str(each.get("const")) for each in titled if isinstance(each, dict)] if isinstance(titled, list) else []


def _value(said: str, shape: Mapping[str, object], choices: Sequence[str]) -> tuple[object, str]:
    """Return the value that a typed text means, and an empty text, or None and why it means none."""
    match shape.get("type"):
        case "boolean":
            known = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}
            found = known.get(said.lower())
            return found, "" if found is not None else "answer yes or no"
        case "integer":
            return (int(said), "") if said.lstrip("-").isdecimal() and len(said) < 20 else (None, "type a whole number")
        case "number":
            try:
                number = float(said)
            except ValueError:
                return None, "type a number"
            return (number, "") if number == number and abs(number) != float("inf") else (None, "type a finite number")
        case "array":
            listed = [part.strip() for part in said.split(",") if part.strip()]
            wrong = [part for part in listed if choices and part not in choices]
            return (None, "type values of the list, with commas between them") if wrong else (listed, "")
        case _:
            longest = shape.get("maxLength")
            if isinstance(longest, int) and len(said) > longest:
                return None, f"type at most {longest} characters"
            return (said, "") if not choices or said in choices else (None, "type one of the listed values")
