//! The functions that `io.lakemark.spark.jni.NativeLibrary` declares, one for one.
//!
//! Addresses of C structures come from arrow-c-data, which owns the memory; the structures are empty when they arrive and
//! are filled here. Java releases them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::Schema;
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow::ffi_stream::FFI_ArrowArrayStream;
use jni::objects::{JByteArray, JClass, JObject, JString};
use jni::sys::{jboolean, jlong};
use jni::{Env, EnvUnowned, jni_sig, jni_str};
use lakemark_table::TableOptions;

use crate::aggregate;
use crate::build;
use crate::collations;
use crate::error::{NativeError, Result, Throw};
use crate::handle::{self, Pinned};
use crate::links;
use crate::maintain;
use crate::plan;
use crate::read::InputReader;
use crate::read_points;
use crate::row_groups;
use crate::runtime::block_on;
use crate::split::{ScanSpec, SplitInput};
use crate::staging;
use crate::storage::TableStorage;
use crate::store_cache::remember_stores;
use crate::stream::{Batches, Exported, Once, Panicking};
use crate::table_cache::TableRef;
use crate::types::spark_schema;

fn optional(env: &Env<'_>, text: &JString<'_>) -> Result<Option<String>> {
    if text.is_null() { Ok(None) } else { Ok(Some(text.try_to_string(env)?)) }
}

/// The newest state of the table at a path.
fn newest(env: &mut Env<'_>, path: &JString<'_>, storage: &JString<'_>) -> Result<TableRef> {
    let (location, storage) = (path.try_to_string(env)?, optional(env, storage)?);
    let storage = TableStorage::read(env, storage.as_deref())?;
    Ok(TableRef { location, storage, version: None, max_staleness: Duration::ZERO })
}

/// `String version()`: the release of this library.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_lakemark_spark_jni_NativeLibrary_version<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
) -> JString<'l> {
    env.with_env(|env| -> Result<JString<'l>> { Ok(env.new_string(env!("CARGO_PKG_VERSION"))?) }).resolve::<Throw>()
}

/// `long openTable(String path, String storageOrNull, boolean useIndex, long version, String maxStalenessOrNull)`: opens a table and pins its
/// newest state, one whose data files are as old as that, or a version that is not negative.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_lakemark_spark_jni_NativeLibrary_openTable<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    path: JString<'l>,
    storage: JString<'l>,
    use_index: jboolean,
    version: jlong,
    max_staleness: JString<'l>,
) -> jlong {
    env.with_env(|env| -> Result<jlong> {
        let (location, storage) = (path.try_to_string(env)?, optional(env, &storage)?);
        let storage = TableStorage::read(env, storage.as_deref())?;
        let staleness = optional(env, &max_staleness)?.map(|text| TableOptions::parse_staleness(&text)).transpose()?;
        let (version, max_staleness) = (u64::try_from(version).ok(), staleness.unwrap_or_default());
        let pinned = block_on(pin(TableRef { location, storage, version, max_staleness }, use_index))??;
        remember_stores(&pinned.location, &pinned.storage, &pinned.snapshot);
        Ok(handle::give(pinned))
    })
    .resolve::<Throw>()
}

async fn pin(named: TableRef, use_index: bool) -> Result<Pinned> {
    let snapshot = named.open().await?.snapshot().await?;
    let TableRef { location, storage, .. } = named;
    collations::refuse_in_delta(&location, &snapshot)?;
    Ok(Pinned { location, storage, snapshot, use_index, probed: Arc::default() })
}

/// `void schema(long table, long outSchema)`: the table's schema with Spark's types, as an Arrow C schema. Its metadata have the schema
/// that Spark wrote into the files, if that has collations.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_lakemark_spark_jni_NativeLibrary_schema<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    table: jlong,
    out_schema: jlong,
) {
    env.with_env(|_env| -> Result<()> {
        let snapshot = handle::get(table)?.snapshot;
        let mut schema: Schema = spark_schema(&snapshot.schema(), &snapshot.key_columns().unwrap_or_default())?;
        if let Some(said) = block_on(collations::spark_schema(&snapshot))?? {
            schema.metadata.insert(collations::SPARK_SCHEMA.to_owned(), said);
        }
        let exported = FFI_ArrowSchema::try_from(&schema)?;
        let address = address::<FFI_ArrowSchema>(out_schema)?;
        // SAFETY: `address` is an empty structure that Java allocated for this call.
        unsafe { std::ptr::write_unaligned(address, exported) };
        Ok(())
    })
    .resolve::<Throw>()
}

