"""Each entry of the runbook on a site that is broken as it says: its screens, its commands, its remedy."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from django.core.management import get_commands

from payments_integration.signals import Reason
from tests.integration.runbook.drills import DRILLS
from tests.integration.runbook.page import PAGE, entries
from tests.integration.runbook.site import Site

ENTRIES = entries()
#: A problem of the process, not of an account: it has a drill of its own.
NO_DATABASE = Reason.DATABASE


@pytest.fixture
def site(db: None, woken: list[str]) -> Iterator[Site]:
    """A site on its third day, on which all is well."""
    with ExitStack() as stack:
        site = Site(stack)
        site.sell()
        site.run("payments_process --all")
        site.live(minutes=2 * 24 * 60, every=2 * 24 * 60)
        assert site.run("payments_health") == (0, site.run("payments_health")[1])
        site.typed.clear()
        yield site


def codes(output: str) -> set[str]:
    return set(re.findall(r"^  ([a-z_]+): ", output, re.MULTILINE)) - {"waiting"}


@pytest.mark.any_database
@pytest.mark.parametrize("code", DRILLS)
def test_following_an_entry_solves_its_problem(code: str, site: Site) -> None:
    entry, steps = ENTRIES[code], DRILLS[code](site)
    next(steps)
    ended, shown = site.run("payments_health --explain")
    assert ended == 1
    assert entry.shows(shown), shown
    assert codes(shown) == {code} | entry.others(), shown
    for command in entry.commands("More"):
        site.run(command)
    if "Admin" in entry.lines:
        (name,) = (name for name in ("technical state", "to-do list") if name in entry.lines["Admin"])
        screen = html.unescape(re.sub(r"<[^>]+>", " ", site.screen(name)))
        for words in entry.quoted("Admin"):
            assert words in " ".join(screen.split()), words
    assert next(steps, None) is None
    ended, shown = site.run("payments_health")
    assert (ended, codes(shown)) == (0, set()), shown
    for words in re.findall(r"`([^`]+)`", entry.lines.get("Solved", "")):
        assert words in re.sub(r"\bwhk_\w+", "whk_…", shown), (words, shown)
    assert entry.commands("More", "Do") <= site.typed


@pytest.mark.any_database
def test_a_database_without_tables_is_migrated(tmp_path: Path) -> None:
    entry = ENTRIES[NO_DATABASE]
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "example_project.settings",
        "DATABASE_URL": f"sqlite:///{tmp_path / 'empty.sqlite3'}",
    }
    ran: set[str] = set()

    def run(command: str) -> tuple[int, str]:
        ran.add(command)
        words = [sys.executable, "-W", "error", "manage.py", *command.split()]
        ended = subprocess.run(
            words, cwd=PAGE.parents[1], env=environment, capture_output=True, text=True, check=False, timeout=120
        )
        return ended.returncode, ended.stdout

    ended, shown = run("payments_health --explain")
    assert ended == 1
    assert entry.shows(shown), shown
    for command in entry.commands("More") - {"payments_health --explain"}:
        assert run(command)[0] != 0
    run("migrate")
    assert NO_DATABASE not in codes(run("payments_health")[1])
    assert entry.commands("More", "Do") <= ran


def test_every_code_has_an_entry_and_a_drill() -> None:
    assert sorted(ENTRIES) == sorted(Reason)
    assert sorted([*DRILLS, NO_DATABASE]) == sorted(code for code in ENTRIES if ENTRIES[code].screen)


@pytest.mark.parametrize("code", ENTRIES)
def test_an_entry_has_every_line_and_its_commands_exist(code: str) -> None:
    entry = ENTRIES[code]
    assert "Do" in entry.lines
    assert set(entry.lines) <= {"Comes with", "Admin", "More", "Do", "Solved"}
    named = {command.split()[0] for command in re.findall(r"`(?:python manage\.py )?(payments_\w+)", entry.text)}
    assert named <= set(get_commands())
