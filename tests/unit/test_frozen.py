"""Tests of frozen classes: equal to dataclasses in all visible behaviour, without compilation for the first values."""

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, field, fields, is_dataclass, replace
from typing import Any, ClassVar

import pytest

from policy.bash.ast import Text
from policy.model import frozen
from policy.model.abstract_word import SourceSpan
from policy.model.action import RunArgv, RunScript
from policy.model.verdict import Limits


@frozen.dataclass(frozen=True, slots=True)
class Point:
    """A place."""

    x: int
    y: int = 2
    seen: list[int] = field(default_factory=list, compare=False, repr=False)
    told: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "told", f"{self.x}:{self.y}")


@dataclasses.dataclass(frozen=True, slots=True)
class Usual:
    x: int
    y: int = 2
    seen: list[int] = field(default_factory=list, compare=False, repr=False)
    told: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "told", f"{self.x}:{self.y}")


@frozen.dataclass(frozen=True, slots=True)
class Point3(Point):
    z: int = 0


@frozen.dataclass(frozen=True, slots=True)
class Alone:
    pass


def shown(value: object) -> str:
    return repr(value).replace("Usual", "Point")


ALIKE: tuple[tuple[Callable[[Any], object], str], ...] = (
    (lambda made: shown(made(1)), "repr"),
    (lambda made: made(1) == made(1, 2), "equal, by defaults too"),
    (lambda made: made(1) == made(1, seen=[3]), "what is not compared"),
    (lambda made: made(1) != made(2), "other"),
    (lambda made: made(1) == (1, 2), "of another kind"),
    (lambda made: hash(made(1)) == hash(made(1, seen=[3])), "hash"),
    (lambda made: len({made(1), made(1), made(2)}), "in a set"),
    (lambda made: made(1).told, "after the fields"),
    (lambda made: made(1).seen is made(1).seen, "a list of its own"),
    (lambda made: shown(replace(made(1), x=5)), "replace"),
    (lambda made: replace(made(1), x=5).told, "replace, and after the fields"),
    (lambda made: shown(frozen.replace(made(1), x=5, seen=[2])), "own replace"),
    (lambda made: frozen.replace(made(1), x=5).told, "own replace, and after the fields"),
    (lambda made: asdict(made(1)), "asdict"),
    (lambda made: [each.name for each in fields(made)], "fields"),
    (lambda made: made.__match_args__, "match"),
    (lambda made: made.__slots__, "slots"),
    (lambda made: hasattr(made(1), "__dict__"), "nothing else fits in"),
    (lambda made: is_dataclass(made), "a dataclass"),
    (lambda made: shown(copy.copy(made(4))), "copy"),
    (lambda made: shown(copy.deepcopy(made(4))), "deep copy"),
    (lambda made: pickle.loads(pickle.dumps(made(4))).told, "pickle"),
)


@pytest.mark.parametrize(("look", "why"), ALIKE, ids=[row[1] for row in ALIKE])
def test_what_the_standard_library_does(look: Callable[[type], object], why: str) -> None:
    assert look(Point) == look(Usual), why


@pytest.mark.parametrize("wrong", [(), (1, 2, [], 3, 4)])
def test_a_value_needs_its_fields(wrong: tuple[object, ...]) -> None:
    for _ in range(2):  # before and after the first value
        with pytest.raises(TypeError):
            Point(*wrong)  # type: ignore[arg-type]  # what is tried
    with pytest.raises(TypeError):
        Point(1, w=1)  # type: ignore[call-arg]  # what is tried


def test_nothing_changes_a_value() -> None:
    value = Point3(1)
    for name in ("x", "z", "told", "other"):
        with pytest.raises(FrozenInstanceError):
            setattr(value, name, 3)
        with pytest.raises(FrozenInstanceError):
            delattr(value, name)
    assert repr(value) == "Point3(x=1, y=2, z=0)"


def test_a_class_above_and_one_without_fields() -> None:
    assert Point3.__slots__ == ("z",)  # type: ignore[attr-defined]  # type checkers do not know the slots
    assert Point3(1) != Point(1)
    assert Point3(1, z=4) == replace(Point3(1), z=4) == frozen.replace(Point3(1), z=4)
    assert Alone() == Alone()
    assert len({Alone(), Alone()}) == 1
    assert repr(Alone()) == "Alone()"


@frozen.dataclass(frozen=True, slots=True)
class Many(Point):
    """A class with more fields than `_FEW`, whose instances are created in another way."""

    open: str = ""
    a: int = 1
    b: tuple[int, ...] = ()
    c: list[int] = field(default_factory=list)


class Below(Many):
    """A subclass without fields of its own."""


def test_a_class_with_many_fields() -> None:
    for cls in (Many, Below):
        value = cls(1, c=[3], open="o")
        assert type(value) is cls
        assert (value.x, value.y, value.told, value.open, value.a, value.b, value.c) == (1, 2, "1:2", "o", 1, (), [3])
        changed = frozen.replace(value, b=(4,), open="p")
        assert type(changed) is cls
        assert changed == replace(value, b=(4,), open="p") != value
        assert (value.b, value.open) == ((), "o")
        with pytest.raises(FrozenInstanceError):
            value.a = 2  # type: ignore[misc]  # what is tried
        assert not hasattr(Many(1), "__dict__")


@pytest.mark.parametrize("value", [Point(1), Usual(1), Limits(), SourceSpan(0, 1), Alone()])
def test_replace_refuses_an_unknown_name(value: Any) -> None:
    with pytest.raises((TypeError, KeyError)):
        frozen.replace(value, unknown=1)


