"""Pages, and what they are made of, that are loaded when the first one is opened.

Django loads the admin's classes wherever the app is installed, also where nobody will ever see a page of it.
"""

from typing import TYPE_CHECKING

from payments_integration import lazy

__all__ = [
    "attention",
    "bulk_refunding",
    "charts",
    "destinations",
    "exporting",
    "money",
    "paying_out",
    "payment_methods",
    "refunding",
    "registering",
    "timeline",
]

if TYPE_CHECKING:
    from payments_integration.admin import (
        attention,
        bulk_refunding,
        charts,
        destinations,
        exporting,
        money,
        paying_out,
        payment_methods,
        refunding,
        registering,
        timeline,
    )
else:
    __getattr__, __dir__ = lazy.exports(__name__, dict.fromkeys(__all__, ()), package="payments_integration.admin")
