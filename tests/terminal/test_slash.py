"""Tests of slash commands in a session with real parts: gate, sandbox, log, snapshots, sessions."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from policy.model.tier import Mode
from runner.config.agentfiles.skills import Skill
from runner.engine.context.context import Context
from runner.events import ActionFinished, Display, Event, Prompted, Resumed, RunEnded, SessionStarted, VerdictReached
from runner.frontends.slash.command import SlashCommand, find, is_command
from runner.frontends.slash.registry import COMMANDS
from runner.messages import Usage
from runner.problems import Exit
from runner.providers.scripted import Turn
from tests.support.conversation import ScriptedUser, bash, play_conversation, shown_text

# fmt: off
SAID: list[tuple[str, str, str]] = [
    ("/help",                     "/rewind [N]",           "every command is listed"),
    ("/help",                     "Keys\n  Ctrl-C  ",      "and the keys that are there, grouped"),
    ("/help",                     "Permissions and sandbox\n  /permissions  ", "commands stand under headings"),
    ("/help mode",                "how much is allowed",   "one of them"),
    ("/help nope",                "no command `nope`",     "help for none"),
    ("/?",                        "/rewind [N]",           "an alias"),
    ("/mode plan",                "mode is now plan",      "change it"),
    ("/mode trust-project",       "already",               "change nothing"),
    ("/mode sudo",                "no mode `sudo`",        "a wrong name says the right ones"),
    ("/thinking high",            "thinking is now high",  "how much it reasons"),
    ("/thinking off",             "the thinking level is already off", "change nothing"),
    ("/thinking deep",            "no level `deep`",       "a wrong level says the right ones"),
    ("/thinking show",            "this screen does not show the reasoning", "only the full screen draws it"),
    ("/mode",                     "trust-project (now)",   "the list marks the mode in force"),
    ("/model",                    "model is now scripted:anthropic:", "pick one: the second of the list"),
    ("/model",                    "$10 in, $50 out    no key", "each with its price, and whether there is a key"),
    ("/model scripted:m",         "the model is already scripted:m", "the one in use"),
    ("/processes",                "no process stays beside", "nothing runs"),
    ("/processes p7",             "no process `p7`",       "none of that name"),
    ("/processes stop all",       "0 processes stopped",   "none to stop"),
    ("/ports",                    "no process of this session listens", "no port"),
    ("/ports forward 80 8o",      "write /ports",          "a number that is none"),
    ("/ports forward 3000",       "no process of the session listens on port 3000", "a port without a server"),
    ("/ports close 3000",         "is not forwarded",      "a forward that is none"),
    ("/mcp",                      "this session has no tool servers", "no server"),
    ("/mcp:one:greet who=Ann",    "this session has no tool servers", "a prompt of no server"),
    ("/compact",                  "too short to be",       "an empty talk"),
    ("/context",                  "gate",                  "the parts"),
    ("/context gate",             "from ringfence",        "one of them"),
    ("/context tools",            '{"type": "object", "properties": {"command"', "the definitions as they are sent"),
    ("/context soup",             "no part `soup` with",   "none of them"),
    ("/permissions",              "asks     read-outside", "the column of this mode"),
    ("/permissions now",          "takes no argument",     "words that mean nothing"),
    ("/grants",                   "no answers are remembered", "no answers yet"),
    ("/grants revoke g-nope",     "no grant `g-nope`",     "none of that name"),
    ("/grants forget all",        "write /grants",         "a wrong word"),
    ("/audit",                    "no decision matches",   "nothing was decided yet"),
    ("/audit 99999",              "no record 99999",       "a number that is none"),
    ("/audit all of it",          "write /audit",          "a wrong word"),
    ("/why cat /etc/shadow",      "/etc/shadow",           "what a command would get"),
    ("/why ls",                   "allowed",               "in the mode of this talk"),
    ("/sandbox",                  "files outside the granted folders cannot be read", "what holds, in words"),
    ("/sandbox touch x",          "writes    the workspace", "the rights of a command"),
    ("/sandbox cat ~/.ssh/id_rsa", "get no rights",        "of one that is denied"),
    ("/undo",                     "nothing was undone", "no action yet"),
    ("/undo zero",                "not a number of actions", "no number"),
    ("/undo 0",                   "not a number of actions", "not one"),
    ("/rewind",                   "no prompt yet",         "no prompt yet"),
    ("/diff",                     "changed no file",       "no change yet"),
    ("/export",                   "has no file",           "nothing was said yet"),
    ("/resume",                   "no other session",      "there is none"),
    ("/fork",                     "has no file yet",       "nothing to copy"),
    ("/cost",                     "sent      0 tokens",    "nothing was used"),
    ("/cost",                     "nothing, because the model is scripted", "a price that is none has a reason"),
    ("/trust",                    "no files that configure",        "an empty repository"),
    ("/frobnicate now",           "no command `/frobnicate`", "an unknown command is not sent to the model"),
    ("/hlep",                     "did you mean /help",    "a slip of the fingers"),
]
# fmt: on


CHANGING = {"/mode plan", "/thinking high", "/model"}  # each of these lines is said in a conversation of its own


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return what each line that changes nothing is answered, all of them said in one conversation."""
    said = dict.fromkeys(line for line, *_ in SAID if line not in CHANGING)
    events: list[Event] = []
    at: list[int] = []  # the number of events before each line, and after the last one
    lines: list[str | Callable[[], None]] = []
    for line in said:
        lines += [lambda: at.append(len(events)), line, ""]  # an empty line takes nothing from a list
    person = ScriptedUser(*lines, lambda: at.append(len(events)), "/quit")
    assert play_conversation(tmp_path_factory.mktemp("said"), [], person, events.append) == Exit.DONE
    assert not _asked_the_model(events)
    return {line: shown_text(events[begin:end]) for line, begin, end in zip(said, at, at[1:], strict=False)}


