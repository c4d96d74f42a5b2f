"""A collector on loopback that decodes requests and sends the answers of a test."""

import gzip
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs

Answer = tuple[int, str, bytes]
GOOD: Answer = (200, "application/x-protobuf", ExportLogsServiceResponse().SerializeToString())


def partial(rejected: int, why: str) -> Answer:
    said = ExportLogsServiceResponse()
    said.partial_success.rejected_log_records = rejected
    said.partial_success.error_message = why
    return 200, "application/x-protobuf", said.SerializeToString()


class Collecting:
    """`requests`: path, headers, and the decoded body of each. `answer(number)`: what to say to that one, from 0."""

    def __init__(self, answer: Callable[[int], Answer], address: str) -> None:
        self.answer, self.address = answer, address
        self.requests: list[tuple[str, dict[str, str], ExportLogsServiceRequest]] = []

    @property
    def resources(self) -> list[ResourceLogs]:
        return [each for _, _, request in self.requests for each in request.resource_logs]

    @property
    def records(self) -> list[LogRecord]:
        return [log for each in self.resources for scope in each.scope_logs for log in scope.log_records]


@contextmanager
def collector(
    answer: Callable[[int], Answer] = lambda _: GOOD, fields: tuple[tuple[str, str], ...] = ()
) -> Iterator[Collecting]:
    """A server whose answers have `fields` in their heads as well."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                data = gzip.decompress(data)
            request = ExportLogsServiceRequest.FromString(data)
            status, kind, body = seen.answer(len(seen.requests))
            seen.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}, request))
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            for field in fields:
                self.send_header(*field)
            if 300 <= status < 400:
                self.send_header("location", "/elsewhere")
            if status == 503:
                self.send_header("retry-after", "1000")  # or it would be tried again, and again
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    seen = Collecting(answer, f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def values(attributes: object) -> dict[str, object]:
    """Attributes as Python has them."""
    found: dict[str, object] = {}
    for each in attributes:  # type: ignore[attr-defined]  # protobuf's own sequence
        kind = each.value.WhichOneof("value")
        value = getattr(each.value, kind) if kind else None
        found[each.key] = [item.string_value for item in value.values] if kind == "array_value" else value
    return found
