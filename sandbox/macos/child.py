"""The start script of the seatbelt backend: sets limits and becomes a command, or performs a file action.

Before sandbox-exec: `child.py start LIMITS ENVIRONMENT PROGRAM ...` (JSON objects; names of limits as in `resource`).
Inside it: `child.py perform FOLDER`, with a marshalled request on standard input and JSON on standard output; FOLDER
contains the package of this program. Standard library only.
"""

import json
import marshal
import os
import resource
import sys


def start(limits: str, environment: str, argv: list[str]) -> None:
    for name, value in json.loads(limits).items():
        number = getattr(resource, name)
        _, hard = resource.getrlimit(number)
        ceiling = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (ceiling, ceiling))
    os.umask(0o022)
    os.execve(argv[0], argv, json.loads(environment))  # noqa: S606  # becoming the command is its purpose


def perform(folder: str) -> None:
    sys.path.append(folder)  # last, so that no module of an environment replaces one of the standard library
    from sandbox.inside.files import operations  # needs the path set above, because of -I

    print(json.dumps(operations.perform(marshal.load(sys.stdin.buffer))))  # noqa: S302  # written by the trusted runner


if __name__ == "__main__":
    perform(sys.argv[2]) if sys.argv[1] == "perform" else start(sys.argv[2], sys.argv[3], sys.argv[4:])
