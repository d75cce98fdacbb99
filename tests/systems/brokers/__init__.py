"""Real brokers, real workers, real processes: Redis and RabbitMQ, started here and gone afterwards."""
