"""Reference machine for tables of expected verdicts: invented facts that are the same on every real machine."""

from collections.abc import Iterable
from datetime import date
from functools import lru_cache

from policy.model.facts import Facts, Kind, PathFact
from policy.model.profile import Profile
from policy.model.secret_paths import inside

HOME = "/home/you"
WORKSPACE = "/home/you/project"

# A small project of several languages, under Git. A name that ends in `/` is a folder, `a -> b` a link.
FILES = """
.git/HEAD .git/config .git/index .git/hooks/ .git/objects/ .git/refs/heads/main
.gitignore .env .env.example .editorconfig .github/workflows/ci.yml .vscode/settings.json
README.md CHANGELOG.md LICENSE Makefile Dockerfile compose.yaml
package.json package-lock.json tsconfig.json pyproject.toml requirements.txt Cargo.toml Cargo.lock go.mod go.sum
src/main.py src/app.ts src/lib.rs src/index.js src/util/text.py tests/test_main.py docs/guide.md scripts/release.sh
build/out.js dist/app.js data/rows.csv data/rows.json notes.txt a.txt b.txt run.sh evil.sh
t.tar t.tar.gz t.zip a.hex server.pem
"""

# The smaller project for the examples of the command rules: settings of tools would change their verdicts.
EXAMPLE_FILES = """
.git/hooks/ build/ notes.txt a.txt package.json evil.sh src/main.py src/json.py t.tar t.tar.gz t.zip a.hex
"""

# Files outside the workspace: below the home, and elsewhere.
AROUND = (
    "~/letter.txt ~/other/main.py ~/other/.git/HEAD ~/Downloads/data.csv ~/.bashrc ~/.profile ~/.gitconfig "
    "~/.ssh/id_rsa ~/.ssh/config ~/.aws/credentials ~/.npmrc ~/.netrc ~/.kube/config ~/.docker/config.json "
    "~/.config/gh/hosts.yml ~/.config/ringfence/config.toml ~/.local/state/ringfence/audit.db ~/.bash_history "
    "~/.mozilla/firefox/cookies.sqlite /etc/passwd /etc/hosts /etc/shadow /etc/os-release /etc/ssh/ssh_config "
    "/bin/ /usr/bin/ /usr/lib/ /usr/local/bin/ /usr/share/ /lib/ /root/.ssh/id_rsa /var/log/syslog "
    "/var/lib/app/state.db /var/run/docker.sock /opt/app/run /srv/site/index.html /mnt/disk/file /home/other/file "
    "/tmp/ /dev/sda"
)
LINKS = {
    f"{WORKSPACE}/out-link": f"{HOME}/letter.txt",
    f"{WORKSPACE}/key-link": f"{HOME}/.ssh/id_rsa",
    f"{WORKSPACE}/out-folder": f"{HOME}/other",
}
_MISSING = (WORKSPACE, HOME, "/tmp", "/etc", "/usr", "/dev", "/proc")  # noqa: S108  # names of the model, not files


def model_facts(profile: Profile, more: Iterable[str] = (), today: date | None = None, files: str = FILES) -> Facts:
    """Return the facts of the reference machine under `profile` on the day `today`. `files` and `more` are names below
    the workspace.
    """
    disk = _Disk(files, tuple(more))
    return Facts(
        workspace=WORKSPACE,
        home=HOME,
        path=("/usr/local/bin", "/usr/bin", "/bin"),
        system=(*profile.system, *(f"/etc/{entry}" for entry in profile.etc)),
        private=(f"{HOME}/.config/ringfence", f"{HOME}/.local/state/ringfence"),
        look=disk.look,
        which=lambda name: None,
        today=today,
        names=disk.names,
    )


class _Disk:
    """Simulated disk. A path far from the workspace exists even if it is not listed: a table that names it means a
    file, and a missing path would be judged more mildly.
    """

    __slots__ = ("_kinds", "_links")

    def __init__(self, files: str, more: tuple[str, ...]) -> None:
        self._kinds, self._links = _tree(files, more)

    def look(self, path: str) -> PathFact:
        real = self._real(path)
        kind = self._kinds.get(real)
        if kind is None:
            near = any(inside(real, root) for root in _MISSING)
            kind = Kind.MISSING if near and not self._far(real) else Kind.FILE
        return PathFact(real, kind)

    def names(self, path: str) -> tuple[str, ...] | None:
        """Return the names in a folder; None for a folder that is not described."""
        real = self._real(path).rstrip("/")
        if self._kinds.get(real or "/") is not Kind.FOLDER or self._far(real):
            return None
        every = (*self._kinds, *self._links)
        return tuple(sorted(name[len(real) + 1 :] for name in every if name.rpartition("/")[0] == real and name != "/"))

    def _far(self, real: str) -> bool:
        """Return True for a path below the home in a folder that the machine does not describe."""
        top = real.removeprefix(f"{HOME}/").partition("/")[0]
        return real.startswith(f"{HOME}/") and not inside(real, WORKSPACE) and not top.startswith(".")

    def _real(self, path: str) -> str:
        at = "/"
        for part in path.split("/"):
            if part in ("", "."):
                continue
            at = at.rpartition("/")[0] or "/" if part == ".." else f"{at.rstrip('/')}/{part}"
            at = self._links.get(at, at)
        return at


@lru_cache(maxsize=4)
def _tree(files: str, more: tuple[str, ...]) -> tuple[dict[str, Kind], dict[str, str]]:
    links = dict(LINKS)
    named = [
        *(f"{WORKSPACE}/{name}" for name in files.split()),
        *(name.replace("~", HOME, 1) for name in AROUND.split()),
    ]
    for entry in more:
        name, arrow, target = (part.strip() for part in entry.partition("->"))
        if arrow:
            target = f"{HOME}{target[1:]}" if target.startswith("~/") else target
            links[f"{WORKSPACE}/{name}"] = target if target.startswith("/") else f"{WORKSPACE}/{target}"
        else:
            named.append(f"{WORKSPACE}/{name}")
    kinds: dict[str, Kind] = {"/": Kind.FOLDER}
    for name in named:
        parts = name.rstrip("/").split("/")
        for count in range(2, len(parts)):
            kinds["/".join(parts[:count])] = Kind.FOLDER
        kinds[name.rstrip("/")] = Kind.FOLDER if name.endswith("/") else Kind.FILE
    kinds["/dev/sda"] = Kind.OTHER
    kinds["/var/run/docker.sock"] = Kind.OTHER
    return kinds, links
