"""`agent config` and `agent init`: show, check and change the settings, and write a first configuration file."""

from collections.abc import Iterable
from typing import Annotated

import typer

from runner.agent.startup import RunArgs
from runner.cli.gate import CONFIG, CWD, JSON, LIMIT, MODE, UNATTENDED, argument, completing, switch, valued
from runner.engine.run_limits import BudgetFlags

HELP = """Look at the configuration, check it, and change it.

Layers, the later wins: packaged, `/etc/ringfence/config.toml`, your own, the project's `.ringfence/config.toml` and
`config.local.toml` (these may only tighten until you trust them), `--config FILE`, environment, options.

**Examples**

    agent config show --effective
    agent config check
    agent config set mode accept-edits
    agent init
"""

config_app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode="markdown")


@completing
def _keys() -> Iterable[str]:
    from runner.config.schema import KEYS, LISTS

    return (*(key.name for key in KEYS), *(each.name for each in LISTS))


KEY = Annotated[str, argument("KEY", "Such as `limits.wall`.", complete=_keys)]
SOME_KEY = Annotated[str | None, argument("[KEY]", "A key, or a table of them.", complete=_keys)]
PROJECT = Annotated[bool, switch("--project", help="In .ringfence/config.toml, for all who work here.")]
LOCAL = Annotated[bool, switch("--local", help="In .ringfence/config.local.toml: this project, only you.")]


@config_app.command("show")
def show(
    key: SOME_KEY = None,
    effective: Annotated[
        bool, switch("--effective", help="With the layer and the line it comes from, and what it overrides.")
    ] = False,
    json: JSON = False,
    mode: MODE = None,
    model: Annotated[str | None, valued("--model", "MODEL", "As with `agent run`.")] = None,
    max_turns: Annotated[int | None, valued("--max-turns", "N", "As with `agent run`.", least=1)] = None,
    limit: LIMIT = None,
    config: CONFIG = None,
    unattended: UNATTENDED = False,
    cwd: CWD = None,
) -> int:
    """Print what is in force here: every key, or one, or those of a table.

    One key alone prints its bare value; exit 1 when nobody says anything about it. With options of a session: what
    would be in force with them.

    **Examples**

        agent config show
        agent config show --effective
        agent config show limits --effective
        agent config show mode
        agent config show --effective --mode plan --limit wall=30s
        agent config show --json | jq '.values["limits.wall"].from'
    """
    from runner.cli.config_actions import run_show

    args = RunArgs(
        mode=mode,
        model=model,
        budget=BudgetFlags(max_turns),
        limits=tuple(limit or ()),
        config=config,
        unattended=unattended,
        cwd=cwd,
    )
    return run_show(key, args, effective=effective, as_json=json)


@config_app.command("check")
def check(
    file: Annotated[str | None, argument("[FILE]", "One file by itself, before it is in force.")] = None,
    json: JSON = False,
    config: CONFIG = None,
    cwd: CWD = None,
) -> int:
    """Say everything that is wrong with the configuration, in one go: each line a place, a reason and what to do.

    Without FILE: every layer that is in force here, the environment too. What a repository's file asks for and does not
    get is said, and is no fault. For what rules say about each other: `agent policy lint`.

    Exit 0 when all can be used, 2 when something cannot.

    **Examples**

        agent config check
        agent config check new.toml
        agent config check --json | jq '.faults[].text'
    """
    from runner.cli.config_actions import run_check

    return run_check(file, as_json=json, config=config, cwd=cwd)


@config_app.command("path")
def path(json: JSON = False, config: CONFIG = None, cwd: CWD = None) -> int:
    """Print where the files of each layer lie, there or not, lowest layer first.

    Later ones win; environment and options come after all of them.

    **Examples**

        agent config path
        $EDITOR "$(agent config path --json | jq -r .user.path)"
    """
    from runner.cli.config_actions import run_path

    return run_path(as_json=json, config=config, cwd=cwd)


@config_app.command("schema")
def schema() -> int:
    """Print the JSON Schema of a configuration file, for editors that complete TOML (Taplo, Even Better TOML).

    `agent init` writes it beside the file, whose first line names it.

    **Examples**

        agent config schema > config.schema.json
    """
    from runner.config.json_schema import shipped_schema

    print(shipped_schema(), end="")
    return 0


@config_app.command("set")
def set_key(
    key: KEY,
    values: Annotated[list[str], argument("VALUE...", "A text, number, size, or TOML for a list.")],
    project: PROJECT = False,
    local: LOCAL = False,
    cwd: CWD = None,
) -> int:
    """Set one key in your own configuration; everything else in the file stays as it is, comments too.

    A later layer may still say otherwise; then that is said.

    **Examples**

        agent config set mode accept-edits
        agent config set limits.memory 2GiB --local
        agent config set secret.names '*.vault' '*.kdbx'
        agent config set deny.commands '[["terraform", "destroy", "*"]]' --project
    """
    from runner.cli.config_actions import run_set

    return run_set(key, values, project=project, local=local, cwd=cwd)


@config_app.command("unset")
def unset_key(key: KEY, project: PROJECT = False, local: LOCAL = False, cwd: CWD = None) -> int:
    """Take one key out of your own configuration.

    What a lower layer says holds again, or the default. Everything else in the file stays as it is.

    **Examples**

        agent config unset mode
        agent config unset limits.memory --local
    """
    from runner.cli.config_actions import run_unset

    return run_unset(key, project=project, local=local, cwd=cwd)


@config_app.command("migrate")
def migrate(
    file: Annotated[str | None, argument("[FILE]", "One file; otherwise yours and those of this project.")] = None,
    dry: Annotated[bool, switch("--dry-run", help="Print what would be written.")] = False,
    cwd: CWD = None,
) -> int:
    """Rewrite files of an older format in the one of today.

    Comments stay. Older files are read either way.

    **Examples**

        agent config migrate --dry-run
        agent config migrate
    """
    from runner.cli.config_actions import run_migrate

    return run_migrate(file, dry=dry, cwd=cwd)


def init(
    user: Annotated[bool, switch("--user", help="Your own file, for every project, not this project's.")] = False,
    force: Annotated[bool, switch("--force", help="Replace a file that is there.")] = False,
    cwd: CWD = None,
) -> int:
    """Write a commented configuration to begin with: `.ringfence/config.toml` of this project, or your own.

    Nothing in it is in force until you take a `#` away. Beside it come the JSON Schema for editors, and a `.gitignore`
    for `config.local.toml`, which is for you alone.

    **Examples**

        agent init
        agent init --user
    """
    from runner.cli.config_actions import run_init

    return run_init(user=user, force=force, cwd=cwd)
