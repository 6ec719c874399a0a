"""The audit: which arithmetic the machine at hand really has, and whether the error models hold there.

A certificate rests on a model of a closed kernel. The audit makes that model something a machine earns:
`tree` and `adder` find out from outside what a matrix product does, `refute` tries hard to break what was
found, `record` holds the verdict, `assumptions` says what all of it rests on.
"""
