"""What a model is shown of a long conversation: shorter by levels, never torn, and all of it stays in the session."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from test_loop import Make, Stage, bash, stage

from runner.compaction.fold import Fold, shown
from runner.compaction.levels import Thresholds
from runner.compaction.units import kept_from
from runner.compaction.view import View
from runner.events import Compacted, ContextUsed
from runner.messages import (
    AssistantMessage,
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from runner.problems import Exit
from runner.providers.scripted import Turn
from sandbox.backend import Outcome

__all__ = ["stage"]  # the fixture

texts = st.text(max_size=30) | st.integers(0, 6000).map(lambda count: "line of output\n" * (count // 15))


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """Whole ones: every call has its result."""
    found: list[Message] = []
    for number in range(draw(st.integers(0, 8))):
        kind = draw(st.sampled_from(("said", "words", "calls")))
        if kind == "said":
            found.append(UserMessage((TextBlock(draw(texts)),)))
            continue
        if kind == "words":
            found.append(AssistantMessage((ThinkingBlock(draw(texts), "signed"), TextBlock(draw(texts)))))
            continue
        calls = tuple(
            ToolCall(f"{number}.{at}", "bash", {"command": draw(texts)}) for at in range(draw(st.integers(1, 3)))
        )
        found.append(AssistantMessage((ThinkingBlock("why", "signed"), *calls)))
        image = (ImageBlock("image/png", "AAAA"),) * draw(st.integers(0, 1))
        found.append(ToolMessage(tuple(ToolResult(call.id, (TextBlock(draw(texts)), *image)) for call in calls)))
    return found


folds = st.builds(
    Fold,
    cut=st.integers(0, 20),
    lined=st.integers(0, 20),
    trimmed=st.integers(0, 20),
    capped=st.integers(0, 20),
    cap=st.integers(0, 500),
    notes=texts,
    space=st.integers(0, 2000),
)


def whole(messages: Sequence[Message]) -> bool:
    """Every call is answered by the very next message, and nothing else answers."""
    waiting: tuple[str, ...] = ()
    for message in messages:
        if isinstance(message, ToolMessage):
            if tuple(result.call_id for result in message.results) != waiting or not waiting:
                return False
            waiting = ()
            continue
        if waiting:
            return False
        if isinstance(message, AssistantMessage):
            waiting = tuple(call.id for call in message.calls)
    return not waiting


@given(histories(), folds)
def test_calls_and_results_are_never_parted(history: list[Message], fold: Fold) -> None:
    assert whole(shown(history, fold))


@given(histories(), folds, histories())
def test_what_is_said_later_changes_nothing_before_it(history: list[Message], fold: Fold, more: list[Message]) -> None:
    fold = fold.turned(len(history)).turned(len(history))  # places inside of it
    before = shown(history, fold)
    assert shown([*history, *more], fold) == (*before, *more)


@given(histories(), folds)
def test_places_come_back_from_a_file(history: list[Message], fold: Fold) -> None:
    end = len(history)
    assert shown(history, fold.turned(end).turned(end)) == shown(history, fold)


@given(histories(), st.integers(0, 5000))
def test_the_last_piece_stays_whole(history: list[Message], room: int) -> None:
    kept = kept_from(history, room)
    assert not history or kept < len(history)
    assert whole(history[kept:])


@given(histories())
@settings(max_examples=30)
def test_what_is_cut_is_short(history: list[Message]) -> None:
    fold = Fold(cut=len(history), notes="n" * 50_000, space=1000)
    for message in shown(history, fold):
        assert isinstance(message, UserMessage)
        assert sum(len(block.text) for block in message.content if isinstance(block, TextBlock)) < 5000


# ---- in the loop

LONG = Outcome(0, stdout=b"a line that the command printed\n" * 600)  # about 5,000 tokens


def small(found: Stage, window: int = 20_000, **levels: int) -> Stage:
    """The stage with a model of that window."""
    view = View(Thresholds(**levels) if levels else None, window=lambda spec: window)
    return replace(found, world=replace(found.world, view=view))


def test_old_output_is_trimmed_and_the_history_keeps_it(stage: Make) -> None:
    found = small(stage(*[bash(f"ls {at}") for at in range(4)], Turn("done"), behave=lambda _: LONG))
    assert found.play().exit is Exit.DONE
    compacted = found.of(Compacted)
    assert compacted
    assert isinstance(compacted[0], Compacted)
    assert compacted[0].level == "trim"
    assert compacted[0].after < compacted[0].before
    assert all(text.count("printed") > 100 for text in found.told()), "the history is whole"
    used = [event.tokens for event in found.of(ContextUsed) if isinstance(event, ContextUsed)]
    assert max(used) < 20_000
