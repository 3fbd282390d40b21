"""Work in steps has its result at the end, however it is run."""

import pytest

from devicemanager.wire.steps import Steps, at_once


def counting(to: int) -> Steps[int]:
    for _ in range(to):
        yield
    return to


@pytest.mark.parametrize("to", [0, 1, 5])
def test_at_once_it_is_the_result(to: int) -> None:
    assert at_once(counting(to)) == to


def test_what_a_step_raises_comes_out() -> None:
    def failing() -> Steps[None]:
        yield
        raise ValueError("third")

    with pytest.raises(ValueError, match="third"):
        at_once(failing())
