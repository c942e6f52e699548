package io.lakemark.spark.storage;

import com.fasterxml.jackson.databind.JsonNode;
import io.lakemark.spark.jni.Json;
import java.lang.reflect.AccessibleObject;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.net.URI;
import java.time.Instant;
import java.time.format.DateTimeParseException;
import java.util.ArrayList;
import java.util.Date;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.hadoop.conf.Configuration;

/**
 * Asks the classes that Hadoop's configuration names for credentials. The Rust library calls it,
 * before credentials end and after a storage refused them.
 *
 * <p>Nothing of Amazon's, Microsoft's or Google's has to be on the class path: methods are found by
 * their names. What they are called is what Hadoop's documentation asks of such classes.
 */
public final class CredentialProviders {
  private static volatile ClassLoader ofUser = CredentialProviders.class.getClassLoader();

  private CredentialProviders() {}

  /**
   * Remembers the class loader of this thread, which knows the user's jars: the threads of the
   * library do not.
   */
  public static void prepare() {
    ClassLoader here = Thread.currentThread().getContextClassLoader();
    if (here != null) {
      ofUser = here;
    }
  }

  /**
   * Credentials as JSON, or why there are none.
   *
   * @param provider as {@link Access#provider} writes it
   */
  public static String credentials(String provider) {
    JsonNode asked = Json.read(provider);
    List<String> said = new ArrayList<>();
    for (JsonNode name : asked.get("classes")) {
      try {
        return Json.write(ofClass(name.asText(), asked));
      } catch (ReflectiveOperationException | RuntimeException | LinkageError e) {
        said.add(name.asText() + " " + reason(e));
      }
    }
    return Json.write(
        Map.of(
            "error",
            "no class of "
                + asked.get("setting").asText()
                + " gives credentials for "
                + asked.get("place").asText()
                + ": "
                + String.join("; ", said)));
  }

  /** What a failure means for the one who configured the class. */
  private static String reason(Throwable failure) {
    Throwable cause =
        failure instanceof InvocationTargetException && failure.getCause() != null
            ? failure.getCause()
            : failure;
    if (cause instanceof ClassNotFoundException || cause instanceof NoClassDefFoundError) {
      return "needs a jar that is not there: add it by --packages or spark.jars, as"
          + " org.apache.hadoop:hadoop-aws for the classes of S3A";
    }
    if (cause instanceof NoSuchMethodException) {
      return "lacks the method " + cause.getMessage();
    }
    String message = cause.getMessage();
    if (message == null || message.isBlank()) {
      return "fails with " + cause.getClass().getName();
    }
    return "says: " + message.lines().findFirst().orElse(message);
  }

  private static Map<String, Object> ofClass(String name, JsonNode asked)
      throws ReflectiveOperationException {
    Map<String, String> hadoop = new HashMap<>();
    JsonNode said = asked.get("hadoop");
    said.fieldNames().forEachRemaining(setting -> hadoop.put(setting, said.get(setting).asText()));
    Configuration configuration = StorageSettings.configuration(hadoop);
    configuration.setClassLoader(ofUser);
    URI place = URI.create(asked.get("place").asText());
    if (name.equals(S3Storage.SIMPLE) || name.equals(S3Storage.TEMPORARY)) {
      List<String> keys =
          new S3Storage(configuration, place).keys(name.equals(S3Storage.TEMPORARY));
      if (keys.isEmpty()) {
        throw new IllegalStateException("the configuration has no keys");
      }
      return keys(keys);
    }
    Thread thread = Thread.currentThread();
    ClassLoader before = thread.getContextClassLoader();
    // Such a class may look for others.
    thread.setContextClassLoader(ofUser);
    try {
      Object provider = instance(Class.forName(name, true, ofUser), place, configuration);
      try {
        return ofProvider(asked.get("kind").asText(), provider, place, configuration);
      } finally {
        close(provider);
      }
    } finally {
      thread.setContextClassLoader(before);
    }
  }

  private static Map<String, Object> ofProvider(
      String kind, Object provider, URI place, Configuration configuration)
      throws ReflectiveOperationException {
    return switch (kind) {
      case "s3" -> ofS3(provider);
      case "azure_signature" -> signature(provider, place, configuration);
      case "azure_token" -> azureToken(provider, place, configuration);
      default -> googleToken(provider, configuration);
    };
  }

  /** Made in one of the ways that S3A makes such classes; others have no arguments. */
  private static Object instance(Class<?> of, URI place, Configuration configuration)
      throws ReflectiveOperationException {
    Optional<Constructor<?>> both = constructor(of, URI.class, Configuration.class);
    if (both.isPresent()) {
      return both.get().newInstance(place, configuration);
    }
    Optional<Constructor<?>> one = constructor(of, Configuration.class);
    if (one.isPresent()) {
      return one.get().newInstance(configuration);
    }
    for (String factory : List.of("create", "getInstance")) {
      Optional<Method> found = method(of, factory);
      if (found.isPresent() && Modifier.isStatic(found.get().getModifiers())) {
        return found.get().invoke(null);
      }
    }
    return accessible(of.getDeclaredConstructor()).newInstance();
  }

  private static Optional<Constructor<?>> constructor(Class<?> of, Class<?>... arguments) {
    try {
      Constructor<?> found = accessible(of.getDeclaredConstructor(arguments));
      return Optional.of(found);
    } catch (NoSuchMethodException e) {
      return Optional.empty();
    }
  }

