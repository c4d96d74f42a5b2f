"""The event that started a job: whether its repository text is foreign, and the texts that strangers wrote.

THREAT T271: the prompt of a workflow contains the text of an issue, or the job works on a pull request from a fork. The
author of either is a stranger, whatever the prompt around it says.

SOURCE: docs.github.com, "Webhook events and payloads" and `GITHUB_EVENT_PATH`; docs.gitlab.com, "Predefined CI/CD
variables" (`CI_MERGE_REQUEST_SOURCE_PROJECT_ID`, `CI_MERGE_REQUEST_PROJECT_ID`).
"""

import json
from collections.abc import Iterator, Mapping

from policy.model.frozen import dataclass
from sandbox.inside.regular_file import read_whole

_LARGEST = 8 << 20  # bytes of an event
_TITLED = ("issue", "pull_request", "discussion")
_COMMENTS = ("comment", "review")


@dataclass(frozen=True, slots=True)
class JobEvent:
    """The event of a job.

    Attributes:
        foreign: why all text of the repository is untrusted, in words; empty if it is not.
        texts: pairs of a source in words and a text of its author.
    """

    foreign: str = ""
    texts: tuple[tuple[str, str], ...] = ()


def job_event(environ: Mapping[str, str]) -> JobEvent:
    """Return the event of the job. An event of a pull request that cannot be read counts as one from a fork."""
    name = environ.get("GITHUB_EVENT_NAME", "")
    if path := environ.get("GITHUB_EVENT_PATH", ""):
        try:
            event = json.loads(read_whole(path, _LARGEST, follow=True))
        except (OSError, ValueError, RecursionError):
            event = None
        if not isinstance(event, dict):
            return JobEvent("the repository of an event that cannot be read" if "pull_request" in name else "")
        return JobEvent(_foreign(event, name), tuple(_texts(event)))
    source = environ.get("CI_MERGE_REQUEST_SOURCE_PROJECT_ID", "")
    same = source == environ.get("CI_MERGE_REQUEST_PROJECT_ID", "")
    foreign = "the repository of a merge request from a fork" if source and not same else ""
    pairs = (("the title of the merge request", "CI_MERGE_REQUEST_TITLE"),
             ("the text of the merge request", "CI_MERGE_REQUEST_DESCRIPTION"))  # fmt: skip
    return JobEvent(foreign, tuple((words, text) for words, key in pairs if (text := environ.get(key, "").strip())))


def _foreign(event: Mapping[str, object], name: str) -> str:
    request = _table(event.get("pull_request"))
    if not request:
        return ""
    head, base = _table(_table(request.get("head")).get("repo")), _table(_table(request.get("base")).get("repo"))
    same = head.get("full_name") is not None and head.get("full_name") == base.get("full_name")
    return "" if same else "the repository of a pull request from a fork"


def _texts(event: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for kind in (*_TITLED, *_COMMENTS):
        table, words = _table(event.get(kind)), kind.replace("_", " ")
        for field, what in (("title", "title"), ("body", "text")):
            text = table.get(field)
            if isinstance(text, str) and text.strip():
                yield f"the {what} of the {words}", text.strip()


def _table(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}
