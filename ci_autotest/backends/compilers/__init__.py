"""Candidates that compile bodies: ``torch.compile``, ONNX with ONNX Runtime, and exporters or runtimes of users."""
