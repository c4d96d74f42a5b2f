"""Search for a credential, in one order for every part of the program.

    `--api-key-stdin` > the provider's environment variable > helper command > OS keyring > refuse

The first source that was given or configured is used. A configured source that fails ends the search, so that no other
key than the intended one is used silently.
"""

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import assert_never

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.problems import option, unless_program
from runner.secrets.accounts import AccountFile, Accounts, account_of
from runner.secrets.helper_command import Helper, HelperFailed, ask_helper
from runner.secrets.keyring_store import SERVICE, KeyringFailed, KeyringStore, item
from runner.secrets.secret import Secret, SecretError, store_command, usable
from runner.state.json_file import StateError
from runner.state.paths import PlaceError

# The environment variable that each provider's own tools use; the last two are search services.
# THREAT T21: no two providers have the same variable.
# fmt: off
VARIABLES = {
    "anthropic":  "ANTHROPIC_API_KEY",
    "openai":     "OPENAI_API_KEY",
    "gemini":     "GEMINI_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
    "ollama":     "OLLAMA_API_KEY",
    "llamacpp":   "LLAMA_API_KEY",
    "lmstudio":   "LM_API_TOKEN",
    "vllm":       "VLLM_API_KEY",
    "brave":      "BRAVE_API_KEY",
    "kagi":       "KAGI_API_KEY",
}
# fmt: on
KEYED = ("anthropic", "openai", "gemini", "openrouter")  # providers that need a key; the others run on this machine
_ODD = "its value has blanks, line ends or other characters that a key never has, or is too long"
_NAMED = "skipped, because an account was named and only the keyring has accounts"
_LOCAL = "skipped for a server on this machine, unless `--account` names an account"


class KeySource(StrEnum):
    """The sources of a credential, in the order of the search."""

    STDIN = "stdin"
    VARIABLE = "variable"
    HELPER = "helper"
    KEYRING = "keyring"


class SourceState(StrEnum):
    """The result of one source."""

    USED = "used"
    ABSENT = "absent"  # no key was given, configured or found
    SKIPPED = "skipped"  # configured, but not for this request
    BROKEN = "broken"  # configured, but does not work
    MISSING = "missing"  # this machine does not have such a source
    UNASKED = "not asked"  # an earlier source ended the search


@dataclass(frozen=True, slots=True)
class KeyRequest:
    """A request for a credential.

    Attributes:
        provider: The provider, or the name of a credential in the configuration.
        environ: The environment variables.
        account: The account named for this run. The variable and the helper, which have no accounts, are skipped then.
        configured: The account that the configuration names.
        stdin_key: The key from standard input, or None.
        helper: The configured helper command, or None.
        workspace: The folder that no helper may be in.
        local: True for a server on this machine, which often needs no key: the helper is skipped, and the keyring too
            unless an account was named.
    """

    provider: str = ""
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    account: str | None = None
    configured: str | None = None
    stdin_key: Secret | None = None
    helper: Helper | None = None
    workspace: str = ""
    local: bool = False


@dataclass(frozen=True, slots=True)
class Tried:
    """The result of one source, in words that contain no part of a value."""

    source: KeySource
    state: SourceState
    name: str
    why: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class FoundKey:
    """A credential, its source in words, and the way to replace a credential that was refused."""

    secret: Secret
    source: str
    renew: str = ""


@dataclass(frozen=True, slots=True)
class KeySearch:
    """The results of all sources, in their order. `local` is True for a server on this machine. `account` is the
    account named for this run, or None.
    """

    provider: str
    tried: tuple[Tried, ...]
    found: FoundKey | None = None
    local: bool = False
    account: str | None = None

    def broken(self) -> Tried | None:
        """Return the source that is configured and failed, or None."""
        return next((each for each in self.tried if each.state is SourceState.BROKEN), None)

    def problem(self) -> Problem:
        """Return the reason why no key was found, and the one thing to do. `agent auth status` shows every source."""
        what, broken, last = f"no API key for `{self.provider}`", self.broken(), self.tried[-1]
        if broken is not None and broken.source is not KeySource.KEYRING:
            before = "; ".join(f"{each.name}: {each.why}" for each in self.tried[: self.tried.index(broken)])
            return Problem(what, f"{broken.name}: {broken.why} (tried before: {before})", broken.fix)
        why = "no key was found for it" + unless_program(" (`agent auth status` shows where a key was looked for)")
        if broken is not None:
            steps = [broken.fix, first_step(self.provider, keyring=False)]
            return Problem(what, f"{broken.name}: {broken.why}", "; or ".join(filter(None, steps)))
        if self.account is not None:  # only the keyring has accounts
            fix = last.fix or f"run `{store_command(self.provider)} --account {self.account}`"
            keyring = last.state is SourceState.ABSENT
            return Problem(
                what, f"{last.name}: {last.why}", fix if keyring else "leave --account out, or use a keyring"
            )
        if last.fix:  # the keyring has other accounts
            return Problem(what, f"{last.name}: {last.why}", last.fix)
        return Problem(what, why, first_step(self.provider, keyring=last.state is SourceState.ABSENT))


def first_step(provider: str, *, keyring: bool) -> str:
    """Return the one thing to do if there is no key."""
    variable = VARIABLES.get(provider)
    if variable is None:
        return ways(provider, keyring=keyring)
    return f"set `{variable}`" + (f", or run `{store_command(provider)}`" if keyring else "")


