"""The JSON output of every command with `--json`, as the page docs/reference/json.md and its test have it."""

from enum import StrEnum

from policy.model.frozen import dataclass


class Form(StrEnum):
    """The form of an output: one object, one object per line, or events of a session (docs/guide/embedding.md)."""

    OBJECT = "one object"
    LINES = "lines"
    EVENTS = "events"


@dataclass(frozen=True, slots=True)
class JsonField:
    """One field of an object.

    Attributes:
        kind: The types of the value, joined by ` or `: text, time, number, boolean, object, texts, numbers, objects
            (the last three are lists), any, null.
        optional: True if the field can be missing.
    """

    name: str
    kind: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class JsonOutput:
    """The output of one command.

    Attributes:
        command: The words of the command after `agent`.
        about: One sentence about the object, or about the object of each line.
        fields: The fields of the object; empty for events.
        also: Other commands with the same output.
        open: True if the object can have more fields, which another page lists.
    """

    command: str
    form: Form
    about: str
    fields: tuple[JsonField, ...] = ()
    also: tuple[str, ...] = ()
    open: bool = False


def _fields(text: str) -> tuple[JsonField, ...]:
    """Return the fields that `text` lists: `name type, name? type or type`. `?` marks an optional field."""
    pairs = (each.strip().partition(" ") for each in text.split(","))
    return tuple(JsonField(name.rstrip("?"), kind.strip(), name.endswith("?")) for name, _, kind in pairs)


_DECISION = """id number, hash text, time time, session text, kind text, tool text, verdict? text, tiers? texts,
    action? object or null, outcome object or null"""
_TRUST = """workspace text, sha256 text, state text, counts texts, widens objects, entries objects, changed objects"""
_AGENT_KIND = """name text, description text, owner text, source text, mode text or null, read_only boolean,
    tools texts, without texts, hosts texts or null, denied texts, asked texts, model text or null,
    turns number or null, isolation text or null, background boolean, notices texts, prompt text"""
_GRANT = """id text, verdict text, scope text, what object, workspace text, agent text, session text, created time,
    expires time or null, uses number or null, who text, reason text, script text, over boolean, holds boolean,
    says text"""
_NOTE = """name text, kind text, scope text, text text, created time, changed time, author text, session text,
    outside texts"""
_BUNDLE = """name text, state text, source text, commit text or null, folder text or null, time time, files number,
    version text, description text, sha256 text, commands texts, skills texts, agents texts, servers objects,
    hooks objects, notices texts"""
_VALUE = "value any, from objects, overridden objects, ignored objects"
_RESULT = """type text, exit number, reason text, limit text or null, turns number, usage object, cost number or null,
    seconds number, denied objects, changed objects, session text or null, log object, patch text or null, text text,
    output any"""
_TASK = f"""{_RESULT.replace(", text text", ", text? text")}, id text, status text, attempt number, started time,
    ended time, metadata object, task text, events text or null, error? text or null, node? text"""
_GUARD = """agent text, scope text, path text, installed boolean, changed boolean, obstacles texts,
    canary object or null, second object or null, unrun texts, unconfined objects, in_force boolean"""
_JOB = """id text, name? text or null, state text, ended? text or null, schedule? object, next? time or null,
    prompt? text, folder? text, workspace? text, mode? text, model? text or null, budget? object, trust? object,
    catch_up? boolean, origin? text, created? time, expires? time or null, missed? object or null,
    skipped? object or null, reports? texts, last? object or null, fault? text"""
_JOB_RUN = """trigger text, due time or null, started time, ended time or null, exit number or null, reason text,
    session text or null, turns number, tokens number, cost number or null, denials number, denied texts,
    reports texts, text text"""
_COUNTS = "out text, done number, denied number, limit number, failed number, unfinished number, cost number or null"

