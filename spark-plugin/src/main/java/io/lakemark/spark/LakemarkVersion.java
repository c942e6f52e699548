package io.lakemark.spark;

/**
 * The release of this connector. The native library and the package for Python are of the same one:
 * what one of them requests, another release may not know.
 */
public final class LakemarkVersion {
  private LakemarkVersion() {}

  /**
   * Returns the release of the jar.
   *
   * @return such as {@code 0.1.0}; null where the classes do not come from the jar
   */
  public static String get() {
    return LakemarkVersion.class.getPackage().getImplementationVersion();
  }
}
