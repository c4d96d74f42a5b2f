"""Tests of the model catalog: the packaged table is consistent, dated names are known, unknown ones get no window."""

import pytest

from runner.providers.catalog import ModelFacts, ThinkingKind, facts_of, published
from runner.providers.remotes import PROVIDERS, Remote


@pytest.mark.parametrize(
    ("spec", "window", "output", "kind"),
    [
        ("anthropic:claude-sonnet-5-5", 1_000_000, 128_000, ThinkingKind.ADAPTIVE),
        ("anthropic:claude-haiku-4-5-20251001", 200_000, 64_000, ThinkingKind.BUDGET),
        ("openai:gpt-6.2-sol", 1_050_000, 128_000, ThinkingKind.EFFORT),
        ("openai:gpt-5-2025-08-07", 400_000, 128_000, ThinkingKind.EFFORT),
        ("gemini:gemini-2.5-flash", 1_048_576, 65_536, ThinkingKind.BUDGET),
        # Unknown models: no window, and asked to think as the vendor's newest.
        ("anthropic:claude-next-9", None, None, ThinkingKind.ADAPTIVE),
        ("openai:qwen3:8b", None, None, ThinkingKind.EFFORT),
        # A name that only begins like a known one is another model.
        ("openai:gpt-5-mini-extra", None, None, ThinkingKind.EFFORT),
        ("openai:claude-sonnet-5-5", None, None, ThinkingKind.EFFORT),
        ("scripted:file.json", None, None, ThinkingKind.NONE),
        ("", None, None, ThinkingKind.NONE),
    ],
)
def test_facts_of(spec: str, window: int | None, output: int | None, kind: ThinkingKind) -> None:
    facts = facts_of(spec)
    assert (facts.window, facts.output, facts.thinking) == (window, output, kind)


def test_default_models_are_known_and_small_models_name_themselves() -> None:
    for name, remote in PROVIDERS.items():
        if not isinstance(remote, Remote) or not remote.model:
            continue
        facts = facts_of(f"{name}:{remote.model}")
        assert facts.window is not None
        assert facts.output is not None
        assert facts.output < facts.window
        assert facts.small is not None
        assert facts.small.startswith(f"{name}:"), "the same key opens it"
        assert facts_of(facts.small).small == facts.small


def test_what_has_a_price_has_facts() -> None:
    assert [spec for spec in published().prices if facts_of(spec) == ModelFacts() or not facts_of(spec).window] == []
