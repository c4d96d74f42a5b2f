"""Tests of `agent audit` and `agent audit show`: golden texts of recorded decisions, and malformed records."""

import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from policy.model.verdict import Problem
from runner.audit.chain import Record
from runner.audit.decisions import DecisionTrail
from runner.audit.detail_view import deed_text, record_text
from runner.audit.list_view import WIDE, decision_json, entry_lines, finished_line
from runner.audit.log import AuditLog
from runner.audit.records import Refusal, SessionInfo
from runner.audit.reports.stats import Known, Stats, stats_text
from tests.support.agent_program import AGENT
from tests.support.golden_records import all_deeds, golden, records
from tests.support.terminal_screen import ScreenTerminal


@pytest.mark.parametrize(
    ("name", "width", "colour"), [("plain", WIDE, False), ("narrow", 60, False), ("colour", 110, True)]
)
def test_the_list(name: str, width: int, colour: bool) -> None:
    shown = [line for deed in all_deeds() for line in entry_lines(deed, colour=colour, width=width)]
    golden(f"audit_list_{name}.txt", "\n".join(shown).replace("\x1b", "ESC") + "\n")


@pytest.mark.parametrize("width", [20, 40, 60, 83, 84, 110, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    for deed in all_deeds():
        for line in entry_lines(deed, colour=False, width=width):
            long = max((len(word) for word in line.split()), default=0) + 9
            assert len(line) <= max(width, long, 50), line


@pytest.mark.parametrize(
    ("width", "whole", "why"), [(WIDE - 1, False, "a terminal"), (WIDE, True, "a pipe, where no line is cut")]
)
def test_a_long_action(width: int, whole: bool, why: str) -> None:
    deed, script = all_deeds()[0], "echo " + "x" * 1_000
    body = {**deed.record.body, "action": {"type": "RunScript", "script": script}}
    deed = DecisionTrail(Record(1, deed.record.hash, body), deed.session, deed.finished)
    first, *_ = entry_lines(deed, colour=False, width=width)
    assert first.endswith(f"$ {script}") is whole, why
    assert (len(first) <= width) is not whole, why


def test_everything_about_each() -> None:
    golden("audit_show.txt", "\n\n".join(deed_text(deed) for deed in all_deeds()) + "\n")


def test_of_a_merged_log_the_chain_is_named() -> None:
    deed = all_deeds()[0]
    merged = Record(70, deed.record.hash, deed.record.body, "8f3fa94021ba57cd", 17)
    deed = DecisionTrail(merged, deed.session, deed.finished)
    assert "8f3fa940  exec" in "\n".join(entry_lines(deed, colour=False, width=WIDE))
    assert f"record 70 (17 of log 8f3fa94021ba57cd): {merged.hash}" in deed_text(deed)
    told = json.loads(decision_json(deed))
    assert (told["id"], told["log"], told["number"]) == (70, "8f3fa94021ba57cd", 17)


def test_everything_about_a_session() -> None:
    golden("audit_show_session.txt", record_text(records()[0]) + "\n")


@pytest.mark.threat("T28")
def test_nothing_in_a_record_drives_the_terminal() -> None:
    nasty = "\x1b[2J\u202e\u200b\r\x07"

    def spoiled(value: object) -> object:
        match value:
            case str():
                return value + nasty
            case list():
                return [spoiled(item) for item in value]
            case dict():
                return {spoiled(key): spoiled(item) for key, item in value.items()} | {
                    key: spoiled(item) for key, item in value.items()
                }
            case _:
                return value

    for deed in all_deeds():
        body = {key: spoiled(value) if key != "kind" else value for key, value in deed.record.body.items()}
        bad = DecisionTrail(Record(deed.record.id, deed.record.hash, body), deed.session, deed.finished)
        text = "\n".join([*entry_lines(bad, colour=False, width=110), deed_text(bad)])
        assert not {"\x1b", "\u202e", "\u200b", "\r", "\x07"} & set(text)


STRANGE: list[object] = [
    None,
    0,
    -1,
    True,
    "",
    "x",
    [],
    ["x"],
    {},
    {"cut": "x"},
    {"type": "RunScript"},
    {"type": "CallMcp"},
    1e300,
    10**400,
    [[]],
    {"a": [{}]},
    "\x1b" * 20 + "\n",
]


@pytest.mark.parametrize("value", STRANGE, ids=[json.dumps(value)[:20] for value in STRANGE])
def test_a_field_of_another_shape_is_shown_somehow(value: object) -> None:
    """Another version wrote it, or a user changed it: reading a log must never end in a traceback."""
    for deed in (deed for deed in all_deeds() if deed.record.id in (8, 11, 13, 16)):
        parts = {"record": deed.record, "session": deed.session, "finished": deed.finished}
        for part, record in parts.items():
            for body in changed(record.body, value) if record else ():
                bad = DecisionTrail(**{**parts, part: Record(record.id, record.hash, body)})  # type: ignore[arg-type,union-attr]
                if bad.record.kind in ("decided", "refused"):
                    listed = [*entry_lines(bad, colour=False, width=70)]
                    assert listed
                    assert deed_text(bad)
                    assert "\x1b" not in "".join(listed) + deed_text(bad)
                    counted = Stats()
                    counted.add(bad)
                    assert stats_text(counted, Known(), colour=False, width=70)
                if bad.finished is not None:
                    assert "\x1b" not in "".join(finished_line(bad.finished, colour=False, width=70))
        for record in filter(None, parts.values()):
            assert record_text(record)


def changed(body: dict[str, object], value: object) -> Iterator[dict[str, object]]:
    """With `value` in the place of each field in turn, and of each field of an object in it."""
    for field, held in body.items():
        if field != "kind":
            yield {**body, field: value}
        if isinstance(held, dict):
            yield from ({**body, field: inner} for inner in changed(held, value))


def test_what_an_earlier_version_left_out() -> None:
    for kind in ("decided", "refused"):
        assert deed_text(DecisionTrail(Record(1, "0" * 64, {"kind": kind}), None, None))
        assert [*entry_lines(DecisionTrail(Record(1, "0" * 64, {"kind": kind}), None, None), colour=False, width=80)]


def test_at_a_terminal_it_is_for_people(tmp_path: Path) -> None:
    """Text with the caret view, folded lines and no JSON; nothing of the progress is left behind."""
    agent = AGENT
    state, work = tmp_path / "state", tmp_path / "work"
    state.mkdir(mode=0o700)
    work.mkdir()
    environ = {**os.environ, "RINGFENCE_STATE_DIR": str(state), "HOME": str(tmp_path), "TERM": "xterm-256color"}
    environ.pop("NO_COLOR", None)
    problem = Problem("`command` is missing", "the tool wants one", "give one")
    with AuditLog.open(state / "audit.db") as log:
        session = log.session(SessionInfo("default", str(work), True, None))
        for number in range(3):
            log.refused(session, Refusal("bash", f'{{"x": {number}, "long": "{"y" * 300}"}}', problem))
    script = (
        f"{agent} audit --limit 2; {agent} audit show last; {agent} audit stats; {agent} audit show last | head -c 1"
    )
    with closing(ScreenTerminal(work, environ, "bash", "-c", script)) as window:
        screen = window.until("LEFT 0")
    told = [
        "malformed",
        "there are older decisions; these are the newest 2",
        "arguments, as the model sent them",
        "3 decisions in 1 session",
    ]
    for part in told:
        assert part in screen
    assert "reading" not in screen, "the progress is gone"
    assert screen.split("never matched")[-1].split("LEFT")[0].rstrip().endswith("{"), "text at a terminal"
    assert all(len(line) <= 110 for line in screen.splitlines())
