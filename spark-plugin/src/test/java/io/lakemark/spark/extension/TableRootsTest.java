package io.lakemark.spark.extension;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import java.util.stream.Stream;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.Test;

final class TableRootsTest {
  private static List<Path> roots(String path, boolean isAlone) {
    return List.copyOf(TableRoots.of(new Path(path), isAlone));
  }

  private static List<Path> paths(String... paths) {
    return Stream.of(paths).map(Path::new).toList();
  }

  @Test
  void aFolderIsATable() {
    assertEquals(paths("file:/data/t"), roots("file:/data/t", true));
    assertEquals(paths("s3a://b/t"), roots("s3a://b/t", false));
  }

  @Test
  void partitionsBelongToTheTableAboveThem() {
    assertEquals(
        paths("file:/data/t/year=2024/zone=a", "file:/data/t"),
        roots("file:/data/t/year=2024/zone=a", true));
    assertEquals(paths("file:/data/t"), roots("file:/data/t/year=2024/zone=a", false));
  }

  @Test
  void aFileBelongsToItsFolderAndMayBeOne() {
    assertEquals(
        paths("file:/data/t/k=1/a.parquet", "file:/data/t"),
        roots("file:/data/t/k=1/a.parquet", true));
    assertEquals(paths("/a.parquet", "/"), roots("/a.parquet", false));
  }
}
