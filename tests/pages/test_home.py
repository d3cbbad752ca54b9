"""The front page speaks of what `make sweep` measures, whatever else was run later."""

from __future__ import annotations

from collections.abc import Callable

from harness.pages import home
from harness.pages.gathered import Shown


def test_the_main_suite_speaks_for_its_machine(show: Callable[..., Shown]) -> None:
    """A later run of another suite does not take the main one's place; a machine without it shows what it has."""
    main, later = show(suites=("loader",)), show(suites=("storage",), run_id="20270102T030405Z-fake")
    other = show(suites=("storage",), run_id="20270102T030406Z-fake", cores=8)
    assert main.machine_id == later.machine_id != other.machine_id
    assert home.leading([other, later, main]) == [other, main]
    opening = home.opening([later, main])
    assert opening is not None
    assert opening[0] is main


def test_calibration_alone_is_no_machines_number(show: Callable[..., Shown]) -> None:
    """What asks about feedrate says nothing of a machine."""
    assert home.leading([show(suites=("calibration",), plants=True)]) == []
