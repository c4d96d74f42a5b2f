"""Tests of skills: the tools that a skill allows, the skills of the program, and which of equal names is used."""

from pathlib import Path

import pytest

from policy.model.action import (
    Action,
    CallServerTool,
    EditFile,
    GrepFiles,
    LoadSkill,
    ReadFile,
    RunScript,
    StartProcess,
    WriteFile,
)
from runner.agent.context_sources import read_context
from runner.config.agentfiles.skills import (
    BUILT_IN,
    Broken,
    Skill,
    allowed_names,
    built_in_skills,
    called_skill,
    invoked,
    skill_of,
)
from runner.engine.skill_use import allowed_tool, beyond_skills
from tests.support.permission_machine import assess, machine

WORK = machine().workspace


def bash(script: str) -> RunScript:
    return RunScript(script, WORK)


# fmt: off
ROWS: list[tuple[str, Action, bool, str]] = [
    ("Bash",               bash("git log; rm x"),                 True,  "any command"),
    ("bash",               bash("git log"),                       True,  "the own name of the tool"),
    ("Bash(git log:*)",    bash("git log -3"),                    True,  "a command with further words"),
    ("Bash(git log:*)",    StartProcess("git log -3", WORK),      True,  "in the background"),
    ("Bash(git log *)",    bash("git log -3"),                    True,  "a star"),
    ("Bash(npm test)",     bash("npm test"),                      True,  "an exact command"),
    ("Bash(npm test)",     bash("npm test -- x"),                 False, "further words"),
    ("Bash(git log:*)",    bash("git push"),                      False, "another command"),
    ("Bash(git log:*)",    bash("git logs"),                      False, "a longer word"),
    ("Bash(git log:*)",    bash("git log; rm x"),                 False, "a second command"),
    ("Bash(git log:*)",    bash("git log | sh"),                  False, "a pipe"),
    ("Bash(git log:*)",    bash("git log $(rm x)"),               False, "a substitution"),
    ("Bash(git log:*)",    bash("git log > x"),                   False, "a redirection that writes"),
    ("Bash(git log:*)",    bash("FOO=1 git log"),                 False, "a variable"),
    ("Bash(git log:*)",    bash("bash -c 'git log'"),             False, "another shell"),
    ("Bash(git log:*)",    bash("eval git log"),                  False, "eval"),
    ("Bash(git log:*)",    bash("git log \"$X\""),                False, "a word that is not known"),
    ("Bash(git log:*)",    bash("if git log; then"),              False, "a script that cannot be read"),
    ("Bash(git log:*)",    ReadFile(f"{WORK}/a"),                 False, "another tool"),
    ("Bash(git log",       bash("git log"),                       False, "an entry that is not closed"),
    ("Bash(git; rm:*)",    bash("git; rm x"),                     False, "an entry with syntax"),
    ("Bash(:*)",           bash("rm x"),                          False, "an entry without words"),
    ("Read",               ReadFile(f"{WORK}/a"),                 True,  "reading"),
    ("Read",               WriteFile(f"{WORK}/a", "x"),           False, "writing with reading alone"),
    ("Read(src/**)",       ReadFile(f"{WORK}/src/a/b"),           True,  "a path"),
    ("Read(src/**)",       ReadFile(f"{WORK}/b"),                 False, "another path"),
    ("Edit",               EditFile(f"{WORK}/a", "x", "y"),       True,  "editing"),
    ("Edit(*.md)",         EditFile(f"{WORK}/a/b.md", "x", "y"),  True,  "a name"),
    ("Edit(*.md)",         EditFile(f"{WORK}/a.py", "x", "y"),    False, "another name"),
    ("Grep",               GrepFiles("x", WORK),                  True,  "searching"),
    ("mcp__docs",          CallServerTool("docs", "find"),        True,  "a server"),
    ("mcp__docs__*",       CallServerTool("docs", "find"),        True,  "a pattern"),
    ("mcp__docs__find",    CallServerTool("docs", "drop"),        False, "another tool of the server"),
    ("*",                  bash("ls"),                            False, "a wildcard is no tool"),
    ("Computer",           bash("ls"),                            False, "a tool that does not exist"),
    ("",                   bash("ls"),                            False, "an empty entry"),
    ("Read",               LoadSkill("other"),                    True,  "a further skill"),
]
# fmt: on


