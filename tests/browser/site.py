"""The site under test: Django's live server with static files, in threads of this process."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from django.conf import settings
from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.signals import got_request_exception
from django.test import override_settings
from django.test.testcases import LiveServerThread

SESSION = "django.contrib.sessions.middleware.SessionMiddleware"
LOCALE = "django.middleware.locale.LocaleMiddleware"
FRAMES = "django.middleware.clickjacking.XFrameOptionsMiddleware"
COUNTING = "tests.browser.middleware.counting"
STRICT = "tests.browser.middleware.strict_policy"


def _middleware(strict: bool, first: Sequence[str]) -> list[str]:
    """The middleware of the test settings, with languages and a request counter."""
    usual = list(settings.MIDDLEWARE)
    after = usual.index(SESSION) + 1
    return [COUNTING, *first, *([STRICT] if strict else []), *usual[:after], LOCALE, *usual[after:], FRAMES]


@contextmanager
def serving(*, strict: bool = True, first: Sequence[str] = ()) -> Iterator[str]:
    """The URL of a running site, with a strict policy or without. Middleware, with ``first`` before the usual one, is
    loaded when it starts.
    """
    with override_settings(MIDDLEWARE=_middleware(strict, first)):
        thread = LiveServerThread("127.0.0.1", StaticFilesHandler, connections_override={})
        thread.daemon = True
        thread.start()
        thread.is_ready.wait(30)
        if thread.error:
            raise thread.error
    try:
        yield f"http://127.0.0.1:{thread.port}"
    finally:
        thread.terminate()


@contextmanager
def bugs() -> Iterator[list[str]]:
    """Collects unhandled exceptions, because with DEBUG off the browser sees only a status 500."""
    found: list[str] = []

    def note(sender: object, **kwargs: object) -> None:
        found.append(traceback.format_exc())

    got_request_exception.connect(note, weak=False)
    try:
        yield found
    finally:
        got_request_exception.disconnect(note)
