"""Text and JSON of `agent config show`: the values in force, the places that set them, and what they override."""

from collections.abc import Iterable, Iterator, Mapping

from policy.model.frozen import dataclass
from policy.toml.profile import shapes
from policy.toml.schema import KeyPath, TomlDocument, TomlEntry, Value, ValueType, dotted, read, value_type_of
from runner.config.load import PACKAGED, packaged_text
from runner.config.schema import KEYS, LISTS, SHAPES, key_of
from runner.config.settings import ConfigLayer, SettingOrigin, SettingOrigins, Settings
from runner.config.toml_value import entry_toml, value_toml
from runner.problems import usage
from runner.text.phrases import similar
from runner.text.sanitize import visible

_WIDE = 48  # characters of a value in a line with its place


BUILT_IN = "the default"


def origins(settings: Settings) -> SettingOrigins:
    """Return, by path, all places that set the key, lowest layer first."""
    by_path: dict[KeyPath, list[SettingOrigin]] = {}
    shipped = _packaged()
    for key in KEYS:
        if key.path in shipped.values:
            place = SettingOrigin(ConfigLayer.PACKAGED, PACKAGED, shipped.line(key.path), shipped.values[key.path])
            by_path[key.path] = [place]
        elif key.default is not None and "*" not in key.path:
            by_path[key.path] = [SettingOrigin(ConfigLayer.PACKAGED, BUILT_IN, 0, key.default)]
    for given in settings.layers:
        for path, value in given.document.values.items():
            source, line = given.place(path)
            by_path.setdefault(path, []).append(SettingOrigin(given.layer, source, line, value, path in given.left_out))
    return {path: tuple(places) for path, places in by_path.items()}


def places_in_force(path: KeyPath, places: tuple[SettingOrigin, ...]) -> tuple[SettingOrigin, ...]:
    """Return the places whose value is in force: the highest, or all if every layer adds to the value."""
    valid = tuple(place for place in places if not place.ignored)
    return valid if key_of(path).adds else valid[-1:]


def packaged_values() -> Mapping[KeyPath, Value]:
    """Return the values of the packaged profile, by path."""
    return _packaged().values


def _packaged() -> TomlDocument:
    """Return the values of the packaged profile for keys that may be configured. The profile has further keys."""
    document = read(packaged_text(), PACKAGED, shapes())
    known = {path: value for path, value in document.values.items() if path in SHAPES}
    return TomlDocument(PACKAGED, document.text, known)


@dataclass(frozen=True, slots=True)
class ShownKey:
    """One key for display.

    Attributes:
        path: the path of the key.
        value: value in force; None if no place sets the key.
        by: places that set this value.
        not_by: places whose value is overridden or ignored.
    """

    path: KeyPath
    value: object
    by: tuple[SettingOrigin, ...]
    not_by: tuple[SettingOrigin, ...]


def list_keys(settings: Settings, name: str | None) -> tuple[ShownKey, ...]:
    """Return every key in the order of the table; with `name`, that key or the keys of that table. Raise a usage
    error.
    """
    places_of = origins(settings)
    paths = [path for path in SHAPES if "*" not in path and path != ("version",)]
    for path in (*settings.values, *places_of):  # rows with names of the user
        if path not in paths and path != ("version",):
            paths.append(path)
    found = []
    for path in _below(paths, name):
        places = places_of.get(path, ())
        by = places_in_force(path, places)
        found.append(
            ShownKey(path, _value(settings, path, by), by, tuple(place for place in places if place not in by))
        )
    return tuple(found)


def entries(settings: Settings, name: str | None) -> tuple[tuple[TomlEntry, ConfigLayer], ...]:
    """Return every `[[list]]` entry in force with its layer; with `name`, those of that list."""
    layers = {given.document.source: given.layer for given in settings.layers}
    return tuple((each, layers[each.source]) for each in settings.lists if name in (None, each.name))


def _below(paths: list[KeyPath], name: str | None) -> Iterator[KeyPath]:
    if name is None:
        yield from paths
        return
    wanted = split(name)
    below = [path for path in paths if path[: len(wanted)] == wanted]
    if not below and value_type_of(wanted, SHAPES) is not None:
        below = [wanted]
    named_rows = any(path[: len(wanted) + 1] == (*wanted, "*") for path in SHAPES)  # such as `price`, without an entry
    if not below and not named_rows and name not in [each.name for each in LISTS]:
        raise no_key(name)
    yield from below


def split(name: str) -> KeyPath:
    """Return the parts of a path such as `a.b."c.d"`."""
    words, at, quoted = [], "", False
    for char in name:
        if char == '"':
            quoted = not quoted
        elif char == "." and not quoted:
            words.append(at)
            at = ""
        else:
            at += char
    return (*words, at)


