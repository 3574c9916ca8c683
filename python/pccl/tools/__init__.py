"""Programs for people: ``python -m pccl top`` and ``python -m pccl demo``."""
