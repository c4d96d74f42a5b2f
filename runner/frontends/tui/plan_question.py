"""The question at the end of plan mode, under the plan that stands above it: whether, and in which mode, to begin."""

import time
from collections.abc import Callable

from policy.model.tier import Mode
from runner.approval.plan_answer import LETTERS, WAYS, Leave, PlanAnswer, Stay
from runner.frontends.tui.fragments import Fragments, fit
from runner.frontends.tui.keypress_guard import Guard
from runner.frontends.tui.panel import Done, Edit
from runner.frontends.tui.panel import Stay as Wait

_WORDS = {
    Mode.DEFAULT: "yes, and ask me before each change",
    Mode.ACCEPT_EDITS: "yes, edits without asking; commands are asked about",
    Mode.TRUST_PROJECT: "yes, edits and the project's code without asking",
}
_LABEL = "what should be other about the plan?"


class PlanQuestion:
    """A Panel. Enter alone begins nothing: the row it stands on first is the no."""

    alone = True  # a key that others follow at once is no answer

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._at = len(WAYS)
        self._guard = Guard(clock)

    def lines(self, width: int, rows: int) -> list[Fragments]:
        self._guard.drawn()
        said = [*(f"{letter}  {_WORDS[mode]}  ({mode.value})" for letter, mode in LETTERS.items())]
        said += ["n  no: keep planning", "f  no, and say what should be other"]
        drawn: list[Fragments] = [[("bold", "begin with this plan?")]]
        for place, text in enumerate(said):
            here = place == self._at
            drawn.append([("bold ansicyan" if here else "", f"{'>' if here else ' '} {text}")])
        return [fit(row, width) for row in drawn[:rows]]

    def key(self, key: str) -> Wait | Done[PlanAnswer] | Edit:
        if key not in ("up", "down") and self._guard.early():
            return Wait()
        match key:
            case "up" | "c-p":
                self._at = (self._at - 1) % (len(WAYS) + 2)
            case "down" | "c-n" | "tab":
                self._at = (self._at + 1) % (len(WAYS) + 2)
            case "enter":
                return self._chosen(self._at)
            case "n" | "escape":
                return Done(Stay())
            case "f":
                return self._chosen(len(WAYS) + 1)
            case _ if key in LETTERS:
                return Done(Leave(LETTERS[key]))
        return Wait()

    def edited(self, text: str | None) -> Wait | Done[PlanAnswer] | Edit:
        self._guard.hidden()
        return Done(Stay(text.strip())) if text is not None and text.strip() else Wait()

    def _chosen(self, place: int) -> Done[PlanAnswer] | Edit:
        if place < len(WAYS):
            return Done(Leave(WAYS[place]))
        return Done(Stay()) if place == len(WAYS) else Edit("", _LABEL)
