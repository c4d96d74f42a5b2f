"""The decision: combines an assessment with the permission matrix into Allow, Ask or Deny.

Permits are created only here and in `grants`.
"""

from policy.describe.phrases import named, near, plain
from policy.model.action import ConvertDocument, RunArgv, RunScript, StartProcess
from policy.model.assessment import Assessment, Check, EffectKind, Reason, RuleKind
from policy.model.facts import Facts
from policy.model.frozen import replace
from policy.model.profile import Layer, Profile
from policy.model.tier import MATRIX, Matrix, Mode, Ruling, Tier
from policy.model.verdict import _MINT, UNNAMED, Allow, Ask, Cell, Deny, Limits, Permit, Problem, Terms, Verdict
from policy.terms import Floor, conversion_terms, terms_for

_FLOORS = (Tier.SECRET, Tier.DENIED)
_LONGEST = 1000  # characters of a reason, which may contain the text of a rule's author
_YOURSELF = "run it in your own shell if it is intended; the agent cannot get an approval for it"


def decide(
    assessment: Assessment,
    facts: Facts,
    profile: Profile,
    mode: Mode,
    *,
    unattended: bool,
    environment: tuple[tuple[str, str], ...],
    limits: Limits | None = None,
    matrix: Matrix = MATRIX,
    offline: bool = True,
) -> Verdict:
    """Return the verdict: the strictest cell over all tiers, adjusted by the users' rules.

    An action about which only deferrable hosts are open is an Allow without any host (`starts_offline`). With `offline`
    False the verdict is the question about these hosts instead, which a grant may answer.

    The terms that an Allow grants and those that an Ask offers are the same. The verdict is never Ask if `unattended`.
    A secret or denied tier, and an action that no terms can grant (`Floor`), are Deny in every mode.

    `limits` replaces the limits of the profile. The cell of a verdict is the ruling of the matrix, so an unattended
    Deny may have an `ask` cell, and so may an Allow by a rule, whose `reason` names the rule. `matrix` differs from the
    built-in matrix only in simulations.
    """
    cell = deciding_cell(assessment, mode, matrix)
    reason = _reason(assessment, cell.tier)
    if cell.tier in _FLOORS:
        return Deny(_floor_problem(assessment, facts, cell.tier, reason, profile), cell, reason)
    terms = terms_for(assessment, facts, profile, environment, limits or profile.limits)
    if isinstance(terms, Floor):
        problem = Problem(f"{named(assessment.action, facts)} was refused", terms.why, terms.fix)
        cell = Cell(terms.tier, mode, MATRIX[terms.tier][mode])
        return Deny(problem, cell, Reason(terms.tier, terms.why, Check.RIGHTS_FLOOR))
    ruling, reason = _by_rules(assessment, cell, reason, matrix)
    tries = ruling is Ruling.ASK and tries_first(assessment, cell, matrix)
    if ruling is not Ruling.ALLOW and offline and not terms.credentials and starts_offline(assessment, mode, matrix):
        terms = _without_network(terms, assessment)
        text = f"{_reason_text(_deferred(assessment))}; it starts without network, because that may be unnecessary"
        reason = Reason(Tier.NETWORK, text, Check.OFFLINE_START)
        ruling = Ruling.ALLOW
    match ruling:
        case Ruling.ALLOW:
            return Allow(Permit(assessment.action, terms, _MINT, assessment.sourced), cell, reason)
        case Ruling.ASK if not unattended:
            from policy.describe.summary import question  # only for a question, as in the functions of refusals

            text = _reason_text(reason)
            rule_text = f"{text[:1].upper()}{text[1:]}. " if reason in assessment.asked else ""
            return Ask(assessment, terms, cell, reason, rule_text + question(assessment, terms, facts), tries)
        case _:
            return Deny(_problem(assessment, facts, cell, reason), cell, reason, *_lifting(assessment))


def permit_conversion(permit: Permit, action: ConvertDocument) -> Permit:
    """Return the permit to convert what the action of `permit` read. Raises ValueError as `conversion_terms` does.

    INVARIANT: the rights of the conversion are within those of `permit`, apart from this program's own files.
    """
    return Permit(action, conversion_terms(permit.terms, action), _MINT)


