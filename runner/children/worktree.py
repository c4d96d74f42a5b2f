"""The Git worktree of a sub-agent: a folder and a branch of its own.

The administrative files are written here, without Git, because `git worktree add` runs hooks and filters that the
repository names. The files are checked out by Git in the sandbox of the sub-agent.
"""

import contextlib
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from policy.evaluation import EvaluationContext
from policy.grants.resolve import approve
from policy.model.action import RunArgv
from policy.model.frozen import dataclass
from policy.model.profile import Source
from policy.model.tier import Mode, Tier
from policy.model.verdict import Allow, Ask, Deny, Problem
from runner.audit.fact_recorder import FactRecorder
from runner.audit.records import Decision, RecordedAnswer
from runner.changes.safe_open import folder, opened_root
from runner.state import paths
from runner.state.workspace import git_folder, head_commit, small_file, workspace_key
from runner.text.phrases import os_reason

if TYPE_CHECKING:
    from runner.engine.run_context import RunContext
    from sandbox.backend import Outcome

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ALLOWED = frozenset([Tier.READ, Tier.WRITE, Tier.EXECUTE, Tier.DANGEROUS])  # of a checkout into an empty folder
_ANSWER = "the start of the sub-agent, whose worktree is new and empty"


@dataclass(frozen=True, slots=True)
class Worktree:
    """A worktree.

    Attributes:
        path: its folder, a real path.
        repository: the Git folder of the repository.
        name: its name in that folder.
        branch: its branch.
        base: the commit that it began with.
    """

    path: str
    repository: str
    name: str
    branch: str
    base: str


