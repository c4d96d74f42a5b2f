"""Tests of the record format: docs/reference/record.md describes every field of every kind, and real runs fill them
in.
"""

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from policy.evaluation import fingerprint
from policy.flow.finding import FlowFinding, Sink
from policy.flow.state import FlowMode
from policy.model.action import RunScript
from policy.model.tier import MATRIX, Mode, Ruling, Tier
from policy.model.verdict import Ask, Deny, Problem
from policy.rules.rulebook import RuleBook
from runner.audit.fact_recorder import FactRecorder
from runner.audit.flow_fields import RecordedFlow
from runner.audit.log import AuditLog
from runner.audit.records import (
    AnsweringClient,
    Decision,
    Forwarding,
    Patching,
    Ran,
    RecordedAnswer,
    RecordedHook,
    RecordedPlan,
    RecordedReply,
    Refusal,
    Reverting,
    SessionEnd,
    SessionInfo,
)
from runner.audit.verify import verify
from runner.changes.transaction.report import RecordedFile, RecordedTransaction, Unapplied
from runner.config import shipped
from runner.secrets.redactor import Redactor
from runner.secrets.secret import Secret
from sandbox.backend import Connection, Enforcement, Level, Outcome, Used, Violation
from tests.support import forked_agent, grant_questions
from tests.support.agent_program import AGENT
from tests.support.places import ROOT

PAGE = ROOT / "docs" / "reference" / "record.md"
# Their fields are names of something, and not ours.
OPEN = ("hashes", "usage", "checks", "limits", "said", "action", "granted", "proposed")
FULL = Enforcement(Level.FULL, "T1", (("sealed", True),), ("nothing",), "cgroup v2")


def fields_of(body: dict[str, object], place: str = "") -> Iterator[str]:
    for name, value in body.items():
        if isinstance(value, dict) and name not in OPEN:
            yield from fields_of(value, f"{place}{name}.")
        elif isinstance(value, list) and value and isinstance(value[0], dict) and name not in OPEN:
            yield from fields_of(value[0], f"{place}{name}[].")
        else:
            yield {"action": "action.type", "said": "said.about"}.get(name, f"{place}{name}")


def written(page: str) -> dict[str, set[str]]:
    """By kind, what the first column names."""
    found: dict[str, set[str]] = {}
    for part in page.split("\n## ")[1:]:
        rows = [line.split("|")[1] for line in part.splitlines() if line.startswith("| `")]
        found[part.partition("`")[2].partition("`")[0]] = {
            name for row in rows for name in re.findall(r"`([^`]+)`", row)
        }
    return found


def everything(path: Path) -> None:
    """One of each record, with everything in it."""
    hearing = grant_questions.evaluation_context()
    noted = FactRecorder(hearing.facts, hearing.profile)
    _, ask = replace(hearing, facts=noted.facts).evaluate(RunScript("npm test > docs/a.md", hearing.facts.workspace))
    assert isinstance(ask, Ask)
    grants = grant_questions.approved_grants("npm test", "exactly `npm test`")
    answer = RecordedAnswer(ask.question, True, "client", "fine", 2.5, client=AnsweringClient("terminal /dev/pts/3", 7))
    problem = Problem("a", "b", "c")
    seen = grant_questions.resolution("npm test", grants)
    made = Connection("h", 443, "tunnel", "192.0.2.1", True, "", 1, 2, 0.5, "token")
    with AuditLog.open(path, redact=Redactor((Secret("hunter2hunter2"),)).text) as log:
        info = SessionInfo(
            "default", "/w", True, FULL, ("agent",), "m", "c0ffee", ("f",), "p", (("f", "00"),), "/o", ("/a",),
            guarded="claude", guarded_session="s1", job="j01234567",
        )  # fmt: skip
        session = log.session(info)
        covered = replace(seen.assessment, asked=seen.assessment.reasons)
        verdict = seen.verdict
        assert not isinstance(verdict, Ask)
        typed = ("--read /hunter2hunter2",)
        log.decided(
            session,
            Decision(
                "bash",
                covered,
                verdict,
                "T1",
                answer,
                typed,
                ("g1",),
                grants,
                noted=noted,
                proposed=RunScript("rm x", "/w"),
                model="scripted:x",
                policy="00",
                call="c1",
                client="probe 1.0",
                hooks=(RecordedHook("PreToolUse", "config.toml:1", "allow"),),
                flow=RecordedFlow(FlowMode.NOTE, "a page", "", (FlowFinding(Sink.DANGEROUS, "", "a page"),)),
                ran=1,
            ),
        )
        log.decided(session, Decision("bash", covered, Deny(problem, ask.cell, ask.reason), "none"))
        log.refused(session, Refusal("bash", "{", problem, client="probe 1.0"))
        violation = Violation("w", "p", "f", False)
        outcome = Outcome(
            1, violations=(violation,), connections=(made,), problem=problem, enforcement=FULL, used=Used(1.0, 2)
        )
        hook = RecordedHook("PreToolUse", "config.toml:1", "deny", "no", 2)
        files = (RecordedFile("/w/a", "added", "", "00"),)
        done = RecordedTransaction(
            files,
            1,
            "00",
            (("/w/.envrc", "auto-run", "other programs run it"),),
            1,
            tried="part",
            unapplied=Unapplied(files, 1),
        )
        ran = Ran(0.0, 3, (("/w/a", "added"),), hook=hook, answered="yes", client=answer.client, transaction=done)
        log.finished(2, outcome, ran)
        log.started(2, "p1", agent="main", terminal=False)
        log.applied(session, Patching("p", "00", "terminal", False, "/w", (("a", "added"),)))
        log.applied(session, Reverting(1, False, "/undo", "/w", (("/w/a", "deleted"),)))
        log.forwarded(session, Forwarding("p1", "c", 1, 2, "terminal"))
        log.planned(session, RecordedPlan("# a", "default", "terminal", "go", 1.0))
        log.replied(session, RecordedReply("s", "m", ("a",), "", True, "client", 1.0, "default", client=answer.client))
        log.ended(session, SessionEnd(0, "done", 1, (("input", 2),), 0.1))


