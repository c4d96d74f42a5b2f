"""Tests of container settings without a daemon: the settings for given terms, the seccomp profile, and refused terms."""

import hashlib
import json
import os
import random
import socket
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from policy.model.verdict import Limits, Rights, Terms
from sandbox.backend import SandboxUnavailable
from sandbox.container import canary, create_body, mount_guard, syscalls
from sandbox.container.backend import LACKS
from sandbox.container.daemon import find_socket, is_pinned
from sandbox.workspace.protected_paths import Scan
from tests.support.places import ROOT, TESTS

GOLDEN = TESTS / "golden" / "containers.json"
DISK = {
    "/usr": "dir",
    "/home/u": "dir",
    "/home/u/p": "dir",
    "/home/u/p/.env": "file",
    "/home/u/p/private": "dir",
    "/home/u/p/.git": "dir",
    "/home/u/p/.git/config": "file",
    "/srv/data": "dir",
    "/srv/out.txt": "file",
    "/dev/null": "file",
}
FOUND = Scan(
    masked=("/home/u/p/.env", "/home/u/p/private"), locked=("/home/u/p/.git/config",), pinned=("/home/u/p/.git",)
)


def terms(rights: Rights = Rights.WORKSPACE_WRITE, **told: object) -> Terms:
    base: dict[str, object] = {
        "workspace": "/home/u/p",
        "home": "/home/u",
        "system": ("/usr",),
        "env": (("HOME", "/home/u"),),
        "limits": Limits(pids=100, memory=1 << 30),
    }
    return Terms(rights=rights, **{**base, **told})  # type: ignore[arg-type]  # a table of keyword arguments


def body(of: Terms, **told: object) -> dict[str, object]:
    base: dict[str, object] = {
        "image": "sha256:" + "1" * 64,
        "user": "1000:1000",
        "keeper": "65532:65532",
        "scratch": "/tmp/ringfence-tmp-x",
        "empty_file": "/tmp/ringfence-tmp-y/file",
        "empty_folder": "/tmp/ringfence-tmp-y/folder",
        "profile": "PROFILE",
        "unset": ("PATH", "HOSTNAME"),
    }
    return create_body.body(of, FOUND, create_body.ContainerSettings(**{**base, **told}), DISK.get)  # type: ignore[arg-type]  # `told` are fields of ContainerSettings


CASES = {
    "read-only": body(terms(Rights.READ_ONLY)),
    "workspace-write": body(terms()),
    "workspace-write with named paths": body(terms(read=("/srv/data",), write=("/srv/out.txt",), cache="/var/kept")),
    "a shared network": body(terms(), neighbour="ringfence-1", hosts="/tmp/ringfence-tmp-y/hosts"),
    "another runtime": body(terms(), runtime="runsc", volumes=("/data",), labels=(("io.ringfence.session", "s"),)),
}


def test_containers_are_as_reviewed() -> None:
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(json.dumps(CASES, indent=1, sort_keys=True) + "\n")
    assert json.loads(GOLDEN.read_text()) == CASES


@pytest.mark.parametrize("name", CASES)
def test_no_container_is_weaker_than_this(name: str) -> None:
    told = CASES[name]
    host = told["HostConfig"]
    assert isinstance(host, dict)
    network = "container:ringfence-1" if name == "a shared network" else "none"
    expected = {
        "Privileged": False, "CapDrop": ["ALL"], "CapAdd": [], "ReadonlyRootfs": True, "NetworkMode": network,
        "IpcMode": "private", "CgroupnsMode": "private", "PidMode": "", "UTSMode": "", "AutoRemove": True,
        "SecurityOpt": ["no-new-privileges:true", "seccomp=PROFILE"], "LogConfig": {"Type": "none"},
    }  # fmt: skip
    assert {key: host[key] for key in expected} == expected
    assert not {"Devices", "DeviceRequests", "VolumesFrom", "GroupAdd", "Binds", "Links"} & set(host)
    assert host["PidsLimit"] < 200
    assert (host["Memory"], host["MemorySwap"]) == (1 << 30, 1 << 30)
    assert all(each["BindOptions"]["NonRecursive"] for each in host["Mounts"])