@pytest.mark.parametrize(("line", "wanted", "why"), SAID, ids=[f"{line}: {why}" for line, _, why in SAID])
def test_a_command_says(request: pytest.FixtureRequest, tmp_path: Path, line: str, wanted: str, why: str) -> None:
    if line not in CHANGING:
        assert wanted in request.getfixturevalue("answers")[line], why
        return
    events: list[Event] = []
    person = ScriptedUser(line, "2" if line == "/model" else "", "/quit")
    assert play_conversation(tmp_path, [], person, events.append) == Exit.DONE
    assert wanted in shown_text(events), why
    assert not _asked_the_model(events)


def _asked_the_model(events: list[Event]) -> bool:
    return any(isinstance(event, RunEnded) for event in events)


def play(base: Path, turns: list[Turn], *lines: str | Callable[[], None]) -> list[Event]:
    events: list[Event] = []
    assert play_conversation(base, turns, ScriptedUser(*lines, "/quit"), events.append) == Exit.DONE
    return events


def test_what_was_decided_can_be_asked_for(tmp_path: Path) -> None:
    events = play(tmp_path, [bash("cat /etc/shadow"), Turn("done")], "read it", "/audit denied", "/why", "/audit last")
    shown = [event.text for event in events if isinstance(event, Display)]
    assert "/etc/shadow" in shown[0]
    labels = [line.split()[0] for line in shown[1].split("\n") if not line.startswith("   ")]
    assert labels == ["action", "verdict", "because", "instead", "rule", "/audit"]
    assert shown[1].count("\n") < 12
    assert shown[2].startswith(f"record {shown[1].rpartition('/audit ')[2].split()[0]}\n"), "the rest of the record"
    assert "(command:coreutils:" in shown[2], "the reference of the rule"


def test_the_last_decision_is_one_of_this_session(tmp_path: Path) -> None:
    play(tmp_path, [bash("cat /etc/shadow"), Turn("done")], "read it")
    shown = [event.text for event in play(tmp_path, [], "/why", "/audit last") if isinstance(event, Display)]
    assert shown == ["this session has no decisions"] * 2


def test_the_parts_of_the_context_add_up(tmp_path: Path) -> None:
    """Before a count of the provider, the size is the sum; after it, the text says which number is whose."""
    turns = [Turn("one", usage=Usage(input=8_000, output=40))]
    events = play(tmp_path, turns, "/context", "first", "/context")
    before, after = (event.text for event in events if isinstance(event, Display) and "sum" in event.text)
    for text in (before, after):
        rows = [line.split() for line in text.split("\n") if line.startswith("  ")]
        numbers = {row[0]: int(row[1].replace(",", "")) for row in rows}
        assert numbers.pop("sum") == sum(numbers.values())
    total = next(line.split()[1] for line in before.split("\n") if line.startswith("  sum"))
    assert before.startswith(f"the next request is about {total} tokens")
    assert "the last request and its answer were 8,040 tokens by the provider's count" in after
    assert after.startswith("the next request is 8,040 tokens")


