"""Escape attempts on the kernel: system calls that create new access, privileges, and settings of the machine."""

from tests.escapes.attempt import Attempt

A = Attempt
# The answers of a call that was let through although its arguments make no sense; a refused one says EPERM or ENOSYS.
THROUGH = "if call({call}) not in (-1, -38, -13): got({name!r})"
# fmt: off
ATTEMPTS = [
    A("userns", "kernel", "root over namespaces of our own", 'for flag in (0x10000000, 0x20000, 0x40000000, 0x20000000, 0x8000000, 0x4000000, 0x2000000, 0x80):\n  p = os.fork()\n  if p == 0: os._exit(0 if libc.unshare(flag) == 0 else 1)\n  if os.waitpid(p, 0)[1] == 0: got(hex(flag))'),
    A("userns-clone", "kernel", "the same by clone", 'p = call(56, 0x10000000 | 17, 0, 0, 0, 0)\nif p == 0: os._exit(0)\nif p > 0: got("clone")', x86=True),
    A("userns-clone3", "kernel", "the same by the call whose arguments no filter sees", 'a = (ctypes.c_ulong * 11)(0x10000000, 0, 0, 0, 17)\np = call(435, a, 88)\nif p == 0: os._exit(0)\nif p > 0: got("clone3")', x86=True),
    A("mount-tmpfs", "kernel", "a file system of our own", 'os.mkdir("m")\nif libc.mount(b"t", b"m", b"tmpfs", 0, b"") == 0: got("mount")'),
    A("mount-proc", "kernel", "a fresh view of processes", 'os.mkdir("m")\nif libc.mount(b"p", b"m", b"proc", 0, b"") == 0: got("proc")\nif libc.umount2(b"/proc", 2) == 0: got("umount /proc")'),
    A("pivot-root", "kernel", "another root", THROUGH.format(call='155, b".", b"."', name="pivot_root"), x86=True),
    A("ptrace-victim", "kernel", "control over another process", 'if libc.ptrace(16, W["victim"], 0, 0) == 0:\n  got("attach")\n  time.sleep(0.1)\n  libc.ptrace(17, W["victim"], 0, 0)\nif libc.ptrace(0x4206, W["victim"], 0, 0) == 0: got("seize")'),
    A("ptrace-helper", "kernel", "control over what confines us", 'pid = os.getppid()\nif libc.ptrace(0x4206, pid, 0, 0) == 0: got(pid)'),
    A("process-vm", "kernel", "the memory of another process by a call", '''
own = ctypes.create_string_buffer(4096)
for line in open(f"/proc/{W['victim']}/maps"):
    low = int(line.split("-")[0], 16)
    class vec(ctypes.Structure): _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]
    here, there = vec(ctypes.addressof(own), 64), vec(low, 64)
    if call(310, W["victim"], ctypes.byref(here), 1, ctypes.byref(there), 1, 0) > 0: got("read")
    break
''', x86=True),
    A("pidfd-getfd", "kernel", "a descriptor of another process", 'p = call(434, W["victim"], 0)\nif p >= 0:\n  for n in range(20):\n    f = call(438, p, n, 0)\n    if f >= 0: got(n)', x86=True),
    A("kcmp", "kernel", "what two processes share", 'if call(312, os.getpid(), W["victim"], 0, 0, 0) >= 0: got("kcmp")', x86=True),
    A("bpf", "kernel", "programs in the kernel", 'b = ctypes.create_string_buffer(struct.pack("IIII", 2, 4, 4, 1), 72)\nif call(321, 0, b, 72) >= 0: got("map")', x86=True),
    A("perf", "kernel", "counters of the whole machine", 'b = ctypes.create_string_buffer(struct.pack("IIQ", 1, 112, 0), 112)\nfor pid, cpu in ((0, -1), (-1, 0)):\n  if call(298, b, pid, cpu, -1, 0) >= 0: got(pid)', x86=True),
    A("io-uring", "kernel", "calls that no filter sees", 'if call(425, 2, ctypes.create_string_buffer(120)) >= 0: got("io_uring")'),
    A("userfaultfd", "kernel", "holding the kernel up in the middle", 'for flags in (0, 1, 0x80000):\n  if call(323, flags) >= 0: got(flags)', x86=True),
    A("keyctl", "kernel", "new keyrings", 'if call(250, 1, None) > 0: got("join session")', x86=True),
    A("kexec", "kernel", "another kernel", THROUGH.format(call="246, 0, 0, 0, 0x7fff0000", name="kexec_load"), x86=True),
    A("modules", "kernel", "code in the kernel", "\n".join(THROUGH.format(call=c, name=n) for c, n in (("175, 0, 0, b''", "init_module"), ("313, -1, b'', 0", "finit_module"), ("176, b'no_such_module', 0", "delete_module"))), x86=True),
    A("reboot", "kernel", "the end of the machine", THROUGH.format(call="169, 0, 0, 0, 0", name="reboot"), x86=True),
    A("swap", "kernel", "memory of the machine on a disk", 'if libc.swapon(b"/nonexistent", 0) and ctypes.get_errno() not in (1, 38): got("swapon")\nif libc.swapoff(b"/nonexistent") and ctypes.get_errno() not in (1, 38): got("swapoff")'),
    A("clock", "kernel", "the time of the machine", 'b = struct.pack("qq", -1, -1)\n' + THROUGH.format(call="227, 0, b", name="clock_settime") + "\n" + THROUGH.format(call="164, b, 0", name="settimeofday"), x86=True),
    A("accounting", "kernel", "a record of all processes", 'if call(163, b"/nonexistent/x") not in (-1, -38): got("acct")', x86=True),
    A("hostname", "kernel", "the name of the machine", 'libc.sethostname(b"taken", 5)'),
    A("io-ports", "kernel", "the hardware itself", 'if call(172, 3) == 0: got("iopl")\nif call(173, 0x80, 1, 1) == 0: got("ioperm")', x86=True),
    A("ldt", "kernel", "segments of our own", 'if call(154, 0, ctypes.create_string_buffer(16), 16) >= 0: got("modify_ldt")', x86=True),
    A("quota", "kernel", "quotas of a disk", THROUGH.format(call="179, 0x800000 << 8, b'/nonexistent', 0, 0", name="quotactl"), x86=True),
    A("move-pages", "kernel", "the memory of another process, moved", 'if call(279, W["victim"], 0, 0, 0, 0, 0) >= 0: got("move_pages")\nif call(256, W["victim"], 8, struct.pack("Q", 1), struct.pack("Q", 1)) >= 0: got("migrate_pages")', x86=True),
    A("seccomp-notify", "kernel", "answering for other processes' calls", 'p = call(434, os.getppid(), 0)\nif p >= 0 and call(438, p, 3, 0) >= 0: got("descriptor of the helper")', x86=True),
    A("secret-memory", "kernel", "memory that nobody else sees", 'if call(447, 0) >= 0: got("memfd_secret")', x86=True),
    A("memory-file", "kernel", "a program that lies in no file", 'f = os.memfd_create("x", 0)\nos.write(f, open("/bin/true", "rb").read())\np = os.fork()\nif p == 0:\n  try: os.execve(f"/proc/self/fd/{f}", ["true"], {})\n  finally: os._exit(9)\nif os.waitpid(p, 0)[1] == 0: got("ran")'),
    A("cpu-32", "kernel", "the calls of another architecture", r'''
#include <stdio.h>
int main(void) {
    long answer;
    printf("STARTED\n"); fflush(stdout);
    __asm__ volatile ("int $0x80" : "=a"(answer) : "a"(20L) : "memory");  /* getpid of i386 */
    if (answer > 0) printf("GOT i386\n");
    printf("TRIED\n");
    return 0;
}
''', "c", dies=True, x86=True),
    A("cpu-x32", "kernel", "the calls of a third one", 'if call(0x40000000 + 39) > 0: got("x32")', dies=True, x86=True),
    A("dirty-ioctl", "kernel", "a request with rubbish in its upper half", 'os.setsid() if os.getpid() != os.getsid(0) else None\nm, s = os.openpty()\nif libc.syscall(ctypes.c_long(16), ctypes.c_long(s), ctypes.c_ulong(0x7700005412), b"x") == 0: got("TIOCSTI")', x86=True),
    # ---- privileges
    A("capabilities", "privileges", "powers that are left", 'for line in open("/proc/self/status"):\n  if line.startswith("Cap") and int(line.split()[1], 16): got(line)'),
    A("ambient", "privileges", "powers for the programs we start", 'if libc.prctl(47, 2, 0, 0, 0) == 0 or libc.prctl(24, 0, 0, 0, 0) == 0: got("prctl")'),
    A("new-privileges", "privileges", "programs that start as root", 'if libc.prctl(39, 0, 0, 0, 0) != 1: got("no_new_privs is off")'),
    A("setuid-bit", "privileges", "a program that others would run as us", 'open("s", "w").close()\neach(lambda: os.chmod("s", 0o4755), lambda: os.close(os.open("t", os.O_CREAT, 0o4755)), lambda: os.mkdir("u", 0o2777))\nfor n in "stu":\n  if os.path.exists(n) and os.stat(n).st_mode & 0o6000: got(n)'),
    A("setuid-bit-new-call", "privileges", "the same by a newer call", 'open("s", "w").close()\nif call(452, -100, b"s", 0o6755, 0) == 0: got("fchmodat2")\nf = os.open("s", os.O_RDWR)\nif libc.fchmod(f, 0o4755) == 0: got("fchmod")', x86=True),
    A("file-capability", "privileges", "a program with powers", 'open("s", "w").close()\nos.setxattr("s", "security.capability", bytes.fromhex("0100000200200000000000000000000000000000"))\ngot("security.capability")'),
    A("device-node", "privileges", "a node for a device", 'each(lambda: os.mknod("n", 0o60600, os.makedev(7, 0)) or got("block"), lambda: os.mknod("c", 0o20600, os.makedev(1, 1)) or got("char"))'),
    A("become-another", "privileges", "another user", 'for uid in (0, 1, 1000, 65533):\n  p = os.fork()\n  if p == 0:\n    try: os.setgroups([4]); os.setresuid(uid, uid, uid); os._exit(0 if uid != W["uid"] else 1)\n    except OSError: os._exit(1)\n  if os.waitpid(p, 0)[1] == 0: got(uid)'),
    # ---- settings of the machine: opened for writing, and never written
    A("core-pattern", "settings", "a program that the kernel starts as root", 'each(*(lambda p=p: os.close(os.open(p, os.O_WRONLY)) or got(p) for p in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hotplug", "/proc/sys/fs/binfmt_misc/register", "/proc/sys/vm/drop_caches")))'),
    A("sysrq", "settings", "the panic button", 'each(*(lambda p=p: os.close(os.open(p, os.O_WRONLY)) or got(p) for p in ("/proc/sysrq-trigger", "/proc/sys/kernel/sysrq")))'),
    A("net-settings", "settings", "routing of the machine", 'os.close(os.open("/proc/sys/net/ipv4/ip_forward", os.O_WRONLY))\ngot("ip_forward")'),
    A("cgroup-release", "settings", "a program that a cgroup starts at its end", '''
for base, names, files in os.walk("/sys/fs/cgroup"):
    for name in ("release_agent", "devices.allow", "cgroup.procs", "memory.limit_in_bytes"):
        if name in files:
            try: os.close(os.open(os.path.join(base, name), os.O_WRONLY)); got(name)
            except OSError as error: print(error)
    break
for top in ["/sys/fs/cgroup", *("/sys/fs/cgroup/" + n for n in (os.listdir("/sys/fs/cgroup") if os.path.isdir("/sys/fs/cgroup") else []))]:
    try: os.close(os.open(os.path.join(top, "release_agent"), os.O_WRONLY)); got(top)
    except OSError: pass
if not os.path.isdir("/sys/fs/cgroup"): each(lambda: libc.mount(b"c", b".", b"cgroup", 0, b"memory") == 0 and got("mount"))
'''),
    A("sys-power", "settings", "sleep and hardware switches", 'each(*(lambda p=p: os.close(os.open(p, os.O_WRONLY)) or got(p) for p in ("/sys/power/state", "/sys/kernel/uevent_helper", "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/kernel/security/landlock", "/sys/module/kernel/parameters/panic")))'),
    A("debug-files", "settings", "windows that the kernel has for developers", 'each(*(lambda p=p: os.listdir(p) and got(p) for p in ("/sys/kernel/debug", "/sys/kernel/tracing", "/sys/fs/bpf", "/sys/kernel/security", "/sys/firmware/efi/efivars")))'),
    A("oom-score", "settings", "surviving when memory runs out", 'open("/proc/self/oom_score_adj", "w").write("-1000")\ngot("oom_score_adj")'),
    # ---- the terminal
    A("terminal-input", "terminal", "typing at the user's prompt", 'each(*(lambda n=n: [fcntl.ioctl(n, 0x5412, bytes([c])) for c in b"typed"] for n in (0, 1, 2)), lambda: [fcntl.ioctl(os.open("/dev/tty", os.O_RDWR), 0x5412, bytes([c])) for c in b"typed"])', tty=True),
    A("terminal-of-others", "terminal", "the terminals of others", 'each(*(lambda n=n: os.open("/dev/pts/" + n, os.O_RDWR | os.O_NOCTTY) and got(n) for n in os.listdir("/dev/pts") if n.isdigit()), lambda: os.open(W["pty"], os.O_RDWR | os.O_NOCTTY) and got("pty"), lambda: os.open("/dev/tty", os.O_RDWR) and got("tty"))', tty=True),
    A("console", "terminal", "the console of the machine", 'each(*(lambda p=p: os.open(p, os.O_RDWR | os.O_NOCTTY) and got(p) for p in ("/dev/console", "/dev/tty0", "/dev/tty1", "/dev/vcs", "/dev/ttyS0")))'),
]
# fmt: on
