"""Tests of commands from Markdown files: names, arguments, and files that are no commands."""

from pathlib import Path, PurePosixPath

import pytest

from runner.agent.context_sources import read_context
from runner.config.agentfiles.custom_commands import (
    LARGEST,
    CommandFiles,
    PromptFile,
    of_contents,
    of_folder,
    parse,
)
from runner.config.agentfiles.skills import Skill
from runner.config.trust.discover import look
from runner.config.trust.evaluate import TrustReview
from runner.config.trust.text import description
from runner.engine.context.context import Context
from runner.frontends.slash.command import find
from runner.frontends.slash.registry import known

HEAD = "---\ndescription: Look at it\nargument-hint: FILE\nmodel: another\n---\n"

# fmt: off
GOOD = [
    ("review.md",     b"Review it.",                "review",   "Review it.", "the file's first line is its summary"),
    ("git/log.md",    b"# Log\nshow",               "git:log",  "Log",        "a folder stands in front"),
    ("a/b/c.md",      b"x",                         "a:b:c",    "x",          "and one below it"),
    ("look.md",       HEAD.encode() + b"Look.",     "look",     "Look at it", "a head says what it is"),
    ("bom.md",        b"\xef\xbb\xbfhello",         "bom",      "hello",      "a mark of byte order is none of it"),
    ("crlf.md",       HEAD.replace("\n", "\r\n").encode() + b"Look.\r\n", "crlf", "Look at it", "lines of Windows"),
    ("quoted.md",     b'---\ndescription: "a: b"\n---\nx', "quoted", "a: b",  "quotes around it are none of it"),
    ("other.md",      b"---\ndescription: Review\nlong_description: hidden\n---\nx", "other", "Review", "another setting that ends in the name"),
    ("folded.md",     b"---\ndescription: >\n  Look\n  twice\n---\nx", "folded", "Look twice", "a text in several lines"),
    ("comment.md",    b"---\ndescription: Review  # the first\n---\nx", "comment", "Review", "a comment is none of it"),
    ("escaped.md",    b'---\ndescription: "say \\"hi\\""\n---\nx', "escaped", 'say "hi"', "quotes in quotes"),
    ("blank.md",      b"--- \ndescription: Look at it\n---\t\nx", "blank", "Look at it", "blanks behind the lines"),
    ("list.md",       b"---\ndescription: [draft] Review\nargument-hint: [file] [line]\n---\nx", "list", "[draft] Review", "brackets, as other programs write hints"),
    ("listed.md",     b"---\nallowed-tools: [a, b]\n---\nShow", "listed", "Show", "a list of another program"),
]
BAD = [
    ("Review.md",     b"x",                         "only contain",  "capitals: not what is typed"),
    ("a b.md",        b"x",                         "only contain",  "a blank"),
    ("../x.md",       b"x",                         "only contain",  "a way out"),
    ("x.md",          b"",                          "is empty",  "empty"),
    ("x.md",          HEAD.encode(),                "is empty",  "a head alone"),
    ("x.md",          b"---\ndescription: x\n",     "no second line",  "a head that goes on"),
    ("x.md",          b"---\ndescription: 'x\n---\nx", "not valid YAML", "a quote that goes on"),
    ("x.md",          b"---\nmodel: !!python/name:os.system x\n---\nx", "a tag", "a tag of YAML"),
    ("x.md",          b"\xff\xfe",                  "UTF-8",    "no text"),
    ("x.md",          b"x" * (LARGEST + 1),         "larger",   "a book"),
]
ARGUMENTS = [
    ("Fix $ARGUMENTS now",  "it all",       "Fix it all now",        "all that was typed"),
    ("Fix $1, then $2",     "a b",          "Fix a, then b",         "its words"),
    ("Fix $1",              "'a b' c",      "Fix a b",               "quotes hold a word together"),
    ("Fix $1$2",            "a",            "Fix a",                 "a word that is not there is empty"),
    ("Fix $1",              "it's broken",  "Fix it's",              "an apostrophe is no quote"),
    ("Pay $$5 and $10",     "",             "Pay $5 and $10",        "money stays money"),
    ("Fix it.",             "soon",         "Fix it.\n\nsoon",       "without a place, behind it"),
    ("Fix it.",             "",             "Fix it.",               "nothing typed"),
    ("Say $ARGUMENTS",      "$1 $ARGUMENTS", "Say $1 $ARGUMENTS",    "what is typed is not looked into again"),
]
# fmt: on


@pytest.mark.parametrize(("path", "data", "name", "summary", "why"), GOOD, ids=[row[4] for row in GOOD])
def test_a_file_is_a_command(path: str, data: bytes, name: str, summary: str, why: str) -> None:
    found = parse(PurePosixPath(path), data, path)
    assert isinstance(found, PromptFile), why
    assert (found.name, found.summary) == (name, summary)


@pytest.mark.parametrize(("path", "data", "says", "why"), BAD, ids=[row[3] for row in BAD])
def test_a_file_that_is_no_command_says_why(path: str, data: bytes, says: str, why: str) -> None:
    found = parse(PurePosixPath(path), data, path)
    assert isinstance(found, str), why
    assert says in found


