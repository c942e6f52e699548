package io.lakemark.spark.extension;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.lakemark.spark.storage.StorageSettings;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.Test;

final class IndexedRootTest {
  private static String file(String root, String path) {
    return new IndexedRoot(new Path(root), null, StorageSettings.NONE).file(path);
  }

  @Test
  void filesAreBelowTheirTable() {
    assertEquals("file:/data/t/k=a b/x.parquet", file("file:/data/t", "k=a b/x.parquet"));
    assertEquals("s3a://b/t/k=a:/x.parquet", file("s3a://b/t", "k=a:/x.parquet"));
  }

  @Test
  void filesOfAnotherTableAreInTheSameFileSystem() {
    assertEquals(
        "file:/other/k=a b/x.parquet", file("file:/data/t", "file:/other/k=a b/x.parquet"));
    assertEquals("s3a://b/other/x.parquet", file("s3a://b/t", "s3:/other/x.parquet"));
    assertEquals(
        new Path("file:///other/x.parquet").toString(),
        file("file:/data/t", "file:/other/x.parquet"));
  }
}
