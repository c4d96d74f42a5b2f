"""The entry point of the command `agent`. For a fast start, a module is imported only when it is needed."""

import gc
import io
import sys

from runner import VERSION

TYPE_CHECKING = False  # the name that type checkers know, without the import of `typing`
if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.linux.helper_process import SpareHelper

_PACKAGES = ("policy", "profiles", "sandbox", "tools", "runner")
_READING = ("policy", "sessions", "audit")  # groups with commands that only read
_QUICK = ("exec", "why", "guard", *_READING)
_HELPERLESS = frozenset(("--background", "--help", "-h"))  # a helper of this process would end with it, or never run
_TURN = 0.0005  # seconds until a thread that prepares something gets the interpreter (the default is 0.005)
_GARBAGE = 50_000  # new objects before a collection: importing creates fewer, and none of them are garbage


def main(spare: "SpareHelper | None" = None) -> int:
    """Run the command line and return its exit code. Every exception becomes a message and an exit code.

    `spare` is the helper of a worker of the resident process, which its caller ends if it was not taken. A process
    without one lets a worker run the command if there is a resident process.
    """
    words = sys.argv[1:]
    _open_standard_streams()
    _see_ends_of_children()
    gc.set_threshold(_GARBAGE)
    try:
        code = _version() if words in (["--version"], ["-V"]) else _dispatch(words, spare)
        sys.stdout.flush()
        return int(code)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _drop_output()  # the reader of the output is gone: end without a message, like any filter
        return 141
    except Exception as error:  # Seam of the command line: an unexpected exception becomes a Problem
        return _failed(error)
    finally:
        gc.freeze()  # the interpreter would search all objects for garbage at its exit: a fifth of a short command


def _open_standard_streams() -> None:
    """Open the standard streams that are closed, and make them escape characters that they cannot encode.

    SAFETY: if descriptor 1 is closed, the next opened file gets this number, and output could be written to the audit
    log. A character that a stream cannot encode (an ASCII terminal, a lone surrogate) is shown as its code.
    """
    import os

    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)  # opened with the lowest free number, `number`
            setattr(sys, name, open(null, mode))  # noqa: SIM115  # stays open as long as the program runs
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _see_ends_of_children() -> None:
    """Undo the choice of a parent process to ignore SIGCHLD: exit codes of children would be lost, wait(2)."""
    import _signal  # type: ignore[import-not-found]  # `signal` makes enumerations, which takes a millisecond

    if _signal.getsignal(_signal.SIGCHLD) == _signal.SIG_IGN:
        _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)


def _version() -> int:
    print(f"ringfence {VERSION}")
    return 0


