"""Drivers: one implementation each, asked for the bits of a case."""
