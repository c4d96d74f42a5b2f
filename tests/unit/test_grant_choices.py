"""Tests of the offers to remember an answer: the narrowest sensible ones, and none for some questions."""

import pytest

from policy.grants.offers import never
from policy.model.action import Action, ListFolder, ReadFile, RunArgv, WriteFile
from policy.model.tier import Mode
from policy.model.verdict import Allow, Ask
from tests.support.grant_questions import (
    TOP,
    action,
    approved_grants,
    evaluation_context,
    offered_choices,
    question,
    resolution,
)
from tests.support.permission_machine import machine

WORK = machine().workspace

# fmt: off
OFFERED: list[tuple[Action | str, tuple[str, ...], str]] = [
    ("npm test",                   ("exactly `npm test`", "`npm test` with any flags"), "a script of the project"),
    ("npm test --silent",          ("exactly `npm test --silent`", "`npm test` with any flags"), "its flags may differ the next time"),
    ("npm run build",              ("exactly `npm run build`", "`npm run build` with any flags", "`npm run *`"), "another script of the project"),
    ("npm test && npm run build",  ("exactly `npm test` and exactly `npm run build`",), "two commands, each by itself"),
    ("npm test > out.log",         ("changing out.log by a redirection and exactly `npm test`",), "what is between the commands counts, too"),
    ("cd sub && npm test",         ("exactly `npm test` in sub/", "`npm test` with any flags in sub/"), "the folder is a part of it"),
    ("curl https://api.example.com/x", ("exactly `curl https://api.example.com/x`", "`curl *`, connecting to api.example.com"), "no flags: they make a fetch a sending"),
    ("git commit -m x",            ("exactly `git commit -m x`", "`git commit -m *`"), "no flags: there is `--amend`"),
    ("touch docs/x",               ("exactly `touch docs/x`", "`touch *`, changing files in docs/"), "a folder of the workspace"),
    ("touch x",                    ("exactly `touch x`",),                     "all of the workspace is a mode, not a grant"),
    ("rm -rf docs",                ("exactly `rm -rf docs`",),                 "and no other folder"),
    ("cat @TOP/log/syslog",        ("exactly `cat @TOP/log/syslog`", "`cat *`, reading files in @TOP/log/"), "reading outside"),
    ("grep -r x @TOP/log",         ("exactly `grep -r x @TOP/log`",),          "the folder above holds the workspace"),
    ("echo x > ~/out/y",           ("changing @TOP/home/out/y by a redirection", "changing files in @TOP/home/out/ by a redirection"), "writing outside"),
    ("frobnicate a",               ("exactly `frobnicate a`",),                "nothing is known of it but its words"),
    ("./bin/tool x",               ("exactly `./bin/tool x`", "`./bin/tool x` with any flags"), "a program of the project"),
    ("python3 src/x.py",           ("exactly `python3 src/x.py`", "`python3 src/x.py` with any flags"), "no hole for the program that is run"),
    ("bash -c 'npm test'",         ("exactly `npm test`", "`npm test` with any flags"), "the innermost command counts"),
    (RunArgv(("npm", "test"), WORK), ("exactly `npm test`", "`npm test` with any flags"), "words without a shell"),
    (WriteFile(f"{WORK}/docs/n.md", "x"), ("changing docs/n.md by the file tools", "changing files in docs/ by the file tools"), "a file tool"),
    (ReadFile(f"{TOP}/log/syslog"), ("reading @TOP/log/syslog by the file tools", "reading files in @TOP/log/ by the file tools"), "reading with a tool"),
    (ListFolder(f"{TOP}/log"),     ("reading files in @TOP/log/ by the file tools",), "a folder with all that is in it"),

    ("gti status",                 (), "there is no such program, and one may be installed later"),
    ("sleep 1 && gti status",      (), "nor is it behind another command"),
    ("sudo ls",                    (), "dangerous: once at most"),
    ("rm -rf .",                   (), "dangerous: once at most"),
    ("npm test; rm -rf .",         (), "a part of it is dangerous"),
    ("npm test $x",                (), "a word that is known only at run time"),
    ("npm run $(cat x)",           (), "a word that a command prints"),
    ("npm run {a,$x}",             (), "a brace that hides a variable"),
    ("npm run do*",                (), "a word that depends on the files there"),
    ("npm test 'a*b'",             (), "a star would be a hole when a user reads it"),
    ("npm test 'a\tb'",            (), "what cannot be shown"),
    ("npm run " + "x" * 700,       (), "what nobody reads to the end"),
    ("X=1 npm test",               (), "a variable that it may obey"),
    ("PATH=. npm test",            (), "another npm"),
    ("npm test | sh",              (), "`sh` runs what it is given, and that differs"),
    ("sh < docs/a.md",             (), "the same from a file"),
    ("python3 - < src/x.py",       (), "the same by a dash"),
    ("bash /dev/stdin < src/x.py", (), "the same by a path"),
    ("if npm test; then",          (), "it cannot be read"),
    ("git push",                   (), "nobody knows whom it connects to"),
    ("a; b; c; d; e",              (), "more than a user agrees to at once"),
    ("ssh host uptime",          ("exactly `ssh host uptime`, connecting to host:22",), "no hole for what is run there"),
    ("ssh host 'ping host'",     ("exactly `ssh host 'ping host'`, connecting to host:22",), "also when it names the host"),
    ("curl https://api.example.com/x -X GET", ("exactly `curl https://api.example.com/x -X GET`",), "no hole for what is done there"),
    ("curl https://api.example.com/x -d a=1", ("exactly `curl https://api.example.com/x -d a=1`",), "nor for what is sent"),
    ("git push https://example.com/x main", ("exactly `git push https://example.com/x main`",), "nor for another branch"),
    ("ssh host",                 (), "what it does there is what it reads"),
    ("ssh host uptime",          ("exactly `ssh host uptime`, connecting to host:22",), "a hole would be any command there"),
    ("ssh -p 22 host 'df -h'",   ("exactly `ssh -p 22 host 'df -h'`, connecting to host:22",), "also in quotes"),
    ("git am x.patch",           ("exactly `git am x.patch`",), "and any patch"),
    ("ssh -p 2222 host",         (), "the number belongs to the flag, and is no command"),
    ("sqlite3 x.db",             (), "it runs what it reads, also programs (`.shell`)"),
    ("make -f -",                (), "a recipe that comes with the next action"),
    ("awk -f /dev/stdin docs/a.md", (), "a program that does"),
    ("sed -f - docs/a.md",       (), "the same"),
    ("ed docs/x",                (), "an editor that is told what to do"),
    ("patch -p1",                (), "changes that come with the next action, to any file"),
    ("git apply",                (), "the same"),
    ("git am --3way",            (), "and as commits"),
]
# fmt: on


