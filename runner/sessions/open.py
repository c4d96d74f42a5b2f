"""The start of a run's session: new, resumed, or forked, as the user chooses.

The file is created or changed with the first message.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from policy.model.frozen import dataclass
from runner import VERSION as PROGRAM
from runner.audit.chain import now
from runner.event_values import PastRow
from runner.problems import option, usage
from runner.providers.catalog import Price
from runner.secrets.redactor import Redactor
from runner.sessions.entries import VERSION, JournalEntry, Unsound, line
from runner.sessions.history import SessionHistory, history_of, index, last_model
from runner.sessions.journal import Journal, SessionLines
from runner.sessions.recent import recent_rows
from runner.sessions.selection import SessionSelection
from runner.sessions.store import SessionFile, SessionStore, choose
from runner.sessions.summary import latest_answered, row, summarize_session, summarize_sessions
from runner.sessions.tree import Tree
from runner.state.lineage import SessionLineage
from runner.state.paths import state_dir
from runner.state.workspace import workspace_at
from runner.stderr import say
from runner.text.sanitize import one_line

# Returns the model of the run (`provider:model`) for the model that the session used last, or an empty string. Thoughts
# of other models are left out of the history.
ModelOf = Callable[[str], str]
_SHOWN = 20  # sessions of the picker; `agent sessions list` has all


@dataclass(frozen=True, slots=True)
class SessionRun:
    """The process that works on a session. `audit` is its name in the audit log."""

    audit: str
    workspace: str
    cwd: str
    mode: str
    model: str
    unattended: bool


class SessionTarget:
    """The session file that a run writes, and the history that the run continues."""

    def __init__(self, store: SessionStore, before: SessionHistory | None = None, *, fork: bool = False) -> None:
        """Create the target of a new session; `resumed` and `forked` create the others."""
        self.store = store
        self.past = before
        self.recent: tuple[PastRow, ...] = ()  # the last exchanges of `past`
        self.fork = fork
        self._file: SessionFile | None = None
        self._tree: Tree | None = None
        self._source: BinaryIO | None = None

    @classmethod
    def resumed(cls, store: SessionStore, id: str, *, model: ModelOf = lambda own: "") -> "SessionTarget":
        """Return the target that continues a session, which is locked from now on. Raise SessionError, and what `model`
        raises.
        """
        file = store.open(id)
        try:
            with file.reader() as source:  # SAFETY: dup(2) shares the lock, so it must not outlive the file
                tree = index(source, id)
                made = cls(store, history_of(tree, id, model=model(last_model(tree))))
                made.recent = _recent(tree, made.past)
        except BaseException:
            file.close()
            raise
        made._file, made._tree = file, tree
        return made

    @classmethod
    def forked(
        cls, store: SessionStore, id: str, into: SessionStore, *, model: ModelOf = lambda own: "", upto: str = ""
    ) -> "SessionTarget":
        """Return the target that copies a session, up to its entry `upto` if given, to a new session in `into`.

        The original is only read. Raise SessionError, and what `model` raises.
        """
        with store.reading(id) as file:
            source = open(os.dup(file.fileno()), "rb")  # noqa: SIM115  # closed by `close`
        with contextlib.ExitStack() as undo:
            undo.callback(source.close)
            tree = index(source, id)
            before = history_of(tree, id, model=model(last_model(tree)), lenient=True, upto=upto)
            made = cls(into, before, fork=True)
            made.recent = _recent(tree, made.past)
            undo.pop_all()
        made._tree, made._source = tree, source
        return made

    def journal(self, run: SessionRun, redactor: Redactor | None, prices: Mapping[str, Price] | None = None) -> Journal:
        """Return the journal of `run`, which the caller has to close. Nothing is written before the first message."""
        number, leaf = (self._tree.last_id, self._leaf()) if self._tree is not None else (0, None)
        id = run.audit if self.past is None or self.fork else self.past.session
        lines = SessionLines(self.store, id, self._file, self._prepare(run))
        journal = Journal(lines, redactor, leaf=leaf, number=number, model=run.model, prices=prices)
        if self.past is None:
            journal.head({**_head(run), "forked_from": None})
        fields = {name: getattr(run, name) for name in ("audit", "mode", "model", "cwd", "unattended")}
        journal.run({**fields, "process": os.getpid()})
        self._file = None  # the journal owns the file now
        return journal

    @property
    def earlier(self) -> SessionLineage:
        """Return the runs whose actions belong to this session, too."""
        if self.past is None:
            return SessionLineage()
        return self.past.earlier.forked() if self.fork else self.past.earlier

    def close(self) -> None:
        """Close the files that no journal owns."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._source is not None:
            self._source.close()
            self._source = None

    def _leaf(self) -> str | None:
        """Return the parent of the first new entry: for a fork, the last line that `_copy` writes."""
        if self._tree is None or self.past is None:
            return None
        if not self.fork:
            return self.past.leaf
        return self._tree.id(next(at for at in reversed(self.past.path) if self._tree.type(at) != "grant"))

    def _prepare(self, run: SessionRun) -> "Callable[[SessionFile], None] | None":
        """Return the function that prepares the file for its first new line, or None."""
        tree, before = self._tree, self.past
        if tree is None or before is None:
            return None
        if self.fork:
            return lambda file: _copy(tree, before, run, file)

        def repair_end(file: SessionFile) -> None:
            if tree.torn:
                file.cut(tree.end)
            if tree.unended:
                file.append(b"\n", durable=False)

        return repair_end


