"""How long a generated example may take: as long as it needs, for the machine is often busy with other tests."""

from hypothesis import settings

settings.register_profile("house", deadline=None)
settings.load_profile("house")
