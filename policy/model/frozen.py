"""`dataclass` of the standard library, created faster for frozen classes with slots.

A short command such as `agent exec` defines more than a hundred such classes before it judges anything, and most of
them never have an instance. `dataclasses` compiles six functions for each class, which took a quarter of the start-up
time. This module compiles only `__init__`, after the first instances were created; the other functions are shared, or
closures over one getter.

Instances support what instances of a standard dataclass support: `fields`, `replace`, `asdict`, `match`, comparison,
hash, `repr`, copies, pickles and FrozenInstanceError. Type checkers treat the classes as dataclasses. The `replace` of
this module returns what `dataclasses.replace` returns, in half of the time: the interpreter calls it about fifteen
times for each script.
"""

from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, fields
from dataclasses import dataclass as _usual
from dataclasses import replace as _usual_replace
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import replace as replace
else:

    def replace(value, /, **changes):
        """Return a copy of the dataclass instance `value` with other values of the fields `changes`."""
        plan = _plans.get(value.__class__)
        if plan is None:
            plan = _plans[value.__class__] = _plan(value.__class__)
        every, places = plan
        if every is None:
            return _usual_replace(value, **changes)
        values = list(every(value))
        for name, changed in changes.items():
            values[places[name]] = changed
        return value.__class__(*values)

    def dataclass(*, frozen=False, slots=False, eq=True):
        """Return the decorator of a class that `dataclasses.dataclass` would return for these arguments."""
        if frozen and slots and eq:
            return _record
        return _usual(frozen=frozen, slots=slots, eq=eq)


_FEW = 5  # fields that are set by calls
_UNCOMPILED = 12  # instances of a class before its `__init__` is compiled

_Getter = Callable[[object], tuple[object, ...]]
_plans: dict[type, tuple[_Getter | None, dict[str, int]]] = {}  # for `replace`


def _plan(cls: type) -> tuple[_Getter | None, dict[str, int]]:
    """Return the getter of all values that `__init__` takes, and the places of their names among its parameters.

    None instead of the getter if `__init__` does not take every field by position, or if there is only one field.
    """
    names = [each.name for each in fields(cls) if each.init and not each.kw_only]
    if len(names) < 2 or len(names) < len(fields(cls)):
        return None, {}
    return attrgetter(*names), {name: place for place, name in enumerate(names)}


def _record(cls: type) -> type:
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # otherwise `dataclasses` computes a signature as the docstring
    plain: type = _usual(init=False, repr=False, eq=False)(cls)
    names = [each.name for each in fields(plain)]
    made = _slotted(plain, names)
    compared = [each.name for each in fields(plain) if each.compare]
    key: Callable[[object], object] = attrgetter(*compared) if compared else lambda value: ()

    def __eq__(self: object, other: object) -> bool:
        return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: object) -> int:
        return hash(key(self))

    first: list[_FirstValues] = []  # one entry after the first value

    def __init__(self: object, *args: object, **kwargs: object) -> None:
        if not first:
            first.append(_FirstValues(made))
        if not first[0].set(self, args, kwargs):
            made.__init__ = _init(made)  # type: ignore[misc]  # compiled for the following instances
            made.__init__(self, *args, **kwargs)  # type: ignore[misc]  # looked up on the class: the compiled function

    shared = {"__setattr__": _frozen, "__delattr__": _frozen, "__getstate__": _values, "__setstate__": _restore}
    own = {"__init__": __init__, "__repr__": _repr, "__eq__": __eq__, "__hash__": __hash__}
    for name, function in {**shared, **own}.items():
        if name not in vars(plain) or (name == "__hash__" and vars(plain)[name] is None):
            setattr(made, name, function)
    return made


def _slotted(plain: type, names: list[str]) -> type:
    """Return a copy of the class `plain` with a slot for each field that no base class has a slot for."""
    above = {name for base in plain.__mro__[1:] for name in vars(base).get("__slots__", ())}
    body = {name: value for name, value in vars(plain).items() if name not in ("__dict__", "__weakref__", *names)}
    body["__slots__"] = tuple(name for name in names if name not in above)
    made: type = type(plain)(plain.__name__, plain.__bases__, body)
    made.__qualname__ = plain.__qualname__
    return made


