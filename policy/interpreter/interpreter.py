"""The interpreter of commands: judges every command that an action may run, for all words that it may run with."""

from collections.abc import Callable, Sequence
from functools import cached_property, reduce
from itertools import islice
from typing import TYPE_CHECKING

from policy.interpreter.command_call import Call
from policy.interpreter.findings import Findings, StepBuilder
from policy.interpreter.judge_command import descend, in_family, judge, note_output, service_client
from policy.interpreter.path_classifier import PathClassifier
from policy.interpreter.shell_state import CommandResult, ExitStates, ExpandedCommand, State, join_states
from policy.model.abstract_word import AbstractWord, SourceSpan, literal
from policy.model.assessment import Check, EffectKind, Reason, RuleKind, RuleRef, Scope
from policy.model.facts import Facts
from policy.model.frozen import replace
from policy.model.glob import late
from policy.model.profile import Profile
from policy.model.secret_paths import inside
from policy.model.tier import Ruling, Tier
from policy.rules.rule import CommandRule, Role
from policy.rules.rulebook import RuleBook

if TYPE_CHECKING:
    from policy.interpreter.shell_interpreter import ShellInterpreter

MOST_LIKELY = 40  # variants of one command with likely texts

_UNKNOWN_WORD = AbstractWord()  # one word, known only at run time

