"""Access to the OS keyring: Secret Service, KWallet, Keychain, or the Windows vault. Every call has a time limit.

Only these back ends are used. Another configured back end may store keys in a plain text file (the `keyrings.alt`
package), discard them (`null`), or do something unknown.
"""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from policy.model.deadline import deadline
from runner.secrets.secret import Secret, usable

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

SERVICE = "ringfence"
PATIENCE = deadline(5.0)  # seconds for one call; a locked keyring may wait for an invisible dialog
DEFAULT = "default"  # the account that has no name

# fmt: off
_KNOWN = {
    "keyring.backends.SecretService": "Secret Service",
    "keyring.backends.libsecret":     "Secret Service",
    "keyring.backends.kwallet":       "KWallet",
    "keyring.backends.macOS":         "Keychain",
    "keyring.backends.Windows":       "Windows Credential Locker",
}
# fmt: on
_MOST_COPIES = 16  # copies of one item; a store can contain several with the same attributes
_PAUSES = (0.1, 0.4)  # seconds before the second and the third attempt to reach a keyring
_NONE = "this machine has no usable keyring"

_T = TypeVar("_T")


class KeyringFailed(Exception):
    """An error of the keyring. `why` and `fix` contain no message of a back end. `missing` is True if the machine has
    no keyring that may be used.
    """

    def __init__(self, why: str, fix: str = "", *, missing: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.fix = fix
        self.missing = missing


def item(provider: str, account: str) -> str:
    """Return the user name of an account's key in the service `ringfence`."""
    return provider if account == DEFAULT else f"{provider}:{account}"


class KeyringStore:
    """The keys of accounts. The keyring is opened on first use; a keyring that did not answer once is not asked
    again.
    """

    def __init__(self, patience: float | None = None) -> None:
        self._patience = PATIENCE if patience is None else patience
        self._opened: KeyringBackend | None = None
        self._hung = False

    def read(self, provider: str, account: str) -> Secret | None:
        """Return the key, or None if there is none. Raise KeyringFailed, also for an item that cannot be a key."""
        name = item(provider, account)

        def ask() -> Secret | bool:
            value = _repeated(self._backend().get_password, SERVICE, name)
            if not value or not isinstance(value, str):
                return value in (None, "")
            return usable(value) or False

        key = self._call_in_time(ask)
        if key is False:
            why = "the stored key has blanks or other characters that a key never has"
            raise KeyringFailed(why, "store the key again")
        return key if isinstance(key, Secret) else None

    def holds(self, provider: str, account: str) -> bool:
        """Return True if an item exists for the account, whether or not it is a valid key. Raise KeyringFailed."""
        return self._call_in_time(lambda: _holds(self._backend(), item(provider, account)))

    def write(self, provider: str, account: str, secret: Secret) -> None:
        """Store the key in place of an earlier one. Raise KeyringFailed, also if the keyring returns another value."""
        name = item(provider, account)

        def put() -> None:
            _repeated(self._backend().set_password, SERVICE, name, secret.reveal())

        before = self.holds(provider, account)
        self._call_in_time(put)
        if before:  # an item of another program with this name is not replaced by `set_password`
            self.remove(provider, account)  # after the first `put`, which proved that a key can be stored
            self._call_in_time(put)
        if not self._same(provider, account, secret):
            raise KeyringFailed("it stored the key, but returns another value")

    def _same(self, provider: str, account: str, secret: Secret) -> bool:
        name = item(provider, account)

        def ask() -> bool:
            try:
                return usable(_repeated(self._backend().get_password, SERVICE, name) or "") == secret
            except UnicodeDecodeError:
                return False

        return self._call_in_time(ask)

    def remove(self, provider: str, account: str) -> bool:
        """Delete all items of the account, and return True if there was one. Raise KeyringFailed."""
        name = item(provider, account)

        def forget() -> bool:
            backend = self._backend()
            for copies in range(_MOST_COPIES):
                if not _holds(backend, name):
                    return copies > 0
                _repeated(backend.delete_password, SERVICE, name)
            raise KeyringFailed("the key is still there after it was removed")

        return self._call_in_time(forget)

    def name(self) -> str:
        """Return the name of the keyring. Raise KeyringFailed if there is none that may be used."""
        return self._call_in_time(lambda: _KNOWN[type(self._backend()).__module__])

    def _backend(self) -> "KeyringBackend":
        """Return the back end. Call only inside `_call_in_time`, because the search for back ends may hang."""
        if self._opened is None:
            self._opened = _open()
        return self._opened

    def _call_in_time(self, work: Callable[[], _T]) -> _T:
        if self._hung:
            raise KeyringFailed(f"it did not answer within {self._patience:g} seconds earlier")
        done: list[_T] = []
        failed: list[KeyringFailed] = []

        def call() -> None:
            try:
                done.append(work())
            # Seam: back ends are plug-ins that raise any exception, with messages that may quote any text.
            except Exception as error:
                failed.append(_trouble(error))

        # Only a call in another thread can be left while it hangs in a system library. A daemon thread delays no exit.
        thread = threading.Thread(target=call, name="keyring", daemon=True)
        thread.start()
        thread.join(self._patience)
        if thread.is_alive():
            self._hung = True
            why = f"it did not answer within {self._patience:g} seconds"
            raise KeyringFailed(why, "unlock it if it shows a question, and try again")
        if failed:
            said = failed[0]  # a new exception is raised, because the frames of this one contain the key
            raise KeyringFailed(said.why, said.fix, missing=said.missing)
        return done[0]


def _open() -> "KeyringBackend":
    import keyring.core  # slow to import, and its back ends load plug-ins
    from keyring import backend

    keyring.core.init_backend(limit=_is_known)  # a name in the environment or in its settings takes precedence
    chosen = keyring.core.get_keyring()
    if _is_known(chosen):
        return chosen
    if type(chosen).__module__ == "keyring.backends.fail":
        refused = sorted({_named(each) for each in backend.get_all_keyring() if not _is_known(each)} - {""})
        why = _NONE + (f"; {', '.join(refused)}" if refused else "")
        raise KeyringFailed(why, missing=True)
    why = _named(chosen) or "the settings of `keyring` name a back end that stores nothing"
    raise KeyringFailed(why, "correct `PYTHON_KEYRING_BACKEND` or `keyringrc.cfg`", missing=True)


def _repeated(call: Callable[..., _T], *words: str) -> _T:
    """Return the result of a call of a back end. Repeat the call if the service does not answer: a Secret Service that
    starts, or that ends a session, can refuse one connection and accept the next.
    """
    for pause in _PAUSES:
        try:
            return call(*words)
        # Seam: only the libraries of Linux have the error that is looked for.
        except Exception as error:
            if not isinstance(error.__cause__ or error, _secret_service_errors()[1]):
                raise
            time.sleep(pause)
    return call(*words)


def _holds(backend: "KeyringBackend", name: str) -> bool:
    try:
        return _repeated(backend.get_password, SERVICE, name) is not None
    except UnicodeDecodeError:
        return True  # the item is not text, so it is no key, but the name is taken


def _is_known(chosen: object) -> bool:
    return type(chosen).__module__ in _KNOWN


def _named(chosen: object) -> str:
    """Return the reason why a back end is not used, or an empty string for the library's own back ends that store no
    keys.
    """
    module, name = type(chosen).__module__, type(chosen).__qualname__
    if module in ("keyring.backends.null", "keyring.backends.fail", "keyring.backends.chainer"):
        return ""
    if "plaintext" in name.lower():
        return f"`{module}.{name}` keeps keys as plain text, and is refused"
    return f"`{module}.{name}` is not a keyring of the system, and is refused"


def _trouble(error: Exception) -> KeyringFailed:
    if isinstance(error, KeyringFailed):
        return error
    match error:
        case UnicodeDecodeError():
            return KeyringFailed("the stored key is not text", "store the key again")
        case ImportError() | AttributeError():
            return KeyringFailed("the back end of its settings cannot be loaded", "correct the settings of `keyring`")
    from keyring import errors

    locked, absent, refused = _secret_service_errors()
    if isinstance(error, errors.NoKeyringError):
        return KeyringFailed(_NONE, missing=True)
    if isinstance(error, (errors.KeyringLocked, *locked)):
        return KeyringFailed("it is locked", "unlock it")
    if isinstance(error, (errors.InitError, *absent)):
        return KeyringFailed(f"it could not be opened ({type(error.__cause__ or error).__name__})")
    if isinstance(error, (errors.PasswordSetError, errors.PasswordDeleteError, *refused)):
        return KeyringFailed("it refused the request")
    return KeyringFailed("it failed")


_Errors = tuple[type[Exception], ...]


def _secret_service_errors() -> tuple[_Errors, _Errors, _Errors]:
    """Return the errors of the Secret Service libraries for a locked, an absent and a refusing service. Those libraries
    are installed on Linux only; without them there are no such errors.
    """
    try:
        from jeepney import DBusErrorResponse  # type: ignore[import-untyped]  # the library has no types
        from secretstorage import exceptions
    except ImportError:
        return (), (), ()
    locked = (exceptions.LockedException, exceptions.PromptDismissedException)
    return locked, (exceptions.SecretServiceNotAvailableException,), (DBusErrorResponse,)
