"""The actions that tools plan, the policy judges and the sandbox runs, as one sum type.

`kind` names the class of an action in records, events, JSON and requests to a confined process. It never changes, even
if the class gets another name. `tool` names the tool that plans such actions, as rules of users spell the name.
"""

from typing import ClassVar

from policy.model.frozen import dataclass


@dataclass(frozen=True, slots=True)
class RunScript:
    """Run `script` under bash in `cwd` (absolute). `timeout` is wall seconds."""

    kind: ClassVar[str] = "RunScript"
    tool: ClassVar[str] = "bash"
    script: str
    cwd: str
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class StartProcess(RunScript):
    """Start `script` as a process of the session. It is judged as the same script that runs to its end.

    Attributes:
        pty: True if the process runs in a terminal.
        stays: True if the process stays beside later actions; False if the action waits for its end.
    """

    kind: ClassVar[str] = "StartProcess"
    pty: bool = False
    stays: bool = True


@dataclass(frozen=True, slots=True)
class RunArgv:
    """Run one program with exactly these words, without a shell."""

    kind: ClassVar[str] = "RunArgv"
    tool: ClassVar[str] = "bash"
    argv: tuple[str, ...]
    cwd: str
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class StartServer(RunArgv):
    """Start the tool server `server` as a confined process that stays, or connect to the one at `url`. The
    configuration of the user names the words of its command; the rights of the server are those that the configuration
    names, and no others.

    Attributes:
        server: the name that the user chose.
        folder: the absolute path of the server's own folder, which it may change; empty for a remote server.
        url: the address of a remote server, which has no words; empty for a server on this machine.
    """

    kind: ClassVar[str] = "StartServer"
    server: str = ""
    folder: str = ""
    url: str = ""

    @property
    def tool(self) -> str:  # type: ignore[override]  # the name depends on the server
        """Return the name in rules: `mcp__github__@start`. No tool of a server can have a name with `@`."""
        return f"mcp__{self.server}__@start"


@dataclass(frozen=True, slots=True)
class RunHook(RunArgv):
    """Run a hook of the configuration: a confined command, a request to `url`, or a question to the small model. The
    rights of the hook are those that the configuration names, and no others.

    Attributes:
        event: the event that the hook answers, such as `PreToolUse`.
        place: the file and the line of the hook, as `PATH:LINE`.
        wider: True if the configuration gives the hook more than reading: a path that it may change, or a host.
        url: the address of an HTTP hook, which has no words; empty for other hooks.
        question: the question of a prompt hook, which has no words; empty for other hooks.
    """

    kind: ClassVar[str] = "RunHook"
    event: str = ""
    place: str = ""
    wider: bool = False
    url: str = ""
    question: str = ""

    @property
    def tool(self) -> str:  # type: ignore[override]  # the name depends on the event
        """Return the name in rules: `hook@PreToolUse`. No tool can have a name with `@`."""
        return f"hook@{self.event}"


@dataclass(frozen=True, slots=True)
class StartLanguageServer(RunArgv):
    """Start the language server `language` as a confined process that stays. It reads the workspace, changes nothing
    but its own folder, and has no network.

    Attributes:
        language: the name of the server: a preset, or a name that the user chose.
        folder: the absolute path of the server's own folder, which it may change.
    """

    kind: ClassVar[str] = "StartLanguageServer"
    language: str = ""
    folder: str = ""

    @property
    def tool(self) -> str:  # type: ignore[override]  # the name depends on the server
        """Return the name in rules: `lsp@gopls`. No tool can have a name with `@`."""
        return f"lsp@{self.language}"


