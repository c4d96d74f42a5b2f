"""One run in a pipeline: its input, its log, and its result."""

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

from policy.model.tier import Mode
from policy.model.verdict import Problem
from runner.agent.startup import RunArgs, chosen_model, opener, prepare_options, with_session
from runner.audit.chain import AuditError
from runner.audit.log import Place, log_place
from runner.changes.review.deadline import Deadline
from runner.config import Settings, shipped
from runner.config.load import LOCAL_FILE, PROJECT_FILE
from runner.engine.budget import Limit
from runner.engine.limit_settings import PIPELINE
from runner.engine.run_limits import RunLimits
from runner.events import Emit, Event, ModelText, RunEnded, SessionStarted, ToolProposed
from runner.frontends.ci import changes, git_logins, host_environment
from runner.frontends.ci.output_files import Outlets, OutputContent, write_outputs
from runner.frontends.ci.result import Result, SessionRecord, inert, read_session_record, refusals
from runner.frontends.ci.workflow import JobLog
from runner.frontends.launch import on_stdout, play, prompt_text, transcript
from runner.gate.gate import refuse_folder
from runner.problems import Exit, Stopped, ending_signals, known_problem
from runner.stderr import print_problem, unexpected

if TYPE_CHECKING:
    from runner.agent.open_session import SessionOptions
    from runner.changes.review.session import Review
    from runner.providers import OpenModel


