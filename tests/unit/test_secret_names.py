"""Tests of the names of secret files: the lists of the packaged profile, and the copies that editors make."""

import re
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policy.classify import classify
from policy.model.action import RunScript
from policy.model.secret_names import _MARKS, MOST, SAMPLES, holds_login, originals
from policy.model.secret_paths import Secrets
from policy.model.tier import Tier
from sandbox.workspace.folder_cache import FolderTrees
from sandbox.workspace.protected_paths import scan
from sandbox.workspace.secret_files import login_at, secret_names
from tests.support.classified import BOOK, judge, machine, profile

# Names without blanks; those with some follow.
SECRET_NAMES = """
    .env .env.local prod.env server.key x.pem credentials.json .git-credentials id_rsa .netrc store.p12 store.jks
    .env~ #.env# .#.env .env.swp .env.swo .env.bak .env.orig .env.old .env.save .env.save.1 .env.rej .env.kate-swp .env.BAK
    server.key~ server.key.bak server.key.~1~ .server.key.swp .server.key.swo .server.key.swn .server.key.un~ #server.key#
    .#server.key server.key.orig server.key.rej server.key.save server.key.old.2 server.key.20260101 server.key-2026-01-01
    .server.key.kate-swp server.key___jb_tmp___ server.key___jb_old___ .server.key.aB12Cd server.key.dpkg-old ~$server.key
    server.key.1 server.key.bak~ server.key.mine server.key.r12 server.key.tmp server.key.part x.pem.bak x.pem.rpmsave
    credentials.json.bak credentials.json~ credentials.bak.json credentials_BACKUP_12.json .git-credentials~ .netrc.old .pgpass~
    .dev.vars .dev.vars.production .streamlit/secrets.toml terraform.tfstate terraform.tfstate.backup prod.tfstate
    terraform.tfstate.1700000000.backup secrets.tfvars .terraformrc local.settings.json .secrets .secrets.toml config/secrets.yml
    .vault_pass .vault-password .boto .s3cfg .mc/config.json .aws/credentials .aws/credentials~ .aws/credentials.bak
    .docker/config.json .kube/config .kube/config.old kubeconfig.yaml admin.kubeconfig .git/credentials git/credentials
    .config/gh/hosts.yml .config/gcloud/credentials.db .azure/msal_token_cache.json .cargo/credentials.toml .ssh/deploy_key
    .ssh/deploy_ed25519 age/keys.txt vpn.ovpn wg0.conf .htpasswd .psql_history .bash_history master.key google-credentials.json
    .AWS/Credentials Terraform.TFState sub/deep/.aws/credentials
    server.key.gz x.pem.zip credentials.json.xz id_rsa.b64 .pgpass.tgz .git-credentials.lock server.key.new server.key,v
    server.key.BASE server.key.OTHER server.key.disabled credentials.sync-conflict-20260131-120000-ABCDEFG.json
    work_id_rsa github_id_ed25519 deploy_rsa .ssh/id_work private.asc private_key.der private-key.txt privkey.der user.creds seed.nk
    pw.kdb export.1pux cwallet.sso UTC--2026-01-31T00-00-00.000Z--ab12 key4.db logins.json users.htpasswd .htdigest .gitcookies
    wpa_supplicant.conf .ansible_vault_pass vault_pass.txt db_password.txt password.txt .secret .token .github_token .openai_api_key
    api_key.txt slack_token.txt secrets.json .dlt/secrets.toml secret.tfvars.json key.properties keystore.properties
    jupyter_cookie_secret .clasprc.json playwright/.auth/user.json .ftpconfig .vscode/sftp.json sftp-config.json WinSCP.ini
    credentials.csv rootkey.csv credentials.yml credentials.toml gcp-credentials.json token.json token.pickle serviceAccount.json
    x.publishsettings .aws/sso .aws/cli .azure/credentials .kube/config-prod .kube/prod.yaml .config/hub .huggingface/token
    .duckdb_history .pry_history .Rhistory .lesshst .viminfo .dbshell
"""
PUBLIC_NAMES = """
    .env.example .env.sample .env.template key.pub id_rsa.pub cert.pem cert.pem.bak cert.pem~ public.pem.orig
    .dev.vars.example .secrets.baseline main.tf dev.tfvars .flaskenv google-services.json wp-config.php secrets.yaml
    main.py main.py~ main.py.bak #main.py# .main.py.swp config.json docker/config.json kube/config .kube/cache aws/credentials
    .aws/config .docker/Dockerfile credentials.py monkey.json keys.txt settings.json .npmrc .yarnrc.yml hosts.yml token
    config notes.20260101 v1.2.3 a.1 package.json.bak .ssh/config .ssh/known_hosts .ssh/id_rsa.pub kubeconfig docs/secrets.toml
    copy.py copyright.md environment.yml keyring.py
    main.py.gz package.json.zip notes.txt,v Cargo.lock yarn.lock uv.lock main.py.new cert.pem.gz server.crt.gz .env.example.bak
    credentials.go credentials.ts credentials.md credentials_test.go token.ts tokens.json tokens.css access_token.py test_token.py
    secrets.go secrets.py secret.py secrets.tf secret.yaml secrets.sh password.py passwords.txt api_key.py apikeys.ts private_key.rs
    private_key.go vault_password.py vault.yml keystore.ts signing.gradle history.md my_history.py .history.md auth.json settings.xml
    gradle.properties local.properties pip.ini uv.toml poetry.toml bunfig.toml .curlrc .wgetrc .hgrc .gemrc odbc.ini
    .ssh/id_work.pub github_id_ed25519.pub .kube/README.md .auth/README.md .vscode/settings.json .netlify/state.json .aws/README.md
    reset_password.txt templates/email/password_reset.txt stop_token.txt test_credentials.json mock-credentials.json .env.d.ts
    login.json cookies.js database.yml auth.py seeds.txt report-2.json report.new.json
"""
SPACED = [
    "Copy of .env",
    "credentials (1).json",
    "credentials copy.json",
    ".env copy",
    "server - Copy.key",
    ".env (copy)",
    "credentials 2.json",
    "credentials (from Eve, conflicted copy 2026-01-31).json",
    "server (conflicted copy 2026-01-31 120000).key",
    "Login Data",
]
ROWS = [(path, True) for path in (*SECRET_NAMES.split(), *SPACED)] + [(path, False) for path in PUBLIC_NAMES.split()]


