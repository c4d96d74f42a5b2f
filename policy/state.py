"""What the shell that runs a script knows at one point of it: folder and variables."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from policy.sense import ANYTHING, Sense, either

MOST_FOLDERS = 6


@dataclass(frozen=True, slots=True)
class State:
    """`cwds`: the folders that may be the current one, or None when that is not known.

    `variables`: names assigned by the script. `exports`: names that it gave to every later program and that those may
    obey. `stack`: what `popd` returns to; None when not known. `previous`: what `cd -` returns to. `fixed`: names that
    may be read-only by now, so that assigning to them fails.
    """

    cwds: tuple[str, ...] | None
    variables: Mapping[str, Sense] = field(default_factory=dict)
    exports: tuple[str, ...] = ()
    stack: tuple[tuple[str, ...] | None, ...] | None = ()
    previous: tuple[str, ...] | None = None
    fixed: frozenset[str] = frozenset()

    def assign(self, name: str, value: Sense) -> "State":
        if name in self.fixed:
            value = either(self.variables.get(name, ANYTHING), value)
        return replace(self, variables={**self.variables, name: value})

    def moved(self, cwds: tuple[str, ...] | None) -> "State":
        return replace(self, cwds=cwds, previous=self.cwds)


def either_state(first: State, second: State) -> State:
    """What holds when one of two states holds."""
    if first is second or first == second:
        return first
    cwds: tuple[str, ...] | None = None
    if first.cwds is not None and second.cwds is not None:
        cwds = tuple(dict.fromkeys((*first.cwds, *second.cwds)))
        if len(cwds) > MOST_FOLDERS:
            cwds = None
    names = {*first.variables, *second.variables}
    variables = {
        name: either(first.variables.get(name, ANYTHING), second.variables.get(name, ANYTHING)) for name in names
    }
    exports = tuple(dict.fromkeys((*first.exports, *second.exports)))
    stack = first.stack if first.stack == second.stack else None
    previous = first.previous if first.previous == second.previous else None
    return State(cwds, variables, exports, stack, previous, first.fixed | second.fixed)
