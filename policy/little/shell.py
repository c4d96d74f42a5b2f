"""What the shell's own words may ask of the walk beyond what other commands may."""

from typing import Protocol, cast

from policy.assessment import RuleRef
from policy.call import Call, Walker
from policy.script.tree import Expression
from policy.sense import AbstractWord
from policy.span import SourceSpan
from policy.state import Defined, State
from policy.traps import Trap


class Shell(Walker, Protocol):
    """The walk, as `cd`, `export` and `eval` see it. `poured`: words of the command came from a network. `arrays`:
    names that may be arrays by now; `integers`: those that may evaluate what they are given. `revealed`: names that a
    function has unset."""

    poured: bool
    arrays: set[str]
    integers: set[str]
    revealed: set[str]
    wandered: bool

    def assign(self, state: State, name: str, value: AbstractWord, span: SourceSpan | None) -> State: ...

    def number(self, name: str, value: AbstractWord, span: SourceSpan | None) -> None: ...

    def compute(self, expression: Expression, state: State, span: SourceSpan) -> State: ...

    def beneath(self, state: State, name: str, value: AbstractWord) -> AbstractWord: ...

    def hidden(self, state: State, name: str, span: SourceSpan | None, *, array: bool) -> State: ...

    def export(self, state: State, name: str, value: AbstractWord | None, span: SourceSpan | None) -> State: ...

    def inner_script(
        self, script: str, state: State, span: SourceSpan | None, rule: RuleRef, *, fed: bool
    ) -> tuple[State, State]: ...

    def trap(self, trap: Trap) -> None: ...

    def glimpse(self, script: str, state: State, rule: RuleRef, span: SourceSpan | None) -> None: ...

    def note(self, name: str, value: AbstractWord) -> None: ...

    def note_function(self, name: str, meanings: tuple[Defined | None, ...]) -> None: ...

    def note_state(self, state: State) -> None: ...

    def foreign_repository(self, cwd: str) -> str | None: ...


def shell_of(call: Call) -> Shell:
    """The walk of `call`. There is one class of walk; the two protocols say who may ask it for what."""
    return cast(Shell, call.walk)
