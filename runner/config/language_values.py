"""Checks of the values of `[language.NAME]`, the settings of a language server."""

import json
from collections.abc import Callable, Mapping

from policy.toml.schema import Value
from runner.config.server_values import bounded_fault, texts_in, variables_fault
from runner.config.validators import Fault


def _command(value: Value) -> Fault | None:
    return bounded_fault(value) if str(value).strip() else ("it is empty", "write the name or the path of a program")


def _files(value: Value) -> Fault | None:
    texts = texts_in(value)
    if not texts or any("/" in text or not text for text in texts):
        return "a pattern is compared with the name of a file, without its folder", 'write it like `["*.go"]`'
    return bounded_fault(value)


def _object(value: Value) -> Fault | None:
    try:
        found = json.loads(str(value))
    except (ValueError, RecursionError):
        found = None
    return None if isinstance(found, dict) else ("it is not a JSON object", """write it like '{"key": "value"}'""")


CHECKS: Mapping[str, Callable[[Value], Fault | None]] = {
    "command": _command,
    "args": bounded_fault,
    "files": _files,
    "env": variables_fault,
    "read": bounded_fault,
    "settings": _object,
    "options": _object,
}