  /** Amazon's two releases of their library have names of their own. */
  private static Map<String, Object> ofS3(Object provider) throws ReflectiveOperationException {
    Object found = call(provider, List.of("resolveCredentials", "getCredentials"));
    List<String> keys = new ArrayList<>();
    keys.add(text(call(found, List.of("accessKeyId", "getAWSAccessKeyId"))));
    keys.add(text(call(found, List.of("secretAccessKey", "getAWSSecretKey"))));
    Optional<Method> token = method(found.getClass(), "sessionToken");
    token = token.isPresent() ? token : method(found.getClass(), "getSessionToken");
    // Keys that last have no token, also where a class has a method for one.
    Object said = token.isPresent() ? token.get().invoke(found) : null;
    if (said != null && !said.toString().isEmpty()) {
      keys.add(said.toString());
    }
    Map<String, Object> answer = keys(keys);
    Optional<Method> end = method(found.getClass(), "expirationTime");
    if (end.isPresent() && end.get().invoke(found) instanceof Optional<?> time) {
      time.ifPresent(moment -> answer.put("expires_ms", ((Instant) moment).toEpochMilli()));
    }
    return answer;
  }

  private static Map<String, Object> keys(List<String> keys) {
    Map<String, Object> answer = new TreeMap<>();
    answer.put("key_id", keys.get(0));
    answer.put("secret_key", keys.get(1));
    if (keys.size() > 2) {
      answer.put("session_token", keys.get(2));
    }
    return answer;
  }

  private static Map<String, Object> signature(
      Object provider, URI place, Configuration configuration) throws ReflectiveOperationException {
    String account = account(place);
    begin(provider, account, configuration);
    Method method =
        accessible(
            provider
                .getClass()
                .getMethod("getSASToken", String.class, String.class, String.class, String.class));
    Object found = method.invoke(provider, account, place.getUserInfo(), "/", "read");
    Map<String, Object> answer = new TreeMap<>();
    answer.put("signature", text(found));
    end(text(found)).ifPresent(end -> answer.put("expires_ms", end.toEpochMilli()));
    return answer;
  }

  /** When a signature ends, as it says itself. */
  private static Optional<Instant> end(String signature) {
    for (String part : signature.split("[?&]", -1)) {
      if (part.startsWith("se=")) {
        try {
          return Optional.of(Instant.parse(part.substring(3).replace("%3A", ":")));
        } catch (DateTimeParseException e) {
          return Optional.empty();
        }
      }
    }
    return Optional.empty();
  }

  private static Map<String, Object> azureToken(
      Object provider, URI place, Configuration configuration) throws ReflectiveOperationException {
    begin(provider, account(place), configuration);
    Map<String, Object> answer = new TreeMap<>();
    answer.put("token", text(call(provider, List.of("getAccessToken"))));
    if (call(provider, List.of("getExpiryTime")) instanceof Date end) {
      answer.put("expires_ms", end.toInstant().toEpochMilli());
    }
    return answer;
  }

  private static void begin(Object provider, String account, Configuration configuration)
      throws ReflectiveOperationException {
    accessible(provider.getClass().getMethod("initialize", Configuration.class, String.class))
        .invoke(provider, configuration, account);
  }

  /** The account as ABFS names it: without what all accounts of the cloud end in. */
  private static String account(URI place) {
    String host = String.valueOf(place.getHost());
    int dot = host.indexOf('.');
    return dot < 0 ? host : host.substring(0, dot);
  }

  private static Map<String, Object> googleToken(Object provider, Configuration configuration)
      throws ReflectiveOperationException {
    Optional<Method> configured = method(provider.getClass(), "setConf", Configuration.class);
    if (configured.isPresent()) {
      configured.get().invoke(provider, configuration);
    }
    Object found = call(provider, List.of("getAccessToken"));
    Map<String, Object> answer = new TreeMap<>();
    answer.put("token", text(call(found, List.of("getToken"))));
    Optional<Method> end = method(found.getClass(), "getExpirationTime");
    end = end.isPresent() ? end : method(found.getClass(), "getExpirationTimeMilliSeconds");
    Object time = end.isPresent() ? end.get().invoke(found) : null;
    if (time instanceof Instant moment) {
      answer.put("expires_ms", moment.toEpochMilli());
    } else if (time instanceof Long millis) {
      answer.put("expires_ms", millis);
    }
    return answer;
  }

  /** What the first of these methods gives that there is. */
  private static Object call(Object object, List<String> names)
      throws ReflectiveOperationException {
    for (String name : names) {
      Optional<Method> found = method(object.getClass(), name);
      if (found.isPresent()) {
        return found.get().invoke(object);
      }
    }
    throw new NoSuchMethodException(names.get(0));
  }

  private static Optional<Method> method(Class<?> of, String name, Class<?>... arguments) {
    try {
      return Optional.of(accessible(of.getMethod(name, arguments)));
    } catch (NoSuchMethodException e) {
      return Optional.empty();
    }
  }

  /** A public method may be that of a class that is not. */
  private static <T extends AccessibleObject> T accessible(T member) {
    member.setAccessible(true);
    return member;
  }

  private static String text(Object value) {
    if (value == null) {
      throw new IllegalStateException("it gives no credentials");
    }
    return value.toString();
  }

  private static void close(Object provider) {
    if (provider instanceof AutoCloseable open) {
      try {
        open.close();
      } catch (Exception e) {
        // The credentials are there.
      }
    }
  }
}
