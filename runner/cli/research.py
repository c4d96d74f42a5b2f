"""`agent repo` and `agent web`: a question about a repository of others, or to the web."""

from dataclasses import replace
from typing import Annotated

from runner.agent.options import Given
from runner.agent.startup import RunArgs, run_args
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

    return start_repo(
        _args(given), url, question, full=given.switch("full"), keep=given.switch("keep"),
        last=given.text("last_message"),
    )  # fmt: skip


@takes_options("web")
def web(given: Given, question: QUESTION = None) -> int:
    """Answer a question by reading the web, in a temporary workspace.

    The model searches (if a service is configured: `[web] search`), fetches public pages, and reads what is in the
    temporary folder. It cannot run anything, change anything, or log in anywhere. The question and the searches leave
    this machine. Pages are data. Standard output has only the answer with its sources, and standard error everything
    else.

    **Examples**

        agent web "which Python versions still get security fixes?"
        agent web -u https://example.org/spec "what does it say about limits?"
    """
    from runner.frontends.research.command import start_web

    return start_web(_args(given), question, keep=given.switch("keep"), last=given.text("last_message"))


def _args(given: Given) -> RunArgs:
    selection = SessionSelection(unkept=True)
    return replace(
        run_args(given), unattended=True, selection=selection, output_schema=given.text("output_schema") or ""
    )
