"""The reader of one file or one variable `RINGFENCE_*`, which checks the values by the table of keys."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from policy.model.verdict import Problem
from policy.toml.schema import KeyPath, TomlDocument, TomlError, ValueType, validate, value_of
from runner.config.migrations import renew
from runner.config.schema import ENTRIES, SHAPES, VARIABLES, key_of, list_of
from runner.config.settings import ConfigError, ConfigLayer, LayerValues
from runner.config.validators import Fault

_PREFIX = "RINGFENCE_"
MOST_SERVERS = 64  # tables `[mcp.NAME]` of one file


def read_layer(data: bytes, path: Path, layer: ConfigLayer, trusted: Mapping[str, str]) -> LayerValues:
    """Return the settings of a file. Raise TomlError or ConfigError for the first fault.

    `trusted` maps paths in the folder of the repository to the SHA-256 of trusted content.
    """
    document, faults = read_all(as_text(data, path), str(path), most=1)
    if faults:
        raise faults[0]
    return layer_values(document, data, path, layer, trusted)


def layer_values(
    document: TomlDocument, data: bytes, path: Path, layer: ConfigLayer, trusted: Mapping[str, str]
) -> LayerValues:
    """Return the values of a file as a layer, which is trusted if its exact bytes are trusted."""
    digest = sha256(data).hexdigest()
    return LayerValues(layer, document, digest, layer.came_along and trusted.get("/".join(path.parts[-2:])) == digest)


def read_all(text: str, source: str, *, most: int) -> tuple[TomlDocument, list[TomlError]]:
    """Return the usable part of a text, and up to `most` faults."""
    newer: Fault | None = None
    crowded = False

    def look(document: dict[str, object]) -> Mapping[KeyPath, KeyPath]:
        nonlocal newer, crowded
        version = document.get("version")
        newer = key_of(("version",)).fault(version) if isinstance(version, int) else None
        if newer:
            document.clear()  # other faults may be valid in the newer format
        if isinstance(servers := document.get("mcp"), dict) and len(servers) > MOST_SERVERS:
            crowded = True
            del document["mcp"]  # reading each would take seconds
        return renew(document)

    document, faults = validate(text, source, SHAPES, ENTRIES, most=most, renew=look)
    if newer:
        return document, [document.error_at(("version",), *newer)]
    if crowded:
        why = f"a file contains at most {MOST_SERVERS} tool servers"
        faults.append(document.error_at(("mcp",), why, "use fewer"))
    values, entries, misnamed = {}, [], set[str]()
    for path, value in document.values.items():
        key = key_of(path)
        if key.named and (wrong := key.named(path[1])):
            if path[1] not in misnamed:
                faults.append(document.error_at(path[:2], *wrong))
            misnamed.add(path[1])
        elif fault := key.fault(value):
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
            faults.append(several[allowed].error_at("", f"a file contains at most {allowed} {name}s", "use fewer"))
    return replace(document, values=values, entries=tuple(entries)), faults[:most]


def as_text(data: bytes, path: Path) -> str:
    """Return the bytes of a file as text without a UTF-8 byte order mark. Raises ConfigError."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError.about(path, f"line {line} is not UTF-8 text", "save it as UTF-8") from None


def read_variable(name: str, text: str, elsewhere: Sequence[str]) -> LayerValues:
    """Return the setting of a variable `RINGFENCE_*`. `elsewhere` names variables that other code reads.

    Raises ConfigError.
    """
    key = VARIABLES.get(name)
    if key is None:
        from runner.text.phrases import similar

        known = [*VARIABLES, *elsewhere]
        # The common prefix would make all names similar.
        near = similar(name.removeprefix(_PREFIX), (each.removeprefix(_PREFIX) for each in known))
        fix = f"did you mean `{_PREFIX}{near[0]}`?" if near else f"unset it; the names are {', '.join(known)}"
        raise ConfigError(Problem(f"the variable `{name}` cannot be used", "there is no such setting", fix))
    value = value_of(text if key.shape is ValueType.TEXT else plain(text), key.shape)
    if value is None:
        raise ConfigError.about(f"{name}={text}", f"it must be {key.shape.value}", f"correct or unset {name}")
    if fault := key.fault(value):
        raise ConfigError.about(f"{name}={text}", *fault)
    return LayerValues(ConfigLayer.ENVIRONMENT, TomlDocument(name, "", {key.path: value}))


def plain(text: str) -> int | float | bool | str:
    """Return `text` as a number or a switch; other text, such as `2 GiB`, is returned unchanged."""
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text) if len(text) < 19 and text.isdecimal() else float(text)
    except ValueError:
        return text
