"""Prints a profile, for people or as one JSON object, and draws it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from netfold.json_output import envelope, print_json
from netfold_lab.bench.train import pictures, rates, tables
from netfold_lab.bench.train.profile import BASELINE_ALIKE, Outcome, ProfileSettings
from netfold_lab.bench.train.profiles import Profile


def model_name(profile: Profile) -> str:
    """The model and its batch, in a few words."""
    sizes = {
        "mlp": f"{profile.layers} layers of {profile.width} x {profile.width}",
        "resnet50": f"{profile.image} x {profile.image} pixels",
        "face": f"{profile.image} x {profile.image} pixels, {profile.classes} classes",
    }
    return f"{profile.model}, {sizes[profile.model]}, batch {profile.batch}, {profile.workers} workers"


def rate_words(settings: ProfileSettings, outcome: Outcome) -> str:
    """The links' rate, and its reason."""
    if settings.rate_mbit_s:
        return f"links at {settings.rate_mbit_s:g} Mbit/s, as --rate says"
    if settings.match == BASELINE_ALIKE:
        return (
            f"links at {outcome.rate_mbit_s:g} Mbit/s: there the overlapped baseline waits for all-reduces for "
            f"the same fraction of its step as the paper's, {rates.paper_exposed():.0%}"
        )
    whose = "--proportion" if settings.proportion else "the paper's proportion"
    ring_s = settings.wanted_proportion * rates.ring_share(settings.profile.workers) * outcome.compute_alone_s
    return (
        f"links at {outcome.rate_mbit_s:g} Mbit/s: computation takes {outcome.compute_alone_s * 1e3:.0f} ms, and "
        f"a ring of {outcome.gradient_bytes / 1e6:.1f} MB of gradients then {ring_s * 1e3:.0f} ms, which is {whose}"
    )


def parameters(settings: ProfileSettings, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The parameters in the JSON object; lists for several outcomes (a sweep)."""
    told: dict[str, Any] = {
        "rate_mbit_s": [one.rate_mbit_s for one in outcomes],
        "rate_chosen_by": settings.rate_chosen_by,
        "proportion": settings.wanted_proportion,
        "compute_alone_s": [one.compute_alone_s for one in outcomes],
        "size_bytes": outcomes[0].gradient_bytes,
    }
    if len(outcomes) == 1:
        told |= {name: told[name][0] for name in ("rate_mbit_s", "compute_alone_s")}
    return {
        **asdict(settings.profile),
        "repeat": settings.repeat,
        **asdict(settings.network),
        "timeout_s": settings.timeout_s,
        **told,
    }


def show(
    settings: ProfileSettings,
    outcomes: Sequence[Outcome],
    entries: Sequence[dict[str, Any]],
    remarks: Sequence[str],
    out: Path | None,
    as_json: bool,
) -> None:
    """Print the report, and draw the picture if asked."""
    title = model_name(settings.profile)
    sweeps_workers = len(outcomes) > 1
    if as_json:
        print_json(envelope("bench train", {**parameters(settings, outcomes), "remarks": list(remarks)}, list(entries)))
    else:
        console = Console()
        console.print(tables.breakdown(title, entries))
        console.print(tables.cpu(entries))
        for words in (*(rate_words(settings, one) for one in outcomes), *remarks):
            console.print(words, highlight=False)
    if out and sweeps_workers:
        pictures.draw_scaling(entries, out)
    elif out:
        pictures.draw_breakdown(entries, f"{title}\n{outcomes[0].rate_mbit_s:g} Mbit/s a link", out)
