package io.lakemark.spark;

/**
 * What every failure of Lakemark becomes, with the same kind and message as in the shell and in
 * Python.
 *
 * <p>There is one subclass per kind, so that a caller may catch just what it can act on; {@link
 * #kind()} serves a {@code switch}.
 */
public class LakemarkException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  /** What a caller would act differently on. */
  public enum Kind {
    /** An argument, option or path makes no sense. */
    INVALID_INPUT,
    /** The table, file, column or index does not exist. */
    NOT_FOUND,
    /** An index of that name exists, or a row with a key that was to be inserted. */
    ALREADY_EXISTS,
    /** A type, table feature or storage that this release does not serve. */
    UNSUPPORTED,
    /** Files of one table disagree on the type of a column. */
    SCHEMA_MISMATCH,
    /** A row does not meet a constraint of its Delta table. */
    CONSTRAINT_VIOLATION,
    /** Someone else changed the table at the same time; try again. */
    CONFLICT,
    /** There is no room for more buffered updates; those that were made are safe. */
    CACHE_FULL,
    /** What an old version of the table needs is gone. */
    SNAPSHOT_EXPIRED,
    /** The buffered changes of a store may not be those of the table. */
    STORE_MISMATCH,
    /** Bytes are not what they should be. */
    CORRUPT,
    /** Reading or writing failed. */
    IO,
    /** The caller cancelled the work. */
    CANCELLED,
    /** A defect of Lakemark. */
    INTERNAL
  }

  private final Kind kind;

  private LakemarkException(Kind kind, String message) {
    super(message);
    this.kind = kind;
  }

  /** Returns what kind of failure it is. */
  public Kind kind() {
    return kind;
  }

  /**
   * Makes the exception for a kind by its stable name. The native library calls this, and knows no
   * class but this one.
   *
   * @param kind name of the kind as the other languages write it, for example {@code NotFound}
   * @param message what happened and what to do about it
   * @return an instance of the subclass for the kind
   */
  public static LakemarkException of(String kind, String message) {
    return switch (kind) {
      case "InvalidInput" -> new InvalidInput(message);
      case "NotFound" -> new NotFound(message);
      case "AlreadyExists" -> new AlreadyExists(message);
      case "Unsupported" -> new Unsupported(message);
      case "SchemaMismatch" -> new SchemaMismatch(message);
      case "ConstraintViolation" -> new ConstraintViolation(message);
      case "Conflict" -> new Conflict(message);
      case "CacheFull" -> new CacheFull(message);
      case "SnapshotExpired" -> new SnapshotExpired(message);
      case "StoreMismatch" -> new StoreMismatch(message);
      case "Corrupt" -> new Corrupt(message);
      case "Io" -> new Io(message);
      case "Cancelled" -> new Cancelled(message);
      default -> new Internal(message);
    };
  }

  /** The same failure with the place where it was. */
  public LakemarkException at(String place) {
    LakemarkException placed = of(getClass().getSimpleName(), place + ": " + getMessage());
    placed.initCause(this);
    return placed;
  }

  /** An argument, option or path makes no sense. */
  public static final class InvalidInput extends LakemarkException {
    private static final long serialVersionUID = 1L;

    /** With a message that says which argument is wrong, and what it must be. */
    public InvalidInput(String message) {
      super(Kind.INVALID_INPUT, message);
    }
  }

  /** The table, file, column or index does not exist. */
  public static final class NotFound extends LakemarkException {
    private static final long serialVersionUID = 1L;

    /** With a message that says what is missing, and where to look for what there is. */
    public NotFound(String message) {
      super(Kind.NOT_FOUND, message);
    }
  }

  /** An index of that name exists, or a row with a key that was to be inserted. */
  public static final class AlreadyExists extends LakemarkException {
    private static final long serialVersionUID = 1L;

    AlreadyExists(String message) {
      super(Kind.ALREADY_EXISTS, message);
    }
  }

  /** A type, table feature or storage that this release does not serve. */
  public static final class Unsupported extends LakemarkException {
    private static final long serialVersionUID = 1L;

    /** With a message that says what is refused, and what to do in its place. */
    public Unsupported(String message) {
      super(Kind.UNSUPPORTED, message);
    }
  }

  /**
   * Files of one table disagree on the type of a column, or the table is not the one that was
   * loaded.
   */
  public static final class SchemaMismatch extends LakemarkException {
    private static final long serialVersionUID = 1L;

    /** With a message that has the columns of either side, and what to do. */
    public SchemaMismatch(String message) {
      super(Kind.SCHEMA_MISMATCH, message);
    }
  }

  /** A row does not meet a constraint of its Delta table. */
  public static final class ConstraintViolation extends LakemarkException {
    private static final long serialVersionUID = 1L;

    ConstraintViolation(String message) {
      super(Kind.CONSTRAINT_VIOLATION, message);
    }
  }

  /** Someone else changed the table at the same time; try again. */
  public static final class Conflict extends LakemarkException {
    private static final long serialVersionUID = 1L;

    /** With a message that says what somebody else changed, and how to try again. */
    public Conflict(String message) {
      super(Kind.CONFLICT, message);
    }
  }

  /** There is no room for more buffered updates; those that were made are safe. */
  public static final class CacheFull extends LakemarkException {
    private static final long serialVersionUID = 1L;

    CacheFull(String message) {
      super(Kind.CACHE_FULL, message);
    }
  }

  /** What an old version of the table needs is gone. */
  public static final class SnapshotExpired extends LakemarkException {
    private static final long serialVersionUID = 1L;

    SnapshotExpired(String message) {
      super(Kind.SNAPSHOT_EXPIRED, message);
    }
  }

  /** The buffered changes of a store may not be those of the table. */
  public static final class StoreMismatch extends LakemarkException {
    private static final long serialVersionUID = 1L;

    StoreMismatch(String message) {
      super(Kind.STORE_MISMATCH, message);
    }
  }

  /** Bytes are not what they should be. */
  public static final class Corrupt extends LakemarkException {
    private static final long serialVersionUID = 1L;

    /** With a message that says which data are wrong, and what to do with them. */
    public Corrupt(String message) {
      super(Kind.CORRUPT, message);
    }
  }

  /** Reading or writing failed. */
  public static final class Io extends LakemarkException {
    private static final long serialVersionUID = 1L;

    /** With a message that names the place, and has the cause. */
    public Io(String message) {
      super(Kind.IO, message);
    }
  }

  /** The caller cancelled the work. */
  public static final class Cancelled extends LakemarkException {
    private static final long serialVersionUID = 1L;

    Cancelled(String message) {
      super(Kind.CANCELLED, message);
    }
  }

  /** A defect of Lakemark. */
  public static final class Internal extends LakemarkException {
    private static final long serialVersionUID = 1L;

    /** With a message for whoever mends the defect; no user can do anything about it. */
    public Internal(String message) {
      super(Kind.INTERNAL, message);
    }
  }
}
