"""The command line's commands, a module each: ``run(options)`` yields what to tell the user, line by line."""
