"""The page of metrics under gunicorn with two workers, and the figures of a Celery worker with two processes."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

from tests.systems.monitoring.conftest import MANY, REFUSED, Site, dispatched, fetch, total


def test_the_page_adds_up_the_processes_of_site_and_worker(site: Site) -> None:
    for _ in range(4):  # whichever process answers
        text = site.scrape()
        assert total(text, "payments_deliveries_total", account="default", source="webhook", receipt="new") == MANY
        assert total(text, "payments_deliveries_refused_total", reason="signature") == REFUSED
        assert total(text, "payments_receipt_to_applied_seconds_count", source="webhook") == MANY
        assert dispatched(text) == MANY
        assert total(text, "payments_up") == 1
        assert total(text, "payments_backlog_events") == 0
        assert text.count("# TYPE payments_deliveries_total counter") == 1


def test_several_processes_have_counted(site: Site) -> None:
    """Otherwise the sums above would prove nothing."""
    folder = Path(site.processes.folder) / "metrics"
    writers = {int(match[1]) for path in folder.glob("*.db") if (match := re.search(r"_(\d+)\.db$", path.name))}
    assert set(site.gunicorn.children()) & writers
    assert set(site.worker.children()) & writers
    assert len(writers) >= 3


def test_the_worker_serves_its_figures_without_those_of_the_database(site: Site) -> None:
    text = site.scrape_worker()
    assert dispatched(text) == MANY
    assert "payments_up" not in text


def test_what_an_ended_process_counted_stays(site: Site) -> None:
    before = site.gunicorn.children()
    os.kill(before[0], signal.SIGTERM)
    site.processes.wait(
        "gunicorn to start another worker",
        lambda: len(site.gunicorn.children()) == 2 and before[0] not in site.gunicorn.children(),
    )
    assert total(site.scrape(), "payments_deliveries_total", receipt="new") == MANY
    assert "child_exit" not in site.gunicorn.output(), "the hook raises nothing"


def test_the_page_is_not_public(site: Site) -> None:
    status, text = fetch(f"http://127.0.0.1:{site.port}/metrics", {})
    assert status == 401
    assert "payments_up" not in text
