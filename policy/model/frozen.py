"""`dataclass`, as the standard library has it, made in a fraction of the time when it is frozen and slotted.

A command as short as `agent exec` defines more than a hundred such classes before it can judge anything, and most of
them never get a value. `dataclasses` compiles six functions for each of them, which was a quarter of the start. Here
only `__init__` is compiled, when the first value is made; the rest is shared, or a closure over one getter.

What holds for a value of a dataclass holds for these: `fields`, `replace`, `asdict`, `match`, comparison, hash, `repr`,
copies and pickles, FrozenInstanceError. To type checkers they are dataclasses.
"""

from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, fields
from dataclasses import dataclass as _usual
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen=False, slots=False, eq=True):
        """Decorates a class as `dataclasses.dataclass` does."""
        if frozen and slots and eq:
            return _record
        return _usual(frozen=frozen, slots=slots, eq=eq)


def _record(cls: type) -> type:
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # else `dataclasses` works out a signature for it
    plain: type = _usual(init=False, repr=False, eq=False)(cls)
    names = [each.name for each in fields(plain)]
    made = _slotted(plain, names)
    compared = [each.name for each in fields(plain) if each.compare]
    key: Callable[[object], object] = attrgetter(*compared) if compared else _nothing

    def __eq__(self: object, other: object) -> bool:
        return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: object) -> int:
        return hash(key(self))

    def __init__(self: object, *args: object, **kwargs: object) -> None:
        made.__init__ = _init(made)  # type: ignore[misc]  # the first value: from now on, the compiled one
        made.__init__(self, *args, **kwargs)  # type: ignore[misc]  # on the class, so that it is that one

    shared = {"__setattr__": _frozen, "__delattr__": _frozen, "__getstate__": _values, "__setstate__": _restore}
    own = {"__init__": __init__, "__repr__": _repr, "__eq__": __eq__, "__hash__": __hash__}
    for name, function in {**shared, **own}.items():
        if name not in vars(plain) or (name == "__hash__" and vars(plain)[name] is None):
            setattr(made, name, function)
    return made


def _slotted(plain: type, names: list[str]) -> type:
    """The same class with a slot for each field that no class above has one for."""
    above = {name for base in plain.__mro__[1:] for name in vars(base).get("__slots__", ())}
    body = {name: value for name, value in vars(plain).items() if name not in ("__dict__", "__weakref__", *names)}
    body["__slots__"] = tuple(name for name in names if name not in above)
    made: type = type(plain)(plain.__name__, plain.__bases__, body)
    made.__qualname__ = plain.__qualname__
    return made


def _init(cls: type) -> Callable[..., None]:
    """Compile what sets the fields. A slot's own setter does not ask `__setattr__`, which refuses."""
    given: list[str] = []
    known: dict[str, object] = {"missing": MISSING}
    body = []
    for each in fields(cls):
        name = each.name
        known[f"set_{name}"] = getattr(cls, name).__set__
        if each.default_factory is not MISSING:
            known[f"make_{name}"] = each.default_factory
            given += [f"{name}=missing"] if each.init else []
            value = f"make_{name}() if {name} is missing else {name}" if each.init else f"make_{name}()"
        elif each.init:
            known[f"default_{name}"] = each.default
            given.append(name if each.default is MISSING else f"{name}=default_{name}")
            value = name
        else:
            continue  # for __post_init__ to set
        body.append(f"set_{name}(self, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    text = f"def __init__({', '.join(['self', *given])}):\n " + "\n ".join(body or ["pass"])
    exec(text, known)  # noqa: S102  # of the names of fields alone, as `dataclasses` does
    init: Callable[..., None] = known["__init__"]  # type: ignore[assignment]  # what the text defines
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _nothing(value: object) -> object:
    return ()


def _frozen(self: object, name: str, value: object = None) -> None:
    raise FrozenInstanceError(f"cannot change `{name}`")


def _repr(self: object) -> str:
    shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)  # type: ignore[arg-type]  # only dataclasses have this method
    return f"{type(self).__qualname__}({shown})"


def _values(self: object) -> list[object]:
    return [getattr(self, each.name) for each in fields(self)]  # type: ignore[arg-type]  # as above


def _restore(self: object, values: list[object]) -> None:
    for each, value in zip(fields(self), values, strict=True):  # type: ignore[arg-type]  # as above
        object.__setattr__(self, each.name, value)