/// `long readPoint(long table)`: a number for the pinned state, which a later change of what was read names; greater than those before, and
/// -1 if the table takes no changes.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_lakemark_spark_jni_NativeLibrary_readPoint<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    table: jlong,
) -> jlong {
    env.with_env(|_env| -> Result<jlong> {
        let snapshot = handle::get(table)?.snapshot;
        if snapshot.sequence().is_none() {
            return Ok(-1);
        }
        jlong::try_from(read_points::remember(snapshot)).map_err(|_| NativeError::internal("too many states for Java"))
    })
    .resolve::<Throw>()
}

/// `boolean isExact(long table, String filter)`: whether the indexes alone say which rows the filter selects.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_lakemark_spark_jni_NativeLibrary_isExact<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    table: jlong,
    filter: JString<'l>,
) -> jboolean {
    env.with_env(|env| -> Result<jboolean> {
        let filter = filter.try_to_string(env)?;
        let pinned = handle::get(table)?;
        block_on(plan::is_exact(&pinned, &filter))?
    })
    .resolve::<Throw>()
}

/// `long count(long table, String filter)`: the rows for which the filter is true, or -1 if the indexes do not know.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_lakemark_spark_jni_NativeLibrary_count<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    table: jlong,
    filter: JString<'l>,
) -> jlong {
    env.with_env(|env| -> Result<jlong> {
        let filter = filter.try_to_string(env)?;
        let pinned = handle::get(table)?;
        let rows = block_on(plan::count(&pinned, &filter))??;
        rows.map_or(Ok(-1), |rows| jlong::try_from(rows).map_err(|_| NativeError::internal("too many rows for Java")))
    })
    .resolve::<Throw>()
}

/// `void aggregate(long table, String filter, String request, long outStream)`: one row per group as an Arrow C stream, which has no
/// column if the indexes do not know them; `request` is the JSON of an [`aggregate::SparkAggregate`].
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_lakemark_spark_jni_NativeLibrary_aggregate<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    table: jlong,
    filter: JString<'l>,
    request: JString<'l>,
    out_stream: jlong,
) {
    env.with_env(|env| -> Result<()> {
        let filter = filter.try_to_string(env)?;
        let request: aggregate::SparkAggregate = serde_json::from_str(&request.try_to_string(env)?)?;
        let pinned = handle::get(table)?;
        let groups = block_on(async move { aggregate::answer(&pinned, &filter, &request).await })??;
        export(Once::new(groups), out_stream)
    })
    .resolve::<Throw>()
}

/// `byte[] plan(long table, String filter, String request)`: the splits, as [`plan::SparkPlan::encode`] writes them; `request` is the JSON
/// of a [`plan::PlanRequest`].
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_lakemark_spark_jni_NativeLibrary_plan<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    table: jlong,
    filter: JString<'l>,
    request: JString<'l>,
) -> JByteArray<'l> {
    env.with_env(|env| -> Result<JByteArray<'l>> {
        let filter = filter.try_to_string(env)?;
        let request: plan::PlanRequest = serde_json::from_str(&request.try_to_string(env)?)?;
        let pinned = handle::get(table)?;
        let plan = block_on(plan::plan(&pinned, &filter, request))??;
        Ok(env.byte_array_from_slice(&plan.encode()?)?)
    })
    .resolve::<Throw>()
}

/// `long openInput(String scan, String input, byte[] attachment, long outStream)`: the record batches of an input of a split, as an Arrow C
/// stream, and the bytes of memory that reading them takes at most, roughly.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_lakemark_spark_jni_NativeLibrary_openInput<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    scan: JString<'l>,
    input: JString<'l>,
    attachment: JByteArray<'l>,
    out_stream: jlong,
) -> jlong {
    env.with_env(|env| -> Result<jlong> {
        let scan: ScanSpec = serde_json::from_str(&scan.try_to_string(env)?)?;
        let input: SplitInput = serde_json::from_str(&input.try_to_string(env)?)?;
        let attachment = env.convert_byte_array(&attachment)?;
        scan.storage.prepare(env)?;
        let reader = block_on(InputReader::open(&scan, &input, &attachment))??;
        let memory = jlong::try_from(reader.memory_bytes()).unwrap_or(jlong::MAX);
        export(reader, out_stream)?;
        Ok(memory)
    })
    .resolve::<Throw>()
}

