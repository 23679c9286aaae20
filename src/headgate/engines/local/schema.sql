-- Version 3. A journal of what was answered, and the tables that it is folded into.
CREATE TABLE journal (
    n       INTEGER PRIMARY KEY,  -- one row per commit, in order
    at_ms   INTEGER NOT NULL,
    body    BLOB NOT NULL         -- MessagePack: the records of the commit
);

CREATE TABLE jobs (
    id             TEXT NOT NULL UNIQUE,
    queue          TEXT NOT NULL,
    state          TEXT NOT NULL,
    priority       INTEGER NOT NULL,
    seq            INTEGER NOT NULL,
    attempt        INTEGER NOT NULL,
    claim          INTEGER NOT NULL,
    enqueued_at    INTEGER NOT NULL,
    due_at         INTEGER NOT NULL,
    started_at     INTEGER NOT NULL,
    visible_until  INTEGER NOT NULL,
    finished_at    INTEGER NOT NULL,
    dead           INTEGER NOT NULL,
    worker         TEXT NOT NULL,
    pool           TEXT NOT NULL,
    result         BLOB,
    more           BLOB,
    -- What never changes after the job was accepted.
    type           TEXT,
    created_at     INTEGER,
    max_attempts   INTEGER,
    timeout_ms     INTEGER,
    visibility_ms  INTEGER,
    expires_at     INTEGER,
    retry          BLOB,
    unique_key     TEXT,
    tenant         TEXT,
    keys           BLOB,                -- MessagePack; empty for none
    fixed          BLOB
);
CREATE INDEX jobs_alive ON jobs (seq) WHERE finished_at = 0;
CREATE INDEX jobs_finished ON jobs (queue, state, finished_at) WHERE finished_at > 0;
CREATE INDEX jobs_dead ON jobs (finished_at) WHERE dead = 1;
CREATE INDEX jobs_unique ON jobs (unique_key) WHERE unique_key IS NOT NULL;
CREATE INDEX jobs_of_tenant ON jobs (tenant) WHERE tenant <> '';

-- Which jobs pass a key.
CREATE TABLE uses (
    key  TEXT NOT NULL,
    id   TEXT NOT NULL,
    PRIMARY KEY (key, id)
) WITHOUT ROWID;

-- Which jobs name another one as their parent or root, or a workflow.
CREATE TABLE kin (
    relation  TEXT NOT NULL,
    other     TEXT NOT NULL,
    id        TEXT NOT NULL,
    PRIMARY KEY (relation, other, id)
) WITHOUT ROWID;
CREATE INDEX kin_of ON kin (id);

-- How many finished jobs each queue keeps, so that starting never counts history.
CREATE TABLE counts (
    queue  TEXT NOT NULL,
    state  TEXT NOT NULL,
    jobs   INTEGER NOT NULL,
    PRIMARY KEY (queue, state)
) WITHOUT ROWID;

-- Everything that is not a job: queues, directives, tasks, answers kept for repeated requests.
CREATE TABLE things (
    kind   TEXT NOT NULL,
    key    TEXT NOT NULL,
    value  BLOB NOT NULL,
    PRIMARY KEY (kind, key)
) WITHOUT ROWID;
