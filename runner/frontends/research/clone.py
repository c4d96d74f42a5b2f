"""The clone of a repository of others: every command of Git is judged, recorded and confined.

THREAT T256: a repository may name programs that Git starts (hooks, filters, submodules, file-system monitors), have
links that leave the folder, and files of any size. The clone runs with no other rights than those to its host and its
folder; nothing is checked out while there is a network; and files above the limit are neither fetched nor checked out.
"""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from policy.evaluation import EvaluationContext
from policy.grants.resolve import approve
from policy.model.action import RunArgv, RunScript
from policy.model.frozen import dataclass
from policy.model.host_rule import host_rule
from policy.model.profile import Source
from policy.model.tier import Mode, Tier
from policy.model.verdict import Allow, Ask, Deny, Problem, ProblemError
from policy.permission.flag_rights import FlagRights
from runner.audit.fact_recorder import FactRecorder
from runner.audit.records import Decision, RecordedAnswer
from runner.state.workspace import small_file
from runner.text.phrases import os_reason
from runner.text.sanitize import one_line

if TYPE_CHECKING:
    from runner.engine.run_context import RunContext
    from runner.frontends.research.address import RepositoryAddress
    from sandbox.backend import Outcome

_FETCHED = "fetched"  # the folder of the objects and references until they are placed
BLOB_LIMIT = "5m"
_CLONE_TIME = 600.0  # seconds
_CLONE_TIERS = frozenset((Tier.READ, Tier.WRITE, Tier.READ_OUTSIDE, Tier.NETWORK))
_CHECKOUT_TIERS = frozenset((Tier.READ, Tier.WRITE))
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


class CloneError(ProblemError):
    """The error for a repository that cannot be cloned."""


@dataclass(frozen=True, slots=True)
class Clone:
    """The content of the workspace.

    Attributes:
        commit: the id of the commit.
        left_out: the paths of files that are larger than the limit and were not fetched.
    """

    commit: str
    left_out: tuple[str, ...] = ()


async def fetch(address: "RepositoryAddress", ctx: "RunContext", *, full: bool) -> None:
    """Fetch the repository, and put its objects and references into the folder _FETCHED of the workspace of `ctx`.

    Git writes the settings of the clone into the private folder of the sandbox, where they are left. Raise CloneError.
    """
    depth = "" if full else f" --depth=1 --filter=blob:limit={BLOB_LIMIT}"
    parts = ("objects", "packed-refs", "HEAD", *(() if full else ("shallow",)))
    private = f"/tmp/{_FETCHED}"  # noqa: S108  # the folder of the sandbox, which nobody else sees
    # The address has no quotes: `repository_address` takes plain characters only.
    script = f"git clone --quiet --bare{depth} -- '{address.url}' {private} && mkdir {_FETCHED} && "
    script += f"mv {' '.join(f'{private}/{part}' for part in parts)} {_FETCHED}/"
    action = RunScript(script, ctx.cwd, _CLONE_TIME)
    await _run(action, ctx, _CLONE_TIERS, "the user named the repository on the command line", address)


def place(top: str, name: str) -> str:
    """Make the fetched objects and references a repository `name` in `top`, and return its path. Raise CloneError.

    The repository has no settings but those that are written here, and no hooks.
    """
    folder, bare = Path(top, name), Path(top, _FETCHED)
    try:
        folder.mkdir()
        (bare / "refs").mkdir()
        head = _first_id(bare)
        more = "[extensions]\n\tobjectFormat = sha256\n" if len(head) == 64 else ""
        version = 1 if more else 0
        settings = f"[core]\n\trepositoryFormatVersion = {version}\n\tbare = false\n{more}"
        with os.fdopen(os.open(bare / "config", _NEW, 0o600), "w") as file:
            file.write(settings)
        bare.rename(folder / ".git")
    except OSError as error:
        why = os_reason(error)
        raise CloneError(Problem("the clone cannot be used", why, "check the temporary folder")) from None
    return str(folder)


def _first_id(bare: Path) -> str:
    """Return an id of a commit, as the references name it; empty for an empty repository. Raise CloneError for none."""
    packed = small_file(str(bare / "packed-refs")) or ""
    found = re.search(r"^([0-9a-f]{64}|[0-9a-f]{40}) ", packed, re.MULTILINE)
    if found is None:
        raise CloneError(Problem("there is nothing to read", "the repository has no commit", "check the address"))
    return found[1]


async def check_out(ctx: "RunContext") -> Clone:
    """Put the files of HEAD into the workspace of `ctx`, which is the clone. There is no network. Raise CloneError."""

    async def git(*words: str) -> "Outcome":
        return await _run(RunArgv(("git", *words), ctx.cwd), ctx, _CHECKOUT_TIERS, "the files of the clone")

    commit = (await git("rev-parse", "--verify", "--quiet", "HEAD")).stdout.decode("ascii", "replace").strip()
    objects = await git("rev-list", "--objects", "--missing=print", "--no-object-names", "HEAD^{tree}")
    missing = {line[1:] for line in objects.stdout.decode("ascii", "replace").splitlines() if line.startswith("?")}
    left_out: tuple[str, ...] = ()
    if missing:
        listed = await git("ls-tree", "-r", "-z", "HEAD")
        left_out = _paths(listed.stdout, missing)
        _leave_out(Path(ctx.cwd), left_out)
    await git("checkout", "--quiet", "--detach", "HEAD")
    return Clone(commit, left_out)


