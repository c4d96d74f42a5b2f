"""Control flow: lists, pipelines, loops, branches and conditions, and the states after each of them."""

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import assert_never

from policy.bash.ast import (
    FILE_COMPARISONS,
    FILE_TESTS,
    NUMERIC,
    Case,
    Command,
    Compute,
    Condition,
    For,
    Function,
    Group,
    If,
    Loop,
    Name,
    Node,
    Pipeline,
    Redirect,
    RedirectOp,
    Script,
    Subshell,
    Test,
    While,
)
from policy.interpreter.arithmetic import is_number
from policy.interpreter.assignments import Variables
from policy.interpreter.expansion import Expander
from policy.interpreter.findings import Findings
from policy.interpreter.functions import FunctionTable
from policy.interpreter.redirections import Redirections
from policy.interpreter.shell_state import MOST_OUTPUT, CommandResult, ExecutionFrame, ExitStates, State, join_states
from policy.model.abstract_word import ANYTHING, MAYBE_NUMBER, NOTHING, NUMBER, AbstractWord, join, literal
from policy.model.assessment import ARITHMETIC_COMMAND, CASE_COMMAND, CONDITION
from policy.model.tier import Tier
from policy.rules.rule import Role

MOST_ROUNDS = 4  # of a loop body, until another round changes nothing


