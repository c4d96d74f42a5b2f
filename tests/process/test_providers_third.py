"""Tests against a third party's server of the vendors' APIs (`llmock`), to find errors that the program shares with its
own recordings.

It is a real HTTP server that fails on demand, and it judges its client: whether that waited as long as it was asked to,
asked again where that cannot help, or took half a stream for a whole answer.
"""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from llmock import scenarios
from llmock.testing import LLMockServer
from llmock.verdict import judge

from runner.messages import (
    CallOpened,
    CallReady,
    Failure,
    Message,
    Provider,
    ProviderError,
    Reply,
    Request,
    Stop,
    StreamEvent,
    TextBlock,
    TextDelta,
    Thinking,
    ToolMessage,
    ToolResult,
    ToolSpec,
    UserMessage,
)
from runner.providers import open_provider
from runner.providers.endpoint import Timeouts
from tests.support import forked_agent
from tests.support.agent_program import AGENT

KEY = "sk-third-0123456789"
READ = ToolSpec(
    "read_file",
    "Read a file.",
    {
        "type": "object",
        "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}},
        "required": ["path"],
    },
)
# name -> what is opened, where below the server, by which API
WAYS = {
    "anthropic": ("anthropic:claude-sonnet-5-5", "/anthropic", None),
    "openai": ("openai:qwen3", "/v1", None),
    "responses": ("openai:gpt-6.2-sol", "/v1", "responses"),
    "gemini": ("gemini:gemini-4-argon", "/gemini", None),
}

# The place of the thinking level in a request, and its value.
THINKS = {
    "anthropic": (("output_config", "effort"), "low"),
    "openai": (("reasoning_effort",), "low"),
    "responses": (("reasoning", "effort"), "low"),
    "gemini": (("generationConfig", "thinkingConfig", "thinkingLevel"), "LOW"),
}


@pytest.fixture(scope="module")
def third() -> Iterator[LLMockServer]:
    with LLMockServer() as server:
        yield server


@pytest.fixture(autouse=True)
def fresh(third: LLMockServer) -> None:
    third.state.reset()


def opened(third: LLMockServer, name: str) -> tuple[Provider, str]:
    spec, below, api = WAYS[name]
    environ = {"ANTHROPIC_API_KEY": KEY, "OPENAI_API_KEY": KEY, "GEMINI_API_KEY": KEY}
    found = open_provider(
        spec, base_url=third.url + below, environ=environ, api=api, timeouts=Timeouts(connect=20, read=60, total=120)
    )
    return found.provider, found.model


def ask(third: LLMockServer, name: str, *requests: Request) -> list[list[StreamEvent]]:
    provider, _ = opened(third, name)

    async def run() -> list[list[StreamEvent]]:
        try:
            return [[event async for event in provider.stream(request)] for request in requests]
        finally:
            await provider.close()

    return asyncio.run(run())


def hello(name: str, *more: Message, tools: tuple[ToolSpec, ...] = (), thinking: Thinking = Thinking.OFF) -> Request:
    model = WAYS[name][0].partition(":")[2]
    said: tuple[Message, ...] = (UserMessage((TextBlock("read the file a.txt"),)), *more)
    return Request(model, "Be brief.", said, tools, thinking=thinking)


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("thinking", [Thinking.OFF, Thinking.LOW])
def test_a_call_and_its_result(third: LLMockServer, name: str, thinking: Thinking) -> None:
    wanted = {"path": "a ü 🦔.txt", "lines": 7}
    third.state.scenarios.add(scenarios.Reply(tool_calls=(scenarios.ToolCall("read_file", wanted),)))
    [events] = ask(third, name, hello(name, tools=(READ,), thinking=thinking))
    reply = events[-1]
    assert isinstance(reply, Reply)
    [call] = reply.message.calls
    assert (call.name, call.arguments, reply.stop) == ("read_file", wanted, Stop.TOOLS)
    assert [event for event in events if isinstance(event, CallOpened | CallReady)] == [
        CallOpened("read_file"),
        CallReady(call),
    ]
    assert reply.usage.input > 0
    assert reply.usage.output > 0

    third.state.scenarios.add(scenarios.Reply(text="It says: hello 🦔."))
    result = ToolMessage((ToolResult(call.id, (TextBlock("hello"),)),))
    [events] = ask(third, name, hello(name, reply.message, result, tools=(READ,), thinking=thinking))
    answer = events[-1]
    assert isinstance(answer, Reply)
    assert answer.stop is Stop.END
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "It says: hello 🦔."
    statuses = [record.status for record in third.state.journal.records(wait=20)]
    assert statuses == [200, 200], "it takes our requests, the result in the second among them"


