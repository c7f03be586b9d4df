"""ONNX operators, one file a family; importing a file registers its operators."""
