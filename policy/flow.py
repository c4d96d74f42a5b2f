"""How commands follow each other: lists, pipelines, loops, branches, conditions; what is known after each of them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import assert_never

from policy.builtin_rules import ARITHMETIC_COMMAND, CASE_COMMAND, CONDITION, TOO_MANY_WORDS
from policy.effects import Findings
from policy.expand import Expander
from policy.reckon import changed, changes, is_number
from policy.rule import Role
from policy.script.numbers import evaluated
from policy.script.tree import (
    FILE_COMPARISONS,
    FILE_TESTS,
    NUMERIC,
    Case,
    Command,
    Compute,
    Condition,
    Expression,
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
    Word,
)
from policy.sense import ANYTHING, MAYBE_NUMBER, NOTHING, NUMBER, AbstractWord, join, literal
from policy.span import SourceSpan
from policy.state import State, join_states
from policy.tier import Tier

MOST_WORDS = 400  # of one command, after expansion
MOST_SAID = 24  # texts that commands are known to print
MOST_ROUNDS = 4  # how often a loop body is walked until nothing new is known

Ends = tuple[State, State]  # what holds when it succeeded, and when it failed


class Flow(ABC):
    """A State goes in and two come out of every node. What a simple command does is for Walk to say."""

    findings: Findings
    expander: Expander
    fed: bool
    left: list[State]
    listed: tuple[AbstractWord, ...]
    given: tuple[AbstractWord, ...]
    said: list[str]
    heard: tuple[str, ...]

    @abstractmethod
    def command(self, command: Command, state: State) -> Ends:
        """Judge a simple command."""

    @abstractmethod
    def define(self, node: Function, state: State) -> Ends:
        """What holds once a function is defined."""

    @abstractmethod
    def redirects(self, redirects: tuple[Redirect, ...], state: State) -> bool:
        """Judge every redirection; True when the input comes from a network."""

    @abstractmethod
    def may_assign(self, name: str, value: AbstractWord, span: SourceSpan | None, *, exported: bool) -> bool:
        """Whether a variable may be set without changing what programs do."""

    @abstractmethod
    def note(self, name: str, value: AbstractWord) -> None:
        """A variable gets a value."""

    @abstractmethod
    def assign(self, state: State, name: str, value: AbstractWord, span: SourceSpan | None) -> State:
        """A bare assignment, seen by this shell only."""

    @abstractmethod
    def marks(self) -> int:
        """How many names evaluate what they are given: that only grows, and is no part of a State."""

    @abstractmethod
    def span(self, span: SourceSpan) -> SourceSpan:
        """Where that is in the user's script."""

    def sense(self, word: Word, state: State) -> AbstractWord:
        return self.expander.sense(word, state)

    def senses(
        self, words: tuple[Word, ...], state: State, expand: Callable[[Word, State], list[AbstractWord]] | None = None
    ) -> list[AbstractWord]:
        """What the words become. Values that double and double again come to an end here."""
        self.findings.classifier.budget.spend(3 * len(words))
        found: list[AbstractWord] = []
        for word in words:
            found += (expand or self.expander.senses)(word, state)
            if len(found) > MOST_WORDS:
                self.findings.unknown("a command with too many words", TOO_MANY_WORDS, self.span(word.span))
                return [*found[:1], ANYTHING]
        return found

    def script(self, script: Script, state: State) -> Ends:
        ok = fail = begin = state
        operator = ";"
        for item in script.items:
            if operator in (";", "&"):
                begin = join_states(ok, fail)
                ok, fail = self.node(item.node, begin)
            elif operator == "&&":
                success, failure = self.node(item.node, ok)
                ok, fail = success, join_states(fail, failure)
            else:
                success, failure = self.node(item.node, fail)
                ok, fail = join_states(ok, success), failure
            operator = item.then
            if operator == "&":
                ok = fail = begin  # the whole list ran in a shell of its own
        return ok, fail

    def node(self, node: Node, state: State) -> Ends:
        self.findings.classifier.budget.spend(10 + 2 * len(state.variables))  # the states before and after are compared
        heard = self.heard
        ok, fail = self._node(node, state)
        self.heard = heard  # a redirection of the node may have given it another input
        if not isinstance(node, (Pipeline, Function)) and not all(map(_opens, node.redirects)):
            fail = join_states(fail, state)  # when a file cannot be opened, bash does not even begin
        return ok, fail

    def _node(self, node: Node, state: State) -> Ends:
        match node:
            case Command():
                return self.command(node, state)
            case Pipeline():
                return self._pipeline(node, state)
            case Function():
                return self.define(node, state)
            case Group(body=body, redirects=redirects):
                with_input = self.redirects(redirects, state)
                return self._fed(with_input, lambda: self.script(body, state))
            case Subshell(body=body, redirects=redirects):
                with_input = self.redirects(redirects, state)
                self._fed(with_input, lambda: self.script(body, state))
                return state, state
            case For():
                return self._for(node, state)
            case Loop():
                return self._loop(node, state)
            case Compute(expression=expression, redirects=redirects, span=span):
                self.redirects(redirects, state)
                self.findings.add_reason(Tier.READ, "computes", ARITHMETIC_COMMAND, self.span(span))
                return (self.compute(expression, state, span),) * 2
            case Test():
                return self._test(node, state)
            case Case():
                return self._case(node, state)
            case While():
                return self._while(node, state)
            case If():
                return self._if(node, state)
            case never:
                assert_never(never)

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
        given: tuple[AbstractWord, ...] = ()
        heard, said = self.heard, self.said
        try:
            for command in node.commands:
                self.said = []
                lone = not node.merged and _lone(command, state)
                self.given, self.listed = given if lone else (), ()
                self.node(command, state)
                given, self.given = self.listed if lone else (), ()
                self.fed = self.fed or self.findings.connected > connected
                self.heard = tuple(dict.fromkeys(self.said))
        finally:
            self.fed, self.heard = before, heard
            said += self.said[:MOST_SAID]
            self.said = said
        return state, state

    def _for(self, node: For, state: State) -> Ends:
        value = ANYTHING
        if node.words is not None:
            value = _each(self.senses(node.words, state))
        elif state.arguments is not None:
            value = _each(list(state.arguments))
        fed = self.redirects(node.redirects, state)
        if not self.may_assign(node.name, value, node.span, exported=False):
            value = ANYTHING
        inside = self.assign(state, node.name, value, node.span)
        end = self._fed(
            fed, lambda: self._rounds(lambda known: self._body(node.body, known), inside, (node.name, value))
        )
        return (join_states(state, end[0]),) * 2

    def _while(self, node: While, state: State) -> Ends:
        def once(known: State) -> State:
            return self._body(node.body, join_states(*self.script(node.condition, known)))

        return self._fed(self.redirects(node.redirects, state), lambda: self._rounds(once, state, None))

    def _loop(self, node: Loop, state: State) -> Ends:
        def once(known: State) -> State:
            known = self.compute(node.condition, known, node.span)
            return self.compute(node.step, self._body(node.body, known), node.span)

        begin = self.compute(node.first, state, node.span)
        return self._fed(self.redirects(node.redirects, state), lambda: self._rounds(once, begin, None))

    def _case(self, node: Case, state: State) -> Ends:
        fed = self.redirects(node.redirects, state)
        self.findings.add_reason(Tier.READ, "chooses by a pattern", CASE_COMMAND, self.span(node.span))
        self.sense(node.word, state)

        def branches() -> Ends:
            end = state
            for branch in node.branches:
                for word in branch.patterns:
                    self.sense(word, state)
                end = join_states(end, self._body(branch.body, state))
            return end, end

        return self._fed(fed, branches)

    def _test(self, node: Test, state: State) -> Ends:
        self.redirects(node.redirects, state)
        self.findings.add_reason(Tier.READ, "checks a condition", CONDITION, self.span(node.span))
        for piece in node.pieces:
            if not isinstance(piece, Condition):
                continue
            senses = [replace(self.sense(word, state), may_split=False, globbed=False) for word in piece.words]
            if piece.operator in FILE_TESTS or piece.operator in FILE_COMPARISONS:
                for sense in senses:
                    for each in (sense, *map(literal, sense.likely_texts)):
                        self.findings.access_path(Role.TREE, each, state.cwds, CONDITION, self.span(piece.span))
            elif piece.operator in NUMERIC:
                for word, sense in zip(piece.words, senses, strict=True):
                    name = evaluated(word)
                    if name is not None:
                        self.expander.evaluate(Name(name, False), state, piece.span)
                    elif not is_number(sense):
                        self.expander.evaluates("a comparison of numbers", piece.span)
        return state, state

    def _body(self, body: Script, state: State) -> State:
        return join_states(*self.script(body, state))

    def compute(self, expression: Expression | None, state: State, span: SourceSpan) -> State:
        """What holds after `((..))`."""
        if expression is None:
            return state
        self.expander.evaluate(expression, state, span, fails=any(changes(expression)))
        for change, certain in changes(expression):
            before = partial(self.expander.value, state=state)
            known = changed(change, before)
            if not certain:
                known = join(before(change.name), NUMBER)
            state = self.assign(state, change.name, known, self.span(span))
        return state

    def _rounds(self, once: Callable[[State], State], state: State, fixed: tuple[str, AbstractWord] | None) -> Ends:
        """Walk a loop until another round brings nothing new about folders and variables."""
        known = state
        for attempt in range(MOST_ROUNDS):
            outer, self.left, marks = self.left, [], self.marks()
            self.findings.loops += 1
            end = once(known)
            self.findings.loops -= 1
            for early in self.left:
                end = join_states(end, early)
            self.left = outer
            if fixed is not None:
                end = end.assign(*fixed)
            merged = join_states(known, end)
            if merged == known and self.marks() == marks:
                return known, known
            known = _counting(known, merged)
            if attempt == MOST_ROUNDS - 2:
                names = dict.fromkeys(known.variables, ANYTHING)
                names.update([fixed] if fixed else [])
                known = replace(known, cwds=None, variables=names, stack=None, previous=None, arguments=None)
        return known, known

    def _if(self, node: If, state: State) -> Ends:
        fed = self.redirects(node.redirects, state)

        def branches() -> Ends:
            ends: list[State] = []
            current = state
            for condition, body in node.branches:
                success, current = self.script(condition, current)
                ends += self.script(body, success)
            ends += self.script(node.otherwise, current) if node.otherwise is not None else (current,)
            end = ends[0]
            for other in ends[1:]:
                end = join_states(end, other)
            return end, end

        return self._fed(fed, branches)


