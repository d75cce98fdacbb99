"""What happens by itself as time goes by: payments expire, payouts and refunds move on, old things are forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from .project import Project
from .shapes import Wire, parse_iso


def run_due(project: Project, auto_progress: float | None) -> None:
    """Do everything of this project that is due on its clock."""
    project.pay_ins.expire_due()
    if auto_progress is not None:
        wait = timedelta(seconds=auto_progress)
        for move, object_id in list(_due(project, wait, project.clock.now())):
            move(object_id)
    project.webhooks.mark_failing()
    project.prune()


def _due(project: Project, wait: timedelta, now: datetime) -> Iterator[tuple[Callable[[str], Wire], str]]:
    """The next step of each object that has stood still long enough.

    After a long jump of the clock both steps are due: then a created payout succeeds at once, by way of
    processing.
    """
    for payment_id, since in project.pay_ins.processing_since.items():
        if now - parse_iso(since) >= wait:
            yield project.pay_ins.pay, payment_id
    for movers in (project.pay_outs, project.pay_backs):
        for object_id, since in movers.moving_since.items():
            item, stood = movers.items.at_hand(object_id), now - parse_iso(since)
            if item.get("payout_id") is not None or stood < wait:
                continue  # a refund with a payout is moved by it
            done = item["status"] == "processing" or stood >= 2 * wait
            yield movers.succeed if done else movers.process, object_id
