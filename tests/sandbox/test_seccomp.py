"""Tests of the two seccomp programs: evaluated instruction by instruction, and the same calls made in a real sandbox."""

import errno
import os
import platform
import shutil
import struct
from pathlib import Path

import pyseccomp
import pytest

import profiles
from policy.model.verdict import Rights
from sandbox.linux import seccomp
from tests.support.sandbox_bench import Bench, row_of_many

TEXT = (Path(profiles.__file__).parent / "seccomp" / "linux.toml").read_text(encoding="utf-8")
ARCH = {"X86_64": 0xC000003E, "AARCH64": 0xC00000B7, "X86": 0x40000003}  # linux/audit.h
ALLOW, KILL, ENOSYS, EPERM = "allow", "kill", "ENOSYS", "EPERM"


def run(program: bytes, arch: int, number: int, arguments: tuple[int, ...]) -> int:
    """Classic BPF as seccomp(2) runs it: loads, jumps, `and`, return. The action that it returns."""
    words = [value & 0xFFFFFFFFFFFFFFFF for value in (*arguments, *(0,) * (6 - len(arguments)))]
    data = struct.pack("=IIQ6Q", number & 0xFFFFFFFF, arch, 0, *words)
    steps = list(struct.iter_unpack("=HBBI", program))
    at, value = 0, 0
    while True:
        code, yes, no, k = steps[at]
        at += 1
        match code:
            case 0x20:
                value = struct.unpack_from("=I", data, k)[0]
            case 0x54:
                value &= k
            case 0x05:
                at += k
            case 0x15:
                at += yes if value == k else no
            case 0x25:
                at += yes if value > k else no
            case 0x35:
                at += yes if value >= k else no
            case 0x06:
                return int(k)
            case _:
                raise AssertionError(hex(code))


def judge(programs: tuple[bytes, bytes], arch: int, number: int, arguments: tuple[int, ...]) -> str:
    """The strictest of all answers, in words (SECCOMP_RET_* of linux/seccomp.h)."""
    answers = [run(program, arch, number, arguments) for program in programs]
    if any(answer & 0xFFFF0000 in (0, 0x80000000) for answer in answers):
        return KILL
    refused = [answer & 0xFFFF for answer in answers if answer & 0xFFFF0000 == 0x00050000]
    assert all(answer in (0x7FFF0000, *(0x50000 | number for number in refused)) for answer in answers)
    return errno.errorcode[refused[-1]] if refused else ALLOW


DIRTY = 0xDEAD_BEEF_0000_0000  # the upper half of a register, which the kernel ignores for an int

