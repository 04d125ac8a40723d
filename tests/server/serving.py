"""A server on a socket, in a thread of the tests' process."""

import threading
import time
from contextlib import contextmanager

import uvicorn


@contextmanager
def serving(app):
    """Serve an application on a free port of this machine; give the address."""
    config = uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.005)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join()
