"""A schedule as a picture: ranks from top to bottom, steps from left to right, an arrow for each message."""

from __future__ import annotations

from pathlib import Path

from netfold.timeline import SWITCH, Timeline

FORMATS = (".png", ".svg", ".pdf")
COLOURS = {"fold": "#c44e52", "store": "#4c72b0", "send": "#8c8c8c"}


def draw(line: Timeline, title: str, path: Path) -> None:
    """Write the picture to `path`; its suffix is the format (png, svg, pdf).

    Raises:
        OSError: the file cannot be written.
        ValueError: the suffix is not a supported format.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.lines import Line2D

    has_switch = any(SWITCH in (m.sender, m.receiver) for m in line.messages)
    rows = line.world + (1 if has_switch else 0)
    figure, axes = plt.subplots(figsize=(max(5, 1.0 + 0.9 * line.length), max(2.5, 0.45 * rows + 1.2)))
    most = max((m.count for m in line.messages), default=1) or 1
    for message in line.messages:
        sender = line.world if message.sender == SWITCH else message.sender
        receiver = line.world if message.receiver == SWITCH else message.receiver
        axes.annotate(
            "",
            xy=(message.end - 0.08, receiver),
            xytext=(message.start + 0.08, sender),
            arrowprops={
                "arrowstyle": "-|>",
                "color": COLOURS[message.action],
                "linewidth": 0.6 + 2.4 * message.count / most,
                "shrinkA": 0,
                "shrinkB": 0,
                "alpha": 0.85,
            },
        )
    for row in range(rows):
        axes.axhline(row, color="#dddddd", linewidth=0.8, zorder=0)
    axes.set_xlim(0, max(1, line.length))
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_yticks(range(rows), [f"rank {r}" for r in range(line.world)] + (["switch"] if has_switch else []))
    axes.set_xticks(range(line.length + 1))
    axes.set_xlabel("step")
    axes.set_title(title)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    names = {"fold": "received and folded", "store": "received and stored", "send": "sent to the switch"}
    shown = [action for action in names if any(m.action == action for m in line.messages)]
    handles = [Line2D([], [], color=COLOURS[action], linewidth=2, label=names[action]) for action in shown]
    if handles:
        axes.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=len(handles), frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=130, bbox_inches="tight")
    plt.close(figure)
