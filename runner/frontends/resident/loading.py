"""The modules that the resident process loads before its first command, and the check that no file has changed since.

INVARIANT: a worker answers from what it reads itself. What is loaded here is code, the packaged tables, and results of
pure functions of `policy`. No settings, no facts about the machine and no environment stay in memory. The one exception
is the forecast (`forecast.py`), which decides nothing.
"""

import contextlib
import gc
import os
import sys
import tempfile
from collections.abc import Callable
from functools import _lru_cache_wrapper
from importlib import import_module
from pkgutil import iter_modules

from runner.frontends.resident.memory import Pages, own_pages
from runner.state.paths import SYSTEM_FILE, home
from sandbox.linux.helper_process import SpareHelper
from sandbox.linux.prepared_root import PreparedRoot

Main = Callable[[SpareHelper], int]

_EMPTY = {"HOME": "/nonexistent", "PATH": "/usr/bin:/bin"}
_SCRIPTS = ("git status && ls -la | head -n 3", 'for f in *.py; do echo "$f" > b; done', "make test 2>&1; cd x")
_REHEARSED = (
    ("exec", "--", "/bin/true"), ("exec", "true && echo a | cat"), ("exec", "--mode", "trust-project", "true; touch a"),
    ("why", "git status && rm -rf x"), ("why", "--json", "ls"),
    ("policy", "judge"),
)  # fmt: skip
# A small repository: the names and files of a project lead to code that an empty folder does not.
_WORKSPACE = {
    ".git/HEAD": "ref: refs/heads/main\n", ".git/config": "[core]\n\tbare = false\n", ".git/objects/info/packs": "",
    ".git/refs/heads/main": f"{0:040}\n", "Makefile": "all:\n", "README.md": "# a\n", "src/some-file.py": "pass\n",
    ".vscode/settings.json": "{}\n", ".env.example": "A=\n",
}  # fmt: skip
Stamps = dict[str, tuple[int, int]]


def load_program(main: Main) -> int:
    """Load the modules that a warm command needs, and run some commands once. Return the sum of their exit codes."""
    from policy import handlers
    from policy.model.action import Action, RunScript, WriteFile
    from runner.config.load import keep_packaged
    from runner.frontends.exec.command import _load_event_loop
    from runner.gate.gate import GateArgs, open_gate

    _load_event_loop()
    _import_late_modules()
    for _, name, _ in iter_modules(handlers.__path__):
        import_module(f"{handlers.__name__}.{name}")
    keep_packaged()
    gate, _ = open_gate(GateArgs(script="true", argv=None, unattended=True, cwd="/usr"), _EMPTY)
    actions: list[Action] = [RunScript(script, "/usr") for script in _SCRIPTS]
    for action in (*actions, WriteFile("/usr/a", "b")):
        gate.evaluate(action, unattended=False)
    code = _rehearse(main, _REHEARSED)
    _judge_usual_paths()
    forget_facts()
    gc.enable()
    gc.collect()
    gc.freeze()  # a worker looks at none of these objects, so it copies none of their pages
    return code


def _judge_usual_paths() -> None:
    """Let `policy` judge the paths of the system for the home and the folders of this user, as each command does."""
    from runner.config.load import packaged
    from runner.facts.gather import gather, unfit_folder
    from runner.state.paths import PlaceError

    with contextlib.suppress(PlaceError):
        gather("/usr", os.environ, packaged().profile)
        unfit_folder("/usr", os.environ, packaged().profile)


def _import_late_modules() -> None:
    """Import what commands import only when they need it, and what no rehearsed command needs."""
    # F401: the names are not used here, but workers find the modules loaded.
    from policy.interpreter import offline_form  # noqa: F401
    from runner.facts import package_registries  # noqa: F401
    from runner.frontends.exec import argv, command, confined, grants, guarded, judge, report, why  # noqa: F401
    from runner.frontends.guard import (  # noqa: F401
        claude,
        codex,
        cursor,
        gemini,
        hook,
        hook_input,
        opencode,
        record,
        redemption,
        tokens,
        tool_actions,
        unconfined,
        verdicts,
    )
    from sandbox.linux import bwrap, limits, violations  # noqa: F401  # all of them are loaded for the workers