@pytest.mark.threat("T02")
def test_look_has_nothing_writable_but_its_own_temporary_folder() -> None:
    host = CASES["read-only"]["HostConfig"]
    assert isinstance(host, dict)
    assert [each["Target"] for each in host["Mounts"] if not each["ReadOnly"]] == []
    assert [path for path, options in host["Tmpfs"].items() if "rw" in options.split(",")] == ["/run/tmp"]


def test_commands_and_the_process_that_keeps_the_container_are_never_the_same_user() -> None:
    for uid in (0, 1, 1000, 65531, 65532, 65534):
        assert create_body.keeper(f"{uid}:5").split(":")[0] not in ("0", str(uid))


# ---- the seccomp profile


def filtered(profile: str, name: str, args: dict[int, int]) -> str:
    """Return the answer of a seccomp profile to a call: ALLOW or an error number, and assert that it is unambiguous."""
    rules, otherwise = _rules(profile)
    answers = set()
    for rule in rules.get(name, ()):
        for arg in rule.get("args", ()):
            value, first = args.get(arg["index"], 0), arg["value"]
            held = {
                "SCMP_CMP_MASKED_EQ": value & first == arg.get("valueTwo"),
                "SCMP_CMP_EQ": value == first,
                "SCMP_CMP_LT": value < first,
                "SCMP_CMP_GT": value > first,
            }[arg["op"]]
            if not held:
                break
        else:
            answers.add("ALLOW" if rule["action"] == "SCMP_ACT_ALLOW" else str(rule["errnoRet"]))
    assert answers == {"ALLOW"} or "ALLOW" not in answers, (name, args, answers)
    return max(answers) if answers else otherwise


@cache
def _rules(profile: str) -> tuple[dict[str, list[dict[str, Any]]], str]:
    """By the name of a call, and what holds for all others."""
    told = json.loads(profile)
    found: dict[str, list[dict[str, Any]]] = {}
    for rule in told["syscalls"]:
        for name in rule["names"]:
            found.setdefault(name, []).append(rule)
    return found, str(told["defaultErrnoRet"])


LOOK = syscalls.profile(Rights.READ_ONLY, unix=False, trace=False, machine="x86_64")
WORK = syscalls.profile(Rights.WORKSPACE_WRITE, unix=False, trace=False, machine="x86_64")
UNIX = syscalls.profile(Rights.WORKSPACE_WRITE, unix=True, trace=True, machine="aarch64")

# fmt: off
CALLS = [
    ("read",         {},                          "ALLOW", "by name"),
    ("mount",        {},                          "1",     "refused by name"),
    ("clone3",       {},                          "38",    "its flags cannot be seen: libc uses clone"),
    ("no_such_call", {},                          "38",    "what is not listed is not there"),
    ("clone",        {0: 0x01200011},             "ALLOW", "fork"),
    ("clone",        {0: 0x003d0f00},             "ALLOW", "a thread"),
    ("clone",        {0: 0x10000011},             "1",     "a user namespace"),
    ("clone",        {0: 0x40000011},             "1",     "a network namespace"),
    ("ioctl",        {1: 0x5401},                 "ALLOW", "TCGETS"),
    ("ioctl",        {1: 0x5412},                 "1",     "TIOCSTI"),
    ("ioctl",        {1: 0xdead00005412},         "1",     "the kernel looks at the low word alone"),
    ("ioctl",        {1: 0x541c},                 "1",     "TIOCLINUX"),
    ("chmod",        {1: 0o755},                  "ALLOW", "ordinary modes"),
    ("chmod",        {1: 0o4755},                 "1",     "setuid"),
    ("fchmodat",     {2: 0o2755},                 "1",     "setgid"),
    ("openat",       {2: 0o101, 3: 0o644},        "ALLOW", "a new file"),
    ("openat",       {2: 0o101, 3: 0o4644},       "1",     "a new setuid file"),
    ("openat",       {2: 0, 3: 0o4644},           "ALLOW", "the mode is garbage without O_CREAT"),
    ("mknod",        {1: 0o100644},               "ALLOW", "a plain file"),
    ("mknod",        {1: 0o010644},               "ALLOW", "a pipe"),
    ("mknod",        {1: 0o020644},               "1",     "a character device"),
    ("mknodat",      {2: 0o060644},               "1",     "a block device"),
    ("prlimit64",    {0: 0},                      "ALLOW", "its own limits"),
    ("prlimit64",    {0: 1},                      "1",     "another process's"),
    ("personality",  {0: 0xffffffff},             "ALLOW", "asking"),
    ("personality",  {0: 0x0020000},              "1",     "UNAME26"),
    ("memfd_create", {1: 0x9},                    "ALLOW", "sealed against running"),
    ("memfd_create", {1: 0x1},                    "38",    "not sealed: programs take a file instead"),
    ("memfd_create", {1: 0x18},                   "1",     "to be run"),
    ("socketpair",   {0: 1, 1: 1},                "ALLOW", "a pair of streams reaches nobody"),
    ("socketpair",   {0: 1, 1: 0o2000005},        "ALLOW", "a pair of packets, close-on-exec"),
    ("socketpair",   {0: 1, 1: 2},                "94",    "a pair of datagrams, which can send to any address"),
    ("socketpair",   {0: 1, 1: 0xdead00000003},   "94",    "the same by its other name, dirty"),
    ("socketpair",   {0: 2, 1: 1},                "97",    "another family"),
    ("ptrace",       {},                          "1",     "tracing"),
    ("socket",       {0: 2},                      "ALLOW", "IPv4 on a loopback of its own"),
    ("socket",       {0: 10},                     "ALLOW", "IPv6"),
    ("socket",       {0: 1},                      "97",    "AF_UNIX"),
    ("socket",       {0: 16},                     "97",    "netlink"),
    ("socket",       {0: 5},                      "97",    "between the two"),
    ("socket",       {0: 1 << 32 | 2},            "97",    "garbage above is no family"),
]
# fmt: on


