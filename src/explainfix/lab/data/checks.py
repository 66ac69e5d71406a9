"""What the options of datasets have to satisfy."""


def check_share(name: str, share: float) -> None:
    if not 0 <= share < 1:
        raise ValueError(f"{name} must be from 0 to below 1, not {share!r}")


def check_least(least: int, **options: int | None) -> None:
    """An error for an option, unless it is `None`, that is less than `least`."""
    for name, value in options.items():
        if value is not None and value < least:
            raise ValueError(f"{name} must be at least {least}, not {value!r}")
