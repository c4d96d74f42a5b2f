"""The search service that the configuration names, and the faults of its settings."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from policy.model.host_words import endpoint
from policy.model.verdict import Problem
from runner.web.search import VENDORS, SearchService

if TYPE_CHECKING:
    from runner.config import Settings
    from runner.secrets.secret import Secret

# The addresses of services that have one.
_ADDRESSES = {
    "brave": "https://api.search.brave.com/res/v1/web/search",
    "kagi": "https://kagi.com/api/v0/search",
}


def search_service(settings: "Settings", environ: Mapping[str, str], cwd: Path) -> SearchService | Problem | None:
    """Return the configured service; None if none is configured, or the Problem of settings that do not fit together.

    No key is looked up before the first search.
    """
    name = str(settings.value("web", "search") or "")
    if not name:
        return None
    wrong = settings.web_fault()
    if wrong is not None:
        return Problem(f"`{name}` cannot be used for searches", *wrong)
    url, model = str(settings.value("web", "url") or ""), ""
    if name in VENDORS:
        from runner.providers.endpoint import SetupError
        from runner.providers.remotes import PROVIDERS, Remote, reached  # only for searches by a vendor

        remote = PROVIDERS[name]
        assert isinstance(remote, Remote)
        try:
            url = url or reached(remote, settings.base_urls.get(name), environ).url
        except SetupError as error:
            return error.problem
        model = str(settings.value("web", "model") or settings.models.get(name) or remote.model)
    url = url or _ADDRESSES[name]
    host = endpoint(url.replace("{query}", "x"))
    if not host:
        what, why = f"`{name}` cannot be used for searches", "the host of its address is not certain"
        return Problem(what, why, "correct `url` in `[web]`")

    def key() -> "Secret | None":
        """Look the key of the service up. Raise SecretError."""
        if name in ("searxng", "template"):
            return None
        from runner.providers.key_options import key_request
        from runner.secrets.resolve import find

        found = find(key_request(settings, name, environ, cwd))
        return found.secret if found is not None else None

    return SearchService(name, url, host, model, key)
