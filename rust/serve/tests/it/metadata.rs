//! What drivers ask before they show a table.

use arrow::datatypes::Schema;
use arrow_flight::sql::{
    CommandGetCrossReference, CommandGetDbSchemas, CommandGetExportedKeys, CommandGetImportedKeys,
    CommandGetPrimaryKeys, CommandGetSqlInfo, CommandGetTables, CommandGetXdbcTypeInfo, ProstMessageExt, SqlInfo,
};
use arrow_flight::{FlightDescriptor, IpcMessage};
use lakemark_table::{Table, TableOptions};
use prost::Message;
use tonic::Code;

use crate::served::{Client, Served, read, status, text, write_flights};

async fn lines(client: &mut Client, info: arrow_flight::FlightInfo) -> Vec<String> {
    let announced = Schema::try_from(IpcMessage(info.schema.clone())).unwrap();
    let batches = read(client, info).await.unwrap();
    for batch in &batches {
        assert_eq!(*batch.schema(), announced, "what comes is what was announced");
    }
    text(&batches)
}

fn tables(pattern: Option<&str>, types: &[&str], include_schema: bool) -> CommandGetTables {
    CommandGetTables {
        catalog: None,
        db_schema_filter_pattern: None,
        table_name_filter_pattern: pattern.map(str::to_owned),
        table_types: types.iter().map(|kind| (*kind).to_owned()).collect(),
        include_schema,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn catalogs_schemas_and_tables_are_listed() {
    let warehouse = tempfile::tempdir().unwrap();
    write_flights(&warehouse.path().join("sales/orders"), 0, 10);
    let served = Served::with(|options| options.warehouse = Some(warehouse.path().to_owned())).await;
    let mut client = served.client().await;
    let info = client.get_catalogs().await.unwrap();
    assert_eq!(lines(&mut client, info).await, ["lakemark"]);
    let info = client.get_db_schemas(CommandGetDbSchemas::default()).await.unwrap();
    assert_eq!(lines(&mut client, info).await, ["lakemark|information_schema", "lakemark|public", "lakemark|sales"]);
    let info = client.get_table_types().await.unwrap();
    assert_eq!(lines(&mut client, info).await, ["TABLE", "VIEW"]);
    for (command, expected) in [
        (tables(None, &[], false), vec!["lakemark|public|flights|TABLE", "lakemark|sales|orders|TABLE"]),
        (tables(Some("fl%"), &["TABLE"], false), vec!["lakemark|public|flights|TABLE"]),
        (tables(None, &["VIEW"], false), vec![]),
        (tables(Some("nosuch"), &[], true), vec![]),
    ] {
        let info = client.get_tables(command).await.unwrap();
        assert_eq!(lines(&mut client, info).await, expected);
    }
    // A folder that came since is there.
    write_flights(&warehouse.path().join("late"), 0, 1);
    let info = client.get_tables(tables(Some("late"), &[], false)).await.unwrap();
    assert_eq!(lines(&mut client, info).await, ["lakemark|public|late|TABLE"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_found_by_patterns_whose_letters_may_be_escaped() {
    let warehouse = tempfile::tempdir().unwrap();
    for folder in ["f_ights", "fxights", "sales/orders"] {
        write_flights(&warehouse.path().join(folder), 0, 10);
    }
    let served = Served::with(|options| options.warehouse = Some(warehouse.path().to_owned())).await;
    let mut client = served.client().await;
    for (pattern, expected) in [
        ("f_ights", vec!["f_ights", "flights", "fxights"]),
        (r"f\_ights", vec!["f_ights"]),
        (r"f\%ights", vec![]),
        (r"f\_%", vec!["f_ights"]),
        ("f%s", vec!["f_ights", "flights", "fxights"]),
        ("%", vec!["f_ights", "flights", "fxights", "orders"]),
        (r"fl\ights", vec!["flights"]),
        (r"flights\", vec![]),
        ("FLIGHTS", vec![]),
        ("", vec![]),
        ("fl.*", vec![]),
    ] {
        for types in [&[][..], &["TABLE"], &["VIEW", "TABLE", "TABLE"]] {
            let info = client.get_tables(tables(Some(pattern), types, false)).await.unwrap();
            let found = lines(&mut client, info).await;
            let names: Vec<&str> = found.iter().map(|line| line.split('|').nth(2).unwrap()).collect();
            assert_eq!(names, expected, "{pattern} {types:?}");
        }
    }
    let info = client.get_tables(tables(None, &["SYSTEM TABLE", ""], true)).await.unwrap();
    assert!(lines(&mut client, info).await.is_empty());
    for (catalog, pattern, expected) in [
        (Some("lakemark"), Some("s_les"), vec!["lakemark|sales|orders|TABLE"]),
        (None, Some(r"s\_les"), vec![]),
        (Some(""), Some("sales"), vec![]),
        (Some("other"), None, vec![]),
    ] {
        let (catalog, db_schema_filter_pattern) = (catalog.map(str::to_owned), pattern.map(str::to_owned));
        let schemas = CommandGetDbSchemas {
            catalog: catalog.clone(),
            db_schema_filter_pattern: db_schema_filter_pattern.clone(),
        };
        let info = client.get_db_schemas(schemas).await.unwrap();
        assert_eq!(lines(&mut client, info).await.len(), expected.len(), "{pattern:?}");
        let asked = CommandGetTables { catalog, db_schema_filter_pattern, ..tables(None, &[], false) };
        let info = client.get_tables(asked).await.unwrap();
        assert_eq!(lines(&mut client, info).await, expected, "{pattern:?}");
    }
    let info = client.get_tables(tables(Some(&"_".repeat(5000)), &[], false)).await.unwrap();
    let refused = status(read(&mut client, info).await);
    assert!(refused.code() == Code::InvalidArgument && refused.message().contains("5000 bytes"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_number_that_a_tool_may_ask_of_the_server_has_an_answer() {
    let served = Served::with(|options| options.limits.connections = 77).await;
    let mut client = served.client().await;
    let known: Vec<SqlInfo> = (0..1000).filter_map(|number| SqlInfo::try_from(number).ok()).collect();
    assert!(known.len() > 90);
    let info = client.get_sql_info(known.clone()).await.unwrap();
    let all = lines(&mut client, info).await;
    let numbers: Vec<i32> = all.iter().map(|line| line.split('|').next().unwrap().parse().unwrap()).collect();
    assert_eq!(numbers, known.iter().map(|known| *known as i32).collect::<Vec<_>>());
    // One for which there is none, and one again and again.
    for (asked, expected) in [(vec![9999], 0), (vec![9999, 0], 1), ([0, 1].repeat(500_000), 2)] {
        let descriptor = FlightDescriptor::new_cmd(CommandGetSqlInfo { info: asked }.as_any().encode_to_vec());
        let info = client.inner_mut().get_flight_info(descriptor).await.unwrap().into_inner();
        assert_eq!(lines(&mut client, info).await, all[..expected]);
    }
    let info = client.get_sql_info(vec![SqlInfo::SqlMaxConnections]).await.unwrap();
    assert!(lines(&mut client, info).await[0].contains("77"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_shows_its_columns_and_its_key() {
    let served = Served::begin().await;
    let mut client = served.client().await;
    let info = client.get_tables(tables(Some("flights"), &[], true)).await.unwrap();
    let batches = read(&mut client, info).await.unwrap();
    let bytes = arrow::array::AsArray::as_binary::<i32>(batches[0].column(4)).value(0).to_vec();
    let columns = Schema::try_from(IpcMessage(bytes.into())).unwrap();
    let names: Vec<&str> = columns.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["number", "carrier"]);

    let asked = |table: &str| CommandGetPrimaryKeys { catalog: None, db_schema: None, table: table.to_owned() };
    let info = client.get_primary_keys(asked("flights")).await.unwrap();
    assert!(lines(&mut client, info).await.is_empty());
    let table = Table::open(&served.flights().display().to_string(), TableOptions::default()).await.unwrap();
    table.declare_key(&["number".to_owned()], &Default::default(), Default::default()).await.unwrap();
    let info = client.get_primary_keys(asked("flights")).await.unwrap();
    assert_eq!(lines(&mut client, info).await, ["lakemark|public|flights|number|flights_key|1"]);
    let info = client.get_primary_keys(asked("nosuch")).await.unwrap();
    assert!(lines(&mut client, info).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_table_refers_to_another() {
    let served = Served::begin().await;
    let mut client = served.client().await;
    let table = || "flights".to_owned();
    let exported = CommandGetExportedKeys { catalog: None, db_schema: None, table: table() };
    let imported = CommandGetImportedKeys { catalog: None, db_schema: None, table: table() };
    let crossed = CommandGetCrossReference {
        pk_catalog: None,
        pk_db_schema: None,
        pk_table: table(),
        fk_catalog: None,
        fk_db_schema: None,
        fk_table: table(),
    };
    for info in [
        client.get_exported_keys(exported).await.unwrap(),
        client.get_imported_keys(imported).await.unwrap(),
        client.get_cross_reference(crossed).await.unwrap(),
    ] {
        assert!(lines(&mut client, info).await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_says_what_it_is_and_which_types_it_has() {
    let served = Served::with(|options| options.read_only = true).await;
    let mut client = served.client().await;
    let info = client.get_sql_info(vec![SqlInfo::FlightSqlServerName, SqlInfo::FlightSqlServerReadOnly]).await.unwrap();
    let shown = lines(&mut client, info).await;
    assert!(shown[0].starts_with("0|") && shown[0].contains("Lakemark") && shown[1].contains("true"), "{shown:?}");
    let info = client.get_sql_info(Vec::new()).await.unwrap();
    assert!(lines(&mut client, info).await.len() > 80);
    let info = client.get_xdbc_type_info(CommandGetXdbcTypeInfo { data_type: None }).await.unwrap();
    assert_eq!(lines(&mut client, info).await.len(), 17);
    let info = client.get_xdbc_type_info(CommandGetXdbcTypeInfo { data_type: Some(12) }).await.unwrap();
    let shown = lines(&mut client, info).await;
    assert!(shown.len() == 1 && shown[0].starts_with("VARCHAR|"), "{shown:?}");
}
