"""Warnings about the offer of a tool server: hidden characters, names that look like others, and hidden instructions.

THREAT T184: a tool that looks like a tool of another server or of this program. THREAT T186: instructions that are
hidden in a description, a schema or a name. A warning proves nothing, and its absence neither: what a tool can do is
bounded by the gate and the sandbox.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from policy.model.frozen import dataclass
from policy.model.profile import Tool
from policy.model.tool_names import certain_tool
from runner.text.phrases import similar
from runner.text.sanitize import one_line, visible_prose
from tools.server_offer import OfferedTool, ServerOffer

MOST_TOOLS = 2000
DEEPEST = 32  # levels of a schema
LARGEST_SCHEMA = 256 << 10  # characters of JSON
LONGEST_DESCRIPTION = 16 << 10  # characters
_LONG = 4 << 10  # characters of a description that is worth a look
_LONG_SCHEMA = 16 << 10  # characters of JSON
_PADDING = re.compile(r"\n[ \t]*(?:\n[ \t]*){7}|[ \t]{60}")  # blank space that moves a text out of view
_SHOWN = 80  # characters of a quoted text
_MOST_READ = 2 << 20  # characters of one offer that are examined


@dataclass(frozen=True, slots=True)
class Suspicion:
    """One warning.

    Attributes:
        tool: The name of the tool; empty for a warning about the instructions of the server.
        kind: `hidden`, `escape`, `name`, `look-alike`, `duplicate`, `mentions`, `instructs` or `long`.
        text: The warning as one line of safe characters.
    """

    tool: str
    kind: str
    text: str


def refusal(tool: OfferedTool) -> str | None:
    """Return why no approval makes the tool usable, or None: its name is not certain, or a limit is exceeded."""
    found = definition_parts(tool)
    return found if isinstance(found, str) else None


def definition_parts(tool: OfferedTool) -> dict[str, str] | str:
    """Return the canonical JSON of each field of a tool, or why no approval makes the tool usable."""
    if not certain_tool(tool.name):
        return "its name has characters that rules and cards could mistake, so that it can never be called"
    if len(tool.description) > LONGEST_DESCRIPTION:
        return f"its description is longer than {LONGEST_DESCRIPTION >> 10} KiB"
    parts: dict[str, str] = {}
    schemas = (
        ("annotations", tool.annotations),
        ("inputSchema", tool.input_schema),
        ("outputSchema", tool.output_schema),
    )
    for name, schema in schemas:
        try:
            text = ENCODE(schema)
        except (TypeError, ValueError, RecursionError):
            return "its schema is nested without end, or is not valid JSON"
        if len(text) > LARGEST_SCHEMA:
            return f"its schema is larger than {LARGEST_SCHEMA >> 10} KiB"
        if text.count("{") + text.count("[") > DEEPEST and _depth(schema) > DEEPEST:
            return f"its schema is nested deeper than {DEEPEST} levels"
        parts[name] = text
    parts |= {"description": ENCODE(tool.description), "name": ENCODE(tool.name), "title": ENCODE(tool.title)}
    return parts


# Equal to `policy.model.tool_arguments.canonical`, for any value. An encoder that is made once is faster.
ENCODE = json.JSONEncoder(ensure_ascii=True, allow_nan=False, sort_keys=True, separators=(",", ":")).encode


def _depth(value: object) -> int:
    """Return the number of levels of a JSON value, at most DEEPEST + 1."""
    level: list[object] = [value]
    for depth in range(DEEPEST + 1):
        inner: list[object] = []
        for each in level:
            if isinstance(each, Mapping):
                inner += each.values()
            elif isinstance(each, list | tuple):
                inner += each
        level = [each for each in inner if isinstance(each, Mapping | list | tuple)]
        if not inner:
            return depth
    return DEEPEST + 1


def suspicions(server: str, offer: ServerOffer, others: Mapping[str, Iterable[str]] | None = None) -> list[Suspicion]:
    """Return the warnings about the offer of `server`. `others` are the names of the tools of the other servers of the
    user, by server.
    """
    about = _Surroundings(server, {name: frozenset(tools) for name, tools in (others or {}).items() if name != server})
    found = [Suspicion("", kind, words) for kind, words in _of_text(offer.instructions, "instruction text", about)]
    if len(offer.instructions) > _LONG:
        found.append(Suspicion("", "long", f"its instruction text has {len(offer.instructions):,} characters"))
    found += _of_server_name(server, about.others)
    if len(offer.tools) > MOST_TOOLS:
        found.append(Suspicion("", "long", f"the server offers {len(offer.tools):,} tools"))
    found += _of_names(offer.tools, about.others)
    room = _MOST_READ
    for tool in offer.tools:
        if refusal(tool) is not None:
            continue  # the model never sees it
        for where, text in _texts(tool):
            room -= len(text)
            if room < 0:
                found.append(Suspicion(tool.name, "long", "the offer is too long to be examined to its end"))
                break
            found += [Suspicion(tool.name, kind, words) for kind, words in _of_text(text, where, about)]
        if len(tool.description) > _LONG:
            found.append(Suspicion(tool.name, "long", f"its description has {len(tool.description):,} characters"))
        size = len(json.dumps(tool.input_schema)) + len(json.dumps(tool.output_schema))
        if size > _LONG_SCHEMA:
            found.append(Suspicion(tool.name, "long", f"its schemas have {size:,} characters"))
    return list(dict.fromkeys(found))


class _Surroundings:
    """The server of an offer, and the names of the other servers and their tools."""

    def __init__(self, server: str, others: Mapping[str, frozenset[str]]) -> None:
        self.server, self.others = server, others
        self.tools = {
            name.casefold(): (other, name) for other, names in others.items() for name in names if _unusual(name)
        }
        servers = [re.escape(name.casefold()) for name in others if len(name) > 2]
        pattern = (
            rf"\bserver\W{{1,3}}({'|'.join(servers)})\b|\b({'|'.join(servers)})\W{{1,3}}(?:mcp\W+)?(?:server|tool)"
        )
        self.servers = re.compile(pattern) if servers else None


def _unusual(name: str) -> bool:
    """Return True if the name of a tool cannot be an ordinary word of a sentence."""
    return "_" in name or "-" in name or len(name) > 12


def _texts(tool: OfferedTool) -> Iterator[tuple[str, str]]:
    """Yield every text of a tool that a model reads, with its place."""
    yield "title", tool.title
    yield "description", tool.description
    for place, schema in (("input schema", tool.input_schema), ("output schema", tool.output_schema)):
        if schema:
            yield place, "\n".join(_strings(schema))
    yield "annotations", "\n".join(_strings(tool.annotations))


def _strings(value: object) -> Iterator[str]:
    """Yield the names and the texts of a JSON value, to the depth that a schema may have."""
    pending: list[tuple[object, int]] = [(value, 0)]
    while pending:
        each, depth = pending.pop()
        if isinstance(each, str):
            yield each
        elif depth > DEEPEST:
            continue
        elif isinstance(each, Mapping):
            for name, inner in each.items():
                yield str(name)
                pending.append((inner, depth + 1))
        elif isinstance(each, list | tuple):
            pending += [(inner, depth + 1) for inner in each]


# ---- texts

_ESCAPE = re.compile(r"[\x1b\x9b]|\\x1b\[|\\u001b\[|\\033\[")
_QUALIFIED = re.compile(r"mcp__([A-Za-z0-9.-]+(?:_[A-Za-z0-9.-]+)*)__[A-Za-z0-9_.-]+")
# Sentences that speak to a model about other things than the use of the tool: what the text does, and a pattern of it.
# `<4>` stands for at most four words between two others.
_SENTENCES: tuple[tuple[str, str], ...] = (
    # secrecy
    (
        "asks to keep something from the user",
        r"\b(?:do ?n[o'’]t|never|without|avoid|must not|should not|no need to)<4>"
        r"(?:tell|mention|inform|reveal|show|notify|alert|disclos|report|let)\w*<5>"
        r"(?:user|human|person|anyone|operator|these|this step)s?\b",
    ),
    (
        "asks to keep something from the user",
        r"\b(?:do ?n[o'’]t|never|must not|should not)<2>(?:summari[sz]e|reveal|disclose|expose|mention)<4>"
        r"(?:steps?|instructions?|this|these|it|tools?)\b|\bkeep<3>(?:confidential|secret|hidden from)\b"
        r"|\b(?:secretly|covertly)\b|\b(?:silently|quietly) (?:send|read|pass|copy|add|forward|upload)"
        r"|\b(?:hidden|hide|conceal\w*)<3>from (?:the )?(?:user|human)",
    ),
    # orders
    (
        "gives orders about other tools",
        r"\b(?:before|after|instead of|prior to|whenever|rather than|in preference to)<4>"
        r"(?:any|every|all|each|other|another)<2>(?:tools?|actions?|functions?|commands?)\b"
        r"|\b(?:always|must|first)<4>(?:call|use|invoke|run|invoked|called|executed)<3>(?:first|before)\b"
        r"|\b(?:when(?:ever)?|do not use|never use)<4>(?:other|another) (?:tool|server)"
        r"|\bwhen(?:ever)?<3>\w+_\w+<2>(?:is|are) (?:called|present|used|available|invoked)"
        r"|\b(?:replaces?|never use|do not use|instead of)<3>built-?in\b|\bfrom now on\b",
    ),
    (
        "gives orders about other tools",
        r"\b(?:also|then|first|immediately) (?:call|run|invoke|execute) (?!it\b|this\b)"
        r"|\bbefore \w+ing\W+(?:\w+\W+)?(?:call|run|invoke|execute|read)\b"
        r"|\b(?:every|all|any)<3>(?:messages?|prompts?|requests?|writes?|commands?|conversations?|responses?)<5>"
        r"(?:must|has to|have to|go through|be logged|be sent)\b",
    ),
    (
        "speaks to the model about itself",
        r"\b(?:note|message|notice)<1>(?:to|for) (?:the )?(?:ai|llm|models?|assistant|agent)s?\b"
        r"|\bas an? (?:ai|llm|language model|assistant|agent)\b|\bpretend\b"
        r"|\b(?:assistant|ai|llm|model|agent) (?:must|should|has to|needs to|is required)\b",
    ),
    (
        "claims an approval, or asks to skip one",
        r"\buser<2>(?:approved|consented|authori[sz]ed|agreed|granted)\b|\bskip<3>(?:confirmations?|approvals?|permission)\b"
        r"|\bwithout<3>(?:confirmation|approval|permission|consent)\b"
        r"|\b(?:admin|root|administrator|developer|god)<1>(?:override|mode|privileges)\b|\badministrator and\b"
        r"|\b(?:disable|turn off|bypass|circumvent)<3>"
        r"(?:safety|security|checks?|confirmations?|sandbox|restrictions|gate)\b",
    ),
    (
        "overrides instructions",
        r"\b(?:ignore|disregard|forget|override|supersed\w+|bypass)<3>"
        r"(?:instructions?|prompts?|polic(?:y|ies)|guidelines?|restrictions?|safety|previous rules?)\b"
        r"|\b(?:new|updated|real|actual|system) (?:instructions?|prompt)\s*:",
    ),
    (
        "uses tags that look like a message of the system",
        r"</?\s*(?:important|system|instructions?|secret|hidden|critical|assistant|admin|developer|priority|urgent)"
        r"(?:[\s_-][^<>]{0,40})?\s*/?>|\[/?(?:INST|SYSTEM)\]|<\|[a-z_]+\|>",
    ),
    ("names a command to run", r"\b(?:execute|run)\W+(?:curl|wget|bash|sh|chmod|rm|eval|nc)\b|\|\s*(?:ba)?sh\b"),
    # data
    (
        "names files with secrets of the user",
        r"(?:~|/home/\w+|/root|\$HOME)/\.(?:ssh|aws|gnupg|kube|config|netrc|docker|cursor|claude|npmrc|env)\b"
        r"|(?<![a-z])id_(?:rsa|ed25519|ecdsa)\b|/etc/(?:passwd|shadow)\b|\.ssh/|\.cursor/mcp\.json",
    ),
    (
        "asks for secrets of the user",
        r"\b(?:read|send|include|pass|provide|attach|upload|leak|exfiltrate)<5>(?:(?:private|ssh|api)[ _-]keys?"
        r"|credentials|passwords|environment variables|values of the environment|secrets|access tokens)\b",
    ),
    (
        "asks to pass other content in an argument",
        r"\b(?:pass|put|include|insert|append|attach|send|forward|copy|provide)<6>"
        r"(?:contents?|conversation|chat|history|transcript|tool list|your (?:prompt|tools|instructions|last messages))"
        r"<6>(?:as|in|into|to|with|through|via)<4>"
        r"(?:arguments?|parameters?|fields?|sidenote|note|feedback|header|url|webhook)\b",
    ),
    (
        "asks to pass the conversation or files elsewhere",
        r"\b(?:entire|whole|full|complete|all of the|all the)<2>(?:conversation|chat|message history|context window)\b"
        r"|\bsystem prompt\b|\b(?:with|include|pass|send|provide|forward|add)<4>(?:your|last|previous)<2>messages\b"
        r"|\b(?:upload|forward|exfiltrate|send)<3>(?:all files|every file|conversation|whole workspace)\b",
    ),
    (
        "changes recipients or addresses",
        r"\b(?:all|every|any|each)<3>(?:e-?mails?|messages?|payments?|transactions?|transfers?)<4>"
        r"(?:must|should|have to|need to|has to)<3>(?:sent|go|forwarded|addressed|routed)\b"
        r"|\binstead of<4>(?:recipient|number|address)\b",
    ),
    ("contains a long encoded text", r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{160,}={0,2}"),
)


def _compiled(pattern: str) -> re.Pattern[str]:
    words = re.sub(r"<(\d)>", r"\\W+(?:\\w+\\W+){0,\1}?", pattern)
    return re.compile(words, re.IGNORECASE)


_INSTRUCTS = tuple((what, _compiled(pattern)) for what, pattern in _SENTENCES)


def _of_text(text: str, where: str, about: _Surroundings) -> Iterator[tuple[str, str]]:
    """Yield the kinds and texts of the warnings about one text."""
    if not text:
        return
    if _PADDING.search(text):
        yield "hidden", f"its {where} contains blank space that moves text out of view"
    if _ESCAPE.search(text):
        yield "escape", f"its {where} contains control codes of a terminal"
    plain, hidden = text, _hidden(text)
    if hidden:
        yield "hidden", f"its {where} contains {hidden}"
        plain = "".join(char for char in text if not _is_hidden(char))
    if not plain.isascii():
        plain = _skeleton_text(plain)
    for what, pattern in _INSTRUCTS:
        if (hit := pattern.search(plain)) is not None:
            yield "instructs", f"its {where} {what}: “{one_line(hit[0], _SHOWN)}”"
    for other in dict.fromkeys(_QUALIFIED.findall(plain)):
        if other.casefold() != about.server.casefold():
            yield "mentions", f"its {where} mentions a tool of the server `{one_line(other, 40)}`"
    lowered = plain.casefold()
    if about.servers is not None and (hit := about.servers.search(lowered)) is not None:
        yield "mentions", f"its {where} mentions the server `{hit[1] or hit[2]}`"
    if about.tools:
        for word in dict.fromkeys(_WORD.findall(lowered)):
            if (found := about.tools.get(word.strip(".-"))) is not None:
                yield "mentions", f"its {where} mentions the tool `{one_line(found[1], 60)}` of the server `{found[0]}`"
    for hit in _BUILT_IN.finditer(lowered):
        yield "mentions", f"its {where} mentions the tool `{hit[1] or hit[2]}` of this program"


_WORD = re.compile(r"[\w.-]+")
_NAMES = "|".join(tool.value for tool in Tool)
_BUILT_IN = re.compile(rf"[`'\"]({_NAMES})[`'\"] tool\b|\btool [`'\"]({_NAMES})[`'\"]")


def _hidden(text: str) -> str:
    """Return the characters of `text` that cannot be seen or that change the direction, in words; else nothing."""
    if text.isascii() and (text.isprintable() or not _CONTROLS.search(text)):
        return ""
    if visible_prose(text) == text.replace("\r\n", "\n"):
        return ""
    odd = [char for char in dict.fromkeys(text) if _is_hidden(char)]
    if not odd:
        return "marks that cover other text"
    return "invisible or reversing characters: " + ", ".join(f"U+{ord(char):04X}" for char in odd[:4])


_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def _is_hidden(char: str) -> bool:
    return char not in "\n\t\r" and visible_prose(char) != char and unicodedata.category(char) not in ("Mn", "Me", "Mc")


# ---- names

# Letters of other scripts and digits that look like a letter of ASCII. SOURCE: the table of confusable characters of
# Unicode (UTS 39), for the letters of names.
_LOOKS = str.maketrans({
    **dict(zip("аеорсухіјѕԁһԛԝвкмнтгпАВЕКМНОРСТУХІЈЅԌΑΒΕΖΗΙΚΜΝΟΡΤΥΧοαιντυρνκ",
               "aeopcyxijsdhqwbkmhtrnABEKMHOPCTYXIJSGABEZHIKMNOPTYXoaivtupvk", strict=True)),
    "ı": "i", "ł": "l", "ℓ": "l", "ɡ": "g", "ɑ": "a", "ʟ": "l",
})  # fmt: skip
_SAME = str.maketrans({"0": "o", "1": "l", "i": "l", "|": "l", "5": "s", "$": "s"})


def _skeleton_text(text: str) -> str:
    """Return `text` with letters that only look like ASCII replaced by these."""
    return unicodedata.normalize("NFKC", text).translate(_LOOKS)


@lru_cache(maxsize=8192)
def _skeleton(name: str) -> str:
    """Return the form that equals that of each name that looks the same. Case, separators and accents do not count."""
    plain = unicodedata.normalize("NFKD", _skeleton_text("".join(char for char in name if not _is_hidden(char))))
    folded = "".join(char for char in plain if not unicodedata.combining(char)).casefold().translate(_SAME)
    return folded.replace("rn", "m").replace("vv", "w").replace("_", "").replace("-", "").replace(".", "")


def _of_names(tools: Sequence[OfferedTool], others: Mapping[str, frozenset[str]]) -> Iterator[Suspicion]:
    own: dict[str, list[str]] = {}
    for name in dict.fromkeys(tool.name for tool in tools):
        own.setdefault(_skeleton(name), []).append(name)
    elsewhere: dict[str, list[tuple[str, str]]] = {}
    for server, names in others.items():
        for name in names:
            elsewhere.setdefault(_skeleton(name), []).append((server, name))
    built_in = {_skeleton(tool.value): tool.value for tool in Tool}
    seen: set[str] = set()
    for tool in tools:
        name = tool.name
        shown, form = one_line(name, _SHOWN), _skeleton(name)
        if name in seen:
            yield Suspicion(name, "duplicate", f"the server offers two tools with the name `{shown}`")
        seen.add(name)
        if not certain_tool(name):
            yield Suspicion(name, "name", f"`{shown}` can never be called: rules and cards could mistake its name")
        if name.startswith("mcp__") or "__" in name:
            yield Suspicion(name, "look-alike", f"`{shown}` looks like the whole name of another server's tool")
        for other in own[form]:
            if other != name:
                kind = "duplicate" if other.casefold() == name.casefold() else "look-alike"
                yield Suspicion(name, kind, f"`{shown}` looks like `{one_line(other, _SHOWN)}` of the same server")
        for server, other in elsewhere.get(form, ()):
            same = "has the name of" if other == name else "looks like"
            yield Suspicion(
                name, "look-alike", f"`{shown}` {same} `{one_line(other, _SHOWN)}` of the server `{server}`"
            )
        if form in built_in:
            same = "has the name of" if built_in[form] == name else "looks like"
            yield Suspicion(name, "look-alike", f"`{shown}` {same} `{built_in[form]}` of this program")


def _of_server_name(server: str, others: Mapping[str, frozenset[str]]) -> Iterator[Suspicion]:
    for other in others:
        if _skeleton(other) == _skeleton(server) or similar(server, [other], cutoff=0.8):
            yield Suspicion("", "look-alike", f"the name `{server}` looks like the server `{other}`")
