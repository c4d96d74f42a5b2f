"""Tests of the transcript: styled on a terminal, plain elsewhere, and never controlled by untrusted text."""

import io
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from policy.model.action import EditFile, RunScript
from policy.model.assessment import Check, RuleKind, RuleRef
from policy.model.tier import Mode, Ruling, Tier
from policy.model.verdict import Cell, Problem
from runner import events
from runner.frontends import wording
from runner.frontends.plain.transcript import Transcript
from runner.messages import Usage
from runner.text.sanitize import one_line, visible
from sandbox.backend import Enforcement, Level, Violation

RULE = RuleRef(RuleKind.COMMAND, "coreutils", 12)
ESC = "\x1b"


def judged(call: str, tier: Tier, ruling: Ruling, why: str) -> events.VerdictReached:
    return events.VerdictReached(call, (tier,), ruling, why, RULE, Cell(tier, Mode.TRUST_PROJECT, ruling))


def finished(call: str, text: str, *, status: int = 0, violations: tuple[Violation, ...] = ()) -> events.ActionFinished:
    return events.ActionFinished(call, status, 0.0123, None, violations, None, text, None)


STORY: list[events.Event] = [
    events.SessionStarted(
        "s1",
        "/w",
        "/w",
        Mode.TRUST_PROJECT,
        "scripted:demo",
        True,
        Enforcement(Level.FULL, "T1", (("network", True), ("root", True))),
    ),
    events.Prompted("fix the test"),
    events.ModelText("I will look "),
    events.ModelText("first."),
    events.ToolProposed("1.1", "bash", RunScript("ls", "/w")),
    judged("1.1", Tier.READ, Ruling.ALLOW, "`ls` only reads"),
    events.CommandOutput("1.1", 1, "a.py\nb.py\n"),
    finished("1.1", "a.py\nb.py"),
    events.ToolProposed("1.2", "edit", EditFile("/w/a.py", "x", "y")),
    judged("1.2", Tier.WRITE, Ruling.ALLOW, "changes a file of the workspace"),
    finished("1.2", "edited a.py\n@@ -1 +1 @@\n-x\n+y"),
    events.ToolProposed("2.1", "bash", RunScript("cat ~/.ssh/id_rsa", "/w")),
    judged("2.1", Tier.SECRET, Ruling.DENY, "`~/.ssh/id_rsa` is a key"),
    events.Denied(
        "2.1",
        "$ cat ~/.ssh/id_rsa",
        Tier.SECRET,
        RULE,
        Problem("`~/.ssh/id_rsa` was not read", "it lies in a credential store", "go on without it"),
    ),
    events.ToolProposed("2.2", "bash", RunScript("seq 30; python3 x.py", "/w")),
    judged("2.2", Tier.EXECUTE, Ruling.ALLOW, "`python3` runs code"),
    finished(
        "2.2",
        "\n".join(str(number) for number in range(30)),
        status=1,
        violations=(Violation("connecting to", "192.0.2.1", "allow the host", inferred=True),),
    ),
    events.ToolProposed("2.3", "nope", None),
    events.MalformedCall(
        "2.3", "nope", Problem("there is no tool `nope`", "the tools are `bash`", "call one of these")
    ),
    events.Notice("asking again in 1 s"),
    events.RunEnded(3, "done", 2, Usage(10, 20), ()),
]

EXPECTED = """\
workspace  /w
mode       trust-project, unattended
model      scripted:demo
sandbox    full

> fix the test

I will look first.

 read   $ ls
 │ allowed  `ls` only reads (built in)
 │   a.py
 │   b.py
 └ ok, 12 ms

 write   edit a.py
 │ allowed  changes a file of the workspace (built in)
 │   edited a.py
 │   @@ -1 +1 @@
 │   -x
 │   +y
 └ ok, 12 ms

 secret   $ cat ~/.ssh/id_rsa
 │ denied   it lies in a credential store (built in)
 └ instead  go on without it

 execute   $ seq 30; python3 x.py
 │ allowed  `python3` runs code (built in)
 │   0
 │   1
 │   … 16 more lines
 │   18
 │   19
 │   20
 │   21
 │   22
 │   23
 │   24
 │   25
 │   26
 │   27
 │   28
 │   29
 │ contained  connecting to (192.0.2.1)
 └ exit 1, 12 ms

 call   nope
 │ refused  there is no tool `nope`: the tools are `bash`
 └ instead  call one of these
note: asking again in 1 s

done (2 requests; 10 tokens in, 20 out)
"""


