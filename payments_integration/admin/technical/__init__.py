"""Show the technical state of an account: events, backlog, reconciliation and webhook endpoints."""
