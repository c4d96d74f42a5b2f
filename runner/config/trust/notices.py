"""Summary of the settings that a repository requests and does not get, as one line."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runner.config import Settings


def condensed(settings: "Settings", *, mention: bool = True) -> tuple[str, ...]:
    """Return the notices of `settings`, with those about requests of a repository as one line. Without `mention`, the
    caller reports these requests.
    """
    if not settings.notices:
        return ()
    from policy.toml.schema import dotted
    from runner.config.merge import entry_ignored, ignored
    from runner.config.schema import Widens, key_of
    from runner.config.settings import ConfigLayer

    said: dict[str, str] = {}
    never, files, bound = [], [], False
    for given in settings.layers:
        if not given.layer.came_along:
            continue
        rows = {ignored(given, path): f"`{dotted(path)}`" for path in given.document.values}
        never += [f"`{dotted(path)}`" for path in given.document.values if key_of(path).widens is Widens.YOURS]
        rows |= {entry_ignored(entry): f"`[[{entry.name}]]`" for entry in given.document.entries}
        mine = {text: key for text, key in rows.items() if text in settings.notices}
        if mine:
            bound = bound or given.bound
            files.append(
                "`.ringfence/config.toml`" if given.layer is ConfigLayer.PROJECT else "`.ringfence/config.local.toml`"
            )
        said |= mine
    others = tuple(text for text in settings.notices if text not in said)
    if not mention or not said:
        return others
    keys = dict.fromkeys(said.values())
    parts = [_listed([key for key in keys if key not in never]), _listed([key for key in keys if key in never])]
    if parts[0]:
        parts[0] += " (see `agent trust`)" if parts[1] else "; see `agent trust`"
    if parts[1]:
        parts[1] += ", which no repository may set, trusted or not"
    only = " and may only tighten" if bound else ""
    which = ", and ".join(part for part in parts if part)
    return (*others, f"{' and '.join(files)} came with the repository{only}: ignored is {which}")


def _listed(keys: list[str]) -> str:
    return ", ".join(keys[:4]) + (f" and {len(keys) - 4} more" if len(keys) > 4 else "")
