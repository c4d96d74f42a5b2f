"""Places that set each key. Computed only on request: a session does not need them."""

from collections.abc import Mapping

from policy.toml.schema import Path as KeyPath
from policy.toml.schema import TomlDocument, Value, read
from runner.config.load import PACKAGED, packaged_text
from runner.config.schema import KEYS, SHAPES, key_of
from runner.config.settings import ConfigLayer, SettingOrigin, SettingOrigins, Settings

BUILT_IN = "the default"


def origins(settings: Settings) -> SettingOrigins:
    """Return, by path, all places that set the key, lowest layer first."""
    found: dict[KeyPath, list[SettingOrigin]] = {}
    shipped = _packaged()
    for key in KEYS:
        if key.path in shipped.values:
            place = SettingOrigin(ConfigLayer.PACKAGED, PACKAGED, shipped.line(key.path), shipped.values[key.path])
            found[key.path] = [place]
        elif key.default is not None:
            found[key.path] = [SettingOrigin(ConfigLayer.PACKAGED, BUILT_IN, 0, key.default)]
    for given in settings.layers:
        for path, value in given.document.values.items():
            source, line = given.place(path)
            found.setdefault(path, []).append(SettingOrigin(given.layer, source, line, value, path in given.left_out))
    return {path: tuple(places) for path, places in found.items()}


def counts(path: KeyPath, places: tuple[SettingOrigin, ...]) -> tuple[SettingOrigin, ...]:
    """Return the places whose value is in force: one, or all if every layer adds to the value."""
    heard = tuple(place for place in places if not place.ignored)
    return heard if key_of(path).adds else heard[-1:]


def packaged_values() -> Mapping[KeyPath, Value]:
    """Return the values of the packaged profile, by path."""
    return _packaged().values


def _packaged() -> TomlDocument:
    """Return the values of the packaged profile for keys that may be configured. The profile has further keys."""
    from policy.toml.profile import shapes

    document = read(packaged_text(), PACKAGED, shapes())
    return TomlDocument(
        PACKAGED, document.text, {path: value for path, value in document.values.items() if path in SHAPES}
    )
