"""Questions of a tool server for the user (elicitation), and their answers.

SOURCE: MCP 2025-11-25 and 2026-07-28, "Elicitation": a client names the server that asks, lets no form ask for secrets,
and shows the whole address of a page before it is opened.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field

from policy.model.frozen import dataclass

_MOST_FIELDS = 30
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
    """The answer of the user. Neither `accepted` nor `refused` means that the user left the question."""

    accepted: bool = False
    refused: bool = False
    values: Mapping[str, object] = field(default_factory=dict)


CANCELLED = ElicitedAnswer()
REFUSED = ElicitedAnswer(refused=True)

Elicitor = Callable[[ElicitedForm | ElicitedUrl], Awaitable[ElicitedAnswer]]


async def refuse_all(asked: ElicitedForm | ElicitedUrl) -> ElicitedAnswer:
    """Refuse every question: there is no user."""
    return REFUSED
