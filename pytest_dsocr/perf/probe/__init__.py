"""What runs in the process of the implementation that is measured, which may hold another version of this package.

So nothing in here imports anything of ``pytest_dsocr`` but ``pytest_dsocr.perf.probe``, except what loads a subject.
"""
