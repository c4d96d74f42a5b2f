"""One walk over a script: every node, every word in every position."""

import re
from collections.abc import Callable
from dataclasses import replace

from policy.assessment import EffectKind, RuleRef, Scope, Span
from policy.call import Call, descend, judge
from policy.denied import denied_reason
from policy.effects import Findings
from policy.expand import Expansion
from policy.facts import Facts
from policy.little.registry import GRAMMAR
from policy.paths import Atlas
from policy.profile import Profile
from policy.repositories import Repositories
from policy.rule import CommandRule, Role
from policy.rules import RuleBook
from policy.script.reader import read
from policy.script.tree import (
    Assignment,
    Command,
    For,
    Group,
    If,
    Node,
    Opaque,
    Pipeline,
    Redirect,
    RedirectOp,
    Script,
    Subshell,
    While,
    Word,
)
from policy.sense import ANYTHING, NOTHING, Sense, either, exactly, joined
from policy.state import State, either_state
from policy.tier import Tier
from policy.variables import Standing, standing

SHELL = RuleRef("policy/walk.py", 0)
MOST_INNER = 6  # scripts inside scripts
MOST_GLIMPSED = 16 * 1024
MOST_ROUNDS = 4  # how often a loop body is walked until nothing new is known

_BIN = ("/bin", "/usr/bin", "/sbin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin")
_TOKENS = re.compile(r"[\s;|&<>()`'\"=,{}]+")
_HOME = re.compile(r"\A(?:~|\$HOME)/")
_DIGITS = re.compile(r"[0-9]+-?|-")

Ends = tuple[State, State]  # what holds when it succeeded, and when it failed


