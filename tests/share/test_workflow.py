"""The workflows: they can be read, type what people type, and may do no more than they must."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from feedrate.schema.plugins import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_types_what_people_type(path: Any) -> None:
    """Every command is a target of the Makefile, and every action an official one of a stated major version."""
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    commands = [step["run"] for step in steps(workflow) if "run" in step]
    assert commands
    assert all(re.fullmatch(r"make ([a-z0-9-]+)", command)[1] in targets for command in commands)  # type: ignore[index]
    actions = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert all(re.fullmatch(r"actions/[a-z-]+@v\d+", action) for action in actions)


def test_the_website_is_published_with_the_least_rights() -> None:
    """Building may read the repository and where its pages will be; the job that publishes may write pages."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "pages.yml").read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    rights = {name: job.get("permissions") for name, job in workflow["jobs"].items()}
    assert rights == {
        "build": {"contents": "read", "pages": "read"},
        "publish": {"pages": "write", "id-token": "write"},
    }
    assert workflow["jobs"]["publish"]["needs"] == "build"
    (upload,) = (step for step in steps(workflow) if "upload-pages-artifact" in step.get("uses", ""))
    assert upload["with"]["path"] == "build/site"
    (python,) = (step for step in steps(workflow) if "setup-python" in step.get("uses", ""))
    assert python["with"]["python-version"] == "3.11"


def test_submissions_are_looked_at_as_data() -> None:
    """Strangers' pull requests meet no secret, no right to write and no code but the base branch's."""
    text = (ROOT / ".github" / "workflows" / "submission.yml").read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    assert workflow[True] == {"pull_request": {"paths": ["results/**"]}}  # YAML 1.1 reads `on` as true
    assert workflow["permissions"] == {"contents": "read"}
    (job,) = workflow["jobs"].values()
    assert not {"permissions", "environment", "secrets", "services", "container"} & set(job)
    spoken = re.sub(r"^ *#.*$", "", text, flags=re.MULTILINE)
    assert "secrets." not in spoken
    assert "pull_request_target" not in spoken
    code, data, python, look = job["steps"]
    assert code["with"] == {"ref": "${{ github.event.pull_request.base.sha }}", "persist-credentials": False}
    assert data["with"] == {
        "path": "proposed",
        "fetch-depth": 2,
        "persist-credentials": False,
        "submodules": False,
        "lfs": False,
    }
    assert python["with"] == {"python-version": "3.11"}
    # Nothing of the event is put into a command: a branch may be named like one.
    assert look == {"run": "make check-submission", "env": {"PROPOSED": data["with"]["path"]}}
