"""The interpreter of shell text: scripts, simple commands with their assignments and redirections, and functions."""

from collections.abc import Callable

from policy.bash.ast import ArrayAssignment, Assignment, Command, Opaque, RedirectOp, Script
from policy.interpreter.assignments import (
    AssignedValues,
    VariableReach,
    Variables,
    declares_keyed,
    exported_entry,
    variable_reach,
)
from policy.interpreter.control_flow import ControlFlow
from policy.interpreter.expansion import Expander
from policy.interpreter.findings import Findings
from policy.interpreter.redirections import Redirections
from policy.interpreter.shell_state import (
    CommandResult,
    ExecutionFrame,
    ExitStates,
    ExpandedCommand,
    State,
)
from policy.interpreter.traps import TrapTable
from policy.model.abstract_word import ANYTHING, COUNT, SourceSpan, join
from policy.model.assessment import Check, RuleRef
from policy.model.frozen import replace
from policy.model.tier import Tier
from policy.rules.rulebook import RuleBook

MOST_INNER = 6  # scripts inside scripts
MOST_FILE_CHARACTERS = 64 * 1024  # of all files of `source` in one action

# Builtins that see a temporary assignment as a variable, and that may export more variables while it exists.
_KEEPS = frozenset(["eval", "source", ".", "command", "builtin", "export", "declare", "typeset", "readonly", "local"])
_BASH = frozenset(["bash", "rbash"])


