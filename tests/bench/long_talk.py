"""Benchmark part: the cost of the context selection of a long conversation before each request."""

import resource
import time

from runner.engine.compaction.view import ConversationView
from runner.engine.context.tokens import ContextMeter
from runner.messages import AssistantMessage, Message, TextBlock, ToolCall, ToolMessage, ToolResult, UserMessage
from runner.sessions.entries import CompactionRecord

TURNS = 1_000
OUTPUT = "test_something.py::test_case PASSED\n" * 140  # 5 KB


def _turn(number: int) -> list[Message]:
    call = ToolCall(f"toolu_{number}", "bash", {"command": "pytest -q tests/test_something.py"})
    said = TextBlock(f"{number}: I look at it, then I know more. " * 4)
    return [AssistantMessage((said, call)), ToolMessage((ToolResult(call.id, (TextBlock(f"{number} {OUTPUT}"),)),))]


def measured() -> dict[str, float]:
    """Milliseconds for the first request after a level was reached and for each one after it, and resident MB."""
    history: list[Message] = [UserMessage((TextBlock("do it"),))]
    for number in range(TURNS):
        history += _turn(number)
    view, gauge = ConversationView(), ContextMeter()
    end = len(history)
    view.restore([(end, CompactionRecord(lined=end - 100, trimmed=end - 20).turned(end))], history)
    times = []
    for number in range(10):
        began = time.perf_counter()
        gauge.size(view.visible(history))
        times.append((time.perf_counter() - began) * 1000)
        history += _turn(TURNS + number)
    rest = sorted(times[1:])[len(times) // 2]
    return {"first": times[0], "each": rest, "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


if __name__ == "__main__":
    found = measured()
    print(f"{found['first']:.1f} ms, then {found['each']:.2f} ms for each request; {found['rss']:.0f} MB resident")
