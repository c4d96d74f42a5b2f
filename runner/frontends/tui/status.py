"""The status line: mode, model, fill of its context window, cost, sandbox, network and processes, or a short notice."""

import math

from policy.model.profile import MAIN
from policy.model.tier import MATRIX, Mode, Ruling, Tier
from runner.events import (
    Changed,
    ContextUsed,
    Event,
    ModelText,
    ModelThinking,
    ProcessEnded,
    ProcessStarted,
    Prompted,
    Retrying,
    RunEnded,
    SessionStarted,
    TaskChanged,
)
from runner.frontends.tui.rows import Fragments, fit, row_cells
from runner.frontends.wording import wait_words
from runner.text.sanitize import one_line

_MODE = {  # modes with fewer questions have more striking colours
    Mode.PLAN: "ansicyan",
    Mode.DEFAULT: "ansigreen",
    Mode.ACCEPT_EDITS: "ansigreen",
    Mode.TRUST_PROJECT: "ansiyellow",
    Mode.DONT_ASK: "ansiyellow",
    Mode.DANGEROUSLY: "bold ansired reverse",
}
_NETWORK = {Ruling.ALLOW: "network open", Ruling.ASK: "net: ask", Ruling.DENY: "no network"}
_PORTS = 3  # ports that are named
_PER_TOKEN = 4  # characters, on average
_GAP = ("dim", " · ")


class StatusLine:
    """The status line. Its values come from events, except `notice` and `ports`, which are set."""

    def __init__(self) -> None:
        self.notice = ""  # shown instead of the values until the next key
        self.ports: tuple[int, ...] = ()  # on which processes of the session listen
        self._processes: set[str] = set()
        self._agents: set[str] = set()
        self._tasks = ""
        self._label = ""
        self._private = False
        self._mode = ""
        self._model = ""
        self._sandbox = ""
        self._context = ""
        self._full = 0.0
        self._cost: float | None = None

    def take(self, event: Event) -> None:
        """Note what `event` changes. Of sub-agents the line shows only how many work, and their processes."""
        if event.agent != MAIN and not isinstance(event, ProcessStarted | ProcessEnded):
            if isinstance(event, Prompted):
                self._agents.add(event.agent)
            elif isinstance(event, RunEnded):
                self._agents.discard(event.agent)
            return
        match event:
            case SessionStarted():
                self._mode, self._model = event.mode.value, _short(event.model)
                self._sandbox = event.enforcement.level.value.lower()
                self._context, self._full = "", 0.0
                self._processes.clear()
                self._agents.clear()
                self._tasks = ""
                self._label, self._private = event.label, event.private
            case ProcessStarted(process):
                self._processes.add(process)
            case ProcessEnded(process):
                self._processes.discard(process)
            case TaskChanged():
                self._tasks = f"{event.done}/{event.total} task{'s' * (event.total != 1)}" if event.total else ""
            case Changed("mode", _, now):
                self._mode = now
            case Changed("model", _, now):
                self._model = _short(now)
            case Changed("label", _, now):
                self._label = now
            case Changed("private", _, now):
                self._private = now == "yes"
            case ContextUsed():
                self._full = event.tokens / event.window if event.window else 0.0
                fill = f"{self._full:.0%} of {_count(event.window)}" if event.window else _count(event.tokens)
                self._context = fill if event.exact else f"~{fill}"
                self._cost = event.cost if event.cost is not None else self._cost
            case RunEnded() if event.cost is not None:
                self._cost = event.cost

    def line(self, width: int, *, asked: bool = False) -> Fragments:
        """Return as much of the line as fits. The mode and the sandbox are dropped last, because they say what may
        happen. `asked` is True while a question or a list waits for the user.
        """
        if self.notice:
            return fit([("ansiyellow", one_line(self.notice, 500))], width)
        if not self._mode:
            return fit([("dim", "" if asked else "opening the session")], width)
        loud = "bold ansiyellow" if self._full >= 0.8 else "dim"
        parts = [  # rank (the highest goes first when the line is narrow), style and text
            (0, _MODE[Mode(self._mode)], self._mode),
            (3, "dim", self._model),
            (2, loud, self._context),
            (4, "dim", f"${self._cost:.2f}" if self._cost is not None else ""),
            (1, "dim" if self._sandbox == "full" else "bold ansired", f"sandbox {self._sandbox}"),
            (1, "ansiyellow", self._texts()),
            (5, "dim", _NETWORK[MATRIX[Tier.NETWORK][Mode(self._mode)]]),
            (3, "dim", self._background()),
            (3, "dim", f"{len(self._agents)} agent{'s' * (len(self._agents) > 1)}" if self._agents else ""),
            (3, "dim", self._tasks),
            (6, "dim", "? help"),
        ]
        parts = [part for part in parts if part[2]]
        while len(parts) > 1 and row_cells(_joined(parts)) > width:
            parts.remove(max(parts))
        return fit(_joined(parts), width)

    def _texts(self) -> str:
        """Return what the conversation contains: untrusted text, private data or both; empty without these."""
        if self._label != "untrusted":
            return ""
        return "untrusted, private" if self._private else "untrusted"

    def _background(self) -> str:
        """Return the number of processes and the ports on which they listen; empty without a process."""
        count = len(self._processes)
        if not count:
            return ""
        ports = ", ".join(map(str, self.ports[:_PORTS])) + (", …" if len(self.ports) > _PORTS else "")
        listens = f", port{'s' * (len(self.ports) > 1)} {ports}" if ports else ""
        return f"{count} process{'es' * (count > 1)}{listens}"


def _joined(parts: list[tuple[int, str, str]]) -> Fragments:
    return [fragment for _, style, text in parts for fragment in (_GAP, (style, text))][1:]


def _short(model: str) -> str:
    """Return the model's own name. The start of the session shows its provider."""
    name = model.partition(":")[2] or model
    return one_line(name.rpartition("/")[2] if name.startswith("/") else name, 32)


def _count(tokens: int) -> str:
    return f"{tokens / 1e6:.1f}M" if tokens >= 1_000_000 else f"{tokens / 1e3:.0f}k" if tokens >= 1000 else str(tokens)


class Wait:
    """The wait before the next attempt of a failed request. `now` is the time of a clock in seconds."""

    def __init__(self) -> None:
        self._until = -math.inf

    def take(self, event: Event, now: float) -> None:
        match event:
            case Retrying():
                self._until = now + event.wait
            case ModelText() | ModelThinking() | Changed() | RunEnded():
                self._until = -math.inf

    def words(self, now: float) -> str:
        """Return the remaining wait in words; empty if there is none."""
        remaining = self._until - now
        return f"retry in {wait_words(math.ceil(remaining))}" if remaining > 0 else ""


class Progress:
    """The time and the received tokens of the work in progress. `now` is the time of a clock in seconds."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._characters = 0

    def take(self, event: Event, now: float) -> None:
        match event:
            case Prompted():
                self._began, self._characters = now, 0
            case ModelText(text) | ModelThinking(text):
                self._characters += len(text)

    def stop(self) -> None:
        """Forget the work, which ended."""
        self._began, self._characters = None, 0

    def words(self, now: float) -> str:
        """Return the time since the prompt, and an estimate of the tokens that the model wrote since then."""
        if self._began is None:  # a command of the user, which is no prompt
            self._began = now
        tokens = round(self._characters / _PER_TOKEN)
        return f"working {wait_words(int(now - self._began))}{f', ~{tokens:,} tokens' if tokens else ''}"
