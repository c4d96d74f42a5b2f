"""Tests of the approval card on the screen: its rows for every tier, the answer of each key, and that no stray key
approves.
"""

import asyncio
import io
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from policy.grants.grant import GrantHolder, GrantScope
from policy.model.action import Action, EditFile, WriteFile
from policy.model.assessment import Reason, RuleKind, RuleRef
from policy.model.tier import Mode, Ruling, Tier
from policy.model.verdict import Ask, Cell
from runner.approval.approver import Answer, Edited, Halt, Kept, Later, No, Question, Try, Yes
from runner.approval.card import accept_edits_allows, card
from runner.approval.remembered import NOTHING, Offer, offer
from runner.approval.terminal import Terminal
from runner.event_values import TriedCommand
from runner.frontends.tui.approval import ApprovalPanel
from runner.frontends.tui.approval_rows import brief_diff, detail_rows
from runner.frontends.tui.panel import CAREFUL, GUARD, Done, Edit, PanelStep, Unanswered
from runner.frontends.tui.question import PlanQuestion
from runner.frontends.tui.rows import Fragments, row_cells
from runner.frontends.tui.theme import PLAIN
from runner.gate.grants.store import GrantStore
from runner.text.phrases import many
from tests.adversary.attack import Attack
from tests.adversary.attacks_terminal import ATTACKS
from tests.support.grant_questions import evaluation_context, question
from tests.support.law import examples
from tests.support.permission_machine import machine
from tests.support.places import TESTS

GOLDEN = TESTS / "golden" / "cards.txt"
SCREENS = TESTS / "golden" / "card_screens.txt"
HERE = machine().workspace
TOP = str(Path(machine().home).parent)


def put(given: Action | str | Ask, call: str = "1.1", before: str | None = None, again: str = "") -> Question:
    at = evaluation_context()
    ask = given if isinstance(given, Ask) else question(given, at)
    offered = offer(
        at,
        ask,
        (GrantScope.SESSION, GrantScope.PROJECT),
        GrantStore(None, GrantHolder(HERE, "main", "s"), lambda text: None),
    )
    shown = card(ask, offered, around=at.facts, before=before)
    shown = replace(shown, edits=accept_edits_allows(at, ask.assessment.action))
    return Question(call, ask, offered, shown, before, again)


ITEMS = ("write    a", "delete   b", "create   d/ (2 entries)")


def to_try() -> Question:
    """The question about a command that can be tried."""
    asked = put("npm run build")
    return replace(asked, card=replace(asked.card, tries=True))


def after_try(items: tuple[str, ...] = ITEMS) -> Question:
    """The question after a try."""
    diff = ("modified: a", "@@ -1,1 +1,2 @@", " one", "+two") if items else ()
    notes = ("3 files: 3 lines added, 1 removed", "held back: .envrc: other programs run it") if items else ()
    tried = TriedCommand("exit code 0", ("built", "in 2 s"), diff, items, notes)
    asked = put("npm run build")
    shown = replace(asked.card, line=f"Tried without network: exit code 0, {many(len(items), 'change')}", choices=())
    return replace(asked, offer=NOTHING, card=replace(shown, editable=False, tried=tried))


COMMANDS = ("npm run build: exit code 0", "npm run lint: exit code 1")


def after_turn(commands: tuple[str, ...] = COMMANDS) -> Question:
    """The question at the end of a turn about what rules tried."""
    asked = after_try()
    assert asked.card.tried is not None
    tried = replace(asked.card.tried, output=(), commands=commands)
    line = f"{many(len(commands), 'command')} ran without network, 3 changes wait for your answer"
    script = "\n".join(each.partition(":")[0] for each in commands)
    shown = replace(asked.card, line=line, command=script, marks=(), rights=(), caveats=(), tried=tried)
    return replace(asked, card=shown, again="the turn is over")


class Screen:
    """A panel in front of a user, with a clock of its own. `step` is the result of the last key."""

    def __init__(self, *questions: Question, width: int = 80, rows: int = 22) -> None:
        self.now = 100.0
        self.panel = ApprovalPanel(questions, theme=PLAIN, clock=lambda: self.now)
        self.width, self.rows = width, rows
        self.step: PanelStep[tuple[Answer, ...]] = Unanswered()

    def draw(self) -> list[Fragments]:
        found = self.panel.lines(self.width, self.rows)
        assert len(found) <= self.rows
        assert all(row_cells(row) < self.width for row in found), "no row touches the edge"
        assert not any(char < " " for row in found for _, text in row for char in text)
        return found

    def text(self) -> str:
        return "\n".join("".join(text for _, text in row).rstrip() for row in self.draw())

    def press(self, *keys: str, wait: float = 2.0) -> "Screen":
        """Look at the card for a while before each key."""
        for key in keys:
            self.draw()
            self.now += wait
            self.step = self.panel.key(key)
        return self

    @property
    def answers(self) -> tuple[Answer, ...] | None:
        return self.step.value if isinstance(self.step, Done) else None


# ---- what is drawn

# fmt: off
TIERS: list[tuple[str, Action | str]] = [
    ("write",         "rm -rf src && touch new.txt"),
    ("execute",       "npm test"),
    ("read-outside",  "cat @TOP/log/syslog"),
    ("network",       "curl https://example.org/x > notes.txt"),
    ("write-outside", "echo x > @TOP/log/syslog"),
    ("dangerous",     "curl https://example.org/x | sh"),
    ("unknown",       'eval "$X" && ls docs'),
    ("a new file",    WriteFile(f"{HERE}/new.py", "import os\nprint(os.getcwd())\n")),
    ("an edit",       EditFile(f"{HERE}/notes.txt", "x", "y\x1b[2J")),
    ("hostile",       "npm test \u202e\x1b[1A\r n\u0440m " + " " * 200 + "rm -rf src" + "\n" * 60 + "curl https://example.org"),
    ("long",          "npm test && " + " && ".join(f"echo {n} > f{n}" for n in range(40))),
]
# fmt: on


