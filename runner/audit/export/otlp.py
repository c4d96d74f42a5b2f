"""OTLP over HTTP: sends each decision as one log record to a collector.

SOURCE: opentelemetry.io/docs/specs/otel/logs/data-model and /docs/specs/semconv. The names of these conventions are
used where they exist: `gen_ai.*`, `process.*`, `session.id`, `security_rule.*`, `vcs.*`, `log.record.*`; other names
begin with `ringfence.`. Headers, certificates, timeouts and compression come from OTEL_EXPORTER_OTLP_*, never from the
command line.
"""

import contextlib
import hashlib
import io
import ipaddress
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.audit.decisions import DecisionTrail
from runner.audit.export import reading
from runner.audit.list_view import json_line
from runner.problems import Exit, Stopped, usage
from runner.text.gunzip import PackedError, PackedTooLarge, gunzip, layer_of
from runner.text.sanitize import one_line
from runner.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.sdk._logs import ReadableLogRecord
    from opentelemetry.sdk.resources import Resource

PATH = "/v1/logs"
BATCH, BATCH_BYTES = 512, 1 << 20  # records, and characters of their originals, of one request
ENDPOINTS = ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_SERIOUS = ("secret", "denied", "dangerous", "unknown")
ANSWER_LIMIT = 1 << 20  # bytes of an answer, packed and unpacked
_TEXT = 4_000  # characters of one attribute; `log.record.original` has all of them


@dataclass(frozen=True, slots=True)
class Sent:
    """Progress of an export.

    Attributes:
        records: number of records that the collector accepted
        requests: number of requests that this took
        last: time of the last accepted record
    """

    records: int
    requests: int
    last: str = ""


class Unsent(Stopped):
    """Failure of a request. `sent` counts what was accepted before; `first` is the time of the first record not
    accepted.
    """

    def __init__(self, problem: Problem, sent: Sent, first: str) -> None:
        super().__init__(problem, Exit.FAILED)
        self.sent, self.first = sent, first


def endpoint(given: str | None, environ: Mapping[str, str]) -> str:
    """Return the address to send to: `given`, whose path may be missing, or the address in OTEL_EXPORTER_OTLP_*.

    Raises a usage error for an address that cannot be used.
    """
    if given is None:
        whole, base = (environ.get(name, "").strip() for name in ENDPOINTS)
        if not whole and not base:
            raise usage(
                "no collector is named", "records are sent nowhere by themselves", "add --endpoint http://HOST:4318"
            )
        given = whole or base.rstrip("/") + PATH
    try:
        parts = urlsplit(given)
        port = parts.port
    except ValueError as error:
        raise usage(f"`{given}` is no address of a collector", str(error).lower(), "say http://HOST:4318") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise usage(f"`{given}` is no address of a collector", "it is not http or https", "say http://HOST:4318")
    if parts.username is not None or parts.password is not None:
        raise usage(
            "the address of the collector holds a credential",
            "an address is shown, logged, and on the command line everybody's to read",
            "put it into OTEL_EXPORTER_OTLP_HEADERS, for example `authorization=Bearer ...`",
        )
    if parts.query or parts.fragment:
        raise usage(f"`{given}` is no address of a collector", "it has a query", "put a key into its headers instead")
    return given if parts.path.strip("/") else f"{given.rstrip('/')}{PATH}"


