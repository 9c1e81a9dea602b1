"""Logs to tables: finds the logs under what a person named, reads each, and keeps the books.

Nothing is stored twice: the same folder again, a renamed copy of it, and overlapping checkpoints change no row.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from store.delta import Tables
from store.errors import BadInput
from store.home import Home
from transforms.batch import Batch, store_batch
from transforms.counts import IngestReport, SourceCounts
from transforms.drain import ingest_ledger
from transforms.known import KnownTables
from transforms.logs import READERS
from transforms.logs.detect import UNKNOWN, FoundFile, Log, find_logs, hash_file
from transforms.logs.reading import LogToRead, Yielded, unreadable_source
from transforms.records import LogFile, Quarantined, SessionRecord, Source
from transforms.sources import Sources
from transforms.write import Progress

__all__ = ["IngestReport", "ingest_ledger", "ingest_paths"]


def ingest_paths(
    home: Home,
    paths: Sequence[Path | str],
    *,
    format: str = "auto",
    run: str | None = None,
    tags: Sequence[str] = (),
    now: datetime,
    progress: Progress | None = None,
) -> IngestReport:
    """Bring the logs under these files and folders into the tables.

    Args:
        home: Where the tables are.
        paths: Log files and folders of logs, searched through.
        format: `auto`, or the only format to read.
        run: A name for the run, for logs that do not tell their run from another one.
        tags: Governance tags for every session that is read.
        now: Clock for what is recorded.
        progress: Called with one line per log and per table written.

    Returns:
        What was read and what became of it.

    Raises:
        NoLogFound: A folder holds no log.
        BadInput: A path is missing, nothing of a named file can be read (its bytes are then in
            quarantine), or two runs collide (then nothing of that log is stored).
        UnknownName: No reader has this format.
        CommitConflict: Other writers kept committing first.
    """
    if not paths:
        raise BadInput("no path was named; name log files or folders of logs.")
    if not all(tag.strip() for tag in tags):
        raise BadInput("a tag is empty; leave --tag out, or name a tag of conf/governance.yaml.")
    found = find_logs([Path(path) for path in paths], log_format=format, leave_out=home.path)
    ingest = _Ingest(Tables(home), run=run, tags=tuple(tags), now=now, say=progress or (lambda line: None))
    ingest.report.skipped_files = len(found.skipped)
    for log in found.logs:
        ingest.take(log)
    return ingest.finish()


class _Ingest:
    """The state of one ingest: the batch being filled, the books of each file, the files that are done."""

    def __init__(self, tables: Tables, *, run: str | None, tags: tuple[str, ...], now: datetime, say: Progress) -> None:
        self.tables = tables
        self.run = run
        self.tags = tags
        self.now = now
        self.say = say
        self.report = IngestReport()
        self.sources = Sources(tables)
        self.known = KnownTables(tables)
        self.batch = Batch()
        self.counts: dict[str, SourceCounts] = defaultdict(SourceCounts)
        self.reasons: Counter[str] = Counter()
        self.done: dict[str, Source] = {}  # files read to their end, whose row in `sources` is not written yet
        self.named: list[tuple[Path, set[str]]] = []
        self.unreadable: dict[str, str] = {}  # source_id to reason, of files that gave nothing but quarantine
        self.seen: set[tuple[str, str]] = set()  # (format, digest) of files this very run has read

    def take(self, log: Log) -> None:
        """Read one log, unless all its files were ingested as they are."""
        self.report.files += len(log.files)
        files: list[LogFile] = []
        failed: list[tuple[FoundFile, str]] = []
        resume_at: dict[str, int] = {}
        sizes = self.sources.sizes_of(log.format)
        for found in log.files:
            try:
                file, prefixes = hash_file(found, sizes)
                start = self.sources.grown_from(file, log.format, prefixes)
            except OSError as error:
                failed.append((found, f"cannot be read ({error.strerror})"))
                continue
            files.append(file)
            if start is not None and self._may_skip:
                resume_at[file.digest] = start
        if files and not failed and all((log.format, file.digest) in self.seen for file in files):
            self._flush()  # a copy beside the original: what it holds is in the tables once the batch is
        if self._may_skip and not failed and all(self.sources.is_unchanged(file, log.format) for file in files):
            self._count_unchanged(files, log.format)
            return
        others = f" and {len(log.files) - 1} more" if len(log.files) > 1 else ""
        self.say(f"reading {log.format} {log.files[0].name}{others}")
        self._read(log, LogToRead(tuple(files), self.run, resume_at), failed)
        self.seen.update((log.format, file.digest) for file in files)

    def finish(self) -> IngestReport:
        """Store what is left, close the books, and refuse a named file that gave nothing."""
        self._flush()
        self.report.quarantine_reasons = dict(sorted(self.reasons.items()))
        self.report.check()
        for path, source_ids in self.named:
            if source_ids and source_ids <= set(self.unreadable):
                reason = "; ".join(sorted({self.unreadable[source_id] for source_id in source_ids}))
                raise BadInput(
                    f"nothing of {path} could be read: {reason}; its bytes are kept in the table quarantine, and "
                    f"readers take {', '.join(READERS)} (docs/native_format.md shows the simplest)."
                )
        return self.report

    @property
    def _may_skip(self) -> bool:
        """Whether a file that was ingested before gives nothing new: not under another run, nor with tags."""
        return self.run is None and not self.tags

    def _read(self, log: Log, to_read: LogToRead, failed: list[tuple[FoundFile, str]]) -> None:
        in_this_log: dict[str, Source] = {}
        reasons: dict[str, str] = {}
        readable: set[str] = set()
        for stated, record in self._yielded(log, to_read, failed):
            source = self.sources.as_known(stated)
            if source.source_id not in in_this_log:
                in_this_log[source.source_id] = source
                self._open_books(source, log, to_read)
            if isinstance(record, Quarantined):
                reasons.setdefault(source.source_id, record.reason)
            else:
                readable.add(source.source_id)
            self.batch.add(source, record)
            if isinstance(record, SessionRecord):
                self.batch.tags += [(record.session_id, tag) for tag in self.tags]
            if self.batch.is_full:
                self._flush()
        self.done.update(in_this_log)
        self.unreadable |= {source_id: reason for source_id, reason in reasons.items() if source_id not in readable}
        if log.is_named:
            self.named.append((log.files[0].path, set(in_this_log)))

    def _yielded(self, log: Log, to_read: LogToRead, failed: list[tuple[FoundFile, str]]) -> Iterator[Yielded]:
        for found, reason in failed:
            file = LogFile(found.path, found.name, "", 0)
            yield unreadable_source(file, log.format), Quarantined("file", reason, b"")
        if log.format == UNKNOWN:
            for file in to_read.files:
                reason = "no reader knows this format" if file.size_bytes else "empty file (0 bytes)"
                try:
                    data = file.path.read_bytes()
                except OSError as error:  # gone since it was found
                    reason, data = f"cannot be read ({error.strerror})", b""
                yield unreadable_source(file, UNKNOWN), Quarantined("file", reason, data)
        elif to_read.files:
            yield from READERS[log.format].read(to_read, self.known)

    def _open_books(self, source: Source, log: Log, to_read: LogToRead) -> None:
        if source.file.digest in to_read.resume_at:
            self.sources.carry_on(source.file, self.counts[source.source_id])
        if log.is_named and not source.has_own_run:
            self.batch.must_not_conflict.add(source.source_id)

    def _count_unchanged(self, files: list[LogFile], log_format: str) -> None:
        for file in files:
            self.report.unchanged_files += 1
            self.report.add_counts(self.sources.counts_of_unchanged(file, log_format))

    def _flush(self) -> None:
        """Store the batch, then the rows of files that are done with it: `sources` is what is written last."""
        batch, self.batch = self.batch, self.batch.following()
        self.report.add_rows(store_batch(self.tables, batch, self.counts, self.reasons, now=self.now, say=self.say))
        self.known.forget()
        done, self.done = self.done, {}
        self.sources.close(done.values(), self.counts, now=self.now)
        self.say("wrote sources")
        for source_id in done:
            self.report.add_counts(self.counts.pop(source_id))
