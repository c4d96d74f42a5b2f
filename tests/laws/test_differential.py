"""Property of the shell reader, with real bash as the oracle: everything that bash ran, read or created is in the
tree. `fuzz_bash.py` explains.
"""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from policy.bash.ast import Script
from policy.bash.parser import read
from tests.fuzz import fuzz_bash
from tests.support.law import number_of_examples


@pytest.fixture(scope="module")
def bash() -> Iterator[Any]:
    with fuzz_bash.Bash() as found:
        yield found


def faults(bash: Any, texts: list[str], least: int) -> dict[str, list[str]]:
    judged = {text: found for text in texts if (found := fuzz_bash.judge(bash, text)) is not None}
    assert len(judged) >= least, f"only {len(judged)} of {len(texts)} scripts were read at all"
    return {text: found for text, found in judged.items() if found}


@pytest.mark.thorough
@pytest.mark.threat("T01")
def test_the_instructive_table(bash: Any) -> None:
    table = list(fuzz_bash.INSTRUCTIVE)
    number = number_of_examples(250, many=len(table))
    texts = random.Random(number).sample(table, number)
    assert faults(bash, texts, number // 8) == {}


@pytest.mark.threat("T01")
@pytest.mark.parametrize("seed", [1, 2])
def test_scripts_written_at_random(bash: Any, seed: int) -> None:
    writer = fuzz_bash.Writer(random.Random(seed))
    assert faults(bash, [writer.script() for _ in range(number_of_examples(150, many=1000))], 24) == {}


@pytest.mark.threat("T01")
@pytest.mark.parametrize(
    ("ran", "believed", "fault"),
    [
        ("aa; bb x", "aa", "bash ran ('bb', 'x')"),
        ("aa 'b c'", "aa b c", "bash ran ('aa', 'b c')"),
        ("aa $(bb)", "aa $x", "bash ran ('bb',)"),
        ("aa >f", "aa", "bash created 'f'"),
        ("aa >'f g'", "aa >f", "bash created 'f g'"),
        ("aa >a1", "aa >f", "bash created 'a1'"),
        ("slurp <<< x", "slurp <<< y", "bash fed 'x\\n'"),
        ("slurp <<E\nx\nE", "slurp <<E\ny\nE", "bash fed 'x\\n'"),
        ("x='1 2' show", "x=1 show", "bash set x='1 2'"),
        ("(aa) & { bb; } | cc >(dd)", "aa; bb; cc $x", "bash ran ('dd',)"),
    ],
)
def test_the_judge_sees_what_a_wrong_tree_lacks(bash: Any, ran: str, believed: str, fault: str) -> None:
    tree = read(believed)
    assert isinstance(tree, Script)
    assert fuzz_bash.broken(tree, bash.run(ran)) == [fault]


@pytest.mark.thorough
@pytest.mark.threat("T01")
@pytest.mark.parametrize("seed", [1, 2])
def test_words_made_of_known_values_are_what_the_classifier_takes_them_for(bash: Any, seed: int) -> None:
    writer = fuzz_bash.Writer(random.Random(seed))
    assert faults(bash, [writer.values() for _ in range(number_of_examples(50, many=300))], 20) == {}


@pytest.mark.threat("T01")
@pytest.mark.parametrize("seed", [1, 2])
def test_what_functions_do_when_they_are_called(bash: Any, seed: int) -> None:
    writer = fuzz_bash.Writer(random.Random(seed))
    assert faults(bash, [writer.functions(2) for _ in range(number_of_examples(100, many=600))], 17) == {}


@pytest.mark.thorough
@pytest.mark.threat("T01")
def test_arithmetic_comes_to_what_the_classifier_takes_it_for(bash: Any) -> None:
    writer = fuzz_bash.Writer(random.Random(1))
    assert faults(bash, [writer.numbers() for _ in range(number_of_examples(150, many=1000))], 24) == {}


@pytest.mark.parametrize(
    ("ran", "believed", "words"),
    [
        ("x='a b'; aa $x", "x=ab; aa $x", ("aa", "a", "b")),
        ("aa a -o", "x='a '; aa $x'b'", ("aa", "a", "-o")),
        ("aa -o", "aa $#", ("aa", "-o")),
        ("aa b", "x=ab; aa ${x%b}", ("aa", "b")),
        ("aa a b", 'aa "$x"', ("aa", "a", "b")),
    ],
)
def test_the_judge_sees_words_that_the_classifier_did_not_expect(
    bash: Any, ran: str, believed: str, words: tuple[str, ...]
) -> None:
    tree = read(believed)
    assert isinstance(tree, Script)
    fault = f"bash ran {words!r}, which the classifier did not expect"
    heard = fuzz_bash.meanings(bash, tree)
    assert fuzz_bash.surprises(heard, bash.run(ran)) == [fault]
    assert fuzz_bash.surprises(heard, bash.run(believed)) == []


def test_the_judge_sees_what_bash_refuses(bash: Any) -> None:
    assert bash.valid("aa | bb")
    for text in ("aa |", "aa (b)", "if aa", "aa <<E\nx", "aa 'b"):
        assert not bash.valid(text)


def test_the_judge_waits_for_what_runs_in_the_background(bash: Any) -> None:
    seen = bash.run("{ true; aa; bb > late; } & cc")
    assert {argv[0] for argv in seen.argvs} == {"aa", "bb", "cc"}
    assert seen.created == ("late",)
