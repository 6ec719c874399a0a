"""The audit against emulated devices: each wrong one is told from the identified machine, and named."""

from __future__ import annotations

import numpy as np
import pytest
from certhead.conformance.audit.adder import Measured, measure
from certhead.conformance.audit.audit import Finding, find_order, refute
from certhead.conformance.audit.distributions import ChainTask
from certhead.conformance.audit.emulated import HOPPER, WRONG, Device
from certhead.conformance.audit.record import Verdict
from certhead.conformance.audit.tree import Order, lca_counts
from certhead.conformance.audit.tree_sum import Partials

ROWS, COLUMNS, POSITIONS = 256, 96, 16
NAMED = {
    "24 fraction bits": "F = 24; groups of 16, increasing k",
    "groups of 8": "F = 25; groups of 8, increasing k",
    "rounds to nearest": "F = 25; groups of 16, increasing k; rounding RNE",
    "normalised products": "groups of 16, increasing k; products normalised first",
    "decreasing k": "groups of 16, decreasing k",
    "split-K in BF16": "K split every 48, each part in groups of 16; parts kept in BF16",
    "split-K in turn in BF16": "K split every 48, each part in groups of 16; parts kept in BF16 in turn",
    "order depends on M": "K split every 48, each part in groups of 16; parts kept in FP32",
    "flushes subnormal inputs": "groups of 16, increasing k; subnormal inputs read as zero",
}
TASKS = [
    ChainTask(name, seed, 32, POSITIONS, COLUMNS)
    for name in ("paired_cut", "cut", "near_emin", "normal", "cancelling", "geometric", "overflow")
    for seed in (3, 4, 5)
]


def investigate(device: Device, positions: int = POSITIONS) -> Finding:
    finding = Finding(device.product(ROWS, COLUMNS, positions))
    order = find_order(finding)
    assert order is not None
    finding.adder = measure(finding.product, order)
    return finding


def assumed_hopper(device: Device) -> Finding:
    """A finding that takes the device for the identified machine."""
    finding = Finding(device.product(32, COLUMNS, POSITIONS))
    finding.order = Order("groups of 16, increasing k", 16, HOPPER.tree(COLUMNS, POSITIONS))
    finding.adder = Measured(HOPPER.adder, (), 0, 0)
    return finding


@pytest.mark.parametrize("device", [HOPPER, *WRONG], ids=lambda device: device.name)
def test_order_and_adder_are_found_from_outside(device: Device) -> None:
    finding = investigate(device)
    assert finding.order is not None
    assert finding.adder is not None
    assert (lca_counts(finding.order.tree) == lca_counts(device.tree(COLUMNS, POSITIONS))).all()
    assert finding.adder.unexplained == 0
    found = finding.adder.adder
    assert found is not None
    assert found.fraction_bits == device.adder.fraction_bits
    assert found.partials == device.adder.partials
    for parameter in finding.adder.parameters:
        if parameter.measured and hasattr(device.adder.rules, parameter.name):
            assert parameter.remaining == (getattr(device.adder.rules, parameter.name),)
    if device is not HOPPER:
        assert NAMED[device.name] in finding.model


def test_the_names_tell_all_devices_apart() -> None:
    assert set(NAMED) == {device.name for device in WRONG}
    assert "fused steps with F = 25; groups of 16, increasing k" not in NAMED.values()
    assert len(set(NAMED.values())) == len(WRONG)


def test_the_order_of_one_device_depends_on_m() -> None:
    (device,) = (device for device in WRONG if device.name == "order depends on M")
    few, many = investigate(device, 4), investigate(device, 16)
    assert few.model == investigate(HOPPER, 4).model
    assert few.model != many.model


@pytest.mark.parametrize("device", WRONG, ids=lambda device: device.name)
def test_every_wrong_device_is_refuted_with_a_minimal_counterexample(device: Device) -> None:
    finding = assumed_hopper(device)
    refute(finding, TASKS)
    assert finding.mismatches > 0
    example = finding.counterexample
    assert example is not None
    assert example["product"] != example["machine"]
    columns = example["columns"]
    assert 1 <= len(columns) <= 33
    h, w = np.zeros((POSITIONS, COLUMNS), np.uint16), np.zeros((1, COLUMNS), np.uint16)
    h[example["position"], columns] = [int(x, 16) for x in example["h"]]
    w[0, columns] = [int(x, 16) for x in example["w"]]
    got = finding.product(h, w)[example["position"], 0]
    assert f"{int(got):#x}" == example["product"]


def test_the_right_device_is_not_refuted() -> None:
    finding = assumed_hopper(HOPPER)
    refute(finding, TASKS)
    assert finding.mismatches == 0
    assert finding.enclosure.outside == 0
    assert finding.dot_products == len(TASKS) * 32 * POSITIONS


@pytest.mark.parametrize("partials", ["split-K in BF16", "split-K in turn in BF16"])
def test_partials_in_bf16_break_even_the_any_order_bound(partials: str) -> None:
    (device,) = (device for device in WRONG if device.name == partials)
    assert device.adder.partials in (Partials.BF16, Partials.BF16_IN_TURN)
    finding = assumed_hopper(device)
    refute(finding, TASKS)
    assert finding.enclosure.outside > 0
    assert finding.verdict is Verdict.REFUTED


def test_fp32_partials_stay_inside_the_any_order_bound() -> None:
    (device,) = (device for device in WRONG if device.name == "order depends on M")
    finding = assumed_hopper(device)
    refute(finding, TASKS)
    assert finding.enclosure.outside == 0
    assert finding.verdict is Verdict.ENCLOSED
