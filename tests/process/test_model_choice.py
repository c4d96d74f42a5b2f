"""Tests of the model that a session uses: named in part, by a local server's alias, by no one, or by the session itself."""

import asyncio
import json
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from runner.agent.agent import Agent
from runner.agent.model_choice import ModelRow, choose_model
from runner.agent.startup import RunArgs, chosen_model
from runner.config import load
from runner.doctor.models import models as doctor_models
from runner.messages import ProviderError
from runner.problems import Exit, Stopped
from runner.providers import open_provider
from runner.providers.catalog import full_name, meant_model
from runner.providers.endpoint import SetupError, Timeouts, parse_endpoint
from runner.providers.failures import Failures, reason_in
from runner.providers.key_options import KeyFlags
from runner.providers.listing import LONGEST, MOST, names_in, offered_models
from runner.providers.remotes import PROVIDERS
from runner.secrets.resolve import VARIABLES, FoundKey, KeyRequest, find
from runner.secrets.secret import Secret, SecretError, ending, without_parts
from tests.support import forked_agent
from tests.support.agent_program import AGENT
from tests.support.model_server import ModelServer, serving

KEY = "sk-Zq81mVxT04Wr9dLkwrong"
OTHER = "sk-or-77hTgB2nQpXe5uYi"


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    """Return the environment of a machine without keys."""
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    return {"PATH": "/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8", **more}


