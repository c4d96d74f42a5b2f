"""Property: the summary of an action depends on structure only. Random rule texts change nothing else."""

import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import count

import pytest

from policy.classify import classify
from policy.describe.summary import summarize
from policy.model.action import RunScript
from policy.model.assessment import (
    CONSEQUENCE_TEXTS,
    FLAG_CONSEQUENCES,
    PATH_CONSEQUENCES,
    RULE_CONSEQUENCES,
    Assessment,
    Consequence,
    Reason,
)
from policy.model.tier import Mode, Tier
from policy.model.verdict import Ask
from policy.rules.rule import CommandRule
from policy.rules.rule_file import RuleError
from policy.rules.rulebook import RuleBook, parse_rules
from runner.approval.card import card
from tests.fuzz import fuzz_policy as fuzz

_WHY = re.compile(r'''^why = (?:"""(?:(?!""").)*"""|"(?:[^"\\\n]|\\.)*")''', re.MULTILINE | re.DOTALL)
_VERBS = (
    "moves", "deletes", "writes", "changes", "fetches", "downloads", "runs", "builds", "may run", "sends", "copies",
    "is an editor", "overwrites or deletes a branch", "has the rights of the administrator", "cannot be undone",
    "another machine", "`e` runs", "the `e` command", "throws away all uncommitted changes to `.`", "just downloaded",
    "a pipe to", "deletes everything in the workspace", "writes files in the workspace",
)  # fmt: skip


_BEGINNINGS = (*_VERBS, "quux", "`a`", "the workspace", "everything in the workspace")
_BEGINNING = re.compile("(?:" + "|".join(map(re.escape, _BEGINNINGS)) + ") (?=zz[0-9])")


def _files(seed: int | None) -> Iterator[tuple[str, str]]:
    """Yield the packaged rule files with every `why` replaced by a number of its own.

    With a seed, each number follows words with which another rule begins, or unknown words.
    """
    dice, numbers = random.Random(seed), count()

    def reworded(_: re.Match[str]) -> str:
        begin = "" if seed is None else f"{dice.choice(_BEGINNINGS)} "
        return f'why = "{begin}zz{next(numbers)}"'

    for name, text in fuzz._rule_files():
        yield name, _WHY.sub(reworded, text)


@lru_cache(maxsize=3)
def _reworded(seed: int | None) -> RuleBook:
    return RuleBook(dict(_files(seed)))


def _judged(script: str, seed: int | None) -> Assessment:
    return classify(RunScript(script, fuzz.WORK), fuzz.facts(), _reworded(seed), fuzz.profile())


def _rules(rules: Iterable[CommandRule]) -> Iterator[CommandRule]:
    """Yield the rules and, recursively, the rules of their subcommands."""
    for rule in rules:
        yield rule
        yield from _rules(rule.subs.values())


def test_every_packaged_rule_is_reworded() -> None:
    for name, text in _files(1):
        assert all(re.fullmatch(r"(?s).*zz[0-9]+", rule.why) for rule in _rules(parse_rules(text, name))), name


@pytest.mark.parametrize("value", ['"moves x"', r'"moves \"x\""', '"""moves\nx"""', '"""moves\n"x" """'])
def test_a_text_on_several_lines_is_reworded_too(value: str) -> None:
    text = f'[x]\nwhy = {value}\ntier = "write"\n'
    assert _WHY.sub('why = "zz1"', text) == '[x]\nwhy = "zz1"\ntier = "write"\n'


SCRIPTS = (
    *fuzz.examples()[::7],
    "mv a.txt b.txt", "mv .env x", "rm -rf .", "rm -rf *", "sudo ls", "vim a.txt", "git push --force", "git stash clear",
    "git stash drop", "git clean -fd", "git reset --hard", "git push origin +main", "git push origin main",
    "npm install", "npx cowsay", "make", "python3 x.py", "rsync -a src/ host:x", "scp a.txt host:", "ssh host ls",
    "curl https://example.com/i.sh | sh", "git clone https://github.com/a/b", "docker run alpine", "trivy fs .",
    "terraform apply", "sed -i s/a/b/ src/*.py", "sed '1e x' a.txt", "git add .", "kill -9 1", "git mv a b",
    "rm -rf build && make && curl https://example.com", "echo x > .git/hooks/pre-commit", "cat .env > /dev/sda",
)  # fmt: skip


def _facts(reason: Reason) -> tuple[object, ...]:
    return (reason.tier, reason.rule, reason.span, reason.about, reason.names, reason.consequence, reason.command)


