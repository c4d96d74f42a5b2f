"""The environment variables by which programs inside find the proxy, each in its own spelling."""

from collections.abc import Iterable, Mapping

from policy.model.host_rule import HostRule, host_rule

# On the loopback of a network namespace of our own everything is free. One that never changes keeps what commands write
# down about it true for the next one.
PORT = 3128
_OWN = ("localhost", "127.0.0.1", "::1")  # the sandbox's own servers


def variables(environment: Mapping[str, str], hosts: Iterable[str] = (), port: int = PORT) -> dict[str, str]:
    """Return the variables that are added to `environment`. A host of `hosts` named like the loopback is the runner's
    machine.

    `port` is that of the proxy, if there is no separate loopback. The port also speaks SOCKS5, for programs that are
    configured for it. ALL_PROXY is HTTP as well: several libraries fail to start if ALL_PROXY names SOCKS and they lack
    a module for it.
    """
    proxy = f"http://127.0.0.1:{port}"
    java = " ".join(f"-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort={port}" for scheme in ("http", "https"))
    named = {rule.host.strip("[]") for rule in map(host_rule, hosts) if isinstance(rule, HostRule)}
    own = ",".join(each for each in _OWN if each not in named)
    both = {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "ALL_PROXY": proxy, "NO_PROXY": own}
    return {
        **both,
        **{name.lower(): value for name, value in both.items()},  # curl, wget and git read `http_proxy` in lower case
        "npm_config_proxy": proxy,  # over what a project's .npmrc says
        "npm_config_https_proxy": proxy,
        "YARN_HTTP_PROXY": proxy,  # Yarn from version 2 on reads no others
        "YARN_HTTPS_PROXY": proxy,
        "NODE_USE_ENV_PROXY": "1",  # Node's own fetch and http, from 22.21 and 24.0 on
        **{name: f"{environment.get(name, '')} {java}".strip() for name in ("GRADLE_OPTS", "MAVEN_OPTS")},
    }
