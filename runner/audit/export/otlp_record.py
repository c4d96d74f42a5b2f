"""Decisions as OTLP log records: fields with the names of the semantic conventions, severity, and the resource."""

import hashlib
import time
from typing import TYPE_CHECKING

from runner import VERSION
from runner.audit.decisions import DecisionTrail
from runner.audit.export.table import flat
from runner.audit.fields import beginning, items, mapping, milliseconds, number
from runner.audit.list_view import decision_json
from runner.text.sanitize import one_line

if TYPE_CHECKING:
    from opentelemetry.sdk._logs import ReadableLogRecord
    from opentelemetry.sdk.resources import Resource

_SERIOUS = ("secret", "denied", "dangerous", "unknown")
# The fields of `flat` that have no name in the semantic conventions.
_OWN = (
    "log", "verdict", "asked", "mode", "ruling", "action", "why", "answer", "answered_by", "hosts", "seconds",
    "ended_by", "violations", "workspace",
)  # fmt: skip
_TEXT = 4_000  # characters of one attribute; `log.record.original` has all of them


def log_record(deed: DecisionTrail, resources: "dict[str, Resource]") -> "ReadableLogRecord":
    """Return the log record of a decision. The resource of each new session is added to `resources`."""
    from opentelemetry._logs import LogRecord, SeverityNumber
    from opentelemetry.sdk._logs import ReadableLogRecord
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

    body = deed.body
    name = beginning(body.get("session"))
    if name not in resources:
        resources[name] = resource(deed, name)
    ids = SpanContext(
        int.from_bytes(hashlib.sha256(f"session {name}".encode("utf-8", "surrogatepass")).digest()[:16], "big"),
        int.from_bytes(hashlib.sha256(f"record {deed.record.hash}".encode()).digest()[:8], "big"),
        is_remote=False,
        trace_flags=TraceFlags(0),
    )
    severity = SeverityNumber.INFO2 if deed.asked else SeverityNumber.INFO
    if deed.denied:
        severity = SeverityNumber.ERROR if deed.tier in _SERIOUS else SeverityNumber.WARN
    tool = one_line(beginning(body.get("tool")), 100)
    log = LogRecord(
        timestamp=milliseconds(body.get("time")) * 1_000_000,
        observed_timestamp=time.time_ns(),
        context=set_span_in_context(NonRecordingSpan(ids)),
        severity_number=severity,
        severity_text=_verdict(deed),
        body=f"{_verdict(deed)}: {tool} `{one_line(deed.action, 1_000)}`: {one_line(deed.why, 1_000)}",
        attributes=attributes(deed),
        event_name="ringfence.decision",
    )
    return ReadableLogRecord(log, resources[name], InstrumentationScope("ringfence", VERSION))


def attributes(deed: DecisionTrail) -> dict[str, str | int | float | bool | list[str]]:
    """Return the fields of a record, with names of the semantic conventions if they exist. Empty fields are omitted."""
    body, values = deed.body, flat(deed)
    model = values["model"]
    named: dict[str, object] = {
        "session.id": values["session"],
        "gen_ai.operation.name": "execute_tool" if model else None,
        "gen_ai.conversation.id": values["session"] if model else None,
        "gen_ai.request.model": model,
        "gen_ai.tool.name": values["tool"],
        "security_rule.name": deed.rule,
        "security_rule.category": deed.tier,
        "security_rule.ruleset.name": "ringfence",
        "process.exit.code": values["status"],
        "vcs.ref.head.revision": deed.start.get("commit"),
        "log.record.uid": deed.record.hash,
        "log.record.original": decision_json(deed),
        "ringfence.record.id": deed.record.id,
        "ringfence.tiers": items(body.get("tiers")),
        "ringfence.action.type": mapping(body.get("action")).get("type"),
        "ringfence.backend": body.get("backend"),
        "ringfence.terms.digest": body.get("digest"),
        **{f"ringfence.{name}": values[name] for name in _OWN},
    }
    recorded: dict[str, str | int | float | bool | list[str]] = {}
    for name, value in named.items():
        if isinstance(value, bool):
            recorded[name] = value
        elif (amount := number(value)) is not None:
            recorded[name] = amount
        elif isinstance(value, list):
            recorded |= {name: [_clean(beginning(item)) for item in value]} if value else {}
        elif words := beginning(value):
            recorded[name] = words if name == "log.record.original" else _clean(words)
    return recorded


def resource(deed: DecisionTrail, name: str) -> "Resource":
    """Return the resource of the session `name`: its process.

    The name of the service is, in order of precedence: OTEL_SERVICE_NAME, `service.name` in OTEL_RESOURCE_ATTRIBUTES,
    the recorded program. Other fields in OTEL_RESOURCE_ATTRIBUTES are added, and replace no recorded field.
    """
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    session = deed.start
    program, _, version = beginning(session.get("program")).partition(" ")
    given = str(OTELResourceDetector().detect().attributes.get("service.name", ""))  # of both variables
    found: dict[str, object] = {
        "service.name": given or program or "ringfence",
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
    return "denied" if deed.denied else "asked" if deed.asked else "allowed"


def _clean(text: str) -> str:
    """Return the text cut to _TEXT characters, and without lone surrogates, which protobuf rejects."""
    cut = text if len(text) <= _TEXT else f"{text[:_TEXT]}... ({len(text)} characters)"
    return cut.encode("utf-8", "replace").decode()
