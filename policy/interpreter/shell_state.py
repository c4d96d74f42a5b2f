"""The abstract state of a shell at one point of a script, and the frame in which a command runs."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from policy.model import abstract_word
from policy.model.abstract_word import ANYTHING, NOTHING, AbstractWord, SourceSpan, join
from policy.model.frozen import dataclass, field, replace

if TYPE_CHECKING:
    from policy.bash.ast import Group, Subshell

MOST_FOLDERS = 6
MOST_OUTPUT = 24  # texts that commands are known to print


@dataclass(frozen=True, slots=True, eq=False)
class Definition:
    """A function with the place of its definition in the user's script. Two definitions are equal only if they are
    one object.

    Attributes:
        file: the file of `source` that contains the definition; empty for the script itself.
    """

    body: "Group | Subshell"
    anchor: SourceSpan | None
    file: str = ""


UNDEFINED: tuple[Definition | None, ...] = (None,)


@dataclass(frozen=True, slots=True)
class State:
    """The state of the shell at one point of a script.

    Attributes:
        cwds: the folders that may be the current folder, or None if unknown.
        variables: the variables that the script has assigned.
        exports: names that the script has exported to every later program and that programs may obey. A variable that
            only keeps a program from the network is in the form `NAME=VALUE` (`keeps_offline`).
        stack: the folders that `popd` returns to; None if unknown.
        previous: the folder that `cd -` returns to.
        fixed: names that may be read-only, so that an assignment to them fails.
        functions: for each name that was ever defined as a function, the functions that it may be now; None is among
            them if it may not be a function.
        arguments: the words that `"$@"` becomes, or None if unknown.
        locals: inside a function, the names of its local variables, each with the value that is restored afterwards.
        allexport: True if bash may export every variable that is assigned (`set -a`).
    """

    cwds: tuple[str, ...] | None
    variables: Mapping[str, AbstractWord] = field(default_factory=dict)
    exports: tuple[str, ...] = ()
    stack: tuple[tuple[str, ...] | None, ...] | None = ()
    previous: tuple[str, ...] | None = None
    fixed: frozenset[str] = frozenset()
    functions: Mapping[str, tuple[Definition | None, ...]] = field(default_factory=dict)
    arguments: tuple[AbstractWord, ...] | None = None
    locals: Mapping[str, AbstractWord] | None = None
    allexport: bool = False

    def assign(self, name: str, value: AbstractWord) -> "State":
        if name in self.fixed:
            value = join(self.variables.get(name, ANYTHING), value)
        return replace(self, variables={**self.variables, name: value})

    def own(self, name: str, value: AbstractWord) -> "State":
        """Return the state after assigning `value` to the variable, which becomes a local variable inside a
        function.
        """
        if self.locals is None:
            return self.assign(name, value)
        kept = {name: self.variables.get(name, ANYTHING), **self.locals}
        return replace(self.assign(name, value), locals=kept)

    def define(self, name: str, meanings: tuple[Definition | None, ...]) -> "State":
        return replace(self, functions={**self.functions, name: meanings})

    def argument(self, number: int) -> AbstractWord | None:
        """Return the value of `$number`: the empty text if there is no such argument, None if it is not known."""
        if self.arguments is None or any(word.may_split for word in self.arguments[:number]):
            return None
        return self.arguments[number - 1] if number <= len(self.arguments) else NOTHING

    def with_cwds(self, cwds: tuple[str, ...] | None) -> "State":
        return replace(self, cwds=cwds, previous=self.cwds)


class ExitStates(NamedTuple):
    """The states after a command that succeeded and after one that failed."""

    on_success: State
    on_failure: State

    @classmethod
    def same(cls, state: State) -> "ExitStates":
        """Return the exit states of a command after which `state` holds in both cases."""
        return cls(state, state)

    def or_early(self, returns: Iterable[State]) -> "ExitStates":
        """Return the exit states of text that `return` may also leave in one of the states `returns`."""
        success, failure = self
        for early in returns:
            success, failure = join_states(success, early), join_states(failure, early)
        return ExitStates(success, failure)


class CommandResult(NamedTuple):
    """The outcome of interpreting one command.

    Attributes:
        states: the states after success and after failure.
        printed: a bound on the text that the command prints; None if none is known.
        words: the words that the command prints, with a NUL after each; empty if they are not known.
        output: the exact text that the command prints, if it is certain.
    """

    states: ExitStates
    printed: AbstractWord | None = None
    words: tuple[AbstractWord, ...] = ()
    output: str | None = None


@dataclass(frozen=True, slots=True)
class ExecutionFrame:
    """The surroundings of a command: its place, its standard input, and the lists that collect its results.

    Attributes:
        anchor: the place of the interpreted text in the user's script; None for the user's script itself.
        in_shell: a shell runs the command, so the builtins of the shell are commands.
        depth: number of scripts around the command that were given as text.
        files: number of those scripts that are files read with `source`.
        other_shell: another shell than bash runs the interpreted text.
        stdin_from_network: the standard input comes from a network.
        words_from_network: words or input of the command that is being judged come from a network.
        stdin_texts: texts that are known to arrive on the standard input.
        stdin_words: the words, with a NUL after each, that are known to arrive on the standard input.
        stdin_script: the exact text of the standard input; None if it is not certain.
        stdin_shared: other commands may have read a part of `stdin_script` before.
        output: collects texts that commands are known to print.
        loop_exits: collects the states in which `break` or `continue` leaves the body of the loop.
        returns: collects the states in which `return` leaves the function.
    """

    anchor: SourceSpan | None = None
    in_shell: bool = True
    depth: int = 0
    files: int = 0
    other_shell: bool = False
    stdin_from_network: bool = False
    words_from_network: bool = False
    stdin_texts: tuple[str, ...] = ()
    stdin_words: tuple[AbstractWord, ...] = ()
    stdin_script: str | None = None
    stdin_shared: bool = False
    output: list[str] = field(default_factory=list)
    loop_exits: list[State] = field(default_factory=list)
    returns: list[State] = field(default_factory=list)

    def place(self, span: SourceSpan) -> SourceSpan:
        """Return the range of the user's script that `span` of the interpreted text corresponds to."""
        return self.anchor or span


