"""What the vendor does with an image and a prompt, as small pure functions."""
