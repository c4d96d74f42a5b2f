"""OTLP over HTTP: sends each decision as one log record to a collector.

SOURCE: opentelemetry.io/docs/specs/otel/logs/data-model and /docs/specs/semconv. The names of these conventions are
used where they exist: `gen_ai.*`, `process.*`, `session.id`, `security_rule.*`, `vcs.*`, `log.record.*`; other names
begin with `ringfence.`. Headers, certificates, timeouts and compression come from OTEL_EXPORTER_OTLP_*, never from the
command line.
"""

import contextlib
import io
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.audit.decisions import DecisionTrail
from runner.audit.export.otlp_record import log_record
from runner.audit.fields import beginning
from runner.audit.list_view import decision_json
from runner.problems import Exit, Stopped, usage
from runner.text.gunzip import PackedError, PackedTooLarge, gunzip, layer_of
from runner.text.http_address import AddressFault, HttpAddress, read_address
from runner.text.sanitize import one_line

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

PATH = "/v1/logs"
BATCH, BATCH_BYTES = 512, 1 << 20  # records, and characters of their originals, of one request
ENDPOINTS = ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
ANSWER_LIMIT = 1 << 20  # bytes of a response, both compressed and decompressed


@dataclass(frozen=True, slots=True)
class Sent:
    """Progress of an export.

    Attributes:
        records: number of records that the collector accepted
        requests: number of requests with these records
        last: time of the last accepted record
    """

    records: int
    requests: int
    last: str = ""


class Unsent(Stopped):
    """Failure of a request. `sent` is the progress before the request; `first` is the time of its first record."""

    def __init__(self, problem: Problem, sent: Sent, first: str) -> None:
        super().__init__(problem, Exit.FAILED)
        self.sent, self.first = sent, first


def endpoint(given: str | None, environ: Mapping[str, str]) -> str:
    """Return the complete address of the collector: `given`, whose path may be missing, or that of OTEL_EXPORTER_OTLP_*
    if `given` is None.

    Raises a usage error for an address that cannot be used.
    """
    if given is None:
        whole, base = (environ.get(name, "").strip() for name in ENDPOINTS)
        if not whole and not base:
            why = "records are sent only to a named collector"
            raise usage("no collector is named", why, "add --endpoint http://HOST:4318")
        given = whole or base.rstrip("/") + PATH
    found = read_address(given)
    if found is AddressFault.CREDENTIAL:
        why = "an address is shown and logged, and other users can read it on the command line"
        fix = "put it into OTEL_EXPORTER_OTLP_HEADERS, for example `authorization=Bearer ...`"
        raise usage("the address of the collector contains a credential", why, fix)
    if isinstance(found, AddressFault):
        fix = "put a key into its headers" if found is AddressFault.QUERY else "use http://HOST:4318"
        raise usage(f"`{given}` is not a collector address", found.value, fix)
    return given if found.path else f"{given.rstrip('/')}{PATH}"


def in_clear(address: str) -> bool:
    """Return True if data to this address is not encrypted in the network: plain HTTP to another machine."""
    found = read_address(address)
    return isinstance(found, HttpAddress) and found.in_clear


def send(deeds: Iterable[DecisionTrail], address: str) -> Sent:
    """Send the decisions in their order, and return the progress.

    Raises Unsent if a request fails after the retries of the SDK, or if the collector rejects a record; Stopped if the
    SDK is not installed or OTEL_EXPORTER_OTLP_* is invalid.
    """
    done = Sent(0, 0)
    with contextlib.closing(Collector(address)) as collector:
        for batch in _batches(deeds):
            done = collector.take(batch, done)
    return done


