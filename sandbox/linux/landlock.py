"""Tables of the Landlock rights in each ABI, and of the rights that each kind of path gets.

Source: landlock(7) and `linux/landlock.h`. A right that the running kernel does not know must not be requested, and a
right that is not handled is not enforced: `missing` lists such rights in words.
"""

from policy.model.frozen import dataclass

# fmt: off
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REMOVE_DIR, REMOVE_FILE, MAKE_CHAR, MAKE_DIR = 1 << 4, 1 << 5, 1 << 6, 1 << 7
MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK = 1 << 8, 1 << 9, 1 << 10, 1 << 11
MAKE_SYM, REFER, TRUNCATE, IOCTL_DEV, RESOLVE_UNIX = 1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16
TCP = 3  # bind and connect
SCOPES = 3  # abstract sockets and signals
# The kernel's audit log, if it is switched on, records denials of commands, but not those of the canary.
LOG_SAME_EXEC_OFF, LOG_NEW_EXEC_ON = 1 << 0, 1 << 1
LOGGED = LOG_SAME_EXEC_OFF | LOG_NEW_EXEC_ON

READ = EXECUTE | READ_FILE | READ_DIR
# No rule contains MAKE_CHAR or MAKE_BLOCK, so that devices cannot be made. No rule contains RESOLVE_UNIX, because a
# command needs no rule for sockets of its own domain, and must not reach the sockets of the host.
WRITE = (READ | WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_SYM
         | REFER | TRUNCATE)
DEVICE = READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV
FILE_ONLY = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV  # the rights that a rule on a file may have


@dataclass(frozen=True, slots=True)
class Abi:
    """The rights that one ABI handles.

    Attributes:
        size: Size of its `landlock_ruleset_attr` in bytes.
        flags: Flags of landlock_restrict_self(2).
        adds: The protection that nothing else enforces without this ABI, in words; empty if something else does.
    """

    fs: int
    net: int
    scoped: int
    size: int
    flags: int
    adds: str


ABIS: dict[int, Abi] = {
    1: Abi((1 << 13) - 1, 0, 0, 8, 0, "file rights"),
    2: Abi((1 << 14) - 1, 0, 0, 8, 0, "moving files between folders"),
    3: Abi((1 << 15) - 1, 0, 0, 8, 0, "truncating files"),
    4: Abi((1 << 15) - 1, TCP, 0, 16, 0, "TCP bind and connect"),
    5: Abi((1 << 16) - 1, TCP, 0, 16, 0, "ioctl on devices"),
    6: Abi((1 << 16) - 1, TCP, SCOPES, 24, 0, "scopes for abstract sockets and signals"),
    7: Abi((1 << 16) - 1, TCP, SCOPES, 24, LOGGED, "audit records"),
    8: Abi((1 << 16) - 1, TCP, SCOPES, 24, LOGGED, ""),  # adds all threads at once: the helper has one thread
    9: Abi((1 << 17) - 1, TCP, SCOPES, 24, LOGGED, ""),  # adds sockets by path: those of other programs are masked
}
# fmt: on


def known(abi: int) -> Abi:
    """Return the newest table entry at or below `abi` (at least 1)."""
    return ABIS[max(number for number in ABIS if number <= abi)]


def missing(abi: int) -> tuple[str, ...]:
    """Return the protections that newer ABIs would add, in words."""
    return tuple(entry.adds for number, entry in ABIS.items() if number > abi and entry.adds)
