"""Describe charts as data. A script draws them, and a table shows the same numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from django.utils import timezone
from django.utils.translation import gettext as _

from payments_integration.admin.shared import display
from payments_integration.validation.text import StrOrPromise


@dataclass(frozen=True, slots=True)
class Series:
    name: StrOrPromise
    #: The values to draw. Amounts are in minor units.
    values: tuple[int | None, ...]
    #: The same values as text, for the tooltips and the table.
    texts: tuple[str, ...]
    #: The number of its colour and pattern, which is the same in every chart.
    look: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart of one of three kinds.

    ``bars`` are vertical, stacked or side by side. ``rows`` are horizontal, with numbers. ``steps`` have a time axis.
    """

    id: str
    title: StrOrPromise
    kind: Literal["bars", "rows", "steps"]
    #: The heading of the table's first column.
    heading: StrOrPromise
    labels: tuple[str, ...]
    series: tuple[Series, ...]
    stacked: bool = False
    #: The number of the values' digits that are decimals.
    decimals: int = 0
    #: A currency, or "%".
    unit: str = ""
    #: For ``steps`` only: the times, in milliseconds since 1970.
    moments: tuple[int, ...] = ()

    @property
    def data(self) -> dict[str, Any]:
        """The JSON for the script."""
        return {
            "kind": self.kind,
            "labels": list(self.labels),
            "series": [
                {
                    "name": str(series.name),
                    "values": list(series.values),
                    "texts": list(series.texts),
                    "look": series.look,
                }
                for series in self.series
            ],
            "stacked": self.stacked,
            "decimals": self.decimals,
            "unit": self.unit,
            "moments": list(self.moments),
            "zone": timezone.get_default_timezone_name(),
        }

    @property
    def data_id(self) -> str:
        return f"{self.id}-data"

    @property
    def description(self) -> str:
        """The text for screen readers."""
        names = ", ".join(str(series.name) for series in self.series)
        return _("Chart: %(title)s. It shows: %(names)s. The table below it has the same numbers.") % {
            "title": self.title,
            "names": names,
        }

    @property
    def rows(self) -> Iterator[tuple[str, list[str]]]:
        """The rows of the table, each with a label and one cell per series."""
        for number, label in enumerate(self.labels):
            yield label, [series.texts[number] or display.EMPTY for series in self.series]
