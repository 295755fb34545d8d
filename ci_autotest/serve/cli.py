"""The command line of ``ci-autotest serve``; it imports only click, so that ``--help`` answers at once."""

from __future__ import annotations

import os
import sys

import click

from ci_autotest.commands.command_options import WholeNumber


@click.command()
@click.option(
    "--port", type=WholeNumber(0, 65_535), default=0, metavar="N", help="Port on loopback. Default: a free one."
)
@click.option(
    "--mcp",
    "mcp_transport",
    type=click.Choice(["stdio", "http"]),
    help="Speak the Model Context Protocol instead (needs ci-autotest[serve]).",
)
@click.option(
    "--jobs", type=WholeNumber(1, 64), metavar="N", help="Requests that run at once. Default: half the cores."
)
def serve(port: int, mcp_transport: str | None, jobs: int | None) -> int:
    """Verify kernels on request, from a process that has torch and sandboxes ready."""
    from ci_autotest.serve.web import serve as serve_requests  # noqa: PLC0415

    return serve_requests(port, mcp_transport, jobs, os.environ, sys.stdout)
