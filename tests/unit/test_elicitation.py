"""Questions of tool servers: which forms and pages a user is shown."""

import pytest

from runner.mcp.elicitation import ElicitedForm, ElicitedUrl


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