def no_key(name: str) -> Exception:
    """Return the usage error for an unknown key, which names a similar key if there is one."""
    known = [key.name for key in KEYS]
    known += sorted({name[:index] for name in known for index, char in enumerate(name) if char == "."})
    known += [each.name for each in LISTS]
    near = similar(name, known) or [key for key in known if key.rpartition(".")[2] == name][:1]
    fix = f"did you mean `{near[0]}`?" if near else "`agent config show` lists every key"
    return usage(f"there is no key `{name}`", "it is not a key of the configuration", fix)


def _value(settings: Settings, path: KeyPath, by: tuple[SettingOrigin, ...]) -> object:
    if key_of(path).adds and by:
        return tuple(dict.fromkeys(entry for place in by for entry in place.value if isinstance(place.value, tuple)))  # type: ignore[attr-defined]  # a list, as `adds` says
    return by[-1].value if by else None


# --- as text ----------------------------------------------------------------------------------------------------------


def listing(
    found: Iterable[ShownKey],
    lists: Iterable[tuple[TomlEntry, ConfigLayer]],
    *,
    effective: bool,
    written: Mapping[str, str],
    cut: bool = True,
) -> str:
    """Return the listing: one line for each key.

    With `effective`, the line has the layer and the place too, and overridden values follow. `written` maps beginnings
    of paths to a short form, such as `~/` for the home. With `cut`, a long value ends in `…`.
    """
    rows: list[tuple[str, str, str]] = []  # text, layer, place

    def add(start: str, path: KeyPath, place: SettingOrigin) -> None:
        said = _short(_said(path, place.value), cut and effective)
        rows.append((f"{start} {said}", place.layer, _place(place, written)))

    for each in found:
        name = dotted(each.path)
        if each.value is None:
            rows.append((f"# {name} is not set", "", ""))
        elif len(each.by) > 1:
            rows.append((f"{name} = {_short(_said(each.path, each.value), cut and effective)}", "", ""))
            for part in each.by if effective else ():
                add("    has", each.path, part)
        else:
            add(f"{name} =", each.path, each.by[-1])
        for place in reversed(each.not_by if effective else ()):
            add(f"    {'ignores' if place.ignored else 'overrides'}", each.path, place)
    for entry, layer in lists:
        body = entry_toml(entry)
        if effective:
            body = [_short(", ".join(body), cut)]
        text = (" " if effective else "\n").join((f"[[{entry.name}]]", *body))
        rows.append((text, layer, f"{near(entry.source, written)}:{entry.line}"))
    if not effective:
        return "\n".join(text for text, _, _ in rows)
    wide = min(max((len(text) for text, _, _ in rows), default=0), 60)
    return "\n".join(f"{text:<{wide}}  {layer:<11} {place}".rstrip() for text, layer, place in rows)


def _said(path: KeyPath, value: object) -> str:
    """Return a value as a user would write it."""
    return value_toml(value, key_of(path).shape)  # type: ignore[arg-type]  # as TOML reads it


def _short(text: str, cut: bool) -> str:
    return text if not cut or len(text) <= _WIDE else f"{text[: _WIDE - 1]}…"


def _place(place: SettingOrigin, written: Mapping[str, str]) -> str:
    return f"{near(place.source, written)}:{place.line}" if place.line else place.source


def near(path: str, written: Mapping[str, str]) -> str:
    """Return a path for display, with its beginning shortened by `written`."""
    start = next((each for each in written if path.startswith(each)), "")
    return visible(written[start] + path[len(start) :] if start else path, lines=False)


# --- as JSON ----------------------------------------------------------------------------------------------------------


def value_json(key: ShownKey) -> dict[str, object]:
    """Return the value of one key with its places, as JSON."""
    shape = key_of(key.path).shape
    return {
        "value": _plain(key.value, shape),
        "from": [_origin(place, shape) for place in key.by],
        "overridden": [_origin(place, shape) for place in key.not_by if not place.ignored],
        "ignored": [_origin(place, shape) for place in key.not_by if place.ignored],
    }


def as_json(
    settings: Settings, found: Iterable[ShownKey], lists: Iterable[tuple[TomlEntry, ConfigLayer]]
) -> dict[str, object]:
    """Return every value with its places, as JSON."""
    return {
        "values": {dotted(each.path): value_json(each) for each in found},
        "lists": [
            {
                "list": entry.name,
                "layer": str(layer),
                "file": entry.source,
                "line": entry.line,
                "values": {key: _plain(value) for key, value in entry.values.items()},
            }
            for entry, layer in lists
        ],
        "notices": list(settings.notices),
    }


def _origin(place: SettingOrigin, shape: ValueType) -> dict[str, object]:
    value = _plain(place.value, shape)
    return {"layer": str(place.layer), "source": place.source, "line": place.line or None, "value": value}


def _plain(value: object, shape: ValueType | None = None) -> object:
    if shape is ValueType.TABLE and isinstance(value, tuple):
        return dict(value)
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
