"""What the vendor's files hold, where, and whether they have changed.

Files are parsed; only the probe, in the vendor's environment, runs them. A file's pinned hash says only that the file
changed. The hashes of its parts say which stage of the contract is affected, and comments do not count. None of the
vendor's code is kept, only names, line numbers and hashes.
"""