_PROGRAM_NAME = late(r"(?=.*[A-Za-z])[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_BIN = ("/bin", "/usr/bin", "/sbin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin")
_GIT_PROGRAMS = late(r"/usr/(?:local/)?lib(?:exec|64)?/git-core")  # as printed by `git --exec-path`


class Interpreter:
    """The abstract interpreter of one action: judges each command by its expanded words.

    An `ExpandedCommand` contains the state of the shell before the command; a `CommandResult` contains the states after
    success and after failure.

    Attributes:
        findings: the effects and reasons that were found.
    """

    def __init__(
        self,
        facts: Facts,
        rules: RuleBook,
        profile: Profile,
        handler: Callable[[str], Callable[[Call], None]],
        typed_hosts: tuple[str, ...] = (),
    ) -> None:
        """Create the interpreter of one action. `handler` returns the function that judges the calls of a command whose
        rule names that handler. `typed_hosts` are the hosts that flags of the user add to the action.
        """
        self.facts, self.rules, self.profile = facts, rules, profile
        self.classifier = PathClassifier(facts, profile)
        self.findings = Findings(self.classifier)
        allowed = [host for rule in profile.permissions if rule.verdict is Ruling.ALLOW for host in rule.host]
        self.findings.private_hosts = tuple(host for host in (*allowed, *typed_hosts) if host.endswith(" private"))
        self._handler = handler

    @cached_property
    def shell(self) -> "ShellInterpreter":
        """Return the interpreter of shell text, which is imported when an action first has such text."""
        from policy.interpreter.shell_interpreter import ShellInterpreter

        return ShellInterpreter(self.rules, self.findings, self.simple)

    def simple(self, command: ExpandedCommand) -> CommandResult:
        """Judge one command by its expanded words, in a step of its own."""
        self.classifier.budget.spend(50 + 6 * len(command.words))
        with self.findings.add_step(_step(command.words, command.state)):
            return self._simple(command)

    def _simple(self, command: ExpandedCommand) -> CommandResult:
        words, span, first = command.words, command.span, command.words[0]
        for text in (first.texts or (None,)) if self.profile.denied else ():
            denied = denied_reason([text, *(word.text for word in words[1:])], self.profile, span)
            if denied is not None:
                self.findings.add(denied)
        likely = [replace(command, words=variant) for variant in _likely(words)]
        if len(likely) > MOST_LIKELY:
            self.findings.unknown("a command with too many possible values", Check.AMBIGUOUS_COMMAND, span)
        if not first.texts or (first.may_split and first.text is None):
            self.findings.unknown(
                "the program is known only at run time", Check.COMPUTED_PROGRAM_NAME, first.span or span
            )
            for variant in likely:
                self.simple(variant)
            return CommandResult(ExitStates.same(command.state))
        if len(first.texts) == 1 and not likely:
            return self._by_name(first.texts[0], command)
        return _joined([*(self._by_name(text, command) for text in first.texts), *map(self.simple, likely)])

    def _by_name(self, name: str, command: ExpandedCommand) -> CommandResult:
        """Interpret a command by its name. In a shell, functions have precedence over programs."""
        if command.assignments is None or name not in command.state.functions:
            return self.program(name, command)
        results = []
        for meaning in command.state.functions[name]:
            called = None if meaning is None else CommandResult(self.shell.flow.call(name, meaning, command))
            results.append(called or self.program(name, command))
        return _joined(results)

    def program(self, name: str, command: ExpandedCommand) -> CommandResult:
        """Judge a command that is not a function."""
        first, *words = command.words
        if first.text is not None:
            return self._judge_program(name, command)
        step = _step([literal(name, first.span), *words], command.state)
        with self.findings.add_step(step):
            return self._judge_program(name, command)

    def _judge_program(self, name: str, command: ExpandedCommand) -> CommandResult:
        (first, *words), state, span = command.words, command.state, command.span
        known = self._program(name, state, first.span or span)
        if known is None:
            self.findings.beyond_plain_edits = True
            return CommandResult(ExitStates.same(state))
        if known.startswith("git-") and (git := self.rules.find("git")) and git.sub(known.removeprefix("git-")):
            # THREAT T166: in the folder of `git --exec-path`, each subcommand is also a program.
            if "/" not in name:
                text = f"`{known}` may be a program of that name"
                self.findings.bounded(text, Check.UNLISTED_PROGRAM, first.span or span)
            known, words = "git", [literal(known.removeprefix("git-"), first.span), *words]
        rule = self.rules.find(known)
        if rule is not None and rule.builtin and not command.frame.in_shell and self.facts.which(known) is None:
            rule = None  # a builtin, but no shell runs the command
        if rule is None:
            self.findings.beyond_plain_edits = True
            self.findings.step.stranger = True
            text = f"`{known}` is not a known command" if known else "an empty command name"
            usual = _PROGRAM_NAME.fullmatch(known)  # `-c` is an option that the program before it was not known to have
            report = self.findings.bounded if usual else self.findings.unknown
            report(text, Check.UNLISTED_PROGRAM, first.span or span)
            return CommandResult(ExitStates.same(state))
        call = Call(self, rule, known, words, state, span, command.frame)
        call.record_name()
        return self._judge(call)

    def _judge(self, call: Call) -> CommandResult:
        rule, begin = call.rule, call.state
        registry = rule.registry
        before = len(self.findings)
        if rule.subs and rule.grammar != "git":
            call = descend(call)
            rule = call.rule
        if rule.tier is Tier.NETWORK and rule.offline:
            from policy.interpreter.offline_form import offline_rule  # only for programs that have an offline form

            call.rule = rule = offline_rule(call)
        if rule.tier is Tier.NETWORK and rule.offline_first:
            from policy.interpreter.offline_form import fetches_only_missing  # only for programs that may fetch

            call.deferrable = fetches_only_missing(call)
        if rule.grammar:
            self._handler(rule.grammar)(call)
            rule = call.rule
        else:
            judge(call)
        frame = call.frame
        if call.label in _LOOP_EXITS:
            frame.loop_exits.append(begin)
        if call.label == "return":
            frame.returns.append(begin)
        exports = [each for each in begin.exports if "=" not in each]  # the others only keep a program offline
        if exports and not rule.builtin and not self._runs_unread_code(call, rule):
            # Code that is not read is judged and confined as if it did anything, so a variable cannot add effects. The
            # tier of this call decides, because a program may do less with these arguments.
            text = f"sets {', '.join(exports)}, which `{call.label}` may use"
            self.findings.bounded(text, rule.ref, call.span)
        if (rule.interpreter or rule.grammar in ("sh", "source")) and not call.quiet:
            self.findings.step.interprets = True
        from_network = frame.words_from_network or (frame.stdin_from_network and _runs_input(call.words))
        call.note_download(rule.interpreter and not call.quiet and from_network)
        if rule.tier is Tier.NETWORK and call.rule.tier is not Tier.READ and not call.quiet and not call.local:
            client = service_client(call) if rule.family and not call.hosts else ""
            self._add_default_hosts(call, call.rule.registry or registry or client, rule)
        if rule.family and in_family(call):
            self.findings.step.family = rule.family
        if not rule.plain and self.findings.changed_since(before, (rule.ref, call.rule.ref)):
            self.findings.beyond_plain_edits = True
        note_output(call, rule, begin)
        if call.doubted:
            return CommandResult(call.after or ExitStates.same(begin))
        printed = call.prints or (AbstractWord(never_an_option=True, unsplittable=True) if call.rule.tame else None)
        words = () if call.lists and self.shell.traps.pending else call.lists  # a trap may print between the words
        return CommandResult(call.after or ExitStates.same(begin), printed, words, call.output)

    def _runs_unread_code(self, call: Call, rule: CommandRule) -> bool:
        """Return True if the command runs code that is not read."""
        if call.quiet or not (rule.tier is Tier.EXECUTE or call.local):
            return False
        return any(reason.tier >= Tier.EXECUTE for reason in self.findings.step.reasons.values())

    def _add_default_hosts(self, call: Call, registry: str, rule: CommandRule) -> None:
        """Report the registries that the settings name. For a command that names no host, report the usual registry of
        its tool, or an unknown host.
        """
        folders = (call.state.cwds or ()) if registry else ()
        named = call.hosts
        for host, scope in dict.fromkeys(one for cwd in folders for one in self.facts.registries(registry, cwd)):
            if scope is Scope.SYSTEM and named:
                continue
            call.hosts += 1
            call.connects_by_default(host, scope)
        if not call.hosts:
            self.findings.add_effect(EffectKind.CONNECTS, "", exact=not rule.unreached)

    def _program(self, name: str, state: State, span: SourceSpan | None) -> str | None:
        """Return the bare name of a program that has to be judged by its rule, or None if it was judged here."""
        workspace = self.facts.workspace
        if "/" not in name:
            found = self.facts.which(name) if name else None
            if found is None:
                return name
            own = inside(found, workspace) or inside(self.facts.look(found).real, workspace)
            if not own or (self.rules.find(name) or _UNRULED).builtin:
                return name
            self.findings.runs(found, f"runs `{name}`, a program of the workspace", Check.WORKSPACE_PROGRAM, span)
            return None
        folder, _, base = name.rpartition("/")
        if folder.endswith("git-core") and _GIT_PROGRAMS.fullmatch(folder):
            return base
        if folder in _BIN or self.facts.which(base) == name:
            rule = self.rules.find(base)
            if rule is not None and not inside(name, workspace):
                return base
        for cwd in state.cwds or ("/",):
            if state.cwds is None and not name.startswith("/"):
                self.findings.unknown(f"`{name}` in a folder known only at run time", Check.PROGRAM_BY_PATH, span)
                return None
            place = self.classifier.place(name, cwd)
            self.findings.access_path(Role.READ, literal(name), (cwd,), Check.PROGRAM_BY_PATH, span)
            text = f"runs `{place.shown}`, a program whose effects are unknown"
            self.findings.runs(place.path, text, Check.PROGRAM_BY_PATH, span)
        return None


def denied_reason(words: Sequence[str | None], profile: Profile, span: SourceSpan | None = None) -> Reason | None:
    """Return the reason if one simple command is on the denied list. Call it for every command of a script.

    `words` are decoded; None is a word known only when the command runs. The words are matched like those of a
    `[[rule]]` that denies (`command_pattern.broad`); a last `*` matches any further words. An uncertain word matches.
    """
    if not profile.denied or not words or words[0] is None:
        return None
    from policy.model.command_pattern import broad

    senses = [literal(word) if word is not None else _UNKNOWN_WORD for word in words]
    for pattern in profile.denied:
        wanted = pattern[:-1] if len(pattern) > 1 and pattern[-1] == "*" else pattern
        if broad(senses, tuple((word,) for word in wanted)):
            text = f"`{' '.join(pattern)}` is on the denied list"
            return Reason(Tier.DENIED, text, RuleRef(RuleKind.USER, "[deny] commands"), span)
    return None


def _joined(results: list[CommandResult]) -> CommandResult:
    """Return the result of a command that has one of `results`, which is not empty."""
    if len(results) == 1:
        return results[0]
    successes, failures = zip(*(result.states for result in results), strict=True)
    return CommandResult(ExitStates(reduce(join_states, successes), reduce(join_states, failures)))


def _step(words: list[AbstractWord], state: State) -> StepBuilder:
    return StepBuilder(tuple(words), cwds=state.cwds, set_up=bool(state.exports))


def _likely(words: list[AbstractWord]) -> list[list[AbstractWord]]:
    """Return one variant of the command for each text that an unknown word of it is likely to be."""
    for word in words:
        if word.likely_texts:
            break
    else:
        return []
    alone = [replace(word, likely_texts=()) for word in words]
    every = ((index, literal(text, word.span)) for index, word in enumerate(words) for text in word.likely_texts)
    return [[*alone[:index], one, *alone[index + 1 :]] for index, one in islice(every, MOST_LIKELY + 1)]


def _runs_input(words: list[AbstractWord]) -> bool:
    """Return True if an interpreter with these words takes its program from standard input."""
    texts = [word.text or "" for word in words]
    return all(text == "-" or text.startswith(("-u", "-B", "-s", "-q")) for text in texts)


_UNRULED = CommandRule("", Check.UNLISTED_PROGRAM, "")
_LOOP_EXITS = frozenset(["break", "continue"])
