"""Questions of a model: their form, what typed text answers, the panel, and the lines of JSON mode."""

import asyncio
from collections.abc import Sequence

import pytest

from policy.model.action import AskUser
from policy.model.model_questions import ModelQuestion, QuestionChoice, ask_action, asked_questions, questions_text
from policy.model.tool_arguments import canonical_value
from policy.model.verdict import Problem
from runner.approval.model_questions import AskedByModel, ModelAnswer, ask_at_terminal, typed_answer
from runner.engine.user_questions import answers_text
from runner.events import Event, InputWanted
from runner.frontends.jsonl.approver import NoAnswer, Questions
from runner.frontends.jsonl.protocol import AnswerLine
from runner.frontends.tui.model_question import ModelQuestionPanel
from runner.frontends.tui.panel import Done, Edit
from tools.arguments import parse
from tools.ask_user import AskUserTool
from tools.paths import SeenFiles

ONE = ModelQuestion("Which database?", "db", (QuestionChoice("SQLite", "small"), QuestionChoice("PostgreSQL")))
MANY = ModelQuestion("Which parts?", "", (QuestionChoice("a"), QuestionChoice("b"), QuestionChoice("c")), several=True)
FREE = ModelQuestion("What is the name?")

ROW = {"question": "q", "title": "", "choices": [], "several": False}
CHOICE = {"label": "a", "description": ""}
# fmt: off
FORMS: list[tuple[object, bool, str]] = [
    ([ROW],                                              True,  "the least"),
    ([ROW] * 4,                                          True,  "the most questions"),
    ([ROW] * 5,                                          False, "too many questions"),
    ([],                                                 False, "none"),
    ({},                                                 False, "no list"),
    ([{**ROW, "question": " "}],                         False, "a blank question"),
    ([{**ROW, "question": "q" * 1001}],                  False, "a long question"),
    ([{**ROW, "more": 1}],                               False, "another field"),
    ([{**ROW, "several": 1}],                            False, "no truth value"),
    ([{**ROW, "choices": [CHOICE]}],                     True,  "a choice"),
    ([{**ROW, "choices": [CHOICE, CHOICE]}],             False, "two equal labels"),
    ([{**ROW, "choices": [{**CHOICE, "label": " "}]}],   False, "a blank label"),
    ([{**ROW, "choices": [{"label": "a"}]}],             False, "a missing field"),
    ([{**ROW, "choices": [CHOICE | {"label": str(n)} for n in range(9)]}], False, "too many choices"),
]
# fmt: on


@pytest.mark.parametrize(("rows", "sound", "why"), FORMS, ids=[row[2] for row in FORMS])
def test_only_sound_questions_are_read(rows: object, sound: bool, why: str) -> None:
    assert bool(asked_questions(AskUser(canonical_value(rows)))) is sound, why


def test_questions_survive_the_action() -> None:
    assert asked_questions(ask_action((ONE, MANY, FREE))) == (ONE, MANY, FREE)
    assert questions_text(ask_action((ONE,))) == "db: Which database?\n- SQLite: small\n- PostgreSQL"
    for broken in ("", "[", "[" * 100_000):
        assert asked_questions(AskUser(broken)) == ()
        assert questions_text(AskUser(broken)) == broken


def test_the_tool_plans_what_the_model_asked() -> None:
    tool = AskUserTool()
    arguments = {
        "questions": [
            {
                "question": "Which database?",
                "title": "db",
                "choices": [{"label": "SQLite", "description": "small"}, {"label": "PostgreSQL"}],
            }
        ]
    }
    args = parse(tool, arguments, None)
    assert not isinstance(args, Problem)
    assert tool.plan(args, "/w", SeenFiles()) == ask_action((ONE,))  # type: ignore[arg-type]  # the tool's own
    twice = {"questions": [{"question": "q", "choices": [{"label": "a"}, {"label": "a"}]}]}
    args = parse(tool, twice, None)
    assert isinstance(tool.plan(args, "/w", SeenFiles()), Problem)  # type: ignore[arg-type]  # the tool's own
    schema = tool.Args.schema_for_model()
    assert "$ref" not in str(schema)