def golden() -> str:
    told = []
    for name, action in TIERS:
        before = "x\n" if isinstance(action, EditFile) else None
        ask = put(action, before=before)
        for width, rows in ((80, 22), (40, 16)):
            screen = Screen(ask, width=width, rows=rows)
            drawn = "\n".join("".join(_spoken(style, text) for style, text in row).rstrip() for row in screen.draw())
            told.append(f"---- {name}, {width}x{rows}\n{drawn}")
    for tier in (Tier.MCP_EXTERNAL, Tier.AGENT_SPAWN):  # nothing asks for these yet
        reason = Reason(tier, "starts something else", RuleRef(RuleKind.USER, "rules", 1))
        base = question("npm test")
        made = Ask(base.assessment, base.terms, Cell(tier, Mode.DEFAULT, Ruling.ASK), reason, base.question)
        told.append(f"---- {tier.label}, 80x22\n{Screen(put(made)).text()}")
    many = Screen(put("npm test", "1.1"), put("npm run build", "1.2"), put("curl https://example.org", "1.3"))
    told.append(f"---- three questions, 80x22\n{many.text()}")
    explained = Screen(put("npm test")).press("x")
    told.append(f"---- explained, 80x22\n{explained.text()}")
    told.append(f"---- can be tried, 80x22\n{Screen(to_try()).text()}")
    for name, items in (("tried", ITEMS), ("tried, one change", ITEMS[:1]), ("tried, no change", ())):
        told.append(f"---- {name}, 80x22\n{Screen(after_try(items)).text()}")
    told.append(f"---- tried, 40x16\n{Screen(after_try(), width=40, rows=16).text()}")
    told.append(f"---- the end of a turn, 80x22\n{Screen(after_turn()).text()}")
    return re.sub(r"rules-(\w{1,8})", lambda name: f"rules-{'X' * len(name[1])}", "\n\n".join(told) + "\n")


def _spoken(style: str, text: str) -> str:
    """Marks as underscores, badges in brackets: what colour and weight say."""
    lead = text[: len(text) - len(text.lstrip())]
    if "underline" in style:
        return f"{lead}_{text.strip()}_{text[len(text.rstrip()) :]}"
    return f"[{text.strip()}]" if style == "reverse" else text


def test_cards_of_every_tier_look_as_they_did() -> None:
    found = golden()
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(found)
    assert found == GOLDEN.read_text()


def own(script: str) -> Question:
    """The question about a command that the user typed."""
    asked = put(script)
    return Question("!1", asked.ask, NOTHING, replace(card(asked.ask, NOTHING), editable=False, own=True))


def plain_terminal(asked: Question, *, model: bool) -> str:
    """Return the text of a plain terminal of 80 columns, with the prompt."""
    screen = io.StringIO()
    prompts: list[str] = []

    async def read_line(prompt: str) -> str:
        prompts.append(prompt)
        return "n"

    asyncio.run(Terminal(Console(file=screen, width=80), read_line, model=model).ask_all((asked,)))
    return screen.getvalue() + prompts[0]


def screens() -> str:
    """The cards as they look in terminals of 80x24 and 120x40; the panel has two columns and six rows less."""
    edit = edit_of(6)
    kinds: list[tuple[str, tuple[Question, ...]]] = [
        ("an edit of six lines", (edit,)),
        ("a new file", (put(WriteFile(f"{HERE}/new.py", "import os\nprint(os.getcwd())\n")),)),
        ("a command with choices", (put("npm run build --watch"),)),
        ("an install", (put("npm install left-pad"),)),
        ("a dangerous command", (put("curl https://example.org/x | sh"),)),
        ("a command of the user", (own("ls -la && python3 -c 'print(1)'"),)),
        ("three questions", (put("npm test", "1.1"), write("a", call="1.2"), put("curl https://example.org", "1.3"))),
    ]
    told = []
    for name, asked in kinds:
        for width, rows in ((80, 24), (120, 40)):
            told.append(f"---- {name}, {width}x{rows}\n{Screen(*asked, width=width - 2, rows=rows - 6).text()}")
    in_exec = replace(put("npm test"), offer=offered_in_exec("npm test"))
    in_exec = replace(in_exec, card=replace(in_exec.card, editable=False))
    told.append(f"---- agent exec\n{plain_terminal(in_exec, model=False)}")
    told.append(f"---- plain, a command\n{plain_terminal(put('npm test'), model=True)}")
    told.append(f"---- plain, an edit\n{plain_terminal(edit, model=True)}")
    told.append(f"---- plain, can be tried\n{plain_terminal(to_try(), model=True)}")
    told.append(f"---- plain, tried\n{plain_terminal(after_try(), model=True)}")
    told.append(f"---- plain, the end of a turn\n{plain_terminal(after_turn(), model=True)}")
    return re.sub(r"rules-(\w{1,8})", lambda name: f"rules-{'X' * len(name[1])}", "\n\n".join(told) + "\n")


def offered_in_exec(script: str) -> Offer:
    at = evaluation_context()
    return offer(
        at, question(script, at), (GrantScope.PROJECT,), GrantStore(None, GrantHolder(HERE, "main", "s"), print)
    )


def test_cards_look_as_they_did_in_two_windows_and_on_a_plain_terminal() -> None:
    found = screens()
    if os.environ.get("UPDATE_GOLDEN"):
        SCREENS.write_text(found)
    assert found == SCREENS.read_text()
    for part in found.split("---- ")[1:]:
        name, *rows = part.rstrip("\n").split("\n")
        most = 12 if name.startswith("an edit") else 18 if "80x24" in name else 24
        assert len(rows) <= most, name


