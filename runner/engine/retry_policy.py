"""The retry policy: how often a failed request to a provider is repeated, and the seconds to wait before each try."""

from policy.model.frozen import dataclass
from runner.messages import WAITING_HELPS, Failure


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Limits of repeated requests, and the waiting times before them.

    A wait is a random part of a bound that doubles ("full jitter"), so that clients that failed together do not retry
    together. SOURCE: aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter.

    Attributes:
        first: bound of the first wait in seconds; it doubles with each try.
        most: largest bound in seconds.
        tries: number of repeated requests for each kind of failure, if no part of the answer was shown and no fallback
            model is left to use.
        resumes: number of repeated requests in all other cases: continuations of a partial answer for each reason
            (interrupted, too long for the window, cut at the token limit), requests before the fallback model is used,
            and requests for notes.
        longest: longest wait in seconds that a server may request.
    """

    first: float = 0.5
    most: float = 30.0
    tries: int = 7  # the last one waits up to `most`
    resumes: int = 3
    longest: float = 600.0

    def bound(self, attempt: int) -> float:
        """Return the longest wait in seconds before try `attempt`, counted from 1."""
        return min(self.most, self.first * 2.0 ** min(attempt - 1, 60))

    def wait(
        self, failure: Failure, attempt: int, retry_after: float | None, luck: float, *, left: float | None = None
    ) -> float | None:
        """Return the seconds to wait before try `attempt`, counted from 1; None if waiting does not help, or not soon
        enough.

        `luck` is a random number from 0 up to 1. `left` replaces `longest` as the number of seconds within which an
        answer is useful. The wait is at least `retry_after`, if the server sent one.
        """
        if failure not in WAITING_HELPS:
            return None
        own = luck * self.bound(attempt)
        longest = self.longest if left is None else left
        if retry_after is None or not retry_after > 0:  # `not >` also covers NaN
            return own if own <= longest else None
        return min(retry_after + own, longest) if retry_after <= longest else None
