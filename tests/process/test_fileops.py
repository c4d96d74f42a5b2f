"""Tests of reading, writing and editing real files: the result of each operation, for ordinary and hostile files."""

import base64
import hashlib
import json
import os
import socket
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.inside.files.access import Refused
from sandbox.inside.files.operations import perform
from sandbox.inside.files.write import put
from tests.support.images import GIF, JPEG, WEBP, png


def ask(op: str, **fields: object) -> dict[str, object]:
    """One request, and the proof that its answer survives the wire."""
    answer = perform({"op": op, **{name: str(v) if isinstance(v, Path) else v for name, v in fields.items()}})
    text = json.dumps(answer)
    text.encode()
    json.dumps(answer, ensure_ascii=False).encode()  # no lone surrogate anywhere
    return json.loads(text)  # type: ignore[no-any-return]  # an object, as perform promises


def problem(answer: dict[str, object]) -> dict[str, str]:
    assert list(answer) == ["problem"], answer
    told = answer["problem"]
    assert isinstance(told, dict)
    assert set(told) == {"what", "why", "fix"}
    assert all(told.values())
    return told


def read(path: Path, offset: int = 1, limit: int = 2000) -> dict[str, object]:
    return ask("ReadFile", path=path, offset=offset, limit=limit)


def edit(path: Path, old: str, new: str, *, every: bool = False, seen: str | None = None) -> dict[str, object]:
    return ask("EditFile", path=path, old=old, new=new, replace_all=every, seen=seen)


TEN = b"".join(b"line %d\n" % n for n in range(1, 11))

CUT = "x" * 2000 + " [... 1 more characters]"
UTF16 = "UTF-16 text (read it with `iconv -f UTF-16 -t UTF-8`)"

# fmt: off
READS: list[tuple[bytes, int, int, dict[str, object], str]] = [
    (b"a\nb\n",            1, 2000, {"lines": ["a", "b"], "total": 2},               "no line after the last newline"),
    (b"a\nb",              1, 2000, {"lines": ["a", "b"], "total": 2},               "a last line needs no newline"),
    (TEN,                  4, 2,    {"lines": ["line 4", "line 5"], "total": 10},    "lines count from 1"),
    (TEN,                  10, 5,   {"lines": ["line 10"], "total": 10},             "the last line"),
    (TEN,                  11, 5,   {"lines": [], "total": 10, "known": 10},         "past the end"),
    (b"\n",                1, 2000, {"lines": [""], "total": 1},                     "one empty line"),
    (b"a\r\nb\r\n",        1, 2000, {"lines": ["a", "b"], "ends": "CRLF"},           "CR LF is not shown, but said"),
    (b"a\r\nb",            1, 2000, {"lines": ["a", "b"], "ends": "CRLF"},           "judged by the ends it has"),
    (b"a\r\nb\n",          1, 2000, {"ends": "mixed"},                               "mixed ends are said"),
    (b"\xef\xbb\xbfa\n",   1, 2000, {"lines": ["a"], "bom": True, "ends": "LF"},     "a byte order mark is not text"),
    (b"\xef\xbb\xbf",      1, 2000, {"lines": [], "bom": True, "ends": "LF"},        "nothing but a mark"),
    (b"caf\xe9\nok\n",     1, 2000, {"lines": ["caf\ufffd", "ok"], "replaced": 1},   "Latin-1 is readable"),
    ("é\n".encode(),       1, 2000, {"lines": ["é"], "replaced": 0},                 "UTF-8 is itself"),
    (b"x" * 2001 + b"\n",  1, 2000, {"lines": [CUT], "cut": 1},                      "a long line is cut"),
    (b"x" * 2000 + b"\n",  1, 2000, {"lines": ["x" * 2000], "cut": 0},               "the longest line that is not"),
    (b"a\x0cb\x1cc\n",     1, 2000, {"lines": ["a\x0cb\x1cc"], "total": 1},          "only newlines end lines"),
    (b"",                  1, 2000, {"type": "empty", "size": 0},                    "empty"),
    (b"\0",                1, 2000, {"type": "binary", "guess": "binary data"},      "a NUL makes it binary"),
    (b"%PDF-1.4\n1 0 obj\n", 1, 2000, {"type": "document", "kind": "pdf", "guess": "a PDF document"},
     "a PDF without NUL"),
    (b"BZh91AY&SYx",       1, 2000, {"type": "binary", "guess": "bzip2 data"},       "compressed without NUL"),
    (b"PK and BM",         1, 2000, {"type": "text"},                                "a text that begins with letters of a format"),
    (b"a" * 8191 + b"\0",  1, 2000, {"type": "binary"},                              "within the first 8 KB"),
    (b"a" * 8192 + b"\0",  1, 2000, {"type": "text"},                                "after that nobody looks"),
    (b"\x7fELF\2\1\1\0",   1, 2000, {"guess": "an ELF program or library"},          "the kind is guessed"),
    (b"\xff\xfeh\0i\0",   1, 2000, {"guess": UTF16},                         "with a way out"),
    (b"\x89PNG\r\n\x1a\n\0", 1, 1,  {"guess": "a damaged PNG image"},                "half an image is none"),
    (png(),                1, 2000, {"type": "image", "media": "image/png"},         "a whole one is shown"),
    (GIF,                  1, 1,    {"type": "image", "media": "image/gif"},         "gif"),
    (JPEG,                 1, 1,    {"type": "image", "media": "image/jpeg"},        "jpeg"),
    (WEBP,                 1, 1,    {"type": "image", "media": "image/webp"},        "webp"),
    (WEBP[:-1],            1, 1,    {"type": "binary", "guess": "a damaged WebP image"}, "cut off webp"),
    (GIF.replace(b"\1\0", b"\0\0", 1), 1, 1, {"guess": "a damaged GIF image"},      "an image without pixels is none"),
]
# fmt: on