class ControlFlow:
    """The interpreter of compound commands. Simple commands are interpreted by `run_command`."""

    def __init__(
        self,
        findings: Findings,
        expander: Expander,
        variables: Variables,
        functions: FunctionTable,
        redirections: Redirections,
        run_command: Callable[[Command, State, ExecutionFrame], CommandResult],
    ) -> None:
        self._findings = findings
        self._expander = expander
        self._variables = variables
        self._functions = functions
        self._redirections = redirections
        self._run_command = run_command

    def script(self, script: Script, state: State, frame: ExecutionFrame) -> CommandResult:
        """Interpret the items of a script in order. The result holds what the last one prints."""
        outer, self._findings.step = self._findings.step, self._findings.ground
        try:
            return self._items(script, state, frame)
        finally:
            self._findings.step = outer

    def _items(self, script: Script, state: State, frame: ExecutionFrame) -> CommandResult:
        success = failure = begin = state
        operator, printed = ";", None
        for item in script.items:
            if operator in (";", "&"):
                begin = join_states(success, failure)
                (success, failure), printed, _ = self.node(item.node, begin, frame)
            elif operator == "&&":
                (success, later), printed, _ = self.node(item.node, success, frame)
                failure = join_states(failure, later)
            else:
                (later, failure), printed, _ = self.node(item.node, failure, frame)
                success = join_states(success, later)
            operator = item.then
            if operator == "&":
                success = failure = begin  # the whole list ran in a shell of its own
        return CommandResult(ExitStates(success, failure), printed)

    def node(self, node: Node, state: State, frame: ExecutionFrame) -> CommandResult:
        """Interpret one command, simple or compound."""
        self._findings.classifier.budget.spend(10 + 2 * len(state.variables))  # the states are compared
        result = self._node(node, state, frame)
        if not isinstance(node, (Pipeline, Function)) and not all(map(_opens, node.redirects)):
            # When a file cannot be opened, bash does not even begin.
            success, failure = result.states
            return result._replace(states=ExitStates(success, join_states(failure, state)))
        return result

    def _node(self, node: Node, state: State, frame: ExecutionFrame) -> CommandResult:
        if not isinstance(node, Command | Pipeline | Function | For | Loop):  # these have none, or begin without them
            frame = self._redirections.apply(node.redirects, state, frame)
        match node:
            case Command():
                return self._run_command(node, state, frame)
            case Pipeline():
                return self._pipeline(node, state, frame)
            case Function():
                end = self._functions.define(node, state, frame)
            case For():
                end = self._for(node, state, frame)
            case Loop():
                end = self._loop(node, state, frame)
            case Group(body=body):
                return CommandResult(self.script(body, state, frame).states)
            case Subshell(body=body):
                self.script(body, state, frame)
                end = state
            case Compute(expression=expression, span=span):
                self._findings.add_reason(Tier.READ, "computes", ARITHMETIC_COMMAND, frame.place(span))
                end = self._variables.compute(expression, state, frame, span)
            case Test():
                end = self._test(node, state, frame)
            case Case():
                end = self._case(node, state, frame)
            case While():
                end = self._while(node, state, frame)
            case If():
                end = self._if(node, state, frame)
            case never:
                assert_never(never)
        return CommandResult(ExitStates.same(end))

    def _pipeline(self, node: Pipeline, state: State, frame: ExecutionFrame) -> CommandResult:
        if len(node.commands) == 1:
            result = self.node(node.commands[0], state, frame)
            success, failure = result.states
            return result._replace(states=ExitStates(failure, success)) if node.negated else result
        connected = self._findings.connected
        stage, output = frame, frame.output
        words: tuple[AbstractWord, ...] = ()
        for command in node.commands:
            lone = not node.merged and _lone(command, state)
            output = []
            result = self.node(command, state, replace(stage, output=output, stdin_words=words if lone else ()))
            words = result.words if lone else ()
            stage = replace(
                stage,
                stdin_from_network=stage.stdin_from_network or self._findings.connected > connected,
                stdin_texts=tuple(dict.fromkeys(output)),
            )
        frame.output.extend(output[:MOST_OUTPUT])
        return CommandResult(ExitStates.same(state))

    def _for(self, node: For, state: State, frame: ExecutionFrame) -> State:
        value = ANYTHING
        if node.words is not None:
            value = _each(self._expander.expand_all(node.words, state, frame))
        elif state.arguments is not None:
            value = _each(list(state.arguments))
        frame = self._redirections.apply(node.redirects, state, frame)
        if not self._variables.may_assign(node.name, value, node.span, exported=False):
            value = ANYTHING
        begin = self._variables.assign(state, node.name, value, node.span)
        end = self._rounds(lambda known, inside: self._body(node.body, known, inside), begin, frame, (node.name, value))
        return join_states(state, end)

    def _while(self, node: While, state: State, frame: ExecutionFrame) -> State:
        def once(known: State, inside: ExecutionFrame) -> State:
            return self._body(node.body, self._body(node.condition, known, inside), inside)

        return self._rounds(once, state, frame, None)

    def _loop(self, node: Loop, state: State, frame: ExecutionFrame) -> State:
        def once(known: State, inside: ExecutionFrame) -> State:
            known = self._variables.compute(node.condition, known, inside, node.span)
            return self._variables.compute(node.step, self._body(node.body, known, inside), inside, node.span)

        begin = self._variables.compute(node.first, state, frame, node.span)
        frame = self._redirections.apply(node.redirects, state, frame)
        return self._rounds(once, begin, frame, None)

    def _case(self, node: Case, state: State, frame: ExecutionFrame) -> State:
        self._findings.add_reason(Tier.READ, "chooses by a pattern", CASE_COMMAND, frame.place(node.span))
        self._expander.expand_single(node.word, state, frame)
        end = state
        for branch in node.branches:
            for word in branch.patterns:
                self._expander.expand_single(word, state, frame)
            end = join_states(end, self._body(branch.body, state, frame))
        return end

    def _test(self, node: Test, state: State, frame: ExecutionFrame) -> State:
        self._findings.add_reason(Tier.READ, "checks a condition", CONDITION, frame.place(node.span))
        for piece in node.pieces:
            if not isinstance(piece, Condition):
                continue
            operands = [
                replace(self._expander.expand_single(word, state, frame), may_split=False, globbed=False)
                for word in piece.words
            ]
            if piece.operator in FILE_TESTS or piece.operator in FILE_COMPARISONS:
                for operand in operands:
                    for each in (operand, *map(literal, operand.likely_texts)):
                        self._findings.access_path(Role.TREE, each, state.cwds, CONDITION, frame.place(piece.span))
            elif piece.operator in NUMERIC:
                from policy.bash.test_expression import evaluated  # loaded with every script, not with a plain command

                for word, operand in zip(piece.words, operands, strict=True):
                    name = evaluated(word)
                    if name is not None:
                        self._expander.evaluate(Name(name, False), state, frame, piece.span)
                    elif not is_number(operand):
                        self._expander.require_number("a comparison of numbers", frame.place(piece.span))
        return state

    def _if(self, node: If, state: State, frame: ExecutionFrame) -> State:
        ends: list[State] = []
        current = state
        for condition, body in node.branches:
            success, current = self.script(condition, current, frame).states
            ends += self.script(body, success, frame).states
        ends += self.script(node.otherwise, current, frame).states if node.otherwise is not None else (current,)
        return reduce(join_states, ends)

    def _body(self, body: Script, state: State, frame: ExecutionFrame) -> State:
        """Return the state after `body`, whether it succeeds or fails."""
        return join_states(*self.script(body, state, frame).states)

    def _rounds(
        self,
        once: Callable[[State, ExecutionFrame], State],
        state: State,
        frame: ExecutionFrame,
        fixed: tuple[str, AbstractWord] | None,
    ) -> State:
        """Interpret rounds of a loop until another one adds nothing new about folders and variables.

        `fixed` is the loop variable with its value, which every round sets again.
        """
        known = state
        for attempt in range(MOST_ROUNDS):
            inside, marks = replace(frame, loop_exits=[]), self._variables.marks()
            self._findings.loops += 1
            end = once(known, inside)
            self._findings.loops -= 1
            end = reduce(join_states, inside.loop_exits, end)
            if fixed is not None:
                end = end.assign(*fixed)
            merged = join_states(known, end)
            if merged == known and self._variables.marks() == marks:
                return known
            known = _counting(known, merged)
            if attempt == MOST_ROUNDS - 2:
                names = dict.fromkeys(known.variables, ANYTHING)
                names.update([fixed] if fixed else [])
                known = replace(known, cwds=None, variables=names, stack=None, previous=None, arguments=None)
        return known


