"""The table of all keys. The loader, `agent config show|check`, the JSON Schema and `agent init` are based on it.

A new key is a row of KEYS, a new `[[list]]` a row of LISTS. `Settings.value("a", "b")` returns the value of a key,
`Settings.entries("list")` the entries of a list, and `Settings.named("a")` the values of each name in `a.*.key`.
"""

from collections.abc import Callable, Mapping
from dataclasses import field
from enum import Enum

from policy.model.frozen import dataclass
from policy.model.profile import Source, Tool
from policy.model.tier import Mode, Tier
from policy.permission.file import KEYS as RULE_KEYS
from policy.permission.file import MOST as MOST_RULES
from policy.toml.profile import LIMITS, list_fault, patterns_fault
from policy.toml.schema import KeyPath, TomlEntry, TomlError, Value, ValueType
from runner.config import validators
from runner.config.credential_table import (
    CREDENTIAL_EXAMPLE,
    CREDENTIAL_HELP,
    CREDENTIAL_KEYS,
    MOST_CREDENTIALS,
    credential,
)
from runner.config.migrations import VERSION
from runner.config.validators import Fault

# As in runner/providers, whose import would cost more than reading all settings.
REMOTE = ("anthropic", "openai", "gemini")  # providers with an address
PROVIDERS = (*REMOTE, "scripted")

Check = Callable[[Value], Fault | None]


class Widens(Enum):
    """The rights of a repository's file over a key before the user trusts its exact content; those of YOURS also
    after.
    """

    YOURS = "nothing, trusted or not: it is for you to say"
    NEVER = "nothing: it is for you to say"
    TIGHTEN = "only tighten: less, stricter, or more that is forbidden"
    ANYTHING = "anything: it opens nothing"


@dataclass(frozen=True, slots=True)
class Key:
    """One setting.

    Attributes:
        name: path with dots. A part `*` stands for any name, in quotes if the name contains dots.
        shape: shape of the value.
        widens: rights of a repository's file.
        help: description for the user.
        default: value if no layer sets the key; None if there is no default.
        variable: name of the environment variable.
        choices: allowed texts.
        check: returns the fault of a value of the right shape.
        adds: True for a list to which every layer adds. Otherwise a later layer replaces the value.
        stricter: `stricter(new, old)` returns True if `new` is not looser, for TIGHTEN. Without it, a lower number or
            false is stricter.
        example: an example as TOML.
    """

    name: str
    shape: ValueType
    widens: Widens
    help: str
    default: Value | None = None
    variable: str = ""
    choices: tuple[str, ...] = ()
    check: Check | None = None
    adds: bool = False
    stricter: Callable[[Value, Value], bool] | None = None
    example: str = ""

    @property
    def path(self) -> KeyPath:
        return tuple(self.name.split("."))

    def fault(self, value: Value) -> Fault | None:
        """Return why a value of the right shape cannot be used and how to correct the value; None if it can be used."""
        if self.choices and value not in self.choices:
            return validators.choice(self.name.rpartition(".")[2], str(value), self.choices)
        return self.check(value) if self.check else None

    def tightens(self, new: Value, old: Value | None) -> bool:
        """Return True if a file that may only tighten may replace `old` by `new`."""
        if self.widens is not Widens.TIGHTEN:
            return self.widens is Widens.ANYTHING
        if self.adds or new == old:
            return True
        if old is None:
            return self.stricter is None
        if self.stricter:
            return self.stricter(new, old)
        return isinstance(new, int | float) and isinstance(old, int | float) and new <= old


