"""Ten seconds of mixed_attack.py."""

import harness
import mixed_attack


class MixedAttack(mixed_attack.MixedAttack):
    seconds = 10


if __name__ == "__main__":
    harness.main()
