"""The session in the place of the vendor's code, where neither a recording nor the vendor's files are at hand.

Its process is a worker like the vendor's.
"""
