"""Tests of the results that the model reads: golden texts of every ending, and turns with real file operations."""

import base64
import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from policy.model.action import (
    Action,
    EditFile,
    GlobFiles,
    GrepFiles,
    ListFolder,
    ReadFile,
    RunScript,
    WriteFile,
)
from policy.model.verdict import Problem
from runner.secrets.secret import MASK
from sandbox.backend import Outcome, Violation
from sandbox.inside.files.operations import perform
from tests.support.places import TESTS
from tools import TOOLS
from tools.arguments import parse
from tools.file_result import problem_of, violations
from tools.paths import MASKED, SeenFiles
from tools.tool import Arguments, Finished, ImagePart, Keep, ModelTool, ResultPart, TextPart, find

GOLDEN = TESTS / "golden" / "tool_results.txt"
MANY = re.compile("Z{100,}")  # written shorter in the golden file


def tool(name: str) -> ModelTool:
    found = find(TOOLS, name)
    assert not isinstance(found, Problem)
    return found


def text(parts: tuple[ResultPart, ...]) -> str:
    assert all(isinstance(part, TextPart) for part in parts)
    return "\n".join(part.text for part in parts if isinstance(part, TextPart))


def kept(stdout: bytes, stderr: bytes) -> str:
    return "/state/outputs/0001.txt"


def full(stdout: bytes, stderr: bytes) -> str:
    raise OSError(28, "No space left on device")


RUN = RunScript("make test", "/w", 120)
READ = ReadFile("/w/a.py", 1, 2000)
WRITE = WriteFile("/w/a.py", "x\n")
EDIT = EditFile("/w/a.py", "x", "y")
SEEN_NET = Violation("opened a connection to 1.2.3.4:443", "", "ask for the host to be allowed", False)
SEEN_FILE = Violation("wrote outside the workspace", "/var/tmp/x", "write inside the workspace", True)
LINES = b"".join(b"line %d\n" % number for number in range(1, 5001))
CHANGE: dict[str, object] = {
    "real": "/w/a.py", "sha256": "00", "size": 4, "lines": 2, "dropped": 0, "notes": [],
    "diff": ["--- /w/a.py", "+++ /w/a.py", "@@ -1,2 +1,2 @@", "-x", "+y", " z"],
}  # fmt: skip
MADE: dict[str, object] = {"changed": True, "created": True, "was": 0, "folders": 0}
FILE: dict[str, object] = {"real": "/w/a.py", "size": 4, "sha256": "00"}
TEXT: dict[str, object] = FILE | {
    "type": "text", "lines": ["x", "\tz"], "total": 2, "known": 2, "replaced": 0, "cut": 0, "bom": False, "ends": "LF",
}  # fmt: skip
FOUND: dict[str, object] = {"engine": "ripgrep", "files": [], "count": 0, "unread": 0, "limited": False, "late": False}
HITS: list[object] = [
    ["/w/a.py", [[3, True, "x = 1"], [4, False, ""], [9, True, "x = 2"]]],
    ["/w/b.py", [[1, True, "x"]]],
]
NAMED: dict[str, object] = {"names": ["b.py", "s/a.py"], "total": 2, "unread": 0, "late": False, "ignored": "skipped"}
ENTRIES: list[object] = [
    [".git", "folder", None, None], ["a.py", "file", 1, None], ["b", "link", None, "a.py"], ["p", "pipe", None, None],
]  # fmt: skip
NO = Problem("cannot read `/w/a.py`", "it is protected from this action", "leave it alone, or ask the user")

LIMITED = {"limited": True, "unread": 1, "late": True}
ODD = {"total": None, "replaced": 1, "cut": 2, "bom": True, "ends": "CRLF", "size": 20 << 20}
PART = ReadFile("/w/a.py", 10, 2)
PIPE = {"problem": {"what": "cannot read `/w/a.py`", "why": "it is a pipe, not a file", "fix": "name a regular file"}}
OLD = CHANGE | {"changed": True, "created": False, "was": 2, "folders": 0}
IN_PLACE = OLD | {"real": "/w/t.py", "notes": ["written in place, because its folder may not be changed"]}
LISTED = {"entries": ENTRIES, "total": 4, "unsorted": False}


