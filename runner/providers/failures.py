"""Failures of one provider, each as a ProviderError that tells the user what to do and contains no secret, with the
reasons in error answers of servers and their consequences: the class of Failure and the time to wait.

The text of a server is untrusted. The worst effect of a hostile server is a wait, up to the limit of the loop, or a
shortened conversation. SOURCE: platform.claude.com/docs/en/api/errors and /api/rate-limits;
developers.openai.com/api/docs/guides/error-codes; ai.google.dev/gemini-api/docs/troubleshooting; google.rpc.RetryInfo
(googleapis error_details.proto); RFC 9110, 10.2.3.

INVARIANT: the text of a library's exception is never quoted, because it may contain a header. A server's text is quoted
only after three steps in this order: the key is masked, unprintable characters are escaped, the rest is shortened.
Shortening first could leave half a key.
"""

import contextlib
import math
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import assert_never

import httpx

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.messages import WAITING_HELPS, Failure, ProviderError
from runner.providers.endpoint import Endpoint, Timeouts, parse_endpoint
from runner.providers.remotes import PROVIDERS
from runner.secrets.redactor import Redactor
from runner.secrets.resolve import VARIABLES, FoundKey
from runner.secrets.secret import Secret, ending, without_parts
from runner.text.model_text import parse_object
from runner.text.sanitize import one_line

# fmt: off
OUT_OF_CREDIT = ("insufficient_quota", "billing_error", "billing_not_active", "enforced_spend_limit_reached")
WRONG_KEY     = ("authentication_error", "invalid_api_key", "API_KEY_INVALID", "UNAUTHENTICATED")
BUSY          = ("overloaded_error", "server_is_overloaded", "slow_down", "UNAVAILABLE")
TOO_LONG      = ("context_length_exceeded", "exceed_context_size_error", "request_too_large", "string_above_max_length")
# fmt: on

# Messages of vendors without a code for this error: Anthropic, Gemini, OpenRouter, vLLM, llama.cpp, Mistral, xAI.
_TOO_LONG = re.compile(
    r"prompt is too long|context (?:length|window|limit|size)|token count .{0,40}exceeds|maximum prompt length",
    re.IGNORECASE,
)
# The size of the window in messages of the same vendors: the request, and the space for its answer if they count it.
_WINDOW = re.compile(
    r"(?:context length (?:is|of)|context size \(|tokens? allowed \(|tokens >|\d \+ \d{1,9} >)\s?(\d{3,9})\b",
    re.IGNORECASE,
)
# Messages of Anthropic, OpenAI and Gemini about thoughts that were changed or are from another server.
# A missing thought is a different error, which removing thoughts does not fix.
_THOUGHTS = re.compile(r"(?s)(?!.*missing).*(?:signature|thinking`? block|encrypted[_ ]content)", re.IGNORECASE)
# Messages of the vendors, vLLM, llama.cpp and OpenRouter about images that are unreadable, too large, too many, or not
# accepted by the model.
_IMAGES = re.compile(
    r"(?<![a-z])(?:images?|pictures?|vision|multi-?modal|mmproj|media[ _]type|inline_?data)", re.IGNORECASE
)
_SECONDS = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s")
_LONGEST = 10 * 24 * 3600.0  # seconds; a longer wait is ignored as invalid


@dataclass(frozen=True, slots=True)
class ErrorReason:
    """The reason in one error.

    Attributes:
        message: text of the server.
        code: the vendor's word for the error.
        details: further words of the vendor.
        wait: seconds to wait; None if the error names no time.
    """

    message: str = ""
    code: str = ""
    details: tuple[str, ...] = ()
    wait: float | None = None

    def one_of(self, words: tuple[str, ...]) -> bool:
        return self.code in words or any(each in words for each in self.details)

    def status(self, known: Mapping[str, int]) -> int:
        """Return the HTTP status of this error outside a stream, by the vendor's table; 500 for an unknown error."""
        return next((known[word] for word in (self.code, *self.details) if word in known), 500)


