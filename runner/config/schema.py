"""The table of all keys. The loader, `agent config show|check`, the JSON Schema and `agent init` are based on it.

A new key is a row of KEYS, a new `[[list]]` a row of LISTS. `Settings.value("a", "b")` returns the value of a key,
`Settings.entries("list")` the entries of a list, and `Settings.named("a")` the values of each name in `a.*.key`.
"""

from collections.abc import Callable, Mapping
from dataclasses import field
from enum import Enum

from policy.model.frozen import dataclass
from policy.model.profile import Source
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
from runner.config.hook_table import HOOK_EXAMPLE, HOOK_HELP, HOOK_KEYS, MOST_HOOKS, check_hook
from runner.config.migrations import VERSION
from runner.config.validators import Fault

# The names are those of `runner/providers`, whose import would take longer than reading all settings.
_KEYED = ("anthropic", "openai", "gemini", "openrouter")  # providers that need a key
REMOTE = (*_KEYED, "ollama", "llamacpp", "lmstudio", "vllm")  # providers with an address
PROVIDERS = (*REMOTE, "scripted")
# The services of `web_search`; the names are those of `runner/web/search.py`.
SEARCHES = ("searxng", "brave", "kagi", "template", "anthropic", "openai", "gemini")
_KEYED_SEARCHES = ("brave", "kagi")

# Examples of models.
_MODELS = {"anthropic": '"claude-sonnet-5-5"', "gemini": '"gemini-3.8-flash"', "openrouter": '"qwen/qwen3-coder"'}

ValueCheck = Callable[[Value], Fault | None]


