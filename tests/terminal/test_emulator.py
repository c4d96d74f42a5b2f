"""Tests of the emulator of the other tests of this folder, with tmux as the judge."""

import unicodedata
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.terminal_screen import Screen, ScreenTerminal
from tests.support.tmux import Tmux

ESC = r"\033"
# what a program does in a terminal of 20 columns and 8 rows, why
ROWS = [
    ("printf 'x%.0s' $(seq 45); echo; echo short", "rows that the terminal wraps are one line"),
    ("printf 'x%.0s' $(seq 20); echo; echo next", "a full row is no wrapped row"),
    ("echo 漢字漢字漢字漢字漢字漢字漢字; echo a漢字漢字漢字漢字漢字漢字", "wide characters, also at the last column"),
    ("seq 30", "rows that leave the screen are kept"),
    (f"seq 3; printf '{ESC}[?1049h{ESC}[Hother'; seq 20; printf '{ESC}[?1049l'; echo back", "the alternate screen"),
    (f"echo one; echo two; printf '{ESC}[2A\\r{ESC}[Kthree{ESC}[B\\r{ESC}[K'", "rows are erased and written again"),
    (f"printf '{ESC}]0;title\\a{ESC}]52;c;aGk=\\a{ESC}P+q544e{ESC}\\\\{ESC}[>1u{ESC}[>4;1m{ESC}[?2026h'; echo seen",
     "sequences that show nothing"),
    (f"stty -echo; printf 'four{ESC}[6n'; read -rsdR at; echo; echo ${{at#*[}}", "the place of the cursor is answered"),
    (f"stty -echo; printf '{ESC}[c'; read -rsdc who; echo answered", "the query for the kind of terminal is answered"),
    (f"printf 'e\\314\\201 {ESC}[31mred{ESC}[0m {ESC}(0q{ESC}(B\\ttab\\bX'; echo", "marks, colours, line drawing, tabs"),
]  # fmt: skip


@pytest.mark.parametrize(("script", "why"), ROWS, ids=[row[1] for row in ROWS])
def test_the_emulator_shows_what_tmux_shows(tmp_path: Path, script: str, why: str) -> None:
    environ, command, size = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}, ("bash", "-c", script), (20, 8)
    with (
        closing(ScreenTerminal(tmp_path, environ, *command, size=size)) as emulated,
        closing(Tmux(tmp_path, tmp_path, environ, *command, size=size)) as judge,
    ):
        assert _shown(emulated) == _shown(judge), why


def _shown(screen: Screen) -> list[list[str]]:
    screen.until("LEFT 0")
    texts = [unicodedata.normalize("NFC", text) for text in (screen.look(), screen.whole())]
    return [[line.rstrip() for line in text.rstrip().split("\n")] for text in texts]


def test_a_program_that_ends_ends_the_waits(tmp_path: Path) -> None:
    environ = {"PATH": "/usr/bin:/bin"}
    with closing(ScreenTerminal(tmp_path, environ, "sh", "-c", "echo this; exit 3")) as screen:
        with pytest.raises(AssertionError, match="'that' did not come before the end of the program:\nthis\nLEFT 3"):
            screen.until("that")
        assert "LEFT 3" in screen.screen()


def test_the_program_has_the_terminal_of_its_screen(tmp_path: Path) -> None:
    """The program has its size and kind, leads a session, and gets a hangup when the terminal is taken away."""
    script = (
        'stty size; echo $TERM; test "$(ps -o sid= $$)" -eq $$ && echo leads; trap "touch gone" HUP; echo ready; read x'
    )
    screen = ScreenTerminal(tmp_path, {"PATH": "/usr/bin:/bin"}, "bash", "-c", script, size=(33, 11))
    assert screen.until("ready").split() == ["11", "33", "xterm-256color", "leads", "ready"]
    screen.close()
    assert (tmp_path / "gone").exists()
