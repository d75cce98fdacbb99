"""The whole demo: processes up, the story, the closing table."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import requests
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command

from example_project.demo import pay_ins, pay_outs
from example_project.demo.closing import Check, checks, events_table, money_table, state_table
from example_project.demo.home import API_KEY, HOST, Home
from example_project.demo.processes import Child, Children
from example_project.demo.provider import Provider
from example_project.demo.stage import Screen, Stage

LOGIN = PASSWORD = "demo"  # noqa: S105  (of a site that lives as long as the demo, on this machine)
#: Not a real person's. Its check digit is valid, which a refund to a bank account requires.
EXAMPLE_RUT = "12.345.678-5"
#: The provider's clock starts this many seconds late, so that a minute can pass in the story.
BEHIND = 61


def start(home: Home, children: Children, screen: Screen) -> Stage:
    """Sandbox, database, worker, beat and site, ready to be used."""
    screen.title("A day of a small shop, with everything that can go wrong")
    manage = [sys.executable, str(settings.BASE_DIR / "manage.py")]
    celery = [sys.executable, "-m", "celery", "-A", "example_project"]
    # Refunds and payouts take their next step after so many seconds.
    sandbox = ["payments_sandbox", "--port", home.sandbox_port, "--api-key", API_KEY, "--auto-progress", "0.5"]
    children.start("sandbox", [*manage, *sandbox])
    call_command("migrate", verbosity=0, interactive=False)
    get_user_model()._default_manager.create_superuser(LOGIN, "demo@example.com", PASSWORD)
    worker = children.start("worker", [*celery, "worker", "--pool", "solo", "--loglevel", "INFO", *_ALONE])
    # --insecure: the site serves its own style sheet, as nothing stands before it.
    site = ["runserver", "--noreload", "--insecure", f"{HOST}:{home.site_port}"]
    children.start("site", [*manage, *site])
    schedule = str(home.folder / "beat-schedule")
    beat = children.start("beat", [*celery, "beat", "--loglevel", "INFO", "--pidfile=", "--schedule", schedule])
    provider = Provider(home.sandbox_url)
    children.wait_until("the sandbox", provider.is_up)
    provider.run_behind(BEHIND)  # before any object with a time exists
    children.wait_until("the site", lambda: _answers(home.site_url))
    children.wait_until("the worker", lambda: _has_logged(worker, "ready."))
    children.wait_until("beat", lambda: _has_logged(beat, "beat: Starting"))
    screen.say(f"sandbox {home.sandbox_url} · site {home.site_url} · a Celery worker · beat")
    return Stage(provider, home.site_url, children, screen)


#: One worker alone does not need to talk to others.
_ALONE = ("--without-gossip", "--without-mingle", "--without-heartbeat")


def play(stage: Stage) -> None:
    """All parts of the story. Raises DemoError if it cannot continue."""
    cast = pay_ins.Cast()
    pay_ins.open_shop(stage)
    pay_ins.buy_in_the_shop(stage, cast)
    pay_ins.webhooks_go_wrong(stage, cast)
    pay_ins.webhooks_never_come(stage, cast)
    pay_ins.expired_then_paid(stage)
    pay_ins.deposit_arrives(stage)
    pay_outs.refunds(stage, cast)
    pay_outs.payout(stage)
    pay_outs.answers_are_lost(stage)
    pay_ins.time_passes(stage, cast)


def close(stage: Stage) -> list[Check]:
    """Compare both sides; print the tables; return the checks that do not hold."""
    stage.wait_until_settled()
    books = stage.provider.books()
    screen = stage.screen
    screen.step("The result")
    screen.table("Events", events_table(books))
    screen.table("Money", money_table())
    screen.table("State", state_table(books))
    screen.line()
    results = checks(books, stage.expected)
    for check in results:
        (screen.good if check.holds else screen.bad)(check.name)
        for problem in _first(check.problems):
            screen.say(f"  {problem}")
    return [check for check in results if not check.holds]


def _first(problems: Sequence[str], shown: int = 10) -> list[str]:
    more = [f"… and {len(problems) - shown} more"] if len(problems) > shown else []
    return [*problems[:shown], *more]


def _answers(url: str) -> bool:
    try:
        with requests.Session() as http:
            http.trust_env = False
            return http.get(url, timeout=2).ok
    except requests.RequestException:
        return False


def _has_logged(child: Child, text: str) -> bool:
    return text in child.log.read_text(errors="replace")
