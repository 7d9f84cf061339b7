"""The `lakelog` command: it reads arguments, calls the packages below it, and prints what they answer."""