# fmt: off
CALLS: list[tuple[str, tuple[int, ...], str, str]] = [
    ("read",        (0, 0, 1),                        ALLOW,    "ordinary"),
    ("mount",       (),                               EPERM,    "named and refused"),
    ("clone3",      (),                               ENOSYS,   "its flags lie in memory"),
    ("openat2",     (),                               ENOSYS,   "so do its own"),
    ("memfd_secret", (),                              ENOSYS,   "on no list"),
    ("vhangup",     (),                               EPERM,    "named and refused"),
    ("clone",       (17,),                            ALLOW,    "fork"),
    ("clone",       (0x3D0F00,),                      ALLOW,    "a thread"),
    ("clone",       (0x10000011,),                    EPERM,    "a user namespace"),
    ("clone",       (DIRTY | 0x10000011,),            EPERM,    "whatever the upper half holds"),
    *(("clone",     (bit | 17,),                      EPERM,    f"a namespace {bit:#x}")
      for bit in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x20000000, 0x40000000)),
    ("ioctl",       (0, 0x5401),                      ALLOW,    "is it a terminal"),
    ("ioctl",       (0, 0x5412),                      EPERM,    "TIOCSTI"),
    ("ioctl",       (0, DIRTY | 0x5412),              EPERM,    "TIOCSTI with a dirty upper half"),
    ("ioctl",       (0, 0x541C),                      EPERM,    "TIOCLINUX"),
    ("ioctl",       (0, 0x40086602),                  EPERM,    "FS_IOC_SETFLAGS"),
    ("ioctl",       (0, DIRTY | 0x40086602),          EPERM,    "FS_IOC_SETFLAGS, dirty"),
    ("ioctl",       (0, 0x80086601),                  ALLOW,    "FS_IOC_GETFLAGS"),
    ("ioctl",       (0, 0xC020660B),                  "ENOTSUP", "FS_IOC_FIEMAP"),
    ("ioctl",       (0, 0x40049409),                  ALLOW,    "FICLONE"),
    ("ioctl",       (0, 0x4020940D),                  ALLOW,    "FICLONERANGE"),
    ("ioctl",       (0, 0xC0189436),                  ALLOW,    "FIDEDUPERANGE"),
    ("ioctl",       (0, 0x50009401),                  "ENOTTY", "BTRFS_IOC_SNAP_CREATE"),
    ("ioctl",       (0, 0x50009417),                  "ENOTTY", "BTRFS_IOC_SNAP_CREATE_V2"),
    ("ioctl",       (0, 0xD0009411),                  "ENOTTY", "BTRFS_IOC_TREE_SEARCH"),
    ("ioctl",       (0, 0xD000943E),                  "ENOTTY", "BTRFS_IOC_INO_LOOKUP_USER"),
    ("ioctl",       (0, 0x94C8),                      "ENOTTY", "a Btrfs call to come"),
    ("ioctl",       (0, 0xB701),                      "ENOTTY", "NS_GET_USERNS"),
    ("ioctl",       (0, 0xFF05),                      "ENOTTY", "PIDFD_GET_NET_NAMESPACE"),
    ("fcntl",       (0, 4),                           ALLOW,    "F_SETFL"),
    ("fcntl",       (0, 1024),                        EPERM,    "F_SETLEASE"),
    ("fcntl",       (0, 1030),                        ALLOW,    "F_DUPFD_CLOEXEC"),
    ("prctl",       (15,),                            ALLOW,    "PR_SET_NAME"),
    ("prctl",       (DIRTY | 15,),                    ALLOW,    "an int, so is its dirty self"),
    ("prctl",       (35,),                            ENOSYS,   "PR_SET_MM"),
    ("prctl",       (59,),                            ENOSYS,   "PR_SET_SYSCALL_USER_DISPATCH"),
    ("prctl",       (67,),                            ENOSYS,   "PR_SET_MEMORY_MERGE"),
    ("prctl",       (0x53564D41,),                    ALLOW,    "PR_SET_VMA: allocators name their memory"),
    ("chmod",       (0, 0o755),                       ALLOW,    "an ordinary mode"),
    ("chmod",       (0, 0o4755),                      EPERM,    "setuid"),
    ("fchmodat2",   (0, 0, 0o2755),                   EPERM,    "setgid by the newest call"),
    ("openat",      (0, 0, 0o100, 0o4755),            EPERM,    "setuid by O_CREAT"),
    ("openat",      (0, 0, 0o20200000, 0o4755),       EPERM,    "setuid by O_TMPFILE"),
    ("openat",      (0, 0, 0, 0o7777),                ALLOW,    "without either no mode is read"),
    ("openat",      (0, 0, 0o20200000, 0o644),        ALLOW,    "an ordinary file without a name"),
    ("mknodat",     (0, 0, 0o100644),                 ALLOW,    "an ordinary file"),
    ("mknodat",     (0, 0, 0o10644),                  ALLOW,    "a pipe"),
    ("mknodat",     (0, 0, 0o60600),                  EPERM,    "a block device"),
    ("mknodat",     (0, 0, DIRTY | 0o20600),          EPERM,    "a character device, dirty"),
    ("prlimit64",   (0, 7),                           ALLOW,    "of oneself"),
    ("prlimit64",   (1, 7),                           EPERM,    "of another"),
    ("personality", (0xFFFFFFFF,),                    ALLOW,    "a question"),
    ("personality", (0,),                             ALLOW,    "plain Linux"),
    ("personality", (0x40000,),                       ALLOW,    "fixed addresses, as sanitizers want"),
    ("personality", (0x400000,),                      EPERM,    "READ_IMPLIES_EXEC"),
    ("personality", (0x440000,),                      EPERM,    "READ_IMPLIES_EXEC with another bit"),
    ("personality", (0x80400000,),                    EPERM,    "READ_IMPLIES_EXEC with the top bit"),
    ("personality", (0x80000000,),                    EPERM,    "the top bit"),
    ("personality", (0xFFFFFFFE,),                    EPERM,    "all but one"),
    ("personality", (DIRTY | 8,),                     EPERM,    "32-bit Linux, dirty"),
    ("memfd_create", (0, 0x10),                       EPERM,    "MFD_EXEC"),
    ("socketpair",  (1, 1),                           ALLOW,    "a pair of streams reaches nobody"),
    ("socketpair",  (1, 0o2000005),                   ALLOW,    "a pair of packets, close-on-exec"),
    ("socketpair",  (1, 2),                           "ESOCKTNOSUPPORT", "a pair of datagrams sends to any address"),
    ("socketpair",  (1, DIRTY | 0o2000003),           "ESOCKTNOSUPPORT", "SOCK_RAW is a datagram here, dirty"),
    ("socketpair",  (2, 1),                           "EAFNOSUPPORT", "no other pair"),
    ("ptrace",      (16, 7),                          EPERM,    "tracing, where it was not allowed"),
    ("socket",      (2, 1, 0),                        ALLOW,    "TCP"),
    ("socket",      (10, 0o2000001, 6),               ALLOW,    "TCP, close-on-exec"),
    ("socket",      (2, 2, 17),                       ALLOW,    "UDP"),
    ("socket",      (1, 1, 0),                        "EAFNOSUPPORT", "AF_UNIX"),
    ("socket",      (16, 2, 0),                       "EAFNOSUPPORT", "netlink"),
    ("socket",      (17, 2, 0),                       "EAFNOSUPPORT", "packets"),
    ("socket",      (38, 5, 0),                       "EAFNOSUPPORT", "AF_ALG"),
    ("socket",      (40, 1, 0),                       "EAFNOSUPPORT", "AF_VSOCK"),
    ("socket",      (1 << 32 | 2, 1, 0),              "EAFNOSUPPORT", "a dirty family is none"),
    ("socket",      (2, 3, 1),                        EPERM,    "raw"),
    ("socket",      (2, 1, 132),                      "EPROTONOSUPPORT", "SCTP"),
    ("socket",      (2, 1, 262),                      "EPROTONOSUPPORT", "MPTCP"),
    ("setsockopt",  (3, 1, 2),                        ALLOW,    "SO_REUSEADDR"),
    ("setsockopt",  (3, 1, 26),                       EPERM,    "SO_ATTACH_FILTER"),
    ("setsockopt",  (3, 6, 26),                       ALLOW,    "the same number of TCP is another option"),
    ("setsockopt",  (3, DIRTY | 1, DIRTY | 50),       EPERM,    "SO_ATTACH_BPF, dirty"),
    ("setsockopt",  (3, 6, 31),                       "ENOPROTOOPT", "TCP_ULP"),
    ("sched_setscheduler", (0, 3),                    ALLOW,    "batch"),
    ("sched_setscheduler", (1, 5),                    EPERM,    "the helper gets the processor last"),
    ("sched_setaffinity",  (DIRTY | 1, 8),            EPERM,    "the helper gets one processor, dirty"),
    ("sched_setaffinity",  (0, 8),                    ALLOW,    "one's own processors"),
    ("sched_setattr",      (1,),                      EPERM,    "the helper's part by the newer call"),
    ("setpriority",        (0, 1, 19),                EPERM,    "the helper is nice"),
    ("setpriority",        (1, 1, 19),                EPERM,    "its group is"),
    ("setpriority",        (2, 0, 19),                EPERM,    "all processes of the user are"),
    ("setpriority",        (0, 0, 19),                ALLOW,    "oneself"),
    ("setpriority",        (0, 77, 19),               ALLOW,    "a child"),
    ("ioprio_set",         (1, 1, 0),                 EPERM,    "the helper's share of the disk"),
    ("ioprio_set",         (3, 0, 0),                 EPERM,    "that of all processes of the user"),
    ("ioprio_set",         (1, 0, 0),                 ALLOW,    "one's own"),
    ("sched_setscheduler", (0, 0x40000001),           EPERM,    "real-time, reset on fork"),
    ("seccomp",     (1, 0),                           ALLOW,    "one may tighten"),
    ("seccomp",     (1, 8),                           EPERM,    "a listener"),
]
# fmt: on