def test_it_keeps_apart_what_looks_alike() -> None:
    assert RunScript("a", "/w") != RunArgv(("a",), "/w")
    assert Text("a", SourceSpan(0, 1), True) != Text("a", SourceSpan(0, 1), False)


def test_nothing_is_compiled_for_the_first_values(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    init = frozen._init
    monkeypatch.setattr(frozen, "_init", lambda made: compiled.append(made) or init(made))

    @frozen.dataclass(frozen=True, slots=True)
    class Late:
        x: int

    assert [Late(x=place).x for place in range(frozen._UNCOMPILED)] == list(range(frozen._UNCOMPILED))
    assert compiled == []
    assert [Late(1), Late(2), Late(3)][0].x == 1
    assert compiled == [Late]


@pytest.mark.parametrize("wrong", [(), (1, 2, [], 3, 4)])
def test_the_first_values_are_checked_as_all_others(wrong: tuple[object, ...]) -> None:
    """Each function is called for a class without a value, for one with a value, and for one that is compiled."""
    for before in (0, 1, frozen._UNCOMPILED + 1):

        @frozen.dataclass(frozen=True, slots=True)
        class Fresh(Point):
            z: int = 5

        made = [Fresh(1) for _ in range(before)]
        with pytest.raises(TypeError):
            Fresh(*wrong)  # type: ignore[arg-type]  # what is tried
        with pytest.raises(TypeError, match="w"):
            Fresh(1, w=1)  # type: ignore[call-arg]  # what is tried
        with pytest.raises(TypeError, match="x"):
            Fresh(1, x=1)  # type: ignore[misc]  # what is tried
        value = Fresh(1, seen=[4])
        assert (value.x, value.y, value.seen, value.z, value.told) == (1, 2, [4], 5, "1:2")
        assert all(each.seen == [] and each.told == "1:2" for each in made)


def test_other_kinds_are_left_to_the_standard_library() -> None:
    @frozen.dataclass(slots=True)
    class Open:
        x: int = 1

    @frozen.dataclass(frozen=True, slots=True, eq=False)
    class Same:
        x: int = 1

    value = Open()
    value.x = 3
    assert value.x == 3
    assert Same() != Same()
    assert replace(Limits(), wall=3.0).wall == 3.0


@frozen.dataclass(frozen=True, slots=True)
class Made:
    x: int
    seen: list[int] = field(default_factory=list, init=False)


def test_fields_that_are_no_parameters_are_set_for_the_first_values() -> None:
    first, second = Made(1), Made(2)
    assert (first.x, first.seen) == (1, [])
    assert first.seen is not second.seen


@frozen.dataclass(slots=True)
class Open:
    x: int
    seen: list[int] = frozen.field(default_factory=list, compare=False)
    kind: ClassVar[str] = "open"


@dataclasses.dataclass(slots=True)
class UsualOpen:
    x: int
    seen: list[int] = field(default_factory=list, compare=False)
    kind: ClassVar[str] = "open"


OPEN: tuple[tuple[Callable[[Any], object], str], ...] = (
    (lambda made: repr(made(1)).replace("Usual", ""), "repr"),
    (lambda made: made(1) == made(1, [2]), "equal"),
    (lambda made: made(1) == made(2), "other"),
    (lambda made: made.__hash__, "no hash"),
    (lambda made: made.__slots__, "slots"),
    (lambda made: made.__match_args__, "match"),
    (lambda made: made.kind, "a variable of the class"),
    (lambda made: [each.name for each in fields(made)], "fields"),
    (lambda made: [(each.name, each.type, each.compare) for each in fields(made(1))], "the types of the fields"),
    (lambda made: asdict(made(1, [3])), "asdict"),
    (lambda made: asdict(frozen.replace(made(1), seen=[4])), "own replace"),
    (lambda made: asdict(replace(made(1), seen=[4])), "replace"),
    (lambda made: asdict(copy.deepcopy(made(1, [5]))), "deep copy"),
    (lambda made: asdict(pickle.loads(pickle.dumps(made(1, [5])))), "pickle"),
)


@pytest.mark.parametrize(("look", "why"), OPEN, ids=[row[1] for row in OPEN])
def test_a_class_whose_instances_change(look: Callable[[type], object], why: str) -> None:
    assert look(Open) == look(UsualOpen), why


def test_an_instance_changes_before_and_after_its_class_is_compiled() -> None:
    for number in range(frozen._UNCOMPILED + 2):
        value = Open(number)
        value.x, value.seen = value.x + 1, [7]
        assert (value.x, value.seen, Open(0).seen) == (number + 1, [7], [])


def test_a_dataclass_of_the_standard_library_below_one_of_ours() -> None:
    @dataclasses.dataclass
    class Under(Open):
        more: int = 2

    assert [each.name for each in frozen.fields(Under)] == ["x", "seen", "more"] == [e.name for e in fields(Under)]
    assert asdict(frozen.replace(Under(1), more=3)) == {"x": 1, "seen": [], "more": 3}

    @frozen.dataclass(slots=True)
    class Lowest(Under):
        last: int = 4

    assert asdict(Lowest(1)) == {"x": 1, "seen": [], "more": 2, "last": 4}


def test_a_mutable_default_is_refused() -> None:
    with pytest.raises(ValueError, match="seen"):

        @frozen.dataclass(slots=True)
        class Shared:
            seen: list[int] = []  # noqa: RUF012  # what is refused
