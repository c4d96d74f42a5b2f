"""The bundles of the user: which content is pinned, and the private copies of exactly that content.

The pins are a file of the state folder, which exists in no sandbox. The copies are `bundles/NAME/SHA256` in the data
folder, so that a sandbox can be given one of them.

THREAT T218: a copy that differs from its pin is not used.
"""

import contextlib
import os
import shutil
import stat
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.bundles.bundle import Bundle, bundle_of, manifest_of
from runner.bundles.manifest import LONGEST_NAME, NAME, BundleError, BundleManifest
from runner.config.inventory import EntryKind, Inventory, InventoryEntry, hash_of
from runner.config.trust.discover import look_whole
from runner.state import paths
from runner.state.json_file import StateFile
from runner.text.phrases import os_reason

FILE = "bundles.json"  # in the state folder
FOLDER = "bundles"  # in the data folder
_MOST = 50  # bundles
_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Pin:
    """The content of one bundle that the user was shown and accepted.

    Attributes:
        name: the name of the bundle.
        version: its version; may be empty.
        source: the absolute path of a folder, or the address of a repository.
        commit: the full id of the commit; empty for a folder.
        folder: the folder in the repository; empty for all of it.
        time: time of the acceptance in UTC, for display only.
        entries: every file with its hash.
    """

    name: str
    version: str
    source: str
    commit: str
    folder: str
    time: str
    entries: tuple[InventoryEntry, ...]

    @property
    def sha256(self) -> str:
        """Return the hash of all files."""
        return hash_of(self.entries)


@dataclass(frozen=True, slots=True)
class InstalledBundles:
    """The bundles that can be used, and a notice about each that cannot.

    Attributes:
        bundles: the bundles in the order of their names.
        pins: the pin of each bundle, also of those that cannot be used.
        notices: one sentence for each bundle that is not used.
    """

    bundles: tuple[Bundle, ...] = ()
    pins: tuple[Pin, ...] = ()
    notices: tuple[str, ...] = ()

    @property
    def folders(self) -> tuple[str, ...]:
        """Return the copies that commands of a session may read: those of bundles with skills or commands."""
        return tuple(each.root for each in self.bundles if each.skills or each.commands or each.agents)


def any_bundles(environ: Mapping[str, str]) -> bool:
    """Return True if the user has a list of bundles. Raise PlaceError."""
    return os.path.lexists(paths.state_dir(environ) / FILE)


def installed(environ: Mapping[str, str]) -> InstalledBundles:
    """Return the bundles whose copies are exactly what is pinned. Raise PlaceError, StateError.

    Every file of every copy is read and hashed.
    """
    store = BundleStore(environ)
    pins, notices = store.pins()
    if not pins:
        return InstalledBundles(notices=notices)
    found, told = [], list(notices)
    for pin in pins.values():
        try:
            found.append(store.bundle(pin))
        except BundleError as error:
            told.append(f"the bundle `{pin.name}` is not used: {error.problem.why} ({error.problem.fix})")
    return InstalledBundles(tuple(found), tuple(pins.values()), tuple(told))


def usable_bundles(environ: Mapping[str, str]) -> tuple[Bundle, ...]:
    """Return the bundles whose copies are exactly what is pinned. Raise PlaceError, StateError."""
    return installed(environ).bundles if any_bundles(environ) else ()