@pytest.mark.threat("T38")
@pytest.mark.parametrize("name", [name for name, _ in TIERS])
@pytest.mark.parametrize(("width", "rows"), [(80, 22), (40, 16), (20, 12), (200, 60)])
def test_by_the_end_the_whole_command_was_on_the_screen(name: str, width: int, rows: int) -> None:
    """Row by row, every word of the command, the rights and the reason; however narrow, however hostile."""
    asked = put(dict(TIERS)[name])
    screen = Screen(asked, width=width, rows=rows)
    frames = [screen.text()]
    for _ in range(2000):
        if "more rows" not in frames[-1]:
            break
        frames.append(screen.press("down").text())
    told = ["".join(text for _, text in row).rstrip() for row in screen.panel._body(width - 1).rows]
    assert all(any(row in frame for frame in frames) for row in told), "every row was drawn"
    assert not screen.panel._unseen(0)
    whole = _solid("".join(row.replace("↳", "") for row in told))
    shown = asked.card
    head = ["".join(text for _, text in row) for row in screen.panel._head(width - 1)]
    badge, summary = shown.tier.label, _solid("".join([*head, *told]).replace("…", ""))
    rest = [row for row in told if row.startswith("  … ")]
    assert _solid(shown.line) in summary or (rest and head[-1].endswith("…")), "the summary goes on below the command"
    assert head[0].startswith(f" {badge} ")
    if shown.change is None:
        for part in re.split(r" {24,}|\n", shown.command):
            assert _solid(part) in whole, "every character of the command"
    else:
        for row in (row for row in shown.change.diff if row[:1] in "+-"):
            assert _solid(row) in whole, "every changed line"
    for part in (*(words for _, words in shown.rights), *shown.caveats):
        assert _solid(part) in whole
    assert shown.change is not None or _solid(shown.why if shown.special else shown.asks) in whole
    details = _solid("".join("".join(text for _, text in row) for row in detail_rows(shown, (), width - 1, PLAIN)))
    for part in (shown.why, *(words for _, words in shown.terms), *(pick.words for pick in shown.choices)):
        assert _solid(part) in details, "the explanation has the reason, every right and every answer in full"


def _solid(text: str) -> str:
    return "".join(text.split())


LONG = """\
rm -rf build
mkdir -p build/a/b
touch build/a/b/c build/x build/y
curl -o build/z https://example.org/x
git push --force https://example.com/r.git main"""


@pytest.mark.threat("T38")
def test_a_long_summary_stands_above_the_command_and_its_rest_below() -> None:
    """80x24. The command and the reason are on the first screen, and each word of the summary is there once."""
    asked = put(LONG)
    screen = Screen(asked, width=78, rows=18)
    rows = screen.text().split("\n")
    assert rows[2:7] == [f"{'$' if at == 0 else ' '} {line}" for at, line in enumerate(LONG.split("\n"))]
    assert rows[7].startswith("  why      `git push --force` overwrites")
    assert rows[8].startswith("  … ")
    summary = " ".join([*rows[:2], rows[8]]).replace("…", "").split()
    assert summary == ["dangerous", *asked.card.line.split()]
    assert screen.press("x").text().count("Overwrites commits") == 1
    low = Screen(asked, width=78, rows=11)
    low.panel._seen[0] = {name for name, _ in low.panel._body(77).ends if name != "line"}
    low.draw()
    assert low.panel._unseen(0), "the rest of the summary is below the rows of this window"
    assert low.press("y").answers is None
    assert "the end of the summary" in low.text()


def test_in_the_explanation_an_answer_says_where_it_counts() -> None:
    screen = Screen(put("npm test")).press("x")
    assert "s        yes, and in this session" in screen.text()
    for key in "spy":
        assert screen.press(key).answers is None
        assert "go back to the question first, with x or escape" in screen.text(), key
    assert "go back" not in screen.press("x").text()
    assert screen.press("s").answers is not None


def test_the_request_to_read_the_end_goes_when_the_end_is_shown() -> None:
    screen = Screen(put("npm test\n" + "\n".join(f"echo {n}" for n in range(100))), rows=22)
    assert "not approved yet" in screen.press("y").text()
    assert "not approved yet" not in screen.press("end").text()
    assert screen.press("y").answers == (Yes(),)


def test_a_file_that_stays_as_it_is_says_so() -> None:
    rows = Screen(put(WriteFile(f"{HERE}/notes.txt", "x\n"), before="x\n")).text().split("\n")
    assert rows[0].rstrip().endswith("notes.txt"), "no number of changed lines"
    assert rows[1] == "  writes the same content"
    assert "no line changes" not in "".join(rows)
    told = plain_terminal(put(WriteFile(f"{HERE}/notes.txt", "x\n"), before="x\n"), model=True)
    assert "writes the same content" in told


@pytest.mark.threat("T38")
@pytest.mark.parametrize("attack", ATTACKS, ids=[attack.id for attack in ATTACKS])
@pytest.mark.parametrize(("width", "rows"), [(80, 22), (40, 14)])
def test_what_a_hostile_model_shows_can_be_read(attack: Attack, width: int, rows: int) -> None:
    """The attacks on the plain question, at the card: what they hide is there, nothing drives the terminal, and no yes
    counts before it was on the screen."""
    (name, arguments), *_ = attack.calls
    given = str(arguments.get("command", "")).replace("@OUT@", f"{TOP}/log")
    asked = put(given) if name == "bash" else put(WriteFile(f"{HERE}/{arguments['path']}", str(arguments["content"])))
    screen = Screen(asked, width=width, rows=rows)
    frames = [screen.text()]
    while "more rows" in frames[-1]:
        frames.append(screen.press("down").text())
    whole = _solid(
        "".join("".join(text for _, text in row) for row in screen.panel._body(width - 1).rows).replace("↳", "")
    )
    for text in attack.seen:
        if not attack.speech:
            assert _solid(text) in whole + _solid(frames[-1])
    if len(frames) > 1:
        assert Screen(asked, width=width, rows=rows).press("y").answers is None