@pytest.mark.parametrize(("name", "args", "answer", "why"), CALLS)
def test_the_profile_answers_as_the_table_says(name: str, args: dict[int, int], answer: str, why: str) -> None:
    assert filtered(WORK, name, args) == answer, why


def test_a_reader_gets_no_socket_and_who_asks_for_unix_gets_that() -> None:
    assert {filtered(LOOK, "socket", {0: family}) for family in range(50)} == {"97"}
    assert [family for family in range(50) if filtered(UNIX, "socket", {0: family}) == "ALLOW"] == [1, 2, 10]
    assert filtered(UNIX, "socketpair", {0: 1, 1: 2}) == "ALLOW"
    assert json.loads(UNIX)["architectures"] == ["SCMP_ARCH_AARCH64"]


@pytest.mark.threat("T153")
def test_a_container_may_trace_its_own_processes() -> None:
    for name in ("ptrace", "process_vm_readv", "process_vm_writev"):
        assert [filtered(each, name, {}) for each in (LOOK, WORK, UNIX)] == ["1", "1", "ALLOW"]
    for name in ("pidfd_getfd", "process_madvise", "kcmp"):
        assert filtered(UNIX, name, {}) == "1"


@pytest.mark.threat("T10")
def test_law_allowed_is_exactly_what_is_not_refused() -> None:
    """For every call that is looked at by argument: one answer, and it is the table's, for words near every edge."""
    table = tomllib.loads((ROOT / "profiles" / "seccomp" / "linux.toml").read_text())
    chance = random.Random(7)
    entries = [*table["argument"], table["pairs"]]
    for name in sorted({name for entry in entries for name in entry["calls"]}):
        mine = [entry for entry in entries if name in entry["calls"]]
        edges = {0, 1, 2**32 - 1, 2**64 - 1, *(1 << bit for bit in range(34))}
        edges |= {value for entry in mine for value in (*entry.get("values", ()), *entry.get("not_in", ()))}
        edges |= {entry["any_bit"] for entry in mine if "any_bit" in entry}
        pool = sorted(edges | {chance.getrandbits(40) for _ in range(40)})
        for _ in range(1500):
            args = {index: chance.choice(pool) ^ chance.choice(pool) & 0o7777 for index in range(4)}
            refused = any(matches(entry, args) for entry in mine)
            assert (filtered(WORK, name, args) != "ALLOW") == refused, (name, args)


def matches(entry: dict[str, object], args: dict[int, int]) -> bool:
    """Return True if the row of the table refuses these arguments."""
    value = args[entry["arg"]]  # type: ignore[index]  # TOML
    other = entry.get("only_with")
    if isinstance(other, dict) and args[other["arg"]] & other["mask"] != other["value"]:
        return False
    if "any_bit" in entry:
        return bool(value & entry["any_bit"])  # type: ignore[operator]  # TOML
    if "mask" in entry:
        return value & entry["mask"] in entry["values"]  # type: ignore[operator]  # TOML
    if "greater" in entry:
        return value > entry["greater"]  # type: ignore[operator]  # TOML
    return value not in entry["not_in"]  # type: ignore[operator]  # TOML


