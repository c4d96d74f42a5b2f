"""The gate, asked about one planned call with the machine as it is now."""

from policy.hearing import EvaluationContext
from runner.audit.facts import Noting
from runner.calls import Judgement, Planned
from runner.remembered import recalled
from runner.world import World


def judged(planned: Planned, world: World) -> Judgement:
    """What the policy says of it, with what a person answered before. Emits and records nothing."""
    noted = Noting(world.look(), world.profile)  # the one look at the disk, and what of it was asked for
    context = EvaluationContext(
        noted.facts,
        world.rules,
        world.profile,
        world.mode,
        world.environment,
        unattended=world.unattended,
        backend=world.sandbox.name,
    )
    assessment, verdict = context.evaluate(planned.action)
    found = recalled(context, assessment, verdict, world.grants)
    noted.parts()  # as it is now: a question may stand for minutes
    return Judgement(planned, found.assessment, found.verdict, found, noted)
