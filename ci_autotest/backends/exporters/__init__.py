"""What makes a callable of an exported body: functions of the user, and ONNX with ONNX Runtime."""
