"""The modules that the resident process loads before its first command, and the check that no file has changed since.

INVARIANT: a worker answers from what it reads itself. What is loaded here is code, the packaged tables, and results of
pure functions of `policy`. No settings, no facts about the machine and no environment stay in memory.
"""

import gc
import os
import sys
from functools import _lru_cache_wrapper
from importlib import import_module
from pkgutil import iter_modules

_EMPTY = {"HOME": "/nonexistent", "PATH": "/usr/bin:/bin"}
_SCRIPTS = ("git status && ls -la | head -n 3", 'for f in *.py; do echo "$f" > b; done', "make test 2>&1; cd x")
_LATE = (
    "runner.audit.log", "runner.audit.records", "runner.audit.stores.sqlite_file", "runner.frontends.exec.argv",
    "runner.frontends.exec.command", "runner.frontends.exec.confined", "runner.frontends.exec.grants",
    "runner.frontends.exec.guarded", "runner.frontends.exec.judge", "runner.frontends.exec.report",
    "runner.frontends.exec.why", "runner.frontends.guard.claude", "runner.frontends.guard.codex",
    "runner.frontends.guard.cursor", "runner.frontends.guard.gemini", "runner.frontends.guard.hook_input",
    "runner.frontends.guard.opencode", "runner.frontends.guard.record", "runner.frontends.guard.redemption",
    "runner.frontends.guard.tokens", "runner.frontends.guard.tool_actions", "runner.frontends.guard.unconfined",
    "runner.frontends.guard.verdicts", "runner.gate.explain", "runner.gate.suggest", "runner.gate.wording",
    "runner.secrets.redactor", "runner.text.json_line", "sandbox.backends", "sandbox.linux.backend",
    "sandbox.linux.bwrap", "sandbox.linux.launch", "policy.describe.summary",
)  # fmt: skip
_OUTER = (
    "asyncio",
    "json",
    "pwd",
    "resource",
    "select",
    "signal",
    "site",
    "socket",
    "sqlite3",
    "importlib.util",
    "uuid",
)

Stamps = dict[str, tuple[int, int]]


def load_program() -> None:
    """Load the modules that a warm command needs, and run the gate once for a user without settings."""
    from policy import handlers
    from policy.model.action import Action, RunScript, WriteFile
    from runner.config.load import keep_packaged
    from runner.frontends.exec.command import _load_event_loop
    from runner.gate.gate import GateArgs, open_gate

    _load_event_loop()
    for name in (*_OUTER, *(_own(each) for each in _LATE)):
        import_module(name)
    for _, name, _ in iter_modules(handlers.__path__):
        import_module(f"{handlers.__name__}.{name}")
    keep_packaged()
    gate, _ = open_gate(GateArgs(script="true", argv=None, unattended=True, cwd="/usr"), _EMPTY)
    actions: list[Action] = [RunScript(script, "/usr") for script in _SCRIPTS]
    for action in (*actions, WriteFile("/usr/a", "b")):
        gate.evaluate(action, unattended=False)
    forget_facts()
    gc.collect()
    gc.freeze()  # a worker looks at none of these objects, so it copies none of their pages


def forget_facts() -> None:
    """Empty the caches of all modules but those of `policy`, whose functions depend on nothing but their arguments."""
    prefix = __name__.removesuffix("runner.frontends.resident.loading")
    own = (f"{prefix}runner.", f"{prefix}sandbox.")
    for found in gc.get_objects():
        if isinstance(found, _lru_cache_wrapper) and str(getattr(found, "__module__", "")).startswith(own):
            found.cache_clear()


def loaded_files() -> Stamps:
    """Return the files of the loaded modules and tables of this program, with their times and sizes."""
    top = os.path.realpath(__file__)
    for _ in __name__.split("."):
        top = os.path.dirname(top)
    found = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    paths = [path for path in found if path and path.startswith(f"{top}/")]
    for folder in ("policy/commands", "policy/tables", "profiles"):
        for place in (f"{top}/{folder}", f"{top}/ringfence/{folder}"):
            if os.path.isdir(place):
                paths += [place, *(f"{place}/{name}" for name in os.listdir(place))]
    return stamps(paths)


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


def _own(name: str) -> str:
    """Return the full name of a module of this program, whose packages are below `ringfence` in a wheel."""
    return __name__.removesuffix("runner.frontends.resident.loading") + name
