"""One command that is being judged: its rule, its words, and what is found out about it."""

from dataclasses import dataclass, field, replace
from typing import Protocol

from policy.assessment import EffectKind, RuleRef, Scope
from policy.effects import Findings
from policy.facts import Facts
from policy.profile import Profile
from policy.rule import CommandRule, Role
from policy.sense import AbstractWord, literal, tokens
from policy.span import SourceSpan
from policy.state import State
from policy.tier import Tier


class Walker(Protocol):
    """What a command may ask of the walk it is part of."""

    findings: Findings
    facts: Facts
    profile: Profile
    given: tuple[AbstractWord, ...]
    heard: tuple[str, ...]
    streams: dict[str, tuple[str, ...]]

    def simple(
        self, words: list[AbstractWord], state: State, span: SourceSpan | None, *, fed: bool
    ) -> tuple[State, State]: ...

    def text(self, script: str, state: State, span: SourceSpan | None, rule: RuleRef, *, fed: bool) -> None: ...


@dataclass(slots=True)
class Call:
    """A command about to be judged: its words after the name, and the folder and variables at that point.

    `label` is how the user would name it (`git log`). `port`: where a bare name of a host is connected to. `fed`: what
    it reads came from a network. `quiet`: judged as
    printing a text about itself, whatever its rule says. `prints`: a bound of what it prints, when that is known.
    `lists`: what each of the words that it prints, NUL after each, may be. `says`: texts that it is known to print.
    """

    walk: Walker
    rule: CommandRule
    label: str
    words: list[AbstractWord]
    state: State
    span: SourceSpan | None
    fed: bool = False
    hosts: int = 0
    port: str = ""
    quiet: bool = False
    after: tuple[State, State] | None = None
    prints: AbstractWord | None = None
    lists: tuple[AbstractWord, ...] = ()
    says: tuple[str, ...] = ()
    flags: dict[str, AbstractWord | None] = field(default_factory=dict)

    @property
    def findings(self) -> Findings:
        return self.walk.findings

    def add_reason(self, tier: Tier, text: str, word: AbstractWord | None = None) -> None:
        self.findings.add_reason(tier, text, self.rule.ref, (word.span if word else None) or self.span)

    def unknown(self, text: str, word: AbstractWord | None = None) -> None:
        self.findings.unknown(text, self.rule.ref, (word.span if word else None) or self.span)
        if word is not None:
            self.suspect(word)

    def suspect(self, word: AbstractWord) -> None:
        """Refuse a word whose role is not known where it is not certain either and may name a secret."""
        if word.content:
            word = replace(word, texts=(), hints=(*word.hints, *tokens(word.content)))
        if not word.texts:
            self.findings.suspect(Role.READ, word, self.state.cwds, self.rule.ref, word.span or self.span)

    def connects(self, host: str, word: AbstractWord | None = None, scope: Scope = Scope.NONE) -> None:
        """It talks to `host`, as `policy.hosts.endpoint` names it; `scope` says whose settings name that."""
        span = (word.span if word else None) or self.span
        self.findings.connects(host, self.rule.ref, span, scope, exact=not self.rule.unreached)

    def access_path(self, role: Role, word: AbstractWord) -> None:
        if word.depends_on_substitution and role in (Role.DELETE, Role.MOVE) and (word.tail or word.may_split):
            # `rm -rf "$d"/*` is `rm -rf /*` when the command that was to print `$d` failed.
            self.unknown("deletes another path when the command that names it fails", word)
        self.findings.access_path(role, word, self.state.cwds, self.rule.ref, word.span or self.span)

    def named(self) -> None:
        """Note for the users' rules which words are the program and its subcommands, and which are the rest."""
        name, step = self.label.split(), self.findings.step
        step.named, step.name, step.also = (*map(literal, name), *self.words), len(name), tuple(self.rule.name.split())

    def inner(self, words: list[AbstractWord], state: State | None = None) -> None:
        """Judge the command that this one runs, in its place."""
        self.walk.simple(words, state or self.state, self.span, fed=self.fed)

    def changes(self, tier: Tier) -> None:
        """The effect behind a tier that no operand explains. The sandbox grants what the effects say, and no more."""
        place = self.rule.changes or ("." if tier is Tier.WRITE and not self.rule.operands.writes else "")
        if place and tier is not Tier.READ:
            workspace = self.walk.facts.workspace
            path = workspace if place == "." else f"{workspace}/{place}"
            self.findings.add_effect(EffectKind.WRITES, path, Scope.WORKSPACE, place != ".")
