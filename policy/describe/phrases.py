"""Phrases for the user: names of actions, rights, paths and kinds of secrets. Each is one line of safe characters."""

import re
from collections.abc import Sequence
from functools import cache
from typing import Protocol

from policy.model.action import (
    Action,
    AskUser,
    CallServerTool,
    ConvertDocument,
    EditFile,
    FetchAddress,
    GlobFiles,
    GrepFiles,
    LoadSkill,
    ManageAgent,
    ManageTasks,
    ProposeNote,
    QueryCode,
    ReadProcess,
    ReadServerResource,
    RunArgv,
    RunHook,
    RunScript,
    ScheduleJob,
    SearchNotes,
    SearchTools,
    SearchWeb,
    SignalProcess,
    SignGit,
    SpawnAgent,
    StartLanguageServer,
    StartServer,
    ToolAction,
    WriteFile,
    WriteProcess,
)
from policy.model.secret_names import originals
from policy.model.secret_paths import inside
from policy.model.verdict import Rights, Terms

_LONGEST = 100  # characters of an action shown inside a sentence; the whole of it is shown elsewhere
_SPECIAL_IN_DOUBLE_QUOTES = frozenset('"$`\\!')
MOST_NAMED = 3  # paths or hosts named before "and N more"


class Around(Protocol):
    """The folders relative to which paths are shown; Facts and Terms both have them."""

    @property
    def workspace(self) -> str: ...
    @property
    def home(self) -> str: ...


def named(action: Action, around: Around) -> str:
    """Return the action in backticks, on one line, shortened if it is long. It contains no control characters."""
    return f"`{plain(_text(action, around))}`"


def powers(terms: Terms, around: Around, action: Action | None = None) -> str:
    """Return all rights of these terms beyond reading the workspace and the system.

    For a file tool, the text names the one file that the tool changes, because a file tool runs only code of this
    program.
    """
    if isinstance(action, CallServerTool | ReadServerResource):
        return "An approval allows this one call, and nothing bounds here what the server does with it"
    if isinstance(action, ProposeNote):
        return "An approval stores exactly this text, and nothing more"
    if isinstance(action, ScheduleJob):
        return "An approval adds exactly this job, whose runs ask no question and get no approval"
    if isinstance(action, SpawnAgent):
        return "An approval starts the agent, which never gets more rights than this one, and nothing more"
    rights = []
    if terms.rights is Rights.WORKSPACE_WRITE and isinstance(action, WriteFile | EditFile):
        rights.append(f"change {near(action.path, around)} alone, in a sandbox that could change the workspace")
    elif isinstance(action, StartServer) and terms.workspace == action.folder:
        rights.append("run, with a folder of its own")
    elif terms.rights is Rights.WORKSPACE_WRITE:
        rights.append("run code and change files in the workspace")
    for verb, paths in (("change", terms.write), ("read", terms.read)):
        if paths:
            rights.append(f"{verb} {short_list([near(path, around) for path in paths])}")
    hosts = [plain(host) for host in terms.open_hosts]
    if hosts:
        rights.append(f"connect to {short_list(hosts)}")
    if terms.credentials:
        rights.append(f"use your credential {short_list(list(terms.credentials))} there without seeing it")
    network = "" if hosts or not rights else ", without network"
    return f"An approval lets it {joined(rights) or 'read'}{network}, and nothing more"


def near(path: str, around: Around) -> str:
    """Return `path` as a person would write it: relative to the workspace, or with `~`."""
    if inside(path, around.workspace):
        return plain(path[len(around.workspace.rstrip("/")) + 1 :] or "the workspace")
    if around.home != "/" and inside(path, around.home):
        return plain("~" + path[len(around.home) :])
    return plain(path)


def _text(action: Action, around: Around) -> str:
    match action:
        case RunScript():
            return action.script.strip()
        case StartServer():
            what = action.url or " ".join(map(quoted, action.argv))
            return f"{'connect to' if action.url else 'start'} the server {action.server}: {what}"
        case RunHook():
            return hook_text(action)
        case StartLanguageServer():
            return f"start the language server {action.language}: {' '.join(map(quoted, action.argv))}"
        case RunArgv():
            return " ".join(map(quoted, action.argv))
        case ConvertDocument():
            return f"convert a {action.document} document"
        case SignGit():
            subject = action.payload.partition("\n\n")[2].strip().partition("\n")[0]
            return f"sign {action.what} {subject}"
        case ReadProcess() | WriteProcess() | SignalProcess():
            return process_words(action)
        case GlobFiles() | GrepFiles():
            return f"{action.tool} {quoted(action.pattern)} in {near(action.root, around)}"
        case ProposeNote():
            return f"remember {action.name or 'a note'}"
        case (
            CallServerTool()
            | ReadServerResource()
            | SpawnAgent()
            | ManageAgent()
            | ManageTasks()
            | FetchAddress()
            | SearchWeb()
            | SearchTools()
            | SearchNotes()
            | LoadSkill()
            | QueryCode()
            | AskUser()
            | ScheduleJob()
        ):
            return tool_call_text(action)
        case _:
            return f"{action.tool} {near(action.path, around)}"