def _rehearse(main: Main, commands: tuple[tuple[str, ...], ...]) -> int:
    """Run commands without effects in a small workspace with a record of its own. Return the sum of the exit codes.

    The settings of the user do not count, because they can name another place for the record. The file of the machine
    cannot be left out, so with such a file no command is rehearsed that writes a record.

    Regular expressions are compiled and constructors are made at their first use. Of what the commands read, only
    results of pure functions stay, among them those for the home of the user.
    """
    from sandbox.linux.cgroup_places import move_back

    before, argv, found, cwd = dict(os.environ), list(sys.argv), list(sys.path), os.getcwd()
    streams = [os.dup(number) for number in (0, 1, 2)]
    total = 0
    try:
        with tempfile.TemporaryDirectory(prefix="ringfence-") as folder, open(os.devnull, "r+b") as null:
            for number in (0, 1, 2):
                os.dup2(null.fileno(), number)
            for name in ("STATE", "CONFIG", "CACHE", "DATA"):
                os.environ[f"RINGFENCE_{name}_DIR"] = f"{folder}/{name}"
            for name, text in _WORKSPACE.items():
                os.makedirs(os.path.dirname(f"{folder}/project/{name}"), exist_ok=True)
                with open(f"{folder}/project/{name}", "w", encoding="ascii") as file:
                    file.write(text)
            os.chdir(f"{folder}/project")
            for words in commands:
                if words[0] == "exec" and SYSTEM_FILE.exists():
                    continue
                with SpareHelper() as spare:
                    sys.argv[1:] = words
                    total += main(spare)
            os.chdir(cwd)
    finally:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.environ.clear()
        os.environ.update(before)
        sys.argv[:], sys.path[:] = argv, found
        os.chdir(cwd)
        move_back()
    return total


def written_pages(main: Main) -> Pages:
    """Return the pages of this process to which a short command writes. A child process runs the command to see it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            gc.disable()
            before = set(own_pages())
            _rehearse(main, _REHEARSED[:1])
            text = " ".join(str(page) for page in own_pages() if page not in before)
            with open(writing, "w", encoding="ascii") as file:
                file.write(text)
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, encoding="ascii") as file:
        found = [int(word) for word in file.read().split()]
    os.waitpid(child, 0)
    return found


def usual_root() -> PreparedRoot | None:
    """Return the part of the private root that commands get with the packaged settings, as the machine is now; None if
    it cannot be chosen.
    """
    from policy.model.secret_paths import Secrets
    from runner.config.load import packaged
    from runner.facts.gather import system_paths
    from runner.facts.toolchains import outermost

    profile = packaged().profile
    try:
        return PreparedRoot(outermost(system_paths(profile, Secrets(profile, home(os.environ), ()))))
    except OSError:
        return None


def forget_facts() -> None:
    """Empty the caches of all modules but those of `policy`, whose functions depend on nothing but their arguments."""
    packages = (__name__.partition(".frontends")[0], SpareHelper.__module__.partition(".linux")[0])
    own = tuple(f"{name}." for name in packages)  # `runner.` and `sandbox.`, in a wheel below `ringfence.`
    for found in gc.get_objects():
        if isinstance(found, _lru_cache_wrapper) and str(getattr(found, "__module__", "")).startswith(own):
            found.cache_clear()


def loaded_files() -> Stamps:
    """Return the files of the loaded modules and tables of this program, with their times and sizes."""
    top = _top()
    found = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    paths = [path for path in found if path and path.startswith(f"{top}/") and not path.startswith(f"{sys.prefix}/")]
    for folder in ("policy/commands", "policy/tables", "profiles"):
        for place in (f"{top}/{folder}", f"{top}/ringfence/{folder}"):
            if os.path.isdir(place):
                paths += [f"{place}/{name}" for name in os.listdir(place)]
    return stamps(paths)


def folders_of(files: Stamps) -> Stamps:
    """Return the stamps of the folders of files, which change if a file is replaced. They are a tenth of the files.

    The folder around the packages is left out: in a checkout, other programs keep files of their own there.
    """
    return stamps(sorted({os.path.dirname(path) for path in files} - {_top()}))


def _top() -> str:
    """Return the folder from which the packages of this program are imported."""
    top = os.path.realpath(__file__)
    for _ in __name__.split("."):
        top = os.path.dirname(top)
    return top


def stamps(paths: "list[str] | Stamps") -> Stamps:
    """Return the time of the last change and the size of each file; (-1, -1) for one that is gone."""
    found = {}
    for path in paths:
        try:
            status = os.stat(path)
            found[path] = (status.st_mtime_ns, status.st_size)
        except OSError:
            found[path] = (-1, -1)
    return found
