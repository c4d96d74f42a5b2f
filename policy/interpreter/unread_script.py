"""Scripts that cannot be read: they are refused, and a credential store that they name in plain sight stays secret."""

import re

from policy.describe.phrases import secret_kind
from policy.interpreter.findings import Findings
from policy.interpreter.shell_state import State
from policy.interpreter.step_builder import StepBuilder
from policy.model.abstract_word import SourceSpan, literal
from policy.model.assessment import RuleRef, Scope
from policy.model.facts import Facts
from policy.model.tier import Tier
from policy.rules.rule import Role

MOST_SEARCHED = 16 * 1024  # characters of a script
_A_SEARCH = 100  # of the budget; and some for each character

_TOKENS = re.compile(r"[\s;|&<>()`'\"=,{}]+")
_HOME = re.compile(r"\A(?:~|\$HOME)/")


def refuse(
    findings: Findings, facts: Facts, script: str, why: str, state: State, rule: RuleRef, span: SourceSpan | None
) -> None:
    """Report a script that was not understood, for the reason `why`, and the secrets that it names in plain sight."""
    outer = findings.step
    findings.begin(StepBuilder(text=script[:MOST_SEARCHED], cwds=state.cwds))
    findings.unknown(why, rule, span)
    find_secrets(findings, facts, script, state, rule, span)
    findings.step = outer


def find_secrets(
    findings: Findings, facts: Facts, script: str, state: State, rule: RuleRef, span: SourceSpan | None
) -> None:
    """Report the secrets that a text names in plain sight. The language of the text may be any."""
    from policy.interpreter.glob_matches import braced  # only where a script is not understood

    classifier, home = findings.classifier, facts.home
    seen = script[:MOST_SEARCHED]
    for token in dict.fromkeys((*_TOKENS.split(seen), *braced(seen))):
        text = _HOME.sub(lambda _: f"{home}/", token)
        name = text.rpartition("/")[2]
        if name[:1] == "." and classifier.secret_name(name):
            findings.add_reason(Tier.SECRET, f"names {name}, {secret_kind(name)}", rule, span)
        if "/" not in text or "\0" in text:
            continue
        for cwd in state.cwds or ("/",):
            if classifier.budget.left < _A_SEARCH + 10 * len(text):  # without a look: as it is written
                if classifier.written_secret(text, cwd):
                    findings.add_reason(Tier.SECRET, f"names {text}, {secret_kind(text)}", rule, span)
                    return
                continue
            place = classifier.place(text, cwd)
            if place.scope is Scope.SECRET and not classifier.named_secret(place.path):
                findings.access_path(Role.READ, literal(text), (cwd,), rule, span)