def ran(status: int, out: bytes = b"", err: bytes = b"", seconds: float = 0.2, ended_by: str | None = None) -> Outcome:
    return Outcome(status, out, err, seconds, ended_by)


def data(*parts: Mapping[str, object], status: int = 0) -> Outcome:
    joined: dict[str, object] = {}
    for part in parts:
        joined |= part
    return Outcome(status, data=joined)


def grep(**fields: object) -> GrepFiles:
    return replace(GrepFiles("x", "/w"), **fields)  # type: ignore[arg-type]  # a table


# fmt: off
CASES: list[tuple[str, str, object, Outcome, Keep | None]] = [
    ("a command that prints",      "bash",  RUN,   ran(0, b"ok\n", seconds=0.31), None),
    ("nothing to say",             "bash",  RUN,   ran(0), None),
    ("both streams, failed",       "bash",  RUN,   ran(2, b"out\nput", b"make: *** no rule\n", 12.4), None),
    ("errors only",                "bash",  RUN,   ran(1, b"", b"no\n"), None),
    ("odd bytes",                  "bash",  RUN,   ran(0, b"caf\xe9 \0 \x1b[1m\n"), None),
    ("killed by a signal",         "bash",  RUN,   ran(139), None),
    ("a status like a signal's",   "bash",  RUN,   ran(255), None),
    ("wall limit",                 "bash",  RUN,   ran(137, b"tick\n", b"", 120.02, "wall"), None),
    ("an earlier wall limit",      "bash",  RUN,   ran(137, b"tick\n", b"", 30.01, "wall"), None),
    ("output limit",               "bash",  RUN,   replace(ran(137, b"y\n", b"", 1.5, "output"), truncated=True), None),
    ("cancelled",                  "bash",  RUN,   ran(137, b"", b"", 1.5, "cancelled"), None),
    ("violations",                 "bash",  RUN,   replace(ran(1, b"", b"denied\n"), violations=(SEEN_NET, SEEN_FILE)), None),
    ("it never started",           "bash",  RUN,   Outcome(126, problem=Problem("cannot start", "no bash", "install it")), None),
    ("a problem on the way",       "bash",  RUN,   Outcome(1, b"tick\n", problem=Problem("it broke", "a bug", "try again")), None),
    ("cut, and kept",              "bash",  RUN,   ran(0, b"a\n" * 3000 + b"Z" * 51_200), kept),
    ("cut, and nowhere to keep",   "bash",  RUN,   ran(0, b"Z" * 60_000), full),
    ("cut, and nobody keeps",      "bash",  RUN,   ran(0, b"Z" * 60_000), None),
    ("text",                       "read",  READ,  data(TEXT), None),
    ("a part of a text",           "read",  PART,  data(TEXT, {"known": 99, "total": 99}), None),
    ("past the end",               "read",  PART,  data(TEXT, {"lines": []}), None),
    ("everything odd",             "read",  READ,  data(TEXT, ODD), None),
    ("mixed line ends",            "read",  READ,  data(TEXT, {"ends": "mixed"}), None),
    ("empty",                      "read",  READ,  data(FILE, {"type": "empty"}), None),
    ("binary",                     "read",  READ,  data(FILE, {"type": "binary", "guess": "gzip data", "size": 2048}), None),
    ("a problem",                  "read",  READ,  Outcome(1, problem=NO, violations=(SEEN_FILE,)), None),
    ("a problem in the answer",    "read",  READ,  data(PIPE, status=1), None),
    ("an answer of another shape", "read",  READ,  data(TEXT, {"lines": [7]}), None),
    ("a problem of another shape", "read",  READ,  data({"problem": 7}), None),
    ("no answer: the wall limit",  "read",  READ,  ran(137, ended_by="wall"), None),
    ("no answer at all",           "read",  READ,  ran(0), None),
    ("created",                    "write", WRITE, data(CHANGE, MADE, {"diff": []}), None),
    ("created, with folders",      "write", WRITE, data(CHANGE, MADE, {"diff": [], "folders": 2, "lines": 1}), None),
    ("replaced",                   "write", WRITE, data(OLD), None),
    ("the same again",             "write", WRITE, data(OLD, {"changed": False, "diff": []}), None),
    ("a binary file",              "write", WRITE, data(OLD, {"diff": []}), None),
    ("replaced a huge one",        "write", WRITE, data(OLD, {"was": None, "diff": []}), None),
    ("through a link, in place",   "write", WRITE, data(IN_PLACE), None),
    ("edited",                     "edit",  EDIT,  data(CHANGE, {"count": 1}), None),
    ("edited in many places",      "edit",  EDIT,  data(CHANGE, {"count": 1200, "dropped": 2300}), None),
    ("names",                      "glob",  GlobFiles("**/*.py", "/w"), data(NAMED), None),
    ("no names",                   "glob",  GlobFiles("*.rs", "/w"), data(NAMED, {"names": [], "total": 0}), None),
    ("some names",                 "glob",  GlobFiles("**", "/"), data(NAMED, {"total": 9, "unread": 3, "late": True, "ignored": "unknown"}), None),
    ("lines",                      "grep",  grep(context=1), data(FOUND, {"files": HITS, "count": 3}), None),
    ("no lines",                   "grep",  grep(), data(FOUND), None),
    ("some lines",                 "grep",  grep(limit=3), data(FOUND, {"files": HITS, "count": 3}, LIMITED), None),
    ("files",                      "grep",  grep(files_only=True), data(FOUND, {"files": [["/w/a.py", []]], "count": 1}), None),
    ("entries",                    "ls",    ListFolder("/w"), data(LISTED), None),
    ("some entries",               "ls",    ListFolder("/w"), data(LISTED, {"total": 1004}), None),
    ("too many entries",           "ls",    ListFolder("/w"), data(LISTED, {"total": None, "unsorted": True}), None),
    ("no entries",                 "ls",    ListFolder("/w"), data(LISTED, {"entries": [], "total": 0}), None),
]
# fmt: on


