"""What `agent exec --help` and `agent why --help` say. The words themselves are parsed by runner/gate_args.py."""

from typing import Annotated, NoReturn

import typer

from policy.tier import Mode
from policy.verdict import limit_names
from runner.gate_args import FILE_TOOLS
from runner.problems import usage

_MODES = ", ".join(mode.value for mode in Mode)
FLAG = " "  # the place where typer would print `<bool>`, which says nothing to a reader


def _limits(incomplete: str) -> list[str]:
    return [f"{name}=" for name in limit_names() if name.startswith(incomplete)]


def _backends(incomplete: str) -> list[str]:
    from sandbox.choose import BACKENDS

    return [name for name in BACKENDS if name.casefold().startswith(incomplete.casefold())]


def _levels(incomplete: str) -> list[str]:
    return [name for name in ("full", "partial") if name.startswith(incomplete)]


SCRIPT = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SCRIPT | -- ARGV...", help="One bash script in quotes, or after -- the words of one program."
    ),
]
MODE = Annotated[Mode | None, typer.Option(metavar="MODE", help=f"How much is allowed without a question: {_MODES}.")]
UNATTENDED = Annotated[
    bool, typer.Option("--unattended", metavar=FLAG, help="Nobody is there: every question becomes a denial.")
]
CWD = Annotated[str | None, typer.Option(metavar="FOLDER", help="Work there instead of here.")]
CONFIG = Annotated[str | None, typer.Option(metavar="FILE", help="One more configuration file; it may widen.")]
JSON = Annotated[bool, typer.Option("--json", metavar=FLAG, help="Machine-readable output.")]
LIMIT = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help=f"What one command may use up: {', '.join(limit_names())}. Repeatable; memory=2G, cpu=30s.",
        autocompletion=_limits,
    ),
]
TIMEOUT = Annotated[str | None, typer.Option(metavar="TIME", help="Wall time: 30s, 5m. The same as --limit wall=TIME.")]
TOOL = Annotated[str | None, typer.Option(metavar="NAME", help=f"A file tool of the model: {', '.join(FILE_TOOLS)}.")]
PATH = Annotated[str | None, typer.Option(metavar="PATH", help="With --tool: what it works on.")]
READ = Annotated[
    list[str] | None,
    typer.Option(metavar="PATH", help="Let this one action read PATH as well. Repeatable; never a secret."),
]
WRITE = Annotated[
    list[str] | None,
    typer.Option(metavar="PATH", help="Let it change PATH, which exists, and what is in it. Repeatable."),
]
HOST = Annotated[
    list[str] | None,
    typer.Option(
        metavar="HOST",
        help="Let it talk to HOST: example.org, *.example.org, example.org:8443, 'localhost:3000 private'. Repeatable.",
    ),
]
ENV = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="Set a variable for it, unless that would undo a guard. Repeatable."),
]
BACKEND = Annotated[
    str | None,
    typer.Option(metavar="T1|T2|T3|container", help="Use this sandbox and no other.", autocompletion=_backends),
]
REQUIRE = Annotated[
    str | None,
    typer.Option(
        metavar="full|partial",
        help="The least a sandbox must enforce, whatever the configuration says; else exit 4.",
        autocompletion=_levels,
    ),
]
ACCEPT = Annotated[
    bool,
    typer.Option(
        "--accept-partial", metavar=FLAG, help="Run even when the sandbox can enforce only a part (`agent doctor`)."
    ),
]
UNIX = Annotated[
    bool,
    typer.Option(
        "--unix",
        metavar=FLAG,
        help="Let it make AF_UNIX sockets; a listener whose socket lies in the workspace can then be reached.",
    ),
]


def exec_help(
    script: SCRIPT = None,
    mode: MODE = None,
    unattended: UNATTENDED = False,
    cwd: CWD = None,
    config: CONFIG = None,
    json: JSON = False,
    limit: LIMIT = None,
    timeout: TIMEOUT = None,
    read: READ = None,
    write: WRITE = None,
    host: HOST = None,
    env: ENV = None,
    backend: BACKEND = None,
    accept_partial: ACCEPT = False,
    require: REQUIRE = None,
    unix: UNIX = False,
) -> NoReturn:
    """Run one command behind the gate, without a model.

    It is parsed, judged, recorded, and run in a sandbox that grants exactly what was allowed. Its output and exit
    status come through; what the sandbox stopped is explained on stderr. Input is passed on from a pipe or a file.
    `--read`, `--write`, `--host` and `--env` add rights to this one action: your word counts as a yes for exactly
    these, also with `--unattended`, and opens no secret and nothing that a rule denies.

    **Examples**

        agent exec 'git status && rg -n TODO src | head'
        agent exec --mode trust-project 'make test'
        agent exec --limit memory=2G --timeout 5m -- python3 -m pytest -q
        agent exec --host example.org -- curl -s https://example.org/
        agent exec --read ~/data --write ~/out 'cp ~/data/a.csv ~/out/'
        agent exec --unattended --json 'npm test' < /dev/null
    """
    raise _misplaced("exec")


def why_help(
    script: SCRIPT = None,
    mode: MODE = None,
    unattended: UNATTENDED = False,
    cwd: CWD = None,
    config: CONFIG = None,
    json: JSON = False,
    limit: LIMIT = None,
    timeout: TIMEOUT = None,
    read: READ = None,
    write: WRITE = None,
    host: HOST = None,
    env: ENV = None,
    tool: TOOL = None,
    path: PATH = None,
    unix: UNIX = False,
) -> NoReturn:
    """Explain what the gate would say, and run nothing.

    Shows the parse, the effects, every reason with the words it points at and the rule's file and line, the tier, the
    cell of the matrix, the verdict, the exact rights that a permit would hold, and what would make it allowed: a mode,
    a yes, or the narrowest rule for your configuration.

    **Examples**

        agent why 'curl https://example.com/x.sh | sh'
        agent why --mode trust-project -- python3 setup.py install
        agent why --json 'cat ~/.ssh/id_rsa'
        agent why --tool write --path notes.txt
    """
    raise _misplaced("why")


def show_help(
    script: SCRIPT = None,
    mode: MODE = None,
    unattended: UNATTENDED = False,
    cwd: CWD = None,
    config: CONFIG = None,
    json: JSON = False,
    limit: LIMIT = None,
    timeout: TIMEOUT = None,
    read: READ = None,
    write: WRITE = None,
    host: HOST = None,
    env: ENV = None,
    unix: UNIX = False,
) -> NoReturn:
    """Show the exact rights that a permit for SCRIPT holds, and what the sandbox mounts for them. Runs nothing.

    Without SCRIPT: the two standard sets, of what only reads and of what may change the workspace. Exit 3 when the
    script gets no permit at all.

    **Examples**

        agent sandbox show
        agent sandbox show 'git status'
        agent sandbox show --host example.org -- curl https://example.org
        agent sandbox show --json 'make test'
    """
    raise _misplaced("sandbox show")


def _misplaced(command: str) -> Exception:
    """Reached only when something stands before the command: `main` takes `exec` and `why` before typer is loaded."""
    return usage(
        "an option stands before the command",
        f"`{command}` takes its options after its name",
        f"write `agent {command} [options] ...`",
    )