def test_a_diff_shows_an_empty_file_and_a_folder(tmp_path: Path) -> None:
    events = play(tmp_path, [bash("touch empty; mkdir folder"), Turn("done")], "make them", "/diff")
    (shown,) = [event.text for event in events if isinstance(event, Display) and event.kind == "diff"]
    assert sorted(shown.split("\n")) == ["empty file added: empty", "folder added: folder"]


def test_a_diff_and_undo_are_about_this_session(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "kept").write_text("one\n")
    turns = [bash("echo two > kept; echo new > made"), Turn("done")]
    events = play(tmp_path, turns, "write it", "/diff", "/undo", "/diff")
    shown = [event for event in events if isinstance(event, Display)]
    assert shown[0].kind == "diff"
    assert "-one" in shown[0].text
    assert "+two" in shown[0].text
    assert "+new" in shown[0].text
    assert (tmp_path / "w" / "kept").read_text() == "one\n"
    assert not (tmp_path / "w" / "made").exists()
    assert "changed no file" in shown[-1].text


# fmt: off
REWINDS = [
    ("1", False, ["first", "third"],           "files and conversation"),
    ("2", True,  ["first", "third"],           "the conversation only"),
    ("3", False, ["first", "second", "third"], "the files only"),
]
# fmt: on


@pytest.mark.parametrize(("how", "there", "prompts", "why"), REWINDS, ids=[row[3] for row in REWINDS])
def test_a_rewind_goes_back_to_before_a_prompt(
    tmp_path: Path, how: str, there: bool, prompts: list[str], why: str
) -> None:
    """The list shows the newest prompt first."""
    turns = [bash("echo 1 > one"), Turn("done"), bash("echo 2 > two"), Turn("done"), Turn("done")]
    events = play(tmp_path, turns, "first", "second", "/rewind", "1", how, "third")
    assert (tmp_path / "w" / "one").exists()
    assert (tmp_path / "w" / "two").exists() is there, why
    ended = [event for event in events if isinstance(event, RunEnded)]
    assert [event.reason for event in ended] == ["done"] * 3
    # A later run continues from the last context that the model saw.
    again = play(tmp_path, [Turn("done")], "/resume", "1", "/cost")
    resumed = [event for event in again if isinstance(event, Resumed)]
    assert resumed[0].prompts == len(prompts), why
    assert resumed[0].last.endswith("third")


def test_a_session_is_left_and_gone_on_with(tmp_path: Path) -> None:
    turns = [Turn("one"), Turn("two"), Turn("three")]
    events = play(tmp_path, turns, "first", "/clear", "second", "/resume", "1", "third", "/fork", "/cost")
    started = [event for event in events if isinstance(event, SessionStarted)]
    resumed = [event for event in events if isinstance(event, Resumed)]
    assert len(started) == 4
    assert [(event.first, event.forked) for event in resumed] == [("first", False), ("first", True)]
    assert resumed[1].prompts == 2, "what was said after it was resumed is in the copy"


TWO = [bash("echo 1 > one"), Turn("done"), bash("echo 2 > two"), Turn("done")]

# fmt: off
GONE_ON: list[tuple[tuple[str, ...], str, list[str], str]] = [
    (("/diff",),                   "+2",                  ["one", "two"], "what earlier runs changed"),
    (("/undo",),                   "undid",               ["one"],        "the last action of all runs"),
    (("/undo 2",),                 "undid",               [],             "both"),
    (("/undo 3",),                 "only 2 stored actions", ["one", "two"], "more than the session did"),
    (("/rewind", "1", "1"),        "continues from there",  ["one"],        "to before the last prompt"),
    (("/rewind", "2", "1"),        "continues from there",  [],             "to before the first"),
    (("/rewind", "2", "3"),        "undid",               [],             "the files only"),
    (("!echo 3 > three", "/rewind", "1", "1"), "2 actions changed files since", ["one"], "with what was done since"),
    (("third", "/rewind", "2", "1", "/diff"), "+1",       ["one"],        "over a prompt of this run"),
    (("/rewind", "1", "2", "/diff"), "+2",                ["one", "two"], "what a branch that is over changed"),
    (("/export a.md",),            "written: ",           ["one", "two", "a.md"], "before anything was said"),
    (("/rewind", "1", "4", "third", "/diff"), "+1",       ["one", "two"], "in a copy from before a prompt"),
    (("/rewind", "2", "4", "/diff"), "changed no file",   ["one", "two"], "in one from before the first"),
    (("/fork", "/rewind", "1", "4"), "has no file yet",    ["one", "two"], "of a copy that is none yet"),
    (("/fork", "/diff"),           "+2",                  ["one", "two"], "a copy knows what was before it"),
    (("/fork", "/rewind", "1", "1"), "continues from there", ["one"],       "and goes back in it"),
    (("/fork", "/export"),         "this copy of the session has no file yet", ["one", "two"], "nor has it one before it is used"),
]
# fmt: on