def test_every_ending_is_golden() -> None:
    """UPDATE_GOLDEN=1 writes the file, to be reviewed as a diff."""
    pieces = []
    for title, name, action, outcome, keep in CASES:
        shown = text(tool(name).render(action, outcome, SeenFiles(), keep=keep))
        pieces.append(f"=== {name}: {title}\n{MANY.sub(lambda many: f'({len(many[0])} times Z)', shown)}\n")
    found = "\n".join(pieces)
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(found, "utf-8")
    assert found == GOLDEN.read_text("utf-8")


# fmt: off
FAILED: list[tuple[Outcome, bool, str]] = [
    (Outcome(0),                                          False, "all is well"),
    (Outcome(0, data=TEXT),                               False, "a file action that did it"),
    (Outcome(1),                                          False, "an exit status is the answer of the command"),
    (Outcome(0, problem=NO),                              True,  "a problem"),
    (Outcome(0, data={"problem": {"what": "a", "why": "b", "fix": "c"}}), True, "a problem in the answer"),
    (Outcome(0, ended_by="wall"),                         True,  "a limit"),
]
# fmt: on


@pytest.mark.parametrize(("outcome", "expected", "why"), FAILED, ids=[row[2] for row in FAILED])
def test_failed(outcome: Outcome, expected: bool, why: str) -> None:
    finished: Finished = outcome  # the sandbox's Outcome is what tools expect: mypy holds both to it
    assert (problem_of(finished) is not None) is expected


def shown(stdout: bytes, stderr: bytes = b"") -> str:
    return text(tool("bash").render(RUN, Outcome(0, stdout, stderr), SeenFiles(), keep=kept))


WHERE = "; the complete output is saved for the user in /state/outputs/0001.txt]"


# fmt: off
PLACES = [
    ("wrote outside",            "/var/tmp/x", "/var/tmp/x", "a path that the text does not name"),
    ("wrote to `/var/tmp/x`",    "/var/tmp/x", "",           "a path that the text names"),
    ("opened a connection",      "",           "",           "no path"),
]
# fmt: on


