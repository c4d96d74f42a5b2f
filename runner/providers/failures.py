"""Failures of one provider, each as a ProviderError that tells the user what to do and contains no secret.

INVARIANT: the text of a library's exception is never quoted, because it may contain a header. A server's text is quoted
only after three steps in this order: the key is masked, unprintable characters are escaped, the rest is shortened.
Shortening first could leave half a key.
"""

import socket
import ssl
from collections.abc import Iterator, Mapping
from typing import assert_never

import httpx

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.messages import WAITING_HELPS, Failure, ProviderError
from runner.providers.endpoint import Endpoint, Timeouts
from runner.providers.error_reason import (
    OUT_OF_CREDIT,
    WRONG_KEY,
    ErrorReason,
    about_images,
    about_thoughts,
    failure_of,
    reason_in,
    window_of,
)
from runner.secrets.redactor import Redactor
from runner.secrets.resolve import VARIABLES
from runner.secrets.secret import Secret, store_command
from runner.text.model_text import parse_object
from runner.text.sanitize import one_line

QUOTE_LIMIT = 300  # characters of a server's message


@dataclass(frozen=True, slots=True)
class Failures:
    """Explains the failures of one provider at one endpoint."""

    name: str
    endpoint: Endpoint
    secret: Secret | None
    timeouts: Timeouts

    def status(
        self, status: int, reason: ErrorReason, model: str, *, late: bool = False, wait: float | None = None
    ) -> ProviderError:
        """Return the error for a status other than 200 or, with `late`, for an error inside an answer that began with
        200.

        `wait` is the number of seconds that the headers request.
        """
        quoted = self._quote(reason.message)
        answered = "its answer was an error" if late else f"it answered {status}"
        why = answered + (f": {quoted}" if quoted else "")
        failure = failure_of(status, reason)
        after = reason.wait if wait is None else wait
        if status == 401 or reason.one_of(WRONG_KEY):
            return self._no_entry(status, answered)
        what, fix = self._words(status, reason, failure, model)
        error = _error(what, why, fix, failure, status)
        error.retry_after = after if failure in WAITING_HELPS else None
        error.server_message = quoted
        error.window = window_of(reason.message) if failure is Failure.CONTEXT else None
        error.thoughts = failure is Failure.FATAL and status == 400 and about_thoughts(reason)
        error.images = about_images(status, failure, reason)
        return error

    def _words(self, status: int, reason: ErrorReason, failure: Failure, model: str) -> tuple[str, str]:
        """Return what happened and what the user can do."""
        who, later = f"`{self.name}`", "wait a little, then try again"
        match failure:
            case Failure.AUTH if reason.one_of(OUT_OF_CREDIT) or status == 402:
                return f"{who} wants payment first", "add credit there, or use another key"
            case Failure.AUTH:
                return f"{who} refused access", f"check that the key may use `{model}`; {self._key_ways()}"
            case Failure.CONTEXT:
                what = f"the conversation is too large for {who}"
                return what, "start a new session, or have the agent read less at once"
            case Failure.RATE_LIMITED:
                return f"{who} limits how much is asked", later
            case Failure.OVERLOADED:
                return f"{who} is overloaded", later
            case Failure.RETRYABLE:
                return f"{who} is failing", later
            case Failure.FATAL if status == 404:
                fix = f"check the model's name `{model}` and the base URL `{self.endpoint.url}`"
                return f"{who} does not know what was asked for", fix
            case Failure.FATAL:
                return f"{who} did not accept the request", f"check the model `{model}` and the settings of {who}"
            case never:
                assert_never(never)

    def redirect(self, status: int) -> ProviderError:
        why = f"it answered {status} with another address, and a key is never carried to another address"
        return _error(f"`{self.name}` redirects", why, f"correct the base URL `{self.endpoint.url}`", status=status)

    def not_a_stream(self, kind: str, body: bytes, model: str) -> ProviderError:
        """Return the error for an answer of status 200 that is not an event stream: a proxy's page, a login form, or a
        server that cannot stream.
        """
        content = parse_object(body)
        if content and content.get("error"):
            return self.status(500, reason_in(body), model, late=True)
        why = f"it answered with `{self._quote(kind)}` instead of an event stream"
        fix = f"check the base URL `{self.endpoint.url}`, and proxies and login pages on the way"
        return _error(f"`{self.name}` did not stream an answer", why, fix)

    def truncated(self, where: str) -> ProviderError:
        why = f"the stream ended {where}"
        return _error(f"the answer of `{self.name}` is incomplete", why, "try again", Failure.RETRYABLE)

    def malformed(self, why: str) -> ProviderError:
        fix = f"check that `{self.endpoint.url}` really speaks the `{self.name}` protocol"
        return _error(f"the answer of `{self.name}` cannot be read", why, fix)

    def string(self, holder: Mapping[str, object], key: str) -> str:
        """Return a text of the answer; empty if it is absent. Raises ProviderError for a value that is not a text."""
        match holder.get(key):
            case None:
                return ""
            case str(text):
                return text
            case _:
                raise self.malformed(f"`{key}` in it is not text")

    def overtime(self) -> ProviderError:
        why = f"the answer was not complete after {self.timeouts.total:g} seconds"
        return _error(f"`{self.name}` took too long", why, "try again, or ask for less at once", Failure.RETRYABLE)

    def settings(self) -> ProviderError:
        """Return the error for environment settings from which no HTTP client can be built."""
        why = "a proxy or certificate setting of this environment is wrong or not supported"
        fix = "check `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`, `SSL_CERT_FILE` and `SSL_CERT_DIR` (SOCKS does not work)"
        return _error(f"`{self.name}` cannot be called", why, fix)

    def transport(self, error: Exception) -> ProviderError:
        """Return the error for a network failure before or inside an answer."""
        place, again = f"`{self.endpoint.host}`", "check the network, then try again"
        match error:
            case httpx.ConnectTimeout() | httpx.PoolTimeout():
                why = f"no connection to {place} within {self.timeouts.connect:g} seconds"
                return self._unreached(why, again, Failure.RETRYABLE)
            case httpx.ReadTimeout():
                why = f"nothing arrived for {self.timeouts.read:g} seconds"
                return _error(f"`{self.name}` went silent", why, "try again", Failure.RETRYABLE)
            case httpx.ProxyError():
                why = "the proxy that the environment names did not open the way"
                return self._unreached(why, "check `HTTPS_PROXY` and `NO_PROXY`")
            case httpx.ConnectError():
                causes = tuple(_causes(error))
            case httpx.RemoteProtocolError() | httpx.NetworkError() | httpx.TimeoutException():
                why = f"{place} ended it before the answer was complete"
                return _error(f"the connection to `{self.name}` broke", why, "try again", Failure.RETRYABLE)
            case _:
                return self._unreached(f"{place} cannot be spoken to", f"check the base URL `{self.endpoint.url}`")
        if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
            fix = "check the base URL and the clock; name a company's own authority with `SSL_CERT_FILE`"
            return self._unreached(f"the certificate of {place} is not one that this machine trusts", fix)
        if any(isinstance(cause, ssl.SSLError) for cause in causes):
            return self._unreached(f"no encrypted connection with {place}", "check the base URL's scheme and port")
        if any(isinstance(cause, socket.gaierror) for cause in causes):
            why = f"the name {place} cannot be resolved"
            return self._unreached(why, "check the name and the network", Failure.RETRYABLE)
        if self.endpoint.loopback:
            why = f"nothing answers at `{self.endpoint.url}`"
            return self._unreached(why, "start the server, or correct the base URL")
        return self._unreached(f"{place} took no connection", again, Failure.RETRYABLE)

    def _unreached(self, why: str, fix: str, failure: Failure = Failure.FATAL) -> ProviderError:
        return _error(f"`{self.name}` cannot be reached", why, fix, failure)

    def _no_entry(self, status: int, answered: str) -> ProviderError:
        # The words of a server about a wrong key may repeat parts of it, so none of them are quoted.
        what, why = "wants an API key", f"{answered}, and no key was sent to `{self.endpoint.host}`"
        if self.secret is not None:
            what, why = "did not accept the API key", f"{answered} to the key that was sent to `{self.endpoint.host}`"
        return _error(f"`{self.name}` {what}", why, self._key_ways(), Failure.AUTH, status)

    def _key_ways(self) -> str:
        variable = VARIABLES.get(self.name)
        by_variable = f"set `{variable}`, or " if variable else ""
        return f"{by_variable}run `{store_command(self.name)}`"

    def _quote(self, text: str) -> str:
        masked = Redactor((self.secret,) if self.secret else (), live=True).text(text)
        return one_line(" ".join(masked.split()), QUOTE_LIMIT).rstrip(".")


def _error(what: str, why: str, fix: str, failure: Failure = Failure.FATAL, status: int | None = None) -> ProviderError:
    return ProviderError(Problem(what, why, fix), status=status, failure=failure)


def _causes(error: BaseException | None, depth: int = 8) -> Iterator[BaseException]:
    while error is not None and depth:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for inner in error.exceptions:
                yield from _causes(inner, depth - 1)
        error, depth = error.__cause__ or error.__context__, depth - 1
