"""Escape attempts on files: reading, changing and examining files that were not granted."""

from tests.escapes.attempt import Attempt

A = Attempt
# fmt: off
ATTEMPTS = [
    # ---- reading
    A("read-key", "read", "a private key of the user", 'show(W["key"])'),
    A("read-outside", "read", "a file of another project", 'show(W["secret"])'),
    A("read-dotdot", "read", "the same by a relative path", 'show(os.path.relpath(W["secret"]))'),
    A("read-link", "read", "through a link that lies in the workspace", 'show("link-to-secret")'),
    A("read-new-link", "read", "through a link made inside", 'os.symlink(W["outside"], "mine")\nshow("mine/secret.txt")'),
    A("read-proc-root", "read", "through the root of every process", 'each(*(lambda p=p: show(f"/proc/{p}/root{W[\'secret\']}") for p in ["self", *filter(str.isdigit, os.listdir("/proc"))]))'),
    A("read-proc-cwd", "read", "through the working folder of every process", 'each(*(lambda p=p: show(f"/proc/{p}/cwd/secret.txt") for p in os.listdir("/proc") if p.isdigit()))'),
    A("read-victim-fd", "read", "what another process has open", 'each(*(lambda n=n: show(f"/proc/{W[\'victim\']}/fd/{n}") for n in range(3, 20)))'),
    A("read-inherited-file", "read", "a descriptor that the launcher had open", 'each(*(lambda n=n: print(os.pread(n, 4096, 0)) for n in range(3, 300)))'),
    A("read-inherited-folder", "read", "a folder that the launcher had open", 'each(*(lambda n=n: print(os.read(os.open("secret.txt", os.O_RDONLY, dir_fd=n), 4096)) for n in range(3, 300)))'),
    A("read-dev-fd", "read", "the same through /dev/fd", 'each(*(lambda n=n: show(n) for n in ["/dev/fd/200", "/dev/fd/201/secret.txt", "/proc/self/fd/201/secret.txt"]))'),
    A("read-fchdir", "read", "leaving through a folder that the launcher had open", 'each(*(lambda n=n: (os.fchdir(n), show("secret.txt")) for n in range(3, 300)))'),
    A("read-handle", "read", "by the number that a file system gives its files", '''
mount = os.open(".", os.O_RDONLY)
for told in W["handles"]:
    kind, raw = told["kind"], bytes.fromhex(told["raw"])
    handle = struct.pack("Ii", len(raw), kind) + raw
    opened = call(304, mount, handle, os.O_RDONLY)
    print(opened if opened < 0 else os.read(opened, 4096))
''', x86=True),
    A("read-chroot", "read", "the old way out of a root", 'os.mkdir("jail")\nhold = os.open("/", os.O_RDONLY)\nos.chroot("jail")\ngot("chroot")\nos.fchdir(hold)\nfor _ in range(40): os.chdir("..")\nos.chroot(".")\nshow(W["secret"])'),
    A("read-disk", "read", "the disk itself, by a node made for it", '''
for line in open("/proc/partitions").read().split("\\n")[2:]:
    if not line: continue
    major, minor, _, name = line.split()
    node = "node-" + name
    def look():
        os.mknod(node, 0o60600, os.makedev(int(major), int(minor)))
        if os.pread(os.open(node, os.O_RDONLY), 512, 0): got(name)
    each(look)
'''),
    A("read-memory-of-machine", "read", "memory of the kernel", 'each(*(lambda p=p: (os.read(os.open(p, os.O_RDONLY), 64), got(p)) for p in ["/dev/mem", "/dev/kmem", "/dev/port", "/proc/kcore", "/dev/vhost-net", "/dev/kvm"]))'),
    A("read-kernel-log", "read", "what the kernel says", 'each(lambda: os.read(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK), 64) and got("kmsg"))\nif libc.klogctl(3, ctypes.create_string_buffer(99), 99) > 0: got("syslog")'),
    A("read-host-tmp", "read", "what others keep in /tmp", 'for top in ["/tmp", "/var/tmp", "/run"]:\n  for base, _, names in os.walk(top):\n    if base.startswith(W["base"]): continue\n    each(*(lambda n=n: show(os.path.join(base, n)) for n in names if W["plain"] in n))'),
    A("read-host-shm", "read", "memory files of others", 'each(*(lambda n=n: show("/dev/shm/" + n) for n in os.listdir("/dev/shm")))'),
    A("read-shadow", "read", "the passwords of the machine", 'each(lambda: open("/etc/shadow").read(1) and got("shadow"), lambda: open("/etc/sudoers").read(1) and got("sudoers"))'),
    A("read-masked", "read", "a secret file of the workspace", 'each(lambda: show(".env"), lambda: show("deep/down/server.pem"), lambda: show("/proc/self/cwd/.env"))'),
    A("read-masked-moved", "read", "the same under another name", 'each(lambda: (os.rename(".env", "e"), show("e")), lambda: (os.link(".env", "f"), show("f")), lambda: (os.rename("deep", "shallow"), show("shallow/down/server.pem")))'),
    A("read-masked-umount", "read", "by taking away what covers it", 'for flags in (0, 2, 8): print(libc.umount2(b".env", flags), libc.umount2(b"deep/down/server.pem", flags))\nshow(".env")'),
    A("read-masked-userns", "read", "the same as root of a user namespace", 'print(libc.unshare(0x10020000))\nprint(libc.umount2(b".env", 2))\nshow(".env")'),
    A("read-masked-git", "read", "by asking Git for it", "git --no-pager diff --no-index /dev/null .env; git hash-object -w .env | xargs git cat-file -p; tar cf - .env deep | grep -a -o 'decoy-[0-9a-f]*'", "sh"),
    A("read-launcher-environment", "read", "the variables of the process that started the command", 'print([each[::-1] for each in os.environ.values() if each.startswith("decoy-")])\neach(*(lambda p=p: print(open(f"/proc/{p}/environ", "rb").read()[::-1]) for p in os.listdir("/proc") if p.isdigit()))'),
    A("read-command-lines", "read", "the words of other commands", 'each(*(lambda p=p: show(f"/proc/{p}/cmdline") for p in os.listdir("/proc") if p.isdigit()))'),
    A("read-victim-memory", "read", "the memory of another process", '''
for line in open(f"/proc/{W['victim']}/maps"):
    span, rights, *_ = line.split()
    if rights.startswith("rw"):
        low, high = (int(part, 16) for part in span.split("-"))
        each(lambda: print([part for part in [os.pread(os.open(f"/proc/{W['victim']}/mem", os.O_RDONLY), min(high - low, 1 << 24), low)] for part in [part[part.find(b"decoy-"):][:40]] if part]))
'''),
    A("read-openat2", "read", "by a newer call", 'how = struct.pack("QQQ", os.O_RDONLY, 0, 0)\nf = call(437, -100, W["secret"].encode(), how, 24)\nprint(f if f < 0 else os.read(f, 4096))', x86=True),
    A("read-mount-bind", "read", "by mounting a place that may be read", 'os.mkdir("m")\nif libc.mount(W["outside"].encode(), b"m", None, 4096, None) == 0: got("bind")\nshow("m/secret.txt")'),
    A("read-mount-api", "read", "the same by the newer calls", 'tree = call(428, -100, W["outside"].encode(), 1)\nif tree >= 0: got("open_tree")\nfs = call(430, b"tmpfs", 0)\nif fs >= 0: got("fsopen")\npick = call(433, -100, b"/", 0)\nif pick >= 0: got("fspick")', x86=True),
    A("read-namespace-of-victim", "read", "by joining the namespaces of another process", 'each(*(lambda n=n: libc.setns(os.open(f"/proc/{W[\'victim\']}/ns/{n}", os.O_RDONLY), 0) == 0 and got(n) for n in ("mnt", "pid", "net", "user", "ipc", "uts")))'),
    A("read-as-overlay", "read", "by a layer over the root", 'for d in "lumw": os.mkdir(d)\nif libc.mount(b"overlay", b"m", b"overlay", 0, b"lowerdir=/,upperdir=u,workdir=w") == 0: got("overlay")'),
    # ---- asking
    A("stat-outside", "metadata", "size and time of a file elsewhere", 'each(lambda: os.stat(W["secret"]) and got("stat"), lambda: os.lstat(W["key"]) and got("lstat"), lambda: os.access(W["secret"], os.F_OK) and got("access"))'),
    A("list-outside", "metadata", "the names in a folder elsewhere", 'each(lambda: "secret.txt" in os.listdir(W["outside"]) and got("list"), lambda: ".ssh" in os.listdir(W["home"]) and got("home"))'),
    A("readlink-outside", "metadata", "where a link elsewhere leads", 'print(os.readlink(W["outside"] + "/link")) or got("readlink")'),
    A("watch-outside", "metadata", "being told of every use of a file elsewhere", 'i = libc.inotify_init()\neach(*(lambda p=p: libc.inotify_add_watch(i, p.encode(), 0xfff) >= 0 and got(p) for p in (W["outside"], W["secret"], W["home"] + "/.ssh")))'),
    A("watch-machine", "metadata", "being told of every open on the machine", 'f = libc.fanotify_init(0, 0)\nif f >= 0: got("fanotify")'),
    A("lock-outside", "metadata", "holding up others by a lock", 'f = os.open(W["target"], os.O_RDWR)\nfcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)\ngot("lock")'),
    A("xattr-outside", "metadata", "attributes of a file elsewhere", 'each(lambda: os.listxattr(W["target"]) is not None and got("list"))'),
    # ---- changing
    A("write-outside", "write", "a file elsewhere", 'open(W["target"], "w").write("changed")'),
    A("append-outside", "write", "the same, at its end", 'os.write(os.open(W["target"], os.O_WRONLY | os.O_APPEND), b"more")'),
    A("truncate-outside", "write", "emptying it without opening it", 'os.truncate(W["target"], 0)'),
    A("create-outside", "write", "a new file elsewhere", 'each(lambda: open(W["outside"] + "/new", "w"), lambda: os.mkdir(W["outside"] + "/dir"), lambda: os.symlink("x", W["outside"] + "/sym"), lambda: os.mkfifo(W["outside"] + "/fifo"))'),
    A("remove-outside", "write", "removing it", 'each(lambda: os.unlink(W["target"]), lambda: os.rename(W["target"], "taken"))'),
    A("move-out", "write", "moving a file of ours over it", 'open("mine", "w").write("x")\nos.rename("mine", W["target"])'),
    A("exchange-out", "write", "changing places with it", 'open("mine", "w").write("x")\nprint(call(316, -100, b"mine", -100, W["target"].encode(), 2))', x86=True),
    A("link-out", "write", "a second name of ours out there", 'open("mine", "w").write("x")\nos.link("mine", W["outside"] + "/linked")'),
    A("link-in", "write", "a second name of theirs in here", 'os.link(W["target"], "theirs")\nopen("theirs", "w").write("changed")'),
    A("unnamed-out", "write", "a file without a name, then with one out there", 'f = os.open(".", os.O_TMPFILE | os.O_WRONLY)\nlibc.linkat(-100, f"/proc/self/fd/{f}".encode(), -100, (W["outside"] + "/fromnowhere").encode(), 0x400)'),
    A("write-hard-link", "write", "a file with another name elsewhere", 'open("hard-link", "w").write("changed")'),
    A("chmod-hard-link", "write", "its mode", 'os.chmod("hard-link", 0o777)'),
    A("replace-hard-link-times", "write", "its times and attributes", 'each(lambda: os.utime("hard-link", (1, 1)), lambda: os.setxattr("hard-link", "user.x", b"y"))'),
    A("write-link", "write", "through a link that lies in the workspace", 'each(lambda: open("link-to-target", "w").write("changed"), lambda: open("link-to-outside/new", "w").write("x"))'),
    A("swap-link", "write", "a folder that becomes a link while it is used", '''
os.mkdir("d")
def swap():
    for _ in range(3000):
        try:
            os.rename("d", "e"); os.symlink(W["outside"], "d"); os.unlink("d"); os.rename("e", "d")
        except OSError: pass
threading.Thread(target=swap, daemon=True).start()
end = time.time() + 0.4
while time.time() < end:
    try: open("d/raced", "w").write("x")
    except OSError: pass
'''),
    A("chmod-outside", "write", "the mode of a file elsewhere", 'os.chmod(W["target"], 0o777)'),
    A("chown-outside", "write", "its owner", 'os.chown(W["target"], 12345, 12345)'),
    A("times-outside", "write", "its times", 'os.utime(W["target"], (1, 1))'),
    A("xattr-write-outside", "write", "its attributes", 'os.setxattr(W["target"], "user.x", b"y")'),
    A("flags-outside", "write", "making it unchangeable", 'f = os.open(W["target"], os.O_RDONLY)\nbits = array.array("l", [0])\nfcntl.ioctl(f, 0x80086601, bits)\nbits[0] |= 0x80\nfcntl.ioctl(f, 0x40086602, bits)\ngot("flags")'),
    A("reopen-for-writing", "write", "a file that was opened for reading, once more through /proc", 'each(*(lambda n=n: os.write(os.open(f"/proc/self/fd/{n}", os.O_WRONLY), b"changed") for n in (200, 202)))'),
    A("write-home", "write", "the start-up files of the user", 'each(*(lambda n=n: open(os.path.join(W["home"], n), "a").write("x") for n in (".bashrc", ".profile", ".ssh/authorized_keys", ".gitconfig", "new")))'),
    A("write-host-tmp", "write", "places that everybody may write to", 'each(*(lambda d=d: open(f"{d}/plant-{W[\'plain\']}", "w") for d in ("/tmp", "/dev/shm", "/var/tmp", "/var/lock", "/run/lock")))'),
    A("write-system", "write", "what the machine starts by itself", 'each(*(lambda d=d: open(f"{d}/plant-{W[\'plain\']}", "w") for d in ("/etc/cron.d", "/etc/profile.d", "/usr/local/games", "/var/spool/cron")))'),
    A("write-preload", "write", "a library for every program", 'each(lambda: (os.close(os.open("/etc/plant-" + W["plain"], os.O_CREAT | os.O_WRONLY)), os.unlink("/etc/plant-" + W["plain"]), got("etc")), lambda: open("/etc/ld.so.cache", "r+b") and got("cache"), lambda: open("/usr/lib/os-release", "r+b") and got("usr"))'),
    A("write-programs", "write", "programs that others start", 'each(*(lambda p=p: os.close(os.open(p, os.O_WRONLY)) or got(p) for p in ("/usr/bin/yes", "/usr/bin/env", "/usr/lib/os-release")))'),
    A("remount-writable", "write", "making what is read-only writable", 'each(*(lambda p=p: libc.mount(None, p, None, 0x20 | 0x1000, None) == 0 and got(p) for p in (b"/", b"/usr", b"/proc", b".git/config")))\nattr = struct.pack("QQQQ", 0, 1, 0, 0)\nif call(442, -100, b"/", 0, attr, 32) == 0: got("mount_setattr")', x86=True),
    A("open-devices", "write", "disks, loops and tunnels by their nodes", 'each(lambda: os.open("/dev/sda", os.O_RDWR) and got("sda"), lambda: os.open("/dev/vda", os.O_RDWR) and got("vda"), lambda: os.open("/dev/loop-control", os.O_RDWR) and got("loop"), lambda: os.open("/dev/fuse", os.O_RDWR) and got("fuse"), lambda: os.open("/dev/kvm", os.O_RDWR) and got("kvm"), lambda: os.open("/dev/vsock", os.O_RDWR) and got("vsock"), lambda: os.open("/dev/net/tun", os.O_RDWR) and got("tun"))'),
]
# fmt: on
