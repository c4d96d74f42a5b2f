"""Tests of paths: resolved as the kernel does, and classified by their target, not by their spelling."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.interpreter.path_classifier import Device, PathClassifier
from policy.model.assessment import Scope
from policy.model.facts import Facts, Kind, PathFact
from policy.model.profile import Profile

WORK, HOME = "/home/me/work", "/home/me"
LINKS = {
    f"{WORK}/out": "/srv/data/deep",
    f"{WORK}/key": f"{HOME}/.ssh/id_rsa",
    f"{WORK}/null": "/dev/null",
    f"{WORK}/loop/in": WORK,
    "/usr/share/link": f"{HOME}/letter",
}
FOLDERS = {WORK, f"{WORK}/src", f"{WORK}/loop", "/srv/data/deep", HOME, "/usr", "/usr/bin", "/", f"{WORK}/.git"}
PROFILE = Profile(
    secret_home=(".ssh", ".config/gh", "*_history"),
    secret_paths=("/etc/shadow*", "/proc/*/environ"),
    secret_names=(".env", "*.pem", "id_rsa*"),
    public_names=(".env.example", "public.pem"),
    locked=(".git/hooks", ".git/config", ".vscode", ".git/modules/*/hooks"),
    system=("/usr", "/bin"),
    etc=("passwd",),
    environment=(),
)


def look(path: str) -> PathFact:
    """A small disk: links, and what is a folder on it."""
    real = ""
    for part in path.split("/"):
        if part:
            real = LINKS.get(f"{real}/{part}", f"{real}/{part}")
    real = real or "/"
    if real.startswith("/tmp/new"):
        return PathFact(real, Kind.MISSING)
    return PathFact(real, Kind.FOLDER if real in FOLDERS else Kind.FILE)


FACTS = Facts(
    WORK,
    HOME,
    ("/usr/bin",),
    ("/usr", "/bin", "/etc/passwd"),
    (f"{HOME}/.local/state/ringfence",),
    look,
    lambda name: None,
)

# fmt: off
PLACES = [
    ("a.txt",                    f"{WORK}/a.txt",           Scope.WORKSPACE, "relative"),
    ("./src//a.txt",             f"{WORK}/src/a.txt",       Scope.WORKSPACE, "with empty parts"),
    ("src/../a.txt",             f"{WORK}/a.txt",           Scope.WORKSPACE, "with a detour"),
    ("..",                       HOME,                      Scope.OUTSIDE,   "the parent"),
    ("/",                        "/",                       Scope.OUTSIDE,   "the root"),
    ("/../../a",                 "/a",                      Scope.OUTSIDE,   "above the root is the root"),
    ("out/x",                    "/srv/data/deep/x",        Scope.OUTSIDE,   "through a link"),
    ("out/../x",                 "/srv/data/x",             Scope.OUTSIDE,   "the parent of a link's target, as the kernel has it"),
    ("loop/in/a.txt",            f"{WORK}/a.txt",           Scope.WORKSPACE, "a link that comes back"),
    ("key",                      f"{HOME}/.ssh/id_rsa",     Scope.SECRET,    "a link to a key"),
    ("../.ssh",                  f"{HOME}/.ssh",            Scope.SECRET,    "a credential store itself"),
    ("../.ssh/new/deep",         f"{HOME}/.ssh/new/deep",   Scope.SECRET,    "below it"),
    ("../.sshx",                 f"{HOME}/.sshx",           Scope.OUTSIDE,   "not its neighbour"),
    ("../.config/gh/hosts.yml",  f"{HOME}/.config/gh/hosts.yml", Scope.SECRET, "a deeper store"),
    ("../.bash_history",         f"{HOME}/.bash_history",   Scope.SECRET,    "a pattern below the home"),
    ("../.local/state/ringfence/log", f"{HOME}/.local/state/ringfence/log", Scope.SECRET, "our own state"),
    (".env",                     f"{WORK}/.env",            Scope.SECRET,    "a secret name"),
    ("deep/.env",                f"{WORK}/deep/.env",       Scope.SECRET,    "a secret name, deeper"),
    ("x.pem/part",               f"{WORK}/x.pem/part",      Scope.SECRET,    "a folder with a secret name"),
    (".env.example",             f"{WORK}/.env.example",    Scope.WORKSPACE, "a public name"),
    ("public.pem",               f"{WORK}/public.pem",      Scope.WORKSPACE, "a public name"),
    ("/usr/share/ca/x.pem",      "/usr/share/ca/x.pem",     Scope.SYSTEM,    "certificates of the system are no secret"),
    ("/usr/share/link",          f"{HOME}/letter",          Scope.OUTSIDE,   "a system link that leads out"),
    ("/srv/x.pem",               "/srv/x.pem",              Scope.SECRET,    "a secret name anywhere else"),
    ("/etc/passwd",              "/etc/passwd",             Scope.SYSTEM,    "a system file of /etc"),
    ("/etc/hostname",            "/etc/hostname",           Scope.OUTSIDE,   "another one"),
    ("/etc/shadow-",             "/etc/shadow-",            Scope.SECRET,    "a secret path by its pattern"),
    ("/proc/self/environ",       "/proc/self/environ",      Scope.SECRET,    "a secret path by its pattern"),
    ("/proc/cpuinfo",            "/proc/cpuinfo",           Scope.SYSTEM,    "a fact about the machine"),
    ("/proc/1/maps",             "/proc/1/maps",            Scope.OUTSIDE,   "the inside of a process"),
    ("/proc/self/cwd/a.txt",     "/proc/self/cwd/a.txt",    Scope.OUTSIDE,   "a link that leads elsewhere for every process"),
    ("/proc//self/./cwd/a.txt",  "/proc/self/cwd/a.txt",    Scope.OUTSIDE,   "however it is spelled"),
    ("/proc/7/task/7/cwd/a.txt", "/proc/7/task/7/cwd/a.txt", Scope.OUTSIDE,  "of a thread"),
    ("/proc/self/cwd/.env",      "/proc/self/cwd/.env",     Scope.SECRET,    "with a secret name"),
    ("/proc/self/root/etc/shadow", "/proc/self/root/etc/shadow", Scope.SECRET, "a secret path below another root"),
    ("/proc/1/root/etc/hostname", "/proc/1/root/etc/hostname", Scope.OUTSIDE, "an open path below another root"),
    ("/dev/fd/3",                "/dev/fd/3",               Scope.OUTSIDE,   "what is open there, nobody knows"),
    (".ENV",                     f"{WORK}/.ENV",            Scope.SECRET,    "some file systems know no case of letters"),
    ("../.SSH/id",               f"{HOME}/.SSH/id",         Scope.SECRET,    "the same for a folder"),
    ("../.\u017fsh/id",          f"{HOME}/.\u017fsh/id",    Scope.SECRET,    "a long s is an s there"),
    ("../.s\u200dsh/id",         f"{HOME}/.s\u200dsh/id",   Scope.SECRET,    "an invisible character is none there"),
    ("Public.PEM",               f"{WORK}/Public.PEM",      Scope.WORKSPACE, "nor do names that are public"),
    ("/etc/SHADOW",              "/etc/SHADOW",             Scope.SECRET,    "nor paths"),
    ("x" * 5000,                 "x" * 4096,                Scope.OUTSIDE,   "longer than any kernel opens"),
    ("/dev/null",                "/dev/null",               Scope.NONE,      "a harmless device"),
    ("null",                     "/dev/null",               Scope.NONE,      "a link to it"),
    ("/dev/sda",                 "/dev/sda",                Scope.OUTSIDE,   "a disk"),
    ("/tmp",                     "/tmp",                    Scope.SCRATCH,   "the session has its own"),
    ("/tmp/new/deep.txt",        "/tmp/new/deep.txt",       Scope.SCRATCH,   "a name that the machine does not have"),
    ("/tmp/../tmp/new",          "/tmp/new",                Scope.SCRATCH,   "by a detour"),
    ("/tmp/there/x",             "/tmp/there/x",            Scope.OUTSIDE,   "a name that the machine has is meant"),
    ("/tmp/new/.env",            "/tmp/new/.env",           Scope.SECRET,    "a secret name, even there"),
    ("/usrx",                    "/usrx",                   Scope.OUTSIDE,   "not the neighbour of a system root"),
]
# fmt: on


@pytest.mark.parametrize(("text", "real", "scope", "why"), PLACES, ids=[row[0] for row in PLACES])
def test_a_path_leads_where_the_kernel_says(text: str, real: str, scope: Scope, why: str) -> None:
    place = PathClassifier(FACTS, PROFILE).place(text, WORK)
    assert (place.path, place.scope) == (real, scope), why


def test_a_secret_path_is_secret_by_its_spelling_and_by_its_target() -> None:
    linked = replace(FACTS, look=lambda path: PathFact("/srv/plain" if ".ssh" in path else path, Kind.FILE))
    assert PathClassifier(linked, PROFILE).place("../.ssh/id_rsa", WORK).scope is Scope.SECRET
    assert PathClassifier(FACTS, PROFILE).place("key", WORK).scope is Scope.SECRET


DEVICES = [
    ("/dev/null", Device.HARMLESS, "nothing"),
    ("/dev/stdout", Device.HARMLESS, "our own output"),
    ("/dev/fd/2", Device.HARMLESS, "our own output"),
    ("/dev/fd/3", Device.OTHER, "not opened by the script's start"),
    ("/dev/tcp/example.org/80", Device.SOCKET, "bash opens a socket"),
    ("/dev/udp/example.org/53", Device.SOCKET, "bash opens a socket"),
    ("/dev/sda", Device.OTHER, "a disk"),
    ("/dev/shm/x", Device.NONE, "a folder of files"),
    ("dev/null", Device.NONE, "a file of the workspace"),
    ("/proc/self/fd/1", Device.HARMLESS, "our own output"),
]


@pytest.mark.parametrize(("text", "device", "why"), DEVICES, ids=[row[0] for row in DEVICES])
def test_devices_are_told_apart(text: str, device: Device, why: str) -> None:
    assert PathClassifier(FACTS, PROFILE).place(text, WORK).device is device, why


LOCKED = [
    (".git/hooks", True, "the folder of hooks"),
    (".git/hooks/pre-commit", True, "a hook"),
    (".git/config", True, "settings"),
    (".git", True, "removing what holds them removes them"),
    (".git/index", False, "written by every commit"),
    ("inner/.git/config", True, "an inner repository"),
    (".vscode/tasks.json", True, "an editor runs it"),
    ("docs/.vscode/tasks.json", True, "an editor that opens that folder runs it"),
    (".git/modules/a/hooks/x", True, "a pattern with a star"),
    (".gitignore", False, "only a list"),
    ("src/.git-hooks", False, "another name"),
    ("../work2/.vscode", False, "not of the workspace"),
    (".GIT/config", True, "the same folder where there is no case of letters"),
    (".g\u200cit/hooks/x", True, "and where invisible characters do not count"),
]


@pytest.mark.parametrize(("text", "locked", "why"), LOCKED, ids=[row[0] for row in LOCKED])
def test_what_other_programs_run_by_themselves_is_locked(text: str, locked: bool, why: str) -> None:
    assert PathClassifier(FACTS, PROFILE).place(text, WORK).locked is locked, why


SHOWN = [
    (WORK, "the workspace"),
    (f"{WORK}/src/a", "src/a"),
    (HOME, "~"),
    (f"{HOME}/x", "~/x"),
    ("/etc/x", "/etc/x"),
]


@pytest.mark.parametrize(("path", "shown"), SHOWN)
def test_paths_are_shown_as_people_read_them(path: str, shown: str) -> None:
    assert PathClassifier(FACTS, PROFILE).shown(path) == shown


def test_cd_walks_names_and_the_kernel_walks_links() -> None:
    classifier = PathClassifier(FACTS, PROFILE)
    assert classifier.logical("out/..", WORK) == WORK
    assert classifier.absolute("out/..", WORK) == "/srv/data"


def test_a_folder_above_the_workspace_is_known_as_such() -> None:
    classifier = PathClassifier(FACTS, PROFILE)
    assert [classifier.place(path, "/").above for path in ("/", "/home", HOME, "/srv", WORK)] == [
        True,
        True,
        True,
        False,
        False,
    ]


AIMED = [
    (".env", "", True, "`.env*`"),
    ("id_r", "sa", True, "`id_r*sa`"),
    ("", ".pem", True, "`*.pem`"),
    ("id_rsa", "", True, "`id_rsa*`"),
    ("", "/.env", True, "`*/.env`"),
    ("../.ssh/", "", True, "`~/.ssh/*`"),
    ("/proc/", "/environ", True, "`/proc/*/environ`"),
    ("", "", False, "`*`: what is hidden stays hidden"),
    (".", "", False, "`.*`"),
    (".e", "", False, "`.e*`"),
    ("src/", ".py", False, "`src/*.py`"),
    (".env", ".example", False, "`.env*.example`"),
]


@pytest.mark.parametrize(("head", "tail", "aimed", "why"), AIMED, ids=[row[3] for row in AIMED])
def test_patterns_made_to_find_secrets_are_told_from_others(head: str, tail: str, aimed: bool, why: str) -> None:
    assert PathClassifier(FACTS, PROFILE).finds_secrets(head, tail, WORK) is aimed, why


PARTS = st.lists(st.sampled_from(["..", ".", "", "a", "out", "key", "src", ".ssh", "null", "loop", "in"]), max_size=8)


@given(PARTS, st.booleans())
def test_every_path_resolves_to_something_absolute_without_dots(parts: list[str], absolute: bool) -> None:
    text = ("/" if absolute else "") + "/".join(parts)
    classifier = PathClassifier(FACTS, PROFILE)
    for path in (
        classifier.place(text or ".", WORK).path,
        classifier.absolute(text, WORK),
        classifier.logical(text, WORK),
    ):
        assert path.startswith("/")
        assert not {"..", ".", ""} & set(path.split("/")[1:]) or path == "/"


@given(PARTS)
def test_no_spelling_of_a_secret_place_is_anything_but_secret(parts: list[str]) -> None:
    text = "/".join([*parts, "../../../../../../../../../../home/me/.ssh/id_rsa"])
    place = PathClassifier(FACTS, PROFILE).place(text, WORK)
    assert place.scope is Scope.SECRET or place.path != f"{HOME}/.ssh/id_rsa"
