package io.lakemark.spark.catalog;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lakemark.spark.LakemarkException;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class WarehouseTest {
  private static final String[] ROOT = {};
  private static final String[] AIR = {"air"};

  @TempDir Path root;
  private Warehouse warehouse;

  @BeforeEach
  void folders() throws IOException {
    Files.createDirectories(root.resolve("air/flights"));
    Files.writeString(root.resolve("air/flights/a.parquet"), "");
    Files.createDirectories(root.resolve("air/by_year/year=2024"));
    Files.createDirectories(root.resolve("delta/_delta_log"));
    Files.createDirectories(root.resolve("empty"));
    Files.createDirectories(root.resolve("_lakemark"));
    Files.createDirectories(root.resolve(".hidden"));
    Files.writeString(root.resolve("readme.txt"), "");
    warehouse = new Warehouse(root + "/", new Configuration());
  }

  private Optional<Map<String, String>> find(String name) {
    return warehouse.find(Identifier.of(AIR, name));
  }

  @Test
  void foldersWithDataAreTablesAndOthersAreNamespaces() {
    assertEquals(List.of("delta"), List.copyOf(warehouse.tables(ROOT).orElseThrow()));
    assertEquals(List.of("air", "empty"), List.copyOf(warehouse.namespaces(ROOT).orElseThrow()));
    assertEquals(List.of("by_year", "flights"), List.copyOf(warehouse.tables(AIR).orElseThrow()));
    assertTrue(warehouse.tables(new String[] {"absent"}).isEmpty());
    assertTrue(warehouse.isNamespace(AIR));
    assertFalse(warehouse.isNamespace(new String[] {"delta"}));
    assertFalse(warehouse.isNamespace(new String[] {"absent"}));
    assertEquals(Optional.of(Map.of("path", root + "/air/flights")), find("flights"));
    assertEquals(Optional.empty(), find("absent"));
  }

  @Test
  void aNameIsRememberedOnceAndForgotten() {
    Identifier name = Identifier.of(AIR, "named");
    Map<String, String> options = Map.of("path", "/far/away", "store", "s3://bucket/store");
    assertTrue(warehouse.remember(name, options));
    assertFalse(warehouse.remember(name, Map.of("path", "/else")));
    assertEquals(Optional.of(options), find("named"));
    assertEquals(
        List.of("by_year", "flights", "named"), List.copyOf(warehouse.tables(AIR).orElseThrow()));
    assertTrue(warehouse.forget(name));
    assertFalse(warehouse.forget(name));
    assertEquals(Optional.empty(), find("named"));
  }

  @Test
  void onlyEmptyNamespacesGo() {
    warehouse.createNamespace(new String[] {"sea", "north"});
    assertFalse(warehouse.dropNamespace(new String[] {"sea"}));
    assertTrue(warehouse.dropNamespace(new String[] {"sea", "north"}));
    assertTrue(warehouse.dropNamespace(new String[] {"sea"}));
    assertFalse(warehouse.dropNamespace(AIR));
    assertTrue(Files.exists(root.resolve("air/flights/a.parquet")));
  }

  @Test
  void namesStayBelowTheWarehouse() {
    for (String name : List.of("..", ".", "", "a/b")) {
      assertThrows(LakemarkException.InvalidInput.class, () -> find(name), name);
      String[] namespace = {name};
      assertThrows(
          LakemarkException.InvalidInput.class, () -> warehouse.isNamespace(namespace), name);
    }
  }
}