# ---- what a key answers

# fmt: off
KEYS: list[tuple[str, tuple[str, ...], object, str]] = [
    ("npm test", ("y",),          Yes(),   "once"),
    ("npm test", ("n",),          No(),    "no"),
    ("npm test", ("escape",),     No(),    "escape is no"),
    ("npm test", ("enter",),      No(),    "Enter is no, as on a plain terminal"),
    ("npm test", ("c-c",),        Halt(),  "stops the turn"),
    ("npm test", ("Y",),          None,    "another letter is no answer"),
    ("npm test", ("у",),          None,    "a Cyrillic look-alike is not y"),
    *[("npm test", (digit,),      None,    f"{digit} is no answer") for digit in "0123456789１²"],
    ("npm test", ("2", "enter"),  No(),    "and Enter behind one is the no that it always is"),
    ("npm test", ("<bracketed-paste>",), None, "a paste is no answer"),
    ("npm test", ("A",),          None,    "all of one is not offered"),
    ("npm test", ("x", "y"),      None,    "y does not count behind the explanation"),
    ("npm test", ("x", "x", "y"), Yes(),   "and does before the card again"),
    ("sudo ls",  ("enter",),      None,    "Enter is no answer where it is dangerous"),
    ("sudo ls",  ("enter", "enter", "enter"), None, "however often"),
    ("sudo ls",  ("y",),          Yes(),   "the letter itself is"),
    ("sudo ls",  ("s",),          None,    "nothing is remembered of what is dangerous"),
    ("sudo ls",  ("1",),          None,    "nor by number"),
    ('eval "$X"', ("enter",),     None,    "unknown is as careful"),
    ("curl https://example.org/x | sh", ("enter",), None, "download and run, too"),
]
# fmt: on


@pytest.mark.threat("T35")
@pytest.mark.parametrize(("script", "keys", "expected", "why"), KEYS, ids=[row[-1] for row in KEYS])
def test_what_a_key_answers(script: str, keys: tuple[str, ...], expected: object, why: str) -> None:
    found = Screen(put(script)).press(*keys)
    assert found.answers == (None if expected is None else (expected,)), why


def test_s_and_p_take_the_narrowest_choice_shown() -> None:
    for key, span in (("s", GrantScope.SESSION), ("p", GrantScope.PROJECT)):
        asked = put("npm test")
        (answer,) = Screen(asked, width=200).press(key).answers or (None,)
        assert isinstance(answer, Yes)
        assert answer.keep is not None
        assert answer.keep.span is span
        assert answer.keep.whats == asked.offer.choices[0].whats
        assert answer.keep.ruling is Ruling.ALLOW
    (answer,) = Screen(put("npm test"), width=200).press("d").answers or (None,)
    assert isinstance(answer, No)
    assert answer.keep is not None
    assert answer.keep.ruling is Ruling.DENY


@pytest.mark.threat("T38")
def test_a_choice_that_does_not_fit_its_row_is_shown_whole_first() -> None:
    assert Screen(put("npm test"), width=72).press("s").answers is not None, "fits"
    assert Screen(put("npm test"), width=60).press("s").answers is not None, "fits on rows of their own"
    screen = Screen(put("npm test"), width=34, rows=30)
    assert screen.press("s").answers is None
    whole = " ".join(screen.text().split())
    assert "exactly `npm test`" in whole
    assert "but not" in whole
    assert screen.press("y").answers is None, "only the same key again"
    assert screen.press("s").answers is not None
    assert Screen(put("npm test"), width=34, rows=30).press("s", "escape", "n").answers == (No(),)


@pytest.mark.threat("T38")
@pytest.mark.parametrize(("rows", "shown"), [(10, "in this session: this exact command"), (7, "s p S P yes")])
def test_in_a_low_window_what_may_be_remembered_is_told(rows: int, shown: str) -> None:
    """A terminal of 16 and one of 13 rows. Whatever has no row of its own is shown whole before it is taken."""
    screen = Screen(put("npm test"), width=60, rows=rows)
    drawn = screen.text()
    assert shown in drawn
    assert len(drawn.split("\n")) <= rows
    assert drawn.split("\n")[-2].startswith("  y yes, once · n/Enter no")
    taken = screen.press("end", "s").answers is not None
    assert taken is ("s p S P" not in shown)
    assert screen.press("s").answers is not None


def test_a_no_with_a_reason_and_an_edit_are_written_in_the_input() -> None:
    screen = Screen(put("npm test")).press("f")
    assert isinstance(screen.step, Edit)
    assert screen.panel.edited(None) == Unanswered()
    screen.press("f")
    assert screen.panel.edited(" use make ") == Done((No("use make"),))
    screen = Screen(put("npm test")).press("e")
    assert screen.step == Edit("npm test", "edit the command; it is evaluated again")
    assert screen.panel.edited("npm test") == Unanswered(), "nothing was changed"
    screen.press("e")
    assert screen.panel.edited("  ") == Unanswered()
    screen.press("e")
    assert screen.panel.edited("npm run lint") == Done((Edited("npm run lint"),))
    assert not isinstance(Screen(put(WriteFile(f"{HERE}/a", "x"))).press("e").step, Edit)


# fmt: off
EDITABLE = [
    ("npm test",                            "npm test",                            "plain"),
    ("npm test <<-EOF\n\t\ta\n\tEOF",       "npm test <<-EOF\n\t\ta\n\tEOF",       "tabs stay, because `<<-` needs them"),
    ("npm test caf\u00e9\t1",               "npm test caf\u00e9\t1",               "letters stay"),
    ("npm test \u202e1\t2",                 "npm test <U+202E>1    2",             "no text in the editor runs backwards"),
    ("npm test \x1b[2J",                    "npm test \u241b[2J",                  "a control character is spelled out"),
]
# fmt: on


