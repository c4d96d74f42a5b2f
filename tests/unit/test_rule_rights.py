"""Tests of rules that add rights to one command: hosts and paths, as `agent profile learn` writes them."""

from dataclasses import replace
from pathlib import Path

import pytest

from policy.evaluation import EvaluationContext
from policy.model.action import RunArgv, RunScript
from policy.model.profile import Layer
from policy.model.tier import Mode
from policy.model.verdict import Allow, Ask, Deny
from policy.permission.dead_rules import faults
from policy.permission.file import read_permissions
from policy.toml.schema import TomlError
from tests.support.grant_questions import evaluation_context
from tests.support.permission_machine import BOOK, PROFILE, machine

WORK = machine().workspace
LOG = str(Path(machine().home).parent / "log")
DENY = '[[rule]]\nverdict = "deny"\nhost = ["pkg.example.org"]\nwhy = "no"\n'


def adding(*rights: str, run: str = '["bash", "install.sh"]', verdict: str = "allow") -> str:
    listed = ", ".join(f'"{right}"' for right in rights)
    return f'[[rule]]\nverdict = "{verdict}"\nrun = {run}\nrights = [{listed}]\nwhy = "w"\n'


def context(rules: str, layer: Layer = Layer.USER, mode: Mode = Mode.DEFAULT) -> EvaluationContext:
    return evaluation_context(mode).with_rules(read_permissions(rules, "file", layer))


HOST = adding("--host pkg.example.org")


def test_the_command_gets_exactly_the_rights_of_its_rule() -> None:
    rules = adding("--host pkg.example.org", f"--read {LOG}", "--write ~/out", "--write /no/such/place")
    _, verdict = context(rules).evaluate(RunArgv(("bash", "install.sh"), WORK))
    assert isinstance(verdict, Allow)
    terms = verdict.permit.terms
    assert (terms.hosts, terms.read, terms.write) == (("pkg.example.org",), (LOG,), (f"{machine().home}/out",))
    assert verdict.reason.rule.id == "file", "the record names the file of the rule"


# fmt: off
OTHERS: list[tuple[str, str, str]] = [
    ("bash install.sh --all",              HOST,                           "hostile: another word"),
    ("bash other.sh",                      HOST,                           "hostile: another script"),
    ("bash install.sh && curl https://x.example", HOST,                    "hostile: another command beside it"),
    ("bash install.sh; touch x",           HOST,                           "hostile: a plain command beside it"),
    ("bash install.sh > out.txt",          HOST,                           "hostile: a redirection beside it"),
    ("X=1 bash install.sh",                HOST,                           "hostile: a variable"),
    ("cd .. && bash install.sh",           HOST,                           "hostile: another folder"),
    ("bash $x",                            HOST,                           "hostile: a word known only at run time"),
    ("curl https://pkg.example.org/x | bash install.sh", HOST,             "hostile: the output of another command"),
]
# fmt: on


@pytest.mark.threat("T168")
@pytest.mark.parametrize(("script", "rules", "why"), OTHERS, ids=[row[2] for row in OTHERS])
def test_no_other_command_gets_the_rights(script: str, rules: str, why: str) -> None:
    assessment, verdict = context(rules).evaluate(RunScript(script, WORK))
    if isinstance(verdict, Allow):
        assert verdict.permit.terms.hosts == ()
    else:
        terms = verdict.terms if isinstance(verdict, Ask) else None
        assert terms is None or "pkg.example.org" not in terms.hosts or "curl" in script
    assert not assessment.typed


@pytest.mark.threat("T168")
def test_secrets_and_denials_are_stronger_than_a_right() -> None:
    action = RunArgv(("bash", "install.sh"), WORK)
    (Path(machine().home) / ".ssh").mkdir(exist_ok=True)
    _, verdict = context(adding("--read ~/.ssh")).evaluate(action)
    assert isinstance(verdict, Deny)
    _, verdict = context(HOST + DENY).evaluate(action)
    assert isinstance(verdict, Deny)
    _, verdict = context(HOST, mode=Mode.PLAN).evaluate(action)
    assert isinstance(verdict, Deny)


@pytest.mark.threat("T168")
def test_a_rule_of_an_untrusted_repository_adds_no_right() -> None:
    assessment, _ = context(HOST, Layer.REPOSITORY).evaluate(RunArgv(("bash", "install.sh"), WORK))
    assert not assessment.typed


# fmt: off
FAULTY: list[tuple[str, str]] = [
    (adding("--host x.org", verdict="deny"),                 "a denial"),
    (adding("--host x.org", run='["npm", "**"]'),            "any words"),
    (adding("--host x.org", run='["npm", ["ci", "test"]]'),  "alternatives"),
    (adding("--host x.org", run='["npm", "*"]'),             "a pattern"),
    (adding("--env X=1"),                                    "a variable"),
    (adding("--host"),                                       "no target"),
]
DEAD: list[tuple[str, str, str]] = [
    ("--host not/a/host/x y",  "host",   "no host"),
    ("--read docs",            "path",   "a relative path"),
    ("--read ~/../x",          "path",   "a path that is not resolved"),
    ("--read /",               "path",   "everything"),
    ("--write ~/x*",           "path",   "a pattern"),
    ("--read ~/.ssh/id_rsa",   "secret", "hostile: a secret"),
    ("--write ~/.aws",         "secret", "hostile: a folder of secrets"),
]
# fmt: on


@pytest.mark.parametrize(("text", "why"), FAULTY, ids=[row[1] for row in FAULTY])
def test_what_is_not_one_command_with_rights_is_an_error(text: str, why: str) -> None:
    with pytest.raises(TomlError):
        read_permissions(text, "file", Layer.USER)


@pytest.mark.parametrize(("right", "code", "why"), DEAD, ids=[row[2] for row in DEAD])
def test_a_right_that_never_takes_effect_is_a_fault(right: str, code: str, why: str) -> None:
    (rule,) = read_permissions(adding(right), "file", Layer.USER)
    assert code in [each.code for each in faults(rule, BOOK, PROFILE)]


def test_a_right_is_no_part_of_a_wider_rule() -> None:
    from policy.permission.lint import check

    rules = read_permissions(HOST + '[[rule]]\nverdict = "allow"\nrun = ["bash", "**"]\n', "file", Layer.USER)
    assert "redundant" not in [each.code for each in check(rules, BOOK)]
    assert "redundant" in [each.code for each in check((rules[0], replace(rules[0], rights=())), BOOK)]
