"""Tests of failures of a model server over loopback HTTP: each gives a clear error, no hang, and no key in any output.

Every case is asked with a canary key and with all logging at DEBUG. Afterwards the canary must be in one place only:
the one header of the request.
"""

import asyncio
import gzip
import json
import logging
import random
import socket
import traceback
import tracemalloc
import zlib

import pytest

from runner.messages import Failure, Provider, ProviderError, Reply, TextDelta
from runner.providers.anthropic import AnthropicProvider
from runner.providers.endpoint import Timeouts, parse_endpoint
from runner.providers.failures import ErrorReason, about_thoughts, wait_of, window_of
from runner.providers.openai import OpenAiProvider
from runner.secrets.secret import Secret
from runner.text.gunzip import STEP
from tests.wire import loopback

CLOSE, RESET, STALL = loopback.CLOSE, loopback.RESET, loopback.STALL
head, chunked, stream, whole, wire = loopback.head, loopback.chunked, loopback.stream, loopback.whole, loopback.wire

CANARY = "sk-canary-51b7c0d9e8f2"
PATIENT = Timeouts(connect=60, read=300, total=600)
QUICK = Timeouts(connect=60, read=0.75, total=600)  # for an answer that never goes on
STREAMING = head("200 OK", "text/event-stream", "transfer-encoding: chunked")

TOOLS = {"anthropic": wire("anthropic-tools"), "openai": wire("openai-tools")}


def raw_chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def up_to(name: str, marker: str) -> bytes:
    """The recorded answer up to `marker`."""
    return TOOLS[name][: TOOLS[name].index(marker.encode())]


def sse(*events: object, name: str = "") -> bytes:
    label = f"event: {name}\n" if name else ""
    return "".join(f"{label}data: {e if isinstance(e, str) else json.dumps(e)}\n\n" for e in events).encode()


def body(**error: object) -> bytes:
    return json.dumps({"type": "error", "error": error}).encode()


HALF_TEXT = up_to("openai", " and read").rpartition(b"data: ")[0]
HTML = b"<!DOCTYPE html><html><body><h1>Sign in</h1></body></html>"
ECHO = f"your key {CANARY} is wrong, \x1b[31mreally\x1b[0m".encode()

