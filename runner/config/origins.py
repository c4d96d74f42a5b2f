"""Which place says what about a key. Worked out only for those who ask: a session does not."""

from collections.abc import Mapping

from policy.toml.schema import Path as KeyPath
from policy.toml.schema import TomlDocument, Value, read
from runner.config.load import PACKAGED, packaged_text
from runner.config.schema import KEYS, SHAPES, key_of
from runner.config.settings import Layer, Origin, Origins, Settings

BUILT_IN = "the default"


def origins(settings: Settings) -> Origins:
    """By path, everybody who says something, lowest layer first."""
    found: dict[KeyPath, list[Origin]] = {}
    shipped = _packaged()
    for key in KEYS:
        if key.path in shipped.values:
            place = Origin(Layer.PACKAGED, PACKAGED, shipped.line(key.path), shipped.values[key.path])
            found[key.path] = [place]
        elif key.default is not None:
            found[key.path] = [Origin(Layer.PACKAGED, BUILT_IN, 0, key.default)]
    for given in settings.layers:
        for path, value in given.keyed.values.items():
            source, line = given.place(path)
            found.setdefault(path, []).append(Origin(given.layer, source, line, value, path in given.left_out))
    return {path: tuple(places) for path, places in found.items()}


def counts(path: KeyPath, places: tuple[Origin, ...]) -> tuple[Origin, ...]:
    """Those of `places` whose value is in force: one, or all of them where every layer adds."""
    heard = tuple(place for place in places if not place.ignored)
    return heard if key_of(path).adds else heard[-1:]


def packaged_values() -> Mapping[KeyPath, Value]:
    """What the packaged profile says, by path."""
    return _packaged().values


def _packaged() -> TomlDocument:
    """What the packaged profile says of the keys that may be set; it has others, too."""
    from policy.toml.profile import shapes

    keyed = read(packaged_text(), PACKAGED, shapes())
    return TomlDocument(PACKAGED, keyed.text, {path: value for path, value in keyed.values.items() if path in SHAPES})
