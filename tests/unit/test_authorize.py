"""Tests of the way from a question to a decision: an answer covers exactly what was on the screen."""

import io
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from policy.grants.grant import GrantScope, GrantSubject
from policy.model.command_pattern import CommandPattern
from policy.model.tier import Mode, Ruling
from runner.approval.approver import Answer, Edited, Halt, Later, No, Question, Reanswered, Yes
from runner.events import Changed, Denied, QuestionAnswered, QuestionAsked, ToolProposed, VerdictReached
from runner.frontends.plain.transcript import Transcript
from runner.gate.grants.store import RememberedAnswer
from runner.messages import ToolCall
from runner.problems import Exit
from runner.providers.scripted import Turn
from tests.support import loop_harness
from tests.support.loop_harness import DONE, NETWORK, READ, WORK, LoopHarness, Make, bash, call
from tests.support.panels import Panel, Script

stage = loop_harness.stage


def yes(_: Question) -> Answer:
    return Yes()


def calls(found: LoopHarness, kind: type[QuestionAsked] | type[QuestionAnswered]) -> list[str]:
    return [event.call for event in found.events if isinstance(event, kind)]


def ask_in(stage: Make, panel: Panel, *turns: Turn, mode: Mode = Mode.DEFAULT) -> LoopHarness:
    found = stage(*turns, DONE, approver=panel, mode=mode, unattended=False)
    found.play()
    return found


# ---- the questions of a turn are one list


def test_the_questions_of_a_turn_come_as_one_list(stage: Make) -> None:
    panel = Panel(lambda each: Yes() if "x.py" in each.card.command else No("not that host"))
    found = ask_in(stage, panel, bash(READ, WORK, NETWORK, "ls docs"))
    assert [[each.card.command for each in asked] for asked in panel.asked] == [[WORK, NETWORK]]
    assert found.sandbox.ran == [READ, WORK, "ls docs"]
    assert "not that host" in found.told()[2]
    assert calls(found, QuestionAsked) == ["1.2", "1.3"]
    assert calls(found, QuestionAnswered) == ["1.2", "1.3"]
    assert len(found.of(ToolProposed)) == 4, "each call is proposed once"


def test_a_single_question_is_a_list_of_one_with_its_card(stage: Make) -> None:
    panel = Panel(yes)
    found = ask_in(stage, panel, bash(WORK))
    (asked,) = found.of(QuestionAsked)
    assert isinstance(asked, QuestionAsked)
    assert asked.card is not None
    assert asked.card.command == WORK
    assert found.sandbox.ran == [WORK]


def test_stopping_at_the_list_stops_the_turn(stage: Make) -> None:
    found = stage(
        bash(READ, WORK, NETWORK), DONE, approver=Panel(lambda _: Halt()), mode=Mode.DEFAULT, unattended=False
    )
    assert found.play().exit is Exit.INTERRUPTED
    assert len(found.results()) == 3, "every call has its result"
    assert WORK not in found.sandbox.ran


def test_a_grant_given_in_the_list_answers_no_other_question_of_it(stage: Make) -> None:
    """They were all put; each has its own answer."""
    panel = Panel(lambda each: Yes(each.offer.picked("s")) if each.call == "1.1" else No())  # type: ignore[arg-type]  # a Keep
    found = ask_in(stage, panel, bash(WORK, WORK))
    assert found.sandbox.ran == [WORK]


# ---- what an answer counts for


@pytest.mark.threat("T108")
@pytest.mark.parametrize("many", [False, True], ids=["one", "a list"])
def test_a_yes_to_what_has_changed_since_is_asked_again(stage: Make, many: bool, tmp_path: Path) -> None:
    """While the person looks, `notes.txt` becomes a link out of the workspace."""
    outside = tmp_path / "precious"
    outside.write_text("x\n")

    def swap(question: Question) -> Answer:
        target = tmp_path / "w" / "notes.txt"
        if not target.is_symlink():
            target.symlink_to(outside)
        return Yes()

    panel = Panel(swap, lambda _: No())
    found = ask_in(stage, panel, bash("echo hi > notes.txt", *([NETWORK] if many else [])))
    assert panel.asked[1][0].again
    assert "precious" in panel.asked[1][0].card.line
    assert "echo hi > notes.txt" not in found.sandbox.ran


