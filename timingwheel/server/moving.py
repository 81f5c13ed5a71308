"""What a server keeps beside a directory moves with its store: the audit, the tokens."""

from __future__ import annotations

import os
from contextlib import closing
from typing import Final

from timingwheel.server.audit import KEPT_MAX, AuditFilter
from timingwheel.server.audit_database import AuditTable
from timingwheel.server.audit_file import FILE_NAME, AuditFile
from timingwheel.server.token_database import TokenTable
from timingwheel.server.tokens import DIRECTORY, TokenFile
from wal.filesystem import FileSystem

_PAGE: Final = 500
_ALL: Final = AuditFilter(None, None, None, None, None, None, None)


def move_books(directory: str, where: str) -> None:
    """Copy the audit and the tokens of a directory's server into a database.

    It may be called again: tokens that are there stay, and an audit that has come is left.
    """
    place = os.path.join(directory, DIRECTORY)
    tokens = TokenTable(where)
    with closing(tokens):
        for token in TokenFile(FileSystem(place)).read():
            tokens.add(token)
    files = FileSystem(place)
    if not files.exists() or FILE_NAME not in files.names():
        return
    source, target = AuditFile(place), AuditTable(where)
    with closing(source), closing(target):
        source.open()
        target.open()
        if not target.read(_ALL, 1):
            entries = source.read(_ALL, KEPT_MAX)[::-1]
            for first in range(0, len(entries), _PAGE):
                target.write(entries[first : first + _PAGE], kept_max=KEPT_MAX)
