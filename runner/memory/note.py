"""A note: a text of the user, or one that a model proposed and the user accepted, with its origin."""

import re
import unicodedata
from enum import StrEnum

from policy.model.frozen import dataclass
from policy.model.verdict import Problem, ProblemError
from runner.state.session_id import is_session_id
from runner.text.json_line import utc_time
from runner.text.sanitize import visible

LONGEST = 8 << 10  # bytes of a text
MOST_LINES = 200
LONGEST_LINE = 1000  # characters; the card of a question shows longer lines in part
_LONGEST_NAME = 60
_LONGEST_SOURCE = 80  # characters of one source of outside text
MOST_SOURCES = 10
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_RESERVED = ("memory",)  # `MEMORY.md` is the index, and some file systems ignore case
_SOURCE = re.compile(r"[^A-Za-z0-9 ._:@/-]")


class NoteError(ProblemError):
    """An error for a note that cannot be read or written. `problem` has the details."""


class NoteKind(StrEnum):
    """The subject of a note."""

    USER = "user"  # the user: role, knowledge, preferences
    FEEDBACK = "feedback"  # how the user wants the work done
    PROJECT = "project"  # the project: goals, decisions, dates
    REFERENCE = "reference"  # where something is found


class NoteScope(StrEnum):
    """The workspaces in which a note counts."""

    PROJECT = "project"  # in one workspace
    USER = "user"  # in all workspaces


class NoteAuthor(StrEnum):
    """The author of the text of a note."""

    USER = "user"
    MODEL = "model"  # the user accepted it after a question that showed the whole text


@dataclass(frozen=True, slots=True)
class Note:
    """A note.

    Attributes:
        name: The name of its file without `.md`: `a-z`, `0-9` and single hyphens.
        text: The text, without invisible characters.
        created: The time of the first version, in seconds since 1970.
        changed: The time of this version.
        author: Who wrote this version.
        session: The ID of the session that proposed this version; empty if the user wrote it outside of a session.
        outside: The sources of text from outside that the session had read when this version was proposed.
    """

    name: str
    kind: NoteKind
    scope: NoteScope
    text: str
    created: float
    changed: float
    author: NoteAuthor = NoteAuthor.USER
    session: str = ""
    outside: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Return the first line that is not blank."""
        return next(line.strip() for line in self.text.split("\n") if line.strip())


def slug(text: str) -> str:
    """Return a name for a note that begins with `text`: its first words in plain letters. Never empty or reserved."""
    plain = unicodedata.normalize("NFKD", text[:200]).encode("ascii", "ignore").decode().lower()
    words = re.findall(r"[a-z0-9]+", plain)
    name = ""
    for word in words[:8]:
        longer = f"{name}-{word}" if name else word[:40]
        if len(longer) > 40:
            break
        name = longer
    return f"note-{name}" if name in _RESERVED else name or "note"


def numbered(name: str, number: int) -> str:
    """Return the name of the note number `number` with the words of `name`."""
    return name if number == 1 else f"{name[: _LONGEST_NAME - 6].rstrip('-')}-{number}"


def is_name(text: str) -> bool:
    """Return True if `text` can be the name of a note. THREAT T215: a name is never a path."""
    return len(text) <= _LONGEST_NAME and _NAME.fullmatch(text) is not None and text not in _RESERVED


def text_fault(text: str) -> str:
    """Return why `text` cannot be a note, as a phrase about the text; empty if it can."""
    if not text.strip():
        return "is empty"
    if len(text.encode("utf-8", "surrogatepass")) > LONGEST:
        return f"is longer than {LONGEST >> 10} KiB"
    lines = text.split("\n")
    if len(lines) > MOST_LINES:
        return f"has more than {MOST_LINES} lines"
    if any(len(line) > LONGEST_LINE for line in lines):
        return f"has a line of more than {LONGEST_LINE:,} characters"
    if visible(text) != text:
        return "has control characters or characters that cannot be seen"
    from runner.secrets.redactor import Redactor

    if Redactor((), shapes=True).text(text) != text:
        return "contains what looks like a key or a password"
    return ""


def kind_of_words(words: str) -> tuple[NoteKind, str]:
    """Return the kind that a text begins with, `project` without one, and the rest of the text."""
    first, _, rest = words.strip().partition(" ")
    kind = next((each for each in NoteKind if each.value == first and rest.strip()), None)
    return (NoteKind.PROJECT, words) if kind is None else (kind, rest.strip())


def tidied(text: str) -> str:
    """Return `text` as a note stores it: without blank lines around it, tabs as blanks, lines without blanks at the
    end.
    """
    lines = text.replace("\r\n", "\n").expandtabs(4).split("\n")
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def source_name(text: str) -> str:
    """Return the name of a source of outside text in characters that need no quotes."""
    return _SOURCE.sub("_", text)[:_LONGEST_SOURCE].strip() or "unknown"


def file_text(note: Note) -> str:
    """Return the content of the file of a note."""
    head = {
        "kind": note.kind.value,
        "created": utc_time(note.created),
        "changed": utc_time(note.changed),
        "author": note.author.value,
        "session": f'"{note.session}"',
        "outside": f'"{"; ".join(map(source_name, note.outside))}"',
    }
    rows = "\n".join(f"{key}: {value}" for key, value in head.items())
    return f"---\n{rows}\n---\n{note.text}\n"


def parsed_note(name: str, scope: NoteScope, data: bytes) -> Note:
    """Return the note in a file with the content `data`. Raise ValueError, whose text is a phrase about the file."""
    from runner.config.agentfiles.front_matter import HeadError, front_matter

    try:
        head = front_matter(data.decode("utf-8"))
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8 text") from None
    except HeadError as error:
        raise ValueError(f"cannot be read: {error}") from None
    fields, text = head.texts, tidied(head.body)
    if fault := text_fault(text):
        raise ValueError(f"has a text that {fault}")
    try:
        kind, author = NoteKind(fields.get("kind", "")), NoteAuthor(fields.get("author", "user"))
        created, changed = _seconds(fields.get("created", "")), _seconds(fields.get("changed", ""))
    except ValueError:
        raise ValueError("has no valid `kind`, `author`, `created` and `changed` in its front matter") from None
    session = fields.get("session", "")
    if session and not is_session_id(session):
        raise ValueError("names a session that cannot exist")
    outside = tuple(source_name(each) for each in fields.get("outside", "").split("; ") if each)[:MOST_SOURCES]
    return Note(name, kind, scope, text, created, changed, author, session, outside)


def _seconds(text: str) -> float:
    from datetime import datetime

    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a time without a zone")
    return moment.timestamp()


def wrong(what: str, why: str, fix: str) -> NoteError:
    """Return the error for a note that is not used or not written."""
    return NoteError(Problem(what, why, fix))


def origin_words(note: Note) -> str:
    """Return the origin of a note in words: who wrote it, when, and what from outside was in view."""
    day = str(utc_time(note.changed))[:10]
    who = "written by the user" if note.author is NoteAuthor.USER else "proposed by a model, accepted by the user"
    session = f" in session {note.session[:8]}" if note.session else ""
    outside = f"; text from outside was in view: {', '.join(note.outside)}" if note.outside else ""
    return f"{who}{session} on {day}{outside}"
