"""One walk over a script: every node, every word in every position."""

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import islice

from policy.assessment import EffectKind, RuleRef, Scope
from policy.assigning import Assigning
from policy.builtin_rules import (
    AMBIGUOUS_COMMAND,
    ASSIGNMENT,
    COMPUTED_PROGRAM_NAME,
    INHERITED_DESCRIPTOR,
    PROGRAM_BY_PATH,
    REDIRECTION,
    UNLISTED_PROGRAM,
    WORKSPACE_PROGRAM,
)
from policy.call import Call
from policy.denied import denied_reason
from policy.effects import Findings, StepBuilder
from policy.expand import Expander
from policy.facts import Facts
from policy.flow import MOST_SAID, Ends, either_ends
from policy.functions import Given
from policy.getopt import parse
from policy.judge_command import descend, judge
from policy.paths import PathClassifier
from policy.profile import Profile
from policy.repositories import Repositories
from policy.rule import CommandRule, Role
from policy.rules import RuleBook
from policy.script.tree import (
    ArrayAssignment,
    Assignment,
    Command,
    Opaque,
    Redirect,
    RedirectOp,
    Script,
)
from policy.secret_words import secret_kind
from policy.sense import ANYTHING, AbstractWord, join, literal, tokens
from policy.span import SourceSpan
from policy.state import State
from policy.tier import Tier
from policy.variables import Standing, standing

MOST_INNER = 6  # scripts inside scripts
MOST_GLIMPSED = 16 * 1024
_A_GLIMPSE = 100  # of the budget; and some for each character
MOST_LIKELY = 40  # readings of one command

_BIN = ("/bin", "/usr/bin", "/sbin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin")
_TOKENS = re.compile(r"[\s;|&<>()`'\"=,{}]+")
_HOME = re.compile(r"\A(?:~|\$HOME)/")
_DIGITS = re.compile(r"[0-9]+-?|-")


