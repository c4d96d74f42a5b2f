"""Control flow: lists, pipelines, loops, branches, conditions and function calls, and the states after each of them."""

from collections.abc import Callable, Iterator
from functools import reduce
from itertools import count
from typing import assert_never

from policy.bash import ast
from policy.bash.ast import Command, Node, RedirectOp, Script
from policy.interpreter import shell_state
from policy.interpreter.assignments import Variables
from policy.interpreter.expansion import Expander
from policy.interpreter.findings import Findings
from policy.interpreter.redirections import Redirections
from policy.interpreter.shell_state import CommandResult, ExecutionFrame, ExitStates, State, join_states
from policy.interpreter.traps import TrapTable
from policy.model.abstract_word import ANYTHING, AbstractWord, SourceSpan, is_number, joined, literal
from policy.model.assessment import Check
from policy.model.frozen import dataclass, field, replace
from policy.model.tier import Tier
from policy.rules.rule import Role

MOST_DEEP = 8  # calls of functions within calls
MOST_CALLS = 100  # in one script: a body is interpreted anew for each of them
MOST_ROUNDS = 4  # interpretations of a loop body, the last one with unknown variables


@dataclass(frozen=True, slots=True)
class ControlFlow:
    """The interpreter of compound commands and functions. Simple commands are interpreted by `run_command`."""

    findings: Findings
    expander: Expander
    variables: Variables
    traps: TrapTable
    redirections: Redirections
    run_command: Callable[[Command, State, ExecutionFrame], CommandResult]
    _running: list[shell_state.Definition] = field(default_factory=list, init=False)
    _calls: Iterator[int] = field(default_factory=lambda: count(1), init=False)
    _definitions: dict[int, tuple[ast.Function, shell_state.Definition]] = field(default_factory=dict, init=False)

    def script(self, script: Script, state: State, frame: ExecutionFrame) -> CommandResult:
        """Interpret the items of a script in order. The result contains the bound on the output of the last item."""
        if frame.stdin_script is not None:
            frame = replace(frame, stdin_shared=True)  # an earlier command of the script may read from it
        with self.findings.in_step(self.findings.shell_step):
            return self._items(script, state, frame)

    def _items(self, script: Script, state: State, frame: ExecutionFrame) -> CommandResult:
        success = failure = begin = state
        operator, printed, output = ";", None, "" if script.items else None
        for item in script.items:
            if operator in (";", "&"):
                begin = join_states(success, failure)
                (success, failure), printed, _, text = self.node(item.node, begin, frame)
            elif operator == "&&":
                (success, later), printed, _, text = self.node(item.node, success, frame)
                failure = join_states(failure, later)
            else:
                (later, failure), printed, _, text = self.node(item.node, failure, frame)
                success = join_states(success, later)
            # The commands with a certain output do not fail, so the next one after `&&` runs, too.
            output = output + text if output is not None and text is not None and item.then in _CONTINUES else None
            operator = item.then
            if operator == "&":
                success = failure = begin  # the whole list ran in a shell of its own
        return CommandResult(ExitStates(success, failure), printed, (), output)

    def node(self, node: Node, state: State, frame: ExecutionFrame) -> CommandResult:
        """Interpret one command, simple or compound."""
        self.findings.classifier.budget.spend(10 + 2 * len(state.variables))  # the states are compared
        result = self._node(node, state, frame)
        redirects = () if isinstance(node, (ast.Pipeline, ast.Function)) else node.redirects
        if not redirects or all(each.op in _FILES and each.target.literal == "/dev/null" for each in redirects):
            return result
        # If a file cannot be opened, bash does not start the command.
        success, failure = result.states
        closed = join_states(failure, state)
        return result if closed is failure else result._replace(states=ExitStates(success, closed))

    def _node(self, node: Node, state: State, frame: ExecutionFrame) -> CommandResult:
        if not isinstance(node, _REDIRECTED_LATER):
            frame = self.redirections.apply(node.redirects, state, frame)
        match node:
            case Command():
                return self.run_command(node, state, frame)
            case ast.Pipeline():
                return self._pipeline(node, state, frame)
            case ast.Function():
                end = self.define(node, state, frame)
            case ast.For():
                end = self._for(node, state, frame)
            case ast.Loop():
                end = self._loop(node, state, frame)
            case ast.Group(body=body):
                result = self.script(body, state, frame)
                return CommandResult(result.states, output=None if node.redirects else result.output)
            case ast.Subshell(body=body):
                result = self.script(body, state, frame)
                return CommandResult(ExitStates.same(state), output=None if node.redirects else result.output)
            case ast.Compute(expression=expression, span=span):
                self.findings.add_reason(Tier.READ, "computes", Check.ARITHMETIC_COMMAND, frame.place(span))
                end = self.variables.compute(expression, state, frame, span)
            case ast.Test():
                end = self._test(node, state, frame)
            case ast.Case():
                end = self._case(node, state, frame)
            case ast.While():
                end = self._while(node, state, frame)
            case ast.If():
                end = self._if(node, state, frame)
            case never:
                assert_never(never)
        return CommandResult(ExitStates.same(end))

    def _pipeline(self, node: ast.Pipeline, state: State, frame: ExecutionFrame) -> CommandResult:
        if len(node.commands) == 1:
            result = self.node(node.commands[0], state, frame)
            success, failure = result.states
            return result._replace(states=ExitStates(failure, success), output=None) if node.negated else result
        connected = self.findings.connected
        stage, output = frame, frame.output
        words: tuple[AbstractWord, ...] = ()
        result = CommandResult(ExitStates.same(state))
        for command in node.commands:
            lone = not node.merged and _is_plain_stage(command, state)
            output = []
            result = self.node(command, state, replace(stage, output=output, stdin_words=words if lone else ()))
            words = result.words if lone else ()
            stage = replace(
                stage,
                stdin_script=None if node.merged or node.timed else result.output,
                stdin_shared=False,
                stdin_from_network=stage.stdin_from_network or self.findings.connected > connected,
                stdin_texts=tuple(dict.fromkeys(output)),
            )
        frame.output.extend(output[: shell_state.MOST_OUTPUT])
        return CommandResult(ExitStates.same(state), output=None if node.negated else result.output)

    def _for(self, node: ast.For, state: State, frame: ExecutionFrame) -> State:
        value = ANYTHING
        if node.words is not None:
            value = joined(self.expander.expand_all(node.words, state, frame))
        elif state.arguments is not None:
            value = joined(list(state.arguments))
        frame = self.redirections.apply(node.redirects, state, frame)
        if not self.variables.may_assign(node.name, value, node.span, exported=False):
            value = ANYTHING
        begin = self.variables.assign(state, node.name, value, node.span)
        end = self._rounds(lambda known, inside: self._body(node.body, known, inside), begin, frame, (node.name, value))
        return join_states(state, end)

    def _while(self, node: ast.While, state: State, frame: ExecutionFrame) -> State:
        def once(known: State, inside: ExecutionFrame) -> State:
            return self._body(node.body, self._body(node.condition, known, inside), inside)

        return self._rounds(once, state, frame)

    def _loop(self, node: ast.Loop, state: State, frame: ExecutionFrame) -> State:
        def once(known: State, inside: ExecutionFrame) -> State:
            known = self.variables.compute(node.condition, known, inside, node.span)
            return self.variables.compute(node.step, self._body(node.body, known, inside), inside, node.span)

        begin = self.variables.compute(node.first, state, frame, node.span)
        frame = self.redirections.apply(node.redirects, state, frame)
        return self._rounds(once, begin, frame)

    def _case(self, node: ast.Case, state: State, frame: ExecutionFrame) -> State:
        self.findings.add_reason(Tier.READ, "chooses by a pattern", Check.CASE_COMMAND, frame.place(node.span))
        self.expander.expand_single(node.word, state, frame)
        end = state
        for branch in node.branches:
            for word in branch.patterns:
                self.expander.expand_single(word, state, frame)
            end = join_states(end, self._body(branch.body, state, frame))
        return end

    def _test(self, node: ast.Test, state: State, frame: ExecutionFrame) -> State:
        self.findings.add_reason(Tier.READ, "checks a condition", Check.CONDITION, frame.place(node.span))
        for piece in node.pieces:
            if not isinstance(piece, ast.Condition):
                continue
            operands = [
                replace(self.expander.expand_single(word, state, frame), may_split=False, globbed=False)
                for word in piece.words
            ]
            if piece.operator in ast.FILE_TESTS or piece.operator in ast.FILE_COMPARISONS:
                for operand in operands:
                    for each in (operand, *map(literal, operand.likely_texts)):
                        self.findings.access_path(Role.TREE, each, state.cwds, Check.CONDITION, frame.place(piece.span))
            elif piece.operator in ast.NUMERIC:
                from policy.bash.test_expression import evaluated_name  # not needed by a plain command

                for word, operand in zip(piece.words, operands, strict=True):
                    name = evaluated_name(word)
                    if name is not None:
                        self.expander.evaluate(ast.Name(name, False), state, frame, piece.span)
                    elif not is_number(operand):
                        self.expander.require_number("a comparison of numbers", frame.place(piece.span))
        return state

    def _if(self, node: ast.If, state: State, frame: ExecutionFrame) -> State:
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
        fixed: tuple[str, AbstractWord] | None = None,
    ) -> State:
        """Interpret rounds of a loop until another one adds nothing new about folders and variables.

        `fixed` is the loop variable with its value, which every round sets again.
        """
        known = state
        for attempt in range(MOST_ROUNDS):
            inside, marks = replace(frame, loop_exits=[]), self.variables.marks()
            self.findings.loops += 1
            end = once(known, inside)
            self.findings.loops -= 1
            end = reduce(join_states, inside.loop_exits, end)
            if fixed is not None:
                end = end.assign(*fixed)
            merged = join_states(known, end)
            if merged == known and self.variables.marks() == marks:
                return known
            known = shell_state.widen_counters(known, merged)
            if attempt == MOST_ROUNDS - 2:
                names = dict.fromkeys(known.variables, ANYTHING)
                names.update([fixed] if fixed else [])
                known = replace(known, cwds=None, variables=names, stack=None, previous=None, arguments=None)
        return known

    # -- functions: a call has the effects of the body with the words of that call

    def define(self, node: ast.Function, state: State, frame: ExecutionFrame) -> State:
        """Return the state after the definition of a function."""
        text = f"defines the function `{node.name}`"
        self.findings.add_reason(Tier.READ, text, Check.FUNCTION_DEFINITION, frame.place(node.span))
        # One object for each definition, so that the interpretation of a loop that defines a function ends.
        _, defined = self._definitions.setdefault(
            id(node), (node, shell_state.Definition(node.body, frame.anchor, self.findings.file))
        )
        self.traps.note_function(node.name, (defined,))
        if state.allexport:
            text = f"exports the function `{node.name}` to every later shell"
            self.findings.unknown(text, Check.FUNCTION_DEFINITION, frame.place(node.span))
        return state.define(node.name, (defined,))

    def call(self, name: str, meaning: shell_state.Definition, command: shell_state.ExpandedCommand) -> ExitStates:
        """Interpret a call of the function `name`, which may be `meaning` now."""
        state, frame, span = command.state, command.frame, command.span
        calls = next(self._calls)
        # A call is not the start of a program, so no rule about words may cover the effects of the function.
        with self.findings.in_step(self.findings.shell_step):
            if meaning in self._running:
                return self._give_up(f"the function `{name}` calls itself", state, span)
            if len(self._running) >= MOST_DEEP or calls > MOST_CALLS:
                return self._give_up("functions are called too often, or within each other", state, span)
            inside = replace(state, arguments=tuple(command.words[1:]), locals={})
            for variable, value in command.assignments or ():
                known = value if self.variables.may_assign(variable, value, span, exported=False) else ANYTHING
                self.traps.note_value(variable, known)
                inside = inside.own(variable, known)
            within = replace(frame, anchor=meaning.anchor, loop_exits=[], returns=[])
            self._running.append(meaning)
            try:
                with self.findings.in_file(meaning.file):
                    success, failure = self.node(meaning.body, inside, within).states.or_early(within.returns)
                    doubts = self.findings.doubts
            finally:
                self._running.pop()
            # Older versions of bash let `break` in a function leave the loop around its call.
            frame.loop_exits.extend([self._after_call(early, state) for early in within.loop_exits])
            ends = ExitStates(self._after_call(success, state), self._after_call(failure, state))
            return self.after_doubt(ends, state, meaning.file) if doubts else ends

    def after_doubt(self, ends: ExitStates, begin: State, file: str) -> ExitStates:
        """Return the states after text of `file`, a file of `source`, that was not judged with certainty.

        Variables are unknown, and the folder as well unless no command in the file changes the folder.
        """
        end = join_states(*ends)
        facts = self.findings.classifier.facts
        cwds = end.cwds if facts.keeps_folder(file) else None
        self.traps.folder_changed = self.traps.folder_changed or cwds is None
        self.variables.unread = True
        for name in {**begin.variables, **end.variables}:
            self.traps.note_value(name, ANYTHING)
        end = replace(end, cwds=cwds, variables={}, stack=None, previous=None, arguments=None, exports=begin.exports)
        return ExitStates.same(end)

    def _after_call(self, after: State, before: State) -> State:
        """Return the state of the caller after a body that ends in the state `after`."""
        if not after.locals:
            return replace(after, arguments=before.arguments, locals=before.locals)
        revealed = self.variables.revealed
        old = {name: ANYTHING if name in revealed else value for name, value in after.locals.items()}
        for name, value in old.items():
            self.traps.note_value(name, value)
        variables = {**after.variables, **old}
        for name, value in old.items():
            if value is ANYTHING and name not in before.variables:
                del variables[name]  # it was unknown before the call, too
        return replace(after, variables=variables, arguments=before.arguments, locals=before.locals)

    def _give_up(self, why: str, state: State, span: SourceSpan | None) -> ExitStates:
        self.findings.unknown(why, Check.FUNCTION_CALL_LIMIT, span)
        return ExitStates.same(replace(state, cwds=None, variables={}, stack=None, previous=None))


def _is_plain_stage(node: Node, state: State) -> bool:
    """Return True if the stage of a pipeline is one program and nothing else uses the pipes around it."""
    if not isinstance(node, Command) or node.assignments or not node.words:
        return False
    quiet = all(each.fd == 2 and each.target.literal == "/dev/null" for each in node.redirects)
    words = [word.literal for word in node.words]
    return quiet and None not in words and words[0] not in state.functions


_CONTINUES = frozenset([";", "&&"])
# These apply their redirections later, or have none.
_REDIRECTED_LATER = (Command, ast.Pipeline, ast.Function, ast.For, ast.Loop)
_FILES = frozenset([RedirectOp.IN, RedirectOp.OUT, RedirectOp.APPEND, RedirectOp.CLOBBER, RedirectOp.OUT_ERR])
