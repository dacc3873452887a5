"""Random models of one node each: which operators, and what they are given. contributed.py compares them."""
