"""Objects in the order they came, and the cursor lists over them ("List endpoints")."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .errors import ApiError, UnknownObjectError
from .shapes import Wire

DEFAULT_LIMIT = 25
MAX_LIMIT = 100


class Collection:
    """Wire objects by id, oldest first. The oldest can be dropped; a page costs no more than what it passes over."""

    def __init__(self) -> None:
        self._items: dict[str, Wire] = {}
        self._order: list[str] = []
        self._position: dict[str, int] = {}
        self._dropped = 0

    def add(self, item: Wire) -> None:
        """Put an object at the newest end."""
        self._position[item["id"]] = self._dropped + len(self._order)
        self._order.append(item["id"])
        self._items[item["id"]] = item

    def get(self, object_id: str) -> Wire | None:
        """The live object, or None."""
        return self._items.get(object_id)

    def at_hand(self, object_id: str) -> Wire:
        """The live object for the controls; raises UnknownObjectError."""
        if object_id not in self._items:
            raise UnknownObjectError(f"there is no {object_id!r} in the sandbox")
        return self._items[object_id]

    def fetch(self, object_id: str) -> Wire:
        """The live object for the API; raises resource_not_found."""
        if object_id not in self._items:
            raise ApiError("resource_not_found", f"There is no object with the id {object_id!r}.")
        return self._items[object_id]

    def remove(self, object_id: str) -> None:
        """Forget an object wherever it stands (small collections only)."""
        del self._items[object_id]
        self._order.remove(object_id)
        self._position = {key: self._dropped + index for index, key in enumerate(self._order)}

    def drop_oldest_while(self, condition: Callable[[Wire], bool]) -> int:
        """Forget objects from the oldest end for as long as the condition holds; returns how many."""
        count = 0
        while count < len(self._order) and condition(self._items[self._order[count]]):
            count += 1
        for object_id in self._order[:count]:
            del self._items[object_id]
            del self._position[object_id]
        del self._order[:count]
        self._dropped += count
        return count

    def page(self, limit: int, starting_after: str | None, wanted: Callable[[Wire], bool]) -> Wire:
        """``{object: list, has_more, data}`` newest first. An unknown cursor is resource_not_found."""
        index = len(self._order)
        if starting_after is not None:
            if starting_after not in self._position:
                raise ApiError("resource_not_found", "There is no such object to start after.", param="starting_after")
            index = self._position[starting_after] - self._dropped
        data: list[Wire] = []
        while index > 0:
            index -= 1
            item = self._items[self._order[index]]
            if wanted(item):
                if len(data) == limit:
                    return {"object": "list", "has_more": True, "data": data}
                data.append(item)
        return {"object": "list", "has_more": False, "data": data}

    def __iter__(self) -> Iterator[Wire]:
        return (self._items[object_id] for object_id in self._order)

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, object_id: object) -> bool:
        return object_id in self._items
