"""``python -m harness``."""

import sys

try:
    from harness.cli import main
except ModuleNotFoundError as error:
    if (error.name or "harness").partition(".")[0] in ("harness", "suites"):
        raise
    sys.exit(
        f"{sys.executable}: lacks {error.name}; expected at least typer, rich, pydantic, psutil and PyYAML (named "
        "yaml). Install what is missing with pip, or type make commands, which make an environment of their own"
    )

if __name__ == "__main__":
    sys.exit(main())
