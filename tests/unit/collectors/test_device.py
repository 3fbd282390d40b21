"""Queries of one device: calls in order of preference, what is remembered of them, and what keeps failing."""

import pytest

from collectors.device import HEALTH_S, HEALTH_TICKS, KEPT_FAILURES, UNSUPPORTED_TICKS
from collectors.query_failures import UNHEALTHY_FAILURES
from devicemanager.model.accelerator import Reason
from tests.standins import acme
from tests.standins.acme import (
    BUSY,
    DAMAGED,
    FAILED,
    FORBIDDEN,
    GONE,
    NAMELESS,
    NO_DRIVER,
    NO_SUCH_FIGURE,
    NOBODY_KNOWS,
    OK,
)
from tests.unit.collectors.test_base import FIGURES, Machine

MIB = 1 << 20


@pytest.fixture
def machine() -> Machine:
    return Machine(1)


class TestOneCall:
    @pytest.mark.parametrize(
        ("code", "reason"),
        [
            (NO_SUCH_FIGURE, "unsupported"),
            (FORBIDDEN, "permission"),
            (BUSY, "transient_driver_error"),
            (FAILED, "transient_driver_error"),
            (DAMAGED, "transient_driver_error"),
            (NO_DRIVER, "transient_driver_error"),
            (NOBODY_KNOWS, "transient_driver_error"),
            (NAMELESS, "transient_driver_error"),
        ],
    )
    def test_a_refusal_costs_one_figure(self, machine: Machine, code: int, reason: str) -> None:
        machine.script.fail("draw", 0, code)
        reading = machine.tick()[0]
        assert reading["power"] == reason
        assert all(isinstance(reading[name], int) for name in FIGURES if name != "power")
        machine.script.codes.clear()
        if code != NO_SUCH_FIGURE:
            assert machine.tick()[0]["power"] == 100_000

    def test_what_is_not_supported_is_asked_for_again_after_a_while(self, machine: Machine) -> None:
        machine.script.fail("draw", 0, NO_SUCH_FIGURE)
        machine.tick()
        machine.script.codes.clear()
        powers = [readings[0]["power"] for readings in machine.ticks(UNSUPPORTED_TICKS)]
        assert powers == ["unsupported"] * (UNSUPPORTED_TICKS - 1) + [100_000]
        assert machine.times("draw", 0) == 2

    def test_a_function_that_a_library_of_another_release_lacks_is_not_supported(self, machine: Machine) -> None:
        machine.script.absent = ["draw", "cracks"]
        for readings in machine.ticks(3):
            assert (readings[0]["power"], readings[0]["unread"]) == ("unsupported", {"cracks": "unsupported"})
            assert (readings[0]["cores"], readings[0]["unhealthy"]) == (10, None)

    def test_an_error_that_is_not_the_librarys_is_the_collectors(
        self, machine: Machine, capfd: pytest.CaptureFixture[str]
    ) -> None:
        machine.script.cards[0]["memory_exact"] = [None, None]
        machine.library.__dict__["draw"] = lambda _: 1 / 0
        reading = machine.tick()[0]
        assert (reading["power"], reading["unhealthy"]) == (
            "transient_driver_error",
            "the collector raised TypeError",
        )
        machine.script.cards[0]["memory_exact"] = [1, 1]
        assert machine.tick()[0]["unhealthy"] == "the collector raised ZeroDivisionError"
        assert "ZeroDivisionError" in capfd.readouterr().err

    def test_a_figure_that_is_left_out_is_not_supported(
        self, machine: Machine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(acme.AcmeLibrary, "figures", lambda *_: {"compute_utilization": 3})
        reading = machine.tick()[0]
        assert [reading[name] for name in FIGURES] == [
            "unsupported",
            "unsupported",
            3,
            "unsupported",
            "unsupported",
        ]


class TestPreferredCalls:
    @pytest.mark.parametrize("code", [NO_SUCH_FIGURE, FORBIDDEN, BUSY, FAILED, NOBODY_KNOWS, NAMELESS])
    def test_any_failure_of_a_preferred_call_leads_to_the_next(self, machine: Machine, code: int) -> None:
        """Unless it says that the card is lost."""
        machine.script.cards[0]["average"] = 77
        assert machine.tick()[0]["cores"] == 77
        machine.script.fail("average", 0, code)
        assert [(one[0]["cores"], one[0]["unhealthy"]) for one in machine.ticks(4)] == [(10, None)] * 4

    def test_a_preferred_call_that_has_no_answer_yet_leads_to_the_next(self, machine: Machine) -> None:
        machine.script.cards[0]["average"] = None
        assert machine.tick()[0]["cores"] == 10
        machine.script.cards[0]["average"] = 77
        assert machine.tick()[0]["cores"] == 77

    def test_a_value_that_says_that_there_is_none_leads_to_the_next(self, machine: Machine) -> None:
        machine.script.cards[0].update(average=Reason.INVALID_DATA)
        assert machine.tick()[0]["cores"] == 10
        machine.script.fail("load", 0, NO_SUCH_FIGURE)
        assert (machine.tick()[0]["cores"], machine.tick()[0]["unhealthy"]) == ("invalid_data", None)

    @pytest.mark.parametrize(
        ("preferred", "plain", "reason"),
        [
            (NO_SUCH_FIGURE, NO_SUCH_FIGURE, "unsupported"),
            (FORBIDDEN, NO_SUCH_FIGURE, "permission"),
            (NO_SUCH_FIGURE, FORBIDDEN, "permission"),
            (FORBIDDEN, FAILED, "transient_driver_error"),
        ],
    )
    def test_the_reason_is_given_where_neither_answers(
        self, machine: Machine, preferred: int, plain: int, reason: str
    ) -> None:
        machine.script.cards[0]["average"] = 77
        machine.script.fail("average", 0, preferred)
        machine.script.fail("load", 0, plain)
        assert machine.tick()[0]["cores"] == reason

    @pytest.mark.parametrize("code", [FORBIDDEN, FAILED, NOBODY_KNOWS])
    def test_calls_of_different_meaning_do_not_alternate(self, machine: Machine, code: int) -> None:
        """The other one is taken when the preferred one keeps failing, and left again when that answers."""
        assert machine.tick()[0]["memoryUsed"] == MIB
        machine.script.fail("memory_exact", 0, code)
        seen = [readings[0]["memoryUsed"] for readings in machine.ticks(KEPT_FAILURES + 1)]
        assert seen == [str(acme.CODES.reason(code))] * (KEPT_FAILURES - 1) + [2 * MIB] * 2
        machine.script.codes.clear()
        assert machine.tick()[0]["memoryUsed"] == MIB

    def test_failures_of_a_preferred_call_that_are_not_in_a_row_do_not_add_up(self, machine: Machine) -> None:
        """One answer in between begins the count anew."""
        machine.tick()
        for _ in range(KEPT_FAILURES):
            machine.script.fail("memory_exact", 0, FAILED)
            assert machine.tick()[0]["memoryUsed"] == "transient_driver_error"
            machine.script.codes.clear()
            assert machine.tick()[0]["memoryUsed"] == MIB

    @pytest.mark.parametrize("code", [FORBIDDEN, NOBODY_KNOWS])
    def test_one_failure_at_the_first_tick_does_not_settle_the_choice(self, machine: Machine, code: int) -> None:
        """Nothing was said before that the other call could contradict."""
        machine.script.fail("memory_exact", 0, code)
        assert machine.tick()[0]["memoryUsed"] == 2 * MIB
        machine.script.codes.clear()
        assert machine.tick()[0]["memoryUsed"] == MIB


class TestQueriesThatFail:
    @pytest.mark.parametrize("code", [FAILED, NOBODY_KNOWS, NAMELESS])
    @pytest.mark.parametrize("query", ["memory", "load", "heat", "draw", "cracks"])
    def test_a_query_that_keeps_failing_makes_a_card_unhealthy_until_it_answers(
        self, machine: Machine, query: str, code: int
    ) -> None:
        """From the third reading in a row on, named with its code; one answer ends it."""
        machine.script.fail(query, 0, code)
        machine.script.fail(f"{query}_exact", 0, code)
        said = [readings[0]["unhealthy"] for readings in machine.ticks(UNHEALTHY_FAILURES + 1)]
        expected = f"{query} keeps failing: {acme.CODES.named(code)}"
        assert said == [None] * (UNHEALTHY_FAILURES - 1) + [expected] * 2
        machine.script.codes.clear()
        assert machine.tick()[0]["unhealthy"] is None

    @pytest.mark.parametrize("code", [NO_SUCH_FIGURE, FORBIDDEN, BUSY])
    def test_what_a_card_in_good_health_says_too_never_counts(self, machine: Machine, code: int) -> None:
        """Not supported, not allowed, or no value at the moment."""
        machine.script.fail("draw", 0, code)
        machine.script.fail("cracks", 0, code)
        readings = machine.ticks(UNHEALTHY_FAILURES + 2)
        assert [one[0]["unhealthy"] for one in readings] == [None] * (UNHEALTHY_FAILURES + 2)

    def test_failures_that_are_not_in_a_row_do_not_add_up(self, machine: Machine) -> None:
        """One answer in between begins the count anew."""
        for _ in range(UNHEALTHY_FAILURES):
            machine.script.fail("draw", 0, FAILED)
            assert machine.tick()[0]["unhealthy"] is None
            machine.script.fail("draw", 0, OK)
            assert machine.tick()[0]["unhealthy"] is None

    def test_a_query_whose_failure_the_vendor_explains_has_not_failed(self, machine: Machine) -> None:
        machine.script.cards[0]["split"] = True
        machine.script.fail("load", 0, FAILED)
        readings = machine.ticks(UNHEALTHY_FAILURES + 1)
        assert {(one[0]["cores"], one[0]["unhealthy"]) for one in readings} == {("partitioned", None)}

    def test_what_is_asked_beside_the_queries_does_not_count(self, machine: Machine) -> None:
        machine.script.fail("load", 0, FORBIDDEN)
        machine.script.fail("split", 0, FAILED)
        readings = machine.ticks(UNHEALTHY_FAILURES + 1)
        assert {(one[0]["cores"], one[0]["unhealthy"]) for one in readings} == {("permission", None)}

    def test_faults_are_listed_checks_first(self, machine: Machine) -> None:
        machine.script.cards[0]["cracks"] = 3
        machine.script.fail("heat", 0, NO_DRIVER)
        machine.script.fail("draw", 0, DAMAGED)
        assert machine.tick()[0]["unhealthy"] == "3 cracks; heat: NO_DRIVER (-7); DAMAGED (-5)"
        machine.script.codes.clear()
        assert machine.tick()[0]["unhealthy"] == "3 cracks"

    def test_an_identity_that_fails_does_not_count(self, machine: Machine) -> None:
        machine.script.fail("name", 0, FAILED)
        readings = machine.ticks(UNHEALTHY_FAILURES + 1)
        assert {one[0]["unhealthy"] for one in readings} == {None}
        assert {one[0]["name"] for one in readings} == {None}


class TestHealthChecks:
    def test_they_are_made_in_every_fourth_tick_and_devices_take_turns(self) -> None:
        machine = Machine(HEALTH_TICKS)
        for _ in range(HEALTH_TICKS):  # whenever the first check was, from here on the turns are regular
            machine.tick()
        machine.library.calls.clear()
        for _ in range(HEALTH_TICKS):
            before = len(machine.library.calls)
            machine.tick()
            made = [call for call in machine.library.calls[before:] if call[0] == "cracks"]
            assert len(made) == 1, "one device at a time"
        assert [machine.times("cracks", index) for index in range(HEALTH_TICKS)] == [1] * HEALTH_TICKS

    def test_what_they_found_is_kept_in_between(self, machine: Machine) -> None:
        machine.script.cards[0]["cracks"] = 3
        assert machine.tick()[0]["unhealthy"] == "3 cracks"
        machine.script.cards[0]["cracks"] = 0
        said = [readings[0]["unhealthy"] for readings in machine.ticks(HEALTH_TICKS)]
        assert said == ["3 cracks"] * (said.index(None)) + [None] * (HEALTH_TICKS - said.index(None))
        assert 0 < said.index(None) < HEALTH_TICKS

    @pytest.mark.parametrize("code", [FAILED, BUSY, NO_DRIVER, DAMAGED, NOBODY_KNOWS])
    def test_one_that_could_not_be_read_is_made_again_at_the_next_tick(self, machine: Machine, code: int) -> None:
        machine.script.fail("cracks", 0, code)
        machine.ticks(3)
        assert machine.times("cracks", 0) == 3
        machine.script.fail("cracks", 0, OK)
        assert machine.tick()[0]["unread"] == {}
        before = machine.times("cracks", 0)
        machine.ticks(HEALTH_TICKS)
        assert machine.times("cracks", 0) == before + 1

    def test_they_are_made_more_often_where_ticks_are_far_apart(self, machine: Machine) -> None:
        for _ in range(3):
            machine.tick()
            machine.now_s += HEALTH_S
        assert machine.times("cracks", 0) == 3

    def test_they_are_made_at_once_of_another_device(self, machine: Machine) -> None:
        machine.script.cards[0]["cracks"] = 3
        machine.ticks(HEALTH_TICKS + 1)
        machine.script.cards[0].update(uuid="ACME-other", cracks=0)
        assert machine.tick()[0]["unhealthy"] is None

    def test_none_is_believed_of_a_device_that_was_lost(self, machine: Machine) -> None:
        machine.script.cards[0]["cracks"] = 3
        machine.tick()
        machine.script.fail("draw", 0, GONE)
        assert machine.tick()[0]["unhealthy"] == "lost: GONE (-6)"
        machine.script.cards[0]["cracks"] = 0
        machine.script.codes.clear()
        assert machine.tick()[0]["unhealthy"] is None
