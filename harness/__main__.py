"""``python -m harness``."""

import sys

from harness import installed
from harness.errors import EnvironmentFault

_MEASURES_HERE = sys.argv[1:2] == ["gpu-reference"]
"""Whether the Python that is there is the one to measure with."""
_OTHERWISE = (
    "name another Python (PYTHON=): this command makes no environment of its own"
    if _MEASURES_HERE
    else "type make commands, which make an environment of their own"
)

try:
    if _MEASURES_HERE:  # before anything is imported that may be missing or too old
        installed.check(installed.to_measure(), _OTHERWISE)
    from harness.cli import main
except EnvironmentFault as fault:
    sys.stderr.write(f"feedrate: {fault}\n")
    sys.exit(fault.exit_status)
except ImportError as error:
    if (error.name or "").partition(".")[0] in ("harness", "suites"):
        raise
    sys.stderr.write(f"feedrate: {installed.fault(error, _OTHERWISE)}\n")
    sys.exit(EnvironmentFault.exit_status)

if __name__ == "__main__":
    sys.exit(main())
