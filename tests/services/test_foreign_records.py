"""Tests of exports of records that another program wrote by hand: every export accepts them."""

import copy
import json
import random
from pathlib import Path

import pytest
from hypothesis import settings
from opentelemetry._logs import LogRecord
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.sdk._logs import ReadableLogRecord
from playwright.sync_api import Browser

from runner.audit.chain import Record
from runner.audit.decisions import DecisionTrail
from runner.audit.export import otlp_record, sarif, table
from runner.audit.export.page import document
from tests.support.report_browser import ABOUT, in_browser, opened
from tests.support.sample_decisions import SHOP, sample_log
from tests.support.sarif_checks import valid

# Records that are opened one by one in the browser, which takes 20 milliseconds each.
SHOWN = 400 if settings.get_current_profile_name() == "many" else 200
ODD: tuple[object, ...] = (
    None, True, False, 0, -1, 3.5, 1e308, 10**30, float("nan"), float("inf"), "", "x", "<b>", "\ud800", "2026-03-04", "9999-12-31T23:59:59.999Z", [], {},
    ["a", 1, None], [[[]]], {"a": {"b": [1]}}, {"cut": 5}, {"cut": "kept", "length": "long"}, {"cut": "kept", "length": -7},
    {"cut": ["x"]}, [0, "1"], [5, 2], [-3, 10**12], [1.5, 2.5], [None, None], {"__proto__": {"a": 1}}, {"length": 3},
)  # fmt: skip


def places(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every place in a body, of objects and of lists."""
    found = [path] if path else []
    if isinstance(value, dict):
        found += [each for key, inner in value.items() for each in places(inner, (*path, key))]
    elif isinstance(value, list):
        found += [each for number, inner in enumerate(value) for each in places(inner, (*path, number))]
    return found


def changed(body: dict[str, object], path: tuple[str | int, ...], value: object) -> dict[str, object]:
    made = copy.deepcopy(body)
    at: object = made
    for step in path[:-1]:
        at = at[step]  # type: ignore[index]  # `path` leads through lists and tables
    at[path[-1]] = value  # type: ignore[index]  # `path` leads through lists and tables
    return made


def odd(seed: int, most: int) -> list[DecisionTrail]:
    """The story, each time with one place of one of its bodies changed to something that does not belong there."""
    dice = random.Random(seed)
    cases = []
    for deed in sample_log().deeds:
        for name in ("record", "session", "finished"):
            record: Record | None = getattr(deed, name)
            if record is not None:
                cases += [(deed, name, record, path, value) for path in places(record.body) for value in ODD]
    found = []
    for deed, name, record, path, value in dice.sample(cases, most):
        parts = {"record": deed.record, "session": deed.session, "finished": deed.finished}
        parts[name] = Record(record.id, record.hash, changed(record.body, path, value))
        assert parts["record"] is not None
        found.append(DecisionTrail(parts["record"], parts["session"], parts["finished"]))
    return found


@pytest.mark.parametrize("seed", range(3))
def test_no_record_breaks_an_export(seed: int) -> None:
    for deed in odd(seed, 700):
        told = (deed.record.body, deed.session and deed.session.body, deed.finished and deed.finished.body)
        try:
            list(table.jsonl_lines([deed]))
            assert len(list(table.lines([deed]))) == 2
            run = sarif.document([deed], SHOP, questions=True)
            json.dumps(run, allow_nan=False)
            if seed == 0:
                valid(run)
            encode_logs(
                [ReadableLogRecord(LogRecord(attributes=otlp_record.attributes(deed)), otlp_record.resource(deed, "x"))]
            )
        except Exception as error:
            raise AssertionError(json.dumps(told)) from error
    document(odd(seed, 700), ABOUT)


@pytest.mark.thorough
@in_browser
def test_no_record_breaks_the_report(browser: Browser, tmp_path: Path) -> None:
    deeds = [
        DecisionTrail(Record(number, deed.record.hash, deed.record.body), deed.session, deed.finished)
        for number, deed in enumerate(odd(99, SHOWN), 1)
    ]
    seen = opened(browser, tmp_path, deeds)
    assert seen.found() == SHOWN
    for _ in range(SHOWN // 100):  # the report shows a page of 100
        seen.page.evaluate("for (const row of document.querySelectorAll('.row')) row.click()")
        seen.page.evaluate("document.querySelector('#pager button:last-child').click()")
    assert seen.bad == []
    seen.page.close()
