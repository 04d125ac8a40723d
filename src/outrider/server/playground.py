"""The playground: a page of plain files in the folder ``page`` beside this module, as a browser takes them.

What a model says is hostile input to a browser. The page inserts it as text, and its content security policy lets
nothing run, load or be reached but what this server itself holds.
"""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

PAGE = Path(__file__).parent / "page"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",  # asks each time whether the file is still the same: an upgrade shows at once
}


async def index(_: Request) -> FileResponse:
    """Return the page."""
    return FileResponse(PAGE / "index.html", headers=HEADERS)


def page_routes() -> list[BaseRoute]:
    """Return the routes of the page: ``/`` and, under ``/page``, the files it asks for. They take no API key."""
    return [Route("/", index), Mount("/page", StaticFiles(directory=PAGE))]