class _FirstValues:
    """The setter of the fields of the first `_UNCOMPILED` instances of a class.

    Compiling `__init__` takes as long as the creation of thirty instances by this setter, and a short command creates
    fewer of most classes.
    """

    def __init__(self, cls: type) -> None:
        self._left = _UNCOMPILED
        # In the order of the parameters: the name, the default or MISSING, and the function that makes it or MISSING.
        every = fields(cls)
        self._given = [(each.name, each.default, each.default_factory) for each in every]
        self._setters = [getattr(cls, each.name).__set__ for each in every]
        self._after: Callable[[object], None] | None = getattr(cls, "__post_init__", None)
        if any(each.kw_only or not each.init for each in every):
            self._left = 0  # the compiled function handles such fields

    def set(self, made: object, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
        """Set the fields of `made` and return True; return False, without an effect, if `__init__` has to do it.

        The compiled function also raises the errors for arguments that do not fit.
        """
        if not self._left or len(args) > len(self._given):
            return False
        values = list(args)
        used = 0
        for name, default, make in self._given[len(args) :]:
            if name in kwargs:
                values.append(kwargs[name])
                used += 1
            elif default is not MISSING:
                values.append(default)
            elif make is not MISSING:
                values.append(make())
            else:
                return False
        if used != len(kwargs):
            return False
        self._left -= 1
        for setter, value in zip(self._setters, values, strict=True):
            setter(made, value)
        if self._after is not None:
            self._after(made)
        return True


def _init(cls: type) -> Callable[..., None]:
    """Compile the function that sets the fields.

    The setter of a slot does not call `__setattr__`, which raises. A plain assignment is much quicker than a call of
    the setter, but needs a class that allows it: an instance with many fields is of the class `__open` meanwhile, which
    has the same slots. An instance of a subclass may have others.
    """
    given: list[str] = []
    keywords: list[str] = []  # parameters that are only passed by name
    known: dict[str, object] = {"missing": MISSING}
    body = []
    many = len(fields(cls)) > _FEW
    for each in fields(cls):
        name = each.name
        if not many:
            known[f"set_{name}"] = getattr(cls, name).__set__
        if each.default_factory is not MISSING:
            known[f"make_{name}"] = each.default_factory
            (keywords if each.kw_only else given).extend([f"{name}=missing"] if each.init else [])
            value = f"make_{name}() if {name} is missing else {name}" if each.init else f"make_{name}()"
        elif each.init:
            known[f"default_{name}"] = each.default
            (keywords if each.kw_only else given).append(name if each.default is MISSING else f"{name}=default_{name}")
            value = name
        else:
            continue  # `__post_init__` sets it
        body.append(f"self.{name} = {value}" if many else f"set_{name}(self, {value})")
    if many:
        slots = {"__slots__": vars(cls)["__slots__"], "__setattr__": object.__setattr__}
        known |= {"__cls": cls, "__open": type(cls.__name__, cls.__bases__, slots), "__each": _set_each}
        known["__set_class"] = vars(object)["__class__"].__set__
        other = "if self.__class__ is not __cls: return __each(__cls, self, locals())"
        body = [other, "__set_class(self, __open)", *body, "self.__class__ = __cls"]
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join(["self", *given, *(["*", *keywords] if keywords else [])])
    text = f"def __init__({parameters}):\n " + "\n ".join(body or ["pass"])
    exec(text, known)  # noqa: S102  # the text contains only names of fields, as in `dataclasses`
    init: Callable[..., None] = known["__init__"]  # type: ignore[assignment]  # the executed text defines it
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _set_each(cls: type, made: object, given: dict[str, object]) -> None:
    """Set the fields of `cls` in `made`, an instance of a subclass, by the setters of the slots."""
    for each in fields(cls):
        value = given.get(each.name, MISSING)
        if value is MISSING and each.default_factory is not MISSING:
            value = each.default_factory()
        if value is not MISSING:  # else `__post_init__` sets it
            getattr(cls, each.name).__set__(made, value)
    if hasattr(made, "__post_init__"):
        made.__post_init__()


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