@dataclass(frozen=True, slots=True)
class ReadFile:
    """Read `path` (absolute). `offset` is the first line, from 1; `limit` a count of lines. `pages` are pages of a PDF
    document or cells of a notebook, as `3` or `2-5`; empty for the first ones.
    """

    kind: ClassVar[str] = "ReadFile"
    tool: ClassVar[str] = "read"
    path: str
    offset: int = 1
    limit: int = 2000
    pages: str = ""


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Write `content` to `path` (absolute) and create missing parent folders. The write is atomic and keeps an existing
    mode.
    """

    kind: ClassVar[str] = "WriteFile"
    tool: ClassVar[str] = "write"
    path: str
    content: str


@dataclass(frozen=True, slots=True)
class EditFile:
    """Replace `old` by `new` in `path`. `seen` is the sha256 (hex) of the content the model last read, or None."""

    kind: ClassVar[str] = "EditFile"
    tool: ClassVar[str] = "edit"
    path: str
    old: str
    new: str
    replace_all: bool = False
    seen: str | None = None


@dataclass(frozen=True, slots=True)
class EditNotebook(EditFile):
    """Change one cell of the notebook `path`. It is an edit of that file, and rules about `edit` hold. `old` is empty,
    and `new` is the new text of the cell.

    Attributes:
        operation: `replace`, `insert` (after the cell) or `delete`.
        cell: the `id` of the cell, or its number from 1; empty to insert before the first one.
        cell_type: `code`, `markdown` or `raw`; empty to keep it.
    """

    kind: ClassVar[str] = "EditNotebook"
    operation: str = "replace"
    cell: str = ""
    cell_type: str = ""


@dataclass(frozen=True, slots=True)
class ListFolder:
    """List the entries of the folder `path` (absolute)."""

    kind: ClassVar[str] = "ListFolder"
    tool: ClassVar[str] = "ls"
    path: str


@dataclass(frozen=True, slots=True)
class GlobFiles:
    """Find files below `root` (absolute) whose relative path matches `pattern` (`**` crosses folders). Files that Git
    ignores are left out unless `ignored`.
    """

    kind: ClassVar[str] = "GlobFiles"
    tool: ClassVar[str] = "glob"
    pattern: str
    root: str
    ignored: bool = False


@dataclass(frozen=True, slots=True)
class GrepFiles:
    """Search file contents below `root` (a file or a folder, absolute) for the regular expression `pattern`."""

    kind: ClassVar[str] = "GrepFiles"
    tool: ClassVar[str] = "grep"
    pattern: str
    root: str
    glob: str | None = None
    ignore_case: bool = False
    files_only: bool = False
    context: int = 0
    limit: int = 200


@dataclass(frozen=True, slots=True)
class ReadProcess:
    """Read the new output of the process `process` of the session.

    Attributes:
        pattern: a regular expression; only lines that it matches are returned. None returns all lines.
        wait: the most seconds to wait for output, or for a line that matches.
    """

    kind: ClassVar[str] = "ReadProcess"
    tool: ClassVar[str] = "bash_output"
    process: str
    pattern: str | None = None
    wait: float = 0.0


@dataclass(frozen=True, slots=True)
class WriteProcess:
    """Write `text` to the standard input or the terminal of the process `process`, then end its input if `close`.

    The runner sets the fields from `command` on. Their defaults are the strictest values.

    Attributes:
        command: the command of the process.
        tiers: the labels of the tiers of the decision that allowed the process.
        writes: True if the process may write to the workspace.
    """

    kind: ClassVar[str] = "WriteProcess"
    tool: ClassVar[str] = "bash_input"
    process: str
    text: str
    close: bool = False
    command: str = ""
    tiers: tuple[str, ...] = ()
    writes: bool = True


@dataclass(frozen=True, slots=True)
class SignalProcess:
    """Send `signal` (`TERM`, `KILL`, ...) to the process `process` of the session.

    The runner sets the other fields.

    Attributes:
        command: the command of the process.
        own: True if the agent started the process, False if the user did.
    """

    kind: ClassVar[str] = "SignalProcess"
    tool: ClassVar[str] = "bash_kill"
    process: str
    signal: str = "TERM"
    command: str = ""
    own: bool = False


@dataclass(frozen=True, slots=True)
class SignGit:
    """Sign the text of a Git object with the user's key, outside of the sandbox. A running command requested it.

    Attributes:
        what: `commit` or `tag`.
        payload: The whole object without a signature.
        key: The name of the key, for the user.
    """

    kind: ClassVar[str] = "SignGit"
    tool: ClassVar[str] = "bash"
    what: str
    payload: str
    key: str


@dataclass(frozen=True, slots=True)
class ConvertDocument:
    """Convert a document from standard input to text and images, in a process that reads nothing but its own program.

    An action that was allowed needs the conversion of what it read. It is no action of a model: `policy.decide` derives
    its permit from the permit of the other action.

    Attributes:
        argv: the words of the converter.
        system: absolute paths of folders with shared libraries.
        program: absolute real paths of the interpreter, its packages and the converter.
        document: the kind of the document, such as `pdf`.
    """

    kind: ClassVar[str] = "ConvertDocument"
    tool: ClassVar[str] = "read"
    argv: tuple[str, ...]
    system: tuple[str, ...]
    program: tuple[str, ...]
    document: str

    @property
    def cwd(self) -> str:
        """Return the working folder of the converter."""
        return "/"


@dataclass(frozen=True, slots=True)
class CallServerTool:
    """Call the tool `name` of the tool server `server`.

    Attributes:
        arguments: a JSON object in the form of `policy.model.tool_arguments.canonical`.
        hints: what the server states about its tool, such as `destructive`. A hint can only make the verdict stricter.
        tier: the label of the tier that the user's own configuration names for this tool: `read`, `write`, `network` or
            `dangerous`; empty for a tool without one, which has the tier `mcp-external`.
        pin: the SHA-256 of the definition of the tool that the call was planned for; empty if it is not known. The
            tool is called only while it has this definition.
    """

    kind: ClassVar[str] = "CallServerTool"
    server: str
    name: str
    arguments: str = "{}"
    hints: tuple[str, ...] = ()
    tier: str = ""
    pin: str = ""

    @property
    def tool(self) -> str:
        """Return the name of the tool in rules: `mcp__github__create_issue`."""
        return f"mcp__{self.server}__{self.name}"


@dataclass(frozen=True, slots=True)
class ReadServerResource:
    """Read the resource `uri` of the tool server `server`."""

    kind: ClassVar[str] = "ReadServerResource"
    server: str
    uri: str

    @property
    def tool(self) -> str:
        """Return the name in rules: `mcp__github__@resource`. No tool of a server can have a name with `@`."""
        return f"mcp__{self.server}__@resource"


@dataclass(frozen=True, slots=True)
class SpawnAgent:
    """Start the agent `agent` with `prompt` as its task.

    Attributes:
        mode: the mode of the agent as its label; empty for the mode of the agent that starts it. The agent never gets
            more rights than the agent that starts it, whatever its mode is.
        tools: patterns of the tools that the agent may use; empty for those of the agent that starts it.
        model: the model of the agent as `provider:model`; empty for that of the agent that starts it.
        background: True if the agent that starts it does not wait for its end.
        isolation: `worktree` if the agent works in a Git worktree of its own; empty for the same folder.
        turns: the most requests to the model; 0 for the limit of the agent that starts it.
        tokens: the most tokens, sent and received; 0 for what is left of the budget of the agent that starts it.
        name: the name of the agent after its kind, in place of a number; empty for a number.
        team: the team of the agent, whose members may send messages to each other; empty for none.
    """

    kind: ClassVar[str] = "SpawnAgent"
    tool: ClassVar[str] = "agent"
    agent: str
    prompt: str
    mode: str = ""
    tools: tuple[str, ...] = ()
    model: str = ""
    background: bool = False
    isolation: str = ""
    turns: int = 0
    tokens: int = 0
    team: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class ManageAgent:
    """Read the report of a sub-agent, send it a message, or stop it. An agent can do this only with agents that it
    started itself, and with agents below these. Members of one team may also send messages to each other.

    Attributes:
        agent: the name of the sub-agent, such as `explore-1`.
        operation: `output`, `message` or `stop`.
        text: the message.
        wait: the most seconds to wait for the end of the sub-agent before its report is read.
    """

    kind: ClassVar[str] = "ManageAgent"
    agent: str
    operation: str
    text: str = ""
    wait: float = 0.0

    @property
    def tool(self) -> str:
        """Return the name of the tool in rules: `agent_output`, `agent_message` or `agent_stop`."""
        return f"agent_{self.operation}"


@dataclass(frozen=True, slots=True)
class ManageTasks:
    """List the tasks of the session, create one, or change one. Nothing outside of this list changes.

    Attributes:
        operation: `list`, `create` or `update`.
        task: the ID of the task; empty for the whole list and for a new task.
        state: the new state: `pending`, `in_progress`, `completed` or `deleted`; empty for the present one.
        blocked_by: tasks that must be closed before this one.
        blocks: tasks that must wait for this one.
    """

    kind: ClassVar[str] = "ManageTasks"
    tool: ClassVar[str] = "tasks"
    operation: str
    task: str = ""
    subject: str = ""
    description: str = ""
    state: str = ""
    blocked_by: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FetchAddress:
    """Read the web page at `url` (http or https).

    Attributes:
        offset: the number of characters to leave out. With it, the text is that of the page as this session fetched it
            before, and nothing is fetched.
    """

    kind: ClassVar[str] = "FetchAddress"
    tool: ClassVar[str] = "web_fetch"
    url: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class SearchWeb:
    """Search the web for `query` with the search service `provider`. `host` is the host of that service, or empty if
    the host is not known.
    """

    kind: ClassVar[str] = "SearchWeb"
    tool: ClassVar[str] = "web_search"
    query: str
    provider: str
    host: str = ""


@dataclass(frozen=True, slots=True)
class SearchTools:
    """Search the descriptions of the tools of this session's servers for `query`, and describe at most `limit` of them
    to the model. No server is called.
    """

    kind: ClassVar[str] = "SearchTools"
    tool: ClassVar[str] = "tool_search"
    query: str
    limit: int = 5


@dataclass(frozen=True, slots=True)
class QueryCode:
    """Ask a language server of the session about code. No file is changed: the edits of a new name are actions of
    their own.

    Attributes:
        operation: `definition`, `references`, `symbols`, `workspace_symbols`, `hover`, `diagnostics` or `rename`.
        path: the file that the question is about (absolute); for `workspace_symbols`, a file whose server is asked.
        line: the line of the word, from 1; 0 if it is not known.
        symbol: the word that the question is about; for `workspace_symbols`, what to search for.
        new_name: the new name of the word, for `rename`.
    """

    kind: ClassVar[str] = "QueryCode"
    tool: ClassVar[str] = "lsp"
    operation: str
    path: str = ""
    line: int = 0
    symbol: str = ""
    new_name: str = ""


@dataclass(frozen=True, slots=True)
class ProposeNote:
    """Store `text` as a note that later sessions get. The runner stores exactly this text after the user's approval.

    The runner sets the fields from `before` on.

    Attributes:
        about: the kind of the note: `user`, `feedback`, `project` or `reference`.
        name: the name of the note to change; empty for a new note.
        everywhere: True for a note for all projects, False for one for the workspace.
        before: the present text of the note to change; empty for a new note.
        outside: the sources of text from outside that the session has read.
    """

    kind: ClassVar[str] = "ProposeNote"
    tool: ClassVar[str] = "remember"
    text: str
    about: str = "project"
    name: str = ""
    everywhere: bool = False
    before: str = ""
    outside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchNotes:
    """Return the notes of the user and the project that match `query`."""

    kind: ClassVar[str] = "SearchNotes"
    tool: ClassVar[str] = "recall"
    query: str


@dataclass(frozen=True, slots=True)
class LoadSkill:
    """Give the model the text of the skill `skill`. No other file is read and nothing is run.

    The runner sets `source`: the origin of the skill in words.
    """

    kind: ClassVar[str] = "LoadSkill"
    tool: ClassVar[str] = "skill"
    skill: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class AskUser:
    """Put questions of the model to the user. The answer is text for the model, and no approval of anything.

    Attributes:
        questions: a JSON list in the form of `policy.model.tool_arguments.canonical_value`;
            `policy.model.model_questions` reads it.
    """

    kind: ClassVar[str] = "AskUser"
    tool: ClassVar[str] = "ask_user"
    questions: str


@dataclass(frozen=True, slots=True)
class ScheduleJob:
    """Add a job that lets a model work without a user at later times, list the jobs that models requested, or remove
    one of them.

    The runner sets the fields from `cwd` on.

    Attributes:
        operation: `create`, `list` or `delete`.
        schedule: the schedule as `every 30m`, `cron 0 3 * * 1-5`, `in 2h` or `at 2026-03-04T05:06`.
        mode: the mode of the runs as its label; empty for that of the session. It is never wider than that of the
            session.
        job: the ID of the job to remove.
        turns: the most requests to the model in one run.
        days: the days after which the job does not run any more.
        cwd: the absolute path of the folder of the runs.
        model: the model as `provider:model`.
        minutes: the longest run.
        tokens: the most tokens of one run, sent and received.
        outside: the sources of untrusted text in the conversation.
    """

    kind: ClassVar[str] = "ScheduleJob"
    tool: ClassVar[str] = "schedule_job"
    operation: str
    schedule: str = ""
    prompt: str = ""
    mode: str = ""
    job: str = ""
    turns: int = 20
    days: int = 7
    cwd: str = ""
    model: str = ""
    minutes: int = 15
    tokens: int = 500_000
    outside: tuple[str, ...] = ()


CommandAction = RunScript | RunArgv
FileAction = ReadFile | WriteFile | EditFile | ListFolder | GlobFiles | GrepFiles
# Actions that no sandbox runs: a tool server, another agent or the runner itself performs them after the verdict.
ToolAction = (
    CallServerTool
    | ReadServerResource
    | SpawnAgent
    | ManageAgent
    | ManageTasks
    | FetchAddress
    | SearchWeb
    | SearchTools
    | ProposeNote
    | SearchNotes
    | LoadSkill
    | QueryCode
    | AskUser
    | ScheduleJob
)
ProcessAction = ReadProcess | WriteProcess | SignalProcess  # about a process that runs already; they start nothing
Action = CommandAction | FileAction | ToolAction | ProcessAction | SignGit | ConvertDocument


def file_action(tool: str, path: str, *, content: str, old: str, glob: str, regex: str) -> FileAction:
    """Return the action of the file tool `tool` on `path` (absolute), with the texts that this tool takes."""
    actions: tuple[FileAction, ...] = (
        ReadFile(path),
        WriteFile(path, content),
        EditFile(path, old, content),
        ListFolder(path),
        GlobFiles(glob, path),
        GrepFiles(regex, path),
    )
    return next(action for action in actions if action.tool == tool)


ACTIONS: dict[str, type[Action]] = {
    each.kind: each
    for each in (
        RunScript, StartProcess, RunArgv, StartServer, RunHook, StartLanguageServer,
        ReadFile, WriteFile, EditFile, EditNotebook, ListFolder, GlobFiles, GrepFiles,
        ReadProcess, WriteProcess, SignalProcess,
        CallServerTool, ReadServerResource, SpawnAgent, ManageAgent, ManageTasks, FetchAddress, SearchWeb, SearchTools,
        SignGit, ConvertDocument, ProposeNote, SearchNotes, LoadSkill, AskUser, QueryCode,
        ScheduleJob,
    )
}  # fmt: skip
