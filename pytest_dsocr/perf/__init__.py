"""Time, and what makes it: pages read in rounds, judged stage by stage against another side or a baseline.

What runs in the subject's process is in ``probe``. Nothing here prints, and nothing judges what was read.
"""
