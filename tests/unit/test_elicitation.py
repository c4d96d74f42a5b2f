"""Questions of tool servers: which forms and pages a user is shown."""

import asyncio
import json

import pytest

from runner.events import Event, InputWanted
from runner.frontends.jsonl.approver import NoAnswer, Questions
from runner.frontends.jsonl.protocol import AnswerLine, parse
from runner.mcp.elicitation import ElicitedAnswer, ElicitedForm, ElicitedUrl, answer_at_terminal


def form(**fields: object) -> ElicitedForm:
    return ElicitedForm("one", "please", {"type": "object", "properties": fields})


TEXT = {"type": "string"}


@pytest.mark.threat("T177")
@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        (form(colour=TEXT, count={"type": "integer"}, sure={"type": "boolean"}), ""),
        (form(tokens_used={"type": "integer", "title": "Number of words"}), "asks for a secret"),
        (form(password=TEXT), "asks for a secret"),
        (form(value={"type": "string", "title": "Your API key"}), "asks for a secret"),
        (form(value={"type": "string", "description": "the recovery phrase of your wallet"}), "asks for a secret"),
        (form(apiKey=TEXT), "asks for a secret"),
        (form(nested={"type": "object"}), "no type that a form can have"),
        (form(**{f"field{number}": TEXT for number in range(31)}), "more than 30 fields"),
        (form(colour={"type": "string", "enum": ["red"] * 20_000}), "too large"),
        (ElicitedUrl("one", "", "https://example.org/a?b=c"), ""),
        (ElicitedUrl("one", "", "http://localhost:8000/cb"), ""),
        (ElicitedUrl("one", "", "http://example.org/"), "no https address"),
        (ElicitedUrl("one", "", "javascript:alert(1)"), "no https address"),
        (ElicitedUrl("one", "", "file:///etc/passwd"), "no https address"),
        (ElicitedUrl("one", "", "https://exa\u202emple.org/"), "characters that an address cannot have"),
        (ElicitedUrl("one", "", "http://localhost.evil.example/"), "no https address"),
        (ElicitedUrl("one", "", "http://127.0.0.1@evil.example/"), "no https address"),
    ],
    ids=[
        "harmless fields", "a word of secrets in a name", "a password", "a title", "a description", "a name in camel case",
        "a nested object", "too many fields", "too many choices", "a page", "a page on this machine", "a page without TLS", "a script", "a file",
        "a reversing character", "a name that begins like this machine", "a user name before the host",
    ],
)  # fmt: skip
def test_a_question_is_shown_only_if_it_is_allowed(asked: ElicitedForm | ElicitedUrl, fault: str) -> None:
    assert bool(asked.fault) is bool(fault)
    assert fault in asked.fault


@pytest.mark.threat("T177")
@pytest.mark.parametrize(
    ("url", "host", "warned"),
    [
        ("https://example.org:444/x", "example.org", False),
        ("https://xn--exmple-cua.org/", "xn--exmple-cua.org", True),
        ("https://example.org@evil.example/", "evil.example", True),
    ],
    ids=["a plain host", "letters of another script", "a user name that looks like a host"],
)
def test_the_host_of_a_page_is_shown_on_its_own(url: str, host: str, *, warned: bool) -> None:
    asked = ElicitedUrl("one", "", url)
    assert asked.host == host
    assert bool(asked.warning) is warned


FIELDS = form(
    name={"type": "string", "maxLength": 5},
    size={"type": "integer", "default": 3},
    colour={"type": "string", "enum": ["red", "green"]},
    sure={"type": "boolean"},
    parts={"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
    share={"type": "number"},
)


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (["y", "Ann", "", "red", "yes", "a, b", "0.5", "y"],
         ElicitedAnswer(accepted=True, values={"name": "Ann", "size": 3, "colour": "red", "sure": True, "parts": ["a", "b"], "share": 0.5})),
        (["y", "too long", "Ann", "x", "7", "blue", "green", "maybe", "n", "c", "a", "nan", "1", "y"],
         ElicitedAnswer(accepted=True, values={"name": "Ann", "size": 7, "colour": "green", "sure": False, "parts": ["a"], "share": 1.0})),
        (["y", "", "", "", "", "", "", "y"], ElicitedAnswer(accepted=True, values={"size": 3})),
        (["n"], ElicitedAnswer(refused=True)),
        ([""], ElicitedAnswer(refused=True)),
        ([None], ElicitedAnswer()),
        (["y", "Ann", None], ElicitedAnswer()),
        (["y", "Ann", "", "red", "yes", "a", "1", ""], ElicitedAnswer(refused=True)),
        (["y", "Ann", *["x"] * 5], ElicitedAnswer()),
    ],
    ids=["each type", "wrong values are asked again", "optional fields stay empty", "refused", "Enter refuses", "left", "left inside",
         "not confirmed", "too many wrong answers"],
)  # fmt: skip
def test_a_form_is_answered_field_by_field(typed: list[str | None], answer: ElicitedAnswer) -> None:
    async def ask(lines: object, prompt: str) -> str | None:
        return typed.pop(0)

    assert asyncio.run(answer_at_terminal(FIELDS, ask)) == answer
    assert not typed