def either_ends(ends: Sequence[Ends]) -> Ends:
    """What holds after a command that may mean several things. `ends` is not empty."""
    ok, fail = ends[0]
    for other in ends[1:]:
        ok, fail = join_states(ok, other[0]), join_states(fail, other[1])
    return ok, fail


def _lone(node: Node, state: State) -> bool:
    """Whether a part of a pipeline is one program that alone reads the pipe before it and writes the one after it."""
    if not isinstance(node, Command) or node.assignments or not node.words:
        return False
    quiet = all(each.fd == 2 and each.target.literal == "/dev/null" for each in node.redirects)
    return (
        quiet and all(word.literal is not None for word in node.words) and node.words[0].literal not in state.functions
    )


def _opens(redirect: Redirect) -> bool:
    """Whether the redirection works for certain."""
    return redirect.op in _FILES and redirect.target.literal == "/dev/null"


_FILES = frozenset([RedirectOp.IN, RedirectOp.OUT, RedirectOp.APPEND, RedirectOp.CLOBBER, RedirectOp.OUT_ERR])


def _counting(before: State, after: State) -> State:
    """A number that a round of a loop has changed may be any number in the next one."""
    counted = {
        name: MAYBE_NUMBER if value.empty or before.variables[name].empty else NUMBER
        for name, value in after.variables.items()
        if is_number(value) and name in before.variables and before.variables[name] != value
    }
    return replace(after, variables={**after.variables, **counted})


def _each(words: list[AbstractWord]) -> AbstractWord:
    """What a loop variable may be, given the words of its list."""
    if not words:
        return NOTHING
    if len(words) == 1 and words[0].globbed:
        return replace(words[0], may_split=False)
    value = replace(words[0], span=None)
    for word in words[1:]:
        value = join(value, replace(word, span=None))
    return replace(value, may_split=False) if all(word.texts or word.globbed for word in words) else value