@pytest.mark.parametrize(("what", "path", "shown", "why"), PLACES, ids=[row[3] for row in PLACES])
def test_a_violation_names_its_path_once(what: str, path: str, shown: str, why: str) -> None:
    violation = Violation(what, path, "", False)
    assert violation.unnamed_path == shown, why
    (remark,) = violations(replace(ran(1, b"", b""), violations=(violation,)))
    assert remark.count(path or what) == 1, remark


def test_the_last_2000_lines_are_shown() -> None:
    lines = shown(LINES).split("\n")
    assert lines[0] == "[cut from the start of stdout: 3,000 lines (28.2 KiB)" + WHERE
    assert lines[1] == "line 3001"
    assert lines[-2] == "line 5000"
    assert len(lines) == 2002


def test_or_the_last_50_kb() -> None:
    lines = shown(b"x" * 1023 + b"\n" + (b"y" * 1023 + b"\n") * 50).split("\n")
    assert lines[0] == "[cut from the start of stdout: 1 line (1.0 KiB)" + WHERE
    assert lines[1:-1] == ["y" * 1023] * 50


def test_exactly_the_limit_is_not_cut() -> None:
    assert "cut" not in shown(b"line\n" * 2000)
    assert "cut" not in shown(b"y" * 51_200)


def test_two_long_streams_share_the_room() -> None:
    lines = shown(b"out\n" * 5000, b"err\n" * 5000).split("\n")
    assert (lines.count("out"), lines.count("err")) == (1000, 1000)
    lines = shown(b"out\n" * 5000, b"err\n" * 10).split("\n")
    assert (lines.count("out"), lines.count("err")) == (1990, 10)
    lines = shown(b"out\n" * 10, b"err\n" * 5000).split("\n")
    assert (lines.count("out"), lines.count("err")) == (10, 1990)


def test_keep_gets_the_whole_and_only_when_something_is_cut() -> None:
    kept_streams: list[tuple[bytes, bytes]] = []

    def keep(stdout: bytes, stderr: bytes) -> str:
        kept_streams.append((stdout, stderr))
        return "/kept"

    tool("bash").render(RUN, Outcome(0, b"short", b"short"), SeenFiles(), keep=keep)
    assert kept_streams == []
    tool("bash").render(RUN, Outcome(0, LINES, b"x"), SeenFiles(), keep=keep)
    assert kept_streams == [(LINES, b"x")]


def test_what_went_beyond_the_output_limit_is_not_called_the_whole() -> None:
    outcome = Outcome(137, b"y\n" * 60_000, seconds=1.0, ended_by="output", truncated=True)
    shown = text(tool("bash").render(RUN, outcome, SeenFiles(), keep=kept))
    assert "the first 117.2 KiB are saved for the user in /state/outputs/0001.txt]" in shown
    assert "whole" not in shown


def test_an_image_is_an_image_part() -> None:
    answer = FILE | {"type": "image", "media": "image/png", "base64": "aGk="}
    assert tool("read").render(READ, data(answer), SeenFiles()) == (
        TextPart("`/w/a.py`, a png image of 4 bytes"),
        ImagePart("image/png", "aGk="),
    )


class Turn:
    """A model's calls, carried out for real by the sandbox's file operations, outside any sandbox."""

    def __init__(self, cwd: Path) -> None:
        self.cwd = cwd
        self.seen = SeenFiles()

    def call(self, name: str, **arguments: object) -> tuple[ResultPart, ...]:
        parsed = parse(tool(name), arguments)
        assert isinstance(parsed, Arguments), parsed
        action = tool(name).plan(parsed, str(self.cwd), self.seen)
        assert not isinstance(action, Problem)
        answer = perform({"op": type(action).__name__, **asdict(action)})
        outcome = Outcome(0, data=json.loads(json.dumps(answer)))
        return tool(name).render(action, outcome, self.seen)

    def says(self, name: str, **arguments: object) -> str:
        return text(self.call(name, **arguments)).replace(str(self.cwd), "/w")


