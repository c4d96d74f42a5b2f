"""One additional right for an action that the sandbox stopped: the question about exactly that right."""

from collections.abc import Sequence

from policy.describe.phrases import named, near, plain
from policy.evaluation import EvaluationContext
from policy.model.action import Action
from policy.model.assessment import Check, EffectKind, Reason, Scope
from policy.model.facts import Facts, Kind
from policy.model.frozen import dataclass, replace
from policy.model.host_rule import host_rule
from policy.model.host_words import names_private_network
from policy.model.secret_paths import inside
from policy.model.tier import MATRIX, Ruling, Tier
from policy.model.verdict import UNNAMED, Ask, Cell, Deny, Problem, Terms
from policy.permission.flag_rights import FlagRights

_TIERS = {"--read": Tier.READ_OUTSIDE, "--write": Tier.WRITE_OUTSIDE, "--host": Tier.NETWORK}
_DOING = {"--read": "read", "--write": "change", "--host": "connect to"}
# These folders contain data of users; writing to another folder of the root would change a part of the system.
# SOURCE: FHS 3.0, sections 3.11 to 3.13 and 3.17.
_OPEN = ("/media", "/mnt", "/opt", "/srv")


@dataclass(frozen=True, slots=True)
class ExtraRight:
    """One additional right. `flag` is the flag of `agent exec` (`--read`, `--write`, `--host`), `target` an absolute
    path or a host.
    """

    flag: str
    target: str

    @property
    def words(self) -> str:
        """Return the text form for records and for the user."""
        return f"{self.flag} {self.target}"


def extra_of(words: str) -> ExtraRight | None:
    """Return the right whose text form is `words`, or None if `words` is not an additional right."""
    flag, _, target = words.partition(" ")
    return ExtraRight(flag, target) if flag in _TIERS and target else None


def added(asked: Ask, had: Terms) -> ExtraRight:
    """Return the right that an approval adds to `had`. For a file to be created, this is the right to write to its
    folder.
    """
    terms = asked.terms
    rights = (("--write", terms.write, had.write), ("--host", terms.hosts, had.hosts), ("--read", terms.read, had.read))
    return next(ExtraRight(flag, str(each)) for flag, more, before in rights for each in more if each not in before)


def ask_for(
    context: EvaluationContext, action: Action, had: Terms, extra: ExtraRight, gained: Sequence[ExtraRight] = ()
) -> Ask | None:
    """Return the question whether `action`, which ran with the terms `had`, may run once more with `extra` added, or
    None.

    `gained` are the rights that earlier approvals added to these terms. Returns None if no approval can grant the
    right: secrets and paths that a rule denies, this machine and private networks, modes that never ask,
    and any right that would grant more than itself. INVARIANT: the terms of the question are `had` and exactly that
    right.
    """
    tier = _TIERS[extra.flag]
    if context.unattended or MATRIX[tier][context.mode] is Ruling.DENY:
        return None
    typed = typed_right(extra, context.facts)
    if typed is None:
        return None
    before = [each for each in (typed_right(one, context.facts) for one in gained) if each is not None]
    connections = [one for one in context.classify(action).effects if one.kind is EffectKind.CONNECTS]
    # The usual hosts of a tool give way to hosts that a user names, so the right names them as well.
    usual = [one.target for one in connections if one.scope is Scope.SYSTEM and one.target in had.hosts]
    every = (*((context.typed,) if context.typed else ()), *before, typed)
    whole = FlagRights(
        read=tuple(dict.fromkeys(path for each in every for path in each.read)),
        write=tuple(dict.fromkeys(path for each in every for path in each.write)),
        hosts=tuple(dict.fromkeys((*usual, *(host for each in every for host in each.hosts)))),
        env=context.typed.env if context.typed else (),
    )
    assessment, verdict = replace(context, typed=whole).evaluate(action)
    if isinstance(verdict, Deny) or assessment.tiers[0] >= Tier.SECRET:
        return None
    terms = verdict.terms if isinstance(verdict, Ask) else verdict.permit.terms
    if not _exactly(terms, had, typed):
        return None
    target = plain(extra.target) if extra.flag == "--host" else near((*typed.read, *typed.write)[0], context.facts)
    right = f"{_DOING[extra.flag]} {target}"
    text = f"the sandbox blocked the action: it lacks the right to {right}"
    if typed.write and (wanted := context.facts.look(extra.target).real) not in typed.write:
        new = near(wanted, context.facts)
        text += f"; {new} does not exist, and the sandbox can allow a new file only with its whole folder"
    named_by_settings = {_host_name(one.target) for one in connections if one.scope is Scope.WORKSPACE}
    if any(_host_name(host) in named_by_settings for host in typed.hosts):
        right += ", which the repository's settings name,"
        text += ", which the repository's settings name"
    stopped = f"{named(action, context.facts)} was blocked"
    question = f"{stopped}. An approval runs it once more with the additional right to {right}. Allow it?"
    reason = Reason(tier, text, Check.ADDITIONAL_RIGHT)
    return Ask(assessment, terms, Cell(tier, context.mode, Ruling.ASK), reason, question)


def _host_name(text: str) -> str:
    """Return the name of the host in a rule, without its port, methods and path; the text itself if it is no rule."""
    rule = host_rule(text)
    return text if isinstance(rule, Problem) else rule.host


def typed_right(extra: ExtraRight, facts: Facts) -> FlagRights | None:
    """Return the right in the form of command-line flags, or None for a right that no violation may lead to."""
    if extra.flag == "--host":
        rule = host_rule(extra.target)
        # Only the user's own settings allow this machine or a private network. A pattern never comes from a program.
        if isinstance(rule, Problem) or rule.private or names_private_network(rule.host) or "*" in str(rule):
            return None
        return FlagRights(hosts=(str(rule),))
    path = facts.look(extra.target).real if extra.target.startswith("/") else ""
    if not path.isprintable() or path in ("", "/") or inside(path, facts.workspace):
        return None
    kind = facts.look(path).kind
    if extra.flag == "--write" and kind is Kind.MISSING:  # to create a file is to write to its folder
        path = path.rpartition("/")[0]
        kind = facts.look(path).kind
        if (path.count("/") < 2 and path not in _OPEN) or kind is not Kind.FOLDER or inside(path, facts.workspace):
            return None
    if kind not in (Kind.FILE, Kind.FOLDER):
        return None
    return FlagRights(read=(path,)) if extra.flag == "--read" else FlagRights(write=(path,))


def _exactly(terms: Terms, had: Terms, typed: FlagRights) -> bool:
    """Return True if `terms` are `had` with the rights in `typed` and no others; variables that follow from the hosts
    may differ.
    """
    pairs = (
        (had.read, {*terms.read, *terms.write}),
        (had.write, terms.write),
        (had.hosts, {*terms.hosts, UNNAMED}),
        (terms.read, {*had.read, *typed.read}),
        (terms.write, {*had.write, *typed.write}),
        (terms.hosts, {*had.hosts, *typed.hosts}),
    )
    same = replace(terms, read=had.read, write=had.write, hosts=had.hosts, env=had.env) == had
    same_environment = terms.env == had.env or bool(typed.hosts)
    return same and all(set(part) <= set(whole) for part, whole in pairs) and same_environment and terms != had
