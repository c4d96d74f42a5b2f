"""Real Git as the judge of how this program reads Git's own files: wherever our reader is certain, Git must agree.

`tests/process/test_git_config.py` drives this module for a moment; `python tests/fuzz/fuzz_git.py --seconds 600` drives it for long.
Exit status 1 means that a difference was found; it is printed with the seed.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from policy.interpreter.path_classifier import PathClassifier
from policy.languages.git_config import GitConfigError, Setting, read_settings
from policy.model.facts import Facts
from policy.toml.profile import parse_profile
from runner.facts.gather import look_at
from sandbox.workspace.git_settings import UncertainSettingsError, git_folders, with_includes

PROFILE = parse_profile((Path(__file__).resolve().parents[2] / "profiles" / "default.toml").read_text(), "default.toml")
ENVIRON = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "HOME": "/nonexistent",
    "LC_ALL": "C",
}
# Parts of configuration files, the ordinary ones in the first half of each table. The generator joins them at random,
# and then damages a few bytes.
_BLANKS = (b"", b"", b" ", b"\t", b"  ", b" \t", b"\r", b"\x0b", b"\x0c", b"\xc2\xa0", b"\xe3\x80\x80")
_ENDS = (b"\n", b"\n", b"\r\n", b"\n\n", b"", b"\r", b"\\\n", b"\\\r\n", b"\0\n")
_NAMES = (
    *(b"core", b"Diff", b"filter", b"diff.x", b"Diff.X", b"remote.Origin", b"a-b", b"a.b.c", b"1", b"-", b"include"),
    *(b"a..b", b"x.", b".x", b".", b"", b"a_b", b"a b", b"\xc3\xa9", b"includeIf", b"hasconfig:remote.*.url"),
)
_SUBSECTIONS = (
    *(b'"y"', b'"Y.z"', b'""', b'"a b "', b'"a\\"b"', b'"a\\\\b"', b'"a\\nb"', b'"a]b"', b'"a#b;c"', b'"\xff\xfe"'),
    *(
        b'"a.b"',
        b'"\xc3\xa9"',
        b'"\tb"',
        b'"a\nb"',
        b'"a\\\nb"',
        b'"open',
        b"bare",
        b'"a" ',
        b'"a""b"',
        b'"\r"',
        b"'a'",
    ),
)
_KEYS = (
    *(b"path", b"Path", b"textconv", b"clean", b"worktree", b"hooksPath", b"a-b", b"a1", b"z"),
    *(b"1a", b"-a", b"a_b", b"a.b", b"", b"\xc3\xa9", b"a\\\n"),
)
_EQUALS = (b"=", b" = ", b"\t=\t", b" =", b"= ", b"==", b"", b" ", b" # ", b"\\\n=", b"\n=", b"\r\n", b"=\r\n")
_VALUES = (
    *(b"true", b"a b", b"a  b", b"a\tb", b"a \t b", b'"a b "', b'" a"', b'"a\tb"', b'a"b"c', b'""', b'"" x', b'a ""'),
    *(b"a # b", b"a;b", b'"a;b" # c', b"#", b"a \\n", b"\\t", b"\\b", b"\\\\", b'\\"', b'"a\\\nb"', b"a\\\n b"),
    *(b"a \\\n\tb", b"a\\\r\nb", b"a\x0b", b"a\x0c b", b"\xc2\xa0a\xc2\xa0", b"\xff", b"\xef\xbb\xbf", b"~/x"),
    *(b"!f() { :; }; f", b"[x]", b"'a'", b"a\\\n\\\n", b'"\\\n"', b"\x1b[31m", b"a=b", b"a\\\n#b", b"a # b\\\nc", b""),
    *(b"\t\\\n\t", b" \\\n \\\n ", b'"a" "b"', b'a\\\n"\\\n\tb" ', b"x" * 2000),
    *(
        b'"a\nb"',
        b'"open',
        b'a"b',
        b"a\rb",
        b"a\\\rb",
        b"a\r",
        b"a\0b",
        b'a"\\\n',
        b"\\x",
        b"\\r",
        b"a \\",
        b"\\",
        b'"',
    ),
    *(
        b"\\\r",
        b"\\ ",
        b"\\#",
        b'"\r"',
        b"\\\0",
        b"\\'",
        b"\\0",
        b'"\\q"',
        b'"#\n"',
        b"\r\r\n",
        b'"\\',
        b"\\\n\\",
        b'"a',
    ),
    *(b'"\n', b"\\a", b'"\\\r"', b"\\=", b'"\0"', b"\x00", b"\\v", b"\\f", b"\\u", b"\\[", b"\\]", b"\r #", b"\r;\\"),
    *(b'"\t', b'\\"\\', b'"\\"', b"\\N", b"\\T", b"\\\t", b'""\r', b"\\\x0b"),
)
_STARTS = (b"\xef\xbb\xbf", b"\xef\xbb", b"\xef", b"\xef\xbb\xbf\xef\xbb\xbf", b"\n\xef\xbb\xbf", b"a=b\n")
_DAMAGE = b"\0\t\n\x0b\x0c\r !\"#'()*+-./09:;=?@AZ[\\]_az{|}~\x7f\x80\xa0\xbb\xbf\xc2\xef\xff"


def odd_file(rng: random.Random) -> bytes:
    """Return the text of a configuration file: about half of them are ones that Git reads without an error."""
    oddness = rng.choice((0.0, 0.0, 0.01, 0.05, 0.3))  # how often a part comes from the odd half of its table

    def pick(table: tuple[bytes, ...]) -> bytes:
        usual = table[: max(1, len(table) // 2)]
        return rng.choice(table if rng.random() < oddness else usual)

    text = rng.choice(_STARTS) if rng.random() < 0.1 else b""
    for _ in range(rng.randint(1, 6)):
        text += pick(_BLANKS) + b"[" + pick(_NAMES)
        text += (
            pick((b" ", b"\t", b"  ", b" \t ", b"", b"\r", b"\n")) + pick(_SUBSECTIONS) if rng.random() < 0.5 else b""
        )
        text += b"]" + rng.choice((pick(_ENDS), pick(_BLANKS)))
        for _ in range(rng.randint(0, 4)):
            text += pick(_BLANKS) + pick(_KEYS) + pick(_EQUALS) + pick(_BLANKS)
            text += b"".join(pick(_VALUES) for _ in range(rng.choice((0, 1, 1, 1, 2, 3))))
            text += pick(_BLANKS) + pick(_ENDS[:-1] if rng.random() < oddness else _ENDS[:4])
            if rng.random() < 0.15:
                text += pick((b"# note\n", b"; note \\\n", b"#[x]\n", b"\t\n", b"#\r\n", b"# \0\n", b"#\r\r\n"))
    if rng.random() < 0.3:
        changed = bytearray(text)
        for _ in range(rng.randint(1, 2)):
            at = rng.randrange(len(changed) + 1)
            changed[at : at + rng.randint(0, 2)] = bytes(rng.choices(_DAMAGE, k=rng.randint(0, 2)))
        text = bytes(changed)
    return text


def git_settings(path: str) -> list[tuple[bytes, bytes | None]] | None:
    """Return the names and values that Git reads from one file, in their order; None where Git ends with an error."""
    done = subprocess.run(["git", "config", "-f", path, "--no-includes", "--list", "-z"], env=ENVIRON,
                          cwd="/", capture_output=True, check=False)  # fmt: skip
    if done.returncode:
        return None
    found: list[tuple[bytes, bytes | None]] = []
    for item in done.stdout.split(b"\0")[:-1]:
        # A name may hold a line break in no case: Git refuses it in a header, and a key has letters only.
        name, line_break, value = item.partition(b"\n")
        found.append((name, value if line_break else None))
    return found


def our_settings(content: bytes) -> list[tuple[bytes, bytes | None]] | None:
    """Return what our reader finds, in the same form; None where it is not certain."""
    try:
        settings = read_settings(content)
    except GitConfigError:
        return None
    return [(_raw(each.name), None if each.older is None else _raw(as_here(each) or "")) for each in settings]


def as_here(setting: Setting) -> str | None:
    """Return the value as the Git of this machine reads it."""
    return setting.value if keeps_tabs() else setting.older


@cache
def keeps_tabs() -> bool:
    """Return True if the Git of this machine keeps a tab inside a value, as versions from 2.45 on do."""
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(b"[a]\nb = c\td\n")
        return git_settings(file.name) == [(b"a.b", b"c\td")]


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def difference(content: bytes, folder: str) -> str:
    """Return what differs between Git and our reader for one file; empty where they agree or ours is not certain."""
    ours = our_settings(content)
    if ours is None:
        return ""
    path = f"{folder}/config"
    Path(path).write_bytes(content)
    git = git_settings(path)
    return "" if git == ours else f"{content!r}\n  Git  {git}\n  ours {ours}"


# Paths at which Git finds a repository, and the settings files that it reads there.
_STORES = ("s", "s ", "s\u00a0", "s\x0b", "\u00e9", "s'\"", " s", "s\\x")
_TAILS = ("\n", "\n", "", "\r\n", "\n\n", " \n", "\t\n", "\x0b\n", "\u00a0\n", "\0\n", "/\n", "/.\n")
_HEADS = (
    *("ref: refs/heads/main\n",) * 4,
    *("ref:refs/x", "ref:\t\n refs/heads/a", "ref: \x0brefs/x", "refs/heads/main", "a" * 40, "B" * 64 + "\n", "a" * 39),
    *("a" * 40 + "z", "", "ref: heads/x", "ref: refs/", "ref:" + " " * 251 + "refs/x", "ref:" + " " * 246 + "refs/x"),
)
_HEAD_LINKS = (
    "refs/heads/main",
    "refs/heads/none",
    "refs/../x",
    "x",
    "./refs/heads/main",
    "HEAD",
    "refs/heads/loop",
    "",
)
_INCLUDED_NAMES = ("inc", "inc ", "inc\u00a0", "inc\x0b", "a\tb", "i#c", "i;c", 'q"c', "b\\c", "gone")
_CONDITIONS = ("gitdir:**", "onbranch:main", "hasconfig:remote.*.url:x", "gitdir/i:nowhere", "unknown:x")


def odd_repository(rng: random.Random, top: Path) -> None:
    """Make a folder `top`/sub that Git may or may not take for a repository, with settings that may include files."""
    sub = top / "sub"
    sub.mkdir(parents=True)
    kind = rng.choice(("bare", "folder", "file", "file", "link", "link to a file"))
    store = top / rng.choice(_STORES)
    inside = {"bare": sub, "folder": sub / ".git"}.get(kind, store)
    inside.mkdir(exist_ok=True)
    if kind == "link":
        (sub / ".git").symlink_to(f"../{store.name}")
    elif kind.endswith("file"):
        begin = rng.choice(("gitdir: ",) * 8 + ("gitdir:", "gitdir:  ", "GITDIR: ", " gitdir: ", "\ufeffgitdir: "))
        target = rng.choice((f"../{store.name}", str(store), f"../sub/../{store.name}"))
        text = f"{begin}{target}{rng.choice(_TAILS)}"
        place = sub / ".git" if kind == "file" else top / "pointer"
        place.write_text(text, newline="")
        if kind != "file":
            (sub / ".git").symlink_to("../pointer")
    common = inside
    if rng.random() < 0.3:
        common = top / f"c{rng.choice(_STORES)}"
        common.mkdir()
        target = rng.choice((os.path.relpath(common, inside), str(common)))
        (inside / "commondir").write_text(target + rng.choice(_TAILS), newline="")
    _odd_head(rng, inside / "HEAD")
    for name in ("objects", "refs"):
        _odd_part(rng, common / name)
    if rng.random() < 0.95:
        (common / "config").write_bytes(_odd_settings(rng, common, 0))
    for folder in {common, inside}:
        if rng.random() < 0.2:
            (folder / "config.worktree").write_bytes(_odd_settings(rng, folder, 1))


def _odd_head(rng: random.Random, path: Path) -> None:
    chance = rng.random()
    if chance < 0.6:
        path.write_text(rng.choice(_HEADS), newline="")
    elif chance < 0.9:
        target = rng.choice(_HEAD_LINKS)
        if target:
            path.symlink_to(target)
    elif chance < 0.95:
        path.mkdir()


def _odd_part(rng: random.Random, path: Path) -> None:
    chance = rng.random()
    if chance < 0.75:
        path.mkdir()
    elif chance < 0.85:
        (path.parent / f"real-{path.name}").mkdir()
        path.symlink_to(f"real-{path.name}")
    elif chance < 0.95:
        path.write_text("x")
        path.chmod(rng.choice((0o755, 0o644)))
    elif chance < 0.97:
        path.symlink_to("nowhere")


def _odd_settings(rng: random.Random, folder: Path, depth: int) -> bytes:
    """The text of settings in `folder`, and the files that it includes."""
    text = b"[core]\n\trepositoryformatversion = 0\n" if depth == 0 else b""
    if rng.random() < 0.3:
        text += rng.choice((b"[extensions]\nworktreeConfig\n", b"[extensions]\n\tworktreeconfig = true\n"))
    for _ in range(rng.choice((0, 0, 1, 2))):
        name = rng.choice(_INCLUDED_NAMES)
        header = "[include]" if rng.random() < 0.7 else f'[includeIf "{rng.choice(_CONDITIONS)}"]'
        value = name.replace("\\", "\\\\").replace('"', '\\"')
        value = rng.choice((f'"{value}"', value, f"'{value}'", f"{value} # x"))
        where = rng.choice(("", "./", "~/", f"../{folder.name}/"))
        text += f"{header} path = {where}{value}\n".encode()
        if depth < 3 and name != "gone" and not (folder / name).exists():
            (folder / name).write_bytes(b"")
            (folder / name).write_bytes(_odd_settings(rng, folder, depth + 1))
    return text + (odd_file(rng) if rng.random() < 0.5 else b'[a "B"]\n\tc = d\n')


def repository_difference(top: Path) -> tuple[bool, str]:
    """Return whether Git takes `top`/sub for a repository of which our reader is certain, and what differs between the
    two; empty where they agree."""
    sub = str(top / "sub")
    environ = ENVIRON | {"GIT_CEILING_DIRECTORIES": str(top), "HOME": str(top)}
    folders = []
    for option in ("--absolute-git-dir", "--git-common-dir"):
        done = subprocess.run(["git", "-C", sub, "rev-parse", option], env=environ, capture_output=True, check=False)
        if done.returncode:
            return False, ""
        folders.append(os.path.realpath(os.path.join(sub, os.fsdecode(done.stdout[:-1]))))
    facts = Facts(str(top), str(top), (), (), (), look_at, lambda name: None)
    if PathClassifier(facts, PROFILE).foreign_repository(sub) != sub:
        return False, f"Git finds a repository, the policy none: {folders}"
    try:
        git = [each for each in git_folders(sub) if list(map(os.path.realpath, (each.path, each.common))) == folders]
        if not git:
            return False, f"Git has {folders}, we have {git_folders(sub)}"
        found = list(with_includes(git[0].files, str(top)))
    except UncertainSettingsError:
        return False, ""
    done = subprocess.run(["git", "-C", sub, "config", "--list", "-z", "--show-origin"], env=environ,
                          capture_output=True, check=False)  # fmt: skip
    if done.returncode:
        return False, ""
    theirs = []
    items = done.stdout.split(b"\0")[:-1]
    for origin, item in zip(items[::2], items[1::2], strict=True):
        name, line_break, value = item.partition(b"\n")
        path = os.path.realpath(os.path.join(sub, os.fsdecode(origin.removeprefix(b"file:"))))
        theirs.append((path, name, value.decode("utf-8", "surrogateescape") if line_break else None))
    ours = [(os.path.realpath(each.path), _raw(each.setting.name), as_here(each.setting)) for each in found]
    # The product always reads settings under a condition or for one working tree; Git may skip them. Both names of a
    # file are read, because versions of Git differ about the name.
    surely = not any(
        each.setting.section == "includeif" or each.path.endswith("config.worktree") or len(each.setting.values) > 1
        for each in found
    )
    rest = iter(ours)
    same = ours == theirs if surely else all(each in rest for each in theirs)
    return True, "" if same else f"Git  {theirs}\n  ours {ours}"


def run(seconds: float, seed: int, rounds: int = 1 << 62) -> tuple[int, int, list[str]]:
    """Compare odd files, and odd repositories one time in eight, until `seconds` or `rounds` are over. Returns how many
    were compared, of how many our reader was certain, and the differences."""
    rng = random.Random(seed)
    done = certain = 0
    found: list[str] = []
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        while done < rounds and time.monotonic() < end and len(found) < 20:
            done += 1
            if done % 8:
                content = odd_file(rng)
                certain += our_settings(content) is not None
                wrong = difference(content, folder)
            else:
                top = Path(os.path.realpath(folder)) / "t"
                odd_repository(rng, top)
                sure, wrong = repository_difference(top)
                certain += sure
                if wrong:
                    wrong = f"round {done}: {_listing(top)}\n  {wrong}"
                shutil.rmtree(top)
            if wrong:
                found.append(wrong)
    return done, certain, found


def _listing(top: Path) -> list[tuple[str, bytes | str]]:
    """List the files below a folder, to find out why two readers differ."""
    return [
        (str(path.relative_to(top)), os.readlink(path) if path.is_symlink() else path.read_bytes())
        for path in sorted(top.rglob("*"))
        if path.is_symlink() or path.is_file()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    given = parser.parse_args()
    done, certain, found = run(given.seconds, given.seed)
    print(f"seed {given.seed}: {done} files and repositories, {certain} read with certainty, {len(found)} differences")
    print("\n".join(found))
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
