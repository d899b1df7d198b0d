"""What cocotb runs: a stream of DMA between cocotbext-pcie's memory endpoint and root complex."""

import json
import os
import time

import cocotb
from cocotb.triggers import Event
from cocotbext.pcie.core import Device, MemoryEndpoint, RootComplex

COUNT = 1500
"""DMA requests."""
TAGS = 32


@cocotb.test()
async def stream(dut):
    kind, size, folder = json.loads(os.environ["STREAM"])
    root, device = RootComplex(), Device()
    device.append_function(MemoryEndpoint())
    root.make_port().connect(device)
    await root.enumerate()
    function = root.find_device(device.functions[0].pcie_id)
    await function.enable_device()
    await function.set_master()
    memory = root.mem_pool.alloc_region(8192)
    base = memory.get_absolute_address(0)
    left, over, workers = [COUNT], Event(), [TAGS]
    tlps = {"read": 2, "write": 1}[kind]

    async def worker():
        while left[0]:
            left[0] -= 1
            at = base + left[0] * size % 8192
            if kind == "read":
                await device.functions[0].mem_read(at, size)
            else:
                await device.functions[0].mem_write(at, bytes(size))
        workers[0] -= 1
        if not workers[0]:
            over.set()

    began = time.perf_counter()
    for _ in range(TAGS):
        cocotb.start_soon(worker())
    await over.wait()
    with open(os.path.join(folder, "rate.json"), "w") as file:
        json.dump(COUNT * tlps / (time.perf_counter() - began), file)