@dataclass(frozen=True, slots=True)
class TableList:
    """A table `[[name]]` that may occur any number of times.

    Attributes:
        name: name of the table.
        widens: rights of a repository's file over an entry.
        help: description for the user.
        keys: shapes of the keys of an entry.
        check: raises TomlError for an entry with a fault.
        tightens: with TIGHTEN, returns True for an entry that may stay in a file that may only tighten.
        example: an example as TOML.
        choices: allowed texts of a key, or of the entries of its list.
        helps: descriptions of the keys.
        most: largest number of entries.
    """

    name: str
    widens: Widens
    help: str
    keys: Mapping[str, ValueType]
    check: Callable[[TomlEntry], object] | None = None  # raises TomlError
    tightens: Callable[[TomlEntry], bool] | None = None
    example: str = ""
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    helps: Mapping[str, str] = field(default_factory=dict)
    most: int = 1000

    def fault(self, entry: TomlEntry) -> TomlError | None:
        """Return the fault of an entry whose values have the right shapes; None if the entry can be used."""
        try:
            if self.check:
                self.check(entry)
        except TomlError as error:
            return error
        for name, known in self.choices.items():
            given = entry.values.get(name, ())
            for text in given if isinstance(given, tuple) else (given,):
                if text not in known:
                    return entry.error_at(name, *validators.choice(name, str(text), known))
        return None

    def stays(self, entry: TomlEntry) -> bool:
        """Return True if the entry holds although its file may only tighten."""
        if self.widens is Widens.TIGHTEN:
            return self.tightens is not None and self.tightens(entry)
        return self.widens is Widens.ANYTHING


YOURS, NEVER, TIGHTEN, ANYTHING = Widens.YOURS, Widens.NEVER, Widens.TIGHTEN, Widens.ANYTHING