def agent(tmp_path: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run `agent` in a project folder, without a terminal."""
    project = tmp_path / "project"
    project.mkdir(exist_ok=True)
    return forked_agent.run(
        [AGENT, *words],
        cwd=project,
        env=environment(tmp_path, **more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def hello(number: int, headers: str, body: bytes) -> dict[str, object]:
    return {"content": f"answer {number} of {json.loads(body)['model']}"}


# ---- names

# fmt: off
NAMES = [
    # typed, full name, why
    ("claude-sonnet-5-5",          "anthropic:claude-sonnet-5-5",          "a known name"),
    ("claude-haiku-4-5-20251001",  "anthropic:claude-haiku-4-5-20251001",  "a dated name stays dated"),
    ("gpt-5",                      "openai:gpt-5",                         "exactly this one, although others begin so"),
    ("gemini-2.5-pro",             "gemini:gemini-2.5-pro",                "of Google"),
    ("opus",                       "opus",                                 "a family is not a model"),
    ("openai:gpt-5",               "openai:gpt-5",                         "already full"),
    ("ollama:gpt-5",               "ollama:gpt-5",                         "a provider is never replaced"),
    ("qwen3:8b",                   "qwen3:8b",                             "unknown"),
    ("",                           "",                                     "nothing"),
]
MEANT = [
    ("opus", "anthropic:claude-opus-5-5"), ("sonnet", "anthropic:claude-sonnet-5-5"), ("OPUS", "anthropic:claude-opus-5-5"),
    ("claude-sonet-5-5", "anthropic:claude-sonnet-5-5"), ("flash", "gemini:gemini-3.8-flash"), ("qwen3", None), ("o", None),
    ("", None), ("ollama", None),
]
# fmt: on


@pytest.mark.parametrize(("typed", "full", "why"), NAMES, ids=[row[2] for row in NAMES])
def test_a_bare_name_is_a_known_model_or_unchanged(typed: str, full: str, why: str) -> None:
    assert full_name(typed) == full


@pytest.mark.parametrize(("typed", "meant"), MEANT, ids=[row[0] or "nothing" for row in MEANT])
def test_which_model_is_suggested(typed: str, meant: str | None) -> None:
    assert meant_model(typed) == meant


# ---- servers with the API of OpenAI

LOCAL = ("ollama", "llamacpp", "lmstudio", "vllm")


def sent_key(name: str, environ: Mapping[str, str]) -> str | None:
    """Return the value of the header with the key that the provider would send."""
    import httpx

    adder = open_provider(f"{name}:m", environ=environ).provider._auth  # type: ignore[attr-defined]  # not sent anywhere
    return adder(httpx.Request("GET", "http://localhost")).headers["authorization"] if adder is not None else None


@pytest.mark.threat("T21")
def test_the_key_of_openai_goes_to_no_other_server() -> None:
    assert len(set(VARIABLES.values())) == len(VARIABLES)
    keys = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "https://elsewhere.example"}
    for name in LOCAL:
        assert sent_key(name, keys) is None, name
        assert sent_key(name, {**keys, VARIABLES[name]: OTHER}) == f"Bearer {OTHER}", name
    with pytest.raises(SecretError, match="no API key for `openrouter`"):
        sent_key("openrouter", keys)
    assert sent_key("openrouter", {**keys, "OPENROUTER_API_KEY": OTHER}) == f"Bearer {OTHER}"
    for name in (*LOCAL, "openrouter"):
        opened = open_provider(f"{name}:a/b:c", environ={VARIABLES[name]: OTHER, **keys})
        assert opened.named == f"{name}:a/b:c", "what a session file stores opens the same server again"
        assert not opened.vendors
        url = opened.provider._connection._url  # type: ignore[attr-defined]  # not sent anywhere
        assert url == f"{PROVIDERS[name].url}/chat/completions"  # type: ignore[union-attr]  # a remote one


@pytest.mark.threat("T21")
@pytest.mark.parametrize("url", ["http://127.0.0.1.evil.example/v1", "http://10.0.0.7:11434/v1"])
def test_an_alias_with_another_address_keeps_to_the_rules(url: str) -> None:
    with pytest.raises(SetupError, match="unencrypted"):
        open_provider("ollama:m", base_url=url, environ={})


# ---- the list of models

# fmt: off
LISTS: list[tuple[object, tuple[str, ...], str]] = [
    ({"data": [{"id": "a"}, {"id": "b:8b"}, {"id": "a"}]},                        ("a", "b:8b"), "each once"),
    ({"models": [{"name": "models/gemini-x"}]},                                    ("gemini-x",), "as Google lists them"),
    ({"data": [{"id": "nomic-embed-text"}, {"id": "text-embedding-3"}]},           (),            "these make no text"),
    ({"data": [{"id": 7}, {"id": ""}, {"id": "a b"}, {"id": "x\u202ey"}, 3, {}]}, (),            "no names"),
    ({"data": [{"id": "x" * (LONGEST + 1)}]},                                      (),            "a name too long to be one"),
    ({"data": {"id": "a"}},                                                        (),            "another shape"),
    ([], (), "a list"), ("", (), "a text"),
]
# fmt: on


@pytest.mark.parametrize(("content", "names", "why"), LISTS, ids=[row[2] for row in LISTS])
def test_a_list_of_models(content: object, names: tuple[str, ...], why: str) -> None:
    assert names_in(json.dumps(content).encode()) == names


def test_a_list_is_bounded() -> None:
    assert len(names_in(json.dumps({"data": [{"id": f"m{at}"} for at in range(MOST + 5)]}).encode())) == MOST
    assert names_in(b"\xff{") == ()


def test_a_server_is_asked_for_its_only_model() -> None:
    with serving(hello, models=("qwen3:8b", "nomic-embed-text")) as server:
        opened = open_provider("openai", base_url=server.url, environ={"OPENAI_API_KEY": KEY})
        assert opened.named == "openai:qwen3:8b"
        assert KEY in server.asked[0], "the key of the server that the user configured"
        server.models = ("a", "b")
        with pytest.raises(SetupError, match=r"offers 2: `a`, `b`.*write `openai:a`"):
            open_provider("openai:", base_url=server.url, environ={})
        picked = open_provider("openai", base_url=server.url, environ={}, pick=lambda name, who, models: models[-1])
        assert picked.model == "b"
        server.models = ()
        with pytest.raises(SetupError, match=r"has no default model.*write `openai:MODEL`"):
            open_provider("openai", base_url=server.url, environ={})


class _Hostile(BaseHTTPRequestHandler):
    """A server that redirects, or sends a list without an end."""

    def do_GET(self) -> None:
        if self.path.startswith("/r/"):
            self.send_response(302)
            self.send_header("location", "http://127.0.0.1:9/v1/models")
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        try:
            while True:
                self.wfile.write(b" " * 65536)
        except OSError:
            pass

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@contextmanager
def hostile() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Hostile) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.threat("T21")
def test_a_hostile_list_ends_soon_and_no_redirect_is_followed() -> None:
    with hostile() as url:
        made = open_provider("openai:m", base_url=f"{url}/endless", environ={}).provider
        assert offered_models(made) == ()  # type: ignore[arg-type]  # an HttpProvider
        with pytest.raises(SetupError, match="needs a model"):
            open_provider("openai", base_url=f"{url}/r", environ={"OPENAI_API_KEY": KEY})


# ---- no model is named

# fmt: off
CHOICES: list[tuple[str, dict[str, str], str, str, str]] = [
    # configuration, environment, model, a part of why, the case
    ("", {"ANTHROPIC_API_KEY": KEY}, "anthropic:claude-sonnet-5-5", "a key for it is in `ANTHROPIC_API_KEY`", "one key"),
    ("", {"GEMINI_API_KEY": KEY},    "gemini:gemini-4-argon",       "a key for it is in `GEMINI_API_KEY`",    "another one"),
    ('[provider.openai]\nmodel = "gpt-5"', {"OPENAI_API_KEY": KEY}, "openai:gpt-5", "`OPENAI_API_KEY`", "a model for the provider"),
    ("", {"OPENAI_BASE_URL": "http://localhost:1/v1"}, "openai", "its address is in `OPENAI_BASE_URL`", "a local server"),
    ('[provider.openai]\nbase_url = "http://[::1]:1/v1"', {}, "openai", "in the configuration", "a configured one"),
    ('[provider.ollama]\nbase_url = "http://localhost:7/v1"\nmodel = "qwen3"', {}, "ollama:qwen3", "configuration", "an alias"),
    ('[auth.anthropic]\nhelper = ["/bin/false"]', {}, "anthropic:claude-sonnet-5-5", "a helper command", "which is not run"),
    ("", {"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": " "}, "anthropic:claude-sonnet-5-5", "ANTHROPIC", "an empty variable is none"),
    ("", {"ANTHROPIC_API_KEY": KEY, "OPENAI_BASE_URL": "nonsense"}, "anthropic:claude-sonnet-5-5", "ANTHROPIC", "an address that is none"),
    ("", {"ANTHROPIC_API_KEY": KEY, "OPENAI_BASE_URL": "https://x.example/v1"}, "anthropic:claude-sonnet-5-5", "ANTHROPIC",
     "a remote server without a key is not usable"),
]
NOT_CHOSEN: list[tuple[dict[str, str], list[str], str]] = [
    ({}, ["no provider has a key", "`ANTHROPIC_API_KEY`", "ollama:", "agent demo"], "nothing is there"),
    ({"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": KEY},
     ["anthropic (a key for it is in `ANTHROPIC_API_KEY`); openai (", "--model anthropic:claude-sonnet-5-5"], "two keys"),
    ({"OLLAMA_API_KEY": KEY}, ["no provider has a key"], "the key of a local server says not that it runs"),
]
# fmt: on


@pytest.mark.parametrize(("config", "more", "model", "why", "case"), CHOICES, ids=[row[4] for row in CHOICES])
def test_the_only_usable_provider_is_used(
    config: str, more: dict[str, str], model: str, why: str, case: str, tmp_path: Path
) -> None:
    (file := tmp_path / "config.toml").write_text(config)
    environ = environment(tmp_path, **more)
    settings = load(tmp_path, environ, config=file, unattended=True)
    found, said = choose_model(settings, environ, None)
    assert found == model
    assert said.startswith("the default: ")
    assert why in said
    assert KEY not in said
    [finding] = [each for each in doctor_models(settings, environ, keyring=False) if each.name == "model"]
    assert said in finding.detail, "`agent doctor` says the same"


@pytest.mark.parametrize(("more", "words", "case"), NOT_CHOSEN, ids=[row[2] for row in NOT_CHOSEN])
def test_without_a_terminal_the_error_lists_what_there_is(
    more: dict[str, str], words: list[str], case: str, tmp_path: Path
) -> None:
    done = agent(tmp_path, "run", "hi", **more)
    assert done.returncode == Exit.USAGE
    assert "no model is chosen" in done.stderr
    for word in words:
        assert word in done.stderr
    assert KEY not in done.stdout + done.stderr


def test_several_providers_are_a_list_to_choose_from(tmp_path: Path) -> None:
    environ = environment(tmp_path, ANTHROPIC_API_KEY=KEY, OPENAI_API_KEY=KEY)
    settings = load(tmp_path, environ, unattended=True)
    seen: list[ModelRow] = []

    def choose(title: str, rows: list[ModelRow]) -> str:
        seen.extend(rows)
        return rows[1].value

    assert choose_model(settings, environ, choose) == ("openai:gpt-6.2-sol", "")  # type: ignore[arg-type]  # a list is a sequence
    assert [row.label for row in seen] == ["anthropic:claude-sonnet-5-5", "openai:gpt-6.2-sol"]


def test_no_choice_in_the_list_of_models_is_its_own_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def choose(title: str, rows: object) -> None:
        seen.append(title)

    with serving(hello, models=("a", "b")) as server:
        environ = environment(tmp_path, OPENAI_API_KEY=KEY, OPENAI_BASE_URL=server.url)
        monkeypatch.setattr(os, "environ", environ)
        settings = load(tmp_path, environ, unattended=True)
        with pytest.raises(Stopped) as stopped:
            chosen_model(RunArgs(key=KeyFlags()), settings, tmp_path, choose=choose)
    host = server.url.removeprefix("http://").partition("/")[0]
    assert seen == [f"which model of `{host}` (as openai)?"], "the server is named as errors name it"
    assert stopped.value.problem.what == "no model was selected"
    assert stopped.value.problem.fix == "add --model openai:NAME"


@pytest.mark.threat("T21")
@pytest.mark.parametrize(
    ("flags", "own", "config", "refused"),
    [
        (KeyFlags(from_stdin=True), "", "", True),
        (KeyFlags(account="work"), "", "", True),
        (KeyFlags(from_stdin=True), "ollama:m", 'model = "anthropic:m"', True),
        (KeyFlags(from_stdin=True), "anthropic:claude-opus-5-5", 'model = "anthropic:m"', False),
    ],
)
def test_a_given_key_is_for_a_named_provider(
    flags: KeyFlags, own: str, config: str, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file := tmp_path / "config.toml").write_text(config)
    environ = environment(tmp_path, OPENAI_API_KEY=KEY)
    settings = load(tmp_path, environ, config=file, unattended=True)
    monkeypatch.setattr(os, "environ", environ)
    args = RunArgs(key=flags)
    if refused:
        with pytest.raises(Stopped, match="no model is chosen"):
            chosen_model(args, settings, tmp_path, Secret(OTHER), own=own)
        return
    args = RunArgs(key=KeyFlags())
    assert chosen_model(args, settings, tmp_path, Secret(OTHER), own=own).named == own


# ---- the model of the session


def test_a_session_continues_with_its_own_model(tmp_path: Path) -> None:
    with serving(hello, models=("own",)) as server:
        more = {"OPENAI_BASE_URL": server.url}
        first = agent(tmp_path, "run", "one", **more)
        assert first.returncode == 0, first.stderr
        assert "openai:own, the default: its address is in `OPENAI_BASE_URL`" in " ".join(
            (first.stdout + first.stderr).split()
        )
        [id] = [json.loads(row)["id"] for row in agent(tmp_path, "sessions", "list", "--json").stdout.splitlines()]
        server.models = ("other", "further")
        config = tmp_path / "home" / ".config" / "ringfence"
        config.mkdir(parents=True)
        (config / "config.toml").write_text('model = "openai:configured"\n')
        rows = [
            (("run", "-c", "two"), "own", "the latest"),
            (("run", "--resume", id, "two"), "own", "by its id"),
            (("run", "--fork", id, "two"), "own", "a copy"),
            (("run", "--resume", id, "--model", "openai:named", "two"), "named", "a named model wins"),
            (("run", "--resume", id, "two"), "named", "and is the session's own from then on"),
            (("run", "new"), "configured", "a new session has the configured one"),
        ]
        for words, model, why in rows:
            done = agent(tmp_path, *words, **more)
            assert done.returncode == 0, done.stderr
            assert json.loads(server.requests[-1][1])["model"] == model, why


def test_a_missing_key_for_the_own_model_is_the_error(tmp_path: Path) -> None:
    with serving(hello) as server:
        done = agent(tmp_path, "run", "--model", "openai:m", "one", OPENAI_BASE_URL=server.url)
        assert done.returncode == 0, done.stderr
    done = agent(tmp_path, "run", "-c", "two", ANTHROPIC_API_KEY=KEY)
    assert "no API key for `openai`" in done.stderr
    assert "set `OPENAI_API_KEY`" in done.stderr


@pytest.mark.parametrize(("named", "model"), [(None, "a"), ("openai:own", "own")], ids=["its own", "a named one stays"])
def test_a_session_resumed_in_a_conversation_has_its_own_model(
    named: str | None, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(hello, models=("own",)) as server:
        done = agent(tmp_path, "run", "--model", "openai:a", "one", OPENAI_BASE_URL=server.url)
        assert done.returncode == 0, done.stderr
        [id] = [json.loads(row)["id"] for row in agent(tmp_path, "sessions", "list", "--json").stdout.splitlines()]
        monkeypatch.setattr(os, "environ", environment(tmp_path, OPENAI_BASE_URL=server.url))

        async def work() -> tuple[str, str]:
            async with Agent(cwd=tmp_path / "project", model=named) as made:
                first = made.conversation.ctx.live.named
                await made.resume(id)
                await made.run("two")
                await made.clear()
                return first, made.conversation.ctx.live.named

        assert asyncio.run(work()) == ("openai:own", f"openai:{model}")
        assert json.loads(server.requests[-1][1])["model"] == model


@pytest.mark.threat("T21")
def test_a_local_conversation_is_not_sent_to_the_vendor(tmp_path: Path) -> None:
    """The address of the user's server is gone, and there is a key of the vendor."""
    with serving(hello) as server:
        done = agent(tmp_path, "run", "--model", "openai:qwen3:8b", "one", OPENAI_BASE_URL=server.url)
        assert done.returncode == 0, done.stderr
    done = agent(tmp_path, "run", "-c", "two", OPENAI_API_KEY=KEY)
    assert done.returncode == Exit.USAGE
    assert "the model `openai:qwen3:8b` of the session cannot be used" in done.stderr
    assert "--model openai:qwen3:8b" in done.stderr, "which sends it there"


# ---- keys that are missing or refused

# fmt: off
REFUSED: list[tuple[str, Mapping[str, str], list[str], str]] = [
    (KEY, {"OPENAI_API_KEY": KEY}, ["the key from `OPENAI_API_KEY` (ends in `...rong`) was refused",
     "answered 401: Incorrect API key provided", "set `OPENAI_API_KEY` to a valid key"], "of a variable"),
    ("shortkey", {"OPENAI_API_KEY": "shortkey"}, ["the key from `OPENAI_API_KEY` was refused"], "a short key shows nothing"),
]
# fmt: on


@pytest.mark.threat("T20")
@pytest.mark.parametrize(("key", "environ", "words", "why"), REFUSED, ids=[row[3] for row in REFUSED])
def test_a_refused_key_is_named_by_its_source(key: str, environ: Mapping[str, str], words: list[str], why: str) -> None:
    found = find(KeyRequest("openai", environ))
    assert found is not None
    failures = Failures("openai", parse_endpoint("http://127.0.0.1:9/v1"), found.secret, Timeouts(), found)
    said = f"Incorrect API key provided: {key[:8]}****{key[-4:]}. You can find your key at https://x.example\x1b[2J"
    error = failures.status(401, reason_in(json.dumps({"error": {"message": said}}).encode()), "m")
    text = str(error.problem)
    for word in words:
        assert word in text
    assert "auth login" not in text, "the variable is used before the keyring"
    assert text.isprintable()
    shown = text.replace("(ends in `...rong`)", "")
    assert not any(key[at : at + 4] in shown for at in range(len(key) - 3)), text


@pytest.mark.parametrize(
    ("source", "renew", "fix"),
    [
        ("keyring item `ringfence` / `openai`", "replace it with `agent auth login openai --replace`", "--replace"),
        ("helper command", "correct what the helper command of `[auth.openai]` prints", "helper command"),
    ],
)
def test_the_fix_of_a_refused_key_fits_its_source(source: str, renew: str, fix: str) -> None:
    secret = Secret(KEY)
    endpoint = parse_endpoint("https://api.openai.com/v1")
    failures = Failures("openai", endpoint, secret, Timeouts(), FoundKey(secret, source, renew))
    problem = failures.status(401, reason_in(b""), "m").problem
    assert problem.what.startswith(f"the key from {source} (ends in")
    assert problem.why == "`openai` answered 401"
    assert fix in problem.fix


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"key {KEY}!", "key [secret]!"),
        (f"{KEY[:9]}...{KEY[-6:]}", "[secret]...[secret]"),
        (f"{KEY[:4]}", "[secret]"),
        (f"{KEY[:3]} is no part", f"{KEY[:3]} is no part"),
        ("", ""),
        ("nothing of it", "nothing of it"),
    ],
)
def test_parts_of_a_key_are_masked(text: str, shown: str) -> None:
    assert without_parts(text, Secret(KEY)) == shown


