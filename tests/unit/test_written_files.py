"""Tests of the list of untrusted files: too many of them, copies, endorsed contents and commits."""

from pathlib import Path

import pytest

from runner.flow import written_files
from runner.flow.written_files import WrittenFiles

pytestmark = pytest.mark.threat("T269")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("state", "work/vendor/a", "work/docs"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def of(place: Path) -> WrittenFiles:
    """Return the list as a new session reads it."""
    return WrittenFiles(place / "state", str(place / "work"))


def write(place: Path, *names: str) -> list[str]:
    paths = [place / "work" / name for name in names]
    for path in paths:
        path.write_text(f"text of {path.name}")
    return [str(path) for path in paths]


def test_too_many_files_are_replaced_by_their_folder(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written_files, "_MOST", 6)
    plan, notes = write(place, "docs/plan.md", "notes.md")
    of(place).note([plan, notes], "the page a")
    vendor = write(place, *(f"vendor/a/{number}" for number in range(20)))
    of(place).note(vendor, "the page b")
    known = of(place)
    assert [known.source(path) for path in (plan, notes)] == ["the page a", "the page a"]
    assert {known.source(path) for path in vendor} == {"the page b"}
    (late,) = write(place, "vendor/late")
    assert known.source(late) == "the page b", "in the folder every file counts"
    assert known.source(*write(place, "docs/other.md")) == ""
    work = str(place / "work")
    assert known.below(f"{work}/vendor/a") == ((f"{work}/vendor/a", "the page b"),)
    assert dict(known.below(work)) == {plan: "the page a", notes: "the page a", f"{work}/vendor": "the page b"}
    assert known.below(f"{work}/docs") == ((plan, "the page a"),)


def test_too_many_files_of_the_workspace_itself(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written_files, "_MOST", 3)
    many = write(place, *(f"{number}.md" for number in range(5)))
    for path in many:
        of(place).note([path], "the page")
    assert {of(place).source(path) for path in many} == {"the page"}


def test_an_endorsed_content_counts_in_an_untrusted_folder_and_beside_a_copy(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, copy = write(place, "docs/a.md", "docs/b.md")
    Path(copy).write_bytes(Path(first).read_bytes())
    of(place).note([first, copy], "the page")
    of(place).forget([first])
    assert of(place).source(first) == ""
    assert of(place).source(copy) == "the page"
    monkeypatch.setattr(written_files, "_MOST", 2)
    of(place).note(write(place, "vendor/1", "vendor/2", "vendor/3"), "the page")
    (one,) = write(place, "vendor/1")
    assert of(place).source(one) == "the page"
    of(place).forget([one])
    assert of(place).source(one) == ""
    Path(one).write_text("changed again")
    assert of(place).source(one) == "the page"


def test_the_same_text_under_another_name_is_untrusted(place: Path) -> None:
    (plan, empty) = write(place, "docs/plan.md", "docs/empty")
    Path(empty).write_text("")
    of(place).note([plan, empty], "the page")
    moved = Path(plan).rename(place / "work/moved.md")
    (other,) = write(place, "other")
    Path(other).write_text("")
    assert of(place).source(str(moved)) == "the page"
    assert of(place).source(other) == "", "an empty file is no text"
    moved.write_text("mine")
    assert of(place).source(str(moved)) == ""


def test_a_commit_endorses_unless_an_agent_made_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (plan,) = write(place, "plan.md")
    of(place).note([plan], "the page")

    def made(*commits: str, complete: bool = True) -> None:
        """Let an agent make these commits."""
        files = WrittenFiles(place / "state", str(place / "work"), since=lambda before, now: (commits, complete))
        files.note_commits("a" * 40, "b" * 40)

    def source(commit: str) -> str:
        return WrittenFiles(place / "state", str(place / "work"), lambda path: commit).source(plan)

    assert source("") == "the page"
    assert source("c" * 40) == ""
    made("c" * 40, "d" * 40)
    assert [source(each * 40) for each in "cde"] == ["the page", "the page", ""]
    made("f" * 40, complete=False)
    assert source("e" * 40) == "the page", "of more commits than were read, each may be the agent's"
    monkeypatch.setattr(written_files, "_MOST_COMMITS", 3)
    made(*(each * 40 for each in "ghi"))
    assert source("a" * 40) == "the page"
