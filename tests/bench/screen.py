"""Benchmark of the full-screen interface, in milliseconds of processor time. No result fails a build.

A model that writes 100 tokens a second has 10 ms for each; a change of 2,000 lines shall be there at once.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from policy.model.action import EditFile
from policy.model.tier import Ruling, Tier
from runner.events import ModelText, ToolProposed
from runner.frontends.tui.screen import Screen
from runner.frontends.tui.theme import DARK
from tests.support.screen_story import REPLY, finished, judged

TEXTS = {
    "Markdown": REPLY * 10,
    "one paragraph": "The quick brown fox jumps over the **lazy** dog. " * 400,
    "no blanks": "x" * 20_000,
    "code": "```python\n" + 'def f(a, b):\n    return "abc" + str(a)  # c\n' * 300 + "```\n",
    "a list": "- an item with some words in it\n" * 600,
    "brackets": "[](" * 6000,
}


def spent(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return (time.thread_time() - began) * 1000


def stream(text: str) -> Callable[[], None]:
    """Four characters a token, drawn at every third, as the terminal does at 30 frames a second."""

    def work() -> None:
        screen = Screen(lambda: 80, DARK)
        for place, start in enumerate(range(0, len(text), 4)):
            screen.take(ModelText(text[start : start + 4]))
            if place % 3 == 0:
                screen.done()
                screen.live(79, 24)

    return work


def change() -> None:
    screen = Screen(lambda: 120, DARK)
    screen.take(ToolProposed("1.1", "edit", EditFile("/w/a.py", "x", "y")))
    screen.take(judged("1.1", Tier.WRITE, Ruling.ALLOW, "changes a file"))
    lines = "".join(f"+    value_{n} = compute({n}, 'some words') or 0\n" for n in range(1000))
    screen.take(finished("1.1", f"edited a.py\n@@ -1,1000 +1,1000 @@\n{lines}{lines.replace('+', '-')}"))
    screen.expand()
    screen.done()


def main() -> None:
    for name, text in TEXTS.items():
        tokens = len(text) / 4
        print(f"screen: {name:<14} {spent(stream(text)) / tokens * 100:7.1f} ms for 100 tokens")
    print(f"screen: a change of 2,000 lines {spent(change):.0f} ms")


if __name__ == "__main__":
    main()
