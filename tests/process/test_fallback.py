"""Tests of the fallback model: it replaces a busy model for the rest of a run, is reported and paid for, and uses its
own key.
"""

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from policy.model.verdict import Problem
from runner.agent.conversation import Conversation
from runner.agent.startup import RunArgs, opener
from runner.config import load
from runner.engine.model_access import OpenModels
from runner.engine.retry_policy import RetryPolicy
from runner.engine.run_limits import RunLimits
from runner.events import Changed, Notice, Retrying
from runner.loop import Ending
from runner.messages import (
    AssistantMessage,
    Failure,
    Message,
    ProviderError,
    Reply,
    Stop,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    Usage,
)
from runner.problems import Exit, usage
from runner.providers import OpenModel
from runner.providers.catalog import Price
from runner.providers.endpoint import SetupError
from runner.providers.key_options import KeyFlags
from runner.secrets.secret import Secret, SecretError
from tests.support.loop_harness import LoopHarness, Make, busy
from tests.support.scripted_replies import Item, Plays, fatal, ls, says

BUSY: list[Item] = [busy()]
AT_ONCE = RetryPolicy(first=0, most=0)


def two(found: LoopHarness, first: Plays, second: Plays, spec: str = "other:b") -> None:
    """A session with `first`, which falls back to `second`."""
    second.name = "other"
    chosen = OpenModel(first, "m")  # type: ignore[arg-type]  # a fake of the protocol
    models = OpenModels(chosen, lambda spec: OpenModel(second, spec.partition(":")[2]))  # type: ignore[arg-type]
    found.ctx = replace(found.ctx, models=models, fallback=spec)
    found.ctx.live.provider = first  # type: ignore[assignment]  # a fake of the protocol


def changes(found: LoopHarness) -> list[tuple[str, str]]:
    return [(event.was, event.now) for event in found.events if isinstance(event, Changed)]


def text_of(message: Message) -> str:
    return "".join(block.text for block in message.content if isinstance(block, TextBlock))  # type: ignore[union-attr]


THERE_AND_BACK = [("plays:m", "other:b"), ("other:b", "plays:m")]

# (what the first answers, what the second does, their requests, exit, why)
# fmt: off
FALLS: list[tuple[list[list[Item]], list[list[Item]], tuple[int, int], Exit, str]] = [
    ([BUSY] * 9,                            [says("done")],            (4, 1), Exit.DONE,   "after three more tries"),
    ([BUSY] * 3 + [says("done")],           [],                        (4, 0), Exit.DONE,   "not while waiting helps"),
    ([BUSY] * 9,                            [BUSY] * 9,                (4, 8), Exit.FAILED, "two that are busy end it"),
    ([[fatal()]],                           [],                        (1, 0), Exit.FAILED, "not for a wrong key"),
    ([[TextDelta("half an "), busy()]] * 1 + [BUSY] * 9, [says("answer")], (4, 1), Exit.DONE, "in the middle of an answer"),
    ([says("", ls("ls")), *[BUSY] * 9],     [says("", ls("ls")), says("done")], (5, 2), Exit.DONE, "for the rest of the run"),
    ([[ProviderError(Problem("wait", "429", "an hour"), failure=Failure.RATE_LIMITED, retry_after=3600)]],
                                            [says("done")],            (1, 1), Exit.DONE,   "at once where the wait is too long"),
]
# fmt: on


@pytest.mark.parametrize(("first", "second", "requests", "exit", "why"), FALLS, ids=[row[4] for row in FALLS])
def test_another_model_goes_on(
    stage: Make,
    first: list[list[Item]],
    second: list[list[Item]],
    requests: tuple[int, int],
    exit: Exit,
    why: str,
) -> None:
    one, other = Plays(*first), Plays(*second)
    found = stage()
    two(found, one, other)
    assert found.play().exit is exit, why
    assert (len(one.requests), len(other.requests)) == requests
    assert changes(found) == (THERE_AND_BACK if requests[1] else [])
    if other.requests:
        assert {request.model for request in other.requests} == {"b"}
    if found.sandbox.ran:
        named = [record.body["model"] for record in found.audit.rows(kind="decided")][::-1]
        assert named == ["plays:m", "other:b"], "who wanted it stands with each decision"


def test_a_model_that_stands_in_for_itself_is_waited_for_as_long_as_any(stage: Make) -> None:
    one = Plays(*[BUSY] * 7, says("done"))
    found = stage()
    two(found, one, Plays(), spec="plays:m")
    assert found.play().exit is Exit.DONE
    assert changes(found) == []


def test_an_answer_goes_on_where_the_other_model_left_it(stage: Make) -> None:
    one, other = Plays([TextDelta("half an "), busy()], *[BUSY] * 9), Plays(says("half an answer"))
    found = stage()
    two(found, one, other)
    found.play()
    assert text_of(found.history[-1]) == "half an answer"


def test_the_next_prompt_goes_to_the_chosen_model_again(stage: Make) -> None:
    one, other = Plays(*[BUSY] * 4, says("again")), Plays(says("done"))
    found = stage()
    two(found, one, other)
    talk = Conversation(found.ctx, found.history)
    asyncio.run(talk.prompt("one"))
    asyncio.run(talk.prompt("two"))
    assert (len(one.requests), len(other.requests)) == (5, 1)
    assert [type(event) for event in found.of(Retrying)] == [Retrying] * 3


