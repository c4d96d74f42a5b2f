"""The information flow of a command outside of a session: `--untrusted` states the source of untrusted text."""

from policy.flow.state import FlowMode, FlowState, TextSource
from policy.flow.trusted_text import TrustedText
from policy.model.facts import Facts
from runner.config.settings import Settings
from runner.problems import usage
from runner.text.sanitize import one_line

_LONGEST = 300  # characters of a source


def stated_flow(source: str, settings: Settings, facts: Facts, *, waits: bool) -> FlowState | None:
    """Return the state of a conversation that has read `source`; None if the configuration says `flow = "off"`.

    The mode is that of the configuration, or `guard`. `waits` is False for a command in the background, whose changes
    nothing compares. Raise a usage error for an empty source.
    """
    words = one_line(source, _LONGEST).strip()
    if not words:
        raise usage("`--untrusted` needs a source", "it is empty", 'write, for example, --untrusted "issue 13"')
    mode = FlowMode(str(settings.value("flow") or FlowMode.GUARD))
    if mode is FlowMode.OFF:
        return None
    remotes = facts.remotes(facts.workspace)
    trusted, compared = TrustedText().with_text(*remotes.written), waits and bool(settings.value("undo", "enabled"))
    return FlowState(mode, (TextSource(words),), trusted=trusted, remotes=remotes, undo=compared)