@pytest.mark.parametrize(("text", "words", "expected", "why"), ARGUMENTS, ids=[row[3] for row in ARGUMENTS])
def test_arguments(text: str, words: str, expected: str, why: str) -> None:
    assert PromptFile("x", "", "", text, "x").prompt(words) == expected, why


def test_a_hint_in_brackets_is_text() -> None:
    found = parse(PurePosixPath("x.md"), b"---\nargument-hint: [file] [line]  # both optional\n---\nx", "x")
    assert isinstance(found, PromptFile)
    assert found.usage == "[file] [line]"


def test_a_folder_is_read_and_what_is_wrong_is_told(tmp_path: Path) -> None:
    (tmp_path / "git").mkdir()
    (tmp_path / "git" / "log.md").write_text("show the log")
    (tmp_path / "one.md").write_text("one")
    (tmp_path / "notes.txt").write_text("no command")
    (tmp_path / "Bad.md").write_text("x")
    (tmp_path / "gone.md").symlink_to("nowhere")
    found = of_folder(tmp_path)
    assert [each.name for each in found.found] == ["git:log", "one"]
    assert len(found.notices) == 2
    assert of_folder(tmp_path / "nowhere") == CommandFiles()


@pytest.mark.threat("T103")
def test_a_repository_takes_no_name_that_is_taken(tmp_path: Path) -> None:
    folder = tmp_path / "ringfence" / "commands"
    folder.mkdir(parents=True)
    (folder / "mine.md").write_text("mine")
    theirs = {".ringfence/commands/mine.md": b"theirs", ".ringfence/commands/mode.md": b"be careless"}
    context = Context(commands=of_contents(theirs, ".ringfence/commands").found)
    found = known({"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}, context)
    named = {name: find(name, found.commands) for name in ("mine", "mode")}
    assert [each.source for each in named.values() if each] == [f"{folder}/mine.md", ""], "yours, and ours"
    assert [each.name for each in found.commands].count("mode") == 1, "nor is it shown beside ours"
    assert found.notices == ("`.ringfence/commands/mode.md` is not used: /mode is a built-in command",)


@pytest.mark.threat("T103")
@pytest.mark.parametrize("whose", ["the user's own", "the repository's"])
def test_no_command_takes_the_name_of_a_skill(whose: str, tmp_path: Path) -> None:
    folder = tmp_path / "ringfence" / "commands"
    skill = Skill("fix", "How to fix", "/skills/fix/SKILL.md", "yours", "Look twice.")
    context = Context(skills=(skill,))
    if whose == "the repository's":
        brought = of_contents({".ringfence/commands/skill/fix.md": b"be careless"}, ".ringfence/commands")
        context = Context(skills=(skill,), commands=brought.found)
    else:
        (folder / "skill").mkdir(parents=True)
        (folder / "skill" / "fix.md").write_text("be careless")
    found = known({"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}, context)
    meant = find("/skill:fix", found.commands)
    assert meant is not None
    assert meant.source == skill.path
    assert [each.name for each in found.commands].count("skill:fix") == 1
    assert len(found.notices) == 1
    assert found.notices[0].endswith("is not used: names that begin with `skill:` are reserved for skills")


@pytest.mark.threat("T103")
def test_what_cannot_be_seen_in_a_command_is_spelled_out_to_the_model() -> None:
    hidden = "".join(chr(0xE0000 + ord(char)) for char in "rm")
    found = parse(PurePosixPath("x.md"), f"Look\tat $1{hidden}\u200b\u202e \U0001f44d\ufe0f\nend".encode(), "x")
    assert isinstance(found, PromptFile)
    assert found.prompt("it") == "Look\tat it<U+E0072><U+E006D><U+200B><U+202E> \U0001f44d\ufe0f\nend"


@pytest.mark.threat("T103")
def test_what_a_file_says_of_itself_cannot_leave_its_line() -> None:
    found = parse(PurePosixPath("x.md"), b"---\ndescription: a\x1b[2J\xe2\x80\xaeb\n---\nx", "x")
    assert isinstance(found, PromptFile)
    assert "\x1b" not in found.summary
    assert "\u202e" not in found.summary


def test_a_repositorys_commands_wait_for_trust(tmp_path: Path) -> None:
    brings = tmp_path / ".ringfence" / "commands"
    brings.mkdir(parents=True)
    (brings / "deploy.md").write_text("Deploy $1.")
    (brings / "Bad.md").write_text("x")
    inventory = look(str(tmp_path))
    brought = TrustReview(inventory)
    assert brought.counts == (".ringfence/commands/deploy.md",), "it is asked for"
    told = "\n".join(description(brought))
    assert "/deploy" in told
    assert "Bad.md` is not a command" in told
    environ = {"HOME": str(tmp_path / "home")}
    assert read_context(None, environ).context.commands == ()
    assert [each.prompt("now") for each in read_context(inventory, environ).context.commands] == ["Deploy now."]