@lru_cache(maxsize=1)
def secrets() -> Secrets:
    return Secrets(profile(), machine().home, ())


@pytest.mark.threat("T04")
@pytest.mark.parametrize(("path", "secret"), ROWS)
def test_a_name_is_secret_for_the_policy_and_for_the_sandbox(path: str, secret: bool) -> None:
    masked = secret_names(profile().secret_names, profile().public_names)
    assert secrets().named(f"/project/{path}") is secret
    assert masked(f"/project/{path}") is secret
    assert (judge(f"cat '{path}'").tiers[0] is Tier.SECRET) is secret


COPIES = st.sampled_from(
    ["{}~", "#{}#", ".#{}", ".{}.swp", ".{}.swo", "{}.bak", "{}.old", "{}.orig", "{}.rej", "{}.save", "{}.save.1", "{}.~3~",
     ".{}.kate-swp", "{}___jb_tmp___", "{}.bak.2", "{}.20260131", ".{}.x1Y2z3", "{}.dpkg-old", "Copy of {}", "{} copy"]
)  # fmt: skip
NAMES = st.from_regex(r"\A\.?[a-z]{1,8}(?:\.[a-z]{1,5}){0,2}\Z", fullmatch=True)


@pytest.mark.threat("T04")
@given(NAMES, COPIES, COPIES)
@example(".env", "{}~", "{}.bak")
def test_the_copy_of_a_copy_leads_back_to_its_name(name: str, first: str, second: str) -> None:
    assert name in originals(first.format(name))
    assert name in originals(second.format(first.format(name)))


@given(st.text(max_size=300))
def test_originals_are_found_for_any_text(name: str) -> None:
    assert name not in originals(name)


def test_every_login_that_is_taken_into_a_project_is_secret_in_the_home() -> None:
    """The pairs of the name list follow the home list: what is a login here is one there."""
    own = {
        "config/secrets.yml",
        ".streamlit/secrets.toml",
        ".git/credentials",
        "age/keys.txt",
        ".dlt/secrets.toml",
        ".auth/*.json",
        ".vscode/sftp.json",
    }  # of projects
    home = machine().home
    # The folders of these agents are not secret as a whole: in the home, too, their logins are secret by their names.
    agents = (".claude/", ".codex/", ".cursor/", ".factory/", ".qwen/")
    for entry in (
        entry for entry in profile().secret_names if "/" in entry and entry not in own and not entry.startswith(agents)
    ):
        places = (
            f"{home}/{entry}",
            f"{home}/.config/{entry}",
            f"{home}/.local/share/{entry}",
            f"{home}/.cache/{entry}",
        )
        assert any(secrets().holds_folder(place.replace("*", "x")) for place in places), entry


