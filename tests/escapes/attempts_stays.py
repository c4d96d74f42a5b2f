"""Escape attempts of processes that stay: attacks on what runs beside them (`stays`), and on their end (`outlives`).

A process prints `TRIED` when its attack runs, and goes on until it is ended. A program of kind `outlives` leaves
processes with the word `W["nap"]` in their command line, by which the test finds them from outside.
"""

from dataclasses import dataclass

from tests.escapes.attempt import Attempt

ALL = ("T1", "T2", "T3")
ROOTED = ("T1", "T2")  # the tiers with a file system and a PID namespace of their own
PLAIN = "cat file.txt"


@dataclass(frozen=True)
class Stay:
    """An attempt of a process that stays.

    Attributes:
        later: the script of a command that runs beside the process; it must print `hello` and nothing else.
        ended: the reason for which the sandbox must end the process; empty if it may go on.
        tiers: where the attempt runs.
        limits: the limits of the process.
        terminal: whether the process has a terminal.
        hosts: the hosts of the process.
    """

    name: str
    kind: str
    why: str
    program: str
    later: str = PLAIN
    ended: str = ""
    tiers: tuple[str, ...] = ALL
    limits: tuple[tuple[str, float], ...] = ()
    terminal: bool = False
    hosts: tuple[str, ...] = ()

    def source(self) -> str:
        """Return the program: that of an attempt, which goes on after its last line."""
        prepared = PREPARED + self.program.strip("\n")
        return Attempt(self.name, self.kind, self.why, prepared).source({}) + "while True: time.sleep(60)\n"


