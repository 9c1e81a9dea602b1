"""Every exception that Espalier raises on purpose.

    PipelineError                one clear line for a person; exit code 2
    ├── WrongUse                 an argument or setting that cannot be right
    │   ├── UnknownName          a table, view, task, field or format that does not exist
    │   └── BadSetting           a file in conf/ that does not say what it must
    ├── BadInput                 input that cannot be read; nothing was half-written
    │   └── NoLogFound           a folder that holds no log
    ├── HomeNotUsable            the data folder cannot be created or written
    ├── LedgerBusy               the search ledger is locked by someone else
    ├── VersionGone              a table version whose files were removed
    ├── TableDamaged             a table whose log cannot be read at all
    ├── CommitConflict           somebody else committed first, after all retries
    ├── SparkNotReady            the Spark engine was asked for, and Java or its jars are missing
    ├── ProposerDown             whoever should propose gave no answer; the search stopped
    ├── NotEnoughData            a run that would have trained on too little
    ├── RefusedByPolicy          a principal may not use this for that purpose
    ├── FlaggedByRetraction      a dataset, run or model that rests on retracted nodes
    └── RefusedInFull            a view that would be computed again in full, where that was not to happen silently

Each message says what, the value seen, what was possible, and the next step.
"""


class PipelineError(Exception):
    """Base of every error a person can act on; its text is one line."""


class WrongUse(PipelineError):
    """An argument or setting that cannot be right."""


class UnknownName(WrongUse):
    """A table, view, task, field or format that does not exist."""


class BadSetting(WrongUse):
    """A file in conf/ that does not say what it must."""


class BadInput(PipelineError):
    """Input that cannot be read; nothing was half-written."""


class NoLogFound(BadInput):
    """A folder holds no file that is a log."""


class HomeNotUsable(PipelineError):
    """The data folder cannot be created or written."""


class LedgerBusy(PipelineError):
    """The search ledger is locked by someone else."""


class VersionGone(PipelineError):
    """A table version whose files were removed; the message lists what can be read."""


class TableDamaged(PipelineError):
    """A table whose log cannot be read at all, at no version; the message says which and why."""


class CommitConflict(PipelineError):
    """Somebody else committed first, and retrying did not help."""


class SparkNotReady(PipelineError):
    """The Spark engine was asked for, and Java, its jars or the cluster are not there; the message says what to do."""


class ProposerDown(PipelineError):
    """Whoever should propose gave no answer; the search stopped and wrote nothing for it."""


class NotEnoughData(PipelineError):
    """A run that would have trained on too little."""


class RefusedByPolicy(PipelineError):
    """A principal may not use this for that purpose."""


class FlaggedByRetraction(PipelineError):
    """A dataset, run or model that rests on retracted nodes."""


class RefusedInFull(PipelineError):
    """A view would be computed again in full, and `--strict` says that this must not happen silently."""
