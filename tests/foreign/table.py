"""The results as a part of the docs page."""


def summary(rows, sources):
    lines = []
    for source in sources:
        mine = [row for name, row in rows.items() if name.startswith(source + ":")]
        if mine:
            counts = {}
            for row in mine:
                counts[row["status"]] = counts.get(row["status"], 0) + 1
            lines.append(f"{source:14} {len(mine):4} " + ", ".join(f"{n} {k}" for k, n in counts.items()))
    return "\n".join(lines)
