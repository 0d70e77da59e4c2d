"""The vendor's code in a worker process of its own environment: the messages, the worker, and its client.

Nothing here imports the vendor's code itself; the worker loads a runtime by its name.
"""
