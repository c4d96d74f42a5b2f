"""Functions of the script: a call does what the body does with the words of that call."""

from abc import abstractmethod
from dataclasses import replace

from policy.builtin_rules import FUNCTION_CALL_LIMIT, FUNCTION_DEFINITION
from policy.flow import Ends, Flow, either_ends
from policy.script.tree import Function
from policy.sense import ANYTHING, AbstractWord
from policy.span import SourceSpan
from policy.state import UNDEFINED, Defined, State, join_states
from policy.tier import Tier

MOST_DEEP = 8  # calls within calls
MOST_CALLS = 100  # in one walk: a body is walked anew for each of them

Given = list[tuple[str, AbstractWord]]  # assignments before the name of a command


class Functions(Flow):
    """The part of the walk that knows what the script has defined. `revealed`: names that a function has unset, so that
    those of its callers may have come back."""

    printed: AbstractWord | None
    revealed: set[str]
    _anchor: SourceSpan | None

    def __init__(self) -> None:
        self.returned: list[State] = []  # what held where a function was left
        self.revealed = set()
        self._running: list[Defined] = []
        self._calls = 0
        self._definitions: dict[int, tuple[Function, Defined]] = {}

    @abstractmethod
    def note_function(self, name: str, meanings: tuple[Defined | None, ...]) -> None:
        """A name gets a meaning."""

    @abstractmethod
    def program(
        self,
        name: str,
        words: list[AbstractWord],
        state: State,
        span: SourceSpan | None,
        first: AbstractWord,
        *,
        fed: bool,
    ) -> Ends:
        """Judge a command that is no function."""

    def define(self, node: Function, state: State) -> Ends:
        text = f"defines the function `{node.name}`"
        self.findings.add_reason(Tier.READ, text, FUNCTION_DEFINITION, self.span(node.span))
        # The same object for the same text, so that a loop that defines a function comes to an end.
        _, defined = self._definitions.setdefault(id(node), (node, Defined(node.body, self._anchor)))
        self.note_function(node.name, (defined,))
        state = state.define(node.name, (defined,))
        return state, state

    def called(
        self,
        name: str,
        words: list[AbstractWord],
        state: State,
        span: SourceSpan | None,
        first: AbstractWord,
        given: Given,
        *,
        fed: bool,
    ) -> Ends:
        """A command by its name, where functions come first."""
        meanings = state.functions.get(name, UNDEFINED)
        ends = [
            self.program(name, words, state, span, first, fed=fed)
            if meaning is None
            else self._enter(name, meaning, words, state, span, given, fed=fed)
            for meaning in meanings
        ]
        return either_ends(ends)

    def _enter(
        self,
        name: str,
        meaning: Defined,
        words: list[AbstractWord],
        state: State,
        span: SourceSpan | None,
        given: Given,
        *,
        fed: bool,
    ) -> Ends:
        # The words of the call are those of no program, so no rule about words may cover what the function does.
        outer, self.findings.step = self.findings.step, self.findings.ground
        self._calls += 1
        try:
            if meaning in self._running:
                return self._cannot(f"the function `{name}` calls itself", state, span)
            if len(self._running) >= MOST_DEEP or self._calls > MOST_CALLS:
                return self._cannot("functions are called too often, or within each other", state, span)
            return self._inside(meaning, words, state, span, given, fed=fed)
        finally:
            self.findings.step = outer

    def _inside(
        self,
        meaning: Defined,
        words: list[AbstractWord],
        state: State,
        span: SourceSpan | None,
        given: Given,
        *,
        fed: bool,
    ) -> Ends:
        inside = replace(state, arguments=tuple(words), locals={})
        for variable, value in given:
            known = value if self.may_assign(variable, value, span, exported=False) else ANYTHING
            self.note(variable, known)
            inside = inside.own(variable, known)
        kept = (self._anchor, self.returned, self.left)
        self._anchor, self.returned, self.left = meaning.anchor, [], []
        self._running.append(meaning)
        try:
            ok, fail = self._fed(fed, lambda: self.node(meaning.body, inside))
            returned, left = self.returned, self.left
        finally:
            self._running.pop()
            self._anchor, self.returned, self.left = kept
        # Older versions of bash let `break` in a function leave the loop around its call.
        self.left += [self._back(early, state) for early in left]
        for early in returned:
            ok, fail = join_states(ok, early), join_states(fail, early)
        self.printed = None
        return self._back(ok, state), self._back(fail, state)

    def _back(self, after: State, before: State) -> State:
        """What holds after a call."""
        if not after.locals:
            return replace(after, arguments=before.arguments, locals=before.locals)
        old = {name: ANYTHING if name in self.revealed else value for name, value in after.locals.items()}
        for name, value in old.items():
            self.note(name, value)
        variables = {**after.variables, **old}
        for name, value in old.items():
            if value is ANYTHING and name not in before.variables:
                del variables[name]  # as unknown as it was
        return replace(after, variables=variables, arguments=before.arguments, locals=before.locals)

    def _cannot(self, why: str, state: State, span: SourceSpan | None) -> Ends:
        self.findings.unknown(why, FUNCTION_CALL_LIMIT, span)
        after = replace(state, cwds=None, variables={}, stack=None, previous=None)
        return after, after
