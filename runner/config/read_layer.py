"""One file against the table of keys: what can be used of it, and everything that is wrong with the rest."""

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from policy.toml.schema import Path as KeyPath
from policy.toml.schema import TomlDocument, TomlError, validate
from runner.config.migrations import renew
from runner.config.read_file import as_text
from runner.config.schema import ENTRIES, SHAPES, Fault, key_of, list_of
from runner.config.settings import Given, Layer


def read_layer(data: bytes, path: Path, layer: Layer, trusted: Mapping[str, str]) -> Given:
    """Return the settings of a file. Raises TomlError or ConfigError for the first fault."""
    document, faults = read_all(as_text(data, path), str(path), most=1)
    if faults:
        raise faults[0]
    return given_as(document, data, path, layer, trusted)


def given_as(document: TomlDocument, data: bytes, path: Path, layer: Layer, trusted: Mapping[str, str]) -> Given:
    """Return the values of a file as a layer, which is trusted if its exact bytes are trusted."""
    digest = sha256(data).hexdigest()
    return Given(layer, document, digest, layer.came_along and trusted.get("/".join(path.parts[-2:])) == digest)


def read_all(text: str, source: str, *, most: int) -> tuple[TomlDocument, list[TomlError]]:
    """Return the usable part of a text, and up to `most` faults."""
    newer: Fault | None = None

    def look(document: dict[str, object]) -> Mapping[KeyPath, KeyPath]:
        nonlocal newer
        version = document.get("version")
        newer = key_of(("version",)).fault(version) if isinstance(version, int) else None
        if newer:
            document.clear()  # whatever else looks wrong may be right there
        return renew(document)

    document, faults = validate(text, source, SHAPES, ENTRIES, most=most, renew=look)
    if newer:
        return document, [document.error_at(("version",), *newer)]
    values, entries = {}, []
    for path, value in document.values.items():
        if fault := key_of(path).fault(value):
            faults.append(document.error_at(path, *fault))
        else:
            values[path] = value
    for entry in document.entries:
        if len(faults) >= most:
            break
        if error := list_of(entry.name).fault(entry):
            faults.append(error)
        else:
            entries.append(entry)
    for name in ENTRIES:
        several = [entry for entry in document.entries if entry.name == name]
        if len(several) > (allowed := list_of(name).most):
            faults.append(
                several[allowed].error_at("", f"a file holds at most {allowed} {name}s", "say more with fewer")
            )
    return replace(document, values=values, entries=tuple(entries)), faults[:most]