def test_the_end_of_a_key() -> None:
    assert ending(Secret("a" * 8 + "bcde")) == "...bcde"
    assert ending(Secret("a" * 7 + "bcde")) == ""


def test_no_key_is_one_reason_and_one_fix(tmp_path: Path) -> None:
    done = agent(tmp_path, "run", "--model", "openai:m", "hi")
    assert done.returncode != 0
    assert "no key was found for it" in done.stderr
    assert "not given" not in done.stderr
    [fix] = [line for line in done.stderr.splitlines() if line.strip().startswith("fix:")]
    assert fix.strip() == "fix: set `OPENAI_API_KEY`", "this machine has no keyring"


# fmt: off
SERVERS = [
    ("openai",     "http://127.0.0.1:11434/v1",   "`127.0.0.1:11434` (as openai)"),
    ("ollama",     "http://localhost:11434/v1",   "`localhost:11434` (as ollama)"),
    ("openai",     "https://models.example/v1",   "`models.example` (as openai)"),
    ("openai",     "https://api.openai.com/v1",   "`openai`"),
    ("openrouter", "https://openrouter.ai/api/v1", "`openrouter`"),
    ("anthropic",  "http://[::1]:8080",           "`[::1]:8080` (as anthropic)"),
]
# fmt: on


@pytest.mark.parametrize(("name", "url", "who"), SERVERS, ids=[row[1] for row in SERVERS])
def test_a_server_is_called_by_its_host(name: str, url: str, who: str) -> None:
    failures = Failures(name, parse_endpoint(url), None, Timeouts())
    for error in (failures.status(402, reason_in(b""), "m"), failures.status(503, reason_in(b""), "m")):
        assert error.problem.what.startswith(who)


def test_a_name_that_does_not_resolve_is_asked_for_once_more(tmp_path: Path) -> None:
    words = ("run", "--model", "openai:m", "hi")
    done = agent(tmp_path, *words, OPENAI_BASE_URL="https://no-such-host.invalid/v1", OPENAI_API_KEY=KEY)
    assert "cannot be resolved" in done.stdout + done.stderr
    assert (done.stdout + done.stderr).count("retry in") == 1


def test_a_listing_works_inside_an_event_loop() -> None:
    async def inside(server: ModelServer) -> str:
        return open_provider("openai", base_url=server.url, environ={}).model

    with serving(hello, models=("m",)) as server:
        assert asyncio.run(inside(server)) == "m"
    with pytest.raises(ProviderError):
        asyncio.run(inside(server))