class Walk(Assigning):
    """Walks one action. `findings` is what it saw; a State goes in and two come out of every node.

    `handler` returns the function that judges a call of a command whose rule names that handler.
    """

    def __init__(
        self, facts: Facts, rules: RuleBook, profile: Profile, handler: Callable[[str], Callable[[Call], None]]
    ) -> None:
        super().__init__()
        self.facts, self.rules, self.profile = facts, rules, profile
        self._handler = handler
        self.classifier = PathClassifier(facts, profile)
        self.findings = Findings(self.classifier)
        self.fed = False  # the standard input of what is walked comes from a network
        self.poured = False  # words of the command being judged do
        self.shell = True  # a shell runs it, so the shell's own words mean something
        self.printed: AbstractWord | None = None  # a bound of what the last simple command prints
        self.listed: tuple[AbstractWord, ...] = ()  # and what the words may be that it prints, NUL after each
        self.given: tuple[AbstractWord, ...] = ()  # the same of the command before it in a pipeline
        self.said: list[str] = []  # texts that commands are known to print, since somebody emptied it
        self.heard: tuple[str, ...] = ()  # texts that are known to be on the standard input
        self.left: list[State] = []  # what held where a loop was left or a round cut short
        self._opened: set[str] = set()  # descriptors that the script has opened, perhaps
        self.streams: dict[str, tuple[str, ...]] = {}  # texts that are known to come from them
        self._inner = 0
        self._interpreter = ""  # what was judged last, when it runs a text
        self._anchor: SourceSpan | None = None  # where the text being walked stands in the user's script
        self._repositories = Repositories(facts)
        self.expander = Expander(self)

    def span(self, span: SourceSpan) -> SourceSpan:
        return self._anchor or span

    # Simple commands

    def command(self, command: Command, state: State) -> Ends:
        before = self.findings.connected
        span = self.span(command.span)
        words = self.declaring(command.words, state)
        values, inside = self.assigned(command.assignments, state)
        state = self.filled(command.words, state)
        fed = self.redirects(command.redirects, state)
        if not words and values and any(each.target.literal is None for each in command.redirects):
            fed = self.redirects(command.redirects, inside) or fed  # without a command, bash assigns first
        outer, self.poured = self.poured, self.poured or fed or self.findings.connected > before
        ends = self._ready(command, words, values, state, span, fed=fed)
        self.poured = outer
        return ends

    def _ready(
        self,
        command: Command,
        words: list[AbstractWord],
        values: list[tuple[Assignment | ArrayAssignment, AbstractWord]],
        state: State,
        span: SourceSpan,
        *,
        fed: bool,
    ) -> Ends:
        """A simple command whose words are expanded and whose redirections are judged."""
        if not words:
            for item, value in values:
                state = self.assign(state, item.name, value, span)
            text, rule = ("sets variables", ASSIGNMENT) if values else ("only redirects", REDIRECTION)
            self.findings.add_reason(Tier.READ, text, rule, span)
            return state, state
        exports = list(state.exports)
        function = any(text in state.functions for text in words[0].texts)
        arrays = [(item, value) for item, value in values if isinstance(item, ArrayAssignment)]
        values = [(item, value) for item, value in values if isinstance(item, Assignment)]
        for item, value in values:
            if item.name == "IFS" and words[0].text == "read" and value.text is not None:
                continue
            verdict = standing(item.name, value.text, self.profile.environment, exported=True)
            if verdict is Standing.SHELL and (function or self._is_builtin(words[0])):
                self.obeyed(item.name, span)
            if verdict is not Standing.OWN:
                exports.append(item.name)
        here = replace(state, exports=tuple(exports)) if len(exports) > len(state.exports) else state
        given = [(item.name, value) for item, value in values]
        lent = given if not _KEEPS.isdisjoint(words[0].texts) else []
        for name, value in lent:
            self.note(name, value)
            here = here.assign(name, value)
        ok, fail = self.simple(words, here, span, fed=fed, given=given)
        for name, _ in lent:  # gone afterwards, unless it was exported meanwhile
            self.note(name, _held(state, name))
            ok, fail = (each.assign(name, join(_held(state, name), _held(each, name))) for each in (ok, fail))
        if here is not state and words[0].text not in _KEEPS and not function:
            ok, fail = replace(ok, exports=state.exports), replace(fail, exports=state.exports)
        for item, value in arrays:
            known = ANYTHING if item.append or state.locals is None else value
            own = not any(word.text == "-g" for word in words)
            ok, fail = (self.declare(each, item.name, known, span, own=own) for each in (ok, fail))
        return ok, fail

    def _is_builtin(self, word: AbstractWord) -> bool:
        rules = [self.rules.find(text) for text in word.texts]
        return not rules or any(rule is None or rule.builtin for rule in rules)

    def simple(
        self, words: list[AbstractWord], state: State, span: SourceSpan | None, *, fed: bool, given: Given | None = None
    ) -> Ends:
        """Judge one command by its expanded words; what it brings belongs to a step of its own. `given`: the shell
        itself runs it, after these assignments, so that functions come first."""
        self.classifier.budget.spend(50 + 6 * len(words))
        outer = self.findings.step
        self.findings.begin(_footing(words, state))
        try:
            return self._simple(words, state, span, fed=fed, given=given)
        finally:
            self.findings.step = outer

    def _simple(
        self, words: list[AbstractWord], state: State, span: SourceSpan | None, *, fed: bool, given: Given | None
    ) -> Ends:
        self.printed = None
        self.listed = ()
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
                self.simple(variant, state, span, fed=fed, given=given)
            return state, state
        fed_now = fed or self.fed
        ends = [
            self.program(text, words[1:], state, span, first, fed=fed_now)
            if given is None
            else self.called(text, words[1:], state, span, first, given, fed=fed_now)
            for text in first.texts
        ]
        printed, listed = self.printed, self.listed
        ends += [self.simple(variant, state, span, fed=fed, given=given) for variant in likely]
        self.printed = None if likely or len(first.texts) > 1 else printed
        self.listed = () if likely or len(first.texts) > 1 else listed
        return either_ends(ends)

    def program(
        self,
        name: str,
        words: list[AbstractWord],
        state: State,
        span: SourceSpan | None,
        first: AbstractWord,
        *,
        fed: bool,
    ) -> Ends:
        if first.text is None:
            self.findings.begin(_footing([literal(name, first.span), *words], state))
        known = self._program(name, state, first.span or span)
        if known is None:
            self.findings.unplain = True
            return state, state
        rule = self.rules.find(known)
        if rule is not None and rule.builtin and not self.shell and self.facts.which(known) is None:
            rule = None  # a word of the shell, and no shell here
        if rule is None:
            self.findings.unplain = self.findings.step.stranger = True
            text = f"`{known}` is not among the commands that are known" if known else "an empty command name"
            self.findings.unknown(text, UNLISTED_PROGRAM, first.span or span)
            return state, state
        call = Call(self, rule, known, words, state, span, fed)
        call.named()
        return self._judge(call)

    def _judge(self, call: Call) -> Ends:
        rule, begin = call.rule, call.state
        registry = rule.registry
        before = len(self.findings)
        if rule.subs and rule.grammar != "git":
            call = descend(call)
            rule = call.rule
        self._interpreter = call.label
        if rule.grammar:
            self._handler(rule.grammar)(call)
            rule = call.rule
        else:
            judge(call)
        if call.label in _LEAVES:
            self.left.append(begin)
        if call.label == "return":
            self.returned.append(begin)
        ran = any(reason.tier >= Tier.EXECUTE for reason in self.findings.step.reasons)
        opaque = rule.tier is Tier.EXECUTE and not call.quiet and ran
        if begin.exports and not rule.builtin and not opaque:
            # A variable makes opaque code no worse: that is judged, and confined, as if it did anything already. What
            # such a program does with the words given here may be less, so the tier that came out decides.
            text = f"sets {', '.join(begin.exports)}, which `{call.label}` may obey"
            self.findings.unknown(text, rule.ref, call.span)
        self.findings.step.interprets = (rule.interpreter or rule.grammar in ("sh", "source")) and not call.quiet
        if rule.interpreter and not call.quiet and (self.poured or (call.fed and _runs_input(call.words))):
            call.add_reason(Tier.DANGEROUS, f"`{call.label}` runs what was just downloaded")
        if rule.tier is Tier.NETWORK and call.rule.tier is not Tier.READ and not call.quiet:
            self._asks(call, registry, rule)
        if not rule.plain and self.findings.changed_since(before, (rule.ref, call.rule.ref)):
            self.findings.unplain = True
        self.printed = call.prints or (
            AbstractWord(never_an_option=True, unsplittable=True) if call.rule.tame else None
        )
        self.listed = () if self._traps else call.lists  # a trap may print between the words
        said = self.heard if rule.name in _PASSING else call.says
        if rule.name in _PASSING:
            said += tuple(text for word in call.words for text in word.content)
        if rule.name in _PRINTING:
            said += tuple(text for word in call.words if word.pattern for text in self._words_meant(word, begin))
        if call.label in ("grep", "egrep", "fgrep"):
            from policy.little.picking import picked  # only where there is a search

            said += picked(parse(rule, call.label, call.words))
        elif rule.name in _CUTTING and self.heard:
            from policy.little.picking import cut_out  # only where its input is known

            said = cut_out(rule.name, call.words, self.heard)
        if rule.name in _NAMING:
            said = tuple(text for word in call.words for text in self._words_meant(word, begin) if text[:1] != "-")
        if rule.name in _PACKING:  # the names of files may come by their input
            heard = tokens([*self.heard, *(text for word in call.words for text in word.content)])
            self.findings.suspect(Role.READ, AbstractWord(hints=heard), begin.cwds, rule.ref, call.span)
        self.said += [text for text in said if text not in self.said][: MOST_SAID - len(self.said)]
        return call.after or (begin, begin)

    def _asks(self, call: Call, registry: str, rule: CommandRule) -> None:
        """Whom a command talks to that says no host: the registries in the settings, or somebody nobody can tell."""
        folders = (call.state.cwds or ()) if registry else ()
        for host, scope in dict.fromkeys(one for cwd in folders for one in self.facts.registries(registry, cwd)):
            call.hosts += 1
            call.connects(host, None, scope)
        if not call.hosts:
            self.findings.add_effect(EffectKind.CONNECTS, "", exact=not rule.unreached)

    def _program(self, name: str, state: State, span: SourceSpan | None) -> str | None:
        """The bare name of a program that has to be judged by its rule, or None when it is judged here and now."""
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

    def foreign_repository(self, cwd: str) -> str | None:
        return self._repositories.foreign(cwd)

    # Redirections

    def redirects(self, redirects: tuple[Redirect, ...], state: State) -> bool:
        """Judge every redirection; True when the input comes from a network."""
        before = self.findings.connected
        for redirect in redirects:
            word = self.sense(redirect.target, state)
            span = self.span(redirect.span)
            match redirect.op:
                case RedirectOp.HERE_DOC | RedirectOp.HERE_STRING:
                    self._hear(redirect.fd, word.texts or word.likely_texts or word.hints)
                case RedirectOp.DUP_IN | RedirectOp.DUP_OUT:
                    number = word.text.strip("-") if word.text is not None and _DIGITS.fullmatch(word.text) else "?"
                    # What the others lead to was judged where the script opened them.
                    if number not in _FDS and (number not in self._opened or self.findings.connected):
                        self.findings.unknown(
                            "copies a descriptor that was opened elsewhere", INHERITED_DESCRIPTOR, span
                        )
                    self._hear(redirect.fd, self.streams.get(number, ()))
                case RedirectOp.IN:
                    self._target(Role.READ, word, state, span)
                    self._hear(redirect.fd, word.content)
                case RedirectOp.READ_WRITE:
                    self._target(Role.READ, word, state, span)
                    self._target(Role.WRITE, word, state, span)
                case _:
                    self._target(Role.WRITE, word, state, span)
            if redirect.fd is not None:
                self._opened.add(str(redirect.fd))
        return self.findings.connected > before

    def _hear(self, number: int | None, texts: tuple[str, ...]) -> None:
        """Note what comes from a descriptor. The script may open one in several places, so all of it counts."""
        if number in (None, 0):
            self.heard = texts
        elif texts:
            self.streams[str(number)] = tuple(dict.fromkeys((*self.streams.get(str(number), ()), *texts)))[:MOST_SAID]

    def _target(self, role: Role, word: AbstractWord, state: State, span: SourceSpan) -> None:
        before = len(self.findings)
        if word.may_split or (word.text is not None and not word.text):
            self.findings.unknown("redirects to a path known only when it runs", REDIRECTION, span)
            self.findings.suspect(role, word, state.cwds, REDIRECTION, span)
        else:
            self.findings.access_path(role, word, state.cwds, REDIRECTION, span)
        for text in word.likely_texts:
            self.findings.access_path(role, literal(text), state.cwds, REDIRECTION, span)
        if self.findings.changed_since(before, (REDIRECTION,)):
            self.findings.unplain = True

    # Scripts

    def script(self, script: Script, state: State) -> Ends:
        outer, self.findings.step = self.findings.step, self.findings.ground
        try:
            return super().script(script, state)
        finally:
            self.findings.step = outer

    def opaque(self, script: str, why: str, state: State, rule: RuleRef, span: SourceSpan | None) -> None:
        """A script that was not understood. A credential store that it names in plain sight keeps the floor."""
        outer = self.findings.step
        self.findings.begin(StepBuilder(text=script[:MOST_GLIMPSED], cwds=state.cwds))
        self.findings.unknown(why, rule, span)
        self.glimpse(script, state, rule, span)
        self.findings.step = outer

    def glimpse(self, script: str, state: State, rule: RuleRef, span: SourceSpan | None) -> None:
        """Refuse a text, of which nobody knows how it is read, for the secrets that it names in plain sight."""
        from policy.matches import braced  # only where a script is not understood

        home = self.facts.home
        seen = script[:MOST_GLIMPSED]
        for token in dict.fromkeys((*_TOKENS.split(seen), *braced(seen))):
            text = _HOME.sub(lambda _: f"{home}/", token)
            name = text.rpartition("/")[2]
            if name[:1] == "." and self.classifier.secret_name(name):
                self.findings.add_reason(Tier.SECRET, f"names {name}, {secret_kind(name)}", rule, span)
            if "/" not in text or "\0" in text:
                continue
            for cwd in state.cwds or ("/",):
                if self.classifier.budget.left < _A_GLIMPSE + 10 * len(text):  # without a look: as it is written
                    if self.classifier.written_secret(text, cwd):
                        told = f"names {text}, {secret_kind(text)}"
                        self.findings.add_reason(Tier.SECRET, told, rule, span)
                        return
                    continue
                place = self.classifier.place(text, cwd)
                if place.scope is Scope.SECRET and not self.classifier.named_secret(place.path):
                    self.findings.access_path(Role.READ, literal(text), (cwd,), rule, span)

    def text(self, script: str, state: State, span: SourceSpan | None, rule: RuleRef, *, fed: bool) -> None:
        """Walk bash text that a command runs (`bash -c`), in a shell of its own, with the arguments of `state`."""
        from policy.script.portable import objection_elsewhere  # with the reader, only where there is a script

        self.classifier.budget.spend(len(script) // 4)
        other = None if self._interpreter in _BASH else objection_elsewhere(script)
        if other is not None:
            self.opaque(script, f"{other} is not the same in `{self._interpreter}` as in bash", state, rule, span)
        state = replace(state, functions={}, locals=None)  # a shell of its own
        outer, self._traps = self._traps, []
        self.inner_script(script, state, span, rule, fed=fed)
        self.spring()
        self._traps = outer

    def inner_script(self, script: str, state: State, span: SourceSpan | None, rule: RuleRef, *, fed: bool) -> Ends:
        if self._inner >= MOST_INNER:
            self.opaque(script, "scripts are nested too deeply", state, rule, span)
            return state, state
        from policy.script.reader import read  # only where there is a script

        self.classifier.budget.spend(50 + 3 * len(script))
        tree = read(script)
        if isinstance(tree, Opaque):
            self.opaque(script, f"inside a script: {tree.reason}", state, rule, span)
            return state, state
        kept = (self._anchor, self.fed, self.shell, self.poured)
        self._anchor, self.fed, self.shell, self.poured = span or self._anchor, fed, True, False
        self._inner += 1
        self.given = ()
        try:
            return self.script(tree, state)
        finally:
            self._anchor, self.fed, self.shell, self.poured = kept
            self._inner -= 1


def _held(state: State, name: str) -> AbstractWord:
    return state.variables.get(name, ANYTHING)


def _footing(words: list[AbstractWord], state: State) -> StepBuilder:
    return StepBuilder(tuple(words), cwds=state.cwds, set_up=bool(state.exports))


def _likely(words: list[AbstractWord]) -> list[list[AbstractWord]]:
    """The command once more for each text that an unknown word of it is likely to be."""
    if not any(word.likely_texts for word in words):
        return []
    alone = [replace(word, likely_texts=()) for word in words]
    every = ((index, literal(text, word.span)) for index, word in enumerate(words) for text in word.likely_texts)
    return [[*alone[:index], one, *alone[index + 1 :]] for index, one in islice(every, MOST_LIKELY + 1)]


def _runs_input(words: list[AbstractWord]) -> bool:
    """Whether an interpreter with these words takes its program from standard input."""
    return all(
        word.text is not None and (word.text == "-" or word.text.startswith(("-u", "-B", "-s", "-q"))) for word in words
    )


# Words of the shell that see a temporary assignment as a variable, and that may export more while it lasts.
_PASSING = frozenset(["cat", "head", "tail", "sort", "uniq", "tee", "grep", "rg", "shuf", "xargs", "read"])
_CUTTING = frozenset(["cut", "tr", "awk"])
# These print the names that they are given.
_NAMING = frozenset(
    ["ls", "stat", "du", "realpath", "readlink", "basename", "dirname", "git ls-files", "git check-ignore"]
)
_PRINTING = frozenset(["echo", "printf"])
_PACKING = frozenset(["tar", "zip", "cpio", "pax"])
_KEEPS = frozenset(["eval", "source", ".", "command", "builtin", "export", "declare", "typeset", "readonly", "local"])
_UNRULED = CommandRule("", UNLISTED_PROGRAM, "")
_LEAVES = frozenset(["break", "continue"])
_BASH = frozenset(["bash", "rbash"])
_FDS = frozenset(["0", "1", "2", ""])
