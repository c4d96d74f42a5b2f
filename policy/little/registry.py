"""Which grammar a rule file may name, one line each."""

from collections.abc import Callable

from policy.call import Call
from policy.little import builtins, copies, find, git, network, outputs, tar, tests, wrappers

GRAMMAR: dict[str, Callable[[Call], None]] = {
    "alias": builtins.alias,
    "assign": builtins.assign,
    "cd": builtins.cd,
    "command": wrappers.command,
    "date": outputs.date,
    "dd": copies.dd,
    "echo": builtins.echo,
    "env": wrappers.env,
    "eval": builtins.evaluate,
    "exec": wrappers.execute,
    "find": find.find,
    "git": git.git,
    "network-code": network.network_code,
    "mktemp": outputs.mktemp,
    "popd": builtins.popd,
    "printf": builtins.printf,
    "push": builtins.push,
    "read": builtins.read,
    "set": builtins.set_options,
    "sh": wrappers.shell,
    "source": builtins.source,
    "ssh": network.ssh,
    "tar": tar.tar,
    "test": tests.test,
    "transfer": network.transfer,
    "unset": builtins.unset,
    "xargs": wrappers.xargs,
}
