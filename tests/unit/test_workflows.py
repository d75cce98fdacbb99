"""The forge's workflows run code that this repository names by commit, and may do no more than they need."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

FORGE = Path(__file__).resolve().parents[2] / ".github"
WORKFLOWS = sorted((FORGE / "workflows").glob("*.yml"))
#: The only jobs that may write, and what.
WRITERS = {"publish": {"id-token": "write"}, "announce": {"contents": "write"}, "docs": {"contents": "write"}}


def workflow(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_job_may_only_what_it_names(path: Path) -> None:
    found = workflow(path)
    assert found["permissions"] == {}
    for name, job in found["jobs"].items():
        assert job["permissions"] == WRITERS.get(name, {"contents": "read"}), name
        assert job["timeout-minutes"] <= 120, name
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False, name
            # What someone else may have written is passed as a variable, never into the text of a command.
            assert "${{" not in step.get("run", ""), (name, step)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_by_commit_with_their_version(path: Path) -> None:
    used = re.findall(r"uses: (.*)", path.read_text())
    assert used
    for action in used:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


def test_the_same_action_has_one_commit() -> None:
    used = {action for path in WORKFLOWS for action in re.findall(r"uses: (\S+@\S+)", path.read_text())}
    assert len(used) == len({action.partition("@")[0] for action in used})


def test_pins_and_versions_are_looked_at_every_week() -> None:
    updates = yaml.safe_load((FORGE / "dependabot.yml").read_text())["updates"]
    assert {update["package-ecosystem"] for update in updates} == {"github-actions", "pip"}
    assert {update["schedule"]["interval"] for update in updates} == {"weekly"}
    # YAML reads the key "on" as true.
    triggers: Any = workflow(FORGE / "workflows" / "weekly.yml")
    assert triggers[True]["schedule"] == [{"cron": "23 5 * * 1"}]


def test_a_scheduled_run_warns_and_blocks_nothing() -> None:
    newest = workflow(FORGE / "workflows" / "weekly.yml")["jobs"]["newest"]
    assert newest["continue-on-error"] is True
    assert any("::warning::" in step.get("run", "") and step["if"] == "failure()" for step in newest["steps"])


def test_the_locked_versions_are_those_that_the_project_allows_and_have_hashes() -> None:
    text = (FORGE.parent / ".ci" / "constraints.txt").read_text()
    assert "://" not in text
    entries = re.split(r"\n(?=\S)", text)
    locked: dict[str, list[str]] = {}
    for entry in entries:
        found = re.match(r"([\w.-]+)==(\S+)", entry)
        assert found is not None, entry
        assert "--hash=sha256:" in entry, entry
        locked.setdefault(canonicalize_name(found[1]), []).append(found[2])
    project = tomllib.loads((FORGE.parent / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    for line in (*project["project"]["dependencies"], *extras["all"], *project["dependency-groups"]["dev"]):
        requirement = Requirement(line)
        if requirement.name == project["project"]["name"]:
            continue
        found_versions = locked[canonicalize_name(requirement.name)]
        assert all(requirement.specifier.contains(version) for version in found_versions), requirement


def test_each_change_is_tested_with_the_locked_versions() -> None:
    assert workflow(FORGE / "workflows" / "ci.yml")["jobs"]["fast"]["env"] == {"LOCKED": "1"}
