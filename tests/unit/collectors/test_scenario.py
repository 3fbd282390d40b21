"""The scenario file of simulated cards: what it can say, and what is said of a mistake."""

import re
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from collectors.scenario import ScenarioError, default_scenario, parse_scenario, read_scenario
from collectors.scenario_values import SPANS, Load, Scenario, SimulatedCard, Span, Window
from devicemanager.errors import CollectorError
from devicemanager.model.accelerator import CollectorState, Reason


def parsed(text: str, manufacturer: str = "simulated") -> Scenario:
    return parse_scenario(tomllib.loads(text), manufacturer)


def problems(text: str) -> str:
    with pytest.raises(CollectorError) as caught:
        parsed(text)
    assert caught.value.state is CollectorState.FAILED
    return caught.value.detail


def test_the_default_is_two_healthy_cards() -> None:
    scenario = default_scenario("simulated")
    assert [card.id for card in scenario.cards] == ["SIM-0", "SIM-1"]
    assert scenario.failure is None
    assert all(card.lost is card.hang is card.unhealthy is None for card in scenario.cards)


def test_several_manufacturers_do_not_share_ids() -> None:
    assert [card.id for card in parsed("count = 1", "simulated-east").cards] == ["SIM-east-0"]


def test_a_card_may_differ_from_the_others() -> None:
    scenario = parsed(
        """
        count = 3
        [card]
        name = "Simulated A"
        memory_mib = 1000
        [[cards]]
        index = 2
        id = "SIM-special"
        memory_mib = 2000
        """
    )
    assert [(card.id, card.name, card.memory_mib) for card in scenario.cards] == [
        ("SIM-0", "Simulated A", 1000),
        ("SIM-1", "Simulated A", 1000),
        ("SIM-special", "Simulated A", 2000),
    ]


def test_everything_that_can_be_said_of_a_card() -> None:
    (card,) = parsed(
        """
        count = 1
        [card]
        load = { shape = "square", low = 10, high = 90.5, period = "1m" }
        memory_used_percent = { idle = 1, full = 99 }
        temperature_celsius = { idle = 30, full = 80 }
        power_watts = { idle = 50, full = 300 }
        absent = { power = "permission", cores = "partitioned" }
        clock_reduction = { reasons = ["hw_slowdown"], every = "2m", for = "1m" }
        lost = { every = "10m", at = "2m", for = "30s" }
        hang = true
        unhealthy = { reason = "ECC", every = "1h", for = "1m" }
        """
    ).cards
    assert card.load == Load("square", 10, 90.5, 60)
    assert card.memory_used_percent == Span(1, 99)
    assert card.spans == {"temperature": Span(30, 80), "power_usage": Span(50, 300), "power_limit": Span(700, 700)}
    assert card.absent == {"power_usage": Reason.PERMISSION, "compute_utilization": Reason.PARTITIONED}
    assert card.clock_reduction == Window(120, 0, 60)
    assert card.clock_reduction_reasons == ("hw_slowdown",)
    assert card.lost == Window(600, 120, 30)
    assert card.hang == Window()
    assert card.unhealthy == Window(3600, 0, 60)
    assert card.unhealthy_reason == "ECC"


def test_a_fault_can_be_switched_off_for_one_card() -> None:
    scenario = parsed("[card]\nlost = true\n[[cards]]\nindex = 1\nlost = false")
    assert [card.lost for card in scenario.cards] == [Window(), None]