def number_of(name: str, machine: str) -> int:
    import tomllib

    given: dict[str, int] = tomllib.loads(TEXT)["numbers"]
    try:
        number = int(pyseccomp.resolve_syscall(getattr(pyseccomp.Arch, machine), name))
    except (ValueError, OSError):
        number = -1
    return given.get(name, -1) if number == -1 else number


@pytest.fixture(scope="module", params=["X86_64", "AARCH64"])
def built(request: pytest.FixtureRequest) -> tuple[str, tuple[bytes, bytes]]:
    here = {"x86_64": "X86_64", "aarch64": "AARCH64"}[platform.machine()]
    machine: str = request.param
    other = None if machine == here else machine
    return machine, seccomp._build(TEXT, Rights.WORKSPACE_WRITE, False, True, other)


@pytest.mark.threat("T10")
@pytest.mark.parametrize(("name", "arguments", "expected", "why"), CALLS, ids=[f"{r[0]}: {r[3]}" for r in CALLS])
def test_a_call_is_answered(
    built: tuple[str, tuple[bytes, bytes]], name: str, arguments: tuple[int, ...], expected: str, why: str
) -> None:
    machine, programs = built
    number = number_of(name, machine)
    if number < 0:
        pytest.skip(f"{machine} has no {name}")
    assert judge(programs, ARCH[machine], number, arguments) == expected


