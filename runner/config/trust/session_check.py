"""The decision at the start of a session which files of the repository may be used, with a question to the user."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from policy.model.frozen import dataclass
from runner.config.trust.discover import look
from runner.config.trust.evaluate import Brought
from runner.config.trust.inventory import EntryKind, Inventory, differences
from runner.config.trust.store import TrustAnswer, TrustStore, there
from runner.config.trust.text import named
from runner.config.trust.widening import widenings
from runner.problems import usage
from runner.state.paths import home, state_dir
from runner.state.workspace import workspace_of

if TYPE_CHECKING:
    from runner.config import Settings
    from runner.config.trust.prompt import Asker

_HASH = 64  # hex digits


@dataclass(frozen=True, slots=True)
class Wish:
    """Conditions under which a session starts.

    Attributes:
        workspace: real path of the workspace.
        attended: True if a user is present.
        pinned: the hash after `--trust-config`.
        reads: True if instruction files are wanted.
        asks: True if the question may be asked on this terminal.
        asker: asks the question instead, from any thread.
        skilled: True if skills are wanted.
        cwd: real path of the folder of the session.
    """

    workspace: str
    attended: bool
    pinned: str | None = None
    reads: bool = True
    asks: bool = True
    asker: "Asker | None" = None
    skilled: bool = True
    cwd: str = ""


@dataclass(frozen=True, slots=True)
class Granted:
    """Files of the repository that the session may use.

    Attributes:
        inventory: the trusted inventory; None if nothing is trusted.
        notices: notices for the user.
    """

    inventory: Inventory | None = None
    notices: tuple[str, ...] = ()

    @property
    def trusted(self) -> Mapping[str, str]:
        """Return the hashes of trusted configuration files, by path."""
        return self.inventory.hashes(EntryKind.CONFIGURATION) if self.inventory else {}


def granted(wish: Wish, settings: "Settings", environ: Mapping[str, str]) -> Granted:
    """Decide what the session may use. Ask if a user is present and has not answered for this content.

    `settings` are the settings without any trust. Raises Stopped if the pinned hash is not that of the content,
    KeyboardInterrupt if the user leaves, StateError or PlaceError if answers cannot be stored.
    """
    inventory = look_at(wish.workspace, wish.cwd, environ)
    brought, notices = weigh(inventory, settings, environ, reads=wish.reads, skilled=wish.skilled)
    if wish.pinned is not None:
        agree(brought, wish.pinned, "--trust-config")
        return Granted(inventory, notices)
    if not brought.counts:
        return Granted(None, notices)
    answer, left_out = brought.answer, ""
    if not wish.attended:
        how = "an unattended run uses it only with `--trust-config HASH`; `agent trust` shows it and its hash"
        left_out = f"left out, since it came with the repository: {named(brought.counts)}; {how}"
    elif answer is None and wish.asker is None and not (wish.asks and os.isatty(0) and os.isatty(2)):
        left_out = f"left out, since nobody could be asked here: {named(brought.counts)}; `agent trust` asks"
    elif answer is None:
        yes, more = _asked(brought, TrustStore(state_dir(environ)), wish.asker)
        return Granted(inventory if yes else None, (*notices, *more))
    elif not answer.yes:
        left_out = f"left out, as you said: {named(brought.counts)}; `agent trust` shows it and asks again"
    return Granted(None, (*notices, left_out)) if left_out else Granted(inventory, notices)


def workspace_at(cwd: str, environ: Mapping[str, str]) -> str:
    """Return the workspace of a session in `cwd`, a real path."""
    return workspace_of(cwd, os.path.realpath(home(environ)))


def weigh(
    inventory: Inventory, settings: "Settings", environ: Mapping[str, str], *, reads: bool = True, skilled: bool = True
) -> tuple[Brought, tuple[str, ...]]:
    """Return the inventory with its effects and earlier answers, and notices about the file of answers."""
    answers: tuple[TrustAnswer, ...] = ()
    notices: tuple[str, ...] = ()
    state = state_dir(environ)
    if inventory.entries and there(state):
        answers, notices = TrustStore(state).of(inventory.workspace)
    readable = inventory.hashes(EntryKind.CONFIGURATION)  # a refused file is never trusted, so nothing hangs on it
    wide, vain = (widenings(settings, inventory.workspace, never=never) for never in (False, True))
    used = {given.document.source for given in settings.layers}
    brought = Brought(
        inventory,
        tuple(each for each in wide if each.path in readable),
        answers,
        reads,
        tuple(each for each in vain if each.path in readable),
        tuple(path for path in readable if os.path.join(inventory.workspace, path) not in used),
        skilled,
    )
    return brought, notices


def look_at(workspace: str, cwd: str, environ: Mapping[str, str]) -> Inventory:
    """Return the inventory of `workspace` for a session in `cwd`; both are real paths."""
    return look(workspace, cwd=cwd, home=os.path.realpath(home(environ)))


def _asked(brought: Brought, store: TrustStore, asker: "Asker | None") -> tuple[bool, tuple[str, ...]]:
    from runner.config.trust.prompt import TrustReply, ask, typed_line

    reply = asker(brought) if asker is not None else ask(brought, typed_line)
    if reply is TrustReply.QUIT:
        raise KeyboardInterrupt
    return reply is TrustReply.YES, store.remember(brought.inventory, yes=reply is TrustReply.YES, time=now())


def agree(brought: Brought, pinned: str, flag: str) -> None:
    """Raise Stopped unless `pinned` is the hash of the inventory. The error names the changes if the hash was once
    approved.
    """
    inventory = brought.inventory
    if len(pinned) != _HASH or not set(pinned) <= set("0123456789abcdef"):
        why = "it is not 64 digits of 0-9 and a-f"
        raise usage(f"`{flag} {pinned[:80]}` is no hash", why, "copy the one that `agent trust show` prints")
    if pinned == inventory.sha256:
        return
    other = next((each for each in brought.answers if each.sha256 == pinned), None)
    rows = differences(other.entries, inventory.entries) if other else ()
    what = "; ".join(f"`{path}` {how}" for path, how in rows[:5]) or f"its hash is {inventory.sha256}"
    raise usage(
        f"`{inventory.workspace}` does not bring what was trusted",
        f"{what} (asked for: {pinned})",
        f"look at it with `agent trust show`; if it is what you mean, write `{flag} {inventory.sha256}`",
    )


def now() -> str:
    """Return the current time in UTC, to the second, for an answer."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


Again = Callable[[Mapping[str, str]], "Settings"]


def started(
    wish: Wish, settings: "Settings", environ: Mapping[str, str], again: Again
) -> tuple["Settings", str, Inventory | None]:
    """Return the settings in force, the instruction texts for the model, and the trusted inventory.

    The texts are empty if there are none or if they are not trusted. `again` loads the settings with the trusted
    hashes, and compares them with the exact bytes that it reads.
    """
    from runner.config.agentfiles.instructions import block, texts
    from runner.config.trust.widening import condensed

    files = granted(wish, settings, environ)
    if files.trusted:
        settings = again(files.trusted)
    if files.inventory and files.inventory.entries:  # for the record
        settings = replace(settings, sources=(*settings.sources, f"trust:{files.inventory.sha256}"))
    instructions = block(files.inventory) if files.inventory and wish.reads else ""
    notices = [*condensed(settings, mention=not files.notices), *files.notices]
    if files.inventory and instructions:
        names = tuple(each.path for each in texts(files.inventory))
        notices.append(f"the model is given {named(names)}, as the words of the repository")
    return replace(settings, notices=tuple(notices)), instructions, files.inventory
