"""The session against the vendor's real ``infer`` at full size, on a GPU: parity, and times taken in turn."""
