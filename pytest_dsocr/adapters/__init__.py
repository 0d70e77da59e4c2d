"""Ways into implementations of others, one file each: a command, a server, a processor, a library.

A module with ``LEVEL``, ``OWN_PROCESS``, ``offers`` and ``subject`` is imported when a subject's name begins with its
word (:mod:`pytest_dsocr.subjects.loading`). The others hold a class that is named as any subject is.
"""
