"""Hosts that the user's own settings name for the clients of services: the cluster of `kubectl`, the daemon of
`docker`, the region of `aws`.

Only hosts and addresses without a login leave this module. Settings in the workspace name no host here: a model can
change them. A wrong host costs a refused connection, because a client gets no host but that of the question.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from configparser import ConfigParser, Error
from typing import Any
from urllib.parse import urlsplit

from policy.model.host_words import endpoint, names_private_network
from policy.model.secret_paths import inside
from runner.facts.default_registries import text_of

_CLUSTER = frozenset(["kubectl", "oc", "helm"])
_REGION = re.compile(r"(?:af|ap|ca|eu|il|me|mx|sa|us)-[a-z]+-[0-9]")
# The first part of the host of a service, where it is not the name of the service.
# SOURCE: `endpointPrefix` in botocore's data, and docs.aws.amazon.com/general/latest/gr/aws-service-information.html
# fmt: off
_PREFIXES = {
    **{name: name for name in (
        "acm", "athena", "autoscaling", "batch", "cloudformation", "cloudtrail", "config", "dynamodb", "ec2", "ecs",
        "eks", "elasticache", "events", "firehose", "glue", "kinesis", "kms", "lambda", "logs", "rds", "redshift",
        "secretsmanager", "sns", "sqs", "ssm", "sts",
    )},
    "cloudwatch": "monitoring", "ecr": "api.ecr", "efs": "elasticfilesystem", "elb": "elasticloadbalancing",
    "elbv2": "elasticloadbalancing", "emr": "elasticmapreduce", "stepfunctions": "states",
}
# fmt: on
_GLOBAL = frozenset(["cloudfront", "iam", "route53"])  # one host for all regions
_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
# Settings with which the host is another one. SOURCE: the AWS SDKs and Tools Reference Guide, "Settings reference".
_ELSEWHERE = re.compile(r"AWS_(?:ENDPOINT_URL.*|USE_FIPS_ENDPOINT|USE_DUALSTACK_ENDPOINT)", re.IGNORECASE)
_ELSEWHERE_KEYS = ("endpoint_url", "services", "use_fips_endpoint", "use_dualstack_endpoint")


def service_host(client: str, home: str, environ: Mapping[str, str], workspace: str) -> str:
    """Return the host that `client` contacts by the user's settings, in the form of Terms. Never raises.

    `client` is the name of a program; for `aws`, the name of the service and the region of the command follow
    (`aws ec2 eu-west-1`), or only the service. The result is empty if the host is not certain, or is this machine.
    """
    name, *words = client.split(" ")
    if name == "aws":
        host = _aws_host(words, home, environ, workspace)
    else:
        host = endpoint(_address(name, home, environ, workspace)) or ""
    this_machine = names_private_network(host) and host.startswith(("localhost", "127.", "[::1]"))
    return "" if this_machine else host


def service_variables(home: str, environ: Mapping[str, str], workspace: str) -> tuple[tuple[str, str, str], ...]:
    """Return the host of each service with the variable that names it to a client in the sandbox, where the user's
    files do not exist: triples (host, name, value). No value contains a login.
    """
    found = []
    for client, name in (("kubectl", "KUBERNETES_MASTER"), ("docker", "DOCKER_HOST")):
        address = _address(client, home, environ, workspace)
        if address and "@" not in urlsplit(address).netloc:
            found.append((endpoint(address) or "", name, address))
    region = _region(environ, _aws_settings(home, environ, workspace))
    hosts = dict.fromkeys(_regional(prefix, region) for prefix in _PREFIXES.values()) if region else ()
    return (*found, *((host, "AWS_DEFAULT_REGION", region) for host in hosts))


def _address(client: str, home: str, environ: Mapping[str, str], workspace: str) -> str:
    if client in _CLUSTER:
        return _cluster(client, home, environ, workspace)
    return _daemon(home, environ, workspace) if client == "docker" else ""


def _own_text(path: str, workspace: str) -> str:
    """Return the text of a file of the user; empty if there is none, or if it is in the workspace."""
    return "" if not path or inside(os.path.realpath(path), workspace) else text_of(path)


def _cluster(client: str, home: str, environ: Mapping[str, str], workspace: str) -> str:
    """Return the address of the cluster of the current context. SOURCE: client-go, clientcmd/loader.go."""
    if client == "helm" and any(name.startswith("HELM_KUBE") for name in environ):
        return ""
    named = [path for path in environ.get("KUBECONFIG", "").split(":") if path]
    files = [path for path in named if os.path.lexists(path)] if named else [f"{home}/.kube/config"]
    text = _own_text(files[0], workspace) if len(files) == 1 else ""  # several files would have to be merged
    if not text:
        return ""
    import yaml  # few users have a cluster

    try:
        # Without tags, numbers, dates and merge keys: every value is a text, a list or a mapping.
        settings = yaml.load(text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))  # noqa: S506  # see above
        context = _entry(settings["contexts"], settings["current-context"])["context"]
        cluster = _entry(settings["clusters"], context["cluster"])["cluster"]
        server = cluster["server"]
        certain = isinstance(server, str) and re.match(r"https?://", server) and not cluster.get("proxy-url")
    except (yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError, RecursionError):
        return ""
    return server if certain else ""


def _entry(entries: Any, name: str) -> Any:
    """Return the one entry with this name. Raise ValueError if there is none or more than one."""
    (found,) = [each for each in entries if each["name"] == name]
    return found


def _daemon(home: str, environ: Mapping[str, str], workspace: str) -> str:
    """Return the address of a daemon of Docker behind TCP; empty for a socket of this machine.

    SOURCE: docker/cli, cli/command/cli.go (`resolveContextName`) and cli/context/store.
    """
    address = environ.get("DOCKER_HOST", "")
    if not address:
        folder = environ.get("DOCKER_CONFIG") or f"{home}/.docker"
        try:
            settings = json.loads(_own_text(f"{folder}/config.json", workspace) or "{}")
            name = environ.get("DOCKER_CONTEXT") or settings.get("currentContext") or ""
            key = hashlib.sha256(str(name).encode()).hexdigest()
            about = _own_text(f"{folder}/contexts/meta/{key}/meta.json", workspace)
            address = str(json.loads(about)["Endpoints"]["docker"]["Host"]) if about else ""
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError):
            return ""
    return address if re.fullmatch(r"tcp://[^/?#@]+:[0-9]+/?", address) else ""


def _aws_host(words: list[str], home: str, environ: Mapping[str, str], workspace: str) -> str:
    service, *regions = words or [""]
    settings = _aws_settings(home, environ, workspace)
    if settings is None or any(map(_ELSEWHERE.fullmatch, environ)):
        return ""
    region = regions[0] if regions else _region(environ, settings)
    if not _REGION.fullmatch(region):
        return ""
    if service in _GLOBAL:
        return f"{service}.amazonaws.com"
    prefix = _PREFIXES.get(service, "")
    return _regional(prefix, region) if prefix else ""


def _regional(prefix: str, region: str) -> str:
    return f"{prefix}.{region}.amazonaws.com"


def _region(environ: Mapping[str, str], settings: Mapping[str, str] | None) -> str:
    named = next((environ[name] for name in _REGION_VARIABLES if environ.get(name)), "")
    region = named or (settings or {}).get("region", "")
    return region if _REGION.fullmatch(region) else ""


def _aws_settings(home: str, environ: Mapping[str, str], workspace: str) -> dict[str, str] | None:
    """Return the settings of the profile in use, or None if they may name another host."""
    parser = ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(_own_text(environ.get("AWS_CONFIG_FILE") or f"{home}/.aws/config", workspace))
    except Error:
        return None
    name = environ.get("AWS_PROFILE") or "default"
    section = next((each for each in (f"profile {name}", name) if parser.has_section(each)), "")
    settings = dict(parser[section]) if section else {}
    return None if any(key in settings for key in _ELSEWHERE_KEYS) else settings
