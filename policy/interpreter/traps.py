"""Traps: shell text that runs later, when the shell ends or a signal arrives, in any state that is possible then."""

from collections.abc import Callable

from policy.interpreter.findings import Findings
from policy.interpreter.shell_state import UNDEFINED, Definition, ExecutionFrame, ExitStates, State, join_exports
from policy.model.abstract_word import ANYTHING, AbstractWord, SourceSpan, join
from policy.model.assessment import RuleRef
from policy.model.frozen import dataclass, replace

MOST_TRAPS = 12


@dataclass(frozen=True, slots=True)
class Trap:
    """One trap that the script sets.

    Attributes:
        text: the shell text.
        state: the state in which the trap was set.
        at_end: the trap only runs when the shell ends, so nothing of the script comes after it.
        file: the file of `source` that sets the trap; empty for the script itself.
    """

    text: str
    state: State
    span: SourceSpan | None
    rule: RuleRef
    at_end: bool
    file: str = ""


# Interprets a text in the shell that runs the script: text, state, frame, place, rule.
RunText = Callable[[str, State, ExecutionFrame, SourceSpan | None, RuleRef], ExitStates]


class TrapTable:
    """The traps that a script has set, and what the script has changed since the first of them.

    Attributes:
        pending: the traps that may run.
        folder_changed: the shell may have changed its folder.
    """

    def __init__(self, findings: Findings) -> None:
        self.folder_changed = False
        self._findings = findings
        self.pending: list[Trap] = []
        self._values: dict[str, AbstractWord] = {}
        self._meanings: dict[str, tuple[Definition | None, ...]] = {}
        self._exports: tuple[str, ...] = ()
        self._fixed: frozenset[str] = frozenset()

    def add(self, trap: Trap) -> None:
        """Remember a trap."""
        if trap not in self.pending:
            self.pending.append(trap)

    def note_value(self, name: str, value: AbstractWord) -> None:
        """Remember that a variable gets `value`."""
        if self.pending:
            self._values[name] = join(self._values.get(name, value), value)

    def note_function(self, name: str, meanings: tuple[Definition | None, ...]) -> None:
        """Remember that a function gets one of `meanings`."""
        if self.pending:
            self._meanings[name] = tuple(dict.fromkeys((*self._meanings.get(name, ()), *meanings)))

    def note_state(self, state: State) -> None:
        """Remember the exported and the read-only names of `state`."""
        if self.pending:
            self._exports = tuple(dict.fromkeys((*self._exports, *state.exports)))
            self._fixed |= state.fixed

    def in_another_shell(self, run: Callable[[], None]) -> None:
        """Call `run` for a shell that has no traps yet."""
        outer, self.pending = self.pending, []
        run()
        self.pending = outer

    def run_all(self, frame: ExecutionFrame, run_text: RunText, marks: Callable[[], int]) -> None:
        """Judge every trap at the end of the shell, each in a state that covers all states in which it may run.

        `marks` returns the number of names that are arrays or integer variables (`Variables.marks`), which are not part
        of a State.
        """
        for count, trap in enumerate(self.pending):  # a trap may set another trap
            if count >= MOST_TRAPS:
                self._findings.unknown("too many traps", trap.rule, trap.span)
                break
            begin = self._state_when_run(trap.state)
            begin = begin if trap.at_end else _marked(begin)
            folder_changed, self.folder_changed = self.folder_changed, False
            marked = marks()
            inside = replace(frame, stdin_from_network=False, loop_exits=[], returns=[])
            outer, self._findings.file = self._findings.file, trap.file
            ends = run_text(trap.text, begin, inside, trap.span, trap.rule)
            self._findings.file = outer
            leaves = bool(inside.loop_exits or inside.returns) or (self.folder_changed and begin.cwds is None)
            self.folder_changed = self.folder_changed or folder_changed
            if not trap.at_end and (leaves or marks() > marked or any(end != begin for end in ends)):
                self._findings.unknown("a trap that changes what the rest of the script does", trap.rule, trap.span)

    def _state_when_run(self, state: State) -> State:
        variables = dict(state.variables)
        for name, value in self._values.items():
            variables[name] = join(variables.get(name, ANYTHING), value)
        functions = dict(state.functions)
        for name, meanings in self._meanings.items():
            functions[name] = tuple(dict.fromkeys((*functions.get(name, UNDEFINED), *meanings)))
        cwds = None if self.folder_changed else state.cwds
        exports = join_exports(state.exports, self._exports) if self._exports else state.exports
        then = replace(state, cwds=cwds, variables=variables, functions=functions, exports=exports, arguments=None)
        return replace(then, stack=None, previous=None, locals=None, fixed=state.fixed | self._fixed)


def _marked(state: State) -> State:
    """Return `state` with marked values, so that even an assignment of the same value or a `shift` is a difference."""
    variables = {
        name: replace(value, span=SourceSpan(-number, -number))
        for number, (name, value) in enumerate(state.variables.items(), 1)
    }
    return replace(state, variables=variables, arguments=(ANYTHING,), fixed=frozenset())
