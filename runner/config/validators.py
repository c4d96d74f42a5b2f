"""Further checks of values of the right shape. A check returns a Fault, or None if the value can be used."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from policy.model.profile import Layer
from policy.model.tier import Mode, no_looser
from policy.permission.file import permissions
from policy.toml.schema import TomlDocument, TomlEntry, Value

if TYPE_CHECKING:
    from runner.text.http_address import HttpAddress

Fault = tuple[str, str]  # why a value cannot be used, and how to correct the value

_LONGEST_STORE = 4 << 20  # bytes of a file of certificates

LIMIT_HELP = (  # as in LIMITS of policy/toml/profile.py
    "the maximum wall time of one command",
    "the maximum processor time, in seconds",
    "the maximum number of processes and threads",
    "the maximum memory, including files in memory (`/dev/shm`, the sandbox's HOME)",
    "the maximum size of one file",
    "the maximum number of open files of each process",
    "the maximum size of all new data in the workspace, `/tmp` and allowed folders",
    "the maximum output",
)

RULE_HELP: Mapping[str, str] = {
    "verdict": "Verdict for the actions that match: `allow`, `try` (run on a copy, then ask), `ask` or `deny`.",
    "run": "Words of a command; `*` and `?` match in a word, a list is a choice, a last `**` matches more words.",
    "family": "Family of reading commands that the rule allows on its hosts, such as `gh-read`.",
    "rights": "Additional rights of exactly the command of `run`: `--host HOST`, `--read PATH`, `--write PATH`.",
    "tool": "Tools of the action; `*`, `?` and `[..]` match in a name. `bash` means every command, `mcp__NAME__*` all "
    "tools of the server NAME.",
    "arguments": "Arguments of a call of such a tool, each with a pattern that it must match.",
    "values": "Arguments of a call of a server's tool, each with the exact value that it must have.",
    "below": "Arguments of a call of a server's tool, each with the folder that must contain its paths.",
    "only": "All arguments that a call of a server's tool may have.",
    "read": "Paths that the action reads.",
    "write": "Paths that the action changes.",
    "host": "Hosts that the action connects to.",
    "tier": "Tiers (kinds of risk) of the action.",
    "source": "Source of the action: the model, the user, a sub-agent, a hook or a job.",
    "why": "Text that is shown when the rule stops an action.",
    "until": "Last day on which the rule applies.",
}


def choice(name: str, value: str, known: Sequence[str]) -> Fault:
    """Return the fault of a `value` that is not in `known`."""
    if len(known) < 3:
        return f"there is no `{value}` here", f"write {' or '.join(f'`{each}`' for each in known)}{near(value, known)}"
    names = ", ".join(f"`{each}`" for each in known)
    return f"there is no {name} `{value}`", f"choose one of {names}{near(value, known)}"


def near(value: str, known: Sequence[str]) -> str:
    """Return `; did you mean ...?` if the text resembles one of the names, else nothing."""
    from runner.text.phrases import similar

    matches = similar(value, known) or [each for each in known if value and each.startswith(value)]
    return f"; did you mean `{matches[0]}`?" if matches else ""


def hook_clients(value: Value) -> Fault | None:
    """Check the names of programs whose hook files are used."""
    known = ("claude", "codex", "gemini")
    wrong = next((each for each in value if isinstance(each, str) and each not in known), None)  # type: ignore[union-attr]  # the shape is TEXTS
    return choice("program", wrong, known) if wrong is not None else None


def database(value: Value) -> Fault | None:
    """Check the address of a PostgreSQL database, which must not contain a password."""
    scheme, found, rest = str(value).partition("://")
    if not found or scheme != "postgresql":
        return "it is not the address of a PostgreSQL database", 'write it as "postgresql://USER@HOST/DATABASE"'
    if ":" in rest.partition("/")[0].rpartition("@")[0] or "password=" in rest:
        return "it contains a password", "move it to ~/.pgpass: HOST:PORT:DATABASE:USER:PASSWORD"
    return None


def model_of(providers: Sequence[str]) -> Callable[[Value], Fault | None]:
    """Return the check that a value names one of `providers`."""

    def check(value: Value) -> Fault | None:
        name = str(value).partition(":")[0]
        if name in providers:
            return None
        fix = f'write it as `provider:model`, such as "anthropic:claude-sonnet-5-5"{near(name, providers)}'
        return f"there is no provider `{name}`", fix

    return check


def provider_address(text: str) -> "HttpAddress | Fault":
    """Return the address of a provider, or its fault. Without HTTPS the provider must be on this machine."""
    from runner.text.http_address import AddressFault, read_address

    found = read_address(text)
    match found:
        case AddressFault.CREDENTIAL:
            return found.value, "remove the part before `@`; `agent auth login` stores a key"
        case AddressFault.QUERY:
            return found.value, "remove that part"
        case AddressFault():
            return found.value, "write it like `https://host/v1`"
    if found.in_clear:
        why = f"`http://{found.host}` would carry the key and every prompt unencrypted"
        return why, "use `https://`, or a tunnel that ends on `localhost`"
    return found


def address(value: Value) -> Fault | None:
    """Check the address of a provider."""
    found = provider_address(str(value))
    return found if isinstance(found, tuple) else None


def search_address(value: Value) -> Fault | None:
    """Check the address of a search service, which may have `{query}` in it."""
    from policy.model.page_address import page_address
    from policy.model.verdict import Problem
    from runner.text.http_address import is_loopback

    text = str(value)
    found = page_address(text.replace("{query}", "x"))
    if isinstance(found, Problem):
        return found.why, found.fix
    host = found.partition("://")[2].partition("/")[0]
    name = host.rpartition(":")[0] or host
    if found.startswith("http://") and not is_loopback(name.strip("[]")):
        return f"`http://{host}` would carry every query unencrypted", "use `https://`, or a service on this machine"
    if "{query}" in text and "{query}" not in text.partition("://")[2].partition("/")[2]:
        return "the words of a query may not be a part of the host", "write it like `https://host/search?q={query}`"
    return None


def web_fault(service: str, url: str) -> Fault | None:
    """Return the fault of a search service and its address together, or None."""
    if service == "searxng" and not url:
        return "its address is not known", 'write `url = "https://..."` in `[web]`'
    if service == "template" and "{query}" not in url:
        return "its address has no place for the words", 'write `url = "https://host/search?q={query}"` in `[web]`'
    if service != "template" and "{query}" in url:
        return f"the address of `{service}` has no `{{query}}` in it", 'remove it, or write `search = "template"`'
    return None


def collector(value: Value) -> Fault | None:
    """Check the address of an OpenTelemetry collector."""
    from runner.text.http_address import AddressFault, read_address

    match read_address(str(value)):
        case AddressFault.CREDENTIAL | AddressFault.QUERY as fault:
            return fault.value, "put a credential into OTEL_EXPORTER_OTLP_HEADERS"
        case AddressFault() as fault:
            return fault.value, 'write it like "https://host:4318"'
    return None


def upstream_proxy(value: Value) -> Fault | None:
    """Check the address of an upstream proxy."""
    from sandbox.egress.upstream import proxy_address  # only if a file names a proxy

    try:
        proxy_address(str(value))
    except ValueError as error:
        return str(error), 'write it like "http://host:3128", without a password'
    return None


def translated_ranges(value: Value) -> Fault | None:
    """Check the address ranges of a translator or an intercepting proxy."""
    from sandbox.egress.addresses import translated_network  # only if a file names ranges

    for text in map(str, value) if isinstance(value, tuple) else ():
        try:
            translated_network(text)
        except ValueError as error:
            return f"`{text}`: {error}", 'write ranges like "198.18.0.0/15" and "64:ff9b::/96"'
    return None


def certificate_authority(value: Value) -> Fault | None:
    """Check the file of certificates that commands trust."""
    from sandbox.inside.regular_file import read_whole  # only if a file names certificates

    path = str(value)
    fix = "name a file that contains certificates and nothing else, such as the system's store with yours added"
    if not path.startswith("/") or "\0" in path:
        return f"`{path}` is another file in every folder", "write its absolute path"
    try:
        text = read_whole(path, _LONGEST_STORE, follow=True)
    except OSError as error:
        return f"`{path}` cannot be read ({(error.strerror or str(error)).lower()})", fix
    if b"PRIVATE KEY" in text:
        return f"`{path}` contains a private key, which commands could read", fix
    return None if b"-----BEGIN CERTIFICATE-----" in text else (f"`{path}` contains no certificate in PEM form", fix)


def helper(value: Value) -> Fault | None:
    """Check the words of a helper command. The first is a plain name, an absolute path, or a path below `~`."""
    words = [str(word) for word in value] if isinstance(value, tuple) else []
    first = words[0] if words else ""
    if not first or any("\0" in word for word in words):
        return "it contains no program", 'write its words, such as ["pass", "show", "anthropic"]'
    if "/" in first and not first.startswith(("/", "~/")):
        return f"`{first}` is another program in every folder", "write its absolute path, or a name on PATH"
    return None


def account(value: Value) -> Fault | None:
    from runner.secrets.accounts import is_account

    if is_account(str(value)):
        return None
    return "an account has at most 64 letters, digits and `._@+-`", "write a name that `agent auth status` shows"


def percent(value: Value) -> Fault | None:
    if isinstance(value, int) and 1 <= value <= 100:
        return None
    return "it is not a percentage", "write a number from 1 to 100"


def version_up_to(newest: int) -> Callable[[Value], Fault | None]:
    why = f"it was written for a newer ringfence; this one knows the formats up to {newest}"
    return lambda value: (why, "install a newer ringfence") if isinstance(value, int) and value > newest else None


def rule(entry: TomlEntry) -> None:
    """Check a rule. Raises TomlError. A rule that other settings make ineffective is not found here."""
    permissions(TomlDocument(entry.source, "", {}, (entry,)), Layer.NAMED)


def mode_no_looser(new: Value, old: Value) -> bool:
    return no_looser(Mode(str(new)), Mode(str(old)))


def before(order: Sequence[str]) -> Callable[[Value, Value], bool]:
    """Return a function that returns True if its first argument is not looser than its second.

    `order` has the allowed values, the strictest first.
    """
    return lambda new, old: order.index(str(new)) <= order.index(str(old))
