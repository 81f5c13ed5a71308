"""Tokens: what a caller shows, of which the server keeps the hash alone.

A token is 256 random bits, so one round of SHA-256 is as good as a slow hash: nobody can
try them all. It is shown once, when it is made. The book is kept beside the store: a small
file of JSON in its directory (`server/tokens.json`), or a table in its database, where all
servers read it. A running server reads it again every second, so a token that is revoked is
refused a second later.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from abc import abstractmethod
from collections.abc import Iterable
from typing import Final, Protocol

import msgspec

from timingwheel.clock import Clock
from timingwheel.errors import ArgumentError
from timingwheel.server.operations import Role
from wal.filesystem import FileSystem, read_whole, write_new_file

DIRECTORY: Final = "server"
"""Where the book is, below the directory of the store."""
FILE_NAME: Final = "tokens.json"
NAME_CHARS_MAX: Final = 100
REFRESH_NS: Final = 1_000_000_000
_PREFIX: Final = "tw_"
_SECRET_BYTES: Final = 32


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a token.

    Attributes:
        name: who has it; unique, and the actor of what is done with it.
        role: what it may, "read", "operate" or "admin".
        digest: SHA-256 of the token, in hex.
        created_ns: when it was made.
    """

    name: str
    role: str
    digest: str
    created_ns: int

    @property
    def allows(self) -> Role:
        """What it may."""
        return Role[self.role.upper()]


class TokenShelf(Protocol):
    """Where tokens are kept."""

    @abstractmethod
    def read(self) -> tuple[Token, ...]:
        """Return all of them."""

    @abstractmethod
    def add(self, token: Token) -> bool:
        """Keep one more; False if its name is taken."""

    @abstractmethod
    def remove(self, name: str) -> bool:
        """Forget one; False if there is none of that name."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what is open; the next call opens it again."""


class TokenFile(TokenShelf):
    """Tokens in a file; whoever changes it is alone, as a person at a terminal is.

    Args:
        files: the directory; it need not be there.
    """

    def __init__(self, files: FileSystem) -> None:
        self._files = files

    def read(self) -> tuple[Token, ...]:
        """Return all of them as the file has them now."""
        if not self._files.exists() or FILE_NAME not in self._files.names():
            return ()
        body = read_whole(self._files, FILE_NAME)
        return msgspec.json.decode(body, type=tuple[Token, ...])

    def add(self, token: Token) -> bool:
        """Write one more; False if its name is taken."""
        tokens = self.read()
        if any(one.name == token.name for one in tokens):
            return False
        self._write((*tokens, token))
        return True

    def remove(self, name: str) -> bool:
        """Write all but one; False if there is none of that name."""
        tokens = self.read()
        kept = tuple(token for token in tokens if token.name != name)
        if len(kept) == len(tokens):
            return False
        self._write(kept)
        return True

    def close(self) -> None:
        """Nothing is open between two calls."""

    def _write(self, tokens: Iterable[Token]) -> None:
        self._files.make_directory()
        body = msgspec.json.format(msgspec.json.encode(list(tokens)))
        write_new_file(self._files, FILE_NAME, body)


class TokenBook:
    """The tokens of a server. Thread-safe.

    Args:
        shelf: where they are kept.
        clock: how old what was read may be is counted by it.
    """

    def __init__(self, shelf: TokenShelf, clock: Clock) -> None:
        self._shelf = shelf
        self._clock = clock
        self._read_ns: int | None = None
        self._tokens: tuple[Token, ...] = ()

    def tokens(self) -> tuple[Token, ...]:
        """Return all tokens as they are kept now."""
        read_ns = self._clock.monotonic_ns()
        self._tokens, self._read_ns = self._shelf.read(), read_ns
        return self._tokens

    @property
    def is_fresh(self) -> bool:
        """Whether what was read last is new enough; else `find` reads again."""
        read_ns = self._read_ns
        return read_ns is not None and self._clock.monotonic_ns() - read_ns < REFRESH_NS

    def find(self, secret: str) -> Token | None:
        """Return the token that a caller shows; None if it is not known.

        Each is compared in constant time, and all of them are.
        """
        if not self.is_fresh:
            self.tokens()
        digest = digest_of(secret)
        found = None
        for token in self._tokens:
            if hmac.compare_digest(token.digest, digest):
                found = token
        return found

    def add(self, name: str, role: str) -> str:
        """Make a token, and return what its owner is to show: it is told this once.

        Raises:
            ArgumentError: the name is taken or none, or there is no such role.
        """
        if not name.strip() or len(name) > NAME_CHARS_MAX:
            raise ArgumentError(
                "name", name, f"pass a text of 1 to {NAME_CHARS_MAX} characters"
            )
        if role.upper() not in Role.__members__:
            known = ", ".join(f'"{one.name.lower()}"' for one in Role)
            raise ArgumentError("role", role, f"pass one of {known}")
        secret = _PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
        made = Token(
            name=name,
            role=role.lower(),
            digest=digest_of(secret),
            created_ns=self._clock.wall_ns(),
        )
        if not self._shelf.add(made):
            raise ArgumentError("name", name, "it is taken: revoke that token first")
        self.tokens()
        return secret

    def revoke(self, name: str) -> bool:
        """Forget a token; False if there is none of that name."""
        is_removed = self._shelf.remove(name)
        self.tokens()
        return is_removed

    def close(self) -> None:
        """Let go of what is open; whoever asks opens it again. Idempotent."""
        self._shelf.close()


def digest_of(secret: str) -> str:
    """Return what is kept of a token's text."""
    return hashlib.sha256(secret.encode()).hexdigest()
