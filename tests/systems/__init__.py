"""With the other programs of a site: brokers, servers, monitoring, offices, ledgers, outages."""