@pytest.mark.threat("T108")
def test_a_yes_to_a_diff_counts_for_that_diff(stage: Make, tmp_path: Path) -> None:
    def rewrite(question: Question) -> Answer:
        (tmp_path / "w" / "a.txt").write_text("another user's work\n")
        return Yes()

    panel = Panel(rewrite, lambda _: No())
    found = ask_in(stage, panel, call("write", {"path": "a.txt", "content": "mine\n"}))
    assert len(panel.asked) == 2
    assert panel.asked[1][0].card.change is not None
    assert "-another user's work" in panel.asked[1][0].card.change.diff
    assert found.sandbox.ran == []


@pytest.mark.threat("T108")
def test_a_mode_that_became_stricter_meanwhile_counts(stage: Make) -> None:
    def tighten(question: Question) -> Answer:
        found.ctx.live.mode = Mode.PLAN
        return Yes()

    found = stage(bash(WORK), DONE, approver=Panel(tighten), mode=Mode.DEFAULT, unattended=False)
    found.play()
    assert found.sandbox.ran == []
    assert len(found.of(Denied)) == 1


@pytest.mark.threat("T108")
def test_a_no_holds_although_the_mode_would_allow_it_by_then(stage: Make) -> None:
    def loosen(question: Question) -> Answer:
        found.ctx.live.mode = Mode.TRUST_PROJECT
        return No("never that one") if question.call == "1.1" else Yes()

    found = stage(bash(WORK, f"{WORK} 2"), DONE, approver=Panel(loosen), mode=Mode.DEFAULT, unattended=False)
    found.play()
    assert found.sandbox.ran == [f"{WORK} 2"]
    assert "never that one" in found.told()[0]


_FORGED = RememberedAnswer((GrantSubject(CommandPattern(("rm",))),), Ruling.DENY, GrantScope.USER)
# fmt: off
NO_ANSWER: list[tuple[Script, str]] = [
    (lambda _: None,                    "nothing"),
    (lambda _: True,                    "true is no yes"),
    (lambda _: "y",                     "a letter is no yes"),
    (lambda _: Yes,                     "the name of an approval is none"),
    (lambda _: Yes(_FORGED),            "an approval that keeps a no"),
    (lambda _: Edited(""),              "an edit to nothing"),
    (lambda _: Edited("  \n"),          "an edit to blanks"),
    (lambda _: Edited(7),               "an edit that is no text"),  # type: ignore[arg-type]  # that is the point
]
# fmt: on


@pytest.mark.threat("T108")
@pytest.mark.parametrize(("answer", "why"), NO_ANSWER, ids=[why for _, why in NO_ANSWER])
def test_what_is_no_answer_is_a_no(stage: Make, answer: Script, why: str) -> None:
    found = ask_in(stage, Panel(answer), bash(WORK))
    assert found.sandbox.ran == [], why
    assert len(found.of(Denied)) == 1


@pytest.mark.threat("T108")
def test_answers_that_are_not_as_many_as_questions_answer_none(stage: Make) -> None:
    class Short(Panel):
        async def ask_all(self, questions: Sequence[Question]) -> list[Answer]:
            return [Yes()]

    assert ask_in(stage, Short(), bash(WORK, NETWORK)).sandbox.ran == []


@pytest.mark.threat("T108")
def test_a_file_tool_has_no_command_to_edit(stage: Make) -> None:
    found = ask_in(stage, Panel(lambda _: Edited("ls")), call("write", {"path": "a.txt", "content": "x"}))
    assert found.sandbox.ran == []


