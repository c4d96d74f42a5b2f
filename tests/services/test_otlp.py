"""Tests of decisions sent to a collector over a real connection, decoded by the protocol's own types."""

import gzip
import json
import os
import re
import socket
import subprocess
from pathlib import Path

import pytest

from runner.audit.export import otlp
from runner.audit.export.otlp_record import resource
from runner.audit.export.table import jsonl_lines as lines
from runner.problems import Stopped
from tests.support import forked_agent
from tests.support.agent_program import AGENT
from tests.support.audit_records import fill
from tests.support.otlp_server import GOOD, Answer, collector, partial, values
from tests.support.sample_decisions import HOSTILE, hostile_log, ordinary_decisions, sample_log


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of the machine, and little patience where a failure is wanted, which would be tried again."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
    monkeypatch.setenv("NO_PROXY", "*")


def test_every_decision_is_a_log_record() -> None:
    told = sample_log()
    with collector() as seen:
        sent = otlp.send(told.deeds, otlp.endpoint(seen.address, {}))
    assert (sent.records, sent.requests, len(seen.requests)) == (8, 1, 1)
    assert seen.requests[0][0] == "/v1/logs"
    assert [json.loads(str(values(log.attributes)["log.record.original"])) for log in seen.records] == [
        json.loads(line) for line in lines(sorted(told.deeds, key=lambda deed: deed.record.body["session"], reverse=True))
    ]  # fmt: skip
    found = {int(values(log.attributes)["ringfence.record.id"]): log for log in seen.records}  # type: ignore[call-overload]
    assert {number: (log.severity_text, log.severity_number) for number, log in found.items()} == {
        13: ("denied", 13), 11: ("asked", 10), 10: ("denied", 13), 9: ("denied", 17), 7: ("denied", 17),
        6: ("denied", 17), 4: ("allowed", 9), 2: ("allowed", 9),
    }  # fmt: skip
    log = found[11]
    assert log.body.string_value == "asked: exec `pip install left-pad`: connects to pypi.example:443"
    assert log.time_unix_nano == 1_772_600_769_750_000_000
    assert log.event_name == "ringfence.decision"
    assert len(log.trace_id) == 16
    assert {each.trace_id for each in (found[9], found[10], found[11])} == {log.trace_id}, "one for each session"
    assert len({each.span_id for each in seen.records}) == 8
    told_by = values(log.attributes)
    del told_by["log.record.original"]
    assert told_by == {
        "session.id": "bbbb333344445555",
        "gen_ai.tool.name": "exec",
        "security_rule.name": "command:python:12",
        "security_rule.category": "network",
        "security_rule.ruleset.name": "ringfence",
        "process.exit.code": 1,
        "vcs.ref.head.revision": "0123abc",
        "log.record.uid": told.deeds[1].record.hash,
        "ringfence.record.id": 11,
        "ringfence.verdict": "allow",
        "ringfence.asked": True,
        "ringfence.tiers": ["network"],
        "ringfence.mode": "trust-project",
        "ringfence.ruling": "ask",
        "ringfence.action.type": "RunArgv",
        "ringfence.action": "pip install left-pad",
        "ringfence.why": "connects to pypi.example:443",
        "ringfence.answer": "yes",
        "ringfence.answered_by": "terminal",
        "ringfence.hosts": ["pypi.example", "metrics.example"],
        "ringfence.seconds": 2.5,
        "ringfence.violations": ["reads /home/ann/.netrc"],
        "ringfence.workspace": "/home/ann/shop",
        "ringfence.backend": "T1",
        "ringfence.terms.digest": told.deeds[1].record.body["digest"],
    }
    model = values(found[7].attributes)
    assert (model["gen_ai.request.model"], model["gen_ai.conversation.id"]) == ("m-1", "aaaa000011112222")


def test_a_session_is_a_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=ci")
    with collector() as seen:
        otlp.send(sample_log().deeds, f"{seen.address}/v1/logs")
    found = {
        str(values(each.resource.attributes)["service.instance.id"]): values(each.resource.attributes)
        for each in seen.resources
    }
    assert set(found) == {"aaaa000011112222", "bbbb333344445555"}
    kept = found["bbbb333344445555"]
    assert {name: kept[name] for name in ("service.name", "service.version", "process.pid", "process.runtime.version")} == {
        "service.name": "ringfence", "service.version": "0.1.0", "process.pid": 4242, "process.runtime.version": "3.11.2",
    }  # fmt: skip
    assert kept["deployment.environment.name"] == "ci"


# fmt: off
SENDERS: list[tuple[dict[str, str], str, str]] = [
    ({},                                                                            "ringfence", "the recorded program"),
    ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=b%20c,a=1"},                        "b c",       "the user names it"),
    ({"OTEL_SERVICE_NAME": "d", "OTEL_RESOURCE_ATTRIBUTES": "service.name=b"},      "d",         "its own variable first"),
    ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=,a=1"},                             "ringfence", "no name"),
]
# fmt: on