# provider, what the server does, status, retryable, words of the Problem
# fmt: off
CASES = [
    # ---- statuses
    ("anthropic", whole("401 Unauthorized", body(type="authentication_error", message=f"invalid key {CANARY[:16]}")),
     401, False, ["was refused", "ends in `...", "invalid key", "ANTHROPIC_API_KEY"], "wrong key"),
    ("openai", whole("401 Unauthorized", body(message=f"Incorrect API key: {CANARY}.", code="invalid_api_key")),
     401, False, ["was refused", "Incorrect API key", "OPENAI_API_KEY"], "wrong key"),
    ("anthropic", whole("403 Forbidden", body(type="permission_error", message="no access to this model")),
     403, False, ["refused access", "no access to this model", "the key may use"], "forbidden"),
    ("openai", whole("403 Forbidden", HTML, "text/html"),
     403, False, ["refused access", "a web page came back"], "a firewall's page"),
    ("anthropic", whole("404 Not Found", body(type="not_found_error", message="model: some-model")),
     404, False, ["`some-model`", "model: some-model"], "no such model"),
    ("openai", whole("404 Not Found", b'{"error":"model \'some-model\' not found, try pulling it first"}'),
     404, False, ["`some-model`", "try pulling it first"], "no such model, in a local server's words"),
    ("openai", whole("404 Not Found", b"404 page not found", "text/plain"),
     404, False, ["`some-model`", "base URL", "404 page not found"], "a base URL without /v1"),
    ("anthropic", whole("400 Bad Request", body(type="invalid_request_error", message="max_tokens: 16384 > 8192")),
     400, False, ["did not accept the request", "max_tokens: 16384 > 8192"], "bad request"),
    ("openai", whole("422 Unprocessable Entity", b'{"detail": "extra field"}'),
     422, False, ["did not accept the request", "extra field"], "bad request, in a third server's words"),
    ("openai", whole("400 Bad Request", b'[{"error": {"code": 400, "message": "in a list"}}]'),
     400, False, ["in a list"], "an error in a list"),
    ("anthropic", whole("400 Bad Request", ECHO, "text/plain"),
     400, False, ["your key [secret] is wrong", "\N{SYMBOL FOR ESCAPE}[31m"], "a key and an escape sequence echoed"),
    ("openai", whole("400 Bad Request", b"x" * 290 + CANARY.encode() + b"y" * 500, "text/plain"),
     400, False, ["xxx[secret]"[:6]], "a key where the quote is cut"),
    ("openai", whole("400 Bad Request", b"x" * ((64 << 10) - 10) + CANARY.encode(), "text/plain"),
     400, False, ["xxx"], "a key where the reading stops"),
    ("anthropic", whole("413 Payload Too Large", body(type="request_too_large", message="too large")),
     413, False, ["too large"], "too large"),
    ("anthropic", whole("429 Too Many Requests", body(type="rate_limit_error", message="slow down")),
     429, True, ["limits the number of requests or tokens", "slow down", "wait"], "rate limit"),
    ("openai", whole("429 Too Many Requests", body(message="You exceeded your quota", code="insufficient_quota")),
     429, False, ["payment", "add credit"], "no credit is nothing to wait for"),
    ("openai", whole("402 Payment Required", body(message="no credits")),
     402, False, ["payment", "no credits"], "no credit"),
    ("anthropic", whole("529 ", body(type="overloaded_error", message="Overloaded")),
     529, True, ["overloaded", "529", "Overloaded"], "overloaded"),
    ("anthropic", whole("500 Internal Server Error", b""), 500, True, ["internal error", "500"], "an empty error"),
    ("openai", whole("502 Bad Gateway", HTML, "text/html"), 502, True, ["502", "a web page"], "bad gateway"),
    ("openai", whole("503 Service Unavailable", b'{"error":{"message":"Loading model","code":503}}'),
     503, True, ["Loading model"], "a local server that still loads"),
    ("openai", whole("504 Gateway Timeout", b"\xff\xfe\x00"), 504, True, ["504"], "bytes that are no text"),
    ("anthropic", [head("500 Oops", "application/json", "content-length: 900") + b'{"error"', STALL],
     500, True, ["500"], "an error that stalls"),
    ("anthropic", [head("500 Oops", "application/json", "content-length: 900") + b'{"error"', CLOSE],
     500, True, ["500"], "an error that breaks off"),
    # ---- redirects: the key is not carried elsewhere
    *[(name, whole(f"{status} Moved", b"", "text/html", f"location: http://127.0.0.1:1/{CANARY}"),
       status, False, ["redirects", "base URL"], f"redirect {status}")
      for name in ("anthropic", "openai") for status in (301, 302, 307, 308)],
    # ---- a 200 that is no stream
    ("anthropic", whole("200 OK", HTML, "text/html; charset=utf-8"),
     None, False, ["did not stream", "`text/html`", "login"], "a login page"),
    ("openai", whole("200 OK", b'{"choices": [{"message": {"content": "hi"}}]}'),
     None, False, ["did not stream", "`application/json`"], "an answer in one piece"),
    ("openai", whole("200 OK", b'{"error": {"message": "no such route"}}'),
     500, True, ["no such route"], "an error that says 200"),
    ("openai", whole("200 OK", HTML, f"text/{CANARY}"),
     None, False, ["`text/[secret]`"], "a key in the content type"),
    ("anthropic", [head("200 OK", None, "content-length: 5") + b"hello"],
     None, True, ["incomplete"], "neither a type nor an event"),
    ("anthropic", [head("204 No Content", None)], 204, False, ["204"], "no content"),
    # ---- errors inside the stream
    ("anthropic", stream(up_to("anthropic", "event: ping") + sse(
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, name="error")),
     529, True, ["overloaded", "its answer was an error: Overloaded"], "overloaded midway"),
    ("anthropic", stream(sse({"type": "error", "error": {"type": "authentication_error", "message": CANARY}})),
     401, False, ["was refused"], "a wrong key, told late"),
    ("anthropic", stream(sse({"type": "error", "error": {"type": "new_error", "message": f"at {CANARY}"}})),
     500, True, ["at [secret]"], "an error that is new"),
    ("anthropic", stream(sse({"type": "error", "error": None})), 500, True, ["its answer was an error;"], "an error without words"),
    ("openai", stream(HALF_TEXT + sse({"error": {"message": "Provider disconnected", "code": 502},
                                       "choices": [{"delta": {}, "finish_reason": "error"}]})),
     502, True, ["Provider disconnected"], "a router's error midway"),
    ("openai", stream(sse({"error": {"message": "slow down", "type": "rate_limit_exceeded"}})),
     429, True, ["slow down"], "an error by its type"),
    ("openai", stream(sse({"error": f"boom {CANARY}"})), 500, True, ["boom [secret]"], "an error that is only text"),
    ("openai", stream(sse({"message": "bad"}, name="error")), 500, True, ["bad"], "an event named error"),
    # ---- streams that end early
    *[(name, stream(up_to(name, marker)), None, True, ["incomplete", where], f"{name} ends {where}")
      for name, marker, where in [
          ("anthropic", "event: message_start", "before"),
          ("anthropic", "event: content_block_start", "before"),
          ("anthropic", "make te", "inside a tool call"),
          ("anthropic", "event: message_delta", "inside a tool call"),
          ("anthropic", "event: message_stop", "inside a tool call"),
          ("openai", "data:", "before"),
          ("openai", "tool_calls", "before"),
          ("openai", '{\\"script', "inside a tool call"),
          ("openai", '"finish_reason":"tool_calls"', "inside a tool call"),
      ]],
    ("openai", stream(b"data: [DONE]\n\n"),
     None, True, ["incomplete", "before the answer began"], "done before it began"),
    ("anthropic", stream(TOOLS["anthropic"].removesuffix(b"\n")),
     None, True, ["incomplete"], "the last blank line is missing"),
    # ---- connections that break
    *[(name, steps, None, True, words, f"{name} {why}") for name in TOOLS for steps, words, why in [
        ([STREAMING, raw_chunk(up_to(name, "make te")), CLOSE], ["connection", "broke"], "closes inside a tool call"),
        ([STREAMING, raw_chunk(up_to(name, "make te")), RESET], ["connection", "broke"], "resets inside a tool call"),
        ([STREAMING, raw_chunk(up_to(name, "make te")), STALL], ["stopped sending", "0.75 seconds"], "stalls midway"),
        ([STREAMING, STALL], ["stopped sending"], "stalls before the first event"),
        ([STALL], ["stopped sending"], "never answers"),
        ([CLOSE], ["connection", "broke"], "closes at once"),
        ([RESET], ["connection", "broke"], "resets at once"),
        ([b"HTTP/1.1 200 O", CLOSE], ["connection", "broke"], "closes inside the status line"),
        ([head("200 OK", "text/event-stream", "content-length: 9000") + b"data: ", CLOSE], ["broke"], "sends too little"),
        ([b"SSH-2.0-OpenSSH_9.9\r\n", CLOSE], ["broke"], "is no web server"),
        ([STREAMING, b"zz\r\nhello\r\n"], ["broke"], "breaks the chunk format"),
        ([head("200 OK", "text/event-stream", f"x-{'a' * 300_000}: b")], ["broke"], "sends a header without end"),
    ]],
    # ---- streams that cannot be read
    *[(name, stream(data), None, False, ["cannot be read", *words], f"{name} {why}") for name, data, words, why in [
        ("anthropic", b"event: message_start\ndata: {oops\n\n", ["not JSON"], "sends no JSON"),
        ("anthropic", b"data: [1]\n\n", ["not JSON"], "sends a list"),
        ("anthropic", b"data: " + b"[" * 200_000 + b"\n\n", ["not JSON"], "sends bottomless JSON"),
        ("anthropic", b"data: \n\n", ["not JSON"], "sends empty data"),
        ("anthropic", sse({"type": "content_block_delta", "index": 5, "delta": {"type": "text_delta", "text": "x"}}),
         ["no block"], "sends a part of nothing"),
        ("anthropic", sse({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
                          {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta"}}),
         ["another type"], "sends arguments into text"),
        ("anthropic", sse({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
                          {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": 7}}),
         ["another type"], "sends a number as text"),
        ("anthropic", sse({"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": 7}}),
         ["lacks fields"], "sends a call without a name"),
        ("anthropic", sse({"type": "content_block_start", "content_block": []}), ["lacks fields"], "sends a block of nothing"),
        ("openai", b"data: {oops\n\n", ["not JSON"], "sends no JSON"),
        ("openai", sse({"choices": 7}), ["lacks fields"], "sends a number as choices"),
        ("openai", sse({"choices": [7]}), ["lacks fields"], "sends a number as a choice"),
        ("openai", sse({"choices": [{"delta": {"content": 7}}]}), ["`content`"], "sends a number as text"),
        ("openai", sse({"choices": [{"delta": {"tool_calls": 7}}]}), ["lacks fields"], "sends a number as calls"),
        ("openai", sse({"choices": [{"delta": {"tool_calls": [7]}}]}), ["lacks fields"], "sends a number as a call"),
        ("openai", sse({"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": 7}}]}}]}),
         ["arguments"], "sends a number as arguments"),
    ]],
    ("anthropic", [head("200 OK", "text/event-stream", "content-encoding: gzip", "content-length: 5") + b"hello"],
     None, False, ["compressed and damaged"], "damaged compression"),
    ("openai", [STREAMING, *[raw_chunk(b"data: " + b"a" * (1 << 20))] * 18, STALL],
     None, False, ["larger than the limit"], "an event without end"),
    # ---- the key, echoed where only logs would show it
    ("anthropic", [head(f"400 no {CANARY}", "text/plain", f"set-cookie: {CANARY}={CANARY}", "content-length: 0")],
     400, False, ["400"], "the key in the reason phrase and in a header"),
]
# fmt: on