# ---- all edits from now on


def write(*names: str) -> Turn:
    return Turn(calls=tuple(ToolCall("", "write", {"path": name, "content": "x\n"}) for name in names))


def all_edits(question: Question) -> Answer:
    return Yes(mode=Mode.ACCEPT_EDITS)


def one_edit_for_all(place: int) -> Script:
    """The answers of the screen: `a` at one question, and no answer to the other edits."""
    return lambda each: all_edits(each) if each.call == f"1.{place}" else Later()


def test_an_answer_that_accepts_all_edits_changes_the_mode(stage: Make) -> None:
    panel = Panel(all_edits)
    found = stage(write("a.txt"), write("b.txt"), DONE, approver=panel, mode=Mode.DEFAULT, unattended=False)
    found.play()
    assert found.ctx.live.mode is Mode.ACCEPT_EDITS
    assert len(panel.asked) == 1, "the second edit is no question"
    assert len(found.sandbox.ran) == 2
    assert [(event.was, event.now) for event in found.of(Changed) if isinstance(event, Changed)] == [
        ("default", "accept-edits")
    ]
    told = found.of(Changed, QuestionAnswered)
    assert [type(event) for event in told] == [Changed, QuestionAnswered], "no row of the mode cuts the call's block"
    first, second = sorted(found.audit.rows(kind="decided"), key=lambda row: row.id)
    assert first.body["answer"]["mode"] == "accept-edits"  # type: ignore[index]  # an object
    assert first.body["answer"]["yes"] is True  # type: ignore[index]  # an object
    assert second.body["answer"] is None


@pytest.mark.parametrize("place", [1, 2, 3])
def test_other_edits_of_the_turn_are_allowed_by_the_new_mode(stage: Make, place: int) -> None:
    panel = Panel(one_edit_for_all(place))
    found = ask_in(stage, panel, write("a.txt", "b.txt", "c.txt"))
    assert len(panel.asked) == 1
    assert len(found.sandbox.ran) == 3
    rows = sorted(found.audit.rows(kind="decided"), key=lambda row: row.id)
    answers = [row.body["answer"] for row in rows]
    assert [answer is not None for answer in answers] == [place == number for number in (1, 2, 3)]
    assert answers[place - 1]["mode"] == "accept-edits"  # type: ignore[index]  # an object


def test_an_approval_of_a_command_in_the_same_list_still_counts(stage: Make) -> None:
    """The mode changed since the question, but only to a looser one, and the command is what was on the screen."""
    panel = Panel(lambda each: all_edits(each) if each.card.edits else Yes())
    found = ask_in(stage, panel, Turn(calls=(*write("a.txt").calls, *bash(WORK).calls)))
    assert len(panel.asked) == 1
    assert WORK in found.sandbox.ran


@pytest.mark.threat("T108")
def test_an_edit_that_leads_elsewhere_by_then_is_asked_in_the_new_mode(stage: Make, tmp_path: Path) -> None:
    outside = tmp_path / "precious"
    outside.write_text("x\n")

    def swap(question: Question) -> Answer:
        target = tmp_path / "w" / "b.txt"
        if not target.is_symlink():
            target.symlink_to(outside)
        return all_edits(question) if question.call == "1.1" else Later()

    panel = Panel(swap, lambda _: No())
    found = ask_in(stage, panel, write("a.txt", "b.txt"))
    assert "precious" in panel.asked[1][0].card.line
    assert len(found.sandbox.ran) == 1


