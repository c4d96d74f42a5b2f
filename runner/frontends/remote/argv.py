"""The command line of `agent serve web`, which the resident process starts; parsed without typer."""

import os
from collections.abc import Sequence
from dataclasses import replace

from policy.model.frozen import dataclass
from runner.problems import Stopped, usage

OPTIONS = ("--listen", "--tls-cert", "--tls-key", "--no-tls", "--name")  # those that a user gives
_VALUED = ("--listen", "--tls-cert", "--tls-key", "--name", "--lifeline")


@dataclass(frozen=True, slots=True)
class WebArgs:
    """The options of `agent serve web`.

    Attributes:
        listen: The address and port.
        certificate: The file of the certificate, or None for a self-signed one.
        key: The file of its key.
        tls: False for plain HTTP, which only a loopback address may have.
        names: Further host names under which pages may reach the server.
        lifeline: The descriptor whose end of file ends the process, or None.
    """

    listen: str
    certificate: str | None = None
    key: str | None = None
    tls: bool = True
    names: tuple[str, ...] = ()
    lifeline: int | None = None


def parse_web(words: Sequence[str]) -> tuple[WebArgs, bool]:
    """Return the options, and True if they are only to be checked (`--check`). Raise a usage error."""
    args, check = WebArgs(""), False
    queue = list(words)
    while queue:
        name, sign, value = queue.pop(0).partition("=")
        if name in ("--no-tls", "--check") and not sign:
            args, check = (replace(args, tls=False), check) if name == "--no-tls" else (args, True)
            continue
        if name not in _VALUED:
            raise _unknown(f"there is no option `{name[:40]}`")
        if not sign:
            if not queue:
                raise _unknown(f"`{name}` has no value")
            value = queue.pop(0)
        match name:
            case "--listen":
                args = replace(args, listen=value)
            case "--tls-cert":
                args = replace(args, certificate=value)
            case "--tls-key":
                args = replace(args, key=value)
            case "--name":
                args = replace(args, names=(*args.names, value))
            case "--lifeline" if value.isdecimal():
                args = replace(args, lifeline=int(value))
            case _:
                raise _unknown(f"`{value[:40]}` is not a descriptor")
    if not args.listen:
        raise _unknown("`--listen` is missing")
    return args, check


def web_words(args: WebArgs) -> tuple[str, ...]:
    """Return the words of the command line that give these options, without the lifeline, in any working folder."""
    words = [f"--listen={args.listen}"]
    words += [f"--tls-cert={os.path.abspath(args.certificate)}"] if args.certificate is not None else []
    words += [f"--tls-key={os.path.abspath(args.key)}"] if args.key is not None else []
    words += ["--no-tls"] if not args.tls else []
    return (*words, *(f"--name={name}" for name in args.names))


def _unknown(why: str) -> Stopped:
    return usage("`agent serve web` cannot start", why, "start it with `agent serve --listen ADDR`")
