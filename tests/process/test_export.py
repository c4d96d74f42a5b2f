"""Tests of the exports of the record: JSON Lines, CSV and SARIF are complete, stable and safe for any input."""

import csv
import io
import json
import os
import re
import stat
import subprocess
from pathlib import Path

import pytest

from policy.model.verdict import Problem
from runner.audit.decisions import deeds
from runner.audit.export import out, sarif, table
from runner.audit.list_view import json_lines
from runner.audit.log import AuditLog
from runner.audit.records import Refusal
from runner.problems import Stopped
from tests.support import forked_agent
from tests.support.agent_program import AGENT
from tests.support.audit_records import fill, info
from tests.support.places import TESTS
from tests.support.sample_decisions import HOSTILE, SHOP, hostile_log, ordinary_decisions, sample_log
from tests.support.sarif_checks import valid

GOLDEN = TESTS / "golden"


def same(name: str, text: str) -> None:
    """Compare with the file; UPDATE_GOLDEN=1 writes it, to be reviewed as a diff."""
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_jsonl_is_what_it_was() -> None:
    same("export.jsonl", "".join(f"{line}\n" for line in table.jsonl_lines(sample_log().deeds)))


def test_csv_is_what_it_was() -> None:
    same("export.csv", "".join(f"{line}\n" for line in table.lines(sample_log().deeds)))


def test_sarif_is_what_it_was() -> None:
    same("export.sarif", json.dumps(sarif.document(sample_log().deeds, SHOP), indent=1) + "\n")


def test_jsonl_are_the_objects_of_the_listing(tmp_path: Path) -> None:
    fill(tmp_path / "audit.db")
    with AuditLog.open_to_read(tmp_path / "audit.db") as log:
        assert list(table.jsonl_lines(deeds(log))) == list(json_lines(log))


# CSV


@pytest.mark.threat("T87")
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_cell_is_a_formula_and_none_moves_a_cursor(text: str) -> None:
    lines = list(table.lines(hostile_log().deeds))
    assert len(lines) == 1 + 3 * len(HOSTILE), "one decision, one line"
    found = list(csv.reader(io.StringIO("\n".join(lines))))
    assert {len(row) for row in found} == {len(table.COLUMNS)}
    for row in found[1:]:
        for cell in row:
            assert cell.lstrip(" ")[:1] not in ("=", "+", "-", "@"), cell
            assert cell.isprintable(), repr(cell)
    actions = {row[table.COLUMNS.index("action")] for row in found}
    assert any(text.strip("\t\r ")[-4:] in action for action in actions) or not text.isprintable()


def test_a_cell_of_a_long_script_says_how_long_it_was() -> None:
    told = sample_log()
    told.refused("aaaa000011112222", "bash", "x" * 100_000, Problem("a", "b", "c"))
    row = next(csv.DictReader(list(table.lines(told.deeds))))
    assert row["action"] == "x" * 2_000 + "… (100000 characters)"


# SARIF


def test_sarif_holds_the_schema_and_what_dashboards_want() -> None:
    told = sample_log()
    run = valid(sarif.document(told.deeds, SHOP, questions=True, exits={"bbbb333344445555": 3}))
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["help"]["text"]
        assert rule["shortDescription"]["text"]
        assert rule["fullDescription"]["text"]
        assert 0 < float(rule["properties"]["security-severity"]) <= 10
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        assert result["message"]["text"]
        (place,) = result["locations"]
        uri = place["physicalLocation"]["artifactLocation"]["uri"]
        assert not uri.startswith("/")
        assert ":" not in uri
        assert ".." not in uri.split("/")
        assert place["physicalLocation"]["region"]["startLine"] == 1
        assert result["partialFingerprints"]["primaryLocationLineHash"]
    assert len({result["partialFingerprints"]["ringfenceAction/v1"] for result in run["results"]}) == len(
        run["results"]
    )
    codes = [each.get("exitCode") for each in run["invocations"]]
    assert codes == [3, None]