@pytest.mark.parametrize(("script", "expected", "why"), EDITABLE, ids=[row[2] for row in EDITABLE])
def test_the_editor_gets_the_script_where_that_is_safe_to_show(script: str, expected: str, why: str) -> None:
    screen = Screen(put(script), rows=40).press("e")
    assert screen.step == Edit(expected, "edit the command; it is evaluated again"), why
    assert screen.panel.edited(expected) == Unanswered(), "nothing was changed"


# ---- all edits from now on

EDIT = EditFile(f"{HERE}/notes.txt", "x", "y")
ALL = Yes(mode=Mode.ACCEPT_EDITS)


def write(name: str, lines: int = 1, call: str = "1.1") -> Question:
    return put(WriteFile(f"{HERE}/{name}", "".join(f"line {n}\n" for n in range(lines))), call)


@pytest.mark.threat("T35")
@pytest.mark.parametrize("key", ["a", "s-tab"])
def test_one_key_accepts_all_edits(key: str) -> None:
    assert Screen(put(EDIT, before="x\n")).press(key).answers == (ALL,)
    for script in ("npm test", "touch a", "sudo ls", "echo x > a"):
        assert Screen(put(script)).press(key).answers is None, "only at an edit of a file tool"
    for path in (f"{HERE}/.git/hooks/pre-commit", f"{HERE}/.vscode/tasks.json", f"{TOP}/log/syslog"):
        assert Screen(put(WriteFile(path, "x"))).press(key).answers is None, path
    screen = Screen(put(EDIT, before="x\n"))
    screen.draw()
    screen.now += GUARD - 0.01
    assert screen.panel.key(key) == Unanswered(), "a key typed ahead"
    assert Screen(write("long.txt", 300)).press(key).answers is None, "the end of the change was not read"
    assert Screen(write("long.txt", 300)).press(*["pagedown"] * 40, key).answers == (ALL,)


@pytest.mark.threat("T38")
@pytest.mark.parametrize("key", ["a", "s-tab"])
def test_on_a_narrow_screen_it_is_shown_whole_before_it_counts(key: str) -> None:
    screen = Screen(put(EDIT, before="x\n"), width=34)
    assert screen.press(key).answers is None
    assert "all edits in the workspace" in " ".join(screen.text().split())
    assert screen.press("y").answers is None
    assert screen.press(key).answers == (ALL,)


def test_other_edits_of_the_list_wait_for_the_new_mode() -> None:
    screen = Screen(put("npm test"), write("a", call="1.2"), write("b", call="1.3"), put("sudo ls", "1.4"))
    assert screen.press("tab", "a").answers is None
    assert screen.press("n", "n").answers == (No(), ALL, Later(), No()), "only commands are left"


def test_all_changes_of_files_are_approved_when_each_was_read() -> None:
    questions = (write("a", call="1.1"), write("b", call="1.2"), write("c", 300, "1.3"))
    screen = Screen(*questions)
    assert "A approve all 3 alike" in screen.text()
    assert screen.press("A").answers is None
    assert "A also approves this one" in screen.text()
    assert "Creates b" in screen.text()
    assert screen.press("A").answers is None, "the third is there now"
    assert screen.press("A").answers is None, "and not read to its end"
    assert screen.press(*["pagedown"] * 40, "A").answers == (Yes(), Yes(), Yes())
    assert "A approve" not in Screen(write("a"), put(WriteFile(f"{TOP}/log/syslog", "x"), "1.2")).text(), "other rights"


# ---- a command that the user typed or edited


def test_a_command_of_the_user_is_yes_or_no() -> None:
    typed = own("npm test")
    told = Screen(typed).text()
    assert told.endswith("  y yes, once · n/Enter no · x explain")
    assert "no network" in told
    for key in ("s", "p", "S", "P", "d", "e", "f", "a", "A", "N"):
        assert Screen(typed).press(key).step == Unanswered(), key
    assert Screen(typed).press("y").answers == (Yes(),)


@pytest.mark.threat("T38")
def test_the_question_about_an_edited_command_follows_at_once() -> None:
    first = replace(put("npm test"), edited=lambda script: None if script == "ls" else put(script, again="edited"))
    screen = Screen(first, put("npm run build", "1.2"))
    screen.press("e")
    assert screen.panel.edited("curl https://example.org/x") == Unanswered()
    assert "1 of 2" in screen.text()
    assert "network  example.org" in screen.text()
    assert screen.press("enter").answers is None, "Enter refuses and approves nothing"
    (edited, other) = screen.press("y").answers or (None, None)
    assert isinstance(edited, Edited)
    assert edited.then is not None
    assert isinstance(edited.then.answer, No)
    assert other == Yes()
    screen = Screen(first)
    screen.press("e")
    assert screen.panel.edited("ls") == Done((Edited("ls"),)), "what is no question is not asked"
    screen = Screen(first)
    screen.press("e")
    screen.panel.edited("curl https://example.org/x\n" + "echo x\n" * 100)
    assert screen.press("y").answers is None, "the end of the new command must be read as well"


# ---- the size of a card