def _recent(tree: Tree, past: SessionHistory | None) -> tuple[PastRow, ...]:
    return recent_rows(tree, past) if past is not None else ()


def _head(run: SessionRun) -> dict[str, object]:
    return {"version": VERSION, "session": run.audit, "workspace": run.workspace, "program": f"ringfence {PROGRAM}"}


def _copy(tree: Tree, before: SessionHistory, run: SessionRun, file: SessionFile) -> None:
    """Copy the branch of `before` to `file` under a new first line.

    Grants are not copied, because they were given to another session; `GrantStore.restore` takes over their denials. A
    notice replaces a line that is not needed and turns out to be invalid.
    """
    parent: str | None = None
    for at in before.path:
        if tree.type(at) == "grant":
            continue
        try:
            _, entry = next(tree.entries((at,)))
        except Unsound as error:
            text = f"left out of the old session: {error}"
            entry = JournalEntry(tree.id(at), parent, now(), "notice", {"text": text})
        body = entry.body
        if entry.type == "session":
            body = {**_head(run), "forked_from": {"session": before.session, "entry": before.leaf}}
        file.append(line(JournalEntry(entry.id, parent, entry.time, entry.type, body)), durable=False)
        parent = entry.id


def choose_target(
    flags: SessionSelection, cwd: Path, environ: Mapping[str, str], model: ModelOf, *, unattended: bool
) -> SessionTarget | None:
    """Return the session file of a run, or None if no session is kept. `model` is called for a session to continue.

    Raise SessionError, PlaceError, a usage error, KeyboardInterrupt if the user leaves the picker, or what `model`
    raises.
    """
    if flags.unkept:
        return None
    state = state_dir(environ)
    store = SessionStore.of(state, workspace_at(str(cwd), environ))
    if flags.fork is not None:
        there, id = choose(SessionStore.all(state), flags.fork)
        return SessionTarget.forked(there, id, store, model=model, upto=flags.upto)
    if flags.latest:
        latest = latest_answered(store)
        if latest is None:
            fix = f"leave {option('--continue')} out, or see `agent sessions list --all`"
            raise usage("there is no session to continue", "no session of this workspace is stored", fix)
        return SessionTarget.resumed(store, latest, model=model)
    if flags.resume is not None:
        if not flags.resume:
            return SessionTarget.resumed(store, _pick_session(store, unattended), model=model)
        there, id = choose(SessionStore.all(state), flags.resume)
        if there.key != store.key:
            why = f"its workspace is `{summarize_session(there, id).workspace}`"
            fix = f"change to that folder, or copy the session: `{option('--fork', id[:8], command='agent')}`"
            raise usage(f"the session {id[:8]} belongs to another workspace", why, fix)
        return SessionTarget.resumed(store, id, model=model)
    return SessionTarget(store)


def no_session_to_resume() -> Exception:
    """Return the usage error for a workspace without a session that can be picked."""
    why = "no session of this workspace with an answer is stored"
    return usage("there is no session to resume", why, "leave --resume out, or see `agent sessions list --all`")


def _pick_session(store: SessionStore, unattended: bool) -> str:
    """Return the session that the user names by its number in the list or by its id."""
    if unattended:
        why = f"`{option('--resume')}` without an id shows a list, and there is no user to choose from it"
        fix = f"write `{option('--resume', 'ID')}`, or `{option('--continue')}` for the latest one"
        raise usage("no session is named", why, fix)
    sessions = summarize_sessions(store)
    if not sessions:
        raise no_session_to_resume()
    summaries = sessions[:_SHOWN]
    for number, each in enumerate(summaries, start=1):
        say(f"{number:>3}  {row(each)}")
    if len(sessions) > len(summaries):
        say(f"     and {len(sessions) - len(summaries)} older: `agent sessions list`")
    while True:
        print("which session? Type a number or an id; Enter: the first; q: quit. ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        answer = line.strip()
        if not line or answer in ("q", "quit"):
            raise KeyboardInterrupt
        if not answer:
            return sessions[0].id
        if answer.isdecimal() and 1 <= int(answer[:9]) <= len(summaries):
            return summaries[int(answer) - 1].id
        matching = [each.id for each in sessions if len(answer) > 3 and each.id.startswith(answer)]
        if len(matching) == 1:
            return matching[0]
        say(f"`{one_line(answer, 40)}` is not a number or an id from this list")
