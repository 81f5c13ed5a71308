"""The scheduler over HTTP; needs `pip install 'timingwheel-engine[server]'`.

`create_app` is an ASGI application, `HttpServer` a process or a thread that serves it.
"""

from timingwheel.server.app import create_app
from timingwheel.server.serving import HttpServer
from timingwheel.server.tokens import TokenBook

__all__ = ["HttpServer", "TokenBook", "create_app"]
