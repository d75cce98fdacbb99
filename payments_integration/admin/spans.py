"""Lengths of time as people say them, in their language."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.timesince import timesince
from django.utils.translation import gettext as _

from payments_integration.admin import display

#: From here on seconds say nothing.
_SECONDS = 120.0


def span(seconds: float | None) -> str:
    """``12 s``, ``3 hours``; a dash where there is none."""
    if seconds is None:
        return display.EMPTY
    if abs(seconds) < _SECONDS:
        return _("%(seconds)d s") % {"seconds": round(seconds)}
    now = timezone.now()
    return timesince(now - timedelta(seconds=abs(seconds)), now, depth=1)


def since(at: datetime | None) -> str:
    """How long ago that was."""
    return span(None if at is None else max(0.0, (timezone.now() - at).total_seconds()))