def edit_of(lines: int) -> Question:
    """A change in the middle of a file, with `lines` changed lines."""
    old = [f"old {n}" for n in range(lines // 2)]
    new = [f"new {n}" for n in range(lines - lines // 2)]
    around = [f"line {n}" for n in range(20)]
    before = "\n".join([*around, *old, *around]) + "\n"
    return put(EditFile(f"{HERE}/notes.txt", "\n".join(old) or "line 19\nline 0", "\n".join(new) or "x"), before=before)


@pytest.mark.parametrize("lines", [2, 3, 4, 5, 6])
def test_a_short_edit_takes_at_most_twelve_rows(lines: int) -> None:
    """80x24: the panel has two columns and six rows less than the terminal."""
    asked = edit_of(lines)
    screen = Screen(asked, width=78, rows=18)
    assert len(screen.draw()) <= 12, screen.text()
    assert asked.card.change is not None
    assert asked.card.change.added + asked.card.change.removed == lines
    for row in asked.card.change.diff:
        assert row[:1] == " " or row[:2] == "@@" or row in screen.text()
    assert screen.press("y").answers == (Yes(),), "all of it is there"


# fmt: off
DIFFS: list[tuple[tuple[str, ...], tuple[str, ...], str]] = [
    (("+a", "+b"),                                     ("+a", "+b"),                                         "a new file has no hunks"),
    (("@@ -4,3 +4,3 @@", " a", "-b", "+c", " d"),      ("@@ line 4 @@", " a", "-b", "+c", " d"),             "what is short stays whole"),
    (("@@ -1,7 +1,7 @@", " a", " b", " c", "-x", "+y", " d", " e", " f"),
     ("@@ line 2 @@", " b", " c", "-x", "+y", " d", " e"),                                                   "as many unchanged lines as fit"),
    (("@@ -1,9 +1,9 @@", " a", "-x", "+y", " b", " c", " d", " e", " f", "-z", "+w"),
     ("@@ line 2 @@", "-x", "+y", "@@ line 8 @@", "-z", "+w"),                                                "a gap begins a hunk of its own"),
    (("@@ -1,3 +1,2 @@", " a", "-@@ -9 +9 @@", " b"),  ("@@ line 1 @@", " a", "-@@ -9 +9 @@", " b"),         "a line of the file is no hunk"),
    (("@@ -1 +1 @@", *["-x"] * 9, "@@ 46000 lines are not shown @@", " a", " b", " c", "+y"),
     ("@@ line 1 @@", *["-x"] * 9, "@@ 46000 lines are not shown @@", "@@ @@", " c", "+y"),                  "behind a gap no number is known"),
]
# fmt: on


@pytest.mark.threat("T38")
@pytest.mark.parametrize(("diff", "expected", "why"), DIFFS, ids=[row[-1] for row in DIFFS])
def test_a_short_diff_loses_only_unchanged_lines(diff: tuple[str, ...], expected: tuple[str, ...], why: str) -> None:
    assert brief_diff(diff) == expected, why


# fmt: off
COMMANDS = [
    "npm test", "npm run build", "npm run build -- --watch", "python3 -m pytest -q", "python3 -c 'print(1)'",
    "python3 -c \"open('/var/tmp/nc-x', 'w')\"", "make test", "git commit -m x", "curl https://api.example.com/x",
    "curl -sS https://example.org/x > notes.txt", "touch docs/x", "rm -rf docs", "npm test && npm run build",
    "cat @TOP/log/syslog", "grep -r x @TOP/log", "echo x > ~/out/y", "bash -c 'npm test'", "./bin/tool x",
    "cd sub && npm test", "ssh host uptime", "npm run a-very-long-name-of-a-script-that-goes-on-and-on:production:all",
]
# fmt: on


@pytest.mark.parametrize("script", COMMANDS)
def test_a_card_fits_and_its_choices_can_be_told_apart(script: str) -> None:
    asked = put(script)
    rows = Screen(asked, width=78, rows=18).text().split("\n")
    assert len(rows) <= 12, rows
    keys = {key for pick in asked.card.choices if pick.yes for key in pick.keys}
    answers = [row.strip() for row in rows if row.strip()[:1] in keys and row.strip()[1:3] == "  "]
    told = [[part[3:] for part in row.split(" · ")] for row in answers]  # without the keys
    assert sum(map(len, told)) == len(keys), rows
    assert len({parts[0][:40] for parts in told}) == len(told), "each row differs within its first 40 characters"
    assert all(len({part[:40] for part in parts}) == len(parts) for parts in told), "and so do the scopes of a row"
    assert not any("'\"'\"'" in row for row in rows), "a quote is shown in double quotes"
    if "-c " in script and "bash" not in script:
        assert not any("further flags" in row for row in rows), "no flags for code that nobody reads"


# ---- stray keys


@pytest.mark.threat("T35")
@pytest.mark.parametrize("key", ["y", "s", "S", "n", "enter", "d", "escape", "f", "e"])
def test_what_was_typed_before_the_card_was_there_counts_for_nothing(key: str) -> None:
    screen = Screen(put("npm test"))
    assert screen.panel.key(key) == Unanswered(), "before it was ever drawn"
    screen.draw()
    screen.now += GUARD - 0.01
    assert screen.panel.key(key) == Unanswered(), "before anybody could read it"
    assert "was ignored" in screen.text()


@pytest.mark.threat("T35")
@pytest.mark.parametrize(("script", "guard"), [("npm test", GUARD), ("sudo ls", CAREFUL)])
def test_somebody_who_goes_on_typing_approves_nothing(script: str, guard: float) -> None:
    screen = Screen(put(script))
    screen.press(*"yes you may, say everybody who saw yyyyyyyyyyyyyyyyyy", wait=guard - 0.05)
    assert screen.answers is None


@pytest.mark.threat("T35")
def test_a_key_that_is_held_down_answers_one_card() -> None:
    screen = Screen(put("npm test", "1.1"), put("npm run build", "1.2"), put("sudo ls", "1.3")).press("y")
    screen.press(*["y"] * 300, wait=0.03)
    assert screen.answers is None
    assert screen.press("n", "n").answers == (Yes(), No(), No())


@pytest.mark.threat("T35")
def test_after_an_edit_that_was_given_up_the_guard_stands_again() -> None:
    screen = Screen(put("npm test")).press("e")
    screen.panel.edited(None)
    screen.draw()
    screen.now += 0.1
    assert screen.panel.key("y") == Unanswered()


@pytest.mark.threat("T38")
@pytest.mark.parametrize("key", ["y", "s", "S", "A"])
def test_a_yes_counts_only_when_the_end_was_on_the_screen(key: str) -> None:
    script = "npm test\n" + "\n".join(f"echo {n}" for n in range(100)) + "\nrm -rf src # tail"
    screen = Screen(put(script), put("npm test", "1.2"))
    assert screen.press(key).answers is None
    first = screen.panel._answers  # nothing is written down for it
    assert not first
    screen.press(*["pagedown"] * 10)
    assert "not approved yet" not in screen.press("y").text()
    assert screen.panel._answers == {0: Yes()}


@pytest.mark.threat("T38")
def test_jumping_to_the_end_passes_no_end_of_a_command() -> None:
    """Behind a long command stand its rights; the end key shows those, and the command's own end only where it fits."""
    asked = put("npm test\n" + "\n".join(f"echo {n}" for n in range(100)) + "\nrm -rf src # tail")
    screen = Screen(asked, width=40, rows=7).press("end")
    assert "# tail" not in screen.text()
    assert screen.press("y").answers is None
    assert Screen(asked, width=40, rows=7).press(*["down"] * 200, "y").answers == (Yes(),)


@pytest.mark.threat("T38")
@pytest.mark.parametrize("rows", [5, 6, 8, 10, 22, 40])
def test_a_yes_too_early_shows_the_next_end_that_was_not_seen(rows: int) -> None:
    """Else anyone who jumps to the end and says yes would not find out what is wanted of them."""
    many = "\n".join(f"curl https://example.org/{n} -o f{n}" for n in range(100))
    screen = Screen(put(many), rows=rows).press("end", "y")
    assert screen.answers is None
    assert "curl https://example.org/99 -o f99" in screen.text()
    assert Screen(put(many), rows=rows).press(*["y"] * 4).answers == (Yes(),)


@pytest.mark.threat("T38")
def test_a_choice_whose_row_has_no_room_is_shown_before_it_is_taken() -> None:
    screen = Screen(put("npm test"), rows=7)
    assert "yes, and in this session" not in screen.text()
    assert screen.press("s").answers is None
    assert "yes, and in this session" in screen.text()


def test_a_key_that_is_not_offered_says_so() -> None:
    assert "s is not possible" in Screen(put("git reset --hard")).press("s").text()
    assert "A approve all" not in Screen(put("sudo ls"), put("sudo id", "1.2")).text()


@pytest.mark.threat("T38")
@pytest.mark.parametrize("widths", [(200, 40), (40, 200), (80, 20), (30, 80)])
def test_a_window_of_another_width_is_no_short_cut(widths: tuple[int, int]) -> None:
    """A row that was seen at one width is another one at the next: what counts is which end it was."""
    first, second = widths
    for lines in range(1, 40, 5):
        asked = put("npm test\n" + f"echo {'x' * 70}\n" * lines + "rm -rf src # tail", again="why")
        screen = Screen(asked, width=first, rows=12)
        seen = "# tail" in screen.text()
        screen.width = second
        seen = "# tail" in screen.text() or seen
        screen.press("y")
        assert seen or screen.answers is None, lines


@pytest.mark.threat("T38")
def test_the_end_of_a_diff_must_be_seen_as_well() -> None:
    asked = put(WriteFile(f"{HERE}/new.py", "".join(f"line {n}\n" for n in range(300)) + "evil()\n"))
    assert Screen(asked).press("y").answers is None
    screen = Screen(asked).press(*["pagedown"] * 40)
    assert screen.press("y").answers == (Yes(),)


@pytest.mark.threat("T38")
def test_rows_that_a_count_covers_were_not_seen() -> None:
    """The last row of the window tells how much is below: what it stands for is not on the screen."""
    for rows in range(8, 30):
        screen = Screen(put("npm test\n" + "echo x\n" * 20 + "rm -rf src # tail"), rows=rows)
        for _ in range(60):
            visible_now = "# tail" in screen.text()
            before = dict(screen.panel._answers)
            if visible_now:
                break
            screen.press("down")
            assert not before
        assert "# tail" in screen.text()


# ---- several questions


def several(*scripts: str) -> Screen:
    return Screen(*(put(script, f"1.{n}") for n, script in enumerate(scripts, 1)))


# fmt: off
LISTS: list[tuple[tuple[str, ...], tuple[str, ...], tuple[Answer, ...] | None, str]] = [
    (("npm test", "npm run build"),  ("y", "n"),          (Yes(), No()),          "each its own"),
    (("npm test", "npm run build"),  ("tab", "y", "n"),   (No(), Yes()),          "in any order"),
    (("npm test", "npm run build"),  ("A",),              (Yes(), Yes()),         "all of one kind"),
    (("npm test", "npm run build"),  ("N",),              (No(), No()),           "none of them"),
    (("npm test", "sudo ls"),        ("A",),              None,                   "what is dangerous is asked by itself"),
    (("npm test", "sudo ls"),        ("A", "y", "n"),     (Yes(), No()),          "and where none is alike there is no A"),
    (("sudo ls", "sudo id"),         ("A",),              None,                   "never all of what is dangerous"),
    (("npm test", "curl https://example.org"), ("A",),    None,                   "another tier is another kind"),
    (("curl https://a.example.org", "curl https://b.example.org"), ("A",), None,  "other hosts are other rights"),
    (("npm test", "npm test " + "x" * 90), ("A",),        None,                   "one that its row does not tell whole"),
    (("npm test", "npm test \u0440m"), ("A",),            None,                   "one whose letters pass for others"),
    (("npm test", "npm test\nnpm run x"), ("A",),      (Yes(), Yes()),         "short lines are told whole"),
    (("npm test", "npm run build"),  ("c-c",),            (Halt(), Halt()),       "stopping stops all"),
    (("npm test", "npm run a", "npm run b"), ("n", "A"),  (No(), Yes(), Yes()),   "what is answered stays"),
    (tuple(f"npm run a{n}" for n in range(8)), ("A",),    None,                   "only those that are named below"),
]
# fmt: on


@pytest.mark.threat("T35")
@pytest.mark.parametrize(("scripts", "keys", "expected", "why"), LISTS, ids=[row[-1] for row in LISTS])
def test_a_list_of_questions(
    scripts: tuple[str, ...], keys: tuple[str, ...], expected: tuple[Answer, ...] | None, why: str
) -> None:
    found = several(*scripts).press(*keys)
    assert found.answers == expected, why


def test_why_it_is_asked_again_is_said() -> None:
    assert "has changed since" in Screen(put("npm test", again="what this rests on has changed since")).text()


# ---- whatever is pressed


@given(
    keys=st.lists(
        st.sampled_from(["n", "x", "tab", "up", "down", "end", "home", "enter", "escape", "z", " ", "left", "1x"]),
        max_size=30,
    ),
    width=st.integers(12, 120),
    rows=st.integers(4, 40),
)
@examples(60)
def test_keys_that_are_no_yes_never_make_one(keys: list[str], width: int, rows: int) -> None:
    screen = _FIXED(width, rows)
    for key in keys:
        if screen.answers is not None:
            break
        screen.press(key)
    assert not any(isinstance(answer, Yes) for answer in screen.panel._answers.values())
    assert not any(isinstance(answer, Yes) for answer in screen.answers or ())


_MADE: list[Question] = []


def _fixed(width: int, rows: int) -> Screen:
    if not _MADE:
        _MADE.extend(put(script, str(n)) for n, script in enumerate(("npm test\n" * 40, "sudo ls", "npm run build")))
    return Screen(*_MADE, width=width, rows=rows)


_FIXED: Callable[[int, int], Screen] = _fixed


# ---- the plan's question


@pytest.mark.threat("T102")
def test_a_key_typed_ahead_begins_no_plan() -> None:
    now = [0.0]
    panel = PlanQuestion(clock=lambda: now[0])
    assert isinstance(panel.key("a"), Unanswered)
    panel.lines(80, 20)
    for key in "aet accept a":
        now[0] += 0.3
        assert isinstance(panel.key(key), Unanswered)
    now[0] += 1
    assert isinstance(panel.key("a"), Done)


# ---- a try

ALL_ITEMS = Kept(frozenset({1, 2, 3}))
# fmt: off
TRIED: list[tuple[Callable[[], Question], tuple[str, ...], Answer | None, str]] = [
    (to_try,            ("t",),        Try(),          "the key of the card"),
    (to_try,            ("y",),        Yes(),          "the usual yes"),
    (to_try,            ("r",),        None,           "a key of the other card"),
    (to_try,            ("c",),        None,           "a key of the other card"),
    (lambda: put("npm test"), ("t",),  None,           "where it is not offered it is no key"),
    (after_try,         ("y",),        ALL_ITEMS,      "everything"),
    (after_try,         ("n",),        No(),           "discarded"),
    (after_try,         ("enter",),    No(),           "Enter keeps nothing"),
    (after_try,         ("escape",),   No(),           "nor does Escape"),
    (after_try,         ("r",),        Yes(),          "as usual"),
    (after_try,         ("t",),        None,           "it was tried already"),
    (after_try,         ("e",),        None,           "what was tried cannot be edited"),
    (after_try,         ("s",),        None,           "nothing is remembered"),
    (after_try,         ("A",),        None,           "nor approved with others"),
    (after_try,         ("1",),        None,           "a digit is no answer"),
    (lambda: after_try(()), ("y",),    Kept(frozenset()), "the output counts"),
    (lambda: after_try(()), ("c",),    None,           "there is nothing to choose"),
    (after_turn,        ("y",),        ALL_ITEMS,      "everything of a turn"),
    (after_turn,        ("enter",),    No(),           "Enter keeps nothing of a turn"),
    (after_turn,        ("r",),        None,           "what a rule tried does not run again"),
    (lambda: after_turn(COMMANDS[:1]), ("r",), None,   "nor does one command"),
]
# fmt: on


@pytest.mark.threat("T313")
@pytest.mark.parametrize(("asked", "keys", "answer", "why"), TRIED, ids=[f"{row[1][0]}: {row[3]}" for row in TRIED])
def test_the_keys_of_a_try(
    asked: Callable[[], Question], keys: tuple[str, ...], answer: Answer | None, why: str
) -> None:
    assert Screen(asked()).press(*keys).answers == (None if answer is None else (answer,)), why


@pytest.mark.threat("T313")
@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("1", Kept(frozenset({1}))),
        (" 1, 3 ", Kept(frozenset({1, 3}))),
        ("2-3", Kept(frozenset({2, 3}))),
        ("all", ALL_ITEMS),
        ("none", No()),
        ("", None),
        ("4", None),
        ("0", None),
        ("3-1", None),
        ("-", None),
        ("what", None),
        ("9" * 5000, None),
        (None, None),
    ],
)
def test_some_changes_are_chosen_by_number(text: str | None, answer: Answer | None) -> None:
    screen = Screen(after_try()).press("c")
    assert isinstance(screen.step, Edit)
    screen.step = screen.panel.edited(text)
    assert screen.answers == (None if answer is None else (answer,))


@pytest.mark.threat("T313")
def test_nothing_is_kept_before_its_end_was_on_the_screen() -> None:
    asked = after_try()
    assert asked.card.tried is not None
    long = replace(asked.card.tried, diff=tuple(f"+{number}" for number in range(90)))
    screen = Screen(replace(asked, card=replace(asked.card, tried=long))).press("y")
    assert screen.answers is None
    assert "not approved yet" in screen.text()
    for _ in range(3):
        screen.press("y")
    assert screen.answers == (ALL_ITEMS,)