def test_what_one_model_thought_is_not_sent_to_the_other(stage: Make) -> None:
    def thinks(text: str) -> list[Item]:
        content = (ThinkingBlock(text, "signed"), ls("ls"))
        return [Reply(AssistantMessage(content), Stop.TOOLS, Usage())]

    one, other = Plays(thinks("mine"), *[BUSY] * 4, says("again")), Plays(thinks("theirs"), says("done"))
    found = stage()
    two(found, one, other)
    talk = Conversation(found.ctx, found.history)
    asyncio.run(talk.prompt("one"))
    asyncio.run(talk.prompt("two"))
    assert "mine" not in repr(other.requests[0].messages)
    assert "theirs" in repr(other.requests[1].messages), "its own thoughts it keeps"
    assert "theirs" not in repr(one.requests[-1].messages)


def test_who_turns_to_another_model_does_not_wait_for_the_busy_one(stage: Make) -> None:
    """A server may want ten minutes; the person need not."""
    wait = ProviderError(Problem("slowly", "429", "wait"), failure=Failure.RATE_LIMITED, retry_after=590)
    one, other = Plays([TextDelta("half an "), wait]), Plays(*[BUSY] * 3, says("answer"))
    found = stage(unattended=False)
    two(found, one, other, spec="")
    talk = Conversation(found.ctx, found.history)

    async def work() -> Ending:
        running = asyncio.ensure_future(talk.prompt("go"))
        while not found.of(Retrying):
            await asyncio.sleep(0)
        talk.set_model("other:b")
        return await running

    assert asyncio.run(work()).exit is Exit.DONE
    assert text_of(found.history[-1]) == "half an answer"
    assert [event.attempt for event in found.events if isinstance(event, Retrying)] == [1, 1, 2, 3], "and counts anew"
    assert talk.ctx.live.model == "b"


@pytest.mark.threat("T92")
def test_a_model_whose_price_nobody_knows_does_not_go_on_where_money_counts(stage: Make) -> None:
    class Priceless(OpenModels):
        def limits(self, limits: RunLimits, model: OpenModel) -> RunLimits:
            raise usage("nobody knows what `other:b` costs", "it is in no list", "say it")

    bounds = RunLimits(patience=AT_ONCE, money=1.0, price=Price(1.0, 1.0, 1.0, 1.0))
    one, other = Plays(*[BUSY] * 9), Plays(says("done"))
    found = stage(bounds=bounds)
    two(found, one, other)
    models = Priceless(OpenModel(one, "m"), lambda spec: OpenModel(other, "b"))  # type: ignore[arg-type]  # fakes
    found.ctx = replace(found.ctx, models=models)
    assert found.play().exit is Exit.FAILED
    assert other.requests == []
    assert "nobody knows what" in repr(found.of(Notice))


REFUSALS: list[tuple[Callable[[], Exception], str]] = [
    (lambda: SetupError(Problem("there is no such provider", "no", "no")), "a name that is none"),
    (lambda: SecretError(Problem("there is no key", "no", "no")), "no key for it"),
]


@pytest.mark.parametrize(("error", "why"), REFUSALS, ids=[row[1] for row in REFUSALS])
def test_a_fallback_that_cannot_be_opened_is_said_and_the_failure_stays(
    stage: Make,
    error: Callable[[], Exception],
    why: str,
) -> None:
    def refuse(spec: str) -> OpenModel:
        raise error()

    one = Plays(*[BUSY] * 9)
    found = stage()
    two(found, one, Plays())
    found.ctx = replace(found.ctx, models=OpenModels(OpenModel(one, "m"), refuse))  # type: ignore[arg-type]  # a fake
    ending = found.play()
    assert ending.exit is Exit.FAILED
    assert ending.reason == "the provider is busy", why
    assert "the fallback model `other:b` cannot be used" in repr(found.of(Notice))
    assert changes(found) == []


def test_a_model_is_no_fallback_of_itself(stage: Make) -> None:
    one = Plays(*[BUSY] * 9)
    found = stage()
    two(found, one, Plays(), spec="plays:m")
    assert found.play().exit is Exit.FAILED
    assert changes(found) == []


def test_only_you_name_the_fallback(tmp_path: Path) -> None:
    """A repository's settings do not say who reads the conversation, trusted or not."""
    folder = tmp_path / "w" / ".ringfence"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text('fallback_model = "openai:theirs"\n')
    environ = {"HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"]}
    assert load(tmp_path / "w", environ).value("fallback_model") is None


@pytest.mark.threat("T21")
def test_a_key_that_was_said_for_one_provider_goes_to_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of --api-key-stdin and the account of --account belong to one provider only."""
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    key = Secret("sk-of-the-first-provider-0123456789")

    class First:
        name = "anthropic"

    first = OpenModel(First(), "claude-opus-5", (key,))  # type: ignore[arg-type]  # a fake of the protocol
    settings = load(tmp_path, dict(os.environ))
    another = opener(RunArgs(key=KeyFlags(from_stdin=True)), settings, tmp_path, first)
    same = another("anthropic:claude-haiku-4-5")
    assert [secret.reveal() for secret in same.secrets] == [key.reveal()], "and standard input is not read again"
    with pytest.raises(SecretError):
        another("openai:gpt-5")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-second-provider-0123456789")
    assert [secret.reveal() for secret in another("openai:gpt-5").secrets] == ["sk-of-the-second-provider-0123456789"]
    named = opener(RunArgs(key=KeyFlags(account="work")), settings, tmp_path, first)
    assert named("openai:gpt-5").secrets[0].reveal() == "sk-of-the-second-provider-0123456789"