@pytest.mark.parametrize(("environ", "wanted", "why"), SENDERS, ids=[why for _, _, why in SENDERS])
def test_the_name_of_the_sender(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], wanted: str, why: str
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    found = resource(sample_log().deeds[0], "aaaa000011112222").attributes
    assert (found["service.name"], found["service.instance.id"]) == (wanted, "aaaa000011112222"), why


def test_batches_are_of_a_size_that_collectors_take() -> None:
    with collector() as seen:
        sent = otlp.send(ordinary_decisions(1_200), f"{seen.address}/v1/logs")
    assert sent.records == 1_200 == len(seen.records)
    assert sent.requests == len(seen.requests) > 2
    assert max(request.ByteSize() for _, _, request in seen.requests) < 4 << 20
    assert len({values(log.attributes)["log.record.uid"] for log in seen.records}) == 1_200


@pytest.mark.threat("T87")
def test_hostile_text_arrives_as_it_was_and_moves_no_cursor_in_what_is_shown() -> None:
    with collector() as seen:
        otlp.send(hostile_log().deeds, f"{seen.address}/v1/logs")
    assert len(seen.records) == 3 * len(HOSTILE)
    for log in seen.records:
        assert log.body.string_value.isprintable()
    scripts = {
        json.loads(str(values(log.attributes)["log.record.original"])).get("action", {}).get("script")
        for log in seen.records
    }
    assert set(HOSTILE) <= scripts, "the original is exact"


def test_headers_and_compression_come_from_the_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20s3cret,x-tenant=7")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    with collector() as seen:
        otlp.send(sample_log().deeds, f"{seen.address}/v1/logs")
    _, headers, _ = seen.requests[0]
    assert (headers["authorization"], headers["x-tenant"], headers["content-encoding"]) == (
        "Bearer s3cret",
        "7",
        "gzip",
    )


# the answer, what is said, what to do
ANSWERS: list[tuple[Answer, str, str]] = [
    ((401, "text/plain", b"who are you?"), "it answered 401: who are you?", "OTEL_EXPORTER_OTLP_HEADERS"),
    ((404, "text/plain", b""), "it answered 404", "/v1/logs"),
    ((400, "application/x-protobuf", b"\x12\x07too bad"), "it answered 400: too bad", "read the log of"),
    ((500, "text/plain", b"\x1b[2J" * 3), "it answered 500: \u241b[2J\u241b[2J\u241b[2J", "read the log of"),
    ((503, "text/plain", b"later"), "it answered 503: later", "read the log of"),
    ((307, "text/plain", b""), "it redirects to another address", "check the address"),
    ((200, "text/html", b"<h1>hello"), "it answered 200 with `text/html`, unlike a collector", "another program"),
    (partial(3, "too old"), "too old", "read the log of"),
]


@pytest.mark.threat("T99")
@pytest.mark.parametrize(("answer", "why", "fix"), ANSWERS, ids=[row[1][:24] for row in ANSWERS])
def test_what_a_collector_does_not_take_is_said(answer: Answer, why: str, fix: str) -> None:
    with collector(lambda number: answer) as seen, pytest.raises(otlp.Unsent) as caught:
        otlp.send(sample_log().deeds, f"{seen.address}/v1/logs")
    assert caught.value.problem.why == why
    assert fix in caught.value.problem.fix
    assert (caught.value.sent.records, caught.value.first) == (0, sample_log().deeds[0].record.body["time"])
    assert "/elsewhere" not in {path for path, _, _ in seen.requests}


PACKED = ("content-encoding", "gzip")
REJECTED = partial(3, "too old")[2]
BOMB = gzip.compress(bytes(4 << 20))
# the body of the answer, its coding, what is said
CODED: list[tuple[bytes, tuple[tuple[str, str], ...], str]] = [
    (gzip.compress(REJECTED),                (PACKED,),                             "too old"),
    (gzip.compress(gzip.compress(REJECTED)), (PACKED, PACKED),                      "its answer has an unsupported compression"),
    (gzip.compress(gzip.compress(REJECTED)), (("content-encoding", "gzip, gzip"),), "its answer has an unsupported compression"),
    (REJECTED,                               (("content-encoding", "br"),),         "its answer has an unsupported compression"),
    (BOMB,                                   (PACKED,),                             "its answer is too long when unpacked"),
    (bytes(2 << 20),                         (),                                    "its answer is too long"),
    (REJECTED,                               (PACKED,),                             "its answer is compressed and damaged"),
    (gzip.compress(REJECTED) * 2,            (PACKED,),                             "its answer has data after its end"),
]  # fmt: skip


