"""Tables that fit a terminal."""

from devicemanager.programs.columns import columns


def test_a_table_that_fits_is_left_alone() -> None:
    assert columns(["A", "B"], [["1", "2"]], 5, drop=["B"]) == columns(["A", "B"], [["1", "2"]])
    assert columns(["A", "B"], [["1", "2"]], 4, drop=["B"]) == "A  B\n1  2"
    assert columns(["A", "B"], [["1", "2"]], 3, drop=["B"]) == "A\n1"


def test_what_is_shortened_stays_recognisable() -> None:
    assert columns(["A"], [["unhealthy (why)"]], 1, shorten=["A"]) == "A\nunhealthy…"


def test_what_may_be_dropped_last_is_shortened_first() -> None:
    rows = [["a long name that goes on", "figure"]]
    assert columns(["NAME", "B"], rows, 20, shorten=["NAME"], drop_last=["NAME"]) == (
        "NAME          B\na long name…  figure"
    )
    assert columns(["NAME", "B"], rows, 17, shorten=["NAME"], drop_last=["NAME"]) == "B\nfigure"


def test_a_cell_can_neither_break_its_line_nor_move_the_cursor() -> None:
    assert columns(["ID"], [["GPU-\n\x1b[31m"]]) == "ID\nGPU-��[31m"