def drawn(
    story: list[events.Event],
    *,
    colour: bool = False,
    encoding: str = "utf-8",
    width: int = 80,
    wrap: bool | None = None,
) -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    console = Console(file=file, width=width, force_terminal=colour, color_system="standard" if colour else None)
    transcript = Transcript(console, wrap=wrap)
    for event in story:
        transcript(event)
    file.flush()
    return raw.getvalue().decode(encoding)


def test_a_session_reads_like_this() -> None:
    assert "\n".join(line.rstrip() for line in drawn(STORY).splitlines()) + "\n" == EXPECTED


def test_a_session_reads_like_this_on_a_terminal_of_80_columns() -> None:
    text = drawn(STORY, wrap=True)
    assert "\n".join(line.rstrip() for line in text.splitlines()) + "\n" == EXPECTED
    assert max(map(len, text.splitlines())) <= 80


def test_without_a_terminal_nothing_is_coloured_wrapped_or_cut() -> None:
    assert ESC not in drawn(STORY)
    long = " ".join(["word"] * 60)
    story: list[events.Event] = [
        events.ModelText(long),
        events.ToolProposed("1.1", "bash", RunScript(f"echo {long}", "/w")),
        judged("1.1", Tier.EXECUTE, Ruling.ALLOW, long),
        finished("1.1", f"{long}\n{'x' * 300}"),
        events.Denied("1.2", f"$ echo {long}", Tier.SECRET, RULE, Problem(long, long, long)),
        events.Notice(long),
        events.ErrorRaised(Problem(long, long, long)),
    ]
    lines = drawn(story, width=80).splitlines()
    assert sum(long in line for line in lines) == 10, "each text is on one line"
    assert any("x" * 300 in line for line in lines)
    assert "…" not in "".join(lines)


def test_a_terminal_gets_badges_and_coloured_diffs() -> None:
    text = drawn(STORY, colour=True)
    assert f"{ESC}[30;42m read {ESC}[0m" in text
    assert f"{ESC}[37;41m secret {ESC}[0m" in text
    assert f"{ESC}[32m  +y" in text
    assert f"{ESC}[31m  -x" in text


def test_a_terminal_that_knows_only_ascii_gets_ascii() -> None:
    assert drawn([*STORY, events.ModelText("déjà ☃ \ud800")], encoding="ascii").isascii()


def test_calls_side_by_side_are_drawn_one_after_the_other() -> None:
    story: list[events.Event] = []
    for call, script in (("1.1", "cat a"), ("1.2", "cat b")):
        story.append(events.ToolProposed(call, "bash", RunScript(script, "/w")))
        story.append(judged(call, Tier.READ, Ruling.ALLOW, "reads"))
    story += [finished("1.2", "of b"), finished("1.1", "of a")]
    text = drawn(story)
    assert text.index("cat b") < text.index("of b") < text.index("cat a") < text.index("of a")


def test_a_call_that_was_stopped_is_closed_and_its_key_may_come_again() -> None:
    start: list[events.Event] = [
        events.ToolProposed("1.1", "bash", RunScript("sleep 9", "/w")),
        judged("1.1", Tier.EXECUTE, Ruling.ALLOW, "runs"),
    ]
    ended = events.RunEnded(130, "stopped by the user", 1, Usage(), ())
    text = drawn([*start, ended, *start, finished("1.1", "")])
    assert text.count("$ sleep 9") == 2
    assert text.count(" └ stopped\n") == 1
    assert text.endswith(" └ ok, 12 ms\n")


