"""Functions of a script: a call has the effects of the body with the words of that call."""

from collections.abc import Callable
from dataclasses import replace

from policy.bash.ast import Function, Node
from policy.interpreter.assignments import Variables
from policy.interpreter.findings import Findings
from policy.interpreter.shell_state import (
    CommandResult,
    Defined,
    ExecutionFrame,
    ExitStates,
    ExpandedCommand,
    State,
    join_states,
)
from policy.interpreter.traps import TrapTable
from policy.model.abstract_word import ANYTHING, SourceSpan
from policy.model.assessment import Check
from policy.model.tier import Tier

MOST_DEEP = 8  # calls within calls
MOST_CALLS = 100  # in one script: a body is interpreted anew for each of them


class FunctionTable:
    """The functions that a script defines, and the calls that are being interpreted."""

    def __init__(
        self,
        findings: Findings,
        variables: Variables,
        traps: TrapTable,
        run_node: Callable[[Node, State, ExecutionFrame], CommandResult],
    ) -> None:
        self._run_node = run_node
        self._findings = findings
        self._variables = variables
        self._traps = traps
        self._running: list[Defined] = []
        self._calls = 0
        self._definitions: dict[int, tuple[Function, Defined]] = {}

    def define(self, node: Function, state: State, frame: ExecutionFrame) -> State:
        """Return the state after the definition of a function."""
        text = f"defines the function `{node.name}`"
        self._findings.add_reason(Tier.READ, text, Check.FUNCTION_DEFINITION, frame.place(node.span))
        # The same object for the same text, so that a loop that defines a function comes to an end.
        _, defined = self._definitions.setdefault(id(node), (node, Defined(node.body, frame.anchor)))
        self._traps.note_function(node.name, (defined,))
        return state.define(node.name, (defined,))

    def call(self, name: str, meaning: Defined, command: ExpandedCommand) -> ExitStates:
        """Interpret a call of the function `name`, which may be `meaning` now."""
        state, frame, span = command.state, command.frame, command.span
        # The words of the call are those of no program, so no rule about words may cover what the function does.
        outer, self._findings.step = self._findings.step, self._findings.ground
        self._calls += 1
        try:
            if meaning in self._running:
                return self._give_up(f"the function `{name}` calls itself", state, span)
            if len(self._running) >= MOST_DEEP or self._calls > MOST_CALLS:
                return self._give_up("functions are called too often, or within each other", state, span)
            inside = replace(state, arguments=tuple(command.words[1:]), locals={})
            for variable, value in command.assignments or ():
                known = value if self._variables.may_assign(variable, value, span, exported=False) else ANYTHING
                self._traps.note_value(variable, known)
                inside = inside.own(variable, known)
            within = replace(frame, anchor=meaning.anchor, loop_exits=[], returns=[])
            self._running.append(meaning)
            try:
                success, failure = self._run_node(meaning.body, inside, within).states
            finally:
                self._running.pop()
            # Older versions of bash let `break` in a function leave the loop around its call.
            frame.loop_exits.extend([self._after_call(early, state) for early in within.loop_exits])
            for early in within.returns:
                success, failure = join_states(success, early), join_states(failure, early)
            return ExitStates(self._after_call(success, state), self._after_call(failure, state))
        finally:
            self._findings.step = outer

    def _after_call(self, after: State, before: State) -> State:
        """Return the caller's state, given the state `after` in which the body ends."""
        if not after.locals:
            return replace(after, arguments=before.arguments, locals=before.locals)
        revealed = self._variables.revealed
        old = {name: ANYTHING if name in revealed else value for name, value in after.locals.items()}
        for name, value in old.items():
            self._traps.note_value(name, value)
        variables = {**after.variables, **old}
        for name, value in old.items():
            if value is ANYTHING and name not in before.variables:
                del variables[name]  # as unknown as it was
        return replace(after, variables=variables, arguments=before.arguments, locals=before.locals)

    def _give_up(self, why: str, state: State, span: SourceSpan | None) -> ExitStates:
        self._findings.unknown(why, Check.FUNCTION_CALL_LIMIT, span)
        return ExitStates.same(replace(state, cwds=None, variables={}, stack=None, previous=None))