def preview_of(verdict: Allow | Ask) -> Allow:
    """Return the verdict that lets a command run for a preview. The caller runs it on a layer of the workspace, and no
    change reaches the workspace before a user has accepted it.

    INVARIANT: the rights are within those of `verdict`. Nothing that the command does lasts outside of its layer: it
    reaches no host, gets no credential, and writes neither to a path outside the workspace nor to the kept cache.
    """
    if isinstance(verdict, Ask):
        action, terms, sourced = verdict.assessment.action, verdict.terms, verdict.assessment.sourced
    else:
        action, terms, sourced = verdict.permit.action, verdict.permit.terms, verdict.permit.sourced
    read = (*terms.read, *terms.repository)
    terms = replace(terms, hosts=(), credentials=(), read=read, write=(), cache="", repository=())
    text = "it runs for a preview: without network, and its changes are shown before they reach the workspace"
    reason = Reason(verdict.cell.tier, text, Check.PREVIEW)
    if isinstance(verdict, Ask) and verdict.tries:
        text = f"{_reason_text(verdict.reason)}; it runs without network, and its changes wait for an answer"
        reason = Reason(verdict.cell.tier, text, Check.TRIED)
    return Allow(Permit(action, terms, _MINT, sourced), verdict.cell, reason)


def deciding_cell(assessment: Assessment, mode: Mode, matrix: Matrix = MATRIX) -> Cell:
    """Return the cell that decides in `mode`: the strictest one, and among equally strict ones that of the
    worst tier.
    """
    ruling, tier = max((_ruling(assessment, tier, mode, matrix), tier) for tier in assessment.tiers)
    return Cell(tier, mode, ruling)


def _ruling(assessment: Assessment, tier: Tier, mode: Mode, matrix: Matrix) -> Ruling:
    # accept-edits trusts the file tools and plain file commands; any other write is a question.
    if tier is Tier.WRITE and mode is Mode.ACCEPT_EDITS and not assessment.plain_edit:
        return Ruling.ASK
    return matrix[tier][mode]


def open_reasons(assessment: Assessment, mode: Mode, matrix: Matrix = MATRIX) -> tuple[Reason, ...]:
    """Return the reasons that keep the matrix from allowing the action in `mode`."""
    return tuple(each for each in assessment.reasons if _ruling(assessment, each.tier, mode, matrix) > Ruling.ALLOW)


def starts_offline(assessment: Assessment, mode: Mode, matrix: Matrix = MATRIX) -> bool:
    """Return True if hosts that the action may not need are all that keeps `mode` from allowing it.

    INVARIANT: the mode allows code of the project, no rule of the user requires a question, and every host that is not
    open is deferrable, so that a command beside it gets no host and hides no other reason.
    """
    if assessment.asked or matrix[Tier.EXECUTE][mode] is not Ruling.ALLOW:
        return False
    action = assessment.action
    if not isinstance(action, RunScript | RunArgv) or (isinstance(action, StartProcess) and action.stays):
        return False  # no question follows the run of other actions
    asking = open_reasons(assessment, mode, matrix)
    uncovered = [each for each in asking if each not in assessment.covered]
    hosts = [each for each in asking if each.tier is Tier.NETWORK]
    return bool(uncovered) and all(each.deferrable for each in (*uncovered, *hosts))


def starts_without_network(verdict: Verdict) -> bool:
    """Return True if `verdict` allows an action to start without the hosts that it may need."""
    return isinstance(verdict, Allow) and verdict.reason.rule == Check.OFFLINE_START


def _deferred(assessment: Assessment) -> Reason:
    """Return the first reason about a host that the action may not need."""
    return next(each for each in assessment.reasons if each.deferrable and each not in assessment.covered)


def _without_network(terms: Terms, assessment: Assessment) -> Terms:
    """Return `terms` with no host but those that a person typed for this one action. The proxy reports a requested host
    and forwards nothing.
    """
    typed = sorted({each.target for each in assessment.typed if each.kind is EffectKind.CONNECTS})
    return replace(terms, hosts=tuple(typed) or (UNNAMED,))


def _by_rules(assessment: Assessment, cell: Cell, reason: Reason, matrix: Matrix) -> tuple[Ruling, Reason]:
    """Return the ruling of a cell after the users' rules, which first allow what the cell asks about or denies, then
    ask about what is allowed.

    INVARIANT: in mode `plan`, no rule allows an action; in other modes, only reasons that a rule covers are skipped.
    """
    ruling = cell.ruling
    if ruling is not Ruling.ALLOW and cell.mode is not Mode.PLAN and assessment.reasons:
        by = list(dict.fromkeys(assessment.covered.get(each) for each in open_reasons(assessment, cell.mode, matrix)))
        if None not in by and by[0] is not None:
            ruling, reason = Ruling.ALLOW, by[0]
    if assessment.asked and ruling is not Ruling.DENY:
        reason = assessment.asked[0]
        ruling = Ruling.DENY if cell.mode is Mode.DONT_ASK else Ruling.ASK
    return ruling, reason


