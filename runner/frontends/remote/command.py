"""The process `agent serve web`: the address, the certificate, the server, and its end."""

import asyncio
import datetime
import ipaddress
import os
import resource
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from policy.model.verdict import Problem
from runner.frontends.remote.access_log import AccessLog
from runner.frontends.remote.argv import WebArgs, parse_web
from runner.frontends.remote.certificate import ServerCertificate, kept_certificate, named_certificate
from runner.frontends.remote.listen_address import (
    ListenAddress,
    checked_name,
    host_text,
    listening,
    machine_name,
    parse_address,
)
from runner.frontends.remote.status import STATUS_FILE, RemoteStatus, remote_folder
from runner.frontends.remote.tokens import RemoteTokens
from runner.problems import Exit, Stopped, usage
from runner.stderr import say
from sandbox.inside import syscalls

_DESCRIPTORS = 256  # open files of the process, so that connections cannot use up those of the machine
_LABEL = "agent serve"
_PDEATHSIG = 1  # PR_SET_PDEATHSIG, prctl(2)


def run_web(words: Sequence[str]) -> int:
    """Run `agent serve web WORDS`, and return its exit code. Raise Stopped."""
    args, check = parse_web(words)
    return check_web(args, os.environ) if check else serve_web(args, os.environ)


def checked_args(args: WebArgs) -> ListenAddress:
    """Return the address of valid options. Raise Stopped for options that exclude each other or cannot be used."""
    if find_spec("websockets") is None:
        what, why = "remote access cannot start", "the library of the WebSocket protocol is not installed"
        raise Stopped(Problem(what, why, "install `ringfence[remote]`"), Exit.FAILED)
    address = parse_address(args.listen)
    if (args.certificate is None) is not (args.key is None):
        raise usage("a certificate needs its key", "only one of both is named", "give --tls-cert and --tls-key")
    if not args.tls and args.certificate is not None:
        raise usage("--no-tls and --tls-cert exclude each other", "a certificate is for TLS", "leave one of them out")
    if not args.tls and not address.ip.is_loopback:
        why = f"everyone on the way to {address} could read the sessions and answer their questions"
        raise usage("--no-tls is possible only on a loopback address", why, "leave --no-tls out")
    for name in args.names:
        checked_name(name)
    return address


def check_web(args: WebArgs, environ: Mapping[str, str]) -> int:
    """Check the options, the port and the certificate, print what `serve_web` will use, and return the exit code.

    `agent serve --listen` runs this in a process of its own first, so that a mistake is reported at its terminal. Raise
    Stopped.
    """
    address = checked_args(args)
    folder = remote_folder(environ)
    with listening(address):
        names = _names(address, args)
        certificate = _certificate(args, folder, address, names) if args.tls else None
    if address.port:
        say(f"{_LABEL}: {page_address(address, secure=args.tls)}")
    else:
        say(f"{_LABEL}: the port is a free one: `agent serve --status` shows it")
    _announce(address, certificate, bool(RemoteTokens(folder).tokens()))
    return Exit.DONE


def serve_web(args: WebArgs, environ: Mapping[str, str]) -> int:
    """Serve pages until a signal arrives or the resident process ends, and return the exit code. Raise Stopped."""
    address = checked_args(args)
    folder = remote_folder(environ)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_DESCRIPTORS, hard) if hard > 0 else _DESCRIPTORS, hard))
    listener = listening(address)
    try:
        address = ListenAddress(address.ip, listener.getsockname()[1])
        names = _names(address, args)
        certificate = _certificate(args, folder, address, names) if args.tls else None
        try:
            asyncio.run(_serve(args, environ, folder, address, names, certificate, listener))
        except asyncio.CancelledError:  # by a signal, or because the resident process is gone
            return Exit.INTERRUPTED
        finally:
            (folder / STATUS_FILE).unlink(missing_ok=True)
    finally:
        listener.close()
    return Exit.DONE