def test_sarif_says_where_and_how_often() -> None:
    run = valid(sarif.document(sample_log().deeds, SHOP))
    found = {
        result["ruleId"]: (
            result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"],
            result["occurrenceCount"],
            result["level"],
        )
        for result in run["results"]
    }
    assert found == {
        "malformed/call": (".ringfence/config.toml", 1, "note"),
        "write-outside/classification": (".git/hooks/pre-commit", 1, "error"),
        "dangerous/shell": (".ringfence/config.toml", 1, "error"),
        "secret/coreutils": (".ringfence/config.toml", 2, "error"),
    }


def test_sarif_of_another_run_has_the_same_fingerprints() -> None:
    def prints(start: int) -> list[str]:
        told = sample_log()
        told.count = start
        run = sarif.document(told.deeds, SHOP)["runs"][0]  # type: ignore[index]
        return [result["partialFingerprints"]["ringfenceAction/v1"] for result in run["results"]]

    assert prints(0) == prints(1000)


@pytest.mark.threat("T87")
def test_sarif_of_hostile_text_holds_the_schema_and_has_no_link() -> None:
    document = sarif.document(hostile_log().deeds, SHOP, questions=True)
    run = valid(document)
    for result in run["results"]:
        text = result["message"]["text"]
        assert text.isprintable(), repr(text)
        assert "](" not in text.replace("\\]", ""), "a link"
        assert "markdown" not in result["message"]
        uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        assert uri.isascii()
        assert ":" not in uri
        assert "<" not in uri
    for rule in run["tool"]["driver"]["rules"]:
        assert "owned" not in json.dumps(rule)


def test_sarif_of_nothing_is_a_clean_run() -> None:
    assert valid(sarif.document([], SHOP))["results"] == []


def test_sarif_takes_no_more_than_dashboards_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sarif, "MOST", 2)
    run = valid(sarif.document(sample_log().deeds, SHOP))
    assert len(run["results"]) == 2
    assert run["properties"] == {"left out": 3}


# Files


def test_a_file_is_private_whole_or_not_there(tmp_path: Path) -> None:
    target = tmp_path / "a.jsonl"
    target.write_text("old")
    out.write(["one", "two \ud800"], target)
    assert target.read_bytes() == b"one\ntwo \\ud800\n"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600

    def failing() -> list[str]:
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError):
        out.write((line for line in [*["x"] * 9, *failing()]), target)
    assert target.read_text().startswith("one")
    assert [each.name for each in tmp_path.iterdir()] == ["a.jsonl"]


# where, why not
REFUSED = [("folder", "a folder"), ("no/such/folder/x", "no such folder"), ("pipe", "a pipe"), ("link", "a link")]


@pytest.mark.parametrize(("name", "why"), REFUSED)
def test_what_cannot_be_replaced_is_said(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "aim").write_text("kept")
    (tmp_path / "link").symlink_to("aim")
    with pytest.raises(Stopped):
        out.write(["x"], tmp_path / name)
    assert (tmp_path / "aim").read_text() == "kept"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["aim", "folder", "link", "pipe"]


# The command


def agent(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "RINGFENCE_STATE_DIR": str(folder), "LC_ALL": "C.UTF-8"}
    return forked_agent.run(
        [AGENT, "audit", *words], env=environ, cwd=folder, capture_output=True, text=True, timeout=60
    )


