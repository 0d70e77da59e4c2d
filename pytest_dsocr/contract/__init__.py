"""What the vendor does with an image, a prompt and an output, as small pure functions.

No model, no weights, no torch modules.
"""
