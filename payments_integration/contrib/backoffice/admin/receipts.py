"""Add chips to the list of the receipts by mail. Load it only with the app ``contrib.receipts``."""

from __future__ import annotations

from payments_integration.contrib.backoffice.admin.lists import ChosenAdmin
from payments_integration.contrib.backoffice.admin.menu import Place
from payments_integration.contrib.backoffice.admin.model_admins import instead
from payments_integration.contrib.receipts import admin as receipts
from payments_integration.contrib.receipts.models import ReceiptMail


@instead(ReceiptMail)
class BackOfficeReceiptMailAdmin(ChosenAdmin, receipts.ReceiptMailAdmin):
    """The page of the receipts, with chips above the list."""

    menu_place = Place.TECHNICAL
