"""Tests of images that a model server refuses: later requests omit them, so that one bad image does not end a
session.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from policy.model.verdict import Problem
from runner.events import Notice
from runner.messages import (
    AssistantMessage,
    Failure,
    ImageBlock,
    Message,
    ProviderError,
    Request,
    TextBlock,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
    images_in,
)
from runner.problems import Exit
from runner.providers.failures import ErrorReason, about_images
from tests.support.images import png
from tests.support.loop_harness import Make
from tests.support.reply_servers import DONE, Answer, Server, _event, agent, began, ended, of
from tests.support.scripted_replies import Item, Plays, ls, says

OLD, BAD = ImageBlock("image/png", "T0xE"), ImageBlock("image/png", "QkFE")


def refused() -> ProviderError:
    error = ProviderError(Problem("it did not accept the request", "it answered 400", "mend it"), status=400)
    error.images = True
    return error


def busy() -> ProviderError:
    return ProviderError(Problem("it is overloaded", "it answered 529", "wait"), failure=Failure.AUTH)


def asked(*content: TextBlock | ImageBlock) -> UserMessage:
    return UserMessage(content or (TextBlock("look"),))


def read(image: ImageBlock, id: str) -> list[Message]:
    call = AssistantMessage((ToolCall(id, "read", {"path": "a.png"}),))
    return [call, ToolMessage((ToolResult(id, (TextBlock("an image"), image)),))]


def seen(request: Request) -> list[str]:
    return [image.data for image in images_in(request.messages)]


# fmt: off
TALKS: list[tuple[list[Message], list[list[Item]], list[list[str]], Exit, str]] = [
    ([asked(), *read(BAD, "1")],                    [[refused()], says("ok")],
        [["QkFE"], []], Exit.DONE, "the new image is left out"),
    ([asked(), *read(OLD, "1"), *read(BAD, "2")],   [[refused()], says("ok")],
        [["T0xE", "QkFE"], ["T0xE"]], Exit.DONE, "what was answered once stays"),
    ([asked(TextBlock("see"), BAD), asked()],       [[refused()], says("ok")],
        [["QkFE"], []], Exit.DONE, "also in what a user said, and in a conversation that failed before"),
    ([asked(), *read(OLD, "1"), AssistantMessage((TextBlock("nice"),))], [[refused()], says("ok")],
        [["T0xE"], []], Exit.DONE, "another model, or a bound on how many: then all are"),
    ([asked(), *read(OLD, "1"), *read(BAD, "2")],   [[refused()], [refused()], says("ok")],
        [["T0xE", "QkFE"], ["T0xE"], []], Exit.DONE, "the new ones first, then all"),
    ([asked(), *read(BAD, "1")],                    [[refused()], [refused()]],
        [["QkFE"], []], Exit.FAILED, "it was not the image"),
    ([asked(), *read(BAD, "1")],                    [[refused()], [busy()]],
        [["QkFE"], []], Exit.FAILED, "nobody knows"),
    ([asked()],                                     [[refused()]],
        [[]], Exit.FAILED, "no image to leave out"),
]
# fmt: on


@pytest.mark.threat("T122")
@pytest.mark.parametrize(("talk", "answers", "sent", "exit", "why"), TALKS, ids=[row[4] for row in TALKS])
def test_which_images_are_sent(
    stage: Make,
    talk: list[Message],
    answers: Sequence[Sequence[Item]],
    sent: list[list[str]],
    exit: Exit,
    why: str,
) -> None:
    provider = Plays(*answers)
    found = stage(provider=provider)
    found.history += talk
    assert found.play().exit is exit, why
    assert [seen(request) for request in provider.requests] == sent
    assert list(images_in(found.history)) == list(images_in(talk)), "the talk keeps them"
    told = [event.text for event in found.of(Notice) if "the request was repeated without" in event.text]  # type: ignore[union-attr]
    assert len(told) == len(sent) - 1, "each is said"
    provider.answers[:] = []
    found.play()
    assert seen(provider.requests[-1]) == (sent[-1] if exit is Exit.DONE else sent[0]), (
        "so it stays for the next prompt"
    )


@pytest.mark.threat("T122")
def test_the_model_is_told_and_may_read_it_again(stage: Make) -> None:
    again = says("", ls("ls"))
    provider = Plays([refused()], again, says("ok"))
    found = stage(provider=provider)
    found.history += [asked(), *read(BAD, "1")]
    assert found.play().exit is Exit.DONE
    results = provider.requests[1].messages[2]
    assert isinstance(results, ToolMessage)
    assert "refused the request with it" in repr(results.results[0].content[-1])
    assert [seen(request) for request in provider.requests] == [["QkFE"], [], []]


# fmt: off
WORDS: list[tuple[int, Failure, ErrorReason, bool, str]] = [
    (400, Failure.FATAL,      ErrorReason("messages.2.content.0.image.source.base64: invalid"), True,  "Anthropic names it"),
    (400, Failure.FATAL,      ErrorReason("Could not process image", "invalid_request_error"),  True,  "Anthropic"),
    (400, Failure.FATAL,      ErrorReason("", "image_parse_error"),                             True,  "OpenAI's code"),
    (400, Failure.FATAL,      ErrorReason("Unable to process input image. Please retry"),       True,  "Gemini"),
    (404, Failure.FATAL,      ErrorReason("No endpoints found that support image input"),       True,  "OpenRouter"),
    (500, Failure.RETRYABLE,  ErrorReason("image input is not supported - hint: provide the mmproj"), True, "llama.cpp"),
    (400, Failure.FATAL,      ErrorReason("bad request"),                                       True,  "it says nothing better"),
    (415, Failure.FATAL,      ErrorReason(),                                                    True,  "nor does this"),
    (413, Failure.CONTEXT,    ErrorReason("Request Entity Too Large"),                          True,  "images are what is large"),
    (400, Failure.CONTEXT,    ErrorReason("prompt is too long: 210000 tokens > 200000"),        False, "too many words"),
    (500, Failure.RETRYABLE,  ErrorReason("internal error"),                                    False, "broken"),
    (404, Failure.FATAL,      ErrorReason("404 page not found"),                                False, "a wrong address"),
    (401, Failure.AUTH,       ErrorReason("no access to images"),                               False, "the key"),
    (529, Failure.OVERLOADED, ErrorReason("too many images at once"),                           False, "waiting helps"),
]
# fmt: on


@pytest.mark.parametrize(("status", "failure", "said", "expected", "why"), WORDS, ids=[row[4] for row in WORDS])
def test_what_is_about_images(status: int, failure: Failure, said: ErrorReason, expected: bool, why: str) -> None:
    assert about_images(status, failure, said) is expected, why


def reads(path: str) -> Answer:
    block = {"type": "tool_use", "id": "toolu_0", "name": "read", "input": {}}
    delta = {"type": "input_json_delta", "partial_json": json.dumps({"path": path})}
    call = [
        _event("content_block_start", index=0, content_block=block),
        _event("content_block_delta", index=0, delta=delta),
    ]
    return [*began(), *call, _event("content_block_stop", index=0), *ended("tool_use")]


@pytest.mark.threat("T122")
def test_a_bad_image_of_the_project_ends_no_session(
    serve: Callable[..., Server],
    tmp_path: Path,
) -> None:
    bad: Answer = (
        400,
        {},
        {"type": "error", "error": {"type": "invalid_request_error", "message": "Could not process image"}},
    )
    (tmp_path / "work").mkdir()
    (tmp_path / "work/a.png").write_bytes(png())
    (tmp_path / "work/b.png").write_bytes(png()[:-1])
    server = serve(reads("a.png"), bad, DONE, bad, DONE)
    code, events = agent(tmp_path, server.url)
    assert code == 0, events[-1]
    assert ["base64" in json.dumps(body["messages"]) for body in server.bodies] == [False, True, False]
    assert "Could not process image: the request was repeated without an image" in of(events, "notice")[-1]["text"]
    code, events = agent(tmp_path, server.url, "--continue")
    assert code == 0, "and goes on"
    assert ["base64" in json.dumps(body["messages"]) for body in server.bodies[3:]] == [True, False]
    server = serve(reads("b.png"), DONE)
    assert agent(tmp_path, server.url)[0] == 0
    assert "a damaged PNG image" in json.dumps(server.bodies[1]["messages"]), "one that is cut is not sent at all"
