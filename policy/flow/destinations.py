"""The destinations to which one action would send data, and whether trusted text names each of them."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import islice

from policy.flow.state import FlowState
from policy.flow.trusted_text import Address, addresses, whole_address, whole_day
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
    "body", "caption", "comment", "content", "contents", "description", "details", "heading", "html", "label",
    "location", "markdown", "memo", "message", "msg", "note", "notes", "place", "prompt", "query", "question",
    "reason", "remark", "remarks", "review", "search", "snippet", "subject", "summary", "text", "title",
))  # fmt: skip
_IDS = frozenset((
    "id", "ids", "path", "paths", "uid", "uuid", "guid", "otp",
))  # fmt: skip
# Arguments in which a text like `first.last` is no host.
_NO_HOST = frozenset((
    "file", "filename", "id", "ids", "key", "login", "name", "password", "path", "paths", "user", "username",
    "value", "values", "version",
))  # fmt: skip
_WHOM = frozenset((
    "account", "assignee", "assignees", "attendee", "attendees", "audience", "bcc", "beneficiary", "cc",
    "collaborator", "collaborators", "contact", "contacts", "customer", "destination", "email", "emails", "group",
    "groups", "guest", "guests", "iban", "invitee", "invitees", "mail", "member", "members", "org", "organisation",
    "organization", "owner", "participant", "participants", "payee", "people", "person", "phone", "receiver",
    "receivers", "recipient", "recipients", "repo", "repository", "reviewer", "reviewers", "subscriber",
    "subscribers", "target", "team", "to", "user", "username", "users",
))  # fmt: skip
# Arguments whose values are one of a few words.
_OF_A_KIND = frozenset((
    "access", "action", "category", "color", "currency", "format", "frequency", "kind", "language", "level",
    "method", "mode", "order", "permission", "permissions", "priority", "role", "severity", "sort", "state",
    "status", "type", "unit", "visibility",
))  # fmt: skip
_PATH = re.compile(r"~?[\w.+@-]*(?:/[\w.+@ -]*)+")  # also the name of a repository, `owner/name`
_ACCOUNT = re.compile(r"[A-Z]{2}[0-9]{2}[A-Z0-9 ]{8,40}", re.IGNORECASE)  # IBAN and the like
_DIGITS = re.compile(r"[+-]?[0-9][0-9.,]*")
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
_LINK = re.compile(r"https?://[^\s\"'<>()\[\]{}|\\^`]+|www\.[^\s\"'<>()\[\]{}|\\^`]+", re.IGNORECASE)
_MAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_MOST = 1000  # values of one call; a call with more is not understood
_DEEPEST = 20  # nested values of one argument
_LONGEST_PATH = 500  # characters
UNKNOWN_HOST = "a host that is not known before the command runs"
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
        yield UNKNOWN_HOST
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


class _Kind(IntEnum):
    """The kinds of things that the value of an argument names."""

    ADDRESS = 0  # a mail address, a link, an account number
    WHOM = 1  # a person, a group or a repository that gets something, by its name
    NAME = 2  # another thing or place, by its name
    ID = 3  # which one, by a number, a code or a path
    DAY = 4  # a date or a time
    DETAIL = 5  # how much or of which kind: a number, one of a few words


_Value = tuple[_Kind, str, tuple[str, ...]]  # the text, and words that say what it is of


def _of_call(action: CallServerTool, flow: FlowState) -> Iterator[str]:
    """Yield what a call names that no trusted text contains. For a tool that only reads, only links count.

    1. Every address, and every link in what is written, must be named.
    2. What is written may go to one person or place without an address if it is the user's own words, and nothing else
       goes along.
    3. Each person or group that gets something must be named. Beside one, other names, IDs, days and details need not
       be: the user has said with whom the call is about something.
    4. Otherwise each name must be named. Beside a named thing, IDs, days and details need not be.
    5. Without names, an ID or the day must be named, and without a day the IDs and details, unless the tool changes the
       user's own account only.
    """
    arguments = parsed(action.arguments)
    if arguments is None:
        yield _UNREADABLE
        return
    reads, writes = action.tier == Tier.READ.label, action.tier == Tier.WRITE.label
    tool = _parts(action.name)
    values: list[_Value] = []
    contents: list[str] = []
    for name, value in arguments.items():
        parts = _parts(name)
        texts = list(_texts(value))
        if len(texts) > _MOST:
            yield f"the argument {name}, which has too many values"
        if reads or (parts and parts[-1] in _CONTENT):
            contents += texts[:_MOST]
        else:
            values += [
                (_kind(text, parts, writes=writes), text, (*parts, *tool)) for text in texts[:_MOST] if text.strip()
            ]
    links = [link for text in contents for link in _links(text, flow, mail=not reads)]
    known = {each: flow.trusted.names(each[1], each[2]) for each in values if each[1].lower() not in flow.trusted.own}
    yield from links
    yield from _unnamed(known, _Kind.ADDRESS)
    unnamed = [kind for (kind, _, _), named in known.items() if not named]
    written = [text for text in contents if text.strip()]
    if written and not links and all(flow.trusted.names(text) for text in written) and _one_place(unnamed):
        return
    yield from _unnamed(known, _Kind.WHOM)
    if any(kind <= _Kind.WHOM and named for (kind, _, _), named in known.items()):
        return
    yield from _unnamed(known, _Kind.NAME)
    if any(kind is _Kind.NAME or (kind is _Kind.ID and named) for (kind, _, _), named in known.items()):
        return
    yield from _unnamed(known, _Kind.DAY)
    if writes or any(kind is _Kind.DAY for kind, _, _ in known):
        return
    yield from _unnamed(known, _Kind.ID)
    yield from _unnamed(known, _Kind.DETAIL)


def _one_place(unnamed: Sequence[_Kind]) -> bool:
    """Return True if the values that are not named are one person or place, and nothing that could be sent along."""
    return len(unnamed) <= 1 and all(kind in (_Kind.WHOM, _Kind.NAME) for kind in unnamed)


def paths_in(action: CallServerTool) -> Iterator[str]:
    """Yield the texts in the arguments of a call that can be paths of files; none for a tool that only reads."""
    if action.tier == Tier.READ.label:
        return
    for value in (parsed(action.arguments) or {}).values():
        for text in islice(_texts(value), _MOST):
            if 0 < len(text) <= _LONGEST_PATH and text.isprintable():
                yield text


def _unnamed(known: Mapping[_Value, bool], kind: _Kind) -> Iterator[str]:
    """Yield the values of one kind that are not named."""
    yield from (each[1] for each, named in known.items() if each[0] is kind and not named)


def _parts(name: str) -> tuple[str, ...]:
    """Return the words of a name such as `newStartTime` or `file_id`, in lower case."""
    return tuple(part.lower() for part in _PARTS.findall(name))


def _kind(text: str, parts: tuple[str, ...], *, writes: bool) -> _Kind:
    """Return what a value names, by its form and by the words of its argument's name. `writes` is True for a tool that
    changes the user's own account only.
    """
    host = whole_address(text) is not None and _NO_HOST.isdisjoint(parts)
    if host or _LINK.search(text) or _MAIL.search(text) or _ACCOUNT.fullmatch(text):
        return _Kind.ADDRESS
    if whole_day(text) is not None:
        return _Kind.DAY
    which = bool(parts and parts[-1] in _IDS) or _PATH.fullmatch(text) is not None
    if not (which and writes) and not _WHOM.isdisjoint(parts) and not (parts and parts[-1] in _IDS):
        return _Kind.WHOM
    if which:
        return _Kind.ID
    if len(text) <= 2 or _DIGITS.fullmatch(text) or not _OF_A_KIND.isdisjoint(parts[-1:]):
        return _Kind.DETAIL
    return _Kind.NAME


def _values(text: str, about: tuple[str, ...], flow: FlowState) -> Iterator[str]:
    if not flow.trusted.names(text, about):
        yield text


def _links(text: str, flow: FlowState, *, mail: bool) -> Iterator[str]:
    """Yield the links in `text` that no trusted text names, and with `mail` the mail addresses as well."""
    for match in _LINK.finditer(text):
        link = match[0].rstrip(".,;:!?")
        address = whole_address(link.lower())
        if address is None or not flow.trusted.reaches(address):
            yield link
    for match in _MAIL.finditer(text) if mail else ():
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
