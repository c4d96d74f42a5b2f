"""The check of offers against the pins of the user, for the servers of a session."""

from collections import Counter
from pathlib import Path

from runner.mcp.package_digest import package_of
from runner.mcp.pins import Cause, PinCheck, PinStore, checked
from runner.mcp.server_config import ServerConfig
from runner.mcp.servers import ApprovedOffer
from runner.text.phrases import many
from runner.text.sanitize import one_line
from tools.server_offer import ServerOffer

_NAMED = 3  # tools that a notice names


class PinnedOffers:
    """The check of what servers offer against the pins in the state folder. It implements `OfferCheck`.

    `search` is the PATH on which commands of servers are looked up. The files are read at each offer, so that an answer
    in another terminal counts from the next start or change of the offer on.
    """

    def __init__(self, state: str | Path, workspace: str, search: str | None) -> None:
        self._store = PinStore(state, workspace)
        self._search = search

    def __call__(self, config: ServerConfig, offer: ServerOffer) -> ApprovedOffer:
        """Return the part of the offer that the model may use: the tools that the user approved, unchanged since."""
        check = self.look(config, offer)
        held = tuple((each.name, each.why) for each in check.quarantined if each.cause is not Cause.REMOVED)
        return ApprovedOffer(check.approved, held, notice_of(config, check), check.sha256)

    def look(self, config: ServerConfig, offer: ServerOffer) -> PinCheck:
        """Return the comparison of the offer with the pin."""
        return checked(config, offer, package_of(config, self._search), self._store.get(config))


def notice_of(config: ServerConfig, check: PinCheck) -> str:
    """Return what the user has to know, as one line; empty if each tool is approved, left out or refused."""
    if check.clean:
        return ""
    fix = f"run `agent mcp pin {config.name}`"
    if check.problem is not None:
        return f"no tool of the server `{config.name}` is used: {check.problem.what}, {check.problem.why}; {fix}"
    if check.changes:
        what = " and the ".join(check.changes)
        return f"no tool of the server `{config.name}` is used: its {what} changed since you approved it; {fix}"
    settled = (Cause.LEFT_OUT, Cause.REFUSED)
    held = [each for each in check.quarantined if each.cause not in settled]
    if not check.approved and all(each.cause is Cause.NEW for each in held):
        return f"no tool of the server `{config.name}` is used yet: {many(len(held), 'tool')} to approve; {fix}"
    causes = ", ".join(f"{number} {cause.value}" for cause, number in Counter(each.cause for each in held).items())
    names = ", ".join(one_line(each.name, 60) for each in held[:_NAMED]) + (", …" if len(held) > _NAMED else "")
    return f"tools of the server `{config.name}` are not used: {causes} ({names}); {fix}"