def test_long_prose_is_wrapped_between_words_wherever_the_pieces_end() -> None:
    prose = "the quick brown fox jumps over the lazy dog " * 6
    pieces: list[events.Event] = [events.ModelText(prose[start : start + 7]) for start in range(0, len(prose), 7)]
    lines = drawn(pieces, width=40, wrap=True).splitlines()
    assert " ".join(" ".join(lines).split()) == prose.strip()
    assert max(map(len, lines)) <= 40
    assert [line for line in lines if line.startswith(" ")] == [], "the blank at which a row is broken goes"


# fmt: off
HOSTILE = [
    ("\x1b]0;owned\x07",            "␛]0;owned␇",             "an escape that sets the window title"),
    ("\x1b[2J\x1b[H allowed",       "␛[2J␛[H allowed",        "an escape that wipes the screen and forges a verdict"),
    ("rm -rf x\rls",                "rm -rf x␍ls",            "a carriage return that hides the command"),
    ("a\x08\x08b",                  "a␈␈b",                   "backspaces"),
    ("\x9b31mred",                  "<U+009B>31mred",         "the one-byte form of the escape"),
    ("cat \u202etxt.yek",           "cat <U+202E>txt.yek",    "text that runs backwards"),
    ("a\u200bb",                    "a<U+200B>b",             "a zero-width space"),
    ("a\u00a0b",                    "a<U+00A0>b",             "a blank that is not the blank"),
    ("a\u3164b",                    "a<U+3164>b",             "a letter that looks like nothing"),
    ("\U000e0041",                  "<U+E0041>",              "tag characters carry hidden text"),
    ("g\ufe00\ufe0d",               "g<U+FE00><U+FE0D>",      "variation selectors carry it, too"),
    ("\ud83d",                      "<U+D83D>",               "half a character"),
    ("a\u2028b",                    "a<U+2028>b",             "a line separator outside of ASCII"),
    ("[red]x[/red] [link=http://e]","[red]x[/red] [link=http://e]", "markup stays text"),
    ("line\r\nline",                "line\nline",             "the line ends of Windows are line ends"),
    ("e" + "\u0336" * 40 + "x",    "e\u0336\u0336\u0336⟨37 marks more⟩x", "marks piled up over the lines around"),
    ("נִקּ ที่ ồ 👍🏽 ❤️",              "נִקּ ที่ ồ 👍🏽 ❤️",         "marks that a language needs"),
    ("naïve 漢字 🙂",               "naïve 漢字 🙂",          "ordinary text of any script is left alone"),
]
# fmt: on


@pytest.mark.threat("T28")
@pytest.mark.parametrize(("text", "shown", "why"), HOSTILE, ids=[why for _, _, why in HOSTILE])
def test_hostile_text_is_spelled_out(text: str, shown: str, why: str) -> None:
    assert visible(text, prose=True) == shown, why


@pytest.mark.threat("T28")
@given(st.text(st.characters(exclude_categories=())))
def test_nothing_invisible_survives(text: str) -> None:
    """LAW: what is shown holds no control, format or surrogate character but the newline, and printable ASCII stays."""
    shown = visible(text)
    assert not [char for char in shown if char != "\n" and unicodedata.category(char) in ("Cc", "Cf", "Cs")]
    assert "\n" not in visible(text, lines=False)
    assert len(one_line(text, 30)) <= 30
    if text.isascii() and text.isprintable():
        assert shown == text


@pytest.mark.threat("T28")
@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=()), min_size=1, max_size=60))
def test_no_event_lets_its_text_through(text: str) -> None:
    """LAW: whatever field carries hostile text, the terminal gets no escape of its making and markup stays text."""
    problem = Problem(text, text, text)
    story: list[events.Event] = [
        events.SessionStarted(text, text, text, Mode.PLAN, text, False, Enforcement(Level.PARTIAL, text, (), (text,))),
        events.Prompted(text),
        events.ModelText(text),
        events.ModelThinking(text),
        events.ToolProposed("1.1", text, RunScript(text, "/w")),
        judged("1.1", Tier.UNKNOWN, Ruling.ASK, text),
        events.QuestionAsked("1.1", text),
        events.QuestionAnswered("1.1", False, text),
        events.CommandOutput("1.1", 1, text),
        events.ActionFinished("1.1", 1, 0.1, text, (Violation(text, text, text, True),), problem, text, text),
        events.ToolProposed("1.2", text, EditFile(text, text, text)),
        judged("1.2", Tier.SECRET, Ruling.DENY, text),
        events.Denied("1.2", text, Tier.SECRET, RuleRef(RuleKind.USER, text, 1), problem),
        events.MalformedCall("1.3", text, problem),
        events.Notice(text),
        events.ErrorRaised(problem),
        events.RunEnded(3, text, 1, Usage(), ()),
    ]
    plain = drawn(story)
    assert not [char for char in plain if char != "\n" and unicodedata.category(char) in ("Cc", "Cf", "Cs")]


