"""The notes of one session: what the model proposes, and what it searches.

THREAT T213: a model must not write a note by itself. Its proposal is an action that is a question in every mode, with
the whole text; what is stored is the text of that action, and a note that changed since the question stays.
"""

import time
from collections.abc import Callable, Iterable

from policy.model.action import Action, ProposeNote, SearchNotes
from policy.model.frozen import replace
from policy.model.profile import MAIN
from policy.model.verdict import Problem, Terms
from runner.flow.text_sources import outside_sources
from runner.memory.index import answer_text, found_notes, told_notes
from runner.memory.note import (
    MOST_SOURCES,
    Note,
    NoteAuthor,
    NoteError,
    NoteKind,
    NoteScope,
    is_name,
    source_name,
    text_fault,
    tidied,
)
from runner.memory.store import NoteStore, StoredNotes
from runner.text.sanitize import one_line
from sandbox.backend import Outcome

MOST_LINES = 20  # lines of a proposed note: a plain terminal shows so many at once, twice for a change
_SERVER = "mcp__"


class SessionNotes:
    """The notes of a session.

    `store` has the files and `session` is the ID of the session. `continued` is True if the conversation began in an
    earlier session, whose sources are not known. `clock` returns the time in seconds since 1970.
    """

    def __init__(
        self, store: NoteStore, session: str, *, continued: bool = False, clock: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._session = session
        self._clock = clock
        self._outside: dict[str, None] = {}
        self.told_outside: tuple[str, ...] = ()  # the notes with text from outside that the model was told, in words
        if continued:
            self.note_outside(["the continued conversation"])

    def told(self) -> tuple[str, StoredNotes]:
        """Return the text for the model, and the notes that it is about. Raise NoteError."""
        stored = self._store.read()
        self.told_outside = tuple(
            f"the note {note.name}, from {', '.join(note.outside)}" for note in stored.notes if note.outside
        )
        return told_notes(stored.notes, self._clock(), searchable=True), stored

    def note_outside(self, sources: Iterable[str]) -> None:
        """Note that text of these sources is in view from now on."""
        self._outside |= dict.fromkeys(map(source_name, sources))

    def saw(self, action: Action, terms: Terms) -> None:
        """Note the sources of the text that the result of an action contains."""
        self.note_outside(outside_sources(action, terms.open_hosts))

    def known(self, action: Action, agent: str, tools: Iterable[str]) -> Action | Problem:
        """Return a proposal with the present text of its note and with the sources of outside text; or the problem.

        `tools` are the names of the tools whose descriptions the model gets: those of servers are text from outside.
        """
        if not isinstance(action, ProposeNote):
            return action
        what = "the note cannot be proposed"
        if agent != MAIN:
            return Problem(what, "only the agent that the user instructs may propose notes", "return the fact instead")
        text = tidied(action.text)
        if fault := text_fault(text):
            return Problem(what, f"its text {fault}", "shorten or reword it")
        if text.count("\n") >= MOST_LINES:
            return Problem(what, f"its text has more than {MOST_LINES} lines", "shorten it")
        servers = dict.fromkeys(
            f"the tool descriptions of {name.removeprefix(_SERVER).partition('__')[0]}"
            for name in tools
            if name.startswith(_SERVER)
        )
        outside = tuple([*self._outside, *map(source_name, servers)][:MOST_SOURCES])
        if not action.name:
            return replace(action, text=text, before="", outside=outside)
        try:
            present = self._store.read().named(action.name) if is_name(action.name) else None
        except NoteError as error:
            return error.problem
        if present is None:
            why = f"there is no note `{one_line(action.name, 60)}`"
            return Problem(what, why, "leave out `name` for a new note, or name one from the list of notes")
        if present.text.count("\n") >= MOST_LINES:
            return Problem(what, "the present text is too long to be compared in a question", "leave it to the user")
        everywhere = present.scope is NoteScope.USER
        return replace(action, text=text, everywhere=everywhere, before=present.text, outside=outside)

    def perform(self, action: ProposeNote | SearchNotes) -> Outcome:
        """Store the note that the user approved, or search the notes."""
        try:
            if isinstance(action, SearchNotes):
                found = found_notes(self._store.read().notes, action.query, self._clock())
                return Outcome(0, answer_text(found).encode())
            return Outcome(0, self._stored(action).encode())
        except NoteError as error:
            return Outcome(1, problem=error.problem)

    def _stored(self, action: ProposeNote) -> str:
        now = self._clock()
        scope = NoteScope.USER if action.everywhere else NoteScope.PROJECT
        note = Note(
            action.name,
            NoteKind(action.about),
            scope,
            action.text,
            now,
            now,
            NoteAuthor.MODEL,
            self._session,
            action.outside,
        )
        if not action.name:
            return f"stored as `{self._store.add(note).name}`; later sessions get it"
        present = next(
            (each for each in self._store.read().notes if (each.name, each.scope) == (note.name, scope)), None
        )
        created = present.created if present is not None else now
        self._store.replace(replace(note, created=created), action.before)
        return f"changed `{action.name}`; later sessions get the new text"
