"""The collector for all vendors, with a made-up vendor: devices, identities, handles, strikes and drivers.

Ticks are made one by one, each through the lines of a collector process. The last tests are a real process.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from collectors.base import AMBIGUOUS_STRIKES, LibraryCollector
from collectors.process import sample
from devicemanager.errors import CollectorError
from devicemanager.model.accelerator import CollectorState, DeviceKey
from devicemanager.rules import plausibility
from devicemanager.rules.selection import Selection
from tests.standins import acme
from tests.standins.acme import BUSY, FAILED, FORBIDDEN, GONE, NO_DRIVER, NO_SUCH_FIGURE, NOBODY_KNOWS, OK, Script
from tests.standins.child import CollectorChild

FIGURES = ("memory", "memoryUsed", "cores", "temperature", "power")
Reading = dict[str, Any]


class Machine:
    """A collector on the library, in this process."""

    def __init__(self, cards: int = 2) -> None:
        self.script = Script.healthy(cards)
        self.library = acme.Acme(lambda: self.script)
        self.now_s = 0.0
        self.collector = LibraryCollector(acme.AcmeLibrary(self.library), monotonic_s=lambda: self.now_s)
        self.collector.open()

    def tick(self, *, skip: int | None = None) -> list[Reading]:
        """The readings of one sample."""
        written: list[bytes] = []
        selection = Selection() if skip is None else Selection(skip=frozenset({DeviceKey(index=skip)}))
        sample(self.collector, selection, written.append)
        lines = [json.loads(line) for line in b"".join(written).splitlines()]
        return [line["reading"] for line in lines if "reading" in line]

    def ticks(self, times: int) -> list[list[Reading]]:
        return [self.tick() for _ in range(times)]

    def times(self, function: str, index: int | str = "-") -> int:
        """How often a function was called."""
        return self.library.calls.count((function, index))


def figures(reading: Reading) -> dict[str, object]:
    return {name: reading[name] for name in FIGURES}


def absent(reason: str) -> dict[str, object]:
    return dict.fromkeys(FIGURES, reason)


def who(reading: Reading) -> tuple[object, ...]:
    return reading["id"], reading["name"], reading["pci"]


@pytest.fixture
def machine() -> Machine:
    return Machine()


class TestDevices:
    def test_every_figure_is_what_the_library_says(self, machine: Machine) -> None:
        assert machine.tick()[1] == {
            "index": 1,
            "id": "ACME-1",
            "name": "Acme One",
            "pci": "000a:01:00.0",
            "memory": 1 << 30,
            "memoryUsed": 2 << 20,
            "cores": 11,
            "temperature": 41,
            "power": 101_000,
            "powerLimit": "unsupported",
            "clockReductionReasons": "unsupported",
            "unhealthy": None,
            "unread": {},
        }

    def test_handles_are_looked_up_once_and_identities_read_at_every_tick(self, machine: Machine) -> None:
        machine.ticks(5)
        once = {name: machine.times(name, 1) for name in ("handle", "name", "address")}
        assert once == {"handle": 1, "name": 1, "address": 1}
        assert machine.times("uuid", 1) == machine.times("count") == 5
        assert machine.times("init") == 1

    def test_a_tick_announces_what_is_known_without_touching_a_card(self, machine: Machine) -> None:
        assert [card.id for card in machine.collector.cards()] == [None, None]
        machine.tick()
        calls = len(machine.library.calls)
        assert [card.id for card in machine.collector.cards()] == ["ACME-0", "ACME-1"]
        assert machine.library.calls[calls:] == [("count", "-")]

    def test_another_count_may_mean_other_cards(self, machine: Machine) -> None:
        """The card at index 0 is gone, the others moved, and one does not say who it is."""
        machine.tick()
        del machine.script.cards[0]
        machine.script.cards[0].update(uuid="ACME-moved")
        assert [who(reading)[0] for reading in machine.tick()] == ["ACME-moved"]
        assert machine.times("free", 0) == machine.times("free", 1) == 1
        machine.script.cards.append(acme.healthy_card(5))
        machine.script.fail("uuid", 0, BUSY)
        machine.script.fail("address", 0, BUSY)
        readings = machine.tick()
        assert [reading["id"] for reading in readings] == [None, "ACME-5"]
        assert readings[0]["pci"] is None

    def test_more_cards_than_any_node_has_are_not_believed(self, machine: Machine) -> None:
        machine.script.cards = [{}] * 1025
        with pytest.raises(CollectorError, match="failed: acmeCount answered 1025 cards"):
            machine.tick()

    def test_every_handle_is_released_before_the_library_is_closed(self, machine: Machine) -> None:
        machine.tick()
        machine.collector.close()
        assert machine.library.calls[-3:] == [("free", 0), ("free", 1), ("shutdown", "-")]

    def test_a_handle_or_a_library_that_cannot_be_given_back_spoils_nothing(self, machine: Machine) -> None:
        machine.tick()
        machine.script.fail("free", "*", FAILED)
        machine.script.fail("shutdown", "-", FAILED)
        machine.collector.close()
        assert machine.times("shutdown") == 1

    def test_what_is_found_is_said_once_the_library_is_open(self) -> None:
        collector = LibraryCollector(acme.AcmeLibrary(acme.Acme(Script)))
        before = collector.library
        collector.open()
        assert (before, collector.library, collector.library_fault) == (None, "libacme.so", None)


class TestIdentity:
    def test_text_may_be_bytes(self, machine: Machine) -> None:
        machine.script.cards[0].update(uuid=b"ACME-B", name=b"\xf8Acme", address=b"01:02.3")
        assert who(machine.tick()[0]) == ("ACME-B", None, "0000:01:02.3")
        machine.script.cards[0].update(name=b"Acme")
        assert who(machine.tick()[0]) == ("ACME-B", "Acme", "0000:01:02.3")

    @pytest.mark.parametrize("answer", ["", " ", 7, b"\xff\xfe"])
    def test_what_is_no_text_is_no_identity(self, machine: Machine, answer: object) -> None:
        machine.script.cards[0]["uuid"] = answer
        assert machine.tick()[0]["id"] is None

    @pytest.mark.parametrize("readable", ["nothing", "pci"])
    def test_figures_of_another_card_never_have_the_former_cards_identity(
        self, machine: Machine, readable: str
    ) -> None:
        """The count is unchanged, and so is the handle, which was kept."""
        machine.tick()
        machine.script.cards[0].update(name="another", address="99:00.0", draw=77)
        machine.script.fail("uuid", 0, BUSY)
        if readable == "nothing":
            machine.script.fail("address", 0, BUSY)
        reading = machine.tick()[0]
        assert reading["power"] == 77_000
        assert who(reading) == (None, "another", None if readable == "nothing" else "0000:99:00.0")
        machine.script.codes.clear()
        machine.script.cards[0]["uuid"] = "ACME-other"
        assert who(machine.tick()[0]) == ("ACME-other", "another", "0000:99:00.0")
        assert machine.times("handle", 0) == 1

    def test_nothing_is_published_of_another_card_behind_a_kept_handle(self, machine: Machine) -> None:
        """Neither what the former one did not support, nor how often it failed, nor what the vendor noted."""
        machine.script.fail("draw", 0, NO_SUCH_FIGURE)
        machine.script.fail("heat", 0, FAILED)
        machine.ticks(2)
        device = machine.collector._devices[0]
        assert device.kept == {"readings": 2}
        machine.script.cards[0]["uuid"] = "ACME-other"
        machine.script.fail("draw", 0, OK)
        reading = machine.tick()[0]
        assert (reading["power"], reading["temperature"]) == (100_000, "transient_driver_error")
        assert reading["unhealthy"] is None, "the third failure in a row is this card's first"
        assert device.kept == {"readings": 1}

    def test_a_card_without_an_identity_keeps_none(self, machine: Machine) -> None:
        machine.tick()
        machine.script.fail("*", 1, NOBODY_KNOWS)
        machine.script.fail("handle", 1, OK)
        assert [who(ticked[1]) for ticked in machine.ticks(AMBIGUOUS_STRIKES)] == [(None, None, None)] * 3


class TestLostDevices:
    def test_lost_before_the_start(self, machine: Machine) -> None:
        machine.script.fail("handle", 0, GONE)
        first, second = machine.tick()
        assert (figures(first), first["unhealthy"]) == (absent("lost"), "lost: GONE (-6)")
        assert second["unhealthy"] is None

    @pytest.mark.parametrize(
        ("function", "ticks"),
        [("*", 1), ("uuid", 1), ("draw", 1), pytest.param("cracks", 2, id="a check in its turn")],
    )
    def test_lost_while_running_and_back(self, machine: Machine, function: str, ticks: int) -> None:
        machine.tick()
        machine.script.fail(function, 1, GONE)
        machine.script.fail("free", 1, OK)
        first, lost = machine.ticks(ticks)[-1]
        assert (first["unhealthy"], figures(lost)) == (None, absent("lost"))
        assert (who(lost), lost["unhealthy"]) == (("ACME-1", "Acme One", "000a:01:00.0"), "lost: GONE (-6)")
        assert machine.times("free", 1) == 1
        assert [card.id for card in machine.collector.cards()] == ["ACME-0", None], "an index alone means nothing"
        machine.script.codes.clear()
        machine.script.cards[1]["uuid"] = "ACME-replacement"
        back = machine.tick()[1]
        assert (back["id"], back["power"], back["unhealthy"]) == ("ACME-replacement", 101_000, None)

    @pytest.mark.parametrize(
        ("code", "reason", "said"),
        [
            (FORBIDDEN, "permission", "cannot be opened: FORBIDDEN (-2)"),
            (NO_SUCH_FIGURE, "transient_driver_error", "cannot be opened: NO_SUCH_FIGURE (-1)"),
            (FAILED, "transient_driver_error", "cannot be opened: FAILED (-4)"),
        ],
    )
    def test_a_card_that_cannot_be_opened(self, machine: Machine, code: int, reason: str, said: str) -> None:
        """It is not well, says why, and does not flap."""
        machine.script.fail("handle", "*", code)
        for readings in machine.ticks(4):
            assert [(figures(one), one["unhealthy"]) for one in readings] == [(absent(reason), said)] * 2

    @pytest.mark.parametrize("function", ["handle", "*"])
    @pytest.mark.parametrize("cards", [1, 3])
    def test_ambiguous_codes_are_transient_and_then_a_loss(self, function: str, cards: int) -> None:
        machine = Machine(cards)
        machine.script.fail(function, 0, NOBODY_KNOWS)
        powers = [readings[0]["power"] for readings in machine.ticks(AMBIGUOUS_STRIKES + 1)]
        assert powers == ["transient_driver_error"] * (AMBIGUOUS_STRIKES - 1) + ["lost"] * 2
        machine.script.codes.clear()
        assert (machine.tick()[0]["power"], machine.tick()[0]["unhealthy"]) == (100_000, None)
        machine.script.fail(function, 0, NOBODY_KNOWS)
        for name in ("uuid", "name"):
            machine.script.fail(name, 0, NOBODY_KNOWS)
        assert machine.tick()[0]["power"] != "lost", "one answer begins the count anew"

    def test_a_card_with_ambiguous_codes_is_looked_up_again(self, machine: Machine) -> None:
        machine.script.fail("*", 0, NOBODY_KNOWS)
        for name in ("handle", "free", "uuid"):
            machine.script.fail(name, 0, OK)
        machine.ticks(3)
        assert (machine.times("handle", 0), machine.times("free", 0)) == (3, 3)

    def test_strikes_of_one_card_are_not_those_of_another_at_its_index(self, machine: Machine) -> None:
        machine.script.fail("handle", 0, NOBODY_KNOWS)
        machine.ticks(AMBIGUOUS_STRIKES)
        machine.script.cards.append(acme.healthy_card(2))
        assert machine.tick()[0]["power"] == "transient_driver_error"


class TestWithoutFigures:
    @pytest.fixture
    def nothing_but_identity(self, machine: Machine) -> Machine:
        machine.script.cards[1] = {name: machine.script.cards[1][name] for name in ("uuid", "name", "address")}
        return machine

    def test_a_card_that_has_no_figure_by_its_nature_is_well(self, nothing_but_identity: Machine) -> None:
        reading = nothing_but_identity.tick()[1]
        assert (reading["id"], figures(reading)) == ("ACME-1", absent("unsupported"))
        assert (reading["unhealthy"], reading["unread"]) == (None, {"cracks": "unsupported"})

    @pytest.mark.parametrize(
        ("code", "reasons"),
        [
            (FORBIDDEN, ["permission"] * 4),
            (FAILED, ["transient_driver_error"] * 4),
            (NOBODY_KNOWS, ["transient_driver_error"] * 2 + ["lost"] * 2),
        ],
    )
    def test_a_card_that_answers_only_its_identity(self, machine: Machine, code: int, reasons: list[str]) -> None:
        """It is not well, says why, and does not flap."""
        machine.script.fail("*", 1, code)
        for name in ("handle", "free", "uuid", "name", "address"):
            machine.script.fail(name, 1, OK)
        readings = machine.ticks(4)
        assert [figures(one[1]) for one in readings] == [absent(reason) for reason in reasons]
        assert all(f"({code})" in one[1]["unhealthy"] for one in readings)
        assert {one[1]["id"] for one in readings} == {"ACME-1"}
        assert {one[0]["unhealthy"] for one in readings} == {None}

    @pytest.mark.parametrize("identity", ["readable", "unreadable"])
    def test_a_handle_that_leads_nowhere_any_more_is_looked_up_again(self, machine: Machine, identity: str) -> None:
        """Not supported is what libraries say of a stale handle, whether or not it still says whose it is."""
        machine.tick()
        machine.script.fail("*", 1, NO_SUCH_FIGURE)
        for name in ("handle", "free", *(("uuid", "name", "address") if identity == "readable" else ())):
            machine.script.fail(name, 1, OK)
        for times in (1, 2, 3):
            first, dead = machine.tick()
            assert first["unhealthy"] is None
            assert dead["unhealthy"] == "no figure can be read: NO_SUCH_FIGURE (-1)"
            assert figures(dead) == absent("transient_driver_error"), "they were supported a sample ago"
            assert dead["id"] == ("ACME-1" if identity == "readable" else None)
            assert machine.times("handle", 1) == times, "the tick after the one that failed looks it up"
        machine.script.codes.clear()
        assert (machine.tick()[1]["power"], machine.times("handle", 1)) == (101_000, 4)
        assert machine.tick()[1]["unhealthy"] is None
        assert machine.times("handle", 1) == 4

    def test_another_card_in_its_place_may_have_no_figures_by_its_nature(self, machine: Machine) -> None:
        machine.tick()
        machine.script.cards[1] = {"uuid": "ACME-bare", "name": "Acme None", "address": "0000000A:09:00.0"}
        bare = machine.ticks(2)[1][1]
        assert (bare["id"], figures(bare), bare["unhealthy"]) == ("ACME-bare", absent("unsupported"), None)

    def test_how_many_cards_gave_figures_is_bounded(
        self, machine: Machine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(plausibility, "CARDS_LIMIT", 4)
        for number in range(20):
            machine.script.cards[1]["uuid"] = f"ACME-{number}"
            machine.tick()
            assert len(machine.collector._gave_figures) <= 4


class TestDriver:
    @pytest.mark.parametrize(("function", "said"), [("init", "acmeInit"), ("count", "acmeCount")])
    @pytest.mark.parametrize(
        ("code", "state"), [(NO_DRIVER, "driver_not_loaded"), (FORBIDDEN, "no_permission"), (FAILED, "failed")]
    )
    def test_the_library_as_a_whole_fails(self, function: str, said: str, code: int, state: str) -> None:
        script = Script.healthy(1)
        script.fail(function, "-", code)
        collector = LibraryCollector(acme.AcmeLibrary(acme.Acme(lambda: script)))

        def count() -> None:
            collector.open()
            collector.cards()

        with pytest.raises(CollectorError) as caught:
            count()
        assert (caught.value.state, caught.value.detail) == (state, f"{said} answered {acme.CODES.named(code)}")
        assert caught.value.__context__ is None, "an error that is printed may be asked for its text"

    @pytest.mark.parametrize("answering", [(), ("handle",), ("handle", "uuid", "name")])
    def test_the_driver_goes_away_for_every_card(self, machine: Machine, answering: tuple[str, ...]) -> None:
        """Each says so, and none gives a figure, whatever else still answers."""
        machine.script.fail("*", "*", NO_DRIVER)
        for name in answering:
            machine.script.fail(name, "*", OK)
        machine.script.fail("count", "-", OK)
        with pytest.raises(CollectorError) as caught:
            machine.tick()
        assert caught.value.state is CollectorState.DRIVER_NOT_LOADED
        assert "NO_DRIVER (-7)" in caught.value.detail

    @pytest.mark.parametrize("faulty", [(0,), (1,), (2,), (0, 1, 2)])
    def test_one_figure_with_a_driver_code_costs_itself(self, faulty: tuple[int, ...]) -> None:
        """All cards give other figures, so the driver is there, whichever is asked first."""
        machine = Machine(3)
        for index in faulty:
            machine.script.fail("draw", index, NO_DRIVER)
        for index, reading in enumerate(machine.tick()):
            assert (reading["id"], reading["cores"]) == (f"ACME-{index}", 10 + index)
            is_faulty = index in faulty
            assert reading["power"] == ("transient_driver_error" if is_faulty else 100_000 + 1000 * index)
            assert reading["unhealthy"] == ("draw: NO_DRIVER (-7)" if is_faulty else None)
        machine.script.codes.clear()
        assert [reading["unhealthy"] for reading in machine.tick()] == [None] * 3

    @pytest.mark.parametrize("position", [0, 1, 2])
    @pytest.mark.parametrize("function", ["handle", "*"])
    def test_one_card_with_a_driver_code_costs_itself(self, function: str, position: int) -> None:
        """The same of the whole card."""
        machine = Machine(3)
        machine.script.fail(function, position, NO_DRIVER)
        for readings in machine.ticks(2):
            faulty = readings.pop(position)
            assert figures(faulty) == absent("transient_driver_error")
            assert "NO_DRIVER (-7)" in faulty["unhealthy"]
            assert [one["unhealthy"] for one in readings] == [None] * 2

    @pytest.mark.parametrize("skip", [None, 0])
    def test_ambiguous_codes_from_every_card_that_is_read_are_the_drivers(self, skip: int | None) -> None:
        """A card that was not to be touched says nothing for or against."""
        machine = Machine(3)
        for index in range(3):
            if index != skip:
                machine.script.fail("*", index, NOBODY_KNOWS)
        with pytest.raises(CollectorError, match=r"failed: every card answers NOBODY_KNOWS \(-8\)"):
            machine.tick(skip=skip)

    def test_ambiguous_codes_from_all_but_one_are_theirs(self) -> None:
        machine = Machine(3)
        for index in (0, 2):
            machine.script.fail("*", index, NOBODY_KNOWS)
        assert [reading["unhealthy"] is None for reading in machine.tick()] == [False, True, False]


class TestProcess:
    """The same vendor, plugged in from another package, in a real collector process."""

    def test_a_vendor_plugged_in_is_read(self, tmp_path: Path) -> None:
        acme.play(Script.healthy(2), tmp_path)
        with CollectorChild(("acme", "--once"), acme.install(tmp_path)) as child:
            hello = child.line()
            assert hello is not None
            assert (hello["hello"]["manufacturer"], hello["hello"]["libraryName"]) == ("acme", "libacme.so")
            read = child.sample()
            assert child.end() == 0
        assert (read.count, read.readings[1]["id"], read.readings[1]["power"]) == (2, "ACME-1", 101_000)

    def test_a_card_is_lost_and_comes_back(self, tmp_path: Path) -> None:
        script = Script.healthy(2)
        acme.play(script, tmp_path)
        with CollectorChild(("acme", "--period", "0.02"), acme.install(tmp_path)) as child:
            child.sample()
            script.fail("uuid", 1, GONE)
            acme.play(script, tmp_path)
            lost = child.sample_where(lambda sample: sample.readings[1]["power"] == "lost")
            assert lost.readings[0]["power"] == 100_000
            script.codes.clear()
            acme.play(script, tmp_path)
            back = child.sample_where(lambda sample: sample.readings[1]["power"] != "lost")
        assert (back.readings[1]["power"], back.readings[1]["unhealthy"]) == (101_000, None)

    def test_the_process_ends_when_the_driver_goes_away(self, tmp_path: Path) -> None:
        script = Script.healthy(2)
        acme.play(script, tmp_path)
        with CollectorChild(("acme", "--period", "0.02"), acme.install(tmp_path)) as child:
            child.sample()
            script.fail("*", "*", NO_DRIVER)
            acme.play(script, tmp_path)
            state, _, code = child.failure()
        assert (state, code) == ("driver_not_loaded", 72)
