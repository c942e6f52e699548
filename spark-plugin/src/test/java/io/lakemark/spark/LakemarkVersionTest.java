package io.lakemark.spark;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class LakemarkVersionTest {
  @Test
  void jarAndLibraryOfDifferentReleasesAreRefusedWithBothNamed() {
    LakemarkException refused =
        assertThrows(
            LakemarkException.Unsupported.class, () -> LakemarkVersion.check("0.2.0", "0.1.9"));
    assertTrue(
        refused
            .getMessage()
            .startsWith(
                "the jar of the connector is lakemark 0.2.0 and its native library is lakemark"
                    + " 0.1.9;"));
  }

  @Test
  void theSameReleaseWillDoAndSoWillClassesWithoutAJar() {
    assertDoesNotThrow(() -> LakemarkVersion.check("0.2.0", "0.2.0"));
    assertDoesNotThrow(() -> LakemarkVersion.check(null, "0.2.0"));
  }
}
