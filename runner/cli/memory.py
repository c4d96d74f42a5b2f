"""`agent memory`: list, show, search, add, change and remove the notes that last across sessions."""

import os
import sys
import time
from typing import Annotated

import typer

from runner.agent.options import not_known
from runner.cli.gate import JSON, argument, option_before, print_notices, switch, valued
from runner.memory.index import found_notes
from runner.memory.note import LONGEST, Note, NoteKind, NoteScope, origin_words, text_fault, tidied
from runner.memory.store import NoteStore, StoredNotes
from runner.problems import Exit, usage
from runner.state.paths import private, state_dir
from runner.state.workspace import workspace_at
from runner.text.json_line import json_line, utc_time
from runner.text.sanitize import one_line, visible

memory_app = typer.Typer(no_args_is_help=False, invoke_without_command=True, rich_markup_mode="markdown")

_WIDE = 100  # columns of a note in a list


def _names(incomplete: str) -> list[str]:
    """Return the names of notes for completion."""
    return [note.name for note in _read(None).notes if note.name.startswith(incomplete)]


NAME = Annotated[str, argument("NAME", "The name of a note.", complete=_names)]
TEXT = Annotated[list[str] | None, argument("TEXT", "The text; without it, or with `-`, it is read from the input.")]
KIND = Annotated[
    NoteKind | None,
    valued("--kind", "KIND", "What the note is about: user, feedback, project (default) or reference."),
]
EVERYWHERE = Annotated[bool, switch("--user", help="A note for all your projects, not only this one.")]
CWD = Annotated[str | None, valued("--cwd", "FOLDER", "The workspace of FOLDER (default: of the current folder).")]


@memory_app.callback()
def memory(context: typer.Context, json: JSON = False) -> int:
    """List, show, search, add, change and remove notes that last across sessions.

    A note is one Markdown file in the state folder, for one project or with `--user` for all of them. The model gets
    the list of notes as information without authority. Only you write notes: here, with `/memory add`, or by an
    approval of a note that the model proposes. `agent ci` and `agent batch` use no notes. `memory = false` in the
    configuration switches them off.

    **Examples**

        agent memory
        agent memory add "run the tests with make check"
        agent memory add --kind user "I prefer short answers"
        agent memory search deploy
        agent memory remove run-the-tests-with-make-check
    """
    if context.invoked_subcommand is None:
        return listing(json=json)
    if json:
        raise option_before(f"memory {context.invoked_subcommand}")
    return Exit.DONE


@memory_app.command("list")
def listing(cwd: CWD = None, json: JSON = False) -> int:
    """List the notes of this workspace, then those for all projects.

    The latest note is the first. `outside` marks a note that a model proposed while text from outside was in view.

    **Examples**

        agent memory list
        agent memory list --json | jq -r 'select(.outside != []) | .name'
    """
    stored = _read(cwd)
    if not stored.notes and not json:
        print("there are no notes; `agent memory add TEXT` stores one")
    return _printed(stored.notes, json)


@memory_app.command("search")
def search(
    words: Annotated[list[str], argument("WORDS", "Words of the notes.")], cwd: CWD = None, json: JSON = False
) -> int:
    """List the notes that share words with WORDS, best first.

    The weight of a note halves with every 30 days since its last change.

    **Examples**

        agent memory search deploy server
    """
    found = found_notes(_read(cwd).notes, " ".join(words), time.time())
    if not found and not json:
        print("no note matches")
    return _printed(found, json)


@memory_app.command("show")
def show(name: NAME, cwd: CWD = None, json: JSON = False) -> int:
    """Print a note with its origin.

    The origin is the author, the session, the date, and the sources of text from outside that were in view.

    **Examples**

        agent memory show run-the-tests
    """
    note = _note(name, _read(cwd))
    if json:
        print(json_line(note_json(note)))
        return Exit.DONE
    print(visible(f"{note.name}  {note.kind.value}, {_where(note)}\n{origin_words(note)}\n\n{note.text}"))
    return Exit.DONE


@memory_app.command("add")
def add(text: TEXT = None, kind: KIND = None, everywhere: EVERYWHERE = False, cwd: CWD = None) -> int:
    """Store a note of your own.

    A note has at most 8 KiB in 200 lines, without control characters, invisible characters or keys. A note of the kind
    `user` is for all projects.

    **Examples**

        agent memory add "run the tests with make check"
        agent memory add --kind reference "the API: https://docs.example.com"
        agent memory add - < note.md
    """
    now = time.time()
    scope = NoteScope.USER if everywhere or kind is NoteKind.USER else NoteScope.PROJECT
    stored = _store(cwd).add(Note("", kind or NoteKind.PROJECT, scope, _given(text), now, now))
    print(f"stored {stored.name}: {one_line(stored.title, _WIDE)}")
    return Exit.DONE


