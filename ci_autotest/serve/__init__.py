"""A service that has torch imported and sandboxes prepared: it verifies kernels on request, over HTTP or MCP."""
