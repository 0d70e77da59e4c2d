"""Times and counts: pages read in rounds, judged stage by stage against another side or a baseline.

``probe`` has the code that runs in the subject's process. Nothing here prints, and nothing judges the text.
"""