def test_a_library_that_fails_as_a_whole() -> None:
    scenario = parsed('[fail]\nstate = "driver_not_loaded"\ndetail = "as told"\nevery = "1h"\nfor = "5m"')
    assert scenario.failure is CollectorState.DRIVER_NOT_LOADED
    assert scenario.failure_detail == "as told"
    assert scenario.failing == Window(3600, 0, 300)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cout = 3", "cout is unknown"),
        ("count = -1", "count must be a whole number of 0..1024"),
        ("count = true", "count must be a whole number of 0..1024"),
        ('manufacturer = "nvidia"', "manufacturer is nvidia, but simulated was asked for"),
        ('manufacturer = ""', "manufacturer must be text"),
        ("card = 3", "card must be a table"),
        ("cards = 3", "cards must be an array of tables"),
        ("[card]\ncolour = 'red'", "card.colour is unknown"),
        ("[[cards]]\nindex = 2", "cards[0].index is 2, but there are 2 cards"),
        ("[[cards]]\nid = 'GPU-1'", "cards[0].id must begin with SIM-"),
        ("[card]\nid = 'SIM-1'", "card.id belongs to one card, in [[cards]]"),
        ("[[cards]]\nid = 'SIM-1'", "two cards have the same id"),
        (
            "[card]\nload = { shape = 'round' }",
            "card.load.shape must be one of constant, sine, square, sawtooth",
        ),
        ("[card]\nload = { high = 101 }", "card.load.high must be a number of 0..100"),
        ("[card]\nload = { low = nan }", "card.load.low must be a number of 0..100"),
        ("[card]\nload = { period = 5 }", 'card.load.period must be a duration such as "1m30s"'),
        ("[card]\nload = { period = '0s' }", "card.load.period must be above 0"),
        ("[card]\nabsent = { power = 'because' }", "card.absent.power must be one of unsupported"),
        ("[card]\nabsent = { fan = 'lost' }", "card.absent.fan is unknown"),
        ("[card]\nabsent = { powr = 'lost' }", "card.absent.powr is unknown; did you mean power?"),
        ("[card]\nclock_reduction = { reasons = 'hot' }", "card.clock_reduction.reasons must be a list"),
        ("[card]\nclock_reduction = { reasons = ['a', 'a'] }", "card.clock_reduction.reasons must be a list"),
        ("[card]\nlost = 'yes'", "card.lost must be true, false, or a table with every, at and for"),
        ("[card]\nlost = { at = '1s' , every = '5s' }", "card.lost.every and for belong together"),
        ("[card]\nlost = { every = '5s', for = '6s' }", "card.lost.for must not be longer than every"),
        ("[fail]\nstate = 'ok'", "fail.state must be one of library_missing"),
        ("[[cards]]\nindex = 1\n[[cards]]\nindex = 1", "cards[1].index is 1, which cards[0] has already"),
        ("[[cards]]\nindex = 1\n[[cards]]", "cards[1].index is 1, which cards[0] has already"),
        ("[card]\nload = { low = 60, high = 40 }", "card.load.low must not be above high (40)"),
        ("[card]\nload = { low = 96 }", "card.load.low must not be above high (95)"),
        ("[card]\nload = { high = 3 }", "card.load.high must not be below low (5)"),
        ("[card]\npower_watts = { idle = 300, full = 40 }", "card.power_watts.idle must not be above full (40)"),
        (
            "[card]\ntemperature_celsius = { full = 20 }",
            "celsius.full must not be below idle (32)",
        ),
        (
            "[card]\nmemory_used_percent = { idle = 99 }",
            "used_percent.idle must not be above full (90)",
        ),
        (
            "[card]\npartitions = [{ load = { low = 9, high = 8 } }]",
            "card.partitions[0].load.low must not be above high (8)",
        ),
        ('[[cards]]\nid = "SIM-\\u001b[31m"', "cards[0].id must be text without control characters"),
        ('[card]\nname = "a\\nb"', "card.name must be text without control characters"),
        ('[fail]\ndetail = "a\\rb"', "fail.detail must be text without control characters"),
        (
            '[card]\npartitions = [{ profile = "\\u0000" }]',
            "partitions[0].profile must be text without control",
        ),
    ],
)
def test_a_mistake_is_named(text: str, expected: str) -> None:
    assert expected in problems(text)


def test_all_mistakes_are_named_at_once() -> None:
    found = problems("cout = 3\n[card]\ncolour = 'red'\nmemory_mib = 0")
    assert "cout is unknown" in found
    assert "card.colour is unknown" in found
    assert "card.memory_mib must be a whole number" in found


SEVEN = """
cout = 3
[card]
colour = "red"
lost = "yes"
load = { shape = "sinus" }
temprature_celsius = { idle = 30, full = 80 }
[[cards]]
index = 9
id = "GPU-1"
"""


