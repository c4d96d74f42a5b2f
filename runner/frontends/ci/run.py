"""One run in a pipeline: its input, its log, and its result."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from policy.model.profile import MAIN
from policy.model.tier import Mode
from policy.model.verdict import Problem
from runner.agent.startup import RunArgs, SessionStart, chosen_model, opener, prepare_options, with_session
from runner.approval.approver import Unattended
from runner.audit.chain import AuditError
from runner.audit.log import log_place
from runner.changes.review.tree_diff import Deadline
from runner.config import Settings, shipped
from runner.engine.budget import Limit
from runner.engine.run_limits import PIPELINE
from runner.events import Emit, Event, ModelText, RunEnded, SessionStarted, ToolProposed
from runner.frontends.ci import changes, git_logins, host_environment
from runner.frontends.ci.event_text import job_event
from runner.frontends.ci.output_files import write_outputs
from runner.frontends.ci.result import CiResult, OutputContent, SessionRecord, inert, read_session_record, refusals
from runner.frontends.ci.workflow import JobLog
from runner.frontends.launch import guarded, play, transcript
from runner.frontends.output_file import Outlets, no_link
from runner.frontends.prompt_input import prompt_input
from runner.frontends.signals import interrupted_by_signals
from runner.gate.gate import folder, refuse_folder
from runner.messages import Usage
from runner.problems import Exit, Stopped, ending_signals, known_problem, usage
from runner.state.paths import LOCAL_FILE, PROJECT_FILE
from runner.stderr import print_problem, unexpected
from runner.text.json_line import utc_now
from runner.text.phrases import os_reason

if TYPE_CHECKING:
    from runner.agent.open_session import SessionOptions
    from runner.changes.review.session import Review
    from runner.engine.steering import UserInput


OUTPUTS = ("--events", "--summary", "--sarif", "--patch", "--seal", "--result")  # the order in which they are opened


class Run:
    """The state of one run.

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
        self._ended: RunEnded | None = None
        self._writing = False  # the model is writing text, after its latest call
        self._turn = ""
        mode = (args.mode or Mode.DONT_ASK).value
        self._content = OutputContent(workspace, mode, args.model or args.provider or "none")
        self._changed: tuple[changes.ChangedFile, ...] = ()
        self._seconds = 0.0
        self._began = time.monotonic()
        self._deadline: Deadline | None = None  # of the search for changes, once it has begun
        self._cut = False  # True if that search was ended by its deadline

    def work(self, prompt: str | None, prompt_file: Path | None) -> int:
        """Do the run, print the result as the last line of stdout, and return the exit code.

        The output files are written even if the run fails. Raise BrokenPipeError if the result cannot be printed.
        """
        problem: Problem | None = None
        code = Exit.DONE
        try:
            if not self._args.json:
                self._log = JobLog(sys.stdout, github=os.environ.get("GITHUB_ACTIONS") == "true")
            self._show = guarded(self._print if self._log is None else transcript(self._log))  # type: ignore[arg-type]  # a text stream
            self._session(prompt_input(prompt, prompt_file, with_stdin=not self._args.key.from_stdin))
        except (KeyboardInterrupt, asyncio.CancelledError):
            code, problem = Exit.INTERRUPTED, Problem("stopped by a signal", "the job was cancelled", "")
        except BrokenPipeError as error:  # the reader of the log is gone; the files are still written
            code, problem = Exit.BROKEN_PIPE, Problem("the reader of the output is gone", str(error).lower(), "")
        except Exception as error:  # the seam of a pipeline: the output files are written after any error
            problem, code = known_problem(error) or (unexpected(error), Exit.FAILED)
        self._seconds = time.monotonic() - self._began
        # Signals are ignored while the results are written, which is short. A caller can still use SIGKILL.
        for number in (signal.SIGINT, *ending_signals()):
            signal.signal(number, signal.SIG_IGN)
        if problem is not None and code not in (Exit.INTERRUPTED, Exit.BROKEN_PIPE):
            self._show_problem(problem)
        self._content.story = self._story()
        self._content.why = problem.why if problem is not None else ""
        result = self._result(code, problem)
        try:
            result = write_outputs(result, self._content, self._outlets, self._show_problem)
        finally:
            if self._log is not None:
                self._log.end()
        print(result.line(), flush=True)  # raises BrokenPipeError if the reader is gone
        return result.exit

    def _session(self, prompt: "UserInput") -> None:
        args = replace(self._args, mode=self._args.mode or Mode.DONT_ASK, least="full")
        refuse_folder(self._workspace, os.environ, shipped().profile)  # before the whole folder is searched
        git_logins.refuse(git_logins.credentials(self._workspace), review=bool(self._review))
        options, settings = prepare_options(
            args, True, repository=args.trust_config is not None, usual=PIPELINE, guarded=True
        )
        event = job_event(os.environ)
        options = replace(options, foreign=event.foreign, strangers=event.texts)
        self._content.place = log_place(settings, os.environ)
        self._content.bounds = options.bounds
        profile = host_environment.deny_job_files(settings.profile, os.environ, self._workspace)
        apart = profile.secret_paths[len(settings.profile.secret_paths) :]
        names = profile.secret_names[len(settings.profile.secret_names) :]

        def guarded(settings: Settings) -> Settings:
            """Return `settings` with the files of the job as further secrets."""
            paths, known = (*settings.profile.secret_paths, *apart), (*settings.profile.secret_names, *names)
            return replace(
                settings, profile=replace(settings.profile, secret_paths=paths, secret_names=known), apart=apart
            )

        settings = replace(guarded(settings), notices=(*settings.notices, *self._ignored_files_notice(args)))
        source = options.source and options.source.mapped(guarded)
        model = chosen_model(args, settings, options.cwd)
        self._content.model = model.named
        another = opener(args, settings, options.cwd, model)
        options, _ = with_session(args, replace(options, source=source), settings, lambda own: model)
        self._content.bounds = options.bounds
        lent = {name for each in settings.profile.credentials for name in each.source[1:] if each.source[0] == "env"}
        environ = host_environment.command_environment(os.environ, keep=lent)

        def work(options: "SessionOptions", settings: Settings) -> None:
            start = SessionStart(options, settings, environ, model, another)
            asyncio.run(play(prompt, start, Unattended(self._emit), self._emit, urls=args.urls))

        copy: contextlib.AbstractContextManager[Review | None] = contextlib.nullcontext()
        if self._review:
            from runner.changes.review.session import reviewed

            copy = reviewed(options.cwd, environ, settings)
        with copy as review:
            if review is None:
                self._in_place(lambda: work(options, settings))
                return
            git_logins.strip(review.workspace)
            self._content.notes += review.notes
            instructions = f"{review.model_note}\n\n{options.instructions}".strip()
            source = source and source.mapped(review.mapped)
            servers = options.servers
            if servers:
                from runner.mcp.configured import servers_in_copy

                servers = servers_in_copy(servers, review.original, review.copy.path)
            hooks = options.hooks
            if hooks is not None:
                from runner.hooks.configured import hooks_in_copy

                hooks = hooks_in_copy(hooks, review.original, review.copy.path)
            options = replace(
                options, cwd=review.cwd, instructions=instructions, source=source, servers=servers, hooks=hooks
            )
            try:
                work(options, review.settings)
            finally:
                self._store_patch(review)

    def _in_place(self, work: Callable[[], None]) -> None:
        then = changes.scan_workspace(self._workspace)
        try:
            work()
        finally:
            deadline = self._looking()
            try:
                look = changes.changes_since(self._workspace, then, deadline.over)
                self._changed, self._cut = look.changed, look.cut
                self._content.notes += look.notes
            except OSError as error:
                self._content.notes.append(f"the changed files are unknown: {os_reason(error)}")

    def _store_patch(self, review: "Review") -> None:
        """Store the patch, the changed files and the notes of the copy."""
        deadline = self._looking()
        patch = review.patch(ignored=self._with_ignored, over=deadline.over)
        self._content.patch, self._cut = patch.text, patch.cut
        changed: list[changes.ChangedFile] = []  # a tuple would be copied for each of 300,000 files
        for each in patch.files:
            if each.how == "renamed":
                changed += (changes.ChangedFile(each.was, "deleted"), changes.ChangedFile(each.path, "added"))
            else:
                changed.append(changes.ChangedFile(each.path, each.how))
        self._changed += tuple(changed)
        self._content.notes += patch.notes

    def _looking(self) -> Deadline:
        """Set and return the deadline of the search for changes: the end of the run's time.

        SIGINT and the signals that end a program also end the search. The output files then contain the changes that
        were found.
        """
        self._deadline = deadline = Deadline.of_run(self._began, self._content.bounds.seconds)
        for number in (signal.SIGINT, *ending_signals()):
            signal.signal(number, lambda *_: deadline.ask())
        return deadline

    def _ignored_files_notice(self, args: RunArgs) -> Iterator[str]:
        """Yield a notice with the settings and files of the repository that are ignored, if there are any."""
        if args.trust_config is not None:
            return
        from runner.config.trust.discover import FILES_WITH_HOOKS, INSTRUCTIONS, PROMPTS, SKILLS

        every = (PROJECT_FILE, LOCAL_FILE, *INSTRUCTIONS, *PROMPTS, *SKILLS, *FILES_WITH_HOOKS)
        listed = ", ".join(f"`{name}`" for name in every if os.path.lexists(f"{self._workspace}/{name}"))
        if listed:
            how = "to use it, add `--trust-config HASH` (`agent trust show`)"
            yield f"ignored, because it is part of the repository: {listed}; {how}"

    def _emit(self, event: Event) -> None:
        events = self._outlets.get("--events")
        if events is not None:
            try:
                events.add(f"{event.line(utc_now())}\n".encode())
            except OSError as error:
                why = os_reason(error)
                fix = "check the disk and the folder"
                raise Stopped(Problem(f"`{events.path}` (--events) cannot be written", why, fix), Exit.FAILED) from None
        if isinstance(event, ModelText) and not self._writing and self._log is not None:
            self._log.ungroup()  # the model's text is shown between the groups of its turns
        self._show(event)
        if event.agent != MAIN:
            return
        match event:
            case SessionStarted():
                self._content.started = event
            case ModelText():
                self._writing = True
            case ToolProposed(call):
                self._writing = False
                turn = call.partition(".")[0]
                if self._log is not None and turn != self._turn:
                    self._turn = turn
                    self._log.group(f"turn {turn}")
            case RunEnded():
                self._ended = event
            case _:
                pass

    @staticmethod
    def _print(event: Event) -> None:
        print(inert(event.line(utc_now())), flush=True)

    def _show_problem(self, problem: Problem) -> None:
        """Print a problem on stderr after flushing stdout, since both go to the same log."""
        sys.stdout.flush()
        print_problem(problem)

    def _result(self, code: Exit, problem: Problem | None) -> CiResult:
        ended, story, started = self._ended, self._content.story, self._content.started
        limit = ended.limit if ended else None
        done = ended is not None and ended.exit in (Exit.DONE, Exit.DENIED)
        if ended is not None and problem is None:
            code, reason = Exit(ended.exit), ended.reason
        else:
            reason = problem.what if problem is not None else "the run ended without a result"
        if self._cut and self._deadline is not None and self._deadline.asked:
            code = Exit.INTERRUPTED
        elif self._cut and code in (Exit.DONE, Exit.DENIED):
            code, limit = Exit.LIMIT, Limit.WALL
            seconds = self._content.bounds.seconds
            reason = f"stopped after {seconds:g} s, the time limit of the run, while the changed files were collected"
        if code is Exit.INTERRUPTED:
            reason = "stopped by a signal"
        return CiResult(
            exit=int(code),
            reason=reason,
            limit=limit,
            turns=ended.turns if ended else 0,
            usage=ended.usage if ended else Usage(),
            cost=ended.cost if ended else None,
            seconds=self._seconds,
            denied=refusals(story, done=done),
            changed=self._changed,
            session=started.session if started else None,
            head=story.head,
            text=ended.text.strip() if ended else "",
            output=ended.output if ended else None,
        )

    def _story(self) -> SessionRecord:
        if self._content.place is None or self._content.started is None:
            return SessionRecord()
        try:
            return read_session_record(self._content.place, self._content.started.session)
        except AuditError as error:
            self._content.notes.append(f"{error.problem.what}: {error.problem.why}")
            return SessionRecord()