def test_a_page_is_shown_whole_and_never_opened() -> None:
    seen: list[str] = []

    async def ask(lines: list[str], prompt: str) -> str | None:
        seen.extend(lines)
        return "y"

    url = "https://example.org/a/very/long/path?with=everything"
    assert asyncio.run(answer_at_terminal(ElicitedUrl("one", "sign in", url), ask)) == ElicitedAnswer(accepted=True)
    assert f"page: {url}" in seen
    assert "host: example.org" in seen


FORM = form(
    colour={"type": "string", "enum": ["red", "blue"]},
    count={"type": "integer", "default": 3, "description": "how\nmany"},
    ratio={"type": "number"},
    sure={"type": "boolean"},
    tags={"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
    name={"type": "string", "maxLength": 3},
)
PAGE = ElicitedUrl("one", "sign in\x1b[2J", "https://example.org@evil.example/x?y=z")
CLEAR = [
    (FORM, {"answer": "yes", "values": {}}, ElicitedAnswer(accepted=True)),
    (FORM, {"answer": "yes", "values": {"colour": "red", "count": 1, "ratio": 2, "sure": False, "tags": ["b"], "name": ""}},
     ElicitedAnswer(accepted=True, values={"colour": "red", "count": 1, "ratio": 2, "sure": False, "tags": ["b"], "name": ""})),
    (FORM, {"answer": "no"}, ElicitedAnswer(refused=True)),
    (FORM, {"answer": "cancel"}, ElicitedAnswer()),
    (PAGE, {"answer": "yes"}, ElicitedAnswer(accepted=True)),
    (PAGE, {"answer": "no"}, ElicitedAnswer(refused=True)),
]  # fmt: skip
UNCLEAR = [
    (FORM, {"answer": "yes"}, "yes with `values`", "a form without values"),
    (FORM, {"answer": "yes", "values": {"colour": "green"}}, "one of its choices", "another choice"),
    (FORM, {"answer": "yes", "values": {"count": True}}, "whole number", "a truth value as a number"),
    (FORM, {"answer": "yes", "values": {"ratio": "1"}}, "needs a number", "a text as a number"),
    (FORM, {"answer": "yes", "values": {"sure": 1}}, "true or false", "a number as a truth value"),
    (FORM, {"answer": "yes", "values": {"tags": ["c"]}}, "list of texts", "another entry of a list"),
    (FORM, {"answer": "yes", "values": {"name": "four"}}, "at most 3", "a text that is too long"),
    (FORM, {"answer": "yes", "values": {"more": 1}}, "no field `more`", "a field that the form does not have"),
    (FORM, {"answer": "no", "feedback": "x"}, "no, or cancel", "a reason"),
    (FORM, {"answer": "stop"}, "no, or cancel", "another word"),
    (PAGE, {"answer": "yes", "values": {}}, "opened the page", "values for a page"),
]  # fmt: skip


async def _answered(asked: ElicitedForm | ElicitedUrl, *lines: dict[str, object]) -> tuple[ElicitedAnswer, InputWanted]:
    """Let JSON mode answer a request of a server with these lines, of which the last one counts."""
    shown: list[Event] = []
    questions = Questions(shown.append)
    waiting = asyncio.create_task(questions.answer_server(asked))
    while not shown:
        await asyncio.sleep(0)
    (event,) = shown
    assert isinstance(event, InputWanted)
    for line in lines:
        said = parse(json.dumps({"type": "answer", "id": event.id, **line}).encode())
        assert isinstance(said, AnswerLine)
        questions.answer(said)
    if not lines:
        questions.withdraw()
    return await waiting, event


@pytest.mark.threat("T177")
@pytest.mark.parametrize(
    ("asked", "line", "answer"), CLEAR, ids=["defaults", "all fields", "no", "cancel", "a page", "not the page"]
)
def test_a_program_answers_a_form_or_a_page(
    asked: ElicitedForm | ElicitedUrl, line: dict[str, object], answer: ElicitedAnswer
) -> None:
    assert asyncio.run(_answered(asked, line))[0] == answer


@pytest.mark.threat("T177")
@pytest.mark.parametrize(("asked", "line", "told", "why"), UNCLEAR, ids=[row[-1] for row in UNCLEAR])
def test_an_answer_that_does_not_fit_leaves_the_request_open(
    asked: ElicitedForm | ElicitedUrl, line: dict[str, object], told: str, why: str
) -> None:
    with pytest.raises(NoAnswer) as found:
        asyncio.run(_answered(asked, line))
    assert told in f"{found.value.problem.why}; {found.value.problem.fix}", why


@pytest.mark.threat("T177")
def test_a_program_sees_the_whole_request_and_an_interruption_leaves_it() -> None:
    needed = ElicitedForm("one", "please", {**FORM.schema, "required": ["name"]})
    answer, event = asyncio.run(_answered(needed))
    assert answer == ElicitedAnswer()
    assert event.fields[0]["choices"] == ["red", "blue"]
    assert event.fields[1]["default"] == 3
    assert "\n" not in str(event.fields[1]["description"])
    assert [each["required"] for each in event.fields] == [False, False, False, False, False, True]
    _, event = asyncio.run(_answered(PAGE))
    assert (event.server, event.url, event.host) == ("one", PAGE.url, "evil.example")
    assert "user name" in event.warning
    assert "\x1b" not in event.message
    with pytest.raises(NoAnswer, match="not an answer"):
        asyncio.run(_answered(needed, {"answer": "yes", "values": {}}))