@pytest.mark.threat("T04")
def test_the_scan_masks_copies_and_pins_the_folder_that_makes_a_name_secret(tmp_path: Path) -> None:
    for name in (".env~", "a/.server.key.swp", "a/.aws/credentials", "a/aws/credentials", "notes.txt~"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x\n")
    found = scan(str(tmp_path), profile().secret_names, profile().public_names, profile().locked)
    assert found.masked == tuple(f"{tmp_path}/{name}" for name in (".env~", "a/.aws/credentials", "a/.server.key.swp"))
    assert f"{tmp_path}/a/.aws" in found.pinned, "under another name it would be no secret for the next command"


# fmt: off
LOGINS = [
    (".npmrc",       "//npm.example.test/:_authToken=npm_0123\n",              True,  "a token"),
    (".npmrc",       "registry=https://r.example/\n _auth = \"abc\"\n",         True,  "the older form"),
    (".npmrc",       "registry=https://me:pw@r.example/\n",                      True,  "in the address"),
    (".npmrc",       "//npm.example.test/:_authToken=${NPM_TOKEN}\n",          False, "the name of a variable"),
    (".npmrc",       "save-exact=true\nregistry=https://r.example/\n",           False, "settings"),
    (".npmrc",       "# _authToken=x\n",                                         False, "a comment"),
    (".npmrc~",      "//r.example/:_password=eA==\n",                            True,  "the copy of an editor"),
    (".yarnrc",      "\"//r.example/:_authToken\" \"x\"\n",                      True,  "a token"),
    (".yarnrc.yml",  "npmAuthToken: abc\n",                                      True,  "a token"),
    (".yarnrc.yml",  "npmAuthToken: \"${TOKEN-}\"\nnodeLinker: pnp\n",          False, "the name of a variable"),
    ("pip.conf",     "index-url = https://u:p@r.example/simple\n",               True,  "in the address"),
    ("pip.conf",     "index-url = https://r.example/simple\n",                   False, "no login"),
    ("hgrc",         "[auth]\nx.password = x1\n",                                True,  "of Mercurial"),
    ("hgrc",         "[paths]\ndefault = https://u@h/x\n",                       False, "an ordinary one"),
    ("nuget.config", "<add key=\"ClearTextPassword\" value=\"x\" />",            True,  "a password"),
    ("pip.ini",      "index-url = https://u:p@r.example/simple\n",               True,  "in the address"),
    ("uv.toml",      "[[index]]\nurl = \"https://u:p@r.example/\"\n",           True,  "in the address"),
    ("poetry.toml",  "[http-basic.x]\nusername = \"u\"\npassword = \"p\"\n",     True,  "a password"),
    ("poetry.toml",  "[virtualenvs]\nin-project = true\n",                       False, "settings"),
    ("bunfig.toml",  "\"@x\" = { token = \"abc\", url = \"https://r.example\" }\n", True,  "a token"),
    ("bunfig.toml",  "\"@x\" = { token = \"$npm_token\" }\n",                    False, "the name of a variable"),
    ("auth.json",    '{"http-basic": {"r.example": {"username": "u"}}}',           True,  "of Composer"),
    ("auth.json",    '{\n "github-oauth": {\n  "github.com": "x"}}',              True,  "of Composer, over several lines"),
    ("auth.json",    '{"tokens": {"access_token": "x"}}',                          True,  "of an agent"),
    ("auth.json",    '{"login": "Sign in", "token": "Your token"}',                False, "a translation"),
    ("auth.json",    '{"http-basic": {}}',                                         False, "nothing in it"),
    ("settings.xml", "<server><password>\n x</password></server>",                True,  "of Maven"),
    ("settings.xml", "<server><password>${env.PW}</password></server>",            False, "the name of a variable"),
    ("gradle.properties", "nexusPassword=x\n",                                    True,  "a password"),
    ("gradle.properties", "org.gradle.jvmargs=-Xmx2g\nuseTokens=true\n",         False, "settings"),
    ("local.properties", "signing.storePassword = x\n",                           True,  "a password"),
    ("local.properties", "sdk.dir=/opt/android\n",                                False, "settings"),
    (".curlrc",      "user = \"me:pw\"\n",                                        True,  "a password"),
    (".curlrc",      "-u me:pw\n",                                                True,  "a password"),
    (".curlrc",      "user-agent = x\nsilent\n",                                 False, "settings"),
    (".wgetrc",      "http_password = x\n",                                       True,  "a password"),
    (".hgrc",        "[auth]\nx.password = y\n",                                 True,  "a password"),
    (".gemrc",       ":rubygems_api_key: x\n",                                    True,  "a key"),
    ("odbc.ini",     "[db]\nPWD=x\n",                                            True,  "a password"),
    ("notes.txt",    "//npm.example.test/:_authToken=npm_0123\n",              False, "no such file"),
    (".npmrc",       "#" * (MOST + 1),                                           True,  "too long to be looked at whole"),
]
# fmt: on


@pytest.mark.threat("T04")
@pytest.mark.parametrize(("name", "content", "login", "why"), LOGINS, ids=[f"{row[0]} {row[3]}" for row in LOGINS])
def test_a_file_of_settings_is_secret_while_it_holds_a_login(
    tmp_path: Path, name: str, content: str, login: bool, why: str
) -> None:
    assert holds_login(name, content.encode()) is login, why
    work, trees = tmp_path / "work", FolderTrees(None)
    (work / "sub").mkdir(parents=True)
    file = work / "sub" / name

    def masked() -> bool:
        return str(file) in scan(str(work), (".env",), (), (), trees).masked

    for text, secret in ((content, login), ("x=1\n", False), (content, login)):
        file.write_text(text)
        facts = replace(machine(), workspace=str(work), login=login_at)
        assert masked() is secret, "what was remembered of it does not outlive its content"
        tiers = classify(RunScript(f"cat sub/{name}", str(work)), facts, BOOK, profile()).tiers
        assert (tiers[0] is Tier.SECRET) is secret


def test_the_hooks_of_a_new_repository_are_copies_of_nothing() -> None:
    assert not [name for name in SAMPLES if re.search(_MARKS, name)]
