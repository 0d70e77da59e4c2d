"""What every room may use, and which uses none of them: errors, words, exact types, threads, whole files."""
