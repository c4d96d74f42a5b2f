"""Questions of a model in a real session: who is asked, what an answer does and what it does not. The model is scripted;
the gate, the record and the sandbox are real.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from policy.model.tier import Mode
from policy.model.verdict import Ask
from runner.approval.approver import Answer, No, PlanAnswer, Stay
from runner.approval.model_questions import AskedByModel, ModelAnswer
from runner.approval.remembered import NOTHING, Offer
from runner.audit.log import AuditLog
from runner.events import Denied, MalformedCall, Notice, QuestionAsked
from tests.process.test_sub_agents import bash, play, spawn

QUESTION = {"question": "Allow `touch made`?", "title": "gate", "choices": [{"label": "yes"}, {"label": "no"}]}
ASK = ("ask_user", {"questions": [QUESTION]})


class Answering:
    """An approver that answers the model and refuses every action."""

    name = "terminal"

    def __init__(self, answers: tuple[ModelAnswer, ...] | None) -> None:
        self.answers = answers
        self.asked: list[AskedByModel] = []
        self.actions: list[Ask] = []

    async def ask(self, ask: Ask, offer: Offer = NOTHING) -> Answer:
        self.actions.append(ask)
        return No()

    async def leave_plan(self, plan: str) -> PlanAnswer:
        return Stay()

    async def ask_model_questions(self, asked: AskedByModel) -> tuple[ModelAnswer, ...] | None:
        self.asked.append(asked)
        return self.answers


class Typing(Answering):
    """An approver of a plain terminal, which has no panel."""

    ask_model_questions = None  # type: ignore[assignment]  # as an approver without the method

    async def ask_text(self, lines: Sequence[str], prompt: str) -> str | None:
        return "2"


def records(tmp_path: Path) -> list[dict[str, object]]:
    with AuditLog.open_to_read(tmp_path / "h/.local/state/ringfence/audit.db") as log:
        return [record.body for record in log.rows()]


@pytest.mark.threat("T251")
def test_a_yes_to_a_question_that_imitates_the_gate_allows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    approver = Answering((ModelAnswer(("yes",)),))
    scripts: dict[str, list[object]] = {"main": [[ASK], [bash("touch made")], "done"]}
    played = play(tmp_path, monkeypatch, scripts, Mode.DEFAULT, approver=approver)
    assert 'selected: "yes"' in played.results[0]
    assert "An answer approves no action" in played.results[0]
    assert len(approver.actions) == 1, "the gate asks its own question about the command"
    assert not (tmp_path / "w/made").exists()
    assert [event.action for event in played.of("main", Denied)] == ["$ touch made"]  # type: ignore[attr-defined]
    assert len(played.of("main", QuestionAsked)) == 1, "a question of the model is no question of the gate"
    decided = next(body for body in records(tmp_path) if body.get("tool") == "ask_user")
    assert (decided["verdict"], decided["tiers"]) == ("allow", ["read"])
    finished = [body for body in records(tmp_path) if body["kind"] == "finished"]
    assert ['selected: "yes"' in str(body["answered"]) for body in finished] == [True]


def test_a_sub_agent_asks_under_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    approver = Answering(None)
    scripts: dict[str, list[object]] = {"main": [[spawn("general")], "done"], "general-1": [[ASK], "asked"]}
    play(tmp_path, monkeypatch, scripts, approver=approver)
    assert [each.author for each in approver.asked] == ["the agent general-1"]


def test_a_plain_terminal_is_asked_line_by_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = play(tmp_path, monkeypatch, {"main": [[ASK], "done"]}, approver=Typing(None))
    assert 'selected: "no"' in played.results[0]


@pytest.mark.threat("T252")
def test_without_a_user_the_model_decides_and_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = play(tmp_path, monkeypatch, {"main": [[ASK], [bash("touch made")], "done"]}, Mode.DEFAULT)
    assert played.results[0].startswith("nobody can answer questions here: decide yourself")
    assert [event.text for event in played.of("main", Notice) if "asked" in event.text] == [  # type: ignore[attr-defined]
        "the model asked a question, and there is no user to answer"
    ]
    assert not (tmp_path / "w/made").exists()


def test_a_question_without_an_answer_leaves_the_decision_to_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = play(tmp_path, monkeypatch, {"main": [[ASK], "done"]}, approver=Answering(None))
    assert played.results[0].startswith("the user gave no answer")


def test_the_user_can_switch_questions_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "h/.config/ringfence").mkdir(parents=True)
    (tmp_path / "h/.config/ringfence/config.toml").write_text('[tools]\nexcept = ["ask_user"]\n')
    approver = Answering((ModelAnswer(("yes",)),))
    played = play(tmp_path, monkeypatch, {"main": [[ASK], "done"]}, approver=approver)
    assert not approver.asked
    assert len(played.of("main", MalformedCall)) == 1