class Run:
    """The state of one run, however it ends.

    `workspace` is the workspace around the folder of `args`. With `review`, the run works in a copy and leaves a patch;
    with `ignored`, the copy contains the files that Git ignores too.
    """

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
        self._bounds: RunLimits = PIPELINE
        self._changed: tuple[changes.ChangedFile, ...] = ()
        self._notes: list[str] = []
        self._patch: bytes | None = None
        self._seconds = 0.0
        self._began = time.monotonic()
        self._deadline: Deadline | None = None  # of the look at what changed, once it began
        self._cut = False  # that look was ended by its deadline
        self._place: Place | None = None  # of the log; None while nothing was opened

    def work(self, prompt: str | None, prompt_file: Path | None) -> int:
        """Do the run, up to the last line of stdout, and return the exit code. The files are written however the run
        ends.
        """
        problem: Problem | None = None
        code = Exit.DONE
        try:
            self._watched()
            self._session(prompt_text(prompt, prompt_file))
        except (KeyboardInterrupt, asyncio.CancelledError):
            code, problem = Exit.INTERRUPTED, Problem("stopped from outside", "the job was cancelled", "")
        except BrokenPipeError as error:  # nobody reads the log any more; the files are still wanted
            code, problem = Exit.BROKEN_PIPE, Problem("nobody reads the output any more", str(error).lower(), "")
        except Exception as error:  # the seam of a pipeline: what was asked for is written, whatever went wrong
            problem, code = known_problem(error) or (unexpected(error), Exit.FAILED)
        self._seconds = time.monotonic() - self._began
        _ignored()  # what follows takes a moment, and is all that is left of the run
        if problem is not None and code not in (Exit.INTERRUPTED, Exit.BROKEN_PIPE):
            self._show_problem(problem)
        story = self._story()
        result = self._result(code, problem, story)
        remains = self._remains(story, problem)
        try:
            result = write_outputs(result, remains, self._outlets, self._show_problem)
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
        refuse_folder(self._workspace, os.environ, shipped().profile)  # before all of it is looked through
        git_logins.refuse(git_logins.credentials(self._workspace), review=bool(self._review))
        options, settings = prepare_options(args, True, repository=args.trust_config is not None, usual=PIPELINE)
        self._place = log_place(settings, os.environ)
        self._bounds = options.bounds
        profile = host_environment.deny_job_files(settings.profile, os.environ, self._workspace)
        settings = replace(
            settings,
            profile=profile,
            apart=profile.secret_paths[len(settings.profile.secret_paths) :],
            notices=(*settings.notices, *self._left_out(args)),
        )
        model = chosen_model(args, settings, options.cwd)
        self._model = model.named
        self._opener = opener(args, settings, options.cwd, model)
        options = with_session(args, options, settings, model)
        self._bounds = options.bounds
        lent = {name for each in settings.profile.credentials for name in each.source[1:] if each.source[0] == "env"}
        environ = host_environment.command_environment(os.environ, keep=lent)
        with _reviewed(self._review, options, settings, environ) as review:
            if review is None:
                self._in_place(prompt, options, settings, environ, model)
                return
            git_logins.strip(review.workspace)
            self._notes += review.notes
            instructions = f"{review.told}\n\n{options.instructions}".strip()
            options = replace(options, cwd=review.cwd, instructions=instructions)
            try:
                self._play(prompt, options, review.settings, environ, model)
            finally:
                self._taken(review)

    def _in_place(
        self,
        prompt: str,
        options: "SessionOptions",
        settings: "Settings",
        environ: Mapping[str, str],
        model: "OpenModel",
    ) -> None:
        then = changes.scan_workspace(self._workspace)
        try:
            self._play(prompt, options, settings, environ, model)
        finally:
            deadline = self._looking()
            try:
                look = changes.changes_since(self._workspace, then, deadline.over)
                self._changed, self._cut = look.changed, look.cut
                self._notes += look.notes
            except OSError as error:
                self._notes.append(f"what changed cannot be told: {(error.strerror or '').lower()}")

    def _play(
        self,
        prompt: str,
        options: "SessionOptions",
        settings: "Settings",
        environ: Mapping[str, str],
        model: "OpenModel",
    ) -> None:
        from runner.approval.approver import Unattended

        approver, emit = Unattended(self._emit), self._emit
        asyncio.run(
            play(prompt, options, settings, environ, model=model, approver=approver, emit=emit, opener=self._opener)
        )

    def _taken(self, review: "Review") -> None:
        """Return the patch of the changes in the copy."""
        deadline = self._looking()
        patch = review.patch(ignored=self._with_ignored, over=deadline.over)
        self._patch, self._cut = patch.text, patch.cut
        changed: list[changes.ChangedFile] = []  # a tuple would be copied for each of 300,000 files
        for each in patch.files:
            if each.how == "renamed":
                changed += (changes.ChangedFile(each.was, "deleted"), changes.ChangedFile(each.path, "added"))
            else:
                changed.append(changes.ChangedFile(each.path, each.how))
        self._changed += tuple(changed)
        self._notes += patch.notes

    def _looking(self) -> Deadline:
        """Begin the look at what changed, which ends with the time of the run, and by SIGINT or SIGTERM. Either way the
        files that were asked for are written, with what was seen."""
        self._deadline = deadline = Deadline.of_run(self._began, self._bounds.seconds)
        for number in (signal.SIGINT, *ending_signals()):
            signal.signal(number, lambda *_: deadline.ask())
        return deadline

    def _left_out(self, args: RunArgs) -> Iterator[str]:
        """Return the settings and files of the repository that do not count."""
        if args.trust_config is not None:
            return
        from runner.config.trust.discover import INSTRUCTIONS, PROMPTS, SKILLS

        every = (PROJECT_FILE, LOCAL_FILE, *INSTRUCTIONS, *PROMPTS, *SKILLS)
        names = [name for name in every if os.path.lexists(f"{self._workspace}/{name}")]
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
        if isinstance(event, ModelText) and not self._words and self._log is not None:
            self._log.ungroup()  # what the model says stands between the groups of its turns
        self._show(event)
        match event:
            case SessionStarted():
                self._started = event
            case ModelText(text):
                self._words.append(text)
            case ToolProposed(call):
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

    def _show_problem(self, problem: Problem) -> None:
        """Print a problem on stderr, which goes to the same log, after the output so far."""
        sys.stdout.flush()
        print_problem(problem)

    def _result(self, code: Exit, problem: Problem | None, story: SessionRecord) -> Result:
        ended = self._ended
        limit = ended.limit if ended else None
        done = ended is not None and ended.exit in (Exit.DONE, Exit.DENIED)
        if ended is not None and problem is None:
            code, reason = Exit(ended.exit), ended.reason
        else:
            reason = problem.what if problem is not None else "it broke off"
        if self._cut and self._deadline is not None and self._deadline.asked:
            code = Exit.INTERRUPTED
        elif self._cut and code in (Exit.DONE, Exit.DENIED):
            code, limit = Exit.LIMIT, Limit.WALL
            reason = f"stopped after {self._bounds.seconds:g} s, the time this run may take, looking at what changed"
        if code is Exit.INTERRUPTED:
            reason = "stopped from outside"
        return Result(
            exit=int(code),
            reason=reason,
            limit=limit,
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

    def _remains(self, story: SessionRecord, problem: Problem | None) -> OutputContent:
        return OutputContent(
            story=story,
            place=self._place,
            started=self._started,
            workspace=self._workspace,
            bounds=self._bounds,
            mode=self._mode,
            model=self._model,
            notes=tuple(self._notes),
            why=problem.why if problem else "",
            patch=self._patch,
        )

    def _story(self) -> SessionRecord:

        if self._place is None or self._started is None:
            return SessionRecord()
        try:
            return read_session_record(self._place, self._started.session)
        except AuditError as error:
            self._notes.append(f"{error.problem.what}: {error.problem.why}")
            return SessionRecord()


@contextlib.contextmanager
def _reviewed(
    wanted: bool, options: "SessionOptions", settings: "Settings", environ: Mapping[str, str]
) -> "Iterator[Review | None]":
    if not wanted:
        yield None
        return
    from runner.changes.review.session import reviewed

    with reviewed(options.cwd, environ, settings) as review:
        yield review


def _ignored() -> None:
    """Ignore the signals that end a program for the short rest of the run. SIGKILL remains for a caller that cannot
    wait.
    """
    for number in (signal.SIGINT, *ending_signals()):
        signal.signal(number, signal.SIG_IGN)
