"""Escape attempts through the network and services: connections to the outside, and from the outside."""

from tests.escapes.attempt import Attempt

A = Attempt
CONNECT = 'c = socket.create_connection({where}, 1)\nc.sendall(b"leak")\nprint(c.recv(99))'
# fmt: off
ATTEMPTS = [
    A("tcp-loopback", "network", "a service of this machine", CONNECT.format(where='("127.0.0.1", W["tcp"])')),
    A("tcp-loopback-6", "network", "the same over IPv6", CONNECT.format(where='("::1", W["tcp6"])')),
    A("tcp-mapped", "network", "the same by an IPv4 address in IPv6", CONNECT.format(where='("::ffff:127.0.0.1", W["tcp"])')),
    A("tcp-zero", "network", "the same by the address of no one", CONNECT.format(where='("0.0.0.0", W["tcp"])')),
    A("tcp-machine", "network", "a service on another address of this machine", CONNECT.format(where='(W["address"], W["tcp"])')),
    A("tcp-fast-open", "network", "data in the first packet", 's = socket.socket()\ns.sendto(b"leak", 0x20000000, ("127.0.0.1", W["tcp"]))\ntime.sleep(0.2)'),
    A("tcp-nonblocking", "network", "a connection that nobody waits for", 's = socket.socket()\ns.setblocking(False)\neach(lambda: s.connect(("127.0.0.1", W["tcp"])))\ntime.sleep(0.2)\nprint(s.recv(99))'),
    A("tcp-multipath", "network", "a connection of another protocol number", 's = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)\ns.settimeout(1)\ns.connect(("127.0.0.1", W["tcp"]))\nprint(s.recv(99))'),
    A("tcp-low-port", "network", "from a port of the system", 's = socket.socket()\ns.bind(("", 81))\ns.connect(("127.0.0.1", W["tcp"]))\nprint(s.recv(99))'),
    A("udp-loopback", "network", "a datagram", 'socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"leak", ("127.0.0.1", W["udp"]))'),
    A("udp-machine", "network", "a datagram to another address", 'socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"leak", (W["address"], W["udp"]))'),
    A("udp-many", "network", "datagrams by the call for many", 's = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.connect(("127.0.0.1", W["udp"]))\ns.sendmsg([b"le", b"ak"])'),
    A("udp-multicast", "network", "everybody in the neighbourhood", 's = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))\ns.sendto(b"leak", ("224.0.0.251", W["multicast"]))\ntime.sleep(0.1)'),
    A("dns", "network", "a name that carries data", 'query = b"\\x12\\x34\\x01\\x00\\x00\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x04leak\\x07example\\x00\\x00\\x01\\x00\\x01"\neach(*(lambda a=a: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(query, (a, W["dns"])) for a in ("127.0.0.53", "127.0.0.1")))'),
    A("ping", "network", "an echo that carries data", 's = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)\ns.settimeout(1)\ns.sendto(b"\\x08\\x00\\x00\\x00\\x00\\x00\\x00\\x01leak", (W["address"], 0))\nif s.recv(99): got("echo")'),
    A("raw-socket", "network", "packets of our own making", 'socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)\ngot("raw")'),
    A("packet-socket", "network", "listening to all packets", 's = socket.socket(17, socket.SOCK_RAW, socket.htons(3))\ngot("packet")'),
    A("netlink", "network", "the settings of the network", 's = socket.socket(16, socket.SOCK_RAW, 0)\ns.bind((0, 0))\ngot("netlink")'),
    A("netlink-audit", "network", "the kernel's audit records", 'for protocol in (9, 15, 4, 12, 11): each(lambda: socket.socket(16, socket.SOCK_RAW, protocol) and got(protocol))'),
    A("vsock", "network", "the machine that this machine runs on", 's = socket.socket(40, socket.SOCK_STREAM)\ngot("vsock")'),
    A("crypto-socket", "network", "a family whose bugs were many", 's = socket.socket(38, 5)\ns.bind(("hash", "sha256"))\ngot("AF_ALG")'),
    A("rare-families", "network", "every other family of sockets", 'for family in range(3, 46):\n  if family in (10, 16, 17, 38, 40): continue\n  for kind in (1, 2, 3, 5): each(lambda: socket.socket(family, kind) and got(family))'),
    A("listen-outside", "network", "being reached from outside", 's = socket.create_server(("0.0.0.0", W["inward"]))\ns.settimeout(1.5)\nc, _ = s.accept()\ngot("reached")'),
    A("interface-address", "network", "the addresses of the machine", 'print(W["address"] in subprocess.run(["ip", "addr"], capture_output=True, text=True).stdout and got("ip"))\nif W["address"] in "".join(open(f"/proc/net/{n}").read() for n in ("fib_trie",)): got("fib")'),
    A("neighbours-in-proc", "network", "who listens on this machine", 'each(*(lambda n=n: f":{W[\'tcp\']:04X} " in open(f"/proc/net/{n}").read() and got(n) for n in ("tcp", "udp")), lambda: W["abstract"] in open("/proc/net/unix").read() and got("unix"))'),
    A("proxy-variables", "network", "a proxy that the launcher told of", 'for name in ("http_proxy", "HTTPS_PROXY", "ALL_PROXY"):\n  if W["plain"] in os.environ.get(name, ""): got(name)'),
    # ---- services by other ways
    A("unix-abstract", "services", "a service by its abstract name", 's = socket.socket(socket.AF_UNIX)\ns.connect("\\0" + W["abstract"])\ns.sendall(b"leak")\nprint(s.recv(99))'),
    A("unix-path", "services", "a service by its path", 's = socket.socket(socket.AF_UNIX)\ns.connect(W["socket"])\nprint(s.recv(99))'),
    A("unix-path-workspace", "services", "a service whose socket lies in the workspace", 's = socket.socket(socket.AF_UNIX)\ns.connect("host.sock")\nprint(s.recv(99))'),
    A("unix-datagram", "services", "a datagram to a service", 'makes = (lambda: socket.socket(1, 2), lambda: socket.socketpair(1, 2)[0], lambda: socket.socketpair(1, 3)[0])\neach(*(lambda make=make, to=to: make().sendto(b"leak", to) for make in makes for to in ("host.dgram", W["datagram"])))'),
    A("unix-dirty-word", "services", "a family with rubbish in its upper half", 'f = libc.syscall(ctypes.c_long(41), ctypes.c_ulong(0x7700000001), ctypes.c_long(1), ctypes.c_long(0))\nif f >= 0:\n  s = socket.socket(fileno=f)\n  s.connect("\\0" + W["abstract"])\n  print(s.recv(99))', x86=True),
    A("unix-descriptor", "services", "a descriptor that a service hands over", 's = socket.socket(socket.AF_UNIX)\ns.connect("\\0" + W["giver"])\n_, fds, *_ = socket.recv_fds(s, 9, 4)\nprint(os.pread(fds[0], 99, 0))'),
    A("inherited-socket", "services", "a connection that the launcher had open", 'each(*(lambda n=n: os.write(n, b"leak") for n in range(203, 210)))'),
    A("accept-inherited", "services", "a listener that the launcher had open", 's = socket.socket(fileno=204)\ns.settimeout(0.2)\nprint(s.getsockname()) or got("listener")'),
    A("dbus", "services", "the message bus", 'each(*(lambda p=p: socket.socket(socket.AF_UNIX).connect(p) or got(p) for p in ("/run/dbus/system_bus_socket", f"/run/user/{os.getuid()}/bus", "/run/systemd/private", "/var/run/docker.sock", "/run/containerd/containerd.sock", W["bus"])))'),
    A("sysv-memory", "services", "shared memory of the machine", 'libc.shmat.restype = ctypes.c_void_p\ni = libc.shmget(W["shm"], 0, 0)\nif i >= 0: print(ctypes.string_at(libc.shmat(i, None, 0x1000), 40))'),
    A("sysv-queue", "services", "a message queue of the machine", 'i = libc.msgget(W["shm"], 0)\nb = ctypes.create_string_buffer(99)\nn = libc.msgrcv(i, b, 80, 0, 0o4000) if i >= 0 else -1\nif n > 0: print(b.raw, libc.msgsnd(i, b, n, 0))'),  # put back: who comes next shall find it
    A("posix-queue", "services", "a named queue of the machine", 'f = libc.syscall(ctypes.c_long(240), W["queue"].encode(), os.O_RDWR | os.O_NONBLOCK, 0, None)\nif f >= 0: got("queue")', x86=True),
    A("ipc-in-proc", "services", "who shares memory on this machine", 'each(*(lambda n=n: str(W["shm"]) in open(f"/proc/sysvipc/{n}").read() and got(n) for n in ("shm", "msg")))'),
    A("keyring", "services", "keys that the kernel holds for the user", '''
for ring in (-3, -4, -5, -2):
    i = call(250, 10, ring, b"user", W["plain"].encode(), 0)
    b = ctypes.create_string_buffer(99)
    if i > 0 and call(250, 11, i, b, 99) > 0: print(b.raw)
i = call(249, b"user", W["plain"].encode(), None, 0)
if i > 0: got("request_key")
if "decoy" in open("/proc/keys").read() or W["plain"] in open("/proc/keys").read(): got("proc/keys")
''', x86=True),
    A("keyring-plant", "services", "a key for others to find", 'if call(248, b"user", b"planted", b"x", 1, -4) > 0: got("add_key")', x86=True),
]
# fmt: on
