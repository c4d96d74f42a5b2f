"""A model that follows a script: for demos, tests and replays. No key, no network.

A script is a list of turns; each request plays the next one. `--model scripted:FILE` reads them from a file whose name
ends in `.toml` or `.json`:

    [[turn]]
    thinking = "the tests come first"           # optional
    text = "I will run the tests."              # optional
    calls = [{ name = "bash", arguments = { command = "make test" } }]   # optional

    [[turn]]
    when = "refused"                            # only if a result of the last tool calls contains this text
    text = "Then I will only read the makefile."
    calls = [{ name = "read", arguments = { path = "Makefile" } }]

    [turn.otherwise]                            # instead, if none does
    text = "All tests pass."

A turn whose `when` does not apply and that has no `otherwise` is skipped. A call may have `raw = "text"` instead of
`arguments`: the text of a model that writes broken JSON. `stop` may be `end`, `tools`, `length`, `refusal` or `other`;
the default is `tools` for a turn with calls and `end` for other turns. After the last turn the answer is a short text
that says so. `usage = { input = 900, output = 40 }` is the reported usage; the default is zero. With `early = true`
each call is reported as soon as it is complete, as servers do, so that reads begin before the turn ends. The JSON form
is `{"turn": [{"text": "..."}]}`.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

from policy.model.frozen import dataclass
from runner.messages import (
    AssistantMessage,
    CallOpened,
    CallReady,
    Reply,
    Request,
    Stop,
    StreamEvent,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolCall,
    ToolMessage,
    Usage,
    blocks_of,
    joined_text,
)


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer of the scripted model. Calls with an empty id are given one."""

    text: str = ""
    thinking: str = ""
    calls: tuple[ToolCall, ...] = ()
    stop: Stop | None = None
    when: str | None = None
    otherwise: "Turn | None" = None
    usage: Usage = Usage()
    early: bool = False


SCRIPT_ENDED = Turn("The script has no more turns.")


class ScriptedProvider:
    """A provider that plays `turns` in order, one per request. A request that is cancelled midway leaves its turn to
    the next request.
    """

    name = "scripted"

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._turns = tuple(turns)
        self._next = 0

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        """Yield the turn's thinking and text word by word, early calls one by one, then the Reply."""
        answered = (each for each in reversed(request.messages) if isinstance(each, ToolMessage))
        results = next((joined_text(blocks_of(each)) for each in answered), "")
        place, turn = self._choose(results)
        for piece in _words(turn.thinking):
            yield ThinkingDelta(piece)
            await asyncio.sleep(0)  # a real stream lets others run between deltas
        for piece in _words(turn.text):
            yield TextDelta(piece)
            await asyncio.sleep(0)
        self._next = place + 1
        reply = _reply(turn, place + 1)
        for call in reply.message.calls if turn.early else ():
            yield CallOpened(call.name)
            await asyncio.sleep(0)
            if call.arguments is not None:
                yield CallReady(call)
                await asyncio.sleep(0)
        yield reply

    async def close(self) -> None:
        return None

    def _choose(self, results: str) -> tuple[int, Turn]:
        for place in range(self._next, len(self._turns)):
            turn = self._turns[place]
            if turn.when is None or turn.when in results:
                return place, turn
            if turn.otherwise is not None:
                return place, turn.otherwise
        return len(self._turns), SCRIPT_ENDED


def _reply(turn: Turn, number: int) -> Reply:
    calls = tuple(
        call if call.id else replace(call, id=f"scripted-{number}-{position}")
        for position, call in enumerate(turn.calls, start=1)
    )
    thinking = (ThinkingBlock(turn.thinking),) if turn.thinking else ()
    text = (TextBlock(turn.text),) if turn.text else ()
    stop = turn.stop or (Stop.TOOLS if calls else Stop.END)
    return Reply(AssistantMessage((*thinking, *text, *calls)), stop, turn.usage)


def _words(text: str) -> list[str]:
    return re.findall(r"\s*\S+\s*$|\s*\S+|\s+", text)
