"""Which grammar a rule file may name, one line each."""

from collections.abc import Callable

from policy.call import Call
from policy.little import builtins, copies, find, git, media, network, outputs, runners, sql, tar, tests, wrappers, yq

GRAMMAR: dict[str, Callable[[Call], None]] = {
    "alias": builtins.alias,
    "assign": builtins.assign,
    "busybox": runners.busybox,
    "cd": builtins.cd,
    "command": wrappers.command,
    "date": outputs.date,
    "dd": copies.dd,
    "echo": builtins.echo,
    "env": wrappers.env,
    "eval": builtins.evaluate,
    "exec": wrappers.execute,
    "fd": runners.fd,
    "find": find.find,
    "getopts": builtins.getopts,
    "git": git.git,
    "mapfile": builtins.mapfile,
    "mktemp": outputs.mktemp,
    "network-code": network.network_code,
    "parallel": runners.parallel,
    "pdftotext": media.pdftotext,
    "popd": builtins.popd,
    "printf": builtins.printf,
    "push": builtins.push,
    "read": builtins.read,
    "script": runners.script,
    "set": builtins.set_options,
    "sh": wrappers.shell,
    "shift": builtins.shift,
    "source": builtins.source,
    "socat": network.socat,
    "ssh": network.ssh,
    "sqlite": sql.sqlite,
    "tar": tar.tar,
    "test": tests.test,
    "trap": builtins.trap,
    "transfer": network.transfer,
    "unset": builtins.unset,
    "watch": runners.watch,
    "xargs": wrappers.xargs,
    "yq": yq.yq,
}