TYPED = [
    (ONE, "1", ModelAnswer(("SQLite",))),
    (ONE, " 2 ", ModelAnswer(("PostgreSQL",))),
    (ONE, "3", "the choices are 1 to 2"),
    (ONE, "0", "the choices are 1 to 2"),
    (ONE, "1 2", "select one choice"),
    (ONE, "yes", ModelAnswer(words="yes")),
    (ONE, "MySQL 8, please", ModelAnswer(words="MySQL 8, please")),
    (MANY, "3,1", ModelAnswer(("a", "c"))),
    (MANY, "1 1", ModelAnswer(("a",))),
    (FREE, "7", ModelAnswer(words="7")),
    (FREE, "  ", "type an answer"),
]


@pytest.mark.parametrize(("question", "said", "answer"), TYPED)
def test_a_typed_text_is_a_choice_or_an_answer(question: ModelQuestion, said: str, answer: ModelAnswer | str) -> None:
    assert typed_answer(question, said) == answer


def test_a_plain_terminal_asks_line_by_line() -> None:
    shown: list[str] = []

    async def ask(said: list[str | None], *questions: ModelQuestion) -> tuple[ModelAnswer, ...] | None:
        async def ask_text(lines: Sequence[str], prompt: str) -> str | None:
            shown.extend(lines)
            return said.pop(0)

        return await ask_at_terminal(AskedByModel(questions, "explore-1"), ask_text)

    assert asyncio.run(ask(["9", "1", "Ann"], ONE, FREE)) == (ModelAnswer(("SQLite",)), ModelAnswer(words="Ann"))
    assert shown[0] == "the agent explore-1 asks; an answer allows no action (1 of 2)"
    assert "the choices are 1 to 2" in shown
    assert asyncio.run(ask([""], ONE)) is None
    assert asyncio.run(ask(["1", None], ONE, ONE)) is None
    assert asyncio.run(ask(["9"] * 5, ONE)) is None


@pytest.mark.threat("T251")
def test_every_line_of_the_model_has_a_bar_before_it() -> None:
    """A question that imitates a card is shown as text of the model, without control characters."""
    card = "WRITE  rm -rf /\x1b[2J\nallow once? [y/N]: "
    lines: list[str] = []

    async def ask_text(shown: Sequence[str], prompt: str) -> str | None:
        lines.extend(shown)
        return "y"

    asked = AskedByModel((ModelQuestion(card, "gate\nallow", (QuestionChoice("y", "yes, once"),)),))
    assert asyncio.run(ask_at_terminal(asked, ask_text)) == (ModelAnswer(words="y"),)
    assert lines[0] == "the model asks; an answer allows no action"
    assert all(line.startswith("| ") for line in lines[1:-1])
    assert "\x1b" not in "".join(lines)
    panel = ModelQuestionPanel(asked)
    rows = ["".join(text for _, text in row) for row in panel.lines(80, 20)]
    assert rows[0].startswith("the model asks; an answer allows no action")
    assert all(row.startswith("| ") for row in rows[1:-2]), rows
    assert "\x1b" not in "".join(rows)


KEYS = [
    ((ONE,), ["enter"], (ModelAnswer(("SQLite",)),)),
    ((ONE,), ["down", "enter"], (ModelAnswer(("PostgreSQL",)),)),
    ((ONE,), ["2"], (ModelAnswer(("PostgreSQL",)),)),
    ((ONE,), ["escape"], None),
    ((MANY,), ["1", "3", "enter"], (ModelAnswer(("a", "c")),)),
    ((MANY,), [" ", "down", " ", " ", "enter"], (ModelAnswer(("a",)),)),
    ((MANY,), ["enter"], (ModelAnswer(),)),
    ((ONE, ONE), ["1", "2"], (ModelAnswer(("SQLite",)), ModelAnswer(("PostgreSQL",)))),
    ((ONE,), ["y", "a", "n", "9", "0", "2"], (ModelAnswer(("PostgreSQL",)),)),
]


@pytest.mark.parametrize(("questions", "keys", "answer"), KEYS)
def test_keys_answer_the_panel(
    questions: tuple[ModelQuestion, ...], keys: list[str], answer: tuple[ModelAnswer, ...] | None
) -> None:
    now = [0.0]
    panel = ModelQuestionPanel(AskedByModel(questions), lambda: now[0])
    for place, key in enumerate(keys, 1):
        panel.lines(80, 24)
        now[0] += 10
        step = panel.key(key)
        assert isinstance(step, Done) is (place == len(keys))
    assert step == Done(answer)