def test_a_read_that_was_stopped_is_drawn_although_it_never_ended() -> None:
    """Reads are drawn when they end; anyone who stops a run wants to know what it was at."""
    ended = events.RunEnded(130, "stopped by the user", 1, Usage(), ())
    prompt = [
        events.ToolProposed("1.1", "bash", RunScript("sleep 60", "/w")),
        judged("1.1", Tier.READ, Ruling.ALLOW, "`sleep` waits"),
        ended,
    ]
    text = drawn(prompt)
    assert text.index(" read   $ sleep 60") < text.index(" └ stopped") < text.index("stopped (1 request)")
    again = [
        events.ToolProposed("1.1", "nope", None),
        events.MalformedCall("1.1", "nope", Problem("no", "no", "no")),
        ended,
    ]
    assert drawn([*prompt, *again]).count("$ sleep 60") == 1, "the keys of the next prompt start again"


def test_a_terminal_that_is_made_narrower_is_kept_to() -> None:
    file = io.StringIO()
    console = Console(file=file, width=100)
    transcript = Transcript(console, wrap=True)
    transcript(events.ModelText("word " * 30 + "\n"))
    console.width = 40
    transcript(events.ModelText("word " * 30))
    transcript(events.Notice("word " * 30))
    lines = file.getvalue().splitlines()
    assert max(len(line) for line in lines[:3]) > 80
    assert max(len(line) for line in lines[3:]) <= 40


@pytest.mark.parametrize("wrap", [True, False], ids=["a terminal", "a file"])
def test_a_word_longer_than_a_row_does_not_wait_for_its_end(wrap: bool) -> None:
    out = io.StringIO()
    transcript = Transcript(Console(file=out, width=80), wrap=wrap)
    for number in range(1000):
        transcript(events.ModelText("abcdefgh"))
        assert len(out.getvalue().strip()) >= number * 8 - 80
    transcript(events.Notice("end"))
    assert out.getvalue().split() == ["abcdefgh" * 1000, "note:", "end"]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_code_keeps_what_it_is_set_in_by(size: int) -> None:
    code = "Thus:\n\n    def a():\n        if b:\n            return  1\n- c\n  - d\n"
    pieces = [events.ModelText(code[start : start + size]) for start in range(0, len(code), size)]
    assert code in drawn([*pieces, events.Notice("end")])


@pytest.mark.parametrize(
    ("why", "rule", "shown"),
    [
        ("`ls` lists files", RuleRef(RuleKind.COMMAND, "coreutils", 7), "`ls` lists files (built in)"),
        ("changes a.txt", Check.FILE_TOOL, "changes a.txt (built in)"),
        ("allowed by your grant g1: `make`", RuleRef(RuleKind.GRANT, "g1"), "by your grant g1: `make`"),
        ("allowed by your rule c.toml:3: `make`", RuleRef(RuleKind.USER, "c.toml", 3), "by your rule c.toml:3: `make`"),
        ("not on Fridays; no mode allows that", RuleRef(RuleKind.USER, "c.toml", 3),
         "not on Fridays; no mode allows that (c.toml:3)"),
        ("no; no mode allows that", RuleRef(RuleKind.GRANT, "g1"), "no; no mode allows that (grant:g1)"),
    ],
    ids=["a rule file", "a check", "a grant says so once", "a user's rule, too", "a denial names its place", "a refusal"],
)  # fmt: skip
def test_a_reason_names_its_rule_once(why: str, rule: RuleRef, shown: str) -> None:
    assert wording.reason_words(why, rule) == shown
