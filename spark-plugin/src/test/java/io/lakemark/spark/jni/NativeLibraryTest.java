package io.lakemark.spark.jni;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class NativeLibraryTest {
  @ParameterizedTest
  @CsvSource({
    "Linux, amd64, linux/amd64",
    "Linux, x86_64, linux/amd64",
    "Linux, aarch64, linux/arm64",
    "Mac OS X, aarch64, mac os x/arm64"
  })
  void theLibraryIsFoundByPlatform(String os, String arch, String folder) {
    assertEquals(
        "/io/lakemark/spark/native/" + folder + "/liblakemark_jni.so",
        NativeLibrary.resource(os, arch));
  }
}