def _paths(listed: bytes, ids: set[str]) -> tuple[str, ...]:
    """Return the paths of the entries of `git ls-tree -r -z` that have one of these ids."""
    found = []
    for row in listed.decode("utf-8", "surrogateescape").split("\0"):
        head, _, path = row.partition("\t")
        if head.rpartition(" ")[2] in ids:
            found.append(path)
    return tuple(found)


def _leave_out(clone: Path, paths: tuple[str, ...]) -> None:
    """Exclude `paths` from every checkout, with the files of Git that say so. They are new, and no link is followed."""
    lines = ["/*", *(f"!/{_escaped(path)}" for path in paths)]
    if any("\n" in path for path in paths):  # the file has one pattern on each line
        why = "a file above the limit has a name of several lines"
        raise CloneError(Problem("the repository was not checked out", why, "look at it by hand"))
    info = clone / ".git/info"
    info.mkdir(exist_ok=True)
    text = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")
    with os.fdopen(os.open(info / "sparse-checkout", _NEW, 0o600), "wb") as file:
        file.write(text)
    with os.fdopen(os.open(clone / ".git/config", _APPEND), "wb") as file:
        file.write(b"[core]\n\tsparseCheckout = true\n\tsparseCheckoutCone = false\n")


def _escaped(path: str) -> str:
    """Return `path` as a pattern of gitignore(5) that matches it alone."""
    escaped = "".join(f"\\{char}" if char in "*?[]\\" else char for char in path)
    return f"{escaped[:-1]}\\ " if escaped.endswith(" ") else escaped


async def _run(
    action: RunArgv | RunScript,
    ctx: "RunContext",
    tiers: frozenset[Tier],
    answer: str,
    address: "RepositoryAddress | None" = None,
) -> "Outcome":
    """Run Git in the sandbox, and record it. Raise CloneError if it is denied or fails.

    The address counts as the flags `--host` and `--read`, because the user typed it. INVARIANT: the only question that
    `answer` answers is one about these tiers, and about no other host. A rule of the user that asks or denies holds.
    """
    profile = ctx.profile
    noted = FactRecorder(ctx.look(), profile)
    context = EvaluationContext(
        noted.facts, ctx.rules, profile, Mode.TRUST_PROJECT, ctx.environment, source=Source.PERSON,
        typed=_typed(address), backend=ctx.sandbox.name,
    )  # fmt: skip
    assessment, verdict = context.evaluate(action)
    recorded = None
    if isinstance(verdict, Ask):
        own = set(context.typed.hosts) if context.typed is not None else set()
        if tiers.issuperset(assessment.tiers) and not assessment.asked and own.issuperset(verdict.terms.open_hosts):
            recorded = RecordedAnswer(verdict.question, True, answer)
            verdict = approve(verdict)
        else:
            verdict = context.decide(assessment, unattended=True)
    assert isinstance(verdict, Allow | Deny)  # an unattended decision asks no question
    decision = Decision(
        "repo",
        assessment,
        verdict,
        ctx.sandbox.name,
        recorded,
        typed=context.typed.words if context.typed is not None else (),
        source=Source.PERSON,
        reach=ctx.sandbox.name,
        noted=noted,
        policy=ctx.profiles.fingerprint(ctx.rules),
    )
    number = ctx.audit.decided(ctx.session, decision)
    if isinstance(verdict, Deny):
        raise CloneError(verdict.problem)
    outcome = await ctx.sandbox.run(verdict.permit)
    ctx.audit.finished(number, outcome)
    if outcome.problem is not None:
        raise CloneError(outcome.problem)
    if outcome.status or outcome.ended_by or outcome.truncated:
        raise CloneError(_failure(action, outcome))
    return outcome


def _typed(address: "RepositoryAddress | None") -> FlagRights | None:
    """Return the rights that the address gives to the clone: its host, or its folder on this machine."""
    if address is None:
        return None
    if address.folder:
        return FlagRights(read=(address.folder,))
    rule = host_rule(f"{address.host} private" if address.local else address.host)
    if isinstance(rule, Problem):
        raise CloneError(rule)
    return FlagRights(hosts=(str(rule),))


def _failure(action: RunArgv | RunScript, outcome: "Outcome") -> Problem:
    refused = [each for each in outcome.connections if not each.allowed]
    lines = outcome.stderr.decode("utf-8", "replace").strip().splitlines()
    if outcome.ended_by:
        why = f"it was ended by the limit `{outcome.ended_by}`"
    elif refused:
        named = one_line(refused[-1].host, 200)
        why = f"the connection to `{named}` was refused: {one_line(refused[-1].why, 300)}"
    else:
        why = one_line(lines[-1], 500) if lines else f"Git ended with {outcome.status}"
    what = "the repository cannot be cloned" if isinstance(action, RunScript) else f"`git {action.argv[1]}` failed"
    return Problem(what, why, "check the address, and whether the repository is public")


def words_left_out(clone: Clone) -> str:
    """Return the sentence about files that were not fetched; empty if there are none."""
    if not clone.left_out:
        return ""
    shown = ", ".join(f"`{one_line(path, 100)}`" for path in clone.left_out[:5])
    more = f" and {len(clone.left_out) - 5} more" if len(clone.left_out) > 5 else ""
    return f"Files larger than {BLOB_LIMIT} are not here: {shown}{more}."
