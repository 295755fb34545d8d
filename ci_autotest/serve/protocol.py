"""The service over the Model Context Protocol, by the protocol's own package: for programs that write kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from ci_autotest.errors import UnavailableError
from ci_autotest.serve.service import RequestError
from ci_autotest.version import VERSION

try:
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
except ImportError as missing:
    _MESSAGE = "the Model Context Protocol needs its package. Install it: pip install 'ci-autotest[serve]'"
    raise UnavailableError(_MESSAGE) from missing

if TYPE_CHECKING:
    from collections.abc import Callable

    from ci_autotest.serve.service import Service


def serve_protocol(service: Service, transport: str, port: int) -> None:
    """Answer requests until the other side is gone.

    Args:
        service: Answers the requests.
        transport: ``stdio`` or ``http``.
        port: Port on loopback for ``http``.
    """
    server = protocol_server(service)
    if transport == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=port or 8000)


def protocol_server(service: Service) -> MCPServer:
    """Return a server with the tools of the service."""
    server = MCPServer("ci-autotest", version=VERSION)

    @server.tool()
    async def verify(  # noqa: PLR0913 - one parameter a field
        reference: str = "",
        candidate: str = "",
        reference_text: str = "",
        candidate_text: str = "",
        name: str = "",
        *,
        forward_only: bool = False,
        public: bool = False,
        budget: str = "60s",
    ) -> dict[str, Any]:
        """Judge a kernel by its reference, in a sandbox, on hidden cases.

        Give both as files (FILE or FILE:NAME) or as texts. The reference has get_inputs(), which returns a list of
        example inputs. The answer has verdict (accepted, rejected or undecided), reason, and the smallest failing
        program in finding.program.
        """
        fields = {
            "reference": reference, "candidate": candidate, "reference_text": reference_text,
            "candidate_text": candidate_text, "name": name, "forward_only": forward_only, "public": public,
            "budget": budget,
        }  # fmt: skip
        return await _answered(service.verify, fields)

    @server.tool()
    async def replay(finding: str) -> dict[str, Any]:
        """Run the program of a finding again: the folder of a report, such as autotest-report/findings/softmax-3f2a."""
        return await _answered(service.replay, {"finding": finding})

    @server.tool()
    async def explain(finding: str) -> dict[str, Any]:
        """Return a finding as a bug report: the smallest program, its data, and what differs."""
        return await _answered(service.explain, {"finding": finding})

    return server


async def _answered(answer: Callable[[object], dict[str, Any]], fields: dict[str, Any]) -> dict[str, Any]:
    try:
        return await anyio.to_thread.run_sync(answer, fields)
    except RequestError as error:
        raise ToolError(str(error)) from None
