"""The settings of a repository that have an effect only if the user trusts the repository."""

from collections.abc import Mapping

from policy.model.frozen import dataclass
from runner.config.settings import IgnoredSetting, SettingNotice, Settings


@dataclass(frozen=True, slots=True)
class Widening:
    """One requested change of a key or of a `[[list]]` entry. The texts are untrusted.

    Attributes:
        path: the file.
        line: the line.
        key: the key or the list.
        old: value in force, as TOML, or `not set`; empty for an entry of a list.
        new: requested value, as TOML.
    """

    path: str
    line: int
    key: str
    old: str
    new: str


def widenings(settings: Settings, workspace: str, *, never: bool = False) -> tuple[Widening, ...]:
    """Return the ignored settings of the files of `workspace`, in order. `settings` were loaded without any trust.

    With `never`, return the settings that no repository may change; otherwise those that an approval would change.
    """
    rows = []
    for ignored in _ignored(settings):
        if not ignored.values.bound or ignored.never is not never:
            continue
        from runner.config.merge import current_value  # most repositories widen nothing
        from runner.config.schema import key_of
        from runner.config.toml_value import entry_toml, value_toml

        document = ignored.values.document
        path, key = document.source.removeprefix(f"{workspace.rstrip('/')}/"), ignored.name
        if ignored.entry is not None:
            rows.append(Widening(path, ignored.entry.line, key, "", ", ".join(entry_toml(ignored.entry))))
        else:
            known = key_of(ignored.path)
            now = current_value(settings, ignored.path, known)
            old = "not set" if now is None else value_toml(now, known.shape)
            new = value_toml(document.values[ignored.path], known.shape)
            rows.append(Widening(path, document.line(ignored.path), key, old, new))
    return tuple(rows)


def condense_notices(settings: Settings, *, mention: bool = True) -> tuple[str, ...]:
    """Return the notices of `settings`, with those about ignored settings of a repository as one line. Without
    `mention`, the caller reports these settings.
    """
    ignored = _ignored(settings)
    others = tuple(each for each in settings.notices if not (isinstance(each, SettingNotice) and each.ignored))
    if not mention or not ignored:
        return others
    files = dict.fromkeys("config.toml" if each.values.layer == "project" else "config.local.toml" for each in ignored)
    parts = [_listed(dict.fromkeys(each.name for each in ignored if each.never is never)) for never in (False, True)]
    if parts[0]:
        parts[0] += " (see `agent trust`)" if parts[1] else "; see `agent trust`"
    if parts[1]:
        parts[1] += ", which no repository may set, even if it is trusted"
    only = " may only tighten" if any(each.values.bound for each in ignored) else ""
    names = " and ".join(f"`.ringfence/{name}`" for name in files)
    return (*others, f"{names} of the repository{only}; ignored: {', and '.join(filter(None, parts))}")


def _ignored(settings: Settings) -> list[IgnoredSetting]:
    return [each.ignored for each in settings.notices if isinstance(each, SettingNotice) and each.ignored]


def _listed(names: Mapping[str, None]) -> str:
    shown = ", ".join(f"`{name}`" for name in list(names)[:4])
    return shown + (f" and {len(names) - 4} more" if len(names) > 4 else "")
