"""The information flow of one session: which texts are in its conversation, and what is known of their sources.

A label only rises inside a session. Every change is written to the session file, so that a continued session, a fork
and a compacted conversation have the label of the texts that they contain.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from policy.flow.state import FlowMode, FlowState, Label, TextSource
from policy.flow.trusted_text import TrustedText
from policy.model.action import (
    Action,
    CallServerTool,
    EditFile,
    GlobFiles,
    GrepFiles,
    ListFolder,
    ManageAgent,
    ManageTasks,
    ReadFile,
    ReadServerResource,
    SpawnAgent,
)
from policy.model.facts import Remotes
from policy.model.frozen import dataclass
from policy.model.glob import glob
from policy.model.tier import Mode, Tier
from runner.events import Changed, Emit, Notice
from runner.flow.flow_entry import FlowEntry, FlowEntryKind
from runner.flow.foreign_text import StrangersText, without_texts
from runner.flow.held_change import HeldChange
from runner.flow.text_sources import outside_sources
from runner.flow.written_files import WrittenFiles, content_hash
from runner.state.json_file import StateError
from runner.state.workspace import head_commit
from runner.text.phrases import os_reason
from runner.text.sanitize import one_line

_LONGEST = 300  # characters of one source
_MOST_SOURCES = 200  # sources that are kept; the label needs only one
_LONGEST_TEXT = 64 << 10  # characters of one text of the user that are compared


@dataclass(frozen=True, slots=True)
class ResultLabels:
    """The labels that the configuration gives to results.

    Attributes:
        untrusted: patterns of paths of the workspace whose text is untrusted.
        private: patterns of paths of the workspace whose text is private.
        tools: for each server, pairs of a pattern of names of its tools and the label of their results.
        private_servers: the servers whose results are private.
    """

    untrusted: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    tools: Mapping[str, tuple[tuple[str, str], ...]] | None = None
    private_servers: frozenset[str] = frozenset()

    def of_tool(self, server: str, tool: str) -> Label:
        """Return the label of the results of a tool: that of the last pattern that fits, else untrusted."""
        found = Label.UNTRUSTED
        for pattern, word in (self.tools or {}).get(server, ()):
            if fnmatchcase(tool, pattern):
                found = Label[word.upper()]
        return found


class SessionFlow:
    """The information flow of one agent of a session.

    `chosen` is the mode that the configuration names, or None. `guarded` is True if the default of this kind of session
    is `guard`. `strangers` are texts that the words of the user may contain and that others wrote. `files` is the list
    of untrusted files of the workspace, or None if nothing is stored. `keep` writes an entry to the session file.
    """

    def __init__(
        self,
        chosen: FlowMode | None,
        *,
        guarded: bool = False,
        workspace: str = "",
        copied: bool = False,
        trusted: TrustedText | None = None,
        remotes: Remotes | None = None,
        files: WrittenFiles | None = None,
        labels: ResultLabels | None = None,
        emit: Emit = lambda event: None,
        keep: Callable[[FlowEntry], None] = lambda entry: None,
        strangers: tuple[StrangersText, ...] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._strangers = strangers
        self._chosen = chosen
        self._guarded = guarded
        self._workspace = workspace.rstrip("/")
        self.copied = copied  # the workspace is a copy, whose changes the user gets as a patch
        self._trusted = trusted or TrustedText()
        self._remotes = remotes
        self._files = files
        self._labels = labels or ResultLabels()
        self._emit = emit
        self._keep = keep
        self._clock = clock
        self._untrusted: dict[TextSource, None] = {}
        self._private: dict[str, None] = {}
        self._approved: set[tuple[str, str]] = set()
        self._endorsed: set[str] = set()
        self._children: list[SessionFlow] = []
        self._main = self  # the flow of the agent `main`
        # What the agents that wrote tasks had read; in the flow of `main`.
        self._of_tasks: dict[TextSource, None] = {}
        self._private_of_tasks: dict[str, None] = {}
        self._head = head_commit(self._workspace) if self._workspace else None
        self._failed = False
        self.held: tuple[HeldChange, ...] = ()  # changes of the action in progress that were taken back

    # ---- what verdicts rest on

    def mode(self, mode: Mode) -> FlowMode:
        """Return what the rules do in a session that has the permission mode `mode` now."""
        if self._chosen is not None:
            return self._chosen
        return FlowMode.GUARD if self._guarded or mode is Mode.TRUST_PROJECT else FlowMode.NOTE

    def state(self, mode: Mode, *, undo: bool = True) -> FlowState | None:
        """Return the state for one decision; None if the rules are off. `undo` is True if what commands change is
        looked at afterwards.
        """
        does = self.mode(mode)
        if does is FlowMode.OFF:
            return None
        return FlowState(
            does,
            self.untrusted,
            tuple(self._private),
            self._trusted,
            self._remotes,
            frozenset(self._approved),
            undo,
            self.copied,
        )

    @property
    def untrusted(self) -> tuple[TextSource, ...]:
        """Return the sources of untrusted text that the user has not endorsed."""
        return tuple(each for each in self._untrusted if not (each.sha256 and each.sha256 in self._endorsed))

    @property
    def private(self) -> tuple[str, ...]:
        """Return the sources of private data."""
        return tuple(self._private)

    @property
    def label(self) -> Label:
        """Return the label of the conversation."""
        return Label.UNTRUSTED if self.untrusted else Label.WORKSPACE

    # ---- changes

    def start(self) -> None:
        """Note in the session file that the flow is recorded from here on."""
        self._keep(FlowEntry(FlowEntryKind.START))

    def hear(self, text: str) -> None:
        """Note words of the user, which are trusted text."""
        if self._strangers:
            text, found = without_texts(text, self._strangers)
            for words, of_stranger in found:
                self.note_untrusted(words, of_stranger)
        if not (text := text[:_LONGEST_TEXT].strip()):
            return
        self._trusted = self._trusted.with_text(text)
        self._keep(FlowEntry(FlowEntryKind.TRUSTED, text))

    def note_untrusted(self, words: str, text: str = "") -> None:
        """Note that text of the source `words` is in the conversation from now on. `text` is the text, for its hash."""
        words = one_line(words, _LONGEST)
        self._add(words, hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() if text else "")

    def _add(self, words: str, digest: str) -> None:
        """Add a source of untrusted text. An endorsed text says nothing about another one of the same source."""
        known = any(each.words == words and (not digest or each.sha256 == digest) for each in self.untrusted)
        if known or (digest and digest in self._endorsed) or len(self.untrusted) >= _MOST_SOURCES:
            return
        at = time.strftime("%H:%M", time.localtime(self._clock()))
        before = self.label
        source = TextSource(words, at, digest)
        self._untrusted[source] = None
        self._keep(FlowEntry(FlowEntryKind.UNTRUSTED, words, at, digest))
        if before is not self.label:
            self._emit(Changed("label", before.word, self.label.word, words))

    def note_private(self, words: str) -> None:
        """Note that the session has read private data of the source `words`."""
        words = one_line(words, _LONGEST)
        if words in self._private or len(self._private) >= _MOST_SOURCES:
            return
        if not self._private:
            self._emit(Changed("private", "no", "yes", words))
        self._private[words] = None
        self._keep(FlowEntry(FlowEntryKind.PRIVATE, words))

    def take_held(self) -> tuple[HeldChange, ...]:
        """Return the changes that were taken back since the last call."""
        held, self.held = self.held, ()
        return held

    def approved(self, path: str, sha256: str) -> bool:
        """Return True if the user approved this content of the file."""
        return (path, sha256) in self._approved

    def approve(self, path: str, sha256: str) -> None:
        """Note that the user approved a content of a file that is trusted later."""
        self._approved.add((path, sha256))
        self._keep(FlowEntry(FlowEntryKind.APPROVED, path, "", sha256))
        self._forget((path,))

    def endorse_last(self) -> TextSource | None:
        """Endorse the latest result of an untrusted source for the user, and return its source; None without one."""
        last = next((each for each in reversed(self.untrusted) if each.sha256), None)
        if last is not None:
            before = self.label
            self._endorsed.add(last.sha256)
            self._keep(FlowEntry(FlowEntryKind.ENDORSED, last.words, "", last.sha256))
            if before is not self.label:
                self._emit(Changed("label", before.word, self.label.word, "you endorsed its last source"))
        return last

    def saw(
        self,
        action: Action,
        text: str,
        *,
        hosts: Sequence[str] = (),
        usual: Iterable[str] = (),
        tiers: Sequence[Tier] = (),
        credentials: Sequence[str] = (),
        quarantined: bool = False,
    ) -> None:
        """Note what the result `text` of an action contains.

        `hosts` are the hosts that the action reached, `usual` those of them that are registries, `tiers` the tiers of
        its decision, and `credentials` the credentials that its requests could get. `quarantined` is True if the text
        does not enter the conversation, but only checked values from it.
        """
        if isinstance(action, SpawnAgent | ManageAgent):
            self._join()
            return
        if isinstance(action, ManageTasks):
            self._share_tasks(writes=action.operation != "list")
            return
        self._saw_private(action, tiers, credentials)
        if quarantined:
            return
        reached = [host for host in hosts if host not in set(usual)]
        if isinstance(action, CallServerTool | ReadServerResource):
            name = action.name if isinstance(action, CallServerTool) else "@resource"
            label = self._labels.of_tool(action.server, name)
            if label is Label.TRUSTED:
                self._trusted = self._trusted.with_text(text[:_LONGEST_TEXT])
            if label is not Label.UNTRUSTED:
                return
        for source in (*outside_sources(action, reached), *self._of_files(action)):
            self.note_untrusted(source, text)

    def wrote(self, changed: Iterable[tuple[str, str]]) -> None:
        """Note the files that an action changed, each with the kind of change. While untrusted text is in view, they
        become untrusted. Note also the commits that it made: they endorse no untrusted file.
        """
        if self._files is None:
            return
        try:
            if self.untrusted:
                latest = self.untrusted[-1].said
                paths = (path for path, how in changed if how != "deleted")
                kept = [path for path in paths if (path, content_hash(path)) not in self._approved]
                self._files.note(kept, latest)
            elif not self._files.any():
                return
            self._note_commits(self._files)
        except (StateError, OSError) as error:
            self._report(error)

    def _note_commits(self, files: WrittenFiles) -> None:
        """Note the commits that an action added to the history of HEAD. Raise StateError or OSError."""
        commit = head_commit(self._workspace) if self._workspace else None
        before, self._head = self._head, commit
        if commit is None or commit == before:
            return
        files.note_commits(before, commit)

    def _saw_private(self, action: Action, tiers: Sequence[Tier], credentials: Sequence[str]) -> None:
        if Tier.READ_OUTSIDE in tiers:
            path = getattr(action, "path", "") or getattr(action, "root", "")
            self.note_private(f"the file {path}" if path else "files outside of the workspace")
        for name in credentials:
            self.note_private(f"answers to the credential {name.removesuffix(' (reading)')}")
        if isinstance(action, CallServerTool | ReadServerResource) and action.server in self._labels.private_servers:
            self.note_private(f"the server {action.server}")
        if (path := self._path_of(action)) and any(glob(path, pattern) for pattern in self._labels.private):
            self.note_private(f"the file {path}")

    def _of_files(self, action: Action) -> list[str]:
        """Return the sources of untrusted text in the files of the workspace that an action read."""
        found: list[str] = []
        path = self._path_of(action)
        if path and any(glob(path, pattern) for pattern in self._labels.untrusted):
            found.append(f"the file {path}")
        place = _place(action)
        if self._files is not None and place and not isinstance(action, ListFolder | GlobFiles):
            try:
                whole = isinstance(action, GrepFiles)
                for each, source in self._files.below(place) if whole else ((place, self._files.source(place)),):
                    if source:
                        kind = "files in" if os.path.isdir(each) else "file"
                        found.append(f"the {kind} {self._short(each)}, written after {source}")
            except StateError as error:
                self._report(error)
                found.append("a file whose source is not known")  # fail closed
        return found

    def read_files(self, paths: Iterable[str]) -> None:
        """Note that a command certainly read the files at or below `paths`."""
        for path in paths:
            for each in self._of_files(GrepFiles("", path)):
                self.note_untrusted(each)

    def _path_of(self, action: Action) -> str:
        """Return the path of a file of the workspace that an action reads, relative to the workspace; else empty."""
        place = _place(action)
        return self._short(place) if place.startswith(f"{self._workspace}/") else ""

    def _short(self, path: str) -> str:
        return path.removeprefix(f"{self._workspace}/")

    def _forget(self, paths: Iterable[str]) -> None:
        try:
            if self._files is not None:
                self._files.forget(paths)
        except (StateError, OSError) as error:
            self._report(error)

    def _report(self, error: StateError | OSError) -> None:
        if not self._failed:  # once: each further action would fail in the same way
            self._failed = True
            why = error.problem.why if isinstance(error, StateError) else os_reason(error)
            self._emit(Notice(f"the list of untrusted files cannot be used: {why}"))

    # ---- sub-agents, and sessions that go on

    def child(self, emit: Emit) -> "SessionFlow":
        """Return the flow of a sub-agent: its prompt is text of this agent, so that it begins with the same label."""
        made = SessionFlow(
            self._chosen,
            guarded=self._guarded,
            workspace=self._workspace,
            copied=self.copied,
            trusted=self._trusted,
            remotes=self._remotes,
            files=self._files,
            labels=self._labels,
            emit=emit,
            clock=self._clock,
        )
        made._untrusted = dict.fromkeys(self.untrusted)
        made._private = dict(self._private)
        made._approved = self._approved
        made._endorsed = self._endorsed
        made._main = self._main
        self._children.append(made)
        return made

    def _join(self) -> None:
        """Take over what the sub-agents have read: their reports contain it."""
        for child in self._children:
            child._join()
            self.take_over(child)

    def take_over(self, other: "SessionFlow") -> None:
        """Take over what another agent has read: this agent gets a text of it."""
        for source in other.untrusted:
            self._add(source.words, source.sha256)
        for words in other.private:
            self.note_private(words)

    def _share_tasks(self, *, writes: bool) -> None:
        """Take over what the agents that wrote the tasks of the session had read. With `writes`, this agent is one of
        them. The agent `main` gets it at once, because a later session may continue its conversation with the tasks.
        """
        main = self._main
        if writes:
            main.take_over(self)
            main._of_tasks |= dict.fromkeys(self.untrusted)
            main._private_of_tasks |= self._private
        for source in main._of_tasks:
            self._add(source.words, source.sha256)
        for words in main._private_of_tasks:
            self.note_private(words)

    def restore(self, entries: Sequence[FlowEntry]) -> None:
        """Apply the entries of the session that is continued. A session without entries has unknown sources."""
        if not entries:
            self.note_untrusted("the continued conversation, whose sources are not known")
            return
        for entry in entries:
            match entry.kind:
                case FlowEntryKind.UNTRUSTED:
                    self._untrusted[TextSource(entry.text, entry.at, entry.sha256)] = None
                case FlowEntryKind.PRIVATE:
                    self._private[entry.text] = None
                case FlowEntryKind.TRUSTED:
                    self._trusted = self._trusted.with_text(entry.text)
                case FlowEntryKind.APPROVED:
                    self._approved.add((entry.text, entry.sha256))
                case FlowEntryKind.ENDORSED:
                    self._endorsed.add(entry.sha256)
                case _:
                    pass


def _place(action: Action) -> str:
    """Return the absolute path that a file tool reads; empty for other actions."""
    match action:
        case ReadFile() | EditFile() | ListFolder():
            return action.path
        case GlobFiles() | GrepFiles():
            return action.root
        case _:
            return ""