def test_every_field_is_told_and_nothing_else(tmp_path: Path) -> None:
    everything(tmp_path / "audit.db")
    found: dict[str, set[str]] = {}
    with AuditLog.open_to_read(tmp_path / "audit.db") as log:
        for record in log.rows():
            found.setdefault(record.kind, set()).update(fields_of(record.body))
    for kind in ("session", "decided", "finished", "refused"):  # null in one, an object in another
        found[kind] -= {name for name in found[kind] if any(other.startswith(f"{name}.") for other in found[kind])}
    told = written(PAGE.read_text())
    del found["checkpoint"]  # of the chain and not of what was done: its own page tells
    for kind, names in found.items():
        assert told.get(kind) == names, kind
    assert set(told) == set(found)


@pytest.mark.threat("T40")
def test_a_secret_in_a_key_of_an_object_is_masked_and_said(tmp_path: Path) -> None:
    """A path is a key among the facts: a user may have put a token into it."""
    hearing = grant_questions.evaluation_context()
    noted = FactRecorder(hearing.facts, hearing.profile)
    script = f"cat {hearing.facts.workspace}/hunter2hunter2/a"
    assessment, verdict = replace(hearing, facts=noted.facts).evaluate(RunScript(script, hearing.facts.workspace))
    assert not isinstance(verdict, Ask)
    path = tmp_path / "audit.db"
    with AuditLog.open(path, redact=Redactor((Secret("hunter2hunter2"),)).text) as log:
        session = log.session(SessionInfo("default", "/w", True, None))
        number = log.decided(session, Decision("bash", assessment, verdict, "T1", noted=noted))
        record = log.get(number)
        assert record is not None
        names = record.body["facts"]
        assert isinstance(names, list)
        parts = [log.facts(name) for name in names]
    assert "action.script" in record.body["redacted"]  # type: ignore[operator]  # a list
    assert all(parts)
    assert "hunter2" not in json.dumps([record.body, parts])
    assert b"hunter2" not in path.read_bytes()


def test_the_fingerprint_is_of_the_content_and_not_of_the_place() -> None:
    settings = shipped()
    profile, rules = settings.profile, settings.rules
    first = fingerprint(profile, rules)
    assert fingerprint(shipped().profile, shipped().rules) == first
    assert fingerprint(profile, RuleBook({f"other/{name}": text for name, text in rules.files.items()})) == first
    assert fingerprint(profile, grant_questions.BOOK) == first
    assert re.fullmatch("[0-9a-f]{64}", first)
    denied = grant_questions.profile('deny run=["rm", "**"]').permissions
    moved = tuple(replace(rule, ref=replace(rule.ref, id="elsewhere.toml", line=99)) for rule in denied)
    assert fingerprint(replace(profile, permissions=denied), rules) == fingerprint(
        replace(profile, permissions=moved), rules
    )
    others = {
        "a rule": replace(profile, permissions=denied),
        "another order": replace(
            profile, permissions=(*denied, *grant_questions.profile('ask tool=["write"]').permissions)
        ),
        "a secret": replace(profile, secret_names=(*profile.secret_names, "x.key")),
        "a limit": replace(profile, limits=replace(profile.limits, wall=1.0)),
    }
    found = {why: fingerprint(other, rules) for why, other in others.items()}
    cell = {tier: dict(row) for tier, row in MATRIX.items()}
    cell[Tier.WRITE][Mode.PLAN] = Ruling.ALLOW
    found["a cell"] = fingerprint(profile, rules, cell)
    found["a fact"] = fingerprint(profile, RuleBook({**rules.files, "x.toml": '[xyz]\nwhy = "x"\ntier = "read"\n'}))
    assert len({first, *found.values()}) == len(found) + 1