@pytest.mark.threat("T10")
def test_what_is_younger_than_the_table_does_not_exist(built: tuple[str, tuple[bytes, bytes]]) -> None:
    machine, programs = built
    known = {452, 453, 454, 455, 456}
    if machine.lower() == platform.machine():
        known.add(462)  # by number, which libseccomp translates for no other machine
    for number in range(457, 1000):
        expected = ALLOW if number in known else ENOSYS
        assert judge(programs, ARCH[machine], number, ()) == expected, number
    for number in (447, 448, 450, 451):  # memfd_secret, process_mrelease, set_mempolicy_home_node, cachestat
        assert judge(programs, ARCH[machine], number, ()) == ENOSYS, number


@pytest.mark.threat("T10")
def test_another_architecture_is_killed(built: tuple[str, tuple[bytes, bytes]]) -> None:
    machine, programs = built
    for name, arch in ARCH.items():
        if name != machine:
            assert judge(programs, arch, 1, ()) == KILL, name
    if machine == "X86_64":
        for number in (0, 39, 512, 547):  # x32: the same architecture, with a bit of its own
            assert judge(programs, ARCH[machine], 0x40000000 | number, ()) == KILL, number


@pytest.mark.threat("T10")
def test_every_name_of_the_table_is_a_call() -> None:
    """A name with a slip of the pen would protect nothing."""
    import tomllib

    table = tomllib.loads(TEXT)
    names = {
        *table["allow"],
        *table["refuse"],
        *table["only"],
        *table["tracing"]["calls"],
        *(n for entry in (*table["argument"], *table["stacked"]) for n in entry["calls"]),
    }
    gone = {"vserver"}  # its number is kept for nobody
    assert {name for name in names - gone if number_of(name, "X86_64") < 0} == set()
    lists = (table["allow"], table["refuse"], table["only"], table["tracing"]["calls"])
    assert sum(len({*each}) for each in lists) == len({name for each in lists for name in each})


