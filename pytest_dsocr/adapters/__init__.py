"""Ways into implementations of others, one file each: a command, a server, a processor, a library.

A module with ``LEVEL``, ``OWN_PROCESS``, ``offers`` and ``subject`` is imported if a subject's name starts with its
word (:mod:`pytest_dsocr.subjects.loading`). The others have a class, which is named like any other subject.
"""