@pytest.mark.threat("T119")
@pytest.mark.parametrize("status", [200, 307, 400])
@pytest.mark.parametrize(("body", "fields", "why"), CODED, ids=[row[-1] for row in CODED])
def test_what_a_collector_answers_is_counted_while_it_is_unpacked(
    body: bytes, fields: tuple[tuple[str, str], ...], why: str, status: int
) -> None:
    with collector(lambda number: (status, GOOD[1], body), fields) as seen, pytest.raises(otlp.Unsent) as caught:
        otlp.send(sample_log().deeds, f"{seen.address}/v1/logs")
    if why == "too old":
        why = {200: why, 307: "it redirects", 400: "it answered 400"}[status]
    assert caught.value.problem.why.startswith(why)


def test_nobody_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3")
    with socket.socket() as silent:  # its port is nobody else's meanwhile
        silent.bind(("127.0.0.1", 0))
        with pytest.raises(otlp.Unsent) as caught:
            otlp.send(sample_log().deeds, f"http://127.0.0.1:{silent.getsockname()[1]}/v1/logs")
    assert caught.value.problem.why == "no program listens at that address"


def test_a_failure_in_the_middle_says_where_to_go_on() -> None:
    deeds = list(ordinary_decisions(1_200))
    with collector(lambda number: GOOD if number == 0 else (400, "text/plain", b"full")) as seen:
        with pytest.raises(otlp.Unsent) as caught:
            otlp.send(deeds, f"{seen.address}/v1/logs")
        taken = caught.value.sent.records
    assert 0 < taken < 1_200
    assert caught.value.first == deeds[taken].record.body["time"]


# as given, environment, address
ADDRESSES = [
    ("http://c:4318", {}, "http://c:4318/v1/logs"),
    ("http://c:4318/", {}, "http://c:4318/v1/logs"),
    ("https://c/otlp/v1/logs", {}, "https://c/otlp/v1/logs"),
    (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/otlp/"}, "http://c:4318/otlp/v1/logs"),
    (None, {"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://c/x", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://d"}, "http://c/x"),
    ("http://c:1", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://d"}, "http://c:1/v1/logs"),
    (None, {}, "no collector is named"),
    ("c:4318", {}, "is not a collector address"),
    ("ftp://c", {}, "is not a collector address"),
    ("http://c:99999", {}, "is not a collector address"),
    ("http://u:p@c", {}, "contains a credential"),
    ("http://u:p@c:99999", {}, "contains a credential"),
    ("http://u:p@[c", {}, "contains a credential"),
    ("http://c/a b", {}, "a blank"),
    (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://token@c"}, "contains a credential"),
    ("http://c/v1/logs?api-key=x", {}, "has a query"),
]


@pytest.mark.threat("T99")
@pytest.mark.parametrize(("given", "environ", "wanted"), ADDRESSES)
def test_an_address(given: str | None, environ: dict[str, str], wanted: str) -> None:
    if wanted.startswith("http"):
        assert otlp.endpoint(given, environ) == wanted
        return
    with pytest.raises(Stopped) as stopped:
        otlp.endpoint(given, environ)
    assert wanted in str(stopped.value.problem)
    assert not re.search("token|u:p|api-key", str(stopped.value.problem)) or "query" in wanted


@pytest.mark.parametrize(
    ("address", "clear"),
    [("http://127.0.0.1:1/v1/logs", False), ("http://[::1]/v1/logs", False), ("http://localhost/x", False), ("http://c.localhost/x", True), ("https://c/x", False), ("http://c/x", True), ("http://10.0.0.1/x", True)],
)  # fmt: skip
def test_in_clear(address: str, clear: bool) -> None:
    assert otlp.in_clear(address) is clear


@pytest.mark.thorough
def test_the_command_sends_and_says_what_it_did(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    fill(tmp_path / "audit.db", 3)
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "RINGFENCE_STATE_DIR": str(tmp_path)}
    words = [AGENT, "audit", "export", "--format", "otlp"]
    with collector() as seen:
        run = subprocess.run([*words, "--endpoint", seen.address], env=environ, capture_output=True, text=True)
        assert (run.returncode, run.stdout, run.stderr) == (0, f"3 decisions sent to {seen.address}/v1/logs\n", "")
        assert len(seen.records) == 3
        seen.answer = lambda _: (403, "text/plain", b"no")
        run = forked_agent.run([*words, "--endpoint", seen.address], env=environ, capture_output=True, text=True)
    assert run.returncode == 1
    assert "it answered 403: no" in run.stderr
    assert "--until 20" in run.stderr
    assert "Traceback" not in run.stderr
    run = forked_agent.run(words, env=environ, capture_output=True, text=True)
    assert run.returncode == 2
    assert "no collector is named" in run.stderr