# ---- what is refused beforehand


@pytest.mark.parametrize(
    ("name", "pinned"),
    [
        ("debian@sha256:" + "a" * 64, True),
        ("registry:5000/a/b:tag@sha256:" + "0" * 64, True),
        ("sha256:" + "f" * 64, True),
        ("debian", False),
        ("debian:12", False),
        ("debian@sha256:" + "a" * 63, False),
        ("debian@md5:" + "a" * 64, False),
        ("sha256:" + "g" * 64, False),
        ("a" * 64, False),
        ("", False),
    ],
)
@pytest.mark.threat("T60")
def test_only_a_digest_pins_an_image(name: str, pinned: bool) -> None:
    assert is_pinned(name) is pinned


def listening(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    return made


@pytest.mark.threat("T58")
def test_no_way_to_a_daemon_is_given_to_a_container(tmp_path: Path) -> None:
    run, work, other = tmp_path / "run", tmp_path / "workspace-write", tmp_path / "other"
    for folder in (run, work / "deep", other):
        folder.mkdir(parents=True)
    path = run / "d.sock"
    (tmp_path / "to-run").symlink_to("run")
    with listening(path):
        assert refused(terms(workspace=str(work)), path) == ""
        for told in (
            {"workspace": str(tmp_path)},
            {"workspace": str(run)},
            {"workspace": str(tmp_path / "to-run")},
            {"read": (str(run),)},
            {"read": (str(tmp_path / "to-run" / "d.sock"),)},
            {"write": (str(path),)},
        ):
            assert "daemon" in refused(terms(**{"workspace": str(work), **told}), path), told
        (work / "deep" / "other-name").hardlink_to(path)
        assert "other-name" in refused(terms(workspace=str(work)), path)
        assert refused(terms(workspace=str(other)), path) == "", "a hard link elsewhere says nothing about this folder"
    assert "devices" in refused(terms(workspace=str(other), write=("/dev/null",)), path)


def refused(of: Terms, path: Path) -> str:
    try:
        mount_guard.refuse_daemons(of, (str(path), "/nowhere/docker.sock"))
    except SandboxUnavailable as error:
        return error.problem.why
    return ""


def test_where_the_daemon_is_looked_for(tmp_path: Path) -> None:
    path, config = tmp_path / "d.sock", tmp_path / "config"
    with listening(path):
        assert find_socket(str(path), {}) == str(path)
        assert find_socket("", {"DOCKER_HOST": f"unix://{path}"}) == str(path)
        assert find_socket(str(path), {"DOCKER_HOST": "unix:///nowhere"}) == str(path), "the configuration comes first"
        assert find_socket("", {"DOCKER_CONFIG": str(config), "DOCKER_HOST": f"unix://{path}"}) == str(path)
        key = hashlib.sha256(b"mine").hexdigest()
        meta = config / "contexts" / "meta" / key
        meta.mkdir(parents=True)
        (meta / "meta.json").write_text(json.dumps({"Endpoints": {"docker": {"Host": f"unix://{path}"}}}))
        assert find_socket("", {"DOCKER_CONFIG": str(config), "DOCKER_CONTEXT": "mine"}) == str(path)
        (config / "config.json").write_text(json.dumps({"currentContext": "mine"}))
        assert find_socket("", {"DOCKER_CONFIG": str(config)}) == str(path)
        (meta / "meta.json").write_text("{")
        assert "context" in unavailable({"DOCKER_CONFIG": str(config)})
    for host in ("tcp://127.0.0.1:2375", "ssh://user@host"):
        assert "cannot be used" in unavailable({"DOCKER_HOST": host}), "workspaces are on this machine"
    assert "no container daemon at" in unavailable({"DOCKER_HOST": f"unix://{tmp_path}/none"})
    assert "no container daemon at" in unavailable({"DOCKER_HOST": str(tmp_path)}), "a folder is no socket"


def unavailable(environ: dict[str, str]) -> str:
    with pytest.raises(SandboxUnavailable) as caught:
        find_socket("", environ)
    assert caught.value.problem.fix
    return caught.value.problem.what


# ---- what the canary's words prove

HELD = """set HOME
is CapInh: 0000000000000000
is CapPrm: 0000000000000000
is CapEff: 0000000000000000
is CapBnd: 0000000000000000
is CapAmb: 0000000000000000
is NoNewPrivs: 1
is Seccomp: 2
is Uid: 1000 1000 1000 1000
is Gid: 1000 1000 1000 1000
mount 1 0 0:1 / / ro,relatime - overlay overlay rw
mount 2 1 8:1 /p /home/u/p rw - ext4 d rw
mount 3 2 8:1 /p/.git/config /home/u/p/.git/config ro - ext4 d rw
mount 4 1 0:3 / /home/u rw - tmpfs t rw
most pids 108
most memory 1073741824
most open-files 4096
most cpu 600
hidden 1
filter 1
namespaces 1
mounts 1
over 1
"""
MOUNTS = [
    {"Source": path, "Target": path, "ReadOnly": locked}
    for path, locked in (("/home/u/p", False), ("/home/u/p/.git/config", True))
]
REQUEST: dict[str, object] = {"HostConfig": {"Mounts": MOUNTS, "Tmpfs": {"/home/u": "rw,exec"}, "PidsLimit": 108}}
ASKED = (terms().limits, "1000:1000", REQUEST, ("HOME",))

# fmt: off
BROKEN = [
    # what is said instead, what it breaks, why
    ("is CapBnd: 0000000000000000", "is CapBnd: 0000000000000100", "capabilities", "one that could be gained"),
    ("is NoNewPrivs: 1", "is NoNewPrivs: 0", "privileges", "setuid programs work"),
    ("is Seccomp: 2", "is Seccomp: 0", "seccomp", "a daemon that ignores the profile"),
    ("is Uid: 1000 1000 1000 1000", "is Uid: 1000 0 0 0", "user", "another user"),
    ("set HOME", "set AWS_SECRET_ACCESS_KEY", "variables", "the image's variables"),
    ("/ / ro,", "/ / rw,", "mounted", "a root that can be written"),
    ("/p/.git/config /home/u/p/.git/config ro", "/p/.git/config /home/u/p/.git/config rw", "mounted", "a lock that is none"),
    ("8:1 /p/.git/config ", "8:1 /etc/shadow ", "mounted", "a name that was swapped for a link outside"),
    ("8:1 /p/.git/config ", "8:2 /p/.git/config ", "mounted", "likewise, on another file system"),
    ("/home/u/p/.git/config ro", "/home/u/p/elsewhere ro", "mounted", "a mount point that was swapped"),
    ("mount 4 1 0:3 / /home/u rw", "x", "mounted", "a file system that is not there"),
    ("hidden 1", "hidden 1\nhidden 0", "hidden", "one failure is enough"),
    ("over 1", "", "mounted", "a canary that was cut short"),
]
# fmt: on


def test_a_canary_that_got_nowhere() -> None:
    checks, *missing = canary.judge(HELD, *ASKED)
    assert all(checks.values()), checks
    assert missing == [(), ()]


@pytest.mark.threat("T60")
@pytest.mark.parametrize(("said", "instead", "broken", "why"), BROKEN)
def test_a_canary_that_got_out(said: str, instead: str, broken: str, why: str) -> None:
    assert said in HELD
    checks, *_ = canary.judge(HELD.replace(said, instead), *ASKED)
    assert not checks[broken], why
    assert broken in canary.WORDS


@pytest.mark.parametrize(
    ("said", "instead", "words"),
    [
        ("most pids 108\n", "", "`pids` is not enforced"),
        ("most pids 108", "most pids max", "`pids` is not enforced"),
        ("most memory 1073741824", "most memory 9223372036854771712", "`memory` is not enforced"),
        ("most cpu 600", "most cpu unlimited", "`cpu` is not enforced"),
        ("namespaces 1\n", "", "not tested"),
    ],
)
def test_a_limit_that_a_daemon_does_not_keep_is_said(said: str, instead: str, words: str) -> None:
    _, lost, gaps = canary.judge(HELD.replace(said, instead), *ASKED)
    missing = gaps if words == "not tested" else lost
    assert [each for each in missing if words in each], missing


def test_the_documents_list_what_a_container_lacks() -> None:
    told = (ROOT / "docs/security/limits.md").read_text("utf-8")
    assert [lack for lack in LACKS if f"- {lack}\n" not in told] == []