def test_the_command_writes_every_format_and_takes_filters(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    fill(tmp_path / "audit.db", 4)
    with AuditLog.open(tmp_path / "audit.db") as log:
        log.refused("0123456789abcdef", Refusal("bash", "{", Problem("malformed", "no JSON", "send JSON")))
    assert len(agent(tmp_path, "export", "--format", "jsonl").stdout.splitlines()) == 5
    assert len(agent(tmp_path, "export", "--format", "jsonl", "--limit", "2").stdout.splitlines()) == 2
    done = agent(tmp_path, "export", "--format", "csv", "--denied", "--out", "x.csv")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert len((tmp_path / "x.csv").read_text().splitlines()) == 2
    valid(json.loads(agent(tmp_path, "export", "--format", "sarif").stdout))


def test_a_merged_file_is_exported_with_the_chains_of_its_records(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    for name in ("a.db", "b.db"):
        fill(tmp_path / name, 2)
    assert agent(tmp_path, "merge", "a.db", "b.db", "--into", "all.db").returncode == 0
    rows = list(csv.DictReader(io.StringIO(agent(tmp_path, "export", "--format", "csv", "--file", "all.db").stdout)))
    objects = [
        json.loads(line)
        for line in agent(tmp_path, "export", "--format", "jsonl", "--file", "all.db").stdout.splitlines()
    ]
    assert len({row["log"] for row in rows}) == 2
    assert [row["log"] for row in rows] == [each["log"] for each in objects]
    assert len({row["id"] for row in rows}) == 4
    done = agent(tmp_path, "export", "--format", "html", "--file", "all.db", "--out", "all.html")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(re.findall(r"\d+:[0-9a-f]{64}", (tmp_path / "all.html").read_text())) == 2


# words, why not
MISTAKES = [
    (["--format", "xml"], "the formats are jsonl, csv, sarif, html, otlp"),
    ([], "add for example --out report.html"),
    (["--out", "report.pdf"], "tells no format"),
    (["--format", "csv", "--questions"], "is only for SARIF"),
    (["--format", "csv", "--endpoint", "http://c"], "is only for OTLP"),
    (["--format", "otlp", "--out", "x"], "cannot be used with OTLP"),
    (["--format", "sarif", "--verdict", "allow"], "it contains denials"),
    (["--format", "csv", "--file", "nothing.db"], "there is no log"),
    (["--format", "html", "--out", "no/such/r.html"], "cannot be written"),
]


@pytest.mark.parametrize(("words", "why"), MISTAKES, ids=[" ".join(row[0]) for row in MISTAKES])
def test_a_mistake_is_told(tmp_path: Path, words: list[str], why: str) -> None:
    tmp_path.chmod(0o700)
    fill(tmp_path / "audit.db", 1)
    done = agent(tmp_path, "export", *words)
    assert done.returncode in (1, 2)
    assert done.stdout == ""
    assert why in " ".join(done.stderr.lower().split()) or why in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_goes_away_ends_the_export(tmp_path: Path) -> None:
    fill(tmp_path / "audit.db", 300)
    tmp_path.chmod(0o700)
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "RINGFENCE_STATE_DIR": str(tmp_path)}
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {AGENT} audit export --format jsonl | head -n 1 | wc -l"],
        env=environ, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.stdout.strip(), done.stderr) == ("1", "")


def test_sessions_are_not_held_all_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of `agent exec` has as many sessions as decisions."""
    monkeypatch.setattr("runner.audit.decisions.SESSIONS", 2)
    with AuditLog.open(tmp_path / "audit.db") as log:
        for number in range(7):
            session = log.session(info())
            log.refused(session, Refusal("bash", str(number), Problem("a", "b", "c")))
        found = list(deeds(log))
    assert [deed.record.body["arguments"] for deed in found] == ["6", "5", "4", "3", "2", "1", "0"]
    assert all(deed.session and deed.session.body["session"] == deed.record.body["session"] for deed in found)


def test_lines_come_one_by_one() -> None:
    """Nothing is held: the first line is there before the second decision was read."""
    read = []

    def watched() -> object:
        for deed in ordinary_decisions(50):
            read.append(deed.record.id)
            yield deed

    for made in (table.jsonl_lines, table.lines):
        read.clear()
        lines = made(watched())  # type: ignore[arg-type]  # a generator of deeds
        next(lines)
        next(lines)
        assert len(read) <= 2