@memory_app.command("edit")
def edit(name: NAME, text: TEXT = None, kind: KIND = None, cwd: CWD = None) -> int:
    """Replace the text or the kind of a note, and print the difference.

    The note is yours from then on: its origin is this change.

    **Examples**

        agent memory edit run-the-tests "run the tests with make check"
        agent memory show run-the-tests --json | jq -r .text | sed s/make/just/ | agent memory edit run-the-tests -
    """
    from policy.model.frozen import replace
    from sandbox.inside.files.diff import unified_rows

    note = _note(name, _read(cwd))
    wanted = note.text if text is None and kind is not None else _given(text)
    now = time.time()
    own = Note(note.name, kind or note.kind, note.scope, wanted, note.created, now)
    if replace(own, changed=note.changed, author=note.author, session=note.session, outside=note.outside) == note:
        print("nothing was changed")
        return Exit.DONE
    _store(cwd).replace(own, note.text)
    for row in unified_rows(note.text.split("\n"), wanted.split("\n")):
        print(visible(row, lines=False))
    if own.kind is not note.kind:
        print(f"kind: {note.kind.value} -> {own.kind.value}")
    return Exit.DONE


@memory_app.command("remove")
def remove(
    names: Annotated[list[str], argument("NAME", "The names of notes.", complete=_names)], cwd: CWD = None
) -> int:
    """Remove notes.

    Running sessions have the list of notes that they began with.

    **Examples**

        agent memory remove run-the-tests
    """
    stored = _read(cwd)
    for note in [_note(name, stored) for name in names]:
        _store(cwd).remove(note)
        print(f"removed {note.name}: {one_line(note.title, _WIDE)}")
    return Exit.DONE


@memory_app.command("path")
def path(everywhere: EVERYWHERE = False, cwd: CWD = None) -> int:
    """Print the folder of the notes of this workspace.

    The folder is created with the first note.

    **Examples**

        agent memory path --user
    """
    print(_store(cwd).folder(NoteScope.USER if everywhere else NoteScope.PROJECT))
    return Exit.DONE


def note_json(note: Note) -> dict[str, object]:
    """Return a note as the JSON object of `agent memory --json`."""
    return {
        "name": note.name,
        "kind": note.kind.value,
        "scope": note.scope.value,
        "text": note.text,
        "created": utc_time(note.created),
        "changed": utc_time(note.changed),
        "author": note.author.value,
        "session": note.session,
        "outside": list(note.outside),
    }


def _printed(notes: tuple[Note, ...], json: bool) -> int:
    for note in notes:
        outside = "  [outside]" if note.outside else ""
        line = f"{note.name}  {note.kind.value}, {_where(note)}{outside}  {one_line(note.title, _WIDE)}"
        print(json_line(note_json(note)) if json else visible(line, lines=False))
    return Exit.DONE


def _where(note: Note) -> str:
    return "this project" if note.scope is NoteScope.PROJECT else "all projects"


def _store(cwd: str | None) -> NoteStore:
    from runner.gate.gate import folder

    return NoteStore(state_dir(os.environ), workspace_at(str(folder(cwd)), os.environ))


def _read(cwd: str | None) -> StoredNotes:
    if not os.path.lexists(private(os.environ)[0]):
        return StoredNotes(())
    stored = _store(cwd).read()
    print_notices(stored.notices)
    return stored


def _note(name: str, stored: StoredNotes) -> Note:
    if (note := stored.named(name)) is not None:
        return note
    known = [each.name for each in stored.notes]
    what = f"there is no note `{one_line(name, 80)}`"
    raise not_known(what, "no note has this name" if known else "there are no notes", name, known, "see `agent memory`")


def _given(words: list[str] | None) -> str:
    """Return the text of the command line or of the input. Raise a usage error if it cannot be a note."""
    if words and words != ["-"]:
        text = " ".join(words)
    elif sys.stdin.isatty():
        raise usage("there is no text", "neither the command line nor the input has one", 'write the text: "..."')
    else:
        text = sys.stdin.buffer.read(LONGEST + 1).decode("utf-8", "replace")
    text = tidied(text)
    if fault := text_fault(text):
        raise usage("the note was not stored", f"the text {fault}", "shorten or reword it")
    return text
