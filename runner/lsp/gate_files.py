"""Files of the workspace that a language server names, read through the gate as the model itself would read them."""

import time
from hashlib import sha256

from policy.model.action import ReadFile
from policy.model.frozen import dataclass
from policy.model.secret_paths import inside
from policy.model.tier import Tier
from policy.model.verdict import Allow, Problem
from runner.audit.records import Decision, Ran
from runner.engine.judge import evaluate_action
from runner.engine.run_context import RunContext
from sandbox.backend import Outcome

MOST_TEXT = 2 << 20  # characters of a file that a language server is told
_PAGE = 100_000  # lines of one read


@dataclass(frozen=True, slots=True)
class FileText:
    """The text of one file.

    Attributes:
        text: The text with LF for CR LF and without a byte order mark, as the `edit` tool counts.
        digest: The SHA-256 of the content, in hexadecimal digits.
        whole: True if the text is the whole content, so that it can be edited by positions.
    """

    text: str
    digest: str
    whole: bool

    @property
    def lines(self) -> list[str]:
        """Return the lines without their ends."""
        return self.text.split("\n")


def may_read(path: str, ctx: RunContext) -> tuple[bool, bool]:
    """Return whether the session may read `path` without a question, and whether it is a file of the workspace.

    THREAT T261: a server may name any path. It counts only if the verdict on reading it is Allow with tier read, after
    every symbolic link is followed.
    """
    evaluation = evaluate_action(ReadFile(path), ctx)
    facts = evaluation.recalled.context.facts
    allowed = isinstance(evaluation.verdict, Allow) and evaluation.assessment.tiers == (Tier.READ,)
    own = inside(path, facts.workspace) and inside(facts.look(path).real, facts.workspace)
    return allowed, own


async def read_text(path: str, ctx: RunContext) -> FileText | Problem:
    """Return the text of a file of the workspace, read in the sandbox. The verdict and the end are recorded, and what
    the model is told about the file has the label of the file.
    """
    found = await _whole_text(path, ctx)
    if ctx.flow is not None and isinstance(found, FileText):
        ctx.flow.saw(ReadFile(path), found.text)
    return found


async def _whole_text(path: str, ctx: RunContext) -> FileText | Problem:
    what = f"cannot read `{path}`"
    pieces: list[str] = []
    offset, room, whole = 1, MOST_TEXT, True
    while True:
        outcome = await _read(ReadFile(path, offset, _PAGE), ctx)
        if isinstance(outcome, Problem):
            return outcome
        data, lines = outcome.data, outcome.data.get("lines", [])
        if data.get("type") == "empty":
            return FileText("", str(data.get("sha256") or ""), whole=True)
        if data.get("type") != "text" or not isinstance(lines, list):
            return Problem(what, "it is not a text", "use another tool")
        whole = whole and not data.get("cut") and not data.get("replaced") and data.get("total") is not None
        pieces += map(str, lines)
        room -= sum(map(len, pieces[len(pieces) - len(lines) :])) + len(lines)
        offset += len(lines)
        known = data.get("known")
        if room < 0:
            return Problem(what, f"it has more than {MOST_TEXT >> 20} MiB", "use `grep`")
        if not lines or not isinstance(known, int) or offset > known:
            break
    text, digest = "\n".join(pieces), str(data.get("sha256") or "")
    # The answer does not say whether the last line ends: the digest does.
    ends = "\r\n" if data.get("ends") == "CRLF" else "\n"
    mark = "\ufeff" if data.get("bom") else ""
    for end in ("\n", ""):
        content = (mark + (text + end).replace("\n", ends)).encode()
        if sha256(content).hexdigest() == digest:
            return FileText(text + end, digest, whole and not mark and "\r" not in text)
    return FileText(text + "\n", digest, whole=False)


async def _read(action: ReadFile, ctx: RunContext) -> Outcome | Problem:
    evaluation = evaluate_action(action, ctx)
    verdict = evaluation.verdict
    if not isinstance(verdict, Allow) or evaluation.assessment.tiers != (Tier.READ,):
        why = "this session may not read it without a question"
        return Problem(f"cannot read `{action.path}`", why, "read it with the `read` tool first")
    decision = Decision(
        "lsp",
        evaluation.assessment,
        verdict,
        ctx.sandbox.name,
        reach=ctx.sandbox.name,
        noted=evaluation.noted,
        model=ctx.live.named,
        policy=evaluation.policy,
        source=ctx.source,
        agent=ctx.agent,
        parent=ctx.parent,
        client=ctx.client,
        limits=ctx.limited(),
    )
    number = ctx.audit.decided(ctx.session, decision)
    began, outcome = time.time(), Outcome(130, ended_by="failure")
    try:
        outcome = await ctx.sandbox.run(verdict.permit)
    finally:
        ctx.audit.finished(number, outcome, Ran(began), agent=ctx.agent, parent=ctx.parent)
    return outcome.problem or outcome