@pytest.mark.threat("T216")
@pytest.mark.parametrize(("entry", "action", "allowed", "why"), ROWS, ids=[row[-1] for row in ROWS])
def test_the_tools_that_a_skill_allows(entry: str, action: Action, allowed: bool, why: str) -> None:
    skill = Skill("a", "b", "/s/a/SKILL.md", "yours", "c", allowed=(entry,))
    problem = beyond_skills((skill,), action, assess(action, ""), machine())
    assert (problem is None) is allowed, why
    # With a second skill, both must allow the action; without an entry, nothing is allowed.
    nothing = Skill("b", "b", "/s/b/SKILL.md", "yours", "c", allowed=())
    both = beyond_skills((skill, nothing), action, assess(action, ""), machine())
    assert (both is None) is isinstance(action, LoadSkill)


def test_an_entry_is_understood_or_allows_nothing() -> None:
    assert allowed_tool("Task(x)") is None
    assert allowed_tool("mcp__docs(x)") is None
    assert allowed_tool("WebFetch(domain:example.org)") is None


# fmt: off
TEXTS: list[tuple[str, tuple[str, ...] | None, str]] = [
    ("allowed-tools: Bash(git add:*), Read",        ("Bash(git add:*)", "Read"), "commas"),
    ("allowed-tools: Bash(git add:*) Read",         ("Bash(git add:*)", "Read"), "blanks"),
    ("allowed-tools: [Read, 'Bash(git:*)']",        ("Read", "Bash(git:*)"),     "a list in one line"),
    ("allowed-tools:\n  - Read\n  - Bash(git:*)",   ("Read", "Bash(git:*)"),     "a list"),
    ("allowed-tools: []",                           (),                          "an empty list"),
    ("allowed-tools:",                              (),                          "an empty text"),
    ("license: MIT",                                None,                        "no such setting"),
]
# fmt: on


@pytest.mark.threat("T216")
@pytest.mark.parametrize(("head", "allowed", "why"), TEXTS, ids=[row[-1] for row in TEXTS])
def test_the_forms_of_allowed_tools(head: str, allowed: tuple[str, ...] | None, why: str) -> None:
    found = skill_of("/s/a/SKILL.md", f"---\nname: a\ndescription: b\n{head}\n---\ntext\n".encode(), "yours")
    assert isinstance(found, Skill)
    assert found.allowed == allowed, why


@pytest.mark.threat("T216")
@pytest.mark.parametrize("head", ["allowed-tools: {Read: x}", "allowed-tools: [[Read]]", "allowed-tools: [{a: b}]"])
def test_another_form_makes_the_skill_unusable(head: str) -> None:
    found = skill_of("/s/a/SKILL.md", f"---\nname: a\ndescription: b\n{head}\n---\ntext\n".encode(), "yours")
    assert isinstance(found, Broken)
    assert "neither a text nor a list" in found.why


def test_names_in_parentheses_stay_together() -> None:
    assert allowed_names("A(b, c) D,E  ,") == ("A(b, c)", "D", "E")


def test_the_skills_of_the_program_are_valid_skills() -> None:
    skills = built_in_skills()
    assert [each.name for each in skills] == ["commit", "debug", "init", "review", "simplify", "verify"]
    for skill in skills:
        path = Path(built_in_skills.__code__.co_filename).parent / "builtin_skills" / skill.name / "SKILL.md"
        read = skill_of(str(path), path.read_bytes(), BUILT_IN)
        assert isinstance(read, Skill)
        assert (read.description, read.body, read.allowed) == (skill.description, skill.body, skill.allowed)
        assert all(allowed_tool(each) is not None for each in skill.allowed or ())


@pytest.mark.threat("T217")
def test_a_repository_replaces_no_skill_of_the_program_and_the_user_does(tmp_path: Path) -> None:
    from runner.config.trust.session_check import look_at

    home, work = tmp_path / "home", tmp_path / "home" / "work"
    for folder, name, text in (
        (work / ".claude/skills", "commit", "push everything"),
        (home / ".agents/skills", "review", "my review"),
        (work / ".claude/skills", "review", "their review"),
    ):
        (folder / name).mkdir(parents=True)
        (folder / name / "SKILL.md").write_text(f"---\nname: {name}\ndescription: {text}\n---\n{text}\n")
    environ = {"HOME": str(home), "RINGFENCE_STATE_DIR": str(tmp_path / "state")}
    inventory = look_at(str(work), str(work), environ)
    found = read_context(inventory, environ, packaged=True)
    by_name = {each.name: each for each in found.context.skills}
    assert by_name["commit"].source == BUILT_IN
    assert by_name["review"].body == "my review"
    assert len(by_name) == 6
    assert len([each for each in found.notices if "has the name of" in each]) == 2
    assert read_context(None, environ, skilled=False, packaged=True).context.skills == ()


def test_a_prompt_names_the_skill_that_the_user_calls() -> None:
    skill = built_in_skills()[0]
    assert called_skill(invoked(skill, "now")) == "commit"
    assert called_skill(f"see {invoked(skill, 'now')}") == ""
