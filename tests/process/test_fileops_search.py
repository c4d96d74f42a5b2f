"""Tests of listing and searching real trees: both engines find the same, and no tree hangs or crashes them."""

import contextlib
import fnmatch
import itertools
import json
import os
import shutil
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.inside.files import ripgrep
from sandbox.inside.files.access import Refused
from sandbox.inside.files.match import GlobPattern, expand
from sandbox.inside.files.operations import perform
from sandbox.inside.files.ripgrep import program


def ask(op: str, **fields: object) -> dict[str, object]:
    """One request, and the proof that its answer survives the wire."""
    answer = perform({"op": op, **{name: str(v) if isinstance(v, Path) else v for name, v in fields.items()}})
    return json.loads(json.dumps(answer))  # type: ignore[no-any-return]  # an object, as perform promises


def problem(answer: dict[str, object]) -> dict[str, str]:
    assert list(answer) == ["problem"], answer
    told = answer["problem"]
    assert isinstance(told, dict)
    assert all(told.values())
    return told


@pytest.fixture(params=["ripgrep", "python"])
def engine(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """Each engine in turn: our own one is what remains when PATH leads to no ripgrep."""
    if request.param == "python":
        monkeypatch.setenv("PATH", str(tmp_path_factory.mktemp("bin")))
        assert program() is None
    else:
        assert shutil.which("rg"), "install ripgrep: both engines are tested"
    return str(request.param)


def tree(root: Path, *files: str) -> None:
    for at, name in enumerate(files):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"needle in {name}\n")
        os.utime(path, (1000 + at, 1000 + at))


# fmt: off
PATTERNS: list[tuple[str, str, bool, str]] = [
    ("*.py",           "a.py",           True,  "a star within a name"),
    ("*.py",           "b/a.py",         False, "a star crosses no folder"),
    ("**/*.py",        "a.py",           True,  "`**` is also no folder"),
    ("**/*.py",        "b/c/a.py",       True,  "or many"),
    ("**",             "b/c/a.py",       True,  "everything below"),
    ("b/**",           "b/c/a.py",       True,  "everything below b"),
    ("b/**",           "b",              False, "but not b"),
    ("b/**/a.py",      "b/a.py",         True,  "`**` in the middle"),
    ("**/c/**/*.py",   "b/c/d/a.py",     True,  "twice"),
    ("**/**/a.py",     "a.py",           True,  "doubled is no more"),
    ("a**b",           "axxb",           True,  "within a name it is a star"),
    ("a**b",           "a/b",            False, "and crosses nothing"),
    ("*",              ".hidden",        True,  "dot files count"),
    ("?.py",           "a.py",           True,  "one character"),
    ("?.py",           ".py",            False, "exactly one"),
    ("[a-c].py",       "b.py",           True,  "a range"),
    ("[!a-c].py",      "b.py",           False, "none of a range"),
    ("[^a-c].py",      "d.py",           True,  "the other way to say it"),
    ("[]].py",         "].py",           True,  "a bracket as member"),
    ("[a.py",          "[a.py",          True,  "a set that does not close is itself"),
    ("[+--].py",       ",.py",           True,  "a range up to a hyphen"),
    ("[a-].py",        "-.py",           True,  "a hyphen at the end is itself"),
    ("[a\\d].py",      "\\.py",          True,  "no classes of regular expressions"),
    ("*.{ts,tsx}",     "a.tsx",          True,  "braces"),
    ("{a,b/{c,d}}/x",  "b/d/x",          True,  "nested, with a slash"),
    ("{a",             "{a",             True,  "a brace that does not close is itself"),
    ("\\*.py",         "a.py",           False, "a quoted star"),
    ("\\*.py",         "*.py",           True,  "is itself"),
    ("a+(b).py",       "a+(b).py",       True,  "nothing of regular expressions is special"),
    ("./a.py",         "a.py",           True,  "a dot is here"),
    ("*a*",            "x\ny a z",       True,  "a newline is a character"),
]
# fmt: on


@pytest.mark.parametrize(("pattern", "path", "expected", "why"), PATTERNS, ids=[row[3] for row in PATTERNS])
def test_pattern(pattern: str, path: str, expected: bool, why: str) -> None:
    assert GlobPattern(pattern).matches(path) is expected