# fmt: off
KEYS: tuple[Key, ...] = (
    Key("version", ValueType.WHOLE, ANYTHING, "the format of this file", VERSION,
        check=validators.version_up_to(VERSION)),

    Key("mode", ValueType.TEXT, TIGHTEN, "how much is allowed without a question", "default", "RINGFENCE_MODE",
        choices=tuple(mode.value for mode in Mode), stricter=validators.mode_no_looser),
    Key("model", ValueType.TEXT, NEVER, "the model, as `provider:model`", None, "RINGFENCE_MODEL",
        check=validators.model_of(PROVIDERS), example='"anthropic:claude-sonnet-5-5"'),
    Key("small_model", ValueType.TEXT, NEVER, "summarizes the old part of a long conversation, as `provider:model`",
        None, check=validators.model_of(PROVIDERS), example='"anthropic:claude-haiku-5-5"'),
    Key("fallback_model", ValueType.TEXT, NEVER, "the model used while the first one is busy, as `provider:model`",
        None, check=validators.model_of(PROVIDERS), example='"anthropic:claude-sonnet-5"'),
    Key("thinking", ValueType.TEXT, NEVER, "how much the model is asked to think before it answers", "off",
        "RINGFENCE_THINKING", choices=("off", "low", "medium", "high", "max")),
    Key("theme", ValueType.TEXT, NEVER, "the colours of a conversation; `auto` asks the terminal for its background",
        "auto", choices=("auto", "dark", "light", "none")),
    Key("notify",
        ValueType.TEXT, NEVER, "how you are called when a question waits or a turn ended, and you typed nothing",
        "bell", choices=("bell", "osc9", "none")),
    Key("max_turns", ValueType.WHOLE, TIGHTEN, "most requests to the model in one run", 50, "RINGFENCE_MAX_TURNS"),

    Key("budget.tokens", ValueType.WHOLE, TIGHTEN, "most tokens of one run, sent and received", None,
        "RINGFENCE_MAX_TOKENS", example="2_000_000"),
    Key("budget.money", ValueType.NUMBER, TIGHTEN, "the most that one run may cost, as `[price]` counts", None,
        "RINGFENCE_MAX_COST", example="5.0"),
    Key("budget.time", ValueType.SECONDS, TIGHTEN, "most time of one run", None, example='"30m"'),
    Key("budget.output", ValueType.SIZE, TIGHTEN, "most bytes that all commands of one run print", None,
        example='"50 MB"'),
    Key("budget.denials", ValueType.WHOLE, TIGHTEN, "denials that end an unattended run", 20),
    Key("budget.row", ValueType.WHOLE, TIGHTEN, "denials in a row that end an unattended run", 3),

    Key("queue.enter", ValueType.TEXT, NEVER, "where Enter puts what you type meanwhile; Alt+Q the other", "steer",
        choices=("steer", "follow-up")),
    Key("queue.delivery", ValueType.TEXT, NEVER, "how much of what waits is sent at its moment", "one-at-a-time",
        choices=("one-at-a-time", "all")),

    Key("compaction.trim", ValueType.WHOLE, NEVER, "long output of old calls loses its middle", 70,
        check=validators.percent),
    Key("compaction.one_line", ValueType.WHOLE, NEVER, "output of old calls becomes one line", 80,
        check=validators.percent),
    Key("compaction.summary", ValueType.WHOLE, NEVER, "old turns become notes by the small model", 85,
        check=validators.percent),
    Key("compaction.recent", ValueType.WHOLE, NEVER, "only the latest turns stay beside the notes", 90,
        check=validators.percent),
    Key("compaction.truncate", ValueType.WHOLE, NEVER, "whatever is left is cut", 95, check=validators.percent),
    Key("window.*.tokens", ValueType.WHOLE, NEVER, "how many tokens fit into a `provider:model`, its answer among them",
        example="32_768"),

    Key("instructions", ValueType.SWITCH, TIGHTEN,
        "the model is given the trusted `AGENTS.md`, `CLAUDE.md` and `GEMINI.md` of the repository", True),
    Key("skills",
        ValueType.SWITCH, TIGHTEN, "the model is told of your skills, and of the trusted ones of the repository", True),

    *(key for name in REMOTE for key in (
        Key(f"provider.{name}.base_url", ValueType.TEXT, NEVER, f"where `{name}` is reached", check=validators.address,
            example=f'"https://{name}.example/v1"'),
        Key(f"provider.{name}.model", ValueType.TEXT, NEVER, f"the model of `{name}` when only the provider is named",
            example={"openai": '"qwen3:8b"', "gemini": '"gemini-3.8-flash"'}.get(name, '"claude-sonnet-5-5"')),
    )),
    Key("provider.openai.api", ValueType.TEXT, NEVER,
        "the API it is asked by; unless said, `responses` at OpenAI itself and `chat` at other addresses",
        choices=("responses", "chat"), example='"responses"'),

    *(key for name in REMOTE for key in (
        Key(f"auth.{name}.helper", ValueType.TEXTS, YOURS, f"a program that prints the key of `{name}`, word by word",
            check=validators.helper, example=f'["pass", "show", "{name}"]'),
        Key(f"auth.{name}.helper_timeout", ValueType.SECONDS, YOURS, "how long that program may take, in seconds", 10),
        Key(f"auth.{name}.account", ValueType.TEXT, YOURS, f"which account of `{name}` is used when none is named",
            check=validators.account, example='"work"'),
    )),

    Key("sandbox.minimum", ValueType.TEXT, TIGHTEN, "the least a sandbox must enforce; `partial` accepts a weaker one",
        "full", "RINGFENCE_SANDBOX_MINIMUM", choices=("full", "partial"),
        stricter=validators.before(("full", "partial"))),
    Key("sandbox.unix_sockets", ValueType.SWITCH, TIGHTEN,
        "commands that change the workspace may make AF_UNIX sockets", False),
    Key("sandbox.container.image", ValueType.TEXT, NEVER, "the image of `--backend container`, pinned by digest or ID",
        example='"debian@sha256:..."'),
    Key("sandbox.container.runtime", ValueType.TEXT, NEVER, "the container daemon's runtime", example='"runsc"'),
    Key("sandbox.container.socket", ValueType.TEXT, NEVER, "the container daemon's socket",
        example='"/run/user/1000/docker.sock"'),

    Key("secret.names", ValueType.TEXTS, TIGHTEN, "more file names that are secret wherever they lie", adds=True,
        check=lambda value: list_fault(value, ("secret", "names")), example='["*.vault"]'),
    Key("deny.commands", ValueType.PATTERNS, TIGHTEN, "more commands that never run, word by word", adds=True,
        check=patterns_fault, example='[["terraform", "destroy", "*"]]'),

    Key("audit.sign", ValueType.SWITCH, YOURS, "sign the checkpoints of the audit log (`agent audit key new`)", False),
    Key("audit.url", ValueType.TEXT, YOURS, "the database that the audit log is kept in, instead of a file", None,
        "RINGFENCE_AUDIT_URL", check=validators.database, example='"postgresql://audit@db.example/ringfence"'),
    Key("audit.otlp", ValueType.TEXT, YOURS, "the collector that decisions of sessions are sent to as they are made",
        None, check=validators.collector, example='"https://collector.example:4318"'),

    Key("undo.enabled", ValueType.SWITCH, NEVER, "keep what actions of a model change, for `agent undo`", True),
    Key("undo.required", ValueType.SWITCH, TIGHTEN, "an action that could not be undone does not run", False,
        stricter=lambda new, old: new is True),
    Key("undo.steps", ValueType.WHOLE, NEVER, "most actions that are kept; the oldest go first", 100),
    Key("undo.size", ValueType.SIZE, NEVER, "most bytes that are kept for one workspace", 2 << 30, example='"2 GB"'),
    Key("undo.file", ValueType.SIZE, NEVER, "the largest file that is kept", 500 << 20, example='"500 MB"'),
    Key("undo.files", ValueType.WHOLE, NEVER, "most files and folders that are looked at", 300_000),
    Key("undo.leave_out", ValueType.TEXTS, NEVER, "more names of folders that are not kept", adds=True,
        example='["dist"]'),

    *(Key(f"price.*.{name}", ValueType.NUMBER, NEVER, f"what a million tokens {what} cost, by `provider:model`",
          example="3.0") for name, what in (("input", "sent"), ("output", "received"),
                                            ("cache_read", "read from the cache"), ("cache_write", "written to it"))),

    *(Key(f"limits.{name}", shape, TIGHTEN, what, None, f"RINGFENCE_LIMIT_{name.upper()}")
      for (name, shape), what in zip(LIMITS.items(), validators.LIMIT_HELP, strict=True)),
)

