"""Checks of arguments, frozen pytrees and row algebra that every other package uses."""
