"""The answer to a command whose program does not exist, in place of a question that no approval could make work."""

from collections.abc import Iterator

from policy.evaluation import EvaluationContext
from policy.missing_program import missing_program
from policy.model.assessment import Assessment
from policy.model.tier import Tier
from policy.model.verdict import Problem
from runner.text.phrases import similar

_DECIDED = frozenset([Tier.READ_OUTSIDE, Tier.NETWORK, Tier.WRITE_OUTSIDE, Tier.DANGEROUS])
_FIX = "use another program, or ask the user to install it where the sandbox finds it"


def no_such_program(assessment: Assessment, context: EvaluationContext) -> Problem | None:
    """Return the problem if an action certainly starts with a program that does not exist, with the name it may mean.

    Return None for an action that is dangerous or reaches beyond the workspace (a host, a file outside): the record
    states what was tried, and a user decides.
    """
    if not _DECIDED.isdisjoint(assessment.tiers):
        return None
    name = missing_program(assessment.action, context)
    if name is None:
        return None
    if "/" in name:
        return Problem(f"no such program: `{name}`", "there is no such file", "list the folder with `ls`")
    meant = _meant(name, context)
    fix = f"did you mean `{meant}`?" if meant else _FIX
    why = "it is not on the PATH of the sandbox, and bash has no command of this name"
    return Problem(f"no such program: `{name}`", why, fix)


def _meant(name: str, context: EvaluationContext) -> str | None:
    """Return the installed program that `name` probably means: one with swapped letters, a known one, or any other."""
    installed = list(dict.fromkeys(_installed(context)))
    known = [each for each in installed if context.rules.find(each) is not None]
    swapped = [each for each in known if len(each) == len(name) and sorted(each) == sorted(name)]
    found = swapped or similar(name, known, cutoff=0.7) or similar(name, installed, cutoff=0.8)
    return found[0] if found else None


def _installed(context: EvaluationContext) -> Iterator[str]:
    for folder in context.facts.path:
        yield from (each for each in context.facts.names(folder) or () if each.isprintable())
