"""The canary of a new container: a script that needs only bash and tries to escape, and the evaluation of its output.

A check holds if the attempt fails. Mounts, limits and variables as the kernel reports them are compared with the
request. The comparison finds a daemon that ignores a setting, and a path that was swapped during the creation.
"""

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from policy.model.verdict import Limits
from sandbox.container.create_body import CreateBody
from sandbox.container.mount_guard import unescape
from sandbox.inside import canary

# fmt: off
WORDS = {
    **canary.WORDS,
    "capabilities": "the process has capabilities",
    "devices":      "devices of the machine are visible",
    "daemon":       "a socket of the container daemon is visible",
    "groups":       "control groups can be changed",
    "image":        "the image's files can be changed",
    "filter":       "a different seccomp filter is loaded",
    "variables":    "variables are set that the terms do not name",
    "mounted":      "the mounts differ from the requested ones",
    "same":         "the daemon does not see the files of this machine",
    "user":         "commands run as another user than requested",
}
# fmt: on

SCRIPT = r"""
secret=$1 target=$2 port=$3 workspace=$4 rights=$5 runner=$6 abstract=$7 mark=$8 net=$9; shift 9 # the rest are sockets
no() { if eval "$2" 2>/dev/null; then echo "$1 0"; else echo "$1 1"; fi; }
mapfile -d '' -t all < /proc/self/environ
for one in "${all[@]}"; do echo "set ${one%%=*}"; done
while read -r name value; do case $name in
  Cap*|NoNewPrivs:|Seccomp:|Uid:|Gid:|Groups:) echo "is $name $value";;
esac; done < /proc/self/status
while read -r line; do echo "mount $line"; done < /proc/self/mountinfo
for file in pids.max pids/pids.max; do [[ -r /sys/fs/cgroup/$file ]] && echo "most pids $(< /sys/fs/cgroup/$file)"; done
for file in memory.max memory/memory.limit_in_bytes; do
  [[ -r /sys/fs/cgroup/$file ]] && echo "most memory $(< /sys/fs/cgroup/$file)"
done
echo "most open-files $(ulimit -n)"
echo "most cpu $(ulimit -t)"
no hidden ': < "$secret"'
no outside ': >> "$target"'
no network '( exec 3<> "/dev/tcp/127.0.0.1/$port" )'
while read -r name _; do [[ $name == *:* && $name != lo:* ]] && echo "network 0"; done < /proc/net/dev
no abstract '[[ $(< /proc/net/unix) == *"$abstract"* ]]'
no processes '[[ $runner -gt 99 && -e /proc/$runner ]]'
no sysctl ': >> /proc/sys/kernel/core_pattern'
no groups ': >> /sys/fs/cgroup/cgroup.procs || : >> /sys/fs/cgroup/pids/cgroup.procs'
no image ': > /.ringfence-canary || : > /etc/.ringfence-canary || : > /usr/.ringfence-canary'
for device in /dev/*; do [[ -b $device || $device == /dev/k?* || $device == /dev/mem ]] && echo "devices 0"; done
for socket in "$@"; do [[ -S $socket ]] && echo "daemon 0"; done
[[ $(< "/tmp/$mark") == "$mark" ]] && echo "same 1" || echo "same 0"
[[ $rights == read-only ]] && no workspace ': > "$workspace/.ringfence-canary"'
if [[ $net == no ]]; then
  said=$( { exec 3<> /dev/udp/127.0.0.1/9; } 2>&1 )
  [[ $said == *"not supported"* ]] && echo "filter 1" || echo "filter 0"
elif type -P chmod >/dev/null; then
  [[ $rights == read-only ]] && own=/run/tmp || own=/tmp
  : > $own/.ringfence-mode
  no filter 'chmod u+s $own/.ringfence-mode'
  type -P rm >/dev/null && rm -f $own/.ringfence-mode
fi
type -P unshare >/dev/null && no namespaces 'unshare -U : < /dev/null'
type -P mount >/dev/null && no mounts 'mount -t tmpfs none /mnt < /dev/null'
echo "devices 1"; echo "daemon 1"; echo "over 1"
"""


