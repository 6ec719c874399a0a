"""Settings that every test shares."""

from hypothesis import settings

# A busy machine is no reason to fail: examples carry no time limit.
settings.register_profile("certhead", deadline=None)
settings.load_profile("certhead")
