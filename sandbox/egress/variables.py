"""The environment variables by which programs inside find the proxy, each in its own spelling."""

from collections.abc import Iterable, Mapping

from policy.model.host_rule import HostRule, host_rule

# All ports are free on the loopback of a separate network namespace. A constant port stays valid in the configuration
# files that commands write for later commands.
PORT = 3128
_OWN = ("localhost", "127.0.0.1", "::1")  # the sandbox's own servers


def variables(environment: Mapping[str, str], hosts: Iterable[str] = (), port: int = PORT) -> dict[str, str]:
    """Return the variables that are added to `environment`.

    A loopback name means the sandbox itself, unless an entry of `hosts` with `private` names it: it then means the
    runner's machine and is reached through the proxy. `port` is the port of
    the proxy, which also serves SOCKS5. ALL_PROXY is HTTP as well: several libraries fail to start if ALL_PROXY names
    SOCKS and they lack a module for it.
    """
    proxy = f"http://127.0.0.1:{port}"
    java = " ".join(f"-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort={port}" for scheme in ("http", "https"))
    rules = [rule for rule in map(host_rule, hosts) if isinstance(rule, HostRule)]
    named = {rule.host.strip("[]") for rule in rules if rule.private}
    own = ",".join(each for each in _OWN if each not in named)
    both = {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "ALL_PROXY": proxy, "NO_PROXY": own}
    return {
        **both,
        **{name.lower(): value for name, value in both.items()},  # curl, wget and git read `http_proxy` in lower case
        "npm_config_proxy": proxy,  # overrides a project's .npmrc
        "npm_config_https_proxy": proxy,
        "YARN_HTTP_PROXY": proxy,  # the only variables that Yarn reads from version 2 on
        "YARN_HTTPS_PROXY": proxy,
        "NODE_USE_ENV_PROXY": "1",  # Node's own fetch and http, from 22.21 and 24.0 on
        **{name: f"{environment.get(name, '')} {java}".strip() for name in ("GRADLE_OPTS", "MAVEN_OPTS")},
    }
