"""`dataclass` of the standard library, created faster for classes with slots, and without importing `dataclasses`.

A short command such as `agent exec` defines more than a hundred such classes before it judges anything, and most of
them never have an instance. `dataclasses` examines each class and compiles six functions for it, which took a quarter
of the start-up time; its import loads `inspect`, which takes 6 ms. This module compiles only `__init__`, after the
first instances were created; the other functions are shared, or closures over one getter. `dataclasses` is loaded when
one of its functions is used with such a class.

Instances support what instances of a standard dataclass support: `fields`, `replace`, `asdict`, `match`, comparison,
hash, `repr`, copies, pickles and FrozenInstanceError. Type checkers treat the classes as dataclasses. `field`,
`fields`, `is_dataclass` and `replace` of this module do what those of the standard library do, for every dataclass. The
interpreter calls `replace` about fifteen times for each script, and it takes half of the time here.
"""

import sys
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

_Getter = Callable[[object], tuple[object, ...]]


class _Missing:
    """The class of MISSING, the value of a default that was not given."""


MISSING = _Missing()


class RecordField:
    """A field of a class, with the attributes of `dataclasses.Field` except for its metadata."""

    __slots__ = ("compare", "default", "default_factory", "init", "kw_only", "name", "repr", "type")

    def __init__(
        self,
        *,
        default: object = MISSING,
        default_factory: object = MISSING,
        init: bool = True,
        repr: bool = True,
        compare: bool = True,
        kw_only: bool = False,
    ) -> None:
        self.name = ""
        self.type: object = None
        self.default = default
        self.default_factory: Any = default_factory  # MISSING, or a function without parameters
        self.init, self.repr, self.compare, self.kw_only = init, repr, compare, kw_only


def _fields_of(value: object) -> tuple[RecordField, ...]:
    """Return the fields of a dataclass or of its instance, in their order. Raise TypeError for anything else."""
    cls = value if isinstance(value, type) else value.__class__
    for base in cls.__mro__:
        if "__record__" in vars(base):
            return tuple(vars(base)["__record__"].values())
        if "__dataclass_fields__" in vars(base):
            break
    from dataclasses import fields as usual

    return tuple(map(_converted, usual(cls)))


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
    from dataclasses import fields as fields
    from dataclasses import is_dataclass as is_dataclass
    from dataclasses import replace as replace
else:
    field, fields = RecordField, _fields_of

    def is_dataclass(value):
        """Return True for a dataclass and for an instance of one."""
        cls = value if isinstance(value, type) else value.__class__
        return hasattr(cls, "__record__") or hasattr(cls, "__dataclass_fields__")

    def replace(value, /, **changes):
        """Return a copy of the dataclass instance `value` with other values of the fields `changes`."""
        plan = _plans.get(value.__class__)
        if plan is None:
            plan = _plans[value.__class__] = _plan(value.__class__)
        every, places = plan
        if every is None:
            from dataclasses import replace as usual

            return usual(value, **changes)
        values = list(every(value))
        for name, changed in changes.items():
            values[places[name]] = changed
        return value.__class__(*values)

    def dataclass(*, frozen=False, slots=False, eq=True):
        """Return the decorator of a class that `dataclasses.dataclass` would return for these arguments."""
        if slots:
            return lambda cls: _record(cls, frozen, eq)
        from dataclasses import dataclass as usual

        return usual(frozen=frozen, eq=eq)


_FEW = 5  # fields that are set by calls
_UNCOMPILED = 12  # instances of a class before its `__init__` is compiled

_plans: dict[type, tuple[_Getter | None, dict[str, int]]] = {}  # for `replace`


def _plan(cls: type) -> tuple[_Getter | None, dict[str, int]]:
    """Return the getter of all values that `__init__` takes, and the places of their names among its parameters.

    None instead of the getter if `__init__` does not take every field by position, or if there is only one field.
    """
    names = [each.name for each in _fields_of(cls) if each.init and not each.kw_only]
    if len(names) < 2 or len(names) < len(_fields_of(cls)):
        return None, {}
    return attrgetter(*names), {name: place for place, name in enumerate(names)}


def _record(cls: type, frozen: bool, eq: bool) -> type:
    own = _own_fields(cls)
    every: dict[str, RecordField] = {}
    slotted: set[str] = set()
    for base in cls.__mro__[-1:0:-1]:
        if is_dataclass(base):
            every |= {each.name: each for each in _fields_of(base)}
        slotted.update(vars(base).get("__slots__", ()))
    every |= own
    names = [each.name for each in every.values() if each.compare]
    key: Callable[[object], object] = attrgetter(*names) if names else lambda value: ()
    first: list[_FirstValues] = []  # one entry after the first value

    def __init__(self: object, *args: object, **kwargs: object) -> None:
        if not first:
            first.append(_FirstValues(made))
        if not first[0].set(self, args, kwargs):
            made.__init__ = _init(made)  # type: ignore[misc]  # compiled for the following instances
            made.__init__(self, *args, **kwargs)  # type: ignore[misc]  # looked up on the class: the compiled function

    body: dict[str, object] = {"__init__": __init__, "__repr__": _repr}
    if eq:

        def __eq__(self: object, other: object) -> bool:
            return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

        body["__eq__"] = __eq__
        if frozen:

            def __hash__(self: object) -> int:
                return hash(key(self))

            body["__hash__"] = __hash__
        else:
            body["__hash__"] = None
    if frozen:
        body |= {"__setattr__": _frozen, "__delattr__": _frozen, "__getstate__": _values, "__setstate__": _restore}
    given = vars(cls)
    body |= {name: value for name, value in given.items() if name not in every}
    if given.get("__hash__", True) is None and frozen and eq:
        body["__hash__"] = __hash__  # a class with `__eq__` of its own has no hash otherwise
    for name in ("__dict__", "__weakref__"):
        body.pop(name, None)
    body |= {"__doc__": cls.__doc__ or cls.__name__, "__record__": every, "__qualname__": cls.__qualname__}
    body["__slots__"] = tuple(name for name in every if name not in slotted)
    body["__match_args__"] = tuple(each.name for each in every.values() if each.init and not each.kw_only)
    body |= {name: _LateAttribute(name, own, frozen) for name in _OF_DATACLASSES}
    made: type = type(cls)(cls.__name__, cls.__bases__, body)
    return made


