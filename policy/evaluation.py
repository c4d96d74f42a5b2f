"""Evaluation of one action: classify the action, decide, and apply the limits of the sandbox backend."""

import json
from typing import TYPE_CHECKING

from policy.classify import classify
from policy.decide import decide
from policy.model.action import Action, ToolAction
from policy.model.assessment import Assessment, EffectKind
from policy.model.digest import sha256_hex
from policy.model.facts import Facts
from policy.model.frozen import dataclass, field, fields, is_dataclass, replace
from policy.model.profile import PermissionRule, Profile, Source
from policy.model.tier import MATRIX, Matrix, Mode, Ruling
from policy.model.verdict import Ask, Deny, Limits, Problem, Verdict
from policy.rules.rulebook import RuleBook

if TYPE_CHECKING:
    from policy.flow.finding import FlowFinding
    from policy.flow.state import FlowState
    from policy.model.agent_limit import AgentLimit
    from policy.permission.flag_rights import FlagRights

_YOURSELF = "run it yourself outside the agent, and let the agent use the files that it leaves in the workspace"
_OPEN = frozenset(["seatbelt"])  # every program of the machine can connect to the proxy of this backend
_CLOSED = frozenset(["T3"])  # this backend has no separate network, so it cannot allow single hosts


@dataclass(frozen=True, slots=True)
class EvaluationContext:
    """Everything that a verdict rests on except the action.

    Attributes:
        facts: The state of the machine at one moment.
        rules: The command rules that classify the words of a script.
        profile: The user's settings with the permission rules.
        mode: The mode whose column of the matrix decides.
        environment: The variables that the action would get.
        limits: Resource limits in place of those of the profile, or None.
        source: The author of the action: the model or a person. Permission rules may depend on the author.
        typed: The rights that command-line flags add to the action, or None.
        unattended: True if no person can answer a question. Every question then becomes a denial.
        backend: The name of the sandbox backend that would run the action, or None if it is not chosen yet.
        matrix: The permission matrix. Only simulations use a matrix other than the built-in one.
        agents: The limits of the acting sub-agent and of every agent above it. Empty for the agent `main`.
        flow: The information-flow state of the session, or None if there is no conversation, or `flow` is off.
    """

    facts: Facts
    rules: RuleBook
    profile: Profile
    mode: Mode
    environment: tuple[tuple[str, str], ...]
    limits: Limits | None = None
    source: Source = Source.MODEL
    typed: "FlagRights | None" = None
    unattended: bool = False
    backend: str | None = None
    matrix: Matrix = field(default_factory=lambda: MATRIX)
    agents: "tuple[AgentLimit, ...]" = ()
    flow: "FlowState | None" = None

    def with_rules(self, rules: tuple[PermissionRule, ...]) -> "EvaluationContext":
        """Return a copy of this context with `rules` appended to the user's rules."""
        if not rules:
            return self
        return replace(self, profile=replace(self.profile, permissions=(*self.profile.permissions, *rules)))

    def evaluate(
        self, action: Action, more: tuple[PermissionRule, ...] = (), *, unattended: bool = False
    ) -> tuple[Assessment, Verdict]:
        """Classify `action` and decide about it, with `more` appended to the user's rules.

        A verdict that the backend could not keep is a Deny. `unattended` denies questions even if this context asks.
        """
        context = self.with_rules(more)
        assessment = context.classify(action)
        return assessment, context.decide(assessment, unattended=unattended)

    def classify(self, action: Action) -> Assessment:
        """Return the effects, tiers and reasons of `action`. They do not depend on the mode."""
        profile = self._limited().profile if self.agents else self.profile
        assessment = classify(action, self.facts, self.rules, profile, self.source, self.typed)
        if self.flow is None or not (findings := self.flow_findings(assessment)):
            return assessment
        from policy.flow.guard import guarded  # only after untrusted text was read

        return guarded(assessment, self.flow, findings, self.mode, self.matrix)

    def flow_findings(self, assessment: Assessment) -> "tuple[FlowFinding, ...]":
        """Return what the rules about information flow find in an action that this context classified."""
        if self.flow is None or not (self.flow.untrusted or self.flow.recorded):
            return ()
        from policy.flow.guard import flow_findings  # only after untrusted text was read

        return flow_findings(assessment, self.flow, self.facts, self.profile)

    def _limited(self) -> "EvaluationContext":
        """Return a copy with the rules that the limits of the agents state."""
        return self.with_rules(tuple(rule for limit in self.agents for rule in limit.rules))

    def decide(
        self, assessment: Assessment, *, mode: Mode | None = None, unattended: bool = False, offline: bool = True
    ) -> Verdict:
        """Return the verdict on an action that this context classified; `mode` replaces the mode of this context, and
        `offline` is as in `policy.decide.decide`.
        """
        profile = self._limited().profile if self.agents else self.profile

        def decided(mode: Mode) -> Verdict:
            return decide(
                assessment,
                self.facts,
                profile,
                mode,
                unattended=unattended or self.unattended,
                environment=self.environment,
                limits=self.limits,
                matrix=self.matrix,
                offline=offline,
            )

        verdict = decided(mode or self.mode)
        if self.agents:
            from policy.permission.agent_limits import within_limit  # only for sub-agents

            for limit in self.agents:
                verdict = within_limit(verdict, limit, decided)
        return within_backend(verdict, assessment, self.backend)