@pytest.fixture(scope="module")
def two_sessions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the folders of a user with two sessions, and a copy of them; the sessions know the former by its path."""
    base = tmp_path_factory.mktemp("sessions") / "base"
    base.mkdir()
    play(base, TWO, "!true", "first", "second")
    play(base, [bash("echo other > other"), Turn("done")], "of another session")
    return base, shutil.copytree(base, base.with_name("kept"), symlinks=True)


@pytest.mark.parametrize(("lines", "wanted", "files", "why"), GONE_ON, ids=[row[3] for row in GONE_ON])
def test_a_session_that_is_gone_on_with_knows_all_of_it(
    two_sessions: tuple[Path, Path], lines: tuple[str, ...], wanted: str, files: list[str], why: str
) -> None:
    base, kept = two_sessions
    shutil.rmtree(base)
    shutil.copytree(kept, base, symlinks=True)
    events = play(base, [Turn("done")], "/resume", "2", *lines)
    assert wanted in shown_text(events), why
    assert sorted(each.name for each in (base / "w").iterdir()) == sorted([*files, "other"]), why


def test_what_a_session_cost_is_that_of_all_its_runs(tmp_path: Path) -> None:
    used = Usage(input=900, output=40)
    play(tmp_path, [Turn("one", usage=used)], "first")
    events = play(tmp_path, [Turn("two", usage=used)], "/resume", "1", "second", "/cost")
    assert "sent      900 tokens" in shown_text(events)
    assert "session   1800 tokens in, 80 out" in shown_text(events)


def test_a_list_of_steps_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    play(tmp_path, TWO, "first", "second")
    (steps,) = (tmp_path / "state" / "snapshots").glob("*/steps.db")
    for each in steps.parent.glob("steps.db*"):
        each.unlink()
    steps.mkdir()
    events = play(tmp_path, [], "/resume", "1", "/diff", "/undo", "/rewind")
    assert shown_text(events).count("is a directory") == 3
    assert sorted(each.name for each in (tmp_path / "w").iterdir()) == ["one", "two"]


def test_a_rewind_is_kept_at_once_and_the_copy_of_a_session_is_no_part_of_it(tmp_path: Path) -> None:
    play(tmp_path, TWO, "first", "second")
    play(tmp_path, [bash("echo 3 > three"), Turn("done")], "/resume", "1", "/fork", "third")
    copy = play(tmp_path, [], "/resume", "1", "/diff", "/rewind", "1", "2")
    assert "+3" in shown_text(copy)
    events = play(tmp_path, [], "/resume", "1", "/rewind", "", "/clear", "/resume", "2", "/diff", "/rewind", "2", "1")
    resumed = [event for event in events if isinstance(event, Resumed)]
    assert [event.last for event in resumed] == ["second", "second"], "nothing was said after it"
    assert "+3" not in shown_text(events)
    assert sorted(each.name for each in (tmp_path / "w").iterdir()) == ["three"], "which is the copy's"


@pytest.mark.parametrize(("words", "name"), [("", "session-"), ("html talk.html", "talk.html"), ("a.jsonl", "a.jsonl")])
def test_an_export_is_a_new_file(tmp_path: Path, words: str, name: str) -> None:
    events = play(tmp_path, [Turn("one")], "first", f"/export {words}", f"/export {words}")
    shown = [event.text for event in events if isinstance(event, Display)]
    assert "written: " in shown[0]
    assert "exists" in shown[1], "nothing is written over"
    (made,) = [path for path in (tmp_path / "w").iterdir() if path.name.startswith(name)]
    assert "first" in made.read_text()
    assert made.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["a\0b", "a\ud800"])
def test_a_name_that_no_file_has_is_told(tmp_path: Path, name: str) -> None:
    events = play(tmp_path, [Turn("one"), Turn("two")], "first", f"/export md {name}", "second")
    assert "cannot be used" in shown_text(events)
    assert [event.reason for event in events if isinstance(event, RunEnded)] == ["done", "done"]


def test_ones_own_command_passes_the_gate_and_the_model_hears_of_it(tmp_path: Path) -> None:
    events = play(tmp_path, [Turn("I see")], "!echo mine", "!cat /etc/shadow", "what was that?")
    judged = [event.verdict.name for event in events if isinstance(event, VerdictReached)]
    assert judged == ["ALLOW", "DENY"]
    assert "mine" in next(event.text for event in events if isinstance(event, ActionFinished))


def test_a_command_of_ones_own_is_sent(tmp_path: Path) -> None:
    commands = tmp_path / "home" / ".config" / "ringfence" / "commands"
    commands.mkdir(parents=True)
    (commands / "greet.md").write_text("Say hello to $1.")
    (commands / "Bad.md").write_text("x")
    events = play(tmp_path, [Turn("hello")], "/help greet", "/greet Ann", "/resume")
    assert "Bad.md" in shown_text(events)
    assert f"from: {commands}/greet.md" in shown_text(events)
    (sent,) = [event.text for event in events if isinstance(event, Prompted)]
    assert sent == "Say hello to Ann."


def test_a_skill_is_handed_over(tmp_path: Path) -> None:
    skill = Skill("fix", "How to fix", "/skills/fix/SKILL.md", "yours", "Look twice.")
    events: list[Event] = []
    person = ScriptedUser("/help skill:fix", "/skill:fix the build", "/quit")
    assert play_conversation(tmp_path, [Turn("done")], person, events.append, Context(skills=(skill,))) == Exit.DONE
    assert "How to fix" in shown_text(events)
    (sent,) = [event.text for event in events if isinstance(event, Prompted)]
    assert "Look twice." in sent
    assert sent.endswith("the build")


def test_a_person_reads_what_was_typed_and_the_model_what_it_stands_for(tmp_path: Path) -> None:
    def at(turns: list[Turn], *lines: str) -> list[Event]:
        events: list[Event] = []
        context = Context(skills=(Skill("fix", "How to fix", "/skills/fix/SKILL.md", "yours", "Look twice."),))
        assert play_conversation(tmp_path, turns, ScriptedUser(*lines, "/quit"), events.append, context) == Exit.DONE
        return events

    first = at([Turn("done")] * 2, "!true", "/skill:fix the build", "/init briefly")
    prompted = [event for event in first if isinstance(event, Prompted)]
    assert [event.typed for event in prompted] == ["/skill:fix the build", "/init briefly"]
    again = at([], "/resume", "1", "/rewind", "", "/rewind", "1", "2", "/export talk.html", "/export talk.md")
    assert [(event.first, event.last) for event in again if isinstance(event, Resumed)] == [("!true", "/init briefly")]
    shown = [event.text for event in again if isinstance(event, Display)]
    assert "!true" in shown[0], "the list of sessions"
    assert shown[1:3] == ["  1  /init briefly", "  2  /skill:fix the build"], "the list of prompts"
    assert "your earlier prompt:\n/init briefly" in shown, "and it comes back into the input"
    for name in ("talk.html", "talk.md"):
        made = (tmp_path / "w" / name).read_text()
        assert made.index("/skill:fix the build") < made.index("Look twice."), "both are in a copy for others"


@pytest.mark.parametrize("line", ["/etc/hosts is wrong", "/usr/bin", "etc /mode", ""])
def test_a_path_is_no_command(line: str) -> None:
    assert not is_command(line)


def test_names_are_unique_and_told() -> None:
    names = [name for each in COMMANDS for name in each.names]
    assert len(names) == len(set(names))
    assert all(each.summary and not each.summary.endswith(".") for each in COMMANDS)


def test_ours_come_before_custom_ones() -> None:
    async def nothing(words: str, desk: object) -> None:
        raise AssertionError

    other = SlashCommand("help", "", "not ours", nothing)
    found = find("/help", (*COMMANDS, other))
    assert found is not None
    assert found is not other


def test_mode_names_are_those_of_the_policy() -> None:
    mode = find("mode", COMMANDS)
    assert mode is not None
    assert list(mode.words(None)) == [each.value for each in Mode]  # type: ignore[arg-type]  # it looks at no desk