@dataclass(frozen=True, slots=True)
class ExpandedCommand:
    """A simple command whose words are expanded and whose redirections are judged.

    Attributes:
        words: the program and its words.
        state: the state of the shell before the command.
        assignments: the assignments before the command. None means that a program, not the shell, runs the command, so
            its name is never the name of a function.
    """

    words: list[AbstractWord]
    state: State
    span: SourceSpan | None
    frame: ExecutionFrame
    assignments: list[tuple[str, AbstractWord]] | None = None


def join_exports(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    """Return the exports that cover both. A value that is certain in only one of them becomes a name alone."""
    if first == second:
        return first
    both = {*first} & {*second}
    return tuple(dict.fromkeys(each if each in both else each.partition("=")[0] for each in (*first, *second)))


def join_states(first: State, second: State) -> State:
    """Return the state that covers both `first` and `second`."""
    if first is second or first == second:
        return first
    cwds: tuple[str, ...] | None = None
    if first.cwds is not None and second.cwds is not None:
        folders = tuple(dict.fromkeys((*first.cwds, *second.cwds)))
        cwds = folders if len(folders) <= MOST_FOLDERS else None
    variables = {
        name: join(first.variables.get(name, ANYTHING), second.variables.get(name, ANYTHING))
        for name in {*first.variables, *second.variables}
    }
    exports = join_exports(first.exports, second.exports)
    stack = first.stack if first.stack == second.stack else None
    previous = first.previous if first.previous == second.previous else None
    functions = first.functions
    if functions is not second.functions:
        functions = {
            name: tuple(dict.fromkeys((*first.functions.get(name, UNDEFINED), *second.functions.get(name, UNDEFINED))))
            for name in {**first.functions, **second.functions}
        }
    arguments = first.arguments if first.arguments == second.arguments else None
    fixed = first.fixed | second.fixed
    own, other = first.locals, second.locals
    both = other if own is None else own
    if own is not None and other is not None:
        # If only one state has a local variable, the other may have changed the value that is restored.
        shared = own.keys() & other.keys()
        both = {name: join(own[name], other[name]) if name in shared else ANYTHING for name in {**own, **other}}
    allexport = first.allexport or second.allexport
    return State(cwds, variables, exports, stack, previous, fixed, functions, arguments, both, allexport)


def widen_counters(before: State, after: State) -> State:
    """Return `after`, but with any number as the value of each number that a round of a loop has changed."""
    counted = {
        name: abstract_word.MAYBE_NUMBER if value.empty or before.variables[name].empty else abstract_word.NUMBER
        for name, value in after.variables.items()
        if abstract_word.is_number(value) and name in before.variables and before.variables[name] != value
    }
    return replace(after, variables={**after.variables, **counted})