def start_ci(
    args: RunArgs,
    files: Mapping[str, str | None],
    prompt: str | None,
    prompt_file: Path | None,
    *,
    review: bool,
    ignored: bool,
    inside_too: bool,
) -> int:
    """Do one unattended run and return the exit code. Raise Stopped if options or output files cannot be used.

    `files` maps options to output files. Once these are open, they are written even if the run cannot begin, is
    cancelled or fails.
    """
    if ignored and not review:
        raise usage("`--patch-ignored` needs `--review`", "without a copy there is no patch", "add --review")
    if review != (files.get("--patch") is not None):
        if review:
            option, other, why = "--review", "--patch FILE", "the changes of the copy would be lost"
        else:
            option, other, why = "--patch", "--review", "only a run in a copy creates a patch"
        raise usage(f"`{option}` needs `{other}`", why, f"add {other}")
    from_stdin = prompt_file is None or str(prompt_file) in ("-", "/dev/stdin")
    args.key.check(prompt_from_stdin=prompt is None and from_stdin)
    from runner.state.workspace import workspace_at

    workspace = workspace_at(str(folder(args.cwd)), os.environ)
    for option, path in (("--prompt-file", prompt_file), ("--config", args.config)):
        if path is not None:
            no_link(option, os.path.abspath(path), workspace)
    inside_too = inside_too or review
    with interrupted_by_signals(), Outlets.opened(files, workspace, os.environ, inside_too=inside_too) as outlets:
        return Run(args, outlets, workspace, review, ignored).work(prompt, prompt_file)
