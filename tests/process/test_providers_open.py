"""Tests of opening a provider by `provider:model`: names, base URLs, keys, lazy imports, and text of a model."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.messages import ProviderError
from runner.providers import open_provider
from runner.providers.endpoint import Endpoint, SetupError, parse_endpoint
from runner.providers.remotes import PROVIDERS, Remote
from runner.secrets.secret import Secret, SecretError
from runner.text.model_text import count_of, parse_arguments, parse_object, whole_text, wire_json
from tests.support.law import examples

CANARY = "sk-canary-a07d44be1f93"
KEYS = {"ANTHROPIC_API_KEY": CANARY, "OPENAI_API_KEY": CANARY, "GEMINI_API_KEY": CANARY}
LOCAL = "http://localhost:11434/v1"


def where(provider: object) -> str:
    return provider._connection._url  # type: ignore[attr-defined]  # what is sent where is tested over HTTP elsewhere


# fmt: off
SPECS: list[tuple[str, str | None, Mapping[str, str], str, str, str]] = [
    # spec, base_url, more environment, name, model, url
    ("anthropic",                   None,  {}, "anthropic", "claude-sonnet-5-5", "https://api.anthropic.com/v1/messages"),
    ("anthropic:",                  None,  {}, "anthropic", "claude-sonnet-5-5", "https://api.anthropic.com/v1/messages"),
    ("anthropic:claude-opus-5-5",   None,  {}, "anthropic", "claude-opus-5-5",   "https://api.anthropic.com/v1/messages"),
    (" openai:gpt-5.5 ",            None,  {}, "openai",    "gpt-5.5",           "https://api.openai.com/v1/responses"),
    ("openai:gpt-5.5", "https://eu.api.openai.com/v1", {}, "openai", "gpt-5.5", "https://eu.api.openai.com/v1/responses"),
    ("openai:m", "https://api.openai.com.evil.example/v1", {},
     "openai", "m", "https://api.openai.com.evil.example/v1/chat/completions"),
    ("openai:org/model:free",       "https://router.example/api/v1/", {},
     "openai", "org/model:free", "https://router.example/api/v1/chat/completions"),
    ("openai:qwen3:8b",             LOCAL, {}, "openai",    "qwen3:8b",          "http://localhost:11434/v1/chat/completions"),
    ("openai:m",                    None,  {"OPENAI_BASE_URL": LOCAL},
     "openai", "m", "http://localhost:11434/v1/chat/completions"),
    ("openai:m",                    "http://[::1]:8080/v1", {"OPENAI_BASE_URL": LOCAL},
     "openai", "m", "http://[::1]:8080/v1/chat/completions"),
    ("openai",                      "https://api.openai.com/v1/", {}, "openai", "gpt-6.2-sol",
     "https://api.openai.com/v1/responses"),
    ("anthropic:m",                 None,  {"ANTHROPIC_BASE_URL": "https://proxy.example"},
     "anthropic", "m", "https://proxy.example/v1/messages"),
    ("gemini",                      None,  {}, "gemini", "gemini-4-argon",
     "https://generativelanguage.googleapis.com/v1beta/models"),
    ("gemini:m",                    None,  {"GOOGLE_GEMINI_BASE_URL": "https://proxy.example/v1beta/"},
     "gemini", "m", "https://proxy.example/v1beta/models"),
    ("anthropic:m",                 None,  {"ANTHROPIC_BASE_URL": " "},
     "anthropic", "m", "https://api.anthropic.com/v1/messages"),
]
# fmt: on


@pytest.mark.parametrize(("spec", "base_url", "more", "name", "model", "url"), SPECS)
def test_a_spec_opens(
    spec: str, base_url: str | None, more: Mapping[str, str], name: str, model: str, url: str
) -> None:
    opened = open_provider(spec, base_url=base_url, environ={**KEYS, **more})
    provider = opened.provider
    assert (provider.name, opened.model, where(provider)) == (name, model, url)
    assert opened.secrets == (Secret(CANARY),), "the code that masks the key must know it"
    assert CANARY not in repr(provider) + repr(vars(provider)) + repr(vars(provider._connection))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("url", "api", "path"),
    [
        (None, None, "responses"),
        (None, "chat", "chat/completions"),
        (LOCAL, None, "chat/completions"),
        (LOCAL, "responses", "responses"),
    ],
)
def test_the_api_of_openai_is_its_newer_one_at_home_unless_somebody_says(
    url: str | None, api: str | None, path: str
) -> None:
    opened = open_provider("openai:m", base_url=url, environ=KEYS, api=api)
    assert where(opened.provider) == f"{url or 'https://api.openai.com/v1'}/{path}"


# fmt: off
REFUSED: list[tuple[str, str | None, list[str], str]] = [
    ("antropic:x",        None,                    ["no provider `antropic`", "did you mean `anthropic`"], "a slip"),
    ("open-ai",           None,                    ["did you mean `openai`"],                     "another slip"),
    ("claude-sonnet-5-5", None,                    ["no provider", "did you mean `anthropic:claude-sonnet-5-5`"], "a model alone"),
    ("opus",              None,                    ["no provider", "did you mean `anthropic:claude-opus-5-5`"], "a family of models"),
    ("gpt",               None,                    ["no provider", "did you mean `openai:gpt-"],  "the beginning of a name"),
    ("qwen3:8b",          None,                    ["no provider", "`ollama:qwen3:8b`"],          "a model that no vendor has"),
    ("ollamma:qwen3",     None,                    ["did you mean `ollama`"],                     "a slip in a local server"),
    ("",                  None,                    ["no provider", "`anthropic`, `openai`, `gemini`, `openrouter`"], "nothing"),
    (":model",            None,                    ["no provider ``"],                            "no provider"),
    ("openai",            "https://x.example/v1",  ["needs a model", "openai:MODEL"],             "no model for another server"),
    ("openai",            LOCAL,                   ["needs a model"],                             "no model for a local one"),
    ("scripted",          None,                    ["replays a file", "scripted:FILE"],             "no script"),
    ("scripted:/no/such/file.toml", None,          ["/no/such/file.toml", "no such file"],        "a script that is not there"),
    ("openai:m",          "http://x.example/v1",   ["unencrypted", "https://"],                   "http to another machine"),
    ("openai:m",          "http://10.0.0.7:8000",  ["unencrypted"],                               "http in the same network"),
    ("openai:m",          "http://localhost.evil.example", ["unencrypted"],                       "a name that starts like ours"),
    ("openai:m",          "http://127.0.0.1.evil.example", ["unencrypted"],                       "an address that goes on"),
    ("openai:m",          "http://localhost%2eevil.example", ["unencrypted"],                     "an escaped dot"),
    ("openai:m",          "http://localhost@evil.example", ["user name or password"],             "localhost as a user"),
    ("openai:m",          f"https://u:{CANARY}@x.example", ["user name or password"],             "a password"),
    ("openai:m",          f"https://x.example/?key={CANARY}", ["query"],                          "a key in the query"),
    ("openai:m",          f"https://x.example/#{CANARY}", ["fragment"],                           "a fragment"),
    ("openai:m",          "x.example/v1",          ["does not start with `https://`"],            "no scheme"),
    ("openai:m",          "localhost:11434",       ["does not start with `https://`"],            "no scheme, a port"),
    ("openai:m",          "ftp://localhost",       ["does not start with `https://`"],            "another scheme"),
    ("openai:m",          "file:///etc/passwd",    ["does not start with `https://`"],            "a file"),
    ("openai:m",          "https://",              ["and a host"],                                "no host"),
    ("openai:m",          "https://x.example:99999", ["not a URL"],                               "a port beyond all ports"),
    ("openai:m",          "https://[::1",          ["not a URL"],                                 "half an address"),
    ("openai:m",          "https://x.exa\tmple",   ["a blank"],                                  "a tab, which parsers drop"),
    ("openai:m",          "https://x.example:0",   ["not a URL"],                                 "a port that is none"),
    ("openai:m",          f"https://u:{CANARY}@x.example:99999", ["user name or password"],       "a password before a wrong port"),
    ("openai:m",          "https://x.example/a b", ["a blank"],                                   "a blank"),
    ("openai:m",          "https://x.example\\@y.example", ["user name or password"],             "a backslash"),
    ("openai:m",          "https://x.exam\u200bple", ["unprintable"],                             "a hidden character"),
]
# fmt: on


@pytest.mark.threat("T21")
@pytest.mark.parametrize(("spec", "base_url", "words", "why"), REFUSED, ids=[case[3] for case in REFUSED])
def test_a_spec_is_refused(spec: str, base_url: str | None, words: list[str], why: str) -> None:
    with pytest.raises(SetupError) as caught:
        open_provider(spec, base_url=base_url, environ=KEYS)
    text = str(caught.value.problem)
    for word in words:
        assert word in text
    assert CANARY not in text + repr(caught.value) + repr(caught.value.__context__)
    assert isinstance(caught.value, ProviderError)


LOOPBACK = ["localhost", "LOCALHOST", "127.0.0.1", "127.9.9.9", "[::1]"]
ELSEWHERE = [
    "0.0.0.0",
    "[::]",
    "127.1",
    "2130706433",
    "localhost.",
    "x.localhost",
    "[::ffff:127.0.0.1]",
    "[fe80::1]",
    "192.168.0.1",
]


@pytest.mark.parametrize("host", LOOPBACK)
def test_this_machine_may_be_spoken_to_in_clear(host: str) -> None:
    assert parse_endpoint(f"http://{host}:1/v1").loopback


@pytest.mark.threat("T21")
@pytest.mark.parametrize("host", ELSEWHERE)
def test_no_other_machine_may(host: str) -> None:
    with pytest.raises(SetupError, match="unencrypted"):
        parse_endpoint(f"http://{host}:1/v1")
    assert not parse_endpoint(f"https://{host}:1/v1").loopback


@given(
    st.text(st.characters(codec="utf-8"), max_size=40)
    | st.from_regex(r"https?://[\w.@:\[\]%\\/-]{0,30}", fullmatch=True)
)
def test_any_text_is_an_endpoint_or_a_problem(text: str) -> None:
    try:
        endpoint = parse_endpoint(text)
    except SetupError:
        return
    assert endpoint.secure or endpoint.loopback
    assert re.fullmatch(r"https?://[^@?#\s\\]+", endpoint.url)
    assert parse_endpoint(endpoint.url) == endpoint, "reading it again changes nothing"


def test_a_server_on_this_machine_needs_no_key_and_wakes_no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)  # importing it fails
    opened = open_provider("openai:m", base_url=LOCAL, environ={})
    assert opened.provider._connection._auth is None  # type: ignore[attr-defined]
    assert opened.secrets == ()
    opened = open_provider("openai:m", base_url=LOCAL, environ=KEYS)
    assert opened.provider._connection._auth is not None  # type: ignore[attr-defined]


def test_any_other_server_needs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    for spec in ("anthropic", "openai", "gemini"):
        with pytest.raises(SecretError, match=f"no API key for `{spec}`"):
            open_provider(spec, environ={})


def test_the_default_models_are_ones_the_vendors_list() -> None:
    import anthropic.types  # slow: only where they are used
    import openai.types.shared

    def literals(alias: object) -> set[object]:
        return {name for part in get_args(alias) for name in (get_args(part) or (part,))}

    known = {"anthropic": literals(anthropic.types.Model), "openai": literals(openai.types.shared.ChatModel)}
    for name, entry in PROVIDERS.items():
        if isinstance(entry, Remote) and entry.model:
            assert name == "gemini" or entry.model in known[name]  # Google's SDK lists none
        if isinstance(entry, Remote):
            assert isinstance(parse_endpoint(entry.url), Endpoint)


@pytest.mark.parametrize(
    ("code", "unloaded"),
    [
        ("import runner.secrets.secret", ["httpx", "keyring", "pydantic", "asyncio"]),
        ("import runner.providers", ["httpx", "keyring", "pydantic", "asyncio", "ssl"]),
        ("import runner.providers.scripted", ["httpx", "keyring", "pydantic"]),
        ("from runner.providers import *; open_provider('openai:m', base_url='http://[::1]', environ={})", ["keyring", "pydantic"]),
        ("from runner.providers import *; open_provider('anthropic', environ={'ANTHROPIC_API_KEY': 'k'})", ["keyring", "pydantic"]),
    ],
)  # fmt: skip
def test_what_is_loaded_when(code: str, unloaded: list[str]) -> None:
    script = f"{code}\nimport sys; print([name for name in {unloaded!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# ---- text that models write -----------------------------------------------------------------------------------------


@given(st.text())
def test_any_text_is_arguments_or_none(text: str) -> None:
    found = parse_arguments(text)
    assert found is None or json.loads(wire_json(found)) is not None


@examples(25, many=400)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda i: st.lists(i) | st.dictionaries(st.text(), i)
    )
)
def test_arguments_survive(value: object) -> None:
    assert parse_arguments(json.dumps({"a": value})) == {"a": value}


@given(st.text(st.characters()), st.lists(st.integers(0, 50)))
def test_text_in_utf16_halves_is_whole_again(text: str, cuts: list[int]) -> None:
    raw = text.encode("utf-16-le", "surrogatepass")
    halves = [raw[at : at + 2].decode("utf-16-le", "surrogatepass") for at in range(0, len(raw), 2)]
    assert whole_text(halves) == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    whole_text(halves).encode("utf-8")


@pytest.mark.threat("T27")
@given(st.binary())
def test_any_bytes_are_an_object_or_none(data: bytes) -> None:
    assert parse_object(data) is None or isinstance(parse_object(data), dict)


# fmt: off
CROWDED = [
    ('{"a": [' + "[]," * 1_100_000 + "0]}",   None, "lists without end: 16 MB of them took 500 MB"),
    ('{"a": [' + "{}," * 1_100_000 + "0]}",   None, "objects"),
    ('{"a": [' + "1000," * 1_100_000 + "0]}", None, "numbers"),
    ('{"a": "' + "x" * 4_000_000 + '"}',      4_000_000, "one long text"),
    ('{"a": "' + "[1,2]," * 300_000 + '"}',   1_800_000, "a large table that a model writes"),
]
# fmt: on


@pytest.mark.threat("T119")
@pytest.mark.parametrize(("text", "length", "why"), CROWDED, ids=[row[2] for row in CROWDED])
def test_an_answer_has_no_more_parts_than_memory_is_for(text: str, length: int | None, why: str) -> None:
    for found in (parse_object(text), parse_object(text.encode()), parse_arguments(text)):
        assert (found and len(str(found["a"]))) == length, why


@pytest.mark.threat("T27")
@pytest.mark.parametrize("given", [-1, True, 1.5, "7", None, [], 10**400, 1 << 53])
def test_what_is_no_count_of_tokens(given: object) -> None:
    """A number beyond reason ended the session, or left a line in its file with which it could not be gone on with."""
    assert count_of({"n": given}, "n") is None
    assert count_of({"n": 7}, "n") == 7
