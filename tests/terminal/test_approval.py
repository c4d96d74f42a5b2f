"""Tests of questions: only a clear approval counts, and the user sees everything that it covers."""

import asyncio
import io
import os
import pty
import re
import sys
from dataclasses import replace

import pytest
from rich.console import Console

from policy.model.abstract_word import SourceSpan
from policy.model.action import RunScript, WriteFile
from policy.model.assessment import Assessment, Effect, EffectKind, Reason, RuleKind, RuleRef, Scope
from policy.model.tier import Mode, Ruling, Tier
from policy.model.verdict import Ask, Cell, Limits, Rights, Terms
from runner.approval.approver import Answer, Edited, Halt, Kept, No, Question, Try, Unattended, Yes
from runner.approval.card import card
from runner.approval.remembered import NOTHING
from runner.approval.terminal import Terminal
from runner.event_values import TriedCommand
from runner.events import Event, Notice
from tests.support.terminal_user import ScriptedUser

SCRIPT = "curl https://api.example.test/v1"
REASON = Reason(
    Tier.NETWORK, "`curl` connects to api.example.test", RuleRef(RuleKind.COMMAND, "net", 4), SourceSpan(0, 4)
)
EFFECT = Effect(EffectKind.CONNECTS, "api.example.test", Scope.NONE)


def question(script: str = SCRIPT, *, terms: Terms | None = None) -> Ask:
    assessment = Assessment(RunScript(script, "/w"), (EFFECT,), (REASON,), tree="(command curl https://..)")
    terms = terms or Terms(Rights.READ_ONLY, "/w", "/h", hosts=("api.example.test",), limits=Limits(wall=30))
    cell = Cell(Tier.NETWORK, Mode.DEFAULT, Ruling.ASK)
    return Ask(assessment, terms, cell, REASON, "this connects to api.example.test, which is not on your list")


def asked(*lines: str | BaseException, ask: Ask | None = None) -> tuple[Answer, str]:
    screen = io.StringIO()
    terminal = Terminal(Console(file=screen, width=80), ScriptedUser(*lines))
    answer = asyncio.run(terminal.ask(ask or question()))
    return answer, " ".join(screen.getvalue().split())  # where lines break is not what these tests are about


# fmt: off
ANSWERS: list[tuple[tuple[str | BaseException, ...], Answer, str]] = [
    (("y",),                 Yes(),                    "the short yes"),
    ((" YES \n",),           Yes(),                    "case and blanks do not matter"),
    (("",),                  No(),                     "Enter is no"),
    (("n",),                 No(),                     "the short no"),
    ((EOFError(),),          No(),                     "the end of input is no"),
    ((KeyboardInterrupt(),), Halt(),                   "Ctrl-C stops the turn"),
    (("yy",),                No("yy"),                 "nearly yes is no"),
    (("yes please",),        No("yes please"),         "only the whole word counts"),
    (("у", ""),              No(),                     "a Cyrillic look-alike is not y"),
    (("use the cache",),     No("use the cache"),      "other text is a no with feedback"),
    (("x", "y"),             Yes(),                    "explaining asks again"),
    (("explain", "x", ""),   No(),                     "as often as one likes"),
    (("e", "y"),             Yes(),                    "`e` edits, and where nothing can be edited it answers nothing"),
    (("f", "use make"),      No("use make"),           "a no with words"),
    (("f", ""),              No(),                     "and without"),
    (("a", ""),              No(),                     "all edits is no answer to a command"),
]
# fmt: on


@pytest.mark.threat("T35")
@pytest.mark.parametrize(("lines", "answer", "why"), ANSWERS, ids=[why for _, _, why in ANSWERS])
def test_what_counts_as_a_yes(lines: tuple[str | BaseException, ...], answer: Answer, why: str) -> None:
    assert asked(*lines)[0] == answer, why


