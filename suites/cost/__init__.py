"""FLOPs of the subject, counted by torch and compared with the computed number, by stage (L2) or by module (L3).

FLOPs do not depend on the machine: no baseline is needed, and nothing is timed. As every grid and preset is read once,
``dsocr compare`` leaves this suite out; see ``docs/performance.md``.
"""
