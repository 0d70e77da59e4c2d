"""Cases, and what one implementation did with a case: observations, answers, steps, levels, and their storage."""
