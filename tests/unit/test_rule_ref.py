"""Tests of references to rules: their text form, the parser, the names of checks, and the names of earlier versions."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.model.action import ACTIONS, ReadFile
from policy.model.assessment import Check, RuleKind, RuleRef
from runner.audit.decode import action_of
from runner.audit.legacy import current, current_rule, rule_beginnings
from runner.audit.records import action_body
from sandbox.backend import file_request

# reference, text form, why
FORMS = [
    (RuleRef(RuleKind.BUILTIN, "decision/no-reason"),         "builtin:decision/no-reason",  "a check in code"),
    (RuleRef(RuleKind.COMMAND, "git", 508),                   "command:git:508",             "a table of a rule file"),
    (RuleRef(RuleKind.USER, "/home/u/my:config.toml", 12),    "/home/u/my:config.toml:12",   "a file is named by its path"),
    (RuleRef(RuleKind.USER, "[deny] commands"),               "[deny] commands",             "a list of the settings has no line"),
    (RuleRef(RuleKind.GRANT, "g12ab34cd"),                    "grant:g12ab34cd",             "a remembered answer"),
    (RuleRef(RuleKind.FLAG, "--read"),                        "--read",                      "a flag"),
    (RuleRef(RuleKind.USER, ""),                              "",                            "a record without a rule"),
]  # fmt: skip


@pytest.mark.parametrize(("ref", "text", "why"), FORMS, ids=[row[2] for row in FORMS])
def test_a_reference_has_one_text_form_and_one_parser(ref: RuleRef, text: str, why: str) -> None:
    assert str(ref) == text, why
    assert RuleRef.parse(text) == ref, why


@pytest.mark.parametrize("name", ["builtin:decision/no-reason", "command:git", "grant:g1", "--read"])
def test_a_file_of_settings_never_reads_like_a_rule_of_another_kind(name: str) -> None:
    assert RuleRef.parse(str(RuleRef(RuleKind.USER, name, 3))).kind is RuleKind.USER


@given(st.text())
def test_parsing_is_total_and_keeps_the_text(text: str) -> None:
    found = RuleRef.parse(text)
    assert str(found) in (text, f"./{text}")


def test_every_check_has_a_unique_readable_name_that_names_no_file() -> None:
    checks = {name: ref for name, ref in vars(Check).items() if isinstance(ref, RuleRef)}
    assert len(checks) == len({ref.id for ref in checks.values()}) > 20
    for name, ref in checks.items():
        assert (ref.kind, ref.line) == (RuleKind.BUILTIN, 0)
        assert re.fullmatch(r"[a-z-]+/[a-z-]+", ref.id), name


# as records of earlier versions have it, as it is read today, why
OLD = [
    ("policy/commands/git.toml:508", "command:git:508",        "a rule file"),
    ("policy/walk.py",               "builtin:shell-syntax",   "the old name tells the area of the check only"),
    ("policy/classify.py",           "builtin:classification", "another area"),
    ("/home/u/config.toml:3",        "/home/u/config.toml:3",  "rules of settings keep their names"),
    ("grant:g12ab34cd",              "grant:g12ab34cd",        "so do grants"),
    ("command:git:508",              "command:git:508",        "today's names stay"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "why"), OLD, ids=[row[2] for row in OLD])
def test_old_references_are_read_as_today_s(old: str, new: str, why: str) -> None:
    reason = {"rule": old, "text": "because"}
    body: dict[str, object] = {"reasons": [dict(reason)], "rules": [dict(reason)], "because": dict(reason)}
    assert current_rule(old) == new, why
    found = {"rule": new, "text": "because"}
    assert current(body) == {"reasons": [found], "rules": [found], "because": found}, why


# what is asked for, what a record holds, whether it is found, why
FOUND = [
    ("policy/commands/git.toml",     "command:git:508",                        True,  "an old name finds new records"),
    ("policy/commands/git.toml:508", "command:git:508",                        True,  "with its line, too"),
    ("policy/commands/git.toml",     "command:github:1",                       False, "another file"),
    ("command:git",                  "policy/commands/git.toml:508",           True,  "a new name finds old records"),
    ("command:git:508",              "policy/commands/git.toml:508",           True,  "with its line, too"),
    ("command:git:",                 "policy/commands/github.toml:508",        False, "another file"),
    ("policy/",                      "command:git:508",                        True,  "a beginning in the old spelling"),
    ("policy/",                      "builtin:shell-syntax/redirection",       True,  "of checks as well"),
    ("policy/walk.py",               "builtin:shell-syntax/redirection",       True,  "all checks that had this name"),
    ("builtin:shell-syntax",         "policy/walk.py",                         True,  "an area finds its old records"),
    ("builtin:",                     "policy/expand.py",                       True,  "all areas"),
    ("builtin:rights",               "policy/walk.py",                         False, "another area"),
    ("grant:g1",                     "grant:g12ab34cd",                        True,  "grants keep their names"),
]  # fmt: skip


@pytest.mark.parametrize(("wanted", "held", "found", "why"), FOUND, ids=[f"{row[3]}: {row[0]}" for row in FOUND])
def test_a_filter_finds_both_spellings(wanted: str, held: str, found: bool, why: str) -> None:
    assert held.startswith(rule_beginnings((wanted,))) is found, why


def test_an_action_s_kind_is_the_name_that_records_have_whatever_its_class_is_called() -> None:
    assert list(ACTIONS) == [
        "RunScript", "StartProcess", "RunArgv", "StartServer", "RunHook", "StartLanguageServer", "ReadFile", "WriteFile", "EditFile", "EditNotebook", "ListFolder", "GlobFiles",
        "GrepFiles", "ReadProcess", "WriteProcess", "SignalProcess",
        "CallServerTool", "ReadServerResource", "SpawnAgent", "ManageAgent", "ManageTasks", "FetchAddress", "SearchWeb",
        "SearchTools", "SignGit", "ConvertDocument", "ProposeNote", "SearchNotes", "LoadSkill", "AskUser", "QueryCode",
        "ScheduleJob",
    ]  # fmt: skip
    renamed = type("Renamed", (ReadFile,), {})("/w/a")
    assert action_body(renamed)["type"] == file_request(renamed)["op"] == "ReadFile"
    assert action_of({"action": action_body(renamed)}) == ReadFile("/w/a")
