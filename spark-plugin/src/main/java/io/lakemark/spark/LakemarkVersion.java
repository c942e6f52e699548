package io.lakemark.spark;

/**
 * The release of this connector. The native library and the package for Python are of the same one:
 * what one of them asks, another release may not know.
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

  /** Refuses a native library of another release than a jar's, if both are known. */
  static void check(String jar, String library) {
    if (jar != null && !jar.equals(library)) {
      throw new LakemarkException.Unsupported(
          String.format(
              "the jar of the connector is lakemark %s and its native library is lakemark %s; name a"
                  + " library of the jar's release in %s, or none, so that the jar's own is taken",
              jar, library, NativeLibrary.PATH_PROPERTY));
    }
  }
}
