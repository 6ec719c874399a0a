"""The parts of the GPU evidence, run small: what they count, and that they notice.

Without a GPU the kernels are interpreted; the parts are the same code.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from certhead.conformance import device
from certhead.kernels.enclosure import EnclosureCheck
from certhead.kernels.identify import WANTED, Identification
from certhead.kernels.triton_head import TritonPipeline
from rich.console import Console
from safetensors.torch import save_file


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.cuda.is_available():
        monkeypatch.setattr(device, "DEVICE", torch.device("cpu"))
    monkeypatch.setattr(device, "STAGE_BATCHES", (6,))
    monkeypatch.setattr(device, "RACE_BATCHES", (3,))
    monkeypatch.setattr(device, "BATCHES", (1, 3))
    monkeypatch.setattr(device, "REPEATS", 2)


def verdict(monkeypatch: pytest.MonkeyPatch, mismatches: int) -> None:
    def identify(pipeline: TritonPipeline, positions: int) -> Identification:
        return Identification(positions, 1_000_000, mismatches, WANTED, "key")

    monkeypatch.setattr(device, "identify", identify)


def test_stages_are_compared_with_special_states() -> None:
    results = {r["stage"]: r for r in device.compare_stages_of(100, 48)}
    assert {"limbs", "screen", "summary", "select", "decide"} <= set(results)
    assert all(r["compared"] and not r["differing"] for r in results.values())


def test_repeats_give_the_same_bits_and_a_change_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert device.count_races(100, 48)["differing"] == 0
    run, calls = TritonPipeline.run, iter(range(100))

    def racing(self: TritonPipeline, *args: object, **options: object) -> torch.Tensor:
        out = run(self, *args, **options)  # type: ignore[arg-type]
        self.winner[0] += next(calls)
        return out

    monkeypatch.setattr(TritonPipeline, "run", racing)
    assert device.count_races(100, 48)["differing"] > 0


def test_flipped_bits_are_caught() -> None:
    for place, found in device.inject_faults(3, 100, 48).items():
        assert found == {"injected": 3, "caught": 3, "tokens_differing": 0}, place


def test_tokens_are_counted_with_every_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    verdict(monkeypatch, mismatches=0)
    one, three = device.count_tokens(100, 64, None, 2)
    assert (one["M"], one["positions"], three["positions"]) == (
        1,
        2 * one["configurations"],
        6 * three["configurations"],
    )
    assert one["differing"] == three["differing"] == 0
    assert one["exact"] == one["positions"]
    head = tmp_path / "toy.safetensors"
    weight = device.gaussian_head(device.Shape(40, 64), torch.device("cpu"))
    save_file({"weight": weight, "hidden": device.decode_like(weight, 5, 0)}, head)
    assert device.count_tokens(0, 0, head, 2)[0]["head"] == "toy"


def test_a_part_that_dies_is_recorded_and_the_rest_goes_on(tmp_path: Path) -> None:
    def dies(*arguments: object) -> None:
        raise MemoryError("no room")

    found = {"stage": "screen", "compared": 5, "differing": 0, "first": None}
    parts: list[device.Part] = [
        ("tokens", dies, (1, 2)),
        ("tokens", lambda: [{"positions": 7, "differing": 0}], ()),
        ("stages", lambda: [found], ()),
        ("stages", lambda: [found], ()),
        ("races", lambda: {"differing": 0}, ()),
    ]
    record: dict[str, object] = {"failures": [], "shapes": []}
    path = tmp_path / "evidence" / "record.json"
    with ThreadPoolExecutor() as pool:
        device.collect(parts, pool, record, path, Console(quiet=True))
    assert json.loads(path.read_text()) == record
    assert record["failures"] == ["tokens (1, 2): MemoryError: no room"]
    assert record["tokens"] == {"positions": 7, "differing": 0}
    assert record["stages"] == [found | {"compared": 10}]
    assert not device.passed(record)


@pytest.mark.parametrize("outside", [0, 1])
def test_what_is_not_identified_is_enclosed_or_not_served(
    monkeypatch: pytest.MonkeyPatch, outside: int
) -> None:
    verdict(monkeypatch, mismatches=1)
    tried = EnclosureCheck(1, 1_000_000, outside)
    monkeypatch.setattr(device, "check_enclosure", lambda *_: tried)
    (row, _) = device.count_tokens(100, 64, None, 2)
    assert (row["verdict"], row["exact"], row["differing"]) == (
        "not identified" if outside else "enclosed",
        0,
        0,
    )
    assert row["enclosed"] + row["fallback"] == row["positions"] == 2 * row["configurations"]
    assert bool(row["enclosed"]) == (not outside)


@pytest.mark.parametrize(
    "change",
    [
        {"failures": ["tokens: died"]},
        {"stages": [{"stage": "screen", "compared": 5, "differing": 1}]},
        {"races": {"differing": 1}},
        {"races": {}},
        {"tokens": {"positions": 9, "differing": 1}},
        {"faults": {}},
        {"faults": {"codes": {"injected": 2, "caught": 1, "tokens_differing": 0}}},
        {"faults": {"codes": {"injected": 2, "caught": 2, "tokens_differing": 1}}},
    ],
)
def test_a_record_passes_only_if_everything_did(change: dict[str, object]) -> None:
    good: dict[str, object] = {
        "failures": [],
        "stages": [{"stage": "screen", "compared": 5, "differing": 0}],
        "races": {"differing": 0},
        "tokens": {"positions": 9, "differing": 0},
        "faults": {"codes": {"injected": 2, "caught": 2, "tokens_differing": 0}},
    }
    assert device.passed(good)
    assert not device.passed(good | change)