def worktrees_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of all worktrees: `ringfence/worktrees` in the data folder of the user (XDG)."""
    data = environ.get("XDG_DATA_HOME", "")
    top = Path(data) if data.startswith("/") else Path(paths.home(environ)) / ".local/share"
    return top / "ringfence" / "worktrees"


def make_worktree(workspace: str, agent: str, session: str, environ: Mapping[str, str]) -> Worktree | Problem:
    """Create the folder and the administrative files of a worktree of `workspace`. Its files are not checked out.

    THREAT T228: the repository may be hostile. No program runs, no link in its Git folder is followed, and nothing that
    exists is replaced.
    """
    common = git_folder(workspace)
    if common is not None and os.path.dirname(common).endswith("/.git/worktrees"):
        common = os.path.dirname(os.path.dirname(common))  # the workspace is a linked worktree itself
    base = head_commit(workspace)
    if common is None or base is None:
        why = "the workspace is no Git repository with a commit"
        return Problem("the agent got no worktree", why, "start it without `isolation`")
    name = re.sub(r"[^A-Za-z0-9-]", "-", f"ringfence-{agent}-{session[:8]}")
    place = os.path.realpath(worktrees_folder(environ) / workspace_key(workspace) / name)
    made = Worktree(place, common, name, name, base)
    try:
        _create(made)
    except OSError as error:
        why = f"{error.filename or 'a file'}: {os_reason(error)}" if error.filename else os_reason(error)
        return Problem("the agent got no worktree", why, "remove old ones (`git worktree list`), or leave it out")
    return made


def _create(made: Worktree) -> None:
    """Create everything or nothing. Raise OSError if something cannot be created, or exists already."""
    with opened_root(made.repository) as git, contextlib.ExitStack() as undo:
        if "reftable" in os.listdir(git):
            raise OSError(0, "this repository stores its branches in another form (reftable)")
        os.makedirs(os.path.dirname(made.path), mode=0o700, exist_ok=True)
        os.mkdir(made.path, 0o700)
        undo.callback(shutil.rmtree, made.path, ignore_errors=True)
        with opened_root(made.path) as top:
            _write(top, ".git", f"gitdir: {made.repository}/worktrees/{made.name}\n")
        with contextlib.suppress(FileExistsError):  # it is opened without following links
            os.mkdir("worktrees", 0o755, dir_fd=git)
        worktrees = undo.enter_context(folder(git, "worktrees"))
        os.mkdir(made.name, 0o755, dir_fd=worktrees)
        undo.callback(shutil.rmtree, made.name, ignore_errors=True, dir_fd=worktrees)
        with folder(worktrees, made.name) as own:
            _write(own, "HEAD", f"ref: refs/heads/{made.branch}\n")
            _write(own, "commondir", "../..\n")
            _write(own, "gitdir", f"{made.path}/.git\n")
        with folder(git, "refs/heads") as heads:
            _write(heads, made.branch, f"{made.base}\n")
        undo.pop_all()


def _write(above: int, name: str, text: str) -> None:
    handle = os.open(name, _NEW, 0o644, dir_fd=above)
    with open(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)


async def check_out(worktree: Worktree, ctx: "RunContext") -> Problem | None:
    """Check out the files of the worktree in the sandbox of the sub-agent `ctx`. Return the problem, or None."""
    outcome = await _git(ctx, "reset", "--hard", "--quiet")
    if isinstance(outcome, Problem):
        return outcome
    if outcome.problem is not None or outcome.status != 0:
        text = (outcome.stderr or outcome.stdout).decode("utf-8", "replace").strip()[-500:]
        why = str(outcome.problem) if outcome.problem is not None else text or f"Git ended with status {outcome.status}"
        return Problem("the files of the worktree were not checked out", why, "start the agent without `isolation`")
    return None


@dataclass(frozen=True, slots=True)
class WorktreeResult:
    """The work in a worktree.

    Attributes:
        changed: the changed files since the start, by path, with `added`, `modified` or `deleted`.
        patch: the file with the changes, for `agent apply`; empty if it could not be written.
        committed: True if the branch has commits of the agent.
    """

    changed: tuple[tuple[str, str], ...] = ()
    patch: str = ""
    committed: bool = False


_KINDS = {"A": "added", "M": "modified", "D": "deleted", "T": "modified"}


async def result_of(worktree: Worktree, ctx: "RunContext") -> WorktreeResult:
    """Return the changes since the start of the worktree, committed or not. A worktree without any is removed."""
    added = await _git(ctx, "add", "--all", "--intent-to-add", ".")
    listed = await _git(ctx, "diff", "--no-renames", "--name-status", "-z", worktree.base)
    branch = small_file(f"{worktree.repository}/refs/heads/{worktree.branch}")  # None if the agent moved or removed it
    committed = branch is None or branch.strip() != worktree.base or head_commit(worktree.path) != worktree.base
    if isinstance(added, Problem) or isinstance(listed, Problem) or listed.status != 0:
        return WorktreeResult(committed=committed)
    words = listed.stdout.decode("utf-8", "surrogateescape").split("\0")
    pairs = zip(words[::2], words[1::2], strict=False)
    changed = tuple((path, _KINDS.get(letter[:1], "modified")) for letter, path in pairs)
    if not changed and not committed:
        _remove(worktree)
        return WorktreeResult()
    patch = ""
    made = await _git(ctx, "diff", "--no-renames", "--binary", "--no-ext-diff", "--no-textconv", worktree.base)
    if not isinstance(made, Problem) and made.status == 0 and not made.truncated and made.stdout:
        patch = ctx.outputs.keep(made.stdout, b"")
    return WorktreeResult(changed, patch, committed)


def _remove(worktree: Worktree) -> None:
    """Remove a worktree without changes. What cannot be removed stays, as after `git worktree add`."""
    shutil.rmtree(worktree.path, ignore_errors=True)
    try:
        with opened_root(worktree.repository) as git:
            with folder(git, "worktrees") as worktrees:
                shutil.rmtree(worktree.name, ignore_errors=True, dir_fd=worktrees)
            with folder(git, "refs/heads") as heads:
                os.unlink(worktree.branch, dir_fd=heads)
    except OSError:
        return  # `git worktree prune` removes the rest


async def _git(ctx: "RunContext", *words: str) -> "Outcome | Problem":
    """Run Git in the worktree of `ctx` in the sandbox, and record it. Return a Problem if the policy denies it.

    The rights are those of the same command of the sub-agent in its own worktree. INVARIANT: no question is skipped but
    that about files in this folder, which is new, and whose user approved the start of the sub-agent.
    """
    action = RunArgv(("git", *words), ctx.cwd)
    profile = ctx.profile
    noted = FactRecorder(ctx.look(), profile)
    context = EvaluationContext(
        noted.facts, ctx.rules, profile, Mode.TRUST_PROJECT, ctx.environment, source=Source.PERSON,
        backend=ctx.sandbox.name,
    )  # fmt: skip
    assessment, verdict = context.evaluate(action)
    answer = None
    if isinstance(verdict, Ask) and _ALLOWED.issuperset(assessment.tiers) and not assessment.asked:
        answer = RecordedAnswer(verdict.question, True, _ANSWER)
        verdict = approve(verdict)
    if isinstance(verdict, Ask):
        verdict = context.decide(assessment, unattended=True)
    assert isinstance(verdict, Allow | Deny)  # the second decision asks no question
    decision = Decision(
        "worktree",
        assessment,
        verdict,
        ctx.sandbox.name,
        answer,
        source=Source.PERSON,
        reach=ctx.sandbox.name,
        noted=noted,
        policy=ctx.profiles.fingerprint(ctx.rules),
        agent=ctx.agent,
        parent=ctx.parent,
    )
    number = ctx.audit.decided(ctx.session, decision)
    if isinstance(verdict, Deny):
        return verdict.problem
    outcome = await ctx.sandbox.run(verdict.permit)
    ctx.audit.finished(number, outcome, agent=ctx.agent, parent=ctx.parent)
    return outcome