def tries_first(assessment: Assessment, cell: Cell, matrix: Matrix = MATRIX) -> bool:
    """Return True if rules with the verdict `try` are all that requires the question, so that a command may run on a
    layer before the user is asked about its changes.

    INVARIANT: everything that the mode asks about is covered by rules, and no rule asks without trying.
    """
    if not assessment.tried or any(each not in assessment.tried for each in assessment.asked):
        return False
    return cell.ruling is Ruling.ALLOW or all(
        each in assessment.covered for each in open_reasons(assessment, cell.mode, matrix)
    )


def _reason_text(reason: Reason) -> str:
    """Return the text of `reason` on one line of printable characters. The text may contain a word of the script
    unchanged.
    """
    return plain(reason.text, _LONGEST)


def _reason(assessment: Assessment, tier: Tier) -> Reason:
    for reason in assessment.reasons:
        if reason.tier is tier:
            return reason
    return Reason(tier, "nothing is known about this action", Check.NO_REASON)


def _floor_problem(assessment: Assessment, facts: Facts, tier: Tier, reason: Reason, profile: Profile) -> Problem:
    what = f"{named(assessment.action, facts)} was refused"
    why, fix = _reason_text(reason), _YOURSELF
    if tier is not Tier.DENIED:
        from policy.describe.summary import secrets_read

        why = secrets_read(assessment, facts) or why
    elif not any(rule.ref == reason.rule for rule in profile.permissions):
        fix = f"use another command, or remove the pattern from `[deny] commands` in your configuration, or {fix}"
    elif reason.rule.kind is RuleKind.GRANT:
        fix = f"do it another way, or {fix}; `agent grants revoke {reason.rule.id}` removes the refusal"
        return Problem(what, why, fix)
    elif any(rule.ref == reason.rule and rule.layer is Layer.HOOK for rule in profile.permissions):
        fix = f"do it another way, or ask the user about the hook {near(str(reason.rule), facts)}"
    else:
        fix = f"do it another way, or change the rule at {near(str(reason.rule), facts)}, or {fix}"
    return Problem(what, f"{why}; no mode allows that", fix)


def _problem(assessment: Assessment, facts: Facts, cell: Cell, reason: Reason) -> Problem:
    """Return the problem of a refusal that another mode, or a person at the terminal, could lift."""
    if reason in assessment.asked:
        here = "mode `dont-ask` never asks" if cell.mode is Mode.DONT_ASK else "there is no user to ask"
        fix = "a user at a terminal is asked first; without a terminal, do it another way or leave it to the user"
        return Problem(f"{named(assessment.action, facts)} was refused", f"{_reason_text(reason)}; {here}", fix)
    from policy.describe.summary import summarize

    asks = cell.ruling is Ruling.ASK
    because = "needs an approval, and there is no user to give one" if asks else "is not allowed"
    why = f"it {summarize(assessment, facts)}; in mode `{cell.mode.value}` tier `{cell.tier.label}` {because}"
    return Problem(f"{named(assessment.action, facts)} was refused", why, _fix(assessment, cell))


def _fix(assessment: Assessment, cell: Cell) -> str:
    """Return the fix for a refusal: for the person who can start the program differently, or for the model, which
    cannot.
    """
    allowed, asking = _lifting(assessment)
    ways = []
    if allowed:
        ways.append(f"the user who starts the agent can allow it with `--mode {allowed.value}`")
    if cell.ruling is Ruling.ASK:
        ways.append("a user at a terminal is asked first")
    elif asking:
        ways.append(f"with `--mode {asking.value}` a user at a terminal is asked first")
    if cell.tier is Tier.NETWORK and cell.mode is not Mode.PLAN:
        way = "the user can allow a host for one command (`agent exec --host HOST`) or by a rule with `host`"
        ways.append(way)
    ways.append("otherwise do it another way or leave it to the user")
    return "; ".join(ways)


def _lifting(assessment: Assessment) -> tuple[Mode | None, Mode | None]:
    """Return the first mode that allows the action and the first mode that asks, without the mode `dangerously`.

    A rule of the user that requires a question holds in every mode.
    """
    rulings = {mode: deciding_cell(assessment, mode).ruling for mode in Mode if mode is not Mode.DANGEROUSLY}
    asked = [
        mode for mode, ruling in rulings.items() if ruling is Ruling.ASK or (ruling < Ruling.ASK and assessment.asked)
    ]
    allowed = [
        mode for mode, ruling in rulings.items()
        if (ruling is Ruling.ALLOW and not assessment.asked) or starts_offline(assessment, mode)
    ]  # fmt: skip
    return next(iter(allowed), None), next((mode for mode in asked if mode is not Mode.DONT_ASK), None)
