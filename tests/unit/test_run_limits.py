"""Tests of budgets: each limit ends a run with exit code 5 and is named, before or after the exceeding request."""

import contextlib
from dataclasses import replace

import pytest

from runner.engine.budget import BudgetExceeded, BudgetMeter
from runner.engine.run_limits import RunLimits
from runner.messages import AssistantMessage, TextBlock, ToolCall, Usage, UserMessage
from runner.problems import Exit
from runner.providers.catalog import Price, cost, price_of, published
from runner.providers.scripted import Turn
from sandbox.backend import Outcome
from tests.support import loop_harness
from tests.support.loop_harness import DONE, READ, Make, bash

stage = loop_harness.stage  # the fixture
PRICE = Price(1.0, 10.0, 0.1, 1.25)


def used(turn: Turn, sent: int, received: int) -> Turn:
    return replace(turn, usage=Usage(sent, received))


def said(text: str) -> object:
    return Outcome(0, stdout=text.encode())


# fmt: off
ENDS: list[tuple[tuple[Turn, ...], RunLimits, str | None, int, str]] = [
    ((used(bash(READ), 100, 10), used(DONE, 120, 10)), RunLimits(tokens=1000), None, 1, "within it"),
    ((used(bash(READ), 600, 50), used(DONE, 700, 10)), RunLimits(tokens=1000), "tokens", 1,
     "the next request says all of it again: it must exceed, and is not sent"),
    ((used(bash(READ), 1001, 0), DONE), RunLimits(tokens=1000), "tokens", 0, "after a reply that exceeds, nothing is done"),
    ((used(DONE, 900, 101),), RunLimits(tokens=1000), "tokens", 0, "a last reply that exceeds is a limit too"),
    ((used(DONE, 900, 100),), RunLimits(tokens=1000), None, 0, "the budget itself may be used"),
    ((DONE,), RunLimits(tokens=10), "tokens", 0, "less than an answer is no budget"),
    ((used(bash(READ), 1000, 100), used(DONE, 1100, 9)), RunLimits(money=0.01, price=PRICE), None, 1, "0.0032 of 0.01"),
    ((used(bash(READ), 100_000, 1), DONE), RunLimits(money=0.01, price=PRICE), "money", 0, "one reply that costs too much"),
    ((used(bash(READ), 5000, 470), DONE), RunLimits(money=0.01, price=PRICE), "money", 1,
     "what is left does not pay for the next request"),
    ((bash(READ), bash(READ), DONE), RunLimits(output=15), "output", 2, "two outputs together"),
    ((bash(READ, READ), DONE), RunLimits(output=15), "output", 2, "side by side as well"),
    ((bash(READ), DONE), RunLimits(output=15), None, 1, "one fits"),
    ((bash(READ), bash(READ), DONE), RunLimits(turns=1), "turns", 1, "turns"),
]
# fmt: on


@pytest.mark.threat("T92")
@pytest.mark.parametrize(("turns", "bounds", "limit", "ran", "why"), ENDS, ids=[row[4] for row in ENDS])
def test_a_bound_ends_it(
    stage: Make,
    turns: tuple[Turn, ...],
    bounds: RunLimits,
    limit: str | None,
    ran: int,
    why: str,
) -> None:
    found = stage(*turns, bounds=bounds, behave=lambda _: said("ten bytes\n"))
    ending = found.play()
    assert (ending.limit, ending.exit) == (limit, Exit.LIMIT if limit else Exit.DONE), why
    assert len(found.sandbox.ran) == ran, why
    for call in [turn for turn in turns[: ending.turns] if turn.calls]:
        assert call
    assert len(found.results()) == sum(len(turn.calls) for turn in turns[: ending.turns]), "every call has its result"
    assert found.events[-1].as_json()["limit"] == limit


@pytest.mark.threat("T92")
def test_a_prompt_that_costs_too_much_is_not_sent(stage: Make) -> None:
    found = stage(DONE, bounds=RunLimits(money=0.001, price=PRICE))
    found.history.append(_long(100_000))
    assert (found.play().limit, found.events[-1].as_json()["turns"]) == ("money", 0)


def _long(size: int) -> UserMessage:
    return UserMessage((TextBlock("word " * size),))


def test_an_answer_gets_no_more_tokens_than_are_left(stage: Make) -> None:
    found = stage(used(bash(READ), 100, 10), DONE, bounds=RunLimits(tokens=1000))
    asked: list[int] = []
    stream = found.ctx.live.provider.stream

    def watched(request):  # type: ignore[no-untyped-def]
        asked.append(request.max_tokens)
        return stream(request)

    found.ctx.live.provider.stream = watched  # type: ignore[method-assign]
    found.play()
    assert asked[0] <= 1000
    assert asked[1] <= 1000 - 110 - 100


@pytest.mark.threat("T92")
def test_what_is_not_counted_is_counted_for(stage: Make) -> None:
    found = stage(bash(READ), DONE, bounds=RunLimits(tokens=60), behave=lambda _: said("x" * 400))
    ending = found.play()
    assert (ending.limit, ending.usage) == ("tokens", Usage()), "a server that reports nothing is no way around it"


