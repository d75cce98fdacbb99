"""The accessibility violations that axe-core finds on a page, without those of Django's own admin."""

from __future__ import annotations

from dataclasses import dataclass

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

GRAVE = ("serious", "critical")


@dataclass(frozen=True)
class Django:
    """A violation in Django's own markup, and why it is accepted."""

    rule: str
    #: The end of the selector in axe's report.
    element: str
    why: str


#: Violations in the templates and stylesheets of ``django.contrib.admin``.
DJANGOS = (
    # The label is an image with an alternative text, which screen readers read.
    Django(
        "label-title-only", "#searchbar", "the label of the search box is a picture, and the help text describes it"
    ),
)


def grave(page: Page) -> list[str]:
    """A line for each serious or critical violation in our markup."""
    answer = Axe().run(page).response
    # axe leaves open if a description that is not in the page comes later. None does here.
    dangling = [found for found in answer["incomplete"] if found["id"] == "aria-valid-attr-value"]
    return [
        f"{violation['id']} ({violation['impact']}): {target} {node['html'][:200]} {_reasons(node)}"
        for violation in [*answer["violations"], *dangling]
        if violation["impact"] in GRAVE
        for node in violation["nodes"]
        for target in [" ".join(map(str, node["target"]))]
        if not any(known.rule == violation["id"] and target.endswith(known.element) for known in DJANGOS)
    ]


def _reasons(node: dict[str, list[dict[str, str]]]) -> str:
    return "; ".join(check["message"] for kind in ("any", "all", "none") for check in node.get(kind, []))
