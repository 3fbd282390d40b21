"""How examples are generated: with all the time they need, for the machine is often busy with other tests.

Where CI is set they are the same in every run, so that a change is judged by what it changed; everywhere else they
are new ones, and that is where faults are found.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "house", deadline=None, derandomize="CI" in os.environ, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("house")