def judge(
    text: str, limits: Limits, user: str, body: CreateBody, variables: Iterable[str]
) -> tuple[dict[str, bool], tuple[str, ...], tuple[str, ...]]:
    """Return each check by name, True if the boundary held; the limits that are not enforced, and other gaps, in words.

    `text` is the output of SCRIPT. `body` is the request that created the container. Commands run as `user` (UID:GID)
    with the environment `variables`.
    """
    host = body["HostConfig"]
    assert isinstance(host, dict)
    lines = [line.partition(" ") for line in text.splitlines()]
    checks: dict[str, bool] = {}
    for name, _, rest in lines:
        if name in WORDS and rest in ("0", "1"):
            checks[name] = checks.get(name, True) and rest == "1"
    status = dict(rest.split(":", 1) for name, _, rest in lines if name == "is" and ":" in rest)
    checks["capabilities"] = all(
        re.fullmatch(r"\s*0+\s*", status.get(name, "")) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
    )
    checks["privileges"] = status.get("NoNewPrivs", "").strip() == "1"
    checks["seccomp"] = status.get("Seccomp", "").strip() == "2"
    uid, _, gid = user.partition(":")
    checks["user"] = status.get("Uid", "").split() == [uid] * 4 and status.get("Gid", "").split() == [gid] * 4
    checks["variables"] = {rest for name, _, rest in lines if name == "set"} <= {*variables, "PWD", "HOME"}
    table = _mounts(rest for name, _, rest in lines if name == "mount")
    ended = any(name == "over" for name, _, _ in lines)  # without this line the script did not finish
    checks["mounted"] = ended and _as_asked(table, host)
    reported = {rest.partition(" ")[0]: rest.partition(" ")[2] for name, _, rest in lines if name == "most"}
    wanted = {"pids": host["PidsLimit"], "memory": limits.memory, "open-files": limits.open_files, "cpu": limits.cpu}
    lost = tuple(
        f"the limit `{name}` is not enforced by this daemon (it reports {reported.get(name) or 'nothing'})"
        for name, most in wanted.items()
        if not reported.get(name, "").isdigit() or int(reported[name]) > most
    )
    tools = {"namespaces": "unshare", "mounts": "mount", "filter": "chmod"}
    gaps = tuple(
        f"not tested, because the image has no `{tool}`: {WORDS[name]}"
        for name, tool in tools.items()
        if name not in checks
    )
    if uid == "0":
        gaps += ("commands run as uid 0 without capabilities, because the workspace belongs to root",)
    return checks, lost, gaps


# the place of the root within its file system, the device, whether it is read-only
_Mount = tuple[str, str, bool]


def _mounts(lines: Iterable[str]) -> dict[str, _Mount]:
    """Return the mounts by mount point; the last one is on top (proc_pid_mountinfo(5))."""
    mounts: dict[str, _Mount] = {}
    for line in lines:
        fields = line.split(" ")
        if len(fields) > 5:
            mounts[unescape(fields[4])] = (unescape(fields[3]), fields[2], "ro" in fields[5].split(","))
    return mounts


def _as_asked(table: Mapping[str, _Mount], host: dict[str, Any]) -> bool:
    """Return True if every mount that the `HostConfig` `host` requests exists with its mode, and nested binds show the
    same place of the same file system.

    THREAT T18: another command may have swapped a name for a link while the daemon, which is root, followed it.
    """
    if "/" not in table or not table["/"][2]:
        return False
    for target, options in host["Tmpfs"].items():
        if target not in table or table[target][2] < ("ro" in options.split(",")):
            return False
    binds = [(each["Source"], each["Target"], each["ReadOnly"]) for each in host["Mounts"]]
    for source, target, read_only in binds:
        if target not in table or table[target][2] != read_only:
            return False
        for outer, at, _ in binds:
            if outer == "/" or not source.startswith(outer + "/") or at not in table:
                continue
            root = os.path.normpath(table[at][0] + "/" + source[len(outer) + 1 :])
            if table[target][:2] != (root, table[at][1]):
                return False
    return True