def hook_text(action: RunHook) -> str:
    """Return the run of a hook: its event, its place, and its command, address or question."""
    what = action.url or action.question or " ".join(map(quoted, action.argv))
    return f"run the hook {action.place} of {action.event}: {what}"


def tool_call_text(action: ToolAction) -> str:
    """Return the whole action on one line or several. The text is as untrusted as the action."""
    match action:
        case CallServerTool():
            return f"{action.tool} {action.arguments}"
        case ReadServerResource():
            return f"{action.tool} {action.uri}"
        case SpawnAgent():
            mode = f" in mode {action.mode}" if action.mode else ""
            tools = f" with {', '.join(action.tools)}" if action.tools else ""
            where = " in a worktree of its own" if action.isolation else ""
            later = " in the background" if action.background else ""
            later += f" in the team {action.team}" if action.team else ""
            model = f" on {action.model}" if action.model else ""
            kind = f"{action.agent}-{action.name}" if action.name else action.agent
            return f"{action.tool} {kind}{mode}{tools}{model}{where}{later}: {action.prompt}"
        case ManageAgent():
            return f"{action.tool} {action.agent}" + (f": {action.text}" if action.text else "")
        case ManageTasks():
            before, after = ", ".join(action.blocked_by), ", ".join(action.blocks)
            words = (
                action.operation,
                action.task,
                action.state,
                f"after {before}" if before else "",
                f"before {after}" if after else "",
            )
            text = ": ".join(filter(None, (action.subject, action.description)))
            return " ".join((action.tool, *filter(None, words))) + (f": {text}" if text else "")
        case FetchAddress():
            return f"{action.tool} {action.url}" + (f" (from character {action.offset})" if action.offset else "")
        case SearchWeb():
            return f"{action.tool} {quoted(action.query)} with {action.provider}"
        case SearchTools() | SearchNotes():
            return f"{action.tool} {quoted(action.query)}"
        case LoadSkill():
            return f"{action.tool} {quoted(action.skill)}" + (f" ({action.source})" if action.source else "")
        case QueryCode():
            where = f" in {action.path}" + (f", line {action.line}" if action.line else "") if action.path else ""
            what = f" {quoted(action.symbol)}" if action.symbol else ""
            new = f" to {quoted(action.new_name)}" if action.new_name else ""
            return f"{action.tool} {action.operation}{what}{new}{where}"
        case ScheduleJob():
            return _job_text(action)
        case AskUser():
            from policy.model.model_questions import questions_text  # few sessions ask

            return f"{action.tool}: {questions_text(action)}"
        case ProposeNote():
            change = (
                f", in place of the text of `{action.name}`:\n{action.before}\n\nthe new text:" if action.name else ":"
            )
            outside = f" after text from outside ({', '.join(action.outside)})" if action.outside else ""
            where = "all projects" if action.everywhere else "this project"
            return f"{action.tool}{outside}, a note about {action.about} for {where}{change}\n{action.text}"


def _job_text(action: ScheduleJob) -> str:
    if action.operation != "create":
        return f"{action.tool} {action.operation} {action.job}".rstrip()
    where = f" in {action.cwd}" if action.cwd else ""
    model = f" on {action.model}" if action.model else ""
    outside = f" after text from outside ({', '.join(action.outside)})" if action.outside else ""
    mode = f" in mode {action.mode}" if action.mode else ""
    within = f", at most {action.turns} requests, {action.tokens} tokens and {action.minutes} minutes for each run"
    return (
        f"{action.tool} {action.operation}{outside}, {action.schedule}{mode}{where}{model}{within}, "
        f"for {action.days} days:\n{action.prompt}"
    )


def process_words(action: ReadProcess | WriteProcess | SignalProcess) -> str:
    """Return the action on a process in words, with the whole text that is written."""
    match action:
        case ReadProcess(process=process, pattern=pattern):
            return f"read {process}" + (f", lines with {pattern}" if pattern is not None else "")
        case SignalProcess(process=process, signal=signal):
            return f"send {signal} to {process}"
        case WriteProcess(process=process, text=text, close=close):
            end = "end the input of" if close and not text else "write to"
            return f"{end} {process}" + (f": {text}" if text else "")


