"""Counts of refused calls by kind, and hints for a model that repeats them."""

from collections import Counter

from policy.model.tier import Tier

EVERY = 3  # refusals of one kind until the model is told, and again after as many more

# What a refusal by itself cannot say: it knows one action, this knows the pattern.
_WAYS = {
    Tier.READ: "What is hidden stays hidden by any other path or tool.",
    Tier.WRITE: "Nothing can be changed now. Read what you need, and describe the change instead of making it.",
    Tier.EXECUTE: "No code of the project can be run now. Read it, reason about it, and name the command that the "
    "user should run.",
    Tier.AGENT_SPAWN: "Do the work yourself.",
    Tier.READ_OUTSIDE: "Nothing outside of the workspace can be read now. Work with what lies inside, or tell the "
    "user which path you need and what for.",
    Tier.NETWORK: "That host cannot be reached now, by no program and no other address. Work with what is installed "
    "and in the workspace, or tell the user which host you need and what for.",
    Tier.WRITE_OUTSIDE: "Nothing outside of the workspace can be changed. Keep every file inside it; $TMPDIR is for "
    "what is temporary.",
    Tier.MCP_EXTERNAL: "Do without that server, or tell the user what you need of it.",
    Tier.DANGEROUS: "Nothing that cannot be taken back is done for you. Name the command and its purpose, and leave it "
    "to the user.",
    Tier.UNKNOWN: "What you write cannot be read with certainty. Send one plain command for each call, with its words "
    "spelled out: no eval, no variable as a command, no nested quotes. Or write a file, and run that.",
    Tier.SECRET: "Secrets are out of reach in every way, for you and for what you run. Plan without them: use a "
    "placeholder, and say where the user puts the real one.",
    Tier.DENIED: "That is forbidden here by a rule that no other spelling gets around. Leave it out, and say so.",
}


class Refusals:
    """The counts of refusals in one conversation."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def denied(self, tier: Tier) -> str:
        """Count a refusal and return the hint to append to it, which is mostly empty."""
        return self._counted(tier.label, f"refusal for `{tier.label}`", _WAYS[tier])

    def malformed(self, tool: str) -> str:
        """Count a call that could not become an action and return the hint to append to the refusal, which is mostly
        empty.
        """
        way = f"Look at what `{tool}` takes, send that and nothing more, or use another tool."
        return self._counted(f"call of {tool}", f"call of `{tool}` that makes no sense", way)

    def _counted(self, kind: str, words: str, way: str) -> str:
        self._counts[kind] += 1
        count = self._counts[kind]
        if count % EVERY:
            return ""
        return f"\nnote: this was the {count}{'rd' if count == 3 else 'th'} {words}. {way}"
