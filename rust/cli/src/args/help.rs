//! What `--help` teaches beside the options: longer texts and examples.

/// What the program is, in a line.
pub(super) const ABOUT: &str = "Indexes beside a data lake: sidecar index files for Parquet and Delta tables";

/// What it is and does.
pub(super) const LONG_ABOUT: &str = "\
Indexes beside a data lake: sidecar index files for Parquet and Delta tables.

Lakemark writes index files beside a table that already exists and uses them to skip files, row groups, pages \
and rows, and to answer counts without opening the data. Your Parquet files are never touched, and an index that is \
missing, stale or damaged only makes a query slower.";

/// A command for each of the things that are done most.
pub(super) const EXAMPLES: &str = "\
Examples:
  lakemark index create flights/ --on carrier      declare an index and build it
  lakemark count flights/ \"carrier = 'UA'\"         answered from the index alone
  lakemark explain flights/ \"carrier = 'UA'\"       what is skipped, and why not more
  lakemark index build flights/                    cover files that were added since (for cron)
  lakemark index watch flights/                    the same whenever files are added, until it is stopped
  lakemark serve flights=flights/                  serve it to JDBC, ADBC, notebooks and dashboards
  lakemark upsert flights/ late.csv --key flight   add rows, or replace those with the same keys
  lakemark info flights/                           files, rows, buffered updates, indexes
  lakemark doctor flights/                         what is wrong with it, and what to do
  lakemark vacuum flights/ --dry-run               show which old index files can go
  lakemark                                         the SQL shell

