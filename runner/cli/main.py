"""Entry point of the command `agent`. It starts fast: a module is imported only when it is needed."""

import io
import sys


def main() -> int:
    """Run the command line and return its exit code. No traceback leaves this function."""
    words = sys.argv[1:]
    _open_standard_streams()
    try:
        code = _version() if words in (["--version"], ["-V"]) else _dispatch(words)
        sys.stdout.flush()
        return int(code)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _drop_output()  # nobody reads it any more: end like any filter does, without a word
        return 141
    except Exception as error:  # the one seam for the command line: whatever nobody planned becomes a Problem here
        return _failed(error)


def _open_standard_streams() -> None:
    """Make our three streams usable, whatever we were given.

    SAFETY: a closed descriptor 1 would be the number of the next file opened, and output would land in the audit log. A
    stream that cannot say a character (an ASCII terminal, a lone surrogate) shows its code instead.
    """
    import os

    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)  # the lowest free number: this one
            setattr(sys, name, open(null, mode))  # noqa: SIM115  # open as long as the program runs
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _version() -> int:
    from runner.version import VERSION

    print(f"ringfence {VERSION}")
    return 0


def _dispatch(words: list[str]) -> int:
    _refuse_foreign_packages()
    if words and words[0] in ("exec", "why"):
        import gc

        gc.disable()  # one short command makes no garbage worth a tenth of its start-up time
        from runner.frontends.exec.argv import parse_gate, wants_help

        if not wants_help(words[1:]):  # help and completion come from typer; running does not wait for its import
            try:
                args = parse_gate(words[0], words[1:])
                if words[0] == "exec":
                    from sandbox.linux.helper_process import SpareHelper

                    # Its interpreter starts on another core while most of this program is still to be imported.
                    with SpareHelper() as spare:
                        from runner.frontends.exec.command import run_exec

                        return run_exec(args, spare)
                from runner.frontends.exec.why import run_why

                return run_why(args)
            finally:
                gc.freeze()  # the same for the last collection, which the interpreter makes on its way out
    if words[:2] == ["sandbox", "show"]:
        from runner.frontends.exec.argv import parse_gate, wants_help

        if not wants_help(words[2:]):
            from runner.frontends.exec.show import run_show

            return run_show(parse_gate("sandbox show", words[2:]))
    if not words or words[0].startswith("-"):
        from runner.frontends.tui import fast_start

        if fast_start.fits(words):
            return fast_start.start(words)
    from runner.cli.app import run_app

    return run_app(words)


def _refuse_foreign_packages() -> None:
    """Refuse to run with foreign packages.

    THREAT: a folder called `policy` or `sandbox` in a workspace must never be imported in place of our package. Our
    four packages must lie side by side, and nothing is imported from the current folder unless it contains them.
    """
    import os
    from importlib.util import find_spec

    home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    try:
        here = os.path.realpath(os.getcwd())
    except OSError:  # the current folder does not exist any more
        here = None
    if here != home:
        sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry or ".") != here]
    for name in ("policy", "sandbox", "tools", "runner"):
        spec = find_spec(name)
        origin = spec.origin if spec else None
        found = os.path.dirname(os.path.dirname(os.path.realpath(origin))) if origin else None
        if found != home:
            _refuse(name, found, home)


def _refuse(name: str, found: str | None, home: str) -> None:
    """Print the refusal without importing our packages, because those imports cannot be trusted."""
    where = f"in `{found}`" if found else "nowhere"
    sys.stderr.write(
        f"agent: another package called `{name}` stands in the way of ringfence's own\n"
        f"  why: python finds `{name}` {where}, and not beside this program in `{home}`\n"
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
        _drop_output()  # more than the buffer holds, or no buffer: the write itself failed
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
