"""The user unit of systemd for the resident process: its text, its installation and its removal.

The unit has no option that changes the namespaces, capabilities or filters of the process: sandboxes need namespaces,
and the resident process serves only clients with the same rights as its own.
"""

import difflib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from policy.model.verdict import Problem
from runner.problems import Exit, Stopped, usage
from runner.resident.control import ask
from runner.state.paths import home
from runner.text.phrases import os_reason
from runner.text.sanitize import visible

NAME = "ringfence.service"
_MARK = "# Written by `agent serve --install`; `agent serve --uninstall` removes it."
_LARGEST = 1 << 16  # bytes
_PATIENCE = 30.0  # seconds for one command of systemctl
# No variable with a secret: a unit is a plain file.
_KEPT = (
    "PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME",
    "RINGFENCE_STATE_DIR", "RINGFENCE_CONFIG_DIR", "RINGFENCE_CACHE_DIR", "RINGFENCE_DATA_DIR",
)  # fmt: skip


def unit_text(program: str, environ: Mapping[str, str]) -> str:
    """Return the unit that runs `program`, the absolute path of `agent`, with the folders and the PATH of `environ`."""
    variables = [f"Environment={_quoted(f'{name}={environ[name]}')}" for name in _KEPT if environ.get(name)]
    lines = "\n".join(variables)
    return f"""\
{_MARK}
[Unit]
Description=ringfence: warm commands, sessions and scheduled jobs
StartLimitIntervalSec=300
StartLimitBurst=5

[Service]
Type=notify
ExecStart={_quoted(program)} serve --stay
Restart=on-failure
RestartSec=5
{lines}
# No core dumps with the memory of sessions, and nothing that remains after the end. Only the soft limit is set, because
# commands get the limits of their callers.
LimitCORE=0:infinity
KillMode=mixed
TimeoutStopSec=15
# The sandbox sets limits of memory and processes by control groups of its own.
Delegate=yes
# NoNewPrivileges, Private*, Protect*, Restrict* and SystemCallFilter are left out on purpose: each changes the rights
# of the process, so that clients would be refused, or takes away the namespaces that the sandboxes are made of.

[Install]
WantedBy=default.target
"""


def unit_path(environ: Mapping[str, str]) -> Path:
    """Return the path of the unit, whether or not it exists."""
    base = environ.get("XDG_CONFIG_HOME", "")
    # SOURCE: systemd.unit(5), "Unit File Load Path", and the XDG Base Directory Specification for a relative path.
    return Path(base if base.startswith("/") else f"{home(environ)}/.config") / "systemd" / "user" / NAME


def install_unit(environ: Mapping[str, str], confirm: Callable[[str], bool]) -> int:
    """Write the unit, let systemd start it, and return the exit code. Print what was done, or what is left to do.

    If there is another unit, show the difference and ask `confirm` with a question. Raise Stopped if the unit cannot
    be written, or if the answer is no.
    """
    path, text = unit_path(environ), unit_text(os.path.abspath(sys.argv[0]), environ)
    before = _present(path)
    if before == text:
        print(f"{visible(str(path), lines=False)} is up to date")
    else:
        if before is not None:
            rows = difflib.unified_diff(before.splitlines(), text.splitlines(), str(path), "the new unit", lineterm="")
            print("\n".join(visible(row, lines=False) for row in rows))
            if not confirm(f"replace `{path}`?"):
                why, fix = "there is another unit at this place", "compare the two, then add --yes"
                raise Stopped(Problem("the unit was not replaced", why, fix), Exit.USAGE)
        _write(path, text)
        print(f"wrote {visible(str(path), lines=False)}")
    steps = [("daemon-reload",), ("enable", "--now", NAME)]
    if ask(environ, {"op": "status"}) is not None and not _is_active(environ):
        print("a resident process runs already, apart from systemd: end it first with `agent serve --stop`")
        return _left(steps)
    done = _systemctl(environ, steps)
    if done == Exit.DONE:
        print("it runs while you are logged in; `loginctl enable-linger` lets it run without a login, too")
    return done


