"""What every room may use: errors, wording, exact types, threads, files written whole. Uses no other room."""
