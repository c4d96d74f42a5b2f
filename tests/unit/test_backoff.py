"""Tests of the delay before a failed provider is asked again."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.model.verdict import Problem
from runner.engine.retry_policy import RetryPolicy
from runner.events import ModelText, Retrying
from runner.frontends.tui.status import Wait
from runner.frontends.wording import wait_words
from runner.messages import WAITING_HELPS, Failure

USUAL = RetryPolicy()

# (attempt, luck, seconds, why)
OWN = [
    (1, 1.0, 0.5, "the first bound"),
    (1, 0.0, 0.0, "full jitter begins at nothing"),
    (1, 0.5, 0.25, "and ends at the bound"),
    (2, 1.0, 1.0, "it doubles"),
    (6, 1.0, 16.0, "and doubles"),
    (7, 1.0, 30.0, "up to the most"),
    (10_000, 1.0, 30.0, "and no number of attempts overflows"),
]


@pytest.mark.parametrize(("attempt", "luck", "seconds", "why"), OWN, ids=[row[3] for row in OWN])
@pytest.mark.parametrize("failure", WAITING_HELPS)
def test_the_bound_doubles_and_chance_chooses_below_it(
    failure: Failure, attempt: int, luck: float, seconds: float, why: str
) -> None:
    assert USUAL.wait(failure, attempt, None, luck) == seconds, why


# (retry_after, left, luck, seconds, why)
SAID = [
    (20.0, None, 0.0, 20.0, "the server's own wish"),
    (20.0, None, 1.0, 20.5, "and never sooner: chance comes on top"),
    (600.0, None, 1.0, 600.0, "ten minutes are waited"),
    (601.0, None, 0.0, None, "and no more"),
    (601.0, 3000.0, 0.0, 601.0, "unless the run has the time"),
    (60.0, 30.0, 0.0, None, "what comes after the end of the run is not waited for"),
    (30.0, 30.0, 1.0, 30.0, "up to the end"),
    (None, 0.1, 1.0, None, "nor is our own wait"),
    (0.0, None, 1.0, 0.5, "zero says nothing"),
    (-5.0, None, 1.0, 0.5, "nor what is below it"),
    (math.nan, None, 1.0, 0.5, "nor what is no number"),
    (math.inf, None, 0.0, None, "for ever is too long"),
]


@pytest.mark.parametrize(("retry_after", "left", "luck", "seconds", "why"), SAID, ids=[row[4] for row in SAID])
def test_a_server_that_says_when_is_not_asked_sooner(
    retry_after: float | None, left: float | None, luck: float, seconds: float | None, why: str
) -> None:
    assert USUAL.wait(Failure.RATE_LIMITED, 1, retry_after, luck, left=left) == seconds, why


@pytest.mark.parametrize("failure", [each for each in Failure if each not in WAITING_HELPS])
def test_where_waiting_does_not_help_nobody_waits(failure: Failure) -> None:
    assert USUAL.wait(failure, 1, 1.0, 0.5) is None


@given(
    st.sampled_from(WAITING_HELPS),
    st.integers(1, 1 << 40),
    st.none() | st.floats(allow_nan=True, allow_infinity=True),
    st.floats(0, 1, exclude_max=True),
    st.none() | st.floats(0, 1e9),
)
def test_a_wait_is_never_negative_and_never_longer_than_it_may_be(
    failure: Failure, attempt: int, retry_after: float | None, luck: float, left: float | None
) -> None:
    seconds = USUAL.wait(failure, attempt, retry_after, luck, left=left)
    if seconds is not None:
        assert 0 <= seconds <= (600.0 if left is None else left)
        if retry_after is not None and retry_after > 0:
            assert seconds >= retry_after


@pytest.mark.parametrize(
    ("wait", "later", "said"),
    [
        (1.2345, 0.0, "retry in 2 s"),
        (42.0, 0.5, "retry in 42 s"),
        (42.0, 41.5, "retry in 1 s"),
        (42.0, 42.0, ""),
        (599.6, 0.0, "retry in 10 min 0 s"),
    ],
)
def test_a_wait_counts_down(wait: float, later: float, said: str) -> None:
    countdown, problem = Wait(), Problem("it is busy", "529", "wait")
    countdown.take(Retrying(Failure.OVERLOADED, problem, wait, 1, 3), 100.0)
    assert countdown.words(100.0 + later) == said
    countdown.take(ModelText("back"), 100.0)
    assert countdown.words(100.0) == ""


@pytest.mark.parametrize(
    ("count", "said"), [(0.5, "0.5 s"), (1.234, "1.23 s"), (59.6, "60 s"), (119.0, "119 s"), (179.7, "3 min 0 s")]
)
def test_a_time_to_wait_in_words(count: float, said: str) -> None:
    assert wait_words(count) == said
