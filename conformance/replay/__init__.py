"""Replay verification: did a remote worker run the model that it claims?"""
