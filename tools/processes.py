"""The tools for processes that stay: `bash_output`, `bash_input` and `bash_kill`."""

from typing import Annotated, Literal

from pydantic import Field

from policy.model.action import ReadProcess, SignalProcess, WriteProcess
from policy.model.verdict import Problem
from tools.arguments import PATTERN_CAP
from tools.file_result import tell, violations
from tools.paths import SeenFiles
from tools.text import BYTES, LINES, seconds, size, tail
from tools.tool import Arguments, Finished, Keep, TextPart

_WAIT_MOST = 600  # seconds
_INPUT_CAP = 65_536  # characters
_NAME_CAP = 20  # characters

ProcessName = Annotated[str, Field(min_length=1, max_length=_NAME_CAP, description="Id of the process, such as `p1`.")]
SignalName = Literal["TERM", "KILL", "INT", "HUP", "QUIT", "USR1", "USR2", "STOP", "CONT"]


class BashOutputArgs(Arguments):
    id: ProcessName
    pattern: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=PATTERN_CAP,
            description="Return only lines that match this regular expression (RE2), and wait for such a line.",
        ),
    ] = None
    wait: Annotated[
        float,
        Field(
            ge=0,
            le=_WAIT_MOST,
            description="Most seconds to wait for new output, for a line that matches, or for the end of the process.",
        ),
    ] = 0


class BashInputArgs(Arguments):
    id: ProcessName
    text: Annotated[
        str,
        Field(
            max_length=_INPUT_CAP,
            description="The text exactly as the program gets it: end a line with \\n. In a terminal, keys are control "
            "characters: \\u0003 is Ctrl-C, \\u001b[A is the arrow up.",
        ),
    ] = ""
    close: Annotated[bool, Field(description="End the input after the text.")] = False


class BashKillArgs(Arguments):
    id: ProcessName
    signal: Annotated[
        SignalName, Field(description="The signal for all of its processes; KILL ends them in any case.")
    ] = "TERM"


class BashOutputTool:
    name = "bash_output"
    description = (
        "Read what a background process has printed since you last read it, and its state. With `wait` the call "
        "returns as soon as there is something new, a line matches `pattern`, or the process ends. Of a process in a "
        "terminal you get the screen as well."
    )
    example = '{"id": "p1", "pattern": "listening|error", "wait": 30}'
    Args = BashOutputArgs

    def plan(self, args: BashOutputArgs, cwd: str, seen: SeenFiles) -> ReadProcess | Problem:
        return ReadProcess(args.id, args.pattern, args.wait)

    def render(
        self, action: ReadProcess, finished: Finished, seen: SeenFiles, *, keep: Keep | None = None
    ) -> tuple[TextPart, ...]:
        if finished.problem is not None:
            return (TextPart(tell(finished.problem)),)
        data = finished.data
        lines = []
        if lost := data.get("lost"):
            lines.append(f"[{lost:,} characters before this are no longer kept in memory{_stored(data)}]")
        shown = tail(finished.stdout.decode("utf-8", "replace"), LINES, BYTES)
        if shown.bytes:
            lines.append(f"[cut from the start: {size(shown.bytes)}{_stored(data)}]")
        if shown.text:
            lines.append(shown.text.removesuffix("\n"))
        else:
            lines.append("(no new output)" if action.pattern is None else "(no new line matches)")
        screen = data.get("screen")
        if isinstance(screen, str):
            lines += ["[screen]", screen, f"[end of the screen; the cursor is at {data.get('cursor')}]"]
        lines += violations(finished)
        lines.append(f"[{data.get('state')}]")
        return (TextPart("\n".join(lines)),)


class BashInputTool:
    name = "bash_input"
    description = (
        "Write to the standard input of a background process, or type into its terminal. The text is judged like code "
        "that nobody has read; read the answer with `bash_output`."
    )
    example = '{"id": "p1", "text": "print(1 + 1)\\n"}'
    Args = BashInputArgs

    def plan(self, args: BashInputArgs, cwd: str, seen: SeenFiles) -> WriteProcess | Problem:
        if not args.text and not args.close:
            what, why = "there is nothing to write", "`text` is empty, and `close` is not set"
            return Problem(what, why, f"call `bash_input` with {self.example}")
        return WriteProcess(args.id, args.text, args.close)

    def render(
        self, action: WriteProcess, finished: Finished, seen: SeenFiles, *, keep: Keep | None = None
    ) -> tuple[TextPart, ...]:
        if finished.problem is not None:
            return (TextPart(tell(finished.problem)),)
        end = ", and its input is closed" if action.close else ""
        return (TextPart(f"[written to {action.process}: {size(len(action.text.encode('utf-8', 'replace')))}{end}]"),)


class BashKillTool:
    name = "bash_kill"
    description = "Send a signal to all processes of a background process. Without `signal` it is asked to end (TERM)."
    example = '{"id": "p1", "signal": "TERM"}'
    Args = BashKillArgs

    def plan(self, args: BashKillArgs, cwd: str, seen: SeenFiles) -> SignalProcess | Problem:
        return SignalProcess(args.id, args.signal)

    def render(
        self, action: SignalProcess, finished: Finished, seen: SeenFiles, *, keep: Keep | None = None
    ) -> tuple[TextPart, ...]:
        if finished.problem is not None:
            return (TextPart(tell(finished.problem)),)
        return (TextPart(f"[{action.signal} was sent to {action.process}; {finished.data.get('state')}]"),)


def started_text(finished: Finished, *, pty: bool) -> str:
    """Return the result of a call of `bash` that started a process."""
    process = finished.data.get("process")
    where = "in a terminal" if pty else "in the background"
    return (
        f"[{process} runs {where}. `bash_output` reads what it prints, `bash_input` writes to it, `bash_kill` ends it. "
        "It ends with this session.]"
    )


def state_words(process: str, alive: bool, ran: float, status: int, ended_by: str | None) -> str:
    """Return the state of a process in words."""
    if alive:
        return f"{process} is running, since {seconds(ran)}"
    if ended_by is not None:
        return f"{process} was ended after {seconds(ran)} ({ended_by})"
    return f"{process} has ended with exit status {status}, after {seconds(ran)}"


def _stored(data: object) -> str:
    path = data.get("path") if isinstance(data, dict) else None
    return f"; the complete output is saved for the user in {path}" if path else ""
