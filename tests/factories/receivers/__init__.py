"""An app with a table in which test receivers record their calls, in the transaction of the dispatch."""