def _names(address: ListenAddress, args: WebArgs) -> frozenset[str]:
    """Return the host names under which pages may reach the server, beside its IP address."""
    own = {checked_name(name) for name in args.names}
    if address.ip.is_loopback or address.ip.is_unspecified:
        own.add("localhost")
    if not address.ip.is_loopback and (name := machine_name()):
        own.add(name)
    return frozenset(own)


def _certificate(args: WebArgs, folder: Path, address: ListenAddress, names: frozenset[str]) -> ServerCertificate:
    if args.certificate is not None and args.key is not None:
        return named_certificate(args.certificate, args.key)
    addresses = {"127.0.0.1", "::1"} if address.ip.is_unspecified else {str(address.ip)}
    return kept_certificate(folder, names | addresses, datetime.datetime.now(datetime.UTC))


async def _serve(
    args: WebArgs,
    environ: Mapping[str, str],
    folder: Path,
    address: ListenAddress,
    names: frozenset[str],
    certificate: ServerCertificate | None,
    listener: socket.socket,
) -> None:
    from runner.audit.log import own_log_place
    from runner.frontends.remote.door import Door
    from runner.frontends.remote.server import RemoteServer
    from runner.frontends.remote.session_list import FOLDER
    from runner.frontends.remote.viewer import ViewerPlaces
    from runner.frontends.signals import end_by_signals

    end = end_by_signals()
    store, log = RemoteTokens(folder), AccessLog(folder)
    tokens = store.tokens()
    every = names | (certificate.names if certificate is not None else frozenset())
    door = Door(store, every, secure=certificate is not None)
    places = ViewerPlaces(folder / FOLDER, own_log_place(environ), log)
    server = RemoteServer(door, places, certificate)
    status = RemoteStatus(os.getpid(), page_address(address, secure=certificate is not None), _print_of(certificate))
    status.write(folder)
    say(f"{_LABEL}: {status.url}")
    _announce(address, certificate, bool(tokens))
    log.write("started", address=str(address))
    if args.lifeline is not None:
        syscalls.prctl(_PDEATHSIG, signal.SIGTERM)  # also if this loop hangs; before the look at the lifeline
        asyncio.get_running_loop().add_reader(args.lifeline, _ended, args.lifeline, end)
    await server.run(listener)


def _ended(lifeline: int, end: Callable[[], None]) -> None:
    """End the process at the end of file of the lifeline: the resident process is gone."""
    if not os.read(lifeline, 1):
        asyncio.get_running_loop().remove_reader(lifeline)
        end()


def _print_of(certificate: ServerCertificate | None) -> str:
    return certificate.fingerprint if certificate is not None else ""


def _announce(address: ListenAddress, certificate: ServerCertificate | None, has_tokens: bool) -> None:
    if certificate is None:
        say(f"{_LABEL}: without TLS; other programs of this machine can read the connection")
    else:
        kind = "your certificate" if certificate.own else "a self-signed certificate; compare this in the browser"
        say(f"{_LABEL}: {kind}, SHA-256 {certificate.fingerprint}")
    if address.warning:
        say(f"{_LABEL}: warning: {address.warning}")
    if not has_tokens:
        say(f"{_LABEL}: there is no token yet: `agent serve token add NAME --scope answer --link`")


def page_address(address: ListenAddress, *, secure: bool) -> str:
    """Return the URL of the page. For all addresses of this machine, it names the one that other machines use."""
    ip = address.ip
    if ip.is_unspecified:
        family, far = (socket.AF_INET6, "2001:db8::1") if ip.version == 6 else (socket.AF_INET, "192.0.2.1")
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((far, 9))  # SAFETY: connect(2) of a datagram socket sends nothing
                ip = ipaddress.ip_address(probe.getsockname()[0])
            except OSError:  # there is no network
                ip = ipaddress.ip_address("::1" if ip.version == 6 else "127.0.0.1")
    return f"{'https' if secure else 'http'}://{host_text(ip)}:{address.port}/"