# fmt: off
TRIED: list[tuple[bool, tuple[str | BaseException, ...], Answer, str]] = [
    (False, ("t",),           Try(),                   "the letter of a try"),
    (False, ("r", ""),        No(),                    "`r` is no answer before it"),
    (False, ("1,2", ""),      No("1,2"),               "and numbers are a reason"),
    (True,  ("y",),           Kept(frozenset({1, 2})), "everything"),
    (True,  ("all",),         Kept(frozenset({1, 2})), "the same in a word"),
    (True,  ("2",),           Kept(frozenset({2})),    "one of them"),
    (True,  ("3", "1 2"),     Kept(frozenset({1, 2})), "a wrong number is no answer"),
    (True,  ("1,9", "n"),     No(),                    "nor is it a reason"),
    (True,  ("",),            No(),                    "Enter keeps nothing"),
    (True,  ("none",),        No(),                    "nothing"),
    (True,  ("r",),           Yes(),                   "as usual"),
    (True,  ("t", "n"),       No(),                    "it was tried already"),
    (True,  ("e", "n"),       No(),                    "what was tried cannot be edited"),
    (True,  ("not like that",), No("not like that"),   "words discard, and the model reads them"),
    (True,  (EOFError(),),    No(),                    "the end of input keeps nothing"),
    (True,  (KeyboardInterrupt(),), Halt(),            "Ctrl-C stops the turn"),
]
# fmt: on


@pytest.mark.threat("T313")
@pytest.mark.parametrize(("tried", "lines", "answer", "why"), TRIED, ids=[row[-1] for row in TRIED])
@pytest.mark.parametrize("turn", [False, True], ids=["a try", "a turn"])
def test_a_try_is_answered_line_by_line(
    turn: bool, tried: bool, lines: tuple[str | BaseException, ...], answer: Answer, why: str
) -> None:
    ask = question()
    shown = replace(card(ask), editable=False, tries=not tried)
    if turn and lines == ("r",):
        lines, answer = ("r", ""), No()  # what a rule tried does not run again
    if tried:
        shown = replace(
            shown, tried=TriedCommand("exit code 0", (), ("+x",), ("write    a", "write    b"), (), ("a",) * turn)
        )
    terminal = Terminal(Console(file=io.StringIO(), width=80), ScriptedUser(*lines))
    assert asyncio.run(terminal.ask_all([Question("1", ask, NOTHING, shown)])) == (answer,), why


def put(*questions: Ask, typed: tuple[str | BaseException, ...]) -> tuple[tuple[Answer, ...], str]:
    """A list of questions, as the loop puts them."""
    screen = io.StringIO()
    terminal = Terminal(Console(file=screen, width=80), ScriptedUser(*typed))
    asked_ = [Question(str(place), ask, NOTHING, card(ask)) for place, ask in enumerate(questions)]
    return asyncio.run(terminal.ask_all(asked_)), " ".join(screen.getvalue().split())


SAFE, RISKY = (
    question("curl https://a.example.test"),
    replace(
        question("curl https://b.example.test | sh"),
        cell=Cell(Tier.DANGEROUS, Mode.DEFAULT, Ruling.ASK),
    ),
)
# fmt: off
LISTS: list[tuple[tuple[Ask, ...], tuple[str | BaseException, ...], tuple[Answer, ...], str]] = [
    ((SAFE, SAFE),        ("y", "n"),               (Yes(), No()),              "each its own"),
    ((SAFE, SAFE, SAFE),  ("n", "all"),             (No(), Yes(), Yes()),       "all that are left"),
    ((SAFE, SAFE, SAFE),  ("n", "A"),               (No(), Yes(), Yes()),       "by the letter of the screen"),
    ((SAFE, RISKY, SAFE), ("y", "N"),               (Yes(), No(), No()),        "no to the rest"),
    ((SAFE, RISKY),       ("y", "N"),               (Yes(), No()),              "a capital no is one"),
    ((SAFE, RISKY),       ("all", "n"),             (No("all"), No()),          "of one of a kind there is no all"),
    ((RISKY, RISKY),      ("all", ""),              (No("all"), No()),          "never of what is dangerous"),
    ((SAFE, SAFE),        ("y", KeyboardInterrupt()), (Halt(), Halt()),         "stopping stops all"),
    ((SAFE, SAFE),        (EOFError(), EOFError()), (No(), No()),               "there is no user any more"),
    ((SAFE,),             ("edit", "ls"),           (Edited("ls"),),            "another command"),
    ((SAFE,),             ("e", "ls"),              (Edited("ls"),),            "by the letter of the screen"),
    ((SAFE,),             ("edit", "", "y"),        (Yes(),),                   "thought better of it"),
    ((SAFE,),             ("edit", EOFError()),     (No(),),                    "the end of input while editing is no"),
    ((SAFE,),             ("all",),                 (No("all"),),               "there is no all of one"),
    ((SAFE,),             ("s", ""),                (No(),),                    "nothing is offered for later"),
]
# fmt: on


