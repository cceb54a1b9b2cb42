"""logging: loggers, their handlers and settings."""
