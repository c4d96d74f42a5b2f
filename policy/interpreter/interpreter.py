"""The interpreter of scripts: judges every command that a script may run, for all words that it may run with."""

from collections.abc import Callable
from dataclasses import replace
from itertools import islice

from policy.bash.ast import ArrayAssignment, Assignment, Command, Opaque, Script
from policy.interpreter.assignments import Variables
from policy.interpreter.command_call import Call
from policy.interpreter.command_output import note_output
from policy.interpreter.control_flow import ControlFlow
from policy.interpreter.denied import denied_reason
from policy.interpreter.expansion import Expander
from policy.interpreter.findings import Findings
from policy.interpreter.foreign_git import Repositories
from policy.interpreter.functions import FunctionTable, NamedValues
from policy.interpreter.judge_command import descend, judge
from policy.interpreter.path_classifier import PathClassifier
from policy.interpreter.redirections import Redirections
from policy.interpreter.shell_state import (
    UNDEFINED,
    CommandResult,
    ExecutionFrame,
    ExitStates,
    State,
    join_exits,
)
from policy.interpreter.step_builder import StepBuilder
from policy.interpreter.traps import TrapTable
from policy.interpreter.unread_script import refuse
from policy.interpreter.variable_rules import Standing, standing
from policy.model.abstract_word import ANYTHING, AbstractWord, SourceSpan, join, literal
from policy.model.assessment import (
    AMBIGUOUS_COMMAND,
    ASSIGNMENT,
    COMPUTED_PROGRAM_NAME,
    PROGRAM_BY_PATH,
    REDIRECTION,
    UNLISTED_PROGRAM,
    WORKSPACE_PROGRAM,
    Consequence,
    EffectKind,
    RuleRef,
)
from policy.model.facts import Facts
from policy.model.profile import Profile
from policy.model.tier import Tier
from policy.rules.rule import CommandRule, Role
from policy.rules.rulebook import RuleBook

MOST_INNER = 6  # scripts inside scripts
MOST_LIKELY = 40  # readings of one command

_BIN = ("/bin", "/usr/bin", "/sbin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin")