def quoted(word: str) -> str:
    """Return `word` as it would be typed in a shell, quoted if needed. A word with `'` is in double quotes if these
    give the word no other meaning.
    """
    if word and all(char.isalnum() or char in "@%+=:,./-_" for char in word):
        return word
    if "'" in word and not _SPECIAL_IN_DOUBLE_QUOTES & set(word):
        return f'"{word}"'
    return "'" + word.replace("'", "'\\''") + "'"


def plain(text: str, most: int = _LONGEST) -> str:
    """Return `text` as one line of printable characters. Unprintable characters are spelled out, so that nothing is
    hidden.
    """
    if len(text) <= most and text.isprintable():
        return text
    shown = "".join(char if char.isprintable() else _spelled(char) for char in text[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def _spelled(char: str) -> str:
    return {"\n": "⏎", "\t": " "}.get(char) or f"<U+{ord(char):04X}>"


def short_list(items: Sequence[str]) -> str:
    """Return `a`, `a and b`, or `a, b, c and 2 more`; each item once."""
    unique = list(dict.fromkeys(items))
    if len(unique) > MOST_NAMED:
        return ", ".join(unique[:MOST_NAMED]) + f" and {len(unique) - MOST_NAMED} more"
    return joined(unique)


def joined(items: Sequence[str]) -> str:
    """Return `a, b and c`."""
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


UNKNOWN_KIND = "a private key or credential store"

_HISTORY = r"\.\w*_history|\.zhistory|\.history|\.histfile|\.lesshst|\.viminfo|shada|atuin|\.zsh_sessions"
_BROWSERS = (
    r"\.mozilla|\.thunderbird|\.librewolf|\.waterfox|google-chrome[^/]*|chromium[^/]*|BraveSoftware|microsoft-edge[^/]*"
    r"|vivaldi[^/]*|opera[^/]*|firefox|thunderbird|Safari|Cookies|evolution|epiphany|qutebrowser"
)
_MANAGERS = (
    r"keyrings|kwalletd|Keychains|\.password-store|gopass|1Password[^/]*|Bitwarden[^/]*|KeePass[^/]*|keepassxc"
    r"|rbw|lpass"
)
# The first pattern that is found in a path names the kind of the secret.
_KINDS = (
    (r"/(?:\.env(?:\..*)?|[^/]*\.env)\Z", "an environment file that may hold passwords"),
    (r"/(?:id_[^/]+|ssh_host_[^/]+_key|[^/]+\.(?:pem|key|p8|ppk|agekey))\Z", "a private key"),
    (r"/[^/]+\.(?:p12|pfx|keystore|jks|jceks|bcfks|keytab)\Z", "a store of private keys"),
    (r"/\.(?:ssh|gnupg)(?:/|\Z)", "where private keys and logins are kept"),
    (r"/(?:g?shadow[^/]*|master\.passwd|opasswd)\Z", "the password file of the machine"),
    (rf"/(?:{_HISTORY})(?:/|\Z)", "a history of typed commands"),
    (rf"/(?:{_MANAGERS})(?:/|\Z)|\.kdbx\Z", "a store of passwords"),
    (rf"/(?:{_BROWSERS})(?:/|\Z)", "saved sessions and passwords of a browser or mail program"),
    (r"\A/dev/(?:mem|kmem|port)\Z|\A/proc/.*(?:/mem|kcore)\Z", "memory of other programs"),
    (r"\A/proc/.*/environ\Z", "the environment of another program"),
    (r"\A/dev/", "a whole disk"),
    (r"\A(?:/var)?/run/(?:docker|podman|containerd|crio)", "control of containers that is equivalent to root"),
    (r"/(?:\.config|\.cache|state)/ringfence(?:/|\Z)", "data of ringfence itself"),
)


def secret_kind(path: str) -> str:
    """Return the kind of the secret at `path` ("a private key"), or a general phrase if the kind is unknown."""
    full = path if path.startswith("/") else f"/{path.removeprefix('~/')}"
    folder, _, name = full.rpartition("/")
    likely = (full, *(f"{folder}/{each}" for each in originals(name)))
    return next((words for each in likely for pattern, words in _compiled() if pattern.search(each)), UNKNOWN_KIND)


@cache
def _compiled() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Return the compiled patterns. They are compiled at the first secret, because compiling takes longer than a
    decision.
    """
    return tuple((re.compile(pattern, re.IGNORECASE), words) for pattern, words in _KINDS)