def _own_fields(cls: type) -> dict[str, RecordField]:
    """Return the fields that the body of `cls` declares, by name, in their order."""
    found = {}
    given = vars(cls)
    for name, kind in _annotations(cls).items():
        if kind.startswith("ClassVar[") if isinstance(kind, str) else getattr(kind, "__origin__", kind) is ClassVar:
            continue
        default = given.get(name, MISSING)
        if isinstance(default, RecordField):
            made = default
        elif _is_usual_field(default):
            made = _converted(default)
        elif default.__class__.__hash__ is None:
            raise ValueError(f"the field `{name}` would share its mutable default: use `default_factory`")
        else:
            made = RecordField(default=default)
        made.name, made.type = name, kind
        found[name] = made
    return found


def _annotations(cls: type) -> dict[str, object]:
    if sys.version_info >= (3, 14):
        from annotationlib import Format, get_annotations

        return dict(get_annotations(cls, format=Format.FORWARDREF))
    return dict(vars(cls).get("__annotations__", {}))


def _is_usual_field(value: object) -> bool:
    """Return True if `value` is a Field of `dataclasses`, which is not imported for this."""
    usual = sys.modules.get("dataclasses")
    return usual is not None and isinstance(value, usual.Field)


def _converted(usual: object) -> RecordField:
    """Return the RecordField of this module for one of `dataclasses`. It has every attribute that this module needs."""
    from dataclasses import MISSING as NONE

    made = RecordField()
    for name in RecordField.__slots__:
        value = getattr(usual, name)
        setattr(made, name, MISSING if value is NONE else value)
    made.kw_only = made.kw_only is True  # without a value before `dataclasses` has examined the class
    return made


_OF_DATACLASSES = ("__dataclass_fields__", "__dataclass_params__")


class _LateAttribute:
    """An attribute in which `dataclasses` keeps what it knows about a class, made at its first use."""

    __slots__ = ("frozen", "name", "own")

    def __init__(self, name: str, own: dict[str, RecordField], frozen: bool) -> None:
        self.name, self.own, self.frozen = name, own, frozen

    def __get__(self, instance: object, owner: type) -> object:
        import dataclasses

        cls = next(each for each in owner.__mro__ if vars(each).get(self.name) is self)
        body: dict[str, object] = {"__annotations__": _annotations(cls), "__doc__": "", "__module__": cls.__module__}
        for each in self.own.values():
            known = {name: getattr(each, name) for name in RecordField.__slots__ if name not in ("name", "type")}
            body[each.name] = dataclasses.field(**{name: one for name, one in known.items() if one is not MISSING})
        usual = dataclasses.dataclass(init=False, repr=False, eq=False, frozen=self.frozen)
        like: type = usual(type(cls)(cls.__name__, cls.__bases__, body))
        for name in _OF_DATACLASSES:
            setattr(cls, name, getattr(like, name))
        return getattr(cls, self.name)


class _FirstValues:
    """The setter of the fields of the first `_UNCOMPILED` instances of a class.

    Compiling `__init__` takes as long as the creation of thirty instances by this setter, and a short command creates
    fewer of most classes.
    """

    def __init__(self, cls: type) -> None:
        self._left = _UNCOMPILED
        # In the order of the parameters: the name, the default or MISSING, and the function that makes it or MISSING.
        every = _fields_of(cls)
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
    frozen = cls.__setattr__ is _frozen  # as `_record` sets it
    plain = not frozen or len(_fields_of(cls)) > _FEW
    for each in _fields_of(cls):
        name = each.name
        if not plain:
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
        body.append(f"self.{name} = {value}" if plain else f"set_{name}(self, {value})")
    if plain and frozen:
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
    for each in _fields_of(cls):
        value = given.get(each.name, MISSING)
        if value is MISSING and each.default_factory is not MISSING:
            value = each.default_factory()
        if value is not MISSING:  # else `__post_init__` sets it
            getattr(cls, each.name).__set__(made, value)
    if hasattr(made, "__post_init__"):
        made.__post_init__()


def _frozen(self: object, name: str, value: object = None) -> NoReturn:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot change `{name}`")


def _repr(self: object) -> str:
    shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in _fields_of(self) if each.repr)
    return f"{type(self).__qualname__}({shown})"


def _values(self: object) -> list[object]:
    return [getattr(self, each.name) for each in _fields_of(self)]


def _restore(self: object, values: list[object]) -> None:
    for each, value in zip(_fields_of(self), values, strict=True):
        object.__setattr__(self, each.name, value)