@pytest.mark.parametrize(("content", "offset", "limit", "expected", "why"), READS, ids=[row[4] for row in READS])
def test_read(tmp_path: Path, content: bytes, offset: int, limit: int, expected: dict[str, object], why: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    answer = read(path, offset, limit)
    assert {name: answer.get(name) for name in expected} == expected
    assert answer["sha256"] == hashlib.sha256(content).hexdigest()


def test_an_image_comes_whole(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(png())  # judged by its bytes, not by its name
    assert base64.b64decode(str(read(tmp_path / "a.txt")["base64"])) == png()


def test_an_image_that_no_model_takes_is_converted_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png() + b"\0" * 4_000_000)
    (tmp_path / "b.png").write_bytes(png(8001))
    for name in ("a.png", "b.png"):
        answer = read(tmp_path / name)
        assert (answer["type"], answer["kind"]) == ("document", "image")
        assert base64.b64decode(str(answer["base64"])) == (tmp_path / name).read_bytes()
    (tmp_path / "c.pdf").write_bytes(b"%PDF-1.4" + bytes(33 << 20))
    assert "at most 33,554,432 are read" in problem(read(tmp_path / "c.pdf"))["why"]


@pytest.mark.threat("T41")
def test_reading_stops_at_10_mb_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "big"
    path.write_bytes(b"0123456789abcde\n" * (20 << 16))  # 20 MB
    answer = read(path, 600_000, 2)
    assert answer["lines"] == ["0123456789abcde"] * 2
    assert answer["total"] is None
    assert answer["sha256"] is None  # so that no edit takes it for the whole
    assert answer["known"] == 10 << 16
    assert answer["size"] == 20 << 20


def test_one_line_of_20_mb_is_shown_in_part(tmp_path: Path) -> None:
    path = tmp_path / "big"
    path.write_bytes(b"x" * (20 << 20))
    lines = read(path)["lines"]
    assert isinstance(lines, list)
    assert len(lines) == 1
    assert len(lines[0]) < 2100


def test_one_answer_is_bounded_and_the_next_read_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "wide"
    path.write_bytes((b"y" * 1500 + b"\n") * 3000)
    lines = read(path, 1, 3000)["lines"]
    assert isinstance(lines, list)
    assert 100 < len(lines) < 140
    assert sum(map(len, lines)) <= 200_000


def test_proc_files_have_no_size_and_are_read_anyway() -> None:
    assert read(Path("/proc/self/status"))["lines"]


@pytest.mark.threat("T42")
def test_what_is_not_a_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as server:
        here = os.open(".", os.O_RDONLY)
        os.chdir(tmp_path)  # a socket's path has 108 bytes at most
        server.bind("socket")
        os.fchdir(here)
        os.close(here)
    # fmt: off
    table = [
        (tmp_path / "pipe",              "it is a pipe, not a file"),
        (tmp_path / "socket",            "it is a socket, not a file"),
        (tmp_path,                       "it is a folder, not a file"),
        (Path("/dev/zero"),              "it is a device, not a file"),
        (tmp_path / "loop",              "its symbolic links form a loop"),
        (tmp_path / ("n" * 300),         "the name is too long for the file system"),
        (tmp_path / "nothing",           f"there is no `nothing` in `{tmp_path}`"),
        (tmp_path / "no" / "thing",      f"there is no `no` in `{tmp_path}`"),
    ]
    # fmt: on
    for path, why in table:
        assert problem(read(path))["why"] == why
        assert problem(edit(path, "a", "b"))["why"] == why
    for path, why in table[:6]:
        assert problem(ask("WriteFile", path=path, content="x"))["why"] == why


def test_a_missing_file_names_its_neighbours(tmp_path: Path) -> None:
    for name in ("README.md", "readme.txt", "setup.py"):
        (tmp_path / name).write_text("x")
    assert f"`{tmp_path}/README.md`" in problem(read(tmp_path / "Readme.md"))["fix"]
    assert f"`{tmp_path}/setup.py`" in problem(read(tmp_path / "stup.py"))["fix"]
    assert "`ls`" in problem(read(tmp_path / "zzzzzzzz"))["fix"]


def test_a_file_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    assert problem(ask("WriteFile", path=tmp_path / "a" / "b", content=""))["why"].startswith("a part of the path")
    assert "there is no" in problem(read(tmp_path / "a" / "b"))["why"]


@pytest.mark.threat("T42")
def test_names_that_are_not_utf8_are_used_and_shown(tmp_path: Path) -> None:
    name = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9\n.txt")
    Path(name).write_text("old\n")
    assert ask("ReadFile", path=name)["real"] == f"{tmp_path}/caf\\xe9\\n.txt"
    assert ask("EditFile", path=name, old="old", new="new")["count"] == 1
    assert Path(name).read_text() == "new\n"
    assert ask("ListFolder", path=tmp_path)["entries"] == [["caf\\xe9\\n.txt", "file", 4, None]]
    assert ask("GlobFiles", root=tmp_path, pattern="*")["names"] == ["caf\\xe9\\n.txt"]
    found = [[f"{tmp_path}/caf\\xe9\\n.txt", [[1, True, "new"]]]]
    assert ask("GrepFiles", root=tmp_path, pattern="new")["files"] == found


def test_write_makes_a_file_and_its_folders(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "new.txt"
    before = os.umask(0o027)
    try:
        answer = ask("WriteFile", path=path, content="one\ntwo")
    finally:
        os.umask(before)
    assert (answer["created"], answer["folders"], answer["lines"], answer["size"]) == (True, 2, 2, 7)
    assert path.read_text() == "one\ntwo"
    assert path.stat().st_mode & 0o7777 == 0o640
    assert answer["sha256"] == hashlib.sha256(b"one\ntwo").hexdigest()


@pytest.mark.parametrize("mode", [0o600, 0o755, 0o664])
def test_replacing_keeps_the_mode_and_leaves_nothing_behind(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "run.sh"
    path.write_text("a\nb\nc\n")
    path.chmod(mode)
    inode = path.stat().st_ino
    answer = ask("WriteFile", path=path, content="a\nB\nc\n")
    assert path.stat().st_mode & 0o7777 == mode
    assert path.stat().st_ino != inode  # one step: nobody ever sees half a file
    assert os.listdir(tmp_path) == ["run.sh"]
    assert answer["diff"] == [f"--- {path}", f"+++ {path}", "@@ -1,3 +1,3 @@", " a", "-b", "+B", " c"]
    assert (answer["created"], answer["was"], answer["lines"], answer["notes"]) == (False, 3, 3, [])


# What another program does between the moment at which the file was read and the one at which it is replaced; what lies
# there afterwards, or None if the replacement takes place.
MEANWHILE: list[tuple[str, str | None]] = [
    ("echo theirs > f",                                "theirs\n"),
    ("echo theirs > n && mv n f",                      "theirs\n"),
    ("cp -p f n && printf 'mime\\n' > n && touch -r f n && mv n f", "mime\n"),  # of the same size and time
    ("printf 'mime\\n' > n && touch -r f n && cat n > f && touch -r n f", "mime\n"),
    ("rm f",                                           ""),
    ("rm f && ln -s other f",                          "other\n"),
    ("rm f && mkdir f && echo theirs > f/g",           "a folder"),
    ("rm f && mkfifo f",                               "a pipe"),
    ("touch f",                                        None),
    ("cp -p f n && mv n f",                            None),  # saved again without a change
    ("chmod 600 f",                                    None),
]  # fmt: skip


@pytest.mark.threat("T304")
@pytest.mark.parametrize(("meanwhile", "there"), MEANWHILE, ids=[row[0] for row in MEANWHILE])
def test_what_another_program_saved_meanwhile_is_not_replaced(
    tmp_path: Path, meanwhile: str, there: str | None
) -> None:
    file = tmp_path / "f"
    file.write_text("mine\n")
    (tmp_path / "other").write_text("other\n")
    state, old = file.stat(), file.read_bytes()
    subprocess.run(["sh", "-c", meanwhile], cwd=tmp_path, check=True)
    listed = sorted(os.listdir(tmp_path))
    if there is None:
        put(str(file), b"new\n", state, old, "cannot write")
        assert file.read_text() == "new\n"
    else:
        with pytest.raises(Refused) as told:
            put(str(file), b"new\n", state, old, "cannot write")
        assert told.value.problem["why"] == "another program changed it meanwhile"
        if file.is_file():
            assert file.read_text() == there
        assert file.is_dir() is (there == "a folder")
        assert file.is_fifo() is (there == "a pipe")
    assert sorted(os.listdir(tmp_path)) == listed, "nothing is left behind"


@pytest.mark.threat("T304")
def test_a_new_file_does_not_replace_one_that_appeared_meanwhile(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("theirs\n")
    with pytest.raises(Refused):
        put(f"{tmp_path}/f", b"new\n", None, None, "cannot write")
    assert (tmp_path / "f").read_text() == "theirs\n"
    assert os.listdir(tmp_path) == ["f"]


def test_writing_the_same_again_touches_nothing(tmp_path: Path) -> None:
    path = tmp_path / "same"
    path.write_text("x\n")
    state = path.stat()
    assert ask("WriteFile", path=path, content="x\n")["diff"] == []
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (state.st_ino, state.st_mtime_ns)


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    target = tmp_path / "deep" / "target"
    target.write_text("old")
    (tmp_path / "link").symlink_to("deep/target")
    (tmp_path / "dangling").symlink_to("deep/later")
    assert ask("WriteFile", path=tmp_path / "link", content="new")["real"] == str(target)
    assert ask("EditFile", path=tmp_path / "link", old="new", new="newer")["real"] == str(target)
    assert ask("WriteFile", path=tmp_path / "dangling", content="made")["created"] is True
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "dangling").is_symlink()
    assert target.read_text() == "newer"
    assert (tmp_path / "deep" / "later").read_text() == "made"


@pytest.mark.threat("T43")
def test_a_hard_link_keeps_the_other_name_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    os.link(tmp_path / "a", tmp_path / "b")
    ask("WriteFile", path=tmp_path / "a", content="new")
    assert (tmp_path / "b").read_text() == "old"


# fmt: off
EDITS: list[tuple[bytes, str, str, bool, bytes, str]] = [
    (b"a b c\n",                "b", "X", False, b"a X c\n",              "one place"),
    (b"a a\na\n",               "a", "b", True,  b"b b\nb\n",             "every place"),
    (b"one\ntwo\nthree\n",      "one\ntwo", "1", False, b"1\nthree\n",    "several lines"),
    (b"keep\n",                 "keep\n", "", False, b"",                 "nothing is left"),
    (b"a\r\nb\r\n",             "a\nb", "x\ny", False, b"x\r\ny\r\n",     "CR LF stays, the model writes LF"),
    (b"a\r\nb\r\n",             "a\r\nb", "x\r\ny", False, b"x\r\ny\r\n", "CR LF stays, the model writes CR LF"),
    (b"a\r\nb\n",               "a\r\n", "c\r\n", False, b"c\r\nb\n",     "mixed ends are taken as they are"),
    (b"a\r\nb\n",               "b\n", "c\n", False, b"a\r\nc\n",         "and not repaired"),
    (b"\xef\xbb\xbfa\n",        "a", "b", False, b"\xef\xbb\xbfb\n",      "a byte order mark stays"),
    (b"\xef\xbb\xbfa\r\n",      "a\n", "b\n", False, b"\xef\xbb\xbfb\r\n", "both"),
    (b"caf\xe9 a\n",            "a\n", "b\n", False, b"caf\xe9 b\n",      "bytes that are not UTF-8 outlive it"),
    ("é\n".encode(),            "é", "è", False, "è\n".encode(),          "not ASCII"),
    (b"x\\1 $1\n",              "\\1 $1", "\\g<0>", False, b"x\\g<0>\n",  "nothing is special in either text"),
]
# fmt: on


@pytest.mark.parametrize(("before", "old", "new", "every", "after", "why"), EDITS, ids=[row[5] for row in EDITS])
def test_edit(tmp_path: Path, before: bytes, old: str, new: str, every: bool, after: bytes, why: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(before)
    path.chmod(0o640)
    answer = edit(path, old, new, every=every, seen=hashlib.sha256(before).hexdigest())
    assert path.read_bytes() == after
    assert answer["sha256"] == hashlib.sha256(after).hexdigest()
    assert path.stat().st_mode & 0o777 == 0o640
    assert answer["diff"]


TWENTY = ", ".join(str(number) for number in range(1, 21))
NOT = "the old text is not in the file, "

# fmt: off
REFUSED_EDITS: list[tuple[bytes, str, str, str, str]] = [
    (b"a\nb\na\n", "a", "x",   "the old text is in the file 2 times, on lines 1, 3",                 "how many, and where"),
    (b"x\n" * 30, "x", "y",    f"the old text is in the file 30 times, on lines {TWENTY} and 10 more",  "a list that ends"),
    (b"a\nretries = 3\n", "retris = 3", "x", NOT + "the closest line is 2: `retries = 3`",       "the closest line"),
    (b"def f():\n    pass\n", "def f():\n\tpass", "x",
                               NOT + "but line 1 differs from it in spaces or tabs only",         "tabs for spaces"),
    (b"a\nbee\nc\n", "     2\tbee", "x",
                               NOT + "but it is on line 2 without the line numbers that `read` adds", "line numbers"),
    (b"abc\n", "zzzzzz", "x",  NOT + "and no line is similar to its first line",  "nothing like it"),
    (b"abc\n", " \n\n ", "x",  NOT + "and it has only empty lines",      "only blanks"),
    (b"abc\n", "", "x",        "the text to replace is empty",                                 "nothing to replace"),
    (b"abc\n", "b", "b",       "the old and the new text are the same",                        "nothing to do"),
    (b"a\0b\n", "a", "b",      "it is a binary file",                                          "binary"),
    (b"a" * 10_485_761, "a", "b", "it is larger than 10 MiB",                                   "too large"),
]
# fmt: on


@pytest.mark.parametrize(
    ("before", "old", "new", "reason", "why"), REFUSED_EDITS, ids=[row[4] for row in REFUSED_EDITS]
)
def test_edit_refused(tmp_path: Path, before: bytes, old: str, new: str, reason: str, why: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(before)
    assert problem(edit(path, old, new))["why"] == reason
    assert path.read_bytes() == before


@pytest.mark.threat("T43")
def test_an_edit_of_what_changed_since_it_was_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("a\n")
    seen = str(read(path)["sha256"])
    path.write_text("a\nmore\n")
    told = problem(edit(path, "a\n", "b\n", seen=seen))
    assert told["why"] == "it changed since you last read it"
    assert "read it again" in told["fix"]
    assert path.read_text() == "a\nmore\n"
    assert edit(path, "a\n", "b\n", seen=str(read(path)["sha256"]))["count"] == 1


def test_an_edit_that_grows_past_the_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("a" * 200_000)
    assert "larger than 10 MiB" in problem(edit(path, "a", "b" * 100, every=True))["why"]


TEXT = st.text(alphabet="ab \nxé", max_size=40)


@given(before=TEXT, old=TEXT.filter(bool), new=TEXT, crlf=st.booleans(), bom=st.booleans())
def test_edit_is_str_replace(
    tmp_path_factory: pytest.TempPathFactory, before: str, old: str, new: str, crlf: bool, bom: bool
) -> None:
    """For every text: replacing everywhere is str.replace, in LF files and, line ends apart, in CR LF files."""
    crlf = crlf and "\n" in before  # a file without line ends has none to keep

    def stored(text: str) -> bytes:
        return ("\ufeff" * bom + (text.replace("\n", "\r\n") if crlf else text)).encode()

    path = tmp_path_factory.getbasetemp() / "replace"
    path.write_bytes(stored(before))
    answer = edit(path, old, new, every=True)
    if old in before and old != new:
        assert path.read_bytes() == stored(before.replace(old, new))
        assert answer["count"] == before.count(old)
        assert answer["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    else:
        problem(answer)
        assert path.read_bytes() == stored(before)


# fmt: off
MALFORMED: list[tuple[dict[str, object], str]] = [
    ({},                                                                       "nothing at all"),
    ({"op": "Format", "path": "/"},                                            "no such action"),
    ({"op": "ReadFile"},                                                       "no path"),
    ({"op": "ReadFile", "path": 7},                                            "a path of another type"),
    ({"op": "ReadFile", "path": "relative"},                                   "a path from nowhere"),
    ({"op": "ReadFile", "path": "/a\0b"},                                      "a NUL in a path"),
    ({"op": "ReadFile", "path": "/\ud800"},                                    "half a surrogate pair"),
    ({"op": "WriteFile", "path": "/tmp/x", "content": "\ud800"},               "half a surrogate pair as content"),
    ({"op": "WriteFile", "path": "/tmp/x"},                                    "no content"),
    ({"op": "GrepFiles", "root": "/tmp", "pattern": None},                     "no pattern"),
]
# fmt: on


@pytest.mark.threat("T26")
@pytest.mark.parametrize(("request_", "why"), MALFORMED, ids=[row[1] for row in MALFORMED])
def test_a_malformed_request_is_a_problem(request_: dict[str, object], why: str) -> None:
    problem(perform(request_))
