"""The options of the command line, each declared once, for `agent`, `run`, `ci`, `exec`, `why`, `sandbox show` and
`batch run`.

Two parsers use the table. The small parser of `exec`, `why`, `sandbox show` and plain `agent` at a terminal does not
need typer, whose import costs 50 ms. The parser of typer also makes the help pages and the completion
(`runner/cli/gate.py`).
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from policy.model.frozen import dataclass
from policy.model.tier import Mode
from policy.model.verdict import limit_names
from runner.problems import Stopped, usage

FILE_TOOLS = ("read", "write", "edit", "ls", "glob", "grep")

_GATE = ("exec", "why", "sandbox show")
_HOSTED = ("attach", "serve session")
_PROMPTED = ("run", "ci", "agent", "terminal")
_MODEL = (*_PROMPTED, *_HOSTED)
_SESSION = ("run", "agent", "terminal", *_HOSTED)
_TYPED = ("run", "agent", *_HOSTED)
_RESEARCH = ("repo", "web")
_BUDGET = ("run", "ci", *_RESEARCH)
_BOUNDED = (*_BUDGET, "serve session")
_BATCH = ("batch run",)
_SERVE = ("mcp serve",)
_EDITOR = ("acp",)
_SCHEDULE = ("jobs add",)


@dataclass(frozen=True, slots=True)
class Option:
    """One option of some commands.

    Attributes:
        name: the long form, with its dashes.
        metavar: the placeholder of the value in help pages; empty for a switch, which takes no value.
        commands: the commands that have the option. `terminal` is plain `agent` at a terminal, if its command line is
            parsed without typer.
        many: True if the option may be repeated and all values are used. Otherwise the last value is used.
        least: the lowest value of an option that takes a whole number; None if the value is a text.
        short: the short form with one dash, or empty.
        complete: the kind of completion, or empty (see `runner/cli/gate.py`).
    """

    name: str
    metavar: str
    help: str
    commands: tuple[str, ...]
    many: bool = False
    least: int | None = None
    short: str = ""
    complete: str = ""

    @property
    def key(self) -> str:
        """Return the name as a Python identifier, without leading dashes. A keyword of Python gets an underscore."""
        found = self.name.removeprefix("--").replace("-", "_")
        return f"{found}_" if found in ("continue", "in") else found


# fmt: off
OPTIONS: tuple[Option, ...] = (
    Option("--out", "FOLDER", "Folder of the results (default: beside TASKS, with suffix `.batch`).", _BATCH),
    Option("--jobs", "N", "Number of tasks that run at once (default: one per core).", _BATCH, least=1, short="-j"),
    Option("--prompt-file", "FILE", "Read the prompt from this file.", ("run", "ci", *_SCHEDULE)),
    Option("--full", "", "Clone the whole history and files of every size.", ("repo",)),
    Option("--keep", "", "Keep the temporary workspace, and print its folder.", _RESEARCH),
    Option("--url", "URL", "Attach the web page at this address to the prompt. Repeatable.",
           (*_PROMPTED, "web"), many=True, short="-u"),
    Option("--mode", "MODE", f"How much is allowed without a question: {', '.join(mode.value for mode in Mode)}.",
           (*_GATE, *_MODEL, *_SERVE, *_EDITOR), complete="mode"),
    Option("--model", "PROVIDER:MODEL", "Model: anthropic:NAME, openai:NAME, gemini:NAME, scripted:FILE.",
           (*_MODEL, *_BATCH, *_RESEARCH, *_SCHEDULE, *_EDITOR), complete="model"),
    Option("--provider", "NAME", "Provider alone; its default model is used.",
           (*_MODEL, *_RESEARCH, *_EDITOR)),
    Option("--fallback-model", "PROVIDER:MODEL", "Model used if the first is overloaded.",
           (*_MODEL, *_RESEARCH, *_EDITOR), complete="model"),
    Option("--json", "", "JSON mode: one JSON object per line on stdin, one event per line on "
           "stdout (docs/guide/embedding.md).", ("agent",)),
    Option("--json", "", "JSON lines both ways, for programs (docs/guide/sessions.md).", ("attach",)),
    Option("--detach", "", "Start a session that outlives this terminal, print its ID and return (`agent attach`).",
           ("run",)),
    Option("--json", "", "Print one JSON event per line on stdout.", _BUDGET),
    Option("--output", "FORM", "Form of the output: text (the answer on stdout, the rest on stderr; default without a "
           "terminal), full (all of it on stdout; default at a terminal), json (as --json).", ("run",),
           complete="output"),
    Option("--last-message", "FILE", "Write the answer of the model to a file.", ("run", *_RESEARCH)),
    Option("--output-schema", "FILE|JSON", "JSON Schema of the answer: the answer is one valid JSON value, or the exit "
           "code is 1.", _BUDGET),
    Option("--input", "FORMAT", "Format of stdin: text (default); with --json also json: lines that control a "
           "session.", ("run",)),
    Option("--review", "", "Work in a copy and write the changes as a patch. Needs --patch.", ("ci",)),
    Option("--patch", "FILE", "Write the patch of --review, for `agent apply` or `git apply`.", ("ci",)),
    Option("--patch-ignored", "", "Include files that Git ignores in the patch.", ("ci",)),
    Option("--summary", "FILE", "Write a summary of the job in Markdown.", ("ci",)),
    Option("--sarif", "FILE", "Write the denied actions as SARIF, for code scanning.", ("ci",)),
    Option("--events", "FILE", "Write one JSON event per line while the run goes on.", ("ci",)),
    Option("--result", "FILE", "Write the result, the last line of stdout, to a file.", ("ci",)),
    Option("--seal", "FILE", "Write the head of the log, to detect later if records were removed.", ("ci",)),
    Option("--files-in-workspace", "", "Allow these files in folders where commands of the model may write.", ("ci",)),
    Option("--unattended", "", "Ask no question: deny every action that needs one.", (*_GATE, *_TYPED, *_SERVE)),
    Option("--max-turns", "N", "Largest number of requests to the model; default 50.", (*_BOUNDED, *_SCHEDULE),
           least=1),
    Option("--max-tokens", "N", "Largest number of tokens, sent and received.", (*_BOUNDED, *_SCHEDULE), least=1),
    Option("--max-cost", "AMOUNT", "Largest cost, in the currency of the prices.", (*_BOUNDED, *_SCHEDULE)),
    Option("--max-output", "SIZE", "Largest output of all commands together: 500K, 20M.",
           (*_BOUNDED, *_SERVE, *_SCHEDULE)),
    Option("--max-denials", "N", "Denials that end an unattended run; default 20, or 3 in a row.",
           (*_BOUNDED, *_SERVE, *_SCHEDULE), least=1),
    Option("--cwd", "FOLDER", "Working folder (default: the current folder).",
           (*_GATE, *_MODEL, *_SERVE, *_SCHEDULE)),
    Option("--config", "FILE", "Additional configuration file; it may allow more.",
           (*_GATE, *_MODEL, *_BATCH, *_SERVE, *_RESEARCH, *_EDITOR)),
    Option("--json", "", "Print JSON.", (*_GATE, *_BATCH)),
    Option("--limit", "NAME=VALUE", f"Limit of one command: {', '.join(limit_names())}. Repeatable; memory=2G, "
           "cpu=30s.", (*_GATE, *_MODEL, *_SERVE, *_RESEARCH, *_EDITOR), many=True, complete="limit"),
    Option("--timeout", "TIME", "Largest wall time: 30s, 5m. The same as --limit wall=TIME.", _GATE),
    Option("--timeout", "TIME", "Largest wall time of the run: 90s, 30m, 2h.",
           (*_BOUNDED, *_SERVE, *_SCHEDULE)),
    Option("--read", "PATH", "Let the action also read PATH, never a secret. Repeatable.", _GATE, many=True),
    Option("--write", "PATH", "Let the action also change PATH, which must exist. Repeatable.", _GATE, many=True),
    Option("--host", "HOST", "Let the action connect to HOST: example.org, *.example.org, example.org:8443, "
           "'localhost:3000 private'. Repeatable.", _GATE, many=True),
    Option("--env", "NAME=VALUE", "Set an environment variable, unless it disables a protection. Repeatable.", _GATE,
           many=True),
    Option("--untrusted", "SOURCE", "The command comes from a conversation that has read untrusted text from "
           "SOURCE (words), so the rules of `flow` apply.", ("exec", "why")),
    Option("--tool", "NAME", f"A file tool of the model: {', '.join(FILE_TOOLS)}.", ("why",)),
    Option("--path", "PATH", "With --tool: the path that the tool works on.", ("why",)),
    Option("--tools", "NAMES", "Tools that the model may call: read,grep,mcp__github__*. Repeatable.",
           (*_MODEL, *_SERVE, *_SCHEDULE, *_EDITOR), many=True),
    Option("--no-tools", "NAMES", "Tools that the model may not call. Repeatable.",
           (*_MODEL, *_SERVE, *_SCHEDULE, *_EDITOR), many=True),
    Option("--backend", "T1|T2|T3|container", "Use this sandbox and no other.",
           ("exec", *_MODEL, *_SERVE, *_RESEARCH, *_EDITOR), complete="backend"),
    Option("--accept-partial", "", "Run even if the sandbox can enforce only some protections (`agent doctor`).",
           ("exec", *_SESSION, *_SERVE, *_RESEARCH, *_EDITOR)),
    Option("--require", "full|partial", "Least enforcement of the sandbox, whatever the configuration says; else exit "
           "4.", ("exec", *_SESSION, *_SERVE, *_RESEARCH, *_EDITOR), complete="enforcement"),
    Option("--guard-token", "TOKEN", "Run the command that `agent guard` rewrote. The token counts once.", ("exec",)),
    Option("--preview", "", "Run it without network on a copy-on-write view, show its changes, and ask what to keep.",
           ("exec",)),
    Option("--background", "", "Print a name and return while the command runs; see `agent processes`.", ("exec",)),
    Option("--unix", "", "Let the action create AF_UNIX sockets, even if `sandbox.unix_sockets = false` forbids them.",
           _GATE),
    Option("--continue", "", "Continue the latest session of this workspace.", _SESSION, short="-c"),
    Option("--resume", "[ID]", "Continue the session ID; without ID, choose one from a list.", _SESSION),
    Option("--fork", "ID", "Continue a copy of the session ID; the original stays unchanged.", _SESSION),
    Option("--no-session", "", "Do not store this session, except in the audit log.", (*_SESSION, *_EDITOR)),
    Option("--trust-config", "SHA256", "Trust the files of the repository with this hash (`agent trust show`); "
           "otherwise exit 2.", (*_MODEL, *_SERVE)),
    Option("--no-instructions", "", "Give the model no AGENTS.md, CLAUDE.md or GEMINI.md.",
           (*_SESSION, *_EDITOR)),
    Option("--account", "NAME", "Account whose key is used; see `agent auth status`.",
           (*_MODEL, *_BATCH, *_RESEARCH, *_SCHEDULE, *_EDITOR)),
    Option("--api-key-stdin", "", "Read the API key from the first line of stdin.",
           ("run", "ci", "agent", *_RESEARCH)),
    Option("--mode", "MODE", "Mode of tasks that name none.", _BATCH, complete="batch mode"),
    Option("--cwd", "FOLDER", "Workspace of tasks that name none.", _BATCH),
    Option("--max-turns", "N", "Largest number of requests to the model per task.", _BATCH, least=1),
    Option("--task-timeout", "TIME", "Largest wall time of each task: 90s, 30m.", _BATCH),
    Option("--timeout", "TIME", "Largest wall time of the whole batch: 30m, 8h.", _BATCH),
    Option("--max-cost", "AMOUNT", "Largest cost of all tasks together, in the currency of the prices.", _BATCH),
    Option("--fail-fast", "", "Start no further task after a task has failed.", _BATCH),
    Option("--retry-failed", "", "Run tasks that failed or reached a limit again.", _BATCH),
    Option("--rerun-changed", "", "Run tasks whose line has changed again.", _BATCH),
    Option("--copies", "FOLDER", "Folder of the copies during the batch; default $TMPDIR, else /var/tmp.", _BATCH),
    Option("--engine", "ray://HOST:PORT", "Run on an existing Ray cluster; `ray` means that of this machine.", _BATCH),
    Option("--dry-run", "", "Check the list and run nothing.", _BATCH),
    Option("--at", "TIME", "Run once: HH:MM, or a date with a time such as 2026-03-04T05:06.", _SCHEDULE),
    Option("--in", "TIME", "Run once, after 30m, 2h or 1d.", _SCHEDULE),
    Option("--every", "TIME", "Run in intervals of at least a minute: 30m, 2h, 1d.", _SCHEDULE),
    Option("--cron", "EXPRESSION", "Run at the times of a cron expression: '0 3 * * 1-5'.", _SCHEDULE),
    Option("--tz", "ZONE", "Time zone of --at and --cron, such as Europe/Berlin (default: that of the machine).",
           _SCHEDULE),
    Option("--name", "NAME", "Name of the job: a-z, 0-9 and -.", _SCHEDULE),
    Option("--catch-up", "", "Run once if times were missed, for example while the machine was off.", _SCHEDULE),
    Option("--mode", "MODE", "How much a run may do; default dont-ask.", _SCHEDULE, complete="batch mode"),
    Option("--json", "", "Print JSON.", _SCHEDULE),
    Option("--plain", "", "Print plain lines only: for screen readers and simple terminals.", ("agent",)),
    Option("--version", "", "Print the version and exit.", ("agent",), short="-V"),
)
# fmt: on


def options_of(command: str) -> dict[str, Option]:
    """Return the options of `command` by long and short form, in the order of the table."""
    own = [option for option in OPTIONS if command in option.commands]
    return {name: option for option in own for name in (option.name, option.short) if name}


class Given:
    """The values of the options on the command line of one command, by `Option.key`."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values

    @classmethod
    def of_words(cls, command: str, words: Iterable[tuple[str, str]]) -> "Given":
        """Return the values for (form, value) pairs in the order of the command line. The value of a switch is
        ignored.
        """
        known, values = options_of(command), dict[str, object]()
        for name, value in words:
            option = known[name]
            before = values.get(option.key)
            many = (*before, value) if isinstance(before, tuple) else (value,)
            one = int(value) if option.least is not None and value.isdecimal() else value
            values[option.key] = True if not option.metavar else many if option.many else one
        return cls(values)

    def text(self, key: str) -> str | None:
        """Return the text value of an option; None if the option was not used."""
        value = self._values.get(key)
        return value if isinstance(value, str) else None

    def path(self, key: str) -> Path | None:
        """Return the value of an option that names a file or folder; None if the option was not used."""
        value = self.text(key)
        return Path(value) if value is not None else None

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the values of an option that may be repeated."""
        value = self._values.get(key)
        return tuple(str(each) for each in value) if isinstance(value, list | tuple) else ()

    def number(self, key: str) -> int | None:
        """Return the value of an option that takes a whole number; None if the option was not used."""
        value = self._values.get(key)
        return value if isinstance(value, int) else None

    def switch(self, key: str) -> bool:
        """Return True if the switch was used."""
        return self._values.get(key) is True

    def any(self) -> bool:
        """Return True if any option was used."""
        return any(value not in (None, False, [], ()) for value in self._values.values())


def not_known(what: str, why: str, value: str, known: Iterable[str], fix: str) -> Stopped:
    """Return the usage error for a `value` that is not in `known`. The fix names a similar known value, else it is
    `fix`.
    """
    from runner.text.phrases import nearest  # only for error messages

    return usage(what, why, nearest(value, list(known)) or fix)


def least(accept: bool, required: str | None) -> str | None:
    """Return the minimum enforcement that the options request, `full` or `partial`; None without such an option.

    `accept` is `--accept-partial`, `required` the value of `--require`. Raise a usage error if they contradict.
    """
    levels = ("full", "partial")
    if required is not None and required not in levels:
        why = "a sandbox enforces `full` or `partial`"
        raise not_known(f"`--require {required}` is not known", why, required, levels, "write `--require full`")
    if accept and required == "full":
        what = "`--require full` and `--accept-partial` exclude each other"
        raise usage(what, "only one of them can apply", "leave one of them out")
    return "partial" if accept else required


def parse_backend(text: str | None) -> str | None:
    """Return `text` if it names a sandbox backend of this version, or None for None. The backend may be unusable on
    this machine. Raise a usage error for another text.
    """
    if text is None:
        return None
    from sandbox.backends import BACKENDS  # loaded only if a backend is named

    if text not in BACKENDS:
        why, fix = f"this version has {', '.join(BACKENDS)}", "leave --backend out to get the best one"
        raise not_known(f"there is no backend called `{text}`", why, text, BACKENDS, fix)
    return text


def parse_mode(text: str | None) -> Mode | None:
    """Return the mode with the name `text`, or None for None. Raise a usage error for an unknown name."""
    if text is None:
        return None
    try:
        return Mode(text)
    except ValueError:
        why = f"the modes are {', '.join(Mode)}"
        raise not_known(f"there is no mode `{text}`", why, text, Mode, "pick one of them") from None
