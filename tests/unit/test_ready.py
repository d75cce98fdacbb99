"""A tag is refused while something of the release is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.projects.release import ready

CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n## [1.2.0] - 2026-01-31\n\n- All of it.\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "payments_integration").mkdir()
    (tmp_path / "payments_integration" / "__init__.py").write_text('"""Text."""\n\n__version__ = "1.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    (tmp_path / "pyproject.toml").write_text('Source = "https://forge.example/"\n')
    (tmp_path / "CONTRIBUTING.md").write_text("Placeholders stand on example.org.\n")
    return tmp_path


def test_a_tree_that_is_ready_has_no_problem(project: Path) -> None:
    assert ready.problems("v1.2.0", project) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "problem"),
    [
        ("pyproject.toml", "forge.example", "example.org", "pyproject.toml:1: replace the placeholder example.org"),
        ("CHANGELOG.md", "2026-01-31", "unreleased", "CHANGELOG.md: write the date, as in: ## [1.2.0] - 2026-01-31"),
        ("CHANGELOG.md", "1.2.0", "1.1.0", "CHANGELOG.md: write the date, as in: ## [1.2.0] - 2026-01-31"),
        ("CHANGELOG.md", "Added\n", "Added\n\n- More.\n", "CHANGELOG.md: move the entries under Unreleased to 1.2.0"),
    ],
    ids=["placeholder", "no date", "no version", "unreleased entry"],
)
def test_what_is_left_to_do_is_named(project: Path, file: str, old: str, new: str, problem: str) -> None:
    path = project / file
    path.write_text(path.read_text().replace(old, new))
    assert ready.problems("v1.2.0", project) == [problem]


@pytest.mark.parametrize("tag", ["v1.2.1", "1.2.0", ""])
def test_the_tag_is_v_and_the_version(project: Path, tag: str) -> None:
    [problem] = ready.problems(tag, project)
    assert problem == f"payments_integration/__init__.py: the version is 1.2.0, the tag {tag}"


def test_the_notes_are_the_changelog_of_the_version_with_links_to_its_files(project: Path) -> None:
    (project / "pyproject.toml").write_text('[project.urls]\nSource = "https://forge.example/app"\n')
    text = CHANGELOG.replace(
        "- All of it.", "- All of it: [install](docs/install.md#x), [Django](https://django.example)."
    )
    (project / "CHANGELOG.md").write_text(f"{text}\n## [1.1.0] - 2025-01-31\n\n- Older.\n")
    assert ready.notes("v1.2.0", project) == (
        "- All of it: [install](https://forge.example/app/blob/v1.2.0/docs/install.md#x), "
        "[Django](https://django.example).\n"
    )
    assert ready.notes("v1.1.0", project) == "- Older.\n"
    with pytest.raises(SystemExit, match=r"no section of v1\.2\.1"):
        ready.notes("v1.2.1", project)


def test_contributing_lists_every_file_with_a_placeholder() -> None:
    section = (ready.ROOT / "CONTRIBUTING.md").read_text().partition("\n## Placeholders\n")[2].partition("\n## ")[0]
    listed = set(re.findall(r"`(\w+\.\w+)`|\(([\w.]+)\)", section))
    assert {"".join(names) for names in listed} >= {name for name, _ in ready.placeholders()}
