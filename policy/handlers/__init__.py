"""Handlers: programs that need code beyond their rule file (git, find, tar, curl, shells, wrappers and others).

This file maps each name in `policy.rules.rule.GRAMMARS` to a module of this folder and its function. A module is
imported when a command first needs it, because most commands need none. May import `interpreter` and everything below
it. Start reading at `git.py`.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from policy.interpreter.command_call import Call

HANDLERS = {
    "alias": "builtins.alias",               "assign": "variable_builtins.assign",
    "busybox": "command_runners.busybox",    "cd": "builtins.cd",
    "command": "wrappers.command",           "curl": "curl_wget.curl",
    "date": "small_programs.date",           "dd": "small_programs.dd",
    "echo": "echo_printf.echo",              "env": "wrappers.env",
    "eval": "builtins.evaluate",             "exec": "wrappers.execute",
    "fd": "command_runners.fd",              "find": "find.find",
    "forge": "network.forge",                "getopts": "variable_builtins.getopts",
    "git": "git.git",                        "let": "variable_builtins.let",
    "mapfile": "variable_builtins.mapfile",  "mktemp": "small_programs.mktemp",
    "netcat": "network.netcat",              "network-code": "network.network_code",
    "npx": "packages.npx",
    "packages": "packages.packages",         "parallel": "command_runners.parallel",
    "pdftotext": "small_programs.pdftotext", "popd": "builtins.popd",
    "printf": "echo_printf.printf",          "push": "builtins.pushd",
    "python": "packages.python",             "read": "variable_builtins.read",
    "rpm": "packages.rpm",                   "script": "command_runners.script",
    "set": "builtins.set_options",           "sh": "wrappers.shell",
    "shift": "builtins.shift",               "shopt": "builtins.shopt",
    "socat": "network.socat",                "source": "builtins.source",
    "sqlite": "sqlite.sqlite",               "ssh": "network.ssh",
    "tar": "tar.tar",                        "test": "builtins.test",
    "transfer": "network.transfer",          "trap": "builtins.trap",
    "umask": "builtins.umask",               "unset": "variable_builtins.unset",
    "watch": "command_runners.watch",        "wget": "curl_wget.wget",
    "xargs": "wrappers.xargs",               "yq": "small_programs.yq",
}  # fmt: skip


@cache
def grammar(name: str) -> "Callable[[Call], None]":
    """Return the function of the handler `name`, which is one of `policy.rules.rule.GRAMMARS`."""
    module, _, function = HANDLERS[name].partition(".")
    handler: Callable[[Call], None] = getattr(import_module(f"{__name__}.{module}"), function)
    return handler
