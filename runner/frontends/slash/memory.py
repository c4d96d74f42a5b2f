"""The command about notes that last across sessions: /memory."""

import time
from functools import partial

from runner.frontends.slash.command import CommandHost, Mistake, SlashCommand, say
from runner.memory.note import Note, NoteKind, NoteScope, kind_of_words, origin_words, text_fault, tidied
from runner.memory.store import NoteStore
from runner.state.paths import state_dir
from runner.text.sanitize import one_line, visible

_USAGE = "write /memory, /memory show NAME, /memory add [KIND] TEXT, /memory edit NAME TEXT, or /memory remove NAME"
_WIDE = 80  # characters of a note in a list
_LATER = "sessions that begin from now on get it"


async def _memory(words: str, host: CommandHost) -> None:
    """List the notes, show one, or add, change or remove one of the user's."""
    store = NoteStore(state_dir(host.environ), host.conversation.ctx.look().workspace)
    verb, _, rest = words.partition(" ")
    rest = rest.strip()
    match verb, rest:
        case "" | "list", "":
            _list(store, host)
        case "add", text if text:
            _add(store, text, host)
        case "show", name if name:
            note = _named(store, name)
            say(host, *visible(f"{_line(note)}\n{origin_words(note)}\n\n{note.text}").split("\n"))
        case "edit", given if " " in given:
            name, _, text = given.partition(" ")
            _edit(store, _named(store, name), text, host)
        case "remove", name if name:
            store.remove(note := _named(store, name))
            say(host, f"removed {note.name}; this session has the notes that it began with")
        case _:
            raise Mistake(_USAGE)


def _list(store: NoteStore, host: CommandHost) -> None:
    stored = store.read()
    off = () if host.settings.value("memory") else ("notes are switched off: `memory = false`",)
    none = () if stored.notes else ("there are no notes; /memory add TEXT stores one",)
    say(host, *off, *stored.notices, *none, *map(_line, stored.notes))


def _line(note: Note) -> str:
    where = "this project" if note.scope is NoteScope.PROJECT else "all projects"
    outside = ", outside" if note.outside else ""
    head = f"{note.name}  {note.kind.value}, {where}{outside}"
    return visible(f"{head}  {one_line(note.title, _WIDE)}", lines=False)


def _add(store: NoteStore, given: str, host: CommandHost) -> None:
    kind, text = kind_of_words(given)
    scope = NoteScope.USER if kind is NoteKind.USER else NoteScope.PROJECT
    now = time.time()
    note = store.add(Note("", kind, scope, _checked(text), now, now, session=host.conversation.ctx.session))
    say(host, f"stored {note.name}; {_LATER}")


def _edit(store: NoteStore, note: Note, text: str, host: CommandHost) -> None:
    changed = Note(note.name, note.kind, note.scope, _checked(text), note.created, time.time())
    store.replace(changed, note.text)
    say(host, f"changed {note.name}; {_LATER}")


def _checked(text: str) -> str:
    text = tidied(text)
    if fault := text_fault(text):
        raise Mistake(f"the note was not stored: its text {fault}")
    return text


def _named(store: NoteStore, name: str) -> Note:
    found = store.read()
    if (note := found.named(name)) is not None:
        return note
    names = ", ".join(each.name for each in found.notes) or "none"
    raise Mistake(visible(f"there is no note `{one_line(name, 60)}`; the notes are {names}", lines=False))


def _words(host: CommandHost) -> list[str]:
    return ["list", "show", "add", "edit", "remove"]


_command = partial(SlashCommand, group="Conversation")

# fmt: off
COMMANDS = (
    _command("memory", "[add TEXT|...]", "list or change your notes for later sessions", _memory, words=_words),
)
# fmt: on
