"""Tests of the hosts that the user's own settings name for `kubectl`, `docker` and `aws`."""

import hashlib
import json
from pathlib import Path

import pytest

from runner.facts.package_registries import registry_variables
from runner.facts.service_hosts import service_host

CONTEXT = "contexts: [{name: dev, context: {cluster: a, user: u}}]\ncurrent-context: dev\n"
USERS = "users: [{name: u, user: {token: s3cret}}]\n"


def kubeconfig(server: str, more: str = "") -> str:
    return f"clusters:\n- cluster: {{server: '{server}'{more}}}\n  name: a\n{CONTEXT}{USERS}"


def context_of(name: str, host: str) -> dict[str, str]:
    key = hashlib.sha256(name.encode()).hexdigest()
    return {
        "~/.docker/config.json": json.dumps({"currentContext": name, "auths": {}}),
        f"~/.docker/contexts/meta/{key}/meta.json": json.dumps({"Endpoints": {"docker": {"Host": host}}}),
    }


K8S = kubeconfig("https://k8s.example.org:6443")
AWS = "[default]\nregion = eu-west-1\n[profile other]\nregion = us-east-1\n[profile own]\nregion = eu-west-1\nendpoint_url = https://x.example\n"
KUBE, WORK = "~/.kube/config", "~/work"
# fmt: off
# Files, variables, the client, its host, why.
HOSTS: list[tuple[dict[str, str], dict[str, str], str, str, str]] = [
    ({KUBE: K8S}, {}, "kubectl", "k8s.example.org:6443", "the cluster of the current context"),
    ({KUBE: K8S}, {}, "helm", "k8s.example.org:6443", "the same for helm"),
    ({KUBE: kubeconfig("https://k8s.example.org/k8s/c-1")}, {}, "oc", "k8s.example.org", "an address with a path"),
    ({KUBE: json.dumps({"clusters": [{"name": "a", "cluster": {"server": "https://j.example.org"}}],
                        "contexts": [{"name": "dev", "context": {"cluster": "a"}}], "current-context": "dev"})},
     {}, "kubectl", "j.example.org", "JSON"),
    ({KUBE: K8S, "~/b": kubeconfig("https://b.example.org")}, {"KUBECONFIG": "~/b:~/none"}, "kubectl", "b.example.org", "another file"),
    ({KUBE: K8S, "~/b": kubeconfig("https://b.example.org")}, {"KUBECONFIG": f"~/b:{KUBE}"}, "kubectl", "", "two files are merged"),
    ({f"{WORK}/k": K8S}, {"KUBECONFIG": f"{WORK}/k"}, "kubectl", "", "hostile: a file of the workspace"),
    ({KUBE: K8S}, {"HELM_KUBECONTEXT": "x"}, "helm", "", "another context of helm"),
    ({KUBE: K8S.replace("current-context: dev", "")}, {}, "kubectl", "", "no context"),
    ({KUBE: K8S.replace("current-context: dev", "current-context: x")}, {}, "kubectl", "", "a context that is missing"),
    ({KUBE: K8S.replace("contexts: [", "contexts: [{name: dev, context: {cluster: b}}, ")}, {}, "kubectl", "", "two contexts of the name"),
    ({KUBE: kubeconfig("https://k8s.example.org", ", proxy-url: 'http://p.example.org'")}, {}, "kubectl", "", "through another proxy"),
    ({KUBE: kubeconfig("https://127.0.0.1:6443")}, {}, "kubectl", "", "this machine"),
    ({KUBE: kubeconfig("https://10.1.2.3:6443")}, {}, "kubectl", "10.1.2.3:6443", "a private network"),
    ({KUBE: kubeconfig("https://*.example.org")}, {}, "kubectl", "", "hostile: a pattern"),
    ({KUBE: kubeconfig("https://a.example.org#@evil.example")}, {}, "kubectl", "", "hostile: two hosts"),
    ({KUBE: kubeconfig("unix:///run/x")}, {}, "kubectl", "", "not an address of the web"),
    ({KUBE: "- a\n"}, {}, "kubectl", "", "another structure"),
    ({KUBE: "[" * 5000}, {}, "kubectl", "", "hostile: deep"),
    ({KUBE: "a: &a [x]\nb: {<<: *a"}, {}, "kubectl", "", "hostile: invalid"),
    ({}, {}, "kubectl", "", "no settings"),
    ({}, {"DOCKER_HOST": "tcp://build.example.org:2376"}, "docker", "build.example.org:2376", "a variable"),
    ({}, {"DOCKER_HOST": "unix:///run/docker.sock"}, "docker", "", "a socket of this machine"),
    ({}, {"DOCKER_HOST": "ssh://u@build.example.org"}, "docker", "", "SSH"),
    ({}, {"DOCKER_HOST": "tcp://localhost:2375"}, "docker", "", "a port of this machine"),
    (context_of("far", "tcp://far.example.org:2376"), {}, "docker", "far.example.org:2376", "the context in use"),
    (context_of("far", "tcp://far.example.org:2376"), {"DOCKER_CONTEXT": "near"}, "docker", "", "another context"),
    (context_of("far", "tcp://far.example.org:2376"), {"DOCKER_HOST": "tcp://b.example.org:1"}, "docker", "b.example.org:1", "the variable comes first"),
    ({"~/.docker/config.json": "[]"}, {}, "docker", "", "another structure"),
    ({"~/.aws/config": AWS}, {}, "aws ec2", "ec2.eu-west-1.amazonaws.com", "the region of the profile"),
    ({"~/.aws/config": AWS}, {"AWS_PROFILE": "other"}, "aws elbv2", "elasticloadbalancing.us-east-1.amazonaws.com", "another profile and name"),
    ({"~/.aws/config": AWS}, {"AWS_REGION": "ap-south-1"}, "aws rds", "rds.ap-south-1.amazonaws.com", "a variable"),
    ({"~/.aws/config": AWS}, {}, "aws ec2 us-west-2", "ec2.us-west-2.amazonaws.com", "the region of the command"),
    ({"~/.aws/config": AWS}, {}, "aws iam", "iam.amazonaws.com", "one host for all regions"),
    ({"~/.aws/config": AWS}, {}, "aws unheard", "", "a service that is not listed"),
    ({"~/.aws/config": AWS}, {"AWS_PROFILE": "own"}, "aws ec2", "", "another address"),
    ({"~/.aws/config": AWS}, {"AWS_ENDPOINT_URL_EC2": "https://x.example"}, "aws ec2", "", "another address by a variable"),
    ({"~/.aws/config": AWS}, {}, "aws ec2 x.evil.example#", "", "hostile: a region that changes the host"),
    ({"~/.aws/config": "["}, {}, "aws ec2", "", "another structure"),
    ({}, {}, "aws ec2", "", "no region"),
]
# fmt: on


