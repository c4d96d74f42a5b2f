"""The registry of the providers: their addresses, default models, and the variables that replace an address."""

from collections.abc import Mapping

from policy.model.frozen import dataclass
from runner.providers.endpoint import Endpoint, parse_endpoint

GOOGLE = "https://generativelanguage.googleapis.com"


@dataclass(frozen=True, slots=True)
class Remote:
    """A provider behind a URL.

    Attributes:
        url: default base URL.
        model: default model; empty if the provider has none, as a server that the user runs.
        variable: environment variable with another base URL, as the vendor's own tools read it, or empty.
        openai: True for a server of others with the Chat Completions API of OpenAI.
    """

    url: str
    model: str
    variable: str
    openai: bool = False


# THREAT T21: each provider has its own key (`VARIABLES` of runner/secrets/resolve.py), so the key of `openai` is never
# sent to another server that has the same API.
# fmt: off
PROVIDERS: dict[str, Remote | None] = {
    "anthropic":  Remote("https://api.anthropic.com", "claude-sonnet-5-5", "ANTHROPIC_BASE_URL"),
    "openai":     Remote("https://api.openai.com/v1", "gpt-6.2-sol",       "OPENAI_BASE_URL"),
    "gemini":     Remote(GOOGLE,                      "gemini-4-argon",    "GOOGLE_GEMINI_BASE_URL"),
    "openrouter": Remote("https://openrouter.ai/api/v1", "", "", openai=True),
    "ollama":     Remote("http://localhost:11434/v1",    "", "", openai=True),
    "llamacpp":   Remote("http://localhost:8080/v1",     "", "", openai=True),
    "lmstudio":   Remote("http://localhost:1234/v1",     "", "", openai=True),
    "vllm":       Remote("http://localhost:8000/v1",     "", "", openai=True),
    "scripted":   None,  # replays a file, without a server
}
# fmt: on


def reached(remote: Remote, base_url: str | None, environ: Mapping[str, str]) -> Endpoint:
    """Return the address: `base_url`, else the value of the vendor's variable, else the default. Raises SetupError."""
    return parse_endpoint(base_url or environ.get(remote.variable, "").strip() or remote.url)
