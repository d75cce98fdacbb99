"""What is kept free of personal data."""

from __future__ import annotations

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from payments_integration.models.history import ObjectRef


class Erasure(ObjectRef):
    """The wish that nothing personal is kept of one object, or of one operation (kind ``operation``).

    Kept for ever, without any personal data: what comes of the object later is stored without it. ``projection``
    looks here before it inserts a row.
    """

    #: The ``object_kind`` of a wish that is about an operation of the ledger.
    OPERATION = "operation"

    requested_at = models.DateTimeField(_("requested at"), default=timezone.now)
    #: Who asked for it.
    actor = models.CharField(_("actor"), max_length=255, default="", blank=True)
    #: Nothing was left of it; null: something open keeps it, or a later pass has yet to make sure.
    done_at = models.DateTimeField(_("done at"), null=True, blank=True)

    class Meta:
        verbose_name = _("erasure")
        verbose_name_plural = _("erasures")
        constraints = [
            models.UniqueConstraint(fields=["account", "object_kind", "object_id"], name="pi_erasure_object")
        ]
        indexes = [models.Index(fields=["done_at", "requested_at"], name="pi_erasure_open")]
