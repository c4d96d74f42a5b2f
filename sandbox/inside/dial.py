"""The program that connects to a port of a sandbox's loopback: `python -I -S dial.py FOLDER DESCRIPTORS CONTROL PORT`.

It enters the network namespace of the descriptors, which has a loopback and nothing else, connects there, and passes
the connection to the runner over the socket CONTROL, or writes the number of the error. Standard library only.
"""

import errno
import os
import socket
import sys

PATIENCE = 5.0  # seconds for one address


def dial(port: int) -> socket.socket:
    """Return a connection to `port` of the loopback, by IPv4 or else by IPv6. Raises OSError."""
    try:
        return socket.create_connection(("127.0.0.1", port), PATIENCE)
    except ConnectionRefusedError:
        return socket.create_connection(("::1", port), PATIENCE)


def main() -> None:
    folder, descriptors, control, port = sys.argv[1:]
    sys.path.append(folder)  # last, so that no module there replaces one of the standard library
    from sandbox.inside import confine, join_network  # the path must be set first: -I gives none

    confine.follow_parent()
    with socket.socket(fileno=int(control)) as answer:
        try:
            join_network.join([int(number) for number in descriptors.split(",")])
            with dial(int(port)) as made:
                made.settimeout(None)
                socket.send_fds(answer, [b"ok"], [made.fileno()])
        except OSError as error:  # a TimeoutError of `create_connection` has no number
            answer.sendall(str(error.errno or errno.ETIMEDOUT).encode())


if __name__ == "__main__":
    main()
    os._exit(0)