def test_each_mistake_is_named_once_with_what_was_meant() -> None:
    with pytest.raises(ScenarioError) as caught:
        parsed(SEVEN)
    assert sorted(caught.value.problems) == [
        "card.colour is unknown",
        "card.load.shape must be one of constant, sine, square, sawtooth; did you mean sine?",
        "card.lost must be true, false, or a table with every, at and for",
        "card.temprature_celsius is unknown; did you mean temperature_celsius?",
        "cards[0].id must begin with SIM-, so that nobody takes the card for a real one",
        "cards[0].index is 9, but there are 2 cards",
        "cout is unknown; did you mean count?",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[card]\nid = 'GPU-1'\nindex = 7", ["card.id belongs to one card", "card.index belongs to one card"]),
        ("[[cards]]\nindex = 'two'", ["cards[0].index must be a whole number of 0..1023"]),
        (
            "[card]\nhang = 3\n[[cards]]\nhang = 4",
            ["card.hang must be true, false", "cards[0].hang must be true, false"],
        ),
        ("[card]\nhang = 3\n[[cards]]\nhang = true", ["card.hang must be true, false"]),
        ("count = 1\n[card]\nhang = 3\n[[cards]]\nhang = true", []),
        ("count = 1024\n[card]\nmemory = 3", ["card.memory is unknown; did you mean memory_mib?"]),
        ("[cards]\nindex = 1", ["cards must be an array of tables, [[cards]] for each"]),
        ("[[card]]\nhang = true", ["card must be a table"]),
        (
            "[card]\npartitions = [{ memry_mib = 5 }]",
            ["card.partitions[0].memry_mib is unknown; did"],
        ),
        ("[card]\nlost = { everry = '5s' }", ["card.lost.everry is unknown; did you mean every?"]),
        ("[fail]\nstate = 'driver_not_laoded'", ["fail.state must be one of "]),
        ("[card]\nabsent = { power = 'permision' }", ["card.absent.power must be one of "]),
        ("[card]\nload = { shape = 'constant', high = 0 }", []),
        ("[[cards]]\nindex = 1\n[[cards]]\nindex = 'one'", ["cards[1].index must be a whole number"]),
        ('[[cards]]\nid = "SIM-\\u0007"', ["cards[0].id must be text without control"]),
    ],
)
def test_a_mistake_is_named_as_often_as_it_was_made(text: str, expected: list[str]) -> None:
    found: tuple[str, ...] = ()
    try:
        parsed(text)
    except ScenarioError as error:
        found = error.problems
    assert len(found) == len(expected)
    assert all(one.startswith(wanted) for one, wanted in zip(sorted(found), expected, strict=True))
    assert "state must be" not in str(found) or found[0].endswith("did you mean driver_not_loaded?")
    assert "power must be" not in str(found) or found[0].endswith("did you mean permission?")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"count = ", "is not TOML: Invalid value (at end of document)"),
        (b"count = 1\ncount = 2\n", "is not TOML: Cannot overwrite a value (at line 2, column 10)"),
        (b"\xff\xfe", "is not text in UTF-8"),
        (b"a = " + b"[" * 5000, "is nested too deep"),
    ],
)
def test_a_file_that_is_no_toml_is_said_to_be_none_in_plain_words(
    tmp_path: Path, content: bytes, expected: str
) -> None:
    path = tmp_path / "cards.toml"
    path.write_bytes(content)
    with pytest.raises(CollectorError) as caught:
        read_scenario(path, "simulated")
    assert caught.value.detail == f"scenario {path}: {expected}"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CollectorError) as caught:
        read_scenario(tmp_path / "cards.toml", "simulated")
    assert caught.value.detail == f"scenario {tmp_path / 'cards.toml'}: cannot be read: No such file or directory"


def documented() -> list[str]:
    page = Path(__file__).parents[3] / "docs" / "simulated.md"
    return re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("text", documented())
def test_the_documentations_examples_are_scenarios(text: str) -> None:
    assert parsed(text).cards


def test_the_documentation_names_every_key() -> None:
    docs = Path(__file__).parents[3] / "docs"
    page = "".join((docs / name).read_text(encoding="utf-8") for name in ("simulated.md", "figures.md"))
    keys = {
        *["count", "card", "cards", "fail", "manufacturer"],
        *(one.name for one in fields(SimulatedCard)),
        *(key for key, _ in SPANS.values()),
    }
    keys -= {"unhealthy_reason", "clock_reduction_reasons", "spans"}
    assert {key for key in keys if f"`{key}`" not in page} == set()


def test_a_wrong_count_hides_no_other_mistake() -> None:
    found = problems('count = "three"\n[[cards]]\n[[cards]]\n[[cards]]\nmemory_mib = 0\n')
    assert "count must be a whole number" in found
    assert "cards[2].memory_mib must be" in found
    assert "there are" not in found


def test_a_card_too_many_is_looked_at_all_the_same() -> None:
    found = problems('count = 1\n[[cards]]\nindex = 4\nload = "high"\n')
    assert "index is 4, but there are 1 cards" in found
    assert "cards[0].load must be a table" in found


def test_partitions_of_a_card() -> None:
    text = """
    [[cards]]
    partitions = [
      { profile = "2g.20gb", memory_mib = 19968, load = { shape = "constant", high = 30 } },
      { id = "SIM-mine", absent = { cores = "unsupported" }, hang = true },
    ]
    """
    first, second = parsed(text).cards[0].partitions
    assert (first.id, first.profile, first.memory_mib) == ("SIM-0-P0", "2g.20gb", 19968)
    assert first.load == Load("constant", 5, 30)
    assert (second.id, second.profile, second.absent) == (
        "SIM-mine",
        "1g.10gb",
        {"compute_utilization": Reason.UNSUPPORTED},
    )
    assert second.hang is not None
    assert parsed(text).cards[1].partitions == ()


@pytest.mark.parametrize(
    ("partition", "problem"),
    [
        ("{ id = 'GPU-1' }", "must begin with SIM-"),
        ("{ power_watts = { idle = 1, full = 2 } }", "power_watts is unknown"),
        ("{ absent = { power = 'lost' } }", "power is unknown"),
        ("{ memory_mib = 0 }", "memory_mib must be"),
        ("{ id = 'SIM-x' }, { id = 'SIM-x' }", "two partitions have the same id"),
        (", ".join(["{}"] * 1025), "there are more than 1024 partitions"),
    ],
)
def test_a_mistake_in_a_partition_is_named(partition: str, problem: str) -> None:
    assert problem in problems(f"[[cards]]\npartitions = [{partition}]\n")
