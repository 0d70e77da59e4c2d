"""A run in a form that another person can check: the receipt, its Markdown, its check, and the schemas."""