@pytest.mark.threat("T10")
def test_the_right_sets_differ_in_sockets_and_tracing_alone(built: tuple[str, tuple[bytes, bytes]]) -> None:
    machine, work = built
    here = {"x86_64": "X86_64", "aarch64": "AARCH64"}[platform.machine()]
    other = None if machine == here else machine
    look = seccomp._build(TEXT, Rights.READ_ONLY, False, True, other)
    unix = seccomp._build(TEXT, Rights.WORKSPACE_WRITE, True, True, other, trace=True)
    socket = number_of("socket", machine)
    for family in range(50):
        answers = [judge(each, ARCH[machine], socket, (family, 1, 0)) == ALLOW for each in (look, work, unix)]
        assert answers == [False, family in (2, 10), family in (1, 2, 10)], family
    for name, arguments in (("ptrace", (16, 7)), ("process_vm_readv", ()), ("socketpair", (1, 2))):
        number = number_of(name, machine)
        answers = [judge(each, ARCH[machine], number, arguments) == ALLOW for each in (look, work, unix)]
        assert answers == [False, False, True], name


# ---- the same for real

# fmt: off
REAL = [
    # what, code that sets `r` to the result of a call, the error it must give
    ("statmount",                 "r = call(457, 0, 0, 0, 0)",                               ENOSYS),
    ("listmount",                 "r = call(458, 0, 0, 0, 0)",                               ENOSYS),
    ("lsm_set_self_attr",         "r = call(460, 0, 0, 0, 0)",                               ENOSYS),
    ("setxattrat",                "r = call(463, -100, b'file.txt', 0, b'user.a', 0, 0)",    ENOSYS),
    ("open_tree_attr",            "r = call(467, -100, b'/', 1, 0, 0)",                      ENOSYS),
    ("file_setattr",              "r = call(469, -100, b'file.txt', 0, 0, 0)",               ENOSYS),
    ("memfd_secret",              "r = call(447, 0)",                                        ENOSYS),
    ("process_mrelease",          "r = call(448, 0, 0)",                                     ENOSYS),
    ("fchmodat2 setuid",          "open('/tmp/q', 'w').close(); r = call(452, -100, b'/tmp/q', 0o4755, 0)", EPERM),
    ("O_TMPFILE setuid",          "r = libc.open(b'.', 0o20200002, 0o4755)",                 EPERM),
    ("an immutable file",         "r = libc.ioctl(3, 0x40086602, ctypes.byref(ctypes.c_int(0x10)))", EPERM),
    ("a file that is verified",   "r = libc.ioctl(3, 0x40806685, ctypes.create_string_buffer(128))", EPERM),
    ("a project number",          "r = libc.ioctl(3, 0x401c5820, ctypes.create_string_buffer(28))", EPERM),
    ("where a file lies",         "r = libc.ioctl(3, ctypes.c_ulong(0xc020660b), ctypes.create_string_buffer(64))", "ENOTSUP"),
    ("trusted.*",                 "r = libc.setxattr(b'file.txt', b'trusted.x', b'1', 1, 0)", EPERM),
    ("security.capability",       "r = libc.setxattr(b'file.txt', b'security.capability', bytes([1, 0, 0, 2]) + bytes(16), 20, 0)", EPERM),
    ("PR_SET_MM",                 "r = libc.prctl(35, 1, 0, 0, 0)",                          ENOSYS),
    ("a lease",                   "r = libc.fcntl(3, 1024, 1)",                              EPERM),
    ("real-time",                 "r = libc.sched_setscheduler(0, 1, ctypes.byref(ctypes.c_int(1)))", EPERM),
    ("real-time by its struct",   "r = call(314, 0, struct.pack('IIQiIQQQ', 48, 1, 0, 0, 1, 0, 0, 0), 0)", EPERM),
    ("READ_IMPLIES_EXEC",         "r = libc.personality(0x440000)",                          EPERM),
    ("a listener of seccomp",     "r = call(317, 1, 8, 0)",                                  EPERM),
    ("a raw socket",              "r = libc.socket(2, 3, 1)",                                EPERM),
    ("SCTP",                      "r = libc.socket(2, 1, 132)",                              "EPROTONOSUPPORT"),
    ("SO_ATTACH_FILTER",          "r = libc.setsockopt(libc.socket(2, 2, 0), 1, 26, b'\\1' + bytes(15), 16)", EPERM),
    ("pidfd_getfd",               "r = call(438, libc.pidfd_open(os.getpid(), 0), 0, 0)",    EPERM),
    ("kcmp",                      "r = call(312, 1, 1, 0, 0, 0)",                            EPERM),
    ("quotactl",                  "r = call(179, 0x800007, b'/dev/vda', 0, 0)",              EPERM),
    ("lower niceness",            "r = libc.setpriority(0, 0, -5)",                          "EACCES"),
]
# fmt: on


