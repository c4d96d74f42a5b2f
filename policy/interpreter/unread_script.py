"""Scripts that cannot be read: they are refused, and the secrets that their text names literally are reported."""

import re

from policy.describe.phrases import secret_kind
from policy.interpreter.findings import Findings, StepBuilder
from policy.interpreter.shell_state import State
from policy.model.abstract_word import SourceSpan, literal
from policy.model.assessment import RuleRef, Scope
from policy.model.tier import Tier
from policy.rules.rule import Role

MOST_SEARCHED = 64 * 1024  # characters of a script
_PATH_COST = 100  # steps of the budget for one path, and 10 more for each character

# `@` stands before the name of a file in `curl -d @FILE`.
_TOKENS = re.compile(r"[\s;|&<>()`'\"=,{}@]+")
_HOME = re.compile(r"\A(?:~|\$HOME)/")
_BRACED = re.compile(r"[^\s;|&<>()`'\"{]{0,255}\{[^\s;|&<>()`'\"]{0,255}")
_CHOICE = re.compile(r"(?<!\$)\{([^{}]*,[^{}]*)\}")
MOST_BRACED = 200  # texts returned for one script


def refuse(findings: Findings, script: str, why: str, state: State, rule: RuleRef, span: SourceSpan | None) -> None:
    """Report a script that was not understood, for the reason `why`, and the secrets that it names literally."""
    with findings.add_step(StepBuilder(text=script[:MOST_SEARCHED], cwds=state.cwds)):
        findings.unknown(why, rule, span)
        find_secrets(findings, script, state, rule, span)


def find_secrets(findings: Findings, script: str, state: State, rule: RuleRef, span: SourceSpan | None) -> None:
    """Report the secrets that a text in any language names literally."""
    classifier, home = findings.classifier, findings.classifier.facts.home
    seen = script[:MOST_SEARCHED]
    for token in dict.fromkeys((*_TOKENS.split(seen), *expand_braces(seen))):
        text = _HOME.sub(lambda _: f"{home}/", token)
        name = text.rpartition("/")[2]
        if name[:1] == "." and classifier.secret_parts(name):
            findings.add_reason(Tier.SECRET, f"names {name}, {secret_kind(name)}", rule, span)
        if "/" not in text or "\0" in text:
            continue
        for cwd in state.cwds or ("/",):
            if classifier.budget.left < _PATH_COST + 10 * len(text):  # no look at the disk
                path = classifier.logical(text, cwd)
                if classifier.secret(path) and not classifier.named_secret(path):
                    findings.add_reason(Tier.SECRET, f"names {text}, {secret_kind(text)}", rule, span)
                    return
                continue
            place = classifier.place(text, cwd)
            if place.scope is Scope.SECRET and not classifier.named_secret(place.path):
                findings.access_path(Role.READ, literal(text), (cwd,), rule, span)


def expand_braces(script: str) -> tuple[str, ...]:
    """Return the results of brace expansion in a script (`~/.{ssh,aws}/$x`). Quotes and expansions are left as text."""
    found: dict[str, None] = {}
    for word in _BRACED.findall(script)[:MOST_BRACED] if "{" in script else ():
        texts = [word]
        while len(texts) <= MOST_BRACED and (group := next(filter(None, map(_CHOICE.search, texts)), None)):
            at, choices = texts.index(group.string), group[1].split(",")
            before, after = group.string[: group.start()], group.string[group.end() :]
            texts[at : at + 1] = [f"{before}{each}{after}" for each in choices]
        found |= dict.fromkeys(texts[:MOST_BRACED])
        if len(found) > MOST_BRACED:
            break
    return tuple(found)[:MOST_BRACED]
