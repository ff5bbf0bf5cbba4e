"""Peak speed and memory of devices, from their vendors' data sheets."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Device:
    """What a plan needs to know of a device."""

    name: str
    """Name for people."""
    memory: float
    """Bytes."""
    float32: float
    """Peak operations a second of Keras' float32, which is TF32 where the device has it."""
    float16: float | None
    """Peak in float16, dense; None = not supported in hardware."""
    bfloat16: float | None
    """Peak in bfloat16, dense; None = not supported in hardware."""
    bandwidth: float
    """GB/s that one device sends in an all-reduce: half of the links' sum of both directions."""
    source: str
    """Where the figures stand."""

    def peak(self, dtype_policy):
        """Operations a second under a Keras dtype policy, or None.

        Example:
            >>> DEVICES["v100-32gb"].peak("mixed_float16") / 1e12
            125.0
        """
        return getattr(self, dtype_policy.removeprefix("mixed_"))

    def policies(self):
        """The dtype policies that the device computes in hardware."""
        names = ("float32", "mixed_float16", "mixed_bfloat16")
        return [name for name in names if self.peak(name)]


_VOLTA = dict(float32=15.7e12, float16=125e12, bfloat16=None, bandwidth=150,
              source="NVIDIA Tesla V100 data sheet (SXM2)")  # fmt: skip
_AMPERE = dict(float32=156e12, float16=312e12, bfloat16=312e12, bandwidth=300,
               source="NVIDIA A100 data sheet (SXM; float32 as TF32)")  # fmt: skip
_HOPPER = dict(float32=494.5e12, float16=989.5e12, bfloat16=989.5e12, bandwidth=450)

DEVICES = {
    "v100-16gb": Device("V100 SXM2 16 GB", 16e9, **_VOLTA),
    "v100-32gb": Device("V100 SXM2 32 GB", 32e9, **_VOLTA),
    "a100-40gb": Device("A100 SXM 40 GB", 40e9, **_AMPERE),
    "a100": Device("A100 SXM 80 GB", 80e9, **_AMPERE),
    "h100": Device(
        "H100 SXM 80 GB",
        80e9,
        source="NVIDIA H100 data sheet (SXM, without sparsity; float32 as TF32)",
        **_HOPPER,
    ),
    "h200": Device(
        "H200 SXM 141 GB",
        141e9,
        source="NVIDIA H200 data sheet (SXM, without sparsity; float32 as TF32)",
        **_HOPPER,
    ),
    "cpu": Device(
        "two AVX2 cores, 16 GB",
        16e9,
        float32=65e9,
        float16=None,
        bfloat16=None,
        bandwidth=1,
        source="no data sheet: matmul rate measured on two cores (58 to 69 GFLOP/s); scale it",
    ),
}
