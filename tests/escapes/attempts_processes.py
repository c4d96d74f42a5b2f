"""Escape attempts on processes and limits: changing other processes, leaving a process behind, exhausting the
machine.
"""

from tests.escapes.attempt import Attempt

A = Attempt
# fmt: off
ATTEMPTS = [
    A("signal-victim", "processes", "ending another process", 'each(lambda: os.kill(W["victim"], signal.SIGKILL))'),
    A("stop-victim", "processes", "stopping it", 'os.kill(W["victim"], signal.SIGSTOP)'),
    A("signal-by-handle", "processes", "the same by a handle of it", 'p = os.pidfd_open(W["victim"])\nsignal.pidfd_send_signal(p, signal.SIGKILL)'),
    A("signal-queue", "processes", "the same with a value", 'b = struct.pack("iiiiii", 9, 0, -1, os.getpid(), os.getuid(), 0) + b"\\0" * 104\nprint(call(129, W["victim"], 9, b))', x86=True),
    A("signal-by-file", "processes", "by a descriptor that tells its owner", 'r, w = os.pipe()\nfcntl.fcntl(r, fcntl.F_SETOWN, W["victim"])\nfcntl.fcntl(r, 10, signal.SIGKILL)\nfcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)\nos.write(w, b"x")'),
    A("limits-of-victim", "processes", "limits of another process", 'old = (ctypes.c_ulong * 2)(5, 5)\nif call(302, W["victim"], 7, old, 0) == 0: got("prlimit")', x86=True),
    A("read-limits-of-victim", "processes", "asking for its limits", 'if call(302, W["victim"], 7, 0, (ctypes.c_ulong * 2)()) == 0: got("prlimit")', x86=True),
    A("nice-victim", "processes", "its share of the processor", 'each(lambda: os.setpriority(os.PRIO_PROCESS, W["victim"], 19), lambda: os.sched_setaffinity(W["victim"], {0}))'),
    A("see-victim", "processes", "that it is there at all", 'each(lambda: os.kill(W["victim"], 0) or got("kill 0"), lambda: W["base"].encode() in open(f"/proc/{W[\'victim\']}/cmdline", "rb").read() and got("cmdline"), lambda: os.getpgid(W["victim"]) and got("getpgid"), lambda: os.sched_getscheduler(W["victim"]) >= 0 and got("sched"))'),
    A("trace-parent", "processes", "the memory of what confines us", 'each(*(lambda p=p: os.open(p, os.O_RDONLY) and got(p) for p in (f"/proc/{os.getppid()}/mem",)), lambda: os.readlink(f"/proc/{os.getppid()}/fd/0") and got("fd"), lambda: os.readlink(f"/proc/{os.getppid()}/exe") and got("exe"), lambda: open(f"/proc/{os.getppid()}/environ", "rb").read() and got("environ"))'),
    # ---- what stays
    A("leave-child", "leftovers", "a process that goes on", 'subprocess.Popen(["sleep", W["nap"]])'),
    A("leave-daemon", "leftovers", "one that nobody is the parent of", 'if os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0:\n    os.execvp("sleep", ["sleep", W["nap"]])\n  os._exit(0)\ntime.sleep(0.2)'),
    A("leave-deaf", "leftovers", "one that ignores every signal it can", "(trap '' HUP INT TERM QUIT USR1 USR2 TSTP; nohup setsid sleep $NAP & ) > /dev/null 2>&1\nsleep 0.2", "sh"),
    A("leave-stopped", "leftovers", "one that sleeps until it is woken", 'p = subprocess.Popen(["sleep", W["nap"]], start_new_session=True)\nos.kill(p.pid, signal.SIGSTOP)'),
    A("leave-holding-output", "leftovers", "one that keeps the output open", "sleep $NAP &\nsleep $NAP >/dev/null 2>&1 & disown", "sh"),
    A("leave-racing", "leftovers", "one that forks faster than it is killed", 'for _ in range(8):\n  if os.fork() == 0:\n    os.setsid()\n    end = time.time() + 3\n    while time.time() < end:\n      try:\n        if os.fork(): os._exit(0)\n      except OSError: pass\n    os.execvp("sleep", ["sleep", W["nap"]])', seconds=8, wait=3.5),
    A("leave-writer", "leftovers", "one that changes the workspace afterwards", '(sleep 1.2; echo $MARK > later.txt) > /dev/null 2>&1 &', "sh", wait=1.5),
    # ---- limits
    A("fork-bomb", "limits", "all processes of the machine", 'n = 0\nwhile n < 700:\n  try: p = os.fork()\n  except OSError: break\n  if p == 0: time.sleep(2); os._exit(0)\n  n += 1\nif n > 400: got(n)', dies=True, seconds=8),
    A("thread-bomb", "limits", "all threads of the machine", 'n = 0\nthreading.stack_size(65536)\nwhile n < 700:\n  try: threading.Thread(target=time.sleep, args=(2,), daemon=True).start()\n  except RuntimeError: break\n  n += 1\nif n > 400: got(n)', dies=True, seconds=8),
    A("memory-one", "limits", "all memory, in one process", 'kept = bytearray(900 << 20)\nkept[::4096] = b"x" * len(kept[::4096])\ntime.sleep(1)\ngot("900 MB")', dies=True, seconds=8),
    A("memory-many", "limits", "the same, in several", 'ps = [subprocess.Popen([sys.executable, "-c", "x = bytearray(220 << 20); import time; time.sleep(2.5)"]) for _ in range(4)]\nif all(p.wait() == 0 for p in ps): got("880 MB")', dies=True, seconds=8),
    A("memory-files", "limits", "the same, in files that are memory", '''
for place in ("/dev/shm", os.path.expanduser("~")):
    def fill():
        for n in range(20): open(f"{place}/big-{W['plain']}-{n}", "wb").write(b"x" * (32 << 20))
        got(place)
    each(fill)
    for n in range(20): each(lambda: os.unlink(f"{place}/big-{W['plain']}-{n}"))
''', dies=True, seconds=8),
    A("memory-shared", "limits", "the same, in memory that belongs to nobody", 'm = mmap.mmap(-1, 900 << 20)\nfor at in range(0, 900 << 20, 4096): m[at] = 1\ntime.sleep(1)\ngot("900 MB shared")', dies=True, seconds=8),
    A("file-size", "limits", "one file that fills the disk", 'f = open("big", "wb")\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\neach(lambda: f.truncate(1 << 30), lambda: os.posix_fallocate(f.fileno(), 0, 100 << 20))\nif os.stat("big").st_size > (64 << 20): got("big")\nos.unlink("big")'),
    A("disk-many-files", "limits", "many files that fill the disk", 'for n in range(30): open(f"part{n}", "wb").write(b"x" * (30 << 20))\ntime.sleep(1.5)\nif sum(os.path.getsize(f"part{n}") for n in range(30)) > (800 << 20): got("900 MB")', dies=True, seconds=8),
    A("open-files", "limits", "all open files of the machine", 'k = []\ntry:\n  while len(k) < 20000: k.append(os.dup(0))\nexcept OSError: pass\nif len(k) > 8000: got(len(k))'),
    A("raise-limits", "limits", "limits that were lowered", 'import resource\nfor n in (resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_CPU, resource.RLIMIT_DATA):\n  soft, hard = resource.getrlimit(n)\n  if hard == resource.RLIM_INFINITY: continue\n  each(lambda: resource.setrlimit(n, (hard * 2, hard * 2)) or got(n))\nif resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY: got("no limit")'),
    A("output-flood", "limits", "all memory of the process that reads the output", 'for _ in range(4000): os.write(1, b"y" * 4096)\nos.write(1, b"\\nGOT 16 MB\\n")', dies=True),
    A("sleep-past-wall", "limits", "time without end", 'signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(6)\ngot("still here")', dies=True, seconds=2),
    A("spin-past-wall", "limits", "a processor without end", 'signal.signal(signal.SIGALRM, signal.SIG_IGN)\nend = time.time() + 6\nwhile time.time() < end: pass\ngot("still here")', dies=True, seconds=2),
    A("lock-memory", "limits", "memory that cannot be given back", 'm = mmap.mmap(-1, 200 << 20)\na = ctypes.addressof(ctypes.c_char.from_buffer(m))\nif libc.mlock(ctypes.c_void_p(a), ctypes.c_size_t(200 << 20)) == 0: got("200 MB locked")', dies=True),
    A("real-time", "limits", "the processor before everybody else", 'each(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50)) or got("fifo"), lambda: os.setpriority(os.PRIO_PROCESS, 0, -20) or got("nice"))'),
]
# fmt: on
