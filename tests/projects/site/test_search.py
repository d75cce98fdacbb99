"""What people ask the site's search, and the page that must come first."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.projects.site.built import Site

SEARCH = Path(__file__).parent / "search.js"
QUESTIONS = {
    "customer says paid": "take-a-payment/",
    "unpaid": "orders/",
    "overpaid": "orders/",
    "order paid twice": "orders/",
    "subscriptions": "take-a-payment/",
    "pix on your own page": "take-a-payment/",
    "pse": "take-a-payment/",
    "spei": "take-a-payment/",
    "single-page application jwt": "take-a-payment/",
    "async views": "take-a-payment/",
    "return_url": "checkout/",
    "cors": "rest-api/",
    "react": "rest-api/",
    "typescript": "rest-api/",
    "refund": "operations/",
    "payout": "operations/",
    "second person approves a payout": "operations/",
    "unknown outcome": "operations/",
    "read-only access for finance": "operations/",
    "remove the app": "operate/",
    "webhook does not arrive": "operate/",
    "reconciliation": "operate/",
    "restore a backup": "runbook/",
    "duplicate webhook": "handlers/",
    "gevent": "install/",
    "granian": "install/",
    "uvicorn": "install/",
    "celery beat": "install/",
    "mariadb": "install/",
    "pgbouncer": "deployment/",
    "read replica": "scaling/",
    "grafana dashboard": "monitoring/",
    "health check": "monitoring/",
    "sentry": "monitoring/",
    "custom status page": "checkout/",
    "receipts": "checkout/",
    "export csv": "admin/",
    "erase personal data": "admin/",
    "close the month": "bookkeeping/",
    "power bi role": "reports/",
    "docker sandbox": "sandbox/",
    "go live": "going-live/",
    "django tasks": "reference/",
}


@pytest.fixture(scope="module")
def answers(site: Site) -> dict[str, list[str]]:
    """The pages that the search finds for each question, best first."""
    node = shutil.which("node")
    assert node, "node is not there; on Debian: apt-get install nodejs"
    asked = [*QUESTIONS, "xylophone"]
    run = subprocess.run(
        [node, str(SEARCH), str(site.folder)],
        input=json.dumps(asked), capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    return dict(zip(asked, json.loads(run.stdout), strict=True))


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_page_with_the_answer_comes_first(answers: dict[str, list[str]], question: str) -> None:
    found = [location.partition("#")[0] for location in answers[question]]
    assert found[:1] == [QUESTIONS[question]], found[:4]


def test_a_word_that_no_page_has_finds_nothing(answers: dict[str, list[str]]) -> None:
    assert answers["xylophone"] == []
