"""A job that outlives the program that made it.

# test: run
"""

import tempfile

from timingwheel import Scheduler

directory = tempfile.TemporaryDirectory()
app = Scheduler(directory.name)


@app.task
def remind(customer: str, n: int = 1) -> str:
    return f"{customer} was reminded, {n}"


# The first life of the program: three jobs, of which one is due at once.
with app:
    first = app.schedule(remind.call("Ada"), 0)
    later = app.schedule(remind.call("Ada", n=2), "1d")
    never = app.schedule(remind.call("Grace"), "1d")
    print(app.run(first).result(timeout=10))

    assert app.cancel(never)  # true: it will not run, whatever happens
    assert not app.cancel(never)  # false: this call prevented nothing
    assert not app.cancel(first)  # false: it has run

# The second life. What was to come is still there, and nobody had to write it down.
with app:
    assert [job.id for job in app.jobs(state="active")] == [later]
    assert app.run(first).get().state == "succeeded"
    print(app.explain(later))

directory.cleanup()
