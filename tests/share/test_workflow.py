"""The workflows: they can be read, type what people type, and may do no more than they must."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from feedrate.schema.plugins import ROOT

FILES = {path.stem: path for path in (ROOT / ".github" / "workflows").glob("*.yml")}
WORKFLOWS = {name: yaml.safe_load(path.read_text(encoding="utf-8")) for name, path in FILES.items()}


def steps(name: str) -> list[dict[str, Any]]:
    return [step for job in WORKFLOWS[name]["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_types_what_people_type(name: str) -> None:
    """Every command is a target of the Makefile, or a command of feedrate; every action is an official one."""
    targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    commands = [step["run"] for step in steps(name) if "run" in step]
    assert commands
    asking = ("feedrate validate", "git diff")
    assert all(
        command.removeprefix("make ") in targets or any(map(command.__contains__, asking)) for command in commands
    )
    actions = [step["uses"] for step in steps(name) if "uses" in step]
    assert all(re.fullmatch(r"actions/[a-z-]+@v\d+", action) for action in actions)


def test_the_website_is_published_with_the_least_rights() -> None:
    """Building may read the repository and where its pages will be; the job that publishes may write pages."""
    workflow = WORKFLOWS["pages"]
    assert workflow["permissions"] == {"contents": "read"}
    assert {name: job.get("permissions") for name, job in workflow["jobs"].items()} == {
        "build": {"contents": "read", "pages": "read"},
        "publish": {"pages": "write", "id-token": "write"},
    }
    assert workflow["jobs"]["publish"]["needs"] == "build"
    used = {step["uses"].partition("@")[0]: step.get("with", {}) for step in steps("pages") if "uses" in step}
    assert used["actions/upload-pages-artifact"]["path"] == "build/site"
    assert used["actions/setup-python"]["python-version"] == "3.11"


def test_strangers_meet_no_secret_and_no_code_of_their_own() -> None:
    """The event gives no secret, the token reads, and the code is the base branch's."""
    workflow = WORKFLOWS["submission"]
    assert workflow[True] == {"pull_request": {"paths": ["results/**"]}}  # YAML 1.1 reads `on` as true
    assert workflow["permissions"] == {"contents": "read"}
    (job,) = workflow["jobs"].values()
    assert not {"permissions", "environment", "secrets", "services", "container"} & set(job)
    assert "secrets." not in FILES["submission"].read_text(encoding="utf-8")
    code, data, *_ = job["steps"]
    assert code["with"] == {"ref": "${{ github.event.pull_request.base.sha }}", "persist-credentials": False}
    assert data["with"].items() >= {"path": "proposed", "fetch-depth": 2, "persist-credentials": False}.items()
    assert "${{" not in job["steps"][-1]["run"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "printed"),
    [
        ("add", "valid    results/"),
        ("move", "0 valid, 3 refused."),
        ("outside", "outside results/"),
        ("link", "results/ holds a link"),
    ],
)
def test_the_runs_of_a_pull_request_are_validated(
    fake_run: ModuleType, tmp_path: Path, change: str, printed: str
) -> None:
    """A new run passes; one that is removed, lies elsewhere, is a link or named like a command does not.

    Nor does one beside which other files change.
    """
    root = tmp_path / "proposed"

    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True)

    def run(number: int) -> Path:
        fake = fake_run.Fake(run_id=f"2026010{number}T030405Z-fake", blocks=1, batches=(8,), fails="none")
        return Path(fake_run.write(root / "results", fake))

    first, gone = run(1), run(3)
    (root / "json.py").write_text("raise SystemExit")  # what a stranger calls like a module is not imported
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "base")
    second = run(2)
    if change == "move":
        shutil.rmtree(gone)
        second.rename(second.with_name("$(touch owned);\ntouch <b>owned"))
        shutil.copytree(first, root / "results" / "other-1c-00000000" / first.name)
    elif change == "link":
        shutil.rmtree(second)
        second.symlink_to(first)
    elif change == "outside":
        (root / "harness\n.py").write_text("")
    git("add", "-A")
    git("commit", "-qm", "proposed")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    command = tmp_path / ".venv" / "bin" / "feedrate"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m feedrate "$@"\n')
    command.chmod(0o755)
    typed = "\n".join(step["run"] for step in steps("submission")[-2:])
    step = ["bash", "-eo", "pipefail", "-c", typed]
    done = subprocess.run(step, check=False, cwd=root, capture_output=True, text=True)
    assert (done.returncode == 0) is (change == "add"), done.stdout + done.stderr
    assert printed in done.stdout
    assert not (root / "owned").exists()