def _dispatch(words: list[str], spare: "SpareHelper | None") -> int:
    if spare is None and words and words[0] in ("exec", "why", "policy"):
        code = _warm(words)
        if code is not None:
            return code
    _refuse_foreign_packages(words)
    if words in (["--help"], ["-h"], ["help"]):
        from runner.cli.help_page import stored_page

        if (page := stored_page()) is not None:
            print(page, end="")
            return 0
    if words and words[0] not in _QUICK:  # a short command loads few modules
        from runner.cli.command_line import usual_words

        words = usual_words(words)
    if words in (["--version"], ["-V"]):
        return _version()
    if words[:2] == ["guard", "shell"]:
        words = _prefixed(words[2:])
    if words and words[0] in ("exec", "why"):
        gc.disable()  # garbage collection would take a tenth of the start-up time of a short command
        sys.setswitchinterval(_TURN)
        own_words = words[: words.index("--")] if "--" in words else words
        if words[0] == "why" or spare is not None or not _HELPERLESS.isdisjoint(own_words):
            code = _judge(words, spare)
        else:
            from sandbox.linux.helper_process import SpareHelper

            # First: the interpreter of the helper starts on another core while this program is being imported.
            with SpareHelper() as own:
                code = _judge(words, own)
        if code is not None:
            return code
    if words == ["serve"]:  # without typer, whose memory a resident process would keep
        from runner.frontends.resident.start import run

        return run(main)
    if words[:1] == ["serve"] and words[1:2] != ["web"] and words[1:2] != ["session"]:
        from runner.cli.listen import is_foreground, run_listening
        from runner.frontends.remote.argv import parse_web

        if is_foreground(words[1:]):
            return run_listening(parse_web(words[1:])[0], main)
    if words[:2] == ["guard", "hook"] and not {"-h", "--help"} & set(words):
        gc.disable()
        from runner.frontends.guard.hook import run_hook

        return run_hook(words[2:], worker=spare is not None)
    if words[:1] == ["attach"] and len(words) < 3 and not words[-1].startswith("-"):  # quick, without typer
        import os

        from runner.agent.options import Given
        from runner.frontends.hosted.commands import attach

        return attach(words[1] if len(words) == 2 else None, Given({}), os.environ)
    if words[:2] == ["serve", "web"]:
        from runner.frontends.remote.command import run_web

        return run_web(words[2:])
    if words[:2] == ["serve", "session"]:
        from runner.agent.startup import run_args
        from runner.frontends.hosted.argv import parse_host
        from runner.frontends.hosted.host import serve_session

        given, lifeline, report = parse_host(words[2:])
        return serve_session(run_args(given), lifeline, report)
    if words and words[0] in _READING:
        from runner.cli.reading import read_command

        if (code := read_command(words)) is not None:
            return code
    if words[:2] == ["sandbox", "show"]:
        from runner.frontends.exec.argv import parse_gate, wants_help

        if not wants_help(words[2:]):
            from runner.frontends.exec.show import run_show

            return run_show(parse_gate("sandbox show", words[2:]))
    from runner.cli.command_line import split_prompt

    options, prompt = split_prompt(words)
    if prompt is not None or not words or words[0].startswith("-"):
        from runner.frontends.tui import fast_start

        if fast_start.fits(options):
            return _until_chosen(lambda: fast_start.start(options, prompt))
    from runner.cli.app import run_app

    return _until_chosen(lambda: run_app(words))


def _judge(words: list[str], spare: "SpareHelper | None") -> int | None:
    """Run `exec` or `why`. Return the exit code, or None if help is wanted."""
    from runner.frontends.exec.argv import parse_gate, wants_help

    if wants_help(words[1:]):  # typer, which is slow to import, is used for help and completion only
        return None
    args = parse_gate(words[0], words[1:])
    if words[0] == "why":
        from runner.frontends.exec.why import run_why

        return run_why(args)
    if spare is None and not args.background:  # the value of an option looked like one of `_HELPERLESS`
        from sandbox.linux.helper_process import SpareHelper

        with SpareHelper() as own:
            from runner.frontends.exec.command import run_exec

            return run_exec(args, own)
    from runner.frontends.exec.command import run_exec

    return run_exec(args, None if args.background else spare)


def _warm(words: list[str]) -> int | None:
    """Let the resident process run the command, if there is one. Return the exit code, or None if it has not run."""
    import os

    from runner.resident import listens

    if not listens(os.environ):
        return None
    from runner.resident.client import run_warm

    return run_warm(words)


def _prefixed(words: list[str]) -> list[str]:
    """Return the words that run a command of Claude Code in the sandbox. Raise Stopped for any failure."""
    import os

    from runner.frontends.guard.shell_prefix import prefixed_words

    try:
        found = prefixed_words(words, os.environ)
    except (ValueError, OSError) as error:
        from policy.model.verdict import Problem
        from runner.problems import Exit, Stopped

        fix = "run `agent guard claude --status`"
        raise Stopped(Problem("the shell prefix ran nothing", str(error), fix), Exit.DENIED) from None
    sys.argv[1:] = found
    return found


def _until_chosen(start: "Callable[[], int]") -> int:
    """Run `start`. If the user chooses a command in its place, run the command; after a login, run `start` again."""
    from runner.problems import CommandChosen

    while True:
        try:
            return start()
        except CommandChosen as chosen:
            words = chosen.words
        from runner.cli.app import run_app

        code = run_app(list(words))
        if code or words[0] != "auth":
            return code


