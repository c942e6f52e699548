package io.lakemark.spark.jni;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lakemark.spark.LakemarkException;
import org.junit.jupiter.api.Test;

class ReleaseTest {
  @Test
  void jarAndLibraryOfDifferentReleasesAreRefusedWithBothNamed() {
    LakemarkException refused =
        assertThrows(
            LakemarkException.Unsupported.class,
            () -> NativeLibrary.checkRelease("0.2.0", "0.1.9"));
    assertTrue(
        refused
            .getMessage()
            .startsWith(
                "the jar of the connector is lakemark 0.2.0 and its native library is lakemark"
                    + " 0.1.9;"));
  }

  @Test
  void theSameReleaseWillDoAndSoWillClassesWithoutAJar() {
    assertDoesNotThrow(() -> NativeLibrary.checkRelease("0.2.0", "0.2.0"));
    assertDoesNotThrow(() -> NativeLibrary.checkRelease(null, "0.2.0"));
  }
}
