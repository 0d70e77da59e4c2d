"""The session in place of the vendor's code, where neither a recording nor the vendor's files are available.

Its process is a worker like the vendor's.
"""
