"""The commands that change live settings: /mode, /model, /thinking."""

import asyncio
from collections.abc import Sequence
from functools import partial

from policy.model.tier import Mode
from runner.frontends.slash.command import CommandHost, Mistake, Row, SlashCommand, say
from runner.messages import Thinking

MODES = {
    Mode.PLAN: "only reads, and proposes a plan",
    Mode.DEFAULT: "reads; asks before it changes files or runs code",
    Mode.ACCEPT_EDITS: "edits files too; asks before it runs code",
    Mode.TRUST_PROJECT: "runs this project's code too; asks about the rest",
    Mode.DONT_ASK: "never asks: refuses what trust-project asks about",
    Mode.DANGEROUSLY: "allows nearly everything; secrets stay out of reach",
}
LEVELS = {
    Thinking.OFF: "the model's own default",
    Thinking.LOW: "a little",
    Thinking.MEDIUM: "for most work",
    Thinking.HIGH: "for hard work; slower, and costs more",
    Thinking.MAX: "as much as the model can",
}


async def _mode(words: str, host: CommandHost) -> None:
    """Change the mode. Without a name, let the user pick a mode."""
    now = host.conversation.ctx.live.mode
    rows = [Row(mode.value, mode.value, MODES[mode], mode is now) for mode in Mode]
    wanted = words or await host.pick("mode", rows)
    if wanted is None:
        say(host, f"the mode is {now.value}")
        return
    if wanted not in [mode.value for mode in Mode]:
        raise Mistake(f"there is no mode `{wanted}`; the modes are {', '.join(mode.value for mode in Mode)}")
    if wanted == now.value:
        say(host, f"the mode is already {wanted}")
        return
    host.conversation.set_mode(Mode(wanted))


_SHOWN = {"show": True, "hide": False}


async def _thinking(words: str, host: CommandHost) -> None:
    """Change the thinking level, or what the screen shows of the reasoning. Without a word, let the user pick."""
    if words in _SHOWN:
        if not host.show_thinking(_SHOWN[words]):
            raise Mistake("this screen does not show the reasoning of the model; the full screen and --json do")
        return
    now = host.conversation.ctx.live.thinking
    rows = [Row(each.value, each.value, text, each is now) for each, text in LEVELS.items()]
    wanted = words or await host.pick("thinking", rows)
    if wanted is None:
        say(host, f"the thinking level is {now.value}")
        return
    if wanted not in [each.value for each in Thinking]:
        levels = ", ".join(each.value for each in Thinking)
        raise Mistake(f"there is no level `{wanted}`; the levels are {levels}, and `show` or `hide` for the reasoning")
    if wanted == now.value:
        say(host, f"the thinking level is already {wanted}")
        return
    host.conversation.set_thinking(Thinking(wanted))


async def _model(words: str, host: CommandHost) -> None:
    ctx = host.conversation.ctx
    now = ctx.live.named
    wanted = words
    if not words:
        rows = await asyncio.to_thread(_model_rows, host, now)
        wanted = await host.pick("model (window, prices of a million tokens, key)", rows) or ""
    if not wanted:
        say(host, f"the model is {now}")
        return
    if wanted == now:
        say(host, f"the model is already {now}")
        return
    host.conversation.set_model(wanted)


def _models(host: CommandHost) -> Sequence[str]:
    """Return the models: the current one, those of the settings, and the known ones, those of the current provider
    first.
    """
    from runner.providers.catalog import published

    ctx = host.conversation.ctx
    now = ctx.live.named
    mine = [f"{name}:{model}" for name, model in host.settings.models.items()]
    known = sorted(published().prices, key=lambda name: not name.startswith(f"{ctx.live.provider.name}:"))
    return list(dict.fromkeys((now, *mine, *known)))


def _model_rows(host: CommandHost, now: str) -> list[Row]:
    """Return the models, those with a key first, each with its window, its price and whether there is a key."""
    names = _models(host)
    keys = {name: _key(name, host) for name in dict.fromkeys(each.partition(":")[0] for each in names)}
    keys[now.partition(":")[0]] = ""  # the provider in use needs no further key
    names = sorted(names, key=lambda each: (each != now, keys[each.partition(":")[0]] == _NO_KEY))
    facts = [(_window(each), _costs(each)) for each in names]
    wide = [max(len(row[column]) for row in facts) for column in (0, 1)]
    return [
        Row(name, name, f"{window:<{wide[0]}}  {costs:<{wide[1]}}  {keys[name.partition(':')[0]]}".strip(), name == now)
        for name, (window, costs) in zip(names, facts, strict=True)
    ]


def usable_models(host: CommandHost, now: str) -> list[Row]:
    """Return the rows of the models whose provider has a key or needs none, the current one first."""
    return [row for row in _model_rows(host, now) if row.now or not row.detail.endswith(_NO_KEY)]


_KEY, _NO_KEY = "key", "no key"


def _key(provider: str, host: CommandHost) -> str:
    """Return whether a key of `provider` is configured, in words; empty for a provider that needs none. No key is read
    and no program is run.
    """
    from runner.providers.usable import key_place, known_accounts
    from runner.secrets.resolve import KEYED

    if key_place(provider, host.settings, host.environ, known_accounts(host.environ)):
        return _KEY
    return _NO_KEY if provider in KEYED else ""


def _window(name: str) -> str:
    from runner.providers.catalog import facts_of

    window = facts_of(name).window
    return f"{window // 1000}k" if window else ""


def _costs(name: str) -> str:
    from runner.providers.catalog import published

    price = published().prices.get(name)
    return f"${price.input:g} in, ${price.output:g} out" if price and price.input and price.output else ""


_command = partial(SlashCommand, group="Settings")

# fmt: off
COMMANDS = (
    _command("mode", "[NAME]", "set how much is allowed without a question", _mode,
             words=lambda host: [mode.value for mode in Mode]),
    _command("model", "[PROVIDER:MODEL]", "change the model, from the next request on", _model, words=_models),
    _command("thinking", "[LEVEL|show|hide]", "set how much the model reasons, or show its reasoning", _thinking,
             words=lambda host: [*(level.value for level in Thinking), *_SHOWN]),
)
# fmt: on
