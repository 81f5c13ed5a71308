"""The JobStore on PostgreSQL: many nodes, one truth."""

from timingwheel.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
