from django.db import models


class ReceiverCall(models.Model):
    """The record of one call of a receiver: it exists only if the dispatch was committed."""

    what = models.CharField(max_length=255)
    object_id = models.CharField(max_length=255)

    def __str__(self) -> str:
        return f"{self.what} {self.object_id}"
