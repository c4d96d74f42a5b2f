"""Variables `RINGFENCE_*`, which set the same keys as a file and are checked in the same way."""

from collections.abc import Iterator, Mapping, Sequence

from policy.model.verdict import Problem
from policy.toml.schema import TomlDocument, ValueType, value_of
from runner.config.read_file import ConfigError
from runner.config.schema import VARIABLES
from runner.config.settings import Given, Layer

_PREFIX = "RINGFENCE_"


def given_by(names: Sequence[str], environ: Mapping[str, str], elsewhere: Sequence[str]) -> Iterator[Given]:
    """Return the value of each variable. `elsewhere` names variables that other code reads. Raises ConfigError."""
    for name in names:
        yield given(name, environ[name], elsewhere)


def given(name: str, text: str, elsewhere: Sequence[str]) -> Given:
    key = VARIABLES.get(name)
    if key is None:
        raise _no_variable(name, elsewhere)
    what = f"`{name}={text}` cannot be used"
    value = value_of(text if key.shape is ValueType.TEXT else plain(text), key.shape)
    if value is None:
        raise ConfigError(Problem(what, f"it must be {key.shape.value}", f"correct or unset {name}"))
    if fault := key.fault(value):
        raise ConfigError(Problem(what, *fault))
    return Given(Layer.ENVIRONMENT, TomlDocument(name, "", {key.path: value}))


def plain(text: str) -> int | float | bool | str:
    """Return the number or switch in `text`; `text` itself (a size such as `2 GiB`, or a mistake) for another text."""
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text) if len(text) < 19 and text.isdecimal() else float(text)
    except ValueError:
        return text


def _no_variable(name: str, elsewhere: Sequence[str]) -> ConfigError:
    from difflib import get_close_matches

    known = [*VARIABLES, *elsewhere]
    # Without the part that all of them share, which would make any two of them look alike.
    near = get_close_matches(name.removeprefix(_PREFIX), [each.removeprefix(_PREFIX) for each in known], n=1)
    fix = f"did you mean `{_PREFIX}{near[0]}`?" if near else f"unset it; the names are {', '.join(known)}"
    return ConfigError(Problem(f"the variable `{name}` cannot be used", "there is no such setting", fix))
