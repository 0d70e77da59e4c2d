"""What was seen of one case, whoever was asked: cases, observations, answers, steps, levels; and how they travel.

Nothing here asks a side, and nothing judges.
"""
