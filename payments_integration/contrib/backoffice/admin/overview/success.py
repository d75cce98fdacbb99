"""Chart the success by method: the share of ended payments that succeeded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from decimal import Decimal

from django.utils.formats import number_format
from django.utils.translation import gettext as _

from payments_integration.admin.shared import display
from payments_integration.contrib.backoffice.admin.overview.charts import Chart, Series
from payments_integration.contrib.backoffice.admin.overview.statistics import Group
from payments_integration.enums import ENDED_PAYMENT_STATUSES, VAIN_PAYMENT_STATUSES, Country
from payments_integration.money import format_count

#: A charged back payment had succeeded before.
_SUCCEEDED = ENDED_PAYMENT_STATUSES - VAIN_PAYMENT_STATUSES


def success_chart(payments: Iterable[Group]) -> Chart | None:
    """Return the chart, or None if no payment has ended."""
    ended: dict[str, int] = defaultdict(int)
    succeeded: dict[str, int] = defaultdict(int)
    for group in payments:
        ended[group.method] += group.count if group.status in ENDED_PAYMENT_STATUSES else 0
        succeeded[group.method] += group.count if group.status in _SUCCEEDED else 0
    methods = sorted((method for method in ended if ended[method]), key=lambda method: (-ended[method], method))
    if not methods:
        return None
    # Tenths of a percent, rounded half up.
    rates = [(succeeded[method] * 2000 + ended[method]) // (2 * ended[method]) for method in methods]
    return Chart(
        id="pi-methods",
        title=_("Payments that succeeded, of those that have ended, by method"),
        kind="rows",
        heading=_("Method"),
        labels=tuple(_method(code) for code in methods),
        series=(
            Series(
                _("Succeeded"),
                tuple(rates),
                tuple(
                    _("%(rate)s %% (%(succeeded)s of %(ended)s)")
                    % {
                        "rate": number_format(Decimal(rate) / 10, 1),
                        "succeeded": format_count(succeeded[method]),
                        "ended": format_count(ended[method]),
                    }
                    for method, rate in zip(methods, rates, strict=True)
                ),
            ),
        ),
        decimals=1,
        unit="%",
    )


def _method(code: str) -> str:
    """Return a method's name with its country, because several countries have a bank transfer."""
    country = code.partition("_")[0].upper()
    return f"{display.method_name(code)} ({country})" if country in Country.values else display.method_name(code)
