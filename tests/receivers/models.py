from django.db import models


class Told(models.Model):
    """A note that a receiver wrote: it stays only if the telling committed."""

    what = models.CharField(max_length=255)
    object_id = models.CharField(max_length=255)

    def __str__(self) -> str:
        return f"{self.what} {self.object_id}"
