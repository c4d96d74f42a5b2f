"""`agent config` and `agent init`: show, check and change the settings, and write a first configuration file."""

from collections.abc import Iterable
from typing import Annotated

import typer

from runner.agent.startup import RunArgs
from runner.cli.gate import (
    CONFIG,
    CWD,
    JSON,
    LIMIT,
    MODE,
    UNATTENDED,
    argument,
    completing,
    state_alone,
    switch,
    valued,
)
from runner.engine.run_limits import RunBudget

HELP = """Show, check and change the configuration.

The configuration has layers; later ones override earlier ones: the packaged values, `/etc/ringfence/config.toml`, your
own file, `.ringfence/config.toml` and `config.local.toml` of the project (which can only tighten until you trust
them), `--config FILE`, environment variables, options.

**Examples**

    agent config show --effective
    agent config get mode
    agent config set mode accept-edits
    agent config check
    agent init
"""

config_app = typer.Typer(help=HELP, invoke_without_command=True, rich_markup_mode="markdown")


@completing
def _keys() -> Iterable[str]:
    from runner.config.schema import KEYS, LISTS

    return (*(key.name for key in KEYS), *(each.name for each in LISTS))


KEY = Annotated[str, argument("KEY", "The name of a key, such as `limits.wall`.", complete=_keys)]
SOME_KEY = Annotated[str | None, argument("KEY", "A key, or a table of keys.", complete=_keys)]
PROJECT = Annotated[bool, switch("--project", help="Change .ringfence/config.toml: all users of this project.")]
LOCAL = Annotated[bool, switch("--local", help="Change .ringfence/config.local.toml: only you, in this project.")]


@config_app.command("show")
def show(
    key: SOME_KEY = None,
    effective: Annotated[
        bool, switch("--effective", help="Show the layer and line of each value, and the values that it overrides.")
    ] = False,
    json: JSON = False,
    mode: MODE = None,
    model: Annotated[str | None, valued("--model", "MODEL", "The option of `agent run`.")] = None,
    max_turns: Annotated[int | None, valued("--max-turns", "N", "The option of `agent run`.", least=1)] = None,
    limit: LIMIT = None,
    config: CONFIG = None,
    unattended: UNATTENDED = False,
    cwd: CWD = None,
) -> int:
    """Print the configuration in effect here: all keys, one key, or the keys of a table.

    For one key, only its value is printed; exit 1 if it is not set. With options of a session, the configuration is
    printed as if they were given to `agent run`.

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
        budget=RunBudget(max_turns),
        limits=tuple(limit or ()),
        config=config,
        unattended=unattended,
        cwd=cwd,
    )
    return run_show(key, args, effective=effective, as_json=json)


state_alone(config_app, "config", lambda json: show(json=json))


@config_app.command("get")
def get_key(key: KEY, json: JSON = False, config: CONFIG = None, cwd: CWD = None) -> int:
    """Print the value of one key in effect here. Exit 1 if it is not set.

    For the layers that set it: `agent config show KEY --effective`.

    **Examples**

        agent config get mode
        agent config get limits.wall --json | jq -r .value
    """
    from runner.cli.config_actions import run_get

    return run_get(key, as_json=json, config=config, cwd=cwd)


@config_app.command("check")
def check(
    file: Annotated[str | None, argument("FILE", "Check only this file, for example before you install it.")] = None,
    json: JSON = False,
    config: CONFIG = None,
    cwd: CWD = None,
) -> int:
    """Print all mistakes in the configuration. Each line has a place, a reason and a fix.

    Without FILE: all layers in effect here, including the environment. Entries of a repository that are ignored because
    you do not trust them are printed, but are not mistakes. For contradictions between rules: `agent policy lint`.

    Exit 0 if everything can be used, 2 if something cannot.

    **Examples**

        agent config check
        agent config check new.toml
        agent config check --json | jq '.faults[].text'
    """
    from runner.cli.config_actions import run_check

    return run_check(file, as_json=json, config=config, cwd=cwd)


@config_app.command("path")
def path(json: JSON = False, config: CONFIG = None, cwd: CWD = None) -> int:
    """Print the paths of the configuration files, even of files that do not exist.

    Later files override earlier ones. Environment variables and options override all files.

    **Examples**

        agent config path
        $EDITOR "$(agent config path --json | jq -r .user.path)"
    """
    from runner.cli.config_actions import run_path

    return run_path(as_json=json, config=config, cwd=cwd)


@config_app.command("schema")
def schema() -> int:
    """Print the JSON Schema of a configuration file, for editors that complete TOML (Taplo, Even Better TOML).

    `agent init` writes the schema beside the configuration file, which names it in its first line.

    **Examples**

        agent config schema > config.schema.json
    """
    from runner.config.json_schema import shipped_schema

    print(shipped_schema(), end="")
    return 0


@config_app.command("set")
def set_key(
    key: KEY,
    values: Annotated[list[str], argument("VALUE", "A text, a number, a size, or a list as TOML.")],
    project: PROJECT = False,
    local: LOCAL = False,
    cwd: CWD = None,
) -> int:
    """Set one key in your own configuration. All other lines and comments of the file are kept.

    If a later layer overrides the key, the command says so.

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
    """Remove one key from your own configuration.

    The value of an earlier layer, or the default, is used again. All other lines of the file are kept.

    **Examples**

        agent config unset mode
        agent config unset limits.memory --local
    """
    from runner.cli.config_actions import run_unset

    return run_unset(key, project=project, local=local, cwd=cwd)


@config_app.command("migrate")
def migrate(
    file: Annotated[str | None, argument("FILE", "The file (default: yours and those of this project).")] = None,
    dry: Annotated[bool, switch("--dry-run", help="Only print the new content.")] = False,
    cwd: CWD = None,
) -> int:
    """Convert configuration files from an older format to the current one.

    Comments are kept. Files in an older format can also be used without conversion.

    **Examples**

        agent config migrate --dry-run
        agent config migrate
    """
    from runner.cli.config_actions import run_migrate

    return run_migrate(file, dry=dry, cwd=cwd)


def init(
    user: Annotated[bool, switch("--user", help="Write your own file, which is for all projects.")] = False,
    force: Annotated[bool, switch("--force", help="Replace an existing file.")] = False,
    cwd: CWD = None,
) -> int:
    """Write a configuration file with all keys as comments: `.ringfence/config.toml` of this project, or your own.

    To use a key, remove its `#`. The command also writes the JSON Schema for editors, and a `.gitignore` for
    `config.local.toml`, which contains your own settings for the project.

    **Examples**

        agent init
        agent init --user
    """
    from runner.cli.config_actions import run_init

    return run_init(user=user, force=force, cwd=cwd)
