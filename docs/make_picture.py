"""Recorder of the terminal picture in README.md: docs/images/session-light.svg and session-dark.svg.

Runs the real `agent` with a scripted model in tmux, in a small project with decoys around it, and draws the screens of
that run as SVG. Needs tmux. Everything lies below one fresh folder, which is removed at the end.
"""

import io
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
BASE = Path("/var/tmp/ann")  # noqa: S108  # stands on the picture, so it has no random part; mkdir refuses one that exists
COLUMNS, ROWS = 100, 48

SCRIPT = """\
[[turn]]
text = "The server reads `~/site`, so I copy the file there."
calls = [{ name = "bash", arguments = { command = "cp dist/app.js ~/site/" } }]
[[turn]]
text = "The build is in `~/site`."
"""
CONFIG = f"""\
mode = "trust-project"
model = "scripted:{BASE}/script.toml"
"""

# Background, foreground, the eight ANSI colours, and the eight bright ones.
LIGHT = """
ffffff 1f2328
ffffff cf222e 116329 7d4e00 0969da 8250df 1b7c83 57606a
57606a a40e26 1a7f37 633c01 218bff a475f9 3192aa 1f2328
"""
DARK = """
0d1117 e6edf3
0d1117 ff7b72 3fb950 d29922 58a6ff bc8cff 39c5cf b1bac4
6e7681 ffa198 56d364 e3b341 79c0ff d2a8ff 56d4dd ffffff
"""

# The format of rich without its web font, so that the picture loads nothing. Black is the background in both themes:
# `agent` writes black on yellow.
FORMAT = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>A session of agent: a refusal, a question, and the record</title>
<style>
.{unique_id}-matrix {{
font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def main() -> int:
    BASE.mkdir(mode=0o700)
    try:
        screens = record()
    finally:
        while BASE.exists():  # the shell of tmux may still write its last file
            shutil.rmtree(BASE, ignore_errors=True)
            time.sleep(0.2)
    for name, theme in (("light", LIGHT), ("dark", DARK)):
        (IMAGES / f"session-{name}.svg").write_text(drawn(screens, palette(theme)), "utf-8")
    sys.stdout.write(Text.from_ansi("\n".join(screens)).plain + "\n")
    return 0


def record() -> list[str]:
    """Run the commands and return the rows of their screens, with ANSI styles."""
    work = lay_out()
    bin_folder = Path(sys.executable).parent
    environ = {
        "HOME": str(BASE),
        "PATH": f"{bin_folder}:{os.environ['PATH']}",
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
    }

    def tmux(*words: str) -> str:
        argv = ("tmux", "-f", "/dev/null", "-S", str(BASE / "tmux"), *words)
        return subprocess.run(argv, env=environ, capture_output=True, text=True, check=True).stdout

    def enter(text: str) -> None:
        tmux("send-keys", "-l", text)
        tmux("send-keys", "Enter")

    def screen() -> str:
        return tmux("capture-pane", "-p")

    shell = f"bash --noprofile --rcfile {BASE}/rc -i"
    tmux("new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS), "-c", str(work), shell)
    try:
        wait(lambda: screen().startswith("$"))
        enter("agent exec 'cat ~/.ssh/id_rsa'")
        wait(lambda: "^^^" in screen() and screen().rstrip().endswith("$"))
        enter("agent")
        wait(lambda: "? /help" in screen())
        enter("put the build where the server finds it")
        wait(lambda: "y yes, once" in screen())
        first = tmux("capture-pane", "-p", "-e")
        time.sleep(2)  # a key counts only after the card was visible for a moment
        tmux("send-keys", "y")
        wait(lambda: "done (2 requests)" in screen())
        enter("/quit")
        wait(lambda: screen().rstrip().endswith("$"))
        enter("clear")
        wait(lambda: "done" not in screen())
        enter("agent audit")
        wait(lambda: "secret" in screen())
        second = tmux("capture-pane", "-p", "-e")
    finally:
        tmux("kill-server")
    return [*rows(first), "\x1b[0m", *rows(second)[:-1]]


def lay_out() -> Path:
    """Write the project, the decoy key and the configuration below `BASE`, and return the project's folder."""
    work = BASE / "shop"
    for folder in (work / "dist", BASE / "site", BASE / ".ssh", BASE / ".config/ringfence"):
        folder.mkdir(parents=True, mode=0o700)
    (work / "dist/app.js").write_text("console.log('shop')\n")
    (BASE / ".ssh/id_rsa").write_text("decoy\n")
    (BASE / ".config/ringfence/config.toml").write_text(CONFIG)
    (BASE / "script.toml").write_text(SCRIPT)
    (BASE / "rc").write_text('PS1="$ "\n')
    subprocess.run(["git", "init", "-q", str(work)], env={"PATH": os.environ["PATH"], "HOME": str(BASE)}, check=True)
    return work


def wait(condition: Callable[[], bool]) -> None:
    """Wait until `condition` holds, 60 s at most."""
    end = time.monotonic() + 60
    while not condition():
        if time.monotonic() > end:
            sys.exit("the screen did not show what was expected")
        time.sleep(0.2)
    time.sleep(0.5)  # the rest of the same screen


def rows(screen: str) -> list[str]:
    """Return the rows of a captured screen without the empty ones at its end."""
    found = screen.split("\n")
    while found and not Text.from_ansi(found[-1]).plain.strip():
        found.pop()
    return found


def palette(text: str) -> TerminalTheme:
    """Return the theme of a list of hexadecimal colours."""
    colours = [(int(word[:2], 16), int(word[2:4], 16), int(word[4:], 16)) for word in text.split()]
    return TerminalTheme(colours[0], colours[1], colours[2:10], colours[10:])


def drawn(screens: list[str], theme: TerminalTheme) -> str:
    """Return the SVG of the rows in the colours of `theme`."""
    console = Console(width=COLUMNS, record=True, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi("\n".join(screens)), no_wrap=True, overflow="crop", crop=True)
    return console.export_svg(title="", theme=theme, code_format=FORMAT, unique_id="session")


if __name__ == "__main__":
    sys.exit(main())
