"""The destinations to which one action would send data, and whether trusted text names each of them."""

import re
from collections.abc import Iterable, Iterator

from policy.flow.state import FlowState
from policy.flow.trusted_text import Address, addresses, whole_address
from policy.model.action import CallServerTool, FetchAddress, ReadServerResource, SearchWeb, WriteProcess
from policy.model.assessment import Assessment, Effect, EffectKind, Scope, Step
from policy.model.facts import Facts
from policy.model.host_rule import HostRule, host_rule
from policy.model.profile import Layer, PermissionRule
from policy.model.tier import Ruling, Tier
from policy.model.tool_arguments import parsed
from policy.permission.hosts import contains

# Arguments that say what is written. All other arguments say to whom, where, which thing or how much.
_CONTENT = frozenset((
    "body", "caption", "comment", "content", "contents", "description", "details", "heading", "html", "markdown",
    "message", "msg", "note", "notes", "prompt", "query", "question", "reason", "review", "search", "snippet",
    "subject", "summary", "text", "title",
))  # fmt: skip
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
_LINK = re.compile(r"https?://[^\s\"'<>()\[\]{}|\\^`]+|www\.[^\s\"'<>()\[\]{}|\\^`]+", re.IGNORECASE)
_MAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_MOST = 1000  # values of one call; a call with more is not understood
_DEEPEST = 20  # nested values of one argument
_UNREADABLE = "arguments that cannot be read"


def new_destinations(
    assessment: Assessment, flow: FlowState, facts: Facts, rules: Iterable[PermissionRule]
) -> tuple[str, ...]:
    """Return the destinations of the action that no trusted text names, as text for the user.

    `rules` are the user's rules: a host that one of them allows by its whole name is named by the configuration.
    """
    allowed = tuple(
        pattern
        for rule in rules
        if rule.verdict is Ruling.ALLOW and rule.layer is not Layer.REPOSITORY
        for pattern in rule.host
        if "*" not in pattern and "?" not in pattern
    )
    action = assessment.action
    match action:
        case CallServerTool():
            found = _of_call(action, flow)
        case ReadServerResource():
            found = _values(action.uri, ("uri",), flow)
        case FetchAddress():
            found = _of_page(action.url, flow, allowed)
        case SearchWeb():
            found = iter(())  # the search service is one of the configuration
        case WriteProcess():
            sends = Tier.NETWORK.label in action.tiers or Tier.MCP_EXTERNAL.label in action.tiers
            found = iter((f"the process {action.process}",) if sends else ())
        case _:
            found = _of_commands(assessment, flow, facts, allowed)
    return tuple(dict.fromkeys(found))


def _of_page(url: str, flow: FlowState, allowed: tuple[str, ...]) -> Iterator[str]:
    """Yield the address unless trusted text or an allow rule names it, or its host alone."""
    address = whole_address(url)
    if address is None or not (contains(allowed, address.host) or flow.trusted.reaches(address)):
        yield url


def _of_commands(assessment: Assessment, flow: FlowState, facts: Facts, allowed: tuple[str, ...]) -> Iterator[str]:
    for step in assessment.steps:
        for effect in step.effects:
            if effect.kind is EffectKind.CONNECTS and effect not in assessment.typed:
                yield from _of_effect(effect, step, flow, facts, allowed)


def _of_effect(effect: Effect, step: Step, flow: FlowState, facts: Facts, allowed: tuple[str, ...]) -> Iterator[str]:
    host = _host_of(effect.target)
    if not host:
        yield "a host that is not known before the command runs"
        return
    if contains(allowed, effect.target):
        return
    if effect.scope in (Scope.SYSTEM, Scope.OUTSIDE):
        return  # the usual host of the tool, or one of the user's own settings
    if effect.scope is Scope.WORKSPACE:
        unchanged = flow.remotes is None or facts.remotes(facts.workspace) == flow.remotes
        if not (unchanged and flow.trusted.knows_host(host)):
            yield host
        return
    words = [word.text for word in step.words]
    named = [each for text in words if text is not None for each in addresses(text.lower()) if each.host == host]
    if not named:
        named = [Address(host, "", True)]
    for address in named:
        if not flow.trusted.reaches(address):
            yield f"{address.host}{address.path}"


def _host_of(target: str) -> str:
    rule = host_rule(target) if target else None
    if not isinstance(rule, HostRule):
        return ""
    port = f":{rule.ports[0]}" if len(rule.ports) == 1 else ""
    return rule.host + port


# ---- calls of tool servers


def _of_call(action: CallServerTool, flow: FlowState) -> Iterator[str]:
    """Yield the values of a call that name a destination or a thing and that no trusted text contains, and the links in
    what is written. For a tool that only reads, only addresses are destinations.
    """
    arguments = parsed(action.arguments)
    if arguments is None:
        yield _UNREADABLE
        return
    tool = tuple(part.lower() for part in _PARTS.findall(action.name))
    reads = action.tier == Tier.READ.label
    for name, value in arguments.items():
        parts = tuple(part.lower() for part in _PARTS.findall(name))
        texts = list(_texts(value))
        if len(texts) > _MOST:
            yield f"the argument {name}, which has too many values"
        for text in texts[:_MOST]:
            if reads or (parts and parts[-1] in _CONTENT):
                yield from _links(text, flow)
            else:
                yield from _values(text, (*parts, *tool), flow)


def _values(text: str, about: tuple[str, ...], flow: FlowState) -> Iterator[str]:
    if not flow.trusted.names(text, about):
        yield text


def _links(text: str, flow: FlowState) -> Iterator[str]:
    """Yield the links and mail addresses in `text` that no trusted text names."""
    for match in _LINK.finditer(text):
        link = match[0].rstrip(".,;:!?")
        address = whole_address(link.lower())
        if address is None or not flow.trusted.reaches(address):
            yield link
    for match in _MAIL.finditer(text):
        if not flow.trusted.names(match[0]):
            yield match[0]


def _texts(value: object, depth: int = 0) -> Iterator[str]:
    """Yield the texts and numbers in `value`. True, false and null name nothing."""
    match value:
        case bool() | None:
            return
        case str():
            yield value
        case int():
            yield str(value)
        case float():
            yield str(int(value)) if value.is_integer() else str(value)
        case list() if depth < _DEEPEST:
            for item in value:
                yield from _texts(item, depth + 1)
        case dict() if depth < _DEEPEST:
            for item in value.values():
                yield from _texts(item, depth + 1)
        case _:
            yield _UNREADABLE
