"""The network namespace of a helper: shown to the runner by descriptors, entered by later helpers with equal rights.

Also the program that enters such a namespace and then starts another program there: `python -I -S join_network.py
FOLDER DESCRIPTORS PROGRAM [WORD ...]`, for bubblewrap, which can only make namespaces. Standard library only.
"""

import os
import sys

SHOWN = ("/proc/self/ns/net", "/proc/self/net/tcp", "/proc/self/net/tcp6")


def show() -> list[int]:
    """Open the network namespace of this process and the tables of its TCP sockets, in the order of `SHOWN`.

    The list is empty if /proc does not show the namespace, and has no third descriptor without IPv6.
    """
    shown: list[int] = []
    for path in SHOWN:
        try:
            shown.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            break
    return shown


def join(handles: list[int]) -> None:
    """Enter the network namespace of the last descriptor, and first the user namespace of the descriptor before it.

    A process without root's capabilities can only enter a network namespace from the user namespace that owns it
    (setns(2)). Closes the descriptors. Raises KernelError.
    """
    from sandbox.inside import syscalls

    for handle, kind in zip(handles, (syscalls.CLONE_NEWUSER, syscalls.CLONE_NEWNET)[-len(handles) :], strict=True):
        syscalls.setns(handle, kind)
        os.close(handle)


def main() -> None:
    folder, descriptors, *words = sys.argv[1:]
    sys.path.append(folder)  # last, so that no module there replaces one of the standard library
    try:
        join([int(number) for number in descriptors.split(",")])
        os.execv(words[0], words)  # noqa: S606  # the words are those of this program, which no shell reads
    except OSError as error:
        print(f"join the network of the session: {error}", file=sys.stderr)  # read with the errors of bubblewrap
        sys.exit(1)


if __name__ == "__main__":
    main()