def _refuse_foreign_packages(words: list[str]) -> None:
    """Exit with code 2 if one of the packages of this program would be imported from another folder.

    THREAT T22: a folder called `policy` or `sandbox` in a workspace must never be imported in place of our package. Our
    packages must be in one folder, and nothing is imported from the workspace except from the environment of this
    program. In a wheel our packages are below `ringfence`, so that packages of other projects may have their names.
    """
    import os
    from importlib.util import find_spec

    below = __name__.removesuffix("runner.cli.main")  # `ringfence.` in a wheel, empty in a checkout
    home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    top = os.path.dirname(home) if below else home
    sys.path[:] = _import_folders(words, top)
    for name in _PACKAGES:
        spec = find_spec(below + name)
        origin = spec.origin if spec else None
        found = os.path.dirname(os.path.dirname(os.path.realpath(origin))) if origin else None
        if found != home:
            _refuse(below + name, found, home)
    if words and words[0] in ("exec", "why"):  # other commands load fewer modules, or are not as short
        from runner.cli.module_finder import use_finder

        use_finder(home, below, _PACKAGES)


def _import_folders(words: list[str], top: str) -> list[str]:
    """Return the entries of `sys.path` outside of the workspace and of the folder of the script, the environment of
    this program, and `top`.

    PYTHONPATH and the editable install of a project often name its folder `src`. Such entries are removed for another
    reason as well: what remains is read-only for commands, because this program may import from it later (T70).
    """
    import os
    import site

    home = os.path.realpath(os.path.expanduser("~"))
    folders = [".", *(word.removeprefix("--cwd=") for word in words if word.startswith("--cwd="))]
    folders += [word for before, word in zip(words, words[1:]) if before == "--cwd"]  # noqa: B905, RUF007  # quick to load
    workspaces: set[str] = set()
    for each in folders:
        try:
            folder = os.path.realpath(each, strict=True)
        except OSError:  # it does not exist, or not any more
            continue
        workspaces.add(folder)
        while folder != "/" and not _inside(home, folder):
            if os.path.lexists(f"{folder}/.git"):  # the repository around it is the workspace
                workspaces.add(folder)
                break
            folder = os.path.dirname(folder)
    script = os.path.dirname(os.path.realpath(sys.argv[0]))  # this program has no module beside its script
    own = [os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, site.USER_SITE) if path]

    def is_dropped(path: str) -> bool:
        """Of a folder around the home, which is no workspace, only the folder itself is dropped."""
        return any(path == at or (_inside(path, at) and not _inside(home, at)) for at in workspaces)

    found = [(entry, os.path.realpath(entry or ".")) for entry in sys.path]
    return [
        entry
        for entry, path in found
        if path == top
        or (path != script and (not is_dropped(path) or any(path != at and _inside(path, at) for at in own)))
    ]


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def _refuse(name: str, found: str | None, home: str) -> None:
    """Print the refusal without importing our packages, because those imports cannot be trusted."""
    where = f"in `{found}`" if found else "nowhere"
    sys.stderr.write(
        f"agent: another package named `{name}` hides a package of ringfence\n"
        f"  why: Python finds `{name}` {where} instead of in `{home}`, where this program is\n"
        "  fix: unset PYTHONPATH, or install ringfence into an environment of its own (pipx, uv tool install)\n"
    )
    raise SystemExit(2)


def _drop_output() -> None:
    """Discard buffered output, so that the interpreter does not report an error at exit."""
    import os

    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def _failed(error: Exception) -> int:
    import errno

    from runner.problems import Exit, known_problem
    from runner.stderr import print_problem, unexpected, unwritten

    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
    if isinstance(error, OSError) and error.errno in full and error.filename is None:
        _drop_output()  # the write itself failed, before the final flush
        print_problem(unwritten(error))
        return Exit.FAILED
    try:
        sys.stdout.flush()
    except OSError as output:
        _drop_output()
        print_problem(unwritten(output))
        return Exit.FAILED
    problem, code = known_problem(error) or (unexpected(error), Exit.FAILED)
    print_problem(problem)
    return code
