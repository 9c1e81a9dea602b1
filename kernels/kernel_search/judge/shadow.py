"""Shadow memory: what the programs of a launch may touch, what they did touch, and in which order it could not matter.

Addresses are uint64 arrays of active lanes. A *region* is the storage behind a tensor that was passed to a kernel; its
shadow has one cell per element. Within one launch, programs run in no promised order, so a cell that one program
stores and another loads or stores is a race.
"""

from dataclasses import dataclass, field

import numpy as np
import torch

from kernel_search.judge.candidate import CandidateFault

SECTOR_BITS = 5  # memory moves in sectors of 32 bytes
SECTOR_SAMPLES = 24  # accesses per program whose sectors are counted exactly; the rest is scaled by bytes
LOCKING = frozenset({"xchg", "cas"})


@dataclass
class Region:
    """One storage: its extent, and per element who stored and loaded it in this launch (-1: nobody)."""

    low: int
    high: int
    element_bytes: int
    role: str
    is_input: bool
    has_cells: bool
    stored: np.ndarray | None = None
    writer: np.ndarray | None = None
    reader: np.ndarray | None = None
    atomic: np.ndarray | None = None

    def __post_init__(self) -> None:
        cells = -(-(self.high - self.low) // self.element_bytes)
        if self.is_input or not self.has_cells:
            return
        self.stored = np.zeros(cells, bool)
        self.writer = np.full(cells, -1, np.int32)
        self.reader = np.full(cells, -1, np.int32)
        self.atomic = np.zeros(cells, bool)


def distinct(values: np.ndarray) -> np.ndarray:
    """The distinct values in order; most accesses are in order already, and np.unique would hash them all."""
    if (values[1:] < values[:-1]).any():
        values = np.sort(values)
    return values[np.concatenate([np.ones(min(values.size, 1), bool), values[1:] != values[:-1]])]


@dataclass
class Traffic:
    """What one program moved and computed; sectors are scaled up from the accesses counted exactly.

    `vector_flops` are those of `flops` that no matrix unit can do.
    """

    load_bytes: int = 0
    store_bytes: int = 0
    load_sectors: float = 0.0
    store_sectors: float = 0.0
    atomics: int = 0
    flops: int = 0
    vector_flops: int = 0
    operations: int = 0
    counted: dict[str, list[int]] = field(default_factory=lambda: {"load": [0, 0, 0], "store": [0, 0, 0]})

    def add_access(self, kind: str, addresses: np.ndarray, size: int) -> None:
        """Count one load or store."""
        exact = self.counted[kind]
        if exact[0] < SECTOR_SAMPLES:
            exact[0] += 1
            exact[1] += distinct(addresses >> np.uint64(SECTOR_BITS)).size
            exact[2] += addresses.size * size
        if kind == "load":
            self.load_bytes += addresses.size * size
        else:
            self.store_bytes += addresses.size * size

    def finish(self) -> None:
        """Scale sectors to all bytes."""
        for kind in ("load", "store"):
            _, sectors, bytes_counted = self.counted[kind]
            total = self.load_bytes if kind == "load" else self.store_bytes
            if bytes_counted:
                setattr(self, f"{kind}_sectors", sectors * total / bytes_counted)


@dataclass
class Touched:
    """Roles of the memory that one launch loaded, stored and updated by atomics, and how many programs were stopped."""

    loads: set[str] = field(default_factory=set)
    stores: set[str] = field(default_factory=set)
    updates: set[str] = field(default_factory=set)
    stopped: int = 0


class Memory:
    """The shadow of one call of `run`.

    With `has_cells` every element has a cell; without (the scored shape, gigabytes of cells) each program's stores are
    kept as a list instead, and races are looked for among those.
    """

    def __init__(self, inputs: list[torch.Tensor], *, has_cells: bool):
        self.has_cells = has_cells
        self.regions: dict[int, Region] = {}
        self.extents: list[tuple[int, int, Region]] = []
        self.program = 0
        self.uses_atomics = False
        self.program_stores: list[tuple[int, int, Region, np.ndarray]] = []
        self.touched: list[Touched] = []
        self._locks_of: dict[int, set[int]] = {}
        self._inputs = {tensor.untyped_storage().data_ptr() for tensor in inputs}

    def begin_launch(self, tensors: list[tuple[str, torch.Tensor]]) -> None:
        """Admit the tensors of this launch, and forget who touched what in the one before: a launch waits for it."""
        self.extents = []
        self.touched.append(Touched())
        self._locks_of = {}
        for role, tensor in tensors:
            storage = tensor.untyped_storage()
            low = storage.data_ptr()
            if storage.nbytes() == 0:
                continue
            if low not in self.regions:
                self.regions[low] = Region(
                    low, low + storage.nbytes(), tensor.element_size(), role, low in self._inputs, self.has_cells
                )
            span = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True)) + 1
            if tensor.numel():
                start = tensor.data_ptr()
                self.extents.append((start, start + span * tensor.element_size(), self.regions[low]))
        self.extents.sort(key=lambda extent: extent[:2])
        for region in self.regions.values():
            for cells in (region.writer, region.reader):
                if cells is not None:
                    cells.fill(-1)
            if region.atomic is not None:
                region.atomic.fill(False)

    def _split(self, addresses: np.ndarray, size: int, kind: str) -> list[tuple[Region, np.ndarray]]:
        """Addresses by region; every lane must lie inside a tensor of this launch."""
        low, high = int(addresses.min()), int(addresses.max()) + size
        for start, end, region in self.extents:
            if start <= low and high <= end:
                return [(region, addresses)]
        parts: list[tuple[Region, np.ndarray]] = []
        rest = addresses
        for start, end, region in self.extents:
            inside = (rest >= np.uint64(start)) & (rest + np.uint64(size) <= np.uint64(end))
            if inside.any():
                parts.append((region, rest[inside]))
                rest = rest[~inside]
        if rest.size:
            raise CandidateFault(
                "out_of_bounds",
                f"program {self.program} {kind}s {rest.size} of {addresses.size} lanes outside its tensors",
            )
        return parts

    @staticmethod
    def _cells(region: Region, addresses: np.ndarray, size: int) -> np.ndarray:
        cells = ((addresses - np.uint64(region.low)) // np.uint64(region.element_bytes)).astype(np.int64)
        wide = size // region.element_bytes
        return cells if wide <= 1 else (cells[:, None] + np.arange(wide)).ravel()

    def _race(self, region: Region, others: np.ndarray, what: str) -> None:
        """Two programs meet: a race, unless this one has taken a lock that the other took as well."""
        mine = self._locks_of.get(self.program, set())
        for other in np.unique(others).tolist():
            if not mine & self._locks_of.get(other, set()):
                raise CandidateFault(
                    "race", f"program {self.program} {what} elements of {region.role} that program {other} touches too"
                )

    def load(self, addresses: np.ndarray, size: int) -> None:
        """Check a load of active lanes."""
        for region, part in self._split(addresses, size, "load"):
            self.touched[-1].loads.add(region.role)
            if region.writer is None or region.reader is None:
                continue
            cells = self._cells(region, part, size)
            writers = region.writer[cells]
            foreign = (writers != -1) & (writers != self.program)
            if foreign.any():
                self._race(region, writers[foreign], "loads")
            region.reader[cells] = self.program

    def store(self, addresses: np.ndarray, size: int, values: np.ndarray | None) -> None:
        """Check a store of active lanes; `values` are the lanes' values, None where they cannot be compared."""
        if values is not None and addresses.size > 1:
            self._check_doubles(addresses, values)
        for region, part in self._split(addresses, size, "store"):
            self._refuse_input(region)
            self.touched[-1].stores.add(region.role)
            if region.writer is None or region.reader is None or region.stored is None or region.atomic is None:
                self.program_stores.append((len(self.touched) - 1, self.program, region, part))
                continue
            cells = self._cells(region, part, size)
            for owners in (region.writer[cells], region.reader[cells]):
                foreign = (owners != -1) & (owners != self.program)
                if foreign.any():
                    self._race(region, owners[foreign], "stores")
            updated = region.atomic[cells]
            if updated.any() and not self._locks_of.get(self.program, set()).issuperset(part[updated].tolist()):
                raise CandidateFault(
                    "race", f"program {self.program} stores elements of {region.role} that are updated by atomics too"
                )  # the store that gives back a lock is none
            region.writer[cells] = self.program
            region.stored[cells] = True

    def atomic(self, addresses: np.ndarray, size: int, operation: str) -> None:
        """Check an atomic: allowed against other atomics, a race against plain accesses of other programs."""
        self.uses_atomics = True
        if operation in LOCKING:
            self._locks_of.setdefault(self.program, set()).update(addresses.tolist())
        for region, part in self._split(addresses, size, "atomic update"):
            self._refuse_input(region)
            self.touched[-1].updates.add(region.role)
            if region.writer is None or region.stored is None or region.atomic is None:
                self.program_stores.append((len(self.touched) - 1, self.program, region, part))
                continue
            cells = self._cells(region, part, size)
            writers = region.writer[cells]
            foreign = (writers != -1) & (writers != self.program) & ~region.atomic[cells]
            if foreign.any():
                self._race(region, writers[foreign], "updates")
            region.atomic[cells] = True
            region.stored[cells] = True

    def _check_doubles(self, addresses: np.ndarray, values: np.ndarray) -> None:
        order = np.argsort(addresses, kind="stable")
        ordered = addresses[order]
        same = ordered[1:] == ordered[:-1]
        if same.any():
            left, right = values[order][:-1][same], values[order][1:][same]
            if not np.array_equal(left, right, equal_nan=left.dtype.kind == "f"):
                raise CandidateFault("race", f"program {self.program} stores different values to one element at once")

    def _refuse_input(self, region: Region) -> None:
        if region.is_input:
            raise CandidateFault("contract", f"program {self.program} stores to its input {region.role}")

    def region_of(self, tensor: torch.Tensor) -> Region | None:
        """The region behind a tensor, if a kernel ever got it."""
        return self.regions.get(tensor.untyped_storage().data_ptr())
