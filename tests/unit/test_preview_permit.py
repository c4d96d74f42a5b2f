"""The permit of a preview: the rights that it keeps, and those that it never has."""

from dataclasses import replace

import pytest

from policy.decide import preview_of
from policy.model.action import RunScript
from policy.model.assessment import Check
from policy.model.tier import Mode
from policy.model.verdict import Allow, Ask, Terms
from tests.support.grant_questions import evaluation_context
from tests.support.permission_machine import machine

HERE = machine().workspace
WIDE = {
    "hosts": ("registry.example.org",), "credentials": ("token",), "write": ("/srv/data",), "cache": "/home/u/cache",
    "repository": ("/srv/main/.git", "/srv/main/.git/worktrees/a"),
}  # fmt: skip


def widened(verdict: Allow | Ask) -> Allow | Ask:
    """Return the verdict with every right that could last beyond a preview."""
    if isinstance(verdict, Ask):
        return replace(verdict, terms=replace(verdict.terms, **WIDE))
    return replace(verdict, permit=replace(verdict.permit, terms=replace(verdict.permit.terms, **WIDE)))


def terms_of(verdict: Allow | Ask) -> Terms:
    return verdict.terms if isinstance(verdict, Ask) else verdict.permit.terms


@pytest.mark.parametrize(
    ("script", "mode"),
    [
        ("make", Mode.DEFAULT),
        ("rm -rf src", Mode.DEFAULT),
        ("npm install", Mode.TRUST_PROJECT),
        ("touch a", Mode.TRUST_PROJECT),
        ("ls", Mode.DEFAULT),
    ],
)
def test_nothing_that_lasts_is_granted(script: str, mode: Mode) -> None:
    found = evaluation_context(mode, "", machine()).evaluate(RunScript(script, HERE))[1]
    assert isinstance(found, Allow | Ask), script
    verdict = widened(found)
    had, shown = terms_of(verdict), preview_of(verdict)
    terms = shown.permit.terms
    assert (terms.hosts, terms.credentials, terms.writable, terms.cache) == ((), (), (), "")
    assert set(terms.read) == {*had.read, *had.repository}
    assert (terms.rights, terms.hidden, terms.locked, terms.limits) == (had.rights, had.hidden, had.locked, had.limits)
    assert shown.reason.rule == Check.PREVIEW
    assert shown.cell == verdict.cell
    assert shown.permit.action == RunScript(script, HERE)