class ShellInterpreter:
    """The shell of one action. Expanded commands are judged by `run_command`.

    Attributes:
        variables: the assignments of the script.
        traps: the traps of the shell that is being interpreted.
        flow: the compound commands and the functions of the script.
        redirections: the descriptors of the script.
        file_characters_left: number of characters of files of `source` that may still be interpreted.
        file_in_doubt: True if the script read a file with `source` that was not judged with certainty.
    """

    def __init__(
        self, rules: RuleBook, findings: Findings, run_command: Callable[[ExpandedCommand], CommandResult]
    ) -> None:
        self._rules, self._findings, self._run_command = rules, findings, run_command
        facts, self._profile = findings.classifier.facts, findings.classifier.profile
        expander = Expander(facts, findings, self.run_script)
        self.traps = TrapTable(findings)
        self.variables = Variables(findings, expander, self.traps)
        self.redirections = Redirections(findings, expander)
        self.flow = ControlFlow(findings, expander, self.variables, self.traps, self.redirections, self.command)
        self.file_characters_left = MOST_FILE_CHARACTERS
        self.file_in_doubt = False

    def run(self, tree: Script, state: State) -> None:
        """Interpret a whole script, and then the traps that it has set."""
        frame = ExecutionFrame()
        self.run_script(tree, state, frame)
        self.traps.run_all(frame, self.run_text, self.variables.marks)

    def run_script(self, script: Script, state: State, frame: ExecutionFrame) -> CommandResult:
        """Interpret a script in the shell of `frame`."""
        return self.flow.script(script, state, frame)

    def command(self, command: Command, state: State, frame: ExecutionFrame) -> CommandResult:
        """Interpret a simple command of a script."""
        before = self._findings.connected
        if frame.stdin_script is not None and not _is_literal(command):
            frame = replace(frame, stdin_shared=True)  # a substitution in the words may read from it
        span = frame.place(command.span)
        words = self.variables.expand_command(command.words, state, frame)
        keyed = bool(words and command.assignments) and any(
            isinstance(item, ArrayAssignment) for item in command.assignments
        )
        if keyed:
            self.variables.note_declared(command, words)
            keyed = declares_keyed(command)
        values, inside = self.variables.expand_assignments(command.assignments, state, frame, keyed=keyed)
        state = self.variables.assign_defaults(command.words, state, frame)
        frame = self.redirections.apply(command.redirects, state, frame)
        if not words and values and any(each.target.literal is None for each in command.redirects):
            # Without a command, bash assigns first.
            frame = self.redirections.apply(command.redirects, inside, frame)
        for redirect in command.redirects:
            if redirect.variable and redirect.target.literal != "-":
                # A program of its own runs in another process, so only `exec` certainly sets the variable.
                kept = len(words) == 1 and words[0].text == "exec"
                value = COUNT if kept else join(state.variables.get(redirect.variable, ANYTHING), COUNT)
                state = self.variables.assign(state, redirect.variable, value, span)
        if self._findings.connected > before:
            frame = replace(frame, words_from_network=True)
        if words:
            result = self._run_expanded(ExpandedCommand(words, state, span, frame), values, span)
            certain = result.output is not None and _keeps_output(command) and not (state.exports or self.traps.pending)
            return result if certain or result.output is None else result._replace(output=None)
        for item, value in values:
            state = self.variables.assign(state, item.name, value, span)
        text, rule = ("sets variables", Check.ASSIGNMENT) if values else ("only redirects", Check.REDIRECTION)
        self._findings.add_reason(Tier.READ, text, rule, span)
        return CommandResult(ExitStates.same(state))

    def _run_expanded(self, command: ExpandedCommand, values: AssignedValues, span: SourceSpan) -> CommandResult:
        """Interpret a simple command whose words are expanded and whose redirections are judged."""
        variables, words, state = self.variables, command.words, command.state
        exports = list(state.exports)
        function = bool(state.functions) and any(text in state.functions for text in words[0].texts)
        arrays = [(item, value) for item, value in values if isinstance(item, ArrayAssignment)]
        values = [(item, value) for item, value in values if isinstance(item, Assignment)]
        for item, value in values:
            if item.name == "IFS" and words[0].text == "read" and value.text is not None:
                continue
            verdict = variable_reach(item.name, value.text, self._profile.environment, exported=True)
            rules = [self._rules.find(text) for text in words[0].texts]
            builtin = not rules or any(rule is None or rule.builtin for rule in rules)
            if verdict is VariableReach.SHELL and (function or builtin):
                variables.report_obeyed(item.name, span)
            if verdict is not VariableReach.OWN:
                exports.append(exported_entry(item.name, value))
        during = replace(state, exports=tuple(exports)) if len(exports) > len(state.exports) else state
        assignments = [(item.name, value) for item, value in values]
        temporary = assignments if not _KEEPS.isdisjoint(words[0].texts) else []
        for name, value in temporary:
            self.traps.note_value(name, value)
            during = during.assign(name, value)
        result = self._run_command(ExpandedCommand(words, during, command.span, command.frame, assignments))
        success, failure = result.states
        for name, _ in temporary:  # removed afterwards, unless it was exported meanwhile
            before = state.variables.get(name, ANYTHING)
            self.traps.note_value(name, before)
            success, failure = (
                each.assign(name, join(before, each.variables.get(name, ANYTHING))) for each in (success, failure)
            )
        if during is not state and words[0].text not in _KEEPS and not function:
            success, failure = replace(success, exports=state.exports), replace(failure, exports=state.exports)
        for item, value in arrays:
            known = value if value.keyed or not (item.append or state.locals is None) else ANYTHING
            own = not any((word.text or "")[:1] == "-" and "g" in (word.text or "") for word in words)
            success = variables.declare(success, item.name, known, span, own=own)
            failure = variables.declare(failure, item.name, known, span, own=own)
        if success is result.states.on_success and failure is result.states.on_failure:
            return result
        return result._replace(states=ExitStates(success, failure))

    def run_script_text(
        self, script: str, state: State, frame: ExecutionFrame, span: SourceSpan | None, rule: RuleRef, reader: str
    ) -> None:
        """Interpret bash text that a command runs (`bash -c`) in a shell of its own, with the arguments of `state`.

        `reader`: the program that reads the text, as a user names it (`bash`).
        """
        from policy.bash.objections import objection_in_other_shells

        self._findings.classifier.budget.spend(len(script) // 4)
        frame = replace(frame, other_shell=reader not in _BASH)
        objection = objection_in_other_shells(script) if frame.other_shell else None
        if objection is not None:
            why = f"{objection} is not the same in `{reader}` as in bash"
            self._refuse(script, why, state, rule, span)

        def run() -> None:
            self.run_text(script, replace(state, functions={}, locals=None, allexport=False), frame, span, rule)
            self.traps.run_all(frame, self.run_text, self.variables.marks)

        self.traps.in_another_shell(run)

    def run_text(
        self, script: str, state: State, frame: ExecutionFrame, span: SourceSpan | None, rule: RuleRef
    ) -> ExitStates:
        """Interpret bash text in the shell of `frame` (`eval`)."""
        if frame.depth >= MOST_INNER:
            self._refuse(script, "scripts are nested too deeply", state, rule, span)
            return ExitStates.same(state)
        from policy.bash.parser import read  # only where there is a script

        self._findings.classifier.budget.spend(50 + 3 * len(script))
        tree = read(script)
        if isinstance(tree, Opaque):
            self._refuse(script, f"inside a script: {tree.reason}", state, rule, span)
            return ExitStates.same(state)
        return self._run_inner(tree, state, frame, span)

    def _run_inner(self, tree: Script, state: State, frame: ExecutionFrame, span: SourceSpan | None) -> ExitStates:
        inside = replace(frame, anchor=span or frame.anchor, in_shell=True, depth=frame.depth + 1)
        inside = replace(inside, words_from_network=False, stdin_words=())
        return self.run_script(tree, state, inside).states

    def run_file(self, path: str, state: State, frame: ExecutionFrame, span: SourceSpan | None) -> ExitStates | None:
        """Interpret the text of a file in the shell of `frame` (`source`), or return None if it cannot be read.

        A doubt about the text is a reason of tier execute, after which variables are unknown.
        """
        from policy.bash.parser import read

        findings = self._findings
        found = findings.classifier.facts.shell_text(path)
        if found is None or len(found.text) > self.file_characters_left:
            return None
        self.file_characters_left -= len(found.text)
        tree = read(found.text)
        if isinstance(tree, Opaque):
            return None
        findings.sourced[path] = found.sha256
        findings.classifier.budget.allow_script(len(found.text))
        findings.classifier.budget.spend(50 + 3 * len(found.text))
        inside = replace(frame, files=frame.files + 1, loop_exits=[], returns=[])
        with findings.in_file(path):
            ends = self._run_inner(tree, state, inside, span).or_early(inside.returns)
            doubts = findings.doubts
        if doubts:
            self.file_in_doubt = True
            return self.flow.after_doubt(ends, state, path)
        return ends

    def _refuse(self, script: str, why: str, state: State, rule: RuleRef, span: SourceSpan | None) -> None:
        from policy.interpreter.unread_script import refuse  # only where a script is not understood

        refuse(self._findings, script, why, state, rule, span)


def _is_literal(command: Command) -> bool:
    """Return True if all words and assignments are known text."""
    if any(isinstance(each, ArrayAssignment) or each.value.literal is None for each in command.assignments):
        return False
    return all(word.literal is not None for word in command.words)


def _keeps_output(command: Command) -> bool:
    """Return True if the redirections leave the standard output as it is, and add no error messages to it."""
    inputs = (RedirectOp.HERE_DOC, RedirectOp.HERE_STRING)
    return not command.assignments and all(
        (each.op in inputs and each.fd in (None, 0))
        or (each.fd == 2 and each.op is RedirectOp.OUT and each.target.literal == "/dev/null")
        for each in command.redirects
    )