def make(name: str, url: str, timeouts: Timeouts = PATIENT, key: str | None = CANARY) -> Provider:
    return loopback.make(name, url, key, timeouts)


def exposed(error: ProviderError) -> str:
    """Everything that a log, a crash report or a debugger prints of an exception."""
    rich = traceback.TracebackException.from_exception(error, capture_locals=True)
    ours = [frame for frame in rich.stack if "/tests/" not in frame.filename]  # the tests' own frames know the key
    assert ours
    rich.stack[:] = ours
    chain = [repr(each) for each in (error, error.__cause__, error.__context__, error.args, vars(error))]
    return "\n".join([*rich.format(), *chain, str(error), repr(error.problem)])


@pytest.fixture
def every_log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    for name in ("", "httpx", "httpcore", "asyncio", *(n for n in logging.root.manager.loggerDict if "http" in n)):
        caplog.set_level(logging.DEBUG, logger=name or None)
    return caplog


def only_in_the_header(received: list) -> None:
    for each in received:
        assert CANARY.encode() not in each.body
        lines = [line for line in each.lines if CANARY in line]
        assert len(lines) == 1
        assert lines[0].lower().startswith(("x-api-key: ", "authorization: bearer "))


@pytest.mark.parametrize(
    ("message", "code", "expected"),
    [
        ("messages.1.content.0: Invalid `signature` in `thinking` block", "invalid_request_error", True),
        ("The encrypted content gAAA...DQ== could not be verified.", "invalid_encrypted_content", True),
        ("Invalid thought_signature", "", True),
        ("Function call is missing a thought_signature in functionCall parts", "", False),
        ("thinking.budget_tokens: Input should be greater than or equal to 1024", "", False),
        ("max_tokens: too many", "", False),
    ],
)
def test_what_is_about_the_marks_of_thoughts(message: str, code: str, expected: bool) -> None:
    assert about_thoughts(ErrorReason(message, code)) is expected


