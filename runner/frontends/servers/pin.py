"""`agent mcp pin`: the offer of a tool server beside its pin, and the user's approval of exactly this offer."""

import os
from collections.abc import Callable

from policy.model.frozen import dataclass, replace
from policy.model.verdict import Problem
from runner.frontends.servers.trial import TrialArgs, configured, offer_of
from runner.gate.gate import folder, is_unattended
from runner.mcp.configured import servers_here
from runner.mcp.package_digest import package_of
from runner.mcp.pin_review import PinReview
from runner.mcp.pins import PinStore, ServerPin, checked
from runner.mcp.server_config import ServerConfig
from runner.mcp.suspicions import suspicions
from runner.problems import Exit, Stopped
from runner.secrets.redactor import masked
from runner.state.paths import state_dir
from runner.state.workspace import workspace_at
from runner.stderr import say, say_notice
from runner.text.json_line import json_line
from runner.text.phrases import many
from tools.server_offer import ServerOffer

OfferSource = Callable[[ServerConfig, TrialArgs], ServerOffer]  # starts the server; raises Stopped


@dataclass(frozen=True, slots=True)
class PinArgs:
    """The options of a review.

    Attributes:
        trial: The server, the folder, the configuration file, and the form of the output.
        tools: The names of the tools to approve; empty for all tools without a warning.
        yes: True to approve without a question.
        sha256: The digest of the only offer to approve, without a question; empty for any offer.
    """

    trial: TrialArgs
    tools: tuple[str, ...] = ()
    yes: bool = False
    sha256: str = ""


def run_pin(args: PinArgs, source: OfferSource = offer_of) -> int:
    """Start the server, show what changed since its approval, ask, store the answer, and return the exit code."""
    config = replace(configured(args.trial), enabled=True)
    store = PinStore(state_dir(os.environ), workspace_at(str(folder(args.trial.cwd)), os.environ))
    package = package_of(config, os.environ.get("PATH"))
    offer = source(config, args.trial)
    pinned = store.get(config)
    warnings = suspicions(config.name, offer, _others(args.trial, config, store))
    review = PinReview(config.name, checked(config, offer, package, pinned), pinned, warnings)
    pin = review.answer(args.tools)
    if isinstance(pin, Problem):
        raise Stopped(pin, Exit.USAGE)
    if args.sha256 and args.sha256 != pin.sha256:
        what, why = f"the offer of `{config.name}` was not approved", f"its digest is {pin.sha256}, not {args.sha256}"
        fix = f"look at what changed with `agent mcp pin {config.name}`"
        raise Stopped(Problem(what, why, fix), Exit.DENIED)
    yes = args.yes or bool(args.sha256)
    if args.trial.json:
        if yes and review.changes(pin):
            _store(store, config, pin)
        stored = yes or not review.changes(pin)
        print(masked(json_line(review.as_json(pin, stored=stored))))
        return Exit.DONE if stored else Exit.FAILED
    if package.warning:
        say_notice(package.warning)
    for line in [*review.lines(), *review.left_out(pin)]:
        print(masked(line))
    if not review.changes(pin):
        say(f"the approval of `{config.name}` is current: {many(len(pin.approved), 'tool')}")
        return Exit.DONE
    if not yes and not _agreed(review, pin):
        say("nothing was changed")
        return Exit.FAILED
    _store(store, config, pin)
    say(f"approved: {many(len(pin.approved), 'tool')} of `{config.name}`, until the offer changes")
    return Exit.DONE


def _store(store: PinStore, config: ServerConfig, pin: ServerPin) -> None:
    for notice in store.keep(config, pin):
        say_notice(notice)


def _agreed(review: PinReview, pin: ServerPin) -> bool:
    """Ask the user. Raise Stopped if there is none."""
    if is_unattended(False):
        what, fix = f"the offer of `{review.server}` was not approved", f"run `agent mcp pin {review.server} --yes`"
        raise Stopped(Problem(what, "there is no user to ask", f"look at the offer, then {fix}"), Exit.DENIED)
    from runner.config.trust.prompt import typed_line

    try:
        return typed_line(f"{review.question(pin)} [yes / no] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _others(trial: TrialArgs, config: ServerConfig, store: PinStore) -> dict[str, list[str]]:
    """Return the names of the pinned tools of the other servers of this folder."""
    found: dict[str, list[str]] = {}
    for other in servers_here(folder(trial.cwd), os.environ).servers:
        pinned = store.get(other) if other.name != config.name else None
        if other.name != config.name:
            found[other.name] = [tool.name for tool in pinned.tools] if isinstance(pinned, ServerPin) else []
    return found
