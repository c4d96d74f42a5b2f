"""How programs inside learn of the proxy: the variables that they look for, each in its own spelling."""

from collections.abc import Iterable, Mapping

from policy.model.host_rule import HostRule, host_rule

# On the loopback of a network namespace of our own everything is free. One that never changes keeps what commands write
# down about it true for the next one.
PORT = 3128
_OWN = ("localhost", "127.0.0.1", "::1")  # the sandbox's own servers


def variables(environment: Mapping[str, str], hosts: Iterable[str] = (), port: int = PORT) -> dict[str, str]:
    """What is added to `environment`. One of `hosts` that is called like the own loopback is the runner's machine.

    `port`: of the proxy, without a loopback of one's own. SOCKS5 is spoken on it too, for programs that are told
    so themselves. ALL_PROXY is HTTP as well: several libraries refuse to start when it names SOCKS and they lack a
    module for it.
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