# fmt: off
FAULTS = [
    (scenarios.Fail(429, retry_after=2), Failure.RATE_LIMITED, 2.0, "a limit"),
    (scenarios.Fail(500), Failure.RETRYABLE, None, "failing"),
    (scenarios.Fail(503, retry_after=1), Failure.OVERLOADED, 1.0, "busy"),
    (scenarios.Fail(401), Failure.AUTH, None, "a wrong key"),
    (scenarios.Fail(403), Failure.AUTH, None, "no right"),
    (scenarios.Fail(404), Failure.FATAL, None, "no such model"),
    (scenarios.Fail(400), Failure.FATAL, None, "a wrong request"),
    (scenarios.Fail(400, code="context_length_exceeded", message="This model's maximum context length was exceeded."),
     Failure.CONTEXT, None, "too long"),
    (scenarios.StreamFault("disconnect", after_chunks=2), Failure.RETRYABLE, None, "the line breaks"),
    (scenarios.StreamFault("truncate", after_chunks=2), Failure.RETRYABLE, None, "it ends early, without a word"),
    (scenarios.StreamFault("malformed", after_chunks=2), Failure.FATAL, None, "a part of it is no JSON"),
]
# fmt: on


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize(("fault", "failure", "wait", "why"), FAULTS, ids=[each[3] for each in FAULTS])
def test_a_fault_is_a_failure_of_its_class(
    third: LLMockServer, name: str, fault: scenarios.Behavior, failure: Failure, wait: float | None, why: str
) -> None:
    third.state.scenarios.add(fault)
    with pytest.raises(ProviderError) as caught:
        ask(third, name, hello(name))
    assert (caught.value.failure, caught.value.retry_after) == (failure, wait), (why, caught.value)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("name", [name for name in WAYS if name != "gemini"])  # whose calls come in one piece
def test_a_call_that_breaks_off_is_never_given_away(third: LLMockServer, name: str) -> None:
    """The arguments of half a call are not arguments, whatever they look like."""
    long = {"path": "x" * 400}
    third.state.scenarios.add(scenarios.Reply(tool_calls=(scenarios.ToolCall("read_file", long),)))
    third.state.scenarios.add(scenarios.StreamFault("truncate", after_chunks=1))
    provider, _ = opened(third, name)
    seen: list[StreamEvent] = []

    async def run() -> None:
        try:
            async for event in provider.stream(hello(name, tools=(READ,))):
                seen.append(event)
        finally:
            await provider.close()

    with pytest.raises(ProviderError):
        asyncio.run(run())
    assert not [event for event in seen if isinstance(event, CallReady)]
    assert not [event for event in seen if isinstance(event, Reply)]


@pytest.mark.parametrize("name", WAYS)
def test_a_whole_run_is_judged_by_the_server(third: LLMockServer, name: str, tmp_path: Path) -> None:
    """`agent run` through a limit and a busy server: it waits as it is asked to, asks again, and ends well."""
    spec, _, api = WAYS[name]
    home, project = tmp_path / "home", tmp_path / "project"
    (home / ".config" / "ringfence").mkdir(parents=True)
    project.mkdir()
    settings = home / ".config" / "ringfence" / "config.toml"
    settings.write_text('thinking = "low"\n' + (f'[provider.openai]\napi = "{api}"\n' if api else ""))
    settings.chmod(0o600)
    (project / "a.txt").write_text("hello\n")
    third.state.scenarios.add(scenarios.Fail(429, retry_after=0.4, times=2))
    third.state.scenarios.add(scenarios.Reply(tool_calls=(scenarios.ToolCall("read", {"path": "a.txt"}),)))
    third.state.scenarios.add(scenarios.Fail(503))
    third.state.scenarios.add(scenarios.Reply(text="The file says hello, and that is all."))
    environ = {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "XDG_CONFIG_HOME": str(home / ".config"),
        "ANTHROPIC_API_KEY": KEY,
        "OPENAI_API_KEY": KEY,
        "GEMINI_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": f"{third.url}/anthropic",
        "OPENAI_BASE_URL": f"{third.url}/v1",
        "GOOGLE_GEMINI_BASE_URL": f"{third.url}/gemini",
    }
    agent = [AGENT, "run", "--model", spec, "--unattended", "read a.txt"]
    done = forked_agent.run(agent, cwd=project, env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The file says hello, and that is all." in done.stdout
    records = third.state.journal.records(wait=20)
    assert [record.status for record in records] == [429, 429, 503, 200, 200]
    found: object = records[-1].body
    for step in THINKS[name][0]:
        found = found[step] if isinstance(found, dict) else None
    assert found == THINKS[name][1], "the configuration says how much it thinks"
    findings = judge(records).findings
    assert [each for each in findings if each.severity == "error"] == [], findings
