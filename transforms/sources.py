"""The table `sources`: which files were ingested, how far, and what came of their records."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from store.delta import Tables
from store.ids import stable_id
from transforms.counts import STORED_BEFORE, SourceCounts
from transforms.logs import READERS
from transforms.records import LogFile, Source
from transforms.structure import Row
from transforms.write import commit_difference

GROWING_FORMATS = ("native",)  # files that are only ever appended to
NOT_CLEAN = ("quarantined", "waiting", "conflicting")


class Sources:
    """The stored rows of `sources`, as they were when the ingest began, and the ones it adds."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.rows: dict[str, Row] = {}
        self.by_digest: dict[tuple[str, str], list[Row]] = defaultdict(list)
        self.grown: dict[str, Row] = {}  # digest of a grown file to the row it had
        self.ids: dict[tuple[str, str], str] = {}  # (stated source_id, digest) to the id it has here
        self.claimed: dict[str, str] = {}  # source_id to the digest of the file that has it
        for row in tables.read("sources").to_pylist():
            self._remember(row)

    def is_unchanged(self, file: LogFile, log_format: str) -> bool:
        """Whether these very bytes were ingested by this reader, with nothing left over."""
        return self._clean_row(file.digest, log_format) is not None

    def counts_of_unchanged(self, file: LogFile, log_format: str) -> SourceCounts:
        """The books of an unchanged file: what was stored is there."""
        row = self._clean_row(file.digest, log_format)
        assert row is not None
        counts = SourceCounts()
        counts.add("stripped", row["stripped"])
        counts.add("already_there", row["read"] - row["stripped"])
        return counts

    def sizes_of(self, log_format: str) -> set[int]:
        """Sizes at which files of a growing format were left by an earlier ingest."""
        if log_format not in GROWING_FORMATS:
            return set()
        return {row["size_bytes"] for row in self.rows.values() if row["format"] == log_format}

    def grown_from(self, file: LogFile, log_format: str, prefixes: dict[int, str]) -> int | None:
        """Bytes of the file that an earlier ingest read to their end, where it ended with a line.

        A file of which something was left over is read again from its beginning, and stays the same file.
        """
        known = {
            size: rows[-1] for size, digest in prefixes.items() if (rows := self.by_digest.get((log_format, digest)))
        }
        sizes = [size for size in known if 0 < size < file.size_bytes]
        if not sizes:
            return None
        self.grown[file.digest] = known[max(sizes)]
        if not _is_clean(known[max(sizes)], log_format):
            return None
        with file.path.open("rb") as stream:
            stream.seek(max(sizes) - 1)
            if stream.read(1) != b"\n":
                return None
        return max(sizes)

    def carry_on(self, file: LogFile, counts: SourceCounts) -> None:
        """Begin the books of a grown file with what was read of it before."""
        row = self.grown[file.digest]
        counts.add(STORED_BEFORE, row["stored"])
        counts.add("already_there", row["already_there"])
        counts.add("stripped", row["stripped"])

    def as_known(self, source: Source) -> Source:
        """The source under the id that its file has in `sources`.

        An unreadable file is known by its bytes and its path, seen from whichever folder. Parts of one run that begin
        with the same record are told apart by their bytes.
        """
        asked = (source.source_id, source.file.digest)
        if asked not in self.ids:
            self.ids[asked] = self._known_id(source)
            self.claimed.setdefault(self.ids[asked], source.file.digest)
        known_id = self.ids[asked]
        return source if known_id == source.source_id else replace(source, source_id=known_id)

    def _known_id(self, source: Source) -> str:
        base, digest = source.source_id, source.file.digest
        own = self.by_digest[source.format, digest]
        for row in own:
            if row["read"] == row["quarantined"] and _is_same_path(row["path"], source.file.name):
                return str(row["source_id"])
        if source.format not in GROWING_FORMATS:
            return base
        grown = [self.grown[digest]] if digest in self.grown else []
        for row in [*grown, *own]:
            is_free = self.claimed.get(row["source_id"], digest) == digest
            if is_free and row["source_id"] in (base, _id_of_part(base, row["digest"])):
                return str(row["source_id"])
        holder = self.rows[base]["digest"] if base in self.rows else self.claimed.get(base, digest)
        return base if holder == digest else _id_of_part(base, digest)

    def close(self, sources: Iterable[Source], counts: dict[str, SourceCounts], *, now: datetime) -> None:
        """Write the rows of files that are done; a file that is known as it is keeps its row."""
        rows = []
        for source in sources:
            books = counts[source.source_id]
            row = {
                "source_id": source.source_id,
                "path": source.file.name,
                "digest": source.file.digest,
                "size_bytes": source.file.size_bytes,
                "format": source.format,
                "reader_version": source.reader_version,
                "ingested_at": now,
                **books.columns(),
            }
            known = self.rows.get(source.source_id)
            same = ("digest", "reader_version", *NOT_CLEAN)
            if known is None or any(known[name] != row[name] for name in same):
                rows.append(row)
                self._remember(row)
        commit_difference(self.tables, "sources", rows)

    def _remember(self, row: Row) -> None:
        self.rows[row["source_id"]] = row
        self.by_digest[row["format"], row["digest"]].append(row)

    def _clean_row(self, digest: str, log_format: str) -> Row | None:
        rows = self.by_digest.get((log_format, digest), ())
        return next((row for row in rows if _is_clean(row, log_format)), None)


def _is_clean(row: Row, log_format: str) -> bool:
    reader = READERS.get(log_format)
    is_current = reader is not None and row["reader_version"] == reader.READER_VERSION
    return is_current and row["format"] == log_format and not any(row[name] for name in NOT_CLEAN)


def _id_of_part(base: str, digest: str) -> str:
    return stable_id("f", base, digest)


def _is_same_path(first: str, second: str) -> bool:
    """Whether two relative paths may name one file, seen from two folders."""
    return first == second or first.endswith(f"/{second}") or second.endswith(f"/{first}")
