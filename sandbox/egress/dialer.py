"""Connections to hosts by name: rules, name resolution, checks of addresses, and the connection itself.

INVARIANT: the proxy connects to exactly the address that was checked. A name is resolved once and not again between the
check and the connection, so a changed answer has no effect (DNS rebinding).
"""

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable

from policy.model.deadline import deadline
from policy.model.host_rule import USUAL, HostRule, host_rule
from policy.model.verdict import UNNAMED, Problem
from sandbox.backend import DIRECT, NetworkOptions
from sandbox.egress.addresses import can_be_private, refusal, translated_network, translated_refusal
from sandbox.egress.ledger import EgressRefused, Failed

Resolve = Callable[[str, int], Awaitable[tuple[str, ...]]]

CONNECT = deadline(10.0)  # seconds for one address
_RESOLVING = 8  # names that are resolved at one time
_RESOLVE = deadline(10.0)  # seconds for one name
_ADDRESSES = 6  # addresses of one host that are tried
# Names that an upstream proxy would resolve to its own machine or to a metadata service of a cloud.
_OWN_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")
_METADATA_NAMES = (
    "metadata",
    "metadata.google.internal",
    "metadata.goog",
    "instance-data",
    "instance-data.ec2.internal",
)


async def resolve(host: str, port: int) -> tuple[str, ...]:
    """Return the addresses of `host` from this machine's resolver, best first; empty if there are none. Raises
    TimeoutError.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[str, ...]] = loop.create_future()

    def tell(addresses: tuple[str, ...]) -> None:
        if not done.done():
            done.set_result(addresses)

    def look() -> None:
        try:
            answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
            addresses = tuple(dict.fromkeys(str(answer[4][0]) for answer in answers))
        except (OSError, UnicodeError):
            addresses = ()
        with contextlib.suppress(RuntimeError):  # the loop is closed: the result is not needed
            loop.call_soon_threadsafe(tell, addresses)

    # A daemon thread: a name server that does not answer must not delay the end of the program.
    threading.Thread(target=look, daemon=True).start()
    async with asyncio.timeout(_RESOLVE):
        return await done


class Dialer:
    """The rules of one allowlist, and the connections that they allow. `resolver` replaces the machine's in tests."""

    def __init__(self, hosts: Iterable[str], resolver: Resolve = resolve, network: NetworkOptions = DIRECT) -> None:
        """Parse the entries. Raises ValueError for an invalid entry, although the compiler of the Terms and the loader
        of the configuration have checked all of them.
        """
        self._translated = tuple(map(translated_network, network.translated))
        self._proxy: tuple[str, int] | None = None
        if network.proxy:
            from sandbox.egress.upstream import proxy_address  # only with an upstream proxy

            self._proxy = proxy_address(network.proxy)
        self.rules: list[HostRule] = []
        for text in hosts:
            if text == UNNAMED:
                continue  # this entry allows no host
            rule = host_rule(text)
            if isinstance(rule, Problem):
                raise ValueError(str(rule))
            self.rules.append(rule)
        self._resolver = resolver
        self._resolving = asyncio.Semaphore(_RESOLVING)

    def allowing(self, host: str, port: int, method: str = "", path: str = "") -> HostRule:
        """Return the widest rule that allows this request or, without a method, this tunnel. Raises EgressRefused."""
        fitting = [rule for rule in self.rules if rule.meets(host, port, method, path)]
        return self._widest(fitting, host, port, method, path)

    def naming(self, host: str, port: int) -> HostRule:
        """Return the widest rule for this host, for a tunnel whose requests are judged. Raises EgressRefused."""
        return self._widest([rule for rule in self.rules if rule.names(host, port)], host, port, "", "")

    def _widest(self, fitting: list[HostRule], host: str, port: int, method: str, path: str) -> HostRule:
        if fitting:
            return min(fitting, key=lambda rule: (rule.bound, not rule.private))
        port_part = "" if port in USUAL else f":{port}"
        named = [rule for rule in self.rules if rule.names(host, port)]
        if named and method:
            right = f"{method} {host}{port_part}{path}"
            if isinstance(host_rule(right), Problem):  # a path that may be read in two ways: no entry covers it
                right = f"{method} {host}{port_part}"
            what = f"{method} {quoted_path(path)} of host {host} is not on the allowlist"
        elif named:
            right, what = f"{host}{port_part}", f"host {host} is on the allowlist for some plain HTTP requests only"
        elif any(rule.names(host, each) for rule in self.rules for each in (*USUAL, *rule.ports)):
            right, what = f"{host}:{port}", f"port {port} of host {host} is not on the allowlist"
        else:
            right = f"{method} {host}{port_part}{path}" if method else f"{host}{port_part}"
            right = f"{host}{port_part}" if isinstance(host_rule(right), Problem) else right
            what = f"host {host} is not on the allowlist"
        # Suggest `private` if a rule for the host or the address needs it: otherwise the address would be refused next.
        literal = host.strip("[]") if _literal(host) else ""
        if literal and refusal(literal, private=True):
            right = ""
        elif right and (any(rule.private for rule in named) or (literal and refusal(literal, private=False))):
            right += " private"
        raise EgressRefused(what, right=right, host=host)

    async def connect(self, host: str, port: int, *, private: bool) -> tuple[socket.socket, str]:
        """Return a connected socket and its address. Raises EgressRefused if the address is not allowed, and Failed if
        the network failed. `private`: True if this machine and private networks are allowed.
        """
        if self._proxy is not None and not private:
            return await self._through(self._proxy, host, port)
        errors: list[str] = []
        for address in await self._addresses(host, port, private):
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            if not private and _own(family, address, port):
                raise EgressRefused(
                    f"host {host} is on this machine ({address})", host=host, right=_private(host, port)
                )
            made = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            try:
                async with asyncio.timeout(CONNECT):
                    # SAFETY: connect(2) to a literal address: nothing resolves a name here.
                    await asyncio.get_running_loop().sock_connect(made, (address, port))
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return made, address
            except BaseException as error:
                made.close()
                if not isinstance(error, OSError):
                    raise
                why = (os.strerror(error.errno) if error.errno else str(error)).lower()
                errors.append(f"{address}: {'no answer in time' if isinstance(error, TimeoutError) else why}")
        has_proxy = any(map(os.environ.get, ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")))
        more = "; the sandbox does not use the proxy of this machine (HTTPS_PROXY)" if has_proxy else ""
        more += " unless `upstream_proxy` in `[sandbox.network]` of your configuration names it" if has_proxy else ""
        raise Failed(f"host {host} cannot be reached ({'; '.join(errors[:3])}{more})", host=host)

    async def _through(self, proxy: tuple[str, int], host: str, port: int) -> tuple[socket.socket, str]:
        """Return a tunnel through the upstream proxy, which resolves the name, and the address of the proxy.

        A literal address is checked as without an upstream proxy.
        """
        if _literal(host):
            await self._addresses(host, port, private=False)
        elif host in _OWN_NAMES or host.endswith(".localhost"):
            raise EgressRefused(f"host {host} is this machine itself", host=host, right=_private(host, port))
        elif host in _METADATA_NAMES:
            raise EgressRefused(f"host {host} is a cloud's metadata service, which gives out credentials", host=host)
        from sandbox.egress.upstream import open_tunnel

        name = f"{f'[{proxy[0]}]' if ':' in proxy[0] else proxy[0]}:{proxy[1]}"
        try:
            addresses = await self._resolver(*proxy) if not _literal_address(proxy[0]) else (proxy[0],)
        except TimeoutError:
            addresses = ()
        why = "its name has no address"
        for address in addresses[:_ADDRESSES]:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            made = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            try:
                async with asyncio.timeout(CONNECT):
                    # SAFETY: connect(2) to the proxy that the user's own configuration names.
                    await asyncio.get_running_loop().sock_connect(made, (address, proxy[1]))
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await open_tunnel(made, host, port)
                return made, address
            except BaseException as error:
                made.close()
                if not isinstance(error, OSError):
                    raise
                words = os.strerror(error.errno) if error.errno else str(error)
                why = "no answer in time" if isinstance(error, TimeoutError) else words.lower()
        fix = "check `upstream_proxy` in `[sandbox.network]` of your configuration, and that the proxy runs"
        raise Failed(f"the upstream proxy {name} cannot be reached ({why})", host=host, fix=fix)

    def _refusal(self, address: str, *, named: bool, private: bool) -> str | None:
        """Return the reason not to connect to `address`. Translated ranges count only for names (`named`)."""
        if named and self._translated:
            inside, why = translated_refusal(address, self._translated, private=private)
            if inside:
                return why
        return refusal(address, private=private)

    async def _addresses(self, host: str, port: int, private: bool) -> tuple[str, ...]:
        """Return the addresses that may be connected to; at least one."""
        named = not _literal(host)
        if not named:
            addresses: tuple[str, ...] = (host.strip("[]"),)
        else:
            async with self._resolving:
                try:
                    addresses = await self._resolver(host, port)
                except TimeoutError:
                    raise Failed(f"the name {host} was not resolved in time", host=host, status=504) from None
            if not addresses:
                raise Failed(f"no address is known for host {host}", host=host)
        checked = {each: self._refusal(each, named=named, private=private) for each in addresses}
        wrong = {address: why for address, why in checked.items() if why}
        good = tuple(address for address in addresses if address not in wrong)
        if not good:
            address, why = next(iter(wrong.items()))
            what = f"host {host} is {why}" if address == host.strip("[]") else f"host {host} is at {address}: {why}"
            right = _private(host, port) if can_be_private(address) else ""
            raise EgressRefused(what, host=host, right=right)
        return good[:_ADDRESSES]


def _literal(host: str) -> bool:
    return host.startswith("[") or host.replace(".", "").isdigit()


def _literal_address(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdigit()


def quoted_path(path: str) -> str:
    """Return a path for use in a sentence: at most 100 characters, with `?` for each one that is not visible ASCII."""
    text = "".join(char if "!" <= char <= "~" else "?" for char in path)
    return text if len(text) <= 100 else text[:97] + "..."


def _private(host: str, port: int) -> str:
    return f"{host}{'' if port in USUAL else f':{port}'} private"


def _own(family: int, address: str, port: int) -> bool:
    """Return True if `address` belongs to this machine, public addresses included: the kernel would send from it.

    Connecting a datagram socket sends nothing (connect(2)).
    """
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, port))
            source = str(probe.getsockname()[0])
            return source == address or source.startswith("127.")
    except OSError:
        return False  # there is no route: connecting will fail with the reason