@given(pattern=st.text(alphabet="ab*?", min_size=1, max_size=12), name=st.text(alphabet="abc", min_size=1, max_size=12))
def test_stars_agree_with_fnmatch(pattern: str, name: str) -> None:
    if pattern != "**":
        assert GlobPattern(pattern).matches(name) is fnmatch.fnmatchcase(name, pattern)


@given(pattern=st.text(alphabet="ab*?[]!^-{},\\/.", max_size=20), path=st.text(alphabet="ab/[]{}-", max_size=12))
def test_any_pattern_is_an_answer_or_a_refusal(pattern: str, path: str) -> None:
    with contextlib.suppress(Refused):  # a refusal is an answer; anything else fails
        GlobPattern(pattern).matches(path)


@pytest.mark.threat("T41")
def test_no_pattern_takes_long() -> None:
    begun = time.process_time()
    assert not GlobPattern("*a" * 60 + "b").matches("a" * 255)
    assert not GlobPattern("**/a/" * 30 + "b").matches("/".join("a" * 100))
    with pytest.raises(Refused):
        expand("{a,b}" * 40)
    assert time.process_time() - begun < 2  # backtracking would take longer than anyone waits


def test_glob_is_newest_first_and_skips_git(tmp_path: Path) -> None:
    tree(tmp_path, "old.py", "src/mid.py", ".git/x.py", "sub/.git/y.py", ".hid/new.py", "note.md")
    (tmp_path / "loop").symlink_to(tmp_path)
    answer = ask("GlobFiles", pattern="**/*.py", root=tmp_path)
    assert answer == {
        "names": [".hid/new.py", "src/mid.py", "old.py"],
        "total": 3,
        "unread": 0,
        "late": False,
        "ignored": "none",
    }


# fmt: off
IGNORED = [
    # .gitignore, request, names without their order, `ignored` of the answer, why
    ("out/\n*.log",    {"pattern": "**"},                              {".gitignore", "a.py", "sub/b.py", "sub/to"}, "skipped", "as Git"),
    ("out/\n*.log",    {"pattern": "**/*.log"},                        set(),                                        "skipped", "a file"),
    ("out/\n*.log",    {"pattern": "**/*.log", "ignored": True},       {"sub/c.log", "out/d.log"},                   "none",    "included"),
    ("out/\n!*.log",   {"pattern": "out/*"},                           set(),                                        "skipped", "a folder"),
    ("",               {"pattern": "**/*.log"},                        {"sub/c.log", "out/d.log"},                   "none",    "no rule"),
]
# fmt: on


@pytest.mark.parametrize(("rules", "request_", "names", "ignored", "why"), IGNORED, ids=[row[-1] for row in IGNORED])
def test_glob_skips_files_that_git_ignores(
    tmp_path: Path, rules: str, request_: dict[str, object], names: set[str], ignored: str, why: str
) -> None:
    tree(tmp_path, "a.py", "sub/b.py", "sub/c.log", "out/d.log")
    (tmp_path / ".gitignore").write_text(rules)
    (tmp_path / "sub" / "to").symlink_to("b.py")
    answer = ask("GlobFiles", root=tmp_path, **request_)
    assert (set(answer["names"]), answer["ignored"]) == (names, ignored), why


def test_glob_in_a_folder_below_and_in_an_ignored_one(tmp_path: Path) -> None:
    tree(tmp_path, "sub/a.log", "sub/b.py", "out/c.py")
    (tmp_path / ".gitignore").write_text("*.log\nout/\n")
    assert ask("GlobFiles", pattern="*", root=tmp_path / "sub")["names"] == ["b.py"], "the rules of the folder above"
    assert ask("GlobFiles", pattern="*", root=tmp_path / "out")["names"] == ["c.py"], "the folder itself was named"


def test_glob_says_that_it_could_not_read_the_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(tmp_path, "a.log")
    (tmp_path / ".gitignore").write_text("*.log")
    monkeypatch.setenv("PATH", str(tmp_path))
    answer = ask("GlobFiles", pattern="*.log", root=tmp_path)
    assert (answer["names"], answer["ignored"]) == (["a.log"], "unknown")


def test_glob_stops_at_1000_and_counts_on(tmp_path: Path) -> None:
    for number in range(1203):
        (tmp_path / f"{number}").touch()
        os.utime(tmp_path / f"{number}", (number, number))
    answer = ask("GlobFiles", pattern="*", root=tmp_path)
    assert answer["total"] == 1203
    assert answer["names"] == [str(number) for number in range(1202, 202, -1)]