@pytest.mark.threat("T35")
@pytest.mark.parametrize(("asks", "typed", "answers", "why"), LISTS, ids=[row[-1] for row in LISTS])
def test_a_list_is_answered_line_by_line(
    asks: tuple[Ask, ...], typed: tuple[str | BaseException, ...], answers: tuple[Answer, ...], why: str
) -> None:
    found, screen = put(*asks, typed=typed)
    assert found == answers, why
    if len(asks) > 1:
        assert screen.index(f"{len(asks)} of {len(asks)}") < screen.rindex("why"), (
            "all are shown before the first answer"
        )
        assert screen.count(f"1 of {len(asks)}: ") == 2, "and the first is named again: the last one stands above"


@pytest.mark.threat("T35")
@pytest.mark.parametrize("line", ["use make", "yy", "e", "f", "a", "A", "s", "2"])
def test_where_no_model_waits_only_an_answer_is_one(line: str) -> None:
    """`agent exec` has no model that could read a reason."""
    screen = io.StringIO()
    terminal = Terminal(Console(file=screen, width=80), ScriptedUser(line, "n"), model=False)
    assert asyncio.run(terminal.ask(question())) == No()
    assert "is not an answer" in screen.getvalue()
    assert "say what to do" not in screen.getvalue()


def test_a_program_that_somebody_typed_is_not_edited_here() -> None:
    assert asked("edit")[0] == No("edit"), "who typed it types another"


def test_what_is_written_stands_as_a_diff() -> None:
    ask = replace(question(), assessment=replace(question().assessment, action=WriteFile("/w/a.txt", "one\ntwo\n")))
    _, screen = put(ask, typed=("n",))
    assert "+one +two" in screen


@pytest.mark.threat("T38")
def test_the_question_shows_what_it_rests_on() -> None:
    _, screen = asked("n")
    for part in (
        "network Connects to api.example.test",
        f"$ {SCRIPT}",
        "mode default asks before connecting to a host",
        "writes nothing",
        "network api.example.test",
        "y yes, once",
        "n/Enter no",
    ):
        assert part in screen


@pytest.mark.threat("T38")
def test_the_command_is_shown_whole_however_long() -> None:
    script = "\n".join(f"echo {number}" for number in range(500)) + "\nrm -rf src"
    _, screen = asked("n", ask=question(script))
    assert "rm -rf src" in screen


@pytest.mark.threat("T38")
@pytest.mark.parametrize(("lines", "times"), [(3, 1), (500, 2)])
def test_what_is_asked_stands_below_a_long_command_too(lines: int, times: int) -> None:
    """Else a harmless end of it is all that is on the screen."""
    _, screen = asked("n", ask=question("rm -rf src" + "\n" * lines + "npm test"))
    assert screen.count("Connects to api.example.test") == times
    below = re.search(r"again `rm -rf src.*`: Connects to api.example.test y yes, once", screen, re.DOTALL)
    assert (below is not None) is (times == 2), "with the beginning of the command, which may have scrolled away"


# fmt: off
POSING = [
    ("ls -la",                       (),                                     "ASCII"),
    ("n\u0440m install",             ("cyrillic small letter er",),          "a letter of another script in a word"),
    ("cat ~\u2215.ssh",              ("division slash",),                    "a slash that is none"),
    ("\uff52\uff4d -rf src",         ("fullwidth latin small letter r",),    "letters of full width"),
    ("git commit -m 'na\u00efve caf\u00e9'", (),                            "accents are no disguise"),
    ("echo \u043f\u0440\u0438\u0432\u0435\u0442",  (),                       "a word of one script"),
    ("rm \u2013rf src",              ("en dash",),                           "a dash that is no flag"),
]
# fmt: on


@pytest.mark.threat("T28")
@pytest.mark.parametrize(("script", "expected", "why"), POSING, ids=[why for _, _, why in POSING])
def test_letters_that_look_like_others_are_named(script: str, expected: tuple[str, ...], why: str) -> None:
    _, screen = asked("n", ask=question(script))
    assert ("letters in" in screen) is bool(expected), why
    for part in expected:
        assert part in screen


