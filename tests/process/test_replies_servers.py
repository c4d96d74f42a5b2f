"""Tests of whole runs against servers on loopback that break off, are busy, or refuse a conversation as too long."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.reply_servers import DONE, END, Answer, Events, Server, _event, agent, began, ended, of, text

# ---- Anthropic's stream


def tool(index: int, command: str, whole: bool = True) -> list[str]:
    raw = json.dumps({"command": command})
    block = {"type": "tool_use", "id": f"toolu_{index}", "name": "bash", "input": {}}
    parts = (raw[:9], raw[9:]) if whole else (raw[:9],)
    deltas = [
        _event("content_block_delta", index=index, delta={"type": "input_json_delta", "partial_json": part})
        for part in parts
    ]
    stop = [_event("content_block_stop", index=index)] if whole else []
    return [_event("content_block_start", index=index, content_block=block), *deltas, *stop]


OVERLOADED: Answer = (529, {}, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})


def said(events: Events) -> str:
    return "".join(event["text"] for event in events if event["type"] == "text")


def test_an_answer_that_breaks_off_twice_is_one_answer_for_everybody(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    server = serve(
        [*began(), *text(0, "I look into", " the mak", whole=False)],
        [
            *began(),
            *text(0, "I look into", " the makefile."),
            *tool(1, "cat makefile"),
            *tool(2, "touch x", whole=False),
        ],
        DONE,
    )
    code, events = agent(tmp_path, server.url)
    assert code == 0
    assert said(events) == "I look into the makefile.done"
    assert [event["failure"] for event in of(events, "retrying")] == ["retryable"]
    (finished,) = of(events, "finished")
    assert finished["text"].startswith("all:")
    assert not (tmp_path / "work/x").exists(), "a call that was not whole is lost"
    first, second, third = (body["messages"] for body in server.bodies)
    assert [message["role"] for message in second] == [*(message["role"] for message in first), "assistant", "user"]
    assert "note of the program" in json.dumps(second[-1])
    assistant, results = third[-2:]
    assert [block["type"] for block in assistant["content"]] == ["text", "tool_use"]
    assert assistant["content"][0]["text"] == "I look into the makefile."
    assert [block["tool_use_id"] for block in results["content"]] == ["toolu_1"]
    assert "note of the program" not in json.dumps(third)


# ---- the other protocols


def _data(*events: dict[str, Any]) -> list[str]:
    return [f"data: {json.dumps(event)}\n\n" for event in events]


def _chat(*deltas: dict[str, Any], end: str | None = None) -> list[str]:
    last = [{"choices": [{"index": 0, "delta": {}, "finish_reason": end}]}] if end else []
    return _data(*({"choices": [{"index": 0, "delta": delta}]} for delta in deltas), *last)


def _chat_call(index: int, arguments: str) -> dict[str, Any]:
    function = {"name": "bash", "arguments": arguments}
    return {"tool_calls": [{"index": index, "id": f"c{index}", "type": "function", "function": function}]}


def _parts(*parts: dict[str, Any], end: str | None = None) -> list[str]:
    found: list[dict[str, Any]] = [{"candidates": [{"content": {"role": "model", "parts": [part]}}]} for part in parts]
    return _data(*found, *([{"candidates": [{"finishReason": end}]}] if end else []))


def _gemini_call(command: str) -> dict[str, Any]:
    return {"functionCall": {"name": "bash", "args": {"command": command}}}


def _item(kind: str, index: int, **item: object) -> dict[str, Any]:
    return {"type": f"response.output_item.{kind}", "output_index": index, "item": item}


def _words(text: str) -> list[dict[str, Any]]:
    return [
        _item("added", 0, type="message"),
        {"type": "response.output_text.delta", "output_index": 0, "delta": text},
    ]


def _arguments(index: int, text: str, whole: bool) -> list[dict[str, Any]]:
    call = {"type": "function_call", "call_id": f"c{index}", "name": "bash"}
    delta = {"type": "response.function_call_arguments.delta", "output_index": index, "delta": text}
    return [_item("added", index, **call), delta, *([_item("done", index, **call, arguments=text)] if whole else [])]


CAT = json.dumps({"command": "cat makefile"})
RESPONSE: dict[str, Any] = {
    "type": "response.completed",
    "response": {"usage": {"input_tokens": 9, "output_tokens": 9}},
}
# Answers that break off in the text, answers that break off after a call, and complete ones.
# fmt: off
PROTOCOLS: dict[str, tuple[Answer, Answer, Answer]] = {
    "openai:theirs": (
        _chat({"content": "I look into"}, {"content": " the mak"}),
        _chat({"content": "I look into the makefile."}, _chat_call(0, CAT), _chat_call(1, CAT[:9])),
        [*_chat({"content": "done"}, end="stop"), "data: [DONE]\n\n", END],
    ),
    "openai:gpt-5": (
        _data(*_words("I look into the mak")),
        _data(*_words("I look into the makefile."), *_arguments(1, CAT, True), *_arguments(2, CAT[:9], False)),
        [*_data(*_words("done"), _item("done", 0, type="message"), RESPONSE), END],
    ),
    "gemini:gemini-4-argon": (
        _parts({"text": "I look into"}, {"text": " the mak"}),
        _parts({"text": "I look into the makefile."}, _gemini_call("cat makefile")),
        [*_parts({"text": "done"}, end="STOP"), END],
    ),
}
# fmt: on


@pytest.mark.parametrize("model", PROTOCOLS)
def test_it_is_the_same_with_every_protocol(serve: Callable[..., Server], tmp_path: Path, model: str) -> None:
    server = serve(*PROTOCOLS[model])
    keys = {
        "OPENAI_API_KEY": "sk-of-nobody-0123456789abcdef",
        "GEMINI_API_KEY": "AIza-of-nobody-0123456789abcdefghijklmn",
    }
    urls = {"OPENAI_BASE_URL": f"{server.url}/v1", "GOOGLE_GEMINI_BASE_URL": server.url}
    if model == "openai:gpt-5":
        home = tmp_path / "home/.config/ringfence"
        home.mkdir(parents=True)
        (home / "config.toml").write_text('[provider.openai]\napi = "responses"\n')
    code, events = agent(tmp_path, server.url, "--model", model, **keys, **urls)
    assert code == 0, events[-1]
    assert said(events) == "I look into the makefile.done"
    assert [event["failure"] for event in of(events, "retrying")] == ["retryable"]
    (finished,) = of(events, "finished")
    assert finished["text"].startswith("all:")
    assert len(server.bodies) == 3
    assert "note of the program" in json.dumps(server.bodies[1])
    assert "note of the program" not in json.dumps(server.bodies[2])
    assert "I look into the makefile." in json.dumps(server.bodies[2])


def test_a_reading_is_done_before_its_answer_is_whole(serve: Callable[..., Server], tmp_path: Path) -> None:
    """The stream stands still behind the call until the program has said how the call ended."""
    server = serve([*began(), *tool(0, "cat makefile")], DONE)
    code, events = agent(tmp_path, server.url)
    assert code == 0
    kinds = [event["type"] for event in events]
    assert kinds.index("tool_proposed") < kinds.index("notice") < kinds.index("run_ended")
    assert "the complete call is executed" in of(events, "notice")[0]["text"]
    assert len(of(events, "finished")) == 1


def test_a_busy_server_is_asked_again_when_it_says(serve: Callable[..., Server], tmp_path: Path) -> None:
    server = serve((429, {"retry-after": "1"}, {"error": {"type": "rate_limit_error", "message": "slowly"}}), DONE)
    code, events = agent(tmp_path, server.url)
    assert code == 0
    (retrying,) = of(events, "retrying")
    assert retrying["failure"] == "rate_limited"
    assert 1 <= retrying["wait"] <= 1.5, "not sooner"
    assert (retrying["attempt"], retrying["attempts"]) == (1, 7)


def test_a_wait_beyond_the_end_of_the_run_is_not_begun(serve: Callable[..., Server], tmp_path: Path) -> None:
    server = serve((429, {"retry-after": "500"}, {"error": {"type": "rate_limit_error", "message": "slowly"}}))
    code, events = agent(tmp_path, server.url, "--timeout", "120s")
    assert code == 1
    assert of(events, "retrying") == []
    assert "asks for a retry after 500 s" in of(events, "notice")[-1]["text"]
    assert len(server.bodies) == 1


def test_another_provider_goes_on_in_the_middle_of_an_answer(serve: Callable[..., Server], tmp_path: Path) -> None:
    busy = serve([*began(), *text(0, "I look into the mak", whole=False)], OVERLOADED)
    chunks = [
        {"choices": [{"index": 0, "delta": {"content": "I look into the makefile"}}]},
        {"choices": [{"index": 0, "delta": {"content": "."}, "finish_reason": "stop"}]},
    ]
    other = serve([*(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks), "data: [DONE]\n\n", END])
    home = tmp_path / "home/.config/ringfence"
    home.mkdir(parents=True)
    (home / "config.toml").write_text('fallback_model = "openai:theirs"\n')
    key = "sk-of-another-0123456789abcdef"
    code, events = agent(tmp_path, busy.url, OPENAI_API_KEY=key, OPENAI_BASE_URL=f"{other.url}/v1")
    assert code == 0
    assert said(events) == "I look into the makefile."
    assert [(event["was"], event["now"]) for event in of(events, "changed")] == [
        ("anthropic:claude-opus-4-5", "openai:theirs"),
        ("openai:theirs", "anthropic:claude-opus-4-5"),
    ]
    assert len(busy.bodies) == 5
    (body,) = other.bodies
    assert body["model"] == "theirs"
    assert body["messages"][-2] == {"role": "assistant", "content": "I look into the mak"}


def test_a_conversation_that_is_too_long_is_shown_shorter(serve: Callable[..., Server], tmp_path: Path) -> None:
    """The server's word counts, whatever is known of the model."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work/long").write_text("a line of the long file\n" * 1500)
    long: Answer = (
        400,
        {},
        {"error": {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000 maximum"}},
    )
    reads: Answer = [*began(), *tool(0, "cat long"), *ended("tool_use")]
    server = serve(reads, reads, reads, long, DONE)
    code, events = agent(tmp_path, server.url)
    assert code == 0, events[-1]
    assert of(events, "compacted")
    sizes = [len(json.dumps(body["messages"])) for body in server.bodies]
    assert sizes[-1] < max(sizes) * 0.7