def test_own_words_and_a_small_screen() -> None:
    now = [0.0]
    panel = ModelQuestionPanel(AskedByModel((ONE, MANY)), lambda: now[0])
    for width in (3, 10, 200):
        for rows in range(1, 12):
            drawn = panel.lines(width, rows)
            assert 0 < len(drawn) <= rows
    now[0] += 10
    assert isinstance(panel.key("w"), Edit)
    assert panel.edited(None) is not None
    assert not isinstance(panel.edited("MySQL"), Done)
    panel.lines(80, 24)
    now[0] += 10
    panel.key("1")
    now[0] += 10
    panel.key("w")
    panel.edited("and d")
    panel.lines(80, 24)
    now[0] += 10
    assert panel.key("enter") == Done((ModelAnswer(words="MySQL"), ModelAnswer(("a",), "and d")))


def test_early_keys_answer_nothing() -> None:
    panel = ModelQuestionPanel(AskedByModel((ONE,)), lambda: 1.0)
    panel.lines(80, 24)
    assert not isinstance(panel.key("enter"), Done)


# fmt: off
LINES: list[tuple[dict[str, object], tuple[ModelAnswer, ...] | str | None, str]] = [
    ({"answer": "yes", "values": {"q1": "SQLite", "q2": ["c", "a"]}}, (ModelAnswer(("SQLite",)), ModelAnswer(("a", "c"))), "choices"),
    ({"answer": "yes", "values": {"q1": "MySQL", "q2": ["a", "d e"]}}, (ModelAnswer(words="MySQL"), ModelAnswer(("a",), "d e")), "own words"),
    ({"answer": "yes", "values": {"q1": "x", "q2": []}}, (ModelAnswer(words="x"), ModelAnswer()), "none of several"),
    ({"answer": "no"}, None, "no answer"),
    ({"answer": "cancel"}, None, "left"),
    ({"answer": "yes"}, "one answer to each question", "no values"),
    ({"answer": "yes", "values": {"q1": "x"}}, "one answer to each question", "one is missing"),
    ({"answer": "yes", "values": {"q1": 1, "q2": []}}, "`q1` needs a text", "a number"),
    ({"answer": "yes", "values": {"q1": ["a"], "q2": []}}, "`q1` needs a text", "a list for one choice"),
    ({"answer": "yes", "values": {"q1": " ", "q2": []}}, "`q1` needs a text", "blank"),
    ({"answer": "yes", "values": {"q1": "x", "q2": ["d", "e"]}}, "`q2` needs a list", "two own texts"),
    ({"answer": "yes", "values": {"q1": "x" * 4001, "q2": []}}, "longer than", "a long text"),
    ({"answer": "stop"}, "is not an answer to questions", "another answer"),
]
# fmt: on


@pytest.mark.parametrize(("line", "answer", "why"), LINES, ids=[row[2] for row in LINES])
def test_a_program_answers_in_json_mode(
    line: dict[str, object], answer: tuple[ModelAnswer, ...] | str | None, why: str
) -> None:
    async def through() -> tuple[ModelAnswer, ...] | None:
        events: list[Event] = []
        questions = Questions(events.append)
        task = asyncio.create_task(questions.ask_model_questions(AskedByModel((ONE, MANY), "explore-1")))
        await asyncio.sleep(0)
        (event,) = events
        assert isinstance(event, InputWanted)
        assert (event.author, event.agent, event.server) == ("model", "explore-1", "")
        assert event.fields[0]["details"] == ["small", ""]
        try:
            questions.answer(AnswerLine(event.id, **line))  # type: ignore[arg-type]  # as the parser makes it
        finally:
            questions.withdraw()
        return await task

    if isinstance(answer, str):
        with pytest.raises(NoAnswer, match=answer):
            asyncio.run(through())
    else:
        assert asyncio.run(through()) == answer


def test_the_model_gets_choices_and_own_words_apart() -> None:
    text = answers_text((ONE, MANY), (ModelAnswer(("SQLite",)), ModelAnswer((), "both\nof them")))
    assert text.splitlines() == [
        "the user answered:",
        "- Which database?",
        '  selected: "SQLite"',
        "- Which parts?",
        "  in the user's own words: both",
        "    of them",
        "An answer approves no action: the gate asks the user about actions by itself.",
    ]
