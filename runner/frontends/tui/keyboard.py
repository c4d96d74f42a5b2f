"""The keyboard protocols with which a terminal distinguishes more keys, such as Shift+Enter and Ctrl+I.

Two protocols are requested: kitty's keyboard protocol, flag 1 ("disambiguate escape codes",
https://sw.kovidgoyal.net/kitty/keyboard-protocol/), and xterm's modifyOtherKeys 1 (XTerm Control Sequences, "CSI > Pp ;
Pv m"). A terminal that knows neither ignores both; Apple's interprets the second as underlining.
"""

from collections.abc import Mapping

from prompt_toolkit.input import ansi_escape_sequences
from prompt_toolkit.keys import Keys

from policy.model.frozen import dataclass

KeyCode = Keys | tuple[Keys | str, ...]
_LOCKS = (0, 64, 128, 192)  # bits of caps lock and num lock, which are ignored
_SHIFT, _ALT, _CONTROL = 1, 2, 4


@dataclass(frozen=True, slots=True)
class Keyboard:
    """The escape sequences that switch the protocols on and off."""

    on: str
    off: str


def keyboard(environ: Mapping[str, str]) -> Keyboard:
    """Register the codes with prompt_toolkit, and return the sequences that make the terminal send them."""
    known: dict[str, KeyCode] = ansi_escape_sequences.ANSI_SEQUENCES  # type: ignore[assignment]  # it takes text as well
    for code, modifiers, keys in _codes():
        for locks in _LOCKS:
            held = modifiers + locks
            known[f"\x1b[{code};{held + 1}u"] = keys
            if not locks:
                known[f"\x1b[27;{held + 1};{code}~"] = keys
                if not held:
                    known[f"\x1b[{code}u"] = keys
    if environ.get("TERM") in ("linux", "dumb", None) or environ.get("TERM_PROGRAM") == "Apple_Terminal":
        return Keyboard("", "")
    return Keyboard("\x1b[>1u\x1b[>4;1m", "\x1b[<u\x1b[>4;0m")


def _codes() -> list[tuple[int, int, KeyCode]]:
    """Return tuples of a code point, the held modifiers, and the key of prompt_toolkit that they mean."""
    newline = (Keys.Escape, Keys.ControlM)
    codes: list[tuple[int, int, KeyCode]] = [
        (27, 0, Keys.Escape),
        (13, 0, Keys.ControlM),
        (13, _SHIFT, newline),
        (13, _ALT, newline),
        (13, _CONTROL, newline),
        (9, 0, Keys.ControlI),
        (9, _SHIFT, Keys.BackTab),
        (127, 0, Keys.ControlH),
        (127, _SHIFT, Keys.ControlH),
        (127, _ALT, (Keys.Escape, Keys.ControlH)),
        (127, _CONTROL, (Keys.Escape, Keys.ControlH)),
        (32, _CONTROL, Keys.ControlAt),
        (32, _SHIFT, (" ",)),
    ]
    for letter in "abcdefghijklmnopqrstuvwxyz":
        control = Keys(f"c-{letter}")
        codes += [
            (ord(letter), _CONTROL, control),
            (ord(letter), _CONTROL | _SHIFT, control),
            (ord(letter), _ALT, (Keys.Escape, letter)),
            (ord(letter), _ALT | _SHIFT, (Keys.Escape, letter.upper())),
            (ord(letter), _ALT | _CONTROL, (Keys.Escape, control)),
        ]
    return codes