@pytest.mark.threat("T92")
@pytest.mark.parametrize("usage", [Usage(1), Usage(0, 1), Usage(0, 0, 1), Usage(5, 5)])
def test_a_count_that_is_too_low_is_not_believed(usage: Usage) -> None:
    """A token has at most eight bytes on average, so more was certainly sent and received."""
    sent, answer = (UserMessage((TextBlock("x" * 8000),)),), AssistantMessage((TextBlock("y" * 800),))
    spent = BudgetMeter(RunLimits(tokens=10_000, price=PRICE), unattended=True)
    spent.answered(usage, sent, answer)
    assert (spent.tokens, spent.usage) == (1100, usage), "the report shows what the server said"
    assert spent.money == pytest.approx((1000 + 10 * 100) / 1e6, rel=0.01)
    spent = BudgetMeter(RunLimits(tokens=10_000), unattended=True)
    spent.answered(Usage(2000, 200), sent, answer)
    assert spent.tokens == 2200, "a count that can be true is taken as it is"


@pytest.mark.threat("T92")
def test_a_longer_request_whose_answer_broke_off_counts_in_full() -> None:
    short, added = UserMessage((TextBlock("x" * 100),)), UserMessage((TextBlock("y" * 800_000),))
    spent = BudgetMeter(RunLimits(), unattended=True)
    spent.answered(Usage(input=100, output=1), (short,), AssistantMessage((TextBlock("ok"),)))
    spent.broken((short, added), "")
    assert spent.tokens >= 101 + 100 + 200_000


@pytest.mark.threat("T92")
def test_a_model_without_a_price_keeps_only_a_limit_of_money_that_the_user_chose() -> None:
    for money, ends in ((None, False), (5.0, True)):
        spent = BudgetMeter(RunLimits(money=5.0, price=PRICE), unattended=True)
        spent.priced(RunLimits(money=money))
        assert spent.money is None
        with pytest.raises(BudgetExceeded) if ends else contextlib.nullcontext():
            spent.check()


# what was sent, what came back, at least so many tokens
UNCOUNTED: list[tuple[str, AssistantMessage, int, str]] = [
    ("x" * 400, AssistantMessage((TextBlock("x" * 400),)), 400, "texts"),
    ("", AssistantMessage((ToolCall("1", "write", {"path": "a", "content": "x" * 400}),)), 200, "a call is an answer"),
    ("", AssistantMessage((ToolCall("1", "write", None, "{" + "x" * 400),)), 200, "one that is no JSON too"),
    ("\u6f22" * 400, AssistantMessage(()), 600, "a character is not a byte"),
]


@pytest.mark.threat("T92")
@pytest.mark.parametrize(("sent", "answer", "least", "why"), UNCOUNTED, ids=[row[3] for row in UNCOUNTED])
def test_all_that_travels_counts(sent: str, answer: AssistantMessage, least: int, why: str) -> None:
    spent = BudgetMeter(RunLimits(), unattended=True)
    spent.answered(Usage(), (UserMessage((TextBlock(sent),)),), answer)
    assert least <= spent.tokens <= least + 50, why


# fmt: off
COSTS: list[tuple[Usage, Price | None, float | None, str]] = [
    (Usage(1_000_000, 0), PRICE, 1.0, "sent"),
    (Usage(0, 1_000_000), PRICE, 10.0, "received"),
    (Usage(0, 0, 1_000_000, 1_000_000), PRICE, 1.35, "the cache"),
    (Usage(1), None, None, "nobody knows"),
    (Usage(1, 0, 1), Price(1.0, 1.0), None, "a kind without a price"),
    (Usage(1), Price(1.0, 1.0), 1e-6, "a kind without a price that was not used"),
    (Usage(50, 1_000_000, 50), Price(1, 1, 1, 1, 100, Price(2, 2, 2, 2)), 1.0001, "up to the bound"),
    (Usage(50, 1_000_000, 51), Price(1, 1, 1, 1, 100, Price(2, 2, 2, 2)), 2.000202, "a long request, all of it"),
]
# fmt: on


@pytest.mark.parametrize(("usage", "price", "expected", "why"), COSTS, ids=[row[3] for row in COSTS])
def test_cost(usage: Usage, price: Price | None, expected: float | None, why: str) -> None:
    found = cost(usage, price)
    assert found == (None if expected is None else pytest.approx(expected)), why


def test_the_published_prices_are_whole_and_dated() -> None:
    table = published()
    assert table.as_of.startswith("202")
    for name, price in table.prices.items():
        for each in (price, price.long):
            if each is not None:
                assert None not in (each.input, each.output, each.cache_read, each.cache_write), name
                assert each.cache_read <= each.input <= each.cache_write <= each.output, name  # type: ignore[operator]


def test_which_price_counts() -> None:
    from runner.config.load import packaged

    plain = packaged()
    mine = replace(plain, values={("price", "anthropic:claude-opus-5", "input"): 7})
    known = price_of("anthropic:claude-opus-5", plain, vendor=True)
    assert known is not None
    assert price_of("anthropic:claude-opus-5-20260724", plain, vendor=True) == known, "a date names the same model"
    assert price_of("anthropic:claude-opus-5", plain, vendor=False) is None, "another server has its own prices"
    assert price_of("anthropic:claude-opus-55", plain, vendor=True) is None
    assert price_of("anthropic:claude-opus-5", mine, vendor=True) == Price(input=7.0), "yours counts, whole"