def test_glob_opens_no_folder_in_which_nothing_can_match(tmp_path: Path) -> None:
    tree(tmp_path, "src/a.py", "node_modules/b/a.py")
    tree(tmp_path / "locked", "a.py")
    answer = ask("GlobFiles", pattern="src/*.py", root=tmp_path)
    assert answer["names"] == ["src/a.py"]
    assert GlobPattern("src/*.py").step(GlobPattern("src/*.py").start, "node_modules") == frozenset()


def test_glob_ends_when_its_time_is_up(tmp_path: Path) -> None:
    for number in range(600):
        (tmp_path / f"{number}").touch()
    assert ask("GlobFiles", pattern="*", root=tmp_path, seconds=1e-9)["late"] is True


def test_glob_problems(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert problem(ask("GlobFiles", pattern="*", root=tmp_path / "file"))["why"] == "it is not a folder"
    assert "`file`" not in problem(ask("GlobFiles", pattern="*", root=tmp_path / "nothing"))["why"]
    assert "bad character range" in problem(ask("GlobFiles", pattern="[z-a]", root=tmp_path))["why"]


def test_a_path_deeper_than_the_kernel_takes_is_counted_not_followed(tmp_path: Path) -> None:
    here = os.open(".", os.O_RDONLY)
    os.chdir(tmp_path)
    for _ in range(30):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
    Path("x.py").touch()
    os.fchdir(here)
    os.close(here)
    answer = ask("GlobFiles", pattern="**/*.py", root=tmp_path)
    assert (answer["total"], answer["unread"]) == (0, 1)


def test_ls(tmp_path: Path) -> None:
    tree(tmp_path, "b.txt", ".dot", "folder/x")
    (tmp_path / "link").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    assert ask("ListFolder", path=tmp_path) == {
        "entries": [
            [".dot", "file", 15, None],
            ["b.txt", "file", 16, None],
            ["folder", "folder", None, None],
            ["link", "link", None, "nowhere"],
            ["pipe", "pipe", None, None],
        ],
        "total": 5,
        "unsorted": False,
    }
    assert ask("ListFolder", path=tmp_path / "b.txt")["entries"] == [["b.txt", "file", 16, None]]
    assert "did you mean" in problem(ask("ListFolder", path=tmp_path / "foldr"))["fix"]


def test_ls_is_capped(tmp_path: Path) -> None:
    for number in range(1100):
        (tmp_path / f"{number:04}").touch()
    answer = ask("ListFolder", path=tmp_path)
    assert isinstance(answer["entries"], list)
    assert (len(answer["entries"]), answer["total"]) == (1000, 1100)


def grep(root: Path, pattern: str, **fields: object) -> dict[str, object]:
    return ask("GrepFiles", pattern=pattern, root=root, **fields)


def found(root: Path, answer: dict[str, object]) -> dict[str, list[object]]:
    files = answer["files"]
    assert isinstance(files, list)
    return {os.path.relpath(path, root): lines for path, lines in files}


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    root = tmp_path / "sources"
    tree(root, "a.py", "lib/b.py", "lib/c.md", ".git/config", "sub/.git/d.py", ".hidden", "build/e.py")
    (root / "lib" / "b.py").write_text("one\nTwo\nthree\nfour\r\ntwo\nsix\n")
    (root / "binary").write_bytes(b"needle\0needle\n")
    (root / "latin").write_bytes(b"caf\xe9 needle\n")
    (root / "loop").symlink_to(root)
    os.mkfifo(root / "pipe")
    return root


def test_grep_finds_the_same_with_both_engines(sources: Path, engine: str) -> None:
    answer = grep(sources, "needle")
    assert answer["engine"] == engine
    assert found(sources, answer) == {
        ".hidden": [[1, True, "needle in .hidden"]],
        "a.py": [[1, True, "needle in a.py"]],
        "build/e.py": [[1, True, "needle in build/e.py"]],
        "latin": [[1, True, "caf\ufffd needle"]],
        "lib/c.md": [[1, True, "needle in lib/c.md"]],
    }
    assert list(found(sources, answer)) == sorted(found(sources, answer))
    assert (answer["count"], answer["unread"], answer["limited"], answer["late"]) == (5, 0, False, False)


B = "lib/b.py"
ALL_OF_B = [
    "lib/b.py-1-one",
    "lib/b.py:2:Two",
    "lib/b.py-3-three",
    "lib/b.py-4-four",
    "lib/b.py:5:two",
    "lib/b.py-6-six",
]
OTHERS = "!{build,lib,.hidden,latin}"

C = ["lib/c.md:1:needle in lib/c.md"]

# fmt: off
GREPS: list[tuple[dict[str, object], str, list[str], str]] = [
    ({"pattern": "two"},                            "lib", ["lib/b.py:5:two"],                      "case counts"),
    ({"pattern": "two", "ignore_case": True},       "lib", ["lib/b.py:2:Two", "lib/b.py:5:two"],    "or not"),
    ({"pattern": "two"},                            B,     ["lib/b.py:5:two"],                      "one file"),
    ({"pattern": "r$"},                             B,     ["lib/b.py:4:four"],                     "CR is no text"),
    ({"pattern": "si", "context": 1},               B,     ["lib/b.py-5-two", "lib/b.py:6:six"],  "context"),
    ({"pattern": "(?i)two", "context": 1},          "lib", ALL_OF_B,                                "no line twice"),
    ({"pattern": "(?i)two", "context": 9},          "lib", ALL_OF_B,                                "overlapping"),
    ({"pattern": "ne.dle", "glob": "*.md"},         "",    C,                                     "at any depth"),
    ({"pattern": "ne.dle", "glob": "/*.py"},        "",    ["a.py:1:needle in a.py"],               "at the root"),
    ({"pattern": "ne.dle", "glob": "lib/*"},        "",    C,                                     "in a folder"),
    ({"pattern": "ne.dle", "glob": "*.{md,txt}"},   "",    C,                                     "braces"),
    ({"pattern": "needle", "glob": "!*[ynt]"},      "",    C,                                     "all but these"),
    ({"pattern": "needle", "glob": OTHERS},         "",    ["a.py:1:needle in a.py"],               "folders left out"),
    ({"pattern": "needle", "files_only": True, "glob": "*.py"}, "", ["a.py", "build/e.py"],  "names only"),
    ({"pattern": "-e"},                             "",    [],                 "no option"),
    ({"pattern": "$HOME"},                          "",    [],                 "no shell anywhere"),
]
# fmt: on


@pytest.mark.parametrize(("fields", "where", "expected", "why"), GREPS, ids=[row[3] for row in GREPS])
def test_grep(sources: Path, engine: str, fields: dict[str, object], where: str, expected: list[str], why: str) -> None:
    answer = ask("GrepFiles", root=sources / where, **fields)
    files = answer["files"]
    assert isinstance(files, list)
    said = []
    for path, lines in files:
        name = os.path.relpath(path, sources)
        said += [f"{name}{mark}{number}{mark}{text}" for number, hit, text in lines for mark in "-:"[hit]] or [name]
    assert said == expected
    assert answer["engine"] == engine


def test_grep_stops_at_the_limit_and_says_so(sources: Path, engine: str) -> None:
    answer = grep(sources, "needle", limit=2)
    assert (list(found(sources, answer)), answer["limited"]) == ([".hidden", "a.py"], True)
    answer = grep(sources, "needle", limit=5)
    assert (answer["count"], answer["limited"]) == (5, False)
    answer = grep(sources, "needle", limit=2, files_only=True)
    assert (list(found(sources, answer)), answer["limited"]) == ([".hidden", "a.py"], True)


def test_grep_cuts_long_lines(tmp_path: Path, engine: str) -> None:
    (tmp_path / "long").write_text("x" * 500 + "\n" + "é" * 501 + "\n" + "x" * 5_000_000 + "\n")
    lines = found(tmp_path, grep(tmp_path, "x|é"))["long"]
    assert lines == [[1, True, "x" * 500], [2, True, "é" * 500 + " [...]"], [3, True, "x" * 500 + " [...]"]]


def test_grep_of_many_lines_is_bounded(tmp_path: Path, engine: str) -> None:
    (tmp_path / "many").write_text(("y" * 400 + "\n") * 50_000)
    answer = grep(tmp_path, "y", limit=2000, context=20)
    assert answer["limited"] is True
    assert len(json.dumps(answer)) < 1_500_000


def test_grep_obeys_gitignore_with_ripgrep_only(sources: Path, engine: str) -> None:
    (sources / ".gitignore").write_text("build/\n")
    names = found(sources, grep(sources, "needle", glob="*.py"))
    assert ("build/e.py" in names) is (engine == "python")


def test_look_around_works_and_ripgrep_still_says_which_files(sources: Path, engine: str) -> None:
    (sources / ".gitignore").write_text("build/\n")
    answer = grep(sources, r"(?<=needle in )[ab]", glob="*.py")
    assert answer["engine"] == "python"
    assert ("build/e.py" in found(sources, answer)) is (engine == "python")
    assert "a.py" in found(sources, answer)


def test_what_only_one_engine_reads_is_still_searched(sources: Path, engine: str) -> None:
    (sources / "code.go").write_text("type x interface{}\n")
    assert list(found(sources, grep(sources, "interface{"))) == ["code.go"]


@pytest.mark.parametrize("pattern", ["(open", "[z-a]", "*a", "a**" + "{", "(?P<x"])
def test_a_pattern_that_nobody_reads_is_a_problem(sources: Path, engine: str, pattern: str) -> None:
    told = problem(grep(sources, pattern))
    assert told["why"].startswith("it is not a valid regular expression: ")
    assert "backslash" in told["fix"]


@pytest.fixture
def processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the limit of a search count processor time, and ripgrep take any time: a busy machine ends no search early."""
    monkeypatch.setattr(signal, "ITIMER_REAL", signal.ITIMER_VIRTUAL)
    monkeypatch.setattr(signal, "SIGALRM", signal.SIGVTALRM)
    clock = itertools.count(0.0, -1000.0)
    monkeypatch.setattr(ripgrep, "time", SimpleNamespace(monotonic=lambda: next(clock)))


@pytest.mark.threat("T41")
def test_a_catastrophic_pattern_ends(tmp_path: Path, engine: str, processor_time: None) -> None:
    (tmp_path / "trap").write_text("a" * 60 + "!\n")
    answer = grep(tmp_path, r"^(?=a)(a+)+$", seconds=0.5)  # look-ahead: our own engine takes it in both cases
    assert "no match was found within 0.5 s" in problem(answer)["why"]


def test_what_was_found_in_time_is_kept(tmp_path: Path, engine: str, processor_time: None) -> None:
    (tmp_path / "a").write_text("a\n")
    (tmp_path / "b").write_text("a" * 60 + "!\n")
    answer = grep(tmp_path, r"^(?=a)(a+)+$", seconds=0.5)
    assert (list(found(tmp_path, answer)), answer["late"]) == (["a"], True)


def test_grep_of_what_cannot_be_searched(tmp_path: Path, engine: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert problem(grep(tmp_path / "pipe", "x"))["why"] == "it is a pipe, not a file"
    assert "there is no" in problem(grep(tmp_path / "nothing", "x"))["why"]
    (tmp_path / "binary").write_bytes(b"x\0")
    assert grep(tmp_path / "binary", "x")["count"] == 0


@pytest.mark.threat("T42")
def test_a_name_that_looks_like_an_option_or_a_message(tmp_path: Path, engine: str) -> None:
    odd = tmp_path / "-n"
    odd.mkdir()
    (odd / "--pre=id").write_text("needle\n")
    (odd / "a:1:b\nc").write_text("needle\n")
    assert found(odd, grep(odd, "needle")) == {"--pre=id": [[1, True, "needle"]], "a:1:b\\nc": [[1, True, "needle"]]}
    assert list(found(odd, grep(odd / "--pre=id", "needle"))) == ["--pre=id"]


def test_a_ripgrep_that_does_not_start_is_replaced(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "rg"
    broken.write_text("#!/nowhere/sh\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"relative:{tmp_path}")
    answer = grep(sources, "needle", glob="a.py")
    assert (answer["engine"], list(found(sources, answer))) == ("python", ["a.py"])


def test_searching_leaves_no_descriptor_and_no_child(sources: Path, engine: str) -> None:
    here, before, born = os.getcwd(), sorted(os.listdir("/proc/self/fd")), children()
    for pattern in ("needle", "(open", "(?<=x)y"):
        grep(sources, pattern)
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert os.getcwd() == here
    assert children() <= born


def children() -> set[str]:
    """Ours, those that nobody waited for included."""
    return {pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}
