"""What stands on a row's page besides its fields."""

from __future__ import annotations

from typing import ClassVar

#: What a page with charts loads, in this order.
SCRIPTS = ("payments_integration/vendor/chart.js/chart.umd.min.js", "payments_integration/overview.js")
STYLES = ("payments_integration/overview.css",)


class Section:
    """Something under the fields. Its template is given it as ``section``."""

    __slots__ = ()

    template: ClassVar[str]