def uninstall_unit(environ: Mapping[str, str], confirm: Callable[[str], bool]) -> int:
    """Let systemd end the resident process, remove the unit, and return the exit code.

    A unit that this program did not write is removed only if `confirm` returns True. Raise Stopped if there is no unit,
    or if it cannot be removed.
    """
    path = unit_path(environ)
    before = _present(path)
    if before is None:
        raise usage("there is no unit", f"`{path}` does not exist", "there is nothing to remove")
    if not before.startswith(_MARK) and not confirm(f"remove `{path}`, which this program did not write?"):
        why, fix = "this program did not write it", "look at it, then add --yes"
        raise Stopped(Problem(f"`{path}` was not removed", why, fix), Exit.USAGE)
    done = _systemctl(environ, [("disable", "--now", NAME)])
    try:
        path.unlink()
    except OSError as error:
        fix = "check who owns the folder"
        raise Stopped(Problem(f"`{path}` was not removed", os_reason(error), fix), Exit.FAILED) from None
    print(f"removed {visible(str(path), lines=False)}")
    return _systemctl(environ, [("daemon-reload",)]) if done == Exit.DONE else done


def _present(path: Path) -> str | None:
    """Return the text of the unit, or None if there is none. Raise Stopped for anything but a plain file."""
    from sandbox.inside.regular_file import NotRegularError, read_whole

    try:
        return read_whole(str(path), _LARGEST, follow=False).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    except (OSError, NotRegularError, ValueError) as error:
        why = "it is a link: `systemctl --user mask` makes one" if path.is_symlink() else os_reason(error)
        fix = f"look at it: ls -l {path}"
        raise Stopped(Problem(f"`{path}` cannot be used", why, fix), Exit.FAILED) from None


def _write(path: Path, text: str) -> None:
    fresh = path.with_name(f".{NAME}.{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(fresh, path)
    except OSError as error:
        fix = "check the disk and who owns the folder"
        raise Stopped(Problem(f"`{path}` cannot be written", os_reason(error), fix), Exit.FAILED) from None


def _is_active(environ: Mapping[str, str]) -> bool:
    found = _call(environ, ("is-active", "--quiet", NAME))
    return found is not None and found.returncode == 0


def _systemctl(environ: Mapping[str, str], steps: list[tuple[str, ...]]) -> int:
    """Run the commands of `systemctl --user`. Print those that are left if one fails or there is no systemctl."""
    for number, step in enumerate(steps):
        done = _call(environ, step)
        if done is None:
            print("there is no `systemctl` here; on a machine with systemd, run:")
            return _left(steps[number:])
        if done.returncode != 0:
            said = visible(done.stderr.strip().partition("\n")[0], lines=False)
            print(f"`systemctl --user {' '.join(step)}` failed: {said or done.returncode}")
            return _left(steps[number:])
    return Exit.DONE


def _left(steps: list[tuple[str, ...]]) -> int:
    for step in steps:
        print(f"  systemctl --user {' '.join(step)}")
    return Exit.FAILED


def _call(environ: Mapping[str, str], words: tuple[str, ...]) -> "subprocess.CompletedProcess[str] | None":
    """Run one command of `systemctl --user`, and return its end; None if there is no systemctl."""
    program = shutil.which("systemctl", path=environ.get("PATH"))
    if program is None:
        return None
    argv = (program, "--user", *words)
    try:
        return subprocess.run(
            argv, env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        why = os_reason(error) if isinstance(error, OSError) else f"it did not end within {_PATIENCE:g} s"
        return subprocess.CompletedProcess(argv, 1, "", why)


def _quoted(word: str) -> str:
    """Return one word for a unit. Raise a usage error for a word that no unit can have.

    A `$` stays as it is: systemd replaces no variable in the program of a command, nor in `Environment`.

    SOURCE: systemd.syntax(7), systemd.service(5) "COMMAND LINES", systemd.unit(5) "SPECIFIERS".
    """
    if not word.isprintable():
        name = word.partition("=")[0]
        raise usage("the unit was not written", f"`{visible(name)}` has a character that no unit can have", "change it")
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
