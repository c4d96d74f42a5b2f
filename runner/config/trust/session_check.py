"""The decision, at the start of a session, which files of the repository may be used. It may ask the user."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from policy.model.frozen import dataclass
from runner.config.inventory import EntryKind, Inventory, differences
from runner.config.trust.cached import RememberedTrust
from runner.config.trust.discover import look
from runner.config.trust.evaluate import TrustReview
from runner.config.trust.store import TrustAnswer, TrustStore, has_answers
from runner.config.trust.text import named
from runner.config.trust.widening import widenings
from runner.problems import option, usage
from runner.state.paths import home, state_dir

if TYPE_CHECKING:
    from runner.config import Settings
    from runner.config.trust.prompt import Asker

_HASH = 64  # hex digits


@dataclass(frozen=True, slots=True)
class TrustRequest:
    """The conditions of a session for the decision about trust.

    Attributes:
        workspace: real path of the workspace.
        attended: True if a user is present.
        pinned: the hash of `--trust-config`, or None.
        reads: True if instruction files are wanted.
        asks: True if the question may be asked on this terminal.
        asker: a function that asks in place of the terminal, from any thread, or None.
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

    def trusted_now(self, environ: Mapping[str, str]) -> Mapping[str, str]:
        """Return the hashes of trusted configuration files, by path, as of now. No question is asked.

        A lookup may raise StateError or PlaceError.
        """
        if self.pinned is not None:
            inventory = look_at(self.workspace, self.cwd, environ)
            return inventory.hashes(EntryKind.CONFIGURATION) if inventory.sha256 == self.pinned else {}
        return RememberedTrust(self.workspace, environ) if self.attended else {}


@dataclass(frozen=True, slots=True)
class TrustedFiles:
    """The files of the repository that the session may use.

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


def decide_trust(request: TrustRequest, settings: "Settings", environ: Mapping[str, str]) -> TrustedFiles:
    """Decide which files the session may use. Ask a user who is present and has not answered for this content.

    `settings` are the settings without any trust. Raise Stopped if the pinned hash is not that of the content,
    KeyboardInterrupt if the user quits, StateError or PlaceError if answers cannot be stored.
    """
    inventory = look_at(request.workspace, request.cwd, environ)
    review, notices = evaluate_files(inventory, settings, environ, reads=request.reads, skilled=request.skilled)
    if request.pinned is not None:
        agree(review, request.pinned, "--trust-config")
        return TrustedFiles(inventory, notices)
    if not review.counts:
        return TrustedFiles(None, notices)
    answer, left_out = review.answer, ""
    if not request.attended:
        pin = option("--trust-config", "HASH")
        how = f"an unattended run needs `{pin}`; `agent trust` shows the files and the hash"
        left_out = f"not used without trust: {named(review.counts)}; {how}"
    elif answer is None and request.asker is None and not (request.asks and os.isatty(0) and os.isatty(2)):
        left_out = f"not used, because no user can be asked: {named(review.counts)}; `agent trust` asks"
    elif answer is None:
        yes, more = _asked(review, TrustStore(state_dir(environ)), request.asker)
        return TrustedFiles(inventory if yes else None, (*notices, *more))
    elif not answer.yes:
        left_out = f"not used, as you answered: {named(review.counts)}; `agent trust` asks again"
    return TrustedFiles(None, (*notices, left_out)) if left_out else TrustedFiles(inventory, notices)


def evaluate_files(
    inventory: Inventory, settings: "Settings", environ: Mapping[str, str], *, reads: bool = True, skilled: bool = True
) -> tuple[TrustReview, tuple[str, ...]]:
    """Return the inventory with its effects and earlier answers, and notices about the file of answers."""
    answers: tuple[TrustAnswer, ...] = ()
    notices: tuple[str, ...] = ()
    state = state_dir(environ)
    if inventory.entries and has_answers(state):
        answers, notices = TrustStore(state).of(inventory.workspace)
    readable = inventory.hashes(EntryKind.CONFIGURATION)  # a refused file is never trusted
    wide, never_allowed = (widenings(settings, inventory.workspace, never=never) for never in (False, True))
    used = {given.document.source for given in settings.layers}
    review = TrustReview(
        inventory,
        tuple(each for each in wide if each.path in readable),
        answers,
        reads,
        tuple(each for each in never_allowed if each.path in readable),
        tuple(path for path in readable if os.path.join(inventory.workspace, path) not in used),
        skilled,
    )
    return review, notices


def look_at(workspace: str, cwd: str, environ: Mapping[str, str]) -> Inventory:
    """Return the inventory of `workspace` for a session in `cwd`; both are real paths."""
    return look(workspace, cwd=cwd, home=os.path.realpath(home(environ)))


def _asked(review: TrustReview, store: TrustStore, asker: "Asker | None") -> tuple[bool, tuple[str, ...]]:
    from runner.config.trust.prompt import TrustReply, ask, typed_line

    reply = asker(review) if asker is not None else ask(review, typed_line)
    if reply is TrustReply.QUIT:
        raise KeyboardInterrupt
    return reply is TrustReply.YES, store.remember(review.inventory, yes=reply is TrustReply.YES, time=now())


def agree(review: TrustReview, pinned: str, flag: str) -> None:
    """Raise Stopped unless `pinned` is the hash of the inventory. The error names the changes if the hash was once
    approved.
    """
    inventory = review.inventory
    if len(pinned) != _HASH or not set(pinned) <= set("0123456789abcdef"):
        why = "a hash has 64 digits of 0-9 and a-f"
        raise usage(f"`{option(flag, pinned[:80])}` is not a hash", why, "copy the hash that `agent trust show` prints")
    if pinned == inventory.sha256:
        return
    other = next((each for each in review.answers if each.sha256 == pinned), None)
    rows = differences(other.entries, inventory.entries) if other else ()
    what = "; ".join(f"`{path}` {how}" for path, how in rows[:5]) or f"its hash is {inventory.sha256}"
    raise usage(
        f"`{inventory.workspace}` does not contain the trusted content",
        f"{what} (expected: {pinned})",
        f"check it with `agent trust show`; to trust it, write `{option(flag, inventory.sha256)}`",
    )


def now() -> str:
    """Return the current time in UTC, to the second, for an answer."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


Again = Callable[[Mapping[str, str]], "Settings"]


def apply_trust(
    request: TrustRequest, settings: "Settings", environ: Mapping[str, str], again: Again
) -> tuple["Settings", str, Inventory | None]:
    """Return the settings in force, the instruction texts for the model, and the trusted inventory or None.

    The texts are empty if there are none or if they are not trusted. `again` loads the settings with the trusted
    hashes, which are compared with the bytes that it reads. Raise what `decide_trust` raises.
    """
    from runner.config.agentfiles.instructions import block, read_texts
    from runner.config.trust.widening import condense_notices

    files = decide_trust(request, settings, environ)
    if files.trusted:
        settings = again(files.trusted)
    if files.inventory and files.inventory.entries:  # for the record
        settings = replace(settings, sources=(*settings.sources, f"trust:{files.inventory.sha256}"))
    instructions = block(files.inventory) if files.inventory and request.reads else ""
    notices = [*condense_notices(settings, mention=not files.notices), *files.notices]
    if files.inventory and instructions:
        names = tuple(each.path for each in read_texts(files.inventory))
        notices.append(f"the model gets {named(names)}, marked as texts of the repository")
    return replace(settings, notices=tuple(notices)), instructions, files.inventory
