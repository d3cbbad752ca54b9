"""The command ``feedrate``, and ``python -m feedrate``."""

import sys

from feedrate.machine import packages
from feedrate.schema.errors import EnvironmentFault


def run() -> int:
    """Run a command; what is missing from this Python is one line, never a traceback."""
    measures_here = sys.argv[1:2] == ["gpu-reference"]  # the Python that is there is the one to measure with
    otherwise = (
        "name another Python (PYTHON=): this command makes no environment of its own"
        if measures_here
        else "type make commands, which make an environment of their own"
    )
    try:
        if measures_here:  # before anything is imported that may be missing or too old
            packages.check(packages.to_measure(), otherwise)
        from feedrate.cli import main
    except EnvironmentFault as fault:
        sys.stderr.write(f"feedrate: {fault}\n")
        return fault.exit_status
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "feedrate":
            raise
        sys.stderr.write(f"feedrate: {packages.fault(error, otherwise)}\n")
        return EnvironmentFault.exit_status
    try:
        return main()
    except ImportError as error:  # commands import what they need, and no more
        name = (error.name or "").partition(".")[0]
        if name == "feedrate":
            raise
        extra = isinstance(error, ModuleNotFoundError) and name not in packages.COMMAND
        lacking = packages.missing_extra(error) if extra else packages.fault(error, otherwise)
        sys.stderr.write(f"feedrate: {lacking}\n")
        return EnvironmentFault.exit_status


if __name__ == "__main__":
    sys.exit(run())
