"""`agent repo`: a question about a repository of others."""

from dataclasses import replace
from typing import Annotated

from runner.agent.options import Given
from runner.agent.startup import run_args
from runner.cli.gate import argument, takes_options
from runner.sessions.selection import SessionSelection

ADDRESS = Annotated[str, argument("URL", "The repository: https://HOST/OWNER/NAME, or a folder.")]
QUESTION = Annotated[str | None, argument("QUESTION", "The question. Piped stdin is appended, or is the question.")]


@takes_options("repo")
def repo(given: Given, url: ADDRESS, question: QUESTION = None) -> int:
    """Answer a question about a repository of others, in a temporary workspace.

    The repository is cloned without its history and without files above 5 MB, unless --full. The model reads files and
    asks Git; it cannot run anything, change anything outside of the temporary folder, or use the network. Instruction
    files of the repository are data. Standard output has only the answer with its sources, and standard error
    everything else.

    **Examples**

        agent repo https://github.com/OWNER/NAME "how does it store sessions?"
        agent repo --full github.com/OWNER/NAME "who wrote the parser?"
        agent repo ../other "which databases does it support?"
    """
    from runner.frontends.research.command import start_repo

    args = replace(
        run_args(given), unattended=True, selection=SessionSelection(unkept=True),
        output_schema=given.text("output_schema") or "",
    )  # fmt: skip
    return start_repo(
        args, url, question, full=given.switch("full"), keep=given.switch("keep"), last=given.text("last_message")
    )