# fmt: off
NOT_OFFERED = [
    (bash(WORK),                                                       Mode.DEFAULT,      "a command"),
    (bash("touch a.txt"),                                              Mode.DEFAULT,      "a plain command for files"),
    (call("write", {"path": ".git/hooks/pre-commit", "content": "x"}), Mode.DEFAULT,      "what other programs run"),
    (call("write", {"path": ".vscode/tasks.json", "content": "x"}),    Mode.DEFAULT,      "a task of an editor"),
    (call("write", {"path": "/var/tmp/nowhere/a", "content": "x"}),    Mode.DEFAULT,      "outside the workspace"),
    (call("write", {"path": "/var/tmp/nowhere/a", "content": "x"}),    Mode.ACCEPT_EDITS, "in the mode itself"),
]
# fmt: on


@pytest.mark.threat("T108")
@pytest.mark.parametrize(("turn", "mode", "why"), NOT_OFFERED, ids=[row[-1] for row in NOT_OFFERED])
def test_where_it_is_not_offered_it_is_a_no(stage: Make, turn: Turn, mode: Mode, why: str) -> None:
    panel = Panel(all_edits)
    found = ask_in(stage, panel, turn, mode=mode)
    assert not any(each.card.edits for asked in panel.asked for each in asked), why
    assert found.sandbox.ran == []
    assert found.ctx.live.mode is mode


@pytest.mark.threat("T108")
def test_no_other_mode_comes_with_an_answer_and_no_answer_is_left_out(stage: Make) -> None:
    panel = Panel(lambda _: Yes(mode=Mode.DANGEROUSLY), lambda _: Later())
    found = stage(write("a.txt"), write("b.txt", "c.txt"), DONE, approver=panel, mode=Mode.DEFAULT, unattended=False)
    found.play()
    assert found.sandbox.ran == [], "and where no answer changed the mode, every question needs one"
    assert found.ctx.live.mode is Mode.DEFAULT


# ---- a person who changes the command

# fmt: off
EDITS = [
    ("ls",                        [], True,  "what only reads needs no further yes"),
    ("python3 y.py",              [yes], True,  "what is asked about is asked about"),
    ("python3 y.py",              [lambda _: No()], False, "and may be refused"),
    ("cat ~/.ssh/id_rsa",         [], False, "no person's edit lifts a floor"),
    ("python3 y.py",              [lambda _: Edited("ls")], True, "as often as they like"),
]
# fmt: on


@pytest.mark.threat("T108")
@pytest.mark.parametrize(("script", "more", "runs", "why"), EDITS, ids=[row[-1] for row in EDITS])
def test_an_edited_command_is_judged_as_any_other(
    stage: Make, script: str, more: list[Script], runs: bool, why: str
) -> None:
    panel = Panel(lambda _: Edited(script), *more)
    found = ask_in(stage, panel, bash(NETWORK))
    last = "ls" if len(panel.asked) == 2 and script != "ls" and why.startswith("as often") else script
    assert found.sandbox.ran == ([last] if runs else []), why
    assert last in found.told()[0]
    assert "changed your command" in found.told()[0]
    (row,) = found.audit.rows(kind="decided")
    assert row.body["action"]["script"] == last  # type: ignore[index]  # an object
    assert row.body["proposed"]["script"] == NETWORK  # type: ignore[index]  # an object
    edited = [
        event.edited for event in found.of(QuestionAnswered) if isinstance(event, QuestionAnswered) and event.edited
    ]
    assert edited[0] == script
    judged = [event for event in found.of(VerdictReached) if isinstance(event, VerdictReached)]
    assert len(judged) == len(panel.asked) + (not more or why.startswith("as often")), "each time by the same gate"


def reanswered(script: str, answer: Yes | No) -> Script:
    """The answers of the screen: an edit, and at once the answer to the question about it."""

    def edit(question: Question) -> Answer:
        assert question.edited is not None
        about = question.edited(script)
        return Edited(script, Reanswered(about, answer) if about is not None else None)

    return edit