def test_a_run_leaves_a_whole_record(tmp_path: Path) -> None:
    """From the model's call to the end of the session, through the real loop and the real sandbox."""
    home, work = tmp_path / "home", tmp_path / "home" / "work"
    work.mkdir(parents=True)
    (work / "a.txt").write_text("a\n")
    calls = ["cat a.txt", "echo b > b.txt; rm a.txt; head -c 20000000 /dev/zero | tail -c 1 > c"]
    turns = [f'[[turn]]\ncalls = [{{name = "bash", arguments = {{command = {json.dumps(each)}}}}}]' for each in calls]
    (tmp_path / "script.toml").write_text("\n".join([*turns, '[[turn]]\ntext = "done"']))
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C.UTF-8"}
    words = ["run", "--mode", "trust-project", "--model", f"scripted:{tmp_path}/script.toml", "go"]
    done = forked_agent.run(
        [AGENT, *words], env=environ, cwd=work, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
    with AuditLog.open_to_read(home / ".local/state/ringfence/audit.db") as log:
        (end,) = log.rows(kind="ended")
        (session,) = log.rows(kind="session")
        second, first = log.rows(kind="finished")
        assert verify(log.store).__class__.__name__ == "VerifiedLog"
    assert (end.body["exit"], end.body["reason"], end.body["turns"]) == (0, "done", 3)
    assert end.id > second.id
    assert session.body["policy"] == fingerprint(shipped().profile, shipped().rules)
    changed = {(str(each["path"]).removeprefix(f"{work}/"), each["how"]) for each in second.body["changed"]}  # type: ignore[attr-defined]
    assert changed == {("b.txt", "added"), ("c", "added"), ("a.txt", "deleted")}
    a, b = (hashlib.sha256(content).hexdigest() for content in (b"a\n", b"b\n"))
    hashes = {Path(each["path"]).name: (each["before"], each["after"]) for each in second.body["changed"]}  # type: ignore[attr-defined]
    assert (hashes["a.txt"], hashes["b.txt"]) == ((a, ""), ("", b))
    assert (first.body["changed"], first.body["changes"]) == ([], None), "nobody looked after what only reads"
    used = second.body["used"]
    assert isinstance(used, dict)
    assert used["memory"] > 1 << 20
    assert 0 <= used["cpu"] < 60
    assert str(second.body["started"]) <= str(second.body["time"])


def test_exec_says_what_it_was_given(tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}
    work = tmp_path / "work"
    work.mkdir()
    config = tmp_path / ".config" / "ringfence" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[[rule]]\nverdict = "deny"\nrun = ["rm", "**"]\nwhy = "never"\n')
    forked_agent.run([AGENT, "exec", "cat"], env=environ, cwd=work, input=b"12345", check=True, capture_output=True)
    with AuditLog.open_to_read(tmp_path / ".local/state/ringfence/audit.db") as log:
        (finished,) = log.rows(kind="finished")
        (session,) = log.rows(kind="session")
    assert finished.body["bytes"] == {"stdin": 5, "stdout": 5, "stderr": 0}
    hashes = session.body["hashes"]
    assert isinstance(hashes, dict)
    assert list(hashes) == [str(config)]
    assert hashes[str(config)] == hashlib.sha256(config.read_bytes()).hexdigest()
    assert session.body["policy"] != fingerprint(shipped().profile, shipped().rules)
    printed = forked_agent.run([AGENT, "policy", "fingerprint"], env=environ, cwd=work, capture_output=True, text=True)
    assert printed.stdout.strip() == session.body["policy"]
    config.rename(tmp_path / "elsewhere.toml")
    words = [AGENT, "policy", "fingerprint", "--json", "--config", str(tmp_path / "elsewhere.toml")]
    told = json.loads(forked_agent.run(words, env=environ, cwd=work, capture_output=True, text=True).stdout)
    assert (told["policy"], list(told["hashes"].values())) == (session.body["policy"], list(hashes.values()))
