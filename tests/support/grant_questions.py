"""Questions about scripts on the machine of the rules' tests, with the choices to remember an answer."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from policy.evaluation import EvaluationContext
from policy.grants.grant import Grant
from policy.grants.offers import GrantChoice, choices, draft_grant
from policy.grants.resolve import GrantResolution, resolve
from policy.model.action import Action, RunScript
from policy.model.facts import Facts
from policy.model.tier import Mode
from policy.model.verdict import Ask
from tests.support.permission_machine import BOOK, PROFILE, machine, profile

TOP = str(Path(machine().home).parent)


def evaluation_context(mode: Mode = Mode.DEFAULT, rules: str = "", facts: Facts | None = None) -> EvaluationContext:
    return EvaluationContext(facts or machine(), BOOK, profile(rules) if rules else PROFILE, mode, ())


def action(given: Action | str) -> Action:
    if not isinstance(given, str):
        return given
    return RunScript(given.replace("@TOP", TOP).replace("@WORK", machine().workspace), machine().workspace)


def question(given: Action | str, at: EvaluationContext | None = None) -> Ask:
    _, verdict = (at or evaluation_context()).evaluate(action(given))
    assert isinstance(verdict, Ask), (given, verdict)
    return verdict


def offered_choices(given: Action | str, at: EvaluationContext | None = None) -> dict[str, GrantChoice]:
    """Return the choices of the question that `given` leads to, by their words."""
    return _usual_choices(given) if at is None else _choices(given, at)


@cache
def _usual_choices(given: Action | str) -> dict[str, GrantChoice]:
    return _choices(given, evaluation_context())


def _choices(given: Action | str, at: EvaluationContext) -> dict[str, GrantChoice]:
    return {each.words.replace(TOP, "@TOP"): each for each in choices(at, question(given, at))}


def approved_grants(given: Action | str, words: str, at: EvaluationContext | None = None) -> tuple[Grant, ...]:
    """Return the grants that a user gives by picking the choice `words`."""
    found = offered_choices(given, at)
    assert words in found, (given, tuple(found))
    return tuple(replace(draft_grant(what, f"g{index}"), who="me") for index, what in enumerate(found[words].whats))


def resolution(given: Action | str, grants: Sequence[Grant], at: EvaluationContext | None = None) -> GrantResolution:
    at = at or evaluation_context()
    assessment, verdict = at.evaluate(action(given))
    return resolve(at, assessment, verdict, grants)