LISTS: tuple[TableList, ...] = (
    TableList("rule", TIGHTEN, "allows, asks about or denies actions; deny is stronger than ask, and ask than allow",
        RULE_KEYS, check=validators.rule, tightens=lambda entry: entry.values.get("verdict") in ("ask", "deny"),
        example='verdict = "deny"\nrun     = ["git", "push"]\nwhy     = "releases are made by hand"',
        choices={"verdict": ("allow", "ask", "deny"), "tool": tuple(Tool), "source": tuple(Source),
                 "tier": tuple(tier.label for tier in Tier)}, helps=validators.RULE_HELP, most=MOST_RULES),
    TableList("credential", NEVER, "a header that the proxy adds to requests of commands, which never see it",
        CREDENTIAL_KEYS, check=credential, example=CREDENTIAL_EXAMPLE,
        helps=CREDENTIAL_HELP, most=MOST_CREDENTIALS),
)
# fmt: on

# Descriptions of the tables, for `agent init` and the schema.
SECTIONS: Mapping[str, str] = {
    "provider": "Where models are reached. The key itself never stands in a file.",
    "auth": "Where the key of a provider is, when no variable has it. The key itself never stands in a file.",
    "budget": "What one run may use up. What is reached ends it with exit 5. Requests to the model: `max_turns`.",
    "queue": "What is typed while the model works.",
    "compaction": "How full the model's window is, in per cent, when what it is sent gets shorter.",
    "window": "What fits into models that ringfence does not know, such as your own.",
    "sandbox": "What a command may do inside.",
    "sandbox.container": "The sandbox of `--backend container`.",
    "secret": "Files that no action may read, whatever the mode.",
    "deny": "Commands that no action may run, whatever the mode.",
    "audit": "The record of what was decided. Credentials of a collector: OTEL_EXPORTER_OTLP_HEADERS.",
    "undo": "What is kept so that it can be taken back.",
    "price": "What models cost, for what a session says it spent. Without a price nothing is guessed.",
    "limits": "What one command may use up.",
}
SHAPES: dict[KeyPath, ValueType] = {key.path: key.shape for key in KEYS}
ENTRIES: dict[str, Mapping[str, ValueType]] = {each.name: each.keys for each in LISTS}
VARIABLES: dict[str, Key] = {key.variable: key for key in KEYS if key.variable}
_BY_PATH = {key.path: key for key in KEYS}
_LISTS_BY_NAME = {each.name: each for each in LISTS}
_OPEN = tuple(key for key in KEYS if "*" in key.path)


def key_of(path: KeyPath) -> Key:
    """Return the row of a known path. Raise StopIteration for an unknown path."""
    found = _BY_PATH.get(path)
    if found is not None:
        return found
    return next(
        key
        for key in _OPEN
        if len(key.path) == len(path) and all(want in ("*", word) for want, word in zip(key.path, path, strict=True))
    )


def list_of(name: str) -> TableList:
    """Return the row of a known `[[name]]`. Raise KeyError for an unknown name."""
    return _LISTS_BY_NAME[name]