@pytest.mark.threat("T21")
@pytest.mark.threat("T20")
@pytest.mark.parametrize(
    ("name", "steps", "status", "retryable", "words", "why"), CASES, ids=[f"{case[0]}: {case[5]}" for case in CASES]
)
def test_a_failing_server_is_a_problem(
    name: str, steps: list, status: int | None, retryable: bool, words: list[str], why: str, every_log
) -> None:
    async def run() -> tuple[ProviderError, list]:
        async with loopback.Loopback([steps]) as server:
            silent = steps[-1] is STALL and "larger than the limit" not in words
            provider = make(name, server.url, QUICK if silent else PATIENT)
            try:
                await loopback.ask(provider)
            except ProviderError as error:
                assert CANARY not in repr(provider) + repr(vars(provider))
                return error, server.requests
            finally:
                await provider.close()
            raise AssertionError("no error was raised")

    error, received = asyncio.run(run())
    assert (error.status, error.retryable) == (status, retryable)
    text = str(error.problem)
    for word in words:
        assert word in text, text
    assert error.problem.fix
    assert error.problem.what.isprintable()
    assert error.problem.why.isprintable()
    assert len(text) < 1000
    assert error.__cause__ is None
    assert error.__context__ is None, "a library's exception holds the request, and that the key"
    for part in (CANARY, CANARY[:14], CANARY[6:]):
        assert part not in exposed(error)
        assert part not in every_log.text
    assert len(received) == 1
    only_in_the_header(received)


@pytest.mark.threat("T20")
def test_the_log_check_would_find_a_key(every_log) -> None:
    """The transport does log the headers of answers: without the filter, an echoed key would be in the log."""
    transport = logging.getLogger("httpcore.http11")
    [quiet] = transport.filters
    transport.removeFilter(quiet)
    try:
        answer = [head("400 no", "text/plain", f"x-echo: {CANARY}", "content-length: 0")]

        async def run() -> None:
            async with loopback.Loopback([answer]) as server:
                with pytest.raises(ProviderError):
                    await loopback.ask(make("anthropic", server.url))

        asyncio.run(run())
    finally:
        transport.addFilter(quiet)
    assert CANARY in every_log.text


@pytest.mark.threat("T20")
@pytest.mark.parametrize("name", ["anthropic", "openai"])
def test_a_whole_conversation_leaves_no_trace_of_the_key(name: str, every_log) -> None:
    async def run() -> list:
        async with loopback.Loopback([stream(TOOLS[name])] * 2) as server:
            provider = make(name, server.url)
            seen = [await loopback.ask(provider) for _ in range(2)]
            assert CANARY not in repr(seen) + repr(provider) + repr(vars(provider))
            assert server.connections == 1, "the second request reuses the connection"
            await provider.close()
            return server.requests

    received = asyncio.run(run())
    assert len(received) == 2
    only_in_the_header(received)
    assert CANARY not in every_log.text


@pytest.mark.parametrize("name", ["anthropic", "openai"])
def test_without_a_key_none_is_sent_and_a_401_says_so(name: str) -> None:
    async def run() -> tuple[ProviderError, list]:
        async with loopback.Loopback([whole("401 Unauthorized", b"{}")]) as server:
            with pytest.raises(ProviderError) as caught:
                await loopback.ask(make(name, server.url, key=None))
            return caught.value, server.requests

    error, [received] = asyncio.run(run())
    assert "no key was sent" in error.problem.why
    assert not [line for line in received.lines if line.lower().startswith(("x-api-key", "authorization"))]


# ---- the class of a failure, and how long to wait ---------------------------------------------------------------------

