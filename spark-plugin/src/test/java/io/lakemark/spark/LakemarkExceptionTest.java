package io.lakemark.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.lakemark.spark.jni.NativeStream;
import java.io.IOException;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class LakemarkExceptionTest {
  /** The kind as the native side writes it: {@code NOT_FOUND} is {@code NotFound}. */
  private static String nativeName(LakemarkException.Kind kind) {
    StringBuilder name = new StringBuilder();
    for (String word : kind.name().split("_", -1)) {
      name.append(word.charAt(0)).append(word.substring(1).toLowerCase(java.util.Locale.ROOT));
    }
    return name.toString();
  }

  @ParameterizedTest
  @EnumSource
  void everyKindHasItsClass(LakemarkException.Kind kind) {
    LakemarkException exception = LakemarkException.of(nativeName(kind), "what to do");
    assertEquals(kind, exception.kind());
    assertEquals("what to do", exception.getMessage());
    assertEquals(nativeName(kind), exception.getClass().getSimpleName());
  }

  @Test
  void aFailureInAStreamGetsItsKindBack() {
    IOException failure =
        new IOException(
            new RuntimeException("Error code 5: External error: [lakemark:Corrupt] bad\npage"));
    LakemarkException found = NativeStream.translated(failure);
    assertInstanceOf(LakemarkException.Corrupt.class, found);
    assertEquals("bad\npage", found.getMessage());
    assertEquals(failure, found.getSuppressed()[0]);
  }

  @Test
  void aFailureWithoutATagIsADefect() {
    LakemarkException found = NativeStream.translated(new IOException("closed"));
    assertEquals(LakemarkException.Kind.INTERNAL, found.kind());
    assertEquals("a native stream failed: closed", found.getMessage());
  }

  @Test
  void aReadWithoutOnePathSaysHowToGiveOne() {
    var none = assertThrows(LakemarkException.class, () -> LakemarkOptions.of(Map.of()));
    assertEquals(LakemarkException.Kind.INVALID_INPUT, none.kind());
    var many =
        assertThrows(LakemarkException.class, () -> LakemarkOptions.of(Map.of("paths", "[]")));
    assertEquals(LakemarkException.Kind.UNSUPPORTED, many.kind());
  }
}
