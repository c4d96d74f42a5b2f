"""The budget of one run: what the run used, compared with its limits before and after each request."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import NoReturn

from policy.model.profile import MAIN
from runner.engine.run_limits import RunLimits
from runner.messages import AssistantMessage, Message, Usage, blocks_of, texts_of
from runner.problems import Exit
from runner.providers.catalog import FREE, Price, cost
from runner.text.phrases import many

MOST_ANSWERED = 16_384  # tokens of one answer, as long as the budget has them
LEAST_ANSWERED = 16  # tokens of one answer. SOURCE: the smallest number that OpenAI's API accepts
_BYTES = 8  # upper bound of the bytes of one token, on average: four is usual, so only certain excess is found
_BYTES_AT_LEAST = 2  # lower bound of the bytes of one token, on average, for a server that does not count tokens


class Limit(StrEnum):
    """The limit that ended a run."""

    TURNS = "turns"
    TOKENS = "tokens"
    MONEY = "money"
    WALL = "wall"
    OUTPUT = "output"
    DENIALS = "denials"


class BudgetExceeded(Exception):
    """The error that ends a run at once, because a limit was reached or the model declined to continue."""

    def __init__(self, reason: str, limit: Limit | None = None, exit: Exit = Exit.LIMIT) -> None:
        super().__init__(reason)
        self.exit = exit
        self.reason = reason
        self.limit = limit


class BudgetMeter:
    """The counters of one run, compared with its limits.

    Attributes:
        turns: The number of answers.
        usage: The tokens as the provider reports them.
        money: The cost so far, or None if the price is unknown.
        output: The bytes that actions printed.
        denials: The number of denied actions.
        agent: The agent that spends the budget. The reason of a reached limit names a sub-agent.
        parent: The agent that started it, or None for `main`.
    """

    def __init__(
        self,
        limits: RunLimits,
        *,
        unattended: bool,
        agent: str = MAIN,
        parent: str | None = None,
        above: "Callable[[], BudgetMeter | None]" = lambda: None,
    ) -> None:
        """`above` returns the meter of the agent that started this one, which pays for this run, too."""
        self.agent, self.parent = agent, parent
        self._above = above
        self.turns = 0
        self.usage = Usage()
        self._counted = Usage()
        self.money: float | None = 0.0 if limits.price is not None else None
        self.output = 0
        self.denials = 0
        self._limits = limits
        self._unattended = unattended
        self._row = 0
        self._sent = 0  # tokens of the last answered request, which the next request repeats
        self._sent_bytes = 0  # bytes of its messages

    def turn(self) -> None:
        """Raise BudgetExceeded if the run may ask for no further answer."""
        if self.turns >= self._limits.turns:
            raise self._exceeded(
                f"stopped after {many(self.turns, 'request')} to the model, the most that this run may have",
                Limit.TURNS,
            )

    def max_answer_tokens(self, messages: Sequence[Message], wanted: int = MOST_ANSWERED) -> int:
        """Return the largest number of tokens, at most `wanted`, that the answer to a request with `messages` may have.

        Raise BudgetExceeded if tokens or money are left for fewer than LEAST_ANSWERED tokens.
        """
        limits = self._limits
        if (above := self._above()) is not None:  # a share of the budget is never more than the rest of the whole
            wanted = above.share(messages, wanted)
        most, limit = float(wanted), None
        sends = max(self._sent, _bytes(messages) // _BYTES)
        if limits.tokens is not None:
            remaining = limits.tokens - self.tokens - sends
            if remaining < most:
                most, limit = remaining, Limit.TOKENS
        if limits.money is not None and limits.price is not None and self.money is not None:
            price = limits.price.at(sends)
            known = (each for each in (price.input, price.cache_read, price.cache_write) if each is not None)
            rest = limits.money - self.money - sends * min(known, default=0.0) / 1_000_000
            each = (price.output or 0.0) / 1_000_000
            room = rest / each if each else wanted if rest >= 0 else 0
            if room < most:
                most, limit = room, Limit.MONEY
        if most < LEAST_ANSWERED:
            raise self._exceeded(f"stopped before a request that would exceed {self._limit_text(limit)}", limit)
        return int(most)

    def share(self, messages: Sequence[Message], wanted: int) -> int:
        """Return `max_answer_tokens` for a request with `messages` of a sub-agent, which repeats no request of this
        run.
        """
        sent, self._sent = self._sent, 0
        try:
            return self.max_answer_tokens(messages, wanted)
        finally:
            self._sent = sent

    def answered(self, usage: Usage, messages: Sequence[Message], answer: AssistantMessage) -> None:
        """Count a request with `messages` and its answer against the budgets.

        The server's own count is used unless it is zero (then the tokens are estimated, too many rather than too few)
        or below the minimum for the size of the text (then it is raised to that): a budget must not trust the server
        alone. At the price FREE the server's count is always used.
        """
        counted = self.aside(usage, messages, answer, self._limits.price)
        self._sent = counted.input + counted.cache_read + counted.cache_write
        self._sent_bytes = _bytes(messages)

    def aside(self, usage: Usage, sent: Sequence[Message], answer: AssistantMessage, price: Price | None) -> Usage:
        """Charge the run for a request with `sent` at `price` (None if unknown), and return the charged tokens."""
        self._used(usage)
        if price != FREE and usage == Usage():
            usage = Usage(-(-_bytes(sent) // _BYTES_AT_LEAST), -(-_bytes((answer,)) // _BYTES_AT_LEAST))
        elif price != FREE:  # a count below the minimum for `sent` and `answer` is raised
            missing = _bytes(sent) // _BYTES - (usage.input + usage.cache_read + usage.cache_write)
            output = max(usage.output, _bytes((answer,)) // _BYTES)
            usage = replace(usage, input=usage.input + max(missing, 0), output=output)
        self._pay(usage, price)
        return usage

    def broken(self, messages: Sequence[Message], text: str) -> None:
        """Count an answer to `messages` that broke off after the text `text`.

        The server charged for the answer without reporting the tokens, so the tokens are estimated, too many rather
        than too few.
        """
        if self._limits.price == FREE:
            return
        added = max(0, _bytes(messages) - self._sent_bytes)  # since the last answer
        sent = self._sent + -(-added // _BYTES_AT_LEAST)
        self._pay(Usage(sent, -(-_length(text) // _BYTES_AT_LEAST)), self._limits.price)

    def _used(self, usage: Usage) -> None:
        self.usage += usage
        if (above := self._above()) is not None:
            above._used(usage)

    def _pay(self, usage: Usage, price: Price | None) -> None:
        self._counted += usage
        if self.money is not None:
            paid = cost(usage, price)
            self.money = self.money + paid if paid is not None else None
        if (above := self._above()) is not None:
            above._pay(usage, price)

    def affords(self, sends: int, most: int, price: Price | None) -> bool:
        """Return True if a side request of `sends` tokens with an answer of `most` tokens stays within the limits."""
        if (above := self._above()) is not None and not above.affords(sends, most, price):
            return False
        limits = self._limits
        if limits.tokens is not None and self.tokens + sends + most > limits.tokens:
            return False
        if limits.money is None:
            return True
        would = cost(Usage(sends, most), price)
        return self.money is not None and would is not None and self.money + would <= limits.money

    def shortened(self) -> None:
        """Note that the next request is shorter than the last one."""
        self._sent = self._sent_bytes = 0

    def check(self) -> None:
        """Raise BudgetExceeded if the run used more tokens or money than its limits, or if its cost is unknown although
        money is limited. Calls of the last answer are then not executed.
        """
        if (above := self._above()) is not None:
            above.check()
        limits = self._limits
        if limits.tokens is not None and self.tokens > limits.tokens:
            self._used_up(f"{self.tokens} tokens", Limit.TOKENS)
        if limits.money is not None and (self.money is None or self.money > limits.money):
            self._used_up(f"spending {'an unknown amount' if self.money is None else f'{self.money:.4f}'}", Limit.MONEY)

    def priced(self, limits: RunLimits) -> None:
        """Continue at the price in `limits`, those of another model. Without a price the cost is unknown from now on,
        and a limit of money that `limits` lacks does not apply any more.
        """
        self._limits = replace(
            self._limits, price=limits.price, money=None if limits.money is None else self._limits.money
        )
        if limits.price is None:
            self.money = None

    def printed(self, count: int) -> None:
        """Count `count` bytes of output. Raise BudgetExceeded if the limit is exceeded."""
        self.output += count
        if (above := self._above()) is not None:
            above.printed(count)
        if self._limits.output is not None and self.output > self._limits.output:
            self._used_up(f"{self.output} bytes of output", Limit.OUTPUT)

    def allowed(self) -> None:
        self._row = 0

    def denied(self) -> None:
        """Count a denial. Raise BudgetExceeded if an unattended run has too many of them."""
        self.denials += 1
        self._row += 1
        limits = self._limits
        if self._unattended and (self._row >= limits.row or self.denials >= limits.total):
            count = f"{self._row} denials in a row" if self._row >= limits.row else f"{self.denials} denials"
            raise self._exceeded(f"stopped after {count}: there is no user who could answer", Limit.DENIALS)

    @property
    def remaining(self) -> tuple[int | None, float | None]:
        """Return the tokens and the money that are left; None for no limit."""
        limits = self._limits
        tokens = None if limits.tokens is None else max(limits.tokens - self.tokens, 0)
        return tokens, None if limits.money is None or self.money is None else max(limits.money - self.money, 0.0)

    @property
    def tokens(self) -> int:
        """Return the number of tokens sent and received, cached or not."""
        used = self._counted
        return used.input + used.output + used.cache_read + used.cache_write

    def cut_off(self) -> Limit:
        """Return the limit that probably cut an answer off: MONEY if over 90% of the money is spent, else TOKENS."""
        limits = self._limits
        near = limits.money is not None and self.money is not None and self.money > 0.9 * limits.money
        return Limit.MONEY if near else Limit.TOKENS

    def _exceeded(self, reason: str, limit: Limit | None) -> BudgetExceeded:
        acting = "" if self.agent == MAIN else f"the agent `{self.agent}`, which `{self.parent}` started, "
        return BudgetExceeded(f"{acting}{reason}", limit)

    def _used_up(self, used: str, limit: Limit) -> NoReturn:
        raise self._exceeded(f"stopped after {used}: {self._limit_text(limit)} is exhausted", limit)

    def _limit_text(self, limit: Limit | None) -> str:
        match limit:
            case Limit.TOKENS:
                return f"the budget of {self._limits.tokens} tokens"
            case Limit.MONEY:
                return f"the budget of {self._limits.money:g}"
            case _:
                return f"the budget of {self._limits.output} bytes"


def _bytes(messages: Sequence[Message]) -> int:
    """Return the number of bytes of the texts and calls in `messages`. A request is longer than that."""
    texts = (text for message in messages for block in blocks_of(message) for text in texts_of(block))
    return sum(map(_length, texts))


def _length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
