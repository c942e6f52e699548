package io.lakemark.spark.read;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.BitSet;
import java.util.List;
import java.util.Optional;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.filter.And;
import org.apache.spark.sql.connector.expressions.filter.Or;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.StructType;
import org.junit.jupiter.api.Test;

final class RowGroupSelectionTest {
  private static final StructType COLUMNS = StructType.fromDDL("k INT");
  private static final Predicate KNOWN =
      new Predicate("=", new Expression[] {Expressions.column("k"), Expressions.literal(5)});
  private static final Predicate UNKNOWN =
      new Predicate("=", new Expression[] {Expressions.column("other"), Expressions.literal(5)});

  @Test
  void anAnswerNamesFilesWithTheRowGroupsToRead() {
    RowGroupSelection choice =
        RowGroupSelection.parse(
            """
            {"missed": {"buffered": true, "unpublished": false},
             "rowGroupsTotal": 20, "rowGroupsSkipped": 15,
             "files": [
               {"path": "a=1/x.parquet", "size": 1000, "modifiedMs": 1700000000123,
                "rowGroups": 10, "rows": 5000, "kept": [[1, 3], [7, 8]]},
               {"path": "y.parquet", "size": 7, "modifiedMs": 5,
                "rowGroups": 10, "rows": 50, "kept": []}]}
            """);
    assertTrue(choice.missesBuffered());
    assertFalse(choice.missesUnpublished());
    assertEquals(15, choice.rowGroupsSkipped());
    BitSet kept = new BitSet();
    kept.set(1, 3);
    kept.set(7);
    assertEquals(
        new RowGroupSelection.PrunedFile(1000, 1_700_000_000_123L, 10, 5000, kept),
        choice.files().get("a=1/x.parquet"));
    assertTrue(choice.files().get("y.parquet").kept().isEmpty());
  }

  @Test
  void onlyFiltersThatIndexesCouldAnswerAreAQuestion() {
    assertTrue(RowGroupSelection.request(COLUMNS, List.of(UNKNOWN, KNOWN)).isPresent());
    assertTrue(RowGroupSelection.request(COLUMNS, List.of(new And(UNKNOWN, KNOWN))).isPresent());
    assertEquals(Optional.empty(), RowGroupSelection.request(COLUMNS, List.of()));
    assertEquals(Optional.empty(), RowGroupSelection.request(COLUMNS, List.of(UNKNOWN)));
    assertEquals(
        Optional.empty(), RowGroupSelection.request(COLUMNS, List.of(new Or(UNKNOWN, KNOWN))));
    assertEquals(
        Optional.empty(),
        RowGroupSelection.request(StructType.fromDDL("other INT"), List.of(KNOWN)));
  }
}
