"""Folders whose content is not stored, because tools can create it again.

Most are known by name. A name that could be anything also needs a witness: a file that the tool puts there. A folder
that was stored once stays stored, so that adding a witness does not end its protection.
"""

import os
import stat

# fmt: off
# What it is called, and what must lie in it, or beside it (`../`); nothing: the name is enough.
TABLE: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("node_modules",  (),                                  "packages of npm, yarn and pnpm"),
    ("__pycache__",   (),                                  "what Python compiled"),
    (".venv",         ("pyvenv.cfg",),                     "a virtual environment of Python"),
    ("venv",          ("pyvenv.cfg",),                     "a virtual environment of Python"),
    ("env",           ("pyvenv.cfg",),                     "a virtual environment of Python"),
    (".tox",          (),                                  "environments of tox"),
    (".nox",          (),                                  "environments of nox"),
    (".mypy_cache",   (),                                  "a cache of mypy"),
    (".pytest_cache", (),                                  "a cache of pytest"),
    (".ruff_cache",   (),                                  "a cache of ruff"),
    (".hypothesis",   (),                                  "a cache of hypothesis"),
    ("target",        ("CACHEDIR.TAG",),                   "what cargo built"),
    ("target",        ("../pom.xml",),                     "what Maven built"),
    (".gradle",       (),                                  "a cache of Gradle"),
    (".next",         ("../package.json",),                "what Next.js built"),
    (".nuxt",         ("../package.json",),                "what Nuxt built"),
    (".turbo",        ("../package.json",),                "a cache of Turborepo"),
    (".parcel-cache", (),                                  "a cache of Parcel"),
    (".terraform",    (),                                  "what `terraform init` fetched"),
    ("Pods",          ("Manifest.lock", "../Podfile"),     "what CocoaPods fetched"),
    ("bazel-out",     (),                                  "what Bazel built"),
    (".direnv",       (),                                  "a cache of direnv"),
    # Git only ever adds to them, so what refs and index name stays there until `git gc` (gitrepository-layout(5))
    ("objects",       ("../HEAD", "../refs"),              "Git's objects"),
)
# fmt: on
_WITNESSES: dict[str, list[tuple[str, ...]]] = {}
for _name, _witnesses, _ in TABLE:
    _WITNESSES.setdefault(_name, []).append(_witnesses)


def left_out(name: str, above: int, more: frozenset[str] = frozenset()) -> bool:
    """Return True if the folder `name` in the open folder `above` is not stored. `more` are further names that the user
    configured.
    """
    if name in more:
        return True
    return any(all(_there(name, each, above) for each in witnesses) for witnesses in _WITNESSES.get(name, ()))


def _there(name: str, witness: str, above: int) -> bool:
    place = witness[3:] if witness.startswith("../") else f"{name}/{witness}"
    try:
        status = os.stat(place, dir_fd=above, follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