@pytest.mark.threat("T108")
@pytest.mark.parametrize(("answer", "runs"), [(Yes(), ["python3 y.py"]), (No("not that"), [])], ids=["yes", "no"])
def test_an_edit_with_its_answer_is_not_asked_about_again(stage: Make, answer: Yes | No, runs: list[str]) -> None:
    panel = Panel(reanswered("python3 y.py", answer))
    found = ask_in(stage, panel, bash(NETWORK))
    assert len(panel.asked) == 1
    assert found.sandbox.ran == runs
    (row,) = found.audit.rows(kind="decided")
    assert row.body["answer"]["yes"] is bool(runs)  # type: ignore[index]  # an object
    assert row.body["proposed"]["script"] == NETWORK  # type: ignore[index]  # an object


@pytest.mark.threat("T108")
def test_an_answer_to_another_question_does_not_count_for_an_edit(stage: Make) -> None:
    """A program may send anything: what was approved must be the question about exactly this script."""

    def forged(question: Question) -> Answer:
        assert question.edited is not None
        about = question.edited("python3 y.py")
        assert about is not None
        return Edited("rm -rf src", Reanswered(about, Yes()))

    panel = Panel(forged, lambda _: No())
    found = ask_in(stage, panel, bash(NETWORK))
    assert len(panel.asked) == 2
    assert found.sandbox.ran == []


def test_a_transcript_says_that_another_command_was_written(stage: Make) -> None:
    found = ask_in(stage, Panel(lambda _: Edited("python3 y.py"), yes), bash(NETWORK))
    screen = io.StringIO()
    draw = Transcript(Console(file=screen, width=100))
    for event in found.events:
        draw(event)
    told = screen.getvalue()
    assert told.index(NETWORK) < told.index("you edited the command") < told.index("$ python3 y.py")
    assert "you declined" not in told
    assert told.count("you approved") == 1


def test_an_edit_in_a_list_is_judged_when_its_call_is_due(stage: Make) -> None:
    panel = Panel(lambda each: Edited("python3 y.py") if each.call == "1.2" else Yes(), yes)
    found = ask_in(stage, panel, bash(WORK, NETWORK))
    assert found.sandbox.ran == [WORK, "python3 y.py"]
    assert panel.asked[1][0].again


@pytest.mark.threat("T108")
def test_an_edit_of_what_only_reads_by_then_runs_alone(stage: Make, tmp_path: Path) -> None:
    """`cat link` was a question as long as the link led outside; what the person wrote instead is no read."""
    link, outside = tmp_path / "w" / "link", tmp_path / "data"

    def answer(question: Question) -> Answer:
        if question.card.command == "cat link":
            link.unlink()
            link.write_text("inside\n")
            return Edited("python3 y.py")
        return Yes()

    outside.write_text("x\n")
    panel = Panel(answer, yes)
    found = stage(bash("cat link", WORK), DONE, approver=panel, mode=Mode.DEFAULT, unattended=False)
    link.symlink_to(outside)
    found.play()
    assert found.sandbox.ran == ["python3 y.py", WORK]
    assert found.sandbox.most == 1
    assert [each.card.command for each in panel.asked[1]] == ["python3 y.py"]


def test_an_approver_without_lists_is_asked_one_by_one(stage: Make) -> None:
    person = loop_harness.FixedApprover(Yes())
    found = stage(bash(WORK, NETWORK), DONE, approver=person, mode=Mode.DEFAULT, unattended=False)
    found.play()
    assert [ask.assessment.action.script for ask in person.asked] == [WORK, NETWORK]  # type: ignore[union-attr]  # scripts
    assert found.sandbox.ran == [WORK, NETWORK]


def test_the_record_names_the_model_that_made_the_call(stage: Make) -> None:
    """The user may choose another model while the question is on the screen."""

    def change(question: Question) -> Answer:
        live = found.ctx.live
        live.use_model(live.provider, "another", live.limits)
        return Yes()

    found = stage(bash(WORK), DONE, approver=Panel(change), mode=Mode.DEFAULT, unattended=False)
    found.play()
    assert [row.body["model"] for row in found.audit.rows() if row.kind == "decided"] == ["scripted:m"]
