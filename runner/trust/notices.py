"""What a repository asks for and does not get, in one line instead of one for each key."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runner.config import Settings


def condensed(settings: "Settings", *, mention: bool = True) -> tuple[str, ...]:
    """The notices of `settings`; those about what may not widen are one. Without `mention` somebody else tells it."""
    if not settings.notices:
        return ()
    from policy.keyed import dotted
    from runner.config.keys import Widens, key_of
    from runner.config.layer import Layer
    from runner.config.merge import entry_ignored, ignored

    said: dict[str, str] = {}
    files = []
    for given in settings.layers:
        if not given.bound:
            continue
        told = [path for path in given.keyed.values if key_of(path).widens is not Widens.YOURS]
        rows = {ignored(given, path): f"`{dotted(path)}`" for path in told}
        rows |= {entry_ignored(entry): f"`[[{entry.name}]]`" for entry in given.keyed.entries}
        mine = {text: key for text, key in rows.items() if text in settings.notices}
        if mine:
            files.append(
                "`.ringfence/config.toml`" if given.layer is Layer.PROJECT else "`.ringfence/config.local.toml`"
            )
        said |= mine
    others = tuple(text for text in settings.notices if text not in said)
    if not mention or not said:
        return others
    keys = list(dict.fromkeys(said.values()))
    listed = ", ".join(keys[:4]) + (f" and {len(keys) - 4} more" if len(keys) > 4 else "")
    return (
        *others,
        f"{' and '.join(files)} came with the repository and may only tighten: ignored is {listed}; see `agent trust`",
    )