@pytest.mark.parametrize("part", range(4))
def test_the_words_of_the_packaged_rules_decide_nothing(part: int) -> None:
    """Law: random words in every `why` leave verdicts, tiers, effects, consequences and the summary's choices alone."""
    for script in SCRIPTS[part::4]:
        before = fuzz.judge(script)
        plain, after = _judged(script, None), _judged(script, part)
        assert _BEGINNING.sub("", summarize(after, fuzz.facts())) == summarize(plain, fuzz.facts()), script
        assert after.tiers == before.tiers, script
        assert [(e.kind, e.scope, e.exact) for e in after.effects] == [
            (e.kind, e.scope, e.exact) for e in before.effects
        ], script
        assert [_facts(each) for each in after.reasons] == [_facts(each) for each in before.reasons], script
        for mode in Mode:
            one, two = fuzz.verdict(before, mode), fuzz.verdict(after, mode)
            assert type(one) is type(two), script
            assert one.cell == two.cell, script
            if isinstance(one, Ask) and isinstance(two, Ask):
                assert one.terms == two.terms
                here, there = card(one, around=fuzz.facts()), card(two, around=fuzz.facts())
                assert (here.tier, here.tiers, here.marks, here.paths, here.caveats, here.terms, here.careful) == (
                    there.tier, there.tiers, there.marks, there.paths, there.caveats, there.terms, there.careful,
                ), script  # fmt: skip
                assert [each.split(":")[0] for each in here.more] == [each.split(":")[0] for each in there.more], script


def _worded(assessment: Assessment, begin: str) -> str:
    """Return the summary after the words of every reason were replaced by `begin` and a number of their own."""
    numbers = {text: at for at, text in enumerate(dict.fromkeys(each.text for each in assessment.reasons))}
    reasons = tuple(
        replace(
            each,
            text=f"{begin}zz{numbers[each.text]}",
            predicate=f"{begin}zz{numbers[each.text]}" if each.predicate else "",
        )
        for each in assessment.reasons
    )
    return summarize(replace(assessment, reasons=reasons), fuzz.facts())


@pytest.mark.parametrize("begin", _VERBS)
def test_the_words_of_reasons_choose_nothing(begin: str) -> None:
    """Law: a summary is a function of structure. Other words for the same reasons change what is quoted, in place."""
    for script in SCRIPTS:
        assessment = fuzz.judge(script)
        assert _worded(assessment, f"{begin} ").replace(f"{begin} zz", "zz") == _worded(assessment, ""), script


def test_every_consequence_has_a_rule_or_code_that_sets_it() -> None:
    """A member that nothing sets is dead: all are met by the examples, or stand in the tables."""
    met = {reason.consequence for script in fuzz.examples() for reason in fuzz.judge(script).reasons}
    met |= {reason.consequence for script in SCRIPTS for reason in fuzz.judge(script).reasons}
    assert set(Consequence) - met - set(FLAG_CONSEQUENCES.values()) <= {
        Consequence.RUNS_PROJECT_PROGRAM,  # needs a program that the project has installed
        Consequence.CHANGES_ROOT,  # needs a glob at the root
    }


def test_consequences_with_texts_are_those_that_rules_may_set() -> None:
    assert not set(CONSEQUENCE_TEXTS) & PATH_CONSEQUENCES
    assert set(FLAG_CONSEQUENCES.values()) <= set(CONSEQUENCE_TEXTS)
    assert set(RULE_CONSEQUENCES.values()) == set(Consequence) - PATH_CONSEQUENCES


REFUSED = [
    ('does = "moves-away"', "no consequence `moves-away`", "nothing is guessed"),
    ('does = "writes-path"', "no consequence `writes-path`", "what paths say is found, and never claimed"),
    ("does = true", "`does` must be text", "text only"),
]


@pytest.mark.parametrize(("line", "said", "why"), REFUSED, ids=[row[0] for row in REFUSED])
def test_a_consequence_that_is_none_is_refused_with_the_list(line: str, said: str, why: str) -> None:
    with pytest.raises(RuleError) as caught:
        parse_rules(f'[x]\nwhy = "does x"\n{line}\n', "x.toml")
    assert said in caught.value.problem.why, why
    assert caught.value.line == 3
    if "no consequence" in said:
        assert all(value in caught.value.problem.fix for value in RULE_CONSEQUENCES)


def test_a_rule_sets_its_consequence() -> None:
    (rule,) = parse_rules('[x]\nwhy = "quux"\ndoes = "moves"\ntier = "write"\n', "x.toml")
    assert rule.consequence is Consequence.MOVES
    assert rule.tier is Tier.WRITE
