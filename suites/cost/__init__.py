"""Whether the subject computes what the model needs, and no more: its FLOPs, counted by torch, equal to the arithmetic.

FLOPs do not depend on a machine, so no baseline is needed. By stage (L2), by module where it shows them (L3). Nothing
is timed, but every grid and preset is read once: ``dsocr compare`` leaves this suite out, see ``docs/performance.md``.
"""
