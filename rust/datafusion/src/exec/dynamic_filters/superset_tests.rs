//! What is understood of filters that other operators make.

use arrow::array::{ArrayRef, Int32Array};
use arrow::datatypes::{DataType, Field};
use datafusion::physical_expr::expressions::{BinaryExpr as Binary, CaseExpr, InListExpr, col, lit as physical_lit};

use super::*;

fn schema() -> Schema {
    Schema::new(vec![Field::new("k", DataType::Int32, true), Field::new("f", DataType::Float64, true)])
}

fn compare(column: &str, op: Operator, value: i32) -> Arc<dyn PhysicalExpr> {
    Arc::new(Binary::new(col(column, &schema()).unwrap(), op, physical_lit(value)))
}

fn join(left: Arc<dyn PhysicalExpr>, op: Operator, right: Arc<dyn PhysicalExpr>) -> Arc<dyn PhysicalExpr> {
    Arc::new(Binary::new(left, op, right))
}

fn text(filter: &Arc<dyn PhysicalExpr>) -> Option<String> {
    superset(filter, &schema()).map(|expr| expr.human_display().to_string())
}

fn known() -> Arc<dyn PhysicalExpr> {
    compare("k", Operator::GtEq, 3)
}

fn unknown() -> Arc<dyn PhysicalExpr> {
    compare("f", Operator::Gt, 1)
}

#[test]
fn what_is_not_understood_is_left_out_of_an_and_and_spoils_an_or() {
    assert_eq!(text(&known()).unwrap(), "k >= 3");
    assert_eq!(text(&unknown()), None);
    assert_eq!(text(&join(known(), Operator::And, unknown())).unwrap(), "k >= 3");
    assert_eq!(text(&join(unknown(), Operator::And, unknown())), None);
    assert_eq!(text(&join(known(), Operator::Or, unknown())), None);
    assert_eq!(text(&join(known(), Operator::Or, physical_lit(false))).unwrap(), "k >= 3");
    assert_eq!(text(&join(known(), Operator::Or, physical_lit(true))).unwrap(), "true");
}

#[test]
fn a_filter_by_partition_is_any_of_its_branches() {
    let list: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), Some(7), None]));
    let list = InListExpr::try_new_from_array(col("k", &schema()).unwrap(), list, false, &schema()).unwrap();
    let branches = vec![(physical_lit(0), known()), (physical_lit(1), Arc::new(list) as Arc<dyn PhysicalExpr>)];
    let by = |branches: Vec<_>, other: bool| -> Arc<dyn PhysicalExpr> {
        Arc::new(CaseExpr::try_new(Some(col("k", &schema()).unwrap()), branches, Some(physical_lit(other))).unwrap())
    };
    assert_eq!(text(&by(branches.clone(), false)).unwrap(), "k >= 3 OR k IN 1, 7, NULL");
    assert_eq!(text(&by(branches, true)).unwrap(), "true");
    assert_eq!(text(&by(vec![(physical_lit(0), unknown())], false)), None);
}

#[test]
fn a_dynamic_filter_is_what_it_says_now() {
    let dynamic = DynamicFilterPhysicalExpr::new(vec![col("k", &schema()).unwrap()], physical_lit(true));
    let dynamic = Arc::new(dynamic);
    let filter: Arc<dyn PhysicalExpr> = Arc::clone(&dynamic) as _;
    assert_eq!(text(&filter).unwrap(), "true");
    dynamic.update(known()).unwrap();
    assert_eq!(text(&filter).unwrap(), "k >= 3");
}
