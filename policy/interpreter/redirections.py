"""Redirections: the files that they open, and the texts that are known to come from descriptors."""

import re
from dataclasses import replace

from policy.bash.ast import Redirect, RedirectOp
from policy.interpreter.expansion import Expander
from policy.interpreter.findings import Findings
from policy.interpreter.shell_state import MOST_OUTPUT, ExecutionFrame, State
from policy.model.abstract_word import AbstractWord, SourceSpan, literal
from policy.model.assessment import Check
from policy.rules.rule import Role

_DIGITS = re.compile(r"[0-9]+-?|-")
_STANDARD = frozenset(["0", "1", "2", ""])


class Redirections:
    """The descriptors of a script.

    Attributes:
        streams: texts that are known to come from each descriptor except the standard input.
    """

    def __init__(self, findings: Findings, expander: Expander) -> None:
        self.streams: dict[str, tuple[str, ...]] = {}
        self._findings = findings
        self._expander = expander
        self._opened: set[str] = set()

    def apply(self, redirects: tuple[Redirect, ...], state: State, frame: ExecutionFrame) -> ExecutionFrame:
        """Judge every redirection, and return the frame of their command."""
        if not redirects:
            return frame
        before = self._findings.connected
        for redirect in redirects:
            word = self._expander.expand_single(redirect.target, state, frame)
            span = frame.place(redirect.span)
            match redirect.op:
                case RedirectOp.HERE_DOC | RedirectOp.HERE_STRING:
                    frame = self._input(redirect.fd, word.texts or word.likely_texts or word.hints, frame)
                case RedirectOp.DUP_IN | RedirectOp.DUP_OUT:
                    number = word.text.strip("-") if word.text is not None and _DIGITS.fullmatch(word.text) else "?"
                    # The files of other descriptors were judged where the script opened them.
                    if number not in _STANDARD and (number not in self._opened or self._findings.connected):
                        text = "copies a descriptor that was opened elsewhere"
                        self._findings.unknown(text, Check.INHERITED_DESCRIPTOR, span)
                    frame = self._input(redirect.fd, self.streams.get(number, ()), frame)
                case RedirectOp.IN:
                    self._open(Role.READ, word, state, span)
                    frame = self._input(redirect.fd, word.content, frame)
                case RedirectOp.READ_WRITE:
                    self._open(Role.READ, word, state, span)
                    self._open(Role.WRITE, word, state, span)
                case _:
                    self._open(Role.WRITE, word, state, span)
            if redirect.fd is not None:
                self._opened.add(str(redirect.fd))
        return replace(frame, stdin_from_network=True) if self._findings.connected > before else frame

    def _input(self, number: int | None, texts: tuple[str, ...], frame: ExecutionFrame) -> ExecutionFrame:
        """Record the texts of a descriptor. A script may open a descriptor repeatedly, so all its texts are
        collected.
        """
        if number in (None, 0):
            return replace(frame, stdin_texts=texts)
        if texts:
            known = self.streams.get(str(number), ())
            self.streams[str(number)] = tuple(dict.fromkeys((*known, *texts)))[:MOST_OUTPUT]
        return frame

    def _open(self, role: Role, word: AbstractWord, state: State, span: SourceSpan) -> None:
        before = len(self._findings)
        if word.may_split or (word.text is not None and not word.text):
            self._findings.unknown("redirects to a path known only at run time", Check.REDIRECTION, span)
            self._findings.suspect(role, word, state.cwds, Check.REDIRECTION, span)
        else:
            self._findings.access_path(role, word, state.cwds, Check.REDIRECTION, span)
        for text in word.likely_texts:
            self._findings.access_path(role, literal(text), state.cwds, Check.REDIRECTION, span)
        if self._findings.changed_since(before, (Check.REDIRECTION,)):
            self._findings.beyond_plain_edits = True
