"""Expansion: what the words of a script become, as far as that is certain."""

from dataclasses import dataclass, replace
from typing import Protocol

from policy.assessment import RuleRef, Span
from policy.effects import Findings
from policy.facts import Facts, Kind
from policy.script.tree import Command, Glob, Parameter, Script, Substitution, Text, Tilde, Word
from policy.sense import ANYTHING, NOTHING, Sense, exactly, joined, unquoted
from policy.state import State
from policy.tier import Tier

HERE = RuleRef("policy/expand.py", 0)

_NUMBERS = frozenset(["?", "#", "$", "!", "PPID", "UID", "EUID", "RANDOM", "SECONDS", "LINENO"])


class Around(Protocol):
    """The walk, as an expansion sees it. `tame`: the last command printed words that start with no dash."""

    facts: Facts
    findings: Findings
    fed: bool
    tame: bool

    def script(self, script: Script, state: State) -> tuple[State, State]: ...

    def span(self, span: Span) -> Span: ...

    def foreign_repository(self, cwd: str) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Expansion:
    """Expands words for one walk; whatever runs on the way is walked."""

    walk: Around

    def sense(self, word: Word, state: State) -> Sense:
        """What `word` may become; everything that runs while it is expanded is walked."""
        parts = word.parts
        if len(parts) == 1 and isinstance(parts[0], Text):
            return Sense(texts=(parts[0].text,), span=self.walk.span(word.span))
        return joined([self._part(part, state) for part in parts] or [NOTHING], self.walk.span(word.span))

    def _part(self, part: object, state: State) -> Sense:
        match part:
            case Text(text=text):
                return Sense(texts=(text,))
            case Tilde(user=user, span=span):
                if user:
                    self.walk.findings.unknown(
                        f"`~{user}` is a home folder that is not known", HERE, self.walk.span(span)
                    )
                    return Sense(head="/", dashless=True)
                return Sense(texts=(self.walk.facts.home,))
            case Glob():
                return Sense(wild=True, many=True)
            case Parameter():
                return self._parameter(part, state)
            case Substitution(body=body, kind=kind, quoted=quoted):
                return self._substitution(body, kind, quoted, state)
        return ANYTHING

    def _parameter(self, part: Parameter, state: State) -> Sense:
        name = part.name
        if part.length or name in _NUMBERS:
            return Sense(dashless=True)
        if name in ("@", "*"):
            return ANYTHING if name == "@" or not part.quoted else Sense()
        value = state.variables.get(name)
        if value is None:
            if name == "HOME":
                value = exactly(self.walk.facts.home)
            elif name == "PWD" and state.cwds is not None:
                value = Sense(texts=state.cwds)
            else:
                value = Sense(many=True)
        return replace(value, many=False) if part.quoted else unquoted(value)

    def _substitution(self, body: Script, kind: str, quoted: bool, state: State) -> Sense:
        self.walk.tame = False
        fed, self.walk.fed = self.walk.fed, False
        worst = self.walk.findings.worst
        self.walk.script(body, state)
        self.walk.fed = fed
        if kind != "command":
            return exactly("/dev/fd/0")  # a pipe that bash makes; its other end was walked
        command = body.items[0].node if len(body.items) == 1 else None
        if not isinstance(command, Command) or command.assignments or command.redirects:
            return Sense(many=not quoted)
        if self.walk.findings.worst > max(worst, Tier.READ):
            return Sense(many=not quoted)
        words = [word.literal for word in command.words]
        known = self._known_output(words, state)
        if known is not None:
            return exactly(known) if quoted else unquoted(exactly(known))
        # Commands marked tame print numbers, ids, or paths below the workspace: one word when that has no blanks.
        tame = self.walk.tame and None not in words and not any(char.isspace() for char in self.walk.facts.workspace)
        return Sense(dashless=tame, many=not quoted and not tame)

    def _known_output(self, words: list[str | None], state: State) -> str | None:
        """The output of the few commands that only say what is known already."""
        if words == ["pwd"] and state.cwds is not None and len(state.cwds) == 1:
            return state.cwds[0]
        if words == ["git", "rev-parse", "--show-toplevel"] and state.cwds is not None:
            inside = all(self.walk.findings.atlas.within(cwd, self.walk.facts.workspace) for cwd in state.cwds)
            here = self.walk.facts.look(f"{self.walk.facts.workspace}/.git").kind is not Kind.MISSING
            if inside and here and not any(self.walk.foreign_repository(cwd) for cwd in state.cwds):
                return self.walk.facts.workspace
        return None