/// `String rowGroups(String path, String storageOrNull, long version, String filterOrNull, String columns)`: what a reader of the table's own
/// files may leave out, as the JSON of a [`row_groups::RowGroupSelection`]. `version` is the one that a reader of Delta reads, and negative
/// for any other reader; `columns` is a JSON object of the columns that the filter may name and their types in Spark.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_lakemark_spark_jni_NativeLibrary_rowGroups<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    path: JString<'l>,
    storage: JString<'l>,
    version: jlong,
    filter: JString<'l>,
    columns: JString<'l>,
) -> JString<'l> {
    env.with_env(|env| -> Result<JString<'l>> {
        let table = newest(env, &path, &storage)?;
        let (version, filter) = (u64::try_from(version).ok(), optional(env, &filter)?);
        let columns: BTreeMap<String, String> = serde_json::from_str(&columns.try_to_string(env)?)?;
        let selection = block_on(async move {
            let table = table.open().await?;
            row_groups::answer(&table, version, filter.as_deref(), &columns).await
        })??;
        Ok(env.new_string(serde_json::to_string(&selection)?)?)
    })
    .resolve::<Throw>()
}

/// `String changesBesideFiles(String path, String storageOrNull)`: what a reader of the table's own files does not see, as the JSON of a
/// [`lakemark_table::ChangesBesideFiles`].
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_lakemark_spark_jni_NativeLibrary_changesBesideFiles<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    path: JString<'l>,
    storage: JString<'l>,
) -> JString<'l> {
    env.with_env(|env| -> Result<JString<'l>> {
        let table = newest(env, &path, &storage)?;
        let missed = block_on(row_groups::missed(&table))??;
        Ok(env.new_string(serde_json::to_string(&missed)?)?)
    })
    .resolve::<Throw>()
}

/// `String maintain(String path, String storageOrNull, String request)`: does what a [`maintain::MaintenanceRequest`] in JSON says, and
/// gives a report in JSON.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_lakemark_spark_jni_NativeLibrary_maintain<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    path: JString<'l>,
    storage: JString<'l>,
    request: JString<'l>,
) -> JString<'l> {
    env.with_env(|env| -> Result<JString<'l>> {
        let table = newest(env, &path, &storage)?;
        let request: maintain::MaintenanceRequest = serde_json::from_str(&request.try_to_string(env)?)?;
        let report = block_on(async move {
            let table = table.open().await?;
            maintain::answer(&table, request).await
        })??;
        Ok(env.new_string(report.to_string())?)
    })
    .resolve::<Throw>()
}

/// `void walk(String path, String storageOrNull, String request, long outStream)`: the rows of a walk over links as an Arrow C stream;
/// `request` is the JSON of a [`links::WalkRequest`].
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_lakemark_spark_jni_NativeLibrary_walk<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    path: JString<'l>,
    storage: JString<'l>,
    request: JString<'l>,
    out_stream: jlong,
) {
    env.with_env(|env| -> Result<()> {
        let table = newest(env, &path, &storage)?;
        let request: links::WalkRequest = serde_json::from_str(&request.try_to_string(env)?)?;
        let rows = block_on(async move {
            let table = table.open().await?;
            links::answer(&table, request).await
        })??;
        export(Once::new(Some(rows)), out_stream)
    })
    .resolve::<Throw>()
}

/// `String build(String path, String storageOrNull, String request, BuildJob job)`: builds indexes by a job of Spark's, and gives the report
/// in JSON; `request` is the JSON of a [`build::BuildRequest`].
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_lakemark_spark_jni_NativeLibrary_build<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    path: JString<'l>,
    storage: JString<'l>,
    request: JString<'l>,
    job: JObject<'l>,
) -> JString<'l> {
    env.with_env(|env| -> Result<JString<'l>> {
        let table = newest(env, &path, &storage)?;
        let request: build::BuildRequest = serde_json::from_str(&request.try_to_string(env)?)?;
        let report = build::build(env, &table, request, &job)?;
        Ok(env.new_string(report.to_string())?)
    })
    .resolve::<Throw>()
}