class Collector:
    """Connection to one collector.

    The constructor raises Stopped if the SDK is not installed or OTEL_EXPORTER_OTLP_* is invalid.
    """

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
                except Exception as error:  # raised again, since the exporter decides about further attempts
                    self.error = error
                    raise
                return self.answer

        class Bounded(requests.adapters.HTTPAdapter):
            """Adapter that limits each response to ANSWER_LIMIT bytes before `requests` decompresses all layers of
            it."""

            def send(  # type: ignore[override]  # all options except `stream` are passed on unchanged
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
        self._session.max_redirects = 0  # the record and its headers are sent to the configured address only
        self._session.auth = lambda request: request  # without credentials from .netrc
        # The SDK logs failures as well; here the caller reports them.
        logger = logging.getLogger("opentelemetry")
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
        try:
            self._exporter = OTLPLogExporter(endpoint=address, session=self._session)
        except ValueError as error:
            why = one_line(str(error), 200)
            raise usage("OTEL_EXPORTER_OTLP_* cannot be used", why, "correct or unset that variable") from None
        self._resources: dict[str, Resource] = {}

    def close(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # as in the library

    def take(self, batch: list[DecisionTrail], sent: Sent) -> Sent:
        """Send one batch, and return the progress after it; `sent` is the progress before it. Raises Unsent."""
        from opentelemetry.sdk._logs.export import LogRecordExportResult

        first = beginning(batch[0].body.get("time"))
        result = self._exporter.export([log_record(deed, self._resources) for deed in batch])
        if result is not LogRecordExportResult.SUCCESS:
            raise Unsent(self._problem(), sent, first)
        self._kept(sent, first)
        return Sent(sent.records + len(batch), sent.requests + 1, beginning(batch[-1].body.get("time")) or sent.last)

    def _problem(self) -> Problem:
        what = f"the collector at `{self.address}` did not accept the records"
        answer, error = self._session.answer, self._session.error
        if error is not None or answer is None:
            return Problem(what, _why(error), "check the address, and that the collector accepts OTLP over HTTP")
        kind = answer.headers.get("content-type", "")
        if answer.status_code < 400:
            why = f"it answered {answer.status_code} with `{one_line(kind, 60)}`, unlike a collector"
            return Problem(what, why, "check the address: another program answers there")
        said = one_line(_said(answer.content, kind), 300)
        why = f"it answered {answer.status_code}" + (f": {said}" if said else "")
        credential = "put its credential into OTEL_EXPORTER_OTLP_HEADERS"
        whole = f"write the whole address; the path for logs is usually {PATH}"
        fixes = {401: credential, 403: credential, 404: whole}
        return Problem(what, why, fixes.get(answer.status_code, "read the log of the collector"))

    def _kept(self, sent: Sent, first: str) -> None:
        """Raise Unsent if the collector reports that it discarded a part of the last batch."""
        from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

        answer = self._session.answer
        if answer is None:
            return
        kind = answer.headers.get("content-type", "")
        if answer.status_code >= 300 or "html" in kind:  # a success for the exporter
            raise Unsent(self._problem(), sent, first)
        if "protobuf" not in kind:
            return
        try:
            partial = ExportLogsServiceResponse.FromString(answer.content).partial_success
        except Exception:  # the decoder may raise anything for foreign bytes; the status reported success
            return
        if partial.rejected_log_records > 0:
            said = one_line(partial.error_message, 300) or "it gave no reason"
            what = f"the collector at `{self.address}` rejected {partial.rejected_log_records} records of a batch"
            fix = "read the log of the collector, then send them again"
            raise Unsent(Problem(what, said, fix), sent, first)


def _batches(deeds: Iterable[DecisionTrail]) -> Iterator[list[DecisionTrail]]:
    batch: list[DecisionTrail] = []
    size = 0
    for deed in deeds:
        own = len(decision_json(deed))
        if batch and (len(batch) >= BATCH or size + own > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(deed)
        size += own
    if batch:
        yield batch


def _plain(data: bytes, fields: Sequence[str]) -> bytes:
    """Return the body of an answer with these `Content-Encoding` fields. Raises PackedError."""
    packed = layer_of(fields)
    if packed is None:
        raise PackedError("has an unsupported compression")
    if packed:
        return gunzip(data, ANSWER_LIMIT)
    if len(data) > ANSWER_LIMIT:
        raise PackedTooLarge("is too long")
    return data


def _why(error: Exception | None) -> str:
    """Return a short reason for a connection failure."""
    said = str(error)
    known = (
        ("Connection refused", "no program listens at that address"),
        ("Name or service not known", "its host name is unknown"),
        ("name resolution", "its host name is unknown"),
        ("No route to host", "there is no route to that host"),
        ("certificate verify failed", "its certificate is not trusted here"),
        ("redirects", "it redirects to another address"),
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
        except Exception:  # the decoder may raise anything for foreign bytes; the status code is sufficient
            return ""
    return content[:2_000].decode("utf-8", "replace")