def _lone(node: Node, state: State) -> bool:
    """Return True if a part of a pipeline is one program that alone reads and writes the pipes around it."""
    if not isinstance(node, Command) or node.assignments or not node.words:
        return False
    quiet = all(each.fd == 2 and each.target.literal == "/dev/null" for each in node.redirects)
    return (
        quiet and all(word.literal is not None for word in node.words) and node.words[0].literal not in state.functions
    )


def _opens(redirect: Redirect) -> bool:
    """Return True if the redirection certainly works."""
    return redirect.op in _FILES and redirect.target.literal == "/dev/null"


_FILES = frozenset([RedirectOp.IN, RedirectOp.OUT, RedirectOp.APPEND, RedirectOp.CLOBBER, RedirectOp.OUT_ERR])


def _counting(before: State, after: State) -> State:
    """Return `after` where each number that a round of a loop has changed may be any number in the next round."""
    counted = {
        name: MAYBE_NUMBER if value.empty or before.variables[name].empty else NUMBER
        for name, value in after.variables.items()
        if is_number(value) and name in before.variables and before.variables[name] != value
    }
    return replace(after, variables={**after.variables, **counted})


def _each(words: list[AbstractWord]) -> AbstractWord:
    """Return the value of a loop variable, given the words of its list."""
    if not words:
        return NOTHING
    if len(words) == 1 and words[0].globbed:
        return replace(words[0], may_split=False)
    value = reduce(join, (replace(word, span=None) for word in words))
    return replace(value, may_split=False) if all(word.texts or word.globbed for word in words) else value