def reason_in(body: bytes) -> ErrorReason:
    """Return the reason in an error body of any of the usual shapes."""
    text = body.decode("utf-8", "replace").strip()
    content = parse_object(text.removeprefix("[").removesuffix("]") if text.startswith("[") else text)
    match content:
        case {"error": dict(error)}:
            return reason_of(error)
        case {"error": str(message)} | {"message": str(message)} | {"detail": str(message)}:
            return ErrorReason(message)
        case {} if not content:
            return ErrorReason()
        case None if "<html" in text[:1000].lower() or "<!doctype" in text[:1000].lower():
            return ErrorReason("a web page came back, not an API's answer")
        case _:
            return ErrorReason(text)


def reason_of(error: Mapping[str, object]) -> ErrorReason:
    """Return the reason in an error object of OpenAI, Anthropic or Gemini."""
    words = [error.get("code"), error.get("type"), error.get("status")]
    named = [word for word in words if isinstance(word, str) and word]
    message = error.get("message")
    details, wait = _details(error.get("details"))
    return ErrorReason(
        message if isinstance(message, str) else "",
        named[0] if named else str(error.get("code") or ""),
        (*named[1:], *details),
        wait,
    )


def failure_of(status: int, reason: ErrorReason) -> Failure:
    """Return the class of an error with that HTTP status, or with the status that the error has outside a stream."""
    if reason.one_of(OUT_OF_CREDIT) or reason.one_of(WRONG_KEY) or status in (401, 402, 403):
        return Failure.AUTH
    if status == 413 or reason.one_of(TOO_LONG) or (status in (400, 422, 500) and _TOO_LONG.search(reason.message)):
        return Failure.CONTEXT
    if status in (503, 529) or reason.one_of(BUSY):
        return Failure.OVERLOADED
    if status == 429:
        return Failure.RATE_LIMITED
    if status in (408, 409, 425) or status >= 500:
        return Failure.RETRYABLE
    return Failure.FATAL


def window_of(message: str) -> int | None:
    """Return the context window in tokens from an error about too many tokens; None if the error does not contain
    it.
    """
    match = _WINDOW.search(message)
    return int(match[1]) if match else None


def about_thoughts(reason: ErrorReason) -> bool:
    """Return True if the server refuses the signatures of earlier thinking blocks."""
    return _THOUGHTS.match(f"{reason.code} {reason.message}") is not None


def about_images(status: int, failure: Failure, reason: ErrorReason) -> bool:
    """Return True if a server may have refused a request for an image in it, by its status or by words in its error."""
    if status == 413 or (failure is Failure.FATAL and status in (400, 415, 422)):
        return True
    may = failure in (Failure.FATAL, Failure.CONTEXT, Failure.RETRYABLE)
    return may and _IMAGES.search(f"{reason.code} {reason.message}") is not None