# `repeat` attacks in the background as long as the process lives, after one attack that has ended. `nap` is a program
# that does nothing and that the test can find. `apart` tells whether other processes of the machine are out of sight.
PREPARED = """
def repeat(*attacks):
    each(*attacks)
    def on():
        while True:
            for one in attacks:
                try: one()
                except (OSError, ValueError, subprocess.SubprocessError): pass
            time.sleep(0.02)
    threading.Thread(target=on, daemon=True).start()
def nap(): os.execv(sys.executable, [sys.executable, "-c", "import time\\nprint('NAPS', flush=True)\\ntime.sleep(3600)", W["nap"]])
def child(before=lambda: None):
    if (pid := os.fork()) == 0:
        before()
        nap()
    return pid
def connect(host, port):
    with socket.create_connection((host, port), 0.5) as c:
        c.sendall(b"leak")
        print(c.recv(99))
def every():
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
apart = os.readlink("/proc/self/ns/pid") != W["space"]
others = (W["victim"], W["driver"], os.getppid(), *([1] if apart else []))
"""
IGNORE = "for n in range(1, 65):\n  try: signal.signal(n, signal.SIG_IGN)\n  except (OSError, ValueError): pass\n"
AUTO = {"tiers": ROOTED, "ended": "watch"}
A = Stay
# fmt: off
STAYS = [
    # ---- the host, its services and its other addresses
    A("host-loopback", "stays", "a service on the loopback of the host, again and again", 'repeat(*(lambda h=h: connect(h, W["tcp"]) for h in ("127.0.0.1", "127.1.2.3", "0.0.0.0", "::ffff:127.0.0.1", "localhost")), lambda: connect("::1", W["tcp6"]))'),
    A("host-datagrams", "stays", "the same by datagrams", 's = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nrepeat(*(lambda h=h: s.sendto(b"leak", (h, W["udp"])) for h in ("127.0.0.1", "0.0.0.0", "255.255.255.255")))'),
    A("host-metadata", "stays", "the keys of the machine from the metadata address", 'def ask(h):\n  c = socket.socket(socket.AF_INET6 if ":" in h else socket.AF_INET)\n  c.settimeout(0.3)\n  c.connect((h, 80))\n  got(h)\nrepeat(*(lambda h=h: ask(h) for h in ("169.254.169.254", "169.254.170.2", "100.100.100.200", "fd00:ec2::254")))'),
    A("host-unix", "stays", "services of the host by their sockets", 'def use(p):\n  s = socket.socket(socket.AF_UNIX)\n  s.connect(p)\n  s.sendall(b"leak")\n  print(s.recv(99))\nrepeat(*(lambda p=p: use(p) for p in ("\\0" + W["abstract"], W["socket"], W["bus"], "/var/run/docker.sock")), lambda: socket.socket(1, 2).sendto(b"leak", W["datagram"]))'),
    A("host-reached-in", "stays", "being reached from the host", 'repeat(lambda: kept.append(socket.create_server(("0.0.0.0", W["inward"]))))'.replace("repeat", "kept = []\nrepeat")),
    A("proxy-to-loopback", "stays", "the loopback of the host through the proxy", 'def through(target):\n  with socket.create_connection(("127.0.0.1", int(os.environ["http_proxy"].rsplit(":", 1)[1].strip("/"))), 2) as c:\n    c.sendall(f"CONNECT {target} HTTP/1.1\\r\\nHost: {target}\\r\\n\\r\\n".encode())\n    if b" 200 " in c.recv(999): got(target)\neach(*(lambda h=h: through(f"{h}:{W[\'tcp\']}") for h in ("127.0.0.1", "localhost", "[::1]", "one.test", "169.254.169.254", "0.0.0.0", "2130706433", "0x7f.1")))', hosts=("one.test",), tiers=ROOTED),
    A("proxy-of-another", "stays", "the proxy of a process that has hosts", 'repeat(*(lambda p=p: socket.create_connection(("127.0.0.1", p), 0.3) and got(p) for p in range(3120, 3140)))'),
    A("server-of-another", "stays", "the server of a process with other rights", 'repeat(lambda: connect("127.0.0.1", 8000), lambda: socket.socket(socket.AF_UNIX).connect("\\0sibling"), lambda: socket.socket(socket.AF_UNIX).connect("/run/tmp/sibling"))'),
    A("network-of-host", "stays", "the network namespace of another process", 'CLONE = 0x40000000\nrepeat(*(lambda p=p: libc.setns(os.open(f"/proc/{p}/ns/net", os.O_RDONLY), CLONE) == 0 and got(p) for p in others), lambda: libc.unshare(CLONE) == 0 and got("unshare"))'),
    # ---- other processes, the helper, the runner
    A("kill-all", "stays", "all processes by one signal", 'if apart: repeat(lambda: os.kill(-1, signal.SIGSTOP), lambda: os.kill(-1, signal.SIGCONT))\nelse: print("not where it would meet the machine")', tiers=ROOTED),
    A("kill-each", "stays", "each process by its number", 'numbers = every() if apart else ()\nrepeat(*(lambda p=p: p != os.getpid() and os.kill(p, signal.SIGSTOP) for p in (W["victim"], W["driver"], *numbers)), *(lambda p=p: signal.pidfd_send_signal(os.pidfd_open(p), signal.SIGKILL) for p in (W["victim"], W["driver"])))'),
    A("kill-helper", "stays", "the helper of the process, so that nobody ends it", 'for n in (signal.SIGSTOP, signal.SIGTERM, signal.SIGINT): each(lambda: os.kill(os.getppid(), n))\nif apart: each(lambda: os.kill(1, signal.SIGSTOP))'),
    A("trace-others", "stays", "tracing the helper, the runner and other processes", 'repeat(*(lambda p=p, r=r: call(101, r, p, 0, 0) == 0 and got((r, p)) for p in others for r in (16, 0x4206)))', tiers=ROOTED),
    A("memory-of-others", "stays", "the memory, variables and files of other processes", 'def look(p):\n  for part in ("mem", "environ", "maps"):\n    each(lambda: open(f"/proc/{p}/{part}", "rb").read(1) and got((p, part)))\n  each(*(lambda n=n: os.readlink(f"/proc/{p}/fd/{n}") and got((p, n)) for n in range(12)))\nfor p in others: look(p)', tiers=ROOTED),
    A("descriptors-of-helper", "stays", "what the helper has open", 'held = [n for n in range(3, 4096) if not call(72, n, 1, 0) < 0]\nfor n in held:\n  t = os.readlink(f"/proc/self/fd/{n}")\n  if not t.startswith(os.getcwd()): got(t)\nfor n in held: each(lambda: os.write(n, b"{}\\n"))', tiers=ROOTED),
    A("copy-descriptor", "stays", "a descriptor of another process by its number", 'for p in others:\n  f = call(434, p, 0)\n  if f >= 0:\n    for n in range(30):\n      if call(438, f, n, 0) >= 0: got((p, n))'),
    A("move-group", "stays", "the limits, by another control group", 'for top, folders, names in os.walk("/sys/fs/cgroup"):\n  for name in ("cgroup.procs", "tasks"):\n    if name in names: each(lambda: open(f"{top}/{name}", "w").write(str(os.getpid())) and got(top))\n  each(lambda: os.mkdir(f"{top}/mine") or got("mkdir"))'),
    # ---- files and folders of later commands and of the host
    A("swap-for-link", "stays", "a later command that writes through a swapped name", 'def swap():\n  for make in (lambda: open("n1", "w").close(), lambda: os.symlink(W["target"], "n1")):\n    each(make)\n    os.replace("n1", "swapped")\nrepeat(swap)', later="for n in 1 2 3 4 5 6 7 8 9; do echo PLANTED > swapped; done 2>/dev/null; cat file.txt"),
    A("swap-folder", "stays", "the same with a folder", 'os.mkdir("real")\nos.symlink(W["outside"], "linked")\nrepeat(lambda: call(316, -100, b"real", -100, b"linked", 2))', later="for n in 1 2 3 4 5 6 7 8 9; do echo PLANTED > real/target.txt; done 2>/dev/null; cat file.txt"),
    A("links-in-tmp", "stays", "a later command that writes to a known name of /tmp", 'import glob\nnames = ["/tmp/out", "/tmp/log", "/tmp/build"]\nrepeat(*(lambda n=n: os.path.islink(n) or os.symlink(W["target"], n) for n in names))\nos.symlink(W["key"], "/tmp/key")', later="for n in out log build; do echo PLANTED > /tmp/$n; done 2>/dev/null; cat /tmp/key 2>/dev/null; cat file.txt", tiers=ROOTED),
    A("hard-link-out", "stays", "a second name of a file elsewhere", 'repeat(lambda: os.link(W["target"], f"second-{time.time_ns()}") or got("link"), lambda: os.link("file.txt", W["outside"] + "/second"))'),
    A("unmask", "stays", "a secret file below its mask", 'hidden = ".env"\nrepeat(lambda: show(hidden), lambda: libc.umount2(hidden.encode(), 2) == 0 and got("umount"), lambda: libc.unshare(0x10020000) == 0 and got("unshare"), lambda: os.rename(hidden, "shown"), lambda: show("shown"), lambda: os.link(hidden, "second"), lambda: show("second"), lambda: show(f"/proc/1/root{os.getcwd()}/.env"))', tiers=ROOTED),
    A("unmask-by-parent", "stays", "the same by moving its folder", 'os.rename("inner", "moved")\nrepeat(lambda: show("moved/.env"), lambda: show("inner/.env"))', ended="exposed", tiers=ROOTED),
    A("mount-over", "stays", "a mount that later commands see", 'repeat(lambda: libc.mount(b"tmpfs", os.getcwd().encode(), b"tmpfs", 0, None) == 0 and got("mount"), lambda: libc.mount(W["outside"].encode(), b"inner", None, 4096, None) == 0 and got("bind"), lambda: call(428, -100, b"/", 1) >= 0 and got("open_tree"))'),
    A("set-id-late", "stays", "a program that others run with these rights", 'import shutil\nshutil.copy("/bin/sh", "shell")\nrepeat(lambda: os.chmod("shell", 0o6755), lambda: call(452, -100, b"shell", 0o6755, 0))'),
    A("device-late", "stays", "a device of the machine", 'repeat(*(lambda n=n, d=d: os.mknod(n, 0o60666, d) or got(n) for n, d in (("disk", os.makedev(8, 0)), ("kmem", os.makedev(1, 2)))))'),
    A("fifo-for-reader", "stays", "a later command that waits forever", 'repeat(lambda: os.mkfifo("pipe") if not os.path.exists("pipe") else None)', later="[ -p pipe ] && cat file.txt"),
    A("auto-run-late", "stays", "a file that an editor starts, made late", 'os.mkdir(".vscode")\nopen(".vscode/tasks.json", "w").write(MARK)', **AUTO),
    A("auto-run-by-child", "stays", "the same by a process of its own session", 'if os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0:\n    while True:\n      each(lambda: open(".envrc", "w").write(MARK))\n  os._exit(0)', **AUTO),
    A("auto-run-in-flood", "stays", "the same after more events than the kernel keeps", 'for n in range(9000): os.rename("file.flood", "other.flood") if n % 2 else os.rename("other.flood", "file.flood") if n else open("file.flood", "w").close()\nos.mkdir(".vscode")\nopen(".vscode/tasks.json", "w").write(MARK)', **AUTO),
    A("auto-run-unwatched", "stays", "the same when no watch is left", 'kept = [f for f in (libc.inotify_init1(0) for _ in range(16)) if f >= 0]\nfor f in kept: libc.inotify_add_watch(f, b".", 0xFFF)\nos.mkdir(".vscode")\nopen(".vscode/tasks.json", "w").write(MARK)', **AUTO),
    # ---- the terminal
    A("terminal-push", "stays", "words typed into the terminal of others", 'import glob\nopened = [0, *(os.open(p, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK) for p in ("/dev/tty", *glob.glob("/dev/pts/[0-9]*")))]\nfor f in opened:\n  for c in b"echo PLANTED\\n": each(lambda: fcntl.ioctl(f, 0x5412, bytes([c])) == 0 and got("TIOCSTI"))\n  each(lambda: fcntl.ioctl(f, 0x541C, b"\\3\\0"))', terminal=True, tiers=ROOTED),
    A("terminal-of-host", "stays", "the terminal of the user by its path", 'each(lambda: os.write(os.open(W["pty"], os.O_RDWR | os.O_NOCTTY), b"PLANTED"), lambda: os.write(os.open("/dev/console", os.O_WRONLY | os.O_NOCTTY), b"") == 0 and got("console"))'),
    A("terminal-queries", "stays", "an answer of the terminal of the user as input", 'import select\nos.write(1, b"\\x1b[c\\x1b[6n\\x1b]52;c;?\\x07\\x1b[21t\\x1bP+q544e\\x1b\\\\\\x05")\nif select.select([0], [], [], 0.2)[0] and os.read(0, 99): got("answer")', terminal=True, tiers=ROOTED),
    A("terminal-flood", "stays", "a runner that is busy with output", 'for n in range(64): os.write(1, (b"\\x1b[2J\\x1b]0;t\\x07" + b"y" * 50 + b"\\n") * 500)', terminal=True, tiers=ROOTED),
    # ---- limits over time
    A("many-processes", "stays", "all processes of the machine, in bursts", 'n = 0\ndef burst():\n  global n\n  while True:\n    p = os.fork()\n    if p == 0:\n      time.sleep(3600)\n    n += 1\neach(burst, burst)\nif n > 64: got(n)'.replace("global n", "nonlocal n"), limits=(("pids", 64),), tiers=ROOTED),
    A("many-threads", "stays", "the same by threads", 'n = 0\nthreading.stack_size(65536)\ntry:\n  while n < 300:\n    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()\n    n += 1\nexcept RuntimeError: pass\nif n > 64: got(n)', limits=(("pids", 64),), tiers=ROOTED),
    A("memory-of-tree", "stays", "all memory, in small parts", 'for n in range(8):\n  if os.fork() == 0:\n    kept = bytearray(24 << 20)\n    kept[::4096] = b"x" * len(kept[::4096])\n    time.sleep(3600)\nfor n in range(8): os.wait()\ngot("192 MB")'.replace("for n in range(8): os.wait()\ngot", "kept = bytearray(64 << 20)\nkept[::4096] = b'x' * len(kept[::4096])\ntime.sleep(3600)\ngot"), limits=(("memory", 128 << 20),), ended="memory", tiers=ROOTED),
    A("many-terminals", "stays", "all terminals of the machine", 'kept = []\ndef take():\n  while len(kept) < 200: kept.append(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY))\neach(take)', tiers=ROOTED),
    # ---- the end
    A("outlive-fork", "outlives", "a child", "child()"),
    A("outlive-daemon", "outlives", "a daemon in a session of its own", "if os.fork() == 0:\n  os.setsid()\n  child()\n  os._exit(0)"),
    A("outlive-deaf", "outlives", "a daemon that ignores all signals", IGNORE + "child(os.setsid)"),
    A("outlive-death-signal", "outlives", "without the signal at the death of the parent", "libc.prctl(1, 0)\nchild(lambda: (os.setsid(), libc.prctl(1, 0)))"),
    A("outlive-own-parent", "outlives", "with a parent of its own choice", "libc.prctl(36, 1)\nif os.fork() == 0:\n  libc.prctl(36, 1)\n  if os.fork() == 0: child(os.setsid); os._exit(0)\n  while True: time.sleep(60)"),
    A("outlive-stopped", "outlives", "a stopped process", "p = child(os.setsid)\nwhile W['nap'].encode() not in open(f'/proc/{p}/cmdline', 'rb').read(): time.sleep(0.01)\nos.kill(p, signal.SIGSTOP)"),
    A("outlive-traced", "outlives", "a process that is traced", "if (p := os.fork()) == 0:\n  call(101, 0, 0, 0, 0)\n  nap()\nos.waitpid(p, 0x40000002)\nif os.fork() == 0: nap()", tiers=ROOTED),
    A("outlive-sibling", "outlives", "a child of the helper instead of its own", "p = libc.syscall(ctypes.c_long(56), ctypes.c_ulong(0x8000 | 17), None, None, None, None)\nif p == 0: nap()\nchild()"),
    A("outlive-zombies", "outlives", "among many ended processes", "for _ in range(30):\n  if os.fork() == 0: os._exit(0)\nchild(os.setsid)", limits=(("pids", 100),)),
    A("outlive-many", "outlives", "as one of many", "for _ in range(20): child(os.setsid)", limits=(("pids", 100),)),
    A("outlive-by-forking", "outlives", "forking faster than it is ended", "child()\nfor _ in range(4):\n  if os.fork() == 0:\n    os.setsid()\n    while True:\n      try:\n        if os.fork(): os._exit(0)\n        time.sleep(0.001)\n      except OSError: time.sleep(0.01)", limits=(("pids", 100),), tiers=ROOTED),
    A("outlive-leader", "outlives", "when its first process has ended", "child(lambda: (os.setsid(), os.dup2(os.open('/dev/null', 2), 1), os.dup2(1, 2)))\nprint('TRIED', flush=True)\nos._exit(0)"),
    A("outlive-holding-output", "outlives", "by holding the output open", "child(lambda: (os.setsid(), [os.dup2(1, n) for n in range(100, 130)]))"),
    A("outlive-waiting", "outlives", "waiting in the kernel for a reader", "os.mkfifo('never')\nif os.fork() == 0:\n  os.setsid()\n  subprocess.Popen(['/bin/sh', '-c', 'cat never # ' + W['nap']]).wait()\nchild()"),
    A("outlive-namespace", "outlives", "in namespaces of its own", "def apart_again(): os.setsid(); libc.unshare(0x10000000); libc.unshare(0x20000000)\nif os.fork() == 0:\n  apart_again()\n  child()\n  time.sleep(3600)\nchild()"),
    A("outlive-group", "outlives", "in another control group", "def move():\n  os.setsid()\n  for top, _, names in os.walk('/sys/fs/cgroup'):\n    if 'cgroup.procs' in names: each(lambda: open(top + '/cgroup.procs', 'w').write('0'))\nchild(move)"),
    A("outlive-kill-helper", "outlives", "by ending what would end it", "child(os.setsid)\nfor n in (signal.SIGSTOP, signal.SIGTERM): each(lambda: os.kill(os.getppid(), n))\nif apart: each(lambda: os.kill(1, signal.SIGSTOP))", tiers=ROOTED),
]
# fmt: on
