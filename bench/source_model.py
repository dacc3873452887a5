#!/usr/bin/env python3
"""Which model to take schedules from, as the transfer-tuning thesis chooses (Gibson 2023, Eq. 6.1): the source T with the
largest Σ over classes c of P_c² · √|W_Tc|, where P_c is the class' share of the target's untuned time and W_Tc are T's
kernels of that class. bench/transfer.py compares with it.

usage: bench/source_model.py      compares the ranks with the published ones: Table 6.2's figures, Table 6.3's choices"""
import math
import sys

# Table 6.2: model → class → (kernels, share of untuned time in %).
PUBLISHED = {
    "ResNet50": {"A": (4, 17), "B": (1, 0), "C": (1, 0), "D": (1, 6), "E": (16, 67), "G": (4, 10)},
    "AlexNet": {"B": (3, 0), "D": (1, 6), "E": (5, 14), "H": (2, 80), "I": (1, 0)},
    "VGG-16": {"B": (5, 0), "D": (1, 1), "E": (9, 59), "H": (2, 40), "I": (1, 0)},
    "MobileNetV2": {"A": (7, 15), "C": (1, 0), "D": (1, 24), "J": (8, 32), "K": (5, 15), "L": (10, 14)},
    "EfficientNetB0": {"A": (14, 9), "C": (11, 4), "D": (1, 12), "K": (5, 9), "M": (8, 39), "N": (12, 27), "O": (7, 0)},
    "EfficientNetB4": {"A": (16, 11), "C": (13, 3), "D": (1, 10), "K": (7, 14), "M": (9, 39), "N": (14, 23), "O": (9, 0)},
    "GoogLeNet": {"B": (10, 1), "C": (1, 0), "D": (1, 4), "E": (49, 95)},
    "MnasNet1.0": {"A": (7, 17), "D": (1, 25), "E": (9, 31), "K": (5, 15), "P": (12, 13)},
    "BERT": {"D": (1, 0), "Q": (3, 98), "R": (2, 2), "S": (1, 0), "T": (1, 0), "U": (1, 0), "V": (1, 0)},
    "MobileBERT": {"D": (1, 0), "Q": (4, 97), "R": (2, 3), "S": (1, 0)},
}
# Table 6.3: the first choices.
CHOICES = {
    "ResNet50": ["GoogLeNet", "MnasNet1.0", "VGG-16"],
    "AlexNet": ["VGG-16", "GoogLeNet", "ResNet50"],
    "VGG-16": ["GoogLeNet", "ResNet50", "MnasNet1.0"],
    "MobileNetV2": ["EfficientNetB4", "EfficientNetB0", "MnasNet1.0"],
    "EfficientNetB0": ["EfficientNetB4", "MobileNetV2", "MnasNet1.0"],
    "EfficientNetB4": ["EfficientNetB0", "MobileNetV2", "MnasNet1.0"],
    "GoogLeNet": ["ResNet50", "VGG-16", "MnasNet1.0"],
    "MnasNet1.0": ["GoogLeNet", "ResNet50", "VGG-16"],
    "BERT": ["MobileBERT"],
    "MobileBERT": ["BERT"],
}


def rank(shares, counts):
    """Sources, best first. `shares`: the target's, by class; `counts`: source → class → number of kernels."""
    score = {source: sum(share ** 2 * math.sqrt(of_class.get(name, 0)) for name, share in shares.items())
             for source, of_class in counts.items()}
    return sorted(score, key=lambda source: -score[source])


def main():
    agree = compared = 0
    for target, choices in CHOICES.items():
        shares = {name: share / 100 for name, (_, share) in PUBLISHED[target].items()}
        counts = {source: {name: count for name, (count, _) in classes.items()}
                  for source, classes in PUBLISHED.items() if source != target}
        ours = rank(shares, counts)[:len(choices)]
        compared += len(choices)
        agree += sum(a == b for a, b in zip(ours, choices))
        print(f"{target:15} {', '.join(ours)}{'' if ours == choices else '   published: ' + ', '.join(choices)}")
    print(f"{agree} of {compared} ranks agree with the published ones")
    return 0 if agree == compared else 1


if __name__ == "__main__":
    sys.exit(main())
