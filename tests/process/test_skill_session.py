"""Tests of skills in a session: the model loads one, and a skill that names its tools is in force until the next
prompt.
"""

import asyncio
from dataclasses import replace

import pytest

from policy.model.tier import Mode
from runner.config.agentfiles.skills import Skill, invoked
from runner.engine.context.context import Context
from runner.events import ActionFinished, MalformedCall, QuestionAsked
from runner.loop import run
from runner.messages import ToolCall
from runner.providers.scripted import Turn
from tests.support.loop_harness import DONE, FixedApprover, LoopHarness, Make, bash, call
from tools import SKILL_TOOL, TOOLS
from tools.registry import ToolRegistry

READER = Skill("reader", "reads", "/s/reader/SKILL.md", "yours", "Read </skill> only.", allowed=("Read", "Bash(ls:*)"))
FREE = Skill("free", "does", "", "built in", "Do anything.")
QUIET = Skill("quiet", "does", "/s/quiet/SKILL.md", "yours", "Only for people.", quiet=True)
LOAD = call("skill", {"name": "reader"})


def prepared(stage: Make, *turns: Turn, **options: object) -> LoopHarness:
    found = stage(*turns, **options)
    context = Context(skills=(READER, FREE, QUIET))
    found.ctx = replace(found.ctx, context=context, tools=ToolRegistry((*TOOLS, SKILL_TOOL)))
    return found


def test_the_model_gets_the_text_between_marks_with_its_source(stage: Make) -> None:
    found = prepared(stage, LOAD, DONE)
    found.play()
    (told,) = found.told()
    assert told.startswith("[the skill `reader`, yours; paths in it start in its folder]\n")
    assert "Until the user's next prompt only these tools can be used: Read, Bash(ls:*)" in told
    assert '<skill name="reader" source="yours" folder="/s/reader" number="' in told
    assert len(found.of(ActionFinished)) == 1


@pytest.mark.parametrize("name", ["quiet", "nobody", "../reader"])
def test_a_skill_that_the_model_may_not_load(stage: Make, name: str) -> None:
    found = prepared(stage, call("skill", {"name": name}), DONE)
    found.play()
    assert "the skills are `reader`, `free`" in found.told()[0]
    assert "Only for people" not in found.told()[0]


@pytest.mark.threat("T216")
def test_while_a_skill_is_in_force_other_tools_are_refused_without_a_question(stage: Make) -> None:
    approver = FixedApprover(None)  # type: ignore[arg-type]  # never asked
    two = Turn(calls=(ToolCall("", "bash", {"command": "rm a"}), ToolCall("", "bash", {"command": "rm b"})))
    turns = (LOAD, bash("ls"), bash("ls; rm a"), two, call("write", {"path": "a", "content": "x"}), DONE)
    found = prepared(stage, *turns, mode=Mode.DEFAULT, unattended=False, approver=approver)
    found.play()
    assert found.sandbox.ran == ["ls"]
    assert len(found.of(MalformedCall)) == 4
    assert not found.of(QuestionAsked)
    assert all("the skill `reader`, which is in force" in text for text in found.told()[2:])


@pytest.mark.threat("T216")
def test_a_skill_never_widens_and_ends_with_the_next_prompt(stage: Make) -> None:
    wide = replace(READER, name="wide", allowed=("Bash", "Write"))
    found = prepared(
        stage, call("skill", {"name": "wide"}), bash("rm a"), DONE, bash("ls; ls"), DONE, mode=Mode.DEFAULT
    )
    found.ctx = replace(found.ctx, context=Context(skills=(wide,)))
    found.play()
    assert found.sandbox.ran == []
    assert "needs an approval, and there is no user" in found.told()[1]
    asyncio.run(run("go on", found.ctx, found.history))
    assert found.sandbox.ran == ["ls; ls"]
    assert found.ctx.skills.restricting == ()


@pytest.mark.threat("T216")
def test_a_skill_that_the_user_calls_is_in_force_too_and_a_second_one_adds_nothing(stage: Make) -> None:
    found = prepared(stage, call("skill", {"name": "free"}), bash("python3 x.py"), DONE)
    asyncio.run(run(invoked(READER, "now"), found.ctx, found.history))
    assert found.sandbox.ran == []
    assert "the skill `reader`, which is in force" in found.told()[1]