/// `byte[] buildTask(String path, String storageOrNull, byte[] task, String tuning, TaskContext context)`: does a task of a build and gives
/// its part; `tuning` is the JSON of a [`maintain::BuildTuning`].
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_lakemark_spark_jni_NativeLibrary_buildTask<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    path: JString<'l>,
    storage: JString<'l>,
    task: JByteArray<'l>,
    tuning: JString<'l>,
    context: JObject<'l>,
) -> JByteArray<'l> {
    env.with_env(|env| -> Result<JByteArray<'l>> {
        let table = newest(env, &path, &storage)?;
        let tuning: maintain::BuildTuning = serde_json::from_str(&tuning.try_to_string(env)?)?;
        let task = env.convert_byte_array(&task)?;
        let is_unwanted = || Ok(env.call_method(&context, jni_str!("isInterrupted"), jni_sig!("()Z"), &[])?.z()?);
        let part = build::run(&table, &task, tuning, is_unwanted)?;
        Ok(env.byte_array_from_slice(&part)?)
    })
    .resolve::<Throw>()
}

/// `long beginStaging(String path, String storageOrNull, String operation)`: begins to write rows aside, which [`staging`] keeps by a number.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_lakemark_spark_jni_NativeLibrary_beginStaging<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    path: JString<'l>,
    storage: JString<'l>,
    operation: JString<'l>,
) -> jlong {
    env.with_env(|env| -> Result<jlong> {
        let table = newest(env, &path, &storage)?;
        let operation = staging::operation_of(&operation.try_to_string(env)?)?;
        block_on(staging::begin(table, operation))?
    })
    .resolve::<Throw>()
}

/// `long stage(long staging, long array, long schema)`: adds the rows of an Arrow C array; both structures are taken over. Gives the bytes
/// of rows that are in memory then.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_lakemark_spark_jni_NativeLibrary_stage<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    staging: jlong,
    array: jlong,
    schema: jlong,
) -> jlong {
    env.with_env(|_env| -> Result<jlong> {
        let (array, schema) = (address::<FFI_ArrowArray>(array)?, address::<FFI_ArrowSchema>(schema)?);
        // SAFETY: arrow-c-data has just filled both structures; they are moved out, so that only we release them, and what stays behind
        // is an empty one, which Java frees.
        let (array, schema) = unsafe { (FFI_ArrowArray::from_raw(array), FFI_ArrowSchema::from_raw(schema)) };
        // SAFETY: the two belong together, and their buffers live until they are released.
        let rows = unsafe { from_ffi(array, &schema) }?;
        block_on(staging::write(staging, rows))?
    })
    .resolve::<Throw>()
}

/// `String finishStaging(long staging)`: makes the rows durable; gives the names of their files as a JSON array.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_lakemark_spark_jni_NativeLibrary_finishStaging<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    staging: jlong,
) -> JString<'l> {
    env.with_env(|env| -> Result<JString<'l>> { Ok(env.new_string(block_on(staging::finish(staging))??)?) })
        .resolve::<Throw>()
}

/// `void abandonStaging(long staging)`: removes what was written, if it was not finished.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_lakemark_spark_jni_NativeLibrary_abandonStaging<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    staging: jlong,
) {
    env.with_env(|_env| -> Result<()> { block_on(staging::abandon(staging)) }).resolve::<Throw>()
}

/// `void close(long table)`: gives a table back.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_lakemark_spark_jni_NativeLibrary_close<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    table: jlong,
) {
    env.with_env(|_env| -> Result<()> {
        handle::take_back(table);
        Ok(())
    })
    .resolve::<Throw>()
}

/// `void panic(long outStream)`: for the self test. Panics in the call (address 0) or in the stream's first batch.
#[unsafe(no_mangle)]
#[expect(clippy::panic, reason = "it is there to prove that a panic is contained")]
pub extern "system" fn Java_io_lakemark_spark_jni_NativeLibrary_panic<'l>(
    mut env: EnvUnowned<'l>,
    _class: JClass<'l>,
    out_stream: jlong,
) {
    env.with_env(|_env| -> Result<()> {
        if out_stream == 0 {
            panic!("asked for by the self test of calls");
        }
        export(Panicking, out_stream)
    })
    .resolve::<Throw>()
}

fn export(batches: impl Batches + 'static, out_stream: jlong) -> Result<()> {
    let stream = FFI_ArrowArrayStream::new(Box::new(Exported::new(batches)));
    let address = address::<FFI_ArrowArrayStream>(out_stream)?;
    // SAFETY: `address` is an empty structure that Java allocated for this call.
    unsafe { std::ptr::write_unaligned(address, stream) };
    Ok(())
}

fn address<T>(value: jlong) -> Result<*mut T> {
    if value == 0 { Err(NativeError::internal("no address to export to")) } else { Ok(value as *mut T) }
}