def test_a_session_with_files(tmp_path: Path) -> None:
    turn = Turn(tmp_path)
    assert turn.says("write", path="src/a.py", content="def f():\n    return 1\n") == (
        "created `/w/src/a.py` with 2 lines, and 1 folder above it"
    )
    assert turn.says("read", path="src/a.py") == "     1\tdef f():\n     2\t    return 1"
    assert turn.says("ls") == "`/w`, 1 entry:\nsrc/"
    assert turn.says("glob", pattern="**/*.py") == "1 file below `/w` for `**/*.py`, newest first:\n/w/src/a.py"
    assert turn.says("grep", pattern="return \\d") == (
        "1 matching line for `return \\d` in `/w`, 1 file\n/w/src/a.py\n2:    return 1"
    )
    assert turn.says("edit", path="src/a.py", old_string="return 1", new_string="return 2").startswith(
        "edited `/w/src/a.py`: 1 replacement, 2 lines now\n--- /w/src/a.py\n+++ /w/src/a.py\n@@ -1,2 +1,2 @@\n"
    )
    # Text that the model itself wrote or edited counts as seen: the next edit is accepted.
    assert "1 replacement" in turn.says("edit", path="src/a.py", old_string="return 2", new_string="return 3")
    (tmp_path / "src" / "a.py").write_text("def f():\n    return 3  # by hand\n")
    refused = turn.says("edit", path="src/a.py", old_string="return 3", new_string="return 4")
    assert refused.startswith("error: cannot edit `/w/src/a.py`\nwhy: it changed since you last read it\n")
    turn.says("read", path="src/a.py", limit=1)
    assert "1 replacement" in turn.says("edit", path="src/a.py", old_string="return 3", new_string="return 4")


def test_an_edit_needs_no_read_but_one_match(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x y x\n")
    turn = Turn(tmp_path)
    assert "2 times, on lines 1, 1" in turn.says("edit", path="a", old_string="x", new_string="z")
    assert "1 replacement" in turn.says("edit", path="a", old_string="y", new_string="z")


def test_a_mask_is_not_written_over_the_secret_that_it_stands_for() -> None:
    assert MASKED == MASK
    seen = SeenFiles()
    answer = {"type": "text", "real": "/w/real", "size": 9, "sha256": "d", "lines": ["a", f"t = {MASK}"], "total": 2}
    rest = {"known": 2, "replaced": 0, "cut": 0, "bom": False, "ends": "LF"}
    tool("read").render(ReadFile("/w/a", 1, 2000), Outcome(0, data=answer | rest), seen)

    def write(path: str, content: str) -> Action | Problem:
        parsed = parse(tool("write"), {"path": path, "content": content})
        assert isinstance(parsed, Arguments)
        return tool("write").plan(parsed, "/w", seen)

    for path in ("/w/a", "/w/real"):
        problem = write(path, f"b\nt = {MASK}\n")
        assert isinstance(problem, Problem)
        assert "would be lost" in problem.why
    assert not isinstance(write("a", "b\n"), Problem), "none in it"
    assert not isinstance(write("b", MASK), Problem), "words of its own"


def test_a_link_and_its_target_are_seen_together(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("x\n")
    (tmp_path / "link").symlink_to("target")
    turn = Turn(tmp_path)
    turn.says("read", path="link")
    (tmp_path / "target").write_text("x y\n")
    assert "it changed since you last read it" in turn.says("edit", path="target", old_string="x", new_string="z")


def test_reading_a_part_of_a_huge_file_is_no_proof_of_the_whole(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"line\n" * (3 << 20))
    turn = Turn(tmp_path)
    answer = turn.says("read", path="big", limit=1)
    assert "the file has 15.0 MiB; only the first 10 MiB" in answer
    assert turn.seen.digest(str(tmp_path / "big")) is None


def test_a_real_image_comes_through(tmp_path: Path) -> None:
    gif = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
    (tmp_path / "dot.gif").write_bytes(gif)
    turn = Turn(tmp_path)
    words, image = turn.call("read", path="dot.gif")
    assert isinstance(words, TextPart)
    assert isinstance(image, ImagePart)
    assert (image.media_type, base64.b64decode(image.data)) == ("image/gif", gif)
    assert turn.seen.digest(str(tmp_path / "dot.gif")) == hashlib.sha256(gif).hexdigest()
