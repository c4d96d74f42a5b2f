"""The bounded log of a process that stays, its stored file, and the patterns that select its lines."""

import asyncio
import os
from pathlib import Path

import pytest

from policy.model.verdict import Problem
from runner.engine.output_log import LinePattern, OutputLog, line_pattern
from runner.secrets.redactor import Redactor
from runner.secrets.secret import Secret
from runner.state.output_store import OutputStore

SECRET = "hunter2hunter2-long-enough"


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def log(*, most: int = 100, secrets: tuple[Secret, ...] = (), clock: Clock | None = None) -> OutputLog:
    return OutputLog(Redactor(secrets), most=most, clock=clock or Clock())


def test_each_reader_gets_what_came_after_its_own_position() -> None:
    made = log()
    made.take(1, b"one\n")
    first = made.since(0)
    made.take(2, b"two\n")
    assert (first.text, made.since(first.end).text, made.since(0).text) == ("one\n", "two\n", "one\ntwo\n")
    assert made.since(made.end).text == ""
    assert made.printed == (4, 4)


@pytest.mark.threat("T132")
def test_old_output_leaves_memory_and_a_late_reader_is_told_how_much() -> None:
    made = log(most=100)
    for number in range(1_000):
        made.take(1, b"%03d\n" % number)
    piece = made.since(0)
    assert (len(piece.text), piece.lost, piece.end) == (100, 3_900, 4_000)
    assert piece.text.endswith("998\n999\n")


@pytest.mark.threat("T132")
def test_a_flood_is_counted_and_not_kept() -> None:
    clock = Clock()
    made = log(most=1 << 20, clock=clock)
    for _ in range(100):
        made.take(1, b"x" * (1 << 20))
    assert made.end == 8 << 20, "the burst"
    clock.now = 2.0
    made.take(1, b"after\n")
    assert made.since(8 << 20).text == f"\n[{92 << 20:,} bytes were printed too fast and are not kept]\nafter\n"
    assert made.printed == ((100 << 20) + 6, 0)


@pytest.mark.parametrize(
    ("chunks", "why"),
    [
        ([(1, SECRET)], "whole"),
        ([(1, letter) for letter in SECRET], "letter by letter"),
        ([(1, SECRET[:9]), (2, "other stream\n"), (1, SECRET[9:])], "with the other stream between"),
    ],
    ids=["whole", "letter by letter", "the other stream between"],
)
@pytest.mark.threat("T135")
def test_a_secret_is_masked_across_chunks(chunks: list[tuple[int, str]], why: str, tmp_path: Path) -> None:
    store = OutputStore(tmp_path)
    made = OutputLog(Redactor((Secret(SECRET),)), store.open("p1"))
    for stream, text in chunks:
        made.take(stream, text.encode())
        assert SECRET[:9] not in made.since(0).text, why
    made.close()
    kept = Path(made.path).read_text()
    assert "[secret]" in made.since(0).text == kept
    assert SECRET[9:] not in kept


def test_a_character_over_two_chunks_stays_one() -> None:
    made = log()
    for byte in "ä\n".encode():
        made.take(1, bytes([byte]))
    assert made.since(0).text == "ä\n"


@pytest.mark.threat("T132")
def test_the_stored_file_has_a_limit_and_keeps_its_beginning(tmp_path: Path) -> None:
    file = OutputStore(tmp_path, most=10).open("p1")
    file.write("12345")
    file.write("123456")
    file.write("1")
    file.close()
    assert (Path(file.path).read_text(), file.full) == ("12345", "the limit of stored output was reached")
    assert os.stat(file.path).st_mode & 0o777 == 0o600


def test_a_waiting_reader_is_woken_by_output_and_by_the_end() -> None:
    async def waits() -> list[str]:
        made, heard = log(), []

        async def reader() -> None:
            await made.changed()
            heard.append(made.since(0).text)
            await made.changed()
            heard.append("end")

        task = asyncio.create_task(reader())
        await asyncio.sleep(0)
        made.take(1, b"x\n")
        await asyncio.sleep(0)
        made.close()
        await task
        return heard

    assert asyncio.run(waits()) == ["x\n", "end"]


@pytest.mark.parametrize(
    ("pattern", "lines", "found"),
    [
        ("ready|error", "a\nready now\nerror: x\n", ["ready now", "error: x"]),
        ("^b$", "abc\nb\n", ["b"]),
        (r"\d+", "none\nport 80", ["port 80"]),
    ],
    ids=["alternatives", "the whole line", "an incomplete last line"],
)
def test_a_pattern_selects_lines(pattern: str, lines: str, found: list[str]) -> None:
    compiled = line_pattern(pattern)
    assert isinstance(compiled, LinePattern)
    assert compiled.matching(lines) == found


@pytest.mark.threat("T133")
@pytest.mark.parametrize(
    ("pattern", "works"),
    [
        ("(a*)*b", True),
        ("(a|aa)+$", True),
        ("((a{1,100}){1,100}){1,100}", False),
        ("a" * 1_001, False),
        ("(?=a)a", False),
        ("(", False),
        ("\ud800", False),
    ],
    ids=["nested stars", "alternatives", "nested counts", "too long", "look-ahead", "invalid", "no Unicode"],
)
def test_a_hostile_pattern_ends_at_once_or_is_refused(pattern: str, works: bool) -> None:
    """A backtracking engine would not return from the first two within the age of the universe."""
    compiled = line_pattern(pattern)
    assert isinstance(compiled, LinePattern) is works
    if isinstance(compiled, LinePattern):
        compiled.matches("a" * 200_000 + "c")
    else:
        assert isinstance(compiled, Problem)
        assert compiled.why