class Widens(Enum):
    """The rights of a repository's file over a key before the user trusts its exact content; those of YOURS also
    after.
    """

    YOURS = "nothing, even if it is trusted"
    NEVER = "nothing"
    TIGHTEN = "only tighten: lower, stricter, or more that is forbidden"
    ANYTHING = "anything, because it allows nothing"


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
        named: returns the fault of a name that stands for `*`.
    """

    name: str
    shape: ValueType
    widens: Widens
    help: str
    default: Value | None = None
    variable: str = ""
    choices: tuple[str, ...] = ()
    check: ValueCheck | None = None
    adds: bool = False
    stricter: Callable[[Value, Value], bool] | None = None
    example: str = ""
    named: Callable[[str], Fault | None] | None = None

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
    check: Callable[[TomlEntry], object] | None = None
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


def _server_key(
    name: str,
    shape: ValueType,
    help: str,
    example: str,
    *,
    widens: Widens = Widens.NEVER,
    default: Value | None = None,
    choices: tuple[str, ...] = (),
    adds: bool = False,
) -> Key:
    """Return one key of `[mcp.NAME]`. The module of its checks is only loaded for a file with such a table."""

    def check(value: Value) -> Fault | None:
        from runner.config.server_values import CHECKS

        return CHECKS[name](value)

    def named(server: str) -> Fault | None:
        from runner.config.server_values import name_fault

        return name_fault(server)

    sure = bool(choices) or default is not None  # the shape says all
    return Key(
        f"mcp.*.{name}",
        shape,
        widens,
        help,
        default,
        choices=choices,
        check=None if sure else check,
        adds=adds,
        example=example,
        named=named,
    )


def _language_key(
    name: str,
    shape: ValueType,
    help: str,
    example: str,
    *,
    widens: Widens = Widens.YOURS,
    default: Value | None = None,
) -> Key:
    """Return one key of `[language.NAME]`. The module of its checks is only loaded for a file with such a table."""

    def check(value: Value) -> Fault | None:
        from runner.config.language_values import CHECKS

        return CHECKS[name](value)

    def named(server: str) -> Fault | None:
        from runner.config.server_values import name_fault

        return name_fault(server)

    sure = default is not None  # the shape says all
    return Key(
        f"language.*.{name}",
        shape,
        widens,
        help,
        default,
        check=None if sure else check,
        example=example,
        named=named,
    )


YOURS, NEVER, TIGHTEN, ANYTHING = Widens.YOURS, Widens.NEVER, Widens.TIGHTEN, Widens.ANYTHING

# fmt: off
KEYS: tuple[Key, ...] = (
    Key("version", ValueType.WHOLE, ANYTHING, "the format of this file", VERSION,
        check=validators.version_up_to(VERSION)),

    Key("mode", ValueType.TEXT, TIGHTEN, "how much is allowed without a question", "default", "RINGFENCE_MODE",
        choices=tuple(mode.value for mode in Mode), stricter=validators.mode_no_looser),
    Key("model", ValueType.TEXT, NEVER, "the model, as `provider:model`", None, "RINGFENCE_MODEL",
        check=validators.model_of(PROVIDERS), example='"anthropic:claude-sonnet-5-5"'),
    Key("small_model", ValueType.TEXT, NEVER,
        "the model that summarizes old turns of a long conversation, as `provider:model`",
        None, check=validators.model_of(PROVIDERS), example='"anthropic:claude-haiku-5-5"'),
    Key("fallback_model", ValueType.TEXT, NEVER, "the model to use while `model` is overloaded, as `provider:model`",
        None, check=validators.model_of(PROVIDERS), example='"anthropic:claude-sonnet-5"'),
    Key("output_schema", ValueType.TEXT, NEVER,
        "the JSON Schema of the answers of `agent run` and `agent ci`: its JSON text or its file", None,
        example='"/etc/review.schema.json"'),
    Key("thinking", ValueType.TEXT, NEVER, "how much the model thinks before it answers", "off",
        "RINGFENCE_THINKING", choices=("off", "low", "medium", "high", "max")),
    Key("show_thinking", ValueType.SWITCH, NEVER,
        "show the reasoning of the model in full in a conversation, not only the row that it is writing", False),
    Key("theme", ValueType.TEXT, NEVER, "the colours of a conversation; `auto` detects the background of the terminal",
        "auto", choices=("auto", "dark", "light", "none")),
    Key("notify",
        ValueType.TEXT, NEVER, "the signal for a question or the end of a turn, if you are not typing",
        "bell", choices=("bell", "osc9", "none")),
    Key("max_turns", ValueType.WHOLE, TIGHTEN, "the maximum number of requests to the model in one run", 50,
        "RINGFENCE_MAX_TURNS"),

    Key("budget.tokens", ValueType.WHOLE, TIGHTEN, "the maximum number of tokens of one run, sent and received", None,
        "RINGFENCE_MAX_TOKENS", example="2_000_000"),
    Key("budget.money", ValueType.NUMBER, TIGHTEN, "the maximum cost of one run, by the prices in `[price]`", None,
        "RINGFENCE_MAX_COST", example="5.0"),
    Key("budget.time", ValueType.SECONDS, TIGHTEN, "the maximum wall time of one run", None, example='"30m"'),
    Key("budget.output", ValueType.SIZE, TIGHTEN, "the maximum output of all commands of one run", None,
        example='"50 MiB"'),
    Key("budget.denials", ValueType.WHOLE, TIGHTEN, "the number of denials that ends an unattended run", 20),
    Key("budget.row", ValueType.WHOLE, TIGHTEN, "the number of denials in a row that ends an unattended run", 3),

    Key("queue.enter", ValueType.TEXT, NEVER,
        "when a text that you send with Enter reaches the model: inside the turn, or after it (Alt+Q)", "steer",
        choices=("steer", "follow-up")),
    Key("queue.delivery", ValueType.TEXT, NEVER,
        "how many queued texts are sent to the model together", "one-at-a-time",
        choices=("one-at-a-time", "all")),

    Key("hosted.idle", ValueType.SECONDS, NEVER,
        "the time without clients and work after which a hosted session ends (0: never)", 1800, example='"2h"'),
    Key("compaction.trim", ValueType.WHOLE, NEVER,
        "fill level from which long outputs of old calls lose their middle", 70,
        check=validators.percent),
    Key("compaction.one_line", ValueType.WHOLE, NEVER,
        "fill level from which each output of an old call becomes one line", 80,
        check=validators.percent),
    Key("compaction.summary", ValueType.WHOLE, NEVER,
        "fill level from which old turns are replaced by a summary of the small model", 85,
        check=validators.percent),
    Key("compaction.recent", ValueType.WHOLE, NEVER,
        "fill level from which only the summary and the latest turns are kept", 90,
        check=validators.percent),
    Key("compaction.truncate", ValueType.WHOLE, NEVER,
        "fill level from which the remaining text is cut", 95, check=validators.percent),
    Key("window.*.tokens", ValueType.WHOLE, NEVER, "the context window of `provider:model` in tokens, with the answer",
        example="32_768"),

    Key("instructions", ValueType.SWITCH, TIGHTEN,
        "give the model the trusted `AGENTS.md`, `CLAUDE.md` and `GEMINI.md` of the repository", True),
    Key("skills",
        ValueType.SWITCH, TIGHTEN, "tell the model about your skills and the trusted ones of the repository", True),
    Key("memory", ValueType.SWITCH, TIGHTEN, "give the model your notes of earlier sessions (`agent memory`)", True),

    Key("flow", ValueType.TEXT, TIGHTEN,
        "what untrusted text changes: `guard` by default in `ci`, `batch` and `trust-project`, else `note`", None,
        choices=("off", "note", "guard"), stricter=validators.before(("guard", "note", "off")), example='"guard"'),
    Key("untrusted.files", ValueType.TEXTS, TIGHTEN,
        "files of the workspace whose text is untrusted, as patterns; `*` also matches `/`", adds=True,
        example='["issues/*", "*.log"]'),
    Key("private.files", ValueType.TEXTS, TIGHTEN,
        "files of the workspace whose text is private, as patterns; `*` also matches `/`", adds=True,
        example='["customers/*"]'),
    Key("agents", ValueType.SWITCH, TIGHTEN, "let the model start sub-agents", True),
    Key("coordinator", ValueType.SWITCH, TIGHTEN,
        "let the main agent only start, message and stop sub-agents and keep the task list", False),

    Key("jobs.tool", ValueType.SWITCH, YOURS,
        "let the model request scheduled jobs; each request is a question (docs/guide/jobs.md)", False),
    Key("serve.start", ValueType.SWITCH, YOURS,
        "start the resident process (`agent serve`) after the first command that it could have run", False),
    Key("serve.idle", ValueType.SECONDS, YOURS, "the time without work after which the resident process ends", 1800.0,
        example='"30m"'),
    Key("serve.sessions", ValueType.WHOLE, YOURS, "the maximum number of sessions in the resident process", 8),
    Key("serve.listen", ValueType.TEXT, YOURS,
        "the address of remote access, which the resident process then always starts (docs/guide/remote.md)",
        example='"127.0.0.1:8443"'),

    Key("web.fetch", ValueType.SWITCH, TIGHTEN, "let the model read web pages; the rules about hosts hold", True),
    Key("web.search", ValueType.TEXT, YOURS,
        "the service of `web_search` (docs/guide/web.md)",
        choices=SEARCHES, example='"searxng"'),
    Key("web.url", ValueType.TEXT, YOURS,
        "the address of that service; for `template`, with `{query}` in place of the words",
        check=validators.search_address, example='"http://localhost:8888"'),
    Key("web.model", ValueType.TEXT, YOURS, "the model that searches, if the service is a model vendor",
        example='"claude-haiku-5-5"'),

    *(key for name in REMOTE for key in (
        Key(f"provider.{name}.base_url", ValueType.TEXT, NEVER, f"the address of `{name}`", check=validators.address,
            example=f'"https://{name}.example/v1"'),
        Key(f"provider.{name}.model", ValueType.TEXT, NEVER, f"the model of `{name}` if only the provider is given",
            example=_MODELS.get(name, '"qwen3:8b"')),
    )),
    Key("provider.openai.api", ValueType.TEXT, NEVER,
        "the API of `openai`; by default `responses` at OpenAI itself, and `chat` at other addresses",
        choices=("responses", "chat"), example='"responses"'),

    *(key for name in (*_KEYED, *_KEYED_SEARCHES) for key in (
        Key(f"auth.{name}.helper", ValueType.TEXTS, YOURS, f"the program and arguments that print the key of `{name}`",
            check=validators.helper, example=f'["pass", "show", "{name}"]'),
        Key(f"auth.{name}.helper_timeout", ValueType.SECONDS, YOURS, "the time limit of that program, in seconds", 10),
        Key(f"auth.{name}.account", ValueType.TEXT, YOURS, f"the default account of `{name}`",
            check=validators.account, example='"work"'),
    )),

    Key("sandbox.minimum", ValueType.TEXT, TIGHTEN,
        "the minimum that a sandbox must enforce; `partial` accepts a weaker sandbox",
        "full", "RINGFENCE_SANDBOX_MINIMUM", choices=("full", "partial"),
        stricter=validators.before(("full", "partial"))),
    Key("sandbox.unix_sockets", ValueType.SWITCH, TIGHTEN,
        "allow AF_UNIX sockets to commands that may change the workspace", True),
    Key("sandbox.transactions", ValueType.SWITCH, YOURS,
        "run writing commands on a copy-on-write view, and judge their changes before they reach the workspace", True),
    Key("sandbox.most_deleted", ValueType.COUNT, YOURS,
        "the number of files from which on the deletions of a command are held back; 0 for no limit", 10_000),
    Key("sandbox.network.upstream_proxy", ValueType.TEXT, YOURS,
        "the HTTP proxy through which the sandbox's own proxy reaches hosts, except those with `private`",
        check=validators.upstream_proxy, example='"http://proxy.example:3128"'),
    Key("sandbox.network.translated_ranges", ValueType.TEXTS, YOURS,
        "address ranges of a translator (NAT64) or an intercepting proxy, which are accepted for names",
        check=validators.translated_ranges, example='["198.18.0.0/15", "64:ff9b::/96"]'),
    Key("sandbox.network.certificate_authority", ValueType.TEXT, YOURS,
        "a file of certificates that commands trust in place of the system's, for a proxy that opens TLS",
        check=validators.certificate_authority, example='"/etc/ssl/certs/ca-certificates.crt"'),
    Key("sandbox.container.image", ValueType.TEXT, NEVER, "the image of `--backend container`, pinned by digest or ID",
        example='"debian@sha256:..."'),
    Key("sandbox.container.runtime", ValueType.TEXT, NEVER, "the container daemon's runtime", example='"runsc"'),
    Key("sandbox.container.socket", ValueType.TEXT, NEVER, "the container daemon's socket",
        example='"/run/user/1000/docker.sock"'),

    Key("tools.only", ValueType.TEXTS, TIGHTEN,
        "the tools that the model may call, as patterns of names; by default all",
        example='["read", "grep", "mcp__github__*"]'),
    Key("tools.except", ValueType.TEXTS, TIGHTEN, "tools that the model may not call, as patterns of names", adds=True,
        example='["bash"]'),

    _server_key("command", ValueType.TEXT, "the program of a tool server (MCP) that runs on this machine", '"npx"'),
    _server_key("args", ValueType.TEXTS, "the arguments of that program", '["-y", "@example/server"]'),
    _server_key("env", ValueType.TABLE, "variables of that program; `$NAME` inserts a variable of yours",
        '{ API_TOKEN = "$EXAMPLE_TOKEN" }'),
    _server_key("cwd", ValueType.TEXT, "the folder in which the program starts; by default a folder of its own", '"."'),
    _server_key("hosts", ValueType.TEXTS, "hosts that the program may connect to", '["api.example.com"]'),
    _server_key("read", ValueType.TEXTS, "files and folders that the program may read; `.` is the workspace", '["."]'),
    _server_key("write", ValueType.TEXTS, "files and folders that the program may change", '["~/notes"]'),
    _server_key("url", ValueType.TEXT, "the address of a tool server on another machine",
        '"https://mcp.example.com/mcp"'),
    _server_key("headers", ValueType.TABLE, "headers of requests to that address; `$NAME` inserts a variable of yours",
        '{ Authorization = "Bearer $EXAMPLE_TOKEN" }'),
    _server_key("transport", ValueType.TEXT, "the protocol below MCP; by default `stdio` or `http`", '"http"',
        choices=("stdio", "http", "sse")),
    _server_key("tools", ValueType.TEXTS, "tools of the server that the model may call, as patterns; by default all",
        '["search_*"]', widens=TIGHTEN),
    _server_key("exclude_tools", ValueType.TEXTS, "tools of the server that the model may not call, as patterns",
        '["delete_*"]', widens=TIGHTEN, adds=True),
    _server_key("tiers", ValueType.TABLE, "the tier of tools: a pattern and `read`, `write`, `network` or `dangerous`",
        '{ "search_*" = "read" }'),
    _server_key("results", ValueType.TABLE,
        "the trust in results of tools: a pattern and `untrusted` (the default), `workspace` or `trusted`",
        '{ "get_account" = "trusted" }'),
    _server_key("private", ValueType.SWITCH, "results of the server are private data", "", default=False),
    _server_key("timeout", ValueType.SECONDS, "the maximum wall time of one call", "", default=60),
    _server_key("callback_port", ValueType.WHOLE,
        "the port of 127.0.0.1 to which the browser returns from a sign-in; by default a free one", "8765"),
    _server_key("start_timeout", ValueType.SECONDS, "the maximum time from the start of the server to its first answer",
        "", default=30),
    _server_key("enabled", ValueType.SWITCH, "start the server with a session", "", widens=TIGHTEN, default=True),

    Key("code.servers", ValueType.SWITCH, TIGHTEN, "use language servers, if their programs are installed", True),
    Key("code.diagnostics", ValueType.SWITCH, TIGHTEN, "tell the model the errors that an edit adds to a file", True),
    Key("code.wait", ValueType.SECONDS, TIGHTEN, "the maximum time that an edit waits for them", 2),
    Key("code.idle", ValueType.SECONDS, TIGHTEN, "the time without use after which a language server is ended", 600),
    _language_key("command", ValueType.TEXT, "the program of a language server; by default that of the preset `NAME`",
        '"gopls"'),
    _language_key("args", ValueType.TEXTS, "the arguments of that program", '["serve"]'),
    _language_key("files", ValueType.TEXTS, "the names of the files that the server is for, as patterns", '["*.go"]'),
    _language_key("env", ValueType.TABLE, "variables of that program", '{ GOFLAGS = "-mod=vendor" }'),
    _language_key("read", ValueType.TEXTS, "files and folders outside of the workspace that the program may read",
        '["~/go/pkg/mod"]'),
    _language_key("settings", ValueType.TEXT, "the settings that the server asks for, as a JSON object",
        """'{"gopls": {"staticcheck": true}}'"""),
    _language_key("options", ValueType.TEXT, "the options that the server gets at its start, as a JSON object",
        """'{"usePlaceholders": false}'"""),
    _language_key("enabled", ValueType.SWITCH, "use the server", "", widens=TIGHTEN, default=True),

    Key("hooks.files", ValueType.TEXTS, YOURS, "the programs whose hook files in your home are used; by default all",
        check=validators.hook_clients, example='["claude"]'),

    Key("secret.names", ValueType.TEXTS, TIGHTEN, "additional file names that are secret in every folder", adds=True,
        check=lambda value: list_fault(value, ("secret", "names")), example='["*.vault"]'),
    Key("deny.commands", ValueType.PATTERNS, TIGHTEN,
        "additional commands that are never run, as lists of words", adds=True,
        check=patterns_fault, example='[["terraform", "destroy", "*"]]'),

    Key("audit.sign", ValueType.SWITCH, YOURS, "sign the checkpoints of the audit log (`agent audit key new`)", False),
    Key("audit.url", ValueType.TEXT, YOURS, "the database for the audit log, instead of a file", None,
        "RINGFENCE_AUDIT_URL", check=validators.database, example='"postgresql://audit@db.example/ringfence"'),
    Key("audit.otlp", ValueType.TEXT, YOURS,
        "the OpenTelemetry collector to which decisions of sessions are sent immediately",
        None, check=validators.collector, example='"https://collector.example:4318"'),

    Key("undo.enabled", ValueType.SWITCH, NEVER, "store files that actions of a model change, for `agent undo`", True),
    Key("undo.required", ValueType.SWITCH, TIGHTEN, "refuse actions that could not be undone", False,
        stricter=lambda new, old: new is True),
    Key("undo.steps", ValueType.WHOLE, NEVER,
        "the maximum number of stored actions; the oldest are removed first", 100),
    Key("undo.size", ValueType.SIZE, NEVER,
        "the maximum size of the stored files of one workspace", 2 << 30, example='"2 GiB"'),
    Key("undo.file", ValueType.SIZE, NEVER,
        "the maximum size of a file that is stored", 500 << 20, example='"500 MiB"'),
    Key("undo.files", ValueType.WHOLE, NEVER,
        "the maximum number of files and folders that are checked for changes", 300_000),
    Key("undo.leave_out", ValueType.TEXTS, NEVER, "additional names of folders that are not stored", adds=True,
        example='["dist"]'),

    *(Key(f"price.*.{name}", ValueType.NUMBER, NEVER, f"the price of a million tokens {what}, by `provider:model`",
          example="3.0") for name, what in (("input", "sent"), ("output", "received"),
                                            ("cache_read", "read from cache"), ("cache_write", "written to it"))),

    *(Key(f"limits.{name}", shape, TIGHTEN, what, None, f"RINGFENCE_LIMIT_{name.upper()}")
      for (name, shape), what in zip(LIMITS.items(), validators.LIMIT_HELP, strict=True)),
)

LISTS: tuple[TableList, ...] = (
    TableList("rule", TIGHTEN,
        "allows, tries, asks about or denies actions; the strictest verdict counts: deny, ask, try, allow",
        RULE_KEYS, check=validators.rule, tightens=lambda entry: entry.values.get("verdict") in ("try", "ask", "deny"),
        example='verdict = "deny"\nrun     = ["git", "push"]\nwhy     = "releases are made by hand"',
        choices={"verdict": ("allow", "try", "ask", "deny"), "source": tuple(Source),
                 "tier": tuple(tier.label for tier in Tier)}, helps=validators.RULE_HELP, most=MOST_RULES),
    TableList("credential", NEVER, "a header that the proxy adds to requests of commands, which never see it",
        CREDENTIAL_KEYS, check=credential, example=CREDENTIAL_EXAMPLE,
        helps=CREDENTIAL_HELP, most=MOST_CREDENTIALS),
    TableList("hook", NEVER, "a program, an address or a question that is asked at an event of a session, in a sandbox",
        HOOK_KEYS, check=check_hook, example=HOOK_EXAMPLE,
        choices={"on_failure": ("deny", "continue"), "form": ("ringfence", "claude", "codex", "gemini")},
        helps=HOOK_HELP, most=MOST_HOOKS),
)
# fmt: on

# Descriptions of the tables, for `agent init` and the schema.
SECTIONS: Mapping[str, str] = {
    "untrusted": "Files whose text the agent must not obey, such as exported issues (`flow`).",
    "private": "Files whose text must not leave the machine without a question (`flow`).",
    "provider": "The addresses of providers. Never write a key into this file.",
    "auth": "Where to find the key of a provider if no variable contains it. Never write a key into this file.",
    "tools": "The tools of the model. A tool that is left out is not described to the model and cannot be called.",
    "jobs": "Scheduled jobs (`agent jobs`).",
    "web": "Web pages and searches (docs/guide/web.md). No file of a repository can choose the service.",
    "serve": "The resident process, which runs short commands at once (docs/guide/resident.md).",
    "budget": "Limits of one run. A reached limit ends the run with exit 5. For the number of requests: `max_turns`.",
    "queue": "Texts that you send while the model works.",
    "hosted": "Sessions that outlive their terminal: `agent attach`.",
    "compaction": "The fill levels of the context window, in per cent, from which the conversation is shortened.",
    "window": "The context windows of models that ringfence does not know, such as your own.",
    "sandbox": "The sandbox in which commands run.",
    "sandbox.network": "The way from the sandbox's proxy to the network. No file of a repository can set it.",
    "sandbox.container": "The sandbox of `--backend container`.",
    "mcp": "Tool servers (MCP). Each runs in a sandbox of its own; `agent mcp add` writes such a table.",
    "code": "Language servers, which tell the model about code (docs/guide/code.md).",
    "language": "Language servers. Each runs in a sandbox that only reads. A name of a preset changes that preset.",
    "hooks": "Hooks. Each `[[hook]]` runs in a sandbox of its own at an event of a session (docs/guide/hooks.md).",
    "secret": "Files that no action may read, in any mode.",
    "deny": "Commands that no action may run, in any mode.",
    "audit": "The log of all decisions. Credentials of a collector belong into OTEL_EXPORTER_OTLP_HEADERS.",
    "undo": "The storage for `agent undo`.",
    "price": "The prices of models, for the cost of a session. Without a price, no cost is shown.",
    "limits": "Limits of one command.",
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