def expanded(text: str, home: Path) -> str:
    return text.replace("~", str(home))


def machine(home: Path, files: dict[str, str], variables: dict[str, str]) -> tuple[str, dict[str, str], str]:
    """Write the files, and return the home, the variables and the workspace."""
    for name, content in files.items():
        place = Path(expanded(name, home))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)
    return str(home), {name: expanded(value, home) for name, value in variables.items()}, expanded(WORK, home)


@pytest.mark.threat("T175")
@pytest.mark.parametrize(
    ("files", "variables", "client", "host", "why"), HOSTS, ids=[f"{row[2]}-{row[4]}" for row in HOSTS]
)
def test_the_host_is_that_of_the_users_own_settings(
    files: dict[str, str], variables: dict[str, str], client: str, host: str, why: str, tmp_path: Path
) -> None:
    assert service_host(client, *machine(tmp_path, files, variables)) == host


@pytest.mark.threat("T175")
def test_a_link_from_the_home_into_the_workspace_names_no_host(tmp_path: Path) -> None:
    at = machine(tmp_path, {f"{WORK}/k": K8S, "~/.kube/x": ""}, {})
    (tmp_path / ".kube/config").symlink_to(tmp_path / "work/k")
    assert service_host("kubectl", *at) == ""


def test_a_client_is_told_the_address_without_a_login(tmp_path: Path) -> None:
    files = {KUBE: kubeconfig("https://k8s.example.org/k8s/c-1"), "~/.aws/config": AWS}
    home, variables, work = machine(tmp_path, files, {"DOCKER_HOST": "tcp://build.example.org:2376"})

    def told(host: str) -> tuple[tuple[str, str], ...]:
        return registry_variables((host,), home, variables, work)

    assert told("k8s.example.org") == (("KUBERNETES_MASTER", "https://k8s.example.org/k8s/c-1"),)
    assert told("build.example.org:2376") == (("DOCKER_HOST", "tcp://build.example.org:2376"),)
    assert told("ec2.eu-west-1.amazonaws.com") == (("AWS_DEFAULT_REGION", "eu-west-1"),)
    assert told("iam.us-east-1.amazonaws.com") == told("other.example.org") == ()
    machine(tmp_path, {KUBE: kubeconfig("https://u:s3cret@k8s.example.org")}, {})
    assert told("k8s.example.org") == ()
