"""Eight seconds of a crowd of two hundred."""

import crowd
import harness


class Crowd(crowd.Crowd):
    seconds = 8
    clients = 200
    samples = 2


if __name__ == "__main__":
    harness.main()