@pytest.mark.parametrize(("given", "expected", "why"), OFFERED, ids=[why for _, _, why in OFFERED])
def test_what_is_offered(given: Action | str, expected: tuple[str, ...], why: str) -> None:
    _, verdict = evaluation_context().evaluate(action(given))
    assert isinstance(verdict, Ask)
    assert tuple(offered_choices(given)) == expected


# fmt: off
LABELS = [
    ("cd sub && npm test",                 "exactly `npm test` in sub/",                         "the folder"),
    ("cd docs && curl https://api.example.com/x", "exactly `curl https://api.example.com/x` in docs/", "the card shows the host"),
    ("cd sub && npm test && npm run build", "exactly these 2 commands in sub/",                   "the folder of both"),
    ("npm test && npm run build",          "exactly these 2 commands",                           "in the workspace"),
    ("npm test && cd sub && npm run build", "exactly `npm test` and exactly `npm run build` in sub/", "two folders"),
]
# fmt: on


@pytest.mark.parametrize(("given", "label", "why"), LABELS, ids=[why for _, _, why in LABELS])
def test_the_first_choice_in_short(given: str, label: str, why: str) -> None:
    first, *_ = offered_choices(given).values()
    assert first.label == label, why


@pytest.mark.parametrize("given", [row[0] for row in OFFERED if row[1]], ids=[row[2] for row in OFFERED if row[1]])
def test_every_choice_covers_its_question_and_shows_what_it_does_not_cover(given: Action | str) -> None:
    for words, choice in offered_choices(given).items():
        verdict = resolution(given, approved_grants(given, words)).verdict
        assert isinstance(verdict, Allow)
        assert verdict.permit.terms == question(given).terms
        many = 1 if isinstance(given, RunArgv | ListFolder) else 2
        assert len(choice.not_covered) >= (0 if isinstance(given, ListFolder) else many), choice


NOT_REMEMBERED = [
    (Mode.DEFAULT, 'ask run=["npm", "**"]', "a rule of the user wants to be asked each time"),
]


@pytest.mark.parametrize(("mode", "rules", "why"), NOT_REMEMBERED, ids=[why for *_, why in NOT_REMEMBERED])
def test_no_answer_takes_the_place_of_a_rule_that_asks(mode: Mode, rules: str, why: str) -> None:
    given = approved_grants("npm test", "exactly `npm test`")
    assert offered_choices("npm test", evaluation_context(mode, rules)) == {}
    assert isinstance(resolution("npm test", given, evaluation_context(mode, rules)).verdict, Ask)


# fmt: off
NEVER = [
    ("npm test",             "`npm test`",                       "the command"),
    ("cd sub && npm test",   "`npm test`",                       "in every folder: a no is broad"),
    ("echo x > docs/y",      "changing docs/y by a redirection", "the file"),
    ("ssh host",             "`ssh host`",                       "also where no yes may be remembered"),
    ("npm test; npm run x",  "",                                 "two commands: which of them was meant?"),
    ("npm test $x",          "",                                 "what is known only at run time"),
]
# fmt: on


@pytest.mark.parametrize(("given", "words", "why"), NEVER, ids=[why for *_, why in NEVER])
def test_what_a_remembered_no_is_about(given: str, words: str, why: str) -> None:
    found = never(evaluation_context(), question(given))
    assert (found.words if found else "") == words
