"""The backend ``onnxruntime``: bodies exported to ONNX by torch's exporter, and run by ONNX Runtime."""