class BundleStore:
    """The pins and the copies of this user. Methods raise PlaceError, StateError and BundleError."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        state = paths.state_dir(environ)
        purpose = "the list of bundles"
        self._file: StateFile[dict[str, Pin]] = StateFile(state / FILE, purpose, 1, dict, _parsed, _dump)

    def pins(self) -> tuple[Mapping[str, Pin], tuple[str, ...]]:
        """Return the pins by the names of the bundles, and notices about the file."""
        held = self._file.read()
        return held.value, held.notices

    def place(self, name: str, sha256: str) -> str:
        """Return the path of the copy of one content, whether or not it exists. No link leads to it."""
        return os.path.join(os.path.realpath(paths.data_place(self._environ)), FOLDER, name, sha256)

    def bundle(self, pin: Pin) -> Bundle:
        """Return the bundle of a pin. Raise BundleError if its copy differs from the pin."""
        content = self.content(pin)
        return bundle_of(content, manifest_of_pin(content, pin), self.place(pin.name, pin.sha256))

    def content(self, pin: Pin) -> Inventory:
        """Return the files of the copy. Raise BundleError if they differ from the pin.

        THREAT T218: the bytes that are used are those that were hashed. A folder that other users can write to is not
        used, since they could change it after this check.
        """
        place = self.place(pin.name, pin.sha256)
        fix = f"run `agent bundle update {pin.name}`, or remove the bundle"
        try:
            if not _only_ours(place):
                raise _broken("other users can write to its copy", fix)
            found = look_whole(place)
        except OSError as error:
            raise _broken(f"its copy cannot be read: {os_reason(error)}", fix) from None
        if found.entries != pin.entries:
            raise _broken("its copy is not what you accepted", fix)
        return found

    def keep(self, pin: Pin, content: Inventory, expected: Pin | None) -> Bundle:
        """Store a copy of `content` and its pin, and return the bundle.

        `expected` is the pin that the user saw, or None: another one in the meantime is a BundleError.
        """
        place = Path(self.place(pin.name, pin.sha256))
        bundle = bundle_of(content, manifest_of_pin(content, pin), str(place))
        _write_copy(paths.data_dir(self._environ), place, content)

        def edit(before: dict[str, Pin]) -> tuple[dict[str, Pin], None]:
            if before.get(pin.name) != expected:
                raise _broken(f"the bundle `{pin.name}` has changed meanwhile", "run the command again")
            if len(before) >= _MOST and pin.name not in before:
                raise _broken(f"there are {_MOST} bundles already", "remove one: `agent bundle remove NAME`")
            return dict(sorted({**before, pin.name: pin}.items())), None

        self._file.change(edit)
        self.content(pin)  # what lies there now is what was accepted
        if expected is not None and expected.sha256 != pin.sha256:
            _erase(self.place(pin.name, expected.sha256))
        return bundle

    def remove(self, name: str) -> Pin | None:
        """Remove the pin and the copies of a bundle. Return the pin, or None if there was none."""

        def edit(before: dict[str, Pin]) -> tuple[dict[str, Pin], Pin | None]:
            gone = before.get(name)
            return ({key: pin for key, pin in before.items() if key != name} if gone else before), gone

        gone, _ = self._file.change(edit)
        if gone is not None:
            _erase(os.path.dirname(self.place(name, gone.sha256)))
        return gone


def manifest_of_pin(content: Inventory, pin: Pin) -> BundleManifest:
    """Return the manifest of a pinned content. Raise BundleError if it states another name."""
    found = manifest_of(content, pin.name)
    if found.name != pin.name:
        raise _broken(f"its manifest names it `{found.name}`", "remove it, and add the other bundle")
    return found


def _broken(why: str, fix: str) -> BundleError:
    return BundleError(Problem("the bundle cannot be used", why, fix))


def _only_ours(place: str) -> bool:
    """Return True if the copy and the two folders above it are folders of this user that nobody else can write to."""
    for folder in (place, os.path.dirname(place), os.path.dirname(os.path.dirname(place))):
        seen = os.lstat(folder)
        if (
            not stat.S_ISDIR(seen.st_mode)
            or seen.st_uid != os.geteuid()
            or seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        ):
            return False
    return True


def _write_copy(data: Path, place: Path, content: Inventory) -> None:
    """Write a copy of `content` at `place`, in place of what was there. Raise BundleError.

    The files are created below a fresh folder that only this user can enter until it is complete.
    """
    fresh = place.with_name(f".{place.name[:12]}.{os.getpid()}.{time.time_ns()}")
    try:
        for folder in (data / FOLDER, place.parent):
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, 0o700)
        os.mkdir(fresh, 0o700)
        try:
            for entry in content.entries:
                path = fresh / entry.path
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
                mode = 0o755 if entry.executable else 0o644
                handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, mode)
                with open(handle, "wb") as file:
                    os.fchmod(handle, mode)
                    file.write(content.contents[entry.path])
            os.chmod(fresh, 0o755)  # noqa: S103  # the folders above are private
            _erase(str(place))
            os.rename(fresh, place)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
    except OSError as error:
        raise _broken(f"its copy cannot be written: {os_reason(error)}", f"inspect `{data}`") from None


def _erase(place: str) -> None:
    """Remove a folder of copies, if it exists. Raise BundleError."""
    try:
        shutil.rmtree(place)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _broken(f"its copy cannot be removed: {os_reason(error)}", f"remove `{place}`") from None


def _parsed(fields: dict[str, object], version: int) -> dict[str, Pin]:
    rows = fields.get("bundles")
    if not isinstance(rows, list) or len(rows) > _MOST:
        raise ValueError("it has no list of bundles")
    pins = [_pin(row) for row in rows]
    found = {pin.name: pin for pin in pins}
    if len(found) != len(pins):
        raise ValueError("it has a bundle twice")
    return found


def _pin(row: object) -> Pin:
    if not isinstance(row, dict) or not isinstance(row.get("entries"), list):
        raise ValueError("it has something that is not a bundle")
    texts = [row.get(key) for key in ("name", "version", "source", "commit", "folder", "time")]
    if not all(isinstance(text, str) for text in texts) or row.keys() != _KEYS:
        raise ValueError("it has a bundle with other fields")
    name = str(texts[0])
    if not NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise ValueError("it has a bundle with a name that none can have")
    entries = []
    for each in row["entries"]:
        path, sha256 = each.get("path"), each.get("sha256")
        parts = path.split("/") if isinstance(path, str) else [""]
        size, executable = each.get("size"), each.get("executable")
        if not all(parts) or ".." in parts or "." in parts or type(size) is not int or type(executable) is not bool:
            raise ValueError("it has a file that no bundle can have")
        entries.append(InventoryEntry(str(path), EntryKind.BUNDLE, executable, size, str(sha256)))
    version, source, commit, folder, added = map(str, texts[1:])
    return Pin(name, version, source, commit, folder, added, tuple(entries))


_KEYS = {"name", "version", "source", "commit", "folder", "time", "entries"}


def _dump(pins: dict[str, Pin]) -> dict[str, object]:
    rows = []
    for pin in pins.values():
        entries = [
            {"path": each.path, "executable": each.executable, "size": each.size, "sha256": each.sha256}
            for each in pin.entries
        ]
        row = {key: value for key, value in asdict(pin).items() if key != "entries"}
        rows.append({**row, "entries": entries})
    return {"bundles": rows}