class Interpreter:
    """The abstract interpreter of one action: a State goes in, and the states after success and failure come out.

    Attributes:
        findings: the effects and reasons that were found.
        variables: the assignments of the script.
        traps: the traps of the shell that is being interpreted.
        redirections: the descriptors of the script.
        repositories: the Git repositories that govern the folders of the script.
    """

    def __init__(
        self, facts: Facts, rules: RuleBook, profile: Profile, handler: Callable[[str], Callable[[Call], None]]
    ) -> None:
        """Create the interpreter of one action. `handler` returns the function that judges the calls of a command whose
        rule names that handler.
        """
        self.facts, self.rules, self.profile = facts, rules, profile
        self.classifier = PathClassifier(facts, profile)
        self.findings = Findings(self.classifier)
        self.repositories = Repositories(facts)
        self.traps = TrapTable(self.findings)
        self._handler = handler
        self._expander = Expander(facts, self.findings, self.repositories, self.run_script)
        self.variables = Variables(profile, self.findings, self._expander, self.traps)
        self.redirections = Redirections(self.findings, self._expander)
        self._functions = FunctionTable(self.findings, self.variables, self.traps)
        self._flow = ControlFlow(
            self.findings, self._expander, self.variables, self._functions, self.redirections, self.command
        )

    def run(self, tree: Script, state: State) -> None:
        """Interpret a whole script, and then the traps that it leaves."""
        frame = ExecutionFrame()
        self.run_script(tree, state, frame)
        self.traps.spring(frame, self.run_text, self.variables.marks)

    def run_script(self, script: Script, state: State, frame: ExecutionFrame) -> CommandResult:
        """Interpret a script in the shell of `frame`."""
        return self._flow.script(script, state, frame)

    # Simple commands

    def command(self, command: Command, state: State, frame: ExecutionFrame) -> CommandResult:
        """Interpret a simple command of a script."""
        before = self.findings.connected
        span = frame.place(command.span)
        words = self.variables.expand_command(command.words, state, frame)
        values, inside = self.variables.assigned(command.assignments, state, frame)
        state = self.variables.filled(command.words, state, frame)
        frame = self.redirections.apply(command.redirects, state, frame)
        if not words and values and any(each.target.literal is None for each in command.redirects):
            # Without a command, bash assigns first.
            frame = self.redirections.apply(command.redirects, inside, frame)
        if self.findings.connected > before:
            frame = replace(frame, words_from_network=True)
        return self._ready(command, words, values, state, frame, span)

    def _ready(
        self,
        command: Command,
        words: list[AbstractWord],
        values: list[tuple[Assignment | ArrayAssignment, AbstractWord]],
        state: State,
        frame: ExecutionFrame,
        span: SourceSpan,
    ) -> CommandResult:
        """Interpret a simple command whose words are expanded and whose redirections are judged."""
        variables = self.variables
        if not words:
            for item, value in values:
                state = variables.assign(state, item.name, value, span)
            text, rule = ("sets variables", ASSIGNMENT) if values else ("only redirects", REDIRECTION)
            self.findings.add_reason(Tier.READ, text, rule, span)
            return CommandResult(ExitStates.same(state))
        exports = list(state.exports)
        function = any(text in state.functions for text in words[0].texts)
        arrays = [(item, value) for item, value in values if isinstance(item, ArrayAssignment)]
        values = [(item, value) for item, value in values if isinstance(item, Assignment)]
        for item, value in values:
            if item.name == "IFS" and words[0].text == "read" and value.text is not None:
                continue
            verdict = standing(item.name, value.text, self.profile.environment, exported=True)
            if verdict is Standing.SHELL and (function or self._is_builtin(words[0])):
                variables.obeyed(item.name, span)
            if verdict is not Standing.OWN:
                exports.append(item.name)
        here = replace(state, exports=tuple(exports)) if len(exports) > len(state.exports) else state
        assignments = [(item.name, value) for item, value in values]
        temporary = assignments if not _KEEPS.isdisjoint(words[0].texts) else []
        for name, value in temporary:
            self.traps.note_value(name, value)
            here = here.assign(name, value)
        result = self.simple(words, here, span, frame, assignments)
        success, failure = result.states
        for name, _ in temporary:  # gone afterwards, unless it was exported meanwhile
            before = _held(state, name)
            self.traps.note_value(name, before)
            success, failure = (each.assign(name, join(before, _held(each, name))) for each in (success, failure))
        if here is not state and words[0].text not in _KEEPS and not function:
            success, failure = replace(success, exports=state.exports), replace(failure, exports=state.exports)
        for item, value in arrays:
            known = ANYTHING if item.append or state.locals is None else value
            own = not any(word.text == "-g" for word in words)
            success = variables.declare(success, item.name, known, span, own=own)
            failure = variables.declare(failure, item.name, known, span, own=own)
        return result._replace(states=ExitStates(success, failure))

    def _is_builtin(self, word: AbstractWord) -> bool:
        rules = [self.rules.find(text) for text in word.texts]
        return not rules or any(rule is None or rule.builtin for rule in rules)

    def simple(
        self,
        words: list[AbstractWord],
        state: State,
        span: SourceSpan | None,
        frame: ExecutionFrame,
        assignments: NamedValues | None = None,
    ) -> CommandResult:
        """Judge one command by its expanded words, in a step of its own.

        `assignments` stand before the command. None means that no shell runs the command by itself, so its name is
        never the name of a function.
        """
        self.classifier.budget.spend(50 + 6 * len(words))
        outer = self.findings.step
        self.findings.begin(_step(words, state))
        try:
            return self._simple(words, state, span, frame, assignments)
        finally:
            self.findings.step = outer

    def _simple(
        self,
        words: list[AbstractWord],
        state: State,
        span: SourceSpan | None,
        frame: ExecutionFrame,
        assignments: NamedValues | None,
    ) -> CommandResult:
        first = words[0]
        for text in first.texts or (None,):
            denied = denied_reason([text, *(word.text for word in words[1:])], self.profile, span)
            if denied is not None:
                self.findings.add_reason(denied.tier, denied.text, denied.rule, denied.span)
        likely = _likely(words)
        if len(likely) > MOST_LIKELY:
            self.findings.unknown("a command that may mean too many things", AMBIGUOUS_COMMAND, span)
        if not first.texts or (first.may_split and first.text is None):
            self.findings.unknown("the program is known only when it runs", COMPUTED_PROGRAM_NAME, first.span or span)
            for variant in likely:
                self.simple(variant, state, span, frame, assignments)
            return CommandResult(ExitStates.same(state))
        results = [self._by_name(text, words[1:], state, span, first, frame, assignments) for text in first.texts]
        results += [self.simple(variant, state, span, frame, assignments) for variant in likely]
        return _joined(results)

    def _by_name(
        self,
        name: str,
        words: list[AbstractWord],
        state: State,
        span: SourceSpan | None,
        first: AbstractWord,
        frame: ExecutionFrame,
        assignments: NamedValues | None,
    ) -> CommandResult:
        """Interpret a command by its name. In a shell, functions come before programs."""
        if assignments is None:
            return self.program(name, words, state, span, first, frame)
        run = self._flow.node
        return _joined(
            [
                self.program(name, words, state, span, first, frame)
                if meaning is None
                else CommandResult(self._functions.call(name, meaning, words, state, frame, span, assignments, run))
                for meaning in state.functions.get(name, UNDEFINED)
            ]
        )

    def program(
        self,
        name: str,
        words: list[AbstractWord],
        state: State,
        span: SourceSpan | None,
        first: AbstractWord,
        frame: ExecutionFrame,
    ) -> CommandResult:
        """Judge a command that is not a function."""
        if first.text is None:
            self.findings.begin(_step([literal(name, first.span), *words], state))
        known = self._program(name, state, first.span or span)
        if known is None:
            self.findings.unplain = True
            return CommandResult(ExitStates.same(state))
        rule = self.rules.find(known)
        if rule is not None and rule.builtin and not frame.in_shell and self.facts.which(known) is None:
            rule = None  # a word of the shell, and no shell here
        if rule is None:
            self.findings.unplain = self.findings.step.stranger = True
            text = f"`{known}` is not among the commands that are known" if known else "an empty command name"
            self.findings.unknown(text, UNLISTED_PROGRAM, first.span or span)
            return CommandResult(ExitStates.same(state))
        call = Call(self, rule, known, words, state, span, frame)
        call.named()
        return self._judge(call)

    def _judge(self, call: Call) -> CommandResult:
        rule, begin = call.rule, call.state
        registry = rule.registry
        before = len(self.findings)
        if rule.subs and rule.grammar != "git":
            call = descend(call)
            rule = call.rule
        call.frame = frame = replace(call.frame, program=call.label)
        if rule.grammar:
            self._handler(rule.grammar)(call)
            rule = call.rule
        else:
            judge(call)
        if call.label in _LEAVES:
            frame.loop_exits.append(begin)
        if call.label == "return":
            frame.returns.append(begin)
        ran = any(reason.tier >= Tier.EXECUTE for reason in self.findings.step.reasons)
        opaque = rule.tier is Tier.EXECUTE and not call.quiet and ran
        if begin.exports and not rule.builtin and not opaque:
            # A variable makes opaque code no worse: that is judged, and confined, as if it did anything already. What
            # such a program does with the words given here may be less, so the tier that came out decides.
            text = f"sets {', '.join(begin.exports)}, which `{call.label}` may obey"
            self.findings.unknown(text, rule.ref, call.span)
        self.findings.step.interprets = (rule.interpreter or rule.grammar in ("sh", "source")) and not call.quiet
        from_network = frame.words_from_network or (frame.stdin_from_network and _runs_input(call.words))
        if rule.interpreter and not call.quiet and from_network:
            call.add_fact(Tier.DANGEROUS, "runs what was just downloaded", consequence=Consequence.RUNS_DOWNLOADED)
        if rule.tier is Tier.NETWORK and call.rule.tier is not Tier.READ and not call.quiet:
            self._asks(call, registry, rule)
        if not rule.plain and self.findings.changed_since(before, (rule.ref, call.rule.ref)):
            self.findings.unplain = True
        note_output(call, rule, begin)
        printed = call.prints or (AbstractWord(never_an_option=True, unsplittable=True) if call.rule.tame else None)
        words = () if self.traps.pending else call.lists  # a trap may print between the words
        return CommandResult(call.after or ExitStates.same(begin), printed, words)

    def _asks(self, call: Call, registry: str, rule: CommandRule) -> None:
        """Report the hosts of a command that names none: the registries in the settings, or an unknown host."""
        folders = (call.state.cwds or ()) if registry else ()
        for host, scope in dict.fromkeys(one for cwd in folders for one in self.facts.registries(registry, cwd)):
            call.hosts += 1
            call.connects(host, None, scope)
        if not call.hosts:
            self.findings.add_effect(EffectKind.CONNECTS, "", exact=not rule.unreached)

    def _program(self, name: str, state: State, span: SourceSpan | None) -> str | None:
        """Return the bare name of a program that its rule has to judge, or None after judging the program itself."""
        workspace = self.facts.workspace
        if "/" not in name:
            found = self.facts.which(name) if name else None
            if found is None:
                return name
            inside = self.classifier.within(found, workspace) or self.classifier.within(
                self.facts.look(found).real, workspace
            )
            if not inside or (self.rules.find(name) or _UNRULED).builtin:
                return name
            self.findings.runs(found, f"runs `{name}`, a program of the workspace", WORKSPACE_PROGRAM, span)
            return None
        folder, _, base = name.rpartition("/")
        if folder in _BIN or self.facts.which(base) == name:
            rule = self.rules.find(base)
            if rule is not None and not (self.classifier.within(name, workspace)):
                return base
        for cwd in state.cwds or ("/",):
            if state.cwds is None and not name.startswith("/"):
                self.findings.unknown(f"`{name}` in a folder known only when it runs", PROGRAM_BY_PATH, span)
                return None
            place = self.classifier.place(name, cwd)
            self.findings.access_path(Role.READ, literal(name), (cwd,), PROGRAM_BY_PATH, span)
            text = f"runs `{place.shown}`, a program we cannot see through"
            self.findings.runs(place.path, text, PROGRAM_BY_PATH, span)
        return None

    # Scripts given as text

    def run_script_text(
        self, script: str, state: State, frame: ExecutionFrame, span: SourceSpan | None, rule: RuleRef
    ) -> None:
        """Interpret bash text that a command runs (`bash -c`) in a shell of its own, with the arguments of `state`."""
        from policy.bash.prescan import objection_elsewhere  # with the reader, only where there is a script

        self.classifier.budget.spend(len(script) // 4)
        objection = None if frame.program in _BASH else objection_elsewhere(script)
        if objection is not None:
            why = f"{objection} is not the same in `{frame.program}` as in bash"
            refuse(self.findings, self.facts, script, why, state, rule, span)

        def run() -> None:
            self.run_text(script, replace(state, functions={}, locals=None), frame, span, rule)
            self.traps.spring(frame, self.run_text, self.variables.marks)

        self.traps.in_another_shell(run)

    def run_text(
        self, script: str, state: State, frame: ExecutionFrame, span: SourceSpan | None, rule: RuleRef
    ) -> ExitStates:
        """Interpret bash text in the shell of `frame` (`eval`)."""
        if frame.depth >= MOST_INNER:
            refuse(self.findings, self.facts, script, "scripts are nested too deeply", state, rule, span)
            return ExitStates.same(state)
        from policy.bash.parser import read  # only where there is a script

        self.classifier.budget.spend(50 + 3 * len(script))
        tree = read(script)
        if isinstance(tree, Opaque):
            refuse(self.findings, self.facts, script, f"inside a script: {tree.reason}", state, rule, span)
            return ExitStates.same(state)
        inside = replace(
            frame,
            anchor=span or frame.anchor,
            in_shell=True,
            depth=frame.depth + 1,
            words_from_network=False,
            stdin_words=(),
        )
        return self.run_script(tree, state, inside).states


def _joined(results: list[CommandResult]) -> CommandResult:
    """Return the result of a command that may do any of several things. `results` is not empty."""
    return results[0] if len(results) == 1 else CommandResult(join_exits([result.states for result in results]))


def _held(state: State, name: str) -> AbstractWord:
    return state.variables.get(name, ANYTHING)


def _step(words: list[AbstractWord], state: State) -> StepBuilder:
    return StepBuilder(tuple(words), cwds=state.cwds, set_up=bool(state.exports))


def _likely(words: list[AbstractWord]) -> list[list[AbstractWord]]:
    """Return one variant of the command for each text that an unknown word of it is likely to be."""
    if not any(word.likely_texts for word in words):
        return []
    alone = [replace(word, likely_texts=()) for word in words]
    every = ((index, literal(text, word.span)) for index, word in enumerate(words) for text in word.likely_texts)
    return [[*alone[:index], one, *alone[index + 1 :]] for index, one in islice(every, MOST_LIKELY + 1)]


def _runs_input(words: list[AbstractWord]) -> bool:
    """Return True if an interpreter with these words takes its program from standard input."""
    return all(
        word.text is not None and (word.text == "-" or word.text.startswith(("-u", "-B", "-s", "-q"))) for word in words
    )


# Words of the shell that see a temporary assignment as a variable, and that may export more while it lasts.
_KEEPS = frozenset(["eval", "source", ".", "command", "builtin", "export", "declare", "typeset", "readonly", "local"])
_UNRULED = CommandRule("", UNLISTED_PROGRAM, "")
_LEAVES = frozenset(["break", "continue"])
_BASH = frozenset(["bash", "rbash"])
_FDS = frozenset(["0", "1", "2", ""])
