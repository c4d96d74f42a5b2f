"""`agent serve`: the resident process of the user."""

import os
import sys
from typing import Annotated

import typer

from runner.cli.gate import JSON, option_before, switch, valued
from runner.cli.remote import token_app
from runner.frontends.remote.argv import WebArgs
from runner.frontends.remote.status import RemoteStatus, remote_folder
from runner.problems import Exit, usage
from runner.stderr import say_notice
from runner.text.json_line import json_line

serve_app = typer.Typer(no_args_is_help=False, invoke_without_command=True, rich_markup_mode="markdown")
serve_app.add_typer(token_app, name="token")


@serve_app.callback()
def serve(
    context: typer.Context,
    start: Annotated[bool, switch("--start", help="Start it apart from this terminal, and return.")] = False,
    status: Annotated[bool, switch("--status", help="Show whether it runs, and what it does.")] = False,
    stop: Annotated[bool, switch("--stop", help="End it with everything that it started.")] = False,
    restart: Annotated[bool, switch("--restart", help="End it, and start it apart from this terminal.")] = False,
    listen: Annotated[
        str | None,
        valued("--listen", "ADDR", "Serve a page with the sessions, such as 127.0.0.1:8443; it needs a token."),
    ] = None,
    tls_cert: Annotated[
        str | None, valued("--tls-cert", "FILE", "With --listen: your own certificate (default: a self-signed one).")
    ] = None,
    tls_key: Annotated[str | None, valued("--tls-key", "FILE", "With --listen: the key of that certificate.")] = None,
    no_tls: Annotated[bool, switch("--no-tls", help="With --listen: plain HTTP, only on a loopback address.")] = False,
    name: Annotated[
        list[str] | None, valued("--name", "HOST", "With --listen: a further host name of the page; repeatable.")
    ] = None,
    install: Annotated[bool, switch("--install", help="Let systemd start it at each login.")] = False,
    uninstall: Annotated[bool, switch("--uninstall", help="End that, and remove the unit of systemd.")] = False,
    yes: Annotated[bool, switch("--yes", help="Replace or remove another unit without a question.")] = False,
    stay: Annotated[bool, switch("--stay", help="Do not end without work.")] = False,
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
        agent serve --start --listen 127.0.0.1:8443
        agent serve token add phone --scope answer --link
        agent serve --stop
        agent serve --install                        a user unit of systemd
    """
    if context.invoked_subcommand is not None:
        if json:
            raise option_before(f"serve {context.invoked_subcommand}")
        return Exit.DONE
    actions = {"--start": start, "--status": status, "--stop": stop, "--restart": restart}
    actions |= {"--install": install, "--uninstall": uninstall}
    given = [name for name, on in actions.items() if on]
    if len(given) > 1:
        raise usage(f"`{given[0]}` and `{given[1]}` exclude each other", "each is an action of its own", "give one")
    if json and not status:
        raise usage("`--json` needs `--status`", "the other actions print nothing to read", "add `--status`")
    if sys.platform != "linux":
        why = "it takes over the state of a process from files of Linux"
        raise usage("there is no resident process on this system", why, "every command works without it")
    if yes and not (install or uninstall):
        raise usage("`--yes` needs `--install` or `--uninstall`", "the other actions ask nothing", "leave it out")
    if stay and given:
        why = "it is for the process of this terminal"
        raise usage(f"`--stay` and `{given[0]}` exclude each other", why, "leave one of them out")
    web = _web(listen, tls_cert, tls_key, no_tls, name)
    if web is not None and (status or stop or install or uninstall):
        what = f"`{given[0]}` and `--listen` exclude each other"
        raise usage(what, "an address is for a start", "leave one of them out")
    if install or uninstall:
        return _unit(install=install, yes=yes)
    if status:
        return _status(json=json)
    if stop or restart:
        return _stop(restart=restart, web=web)
    if start:
        return _start(web)
    return _run(web, stay=stay)


def _web(
    listen: str | None, tls_cert: str | None, tls_key: str | None, no_tls: bool, names: list[str] | None
) -> WebArgs | None:
    """Return the options of remote access, or None without any. Raise a usage error."""
    if listen is None:
        if tls_cert is not None or tls_key is not None or no_tls or names:
            raise usage("the options of a page need `--listen`", "nothing listens without an address", "add `--listen`")
        return None
    return WebArgs(listen, tls_cert, tls_key, not no_tls, tuple(names or ()))


def _run(web: WebArgs | None, *, stay: bool) -> int:
    from runner.cli.main import main

    if web is not None:
        from runner.cli.listen import run_listening

        return run_listening(web, main, stay=stay)
    from runner.frontends.resident.start import run

    return run(main, stay=stay)


def _unit(*, install: bool, yes: bool) -> int:
    from runner.frontends.resident.unit import install_unit, uninstall_unit

    def confirm(question: str) -> bool:
        if yes or not (os.isatty(0) and os.isatty(2)):
            return yes
        from runner.config.trust.prompt import typed_line

        return typed_line(f"{question} [yes / no] ").strip().lower() in ("y", "yes")

    return (install_unit if install else uninstall_unit)(os.environ, confirm)


def _start(web: WebArgs | None) -> int:
    from runner.cli.listen import check_listening, start_listening
    from runner.frontends.resident.start import ready_folder
    from runner.resident.control import ask, start_detached

    ready_folder(os.environ)
    if web is not None and (code := check_listening(web)) != Exit.DONE:
        return code
    if ask(os.environ, {"op": "status"}) is not None:
        say_notice("the resident process runs already")
    else:
        start_detached(os.environ)
        say_notice("the resident process is ready")
    if web is not None:
        start_listening(web)
        say_notice("remote access is ready")
    return Exit.DONE


def _stop(*, restart: bool, web: WebArgs | None) -> int:
    from runner.resident.control import end_resident

    ended = end_resident(os.environ)
    if restart:
        return _start(web)
    say_notice("the resident process has ended" if ended else "there is no resident process")
    return Exit.DONE


def _status(*, json: bool) -> int:
    from runner.resident.control import ask

    found = ask(os.environ, {"op": "status"})
    web = RemoteStatus.of(remote_folder(os.environ)) if found is not None else None
    if json:
        page = {"page": web.url if web else None, "fingerprint": web.fingerprint if web else None}
        print(json_line({"running": found is not None, **({**found, **page} if found is not None else {})}))
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
    if web is not None:
        print(f"page      {web.url}")
        print(f"          {f'certificate SHA-256 {web.fingerprint}' if web.fingerprint else 'without TLS'}")
    return Exit.DONE
