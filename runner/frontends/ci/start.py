"""`agent ci`: the run of `agent run` on a machine with secrets, for a reader who sees only the output files."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from policy.model.frozen import dataclass
from runner.agent.startup import RunArgs
from runner.frontends.ci.output_files import Outlets, no_link
from runner.frontends.ci.run import Run
from runner.gate.gate import folder
from runner.problems import ending_signals, usage


@dataclass(frozen=True, slots=True)
class Files:
    """The output files of a run, as typed. `inside_too`: the files may lie in the workspace."""

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
    """Do one unattended run and return the exit code.

    Once the output files are open, they are written however the run ends: also if it cannot begin, is cancelled or
    fails.
    """
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
    from runner.config.trust.session_check import workspace_at

    cwd = str(folder(args.cwd))
    workspace = workspace_at(cwd, os.environ)
    for option, path in (("--prompt-file", prompt_file), ("--config", args.config)):
        if path is not None:
            no_link(option, os.path.abspath(path), workspace)
    with (
        _signals(),
        Outlets.opened(files.by_option(), workspace, os.environ, inside_too=files.inside_too or review) as outlets,
    ):
        return Run(args, outlets, workspace, review, ignored).work(prompt, prompt_file)


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """SIGTERM, with which a job is cancelled, and other signals that end a program are Ctrl-C."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *ending_signals())}
    for number in ending_signals():
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
