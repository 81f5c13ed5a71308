"""Tokens in the database of a store: all servers of the database know the same ones."""

from __future__ import annotations

from typing import Final

import msgspec
from psycopg.errors import UndefinedTable

from timingwheel.server.tokens import Token, TokenShelf
from timingwheel.stores.postgres.connections import Connections

_READ: Final = "SELECT body FROM timingwheel_access ORDER BY name"
_ADD: Final = """
INSERT INTO timingwheel_access (name, body) VALUES (%s, %s)
ON CONFLICT DO NOTHING RETURNING true
"""
_REMOVE: Final = "DELETE FROM timingwheel_access WHERE name = %s RETURNING true"


class TokenTable(TokenShelf):
    """Tokens in the table `timingwheel_access`. Each call may raise DatabaseAwayError.

    Args:
        where: the database, as the store's; it may have no tables yet.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._connections = Connections(where)

    def read(self) -> tuple[Token, ...]:
        """Return all of them as the table has them now."""
        try:
            rows = self._connections.rows(_READ)
        except UndefinedTable:
            return ()
        return tuple(msgspec.json.decode(body, type=Token) for (body,) in rows)

    def close(self) -> None:
        """Close connections; the next call opens one again."""
        former, self._connections = self._connections, Connections(self._where)
        former.close()

    def add(self, token: Token) -> bool:
        """Insert one; False if its name is taken."""
        values = [token.name, msgspec.json.encode(token)]
        return bool(self._connections.rows(_ADD, values))

    def remove(self, name: str) -> bool:
        """Delete one; False if there is none of that name."""
        return bool(self._connections.rows(_REMOVE, [name]))
