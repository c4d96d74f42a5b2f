"""One file against the table of keys: what can be used of it, and everything that is wrong with the rest."""

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from policy.keyed import Entry, Keyed, KeyedError, survey
from policy.keyed import Path as KeyPath
from runner.config.keys import ENTRIES, SHAPES, key_of, list_of
from runner.config.layer import Given, Layer
from runner.config.migrations import VERSION, renew
from runner.settings_file import as_text


def read_layer(data: bytes, path: Path, layer: Layer, trusted: Mapping[str, str]) -> Given:
    """What a file says. Raises KeyedError or ConfigError for the first thing in it that cannot be used."""
    keyed, faults = read_all(as_text(data, path), str(path), most=1)
    if faults:
        raise faults[0]
    digest = sha256(data).hexdigest()
    return Given(layer, keyed, digest, trusted.get("/".join(path.parts[-2:])) == digest)


def read_all(text: str, source: str, *, most: int) -> tuple[Keyed, list[KeyedError]]:
    """What can be used of a text, and up to `most` things that cannot."""
    newer = False

    def look(document: dict[str, object]) -> Mapping[KeyPath, KeyPath]:
        nonlocal newer
        version = document.get("version")
        if newer := isinstance(version, int) and version > VERSION:
            document.clear()  # whatever else looks wrong may be right there
        return renew(document)

    keyed, faults = survey(text, source, SHAPES, ENTRIES, most=most, renew=look)
    if newer:
        why = f"it was written for a newer ringfence; this one knows the formats up to {VERSION}"
        return keyed, [keyed.complain(("version",), why, "install a newer ringfence")]
    for path, value in keyed.values.items():
        if len(faults) >= most:
            break
        if fault := key_of(path).fault(value):
            faults.append(keyed.complain(path, *fault))
    for entry in keyed.entries:
        if len(faults) < most and (error := _fault(entry)):
            faults.append(error)
    for name in ENTRIES:
        several = [entry for entry in keyed.entries if entry.name == name]
        if len(several) > (allowed := list_of(name).most):
            faults.append(
                several[allowed].complain("", f"a file holds at most {allowed} {name}s", "say more with fewer")
            )
    return keyed, faults[:most]


def _fault(entry: Entry) -> KeyedError | None:
    check = list_of(entry.name).check
    try:
        if check is not None:
            check(entry)
    except KeyedError as error:
        return error
    return None
