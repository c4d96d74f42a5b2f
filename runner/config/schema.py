"""The JSON Schema of a configuration file, for editors (Taplo, Even Better TOML) and other programs."""

import json
from importlib import resources
from typing import Any

FILE = "config.schema.json"


def schema() -> dict[str, Any]:
    """Made anew from the table of keys."""
    from runner.config.model import model

    raw = model().model_json_schema()
    found: dict[str, Any] = _plain(raw, raw.get("$defs", {}))
    head = {
        "$schema": "http://json-schema.org/draft-07/schema#",  # the newest that all of those editors know
        "title": "The configuration of ringfence",
    }
    return head | {name: value for name, value in found.items() if name not in ("$defs", "description")}


def schema_text() -> str:
    """As it is shipped."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def shipped_schema() -> str:
    """The file that lies beside this module; a test compares it with the table."""
    return (resources.files("runner.config") / FILE).read_text("utf-8")


def _plain(node: Any, known: dict[str, Any]) -> Any:
    """Without references, titles that only repeat the key, and defaults that are none."""
    if isinstance(node, list):
        return [_plain(each, known) for each in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        node = known[node["$ref"].rpartition("/")[2]] | {name: value for name, value in node.items() if name != "$ref"}
    return {
        name: {key: _plain(value, known) for key, value in below.items()}
        if name == "properties"
        else _plain(below, known)
        for name, below in node.items()
        if name != "title" and not (name == "default" and below is None)
    }
