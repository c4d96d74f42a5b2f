"""Questions of tool servers: which forms and pages a user is shown."""

import asyncio

import pytest

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
        "a nested object", "too many fields", "a page", "a page on this machine", "a page without TLS", "a script", "a file",
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
