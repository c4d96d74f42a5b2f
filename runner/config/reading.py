"""One file against the table of keys: what can be used of it, and everything that is wrong with the rest."""

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from policy.keyed import Keyed, KeyedError, survey
from runner.config.keys import ENTRIES, SHAPES, VERSION, key_of, list_of
from runner.config.layer import Given, Layer
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
    keyed, faults = survey(text, source, SHAPES, ENTRIES, most=most)
    for path, value in keyed.values.items():
        if len(faults) >= most:
            break
        if fault := key_of(path).fault(value):
            faults.append(keyed.complain(path, *fault))
    for entry in keyed.entries:
        check = list_of(entry.name).check
        if check is None or len(faults) >= most:
            continue
        try:
            check(entry)
        except KeyedError as error:
            faults.append(error)
    version = keyed.values.get(("version",), VERSION)
    if isinstance(version, int) and version > VERSION:
        why = f"it was written for a newer ringfence: this one knows the formats up to {VERSION}"
        faults.insert(0, keyed.complain(("version",), why, "install a newer ringfence, or take out what is new in it"))
    return keyed, faults