class Walk:
    """Walks one action. `findings` is what it saw; a State goes in and two come out of every node."""

    def __init__(self, facts: Facts, rules: RuleBook, profile: Profile) -> None:
        self.facts, self.rules, self.profile = facts, rules, profile
        self.atlas = Atlas(facts, profile)
        self.findings = Findings(self.atlas)
        self.fed = False  # the standard input of what is walked comes from a network
        self.poured = False  # words of the command being judged do
        self.shell = True  # a shell runs it, so the shell's own words mean something
        self.tame = False  # whether the last simple command prints one word that is no flag
        self._inner = 0
        self._anchor: Span | None = None  # where the text being walked stands in the user's script
        self._repositories = Repositories(facts)
        self._expansion = Expansion(self)

    # Structure

    def script(self, script: Script, state: State) -> Ends:
        ok = fail = begin = state
        operator = ";"
        for item in script.items:
            if operator in (";", "&"):
                begin = either_state(ok, fail)
                ok, fail = self.node(item.node, begin)
            elif operator == "&&":
                success, failure = self.node(item.node, ok)
                ok, fail = success, either_state(fail, failure)
            else:
                success, failure = self.node(item.node, fail)
                ok, fail = either_state(ok, success), failure
            operator = item.then
            if operator == "&":
                ok = fail = begin  # the whole list ran in a shell of its own
        return ok, fail

    def node(self, node: Node, state: State) -> Ends:
        match node:
            case Command():
                return self.command(node, state)
            case Pipeline():
                return self._pipeline(node, state)
            case Group(body=body, redirects=redirects):
                with_input = self._redirects(redirects, state)
                return self._fed(with_input, lambda: self.script(body, state))
            case Subshell(body=body, redirects=redirects):
                with_input = self._redirects(redirects, state)
                self._fed(with_input, lambda: self.script(body, state))
                return state, state
            case For():
                return self._for(node, state)
            case While(condition=condition, body=body, redirects=redirects):
                with_input = self._redirects(redirects, state)
                return self._fed(with_input, lambda: self._loop(condition, body, state))
            case If():
                return self._if(node, state)

    def _fed(self, fed: bool, walk: Callable[[], Ends]) -> Ends:
        before, self.fed = self.fed, self.fed or fed
        try:
            return walk()
        finally:
            self.fed = before

    def _pipeline(self, node: Pipeline, state: State) -> Ends:
        if len(node.commands) == 1:
            ok, fail = self.node(node.commands[0], state)
            return (fail, ok) if node.negated else (ok, fail)
        before, connected = self.fed, self.findings.connected
        try:
            for command in node.commands:
                self.node(command, state)
                self.fed = self.fed or self.findings.connected > connected
        finally:
            self.fed = before
        return state, state

    def _for(self, node: For, state: State) -> Ends:
        value = ANYTHING
        if node.words is not None:
            words = [self.sense(word, state) for word in node.words]
            value = _each(words)
        fed = self._redirects(node.redirects, state)
        if not self._may_assign(node.name, value, node.span, exported=False):
            value = ANYTHING
        inside = state.assign(node.name, value)
        end = self._fed(fed, lambda: self._rounds(None, node.body, inside, (node.name, value)))
        return (either_state(state, end[0]),) * 2

    def _loop(self, condition: Script, body: Script, state: State) -> Ends:
        return self._rounds(condition, body, state, None)

    def _rounds(self, condition: Script | None, body: Script, state: State, fixed: tuple[str, Sense] | None) -> Ends:
        """Walk a loop until another round brings nothing new about folders and variables."""
        known = state
        for attempt in range(MOST_ROUNDS):
            start = known
            if condition is not None:
                start, out = self.script(condition, known)
                start = either_state(start, out)
            ok, fail = self.script(body, start)
            end = either_state(ok, fail)
            if fixed is not None:
                end = end.assign(*fixed)
            merged = either_state(known, end)
            if merged == known:
                return known, known
            known = merged
            if attempt == MOST_ROUNDS - 2:
                names = dict.fromkeys(known.variables, ANYTHING)
                known = State(None, {**names, **dict([fixed] if fixed else [])}, known.exports, None, None)
        return known, known

    def _if(self, node: If, state: State) -> Ends:
        fed = self._redirects(node.redirects, state)

        def branches() -> Ends:
            ends: list[State] = []
            current = state
            for condition, body in node.branches:
                success, current = self.script(condition, current)
                ends += self.script(body, success)
            ends += self.script(node.otherwise, current) if node.otherwise is not None else (current,)
            end = ends[0]
            for other in ends[1:]:
                end = either_state(end, other)
            return end, end

        return self._fed(fed, branches)

    def sense(self, word: Word, state: State) -> Sense:
        return self._expansion.sense(word, state)

    def span(self, span: Span) -> Span:
        return self._anchor or span

    # Simple commands

    def command(self, command: Command, state: State) -> Ends:
        before = self.findings.connected
        span = self.span(command.span)
        words = [self.sense(word, state) for word in command.words]
        values = [(item, self._value(item, state)) for item in command.assignments]
        fed = self._redirects(command.redirects, state)
        outer, self.poured = self.poured, self.poured or fed or self.findings.connected > before
        ends = self._ready(command, words, values, state, span, fed=fed)
        self.poured = outer
        return ends

    def _ready(
        self,
        command: Command,
        words: list[Sense],
        values: list[tuple[Assignment, Sense]],
        state: State,
        span: Span,
        *,
        fed: bool,
    ) -> Ends:
        """A simple command whose words are expanded and whose redirections are judged."""
        if not words:
            for item, value in values:
                state = self.assign(state, item.name, value, span)
            self.findings.because(Tier.READ, "sets variables" if values else "only redirects", SHELL, span)
            return state, state
        exports = list(state.exports)
        for item, value in values:
            if item.name == "IFS" and words[0].text == "read" and value.text is not None:
                continue
            verdict = standing(item.name, value.text, self.profile.environment, exported=True)
            if verdict is Standing.SHELL and self._is_builtin(words[0]):
                self._obeyed(item.name, span)
            if verdict is not Standing.OWN:
                exports.append(item.name)
        here = replace(state, exports=tuple(exports)) if len(exports) > len(state.exports) else state
        ok, fail = self.simple(words, here, span, fed=fed)
        if here is not state and words[0].text not in _KEEPS:
            ok, fail = replace(ok, exports=state.exports), replace(fail, exports=state.exports)
        return ok, fail

    def _value(self, item: Assignment, state: State) -> Sense:
        value = self.sense(item.value, state)
        # An assignment is not split, and its globs stay as they are.
        value = replace(value, many=False, wild=False)
        if item.append:
            old = state.variables.get(item.name)
            return joined([old, value], None) if old is not None else Sense()
        return value

    def assign(self, state: State, name: str, value: Sense, span: Span | None) -> State:
        """A bare assignment, seen by this shell only."""
        return state.assign(name, value if self._may_assign(name, value, span, exported=False) else ANYTHING)

    def _may_assign(self, name: str, value: Sense, span: Span | None, *, exported: bool) -> bool:
        """Whether a variable may be set without changing what programs do. Says so when the shell itself obeys it."""
        verdict = standing(name, value.text, self.profile.environment, exported=exported)
        if verdict is Standing.SHELL:
            self._obeyed(name, span)
        return verdict is Standing.OWN

    def _obeyed(self, name: str, span: Span | None) -> None:
        self.findings.unknown(f"sets {name}, which the shell or other programs obey", SHELL, span)

    def _is_builtin(self, word: Sense) -> bool:
        rules = [self.rules.find(text) for text in word.texts]
        return not rules or any(rule is None or rule.builtin for rule in rules)

    def export(self, state: State, name: str, value: Sense | None, span: Span | None) -> State:
        """Give a variable to every later program."""
        known = value if value is not None else state.variables.get(name, ANYTHING)
        if not self._may_assign(name, known, span, exported=True):
            state = replace(state, exports=(*state.exports, name))
        return state if value is None else state.assign(name, value)

    def simple(self, words: list[Sense], state: State, span: Span | None, *, fed: bool) -> Ends:
        """Judge one command by its expanded words."""
        self.tame = False
        denied = denied_reason([word.text for word in words], self.profile, span)
        if denied is not None:
            self.findings.because(denied.tier, denied.text, denied.rule, denied.span)
        first = words[0]
        if not first.texts or (first.many and first.text is None):
            self.findings.unknown("the program is known only when it runs", SHELL, first.span or span)
            return state, state
        ends = [self._named(text, words[1:], state, span, first, fed=fed or self.fed) for text in first.texts]
        ok, fail = ends[0]
        for other in ends[1:]:
            ok, fail = either_state(ok, other[0]), either_state(fail, other[1])
        return ok, fail

    def _named(
        self, name: str, words: list[Sense], state: State, span: Span | None, first: Sense, *, fed: bool
    ) -> Ends:
        known = self._program(name, state, first.span or span)
        if known is None:
            self.findings.unplain = True
            return state, state
        rule = self.rules.find(known)
        if rule is not None and rule.builtin and not self.shell and self.facts.which(known) is None:
            rule = None  # a word of the shell, and no shell here
        if rule is None:
            self.findings.unplain = True
            text = f"`{known}` is not among the commands that are known" if known else "an empty command name"
            self.findings.unknown(text, SHELL, first.span or span)
            return state, state
        call = Call(self, rule, known, words, state, span, fed)
        return self._judge(call)

    def _judge(self, call: Call) -> Ends:
        rule, begin = call.rule, call.state
        before = len(self.findings)
        if rule.subs and rule.grammar != "git":
            call = descend(call)
            rule = call.rule
        if rule.grammar:
            GRAMMAR[rule.grammar](call)
            rule = call.rule
        else:
            judge(call)
        opaque = rule.tier is Tier.EXECUTE and not call.quiet
        if begin.exports and not rule.builtin and not opaque:
            # A variable makes opaque code no worse: that is judged, and confined, as if it did anything already.
            text = f"sets {', '.join(begin.exports)}, which `{call.label}` may obey"
            self.findings.unknown(text, rule.ref, call.span)
        if rule.interpreter and not call.quiet and (self.poured or (call.fed and _runs_input(call.words))):
            call.because(Tier.DANGEROUS, f"`{call.label}` runs what was just downloaded")
        if rule.tier is Tier.NETWORK and not call.hosts and not call.quiet:
            self.findings.effect(EffectKind.CONNECTS, "")  # some host; which one, only the run shows
        if not rule.plain and self.findings.changed_since(before, (rule.ref, call.rule.ref)):
            self.findings.unplain = True
        self.tame = call.rule.tame
        return call.after or (begin, begin)

    def _program(self, name: str, state: State, span: Span | None) -> str | None:
        """The bare name of a program that has to be judged by its rule, or None when it is judged here and now."""
        workspace = self.facts.workspace
        if "/" not in name:
            found = self.facts.which(name) if name else None
            if found is None:
                return name
            inside = self.atlas.within(found, workspace) or self.atlas.within(self.facts.look(found).real, workspace)
            if not inside or (self.rules.find(name) or _UNRULED).builtin:
                return name
            self.findings.runs(found, f"runs `{name}`, a program of the workspace", SHELL, span)
            return None
        folder, _, base = name.rpartition("/")
        if folder in _BIN or self.facts.which(base) == name:
            rule = self.rules.find(base)
            if rule is not None and not (self.atlas.within(name, workspace)):
                return base
        for cwd in state.cwds or ("/",):
            if state.cwds is None and not name.startswith("/"):
                self.findings.unknown(f"`{name}` in a folder known only when it runs", SHELL, span)
                return None
            place = self.atlas.place(name, cwd)
            self.findings.touch(Role.READ, exactly(name), (cwd,), SHELL, span)
            self.findings.runs(place.path, f"runs `{place.shown}`, a program we cannot see through", SHELL, span)
        return None

    def foreign_repository(self, cwd: str) -> str | None:
        return self._repositories.foreign(cwd)

    # Redirections

    def _redirects(self, redirects: tuple[Redirect, ...], state: State) -> bool:
        """Judge every redirection; True when the input comes from a network."""
        before = self.findings.connected
        for redirect in redirects:
            word = self.sense(redirect.target, state)
            span = self.span(redirect.span)
            match redirect.op:
                case RedirectOp.HERE_DOC | RedirectOp.HERE_STRING:
                    continue
                case RedirectOp.DUP_IN | RedirectOp.DUP_OUT:
                    if word.text is None or not _DIGITS.fullmatch(word.text) or word.text.strip("-") not in _FDS:
                        self.findings.unknown("copies a descriptor that was opened elsewhere", SHELL, span)
                case RedirectOp.IN:
                    self._target(Role.READ, word, state, span)
                case RedirectOp.READ_WRITE:
                    self._target(Role.READ, word, state, span)
                    self._target(Role.WRITE, word, state, span)
                case _:
                    self._target(Role.WRITE, word, state, span)
        return self.findings.connected > before

    def _target(self, role: Role, word: Sense, state: State, span: Span) -> None:
        before = len(self.findings)
        if word.many or (word.text is not None and not word.text):
            self.findings.unknown("redirects to a path known only when it runs", SHELL, span)
        else:
            self.findings.touch(role, word, state.cwds, SHELL, span)
        if self.findings.changed_since(before, (SHELL,)):
            self.findings.unplain = True

    # Scripts

    def opaque(self, script: str, why: str, state: State, rule: RuleRef, span: Span | None) -> None:
        """A script that was not understood. A credential store that it names in plain sight keeps the floor."""
        self.findings.unknown(why, rule, span)
        home = self.facts.home
        for token in _TOKENS.split(script[:MOST_GLIMPSED]):
            text = _HOME.sub(lambda _: f"{home}/", token)
            if "/" not in text or "\0" in text:
                continue
            for cwd in state.cwds or ("/",):
                place = self.atlas.place(text, cwd)
                if place.scope is Scope.SECRET and not self.atlas.named_secret(place.path):
                    self.findings.touch(Role.READ, exactly(text), (cwd,), rule, span)

    def text(self, script: str, state: State, span: Span | None, rule: RuleRef, *, fed: bool) -> None:
        """Walk bash text that a command runs (`bash -c`), in a shell of its own."""
        self.inner_script(script, state, span, rule, fed=fed)

    def inner_script(self, script: str, state: State, span: Span | None, rule: RuleRef, *, fed: bool) -> Ends:
        if self._inner >= MOST_INNER:
            self.findings.unknown("scripts are nested too deeply", rule, span)
            return state, state
        tree = read(script)
        if isinstance(tree, Opaque):
            self.opaque(script, f"inside a script: {tree.reason}", state, rule, span)
            return state, state
        kept = (self._anchor, self.fed, self.shell, self.poured)
        self._anchor, self.fed, self.shell, self.poured = span or self._anchor, fed, True, False
        self._inner += 1
        try:
            return self.script(tree, state)
        finally:
            self._anchor, self.fed, self.shell, self.poured = kept
            self._inner -= 1


def _runs_input(words: list[Sense]) -> bool:
    """Whether an interpreter with these words takes its program from standard input."""
    return all(
        word.text is not None and (word.text == "-" or word.text.startswith(("-u", "-B", "-s", "-q"))) for word in words
    )


# Words of the shell that may export more while a temporary assignment lasts.
_KEEPS = frozenset(["eval", "source", ".", "command", "builtin", "export", "declare", "typeset", "readonly", "local"])
_UNRULED = CommandRule("", SHELL, "")
_FDS = frozenset(["0", "1", "2", ""])


def _each(words: list[Sense]) -> Sense:
    """What a loop variable may be, given the words of its list."""
    if not words:
        return NOTHING
    if len(words) == 1 and words[0].wild:
        return replace(words[0], many=False)
    value = replace(words[0], span=None)
    for word in words[1:]:
        value = either(value, replace(word, span=None))
    return replace(value, many=False) if all(word.texts or word.wild for word in words) else value
