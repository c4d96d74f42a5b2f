"""Findings: the effects of an action and the reasons for its tiers, collected while it is judged."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice

from policy.describe.phrases import plain, secret_kind
from policy.interpreter.path_classifier import Device, PathClassifier, ResolvedPath, socket_host
from policy.model.abstract_word import AbstractWord, SourceSpan
from policy.model.assessment import Consequence, Effect, EffectKind, Reason, RuleRef, Scope, Step
from policy.model.facts import Kind
from policy.model.frozen import dataclass, field, replace
from policy.model.host_words import names_loopback
from policy.model.tier import Tier
from policy.rules.rule import Role

_SECRET_VERBS = {Role.READ: "reads", Role.REVISION: "reads", Role.DELETE: "deletes", Role.MOVE: "moves"}
_Origin = tuple[RuleRef, SourceSpan | None]  # of a finding
_TO_PATHS = {EffectKind.WRITES: Consequence.WRITES_PATH, EffectKind.DELETES: Consequence.DELETES_PATH}


@dataclass(slots=True)
class StepBuilder:
    """A step that is being judged. The attributes are those of Step."""

    words: tuple[AbstractWord, ...] = ()
    text: str = ""
    cwds: tuple[str, ...] | None = None
    set_up: bool = False
    named: tuple[AbstractWord, ...] = ()
    name: int = 1
    also: tuple[str, ...] = ()
    stranger: bool = False
    interprets: bool = False
    family: str = ""
    reasons: dict[int, Reason] = field(default_factory=dict)  # by the identity of the reason
    effects: dict[Effect, None] = field(default_factory=dict)

    def step(self) -> Step:
        """Return the step with the reasons and effects found so far."""
        return Step(
            words=self.words,
            named=self.named,
            name=self.name,
            also=self.also,
            text=self.text,
            cwds=self.cwds,
            set_up=self.set_up,
            stranger=self.stranger,
            interprets=self.interprets,
            family=self.family,
            reasons=tuple(self.reasons.values()),
            effects=tuple(self.effects),
        )


class _InStep:
    """The context manager that gives findings to one step. It is a class because that is quicker than a generator."""

    __slots__ = ("_findings", "_outer", "_step")
    _outer: StepBuilder

    def __init__(self, findings: "Findings", step: StepBuilder) -> None:
        self._findings, self._step = findings, step

    def __enter__(self) -> None:
        self._outer, self._findings.step = self._findings.step, self._step

    def __exit__(self, *_error: object) -> None:
        self._findings.step = self._outer


class Findings:
    """The effects and reasons found so far for one action."""

    def __init__(self, classifier: PathClassifier) -> None:
        self.classifier = classifier
        self._effects: dict[Effect, None] = {}
        self._reasons: dict[Reason, Reason] = {}  # the first of each group of equal reasons
        self.worst = Tier.READ
        # The step of findings that belong to no command: redirections, assignments, the shell's own words.
        self.shell_step = StepBuilder()
        self.step = self.shell_step  # the step that gets new findings
        self._steps = [self.step]
        self.private_hosts: tuple[str, ...] = ()  # entries of allowlists that lead to this machine or its network
        self.connected = 0  # number of connections to a network
        self.deleted = False  # a folder may have been deleted
        self.loops = 0  # number of loops around the current command
        self.deferred_checks: list[Callable[[], None]] = []  # called at the end, unless the action only reads
        self.beyond_plain_edits = False  # more than plain file commands may change files
        # The real path of the file of `source` whose text is being judged; empty for the script itself. A doubt about
        # this text is no more than code that is not read: `source` itself has tier execute.
        self.file = ""
        self.doubts = 0  # number of uses in that text that cannot be judged
        self.sourced: dict[str, str] = {}  # the SHA-256 of each file of `source` that was judged

    @property
    def effects(self) -> tuple[Effect, ...]:
        return tuple(self._effects)

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Return the reasons, worst first; in the order of the script among equals."""
        return tuple(sorted(self._reasons, key=lambda reason: -reason.tier))

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return the commands with their effects and reasons. The first step holds the findings that belong to no
        command.
        """
        return tuple(step.step() for step in self._steps)

    def add_step(self, step: StepBuilder) -> "_InStep":
        """Add a step to the action, and return the context manager in which it gets the findings."""
        self._steps.append(step)
        return self.in_step(step)

    def in_step(self, step: StepBuilder) -> "_InStep":
        """Give the findings inside the `with` block to `step`, and later ones to the previous step again."""
        return _InStep(self, step)

    @contextmanager
    def in_file(self, file: str) -> Iterator[None]:
        """Give the findings inside the `with` block to text of `file`, a file of `source` (empty: the script itself).

        Inside the block, `doubts` counts only the doubts about that text.
        """
        outer, (self.file, self.doubts) = (self.file, self.doubts), (file, 0)
        try:
            yield
        finally:
            self.file, self.doubts = outer

    def __len__(self) -> int:
        return len(self._reasons)

    def changed_since(self, count: int, rules: tuple[RuleRef, ...]) -> bool:
        """Return True if one of `rules` gave a reason worse than reading after the first `count` reasons."""
        added = islice(self._reasons, count, None)
        return any(reason.tier > Tier.READ and reason.rule in rules for reason in added)

    def add_reason(
        self,
        tier: Tier,
        text: str,
        rule: RuleRef,
        span: SourceSpan | None,
        about: Effect | None = None,
        consequence: Consequence | None = None,
        predicate: str = "",
        names: Effect | None = None,
    ) -> None:
        """Add a reason; the parameters are the attributes of Reason."""
        self.add(Reason(tier, text, rule, span, about, names, consequence, "", predicate))

    def add_fact(
        self,
        tier: Tier,
        command: str,
        predicate: str,
        rule: RuleRef,
        span: SourceSpan | None,
        consequence: Consequence | None,
    ) -> None:
        """Add a reason that is a fact about `command`."""
        text = f"`{command}` {predicate}"
        self.add(Reason(tier, text, rule, span, consequence=consequence, command=command, predicate=predicate))

    def add(self, reason: Reason) -> None:
        """Add `reason` to the findings and to the command that is being judged."""
        if self.file:
            reason = self._in_file(reason)
        reason = self._reasons.setdefault(reason, reason)
        self.step.reasons[id(reason)] = reason
        if reason.tier > self.worst:
            self.worst = reason.tier
        if reason.tier is Tier.NETWORK:
            self.connected += 1

    def _in_file(self, reason: Reason) -> Reason:
        """Return a reason about the text of `file`, which the script of the action does not show."""
        if reason.tier is Tier.UNKNOWN:
            self.doubts += 1
            reason = replace(reason, tier=Tier.EXECUTE, bounded=True)
        shown = self.file.removeprefix(f"{self.classifier.facts.workspace}/")
        return replace(reason, text=f"{reason.text}, in the file `{shown}`")

    def add_effect(self, kind: EffectKind, target: str, scope: Scope = Scope.NONE, exact: bool = True) -> Effect:
        effect = Effect(kind, target, scope, exact)
        self._effects[effect] = self.step.effects[effect] = None
        return effect

    def unknown(
        self, text: str, rule: RuleRef, span: SourceSpan | None, consequence: Consequence | None = None
    ) -> None:
        """Report a use that cannot be judged, for the reason `text`."""
        self.add_effect(EffectKind.UNKNOWN, text)
        self.add_reason(Tier.UNKNOWN, text, rule, span, consequence=consequence)

    def bounded(self, text: str, rule: RuleRef, span: SourceSpan | None) -> None:
        """Report a use that cannot be judged, but does no more than code that is not read: the sandbox bounds both."""
        self.add_effect(EffectKind.UNKNOWN, text)
        self.add(Reason(Tier.EXECUTE, text, rule, span, bounded=True))

    def runs(self, what: str, text: str, rule: RuleRef, span: SourceSpan | None) -> None:
        """Report code that runs without being read: `what` is its path or name, `text` the reason for the user."""
        self.add_effect(EffectKind.RUNS, what)
        self.add_reason(Tier.EXECUTE, text, rule, span)

    def connects(
        self,
        host: str,
        rule: RuleRef,
        span: SourceSpan | None,
        scope: Scope = Scope.NONE,
        *,
        exact: bool = True,
        deferrable: bool = False,
    ) -> None:
        """Report a connection to `host`, empty if it is only known at run time. `scope` and `exact` are as in Effect,
        `deferrable` as in Reason.
        """
        effect = self.add_effect(EffectKind.CONNECTS, host, scope, exact)
        named = ", which the repository's settings name" if scope is Scope.WORKSPACE else ""
        text = f"connects to {host or 'a host known only at run time'}{named}"
        self.add(Reason(Tier.NETWORK, text, rule, span, effect, deferrable=deferrable))

    def uses_loopback(self, host: str, rule: RuleRef, span: SourceSpan | None) -> None:
        """Report a connection to `host` on the loopback of the sandbox; empty for a server that listens there."""
        effect = self.add_effect(EffectKind.USES_LOOPBACK, host)
        text = f"connects to {host}, inside the sandbox" if host else "uses the loopback of the sandbox"
        self.add_reason(Tier.EXECUTE, text, rule, span, effect)

    def _opens_socket(self, host: str, at: _Origin) -> None:
        (self.uses_loopback if names_loopback(host, self.private_hosts) else self.connects)(host, *at)

    # Paths

    def access_path(
        self, role: Role, word: AbstractWord, cwds: tuple[str, ...] | None, rule: RuleRef, span: SourceSpan | None
    ) -> None:
        """Record the effects of `role` on the path that `word` names, for every folder that may be the current
        folder.
        """
        at = (rule, span)
        self.classifier.budget.spend(12)
        if not word.texts or cwds is None:
            self.suspect(role, word, cwds, rule, span)
        paths: list[ResolvedPath] = []
        if word.texts:
            for text in filter(None, word.texts):
                if text.startswith("/"):
                    paths.append(self.classifier.place(text, "/"))
                elif cwds is None:
                    self._unknown_path(role, f"`{text}` below a folder known only at run time", at)
                    return
                else:
                    paths += [self.classifier.place(text, cwd) for cwd in cwds]
        elif word.globbed and (word.head.startswith("/") or cwds is not None):
            folder, _, start = word.head.rpartition("/")
            folder = folder or ("/" if word.head.startswith("/") else ".")
            if start in (".", "..") and role not in (Role.READ, Role.NAMES, Role.TREE):
                folder += "/.."  # older bash lets `.*` match the parent folder too
            paths += [self.classifier.place(folder, cwd, bound=True) for cwd in cwds or ("/",)]
            if role not in (Role.NAMES, Role.TREE) and any(
                self.classifier.finds_secrets(word.head, word.tail, cwd) for cwd in cwds or ("/",)
            ):
                text = f"{_SECRET_VERBS.get(role, 'changes')} {word.head}*{word.tail}, which matches keys and passwords"
                self.add_reason(Tier.SECRET, text, rule, span, consequence=_to_paths(role))
            if role in (Role.WRITE, Role.DELETE, Role.MOVE):
                paths += self._locked_matches(word, folder, start, cwds or ("/",), at)
        else:
            self._unknown_path(role, "a path known only at run time", at)
            return
        whole = word.globbed and not word.subset and not word.tail.strip("/") and word.head[-1:] in ("", "/")
        self.classifier.budget.spend(8 * len(paths))
        for place in paths:
            self._path(role, place, at, whole=whole)

    def suspect(
        self, role: Role, word: AbstractWord, cwds: tuple[str, ...] | None, rule: RuleRef, span: SourceSpan | None
    ) -> None:
        """Report the secrets that an uncertain word may name: by known data, its beginning, its end, or its matches."""
        from policy.interpreter.uncertain_paths import secrets_of  # only where a word is uncertain

        content = role not in (Role.NAMES, Role.TREE)
        verb = _SECRET_VERBS.get(role, "changes" if content else "lists")
        for secret in secrets_of(self.classifier, word, cwds, content=content):
            if isinstance(secret, ResolvedPath):
                self._path(role, secret, (rule, span), whole=False)
            else:
                self.add_reason(Tier.SECRET, f"{verb} {secret}", rule, span, consequence=_to_paths(role))

    def _locked_matches(
        self, word: AbstractWord, folder: str, start: str, cwds: tuple[str, ...], at: _Origin
    ) -> list[ResolvedPath]:
        """Return the paths run by other programs that a pattern may match: `.gi*` also matches `.git`."""
        end, more, rest = word.tail.partition("/")
        names = self.classifier.locked_names(start, "" if more else end)
        places = [self.classifier.place(f"{folder}/{name}", cwd, bound=bool(more)) for name in names for cwd in cwds]
        if rest and self.classifier.locked(f"{self.classifier.facts.workspace}/{rest}"):
            text = f"changes `{rest}` in some folder, which other programs run automatically"
            self.add_reason(Tier.DANGEROUS, text, *at, consequence=Consequence.WRITES_PATH)
        return [place for place in places if place.kind is not Kind.MISSING]

    def _unknown_path(self, role: Role, what: str, at: _Origin) -> None:
        if role in (Role.READ, Role.NAMES, Role.TREE, Role.REVISION):
            # Harmless to allow: a permit that only reads shows the workspace and system files, and nothing else.
            self.add_effect(EffectKind.READS, what, Scope.NONE)
            return
        kind = EffectKind.DELETES if role in (Role.DELETE, Role.MOVE) else EffectKind.WRITES
        effect = self.add_effect(kind, what, Scope.NONE)
        self.add_reason(Tier.UNKNOWN, f"{kind.value} {what}", *at, consequence=_TO_PATHS[kind], names=effect)

    def _path(self, role: Role, place: ResolvedPath, at: _Origin, *, whole: bool) -> None:
        if role is Role.MOVE:
            self._path(Role.READ, place, at, whole=whole)
            self._path(Role.DELETE, place, at, whole=whole)
            return
        self.deleted = self.deleted or role is Role.DELETE
        names_only = role in (Role.NAMES, Role.TREE)
        if place.device is Device.SOCKET:
            self._opens_socket(socket_host(place.path) or "", at)
        elif place.device is Device.HARMLESS or (names_only and place.device is Device.OTHER):
            return
        elif names_only:
            self._look(role, place, at)
        elif role in (Role.READ, Role.REVISION):
            self._read(place, at)
        else:
            kind = EffectKind.DELETES if role is Role.DELETE else EffectKind.WRITES
            effect = self._change(kind, place, at)
            if effect is not None and role is Role.DELETE:
                self._delete(place, effect, at, whole=whole)
            elif effect is not None:
                self._write(place, effect, at, whole=whole)

    def _secret(self, verb: str, place: ResolvedPath, at: _Origin, effect: Effect | None = None) -> None:
        text = f"{verb} {place.shown}, {secret_kind(place.path)}"
        consequence = _TO_PATHS.get(effect.kind) if effect is not None else None
        self.add_reason(Tier.SECRET, text, *at, consequence=consequence, names=effect)

    def _read(self, place: ResolvedPath, at: _Origin) -> None:
        if place.scope is Scope.SECRET and place.bound and self.classifier.named_secret(place.path):
            return  # a folder whose name looks secret: the sandbox masks what is in it
        if place.scope is Scope.OUTSIDE and place.kind is Kind.MISSING:
            # A missing file needs no right and no question: the command sees that the file is missing.
            self.add_effect(EffectKind.READS, f"{place.shown}, which does not exist", Scope.NONE)
            return
        effect = self.add_effect(EffectKind.READS, place.path, place.scope, not place.bound)
        what = f"files {_below(place)}" if place.bound else place.shown
        if place.scope is Scope.SECRET:
            self._secret("reads", place, at)
        elif place.scope is Scope.OUTSIDE:
            self.add_reason(Tier.READ_OUTSIDE, f"reads {what}, outside the workspace", *at, effect)
        elif place.scope is Scope.WORKSPACE and (names := self.classifier.git_secrets(place.path)) != ():
            among = f"may keep `{plain(names[0])}`" if names else "may keep secret files"
            self.add_reason(Tier.READ_OUTSIDE, f"reads {what}, where Git {among}", *at, effect)

    def _look(self, role: Role, place: ResolvedPath, at: _Origin) -> None:
        """Report access to names and dates only. A path that the sandbox does not show cannot be listed, so it needs no
        report.
        """
        if place.scope is Scope.SECRET and self.classifier.named_secret(place.path):
            return
        unseen = role is Role.TREE or place.above or place.kind is Kind.MISSING
        if place.scope is Scope.OUTSIDE and unseen:
            text = f"names below {place.shown}, as far as the sandbox shows them"
            self.add_effect(EffectKind.READS, text, Scope.NONE)
            return
        exact = not place.bound and (role is Role.NAMES or place.scope is Scope.SECRET)
        effect = self.add_effect(EffectKind.READS, place.path, place.scope, exact)
        if place.scope is Scope.SECRET:
            self._secret("lists", place, at)
        elif place.scope is Scope.OUTSIDE:
            self.add_reason(Tier.READ_OUTSIDE, f"lists {place.shown}, outside the workspace", *at, effect)

    def _change(self, kind: EffectKind, place: ResolvedPath, at: _Origin) -> Effect | None:
        """Report a change of a path. Return its effect if the caller must state the reason, else None."""
        effect = self.add_effect(kind, place.path, place.scope, not place.bound)
        if place.device is Device.OTHER:
            what = f"the device {place.path}"
        elif place.scope is Scope.SECRET:
            self._secret(kind.value, place, at, effect)
            return None
        elif place.path.startswith(("/proc/", "/sys/")):
            what = f"{place.path}, a setting of the kernel"
        elif place.locked:
            what = f"{place.shown}, which other programs run automatically"
        else:
            return effect
        predicate = f"{'deletes' if kind is EffectKind.DELETES else 'changes'} {what}"
        self.add_reason(Tier.DANGEROUS, f"{kind.value} {what}", *at, effect, _TO_PATHS[kind], predicate)
        return None

    def _write(self, place: ResolvedPath, effect: Effect, at: _Origin, *, whole: bool) -> None:
        what = f"files {_below(place)}" if place.bound else place.shown
        everywhere = place.bound and place.shown == "the workspace"
        tier, text, consequence = Tier.WRITE, f"writes {what}", Consequence.WRITES_PATH
        if place.scope is Scope.WORKSPACE and everywhere and whole:
            tier, text = Tier.DANGEROUS, "changes every file in the workspace"
            consequence = Consequence.CHANGES_WORKSPACE
        elif place.scope is Scope.WORKSPACE and self.classifier.stored_objects(place.path):
            tier, text = Tier.DANGEROUS, f"overwrites {what}, a part of the project's history"
        elif place.scope in (Scope.WORKSPACE, Scope.SCRATCH):
            consequence = Consequence.WRITES_FILES if everywhere else consequence
        elif place.path == "/":
            tier, text, consequence = Tier.DANGEROUS, "changes the root folder of the system", Consequence.CHANGES_ROOT
        else:
            tier, text = Tier.WRITE_OUTSIDE, f"{text}, outside the workspace"
        self.add_reason(tier, text, *at, effect, consequence)

    def _delete(self, place: ResolvedPath, effect: Effect, at: _Origin, *, whole: bool) -> None:
        what = f"files {_below(place)}" if place.bound else place.shown
        tier, text, consequence = Tier.WRITE, f"deletes {what}", Consequence.DELETES_PATH
        if place.scope is Scope.SCRATCH:
            text = f"deletes {what}, in the sandbox's own /tmp"
        elif place.scope is Scope.WORKSPACE and self.classifier.history(place.path):
            tier, text = Tier.DANGEROUS, f"deletes {what}, a part of the project's history"
        elif place.scope is Scope.WORKSPACE and place.shown != "the workspace":
            text = f"deletes {what} in the workspace"
        elif place.scope is Scope.WORKSPACE and place.bound and not whole:
            text = f"deletes files in {place.shown}"
        elif place.scope is Scope.WORKSPACE:
            tier, text = Tier.DANGEROUS, "deletes everything in the workspace"
            consequence = Consequence.DELETES_WORKSPACE
        elif place.scope is Scope.SYSTEM or place.above or place.shown == "~":
            tier, text = Tier.DANGEROUS, f"deletes {what}, which cannot be undone"
        else:
            tier, text = Tier.WRITE_OUTSIDE, f"deletes {what}, outside the workspace"
        self.add_reason(tier, text, *at, effect, consequence)


def _to_paths(role: Role) -> Consequence | None:
    """Return the consequence that a word of this role has for its path, or None if the path is not changed."""
    if role in (Role.READ, Role.REVISION, Role.NAMES, Role.TREE, Role.MOVE):
        return None
    return Consequence.DELETES_PATH if role is Role.DELETE else Consequence.WRITES_PATH


def _below(place: ResolvedPath) -> str:
    return "in the workspace" if place.shown == "the workspace" else f"below {place.shown}"