def wait_of(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds to wait that the headers request; None if they request none.

    `now` is in seconds since 1970. `retry-after-ms` is OpenAI's and more exact; `retry-after` contains seconds or a
    date.
    """
    for header, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        text = headers.get(header, "")
        with contextlib.suppress(ValueError):
            return _sane(float(text) / unit)
    try:
        return _sane(max(parsedate_to_datetime(text).timestamp() - now, 0.0)) if text else None
    except (ValueError, OverflowError, OSError):
        return None


def _details(details: object) -> tuple[list[str], float | None]:
    """Return the words in `details`: an object with `error_code` from Anthropic, a list of typed messages from
    Google.
    """
    words: list[str] = []
    wait = None
    for each in details if isinstance(details, list) else [details]:
        match each:
            case {"error_code": str(word)} | {"reason": str(word)}:
                words.append(word)
            case {"@type": str(), "retryDelay": str(delay)}:
                match = _SECONDS.fullmatch(delay)
                wait = _sane(float(match[1])) if match else wait
    return words, wait


def _sane(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) and 0 <= seconds <= _LONGEST else None


QUOTE_LIMIT = 300  # characters of a server's message


@dataclass(frozen=True, slots=True)
class Failures:
    """The failures of one provider at one endpoint, as errors for the user."""

    name: str
    endpoint: Endpoint
    secret: Secret | None
    timeouts: Timeouts
    found: FoundKey | None = None  # `secret` with its source, if that is known

    @property
    def who(self) -> str:
        """Return the name of the provider, or for another server than the vendor's: its host, and the provider as
        which it was called.
        """
        remote = PROVIDERS.get(self.name)
        if remote is not None and not self.endpoint.loopback and self.endpoint == parse_endpoint(remote.url):
            return f"`{self.name}`"
        return f"`{self.endpoint.url.partition('//')[2].partition('/')[0]}` (as {self.name})"

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
            return self._refused_key(answered, reason, status)
        what, fix = self._words(status, reason, failure, model)
        error = _error(what, why, fix, failure, status)
        error.retry_after = after if failure in WAITING_HELPS else None
        error.server_message = quoted
        error.window = window_of(reason.message) if failure is Failure.CONTEXT else None
        error.thoughts = failure is Failure.FATAL and status == 400 and about_thoughts(reason)
        error.images = about_images(status, failure, reason)
        return error

    def _refused_key(self, answered: str, reason: ErrorReason, status: int) -> ProviderError:
        """Return the error for a key that is missing or was refused: its source, its last characters, and the words of
        the server without the parts of the key that servers quote.
        """
        if self.secret is None:
            variable = VARIABLES.get(self.name)
            fix = f"set `{variable}`" if variable else "give it a key"
            said = f": {quoted}" if (quoted := self._quote(reason.message)) else ""
            why = f"{answered}{said}; no key was sent to `{self.endpoint.host}`"
            return _error(f"{self.who} wants an API key", why, fix, Failure.AUTH, status)
        quoted = self._quote(without_parts(reason.message, self.secret))
        why = f"{self.who} answered {status}" if answered.startswith("it ") else f"{self.who}: {answered}"
        why += f": {quoted}" if quoted else ""
        source = f" from {self.found.source.removeprefix('environment variable ')}" if self.found is not None else ""
        end = f" (ends in `{ending(self.secret)}`)" if ending(self.secret) else ""
        fix = self.found.renew if self.found is not None else ""
        fix = fix or (f"set `{VARIABLES[self.name]}` to a valid key" if self.name in VARIABLES else "use a valid key")
        return _error(f"the key{source}{end} was refused", why, fix, Failure.AUTH, status)

    def _words(self, status: int, reason: ErrorReason, failure: Failure, model: str) -> tuple[str, str]:
        """Return what happened and what the user can do."""
        who, later = self.who, "wait, then try again"
        match failure:
            case Failure.AUTH if reason.one_of(OUT_OF_CREDIT) or status == 402:
                return f"{who} requires payment", "add credit to the account, or use another key"
            case Failure.AUTH:
                return f"{who} refused access", f"check that the key may use `{model}`"
            case Failure.CONTEXT:
                what = f"the conversation is too large for {who}"
                return what, "start a new session, or have the agent read less at once"
            case Failure.RATE_LIMITED:
                return f"{who} limits the number of requests or tokens", later
            case Failure.OVERLOADED:
                return f"{who} is overloaded", later
            case Failure.RETRYABLE:
                return f"{who} has an internal error", later
            case Failure.FATAL if status == 404:
                fix = f"check the model's name `{model}` and the base URL `{self.endpoint.url}`"
                return f"{who} does not know the model or the address", fix
            case Failure.FATAL:
                return f"{who} did not accept the request", f"check the model `{model}` and the settings of {who}"
            case never:
                assert_never(never)

    def redirect(self, status: int) -> ProviderError:
        why = f"it answered {status} with another address, and a key is never sent to another address"
        return _error(f"{self.who} redirects", why, f"correct the base URL `{self.endpoint.url}`", status=status)

    def not_a_stream(self, kind: str, body: bytes, model: str) -> ProviderError:
        """Return the error for an answer of status 200 that is not an event stream: a proxy's page, a login form, or a
        server that cannot stream.
        """
        content = parse_object(body)
        if content and content.get("error"):
            return self.status(500, reason_in(body), model, late=True)
        why = f"it answered with `{self._quote(kind)}` instead of an event stream"
        fix = f"check the base URL `{self.endpoint.url}`, and look for proxies and login pages in between"
        return _error(f"{self.who} did not stream an answer", why, fix)

    def truncated(self, where: str) -> ProviderError:
        why = f"the stream ended {where}"
        return _error(f"the answer of {self.who} is incomplete", why, "try again", Failure.RETRYABLE)

    def malformed(self, why: str) -> ProviderError:
        remote = PROVIDERS.get(self.name)
        protocol = "openai" if remote is not None and remote.openai else self.name
        fix = f"check that `{self.endpoint.url}` supports the `{protocol}` protocol"
        return _error(f"the answer of {self.who} cannot be read", why, fix)

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
        return _error(f"{self.who} took too long", why, "try again, or request a shorter answer", Failure.RETRYABLE)

    def settings(self) -> ProviderError:
        """Return the error for environment settings from which no HTTP client can be built."""
        why = "a proxy or certificate setting of this environment is wrong or not supported"
        fix = "check `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`, `SSL_CERT_FILE` and `SSL_CERT_DIR` (SOCKS does not work)"
        return _error(f"{self.who} cannot be called", why, fix)

    def transport(self, error: Exception) -> ProviderError:
        """Return the error for a network failure before or inside an answer."""
        place, again = f"`{self.endpoint.host}`", "check the network, then try again"
        match error:
            case httpx.ConnectTimeout() | httpx.PoolTimeout():
                why = f"no connection to {place} within {self.timeouts.connect:g} seconds"
                return self._unreached(why, again, Failure.RETRYABLE)
            case httpx.ReadTimeout():
                why = f"nothing arrived for {self.timeouts.read:g} seconds"
                return _error(f"{self.who} stopped sending", why, "try again", Failure.RETRYABLE)
            case httpx.ProxyError():
                why = "the proxy that the environment names refused the connection"
                return self._unreached(why, "check `HTTPS_PROXY` and `NO_PROXY`")
            case httpx.ConnectError():
                causes = tuple(_causes(error))
            case httpx.RemoteProtocolError() | httpx.NetworkError() | httpx.TimeoutException():
                why = f"{place} ended the connection before the answer was complete"
                return _error(f"the connection to {self.who} broke", why, "try again", Failure.RETRYABLE)
            case _:
                return self._unreached(f"the connection to {place} failed", f"check the base URL `{self.endpoint.url}`")
        if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
            fix = "check the base URL and the clock; name a company's own authority with `SSL_CERT_FILE`"
            return self._unreached(f"this machine does not trust the certificate of {place}", fix)
        if any(isinstance(cause, ssl.SSLError) for cause in causes):
            return self._unreached(f"no encrypted connection with {place}", "check the base URL's scheme and port")
        if any(isinstance(cause, socket.gaierror) for cause in causes):
            why = f"the name {place} cannot be resolved"
            unresolved = self._unreached(why, "check the name and the network", Failure.RETRYABLE)
            unresolved.repeats = 1
            return unresolved
        if self.endpoint.loopback:
            why = f"nothing answers at `{self.endpoint.url}`"
            return self._unreached(why, "start the server, or correct the base URL")
        return self._unreached(f"{place} accepted no connection", again, Failure.RETRYABLE)

    def _unreached(self, why: str, fix: str, failure: Failure = Failure.FATAL) -> ProviderError:
        return _error(f"{self.who} cannot be reached", why, fix, failure)

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
