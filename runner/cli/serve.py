"""`agent serve`: the resident process of the user."""

import os
import sys
from typing import Annotated

import typer

from runner.cli.gate import JSON, option_before, switch
from runner.problems import Exit, usage
from runner.stderr import say_notice
from runner.text.json_line import json_line

serve_app = typer.Typer(no_args_is_help=False, invoke_without_command=True, rich_markup_mode="markdown")


@serve_app.callback()
def serve(
    context: typer.Context,
    start: Annotated[bool, switch("--start", help="Start it apart from this terminal, and return.")] = False,
    status: Annotated[bool, switch("--status", help="Show whether it runs, and what it does.")] = False,
    stop: Annotated[bool, switch("--stop", help="End it with everything that it started.")] = False,
    restart: Annotated[bool, switch("--restart", help="End it, and start it apart from this terminal.")] = False,
    json: JSON = False,
) -> int:
    """Run the resident process: short commands answer at once, and sessions outlive their terminal.

    It has loaded the program and keeps workers, which run `agent exec`, `agent why`, `agent policy judge` and the hooks
    of `agent guard` without the time to start. Verdicts, rights, records and exit codes are the same. A command that
    finds no resident process runs as usual.

    Without an option it runs in this terminal until Ctrl-C. It ends after half an hour without work (`serve.idle`).
    `serve.start = true` in your settings starts it after the first command that it could have run.

    **Examples**

        agent serve --start
        agent serve --status
        agent serve --stop
    """
    if context.invoked_subcommand is not None:
        if json:
            raise option_before(f"serve {context.invoked_subcommand}")
        return Exit.DONE
    given = [
        name for name, on in (("--start", start), ("--status", status), ("--stop", stop), ("--restart", restart)) if on
    ]
    if len(given) > 1:
        raise usage(f"`{given[0]}` and `{given[1]}` exclude each other", "each is an action of its own", "give one")
    if json and not status:
        raise usage("`--json` needs `--status`", "the other actions print nothing to read", "add `--status`")
    if sys.platform != "linux":
        why = "it takes over the state of a process from files of Linux"
        raise usage("there is no resident process on this system", why, "every command works without it")
    if status:
        return _status(json=json)
    if stop or restart:
        return _stop(restart=restart)
    if start:
        return _start()
    return _run()


def _run() -> int:
    from runner.cli.main import main
    from runner.frontends.resident.start import run

    return run(main)


def _start() -> int:
    from runner.frontends.resident.start import ready_folder
    from runner.resident.control import ask, start_detached

    ready_folder(os.environ)
    if ask(os.environ, {"op": "status"}) is not None:
        say_notice("the resident process runs already")
        return Exit.DONE
    start_detached(os.environ)
    say_notice("the resident process is ready")
    return Exit.DONE


def _stop(*, restart: bool) -> int:
    from runner.resident.control import end_resident

    ended = end_resident(os.environ)
    if restart:
        return _start()
    say_notice("the resident process has ended" if ended else "there is no resident process")
    return Exit.DONE


def _status(*, json: bool) -> int:
    from runner.resident.control import ask

    found = ask(os.environ, {"op": "status"})
    if json:
        print(json_line({"running": found is not None, **(found or {})}))
        return Exit.DONE if found is not None else Exit.FAILED
    if found is None:
        print("there is no resident process; `agent serve --start` starts one")
        return Exit.FAILED
    print(f"process   {found['pid']}, since {found['since']}")
    print(f"commands  {found['served']} served, {found['working']} running, {found['waiting']} workers wait")
    if found["stale"]:
        print("state     the files of this program have changed, so commands run cold: `agent serve --restart`")
    rows = found["processes"] if isinstance(found["processes"], list) else []
    for each in rows:
        print(f"{each['kind']:<9} {each['pid']}, since {each['since']}")
    return Exit.DONE
