"""The least that serves given bytes over TLS with aiohttp on uvloop: one route, one response, no bounds, no checks.

``python minimal_server.py PATH BODY_FILE CERT_DIR`` prints its port. Runs without our packages.
"""

import asyncio
import ssl
import sys
from pathlib import Path

import uvloop
from aiohttp import web


async def main(path: str, body: bytes, cert_dir: Path) -> None:
    """Serve for ever."""

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    app = web.Application()
    app.router.add_get(path, answer)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert_dir / "tls.crt", cert_dir / "tls.key")
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    print(runner.addresses[0][1], flush=True)  # noqa: T201 - a program; this is its result
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], Path(sys.argv[2]).read_bytes(), Path(sys.argv[3])))