def in_clear(address: str) -> bool:
    """Return True if data sent to this address can be read on its way: plain HTTP to another machine."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    if parts.scheme != "http" or host == "localhost" or host.endswith(".localhost"):
        return False
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return True


def send(deeds: Iterable[DecisionTrail], address: str, *, sent: Sent | None = None) -> Sent:
    """Send the decisions in their order.

    Raises Unsent when a request fails after the retries of the SDK; Stopped when the SDK is not installed.
    """
    collector = Collector(address)
    done = sent or Sent(0, 0)
    with contextlib.closing(collector):
        for batch in _batches(deeds):
            done = collector.take(batch, done)
    return done


class Collector:
    """Connection to one collector."""

    def __init__(self, address: str) -> None:
        try:
            import requests
            from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
        except ImportError as error:
            what = "records cannot be sent to a collector"
            fix = "install the extra: pip install 'ringfence[fleet]'"
            raise Stopped(Problem(what, f"{error.name or 'the SDK'} is not installed", fix), Exit.USAGE) from None

        class Session(requests.Session):
            """Session that stores the result of the last request, which the exporter only logs."""

            answer: requests.Response | None = None
            error: Exception | None = None

            def send(self, request, **options):  # type: ignore[no-untyped-def]  # as in the library, which is untyped
                self.answer = self.error = None
                try:
                    self.answer = super().send(request, **options)
                except Exception as error:  # told on; the exporter has its own rules for what it tries again
                    self.error = error
                    raise
                return self.answer

        class Bounded(requests.adapters.HTTPAdapter):
            """Adapter that limits each response to ANSWER_LIMIT bytes before `requests` decompresses all layers of
            it."""

            def send(  # type: ignore[override]  # its options are passed on as they are, but for one
                self, request: requests.PreparedRequest, **options: Any
            ) -> requests.Response:
                answer = super().send(request, **{**options, "stream": True})
                try:
                    data = answer.raw.read(ANSWER_LIMIT + 1, decode_content=False)
                    data = _plain(data, answer.raw.headers.getlist("content-encoding"))
                except PackedError as error:
                    raise requests.exceptions.ContentDecodingError(f"its answer {error}") from None
                finally:
                    answer.close()
                answer.raw = io.BytesIO(data)
                return answer

        self.address = address
        self._session = Session()
        self._session.headers["accept-encoding"] = "identity"
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, Bounded())
        self._session.max_redirects = 0  # the record and its headers go to the address that was named
        self._session.auth = lambda request: request  # and nothing out of a .netrc goes along
        # It tells failures to its log as well; ours go to whoever asked.
        logger = logging.getLogger("opentelemetry")
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
        try:
            self._exporter = OTLPLogExporter(endpoint=address, session=self._session)
        except ValueError as error:
            why = one_line(str(error), 200)
            raise usage("OTEL_EXPORTER_OTLP_* cannot be used", why, "correct that variable, or unset it") from None
        self._resources: dict[str, Resource] = {}

    def close(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # as in the library

    def take(self, batch: list[DecisionTrail], sent: Sent) -> Sent:
        """Send one batch; `sent` counts what was accepted before. Raises Unsent."""
        from opentelemetry.sdk._logs.export import LogRecordExportResult

        first = reading.text(reading.body(batch[0]).get("time"))
        result = self._exporter.export([self._log(deed) for deed in batch])
        if result is not LogRecordExportResult.SUCCESS:
            raise Unsent(self._problem(), sent, first)
        self._kept(sent, first)
        return Sent(
            sent.records + len(batch), sent.requests + 1, reading.text(reading.body(batch[-1]).get("time")) or sent.last
        )

    def _problem(self) -> Problem:
        what = f"the collector at `{self.address}` did not take the record"
        answer, error = self._session.answer, self._session.error
        if error is not None or answer is None:
            return Problem(what, _why(error), "check the address, and that the collector runs and takes OTLP over HTTP")
        kind = answer.headers.get("content-type", "")
        if answer.status_code < 400:
            why = f"it answered {answer.status_code} with `{one_line(kind, 60)}`, as no collector does"
            return Problem(what, why, "check the address: something else listens there")
        said = one_line(_said(answer.content, kind), 300)
        why = f"it answered {answer.status_code}" + (f": {said}" if said else "")
        if answer.status_code in (401, 403):
            return Problem(what, why, "put its credential into OTEL_EXPORTER_OTLP_HEADERS")
        if answer.status_code == 404:
            return Problem(what, why, f"say the whole address; the path for logs is usually {PATH}")
        return Problem(what, why, "see what the collector's own log says")

    def _kept(self, sent: Sent, first: str) -> None:
        """Raise Unsent if the collector reports that it discarded a part of the last batch."""
        from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

        answer = self._session.answer
        if answer is None:
            return
        kind = answer.headers.get("content-type", "")
        if answer.status_code >= 300 or "html" in kind:  # which the exporter takes for a success
            raise Unsent(self._problem(), sent, first)
        if "protobuf" not in kind:
            return
        try:
            partial = ExportLogsServiceResponse.FromString(answer.content).partial_success
        except Exception:  # a decoder of foreign bytes; the status said that all is well
            return
        if partial.rejected_log_records > 0:
            said = one_line(partial.error_message, 300) or "it does not say why"
            what = f"the collector at `{self.address}` threw {partial.rejected_log_records} records of a batch away"
            raise Unsent(
                Problem(what, said, "see what the collector's own log says, then send them again"), sent, first
            )

    def _log(self, deed: DecisionTrail) -> "ReadableLogRecord":
        from opentelemetry._logs import LogRecord, SeverityNumber
        from opentelemetry.sdk._logs import ReadableLogRecord
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

        body = reading.body(deed)
        name = reading.text(body.get("session"))
        if name not in self._resources:
            self._resources[name] = resource(deed, name)
        ids = SpanContext(
            int.from_bytes(hashlib.sha256(f"session {name}".encode("utf-8", "surrogatepass")).digest()[:16], "big"),
            int.from_bytes(hashlib.sha256(f"record {deed.record.hash}".encode()).digest()[:8], "big"),
            is_remote=False,
            trace_flags=TraceFlags(0),
        )
        serious = reading.tier(deed) in _SERIOUS
        severity = (
            (SeverityNumber.ERROR if serious else SeverityNumber.WARN)
            if reading.denied(deed)
            else SeverityNumber.INFO2
            if reading.asked(deed)
            else SeverityNumber.INFO
        )
        log = LogRecord(
            timestamp=_nanoseconds(body.get("time")),
            observed_timestamp=time.time_ns(),
            context=set_span_in_context(NonRecordingSpan(ids)),
            severity_number=severity,
            severity_text=_verdict(deed),
            body=_message(deed),
            attributes=attributes(deed),
            event_name="ringfence.decision",
        )
        return ReadableLogRecord(log, self._resources[name], InstrumentationScope("ringfence", VERSION))


def attributes(deed: DecisionTrail) -> dict[str, str | int | float | bool | list[str]]:
    """Return the fields of a record, with the names of the semantic conventions where those exist. Empty fields are
    left out.
    """
    body, outcome, session = reading.body(deed), reading.outcome(deed), reading.session(deed)
    answer, cell = reading.mapping(body.get("answer")), reading.mapping(body.get("cell"))
    stopped = [reading.mapping(item).get("what") for item in reading.items(outcome.get("violations"))]
    found: dict[str, object] = {
        "session.id": body.get("session"),
        "gen_ai.operation.name": "execute_tool" if session.get("model") else None,
        "gen_ai.conversation.id": body.get("session") if session.get("model") else None,
        "gen_ai.request.model": session.get("model"),
        "gen_ai.tool.name": body.get("tool"),
        "security_rule.name": reading.rule(deed),
        "security_rule.category": reading.tier(deed),
        "security_rule.ruleset.name": "ringfence",
        "process.exit.code": outcome.get("status"),
        "vcs.ref.head.revision": session.get("commit"),
        "log.record.uid": deed.record.hash,
        "log.record.original": json_line(deed),
        "ringfence.record.id": deed.record.id,
        "ringfence.log": deed.record.log,
        "ringfence.verdict": body.get("verdict"),
        "ringfence.asked": reading.asked(deed),
        "ringfence.tiers": reading.items(body.get("tiers")),
        "ringfence.mode": body.get("mode"),
        "ringfence.ruling": cell.get("ruling"),
        "ringfence.action.type": reading.mapping(body.get("action")).get("type"),
        "ringfence.action": reading.action(deed),
        "ringfence.why": reading.why(deed),
        "ringfence.answer": ("yes" if answer.get("yes") else "no") if answer else None,
        "ringfence.answered_by": answer.get("by"),
        "ringfence.hosts": reading.hosts(deed),
        "ringfence.seconds": outcome.get("seconds"),
        "ringfence.ended_by": outcome.get("ended_by"),
        "ringfence.violations": stopped,
        "ringfence.workspace": session.get("workspace"),
        "ringfence.backend": body.get("backend"),
        "ringfence.terms.digest": body.get("digest"),
    }
    kept: dict[str, str | int | float | bool | list[str]] = {}
    for name, value in found.items():
        if isinstance(value, bool):
            kept[name] = value
        elif (number := reading.number(value)) is not None:
            kept[name] = number
        elif isinstance(value, list):
            kept |= {name: [_clean(reading.text(item)) for item in value]} if value else {}
        elif said := reading.text(value):
            kept[name] = said if name == "log.record.original" else _clean(said)
    return kept


def _batches(deeds: Iterable[DecisionTrail]) -> Iterator[list[DecisionTrail]]:
    batch: list[DecisionTrail] = []
    size = 0
    for deed in deeds:
        own = len(json_line(deed))
        if batch and (len(batch) >= BATCH or size + own > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(deed)
        size += own
    if batch:
        yield batch


def resource(deed: DecisionTrail, name: str) -> "Resource":
    """Return the resource that logged: the process of the session.

    OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME add fields and take precedence.
    """
    import os

    from opentelemetry.sdk.resources import Resource

    session = reading.session(deed)
    program, _, version = reading.text(session.get("program")).partition(" ")
    found: dict[str, object] = {
        "service.name": os.environ.get("OTEL_SERVICE_NAME") or program or "ringfence",
        "service.version": version,
        "service.instance.id": name,
        "process.pid": session.get("process"),
        "process.user.id": session.get("user"),
        "process.runtime.name": "python",
        "process.runtime.version": session.get("python"),
        "os.description": session.get("kernel"),
    }
    kept = {
        key: _clean(value) if isinstance(value, str) else value for key, value in found.items() if value or value == 0
    }
    return Resource.create(kept)  # type: ignore[arg-type]  # texts and numbers only


def _verdict(deed: DecisionTrail) -> str:
    return "denied" if reading.denied(deed) else "asked" if reading.asked(deed) else "allowed"


def _message(deed: DecisionTrail) -> str:
    tool = one_line(reading.text(reading.body(deed).get("tool")), 100)
    return f"{_verdict(deed)}: {tool} `{one_line(reading.action(deed), 1_000)}`: {one_line(reading.why(deed), 1_000)}"


def _clean(said: str) -> str:
    """Return the text cut to the longest value and without lone surrogates, which protobuf rejects."""
    cut = said if len(said) <= _TEXT else f"{said[:_TEXT]}... ({len(said)} characters)"
    return cut.encode("utf-8", "replace").decode()


def _nanoseconds(value: object) -> int:
    try:
        return int(datetime.fromisoformat(reading.text(value)).timestamp() * 1000) * 1_000_000
    except (ValueError, OverflowError):
        return 0


def _plain(data: bytes, fields: Sequence[str]) -> bytes:
    """Return the body of an answer with these `Content-Encoding` fields. Raises PackedError."""
    packed = layer_of(fields)
    if packed is None:
        raise PackedError("is compressed in a way that was not asked for")
    if packed:
        return gunzip(data, ANSWER_LIMIT)
    if len(data) > ANSWER_LIMIT:
        raise PackedTooLarge("is more than was expected")
    return data


def _why(error: Exception | None) -> str:
    """Return a short reason for a connection failure."""
    said = str(error)
    known = (
        ("Connection refused", "nobody listens there"),
        ("Name or service not known", "its name is not known"),
        ("name resolution", "its name is not known"),
        ("No route to host", "there is no way to that host"),
        ("certificate verify failed", "its certificate is not one that is trusted here"),
        ("redirects", "it wants the record sent to another address"),
        ("timed out", "it did not answer in time"),
        ("Timeout", "it did not answer in time"),
    )
    return next((plain for mark, plain in known if mark in said), one_line(said, 200) if error else "it did not answer")


def _said(content: bytes, kind: str) -> str:
    """Return the message of an error response: OTLP answers with a `Status` in protobuf, other servers with any
    text."""
    if "protobuf" in kind:
        try:
            from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]  # comes with the exporter

            return str(Status.FromString(content[:65_536]).message)
        except Exception:  # a decoder of foreign bytes; the status code says enough
            return ""
    return content[:2_000].decode("utf-8", "replace")
