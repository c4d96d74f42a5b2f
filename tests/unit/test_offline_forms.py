"""Tests of offline forms: a package manager that was told to connect to no host has none in its Terms."""

from dataclasses import replace
from pathlib import Path

import pytest

from policy.classify import classify
from policy.decide import decide
from policy.model.action import RunScript
from policy.model.assessment import RuleKind, RuleRef
from policy.model.profile import Layer, PermissionRule
from policy.model.tier import Mode, Ruling, Tier
from policy.model.verdict import Allow
from policy.toml.profile import parse_profile
from runner.facts.gather import gather
from tests.support.places import ROOT
from tests.support.rule_examples import BOOK

PROFILE = parse_profile((ROOT / "profiles" / "default.toml").read_text(), "profiles/default.toml")
EVERY_REGISTRY = PermissionRule(
    Ruling.ALLOW,
    RuleRef(RuleKind.USER, "[network] allow"),
    Layer.USER,
    host=("*.org", "*.io", "*.com"),  # the registries of all tools
)

OFFLINE = [
    ("npm ci --offline", "npm's flag"),
    ("npm install --offline left-pad", "a package of the cache"),
    ("npm i --ignore-scripts --offline ../left-pad.tgz", "a file"),
    ("pip install --no-index --find-links wheels demo", "a local folder of packages"),
    ("pip install --no-index --find-links=file:///opt/wheels -r requirements.txt", "a local address"),
    ("python3 -m pip install --no-index ./demo.whl", "pip as a module"),
    ("PIP_NO_INDEX=1 pip download demo", "pip's variable"),
    ("uv sync --offline", "uv's flag"),
    ("uv --offline sync", "before the subcommand"),
    ("uv pip install --offline demo", "below uv pip"),
    ("export UV_OFFLINE=1; uv lock", "uv's variable"),
    ("pnpm install --offline --frozen-lockfile", "pnpm's flag"),
    ("pnpm --offline install", "before the subcommand"),
    ("yarn --offline", "Yarn installs without a subcommand"),
    ("yarn add --offline left-pad", "a package of the mirror"),
    ("cargo fetch --offline", "Cargo's flag"),
    ("cargo build --offline", "a build is code in any case"),
    ("cargo test --frozen", "locked and offline"),
    ("cargo update --offline", "from what was fetched before"),
    ("CARGO_NET_OFFLINE=true cargo fetch", "Cargo's variable"),
    ("GOPROXY=off go mod download", "Go's variable before the command"),
    ("export GOPROXY=off; go mod tidy && go get example.org/x", "exported for both"),
    ("env GOPROXY=off go list -m all", "by env"),
    ("GOPROXY=off go test ./...", "a test is code in any case"),
]
UNCERTAIN = [
    ("npm ci -- --offline", "after the end of the flags"),
    ("npm ci --offline --no-offline", "undone"),
    ("npm ci --offline --no-off", "undone by an abbreviation"),
    ("npm ci --offline --offline=false", "undone by a value"),
    ("npm ci --offline false", "npm takes the next word as the value"),
    ('npm ci --offline "$x"', "a word that may undo it"),
    ("npm ci $x --offline", "a word that may end the flags"),
    ("npm install --offline name/repository", "a repository that Git fetches"),
    ("npm install --offline git+ssh://git@example.org/x.git", "the same"),
    ("npm install --offline x@github:name/x", "the same under a name"),
    ("npm ci --prefer-offline", "only a preference"),
    ("npm view --offline left-pad", "asks the registry"),
    ("pip install --no-index https://example.org/x.whl", "an address"),
    ("pip install --no-index --find-links https://example.org/ x", "an address of packages"),
    ("pip install --target --no-index x", "the name of a folder"),
    ("pip install --no-index 'x @ git+https://example.org/x'", "an address after a name"),
    ("uv sync --offline --no-offline", "undone"),
    ("UV_OFFLINE=1 uv sync --no-offline", "a flag undoes the variable"),
    ("UV_OFFLINE=0 uv sync", "switched off"),
    ("uv run pytest --offline", "a flag of another program"),
    ("pnpm dlx cowsay --offline", "a flag of another program"),
    ("yarn dlx cowsay --offline", "a flag of another program"),
    ("cargo install --offline --git https://example.org/x", "an address"),
    ("GOPROXY=off; go mod tidy", "not exported"),
    ("GOPROXY=off,direct go mod tidy", "not only off"),
    ("GOPROXY=off GOPRIVATE=example.org go mod tidy", "fetches these modules directly"),
    ("[ -e x ] && export GOPROXY=off; go mod tidy", "perhaps not exported"),
    ("export GOPROXY=off; unset GOPROXY; go mod tidy", "no longer exported"),
    ("export GOPROXY=off; export GOPROXY=direct; go mod tidy", "exported again"),
    ("GOPROXY=off true; go mod tidy", "only for the command before"),
]


def _tier_and_hosts(folder: Path, script: str) -> tuple[Tier, tuple[str, ...]]:
    facts = gather(str(folder), {"HOME": str(folder.parent), "PATH": "/usr/bin:/bin"}, PROFILE)
    opening = replace(PROFILE, permissions=(EVERY_REGISTRY,))
    assessment = classify(RunScript(script, str(folder)), facts, BOOK, opening)
    verdict = decide(assessment, facts, opening, Mode.TRUST_PROJECT, unattended=False, environment=())
    return assessment.tiers[0], verdict.permit.terms.hosts if isinstance(verdict, Allow) else ("asked",)


@pytest.mark.threat("T141")
@pytest.mark.parametrize(("script", "why"), OFFLINE, ids=[row[0] for row in OFFLINE])
def test_an_offline_form_needs_no_host(tmp_path: Path, script: str, why: str) -> None:
    """No host is open, although a rule of the user opens every registry."""
    project = tmp_path.resolve() / "project"
    project.mkdir()
    assert _tier_and_hosts(project, script) == (Tier.EXECUTE, ()), why


@pytest.mark.threat("T141")
@pytest.mark.parametrize(("script", "why"), UNCERTAIN, ids=[row[0] for row in UNCERTAIN])
def test_an_uncertain_offline_form_is_judged_as_before(tmp_path: Path, script: str, why: str) -> None:
    project = tmp_path.resolve() / "project"
    project.mkdir()
    assert _tier_and_hosts(project, script)[0] in (Tier.NETWORK, Tier.UNKNOWN), why
