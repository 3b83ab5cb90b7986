"""``play``: the playground, in the browser."""

from __future__ import annotations

from typing import Annotated

import typer

from .common import app


@app.command()
def play(
    host: Annotated[
        str, typer.Option(help="The address to listen on; another than this opens the page to the network.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(help="The port; 8421 or the next free one by default, 0 for any.", show_default=False)
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
) -> None:
    """The playground in a browser: draw a world, drag a dial, and watch the policy move."""
    from ..web.serving import serve

    serve(host, port, open_browser=not no_browser)
