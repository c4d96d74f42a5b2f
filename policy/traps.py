"""Traps: shell text that runs later, when the shell ends or a signal comes, with whatever holds by then."""

from abc import abstractmethod
from dataclasses import replace

from policy.assessment import RuleRef
from policy.flow import Ends
from policy.functions import Functions
from policy.record import dataclass
from policy.script.tree import Script
from policy.sense import ANYTHING, AbstractWord, join
from policy.span import SourceSpan
from policy.state import UNDEFINED, Defined, State

MOST_TRAPS = 12


@dataclass(frozen=True, slots=True)
class Trap:
    """`state` is what held when it was set. `ends`: it runs when the shell ends, so that nothing comes after it."""

    text: str
    state: State
    span: SourceSpan | None
    rule: RuleRef
    ends: bool


class Traps(Functions):
    """The part of the walk that remembers what will run, and what changes until then."""

    def __init__(self) -> None:
        super().__init__()
        self.wandered = False  # another folder, since the first trap was set
        self._traps: list[Trap] = []
        self._values: dict[str, AbstractWord] = {}  # likewise, what variables were given
        self._meanings: dict[str, tuple[Defined | None, ...]] = {}
        self._exports: tuple[str, ...] = ()
        self._fixed: frozenset[str] = frozenset()

    @abstractmethod
    def inner_script(self, script: str, state: State, span: SourceSpan | None, rule: RuleRef, *, fed: bool) -> Ends:
        """Walk shell text in this very shell."""

    def trap(self, trap: Trap) -> None:
        if trap not in self._traps:
            self._traps.append(trap)

    def note(self, name: str, value: AbstractWord) -> None:
        """A variable gets a value."""
        if self._traps:
            self._values[name] = join(self._values.get(name, value), value)

    def note_function(self, name: str, meanings: tuple[Defined | None, ...]) -> None:
        if self._traps:
            self._meanings[name] = tuple(dict.fromkeys((*self._meanings.get(name, ()), *meanings)))

    def note_state(self, state: State) -> None:
        """What only grows."""
        if self._traps:
            self._exports = tuple(dict.fromkeys((*self._exports, *state.exports)))
            self._fixed |= state.fixed

    def run(self, tree: Script, state: State) -> None:
        """Walk a whole script, and then what it left to run."""
        self.script(tree, state)
        self.spring()

    def spring(self) -> None:
        """The shell ends: judge every trap in any state that may hold when it runs."""
        for count, trap in enumerate(self._traps):  # a trap may set another one
            if count >= MOST_TRAPS:
                self.findings.unknown("too many traps", trap.rule, trap.span)
                break
            begin = self._then(trap.state)
            if not trap.ends:
                begin = _marked(begin)
            outer, self.left, self.returned, self.wandered = (self.left, self.returned, self.wandered), [], [], False
            marks = self.marks()
            ends = self.inner_script(trap.text, begin, trap.span, trap.rule, fed=False)
            leaves = bool(self.left or self.returned) or (self.wandered and begin.cwds is None) or self.marks() > marks
            self.left, self.returned, wandered = outer
            self.wandered = self.wandered or wandered
            if not trap.ends and (leaves or any(end != begin for end in ends)):
                self.findings.unknown("a trap that changes what the rest of the script does", trap.rule, trap.span)

    def _then(self, state: State) -> State:
        variables = dict(state.variables)
        for name, value in self._values.items():
            variables[name] = join(variables.get(name, ANYTHING), value)
        functions = dict(state.functions)
        for name, meanings in self._meanings.items():
            functions[name] = tuple(dict.fromkeys((*functions.get(name, UNDEFINED), *meanings)))
        cwds = None if self.wandered else state.cwds
        exports = tuple(dict.fromkeys((*state.exports, *self._exports)))
        then = replace(state, cwds=cwds, variables=variables, functions=functions, exports=exports, arguments=None)
        return replace(then, stack=None, previous=None, locals=None, fixed=state.fixed | self._fixed)


def _marked(state: State) -> State:
    """The same state, in which every change shows: giving a variable the same value again, dropping an argument."""
    variables = {
        name: replace(value, span=SourceSpan(-number, -number))
        for number, (name, value) in enumerate(state.variables.items(), 1)
    }
    return replace(state, variables=variables, arguments=(ANYTHING,), fixed=frozenset())
