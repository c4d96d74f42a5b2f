"""The summarizer: a small model that writes notes about old messages, on the budget of the run."""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.engine.compaction.summary_prompt import ANSWER, cleaned, request
from runner.engine.context.tokens import weight_of
from runner.events import Notice, Retrying
from runner.messages import Failure, Message, ProviderError, Reply, Request, TextBlock
from runner.providers import OpenModel
from runner.providers.catalog import facts_of
from runner.secrets.secret import SecretError

if TYPE_CHECKING:
    from runner.engine.budget import BudgetMeter
    from runner.engine.model_access import ModelAccess
    from runner.providers.pricing import Price

_MOST = 120_000  # tokens that it is sent at once; a summary of more is no better
_UNKNOWN = 24_000  # likewise where nobody knows its window
_LONGEST = 60.0  # seconds that a server may ask us to wait; the conversation waits for it


@dataclass(frozen=True, slots=True)
class Summarizer:
    """A summarizer of old messages.

    Attributes:
        chosen: The model of the setting `small_model`, or an empty string.
        price: A function that returns the price of a model, or None if it is unknown.
    """

    chosen: str = ""
    price: "Callable[[OpenModel], Price | None]" = lambda opened: None

    async def notes(
        self,
        old: Sequence[Message],
        before: str,
        focus: str,
        access: "ModelAccess",
        spent: "BudgetMeter | None",
        window: Callable[[str], int | None],
    ) -> str | None:
        """Return notes about `old`, or None if the budget does not allow them or the answer is empty.

        `window` returns the context window of a model. Raise ProviderError.
        """
        small, price = self._opened(access)
        room = min((window(small.named) or _UNKNOWN) * 3 // 4, _MOST)
        for attempt in count(1):
            asked = request(old, before, focus, small.model, room)
            sends = round(sum(map(weight_of, asked.messages)))
            if spent is not None and not spent.affords(sends, ANSWER, price):
                return None
            if attempt == 1:
                access.emit(Notice(f"`{small.named}` writes notes about what was said and done before"))
            try:
                reply = await _reply(small, asked, access)
            except ProviderError as error:
                if error.failure is not Failure.CONTEXT or attempt > access.limits.patience.resumes:
                    raise
                room //= 2  # nobody had said that so little fits into it
            else:
                break
        access.journal.usage(reply.usage, model=small.named, price=price)
        if spent is not None:
            spent.aside(reply.usage, asked.messages, reply.message, price)
        text = "".join(block.text for block in reply.message.content if isinstance(block, TextBlock))
        return cleaned(access.redactor.text(text)) or None

    def _opened(self, access: "ModelAccess") -> "tuple[OpenModel, Price | None]":
        """Return the small model and its price.

        Return the model of the conversation if there is no other, or if money is counted and the price is unknown.
        """
        own = OpenModel(access.provider, access.model)
        main = access.limits.price
        if access.models is None:
            return own, main
        spec = self.chosen
        if not spec:
            with_facts = facts_of(own.named).small
            spec = with_facts if with_facts and access.models.vendors(own.named) else ""
        if not spec or spec == own.named:
            return own, main
        try:
            small = access.models.get(spec)
        except (ProviderError, SecretError) as error:
            if self.chosen:
                access.emit(Notice(f"the small model `{spec}` cannot be asked: {error.problem.what}"))
            return own, main
        price = self.price(small)
        if access.limits.money is not None and (price is None or price.input is None or price.output is None):
            return own, main
        return small, price


async def _reply(small: OpenModel, asked: Request, access: "ModelAccess") -> Reply:
    """Return the answer of the model, with retries if waiting helps. Raise ProviderError."""
    patience = access.limits.patience
    for attempt in count(1):
        try:
            return await _streamed(small, asked)
        except ProviderError as error:
            luck = random.random()  # noqa: S311  # spreads waits, guards nothing
            seconds = patience.wait(error.failure, attempt, error.retry_after, luck, left=_LONGEST)
            if seconds is None or attempt > patience.resumes:
                raise
            access.emit(Retrying(error.failure, error.problem, seconds, attempt, patience.resumes))
            await asyncio.sleep(seconds)
    raise AssertionError


async def _streamed(small: OpenModel, asked: Request) -> Reply:
    events = small.provider.stream(asked)
    try:
        async for event in events:
            if isinstance(event, Reply):
                return event
    finally:
        if isinstance(events, AsyncGenerator):  # the connection is closed, whatever ended it
            await events.aclose()
    why = "the stream ended before the answer did"
    problem = Problem(f"`{small.provider.name}` broke off its notes", why, "nothing is lost: the session holds all")
    raise ProviderError(problem, failure=Failure.RETRYABLE)
