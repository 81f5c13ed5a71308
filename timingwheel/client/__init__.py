"""The scheduler by URL; needs `pip install 'timingwheel-engine[client]'`.

with Client("http://127.0.0.1:8765") as app:
    app.add(NamedTask("mail:send").call(to="a@x"), cron="30 2 * * *")
"""

from timingwheel.client.asyncio_client import AsyncClient
from timingwheel.client.client import Client
from timingwheel.client.transport import ServerAwayError, UnansweredError
from timingwheel.scheduler.tasks import NamedTask
from timingwheel.wire.problems import AccessError, RefusedByServerError

__all__ = [
    "AccessError",
    "AsyncClient",
    "Client",
    "NamedTask",
    "RefusedByServerError",
    "ServerAwayError",
    "UnansweredError",
]
