"""`agent ci`: the run of `agent run` on a machine that holds secrets, for somebody who reads only what it leaves."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from policy.record import dataclass
from policy.tier import Mode
from policy.verdict import Problem
from runner.audit import place
from runner.budget import PIPELINE
from runner.ci import changes, surroundings
from runner.ci.outlets import Outlets, no_link
from runner.ci.result import Result, inert
from runner.ci.story import Story, refusals, told
from runner.ci.summary import Page
from runner.ci.workflow import JobLog
from runner.events import Emit, Event, Proposed, RunEnded, Said, SessionStarted
from runner.model_run import RunArgs, begun, chosen_model, on_stdout, play, prepared, prompt_text, transcript
from runner.problems import Exit, Stopped, known_problem, print_problem, unexpected, usage
from runner.world import Bounds

if TYPE_CHECKING:
    from runner.config import Settings
    from runner.providers import Opened
    from runner.review.review import Review
    from runner.session import SessionOptions


@dataclass(frozen=True, slots=True)
class Files:
    """Where a run leaves what it did, as typed. `inside_too`: they may lie in the workspace."""

    events: str | None = None
    summary: str | None = None
    sarif: str | None = None
    patch: str | None = None
    seal: str | None = None
    result: str | None = None
    inside_too: bool = False

    def by_option(self) -> dict[str, str | None]:
        return {
            "--events": self.events,
            "--summary": self.summary,
            "--sarif": self.sarif,
            "--patch": self.patch,
            "--seal": self.seal,
            "--result": self.result,
        }


def start_ci(
    args: RunArgs, files: Files, prompt: str | None, prompt_file: Path | None, *, review: bool, ignored: bool = False
) -> int:
    """One unattended run; answers the exit code. What was asked for is written however it ends, once the files are
    open: also when it cannot begin, is cancelled or breaks off."""
    if ignored and not review:
        raise usage("`--patch-ignored` stands without `--review`", "without a copy there is no patch", "add --review")
    if review != (files.patch is not None):
        given, other = ("--review", "--patch FILE") if review else ("--patch", "--review")
        why = (
            "what is done in a copy would be lost"
            if review
            else "a patch is what a run in a copy leaves, and this is none"
        )
        raise usage(f"`{given}` stands without `{other}`", why, f"add {other}")
    args.key.check(
        prompt_from_stdin=prompt is None and (prompt_file is None or str(prompt_file) in ("-", "/dev/stdin"))
    )
    from runner.gate import folder
    from runner.trust.start import workspace_at

    cwd = str(folder(args.cwd))
    workspace = workspace_at(cwd, os.environ)
    for option, path in (("--prompt-file", prompt_file), ("--config", args.config)):
        if path is not None:
            no_link(option, os.path.abspath(path), workspace)
    with (
        _signals(),
        Outlets.opened(files.by_option(), workspace, os.environ, inside_too=files.inside_too or review) as outlets,
    ):
        return _Run(args, outlets, workspace, review, ignored).work(prompt, prompt_file)


class _Run:
    """What is known of one run so far, whatever ends it."""

    def __init__(self, args: RunArgs, outlets: Outlets, workspace: str, review: bool, ignored: bool) -> None:
        self._args = args
        self._outlets = outlets
        self._workspace = workspace
        self._review = review
        self._with_ignored = ignored
        self._log: JobLog | None = None
        self._show: Emit = self._print
        self._started: SessionStarted | None = None
        self._ended: RunEnded | None = None
        self._words: list[str] = []
        self._turn = ""
        self._mode = (args.mode or Mode.DONT_ASK).value
        self._model = args.model or args.provider or "none"
        self._bounds: Bounds = PIPELINE
        self._changed: tuple[changes.Changed, ...] = ()
        self._notes: list[str] = []
        self._patch: bytes | None = None
        self._seconds = 0.0
        self._place: place.Place | None = None  # of the log; None while nothing was opened

    def work(self, prompt: str | None, prompt_file: Path | None) -> int:
        problem: Problem | None = None
        code = Exit.DONE
        began = time.monotonic()
        try:
            self._watched()
            self._session(prompt_text(prompt, prompt_file))
        except (KeyboardInterrupt, asyncio.CancelledError):
            code, problem = Exit.INTERRUPTED, Problem("stopped from outside", "the job was cancelled", "")
        except BrokenPipeError as error:  # nobody reads the log any more; the files are still wanted
            code, problem = Exit.BROKEN_PIPE, Problem("nobody reads the output any more", str(error).lower(), "")
        except Exception as error:  # the seam of a pipeline: what was asked for is written, whatever went wrong
            problem, code = known_problem(error) or (unexpected(error), Exit.FAILED)
        self._seconds = time.monotonic() - began
        _ignored()  # what follows takes a moment, and is all that is left of the run
        if problem is not None and code not in (Exit.INTERRUPTED, Exit.BROKEN_PIPE):
            self._shown(problem)
        result = self._result(code, problem)
        try:
            result = self._written(result, problem)
        finally:
            if self._log is not None:
                self._log.end()
        print(result.line(), flush=True)  # raises BrokenPipeError where that is why it ended
        return result.exit

    def _watched(self) -> None:
        if not self._args.json:
            self._log = JobLog.on_stdout(sys.stdout, os.environ)
        self._show = on_stdout(show=self._print if self._log is None else transcript(self._log))  # type: ignore[arg-type]  # a text stream

    def _session(self, prompt: str) -> None:
        args = replace(self._args, mode=self._args.mode or Mode.DONT_ASK, least="full")
        kept = surroundings.credentials(self._workspace)
        if not self._review:
            surroundings.refuse(kept)
        usual = PIPELINE
        options, settings = prepared(args, True, repository=args.trust_config is not None, usual=usual)
        self._place = place.of(settings, os.environ)
        self._bounds = options.bounds
        profile = surroundings.closed(settings.profile, os.environ, self._workspace)
        settings = replace(
            settings,
            profile=profile,
            apart=profile.secret_paths[len(settings.profile.secret_paths) :],
            notices=(*settings.notices, *self._left_out(args)),
        )
        model = chosen_model(args, settings, options.cwd)
        self._model = f"{model.provider.name}:{model.model}"
        options = begun(args, options, settings, model)
        self._bounds = options.bounds
        lent = {name for each in settings.profile.credentials for name in each.source[1:] if each.source[0] == "env"}
        environ = surroundings.environment(os.environ, keep=lent)
        with _reviewed(self._review, options, settings, environ) as review:
            if review is None:
                self._in_place(prompt, options, settings, environ, model)
                return
            surroundings.strip(review.workspace)
            self._notes += review.notes
            told = f"{review.told}\n\n{options.instructions}".strip()
            options = replace(options, cwd=review.cwd, instructions=told)
            try:
                self._play(prompt, options, review.settings, environ, model)
            finally:
                self._taken(review)

    def _in_place(
        self, prompt: str, options: "SessionOptions", settings: "Settings", environ: Mapping[str, str], model: "Opened"
    ) -> None:
        then = changes.before(self._workspace)
        try:
            self._play(prompt, options, settings, environ, model)
        finally:
            _ignored()
            try:
                self._changed = changes.since(self._workspace, then)
            except OSError as error:
                self._notes.append(f"what changed cannot be told: {(error.strerror or '').lower()}")

    def _play(
        self, prompt: str, options: "SessionOptions", settings: "Settings", environ: Mapping[str, str], model: "Opened"
    ) -> None:
        from runner.approval import Unattended

        asyncio.run(
            play(prompt, options, settings, environ, model=model, approver=Unattended(self._emit), emit=self._emit)
        )

    def _taken(self, review: "Review") -> None:
        """The patch of what was done in the copy."""
        _ignored()
        patch = review.patch(ignored=self._with_ignored)
        self._patch = patch.text
        for each in patch.files:
            if each.how == "renamed":
                self._changed += (changes.Changed(each.was, "deleted"), changes.Changed(each.path, "added"))
            else:
                self._changed += (changes.Changed(each.path, each.how),)
        self._notes += patch.notes

    def _left_out(self, args: RunArgs) -> Iterator[str]:
        """What came with the repository and does not count."""
        if args.trust_config is not None:
            return
        from runner.config.load import LOCAL_FILE, PROJECT_FILE
        from runner.trust.look import INSTRUCTIONS

        names = [
            name for name in (PROJECT_FILE, LOCAL_FILE, *INSTRUCTIONS) if os.path.lexists(f"{self._workspace}/{name}")
        ]
        if names:
            listed = ", ".join(f"`{name}`" for name in names)
            how = "`--trust-config HASH` uses it (`agent trust show`)"
            yield f"ignored, since it came with the repository: {listed}; {how}"

    def _emit(self, event: Event) -> None:
        events = self._outlets.get("--events")
        if events is not None:
            try:
                events.add(f"{event.line()}\n".encode())
            except OSError as error:
                why = (error.strerror or "").lower()
                fix = "check the disk and the folder"
                raise Stopped(Problem(f"`{events.path}` (--events) takes no more", why, fix), Exit.FAILED) from None
        if isinstance(event, Said) and not self._words and self._log is not None:
            self._log.ungroup()  # what the model says stands between the groups of its turns
        self._show(event)
        match event:
            case SessionStarted():
                self._started = event
            case Said(text):
                self._words.append(text)
            case Proposed(call):
                self._words.clear()
                self._grouped(call.partition(".")[0])
            case RunEnded():
                self._ended = event
            case _:
                pass

    def _grouped(self, turn: str) -> None:
        if self._log is not None and turn != self._turn:
            self._turn = turn
            self._log.group(f"turn {turn}")

    @staticmethod
    def _print(event: Event) -> None:
        print(inert(event.line()), flush=True)

    def _shown(self, problem: Problem) -> None:
        """On stderr, which stands in the same log, after what was said so far."""
        sys.stdout.flush()
        print_problem(problem)

    def _result(self, code: Exit, problem: Problem | None) -> Result:
        ended, story = self._ended, Story()
        if self._started is not None:
            story = self._story(self._started.session)
        done = ended is not None and ended.exit in (Exit.DONE, Exit.DENIED)
        self._told = story
        if ended is not None and problem is None:
            code, reason = Exit(ended.exit), ended.reason
        else:
            reason = problem.what if problem is not None else "it broke off"
        if code is Exit.INTERRUPTED:
            reason = "stopped from outside"
        return Result(
            exit=int(code),
            reason=reason,
            limit=ended.limit if ended else None,
            turns=ended.turns if ended else 0,
            usage=ended.usage if ended else Result(0, "").usage,
            cost=ended.cost if ended else None,
            seconds=self._seconds,
            denied=refusals(story, done=done),
            changed=self._changed,
            session=self._started.session if self._started else None,
            head=story.head,
            message="".join(self._words).strip(),
        )

    def _story(self, session: str) -> Story:
        from runner.audit.log import AuditError

        if self._place is None:
            return Story()
        try:
            return told(self._place, session)
        except AuditError as error:
            self._notes.append(f"{error.problem.what}: {error.problem.why}")
            return Story()

    def _written(self, result: Result, problem: Problem | None) -> Result:
        """Every file that was asked for; the result says what could not be written."""
        import json

        from runner.audit.log import AuditError

        outlets = self._outlets
        failed: list[Problem] = []

        def write(option: str, data: bytes) -> bool:
            outlet = outlets.get(option)
            if outlet is None:
                return False
            try:
                outlet.write(data)
            except Stopped as error:
                failed.append(error.problem)
                return False
            return True

        patch = outlets.get("--patch")
        if self._patch is not None and patch is not None and write("--patch", self._patch):
            result = replace(result, patch=patch.path)
        if outlets.get("--sarif") is not None:
            write("--sarif", f"{json.dumps(self._sarif(result), indent=1)}\n".encode())
        if outlets.get("--seal") is not None and result.head is not None:
            try:
                write("--seal", f"{json.dumps(self._seal(), indent=1)}\n".encode())
            except AuditError as error:
                failed.append(error.problem)
        started = self._started
        sandbox = f"{started.enforcement.backend} {started.enforcement.level.value}" if started else ""
        if outlets.get("--summary") is not None:
            page = Page(
                result,
                self._told,
                self._bounds,
                self._mode,
                self._model,
                sandbox,
                tuple(self._notes),
                problem.why if problem else "",
            )
            write("--summary", page.text().encode("utf-8", "backslashreplace"))
        for each in failed:
            self._shown(each)
        if failed and result.exit in (Exit.DONE, Exit.DENIED):
            result = replace(result, exit=int(Exit.FAILED), reason=failed[0].what)
        events = outlets.get("--events")
        if events is not None:
            with contextlib.suppress(OSError):  # its own last line; what it had is there
                events.add(f"{result.line()}\n".encode())
        if not write("--result", f"{result.line()}\n".encode()) and outlets.get("--result") is not None:
            self._shown(failed[-1])
            result = replace(result, exit=result.exit or int(Exit.FAILED))
        return result

    def _seal(self) -> dict[str, object]:
        from runner.audit.key import kept
        from runner.audit.log import AuditLog
        from runner.audit.sealing import sealed

        with AuditLog.open_to_read(self._place or place.own(os.environ)) as log:
            return sealed(log.store, kept)

    def _sarif(self, result: Result) -> dict[str, object]:
        from runner.audit.export.sarif import document

        started = self._started
        exits = {result.session: result.exit} if result.session else {}
        workspace = started.workspace if started else self._workspace
        return document(self._told.deeds, workspace, exits=exits, fallback=_workflow(os.environ))


def _workflow(environ: Mapping[str, str]) -> str | None:
    """The file of the job itself, where a denial names no file of the workspace; None where nobody says.

    SOURCE: docs.github.com, "Variables": GITHUB_WORKFLOW_REF is `owner/repository/PATH@REF`.
    """
    path = environ.get("GITHUB_WORKFLOW_REF", "").rpartition("@")[0].split("/", 2)[2:]
    return path[0] if path and path[0].startswith(".github/workflows/") and ".." not in path[0] else None


@contextlib.contextmanager
def _reviewed(
    wanted: bool, options: "SessionOptions", settings: "Settings", environ: Mapping[str, str]
) -> "Iterator[Review | None]":
    if not wanted:
        yield None
        return
    from runner.review.review import reviewed

    with reviewed(options.cwd, environ, settings) as review:
        yield review


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """SIGTERM, with which a job is cancelled, is Ctrl-C."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGINT, interrupt)


def _ignored() -> None:
    """From now on nobody stops us, for the moment that it takes; SIGKILL is left to whoever cannot wait."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
