"""The text on which a model with quantised weights is compared with its checkpoint."""

HELD_OUT_TEXT = '''\
The ferry to the island leaves at a quarter past six, when the fishing boats are already out. Most mornings it carries
a postman, two schoolteachers and a van with bread, and on Thursdays the doctor comes along as well. Nobody talks much
before the lighthouse. After that the sea is calmer, someone opens a flask of coffee, and the captain reads the
weather report aloud even though all of them have heard it on the radio. "Wind from the north, four to five, rising
in the afternoon," he says, and the teachers answer, as they always do: "Then we shall be home late again."

def late_departures(departures, tolerance_minutes=5):
    """Returns the departures that left later than planned, the latest first."""
    late = []
    for departure in departures:
        delay = (departure.actual - departure.planned).total_seconds() / 60
        if delay > tolerance_minutes:
            late.append((delay, departure))
    late.sort(key=lambda entry: entry[0], reverse=True)
    return [departure for _, departure in late]


class Timetable:
    def __init__(self, departures):
        self.departures = sorted(departures, key=lambda departure: departure.planned)

    def next_after(self, moment):
        for departure in self.departures:
            if departure.planned >= moment:
                return departure
        return None
'''