@pytest.mark.threat("T10")
@pytest.mark.threat("T11")
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers in the table are those of x86_64")
def test_the_kernel_gives_the_same_answers(bench: Bench) -> None:
    script = (
        "import ctypes, os, struct\nlibc = ctypes.CDLL(None, use_errno=True)\nlibc.syscall.restype = ctypes.c_long\n"
        "call = lambda *a: libc.syscall(*(ctypes.c_long(x) if isinstance(x, int) else x for x in a))\n"
        "assert os.open('file.txt', os.O_RDWR) == 3\n"
        f"for name, code in {[(name, code) for name, code, _ in REAL]!r}:\n"
        "    space = {'ctypes': ctypes, 'libc': libc, 'call': call, 'os': os, 'struct': struct}\n    exec(code, space)\n"
        "    print(name, ctypes.get_errno() if space['r'] < 0 else 'done', sep='|')\n"
    )
    (bench.workspace / "asks.py").write_text(script)
    bench.own(bench.workspace / "asks.py")
    answer = bench.run("/usr/bin/python3 asks.py")
    told = dict(line.split("|") for line in answer["out"].splitlines())
    assert {name: errno.errorcode.get(int(what), what) if what.isdigit() else what for name, what in told.items()} == {
        name: expected for name, _, expected in REAL
    }, answer


@pytest.mark.threat("T10")
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="other machines have no 32-bit call gate of this kind")
def test_the_32_bit_gate_and_x32_are_deadly(bench: Bench) -> None:
    (bench.workspace / "gate.c").write_text(
        "#include <unistd.h>\n#include <sys/syscall.h>\nint main(int n, char **v) {\n"
        '  long r; if (n > 1) r = syscall(0x40000000 | 39); else __asm__ volatile("int $0x80" : "=a"(r) : "a"(20));\n'
        "  return r > 0 ? 0 : 1; }\n"
    )
    bench.own(bench.workspace / "gate.c")
    assert bench.run("gcc -o /tmp/gate gate.c")["status"] == 0
    assert bench.run("/tmp/gate")["status"] == 159
    assert bench.run("/tmp/gate x32")["status"] == 159


# fmt: off
TOOLS = [
    ("node -e 'require(\"fs\").writeFileSync(\"/tmp/n\", \"1\"); new (require(\"worker_threads\").Worker)(\"1\", {eval: true})'", "node"),
    ("java -version 2>&1", "java"),
    ("sqlite3 /tmp/t.db 'create table a(b); insert into a values(1); select * from a'", "sqlite3"),
    ("python3 -c 'import threading, subprocess, ssl; subprocess.run([\"true\"]); threading.Thread(target=print).start()'", "python3"),
    ("printf 'int main(){return 0;}' > /tmp/x.c && gcc -O2 -o /tmp/x /tmp/x.c && /tmp/x && strip /tmp/x", "gcc"),
    ("git init -q /tmp/g && git -C /tmp/g -c user.name=n -c user.email=e commit -q --allow-empty -m m && git -C /tmp/g gc -q", "git"),
    ("cp -a --reflink=auto /usr/share/zoneinfo/Europe /tmp/z && tar cf /tmp/z.tar -C /tmp z && tar xpf /tmp/z.tar -C /tmp", "tar"),
    ("perl -e 'fork or exit 0; wait; print 1'", "perl"),
    ("setarch -R true", "setarch"),
    ("nice -n 5 true && ionice -c 3 true && taskset -c 0 true && timeout 5 true", "taskset"),
]
# fmt: on


@pytest.mark.parametrize(("script", "program"), TOOLS, ids=[program for _, program in TOOLS])
def test_programs_that_people_use_still_work(
    request: pytest.FixtureRequest, bench: Bench, script: str, program: str
) -> None:
    if shutil.which(program, path="/usr/local/bin:/usr/bin:/bin") is None:
        pytest.skip(f"{program} is not installed here")
    answer = row_of_many(request, bench)
    assert answer["status"] == 0, answer