def within_backend(verdict: Verdict, assessment: Assessment, backend: str | None = None) -> Verdict:
    """Return `verdict`, or a Deny if `backend` (None: not chosen yet) cannot provide what the verdict grants.

    Examples are terms that name hosts on a backend without a proxy, and packets that no proxy forwards. Approval of
    such an action would end in a refusal by the sandbox, so no user is asked, and no refusal suggests asking a user.
    """
    if isinstance(assessment.action, ToolAction):
        return verdict  # no sandbox runs it: the runner itself connects, through the code of the proxy
    raw = any(effect.kind is EffectKind.CONNECTS and not effect.exact for effect in assessment.effects)
    if isinstance(verdict, Deny):
        closed = backend in _CLOSED and any(effect.kind is EffectKind.CONNECTS for effect in assessment.effects)
        if not (raw or closed) or verdict.cell.ruling is not Ruling.ASK:
            return verdict
        problem = replace(verdict.problem, fix=_YOURSELF)
        return replace(verdict, problem=problem, allowed_in=None, asked_in=None)
    terms = verdict.terms if isinstance(verdict, Ask) else verdict.permit.terms
    fix = _YOURSELF
    if raw:
        what = "this connection cannot be made from a sandbox"
        why = "a sandbox allows only connections to named hosts, through a proxy"
    elif terms.credentials and backend in _OPEN:
        named = ", ".join(f"`{name}`" for name in terms.credentials)
        what = f"sandbox {backend} injects no credential"
        why = f"other programs of this machine could also use {named} through its proxy"
        fix = f"run it under `--backend container`, remove the credential from your configuration, or {_YOURSELF}"
    elif terms.open_hosts and backend in _CLOSED:
        hosts = ", ".join(f"`{host}`" for host in terms.hosts)
        what = f"sandbox {backend} allows no connection"
        why = f"the action connects to {hosts}, and this sandbox has no network"
        fix = f"run it under T1 or T2 (`agent doctor` shows what they need), or {_YOURSELF}"
    else:
        return verdict
    return Deny(Problem(what, why, fix), verdict.cell, verdict.reason)


# Fields that are no part of what is allowed: the place of a rule, the owner of its file, and the path of the
# certificates. `personal` is a fact about the disk, derived from the settings of other programs.
_PLACES = frozenset(["ref", "layer", "bundle", "authority", "personal"])


def fingerprint(profile: Profile, rules: RuleBook, matrix: Matrix = MATRIX) -> str:
    """Return the SHA-256 (hex) of everything that determines a verdict except the action, the disk and the mode: the
    facts about commands, the profile with the users' rules in their order, and the matrix, as canonical JSON.
    """
    names = sorted(each.name for each in fields(profile) if each.name not in _PLACES)
    values = ",".join(f"{json.dumps(name)}:{_json(getattr(profile, name))}" for name in names)
    table = _dumped([[ruling.value for ruling in row.values()] for row in matrix.values()])
    text = f'{{"commands":"{rules.digest}","matrix":{table},"profile":{{{values}}}}}'
    return sha256_hex(text.encode("ascii"))


# Texts of the last long tuples. Most are the packaged ones, and stay the same objects when other fields change.
_json_of: dict[int, tuple[object, str]] = {}
_LONG, _MOST_TEXTS = 16, 32  # items of a tuple whose text is kept, and the number of texts


def _json(value: object) -> str:
    """Return the canonical JSON of one value of a profile."""
    known = _json_of.get(id(value))
    if known is not None and known[0] is value:  # the kept value still has this identity
        return known[1]
    text = _dumped(_plain(value))
    if isinstance(value, tuple) and len(value) >= _LONG:
        if len(_json_of) >= _MOST_TEXTS:
            _json_of.clear()
        _json_of[id(value)] = (value, text)
    return text


def _dumped(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _plain(value: object) -> object:
    """Return `value` as JSON data, with every field by its name."""
    if value is None or isinstance(value, str | int | float):  # an enumeration is one of these as well
        return value
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value) if each.name not in _PLACES}
    return str(value)  # a day