def ways(provider: str, *, keyring: bool) -> str:
    """Return the ways to provide a key. The keyring is included only if it works."""
    steps = [f"run `{store_command(provider)}`"] if keyring else []
    if provider not in VARIABLES:  # a credential of commands: its own row says where it is
        return f"{steps[0] if steps else 'unlock or start a keyring'}, or name another source in its `[[credential]]`"
    steps.append(f"set `{VARIABLES[provider]}`")
    steps.append(f"name a program that prints it (`helper` in `[auth.{provider}]`)")
    if stdin := option("--api-key-stdin"):
        steps.append(f"give it on standard input with `{stdin}`")
    return f"{', '.join(steps[:-1])}, or {steps[-1]}"


def find(request: KeyRequest) -> FoundKey | None:
    """Return the credential. If no source has a key, raise SecretError, which names every source that was tried.

    For a server on this machine, return None instead, unless an account was named or a source failed.
    """
    search = look(request)
    if search.found is None and (not request.local or request.account or search.broken()):
        raise SecretError(search.problem())
    return search.found


def look(request: KeyRequest, keyring: KeyringStore | None = None) -> KeySearch:
    """Ask one source after the other, and return the results. A failure is a result, not an exception."""
    tried: list[Tried] = []
    key: FoundKey | None = None
    for source in KeySource:
        if tried and tried[-1].state in (SourceState.USED, SourceState.BROKEN, SourceState.UNASKED):
            tried.append(Tried(source, SourceState.UNASKED, _name(source, request), "not asked"))
            continue
        name, answer = _ask(source, request, keyring)
        if isinstance(answer, Secret):
            key = FoundKey(answer, name, _renewal(source, request))
            tried.append(Tried(source, SourceState.USED, name, "the key of this source is used"))
        else:
            tried.append(Tried(source, answer.state, name, answer.why, answer.fix))
    return KeySearch(request.provider, tuple(tried), key, request.local, request.account)


def _renewal(source: KeySource, request: KeyRequest) -> str:
    """Return the way to replace a key that was refused. The keyring is named only if the key came from it, because
    other sources are used before it.
    """
    ways = {
        KeySource.STDIN: "give a valid key to `--api-key-stdin`",
        KeySource.VARIABLE: f"set `{VARIABLES.get(request.provider, '')}` to a valid key",
        KeySource.HELPER: f"correct what the helper command of `[auth.{request.provider}]` prints",
        KeySource.KEYRING: f"replace it with `{store_command(request.provider)} --replace`",
    }
    return ways[source]


@dataclass(frozen=True, slots=True)
class _No:
    """The reason why a source has no key."""

    state: SourceState
    why: str
    fix: str = ""


def _name(source: KeySource, request: KeyRequest) -> str:
    variable = VARIABLES.get(request.provider)
    names = {
        KeySource.STDIN: "`--api-key-stdin`",
        KeySource.VARIABLE: f"environment variable `{variable}`" if variable else "environment variable",
        KeySource.HELPER: "helper command",
        KeySource.KEYRING: "keyring",
    }
    return names[source]


def _ask(source: KeySource, request: KeyRequest, keyring: KeyringStore | None) -> tuple[str, Secret | _No]:
    """Return the name of the source, and its answer."""
    match source:
        case KeySource.STDIN:
            answer = request.stdin_key or _No(SourceState.ABSENT, "not given")
        case KeySource.VARIABLE:
            answer = _variable(request)
        case KeySource.HELPER:
            answer = _helper(request)
        case KeySource.KEYRING:
            return _keyring(request, keyring or KeyringStore())
        case never:
            assert_never(never)
    return _name(source, request), answer


def _variable(request: KeyRequest) -> Secret | _No:
    variable = VARIABLES.get(request.provider)
    if variable is None:
        return _No(SourceState.ABSENT, "none for this provider")
    if not request.environ.get(variable, "").strip():
        return _No(SourceState.ABSENT, "not set")
    if request.account:
        return _No(SourceState.SKIPPED, _NAMED)
    return usable(request.environ[variable]) or _No(SourceState.BROKEN, _ODD, f"set `{variable}` again, or unset it")


def _helper(request: KeyRequest) -> Secret | _No:
    if request.helper is None:
        return _No(SourceState.ABSENT, "none is configured")
    if request.account:
        return _No(SourceState.SKIPPED, _NAMED)
    if request.local:
        return _No(SourceState.SKIPPED, _LOCAL)
    try:
        return ask_helper(request.helper, request.environ, request.workspace)
    except HelperFailed as error:
        return _No(SourceState.BROKEN, error.why, error.fix)


def _keyring(request: KeyRequest, keyring: KeyringStore) -> tuple[str, Secret | _No]:
    if request.local and not request.account:
        return _name(KeySource.KEYRING, request), _No(SourceState.SKIPPED, _LOCAL)
    known, trouble = _accounts(request)
    account = request.account or account_of(known, request.configured)
    name = f"keyring item `{SERVICE}` / `{item(request.provider, account)}`"
    if trouble is not None and account != request.account:
        return name, _No(SourceState.BROKEN, f"{trouble.what}: {trouble.why}", trouble.fix)
    try:
        key = keyring.read(request.provider, account)
    except KeyringFailed as error:
        return name, _No(SourceState.MISSING if error.missing else SourceState.BROKEN, error.why, error.fix)
    if key is not None:
        return name, key
    others = ", ".join(f"`{each}`" for each in known.names if each != account)
    why = f"the keyring has no account `{account}`; it has {others}" if others else "the keyring has no such item"
    return name, _No(SourceState.ABSENT, why, "name one of those with `--account`" if others else "")


def _accounts(request: KeyRequest) -> tuple[Accounts, Problem | None]:
    try:
        return AccountFile(request.environ).read().value.of(request.provider), None
    except (PlaceError, StateError) as error:
        return Accounts(), error.problem
