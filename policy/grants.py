"""A person's answer to a question: the yes that mints a Permit, and the no that the model is told about."""

from policy.phrases import named
from policy.tier import Tier
from policy.verdict import _MINT, Allow, Ask, Deny, Permit, Problem


def approve(ask: Ask) -> Allow:
    """The yes of one time: exactly the terms that the question named.

    No yes lifts a floor: an Ask about a secret or denied tier cannot come from `decide`, and raises ValueError here.
    """
    worst = ask.assessment.tiers[0]
    if worst >= Tier.SECRET or ask.cell.tier >= Tier.SECRET:
        raise ValueError(f"no yes allows tier {worst.label}")
    return Allow(Permit(ask.assessment.action, ask.terms, _MINT), ask.cell, ask.reason)


def refuse(ask: Ask, feedback: str | None) -> Deny:
    """The no of a person. `feedback` is what they said, passed on word for word."""
    said = (feedback or "").strip()
    what = f"{named(ask.assessment.action, ask.terms)} was refused"
    why = f"the person at the terminal said no: {said}" if said else "the person at the terminal said no"
    fix = (
        "do what they said instead"
        if said
        else "do it another way, or say what it is for and ask what they would accept"
    )
    return Deny(Problem(what, why, fix), ask.cell, ask.reason)
