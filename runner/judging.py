"""The gate, asked about one planned call with the machine as it is now."""

from policy.classify import classify
from policy.decide import decide
from policy.hearing import Hearing
from runner.audit.facts import Noting
from runner.calls import Judgement, Planned
from runner.reach import within_reach
from runner.remembered import recalled
from runner.world import World


def judged(planned: Planned, world: World) -> Judgement:
    """What the policy says of it, with what a person answered before. Emits and records nothing."""
    noted = Noting(world.look(), world.profile)  # the one look at the disk, and what of it was asked for
    facts = noted.facts
    assessment = classify(planned.action, facts, world.rules, world.profile)
    verdict = decide(
        assessment, facts, world.profile, world.mode, unattended=world.unattended, environment=world.environment
    )
    verdict = within_reach(verdict, assessment, world.sandbox.name)
    hearing = Hearing(facts, world.rules, world.profile, world.mode, world.environment, unattended=world.unattended)
    found = recalled(hearing, assessment, verdict, world.grants)
    noted.parts()  # as it is now: a question may stand for minutes
    return Judgement(planned, found.assessment, found.verdict, found, noted)