MANY = "429 Too Many Requests"
# fmt: off
CLASSES = [
    ("anthropic", whole(MANY, body(type="rate_limit_error", message="slow"), "application/json", "retry-after: 12"),
     Failure.RATE_LIMITED, 12.0, "seconds"),
    ("openai", whole(MANY, body(message="slow"), "application/json", "retry-after: 2", "retry-after-ms: 1750"),
     Failure.RATE_LIMITED, 1.75, "the milliseconds are more exact"),
    ("openai", whole(MANY, body(message="slow"), "application/json", "retry-after: Wed, 21 Oct 2015 07:28:00 GMT"),
     Failure.RATE_LIMITED, 0.0, "a date that has passed"),
    ("openai", whole(MANY, body(message="slow"), "application/json", "retry-after: soon"),
     Failure.RATE_LIMITED, None, "nonsense is no wish"),
    ("openai", whole(MANY, body(message="slow"), "application/json", "retry-after: -5"),
     Failure.RATE_LIMITED, None, "nor is a time before"),
    ("openai", whole(MANY, body(message="slow"), "application/json", "retry-after: inf"),
     Failure.RATE_LIMITED, None, "nor for ever"),
    ("openai", whole(MANY, body(message="slow"), "application/json", "retry-after: Wed, 21 Oct 9999999 07:28:00 GMT"),
     Failure.RATE_LIMITED, None, "nor a date out of the calendar"),
    ("openai", whole(MANY, json.dumps({"error": {
        "code": 429, "message": "quota", "status": "RESOURCE_EXHAUSTED",
        "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "39.5s"}]}}).encode()),
     Failure.RATE_LIMITED, 39.5, "in the body, as Google says it"),
    ("anthropic", whole(MANY, body(type="rate_limit_error", message="month's spend", details={
        "error_code": "enforced_spend_limit_reached"})),
     Failure.AUTH, None, "a spend limit has the type of a rate limit, and no end that is worth waiting for"),
    ("openai", whole(MANY, body(message="You exceeded your quota", type="insufficient_quota", code=None)),
     Failure.AUTH, None, "no credit"),
    ("anthropic", whole("529 Overloaded", body(type="overloaded_error", message="Overloaded"), "application/json",
                        "retry-after: 3"), Failure.OVERLOADED, 3.0, "529"),
    ("anthropic", stream(sse({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})),
     Failure.OVERLOADED, None, "told late"),
    ("openai", whole("503 Service Unavailable", body(message="at capacity", type="server_error")),
     Failure.OVERLOADED, None, "503"),
    ("openai", whole("500 Internal Server Error", body(message="server_error", type="server_error")),
     Failure.RETRYABLE, None, "500"),
    ("anthropic", whole("504 Gateway Timeout", body(type="timeout_error", message="timed out")),
     Failure.RETRYABLE, None, "504"),
    ("openai", whole("409 Conflict", body(message="try again")), Failure.RETRYABLE, None, "409"),
    ("anthropic", whole("400 Bad Request", body(type="invalid_request_error",
                        message="prompt is too long: 208310 tokens > 200000 maximum")),
     Failure.CONTEXT, None, "Anthropic"),
    ("anthropic", whole("400 Bad Request", body(type="invalid_request_error", message="input length and `max_tokens` "
                        "exceed context limit: 178959 + 64000 > 200000, decrease input length")),
     Failure.CONTEXT, None, "Anthropic, with the answer"),
    ("anthropic", whole("413 Payload Too Large", body(type="request_too_large", message="too large")),
     Failure.CONTEXT, None, "more bytes than a request may have"),
    ("openai", whole("400 Bad Request", body(code="context_length_exceeded", type="invalid_request_error",
                     message="Your input exceeds the limit")), Failure.CONTEXT, None, "OpenAI's code"),
    ("openai", whole("400 Bad Request", body(message="This endpoint's maximum context length is 32768 tokens.")),
     Failure.CONTEXT, None, "OpenRouter and vLLM"),
    ("openai", whole("400 Bad Request", body(code=400, message="the request exceeds the available context size",
                     type="exceed_context_size_error")), Failure.CONTEXT, None, "llama.cpp"),
    ("openai", whole("400 Bad Request", b'[{"error":{"code":400,"message":"The input token count (1091639) exceeds '
                     b'the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}]'),
     Failure.CONTEXT, None, "Gemini"),
    ("anthropic", whole("400 Bad Request", body(type="invalid_request_error",
                        message="max_tokens: 200000 > 128000, which is the maximum allowed number of output tokens")),
     Failure.FATAL, None, "an answer that may not be so long is not the conversation"),
    ("openai", whole("400 Bad Request", body(code=400, message="API key not valid.", status="INVALID_ARGUMENT",
                     details=[{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}])),
     Failure.AUTH, None, "a wrong key, as Google says it"),
    ("openai", whole("401 Unauthorized", body(message="no")), Failure.AUTH, None, "401"),
    ("openai", whole("403 Forbidden", body(message="no")), Failure.AUTH, None, "403"),
    ("openai", stream(sse({"error": {"message": "no such model", "type": "invalid_request_error",
                                     "code": "model_not_found"}})), Failure.FATAL, None, "a new code of a known type"),
    ("openai", whole("404 Not Found", body(message="no")), Failure.FATAL, None, "404"),
]
# fmt: on


@pytest.mark.parametrize(("name", "steps", "failure_", "wait", "why"), CLASSES, ids=[case[4] for case in CLASSES])
def test_the_class_of_a_failure_and_the_wait(
    name: str, steps: list, failure_: Failure, wait: float | None, why: str
) -> None:
    async def run() -> ProviderError:
        async with loopback.Loopback([steps]) as server:
            provider = make(name, server.url)
            try:
                with pytest.raises(ProviderError) as caught:
                    await loopback.ask(provider)
                return caught.value
            finally:
                await provider.close()

    error = asyncio.run(run())
    assert (error.failure, error.retry_after) == (failure_, wait), why


WINDOWS = [
    ("This model's maximum context length is 16384 tokens. However, you requested 18327 tokens", 16_384),
    ("the request exceeds the available context size (4096 tokens), try increasing it", 4096),
    ("prompt is too long: 208310 tokens > 200000 maximum", 200_000),
    ("input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease input length", 200_000),
    ("The input token count (1091639) exceeds the maximum number of tokens allowed (1048576).", 1_048_576),
    ("Your input exceeds the limit", None),
    ("maximum context length is 16384000000000 tokens", None),
]


@pytest.mark.parametrize(("message", "window"), WINDOWS)
def test_the_window_that_a_server_names(message: str, window: int | None) -> None:
    assert window_of(message) == window


def test_a_date_to_wait_for_counts_from_now() -> None:
    assert wait_of({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 1445412480 - 90) == 90.0


# ---- the way there --------------------------------------------------------------------------------------------------


def failure(provider: Provider) -> ProviderError:
    async def run() -> ProviderError:
        with pytest.raises(ProviderError) as caught:
            await loopback.ask(provider)
        await provider.close()
        return caught.value

    return asyncio.run(run())


def test_nothing_listens() -> None:
    with socket.socket() as silent:  # its port is nobody else's meanwhile
        silent.bind(("127.0.0.1", 0))
        error = failure(make("openai", f"http://127.0.0.1:{silent.getsockname()[1]}"))
    assert "nothing answers at `http://127.0.0.1:" in error.problem.why
    assert "start the server" in error.problem.fix
    assert CANARY not in exposed(error)


def test_a_connection_that_is_not_taken_in_time() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = []
        for _ in range(4):  # a full backlog leaves further connections unanswered
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
            fillers.append(filler)
        try:
            url = f"http://127.0.0.1:{full.getsockname()[1]}"
            error = failure(make("anthropic", url, Timeouts(connect=0.3, read=300, total=600)))
        finally:
            for filler in fillers:
                filler.close()
    assert "no connection to `127.0.0.1` within 0.3 seconds" in error.problem.why
    assert error.retryable


@pytest.mark.threat("T27")
def test_an_answer_that_drips_forever_ends() -> None:
    """Every byte comes well within the read timeout; only the limit for the whole answer ends this."""
    drip: list = [STREAMING]
    for _ in range(400):
        drip += [raw_chunk(b": still here\n\n"), 0.02]

    async def run() -> ProviderError:
        async with loopback.Loopback([drip]) as server:
            with pytest.raises(ProviderError) as caught:
                await loopback.ask(make("anthropic", server.url, Timeouts(connect=60, read=60, total=0.4)))
            return caught.value

    error = asyncio.run(run())
    assert "not complete after 0.4 seconds" in error.problem.why
    assert error.retryable


@pytest.mark.threat("T27")
def test_an_answer_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many events, each well within its limit."""
    monkeypatch.setattr("runner.providers.connection.ANSWER_LIMIT", 200_000)
    flood = [STREAMING, *[raw_chunk(b": " + b"a" * 9000 + b"\n\n")] * 30, STALL]
    small = [STREAMING, *[raw_chunk(b": " + b"a" * 9000 + b"\n\n")] * 20, *stream(TOOLS["anthropic"])[1:]]

    async def run() -> ProviderError:
        async with loopback.Loopback([small, flood]) as server:
            provider = make("openai", server.url)
            loopback.reply_of(await loopback.ask(make("anthropic", server.url)))
            with pytest.raises(ProviderError) as caught:
                await loopback.ask(provider)
            return caught.value

    assert "larger than the limit" in asyncio.run(run()).problem.why


def test_plain_http_where_tls_was_expected() -> None:
    arrived = bytearray()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.extend(await reader.read(5000))
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def run() -> ProviderError:
        server = await asyncio.start_server(refuse, "127.0.0.1", 0)
        async with server:
            with pytest.raises(ProviderError) as caught:
                await loopback.ask(make("anthropic", f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
            return caught.value

    error = asyncio.run(run())
    assert CANARY.encode() not in arrived
    assert "no encrypted connection" in error.problem.why
    assert not error.retryable


def test_compressed_answers_are_read() -> None:
    packed = gzip.compress(TOOLS["anthropic"])
    answer = [head("200 OK", "text/event-stream", "content-encoding: gzip", f"content-length: {len(packed)}") + packed]

    async def run() -> Reply:
        async with loopback.Loopback([answer, stream(TOOLS["anthropic"])]) as server:
            provider = make("anthropic", server.url)
            first, second = [loopback.reply_of(await loopback.ask(provider)) for _ in range(2)]
            await provider.close()
            assert first == second
            return first

    asyncio.run(run())


def _packed(data: bytes, *codings: str) -> bytes:
    for coding in codings:
        if coding in ("gzip", "x-gzip"):
            data = gzip.compress(data)
        elif coding == "deflate":
            data = zlib.compress(data)
    return data


def _answer_of(body: bytes, *fields: str, status: str = "200 OK") -> list:
    return [head(status, "text/event-stream", *fields, "connection: close") + body, CLOSE]


# fields of the head, codings that were applied, words of the Problem; None where the answer is read
CODED: list[tuple[tuple[str, ...], tuple[str, ...], str | None]] = [
    (("content-encoding: gzip",),                             ("gzip",),                   None),
    (("content-encoding: X-GZip",),                           ("x-gzip",),                 None),
    (("content-encoding: identity",),                         (),                          None),
    (("content-encoding: identity, gzip, ",),                 ("gzip",),                   None),
    (("content-encoding: gzip, gzip",),                       ("gzip", "gzip"),            "was not requested"),
    (("content-encoding: gzip", "content-encoding: gzip"),    ("gzip", "gzip"),            "was not requested"),
    (("content-encoding: gzip,gzip,gzip,gzip",),              ("gzip",) * 4,               "was not requested"),
    (("content-encoding: gzip, deflate",),                    ("gzip", "deflate"),         "was not requested"),
    (("content-encoding: deflate",),                          ("deflate",),                "was not requested"),
    (("content-encoding: br",),                               (),                          "was not requested"),
    (("content-encoding: zstd",),                             (),                          "was not requested"),
    (("content-encoding: compress",),                         (),                          "was not requested"),
    (("content-encoding: br, gzip",),                         ("gzip",),                   "was not requested"),
    (("content-encoding: *",),                                (),                          "was not requested"),
    (("content-encoding: gzip;q=1",),                         ("gzip",),                   "was not requested"),
]  # fmt: skip


@pytest.mark.threat("T119")
@pytest.mark.parametrize(("fields", "codings", "why"), CODED, ids=[str(case[0]) for case in CODED])
def test_one_layer_of_compression_is_read_and_no_other(
    fields: tuple[str, ...], codings: tuple[str, ...], why: str | None
) -> None:
    async def run() -> str | None:
        body = _packed(TOOLS["anthropic"], *codings)
        async with loopback.Loopback([_answer_of(body, *fields)]) as server:
            provider = make("anthropic", server.url)
            try:
                loopback.reply_of(await loopback.ask(provider))
            except ProviderError as error:
                return str(error.problem)
            finally:
                await provider.close()
            assert "accept-encoding: identity" in [line.lower() for line in server.requests[0].lines]
            return None

    said = asyncio.run(run())
    assert (said is None) == (why is None), said
    assert why is None or why in str(said)


BLANK = b": " + b"a" * 8000 + b"\n\n"
BAD_STREAMS = [
    (gzip.compress(BLANK * 200), "larger than the limit", "more than the bound when unpacked"),
    (gzip.compress(BLANK * 20) * 10, "has data after its end", "several members"),
    (gzip.compress(TOOLS["openai"][:500]) + b"x", "has data after its end", "something behind the end"),
    (gzip.compress(random.Random(7).randbytes(300_000)), "larger than the limit", "more than the bound when packed"),
    (b"\x1f\x8b\x08\0\0\0\0\0\0\x03" + b"\0\0\0\xff\xff" * 60_000, "larger than the limit", "blocks of nothing"),
    (gzip.compress(BLANK)[:-6] + b"abcdef", "compressed and damaged", "a wrong checksum"),
    (zlib.compress(BLANK), "compressed and damaged", "another form"),
    (gzip.compress(BLANK)[:-20], "incomplete", "cut off"),
]


@pytest.mark.threat("T119")
@pytest.mark.parametrize(("body", "why", "what"), BAD_STREAMS, ids=[what for *_, what in BAD_STREAMS])
def test_a_compressed_answer_is_counted_while_it_is_unpacked(
    body: bytes, why: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.providers.connection.ANSWER_LIMIT", 200_000)

    async def run() -> str:
        async with loopback.Loopback([_answer_of(body, "content-encoding: gzip")]) as server:
            provider = make("openai", server.url)
            with pytest.raises(ProviderError) as caught:
                await loopback.ask(provider)
            await provider.close()
            return str(caught.value.problem)

    assert why in asyncio.run(run())


@pytest.mark.threat("T119")
def test_a_compressed_error_is_counted_while_it_is_unpacked() -> None:
    """The part that fits is quoted and the rest is never unpacked. A body of another encoding is not quoted."""
    said = json.dumps({"error": {"message": "no such thing"}}).encode()
    bomb = gzip.compress(said + b" " * (300 << 20), 1)

    async def run(body: bytes, *fields: str) -> str:
        async with loopback.Loopback([_answer_of(body, *fields, status="404 Not Found")]) as server:
            provider = make("openai", server.url)
            with pytest.raises(ProviderError) as caught:
                await loopback.ask(provider)
            await provider.close()
            return str(caught.value.problem)

    tracemalloc.start()
    try:
        assert "no such thing" in asyncio.run(run(bomb, "content-encoding: gzip"))
        twice = asyncio.run(run(gzip.compress(bomb), "content-encoding: gzip, gzip"))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "it answered 404" in twice
    assert most < 30 << 20


@pytest.mark.threat("T119")
def test_a_timeout_holds_while_an_answer_is_unpacked() -> None:
    """All of it has arrived: only the event loop's turns between the steps let the timeout count."""
    steps = 0

    async def run() -> None:
        nonlocal steps
        async with loopback.Loopback([_answer_of(gzip.compress(BLANK * 5000), "content-encoding: gzip")]) as server:
            provider = make("openai", server.url)
            asking = asyncio.create_task(loopback.ask(provider))
            await server.left.wait()  # the server has said everything
            while not asking.done():
                steps += 1
                await asyncio.sleep(0)
            with pytest.raises(ProviderError):
                await asking
            await provider.close()

    asyncio.run(run())
    assert steps > 5000 * len(BLANK) // STEP


# ---- leaving early --------------------------------------------------------------------------------------------------

ENDLESS = {name: [STREAMING, raw_chunk(data[: data.index(b"and read")]), STALL] for name, data in TOOLS.items()}


@pytest.mark.threat("T27")
@pytest.mark.parametrize("name", ["anthropic", "openai"])
def test_cancelling_closes_the_connection(name: str) -> None:
    async def run() -> None:
        async with loopback.Loopback([ENDLESS[name]]) as server:
            provider = make(name, server.url)
            task = asyncio.create_task(loopback.ask(provider))
            await server.asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await server.left.wait()
            await provider.close()

    asyncio.run(run())


@pytest.mark.parametrize("name", ["anthropic", "openai"])
def test_a_consumer_that_stops_listening_closes_the_connection(name: str) -> None:
    async def run() -> None:
        async with loopback.Loopback([ENDLESS[name]]) as server:
            provider = make(name, server.url)
            events = provider.stream(loopback.HELLO)
            async for event in events:
                if isinstance(event, TextDelta):
                    break
            await events.aclose()  # type: ignore[attr-defined]  # it is a generator
            await server.left.wait()
            await provider.close()

    asyncio.run(run())


@pytest.mark.parametrize("name", ["anthropic", "openai"])
@pytest.mark.parametrize("after", [[STALL], [CLOSE], [RESET], [b"zz"]], ids=["stall", "close", "reset", "rubbish"])
def test_what_follows_the_last_event_cannot_spoil_the_answer(name: str, after: list) -> None:
    async def run() -> None:
        async with loopback.Loopback([[STREAMING, raw_chunk(TOOLS[name]), *after]] * 2) as server:
            provider = make(name, server.url)
            for _ in range(2):
                loopback.reply_of(await loopback.ask(provider))
            await provider.close()

    asyncio.run(run())


def test_an_answer_with_its_finish_reason_survives_a_break() -> None:
    data = TOOLS["openai"]
    finished = data[: data.index(b'"choices":[],"usage"')]

    async def run() -> Reply:
        async with loopback.Loopback([[STREAMING, raw_chunk(finished), CLOSE]]) as server:
            return loopback.reply_of(await loopback.ask(make("openai", server.url)))

    assert len(asyncio.run(run()).message.calls) == 2


def test_a_provider_serves_again_after_a_failure() -> None:
    async def run() -> None:
        async with loopback.Loopback([whole("529 ", b"{}"), [CLOSE], stream(TOOLS["anthropic"])]) as server:
            provider = make("anthropic", server.url)
            for _ in range(2):
                with pytest.raises(ProviderError):
                    await loopback.ask(provider)
            loopback.reply_of(await loopback.ask(provider))
            await provider.close()
            await provider.close()

    asyncio.run(run())


def test_two_requests_at_once_do_not_mix() -> None:
    async def run() -> None:
        async with loopback.Loopback([stream(TOOLS["anthropic"], range(0, 4000, 50))] * 4) as server:
            provider = AnthropicProvider(parse_endpoint(server.url), Secret(CANARY), PATIENT)
            answers = await asyncio.gather(*(loopback.ask(provider) for _ in range(4)))
            assert all(answer == answers[0] for answer in answers)
            await provider.close()

    asyncio.run(run())


def test_an_openai_provider_that_was_never_asked_closes() -> None:
    asyncio.run(OpenAiProvider(parse_endpoint("https://api.openai.com/v1"), Secret(CANARY)).close())
