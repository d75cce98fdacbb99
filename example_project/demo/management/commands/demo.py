"""``python manage.py demo``: the whole thing in motion, with everything that can go wrong."""

from __future__ import annotations

import logging
import os
import sys
import time
from typing import Any

from django.core.management.base import CommandError, CommandParser

from example_project.demo import home as homes, story
from example_project.demo.home import Home
from example_project.demo.processes import Children, DemoError, Stopped, raise_on_signals
from example_project.demo.stage import Screen
from payments_integration.management.command import PaymentsCommand


class Command(PaymentsCommand):
    help = (
        "Starts a sandbox of the provider, the shop, a worker and beat, plays a day of a shop with lost, late and "
        "doubled webhooks, and compares the mirror with the provider. Then it leaves the shop open until Ctrl-C."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--once", action="store_true", help="end after the story: exit code 0 if all held")

    def handle(self, *args: Any, **options: Any) -> None:
        home = homes.current()
        if home is None:
            homes.move_in(usual_ports=not options["once"])
            return
        try:
            self._play(home, once=options["once"])
        except BrokenPipeError:
            # The reader is gone, as after ``demo | head``. Python still flushes its output at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)

    def _play(self, home: Home, *, once: bool) -> None:
        """The demo from start to end; nothing of it is left but logs of what went wrong."""
        raise_on_signals()
        # What is printed is the story; the rest goes where the children's output goes.
        logging.basicConfig(filename=home.logs / "story.log", level=logging.INFO, force=True)
        keep_logs = False
        try:
            with Children(home.logs) as children:
                keep_logs = not self._run(home, children, once=once)
        except Stopped as signal:
            if once:
                raise CommandError(f"stopped by {signal}", returncode=130) from None
            self.stdout.write("\nClosed.")
        except DemoError as error:
            keep_logs = True
            raise CommandError(str(error)) from None
        except BrokenPipeError:
            raise
        except BaseException:
            keep_logs = True
            raise
        finally:
            if keep_logs:
                self.stderr.write(f"The logs of all processes are in {home.logs}")
            else:
                home.remove()
        if keep_logs:
            raise CommandError("not everything held; see above")

    def _run(self, home: Home, children: Children, *, once: bool) -> bool:
        """Returns whether everything held."""
        screen = Screen()
        begun = time.monotonic()
        stage = story.start(home, children, screen)
        story.play(stage)
        failed = story.close(stage)
        screen.line(f"\n    {time.monotonic() - begun:.0f} seconds in all.")
        if failed:
            screen.bad("Failed: " + "; ".join(check.name for check in failed))
        if once:
            return not failed
        invite(home, screen)
        while True:
            children.check()
            time.sleep(0.3)


def invite(home: Home, screen: Screen) -> None:
    """The last screen: where everything is."""
    screen.title("\nNow it is your turn: the shop stays open.")
    screen.say(f"Shop      {home.site_url}/   buy something, and pay it on the checkout page")
    screen.say(f"Admin     {home.site_url}/admin/   login {story.LOGIN}, password {story.PASSWORD}")
    screen.say(f"Provider  {home.sandbox_url}/   what the sandbox knows")
    screen.say("A card is refunded to the card. For all other payments the admin asks where the money should go:")
    screen.say(f"in Chile any account number and holder, with a RUT that is valid, such as {story.EXAMPLE_RUT}.")
    screen.say("Ctrl-C closes it.")