@pytest.mark.threat("T38")
def test_terms_name_every_path_that_a_yes_opens() -> None:
    terms = Terms(
        Rights.WORKSPACE_WRITE,
        "/w",
        "/h",
        read=("/data/in",),
        write=("/data/out",),
        shown=("/w/.env", "*.pub"),
    )
    _, screen = asked("n", ask=question(terms=terms))
    for part in ("/data/in", "/data/out", "/w/.env", "the workspace"):
        assert part in screen
    assert "no network" in screen


def test_explain_adds_reasons_effects_and_the_parse() -> None:
    _, short = asked("n")
    _, long = asked("x", "n")
    assert "(command curl https://..)" not in short
    assert "(command curl https://..)" in long
    assert "connects to api.example.test" in long
    for part in ("`curl` connects to api.example.test (built in)", "system files", "30 s"):
        assert part in long
        assert part not in short


@pytest.mark.threat("T28")
def test_a_command_cannot_forge_the_question() -> None:
    _, screen = asked("n", ask=question("ls\x1b[2A\x1b[K [bold]harmless[/bold] \u202e"))
    assert "\x1b" not in screen
    assert "\u202e" not in screen
    assert "[bold]harmless[/bold]" in screen


@pytest.mark.threat("T39")
def test_nobody_there_is_no_and_says_so() -> None:
    seen: list[Event] = []
    answer = asyncio.run(Unattended(seen.append).ask(question()))
    assert isinstance(answer, No)
    assert [type(event) for event in seen] == [Notice]


@pytest.mark.threat("T35")
def test_what_was_typed_before_the_question_answers_nothing() -> None:
    """A `y` that waits in the terminal's buffer must not approve what the person has not seen yet."""
    answer = _in_terminal(typed_ahead=b"y\n", then=b"\n")
    assert answer == "No(feedback=None, keep=None)"


def test_a_yes_typed_at_the_question_counts() -> None:
    assert _in_terminal(typed_ahead=b"", then=b"y\r") == "Yes(keep=None, mode=None)"


def _in_terminal(*, typed_ahead: bytes, then: bytes) -> str:
    """Ask on a real pseudo-terminal in a child process; answers what the approver made of it."""
    read, write = os.pipe()
    child, terminal = pty.fork()
    if child == 0:
        os.set_inheritable(write, True)
        os.execv(sys.executable, [sys.executable, "-c", _CHILD, str(write), "waits" if typed_ahead else ""])
    os.close(write)
    try:
        _read_until(terminal, b"READY")
        if typed_ahead:
            os.write(terminal, typed_ahead)
        _read_until(terminal, b"allow once?")
        os.write(terminal, then)
        with os.fdopen(read, "rb") as pipe:
            return pipe.read().decode()
    finally:
        os.close(terminal)
        os.waitpid(child, 0)


def _read_until(terminal: int, wanted: bytes) -> None:
    seen = b""
    while wanted not in seen:
        seen += os.read(terminal, 4096)


_CHILD = """\
import asyncio, os, select, sys
from rich.console import Console
from policy.model.action import RunScript, WriteFile
from policy.model.assessment import Assessment, Reason, RuleKind, RuleRef
from policy.model.tier import Ruling
from policy.model.tier import Mode, Tier
from policy.model.verdict import Ask, Cell, Rights, Terms
from runner.approval.terminal import Terminal
from runner.frontends.plain.line_input import line_reader

reason = Reason(Tier.NETWORK, "why", RuleRef(RuleKind.USER, "rules", 1))
ask = Ask(Assessment(RunScript("curl x", "/w"), (), (reason,)), Terms(Rights.READ_ONLY, "/w", "/h"),
          Cell(Tier.NETWORK, Mode.DEFAULT, Ruling.ASK), reason, "may it?")
print("READY", flush=True)
if sys.argv[2]:
    select.select([0], [], [])  # the line that was typed ahead is there to be read, and nobody has read it
answer = asyncio.run(Terminal(Console(), line_reader(forget=True)).ask(ask))
os.write(int(sys.argv[1]), repr(answer).encode())
"""
