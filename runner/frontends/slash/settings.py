"""The commands that change live settings: /mode, /model, /thinking."""

from collections.abc import Sequence

from policy.model.tier import Mode
from runner.engine.context.context import MEANING
from runner.frontends.slash.command import CommandHost, Mistake, Row, SlashCommand, say
from runner.messages import Thinking

_LEVELS = {
    Thinking.OFF: "the model's own default",
    Thinking.LOW: "a little",
    Thinking.MEDIUM: "for most work",
    Thinking.HIGH: "for hard work; slower, and costs more",
    Thinking.MAX: "as much as the model can",
}


async def _mode(words: str, host: CommandHost) -> None:
    """Change the mode. Without a name, let the user pick a mode."""
    now = host.conversation.ctx.live.mode
    rows = [Row(mode.value, mode.value, f"{MEANING[mode]}{'  (now)' if mode is now else ''}") for mode in Mode]
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


async def _thinking(words: str, host: CommandHost) -> None:
    now = host.conversation.ctx.live.thinking
    rows = [Row(each.value, each.value, f"{text}{'  (now)' if each is now else ''}") for each, text in _LEVELS.items()]
    wanted = words or await host.pick("thinking", rows)
    if wanted is None:
        say(host, f"the thinking level is {now.value}")
        return
    if wanted not in [each.value for each in Thinking]:
        raise Mistake(f"there is no level `{wanted}`; the levels are {', '.join(each.value for each in Thinking)}")
    host.conversation.set_thinking(Thinking(wanted))


async def _model(words: str, host: CommandHost) -> None:
    ctx = host.conversation.ctx
    now = ctx.live.named
    wanted = words or await host.pick("model", [Row(each, each, _about(each, now)) for each in _models(host)])
    if wanted is None:
        say(host, f"the model is {now}")
        return
    if wanted == now:
        say(host, f"the model is already {now}")
        return
    host.conversation.set_model(wanted)


def _models(host: CommandHost) -> Sequence[str]:
    """Return the models: the current one, those of the settings, and the known ones, those of the current provider
    first, because its key is known.
    """
    from runner.providers.catalog import published

    ctx = host.conversation.ctx
    now = ctx.live.named
    mine = [f"{name}:{model}" for name, model in host.settings.models.items()]
    known = sorted(published().prices, key=lambda name: not name.startswith(f"{ctx.live.provider.name}:"))
    return list(dict.fromkeys((now, *mine, *known)))


def _about(name: str, now: str) -> str:
    from runner.providers.catalog import facts_of, published

    price = published().prices.get(name)
    costs = f"{price.input:g} in, {price.output:g} out" if price and price.input and price.output else ""
    window = facts_of(name).window
    holds = f"{window // 1000}k window" if window else ""
    return "  ".join(part for part in (holds, costs, "(now)" if name == now else "") if part)


# fmt: off
COMMANDS = (
    SlashCommand("mode", "[NAME]", "set how much is allowed without a question", _mode,
                 words=lambda host: [mode.value for mode in Mode]),
    SlashCommand("model", "[PROVIDER:MODEL]", "change the model, from the next request on", _model, words=_models),
    SlashCommand("thinking", "[LEVEL]", "set how much the model reasons before it answers", _thinking,
                 words=lambda host: [level.value for level in Thinking]),
)
# fmt: on