OUTPUTS: tuple[JsonOutput, ...] = (
    JsonOutput(
        "processes list",
        Form.LINES,
        "Each background process of an open session. `status` is null while it runs.",
        _fields(
            """session text, id text, command text, running boolean, seconds number, status number or null,
            ended_by text or null, ports numbers, rights text, terminal boolean, agent text"""
        ),
        also=("processes",),
    ),
    JsonOutput(
        "ps",
        Form.LINES,
        "Each running session that outlives its terminal. `state` is `working`, `question` or `idle`; `clients` are "
        "the names of the attached clients, and `questions` those of the open questions.",
        _fields(
            """id text, pid number, folder text, workspace text, title text, mode text, model text, state text,
            started number, active number, clients texts, questions texts, unattended boolean"""
        ),
    ),
    JsonOutput("logs", Form.EVENTS, "The events of a running session, condensed; with `--follow`, every further one."),
    JsonOutput("attach", Form.EVENTS, "The lines of a session and of its clients (docs/guide/sessions.md)."),
    JsonOutput(
        "serve",
        Form.OBJECT,
        "The state of the resident process, with `--status`. Without one, only `running` is there.",
        _fields(
            """running boolean, pid? number, since? time, served? number, working? number, waiting? number,
            stale? boolean, sessions? number, idle? number, processes? objects, page? text or null,
            fingerprint? text or null"""
        ),
    ),
    JsonOutput(
        "serve token list",
        Form.LINES,
        "One token for remote access, without the token itself.",
        _fields("""name text, scope text, folder text or null, created time, expires time or null, valid boolean"""),
        also=("serve token",),
    ),
    JsonOutput(
        "jobs list",
        Form.LINES,
        "Each scheduled job. `state` is `waiting`, `running`, `paused`, `ended` or `damaged`; a damaged job has only "
        "`id`, `state` and `fault`. `reports` are missed and skipped times that no summary has yet, in words.",
        _fields(_JOB),
        also=("jobs", "jobs add"),
    ),
    JsonOutput("jobs show", Form.OBJECT, "One job, with its last runs.", _fields(f"{_JOB}, runs? objects")),
    JsonOutput("jobs run", Form.OBJECT, "The result of a run in the foreground.", _fields(_JOB_RUN)),
    JsonOutput(
        "approve",
        Form.LINES,
        "Each open question of the user's sessions that waits for `agent approve`.",
        _fields("session text, id text, client text, tier text, line text, seconds_left number"),
    ),
    JsonOutput(
        "ports list",
        Form.LINES,
        "Each port on which background processes listen. `forwarded` has the ports of 127.0.0.1 that lead to it.",
        _fields("session text, port number, processes texts, forwarded numbers"),
        also=("ports",),
    ),
    JsonOutput(
        "guard",
        Form.LINES,
        "The state of the guard of each agent for all projects and for this folder. No agent is run.",
        _fields(_GUARD),
    ),
    JsonOutput(
        "guard claude",
        Form.OBJECT,
        "The state of the guard of one agent. `canary` has `result` (`inside`, `unasked`, `outside`, `stopped` or "
        "`absent`), `why` and `program`; it is null if the agent was not run. `second` is the second mechanism, with "
        "its `name`, `obstacles`, a `canary` of its own and `holds`; it is null if there is none.",
        _fields(_GUARD),
        also=("guard codex", "guard gemini", "guard cursor", "guard opencode"),
    ),
    JsonOutput("web", Form.EVENTS, "The events of the session; `run_ended` contains the answer as `text`."),
    JsonOutput("repo", Form.EVENTS, "The events of the session; `run_ended` contains the answer as `text`."),
    JsonOutput("run", Form.EVENTS, "The events of the session; `run_ended` contains the answer as `text`."),
    JsonOutput(
        "ci",
        Form.EVENTS,
        "The events of the session. The last line is the result (ci.md): an object with the `type` `result`.",
    ),
    JsonOutput(
        "exec",
        Form.EVENTS,
        "The events `session_started`, `verdict`, `output`, `finished` or `denied`, and `run_ended`. With "
        "`--background`, a command that runs: one object with `process`, `session`, `record`, `command`, `rights` and "
        "`output`, the path of the file with its output or null. With `--preview`, before `run_ended`: an event "
        "`preview` with `files` (`path`, `how`, `was`), `left_out`, `held` (`path`, `reason`, `why`) and `patch`.",
    ),
    JsonOutput(
        "why",
        Form.OBJECT,
        "The verdict on an action and its reasons. Nothing is run.",
        _fields(
            """action object, line text, tree text, effects objects, tiers texts, reasons objects, mode text,
            cell object, verdict text, because object, problem object or null, question text or null,
            terms object or null, rules objects, ways texts, rule text or null, tries boolean"""
        ),
    ),
    JsonOutput(
        "batch run",
        Form.LINES,
        "The result of each task that ended, as in `results.jsonl`; the last line has the `type` `batch`, the counts"
        " and `exit`.",
        open=True,
        fields=_fields("type text, exit number"),
    ),
    JsonOutput("batch show", Form.LINES, "The latest result of each task.", _fields(_TASK)),
    JsonOutput("batch", Form.LINES, "The counts of each batch in the current folder.", _fields(_COUNTS)),
    JsonOutput(
        "batch check", Form.LINES, "Each task of the list.", _fields("id text, line number, workspace text, task text")
    ),
    JsonOutput(
        "audit list",
        Form.LINES,
        "Each decision with its outcome. record.md lists the fields.",
        _fields(_DECISION),
        also=("audit",),
        open=True,
    ),
    JsonOutput(
        "audit tail",
        Form.LINES,
        "Each decision (with `outcome` null while it runs) and each outcome. record.md lists the fields.",
        _fields("id number, hash text, time time, kind text"),
        open=True,
    ),
    JsonOutput(
        "audit show",
        Form.OBJECT,
        "One record with its session and its outcome. record.md lists the fields.",
        _fields(f"{_DECISION}, session_record object or null"),
        open=True,
    ),
    JsonOutput(
        "audit stats",
        Form.OBJECT,
        "Counts of the decisions.",
        _fields(
            """decisions number, sessions number, first time or null, last time or null, verdicts object,
            answers object, tiers objects, modes objects, tools objects, agents objects, rules objects, hosts objects,
            commands objects, asked objects, denied objects, slowest objects, never object"""
        ),
    ),
    JsonOutput(
        "audit suggest",
        Form.OBJECT,
        "Rules that would allow what was approved again and again.",
        _fields("looked number, more boolean, suggestions objects, left objects"),
        open=True,
    ),
    JsonOutput(
        "audit replay",
        Form.OBJECT,
        "The recorded actions whose verdict differs under another policy.",
        _fields(
            """replayed number, policy text, differences objects, changes objects, counts object, unknown objects,
            malformed number, by_user number, looked number, above objects"""
        ),
        open=True,
    ),
    JsonOutput(
        "audit verify",
        Form.OBJECT,
        "The state of the hash chain. `sealed` is false if it is broken; the object then has `id` and `why`.",
        _fields("sealed boolean, count? number, hash? text, chains? objects, id? number, why? text"),
        open=True,
    ),
    JsonOutput(
        "audit prune",
        Form.OBJECT,
        "The removed records. The optional fields are missing if nothing was removed.",
        _fields("records number, sessions number, before time, tombstone? number, signed? boolean, bytes? number"),
    ),
    JsonOutput(
        "audit merge", Form.OBJECT, "The new log and its chains.", _fields("into text, chains objects, left_out texts")
    ),
    JsonOutput(
        "audit key show",
        Form.OBJECT,
        "The public half of the key that signs checkpoints.",
        _fields("key text, algorithm text"),
        also=("audit key",),
    ),
    JsonOutput("grants", Form.LINES, "Each remembered approval or refusal.", _fields(_GRANT), also=("grants list",)),
    JsonOutput("grants show", Form.OBJECT, "One remembered approval or refusal.", _fields(_GRANT)),
    JsonOutput("bundle", Form.LINES, "Each bundle.", _fields(_BUNDLE), also=("bundle list",)),
    JsonOutput("bundle show", Form.OBJECT, "One bundle.", _fields(_BUNDLE)),
    JsonOutput("memory", Form.LINES, "Each note.", _fields(_NOTE), also=("memory list",)),
    JsonOutput("memory search", Form.LINES, "Each note that was found, best first.", _fields(_NOTE)),
    JsonOutput("memory show", Form.OBJECT, "One note.", _fields(_NOTE)),
    JsonOutput("grants prune", Form.LINES, "Each removed grant.", _fields(_GRANT)),
    JsonOutput(
        "trust",
        Form.OBJECT,
        "The files of the repository that configure the agent, and the state of the user's answer.",
        _fields(_TRUST),
        also=("trust show",),
    ),
    JsonOutput(
        "trust list",
        Form.LINES,
        "Each answer about a repository. `state` is same, changed, gone or closed.",
        _fields("workspace text, sha256 text, answer text, time time, entries number, state text"),
    ),
    JsonOutput(
        "undo",
        Form.OBJECT,
        "The files that were restored, or would be with `--dry-run`.",
        _fields(
            "dry boolean, whole boolean, step number or null, steps numbers, items objects, set_aside texts",
        ),
    ),
    JsonOutput(
        "undo --list",
        Form.LINES,
        "Each action that can be undone, newest first.",
        _fields(
            """id number, kind text, command text, session text, call text, started time, ended time or null,
            undone_by number or null, takes_back numbers, notes texts, changes objects"""
        ),
    ),
    JsonOutput("undo --clear", Form.OBJECT, "The size of the removed snapshots.", _fields("bytes number")),
    JsonOutput(
        "apply",
        Form.OBJECT,
        "The changes of the patch, and whether they were applied. `step` is the number for `agent undo`.",
        _fields("applied boolean, step number or null, files objects, problems objects, warnings objects"),
    ),
    JsonOutput(
        "sessions list",
        Form.LINES,
        "Each stored session of the workspace.",
        _fields(
            """id text, key text, workspace text, began time, written time, size number, forked_from text or null,
            first text, prompts number, turns number, broken text or null"""
        ),
        also=("sessions",),
    ),
    JsonOutput(
        "sessions show",
        Form.LINES,
        "Each entry of the session file; docs/guide/sessions.md describes the types.",
        _fields("id text, parentId text or null, time time, type text"),
        open=True,
    ),
    JsonOutput(
        "auth status",
        Form.LINES,
        "Each provider with the source of its key, then each injected credential, whose object has other fields.",
        _fields(
            """provider text, source text or null, local boolean, tried objects, accounts texts,
            chosen text or null"""
        ),
        also=("auth",),
    ),
    JsonOutput(
        "config show",
        Form.OBJECT,
        "Every setting in force: `values` has an object for each key, with the fields of `config get`.",
        _fields("values object, lists objects, notices texts"),
        also=("config",),
    ),
    JsonOutput("config get", Form.OBJECT, "One setting and the layers that set it.", _fields(f"key text, {_VALUE}")),
    JsonOutput("agents list", Form.LINES, "Each kind of sub-agent.", _fields(_AGENT_KIND)),
    JsonOutput("agents show", Form.OBJECT, "One kind of sub-agent.", _fields(_AGENT_KIND)),
    JsonOutput(
        "mcp list",
        Form.LINES,
        "Each tool server. `state` is `on`, `off`, `untrusted`, or `fault` with a reason in `fault`.",
        _fields(
            """name text, state text, layer text or null, place text, transport text or null, command texts,
            url text or null, fault text or null"""
        ),
        also=("mcp",),
    ),
    JsonOutput(
        "hooks list",
        Form.LINES,
        "Each hook. `state` is `on`, `untrusted`, or `fault` with a reason in `fault`. `runs` counts those in the log.",
        _fields(
            """event text, matcher text or null, state text, kind text or null, form text or null,
            scope text or null, place text, runs_what text or null, rights text or null, on_failure text or null,
            runs number, failures number, fault text or null"""
        ),
        also=("hooks",),
    ),
    JsonOutput(
        "hooks test",
        Form.OBJECT,
        "The answers of the hooks of one event to a sample input. `decision` is the strictest one.",
        _fields("event text, decision text, answers objects"),
    ),
    JsonOutput(
        "hooks import",
        Form.LINES,
        "Each hook of another program. `entry` is the `[[hook]]` entry as TOML; `imported` is false if it is there.",
        _fields("event text, source text, imported boolean, entry text"),
    ),
    JsonOutput(
        "mcp pin",
        Form.OBJECT,
        "The offer of one tool server beside its pin. `stored` is true if the pin is that of this offer.",
        _fields(
            """server text, clean boolean, stored boolean, sha256 text, package text, changes texts,
            problem text or null, warnings objects, tools objects"""
        ),
    ),
    JsonOutput(
        "mcp test",
        Form.OBJECT,
        "A trial of one tool server: its state, its offer, what its sandbox stopped, and the rights it seems to need.",
        _fields(
            """name text, state text, kind text, command text, tools texts, held objects, error text, seconds number,
            protocol text, title text, denials texts, wants texts, offered objects"""
        ),
    ),
    JsonOutput(
        "mcp call",
        Form.OBJECT,
        "The result of one call of a tool of a server. `text` is the text that a model would get.",
        _fields("server text, tool text, failed boolean, text text"),
    ),
    JsonOutput(
        "mcp why",
        Form.OBJECT,
        "The verdict on the start of a tool server, and the rights that it would have.",
        _fields(
            """server text, command texts, url text or null, verdict text, because text, tiers texts, rights object,
            hosts texts, read texts, write texts"""
        ),
    ),
    JsonOutput(
        "mcp show",
        Form.OBJECT,
        "The settings of one tool server, with absolute paths and without values of variables and headers.",
        _fields(
            """name text, state text, layer text, place text, transport text, command texts, url text or null,
            fault null, cwd text or null, variables texts, headers texts, hosts texts, read texts, write texts,
            tools texts, exclude_tools texts, tiers object, timeout number, start_timeout number"""
        ),
    ),
    JsonOutput(
        "mcp import",
        Form.LINES,
        "Each tool server of another client. `table` has the values of `[mcp.NAME]` as TOML, if it is imported.",
        _fields("name text, source text, imported boolean, notes texts, table object"),
    ),
    JsonOutput(
        "config check",
        Form.OBJECT,
        "The faults of the configuration.",
        _fields("sources texts, faults objects, warnings texts, notices texts"),
    ),
    JsonOutput(
        "config path",
        Form.OBJECT,
        "The file of each layer: `path`, and `there` if it exists.",
        _fields("system object, user object, project? object, local? object, named? object"),
    ),
    JsonOutput(
        "policy matrix",
        Form.OBJECT,
        "The permission matrix: for each tier, the ruling of each mode.",
        _fields("read object, write object, execute object, network object"),
        also=("policy",),
        open=True,
    ),
    JsonOutput(
        "profile learn",
        Form.OBJECT,
        "The rights that a command was refused, and the rule that adds them.",
        _fields("status number, refused objects, rule text or null, written text or null"),
    ),
    JsonOutput(
        "policy fingerprint",
        Form.OBJECT,
        "The fingerprint of the policy.",
        _fields("policy text, sources texts, hashes object"),
    ),
    JsonOutput(
        "policy judge",
        Form.LINES,
        "The verdict on each script that is read from standard input (without `--json`).",
        _fields("id any, verdict text, tiers texts, reasons objects"),
    ),
    JsonOutput(
        "policy test",
        Form.OBJECT,
        "The verdicts that differ from the expected ones.",
        _fields("tests number, verdicts number, files texts, differences objects"),
    ),
    JsonOutput(
        "policy lint",
        Form.OBJECT,
        "Contradictions and faults of the user's rules.",
        _fields("sources texts, findings objects"),
    ),
    JsonOutput(
        "policy import",
        Form.OBJECT,
        "The rules that were made from the settings of another agent.",
        _fields("kind text, mode text or null, rules objects, left objects, examples objects"),
    ),
    JsonOutput(
        "sandbox show",
        Form.LINES,
        "Each set of rights: one for a command, two without a command.",
        _fields("title text, terms object, mounts objects, refused text or null"),
        also=("sandbox",),
    ),
    JsonOutput(
        "sandbox cache",
        Form.LINES,
        "Each cache of a workspace.",
        _fields("workspace text, bytes number, gone boolean, cleared boolean"),
    ),
    JsonOutput("doctor", Form.OBJECT, "The checks of the machine.", _fields("exit number, findings objects")),
)
