"""The formulas of speculative decoding: floats in, floats out."""
