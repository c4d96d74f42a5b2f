"""Redirections: the files that they open, and the texts that are known to come from descriptors."""

import re

from policy.bash.ast import Parameter, Redirect, RedirectOp
from policy.interpreter.expansion import Expander
from policy.interpreter.findings import Findings
from policy.interpreter.shell_state import MOST_OUTPUT, ExecutionFrame, State
from policy.model import abstract_word
from policy.model.abstract_word import AbstractWord, SourceSpan, literal
from policy.model.assessment import Check
from policy.model.frozen import replace
from policy.rules.rule import Role

_DIGITS = re.compile(r"[0-9]+-?|-")
_STANDARD = frozenset(["0", "1", "2", ""])


def _key(redirect: Redirect) -> str:
    """Return the descriptor that a redirection opens: its number, `{name}`, or an empty text for the usual one."""
    if redirect.variable:
        return f"{{{redirect.variable}}}"
    return "" if redirect.fd is None else str(redirect.fd)


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
        inputs = sum(map(_replaces_input, redirects))
        if frame.stdin_script is not None and inputs:
            frame = replace(frame, stdin_script=None)
        uncertain = sum(each.target.literal is None for each in redirects)
        for redirect in redirects:
            word = self._expander.expand_single(redirect.target, state, frame)
            span = frame.place(redirect.span)
            match redirect.op:
                case RedirectOp.HERE_DOC | RedirectOp.HERE_STRING:
                    frame = self._input(redirect, word.texts or word.likely_texts or word.hints, frame)
                    end = "\n" if redirect.op is RedirectOp.HERE_STRING else ""
                    if inputs == 1:
                        frame = _with_script(redirect, uncertain, word.text, end, frame)
                case RedirectOp.DUP_IN | RedirectOp.DUP_OUT:
                    number = self._copied(redirect, word, span)
                    # The files of other descriptors were judged where the script opened them.
                    if number not in _STANDARD and (number not in self._opened or self._findings.connected):
                        text = "copies a descriptor that was opened elsewhere"
                        self._findings.unknown(text, Check.INHERITED_DESCRIPTOR, span)
                    frame = self._input(redirect, self.streams.get(number, ()), frame)
                case RedirectOp.IN:
                    self._open(Role.READ, word, state, span)
                    frame = self._input(redirect, word.content, frame)
                    if inputs == 1:
                        frame = _with_script(redirect, uncertain, word.output, "", frame)
                case RedirectOp.READ_WRITE:
                    self._open(Role.READ, word, state, span)
                    self._open(Role.WRITE, word, state, span)
                case _:
                    self._open(Role.WRITE, word, state, span)
            self._opened.add(_key(redirect))
        return replace(frame, stdin_from_network=True) if self._findings.connected > before else frame

    def _copied(self, redirect: Redirect, word: AbstractWord, span: SourceSpan) -> str:
        """Return the descriptor that `>&` or `<&` copies, by its number or as `{name}`; `?` if it is not known."""
        if word.text is not None and _DIGITS.fullmatch(word.text):
            return word.text.strip("-")
        number = abstract_word.is_number(word) and not word.empty and word.plain
        if not number:
            text = f"`{redirect.op}` with a word that may not be a number: bash evaluates it as the name of a file"
            self._findings.unknown(text, Check.INHERITED_DESCRIPTOR, span)
        part = redirect.target.parts[0]
        return f"{{{part.name}}}" if number and isinstance(part, Parameter) else "?"

    def _input(self, redirect: Redirect, texts: tuple[str, ...], frame: ExecutionFrame) -> ExecutionFrame:
        """Record the texts of a descriptor. A script may open a descriptor repeatedly, so all its texts are
        collected.
        """
        key = _key(redirect)
        if key in ("", "0"):
            return replace(frame, stdin_texts=texts)
        if texts:
            known = self.streams.get(key, ())
            self.streams[key] = tuple(dict.fromkeys((*known, *texts)))[:MOST_OUTPUT]
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


def _replaces_input(redirect: Redirect) -> bool:
    """Return True if the redirection replaces the standard input."""
    inputs = (RedirectOp.IN, RedirectOp.READ_WRITE, RedirectOp.DUP_IN, RedirectOp.HERE_DOC, RedirectOp.HERE_STRING)
    return _key(redirect) in (("0", "") if redirect.op in inputs else ("0",))


def _with_script(
    redirect: Redirect, uncertain: int, text: str | None, end: str, frame: ExecutionFrame
) -> ExecutionFrame:
    """Return the frame with `text` and `end` as the exact standard input, if `redirect` determines it. No other
    redirection of the command does.

    `uncertain`: the number of the redirections whose targets are known only at run time. Bash expands the targets of
    the others while the input is open already.
    """
    if text is None or not _replaces_input(redirect):
        return frame
    others = uncertain - (redirect.target.literal is None)
    return replace(frame, stdin_script=text + end, stdin_shared=others > 0)