A TABLE is a folder of Parquet files (also Hive-partitioned), a Delta table, one file, a glob in quotes, a URL, a name of
lakemark.toml, or a table of a catalog (uc://main.sales.trips).
Results go to stdout, progress and warnings to stderr.
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 built but for files that could not be indexed, 4 doctor found a problem, 130 stopped by Ctrl-C.";

/// Of `sql`, with the statements that are ours.
pub(super) const SQL_EXAMPLES: &str = "\
Without -c and -f, SQL comes from the terminal, or from a pipe.

Examples:
  lakemark sql -c \"CREATE EXTERNAL TABLE f STORED AS LAKEMARK LOCATION 'flights/'\" \\
               -c \"SELECT carrier, count(*) FROM f WHERE dest = 'SEA' GROUP BY carrier\"
  echo \"SELECT 1 AS x\" | lakemark sql --format json

Statements of Lakemark's own, besides all of DataFusion's SQL:
  CREATE INDEX [IF NOT EXISTS] i ON t USING bitmap (c) [WITH (k = v)]
  DROP INDEX [IF EXISTS] i ON t
  SHOW INDEXES FROM t
  SET lakemark.use_index = false

Statements that change a table, each as a whole or not at all; the table needs a key, which this declares:
  CREATE EXTERNAL TABLE t STORED AS LAKEMARK LOCATION '…' OPTIONS (key 'id')
  INSERT INTO t …            rows whose keys are not there
  REPLACE INTO t …           rows in the place of those with their keys
  UPDATE t SET … WHERE …
  DELETE FROM t WHERE …
  MERGE INTO t USING … ON … WHEN [NOT] MATCHED …";

/// Of `key`, with its options.
pub(super) const KEY_EXAMPLES: &str = "\
Reads the key of every row once to see that none is NULL or there twice, and gives the first column an index of the kind \
key unless it has an index that knows its rows. From then on the table takes insert, upsert, update and delete.

Options (--with): cache_bytes, the space for buffered updates (1073741824); page_bytes (65536); alpha, more memory against \
fewer writes (1; up to 2); migration_threshold, how full that space may be before a change begins a migration, such as 50% \
(none by default).

Examples:
  lakemark key flights/ --on flight
  lakemark key orders/ --on customer,number --with cache_bytes=4294967296";

/// Of `insert`, `upsert`, `update` and `delete`.
pub(super) const CHANGE_EXAMPLES: &str = "\
insert   adds rows; a key that is there already is an error, and nothing is inserted
upsert   adds rows, in the place of those with the same keys; columns that the file lacks are NULL
update   sets the columns that the file has, in the rows with its keys; absent keys change nothing
delete   removes the rows with these keys; absent keys change nothing

FILE is .parquet, .csv with a header, .json or .ndjson, .arrow, or - for CSV from stdin. Columns go by name; those of \
CSV and JSON are read in the table's types, and an empty field of CSV is NULL. All rows of the file are one change: it is \
made as a whole or not at all, is durable when the command ends, and every reader sees it then.

Examples:
  lakemark insert flights/ new.parquet --key flight
  lakemark upsert flights/ late.csv
  lakemark upsert flights/ 17.csv --txn-app-id loader --txn-version 17     made once, however often it is run
  echo 'flight,delay
  4711,15' | lakemark update flights/ -
  lakemark sql --format csv -c \"SELECT 4711 AS flight\" | lakemark delete flights/ -";

/// Of `index watch`.
pub(super) const WATCH_EXAMPLES: &str = "\
Looks at each table every so often, give or take a tenth, and builds what no index covers yet. A look at a table that is as it was \
costs one listing, or one look at its Delta log. After an error, or with files that could not be indexed, it waits twice as long each time, up to 15 minutes, and goes on. \
SIGTERM or Ctrl-C ends it with exit code 0; a build that is under way commits what is finished, and stops.

Several watches, builds of cron and builds of Spark may run beside each other. The indexes have to be declared before, or \
while it runs: lakemark index create TABLE --on COLUMN --no-build

Operators see lakemark_lag_seconds and lakemark_coverage_ratio by --metrics-port or --metrics-file, and lines by --log-format json.

Examples:
  lakemark index watch flights/ orders/                            until it is stopped
  lakemark index watch flights/ --once                             one look, e.g. for cron; exit codes as of index build
  lakemark index watch flights/ --every 5m --metrics-port 9464     curl localhost:9464/metrics
  lakemark index watch flights/ --log-format json 2>> watch.log    one object a line";

/// Of `serve`, with a first query.
pub(super) const SERVE_EXAMPLES: &str = "\
The first line on stdout says where clients connect. Each statement sees one state of each table; INSERT, UPDATE, DELETE, MERGE \
and CREATE INDEX work as in the shell, and are durable when they end. SIGTERM or Ctrl-C ends the server with exit code 0: it takes \
nothing new, waits up to 30 s for what runs, and then stops it.

Examples:
  lakemark serve flights=flights/                       one table, for programs of this machine
  lakemark serve --warehouse /lake --http 8816          all tables of a folder; http://127.0.0.1:8816 shows them
  lakemark serve --warehouse /lake --read-only --listen 0.0.0.0:8815 --token-file tokens --tls-cert cert.pem --tls-key key.pem
  lakemark serve --config serve.toml                    all of that from a file
  lakemark serve trips orders                           tables by their names in lakemark.toml; without any, all of them

A first query from Python, after pip install adbc-driver-flightsql pyarrow:
  import adbc_driver_flightsql.dbapi as flight
  with flight.connect('grpc://127.0.0.1:8815', autocommit=True) as connection, connection.cursor() as cursor:
      cursor.execute('SELECT count(*) FROM flights WHERE carrier = ?', ('UA',))
      print(cursor.fetchall())

A JDBC tool takes the driver org.apache.arrow:flight-sql-jdbc-driver and the URL
  jdbc:arrow-flight-sql://127.0.0.1:8815/?useEncryption=false";

/// Of `doctor`, with its exit codes.
pub(super) const DOCTOR_NOTE: &str = "\
Changes nothing: locks are looked at and not taken, and the clock of the storage is told by an empty file that is removed again. Each line of \
the report begins with how much it asks for somebody (note, warning, error) and a name that programs go by, and ends with what to do. \
`lakemark index verify` compares every byte besides.

Exit codes: 0 nothing to do, 4 a warning or an error, 1 nothing could be looked at.

Examples:
  lakemark doctor flights/
  lakemark doctor flights/ --format json        for a monitor";

/// Of `index advise`.
pub(super) const ADVISE_EXAMPLES: &str = "\
Reads the footers and about a million rows of each column in question, nothing else, and changes nothing without --apply.

With --queries, each query of the file (separated by semicolons) is planned over the table, whatever name it gives to it. The
advice is then for these queries: the indexes to build with their predicted sizes, what each query would read with them, the
indexes that none of them can use, and the order or the page size of the data that would let them read less. Without, columns
are ranked by what conditions of the usual shapes would save: one value, IN of ten, ranges of 1%, 10% and 50% of the rows.

Examples:
  lakemark index advise flights/
  lakemark index advise flights/ --queries dashboard.sql
  lakemark index advise flights/ --queries dashboard.sql --apply";

/// When `repair` is for, and what it does.
pub(super) const REPAIR_NOTE: &str = "\
A Delta table and its store part where the store was put back from a backup, the table was made anew in the same place, or its log was
set back. Queries then end with StoreMismatch, as nobody can tell which of the buffered updates the table has already. Where the right store
or log can be put back, that is better than either choice.

  lakemark repair flights/ --buffered keep         what the store has counts over what the table has of the same keys
  lakemark repair flights/ --buffered discard      the table counts as it is";

/// Of `index build`, with what becomes of a build that does not come to its end.
pub(super) const BUILD_NOTE: &str = "\
A build commits finished segments while it runs. After Ctrl-C, a full disk or a crash the same command takes over what was finished, also \
what was not committed, and goes on with the rest. The report names files that are damaged, vanish or change meanwhile; the build indexes the \
others, and the exit code is 3. At its end the build merges segments where an index has too many for their sizes.

Examples:
  lakemark index build flights/                    what no index covers yet
  lakemark index build flights/ --no-merge         the same, and leave all segments as they are
  lakemark index build flights/ --verify           compare every segment with the data first, and build damaged ones again
  lakemark index build flights/ --verify 1%        a sample of the segments, another one every day (for cron)
  lakemark index build flights/ --max-failures 10  stop if more files than that cannot be indexed";

/// Of `migrate`.
pub(super) const MIGRATE_EXAMPLES: &str = "\
Queries and changes go on meanwhile. Files without a changed row stay as they are; the indexes cover the new ones. A migration that was stopped \
at any point is finished, or begun again, by the next one.

Examples:
  lakemark migrate flights/                        everything that is buffered
  lakemark migrate flights/ --threshold 50%        only if half of the cache is full (for cron)
  lakemark migrate flights/ --fraction 0.1         a tenth of it: the lowest keys that are left
  lakemark migrate flights/ --max-bytes 4G         in slices of the keys, each a commit of its own that writes about 4 GiB
  lakemark migrate flights/ --publish              what was migrated, for programs that list flights/*.parquet, too";

/// Of `links`, with what its rows are.
pub(super) const LINKS_EXAMPLES: &str = "\
Rows of the table are links from subjects to objects. An index of the kind links makes walks over them fast: lakemark index create kb/ --on s,p,o --using links

Examples:
  lakemark links kb/ --from GO:0008150                                  what it is linked with
  lakemark links kb/ --from GO:0008150 --via is_a --in                  what is linked with it by is_a
  lakemark links kb/ --from GO:0006915 --via is_a --reach               all of its ancestors, with how far they are
  lakemark links kb/ --from GO:0006915 --to GO:0008150                  a shortest way
  lakemark links edges/ --on src,dst --from 4711 --reach --max-depth 2  without a predicate";

/// Of `history`, with what a version is.
pub(super) const HISTORY_EXAMPLES: &str = "\
A version of a Delta table is what every reader of Delta calls so, without changes that are buffered. Of other tables it is the number of a manifest of the \
store: changes belong to the version that a flush or a migration makes of them; files that others add or remove count as they are now.

Examples:
  lakemark history flights/
  lakemark count flights/ --version 12 \"carrier = 'UA'\"
  lakemark sql -c \"CREATE EXTERNAL TABLE f STORED AS LAKEMARK LOCATION 'flights/' OPTIONS (version '12')\" -c \"SELECT * FROM f\"";

/// Of `config`, with where the files are.
pub(super) const CONFIG_EXAMPLES: &str = "\
Files, what counts more after the rest: lakemark/lakemark.toml in the user's folder of configurations ($XDG_CONFIG_HOME, or ~/.config), and
lakemark.toml in the working directory or the nearest folder above it that has one. LAKEMARK_CONFIG names one file in the place of both.

A file:
  [tables]
  trips = \"s3://lake/trips\"                                  lakemark count trips \"city = 'Oslo'\"

  [profiles.lake]
  scope = \"s3://lake/\"                                       for whatever is below, unless --profile names another
  aws_access_key_id = { env = \"LAKE_KEY\" }
  aws_secret_access_key = { file = \"/run/secrets/lake\" }

Examples:
  lakemark config
  lakemark config --format json";

/// Of `completions`, where each shell looks for its script.
pub(super) const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  source <(lakemark completions bash)                     this shell; in ~/.bashrc, every bash to come
  lakemark completions zsh > ~/.zfunc/_lakemark           with ~/.zfunc in fpath before compinit
  lakemark completions fish > ~/.config/fish/completions/lakemark.fish";
