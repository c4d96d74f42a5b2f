"""Files that a prompt attaches, in a real session: judged, recorded, kept, and sent as the first message."""

from pathlib import Path

import pytest

from runner.messages import ImageBlock, TextBlock, UserMessage
from tests.support import documents
from tests.support.document_session import DocumentRun, session
from tests.support.session_harness import SessionHarness


def first(got: DocumentRun) -> tuple[str, list[ImageBlock]]:
    message = got.history[0]
    assert isinstance(message, UserMessage)
    text = "".join(block.text for block in message.content if isinstance(block, TextBlock))
    return text, [block for block in message.content if isinstance(block, ImageBlock)]


def test_an_image_and_a_pdf_are_attached(tmp_path: Path) -> None:
    files = {"a.png": documents.image(), "b c.pdf": documents.pdf("Alpha", "")}
    got = session(tmp_path, files=files, prompt='Compare @a.png with @"b c.pdf" and @missing.png')
    text, images = first(got)
    assert text.startswith("Compare @a.png")
    assert '<attached-file name="a.png" number="' in text
    assert "     1\tAlpha" in text
    assert len(images) == 2
    reads = [each for each in got.records if (each.get("action") or {}).get("type") == "ReadFile"]
    assert [Path(each["action"]["path"]).name for each in reads] == ["a.png", "b c.pdf"]
    assert any("`missing.png` is not attached" in getattr(event, "text", "") for event in got.events)


@pytest.mark.threat("T249")
@pytest.mark.parametrize("name", ["../home/.ssh/key.png", "../other.png", "/etc/shadow.png"])
def test_a_name_in_a_prompt_opens_no_file_that_the_model_may_not_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "home/.ssh").mkdir(parents=True)
    for path in (tmp_path / "home/.ssh/key.png", tmp_path / "other.png"):
        path.write_bytes(documents.image())
    got = session(tmp_path, prompt=f"look at @{name}")
    text, images = first(got)
    assert images == []
    assert "not done" in text or "<attached-file" not in text


def test_attached_images_stay_in_the_session_file(tmp_path: Path) -> None:
    user = SessionHarness(tmp_path)
    (user.work / "a.png").write_bytes(documents.image())
    done = user.run("see @a.png")
    assert done.returncode == 0, done.stderr
    stored = "".join(path.read_text() for path in user.state.rglob("*.jsonl"))
    assert '"media":"image/png"' in stored.replace(" ", "")
    again = user.run("--continue", "and now?")
    assert again.returncode == 0, again.stderr
