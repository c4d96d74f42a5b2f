"""Events as the plain conversation shows them, for the scrollback."""

import io

from runner.events import Event, Prompted, Said
from runner.transcript import Transcript
from runner.tui.fragments import Fragments
from runner.visible import one_line


class Flow:
    """A Screen that is a Transcript: each line goes up when it is whole."""

    def __init__(self, width: int, *, colour: bool) -> None:
        from rich.console import Console

        self._file = io.StringIO()
        console = Console(
            file=self._file, force_terminal=True, width=width, color_system="standard" if colour else None
        )
        self._transcript = Transcript(console)
        self._rest = ""
        self._said = ""

    def take(self, event: Event) -> None:
        match event:
            case Prompted(text):
                lines = text.rstrip().split("\n")
                self._file.write("\n\x1b[1m> " + one_line(lines[0], 2000) + "\x1b[0m\n")
            case _:
                self._transcript(event)
        if isinstance(event, Said):
            self._said = (self._said + event.text)[-200:].rpartition("\n")[2]
        else:
            self._said = ""

    def done(self) -> str:
        whole, newline, self._rest = (self._rest + self._file.getvalue()).rpartition("\n")
        self._file.seek(0)
        self._file.truncate()
        return whole + newline

    def live(self, width: int, rows: int) -> list[Fragments]:
        return [[("", one_line(self._said, width))]] if self._said else []

    def expand(self) -> bool:
        return False
